//! Since when: the first bad position of an order, through a gate at both ends, with costs and untestable positions.
//!
//! The bad end must show the fault before anything is searched, since a search in a state that does not reproduce always
//! names a position. The good end may turn out to be bad. A position that cannot be tested stays a hypothesis. Now and
//! then the bad end is run again: if its rate moved, the whole search rests on sand.

use serde::{Deserialize, Serialize};

use super::posterior::{FalseFaults, Order, Positions, Posterior, Rates, add, best_gain, prior};
use super::{Gate, GateStep, Purpose, Search, Seen, Step, THRESHOLD, runs_left};
use crate::decide::stats::{Counts, faults_probability};

/// The bad end is run again when so many runs in a row were made elsewhere.
pub const SENTINEL_EVERY: u32 = 10;

/// The fewest runs of the bad end that are compared with those before them.
pub const SENTINEL_WINDOW: usize = 5;

/// The chance of the later runs of the bad end, or of some that are further off, under the earlier rate, at which it is
/// said to drift. Every split is looked at after every run, so it is much smaller than one look would ask for: of
/// simulated searches at 30 % about one in a hundred ends so for nothing, and a fault that goes away is noticed in a third
/// to two thirds of them within 150 runs.
const DRIFT_TAIL: f64 = 0.005;

/// What a run, a build and a change of position cost, in the same unit; a search gains most per cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// One run.
    pub run: f64,
    /// Building a position that is not built yet.
    pub build: f64,
    /// Going to another position than that of the last run.
    pub switch: f64,
}

/// The rules of a search, fixed before its first run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The gate at both ends.
    pub gate: Gate,
    /// The posterior at which it stops.
    pub threshold: f64,
    /// The most runs after the gate.
    pub runs_max: u32,
    /// Whether faults may come where there is no fault.
    pub false_faults: FalseFaults,
    /// Runs of cells known to be good. They are no part of what is asked, so they are stored beside it.
    #[serde(skip)]
    pub controls: Counts,
    /// Costs; none counts runs alone.
    pub costs: Option<Costs>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            gate: Gate::QUICK,
            threshold: THRESHOLD,
            runs_max: 400,
            false_faults: FalseFaults::Possible,
            controls: Counts::default(),
            costs: None,
        }
    }
}

/// What a search finds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The fault did not come at the bad end: nothing was searched.
    NotReproduced {
        /// The runs of the bad end.
        bad_end: Counts,
    },
    /// The range does not hold the change.
    AlreadyBad {
        /// Its posterior.
        probability: f64,
    },
    /// The first bad position is one of these: `from` and `to` differ only if no position between them can be tested.
    Found {
        /// The first.
        from: usize,
        /// The last.
        to: usize,
        /// The posterior of all of them.
        probability: f64,
    },
    /// The runs are used up, or no run tells the hypotheses apart that are left.
    Undecided {
        /// First of the shortest range with 95 % of the posterior; 0 stands for "bad already at the good end".
        from: usize,
        /// Last of it.
        to: usize,
    },
    /// The rate at the bad end is no longer what it was.
    Drifted {
        /// Its runs before the change.
        before: Counts,
        /// Those after it.
        after: Counts,
    },
    /// An end of the range cannot be tested.
    EndUntestable {
        /// Which: 0 or the last position.
        end: usize,
    },
}

/// A search for the first bad position.
#[derive(Debug, Clone)]
pub struct Revisions {
    order: Order,
    prior: Vec<f64>,
    rates: Rates,
    rules: Rules,
    counts: Vec<Counts>,
    testable: Positions,
    untestable: usize,
    built: Positions,
    current: Option<usize>,
    /// Runs after the gate.
    runs: u32,
    runs_since_bad_end: u32,
    /// The runs of the bad end before the gate was passed, those of earlier campaigns too.
    gate_counts: Counts,
    /// Those after it, in their order.
    sentinels: Vec<Seen>,
}

impl Revisions {
    /// A search over `order`; `weights` says how likely each of the positions 1 to N brought the fault, relatively.
    pub fn new(order: Order, weights: &[f64], rules: Rules) -> Self {
        let count = order.last() + 1;
        debug_assert_eq!(weights.len() + 1, count);
        Self {
            prior: prior(weights),
            rates: Rates::new(rules.false_faults, rules.controls),
            counts: vec![Counts::default(); count],
            testable: Positions::all(count),
            untestable: 0,
            built: Positions::none(count),
            current: None,
            runs: 0,
            runs_since_bad_end: 0,
            gate_counts: Counts::default(),
            sentinels: Vec::new(),
            order,
            rules,
        }
    }

    /// A search over a line of positions 0 to `last`, each as likely as the other.
    pub fn line(last: usize, rules: Rules) -> Self {
        Self::new(Order::Line { last }, &vec![1.0; last], rules)
    }

    /// Takes note of runs that were there before the search.
    pub fn load(&mut self, position: usize, counts: Counts) {
        self.counts[position] = add(self.counts[position], counts);
        if position == self.order.last() {
            self.gate_counts = add(self.gate_counts, counts);
        }
    }

    /// Takes note that a position cannot be tested: it does not build, or never ran.
    pub fn set_untestable(&mut self, position: usize) {
        if self.testable.contains(position) {
            let mut rest = Positions::none(self.counts.len());
            let testable = (0..self.counts.len()).filter(|&other| other != position && self.testable.contains(other));
            testable.for_each(|other| rest.insert(other));
            self.testable = rest;
            self.untestable += 1;
        }
    }

    /// Whether a position can be tested.
    pub fn is_testable(&self, position: usize) -> bool {
        self.testable.contains(position)
    }

    /// Takes note that a position is built.
    pub fn set_built(&mut self, position: usize) {
        self.built.insert(position);
    }

    /// The runs at each position.
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }

    /// The order that is searched.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// How many runs there were after the gate.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// Whether both ends have had their runs.
    pub fn is_past_gate(&self) -> bool {
        self.gate().is_none()
    }

    /// The hypotheses as they stand.
    pub fn posterior(&self) -> Posterior {
        Posterior::of(&self.order, &self.prior, &self.counts, &self.rates)
    }

    /// How many runs are left, roughly: what is not known yet, by what the next run tells of it on average.
    pub fn runs_left(&self) -> Option<f64> {
        let Step::Test { at, purpose: Purpose::Search } = self.next() else { return None };
        let posterior = self.posterior();
        let entropy = posterior.entropy();
        Some(runs_left(entropy, entropy - posterior.expected_entropy(&self.order)[at]))
    }

    fn gate(&self) -> Option<Step<usize, Answer>> {
        let last = self.order.last();
        if let Some(end) = [last, 0].into_iter().find(|&end| !self.testable.contains(end)) {
            return Some(Step::Done(Answer::EndUntestable { end }));
        }
        match self.rules.gate.bad_end(self.counts[last]) {
            GateStep::Refused => Some(Step::Done(Answer::NotReproduced { bad_end: self.counts[last] })),
            GateStep::Run => Some(Step::Test { at: last, purpose: Purpose::BadEnd }),
            GateStep::Passed if self.rules.gate.wants_good_end(self.counts[0]) => {
                Some(Step::Test { at: 0, purpose: Purpose::GoodEnd })
            }
            GateStep::Passed => None,
        }
    }

    /// The hypotheses that are content with what was seen, if their posterior is high enough.
    fn settled(&self, posterior: &Posterior) -> Option<Answer> {
        let weights = &posterior.weights;
        let is_enough = |probability: f64| probability >= self.rules.threshold;
        if self.untestable == 0 {
            let (t, &probability) = weights.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
            return is_enough(probability).then(|| found(t, t, probability));
        }
        let classes = self.order.classes(&self.testable);
        let mut sums = vec![(0.0, 0); weights.len()];
        for (t, &class) in classes.iter().enumerate() {
            sums[class] = (sums[class].0 + weights[t], t);
        }
        let (from, &(probability, to)) = sums.iter().enumerate().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        is_enough(probability).then(|| found(from, to, probability))
    }

    /// Whether the runs of the bad end fall into two parts of which the first makes the second unlikely. The rate may have
    /// moved at any of them, so every split is looked at that leaves enough behind it.
    fn drift(&self) -> Option<Answer> {
        let mut before = self.gate_counts;
        let mut after = self.sentinels.iter().fold(Counts::default(), |mut counts, seen| {
            seen.count(&mut counts);
            counts
        });
        let splits = self.sentinels.len().checked_sub(SENTINEL_WINDOW)?;
        for seen in &self.sentinels[..=splits] {
            let (low, high) = predictive_tails(before, after);
            if low.min(high) <= DRIFT_TAIL {
                return Some(Answer::Drifted { before, after });
            }
            seen.count(&mut before);
            match seen {
                Seen::Fault => after.faults -= 1,
                Seen::Clean => after.clean -= 1,
            }
        }
        None
    }

    fn choose(&self, posterior: &Posterior) -> Option<usize> {
        let entropy = posterior.entropy();
        let expected = posterior.expected_entropy(&self.order);
        let testable = (0..self.counts.len()).filter(|&position| self.testable.contains(position));
        let gain = |position: usize| {
            let gain = entropy - expected[position];
            match self.rules.costs {
                Some(costs) => gain / self.cost(costs, position),
                None => gain,
            }
        };
        best_gain(testable, gain, posterior.median())
    }

    fn cost(&self, costs: Costs, position: usize) -> f64 {
        let build = if self.built.contains(position) { 0.0 } else { costs.build };
        let switch = if self.current == Some(position) { 0.0 } else { costs.switch };
        costs.run + build + switch
    }
}

fn found(from: usize, to: usize, probability: f64) -> Answer {
    match from {
        0 => Answer::AlreadyBad { probability },
        _ => Answer::Found { from, to, probability },
    }
}

impl Search for Revisions {
    type Place = usize;
    type Answer = Answer;

    fn observe(&mut self, &at: &usize, seen: Seen) {
        let past_gate = self.is_past_gate();
        seen.count(&mut self.counts[at]);
        self.current = Some(at);
        self.built.insert(at);
        self.runs += u32::from(past_gate);
        self.runs_since_bad_end = if at == self.order.last() { 0 } else { self.runs_since_bad_end + 1 };
        match (at == self.order.last(), past_gate) {
            (true, true) => self.sentinels.push(seen),
            (true, false) => seen.count(&mut self.gate_counts),
            (false, _) => {}
        }
    }

    fn next(&self) -> Step<usize, Answer> {
        if let Some(step) = self.gate() {
            return step;
        }
        if let Some(answer) = self.drift() {
            return Step::Done(answer);
        }
        let posterior = self.posterior();
        if let Some(answer) = self.settled(&posterior) {
            return Step::Done(answer);
        }
        let undecided = || {
            let (from, to) = posterior.range(self.rules.threshold);
            Step::Done(Answer::Undecided { from, to })
        };
        if self.runs >= self.rules.runs_max {
            return undecided();
        }
        if self.runs_since_bad_end >= SENTINEL_EVERY {
            return Step::Test { at: self.order.last(), purpose: Purpose::Sentinel };
        }
        match self.choose(&posterior) {
            Some(at) => Step::Test { at, purpose: Purpose::Search },
            None => undecided(),
        }
    }
}

/// The chances of at most, and of at least, the faults of `after` in as many runs, if the rate is still that of
/// `before`.
fn predictive_tails(before: Counts, after: Counts) -> (f64, f64) {
    let more = faults_probability(before, after.faults + 1, after.counted());
    (1.0 - more, faults_probability(before, after.faults, after.counted()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_goes_away_ends_the_search() {
        let mut search = Revisions::line(16, Rules::default());
        search.load(16, Counts { faults: 9, clean: 1 });
        search.load(0, Counts { faults: 0, clean: 2 });
        for _ in 0..SENTINEL_WINDOW {
            assert!(!matches!(search.next(), Step::Done(_)));
            search.observe(&16, Seen::Clean);
        }
        let before = Counts { faults: 9, clean: 1 };
        let drifted = Answer::Drifted { before, after: Counts { faults: 0, clean: 5 } };
        assert_eq!(search.next(), Step::Done(drifted));
    }

    #[test]
    fn positions_that_cannot_be_tested_are_named_together() {
        let mut search = Revisions::line(8, Rules::default());
        search.set_untestable(4);
        search.set_untestable(5);
        let mut runs = 0;
        let answer = loop {
            match search.next() {
                Step::Test { at, .. } => {
                    assert!(at != 4 && at != 5, "{at} cannot be tested");
                    search.observe(&at, Seen::fault_if(at >= 5));
                    runs += 1;
                    assert!(runs < 100);
                }
                Step::Done(answer) => break answer,
            }
        };
        // Whether 4, 5 or 6 was the first is beyond reach: 3 is good, 6 is bad.
        assert!(matches!(answer, Answer::Found { from: 4, to: 6, .. }), "{answer:?}");
    }

    #[test]
    fn an_end_that_does_not_build_ends_the_search_before_it_begins() {
        let mut search = Revisions::line(8, Rules::default());
        search.set_untestable(0);
        assert_eq!(search.next(), Step::Done(Answer::EndUntestable { end: 0 }));
    }

    #[test]
    fn a_search_over_a_graph_with_one_line_is_the_search_over_the_line() {
        let last = 12;
        let graph = (0..=last).map(|t| {
            let mut bad = Positions::none(last + 1);
            (t..=last).for_each(|i| bad.insert(i));
            bad
        });
        let graph = Order::Graph(graph.collect());
        let mut line = Revisions::line(last, Rules::default());
        let mut other = Revisions::new(graph, &vec![1.0; last], Rules::default());
        let faults = [true, false, false, true, false, true, true, false, false, true, false, true];
        for fault in faults {
            let (Step::Test { at, purpose }, step) = (line.next(), other.next()) else { break };
            assert_eq!(step, Step::Test { at, purpose });
            for search in [&mut line, &mut other] {
                search.observe(&at, Seen::fault_if(fault && at > 5));
            }
        }
        let (one, two) = (line.posterior(), other.posterior());
        assert!(one.weights.iter().zip(&two.weights).all(|(a, b)| (a - b).abs() < 1e-12));
    }
}
