//! Which knobs matter, or which items of a sequence: gate, search, closing confirmation.
//!
//! The search is exact up to [`trigger::ELEMENTS_MAX`] elements and [`super::probdd`] above. Its answer is then put to the
//! test: the smallest set must fault by itself, and every set that is one smaller must be clean long enough. Runs of the
//! search count there too, if they kept what the set keeps and more: what keeps fewer dangerous settings is no more
//! dangerous.
//!
//! A combination that twice failed in another way (it runs out of memory, say) is set aside with all that flip more; if
//! it flips one element alone, that element is masked: nothing can be said about it.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::posterior::{FalseFaults, Rates, add, best_gain};
use super::probdd::ProbDd;
use super::trigger::{self, GAIN_MIN, Kept, Triggers, members};
use super::{Gate, GateStep, Purpose, Search, Seen, Step, THRESHOLD, runs_left};
use crate::decide::stats::{Counts, RATE_UNKNOWN, Sprt, SprtEnd};

/// Counted runs that keep all of the answer, before runs without a part of it are made: with three of them the lower
/// bound of a rate of 78 % is 14 %, which takes 21 clean runs to exclude for each element; with nine it is 45 %, and 6.
const ARMED_RUNS_MIN: u64 = 9;

/// How much likelier the runs of one place must be armed than idle to refute an answer under which they are idle (ln of
/// the Bayes factor): with a chance of 5 % for a second trigger before, its posterior is then 95 %.
const LN_REFUTED: f64 = 5.889; // ln(0.95/0.05 · 0.95/0.05)

/// How often a combination must fail in another way to be set aside.
pub const OTHER_FAULTS_MAX: u32 = 2;

/// The rules of a search, fixed before its first run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The gate at the baseline; it has no good end.
    pub gate: Gate,
    /// The posterior at which the search stops.
    pub threshold: f64,
    /// The most runs after the gate, the confirmation's included.
    pub runs_max: u32,
    /// Whether faults may come where there is no fault.
    pub false_faults: FalseFaults,
    /// Runs of cells known to be good. They are no part of what is asked, so they are stored beside it.
    #[serde(skip)]
    pub controls: Counts,
    /// Whether the answer is confirmed by runs of its own.
    pub confirm: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            gate: Gate::QUICK,
            threshold: THRESHOLD,
            runs_max: 400,
            false_faults: FalseFaults::Possible,
            controls: Counts::default(),
            confirm: true,
        }
    }
}

/// What a search finds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The fault did not come in the baseline: nothing was searched.
    NotReproduced {
        /// The runs of the baseline.
        baseline: Counts,
    },
    /// The baseline cannot be run.
    Untestable,
    /// The load-bearing elements.
    Found {
        /// Which.
        set: Kept,
        /// The posterior of exactly this set; with many elements the chance that none of them can be spared.
        probability: f64,
    },
    /// The likeliest set is not the whole truth: faults come without it.
    Refuted {
        /// The likeliest set.
        set: Kept,
        /// What was kept where they come all the same.
        kept: Kept,
    },
    /// The runs are used up, or none that may be made tells more.
    Undecided {
        /// The likeliest set.
        set: Kept,
        /// Its posterior.
        probability: f64,
    },
}

/// The two ways to search.
#[derive(Debug, Clone)]
enum Engine {
    Exact(Box<Triggers>),
    Many(ProbDd),
}

/// A search for load-bearing elements. A place is the set that a run keeps in its dangerous setting.
#[derive(Debug, Clone)]
pub struct Knobs {
    engine: Engine,
    elements: u32,
    rules: Rules,
    /// What a run may not keep alone, such as combinations that a matrix excludes.
    illegal: HashSet<Kept>,
    /// Combinations that failed in another way, by the set that they flip, and how often.
    other_faults: BTreeMap<Kept, u32>,
    counts: BTreeMap<Kept, Counts>,
    runs: u32,
    confirm_runs: u32,
}

/// How far the engine has come.
enum Found {
    Settled(Kept, f64),
    Open(Kept, f64, Option<Kept>),
}

impl Knobs {
    /// A search among `elements` elements, all different.
    pub fn new(elements: u32, rules: Rules) -> Self {
        let engine = match elements {
            0..=trigger::ELEMENTS_MAX => Engine::Exact(Box::new(Triggers::new(elements, rates(&rules)))),
            _ => Engine::Many(ProbDd::new(elements)),
        };
        Self::with(engine, elements, rules)
    }

    /// A search among the items of a sequence, of which several may be the same; a run keeps at least one.
    pub fn of_items(items: Vec<u8>, rules: Rules) -> Self {
        let elements = items.len() as u32;
        let engine = match elements {
            0..=trigger::ELEMENTS_MAX => Engine::Exact(Box::new(Triggers::of_items(items, rates(&rules)))),
            _ => Engine::Many(ProbDd::new(elements)),
        };
        Self { illegal: HashSet::from([0]), ..Self::with(engine, elements, rules) }
    }

    fn with(engine: Engine, elements: u32, rules: Rules) -> Self {
        Self {
            engine,
            elements,
            rules,
            illegal: HashSet::new(),
            other_faults: BTreeMap::new(),
            counts: BTreeMap::new(),
            runs: 0,
            confirm_runs: 0,
        }
    }

    /// Forbids runs that keep exactly `kept`.
    pub fn forbid(&mut self, kept: Kept) {
        self.illegal.insert(kept);
    }

    /// Takes note of runs that were there before the search.
    pub fn load(&mut self, kept: Kept, counts: Counts) {
        let entry = self.counts.entry(kept).or_default();
        *entry = add(*entry, counts);
        match &mut self.engine {
            Engine::Exact(triggers) => triggers.load(kept, counts),
            Engine::Many(search) => search.load(kept, counts),
        }
    }

    /// Takes note of a run that failed in another way than the campaign's.
    pub fn observe_other_fault(&mut self, kept: Kept) {
        *self.other_faults.entry(self.all() & !kept).or_default() += 1;
    }

    /// The runs of each set that was kept.
    pub fn counts(&self) -> &BTreeMap<Kept, Counts> {
        &self.counts
    }

    /// How many runs there were after the gate.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// How many of them confirmed an answer.
    pub fn confirm_runs(&self) -> u32 {
        self.confirm_runs
    }

    /// How many runs are left, roughly: what is not known yet, by what the next run tells of it on average.
    pub fn runs_left(&self) -> Option<f64> {
        match (&self.engine, self.find()) {
            (Engine::Exact(triggers), Found::Open(_, _, Some(kept))) => {
                let weights = triggers.weights();
                let entropy = Triggers::entropy(&weights);
                Some(runs_left(entropy, entropy - triggers.expected_entropy(&weights)[kept as usize]))
            }
            (Engine::Exact(_) | Engine::Many(_), _) => None,
        }
    }

    /// The sets that are likeliest, with their posteriors; none for many elements, whose sets are not enumerated.
    pub fn likeliest(&self, count: usize) -> Vec<(Kept, f64)> {
        let Engine::Exact(triggers) = &self.engine else { return Vec::new() };
        let mut sets: Vec<(Kept, f64)> = (0..).zip(triggers.weights()).collect();
        sets.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        sets.truncate(count);
        sets
    }

    /// The chance of each element to be load-bearing.
    pub fn marginals(&self) -> Vec<f64> {
        match &self.engine {
            Engine::Exact(triggers) => triggers.marginals(&triggers.weights()),
            Engine::Many(search) => search.marginals(),
        }
    }

    /// The elements that cannot be flipped, since flipping them alone fails in another way.
    pub fn masked(&self) -> Kept {
        let set_aside = self.set_aside();
        set_aside.filter(|flipped| flipped.count_ones() == 1).fold(0, |masked, flipped| masked | flipped)
    }

    /// All runs that were armed if `set` is the answer.
    pub fn armed(&self, set: Kept) -> Counts {
        self.pooled(|kept| set & kept == set)
    }

    fn pooled(&self, wanted: impl Fn(Kept) -> bool) -> Counts {
        self.counts.iter().filter(|(kept, _)| wanted(**kept)).map(|(_, counts)| *counts).fold(Counts::default(), add)
    }

    /// The runs that kept all of `set` but `element`.
    pub fn one_smaller(&self, set: Kept, element: u32) -> Counts {
        self.pooled(|kept| set & !kept == 1 << element)
    }

    fn all(&self) -> Kept {
        trigger::all(self.elements)
    }

    fn set_aside(&self) -> impl Iterator<Item = Kept> {
        self.other_faults.iter().filter(|(_, count)| **count >= OTHER_FAULTS_MAX).map(|(flipped, _)| *flipped)
    }

    fn is_legal(&self, kept: Kept) -> bool {
        let flipped = self.all() & !kept;
        !self.illegal.contains(&kept) && !self.set_aside().any(|aside| flipped & aside == aside)
    }

    fn baseline(&self) -> Counts {
        self.counts.get(&self.all()).copied().unwrap_or_default()
    }

    fn gate(&self) -> GateStep {
        self.rules.gate.bad_end(self.baseline())
    }

    fn find(&self) -> Found {
        match &self.engine {
            Engine::Exact(triggers) => self.find_exactly(triggers),
            Engine::Many(search) => {
                let kept = search.kept();
                let chosen = search.choose(|kept| self.is_legal(kept));
                let probability = members(kept).map(|element| search.marginals()[element as usize]).product();
                match chosen {
                    Some(_) => Found::Open(kept, probability, chosen),
                    None => Found::Settled(kept, probability),
                }
            }
        }
    }

    fn find_exactly(&self, triggers: &Triggers) -> Found {
        let weights = triggers.weights();
        let legal: Vec<bool> = (0..weights.len() as Kept).map(|kept| self.is_legal(kept)).collect();
        // Elements that no run may flip are no part of the question: hypotheses that differ in them are one.
        let unflippable = (0..)
            .zip(&legal)
            .filter(|(_, legal)| **legal)
            .fold(self.all(), |common, (kept, _): (Kept, _)| common & kept);
        let mut answers = weights.clone();
        for set in 0..weights.len() {
            let rest = set & !(unflippable as usize);
            if rest != set {
                answers[rest] += std::mem::take(&mut answers[set]);
            }
        }
        let likeliest = answers.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        let (set, probability) = likeliest.map_or((0, 0.0), |(set, probability)| (set as Kept, *probability));
        // Not when each element by itself is clear: with ten of them their set is then right four times in five.
        if probability >= self.rules.threshold {
            return Found::Settled(set, probability);
        }
        let entropy = Triggers::entropy(&weights);
        let expected = triggers.expected_entropy(&weights);
        let places = (0..weights.len()).filter(|&kept| legal[kept]);
        let best = best_gain(places, |kept| entropy - expected[kept], 0);
        Found::Open(set, probability, best.filter(|&kept| entropy - expected[kept] > GAIN_MIN).map(|kept| kept as Kept))
    }

    /// A place whose runs are idle if `set` is the answer, and that faults as an armed one does; the clearest one.
    ///
    /// One smaller set is not enough to look at: with two triggers, each enough by itself, the rate without the one that
    /// is named is lower, and still no spurious one.
    fn refuted(&self, set: Kept) -> Option<Kept> {
        let Engine::Exact(triggers) = &self.engine else { return None };
        let idle = self.counts.iter().filter(|(kept, _)| !triggers.is_armed(set, **kept));
        let weighed = idle.map(|(kept, counts)| (*kept, triggers.ln_armed_against_idle(*counts)));
        weighed.filter(|(_, ln)| *ln > LN_REFUTED).max_by(|one, other| one.1.total_cmp(&other.1)).map(|(kept, _)| kept)
    }

    /// The next run that puts `set` to the test, if one is missing.
    fn confirm(&self, set: Kept) -> Option<Kept> {
        let alone = self.counts.get(&set).copied().unwrap_or_default();
        if alone.faults == 0 && self.is_legal(set) {
            return Some(set);
        }
        if set != 0 && self.armed(set).counted() < ARMED_RUNS_MIN {
            return Some(if self.is_legal(set) { set } else { self.all() });
        }
        let test = clean_test(self.armed(set));
        let smaller = members(set)
            .find(|&element| self.is_legal(set & !(1 << element)) && !is_below(&test, self.one_smaller(set, element)));
        smaller.map(|element| set & !(1 << element))
    }
}

impl Search for Knobs {
    type Place = Kept;
    type Answer = Answer;

    fn observe(&mut self, &kept: &Kept, seen: Seen) {
        if self.gate() == GateStep::Passed {
            self.runs += 1;
            self.confirm_runs += u32::from(self.rules.confirm && matches!(self.find(), Found::Settled(..)));
        }
        let mut counts = Counts::default();
        seen.count(&mut counts);
        self.load(kept, counts);
    }

    fn next(&self) -> Step<Kept, Answer> {
        if !self.is_legal(self.all()) {
            return Step::Done(Answer::Untestable);
        }
        match self.gate() {
            GateStep::Refused => return Step::Done(Answer::NotReproduced { baseline: self.baseline() }),
            GateStep::Run => return Step::Test { at: self.all(), purpose: Purpose::BadEnd },
            GateStep::Passed => {}
        }
        let used_up = self.runs >= self.rules.runs_max;
        match self.find() {
            Found::Settled(set, probability) => {
                match (self.refuted(set), self.confirm(set).filter(|_| self.rules.confirm)) {
                    (Some(kept), _) => Step::Done(Answer::Refuted { set, kept }),
                    (None, Some(_)) if used_up => Step::Done(Answer::Undecided { set, probability }),
                    (None, Some(at)) => Step::Test { at, purpose: Purpose::Confirm },
                    (None, None) => Step::Done(Answer::Found { set, probability }),
                }
            }
            Found::Open(_, _, Some(at)) if !used_up => Step::Test { at, purpose: Purpose::Search },
            Found::Open(set, probability, _) => Step::Done(Answer::Undecided { set, probability }),
        }
    }
}

fn rates(rules: &Rules) -> Rates {
    Rates::new(rules.false_faults, rules.controls)
}

/// The test that a cell must pass to be called clean against the runs that were armed.
pub fn clean_test(armed: Counts) -> Sprt {
    Sprt::for_rate(if armed.counted() == 0 { RATE_UNKNOWN } else { Sprt::rate_against(armed) })
}

/// Whether `counts` decide the test for "below".
pub fn is_below(test: &Sprt, counts: Counts) -> bool {
    test.end(counts, u64::MAX) == Some(SprtEnd::Below)
}
