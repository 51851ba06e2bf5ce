//! How long the stages of trials took, by cell.

use crate::decide::result::TrialResult;
use crate::model::verdict::StageName;

/// The most stages told apart in one cell; a model of hundreds of layers has thousands.
pub const TALLIED_STAGES_MAX: usize = 64;

/// The most durations of one stage that a median is taken of.
const TALLIED_TIMES_MAX: usize = 1000;

/// One stage of the trials of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageTime {
    /// The stage.
    pub stage: StageName,
    /// How many trials went through it.
    pub trials: u64,
    /// The middle duration, in milliseconds.
    pub median_ms: u64,
    /// The longest, in milliseconds.
    pub longest_ms: u64,
}

/// The stages of one cell, in the order in which they were first reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// The first stages.
    pub stages: Vec<StageTime>,
    /// How many further ones there were.
    pub left_out: usize,
}

/// The stages of one cell in the making. Trials whose end was not observed are left out: their last stage has no end.
#[derive(Debug, Default)]
pub struct StageFold {
    stages: Vec<(StageName, Vec<u64>, u64, u64)>,
    left_out: usize,
}

impl StageFold {
    /// Takes note of `result`.
    pub fn add(&mut self, result: &TrialResult) {
        let Some(outcome) = &result.outcome else { return };
        let mut left_out = 0;
        for (at, (stage, ms)) in outcome.stage_ms.iter().enumerate() {
            // Trials of a cell go through the same stages: each is as a rule where it was before.
            let is_here = self.stages.get(at).is_some_and(|known| known.0 == *stage);
            let known = if is_here { Some(at) } else { self.stages.iter().position(|known| known.0 == *stage) };
            let index = match known {
                Some(index) => index,
                None if self.stages.len() < TALLIED_STAGES_MAX => {
                    self.stages.push((stage.clone(), Vec::new(), 0, 0));
                    self.stages.len() - 1
                }
                None => {
                    left_out += 1;
                    continue;
                }
            };
            let (_, times, trials, longest) = &mut self.stages[index];
            (*trials, *longest) = (*trials + 1, (*longest).max(*ms));
            if times.len() < TALLIED_TIMES_MAX {
                times.push(*ms);
            }
        }
        self.left_out = self.left_out.max(left_out);
    }

    /// The stages.
    pub fn finish(self) -> StageTimes {
        let time = |(stage, mut times, trials, longest_ms): (StageName, Vec<u64>, u64, u64)| {
            times.sort_unstable();
            let median_ms = times[(times.len() - 1) / 2].midpoint(times[times.len() / 2]);
            StageTime { stage, trials, median_ms, longest_ms }
        };
        StageTimes { stages: self.stages.into_iter().map(time).collect(), left_out: self.left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::constructed::{BOARD, Journal, agenda_of, board_provenance, passes, plan_of};

    #[test]
    fn stages_have_the_median_of_their_trials_and_a_limit() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        let mut journal = Journal::open(&plan, &agenda, board_provenance);
        journal.carry_on(1, |_, _| passes(10));
        let mut result = journal.results().pop().unwrap();
        let mut fold = StageFold::default();
        for (copy, forward) in [(10, 100), (30, 300), (20, 200)] {
            let stage = |name: &str, ms| (name.parse::<StageName>().unwrap(), ms);
            result.outcome.as_mut().unwrap().stage_ms = vec![stage("A.copy", copy), stage("A.forward", forward)];
            fold.add(&result);
        }
        let more = (0..100).map(|n| (format!("L{n}.copy").parse().unwrap(), 1)).collect();
        result.outcome.as_mut().unwrap().stage_ms = more;
        fold.add(&result);
        let times = fold.finish();
        let copy = &times.stages[0];
        assert_eq!((copy.stage.as_str(), copy.trials, copy.median_ms, copy.longest_ms), ("A.copy", 3, 20, 30));
        assert_eq!((times.stages.len(), times.left_out), (TALLIED_STAGES_MAX, 100 - (TALLIED_STAGES_MAX - 2)));
    }
}
