//! The intervals against reference figures, and against what they promise.

use serde_json::Value;

use super::*;

/// `|got - want| <= atol + rtol * |want|`, the rule of `tests/stats/one_cell.json`.
struct Tolerance {
    relative: f64,
    absolute: f64,
}

impl Tolerance {
    fn check(&self, case: &Value, field: &str, got: f64, failures: &mut Vec<String>) {
        let want = case["output"][field].as_f64().expect("a number");
        if (got - want).abs() > self.absolute + self.relative * want.abs() {
            failures.push(format!("{} {}: {field} is {got}, expected {want}", case["fn"], case["input"]));
        }
    }
}

fn number(case: &Value, field: &str) -> f64 {
    case["input"][field].as_f64().unwrap_or_else(|| panic!("{field} in {case}"))
}

fn counts(case: &Value) -> Counts {
    Counts::of(number(case, "x") as u64, number(case, "n") as u64).expect("x <= n")
}

fn figures(case: &Value) -> Vec<(&'static str, f64)> {
    let confidence = |field: &str| Confidence::new(number(case, field)).expect("a level");
    let alpha = || Confidence::new(1.0 - number(case, "alpha")).expect("a level");
    let ends = |interval: Interval| vec![("lo", interval.low), ("hi", interval.high)];
    match case["fn"].as_str().expect("a name") {
        "wilson" => ends(wilson(counts(case), confidence("conf"))),
        "clopper_pearson" => ends(clopper_pearson(counts(case), confidence("conf"))),
        "jeffreys" => ends(jeffreys(counts(case), confidence("conf"))),
        "confidence_sequence" => ends(confidence_sequence(counts(case), alpha())),
        "clopper_pearson_one_sided" => vec![
            ("lower", lower_bound(counts(case), confidence("conf"))),
            ("upper", upper_bound(counts(case), confidence("conf"))),
        ],
        "n_zero" => vec![
            ("n", clean_trials_for(number(case, "p"), confidence("conf")) as f64),
            ("n_jeffreys", clean_trials_for_belief(number(case, "p"), confidence("conf")) as f64),
        ],
        "n_clean_needed" => vec![
            ("cp", clean_trials_against(counts(case), alpha()).expect("a fault") as f64),
            ("predictive", clean_trials_expected_against(counts(case), alpha()).expect("few") as f64),
        ],
        other => panic!("no such function: {other}"),
    }
}

#[test]
fn every_reference_case_is_met_within_its_tolerance() {
    let file: Value = serde_json::from_str(include_str!("../../../tests/stats/one_cell.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let mut failures = Vec::new();
    let mut compared = 0;
    for case in cases {
        let tolerance =
            Tolerance { relative: case["rtol"].as_f64().unwrap(), absolute: case["atol"].as_f64().unwrap() };
        if case["fn"] == "predictive_zero" {
            let wants = case["output"]["p"].as_array().unwrap();
            for (trials, want) in case["input"]["m"].as_array().unwrap().iter().zip(wants) {
                let case =
                    serde_json::json!({ "fn": "predictive_zero", "input": case["input"], "output": { "p": want } });
                let got = clean_trials_probability(counts(&case), trials.as_u64().unwrap());
                tolerance.check(&case, "p", got, &mut failures);
                compared += 1;
            }
            continue;
        }
        for (field, got) in figures(case) {
            tolerance.check(case, field, got, &mut failures);
            compared += 1;
        }
    }
    println!("statistics: {} cases, {compared} figures, {} outside their tolerance", cases.len(), failures.len());
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!((cases.len(), compared), (76, 192));
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
