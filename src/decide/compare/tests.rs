//! The guard against reference cases, and whole comparisons of constructed trials.

use serde_json::Value;

use super::*;

/// Constructed cases: records, what is compared, and what the guard must find.
const CASES: &str = include_str!("../../../tests/stats/guard.json");

/// The factors that the cases guard; the others of their records are none.
const GUARDED: [&str; 5] = ["state", "device", "nvpmodel", "version", "recipe"];

fn observation(record: &Value, factor: &str) -> Observation {
    let members = record.as_object().unwrap();
    let factors = members
        .iter()
        .filter(|(name, _)| GUARDED.contains(&name.as_str()) || *name == factor)
        .map(|(name, level)| (name.clone(), level.as_str().map(str::to_owned)))
        .collect();
    let order = members.get("time").and_then(Value::as_f64).map(|time| (ORDER, time));
    Observation {
        counting: match record["outcome"].as_str().unwrap() {
            "fault" => Counting::Fault,
            "pass" => Counting::Clean,
            _ => Counting::Excluded,
        },
        factors,
        figures: order.into_iter().collect(),
        boot: None,
        position: 0,
        block: None,
        provenance: Provenance::Transcribed,
        signature: None,
    }
}

fn case(case: &Value) -> (Question, Vec<Observation>) {
    let input = &case["input"];
    let text = |name: &str| input[name].as_str().unwrap().to_owned();
    let question =
        Question { factor: text("factor"), a: text("a"), b: text("b"), axes: BTreeSet::new(), peeked: false };
    let records = input["records"].as_array().unwrap();
    let observations = records.iter().map(|record| observation(record, &question.factor)).collect();
    (question, observations)
}

/// The names of factors of this kind.
fn names(guarded: &Guarded, standing: Standing) -> Vec<&str> {
    guarded.standing(standing).map(|factor| factor.name.as_str()).collect()
}

#[test]
fn the_guard_finds_what_the_reference_cases_say() {
    let file: Value = serde_json::from_str(CASES).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let near = |got: f64, want: &Value| {
        let want = want.as_f64().unwrap();
        assert!((got - want).abs() <= 1e-9 + 1e-6 * want.abs(), "{got}, expected {want}");
    };
    for reference in cases {
        let (question, observations) = case(reference);
        let guarded = guard::guard(&question.units(&observations), &question);
        let want = &reference["output"];
        let name = reference["input"]["name"].as_str().unwrap();
        println!("guard: {name}: {}", guarded.conclusion);
        assert_eq!(guarded.conclusion.as_str(), want["verdict"], "{name}");
        let table = |arms: Arms| [arms.a.faults, arms.a.counted(), arms.b.faults, arms.b.counted()];
        assert_eq!(serde_json::json!(table(guarded.crude)), want["crude"], "{name}");
        assert_eq!(serde_json::json!(table(guarded.like_for_like())), want["like_for_like"], "{name}");
        assert_eq!(guarded.excluded.0 + guarded.excluded.1, want["excluded"].as_u64().unwrap(), "{name}");
        assert_eq!(guarded.strata.len() as u64, want["common_strata"].as_u64().unwrap(), "{name}");
        near(guarded.crude_p, &want["crude_p_two_sided"]);
        assert_eq!(serde_json::json!(names(&guarded, Standing::Aliased)), want["aliased"], "{name}");
        assert_eq!(serde_json::json!(names(&guarded, Standing::Imbalanced)), want["imbalanced"], "{name}");
        let unknown: Vec<&str> =
            guarded.factors.iter().filter(|factor| factor.unknown > 0).map(|factor| factor.name.as_str()).collect();
        assert_eq!(serde_json::json!(unknown), want["unknown"], "{name}");
        for factor in &guarded.factors {
            match &want["overlaps"][&factor.name] {
                Value::Null => assert_eq!(factor.overlap, None, "{name}: {}", factor.name),
                overlap => near(factor.overlap.unwrap(), overlap),
            }
        }
        let separated = guarded.separated.iter().find(|separation| separation.name == ORDER);
        assert_eq!(separated.is_some(), !want["separated"]["time"].is_null(), "{name}");
        if let Some(separation) = separated {
            near(separation.p, &want["separated"]["time"]["p"]);
            near(separation.auc, &want["separated"]["time"]["auc"]);
        }
        if let Some(stratified) = guarded.stratified {
            let tests = &want["cmh"];
            assert_eq!(stratified.informative as u64, tests["informative"].as_u64().unwrap(), "{name}");
            near(stratified.tails.greater, &tests["greater"]);
            near(stratified.tails.less, &tests["less"]);
            near(stratified.tails.two_sided, &tests["two_sided"]);
            near(guarded.smallest_p.unwrap(), &want["min_attainable_p"]);
            assert_eq!(guarded.explained_by_others, want["simpson"].as_bool().unwrap(), "{name}");
        }
    }
    assert_eq!(cases.len(), 8);
}

fn comparison_of(name: &str) -> Comparison {
    let file: Value = serde_json::from_str(CASES).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let found = cases.iter().find(|case| case["input"]["name"] == name).unwrap_or_else(|| panic!("{name}"));
    let (question, observations) = case(found);
    compare(&observations, &question, Provenance::Transcribed)
}

#[test]
fn a_conclusion_names_its_reason_and_the_cheapest_trials_that_say_more() {
    let headline = |name| comparison_of(name).headline;
    assert_eq!(
        headline("seed claim: 0.49.2 fixes it"),
        "CONFOUNDED by state: every 0.46.1 trial was cold and every 0.49.2 trial was warm (overlap 0). This says \
         nothing about version"
    );
    let needs = |name| comparison_of(name).needs.iter().map(Need::in_words).collect::<Vec<_>>();
    assert_eq!(needs("seed claim: 0.49.2 fixes it")[0], "0.49.2 × state=cold, 5 trials (5 boots)");
    assert_eq!(
        headline("warmup, same binary"),
        "UNDERPOWERED: with 3 and 3 like trials the smallest possible p is 0.10. No result could have shown a \
         difference; 1 more of warmup × state=cold (then p can reach 0.029)"
    );
    assert_eq!(
        headline("warmup, pooled 7/9, run last"),
        "ORDER_CONFOUNDED: like for like 7/9 against 0/3, exact p = 0.045, but the trials of warmup ran after those of \
         none (in a random order that comes with p = 0.0091): whatever else changed meanwhile may be the cause"
    );
    assert_eq!(needs("warmup, pooled 7/9, run last"), ["none and warmup × state=cold, 6 pairs (12 boots)"]);
    assert_eq!(
        headline("one knob, state not recorded"),
        "UNKNOWN_FACTOR(state): it was not recorded in 1 trial, so that recipe cannot be told from it"
    );
    assert_eq!(needs("one knob, state not recorded"), ["uint8 × state=cold, 5 trials (5 boots)"]);
    assert_eq!(headline("blocked interleaved 6+6"), "ESTABLISHED: like for like 5/6 against 0/6, exact p = 0.020");
    assert!(
        headline("device aliased").starts_with("CONFOUNDED by device: every x trial was d1 and every y trial was d2")
    );
}

#[test]
fn cold_against_warm_says_what_it_is_conditioned_on_and_how_trials_cluster() {
    let comparison = comparison_of("cold vs warm");
    assert_eq!(comparison.conclusion, Conclusion::Established);
    let notes = comparison.notes.join("\n");
    assert!(notes.contains("conditioned on survival: a warm trial"), "{notes}");
    assert!(
        notes.contains("If they came from: 2 boots p = 0.11, 3 boots p = 0.045, 5 boots p = 0.010 (one-sided)"),
        "{notes}"
    );
    assert_eq!(
        comparison.b.says,
        "BELOW 45.0 %: 0/29 (rate at most 9.8 %, 95 % one-sided); cold: 7/9 (at least 45.0 %)"
    );
    assert_eq!(comparison.a.says, "FAULTS: 7/9 (77.8 %, 95 % CI 40.0–97.2 %)");
}

#[test]
fn one_fault_shows_that_it_is_there_and_no_rate() {
    let comparison = comparison_of("seed after the correction");
    assert_eq!(comparison.conclusion, Conclusion::NotShown);
    assert_eq!(
        comparison.b.says,
        "FAULTS: 1/10. One matching fault shows that it is there; its rate is not known (0.3–44.5 %)"
    );
}

/// A trial of level `level`, in boot number `boot`, in block `round`.
fn trial(level: &str, fault: bool, boot: u32, round: u32) -> Observation {
    Observation {
        counting: if fault { Counting::Fault } else { Counting::Clean },
        factors: [("batch", level), (STATE, "warm")]
            .map(|(name, level)| (name.to_owned(), Some(level.to_owned())))
            .into_iter()
            .collect(),
        figures: BTreeMap::new(),
        boot: Some(boot),
        position: 0,
        block: Some(Block { run: 0, round }),
        provenance: Provenance::Measured,
        signature: None,
    }
}

fn question(peeked: bool) -> Question {
    Question { factor: "batch".into(), a: "1".into(), b: "8".into(), axes: BTreeSet::new(), peeked }
}

#[test]
fn warm_trials_that_share_a_boot_with_no_trial_of_the_other_level_are_one_sample() {
    let apart: Vec<Observation> =
        (0..10).flat_map(|round| [trial("1", true, 1, round), trial("8", false, 2, round)]).collect();
    let comparison = compare(&apart, &question(false), Provenance::Measured);
    assert_eq!(
        (comparison.conclusion, comparison.strata[0].a, comparison.strata[0].b),
        (Conclusion::Underpowered, (1, 1), (0, 1))
    );
    assert_eq!(comparison.a.rate.fraction(), "10/10", "what is shown of a level are its trials");
    let drawn: Vec<Observation> =
        (0..10).flat_map(|round| [trial("1", true, 1, round), trial("8", false, 1, round)]).collect();
    let comparison = compare(&drawn, &question(false), Provenance::Measured);
    assert_eq!((comparison.conclusion, comparison.strata[0].a), (Conclusion::Established, (10, 10)));
}

#[test]
fn trials_whose_number_depended_on_what_was_seen_are_judged_by_the_e_value() {
    let pairs = |count: u32| -> Vec<Observation> {
        (0..count).flat_map(|round| [trial("1", true, round, round), trial("8", false, round, round)]).collect()
    };
    let conclusion = |count, peeked| compare(&pairs(count), &question(peeked), Provenance::Measured).conclusion;
    assert_eq!((conclusion(3, true), conclusion(3, false)), (Conclusion::Underpowered, Conclusion::Underpowered));
    assert_eq!(conclusion(4, true), Conclusion::Established, "an e-value of 43.1");
    let comparison = compare(&pairs(4), &question(true), Provenance::Measured);
    assert!(comparison.headline.contains("e-value 43.1 over 4 blocks (20 needed)"), "{}", comparison.headline);
    // 4 of 5 against none of 5: enough for the exact test, had the number of pairs been fixed in advance.
    let late: Vec<Observation> =
        (0..5).flat_map(|round| [trial("1", round > 0, round, round), trial("8", false, round, round)]).collect();
    let by_exact = compare(&late, &question(false), Provenance::Measured);
    assert_eq!(by_exact.conclusion, Conclusion::Established, "{}", by_exact.headline);
    let by_e = compare(&late, &question(true), Provenance::Measured);
    assert!(by_e.tests.e_value.unwrap() < E_THRESHOLD, "{:?}", by_e.tests);
    assert_eq!(by_e.conclusion, Conclusion::Suggestive);
}

#[test]
fn numbers_of_different_provenance_never_meet() {
    let mut trials: Vec<Observation> =
        (0..8).flat_map(|round| [trial("1", true, 1, round), trial("8", false, 1, round)]).collect();
    for trial in trials.iter_mut().step_by(2) {
        trial.provenance = Provenance::Injected;
    }
    let comparison = compare(&trials, &question(false), Provenance::Injected);
    assert_eq!((comparison.conclusion, comparison.b.rate.counted), (Conclusion::NoData, 0));
    assert_eq!(comparison.headline, "NO_DATA: no trial with batch = 8 was counted");
}

#[test]
fn only_cells_with_a_counterpart_are_compared_where_there_are_any() {
    let of_cell = |level: &str, sequence: &str, fault: bool| {
        let mut trial = trial(level, fault, 1, 1);
        trial.factors = trial.factors.with("sequence", sequence);
        trial
    };
    let mut trials = vec![of_cell("1", "ABC", true), of_cell("8", "ABC", false), of_cell("1", "CBA", false)];
    let question = Question { axes: ["batch", "sequence"].map(str::to_owned).into(), ..question(false) };
    let comparison = compare(&trials, &question, Provenance::Measured);
    assert_eq!((comparison.a.rate.fraction(), comparison.b.rate.fraction()), ("1/1".into(), "0/1".into()));
    assert!(
        comparison.notes.iter().any(|note| note.starts_with("left out: 1 trial of cells")),
        "{:?}",
        comparison.notes
    );
    trials.remove(0);
    let comparison = compare(&trials, &question, Provenance::Measured);
    assert_eq!(comparison.conclusion, Conclusion::Confounded);
    assert!(comparison.headline.contains("by sequence: every 1 trial was CBA"), "{}", comparison.headline);
}
