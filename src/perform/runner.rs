//! The loop: decide, perform, record, repeat.
//!
//! Intent, sync, act, outcome, sync. Whatever kills this process, at whatever point, the next start reads the journal
//! back and goes on; the crash simulator in `testing` dies at every point to show it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::decide::agenda::Agenda;
use crate::decide::arrange::{self, Arrangement};
use crate::decide::classify::signal_name;
use crate::decide::prepare::{Preparation, SETTING_FAILED, look, look_at_settings, prepare};
use crate::decide::result::{ResultFold, TrialResult};
use crate::decide::run::{IllegalEvent, Phase, RunState};
use crate::decide::step::{Step, decide, void};
use crate::model::ids::{BootId, DeviceId, TrialId};
use crate::model::journal::{
    Alive, Booted, Closed, Conditions, Event, Extended, Finished, Hooked, Launcher, Opened, Paused, RebootAsked,
    Record, Restored, Running, SetChanged, StageReached, Started,
};
use crate::model::machine_setting::MachineSetting;
use crate::model::outcome::{EndedBy, Exit, Outcome};
use crate::model::units::UptimeMs;
use crate::model::verdict::{Provenance, Role};
use crate::perform::journal::{ReadError, Writer, read_records};
use crate::perform::machine::{ChildEvent, Machine, MachineError, StopRequest};

/// The most of a running trial that a reset can take with it. Usually it is much less: a stage is made durable as soon as
/// nothing more is heard, and only who speaks without a pause is kept to this.
pub const COMMIT_PERIOD_MS: u64 = 100;

/// A running trial says so in the journal this often, and its output is made durable with it.
pub const ALIVE_PERIOD_MS: u64 = 1000;

/// A request to stop is noticed within this time at the latest.
const STOP_LATENCY_MS: u64 = 250;

/// What the journal calls the hook that cuts the power.
const POWER_HOOK: &str = "power.cycle";

/// Results are written without a sync of their own; after this many, one sync makes them all durable, so that a start
/// after a reset has at most this many to look at.
pub const RESULTS_UNSYNCED_MAX: usize = 1024;

/// Why a run stopped short.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The journal cannot be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The journal tells what cannot have happened.
    #[error("journal damaged: {0}")]
    Illegal(#[from] IllegalEvent),
    /// An effect failed; nothing further was done.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine is not as it was found, and cannot be put back now.
    #[error("cannot {0}")]
    NotRestored(String),
}

/// How a call of [`Runner::run`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The run is over.
    Closed(Closed),
    /// Somebody asked for it; `resume` goes on.
    Stopped(StopRequest),
    /// A reboot was declared, and asked for.
    Rebooting(RebootAsked),
    /// Every block is through, and whoever adds blocks is to say what comes next.
    Asking,
}

/// What a run is told about itself from outside the plan.
#[derive(Debug, Clone)]
pub struct Circumstances {
    /// This boot.
    pub here: BootId,
    /// This machine.
    pub device: DeviceId,
    /// What started the harness.
    pub launcher: Launcher,
    /// Where the numbers of each cell come from, in the order of the agenda.
    pub provenance: Vec<Provenance>,
}

/// Watches a run for people; it cannot change it.
pub trait Watch {
    /// The journal was read back; `state` is what it tells.
    fn read_back(&mut self, state: &RunState);

    /// `record` was written; `state` includes it.
    fn recorded(&mut self, record: &Record, state: &RunState);
}

/// A watch that looks away.
impl Watch for () {
    fn read_back(&mut self, _state: &RunState) {}

    fn recorded(&mut self, _record: &Record, _state: &RunState) {}
}

/// One run being carried through.
pub struct Runner<'a> {
    machine: &'a mut dyn Machine,
    agenda: &'a Agenda,
    circumstances: Circumstances,
    watch: &'a mut dyn Watch,
    writer: Writer,
    state: RunState,
    results: ResultFold,
    unsynced_results: usize,
}

impl<'a> Runner<'a> {
    /// Reads the journal back, keeps and cuts a torn end, and mends results that a reset took.
    ///
    /// # Errors
    /// If the journal is damaged, or an effect fails.
    pub fn open(
        machine: &'a mut dyn Machine,
        agenda: &'a Agenda,
        circumstances: Circumstances,
        watch: &'a mut dyn Watch,
    ) -> Result<Self, RunError> {
        let mut state = RunState::new(agenda);
        let mut results = ResultFold::default();
        let mut fresh = FreshResults::default();
        let tail = read_records(machine.open_journal()?, |record| {
            state.apply(agenda, &record)?;
            fresh.note(&record, results.apply(&record));
            Ok::<(), RunError>(())
        })?;
        if !tail.torn.is_empty() {
            machine.cut_journal(tail.good, &tail.torn)?;
        }
        // A harness that was killed leaves records in the page cache: what follows must not rest on them before they
        // are on the disk.
        machine.sync()?;
        let mut runner = Self {
            writer: Writer::new(state.seq, circumstances.here.clone()),
            machine,
            agenda,
            circumstances,
            watch,
            state,
            results,
            unsynced_results: 0,
        };
        runner.mend(&fresh)?;
        runner.watch.read_back(&runner.state);
        Ok(runner)
    }

    /// Makes again, to identical bytes, the results that a reset took.
    fn mend(&mut self, fresh: &FreshResults) -> Result<(), RunError> {
        for result in &fresh.results {
            let json = result.to_json();
            if !self.machine.has_result(&result.trial, &json) {
                self.machine.write_result(&result.trial, &json)?;
                self.unsynced_results += 1;
            }
        }
        if self.unsynced_results > 0 {
            self.sync_results()?;
        }
        Ok(())
    }

    fn sync_results(&mut self) -> Result<(), RunError> {
        self.machine.sync_results()?;
        self.unsynced_results = 0;
        Ok(())
    }

    /// Where the run stands.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Writes the first record of a new run, durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&mut self, opened: Opened) -> Result<(), RunError> {
        self.record_durably(Event::Opened(Box::new(opened)))
    }

    /// Writes down what happened beside the trials, durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&mut self, event: Event) -> Result<(), RunError> {
        self.record_durably(event)
    }

    /// Adds a block of trials, durably.
    ///
    /// # Errors
    /// If it cannot be written, or names a cell that is not in the plan.
    pub fn extend(&mut self, extended: Extended) -> Result<(), RunError> {
        self.record_durably(Event::Extended(extended))
    }

    /// Adds a block whose cells the plan in hand does not have, durably. The run goes on with the plan in force.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn hand_over(mut self, extended: Extended) -> Result<(), RunError> {
        self.writer.append(self.machine, Event::Extended(extended))?;
        self.writer.commit(self.machine, ())?;
        Ok(())
    }

    /// Carries the run on until it is over, must wait, or somebody stops it.
    ///
    /// # Errors
    /// If an effect fails: everything durable stays so, and a later start goes on from there.
    pub fn run(&mut self) -> Result<Ended, RunError> {
        if !matches!(self.state.phase, Phase::Closed(_)) {
            self.machine.end_orphans()?;
        }
        let mut awaited = None;
        loop {
            self.take_observations()?;
            let step = decide(&self.state, self.agenda, &self.circumstances.here);
            if let (Step::Judge(_), Some(boot)) = (&step, self.state.unwitnessed())
                && awaited.as_ref() != Some(boot)
            {
                let boot = boot.clone();
                self.machine.await_witness(&boot);
                awaited = Some(boot);
                continue;
            }
            if let Step::Start { .. } | Step::Reboot { .. } = &step
                && let Some(stop) = self.machine.clearance()
            {
                return self.pause(stop);
            }
            // Some steps end this call: the machine is about to reboot.
            let mut rebooting = None;
            match step {
                Step::Capture => self.capture()?,
                Step::Judge(judged) => self.record_durably(Event::Judged(judged))?,
                Step::Quarantine(quarantined) => self.record_durably(Event::Quarantined(quarantined))?,
                Step::Start { cell, trial, role } => rebooting = self.approach(cell, trial, role)?,
                Step::Reboot { why, cell } => rebooting = self.reboot_for(why, cell)?,
                Step::Ask => return Ok(Ended::Asking),
                Step::PutBack => rebooting = self.put_back()?,
                Step::Close(closed) => self.record_durably(Event::Closed(closed))?,
                Step::Over => return Ok(self.over()),
            }
            if let Some(asked) = rebooting {
                return Ok(Ended::Rebooting(asked));
            }
        }
    }

    /// Writes down what desks saw, each thing once, durably before it is removed where they left it.
    fn take_observations(&mut self) -> Result<(), RunError> {
        if !matches!(self.state.phase, Phase::Open | Phase::Paused) {
            return Ok(());
        }
        for observed in self.machine.observations()? {
            if !self.state.outside.knows(&observed) {
                if self.state.outside.is_full() {
                    continue;
                }
                self.record_durably(Event::Observed(Box::new(observed.clone())))?;
            }
            self.machine.observation_taken(&observed)?;
        }
        Ok(())
    }

    fn over(&self) -> Ended {
        match &self.state.phase {
            Phase::Closed(closed) => Ended::Closed(closed.clone()),
            Phase::Unopened | Phase::Open | Phase::Paused => unreachable!("only a closed run is over"),
        }
    }

    /// Rests. What can be put back without a reboot is put back; the rest follows when the run goes on.
    fn pause(&mut self, stop: StopRequest) -> Result<Ended, RunError> {
        while let Arrangement::Restore { setting, value } = self.next_to_put_back() {
            if let Err(why) = self.restore(setting, &value)? {
                tracing::warn!("{setting} stays changed: {why}");
                break;
            }
        }
        let why = match &stop {
            StopRequest::Now { signal } => signal_name(*signal).to_owned(),
            StopRequest::AfterTrial { why } => why.clone(),
        };
        self.record_durably(Event::Paused(Paused { why }))?;
        Ok(Ended::Stopped(stop))
    }

    fn capture(&mut self) -> Result<(), RunError> {
        let evidence = self.machine.capture()?;
        let evidence = self.machine.save_evidence(&evidence)?;
        self.record_durably(Event::Booted(Booted { evidence }))
    }

    /// Declares a reboot, durably, and asks for it. With a power mode, the mode's own tool makes it.
    fn reboot(&mut self, why: String, power_mode: Option<SetChanged>) -> Result<Option<RebootAsked>, RunError> {
        let mode = power_mode.as_ref().map(|change| change.new.clone());
        if let Some(change) = power_mode {
            self.record(Event::Set(change))?;
        }
        let asked = RebootAsked { boot: self.circumstances.here.clone(), why, power_mode: mode };
        self.record(Event::RebootAsked(asked.clone()))?;
        let token = self.writer.commit(self.machine, asked.clone())?;
        match self.machine.reboot(&token, &self.circumstances.here) {
            Err(late) if late.is_late() && self.machine.can_cut_power() => self.cut_power(&late)?,
            done => done?,
        }
        Ok(Some(asked))
    }

    /// Cuts the power of a machine that did not go down for a reboot, which is written down before: nothing is after it.
    fn cut_power(&mut self, late: &MachineError) -> Result<(), RunError> {
        tracing::warn!("{late}; its power is cut");
        let noted = Hooked { hook: POWER_HOOK.into(), ended: format!("started, because {late}"), ends: None };
        self.record(Event::Hooked(noted.clone()))?;
        let token = self.writer.commit(self.machine, noted)?;
        Ok(self.machine.cut_power(&token, &self.circumstances.here)?)
    }

    /// Reboots for a trial of `cell`, into its power mode: a switch in the boot of a cold trial would power the GPU up.
    fn reboot_for(&mut self, why: String, cell: usize) -> Result<Option<RebootAsked>, RunError> {
        let survey = self.machine.survey(&look_at_settings(&self.state, self.agenda));
        let agenda = self.agenda;
        let mut changed = self.state.changed.clone();
        changed.booted();
        match arrange::arrange(&agenda.cells[cell].asked, &survey.readings, &changed, &agenda.power_modes) {
            Arrangement::Set(change) if change.what == MachineSetting::PowerMode.as_str() => {
                // What it refuses here it refuses in the next boot too, where the trial is void with the reason.
                if let Err(why) = self.set(change)? {
                    tracing::warn!("{why}");
                }
                self.reboot(why, None)
            }
            Arrangement::Restore { setting: setting @ MachineSetting::PowerMode, value } => {
                if let Err(why) = self.restore(setting, &value)? {
                    tracing::warn!("{why}");
                }
                self.reboot(why, None)
            }
            Arrangement::Reboot(change) => self.reboot(why, Some(change)),
            // A boot makes every other setting anew.
            Arrangement::Done | Arrangement::Set(_) | Arrangement::Restore { .. } | Arrangement::Impossible(_) => {
                self.reboot(why, None)
            }
        }
    }

    /// Does one thing on the way to a trial that is due, or starts it; tells of a reboot that it asked for.
    fn approach(&mut self, cell: usize, trial: TrialId, role: Role) -> Result<Option<RebootAsked>, RunError> {
        let survey = self.machine.survey(&look(&self.state, self.agenda, cell));
        match prepare(&self.state, self.agenda, cell, trial.clone(), &survey) {
            Preparation::Start(conditions) => self.trial(cell, trial, role, conditions)?,
            Preparation::Warm { cell, trial, conditions } => self.trial(cell, trial, Role::Warming, conditions)?,
            Preparation::Set(change) => {
                if let Err(why) = self.set(change)? {
                    self.record_durably(Event::Judged(void(trial, SETTING_FAILED, why)))?;
                }
            }
            Preparation::Restore { setting, value } => {
                if let Err(why) = self.restore(setting, &value)? {
                    self.record_durably(Event::Judged(void(trial, SETTING_FAILED, why)))?;
                }
            }
            Preparation::Reboot { why, power_mode } => return self.reboot(why, power_mode),
            Preparation::Void(judged) => self.record_durably(Event::Judged(judged))?,
        }
        Ok(None)
    }

    /// Writes a change down, durably, and makes it; `Err` in words if the machine refuses.
    fn set(&mut self, change: SetChanged) -> Result<Result<(), String>, RunError> {
        self.record(Event::Set(change.clone()))?;
        let change = self.writer.commit(self.machine, change)?;
        Ok(self.machine.set(&change))
    }

    /// Puts a setting back and writes that down, durably; `Err` in words if the machine refuses.
    fn restore(&mut self, setting: MachineSetting, value: &str) -> Result<Result<(), String>, RunError> {
        if let Err(why) = self.machine.restore(setting, value) {
            return Ok(Err(why));
        }
        let restored = Restored { what: setting.to_string(), value: value.to_owned() };
        self.record_durably(Event::Restored(restored)).map(Ok)
    }

    fn next_to_put_back(&mut self) -> Arrangement {
        let survey = self.machine.survey(&look_at_settings(&self.state, self.agenda));
        arrange::restore(&survey.readings, &self.state.changed, &self.agenda.power_modes)
    }

    /// Puts one setting back at the end of the run. A machine that is not as it was found does not end quietly.
    fn put_back(&mut self) -> Result<Option<RebootAsked>, RunError> {
        let failed = match self.next_to_put_back() {
            Arrangement::Restore { setting, value } => {
                self.restore(setting, &value)?.map_err(|why| format!("put {setting} back to {value}: {why}")).err()
            }
            Arrangement::Reboot(change) if self.agenda.may_reboot => {
                let why = format!("{} is put back from {} to {}", change.what, change.old, change.new);
                return self.reboot(why, Some(change));
            }
            Arrangement::Reboot(change) => {
                Some(format!("put {} back to {}: it takes a reboot, and none is allowed", change.what, change.new))
            }
            Arrangement::Impossible(why) => Some(format!("put the machine's settings back: {why}")),
            Arrangement::Done | Arrangement::Set(_) => None,
        };
        match failed {
            Some(what) => Err(RunError::NotRestored(what)),
            None => Ok(None),
        }
    }

    /// Runs one trial up to its `Finished`, which the verdict's sync makes durable.
    fn trial(&mut self, cell: usize, trial: TrialId, role: Role, conditions: Conditions) -> Result<(), RunError> {
        if self.agenda.cells[cell].drop_caches
            && let Err(why) = self.drop_caches()?
        {
            return self.record_durably(Event::Judged(void(trial, SETTING_FAILED, why)));
        }
        let started = Started {
            trial: trial.clone(),
            role,
            device: self.circumstances.device.clone(),
            position: self.state.position,
            provenance: self.circumstances.provenance[cell],
            launcher: self.circumstances.launcher,
            conditions,
        };
        self.record(Event::Started(started.clone()))?;
        let started = self.writer.commit(self.machine, started)?;
        let outcome = match self.machine.start_child(&started, cell) {
            Ok(()) => self.watch_child(cell, &trial).inspect_err(|_| {
                // No trial without a record: what can no longer be written down must not go on.
                self.machine.end_child(EndedBy::Stop);
            })?,
            Err(error) => Box::new(Outcome::of(Exit::NotStarted(error.to_string()))),
        };
        self.record(Event::Finished(Finished { trial, outcome }))
    }

    fn drop_caches(&mut self) -> Result<Result<(), String>, RunError> {
        let old = self.machine.page_cache();
        let change = SetChanged { what: "page_cache".into(), old, new: "dropped".into() };
        self.record(Event::Set(change.clone()))?;
        let change = self.writer.commit(self.machine, change)?;
        Ok(self.machine.drop_caches(&change))
    }

    fn watch_child(&mut self, cell: usize, trial: &TrialId) -> Result<Box<Outcome>, RunError> {
        let waits_for_stages = self.agenda.cells[cell].unrecorded_ms == 0;
        let mut commits = Commits::new(self.machine.now().uptime_ms);
        let mut ending = false;
        loop {
            let wait = commits.wait(self.machine.now().uptime_ms);
            let mut quiet = false;
            match self.machine.child_event(wait)? {
                ChildEvent::Running { pid } => {
                    self.record(Event::Running(Running { trial: trial.clone(), pid }))?;
                    commits.pending = commits.pending.max(Pending::Words);
                }
                ChildEvent::Stage { stage, at_ms } => {
                    self.record(Event::Stage(StageReached { trial: trial.clone(), stage, at_ms }))?;
                    commits.pending = Pending::Stage;
                    if waits_for_stages {
                        self.writer.commit(self.machine, ())?;
                        commits.done(self.machine.now().uptime_ms);
                        self.machine.acknowledge_stage();
                    }
                }
                ChildEvent::Quiet => quiet = true,
                ChildEvent::Ended(outcome) => return Ok(outcome),
            }
            self.keep_up(trial, &mut commits, quiet)?;
            if !ending && let Some(StopRequest::Now { .. }) = self.machine.stop_requested() {
                self.machine.end_child(EndedBy::Stop);
                ending = true;
            }
        }
    }

    /// The group commit: stages as soon as nothing more is heard (`quiet`), and once a second a sign of life with the
    /// child's output. The child goes on meanwhile: what it says is in the next one.
    fn keep_up(&mut self, trial: &TrialId, commits: &mut Commits, quiet: bool) -> Result<(), RunError> {
        let now = self.machine.now().uptime_ms;
        if commits.alive_is_due(now) {
            self.record(Event::Alive(Alive { trial: trial.clone() }))?;
            self.machine.sync_output()?;
            commits.alive = now;
            commits.pending = commits.pending.max(Pending::Words);
        }
        if commits.is_due(now, quiet) {
            self.writer.commit(self.machine, ())?;
            commits.done(self.machine.now().uptime_ms);
        }
        Ok(())
    }

    fn record(&mut self, event: Event) -> Result<(), RunError> {
        let record = self.writer.append(self.machine, event)?;
        self.state.apply(self.agenda, &record)?;
        if let Some(result) = self.results.apply(&record) {
            // A verdict is durable before its result is shown, so that no result outlives its record.
            self.writer.commit(self.machine, ())?;
            self.machine.write_result(&result.trial, &result.to_json())?;
            self.unsynced_results += 1;
            if self.unsynced_results >= RESULTS_UNSYNCED_MAX {
                self.sync_results()?;
            }
        }
        self.watch.recorded(&record, &self.state);
        Ok(())
    }

    fn record_durably(&mut self, event: Event) -> Result<(), RunError> {
        let is_verdict = matches!(event, Event::Judged(_));
        self.record(event)?;
        if !is_verdict {
            self.writer.commit(self.machine, ())?;
        }
        Ok(())
    }
}

/// What is written of a running trial and not durable yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Nothing,
    /// Signs of life, which may wait for the period.
    Words,
    /// A stage, which waits for no more than what can be heard with it.
    Stage,
}

/// When the next group commit is due.
struct Commits {
    pending: Pending,
    last: UptimeMs,
    alive: UptimeMs,
}

impl Commits {
    fn new(now: UptimeMs) -> Self {
        Self { pending: Pending::Nothing, last: now, alive: now }
    }

    fn is_due(&self, now: UptimeMs, quiet: bool) -> bool {
        let is_over = now.0 >= self.last.0 + COMMIT_PERIOD_MS;
        match self.pending {
            Pending::Nothing => false,
            Pending::Words => is_over,
            Pending::Stage => quiet || is_over,
        }
    }

    fn alive_is_due(&self, now: UptimeMs) -> bool {
        now.0 >= self.alive.0 + ALIVE_PERIOD_MS
    }

    fn done(&mut self, now: UptimeMs) {
        self.pending = Pending::Nothing;
        self.last = now;
    }

    fn wait(&self, now: UptimeMs) -> Duration {
        let due = match self.pending {
            Pending::Nothing => self.alive.0 + ALIVE_PERIOD_MS,
            Pending::Words => self.last.0 + COMMIT_PERIOD_MS,
            Pending::Stage => return Duration::ZERO,
        };
        Duration::from_millis(due.saturating_sub(now.0).min(STOP_LATENCY_MS))
    }
}

/// The newest results of the journal's last boot: those whose files a reset may have taken.
///
/// Results of earlier boots were mended, durably, by the first start in a later one.
#[derive(Default)]
struct FreshResults {
    results: VecDeque<TrialResult>,
    boot: Option<BootId>,
}

impl FreshResults {
    fn note(&mut self, record: &Record, result: Option<TrialResult>) {
        if self.boot.as_ref() != Some(&record.boot) {
            self.boot = Some(record.boot.clone());
            self.results.clear();
        }
        self.results.extend(result);
        if self.results.len() > RESULTS_UNSYNCED_MAX {
            self.results.pop_front();
        }
    }
}
