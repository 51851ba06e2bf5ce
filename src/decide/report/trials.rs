//! Every judged trial as a row, and the few trials that are looked at closely.
//!
//! A row is what CSV, JUnit and HTML say of one trial. It is small, so that all rows of a long run fit in memory; the
//! whole result is kept of at most [`CLOSE_MAX`] trials.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::decide::classify::signal_name;
use crate::decide::explain::{BootEvidence, Explanation, explain};
use crate::decide::plan::{CellRole, Plan};
use crate::decide::result::TrialResult;
use crate::model::ids::{BootId, CellId, DeviceId, TrialId};
use crate::model::journal::Launcher;
use crate::model::outcome::{Exit, Outcome, PeakMemory};
use crate::model::settings::Start;
use crate::model::start_state::{ColdProof, PriorEnd};
use crate::model::telemetry::{Hottest, TelemetrySummary};
use crate::model::units::{UptimeMs, WallTime};
use crate::model::verdict::{Counted, Judgement, Provenance, Role};

/// The most trials of which more than a row is kept: faults first, then the newest.
pub const CLOSE_MAX: usize = 100;

/// One judged trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialRow {
    /// The trial.
    pub trial: TrialId,
    /// Index of its cell in the plan; absent for a trial that made the machine warm.
    pub cell: Option<usize>,
    /// How it was started; absent if it never was.
    pub start: Option<StartRow>,
    /// Whether it is in a rate, and as what.
    pub counted: Counted,
    /// The verdict, and what stands beside it.
    pub judgement: Judgement,
    /// Label of the rule that gave it.
    pub rule: String,
    /// When it was judged, for people.
    pub judged_wall: WallTime,
    /// What was observed in its boot; absent after a reboot.
    pub outcome: Option<OutcomeRow>,
}

/// The start of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct StartRow {
    /// The boot.
    pub boot: BootId,
    /// When, within that boot.
    pub uptime_ms: UptimeMs,
    /// When, for people.
    pub wall: WallTime,
    /// What it was for.
    pub role: Role,
    /// The machine.
    pub device: DeviceId,
    /// How many trials of ours had started in that boot before it.
    pub position: u32,
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// What started the harness.
    pub launcher: Launcher,
    /// The start state, and how sure it is that it was cold.
    pub state: Option<(Start, ColdProof)>,
    /// How the boot before ended.
    pub prior_end: Option<PriorEnd>,
}

/// The outcome of a trial in a few figures.
#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeRow {
    /// How the process ended, such as `exit 0` or `SIGSEGV`.
    pub exit: String,
    /// Milliseconds from spawn to the end of the child.
    pub duration_ms: u64,
    /// Peaks of memory, in bytes.
    pub peak: PeakMemory,
    /// The first line of error output.
    pub error_text: Option<String>,
    /// The hottest zone at its hottest.
    pub hottest: Option<Hottest>,
    /// The highest power of any rail, in milliwatts.
    pub power_mw_max: Option<i64>,
    /// The least memory available, in bytes.
    pub available_min: Option<u64>,
    /// Named numbers that the workload reported.
    pub metrics: BTreeMap<String, f64>,
}

impl OutcomeRow {
    fn of(outcome: &Outcome) -> Self {
        let telemetry = outcome.telemetry.as_ref();
        let power = |summary: &TelemetrySummary| summary.power_mw_max.values().max().copied();
        Self {
            exit: exit_words(&outcome.exit),
            duration_ms: outcome.duration_ms,
            peak: outcome.peak_memory,
            error_text: outcome.error_text.clone(),
            hottest: telemetry.and_then(|summary| summary.hottest.clone()),
            power_mw_max: telemetry.and_then(power),
            available_min: telemetry.and_then(|summary| summary.available_min),
            metrics: outcome.metrics.clone(),
        }
    }
}

/// A trial that is looked at closely.
#[derive(Debug, Clone, PartialEq)]
pub struct Close {
    /// Index of its row.
    pub row: usize,
    /// Everything about it.
    pub result: TrialResult,
    /// Why it got its verdict.
    pub explanation: Explanation,
}

/// A trial that may be looked at closely: what an explanation needs.
#[derive(Debug)]
struct Candidate {
    row: usize,
    result: TrialResult,
    evidence: Option<BootEvidence>,
}

/// How a process ended, in a word or two.
fn exit_words(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal { number, .. } => signal_name(*number).to_owned(),
        Exit::Unkillable => "unkillable".to_owned(),
        Exit::NotStarted(_) => "not started".to_owned(),
    }
}

/// Rows in the making.
#[derive(Debug)]
pub struct TrialRows<'p> {
    plan: &'p Plan,
    index_of: HashMap<&'p CellId, usize>,
    /// The rows, in the order of the verdicts.
    pub rows: Vec<TrialRow>,
    close_faults: VecDeque<Candidate>,
    close_others: VecDeque<Candidate>,
}

impl<'p> TrialRows<'p> {
    /// No row yet.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            index_of: plan.cells.iter().enumerate().map(|(index, cell)| (&cell.id, index)).collect(),
            rows: Vec::new(),
            close_faults: VecDeque::new(),
            close_others: VecDeque::new(),
        }
    }

    /// Takes note of `result`; `evidence` is what was known at its verdict, if the harness did not see it end.
    pub fn add(&mut self, result: TrialResult, evidence: Option<BootEvidence>) {
        let cell = self.index_of(&result.trial.cell);
        let row = TrialRow {
            trial: result.trial.clone(),
            cell,
            start: start_of(&result),
            counted: self.counted(cell, &result),
            judgement: result.judgement.clone(),
            rule: result.rule.clone(),
            judged_wall: result.judged_wall,
            outcome: result.outcome.as_deref().map(OutcomeRow::of),
        };
        let close = match row.judgement.verdict.counted() {
            Counted::Fault => &mut self.close_faults,
            Counted::Clean | Counted::Excluded => &mut self.close_others,
        };
        close.push_back(Candidate { row: self.rows.len(), result, evidence });
        if close.len() > CLOSE_MAX {
            close.pop_front();
        }
        self.rows.push(row);
    }

    /// The index of the cell `id` in the plan, unless it is the one that makes the machine warm.
    pub fn index_of(&self, id: &CellId) -> Option<usize> {
        self.index_of.get(id).copied()
    }

    /// How a trial enters its cell's rate: as its verdict says, if it served as its cell does.
    fn counted(&self, cell: Option<usize>, result: &TrialResult) -> Counted {
        let role = cell.and_then(|index| self.plan.cells.get(index)).map(|cell| cell.role);
        let own = match role {
            Some(CellRole::Sample) => Role::Sample,
            Some(CellRole::Control) => Role::Control,
            Some(CellRole::Warming) | None => return Counted::Excluded,
        };
        match &result.started {
            Some(started) if started.started.role == own => result.judgement.verdict.counted(),
            Some(_) | None => Counted::Excluded,
        }
    }

    /// All rows, and the trials that are looked at closely: faults first, each from the newest.
    pub fn finish(self) -> (Vec<TrialRow>, Vec<Close>) {
        let newest_first = self.close_faults.into_iter().rev().chain(self.close_others.into_iter().rev());
        let close = newest_first.take(CLOSE_MAX).map(|Candidate { row, result, evidence }| {
            let explanation = explain(&result, self.plan, evidence.as_ref());
            Close { row, result, explanation }
        });
        (self.rows, close.collect())
    }
}

fn start_of(result: &TrialResult) -> Option<StartRow> {
    let at = result.started.as_ref()?;
    let (started, conditions) = (&at.started, &at.started.conditions);
    Some(StartRow {
        boot: at.boot.clone(),
        uptime_ms: at.uptime_ms,
        wall: at.wall,
        role: started.role,
        device: started.device.clone(),
        position: started.position,
        provenance: started.provenance,
        launcher: started.launcher,
        state: conditions.start.as_ref().map(|state| (state.start(), state.cold)),
        prior_end: conditions.prior_end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::constructed::{BOARD, Journal, agenda_of, board_provenance, board_script, plan_of};

    #[test]
    fn every_trial_has_a_row_and_faults_are_looked_at_first() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        let mut journal = Journal::open(&plan, &agenda, board_provenance);
        journal.carry_on(usize::MAX, board_script);
        let results = journal.results();
        let mut rows = TrialRows::new(&plan);
        results.iter().for_each(|result| rows.add(result.clone(), None));
        let (rows, close) = rows.finish();
        assert_eq!(rows.len(), results.len());
        assert!(close.len() == CLOSE_MAX.min(rows.len()), "{} of {}", close.len(), rows.len());
        let is_fault = |index: usize| rows[index].judgement.verdict.counted() == Counted::Fault;
        let faults = (0..rows.len()).filter(|index| is_fault(*index)).count();
        assert!(faults > 0 && close[..faults].iter().all(|close| is_fault(close.row)));
        assert!(close[..faults].is_sorted_by(|a, b| a.row > b.row), "the newest first");
        assert!(close[faults..].iter().all(|close| !is_fault(close.row)));
        assert!(close.iter().all(|close| rows[close.row].trial == close.explanation.trial));
        let counted = rows.iter().filter(|row| row.counted == Counted::Fault).count();
        assert_eq!(counted, faults, "every fault of this board is one of a sample or a control");
    }
}
