//! One trial's result: the fold of its journal records that `result.json` holds and reports are made of.

use serde::{Deserialize, Serialize};

use crate::model::ids::{BootId, TrialId};
use crate::model::journal::{Event, Judged, Record, Started};
use crate::model::outcome::Outcome;
use crate::model::units::{UptimeMs, WallTime};
use crate::model::verdict::{Judgement, STAGES_MAX, StageName, Verdict};

/// Name and version of the format of `result.json`.
pub const RESULT_SCHEMA: &str = "jetfault.result/1";

/// A stage and when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageAt {
    /// The stage.
    pub stage: StageName,
    /// Milliseconds since the child was started.
    pub at_ms: u64,
}

/// A judged trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// [`RESULT_SCHEMA`].
    pub schema: String,
    /// The trial.
    pub trial: TrialId,
    /// Its start; absent if it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<StartedAt>,
    /// Whether its child was known to run.
    pub running: bool,
    /// The stages it reached, as far as recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageAt>,
    /// How many stages more it reached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stages_more: u64,
    /// What was observed in its boot; absent after a reboot or a death of the harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Box<Outcome>>,
    /// The verdict.
    pub judgement: Judgement,
    /// Label of the rule that gave it.
    pub rule: String,
    /// The verdict that was given before what a desk saw was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<Verdict>,
    /// The boot in which it was judged.
    pub judged_in: BootId,
    /// When it was judged, for people.
    pub judged_wall: WallTime,
}

/// The start of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedAt {
    /// The boot.
    pub boot: BootId,
    /// When, within that boot.
    pub uptime_ms: UptimeMs,
    /// When, for people.
    pub wall: WallTime,
    /// What was written down before the child existed.
    pub started: Started,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl TrialResult {
    /// The bytes of `result.json`: the same whenever and wherever they are made from the same journal.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("results hold only maps with string keys");
        json.push(b'\n');
        json
    }
}

/// Collects the records of trials and gives a result at each verdict.
#[derive(Debug, Default)]
pub struct ResultFold {
    started: Option<StartedAt>,
    running: bool,
    stages: Vec<StageAt>,
    stages_more: u64,
    outcome: Option<Box<Outcome>>,
    /// The last result of a trial that was not seen to end.
    revisable: Option<Box<TrialResult>>,
}

impl ResultFold {
    /// Takes note of `record`; gives the result that it completes, if it does.
    pub fn apply(&mut self, record: &Record) -> Option<TrialResult> {
        match &record.event {
            Event::Started(started) => {
                *self = Self { revisable: self.revisable.take(), ..Self::default() };
                self.started = Some(StartedAt {
                    boot: record.boot.clone(),
                    uptime_ms: record.uptime_ms,
                    wall: record.wall,
                    started: started.clone(),
                });
                None
            }
            Event::Running(_) => {
                self.running = true;
                None
            }
            Event::Stage(reached) if self.stages.len() < STAGES_MAX => {
                self.stages.push(StageAt { stage: reached.stage.clone(), at_ms: reached.at_ms });
                None
            }
            Event::Stage(_) => {
                self.stages_more += 1;
                None
            }
            Event::Finished(finished) => {
                self.outcome = Some(finished.outcome.clone());
                None
            }
            Event::Judged(judged) => Some(self.verdict(record, judged)),
            Event::Opened(_)
            | Event::Booted(_)
            | Event::Extended(_)
            | Event::Alive(_)
            | Event::RebootAsked(_)
            | Event::Set(_)
            | Event::Restored(_)
            | Event::Hooked(_)
            | Event::Observed(_)
            | Event::Quarantined(_)
            | Event::Paused(_)
            | Event::Closed(_) => None,
        }
    }

    fn verdict(&mut self, record: &Record, judged: &Judged) -> TrialResult {
        let is_open = self.started.as_ref().is_some_and(|start| start.started.trial == judged.trial);
        if judged.corrects.is_some()
            && !is_open
            && let Some(before) = self.revisable.as_deref().filter(|before| before.trial == judged.trial)
        {
            let Judged { judgement, rule, corrects, .. } = judged.clone();
            let (judged_in, judged_wall) = (record.boot.clone(), record.wall);
            return TrialResult { judgement, rule, corrects, judged_in, judged_wall, ..before.clone() };
        }
        let revisable = self.revisable.take();
        let result = std::mem::take(self).judged(record, judged);
        let is_revisable = result.started.is_some() && result.outcome.is_none();
        self.revisable = if is_revisable { Some(Box::new(result.clone())) } else { revisable };
        result
    }

    fn judged(self, record: &Record, judged: &Judged) -> TrialResult {
        let Judged { trial, judgement, rule, corrects } = judged.clone();
        TrialResult {
            schema: RESULT_SCHEMA.to_owned(),
            trial,
            started: self.started,
            running: self.running,
            stages: self.stages,
            stages_more: self.stages_more,
            outcome: self.outcome,
            judgement,
            rule,
            corrects,
            judged_in: record.boot.clone(),
            judged_wall: record.wall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::journal::{decode, encode};
    use crate::testing::constructed::{BOARD, Fate, Journal, agenda_of, board_provenance, passes, plan_of};

    #[test]
    fn a_result_made_again_from_the_journal_has_the_same_bytes_whatever_numbers_a_workload_reports() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        let mut journal = Journal::open(&plan, &agenda, board_provenance);
        journal.carry_on(1, |_, _| match passes(10) {
            Fate::Ends(mut outcome) => {
                // Two numbers one bit apart: a reader that rounds would make them one.
                for (name, value) in [("a", 0.025_000_000_000_000_022), ("b", 0.025_000_000_000_000_026)] {
                    outcome.metrics.insert(name.into(), value);
                }
                Fate::Ends(outcome)
            }
            other => other,
        });
        let written: Vec<_> = journal.results().iter().map(TrialResult::to_json).collect();
        let mut fold = ResultFold::default();
        let read = journal.records.iter().map(|record| decode(encode(record).trim_ascii_end(), record.seq).unwrap());
        let made_again: Vec<_> = read.filter_map(|record| fold.apply(&record)).map(|result| result.to_json()).collect();
        assert_eq!(made_again, written);
    }
}
