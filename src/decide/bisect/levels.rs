//! From which level on: an ordered axis is searched like revisions, and the answer is put to the test.
//!
//! A history has one change; an axis of levels may have several (a batch of 8 that fits again, say). So every level on
//! the bad side must fault, and no level on the good side may: else the answer is that the axis is not monotone.

use serde::{Deserialize, Serialize};

use super::knobs::{clean_test, is_below};
use super::posterior::add;
use super::revisions::{self, Revisions, Rules};
use super::{Purpose, Search, Seen, Step};
use crate::decide::stats::Counts;

/// Faults on the good side that are no longer spurious.
const GOOD_FAULTS_MAX: u64 = 1;

/// Runs that each level of the good side gets at least.
const GOOD_RUNS: u64 = 2;

/// What a search of levels finds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What a search with one change finds; each level agrees.
    Monotone(revisions::Answer),
    /// One change does not explain what was seen.
    NotMonotone {
        /// Where the fault would begin.
        from: usize,
        /// A level that disagrees.
        level: usize,
        /// Its runs.
        counts: Counts,
    },
}

/// A search for the first bad level.
#[derive(Debug, Clone)]
pub struct Levels {
    search: Revisions,
}

impl Levels {
    /// A search over levels 0 (good) to `last` (bad).
    pub fn new(last: usize, rules: Rules) -> Self {
        Self { search: Revisions::line(last, rules) }
    }

    /// The search with one change.
    pub fn search(&self) -> &Revisions {
        &self.search
    }

    /// Takes note of runs that were there before the search.
    pub fn load(&mut self, level: usize, counts: Counts) {
        self.search.load(level, counts);
    }

    /// Takes note that a level cannot be tested.
    pub fn set_untestable(&mut self, level: usize) {
        self.search.set_untestable(level);
    }

    /// What a level still owes if the fault begins at `from`.
    fn owes(&self, from: usize, level: usize) -> Owes {
        let counts = self.search.counts()[level];
        if level >= from {
            let bad = self.search.counts()[from..].iter().copied().fold(Counts::default(), add);
            match counts.faults {
                0 if is_below(&clean_test(bad), counts) => Owes::Disagrees,
                0 => Owes::Run,
                1.. => Owes::Nothing,
            }
        } else if counts.faults > GOOD_FAULTS_MAX {
            Owes::Disagrees
        } else if counts.counted() < GOOD_RUNS + counts.faults {
            Owes::Run
        } else {
            Owes::Nothing
        }
    }

    fn guard(&self, from: usize, to: usize, answer: revisions::Answer) -> Step<usize, Answer> {
        let levels = 0..self.search.counts().len();
        // Levels that cannot be tested owe nothing; `from..to` are such.
        let owed: Vec<(usize, Owes)> = levels
            .filter(|level| !(from..to).contains(level) && self.search.is_testable(*level))
            .map(|level| (level, self.owes(to, level)))
            .collect();
        let first = |owes: Owes| owed.iter().find(|(_, owed)| *owed == owes).map(|(level, _)| *level);
        if let Some(level) = first(Owes::Disagrees) {
            let counts = self.search.counts()[level];
            return Step::Done(Answer::NotMonotone { from: to, level, counts });
        }
        match first(Owes::Run) {
            Some(at) => Step::Test { at, purpose: Purpose::Confirm },
            None => Step::Done(Answer::Monotone(answer)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owes {
    Nothing,
    Run,
    Disagrees,
}

impl Search for Levels {
    type Place = usize;
    type Answer = Answer;

    fn observe(&mut self, at: &usize, seen: Seen) {
        self.search.observe(at, seen);
    }

    fn next(&self) -> Step<usize, Answer> {
        match self.search.next() {
            Step::Test { at, purpose } => Step::Test { at, purpose },
            Step::Done(revisions::Answer::Found { from, to, probability }) => {
                self.guard(from, to, revisions::Answer::Found { from, to, probability })
            }
            Step::Done(answer) => Step::Done(Answer::Monotone(answer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(last: usize, is_bad: impl Fn(usize) -> bool) -> Answer {
        let mut search = Levels::new(last, Rules::default());
        for _ in 0..200 {
            match search.next() {
                Step::Test { at, .. } => search.observe(&at, Seen::fault_if(is_bad(at))),
                Step::Done(answer) => return answer,
            }
        }
        panic!("no end");
    }

    #[test]
    fn a_level_in_the_middle_that_is_good_again_is_said() {
        let found = answer(6, |level| level >= 3);
        let Answer::Monotone(revisions::Answer::Found { from: 3, to: 3, .. }) = found else { panic!("{found:?}") };
        for hole in [4, 5] {
            let found = answer(6, |level| level >= 3 && level != hole);
            let is_said = match &found {
                Answer::NotMonotone { .. } => true,
                Answer::Monotone(revisions::Answer::Found { .. }) => false,
                Answer::Monotone(_) => true,
            };
            assert!(is_said, "{hole}: {found:?}");
        }
    }
}
