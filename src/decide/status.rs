//! Where a run stands, as data: what is done, what comes next, why it waits, and how to go on or stop.
//!
//! Owns the fold that reads a journal for people, record by record; [`StatusFold::into_report`] makes the report of
//! the same reading. It must not ask whether a harness is alive: the caller knows, and says so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decide::agenda::Agenda;
use crate::decide::plan::Plan;
use crate::decide::report::{CellReport, DecisionReport, Rate, Report, ReportFold, RunFacts, Standing, StrayTrial};
use crate::decide::result::ResultFold;
use crate::decide::run::{IllegalEvent, RunState};
use crate::decide::stats::Method;
use crate::decide::step::{Step, decide};
use crate::model::ids::{BootId, CellId, RunId, TrialId};
use crate::model::journal::{Event, Record};
use crate::model::settings::WorkloadSettings;
use crate::model::units::WallTime;
use crate::model::verdict::{Judgement, Provenance, StageName, Verdict};

/// Name and version of the format of a status.
pub const STATUS_SCHEMA: &str = "jetfault.status/1";

/// Whether a harness is at work on the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Harness {
    /// It holds the lock.
    Working,
    /// Nobody holds the lock.
    Absent,
    /// The run was read from elsewhere.
    Unknown,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// The run; absent if its journal is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Whether it goes on.
    pub standing: Standing,
    /// Whether a harness is at work on it.
    pub harness: Harness,
    /// Boots in which the harness started.
    pub boots: u32,
    /// The most boots allowed.
    pub boots_max: u64,
    /// How far it is.
    pub trials: TrialsDone,
    /// The trial that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenStatus>,
    /// The last verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastVerdict>,
    /// That the run was last at work in another boot than the one from which it is looked at, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// How this boot came about, if the run has something to say about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Whether each boot carries the run on by itself, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub armed: Option<String>,
    /// What the boot service could not do in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The next step, in words.
    pub next: String,
    /// Why it waits, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The command that goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go_on: Option<String>,
    /// The command that stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// How the intervals are made.
    #[serde(default)]
    pub interval: Method,
    /// The cells, in the order of the plan.
    pub cells: Vec<CellStatus>,
    /// What was decided, where the number of trials is not fixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionReport>,
}

impl Status {
    /// The status as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a status has string keys and finite numbers");
        json.push(b'\n');
        json
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialsDone {
    /// Counted trials asked for; for `until-decided` the most.
    pub wanted: u64,
    /// Whether that is a limit and not a wish.
    pub is_limit: bool,
    /// Counted trials.
    pub counted: u64,
    /// Trials in no rate.
    pub excluded: u64,
    /// Counted trials still to come, cells that were given up left out.
    pub left: u64,
    /// How long those may take, roughly, in seconds; 0 where nobody can tell.
    pub left_seconds: u64,
}

/// A trial without a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStatus {
    /// The trial.
    pub trial: TrialId,
    /// The label of its cell.
    pub label: String,
    /// The boot in which it started.
    pub boot: BootId,
    /// Whether its child is known to run.
    pub running: bool,
    /// The last stage recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Milliseconds from its start to the last record of its boot.
    pub for_ms: u64,
}

/// The last verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastVerdict {
    /// The trial.
    pub trial: TrialId,
    /// The label of its cell.
    pub label: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What it rests on, in words: where it happened, the cause, the rule; empty for a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
    /// When, for people.
    pub wall: WallTime,
}

/// Where a cell stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellStatus {
    /// Its id.
    pub id: CellId,
    /// Its label.
    pub label: String,
    /// Counted trials asked for.
    pub wanted: u32,
    /// Counted trials.
    pub counted: u64,
    /// Trials in no rate.
    pub excluded: u64,
    /// Its rates, apart for each provenance.
    pub rates: Vec<(Provenance, Rate)>,
    /// Whether it is not started again.
    pub set_aside: bool,
    /// Whether enough was seen of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decided: bool,
}

/// Reads a journal, one record at a time.
#[derive(Debug)]
pub struct StatusFold<'a> {
    plan: &'a Plan,
    agenda: &'a Agenda,
    state: RunState,
    results: ResultFold,
    report: ReportFold<'a>,
    stray: Option<StrayTrial>,
    last: Option<LastVerdict>,
    /// How the last boot came about.
    boot: Option<String>,
    /// Why the run rests, or why the declared reboot was asked for.
    why: Option<String>,
    /// When the open trial started and when its boot was last heard of, in milliseconds of that boot.
    open_ms: (u64, u64),
}

impl<'a> StatusFold<'a> {
    /// Before the first record. `agenda` and `plan` are of the same run.
    pub fn new(plan: &'a Plan, agenda: &'a Agenda) -> Self {
        Self {
            plan,
            agenda,
            state: RunState::new(agenda),
            results: ResultFold::default(),
            report: ReportFold::new(plan),
            stray: None,
            last: None,
            boot: None,
            why: None,
            open_ms: (0, 0),
        }
    }

    /// Makes intervals by `method`, if one is given, and not as suits the run.
    pub fn by(self, method: Option<Method>) -> Self {
        Self { report: self.report.by(method), ..self }
    }

    /// Takes note of `record`.
    ///
    /// # Errors
    /// If it cannot follow what came before.
    pub fn apply(&mut self, record: &Record) -> Result<(), IllegalEvent> {
        let has_booted = self.state.boot.is_some();
        self.state.apply(self.agenda, record)?;
        let now = record.uptime_ms.0;
        match &record.event {
            Event::Started(_) => self.open_ms = (now, now),
            Event::Paused(paused) => self.why = Some(paused.why.clone()),
            Event::RebootAsked(asked) => self.why = Some(asked.why.clone()),
            Event::Booted(_) if has_booted => self.boot = Some(self.how_it_came()),
            _ => {}
        }
        if self.state.open.as_ref().is_some_and(|open| open.boot == record.boot) {
            self.open_ms.1 = now;
        }
        if let Some(result) = self.results.apply(record) {
            if let Err(stray) = self.report.add(&result) {
                self.stray.get_or_insert(stray);
            }
            let label = self.label(&result.trial.cell);
            let evidence = evidence_words(&result.judgement, &result.rule);
            let (trial, verdict) = (result.trial, result.judgement.verdict);
            self.last = Some(LastVerdict { trial, label, verdict, evidence, wall: record.wall });
        }
        Ok(())
    }

    /// How the boot that was just written down came about.
    fn how_it_came(&self) -> String {
        match (&self.state.open, self.state.made) {
            (Some(open), _) => format!("the one before ended while {} was open", open.started.trial),
            (None, true) => format!("jetfault rebooted: {}", self.why.as_deref().unwrap_or("it does not say why")),
            (None, false) => "the one before ended without jetfault and without an open trial".to_owned(),
        }
    }

    fn label(&self, cell: &CellId) -> String {
        self.plan.cell(cell).map_or_else(|| cell.to_string(), |cell| cell.label.clone())
    }

    /// Where the run stands.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The report of what was read. `machine` is what the machine says about itself.
    ///
    /// # Errors
    /// If a verdict belongs to another plan.
    pub fn into_report(self, id: RunId, machine: BTreeMap<String, String>) -> Result<Report, StrayTrial> {
        match self.stray {
            Some(stray) => Err(stray),
            None => {
                let mut report = self.report;
                report.decide(&self.state, self.agenda);
                Ok(report.finish(RunFacts::of(id, &self.state, self.agenda, machine)))
            }
        }
    }

    /// The status of what was read, seen from boot `here` (absent if read from elsewhere).
    pub fn finish(self, here: Option<&BootId>, harness: Harness) -> Status {
        let run = self.state.opened.as_ref().map(|opened| opened.run.clone());
        let standing = Standing::of(&self.state.phase);
        let boot = here.or(self.state.boot.as_ref()).cloned();
        let open = self.open();
        let next = match (&open, harness, &boot) {
            (Some(open), Harness::Working, _) if self.state.boot.as_ref() == here => {
                format!("{} of {} is running", open.trial, open.label)
            }
            (_, _, None) => "open the run".to_owned(),
            (_, _, Some(boot)) => self.in_words(&decide(&self.state, &self.agenda_as_opened(), boot)),
        };
        let waits = self.waits(&standing, harness, here);
        let elsewhere = self.elsewhere(here, harness, &standing);
        let name = run.as_ref().map_or_else(String::new, |run| format!(" {run}"));
        let is_over = standing.is_final();
        let report = {
            let id = run.clone().unwrap_or_else(|| RunId::new("unopened", 1).expect("a well-formed name"));
            let mut report = self.report;
            report.decide(&self.state, self.agenda);
            report.finish(RunFacts::of(id, &self.state, self.agenda, BTreeMap::new()))
        };
        let cells: Vec<CellStatus> = report.cells.iter().map(|cell| status_of(cell, &report)).collect();
        Status {
            schema: STATUS_SCHEMA.to_owned(),
            run,
            harness,
            boots: self.state.boots,
            boots_max: self.plan.boots_max,
            trials: trials_done(self.plan, &cells, is_over),
            open,
            last: self.last,
            elsewhere,
            boot: self.boot,
            armed: None,
            trouble: None,
            next,
            waits,
            go_on: (!is_over && harness != Harness::Working).then(|| format!("jetfault resume{name}")),
            stop: (!is_over && harness != Harness::Absent).then(|| format!("jetfault stop{name}")),
            cells,
            interval: report.interval,
            decisions: report.decisions,
            standing,
        }
    }

    /// The agenda with the permission that the run was opened with: a reader is given none, and would take every boot
    /// that is needed for one that cannot be had.
    fn agenda_as_opened(&self) -> Agenda {
        let may_reboot = self.state.opened.as_ref().map_or(self.agenda.may_reboot, |opened| opened.allowed.reboot);
        Agenda { may_reboot, ..self.agenda.clone() }
    }

    fn open(&self) -> Option<OpenStatus> {
        self.state.open.as_ref().map(|open| OpenStatus {
            trial: open.started.trial.clone(),
            label: self.label(&open.started.trial.cell),
            boot: open.boot.clone(),
            running: open.running,
            stage: open.stage.clone(),
            for_ms: self.open_ms.1.saturating_sub(self.open_ms.0),
        })
    }

    /// A board that went down and has not gone on, or one that is looked at from another machine.
    fn elsewhere(&self, here: Option<&BootId>, harness: Harness, standing: &Standing) -> Option<String> {
        let (here, boot) = (here?, self.state.boot.as_ref()?);
        let is_told = here != boot && harness != Harness::Working && !standing.is_final();
        is_told.then(|| {
            let short = |boot: &BootId| boot.as_str().get(..8).unwrap_or_default().to_owned();
            format!("last heard of in boot {}, this is boot {}: it has not gone on here yet", short(boot), short(here))
        })
    }

    fn waits(&self, standing: &Standing, harness: Harness, here: Option<&BootId>) -> Option<String> {
        let why = self.why.as_deref().unwrap_or("no reason was written down");
        match standing {
            Standing::Complete | Standing::Stopped { .. } => None,
            Standing::Paused => Some(format!("it was paused: {why}")),
            Standing::Open if self.state.declared.is_some() && self.state.declared.as_ref() == here => {
                Some(format!("a reboot was asked for and has not come yet: {why}"))
            }
            Standing::Open if self.state.declared.is_some() && here.is_none() => {
                Some(format!("a reboot was asked for: {why}"))
            }
            Standing::Open => match harness {
                Harness::Absent => Some("no jetfault is at work on it".to_owned()),
                Harness::Working | Harness::Unknown => None,
            },
        }
    }

    fn in_words(&self, step: &Step) -> String {
        match step {
            Step::Capture => "capture what the machine says about the boot before".to_owned(),
            Step::Judge(judged) => {
                format!("judge {} of {}: {}", judged.trial, self.label(&judged.trial.cell), judged.judgement.verdict)
            }
            Step::Quarantine(quarantined) => {
                format!("give up {}: {}", self.label(&quarantined.cell), quarantined.why)
            }
            Step::Start { trial, .. } => format!("start {trial} of {}", self.label(&trial.cell)),
            Step::Reboot { why, .. } => format!("reboot: {why}"),
            Step::Ask => "choose the next place of the search".to_owned(),
            Step::PutBack => {
                let settings: Vec<String> =
                    self.state.changed.to_restore().map(|(setting, value)| format!("{setting} to {value}")).collect();
                format!("put back what was changed: {}", settings.join(", "))
            }
            Step::Close(closed) => format!("close the run: {}", closed.why),
            Step::Over => "nothing: the run is over".to_owned(),
        }
    }
}

/// What a verdict other than a pass rests on: `at C.forward or later, cause undetermined: silent: nothing says why (rule no-news)`.
pub fn evidence_words(judgement: &Judgement, rule: &str) -> String {
    if judgement.verdict == Verdict::Pass {
        return String::new();
    }
    let mut words = Vec::new();
    if let Some(stage) = &judgement.stage {
        let later = if judgement.unrecorded_ms.is_some() { " or later" } else { "" };
        words.push(format!("at {stage}{later}"));
    }
    words.extend(judgement.cause.map(|cause| format!("cause {}", cause.as_str())));
    words.extend(judgement.detail.clone());
    words.push(format!("rule {rule}"));
    words.join(", ")
}

fn status_of(cell: &CellReport, report: &Report) -> CellStatus {
    let is_of = |decision: &&DecisionReport| decision.cell == cell.id || decision.other.as_ref() == Some(&cell.id);
    CellStatus {
        id: cell.id.clone(),
        label: cell.label.clone(),
        wanted: cell.wanted,
        counted: cell.counted(),
        excluded: cell.excluded_total(),
        rates: cell.samples.iter().map(|sampled| (sampled.provenance, sampled.rate)).collect(),
        set_aside: report.run.set_aside.contains(&cell.id),
        decided: report.decisions.iter().find(is_of).is_some_and(|decision| decision.end.is_some()),
    }
}

fn trials_done(plan: &Plan, cells: &[CellStatus], is_over: bool) -> TrialsDone {
    let left_of = |cell: &CellStatus| {
        if cell.set_aside || cell.decided || is_over { 0 } else { u64::from(cell.wanted).saturating_sub(cell.counted) }
    };
    let left = cells.iter().map(left_of).sum();
    TrialsDone {
        // A transcription may have more than its matrix asks for.
        wanted: cells.iter().map(|cell| u64::from(cell.wanted).max(cell.counted)).sum(),
        is_limit: plan.is_bound(),
        counted: cells.iter().map(|cell| cell.counted).sum(),
        excluded: cells.iter().map(|cell| cell.excluded).sum(),
        left,
        left_seconds: match plan.cells.iter().any(|cell| matches!(cell.settings.workload, WorkloadSettings::Command(_)))
        {
            // How long a command takes the plan can only assume.
            true => 0,
            false => (plan.needs.seconds * left).checked_div(plan.needs.trials).unwrap_or_default(),
        },
    }
}
