//! The report of one run, as data: a fold of its plan and its trials' results.
//!
//! Owns which figures are shown and the words that must stand beside them. It must not know how they are laid out
//! (that is [`crate::cli::render`]) nor where results come from. Results are taken one at a time: what is kept is
//! bounded by the cells of the plan and the limits named here, whatever the number of trials.
//!
//! Two rules hold everywhere. Numbers of different provenance never meet in one rate. And no rate is written without
//! its bound, so that a clean cell reads as what the trials exclude and not as more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::decide::agenda::Agenda;
use crate::decide::hypotheses::{self, Hypothesis};
use crate::decide::plan::{CellRole, Plan};
use crate::decide::result::TrialResult;
use crate::decide::run::{Phase, RunState};
use crate::decide::stats::Method;
use crate::model::ids::{BootId, CellId, ContentDigest, DeviceId, RunId, TrialId};
use crate::model::journal::{Closing, Persistence};
use crate::model::matrix::TrialsRule;
use crate::model::units::WallTime;
use crate::model::verdict::{Counted, Provenance, RebootCause, Signature, StageName, Verdict};

pub mod boots;
mod cell;
mod decision;
mod headline;
pub mod heat;
mod rate;
pub(in crate::decide) mod schema;
pub mod stages;
pub mod trials;

pub use cell::{
    CellReport, Durations, Expectation, Met, Reason, Sampled, Short, SignatureCount, TALLIED_DURATIONS_MAX,
    TALLIED_REASONS_MAX, TALLIED_SIGNATURES_MAX, Uncounted,
};
pub use decision::DecisionReport;
pub use headline::Headline;
pub use rate::{Rate, percent};
pub use schema::report_schema;

use cell::CellFold;

/// Name and version of the format of `report.json`.
pub const REPORT_SCHEMA: &str = "jetfault.report/1";

/// The most faults that are listed one by one; further ones are only counted.
pub const FAULT_ROWS_MAX: usize = 200;

/// A report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: String,
    /// What is known of the run as a whole.
    pub run: RunFacts,
    /// What it carries through.
    pub matrix: MatrixFacts,
    /// What it found, in a sentence for each provenance.
    pub headlines: Vec<Headline>,
    /// Controls that did not get the verdict they must get: the rows that lean on them are undecided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls_failed: Vec<String>,
    /// How the intervals are made.
    #[serde(default)]
    pub interval: Method,
    /// The cells, in the order of the plan.
    pub cells: Vec<CellReport>,
    /// Trials that made the machine warm. They are in no rate, and a fault in one is its own.
    #[serde(default, skip_serializing_if = "Uncounted::is_empty")]
    pub warming: Uncounted,
    /// What was decided, where the number of trials is not fixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionReport>,
    /// Cells without a counted trial.
    pub untested: Vec<Untested>,
    /// Counted faults one by one, in the order of their verdicts.
    pub faults: Vec<FaultRow>,
    /// How many more there were.
    pub faults_left_out: u64,
    /// What the run says of the usual explanations; empty without a fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hypotheses: Vec<Hypothesis>,
}

impl Report {
    /// The report as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a report has string keys and finite numbers");
        json.push(b'\n');
        json
    }
}

/// Whether a run goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Standing {
    /// At work, or waiting for a boot.
    Open,
    /// Resting until somebody resumes it.
    Paused,
    /// Every cell has its trials, or is short and says so.
    Complete,
    /// A limit of `[safety]` was reached.
    Stopped {
        /// Which, in words.
        why: String,
    },
}

impl Standing {
    /// Where a run in `phase` stands.
    pub fn of(phase: &Phase) -> Self {
        match phase {
            Phase::Unopened | Phase::Open => Self::Open,
            Phase::Paused => Self::Paused,
            Phase::Closed(closed) => match closed.how {
                Closing::Complete => Self::Complete,
                Closing::Stopped => Self::Stopped { why: closed.why.clone() },
            },
        }
    }

    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Complete => "complete",
            Self::Stopped { .. } => "stopped",
        }
    }

    /// Whether no further trial can come.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Open | Self::Paused => false,
            Self::Complete | Self::Stopped { .. } => true,
        }
    }
}

/// What is known of a run as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The run.
    pub id: RunId,
    /// Whether it goes on.
    pub standing: Standing,
    /// Boots in which the harness started.
    pub boots: u32,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// Version of the harness.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// Whether its results survive a power cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Persistence>,
    /// What the machine says about itself, by name, such as `l4t` or `kernel`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine: BTreeMap<String, String>,
    /// Cells that are not started again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub set_aside: BTreeSet<CellId>,
}

impl RunFacts {
    /// The facts of run `id`, which stands at `state`, on a machine that says `machine` about itself.
    pub fn of(id: RunId, state: &RunState, agenda: &Agenda, machine: BTreeMap<String, String>) -> Self {
        let opened = state.opened.as_deref();
        let cells = agenda.cells.iter().zip(state.progress.cells());
        Self {
            id,
            standing: Standing::of(&state.phase),
            boots: state.boots,
            device: opened.map(|opened| opened.device.clone()),
            tool: opened.map(|opened| opened.tool.clone()).unwrap_or_default(),
            persistence: opened.map(|opened| opened.persistence),
            machine,
            set_aside: cells.filter(|(_, progress)| progress.is_aside()).map(|(cell, _)| cell.id.clone()).collect(),
        }
    }
}

/// The matrix that a run carries through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixFacts {
    /// Its name.
    pub name: String,
    /// The digest of its content, with the changes of the command line.
    pub digest: ContentDigest,
    /// Those changes, as shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// The `--cell` arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// The seed of order and inputs.
    pub seed: u64,
}

/// A cell without a counted trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untested {
    /// Its id.
    pub id: CellId,
    /// Its label.
    pub label: String,
    /// Why, as far as trials of it were judged; empty if none was.
    pub reasons: Vec<Reason>,
}

/// One counted fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultRow {
    /// The trial.
    pub trial: TrialId,
    /// The label of its cell.
    pub label: String,
    /// The class.
    pub verdict: Verdict,
    /// For `reboot`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RebootCause>,
    /// What refines the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The last stage reached: the fault happened there or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Milliseconds after that stage of which nothing was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded_ms: Option<u64>,
    /// What makes it the same as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Label of the rule that gave the verdict.
    pub rule: String,
    /// Where the trial's numbers come from.
    pub provenance: Provenance,
    /// The boot in which it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
    /// When it was judged, for people.
    pub judged_wall: WallTime,
}

impl FaultRow {
    fn of(result: &TrialResult, label: &str, provenance: Provenance) -> Self {
        let judgement = &result.judgement;
        Self {
            trial: result.trial.clone(),
            label: label.to_owned(),
            verdict: judgement.verdict,
            cause: judgement.cause,
            detail: judgement.detail.clone(),
            stage: judgement.stage.clone(),
            unrecorded_ms: judgement.unrecorded_ms,
            signature: judgement.signature.clone(),
            rule: result.rule.clone(),
            provenance,
            boot: result.started.as_ref().map(|started| started.boot.clone()),
            judged_wall: result.judged_wall,
        }
    }
}

/// A result that belongs to another plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("trial {0} is of a cell that is not in the plan")]
pub struct StrayTrial(pub TrialId);

/// A report in the making.
#[derive(Debug)]
pub struct ReportFold<'p> {
    plan: &'p Plan,
    index_of: HashMap<&'p CellId, usize>,
    cells: Vec<CellFold>,
    warming: Uncounted,
    faults: Vec<FaultRow>,
    faults_left_out: u64,
    hypotheses: hypotheses::Fold,
    decisions: Vec<DecisionReport>,
    interval: Option<Method>,
}

impl<'p> ReportFold<'p> {
    /// The report of `plan` before the first result.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            index_of: plan.cells.iter().enumerate().map(|(index, cell)| (&cell.id, index)).collect(),
            cells: plan.cells.iter().map(|_| CellFold::default()).collect(),
            warming: Uncounted::default(),
            faults: Vec::new(),
            faults_left_out: 0,
            hypotheses: hypotheses::Fold::default(),
            decisions: Vec::new(),
            interval: None,
        }
    }

    /// Makes intervals by `method`, if one is given, and not as suits the run.
    pub fn by(self, method: Option<Method>) -> Self {
        Self { interval: method, ..self }
    }

    /// Takes note of what the run has decided where it stands.
    pub fn decide(&mut self, state: &RunState, agenda: &Agenda) {
        if let Some(stops) = &agenda.stops {
            let decisions = state.progress.decisions().all(stops);
            self.decisions = decisions
                .filter(|decision| self.plan.cells.get(decision.cell).is_some_and(|cell| cell.role == CellRole::Sample))
                .filter_map(|decision| DecisionReport::of(&decision, self.plan, stops.rule()))
                .collect();
        }
    }

    /// Takes note of `result`.
    ///
    /// # Errors
    /// If its cell is not in the plan; nothing is counted then.
    pub fn add(&mut self, result: &TrialResult) -> Result<(), StrayTrial> {
        if self.plan.warming.as_ref().is_some_and(|warming| warming.id == result.trial.cell) {
            self.warming.add(result.judgement.verdict);
            return Ok(());
        }
        let index = *self.index_of.get(&result.trial.cell).ok_or_else(|| StrayTrial(result.trial.clone()))?;
        let cell = &self.plan.cells[index];
        let Some(provenance) = self.cells[index].add(cell.role, result) else { return Ok(()) };
        if result.judgement.verdict.counted() != Counted::Fault {
            return Ok(());
        }
        if cell.role == CellRole::Sample {
            self.hypotheses.add(result);
        }
        if self.faults.len() < FAULT_ROWS_MAX {
            self.faults.push(FaultRow::of(result, &cell.label, provenance));
        } else {
            self.faults_left_out += 1;
        }
        Ok(())
    }

    /// The report of a run of which `run` is known.
    pub fn finish(self, run: RunFacts) -> Report {
        let plan = self.plan;
        let method = self.interval.unwrap_or(match plan.trials {
            TrialsRule::Fixed(_) if run.standing.is_final() => Method::ClopperPearson,
            // Somebody looks before the number that was fixed is reached, and may stop for what they see; or what was
            // seen decides when the run ends. Only an interval that may be looked at often is honest then.
            TrialsRule::Fixed(_) | TrialsRule::UntilDecided(_) => Method::ConfidenceSequence,
        });
        let rates = rate::Rates::new(method);
        let cells: Vec<CellReport> =
            plan.cells.iter().zip(self.cells).map(|(cell, fold)| fold.finish(plan, cell, &run, &rates)).collect();
        let controls_failed = cells
            .iter()
            .filter(|cell| cell.role == CellRole::Control)
            .filter(|cell| cell.expectation.is_some_and(|expectation| expectation.met != Met::Met))
            .map(|cell| cell.label.clone())
            .collect();
        Report {
            schema: REPORT_SCHEMA.to_owned(),
            headlines: headline::headlines(&cells, &run.standing),
            controls_failed,
            hypotheses: self.hypotheses.finish(&cells),
            untested: cells.iter().filter(|cell| cell.counted() == 0).map(untested).collect(),
            cells,
            warming: self.warming,
            faults: self.faults,
            faults_left_out: self.faults_left_out,
            decisions: self.decisions,
            interval: method,
            matrix: MatrixFacts {
                name: plan.matrix_name.clone(),
                digest: plan.matrix_digest.clone(),
                overrides: plan.overrides.clone(),
                only: plan.only.clone(),
                seed: plan.seed,
            },
            run,
        }
    }
}

fn untested(cell: &CellReport) -> Untested {
    Untested { id: cell.id.clone(), label: cell.label.clone(), reasons: cell.excluded_why.clone() }
}

/// The report of a run of `plan` with these results.
///
/// # Errors
/// If a result belongs to another plan.
pub fn report(
    plan: &Plan,
    run: RunFacts,
    results: impl IntoIterator<Item = TrialResult>,
) -> Result<Report, StrayTrial> {
    let mut fold = ReportFold::new(plan);
    for result in results {
        fold.add(&result)?;
    }
    Ok(fold.finish(run))
}

#[cfg(test)]
mod tests;
