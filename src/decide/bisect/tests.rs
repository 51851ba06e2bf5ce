//! The engines against the reference figures.

use serde_json::Value;

use super::Seen;
use super::posterior::{FalseFaults, Order, Posterior, Rates, best_gain, prior};
use super::repeat::Repeats;
use super::trigger::Triggers;
use crate::decide::order::Draws;
use crate::decide::stats::Counts;

/// Collects every figure that is out of its tolerance: `|got - want| <= atol + rtol * |want|`.
struct Check<'c> {
    case: &'c Value,
    wrong: &'c mut Vec<String>,
}

impl Check<'_> {
    fn number(&mut self, field: &str, got: f64) {
        let want = &self.case["output"][field];
        self.same(field, got, want);
    }

    fn numbers(&mut self, field: &str, got: &[f64]) {
        let want = self.case["output"][field].as_array().unwrap_or_else(|| panic!("no {field}")).clone();
        assert_eq!(want.len(), got.len(), "{field}");
        got.iter().zip(&want).for_each(|(got, want)| self.same(field, *got, want));
    }

    fn same(&mut self, field: &str, got: f64, want: &Value) {
        let want = want.as_f64().unwrap_or_else(|| panic!("{field} is no number"));
        let tolerance = |name: &str| self.case[name].as_f64().unwrap();
        if (got - want).abs() > tolerance("atol") + tolerance("rtol") * want.abs() {
            self.wrong.push(format!("{} {}: {field} is {got}, not {want}", self.case["fn"], self.case["input"]));
        }
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

fn counts(input: &Value) -> Vec<Counts> {
    let mut counts = vec![Counts::default(); count(&input["N"]) as usize + 1];
    for seen in input["observations"].as_array().unwrap() {
        counts[count(&seen["pos"]) as usize] = Counts { faults: count(&seen["faults"]), clean: count(&seen["passes"]) };
    }
    counts
}

fn rates() -> Rates {
    Rates::new(FalseFaults::Possible, Counts::default())
}

fn posterior(input: &Value) -> (Order, Posterior) {
    let last = count(&input["N"]) as usize;
    let order = Order::Line { last };
    let posterior = Posterior::of(&order, &prior(&vec![1.0; last]), &counts(input), &rates());
    (order, posterior)
}

fn check_case(mut check: Check<'_>) {
    let input = &check.case["input"];
    match check.case["fn"].as_str().unwrap() {
        "bisect" => {
            let (order, posterior) = posterior(input);
            let expected = posterior.expected_entropy(&order);
            let next = best_gain(0..expected.len(), |i| posterior.entropy() - expected[i], posterior.median());
            check.numbers("posterior", &posterior.weights);
            check.numbers("p_bad_mean", &posterior.bad_means);
            check.numbers("p_good_mean", &posterior.good_means);
            check.number("entropy_bits", posterior.entropy());
            check.numbers("expected_entropy", &expected);
            check.number("next", next.unwrap() as f64);
        }
        "bisect_next_cost" => {
            let (order, posterior) = posterior(input);
            let expected = posterior.expected_entropy(&order);
            let gain = |i: usize| (posterior.entropy() - expected[i]) / input["costs"][i].as_f64().unwrap();
            check.number("next", best_gain(0..expected.len(), gain, posterior.median()).unwrap() as f64);
        }
        "naive_bisect" => {
            let repeats = Repeats { runs: count(&input["k"]), faults: count(&input["m"]) };
            let rate = |name: &str| input[name].as_f64().unwrap();
            let found = repeats.characteristics(count(&input["N"]) as usize, rate("p_bad"), rate("p_good"));
            check.number("success", found.success);
            check.number("tests", found.runs);
            check.number("builds", found.builds);
        }
        "trigger" => {
            let elements = count(&input["K"]) as u32;
            let mut triggers = Triggers::new(elements, rates());
            triggers.load(
                (1 << elements) - 1,
                Counts { faults: count(&input["base"][0]), clean: count(&input["base"][1]) },
            );
            for run in input["runs"].as_array().unwrap() {
                triggers.observe(count(&run["kept_mask"]), Seen::fault_if(count(&run["fault"]) == 1));
            }
            let weights = triggers.weights();
            check.numbers("posterior", &weights);
            check.numbers("marginal", &triggers.marginals(&weights));
            let likeliest = best_gain(0..weights.len(), |set| weights[set], 0).unwrap();
            check.number("map_mask", likeliest as f64);
            check.number("map_prob", weights[likeliest]);
        }
        other => panic!("{other} is no search"),
    }
}

#[test]
fn every_reference_case_of_a_search_is_met() {
    let reference: Value = serde_json::from_str(include_str!("../../../tests/stats/search.json")).unwrap();
    let mut wrong = Vec::new();
    let cases = reference["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 16);
    cases.iter().for_each(|case| check_case(Check { case, wrong: &mut wrong }));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_fast_entropy_of_positions_is_that_of_both_results() {
    let mut draws = Draws::new(7, 0);
    for _ in 0..50 {
        let last = 2 + draws.below(15) as usize;
        let order = Order::Line { last };
        let mut counts = vec![Counts::default(); last + 1];
        for _ in 0..draws.below(20) {
            let at = draws.below(last as u64 + 1) as usize;
            Seen::fault_if(draws.happens(0.4)).count(&mut counts[at]);
        }
        let of = |counts: &[Counts]| Posterior::of(&order, &prior(&vec![1.0; last]), counts, &rates());
        let now = of(&counts);
        assert!((now.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let fast = now.expected_entropy(&order);
        for at in 0..=last {
            let bad = |t: usize| if order.is_bad(at, t) { now.bad_means[t] } else { now.good_means[t] };
            let fault: f64 = now.weights.iter().enumerate().map(|(t, weight)| weight * bad(t)).sum();
            let after = |seen: Seen| {
                let mut counts = counts.clone();
                seen.count(&mut counts[at]);
                of(&counts).entropy()
            };
            let slow = fault * after(Seen::Fault) + (1.0 - fault) * after(Seen::Clean);
            assert!((fast[at] - slow).abs() < 1e-10, "{at} of {last}: {} {slow}", fast[at]);
        }
    }
}
