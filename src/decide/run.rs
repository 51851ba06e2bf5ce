//! Where a run stands: a fold of its journal, one record at a time.
//!
//! [`RunState::apply`] accepts exactly the histories that the runner can write; anything else is an
//! [`IllegalEvent`], which means that the journal was edited or belongs to another plan.

use std::collections::HashMap;

use crate::decide::agenda::{Agenda, Judging, Progress};
use crate::decide::arrange::Changed;
use crate::decide::campaign::is_preparation;
use crate::decide::infer::{Baseline, Intent, OpenEnd};
use crate::decide::outside::{Outside, Revisable};
use crate::model::evidence::{EvidenceSummary, Shutdown};
use crate::model::ids::{BootId, CellId, TrialId};
use crate::model::journal::{Booted, Closed, Event, Judged, Opened, Record, Started};
use crate::model::outcome::{EndedBy, Outcome};
use crate::model::start_state::PriorEnd;
use crate::model::units::UptimeMs;
use crate::model::verdict::{Counted, RebootCause, Role, StageName, Verdict};

/// Rule of the void by which a cell that cannot run on this machine or with this build is set aside, once for all.
pub const CANNOT_RUN_HERE: &str = "cannot-run-here";

/// Rule of the void by which a cold trial does not start in a boot that is not cold.
pub const NOT_COLD: &str = "not-cold";

/// After so many boots in a row that were not cold, though they were made for it, no further one is tried.
pub const NOT_COLD_BOOTS_MAX: u8 = 2;

/// An event that cannot follow what came before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {seq}: {event} cannot come here: {why}")]
pub struct IllegalEvent {
    /// The record's number.
    pub seq: u64,
    /// The event's name.
    pub event: &'static str,
    /// Why it cannot come here.
    pub why: &'static str,
}

/// A trial that started and has no verdict yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTrial {
    /// Its start.
    pub started: Started,
    /// Index of its cell in the agenda.
    pub cell: usize,
    /// The boot in which it started.
    pub boot: BootId,
    /// Whether its child was known to run.
    pub running: bool,
    /// The last stage recorded.
    pub stage: Option<StageName>,
    /// What was observed, once it ended.
    pub outcome: Option<Box<Outcome>>,
    /// The first boot after its own in which the harness started, with what it found.
    pub next_boot: Option<(BootId, EvidenceSummary)>,
}

/// Boots that were to be cold and were not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spoiled {
    /// How many in a row.
    pub boots: u8,
    /// Whether this boot is one of them.
    pub here: bool,
    /// Why, in words.
    pub why: String,
}

/// What made the machine warm, or failed to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Warmth {
    /// The last trial that passed and computed on the GPU in this boot.
    pub by: Option<TrialId>,
    /// The warming trial of this boot that did not pass.
    pub failed: Option<TrialId>,
    /// Warming trials that started, in all boots.
    pub trials: u32,
    /// Warming trials in a row that did not pass, over boots.
    pub faults: u8,
}

/// Boots that neither a declared reboot nor a running trial explains are counted over this time, in ms.
const UNEXPECTED_WITHIN_MS: u64 = 3_600_000;

/// The time that a journal knows of: within each boot from its first record to its last. Machines are off in between,
/// and their clocks jump; this is never more than what really passed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct KnownTime {
    boot: Option<BootId>,
    /// Milliseconds of earlier boots.
    before_ms: u64,
    /// When this one's first and last record were written.
    first: UptimeMs,
    last: UptimeMs,
}

impl KnownTime {
    fn note(&mut self, record: &Record) {
        if self.boot.as_ref() != Some(&record.boot) {
            let (before_ms, boot) = (self.ms(), Some(record.boot.clone()));
            *self = Self { boot, before_ms, first: record.uptime_ms, last: record.uptime_ms };
        }
        self.last = self.last.max(record.uptime_ms);
    }

    fn ms(&self) -> u64 {
        self.before_ms + (self.last.0 - self.first.0)
    }
}

/// The phases of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was written yet.
    Unopened,
    /// At work.
    Open,
    /// Resting until somebody resumes it.
    Paused,
    /// Over.
    Closed(Closed),
}

/// Where a run stands.
#[derive(Debug, Clone)]
pub struct RunState {
    /// The phase.
    pub phase: Phase,
    /// How the run began.
    pub opened: Option<Box<Opened>>,
    /// Number of the last record.
    pub seq: u64,
    /// Boots in which the harness started.
    pub boots: u32,
    /// The boot of the last `Booted`.
    pub boot: Option<BootId>,
    /// Trials started in that boot.
    pub position: u32,
    /// The trial that spoiled that boot for others, if one did.
    pub tainted_by: Option<TrialId>,
    /// The boot whose end was declared, if one was and it has not come yet.
    pub declared: Option<BootId>,
    /// The boot whose power a hook cut, if one did and it has not been judged yet.
    pub power_cycled: Option<BootId>,
    /// How the boot before this one ended.
    pub prior_end: PriorEnd,
    /// Whether this boot was made by a reboot that was declared.
    pub made: bool,
    /// Whether something was prepared in this boot: a revision built. No cold trial follows in it.
    pub prepared: bool,
    /// Boots that were to be cold and were not.
    pub spoiled: Spoiled,
    /// What made the machine warm.
    pub warmth: Warmth,
    /// The settings of the machine that are not as they were found.
    pub changed: Changed,
    /// Milliseconds for which the GPU is powered in a boot without clients, as far as cold trials showed.
    pub idle_ms: Option<u64>,
    /// When boots came that nothing explains, within the last hour of the time that the journal knows of.
    unexpected_ms: Vec<u64>,
    known_time: KnownTime,
    /// The trial without a verdict.
    pub open: Option<OpenTrial>,
    /// What was there before the open trial.
    pub baseline: Baseline,
    /// Where each cell and the order stand.
    pub progress: Progress,
    index_of: HashMap<CellId, usize>,
    /// Evidence that came while a trial was open: it joins the baseline when that trial is judged.
    unjudged_evidence: Vec<EvidenceSummary>,
    /// What desks saw of this machine.
    pub outside: Outside,
    /// The last verdict across a boot, which what comes from outside may correct.
    revisable: Option<Box<Revisable>>,
}

type Applied = Result<(), &'static str>;

impl RunState {
    /// The state before the first record.
    pub fn new(agenda: &Agenda) -> Self {
        Self {
            phase: Phase::Unopened,
            opened: None,
            seq: 0,
            boots: 0,
            boot: None,
            position: 0,
            tainted_by: None,
            declared: None,
            power_cycled: None,
            prior_end: PriorEnd::Unknown,
            made: false,
            prepared: false,
            spoiled: Spoiled::default(),
            warmth: Warmth::default(),
            changed: Changed::default(),
            idle_ms: None,
            unexpected_ms: Vec::new(),
            known_time: KnownTime::default(),
            open: None,
            baseline: Baseline::default(),
            progress: Progress::new(agenda),
            index_of: agenda.cells.iter().enumerate().map(|(i, cell)| (cell.id.clone(), i)).collect(),
            unjudged_evidence: Vec::new(),
            outside: Outside::default(),
            revisable: None,
        }
    }

    /// Takes note of `record`.
    ///
    /// # Errors
    /// If it cannot follow what came before; the state is then of no further use.
    pub fn apply(&mut self, agenda: &Agenda, record: &Record) -> Result<(), IllegalEvent> {
        self.known_time.note(record);
        let applied = self.apply_event(agenda, &record.boot, &record.event);
        self.seq = record.seq;
        applied.map_err(|why| IllegalEvent { seq: record.seq, event: record.event.name(), why })
    }

    fn apply_event(&mut self, agenda: &Agenda, boot: &BootId, event: &Event) -> Applied {
        match (&self.phase, event) {
            (Phase::Unopened, Event::Opened(_)) => {}
            (Phase::Unopened, _) => return Err("the run was not opened"),
            (_, Event::Opened(_)) => return Err("the run was opened before"),
            (Phase::Closed(_), _) => return Err("the run is closed"),
            (Phase::Open | Phase::Paused, _) => {}
        }
        match event {
            Event::Opened(opened) => self.opened = Some(opened.clone()),
            Event::Booted(booted) => self.booted(boot, booted)?,
            Event::Extended(extended) => {
                let index =
                    |id| self.index_of.get(id).map(|&i| i as u32).ok_or("it names a cell that is not in the plan");
                let cells = extended.cells.iter().map(index).collect::<Result<_, _>>()?;
                self.progress.extend(agenda, cells);
            }
            Event::Started(started) => self.started(boot, started)?,
            Event::Running(running) => self.open_mut(&running.trial)?.running = true,
            Event::Stage(reached) => self.open_mut(&reached.trial)?.stage = Some(reached.stage.clone()),
            Event::Alive(alive) => drop(self.open_mut(&alive.trial)?),
            Event::Finished(finished) => self.open_mut(&finished.trial)?.outcome = Some(finished.outcome.clone()),
            Event::Judged(judged) => self.judged(agenda, judged)?,
            Event::RebootAsked(asked) if self.open.is_some() || asked.boot != *boot => {
                return Err("a reboot is asked for between trials, and for the boot in which it is written");
            }
            Event::RebootAsked(asked) => self.declared = Some(asked.boot.clone()),
            Event::Hooked(hooked) => {
                self.power_cycled = hooked.ends.clone().or(self.power_cycled.take());
                self.prepared |= is_preparation(hooked);
            }
            Event::Set(set) => self.changed.set(set),
            Event::Restored(restored) => self.changed.restored(restored),
            Event::Observed(observed) => self.outside.note(observed),
            Event::Quarantined(quarantined) => {
                let cell = *self.index_of.get(&quarantined.cell).ok_or("the cell is not in the plan")?;
                self.progress.set_aside(agenda, cell);
            }
            Event::Paused(_) | Event::Closed(_) if self.open.is_some() => return Err("a trial is open"),
            Event::Paused(_) => {}
            Event::Closed(_) => {}
        }
        self.phase = match event {
            Event::Paused(_) => Phase::Paused,
            Event::Closed(closed) => Phase::Closed(closed.clone()),
            _ => Phase::Open,
        };
        Ok(())
    }

    fn booted(&mut self, boot: &BootId, booted: &Booted) -> Applied {
        if self.boot.as_ref() == Some(boot) {
            return Err("this boot was captured before");
        }
        self.made = self.declared.is_some() && self.declared == self.boot;
        let explained = self.made || self.open.as_ref().is_some_and(|open| open.running);
        if self.boot.is_some() && !explained {
            let now = self.known_time.ms();
            self.unexpected_ms.retain(|at| now - at < UNEXPECTED_WITHIN_MS);
            self.unexpected_ms.push(now);
        }
        self.prior_end = match (self.made, booted.evidence.findings.shutdown.known()) {
            (true, _) | (false, Some(Shutdown::Clean)) => PriorEnd::Planned,
            (false, Some(Shutdown::Unclean) | None) => PriorEnd::Unknown,
        };
        self.boot = Some(boot.clone());
        self.boots += 1;
        self.position = 0;
        self.tainted_by = None;
        self.prepared = false;
        self.spoiled.here = false;
        self.warmth = Warmth { by: None, failed: None, ..self.warmth };
        self.changed.booted();
        match &mut self.open {
            Some(open) if open.boot != *boot => {
                open.next_boot.get_or_insert_with(|| (boot.clone(), booted.evidence.clone()));
                self.unjudged_evidence.push(booted.evidence.clone());
            }
            Some(_) | None => {
                (self.declared, self.power_cycled) = (None, None);
                self.baseline.learn(&booted.evidence.findings);
            }
        }
        Ok(())
    }

    fn started(&mut self, boot: &BootId, started: &Started) -> Applied {
        if self.boot.as_ref() != Some(boot) {
            return Err("no evidence was captured in this boot");
        }
        if self.open.is_some() {
            return Err("a trial is open");
        }
        let cell = *self.index_of.get(&started.trial.cell).ok_or("its cell is not in the plan")?;
        self.note_start(started);
        self.position += 1;
        self.open = Some(OpenTrial {
            started: started.clone(),
            cell,
            boot: boot.clone(),
            running: false,
            stage: None,
            outcome: None,
            next_boot: None,
        });
        Ok(())
    }

    fn note_start(&mut self, started: &Started) {
        self.changed.in_force();
        if started.role == Role::Warming {
            self.warmth.trials += 1;
        }
        if let Some(start) = started.conditions.start.as_ref().filter(|start| start.is_cold()) {
            self.spoiled = Spoiled::default();
            // The least of all: a boot that was taken for cold by mistake must not be the measure of the next.
            self.idle_ms = self.idle_ms.into_iter().chain(start.gpu_active_ms).min();
        }
    }

    fn open_mut(&mut self, trial: &TrialId) -> Result<&mut OpenTrial, &'static str> {
        match &mut self.open {
            Some(open) if open.started.trial == *trial && open.outcome.is_none() => Ok(open),
            Some(_) => Err("another trial is open, or this one has ended"),
            None => Err("no trial is open"),
        }
    }

    fn judged(&mut self, agenda: &Agenda, judged: &Judged) -> Applied {
        let verdict = judged.judgement.verdict;
        if let Some(old) = judged.corrects
            && self.open.as_ref().is_none_or(|open| open.started.trial != judged.trial)
        {
            return self.corrected(agenda, judged, old);
        }
        let Some(open) = self.open.take() else {
            return self.set_aside(agenda, judged);
        };
        if open.started.trial != judged.trial {
            return Err("another trial is open");
        }
        let end = self.open_end(agenda, &open);
        if let Some(revisable) = Revisable::of(&open, end, &self.baseline, judged) {
            self.revisable = Some(Box::new(revisable));
        }
        let counted = verdict.counted();
        // A person's stop says nothing about the cell; every other void may be the cell's own doing.
        let interrupted = open.outcome.as_ref().is_some_and(|o| o.ended_by == Some(EndedBy::Stop));
        let futile = counted == Counted::Excluded || (verdict == Verdict::Reboot && !open.running);
        match open.started.role {
            Role::Warming => self.warmed(&open, verdict, interrupted),
            Role::Sample | Role::Control | Role::Drill => {
                self.progress.see(agenda, open.cell, &judged.judgement);
                self.progress.judged(agenda, open.cell, Judging { counted, futile, interrupted });
            }
        }
        if verdict == Verdict::Pass && agenda.cells[open.cell].warms && self.boot.as_ref() == Some(&open.boot) {
            self.warmth.by = Some(judged.trial.clone());
        }
        self.note_end(&open, judged);
        if verdict.taints_boot() && agenda.cells[open.cell].may_taint && self.boot.as_ref() == Some(&open.boot) {
            self.tainted_by = Some(judged.trial.clone());
        }
        if open.next_boot.is_some() {
            (self.declared, self.power_cycled) = (None, None);
        }
        for evidence in std::mem::take(&mut self.unjudged_evidence) {
            self.baseline.learn(&evidence.findings);
        }
        Ok(())
    }

    /// A verdict across a boot is another one with what a desk saw.
    fn corrected(&mut self, agenda: &Agenda, judged: &Judged, old: Verdict) -> Applied {
        let Some(revisable) = self.revisable.as_mut().filter(|last| last.judged.trial == judged.trial) else {
            return Err("it corrects a verdict that is not the last one across a boot");
        };
        let before = std::mem::replace(&mut revisable.judged, judged.clone());
        if before.judgement.verdict != old {
            return Err("it corrects another verdict than was given");
        }
        let open = revisable.open.clone();
        if open.started.role != Role::Warming {
            self.progress.corrected(agenda, open.cell, &before.judgement, &judged.judgement);
        }
        self.note_end(&open, judged);
        Ok(())
    }

    /// The verdict that what a desk saw makes of the last one across a boot, if that is another.
    pub fn correction(&self) -> Option<Judged> {
        self.revisable.as_ref()?.correction(&self.outside)
    }

    /// The boot of the open trial, if its end is a question to whoever watched it from outside: another boot came, and
    /// nobody declared it.
    pub fn unwitnessed(&self) -> Option<&BootId> {
        let open = self.open.as_ref().filter(|open| open.outcome.is_none() && open.next_boot.is_some())?;
        let is_declared = [&self.declared, &self.power_cycled].into_iter().any(|boot| *boot == Some(open.boot.clone()));
        (!is_declared && !self.outside.is_seen(&open.boot)).then_some(&open.boot)
    }

    /// A warming trial was judged: it is in no block, and a fault in it is its own.
    fn warmed(&mut self, open: &OpenTrial, verdict: Verdict, interrupted: bool) {
        match (verdict, interrupted) {
            (_, true) => {}
            (Verdict::Pass, false) => self.warmth.faults = 0,
            (_, false) => {
                self.warmth.faults = self.warmth.faults.saturating_add(1);
                // A harness that died in it says nothing about the machine: it is tried again.
                if open.outcome.is_some() && self.boot.as_ref() == Some(&open.boot) {
                    self.warmth.failed = Some(open.started.trial.clone());
                }
            }
        }
    }

    /// A trial that did not see the end of its boot tells how that boot ended.
    fn note_end(&mut self, open: &OpenTrial, judged: &Judged) {
        let next = open.next_boot.as_ref().map(|(boot, _)| boot);
        if next.is_none() || next != self.boot.as_ref() {
            return;
        }
        self.prior_end = match self.prior_end {
            // A verdict that is corrected may have said otherwise.
            PriorEnd::Fault | PriorEnd::Power => PriorEnd::Unknown,
            other => other,
        };
        match (judged.judgement.verdict, judged.judgement.cause) {
            (Verdict::Reboot, Some(RebootCause::Power)) => self.prior_end = PriorEnd::Power,
            (Verdict::Reboot, _) => self.prior_end = PriorEnd::Fault,
            (Verdict::Planned | Verdict::Operator, _) => self.prior_end = PriorEnd::Planned,
            (_, _) => {}
        }
    }

    /// A verdict on a trial that never started: a cell that cannot run here, or a boot that is spoiled.
    fn set_aside(&mut self, agenda: &Agenda, judged: &Judged) -> Applied {
        if judged.judgement.verdict != Verdict::Void {
            return Err("a trial that never started can only be void");
        }
        let cell = *self.index_of.get(&judged.trial.cell).ok_or("its cell is not in the plan")?;
        // The rule, not the agenda: a reader elsewhere or a later build may think otherwise of the cell.
        if judged.rule == CANNOT_RUN_HERE {
            self.progress.set_aside(agenda, cell);
            return Ok(());
        }
        if judged.rule == NOT_COLD && !self.spoiled.here {
            let why = judged.judgement.detail.clone().unwrap_or_default();
            self.spoiled = Spoiled { boots: self.spoiled.boots.saturating_add(1), here: true, why };
        }
        let judging = Judging { counted: Counted::Excluded, futile: false, interrupted: false };
        self.progress.judged(agenda, cell, judging);
        Ok(())
    }

    /// Boots within an hour that neither a declared reboot nor a running trial explains.
    pub fn unexpected_boots(&self) -> u32 {
        u32::try_from(self.unexpected_ms.len()).unwrap_or(u32::MAX)
    }

    /// Milliseconds since the run was opened, as far as its journal knows: not those for which the machine was off.
    pub fn age_ms(&self) -> u64 {
        self.known_time.ms()
    }

    /// What is known of the open trial for [`crate::decide::infer::infer`].
    pub fn open_end(&self, agenda: &Agenda, open: &OpenTrial) -> OpenEnd {
        let intent = match (&self.declared, &self.power_cycled) {
            (Some(boot), _) if *boot == open.boot => Intent::Reboot,
            (_, Some(boot)) if *boot == open.boot => Intent::PowerCycle,
            _ => Intent::Nothing,
        };
        OpenEnd {
            boot: open.boot.clone(),
            stage: open.stage.clone(),
            unrecorded_ms: agenda.cells[open.cell].unrecorded_ms,
            running: open.running,
            intent,
            outside: self.outside.cutter(&open.boot),
        }
    }
}
