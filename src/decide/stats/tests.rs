//! Every function against reference figures, and the intervals against what they promise.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

/// What the functions are checked against: constructed cases, each with its tolerance.
const ONE_CELL: &str = include_str!("../../../tests/stats/one_cell.json");
const TWO_ARMS: &str = include_str!("../../../tests/stats/two_arms.json");

/// Figures of the cases that no function of the tool gives: estimates that are wrong where the tool lives.
const NOT_OURS: [&str; 2] = ["/plugin", "/rule_of_three"];

fn number(case: &Value, field: &str) -> f64 {
    case["input"][field].as_f64().unwrap_or_else(|| panic!("{field} in {case}"))
}

fn whole(case: &Value, field: &str) -> u64 {
    case["input"][field].as_u64().unwrap_or_else(|| panic!("{field} in {case}"))
}

fn counts(case: &Value) -> Counts {
    Counts::of(whole(case, "x"), whole(case, "n")).expect("x <= n")
}

fn arms(case: &Value) -> Arms {
    Arms::of(whole(case, "x1"), whole(case, "n1"), whole(case, "x2"), whole(case, "n2")).expect("x <= n")
}

/// Tables of four numbers: faults and trials of both levels.
fn tables(case: &Value, field: &str) -> Vec<Arms> {
    let tables: Vec<[u64; 4]> = serde_json::from_value(case["input"][field].clone()).unwrap();
    tables.into_iter().map(|[xa, na, xb, nb]| Arms::of(xa, na, xb, nb).unwrap()).collect()
}

fn numbers(case: &Value, field: &str) -> Vec<f64> {
    serde_json::from_value(case["input"][field].clone()).unwrap()
}

type Figures = Vec<(String, f64)>;

fn named<const N: usize>(figures: [(&str, f64); N]) -> Figures {
    figures.map(|(name, figure)| (format!("/{name}"), figure)).into()
}

fn listed(name: &str, figures: Vec<f64>) -> Figures {
    figures.into_iter().enumerate().map(|(index, figure)| (format!("/{name}/{index}"), figure)).collect()
}

fn ends(interval: Interval) -> Figures {
    named([("lo", interval.low), ("hi", interval.high)])
}

fn tails(tails: Tails, prefix: &str) -> Figures {
    let figures = [("greater", tails.greater), ("less", tails.less), ("two_sided", tails.two_sided)];
    figures.map(|(name, figure)| (format!("/{prefix}{name}"), figure)).into()
}

fn of_one_cell(case: &Value) -> Figures {
    let confidence = || Confidence::new(number(case, "conf")).expect("a level");
    let alpha = || Confidence::new(1.0 - number(case, "alpha")).expect("a level");
    match case["fn"].as_str().expect("a name") {
        "wilson" => ends(wilson(counts(case), confidence())),
        "clopper_pearson" => ends(clopper_pearson(counts(case), confidence())),
        "jeffreys" => ends(jeffreys(counts(case), confidence())),
        "confidence_sequence" => ends(confidence_sequence(counts(case), alpha())),
        "clopper_pearson_one_sided" => named([
            ("lower", lower_bound(counts(case), confidence())),
            ("upper", upper_bound(counts(case), confidence())),
        ]),
        "n_zero" => named([
            ("n", clean_trials_for(number(case, "p"), confidence()) as f64),
            ("n_jeffreys", clean_trials_for_belief(number(case, "p"), confidence()) as f64),
        ]),
        "n_clean_needed" => named([
            ("cp", clean_trials_against(counts(case), alpha()).expect("a fault") as f64),
            ("predictive", clean_trials_expected_against(counts(case), alpha()).expect("few") as f64),
            ("fisher", clean_trials_by_fisher(counts(case), number(case, "alpha"), 1000).expect("few") as f64),
        ]),
        "predictive_zero" => {
            let trials = numbers(case, "m").into_iter();
            listed("p", trials.map(|trials| clean_trials_probability(counts(case), trials as u64)).collect())
        }
        "predictive_ge" => named([("p", faults_probability(counts(case), whole(case, "k"), whole(case, "m")))]),
        "sprt" => sprt(case),
        other => panic!("no such function: {other}"),
    }
}

fn sprt(case: &Value) -> Figures {
    let field = |name| number(case, name);
    let test = Sprt { p0: field("p0"), p1: field("p1"), alpha: field("alpha"), beta: field("beta") };
    let cap = whole(case, "cap");
    let mut figures = named([
        ("lower", test.bounds().0),
        ("upper", test.bounds().1),
        ("llr_fault", test.step(true)),
        ("llr_pass", test.step(false)),
        ("clean_n", test.clean_trials() as f64),
        ("fault_n", test.fault_trials() as f64),
    ]);
    let rates = case["output"].as_object().unwrap().keys().filter_map(|key| key.strip_prefix("oc_"));
    for rate in rates {
        let Operating { faults, below, inconclusive, trials } = test.operating(rate.parse().unwrap(), cap);
        let inconclusive_name = format!("p_inconclusive_at_{cap}");
        for (name, figure) in
            [("p_fault", faults), ("p_clean", below), (inconclusive_name.as_str(), inconclusive), ("e_n", trials)]
        {
            figures.push((format!("/oc_{rate}/{name}"), figure));
        }
    }
    figures
}

fn of_two_arms(case: &Value) -> Figures {
    let confidence = || Confidence::new(number(case, "conf")).expect("a level");
    match case["fn"].as_str().expect("a name") {
        "fisher" => {
            let mut figures = tails(fisher(arms(case)), "");
            figures.extend(tails(fisher_mid(arms(case)), "midp_"));
            figures.push(("/min_attainable_greater".into(), smallest_greater(arms(case))));
            figures
        }
        "boschloo" => tails(boschloo(arms(case)).expect("few trials"), ""),
        "barnard_pooled" => {
            let Barnard { score, greater, two_sided } = barnard(arms(case)).expect("few trials");
            named([("stat", score), ("greater", greater), ("two_sided", two_sided)])
        }
        "prob_p1_gt_p2_jeffreys" => named([("p", chance_first_is_larger(arms(case)))]),
        "newcombe" => {
            let observed = |counts: Counts| counts.observed().unwrap();
            let mut figures = ends(newcombe(arms(case), confidence()));
            figures.push(("/diff".into(), observed(arms(case).a) - observed(arms(case).b)));
            figures
        }
        "miettinen_nurminen" => ends(miettinen_nurminen(arms(case), confidence())),
        "evalue_2x2_one_sided" => {
            let mut e = EValue::default();
            let values = tables(case, "blocks").into_iter().map(|block| {
                e.add(block);
                e.value()
            });
            listed("e", values.collect())
        }
        "cmh_exact" => {
            let stratified = cmh_exact(&tables(case, "tables"));
            let mut figures = tails(stratified.tails, "");
            figures.push(("/informative".into(), stratified.informative as f64));
            figures
        }
        "mantel_haenszel" => {
            let found = mantel_haenszel(&tables(case, "tables"));
            let of = |name: &str, chi_square| {
                [("chi2", chi_square), ("or_mh", found.odds_ratio), ("diff", found.excess), ("var", found.variance)]
                    .map(|(figure, value)| (format!("/{name}/{figure}"), value))
            };
            [of("corrected", found.chi_square), of("uncorrected", found.chi_square_uncorrected)].concat()
        }
        "holm" => listed("adj", holm(&numbers(case, "p"))),
        "benjamini_hochberg" => listed("adj", benjamini_hochberg(&numbers(case, "p"))),
        "mann_whitney_exact" => {
            let RankTest { p, auc } = mann_whitney(&numbers(case, "a"), &numbers(case, "b")).expect("two groups");
            named([("p", p), ("auc", auc)])
        }
        "freeman_halton" => {
            let groups: Vec<[u64; 2]> = serde_json::from_value(case["input"]["groups"].clone()).unwrap();
            let groups: Vec<Counts> = groups.iter().map(|[x, n]| Counts::of(*x, *n).unwrap()).collect();
            named([("p", freeman_halton(&groups, 10_000).expect("few tables"))])
        }
        "overlap" => {
            let side =
                |name: &str| -> BTreeMap<String, u64> { serde_json::from_value(case["input"][name].clone()).unwrap() };
            named([("o", overlap(&side("a"), &side("b")).expect("two sides"))])
        }
        other => panic!("no such function: {other}"),
    }
}

/// The paths of all numbers of `value`, in which infinity is a word.
fn leaves(value: &Value, path: &str, found: &mut BTreeMap<String, f64>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), found))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| leaves(value, &format!("{path}/{index}"), found))
        }
        Value::Number(number) => drop(found.insert(path.to_owned(), number.as_f64().unwrap())),
        Value::String(word) => drop(found.insert(path.to_owned(), word.parse().unwrap())),
        Value::Null | Value::Bool(_) => panic!("{path} is no number"),
    }
}

/// Compares every figure of every case: `|got - want| <= atol + rtol * |want|`. Gives the numbers of both.
fn check(file: &str, figures: fn(&Value) -> Figures) -> (usize, usize) {
    let file: Value = serde_json::from_str(file).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let mut failures = Vec::new();
    let mut compared = 0;
    for case in cases {
        let (relative, absolute) = (case["rtol"].as_f64().unwrap(), case["atol"].as_f64().unwrap());
        let mut wanted = BTreeMap::new();
        leaves(&case["output"], "", &mut wanted);
        wanted.retain(|path, _| !NOT_OURS.contains(&path.as_str()));
        for (path, got) in figures(case) {
            let Some(want) = wanted.remove(&path) else { panic!("{path} of {case}") };
            let is_near = (got - want).abs() <= absolute + relative * want.abs();
            if got != want && !is_near {
                failures.push(format!("{} {}: {path} is {got}, expected {want}", case["fn"], case["input"]));
            }
            compared += 1;
        }
        assert!(wanted.is_empty(), "{wanted:?} of {case} were not compared");
    }
    assert!(failures.is_empty(), "{failures:#?}");
    (cases.len(), compared)
}

#[test]
fn every_reference_case_is_met_within_its_tolerance() {
    let (one, two) = (check(ONE_CELL, of_one_cell), check(TWO_ARMS, of_two_arms));
    println!("statistics: {} cases, {} figures, all within their tolerance", one.0 + two.0, one.1 + two.1);
    assert_eq!((one.0, two.0), (85, 76));
}

/// How often the interval of `method` covers `rate` with `n` trials, summed over all outcomes.
fn coverage(method: Method, n: u64, rate: f64) -> f64 {
    let covers = |faults: &u64| {
        let interval = method.interval(Counts::of(*faults, n).unwrap(), Confidence::P95);
        (interval.low..=interval.high).contains(&rate)
    };
    let ln_choose = |k: u64| -ln_beta(k as f64 + 1.0, (n - k) as f64 + 1.0) - (n as f64 + 1.0).ln();
    let chance = |k: u64| (ln_choose(k) + k as f64 * rate.ln() + (n - k) as f64 * (-rate).ln_1p()).exp();
    (0..=n).filter(covers).map(chance).sum()
}

#[test]
fn clopper_pearson_never_covers_less_often_than_it_says() {
    for n in 1..=30 {
        for step in 1..200 {
            let rate = f64::from(step) / 200.0;
            let covered = coverage(Method::ClopperPearson, n, rate);
            assert!(covered >= 0.95 - 1e-12, "n {n}, rate {rate}: {covered}");
        }
    }
}

#[test]
fn wilson_over_claims_after_one_trial() {
    assert!(coverage(Method::Wilson, 1, 0.794) < 0.80);
}

#[test]
fn without_a_fault_the_upper_bound_is_the_closed_form() {
    for n in [1, 2, 3, 9, 29, 299, 1_000_000] {
        let bound = upper_bound(Counts { faults: 0, clean: n }, Confidence::P95);
        let by_inverse = regularised_beta_inverse(0.95, 1.0, n as f64);
        assert!((bound - by_inverse).abs() <= 1e-9 * bound, "n {n}: {bound} and {by_inverse}");
    }
}

#[test]
fn so_many_clean_trials_are_enough_and_one_fewer_is_not() {
    for rate in [0.01, 0.05, 0.3, 0.45, 0.78, 0.99] {
        let n = clean_trials_for(rate, Confidence::P95);
        let bound = |clean| upper_bound(Counts { faults: 0, clean }, Confidence::P95);
        assert!(bound(n) <= rate + 1e-12 && (n == 1 || bound(n - 1) > rate), "rate {rate}: {n}");
    }
}

#[test]
fn every_method_covers_what_was_observed_and_nothing_when_nothing_was() {
    for method in Method::ALL {
        assert_eq!(method.interval(Counts::default(), Confidence::P95), Interval::UNKNOWN, "{method}");
        for (faults, counted) in [(0, 1), (1, 1), (2, 3), (7, 9), (1, 1_000_000), (999_999, 1_000_000)] {
            let counts = Counts::of(faults, counted).unwrap();
            let interval = method.interval(counts, Confidence::P95);
            let observed = counts.observed().unwrap();
            assert!(interval.low <= observed && observed <= interval.high, "{method} {faults}/{counted}: {interval:?}");
            assert!(interval.high - interval.low < 1.0, "{method} {faults}/{counted}: {interval:?}");
        }
    }
}

#[test]
fn a_better_measured_baseline_makes_a_claim_cheaper() {
    let against = |faults, counted| clean_trials_against(Counts::of(faults, counted).unwrap(), Confidence::P95);
    assert_eq!((against(2, 3), against(14, 20), against(0, 9)), (Some(21), Some(5), None));
}
