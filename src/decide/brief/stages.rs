//! How long the stages of a recipe took, in trials without a fault.

use crate::decide::report::Durations;
use crate::model::outcome::Outcome;
use crate::model::verdict::{Counted, StageName, Verdict};

/// The most times of one stage that a median is taken of.
const TIMES_MAX: usize = 200;

/// The most stages of one recipe that are told apart: those of a whole model are not for a table.
const STAGES_MAX: usize = 40;

/// How long one stage took.
#[derive(Debug, Clone, PartialEq)]
pub struct StageTimes {
    /// The label of the recipe.
    pub label: String,
    /// The stage.
    pub stage: StageName,
    /// How long, in trials without a fault.
    pub times: Durations,
}

/// The stages of one recipe in the making, in the order in which they came first.
#[derive(Debug, Default)]
pub(super) struct Fold {
    stages: Vec<(StageName, Vec<u64>, u64)>,
}

impl Fold {
    /// Takes note of a trial.
    pub(super) fn add(&mut self, outcome: &Outcome, verdict: Verdict) {
        if verdict.counted() != Counted::Clean {
            return;
        }
        for (place, (stage, ms)) in outcome.stage_ms.iter().enumerate() {
            // As a rule each trial has the same stages in the same order.
            let is_here = self.stages.get(place).is_some_and(|known| known.0 == *stage);
            let index = if is_here { Some(place) } else { self.stages.iter().position(|known| known.0 == *stage) };
            match index {
                Some(index) => {
                    let (_, times, trials) = &mut self.stages[index];
                    *trials += 1;
                    if times.len() < TIMES_MAX {
                        times.push(*ms);
                    }
                }
                None if self.stages.len() < STAGES_MAX => self.stages.push((stage.clone(), vec![*ms], 1)),
                None => {}
            }
        }
    }

    /// The stages of the recipe called `label`.
    pub(super) fn finish(self, label: &str) -> Vec<StageTimes> {
        let row = |(stage, mut times, trials): (StageName, Vec<u64>, u64)| {
            times.sort_unstable();
            let (low, high) = (times[(times.len() - 1) / 2], times[times.len() / 2]);
            let (shortest, longest) = (times[0], times[times.len() - 1]);
            let times = Durations { trials, median: low.midpoint(high), shortest, longest };
            StageTimes { label: label.to_owned(), stage, times }
        };
        self.stages.into_iter().map(row).collect()
    }
}
