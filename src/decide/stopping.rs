//! When enough trials were seen: `trials = "until-decided"`.
//!
//! The rule is fixed in the plan before the first trial ([`Stopping`]); where it stands is a fold of verdicts
//! ([`Decisions`]), so that a death changes nothing. A cell by itself ends by the sequential probability ratio test; two
//! cells that differ only in the compared axis end together by the e-value of their complete blocks. Only the run's own
//! fault is evidence: the first fault says which it is, and another one is neither for nor against.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::decide::campaign::is_same_fault;
use crate::decide::order::Draws;
use crate::decide::plan::{Cell, CellRole};
use crate::decide::stats::{Arms, Counts, E_THRESHOLD, EValue, RATE_UNKNOWN, Sprt, SprtEnd};
use crate::model::ids::CellId;
use crate::model::matrix::Decide;
use crate::model::settings::Start;
use crate::model::verdict::{Counted, Judgement, Signature};
use crate::model::words::words;

/// How many comparisons are played through to say how many blocks one takes.
const PLAYED: u32 = 2000;

/// The fault rate of the faulty arm in such a play where no baseline is known: that of the cold starts of bitsandbytes
/// issue 1936, of which seven in nine rebooted.
const RATE_PLAYED: f64 = 7.0 / 9.0;

/// The rule by which a run knows that it has enough trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopping {
    /// The rate of a cell that does not have the fault.
    pub p0: f64,
    /// The rate that is tested for; below it a cell is called below it, and no less is claimed.
    pub p1: f64,
    /// The chance of calling a cell faulty at rate `p0`, divided by the number of cells that are decided together.
    pub alpha: f64,
    /// The chance of calling a cell below `p1` at that rate.
    pub beta: f64,
    /// The most counted trials of a cell that is decided by itself.
    pub cap: u32,
    /// The most blocks of a pair.
    pub max: u32,
    /// Trials of the baseline cell that were there before, from which `p1` comes; without them it is a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Counts>,
    /// Pairs of cells that differ only in the compared axis, the baseline's level first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<(CellId, CellId)>,
}

impl Stopping {
    /// The rule for `cells`. `baseline` are trials of the first of them that were there before.
    pub fn of(decide: &Decide, cells: &[Cell], baseline: Option<Counts>) -> Self {
        let baseline = baseline.filter(|counts| counts.faults > 0);
        let pairs = decide.compare.as_deref().map_or_else(Vec::new, |axis| pairs(axis, cells));
        let is_single =
            |cell: &&Cell| cell.role == CellRole::Sample && !pairs.iter().any(|(a, b)| *a == cell.id || *b == cell.id);
        let singles = u32::try_from(cells.iter().filter(is_single).count()).unwrap_or(u32::MAX);
        let test = Sprt::for_rate(baseline.map_or(RATE_UNKNOWN, Sprt::rate_against)).among(singles);
        Self {
            p0: test.p0,
            p1: test.p1,
            alpha: test.alpha,
            beta: test.beta,
            cap: u32::try_from(test.cap()).unwrap_or(u32::MAX).min(decide.max),
            max: decide.max,
            baseline,
            pairs,
        }
    }

    /// The test of a cell by itself.
    pub fn test(&self) -> Sprt {
        Sprt { p0: self.p0, p1: self.p1, alpha: self.alpha, beta: self.beta }
    }

    /// The most counted trials of `cell`.
    pub fn rounds(&self, cell: &CellId) -> u32 {
        if self.is_paired(cell) { self.max } else { self.cap }
    }

    /// Whether `cell` is one of a pair.
    pub fn is_paired(&self, cell: &CellId) -> bool {
        self.pairs.iter().any(|(a, b)| a == cell || b == cell)
    }

    /// How a cell by itself ended with these counts, if it did.
    pub fn end(&self, counts: Counts) -> Option<SprtEnd> {
        self.test().end(counts, u64::from(self.cap))
    }

    /// What `cells` take, on average.
    pub fn expected(&self, cells: &[Cell]) -> Expected {
        let cap = u64::from(self.cap);
        let clean = self.test().operating(0.0, cap).trials;
        let faulty = self.test().operating(self.p1, cap).trials;
        let at_worst = self.test().most_expected(cap);
        let blocks = if self.pairs.is_empty() { 0.0 } else { self.blocks_played() };
        let mut expected = Expected { clean, faulty, at_worst, blocks, boots_at_worst: 0.0 };
        let is_cold = |cell: &&Cell| cell.settings.start == Start::Cold && cell.rounds.is_none();
        for cell in cells.iter().filter(is_cold) {
            expected.boots_at_worst += if self.is_paired(&cell.id) { blocks } else { at_worst };
        }
        expected
    }

    /// The blocks that a pair takes on average if one level has the baseline's rate and the other never faults: played
    /// through with a fixed seed, since the e-value depends on the order of the faults.
    fn blocks_played(&self) -> f64 {
        let rate = self.baseline.and_then(Counts::observed).unwrap_or(RATE_PLAYED);
        let play = |number: u32| {
            let mut draws = Draws::new(0, number);
            let mut pair = Pair::default();
            (1..=self.max).find(|_| {
                let faults = u64::from(draws.happens(rate));
                pair.add(Arms { a: Counts { faults, clean: 1 - faults }, b: Counts { faults: 0, clean: 1 } });
                pair.end().is_some()
            })
        };
        let blocks: u32 = (0..PLAYED).map(|number| play(number).unwrap_or(self.max)).sum();
        f64::from(blocks) / f64::from(PLAYED)
    }
}

/// Cells that differ only in `axis`, the baseline's level first.
fn pairs(axis: &str, cells: &[Cell]) -> Vec<(CellId, CellId)> {
    let mut by_others: BTreeMap<Vec<(&String, &String)>, Vec<&CellId>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.role == CellRole::Sample) {
        let others = cell.levels.iter().filter(|(name, _)| *name != axis).collect();
        by_others.entry(others).or_default().push(&cell.id);
    }
    let pair = |ids: Vec<&CellId>| match ids[..] {
        [a, b] => Some((a.clone(), b.clone())),
        _ => None,
    };
    // In the order of the cells, in which the baseline comes first.
    let mut pairs: Vec<(CellId, CellId)> = by_others.into_values().filter_map(pair).collect();
    pairs.sort_by_key(|(a, _)| cells.iter().position(|cell| cell.id == *a));
    pairs
}

/// What a run until decided takes, on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// Trials of a cell by itself that never faults.
    pub clean: f64,
    /// Of one that faults at the rate that is tested for.
    pub faulty: f64,
    /// Of one at the rate that takes longest.
    pub at_worst: f64,
    /// Blocks of a pair of which one level faults at the baseline's rate and the other never; 0 without pairs.
    pub blocks: f64,
    /// Boots of all cold cells, each at the rate that takes longest, and pairs as above.
    pub boots_at_worst: f64,
}

/// The rule as the course of a run needs it: cells by their index.
#[derive(Debug, Clone, PartialEq)]
pub struct Stops {
    stopping: Stopping,
    pairs: Vec<(usize, usize)>,
    /// The pair of each cell that is in one.
    pair_of: HashMap<usize, usize>,
}

impl Stops {
    /// The rule for cells in this order.
    pub fn of<'c>(stopping: &Stopping, cells: impl Iterator<Item = &'c CellId>) -> Self {
        let index: HashMap<&CellId, usize> = cells.enumerate().map(|(index, id)| (id, index)).collect();
        let pair = |(a, b): &(CellId, CellId)| Some((*index.get(a)?, *index.get(b)?));
        let pairs: Vec<(usize, usize)> = stopping.pairs.iter().filter_map(pair).collect();
        let members = pairs.iter().enumerate().flat_map(|(at, (a, b))| [(*a, at), (*b, at)]);
        Self { pair_of: members.collect(), pairs, stopping: stopping.clone() }
    }

    /// The rule as the plan holds it.
    pub fn rule(&self) -> &Stopping {
        &self.stopping
    }

    fn pair_of(&self, cell: usize) -> Option<usize> {
        self.pair_of.get(&cell).copied()
    }
}

words! {
    /// How a decision ended.
    End {
        /// The cell has the fault; of a pair: the levels differ.
        Faults = "FAULTS",
        /// Its rate is below the one tested for.
        Below = "BELOW",
        /// The first of a pair faults more often.
        FirstMore = "FIRST_MORE",
        /// The second of a pair does.
        SecondMore = "SECOND_MORE",
        /// The most trials were seen, and nothing is shown.
        Inconclusive = "INCONCLUSIVE",
    }
}

/// The evidence of one pair, in both directions: each is a claim of its own, wrong at most 5 % of the time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Pair {
    first_more: EValue,
    second_more: EValue,
    blocks: u32,
}

impl Pair {
    fn add(&mut self, block: Arms) {
        self.first_more.add(block);
        self.second_more.add(block.swapped());
        self.blocks += 1;
    }

    fn end(&self) -> Option<End> {
        match (self.first_more.value() >= E_THRESHOLD, self.second_more.value() >= E_THRESHOLD) {
            (true, _) => Some(End::FirstMore),
            (false, true) => Some(End::SecondMore),
            (false, false) => None,
        }
    }
}

/// Where the decisions of a run stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Decisions {
    counts: Vec<Counts>,
    /// What each cell showed in the present block.
    block: Vec<Counts>,
    pairs: Vec<Pair>,
    aside: Vec<bool>,
    signature: Option<Signature>,
    /// Trials of each cell with another fault than the run's own.
    others: Vec<u64>,
}

impl Decisions {
    /// Before the first trial of `cells` cells.
    pub fn new(cells: usize, stops: Option<&Stops>) -> Self {
        Self {
            counts: vec![Counts::default(); cells],
            block: vec![Counts::default(); cells],
            pairs: vec![Pair::default(); stops.map_or(0, |stops| stops.pairs.len())],
            aside: vec![false; cells],
            signature: None,
            others: vec![0; cells],
        }
    }

    /// Takes note of a verdict on a trial of `cell`.
    pub fn see(&mut self, cell: usize, judgement: &Judgement) {
        match judgement.verdict.counted() {
            Counted::Excluded => {}
            Counted::Clean => self.count(cell, Counts { faults: 0, clean: 1 }),
            Counted::Fault => {
                let own = judgement.fault_signature();
                if is_same_fault(self.signature.get_or_insert_with(|| own.clone()), &own) {
                    self.count(cell, Counts { faults: 1, clean: 0 });
                } else {
                    self.others[cell] += 1;
                }
            }
        }
    }

    /// Takes note of a verdict on a trial of `cell` in the place of `before`. The run's signature stays that of its first
    /// fault, and pairs of blocks that are through keep what they took note of.
    pub fn correct(&mut self, cell: usize, before: &Judgement, after: &Judgement) {
        let is_own = |judgement: &Judgement| {
            self.signature.as_ref().is_some_and(|own| is_same_fault(own, &judgement.fault_signature()))
        };
        let gone = match before.verdict.counted() {
            Counted::Fault if is_own(before) => Counts { faults: 1, clean: 0 },
            Counted::Clean => Counts { faults: 0, clean: 1 },
            Counted::Fault => {
                self.others[cell] = self.others[cell].saturating_sub(1);
                Counts::default()
            }
            Counted::Excluded => Counts::default(),
        };
        for counts in [&mut self.counts[cell], &mut self.block[cell]] {
            counts.faults = counts.faults.saturating_sub(gone.faults);
            counts.clean = counts.clean.saturating_sub(gone.clean);
        }
        self.see(cell, after);
    }

    /// Takes note of trials of `cell` that are evidence.
    pub fn count(&mut self, cell: usize, seen: Counts) {
        self.counts[cell] = self.counts[cell].plus(seen);
        self.block[cell] = self.block[cell].plus(seen);
    }

    /// The block is through: pairs that have both their trials take note of it.
    pub fn end_block(&mut self, stops: &Stops) {
        for (pair, (a, b)) in self.pairs.iter_mut().zip(&stops.pairs) {
            let block = Arms { a: self.block[*a], b: self.block[*b] };
            if block.a.counted() > 0 && block.b.counted() > 0 {
                pair.add(block);
            }
        }
        self.block.fill(Counts::default());
    }

    /// No trial of `cell` will come.
    pub fn set_aside(&mut self, cell: usize) {
        self.aside[cell] = true;
    }

    /// Whether `cell` needs no further trial.
    pub fn is_decided(&self, stops: &Stops, cell: usize) -> bool {
        match stops.pair_of(cell) {
            None => self.end(stops, cell).is_some(),
            Some(pair) => {
                let (a, b) = stops.pairs[pair];
                self.pairs[pair].end().is_some() || self.aside[a] || self.aside[b]
            }
        }
    }

    /// How a cell by itself ended. Trials with another fault are no evidence, and use up its rounds all the same.
    fn end(&self, stops: &Stops, cell: usize) -> Option<SprtEnd> {
        let tried = self.counts[cell].counted() + self.others[cell];
        let is_through = tried >= u64::from(stops.stopping.cap) || self.aside[cell];
        stops.stopping.end(self.counts[cell]).or(is_through.then_some(SprtEnd::Inconclusive))
    }

    /// Every decision, in the order of the cells; a pair comes with its first.
    pub fn all<'d>(&'d self, stops: &'d Stops) -> impl Iterator<Item = Decision> + 'd {
        (0..self.counts.len()).filter_map(|cell| match stops.pair_of(cell) {
            Some(pair) if stops.pairs[pair].0 == cell => Some(self.of_pair(stops, pair)),
            Some(_) => None,
            None => Some(Decision {
                cell,
                other: None,
                counts: Arms { a: self.counts[cell], b: Counts::default() },
                e_value: None,
                blocks: 0,
                others: self.others[cell],
                end: self.end(stops, cell).map(End::from),
            }),
        })
    }

    fn of_pair(&self, stops: &Stops, pair: usize) -> Decision {
        let ((a, b), state) = (stops.pairs[pair], &self.pairs[pair]);
        let tried = |cell: usize| self.counts[cell].counted() + self.others[cell];
        let is_through = tried(a).min(tried(b)) >= u64::from(stops.stopping.max);
        let is_over = is_through || self.aside[a] || self.aside[b];
        Decision {
            cell: a,
            other: Some(b),
            counts: Arms { a: self.counts[a], b: self.counts[b] },
            e_value: Some(state.first_more.value().max(state.second_more.value())),
            blocks: state.blocks,
            others: self.others[a] + self.others[b],
            end: state.end().or(is_over.then_some(End::Inconclusive)),
        }
    }
}

impl From<SprtEnd> for End {
    fn from(end: SprtEnd) -> Self {
        match end {
            SprtEnd::Faults => Self::Faults,
            SprtEnd::Below => Self::Below,
            SprtEnd::Inconclusive => Self::Inconclusive,
        }
    }
}

/// Where one decision stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// The index of the cell, of a pair that of its first.
    pub cell: usize,
    /// Of a pair: the index of its second.
    pub other: Option<usize>,
    /// The trials that are evidence; of a cell by itself in the first arm.
    pub counts: Arms,
    /// Of a pair: the larger e-value.
    pub e_value: Option<f64>,
    /// Of a pair: its complete blocks.
    pub blocks: u32,
    /// Trials with another fault than the run's own: neither for nor against.
    pub others: u64,
    /// How it ended, if it did.
    pub end: Option<End>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::plan::Plan;
    use crate::decide::report::{Report, ReportFold, RunFacts};
    use crate::model::ids::TrialId;
    use crate::model::verdict::Provenance;
    use crate::testing::constructed::{Fate, Journal, agenda_of, cuda_error, machine, passes, plan_of, reboots};

    fn plan(decide: &str, axes: &str) -> Plan {
        plan_of(&format!(
            "[matrix]\nname = \"small\"\ntrials = \"until-decided\"\n{decide}\n[workload]\nkind = \"linear4bit\"\n\
             backend = \"cpu\"\n[shapes]\nA = [512, 1024]\n[baseline]\nsequence = \"A\"\n{axes}"
        ))
    }

    /// The report of a whole run of `plan`.
    fn reported(plan: &Plan, script: impl FnMut(&str, &TrialId) -> Fate) -> Report {
        let agenda = agenda_of(plan, &[]);
        let mut journal = Journal::open(plan, &agenda, |_| Provenance::Measured);
        journal.carry_on(usize::MAX, script);
        let mut fold = ReportFold::new(plan);
        journal.results().iter().for_each(|result| fold.add(result).unwrap());
        fold.decide(journal.state(), &agenda);
        fold.finish(RunFacts::of("small-001".parse().unwrap(), journal.state(), &agenda, machine()))
    }

    fn texts(report: &Report) -> Vec<&str> {
        report.decisions.iter().map(|decision| decision.text.as_str()).collect()
    }

    fn counted(report: &Report) -> Vec<u64> {
        report.cells.iter().map(|cell| cell.counted()).collect()
    }

    #[test]
    fn a_cell_without_a_fault_is_below_the_rate_after_nine_trials_and_one_with_a_fault_at_once() {
        let plan = plan("", "");
        let clean = reported(&plan, |_, _| passes(10));
        assert_eq!(
            texts(&clean),
            ["BELOW 30 %: 0/9, said wrongly at most 5 % of the time if its rate is 30 % or more"]
        );
        assert_eq!(counted(&clean), [9]);
        let faulty = reported(&plan, |_, _| reboots("A.forward"));
        assert_eq!(texts(&faulty), ["FAULTS: 1/1 (100 %, 95 % CI at every look 2.5–100 %)"]);
    }

    #[test]
    fn cells_that_are_decided_together_need_more_to_be_called_faulty() {
        let plan = plan("", "[axes]\nbatch = [2]\n");
        let report = reported(&plan, |label, _| if label == "batch=2" { reboots("A.forward") } else { passes(10) });
        assert_eq!(counted(&report), [9, 2]);
        assert!(texts(&report)[1].starts_with("FAULTS: 2/2"), "{:?}", texts(&report));
    }

    #[test]
    fn what_stays_between_is_inconclusive_at_the_limit() {
        let plan = plan("decide = { max = 5 }", "");
        let report = reported(&plan, |_, _| passes(10));
        assert_eq!(texts(&report), ["INCONCLUSIVE: 0/5 (rate at most 58.5 %, 95 % at every look)"]);
    }

    #[test]
    fn two_arms_end_together_after_four_perfect_pairs() {
        let plan = plan("decide = { compare = \"batch\", max = 20 }", "[axes]\nbatch = [2]\n");
        let report = reported(&plan, |label, _| if label == "baseline" { reboots("A.forward") } else { passes(10) });
        assert_eq!(counted(&report), [4, 4]);
        assert_eq!(
            texts(&report),
            [
                "baseline FAULTS MORE OFTEN: baseline 4/4 against batch=2 0/4, e-value 43.1 after 4 complete blocks (20 decides)"
            ]
        );
        let the_other_way =
            reported(&plan, |label, _| if label == "baseline" { passes(10) } else { reboots("A.forward") });
        assert_eq!(the_other_way.decisions[0].end, Some(End::SecondMore));
        let alike = reported(&plan, |_, _| passes(10));
        assert_eq!((counted(&alike), alike.decisions[0].end), (vec![20, 20], Some(End::Inconclusive)));
    }

    #[test]
    fn another_fault_than_the_first_is_no_evidence_and_uses_up_its_round() {
        let plan = plan("decide = { max = 4 }", "[axes]\nbatch = [2]\n");
        // Few enough for the boots that faults of the GPU cost. The first fault, of whichever cell, says which is the
        // run's own.
        let mut is_first = true;
        let report = reported(&plan, |_, _| match std::mem::replace(&mut is_first, false) {
            true => reboots("A.forward"),
            false => cuda_error("A.forward"),
        });
        let mut texts = texts(&report);
        texts.sort_unstable();
        assert!(
            texts[0].starts_with("INCONCLUSIVE: 0/0") && texts[0].contains("4 trials with another fault"),
            "{texts:?}"
        );
        assert!(
            texts[1].starts_with("INCONCLUSIVE: 1/1") && texts[1].contains("3 trials with another fault"),
            "{texts:?}"
        );
        assert_eq!(counted(&report), [4, 4]);
    }

    #[test]
    fn a_known_baseline_sets_the_rate_before_the_first_trial() {
        let decide = Decide { compare: None, max: 40 };
        let of = |baseline| Stopping::of(&decide, &plan("", "").cells, baseline);
        let known = of(Counts::of(7, 9));
        assert!((known.p1 - 0.450_358).abs() < 1e-6, "{known:?}");
        assert_eq!((known.test().clean_trials(), known.cap), (6, 18));
        assert_eq!(of(Counts::of(0, 9)), of(None), "a baseline without a fault is none");
        let plan = Plan { stopping: Some(Box::new(known.clone())), ..plan("", "") };
        let text = &reported(&plan, |_, _| passes(10)).decisions[0].text;
        assert!(text.ends_with("; baseline 7/9 (at least 45.0 %)"), "{text}");
    }

    #[test]
    fn what_it_takes_is_known_before_it_runs() {
        let expected = plan("", "").expected().unwrap();
        assert!((expected.clean - 9.0).abs() < 1e-9 && (expected.faulty - 4.78).abs() < 0.01, "{expected:?}");
        assert_eq!((expected.blocks, expected.boots_at_worst), (0.0, 0.0));
    }
}
