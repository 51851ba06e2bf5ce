//! The companion of a trial: another child beside the trial's own, watched by the way and ended with it.
//!
//! Owns when it starts, when it counts as at work, and what its end means for the trial: one that fails while the trial's
//! child runs makes the trial void, because what ran then was another cell.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::decide::classify::{COMPANION_FAILURE, classify};
use crate::model::journal::Invoker;
use crate::model::outcome::{EndedBy, Exit, Outcome};
use crate::model::settings::CompanionWhen;
use crate::perform::linux::make_trial_dir;
use crate::perform::processes::RunMark;
use crate::perform::supervise::{Child, ChildEvent, Deadlines, EnvChange, Launch, Program, SideMark, Supervisor};

/// The role of the program that the matrix names: the note of the outcome in which it stands, what its metrics begin with,
/// and the directory of its output.
pub(super) const COMPANION: &str = "companion";

/// The role of the memory that is held.
pub(super) const BALLAST: &str = "ballast";

/// How long a companion may take until it is at work: the first context on a board that just booted takes seconds.
const READY_WAIT: Duration = Duration::from_secs(60);

/// How long a command that comes before the trial is alone with the machine; it cannot say when it is at work.
const HEAD_START: Duration = Duration::from_secs(2);

/// How long one wait for the companion takes at most.
const WAIT: Duration = Duration::from_secs(1);

/// A companion lives as long as its trial, whose patience is limited.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What to start and when.
#[derive(Debug)]
pub struct CompanionPlan {
    /// What it is for: `companion` or `ballast`.
    pub role: &'static str,
    /// How it is called.
    pub name: String,
    /// What runs.
    pub program: Program,
    /// When it starts.
    pub when: CompanionWhen,
    /// Whether the trial's child tells its stages, the first of which some companions wait for.
    pub tells_stages: bool,
}

/// What every process of a trial is started with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// The run.
    pub(super) run: &'a RunMark,
    /// As whom.
    pub(super) invoker: &'a Invoker,
    /// The cell's changes of the environment: they choose the device, among other things.
    pub(super) environment: &'a [EnvChange],
}

/// The companion of one trial.
#[derive(Debug)]
pub(super) struct Companion {
    role: &'static str,
    name: String,
    when: CompanionWhen,
    tells_stages: bool,
    mark: SideMark,
    /// Its own directory, for its output.
    dir: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not started yet.
    Waiting(Program),
    /// It runs.
    Alive { child: Box<Child>, since: Instant, speaks: bool, at_work_ms: Option<u128>, is_asked_to_end: bool },
    /// It ended, or never ran.
    Over { words: String, failure: Option<String>, outcome: Option<Box<Outcome>> },
}

impl Companion {
    /// The companion of the trial with `mark` and the directory `trial_dir`, in which it gets one of its own.
    pub(super) fn new(plan: CompanionPlan, mark: SideMark, trial_dir: &Path) -> Self {
        let CompanionPlan { role, name, program, when, tells_stages } = plan;
        Self { role, name, when, tells_stages, mark, dir: trial_dir.join(role), state: State::Waiting(program) }
    }

    /// Starts it now if it comes before the trial's child.
    ///
    /// # Errors
    /// If it failed by the time at which the trial's child would start; nothing of it is left then.
    pub(super) fn begin(&mut self, supervisor: &mut Supervisor, surroundings: Surroundings<'_>) -> io::Result<()> {
        make_trial_dir(&self.dir, surroundings.invoker)?;
        match self.when {
            CompanionWhen::Before | CompanionWhen::Beside => self.start(supervisor, surroundings),
            CompanionWhen::After => {}
        }
        let role = self.role;
        let never_began = |failure| Err(io::Error::other(format!("its {role} {failure}")));
        self.failure().map_or(Ok(()), never_began)
    }

    /// Whether it is to be started now that the trial's child said `event`.
    pub(super) fn is_due(&self, event: &ChildEvent) -> bool {
        let is_moment = match event {
            ChildEvent::Running { .. } => !self.tells_stages,
            ChildEvent::Stage { .. } => true,
            ChildEvent::Quiet | ChildEvent::Ended(_) => false,
        };
        is_moment && matches!(self.state, State::Waiting(_))
    }

    /// Starts it, and waits as long as its moment asks for. How it went is told by [`Companion::failure`].
    pub(super) fn start(&mut self, supervisor: &mut Supervisor, surroundings: Surroundings<'_>) {
        let over = State::Over { words: String::new(), failure: None, outcome: None };
        let State::Waiting(program) = std::mem::replace(&mut self.state, over) else { return };
        let speaks = matches!(program, Program::Worker(_));
        let deadlines = Deadlines { settle: Duration::ZERO, ..Deadlines::new(FOR_EVER) };
        let launch = Launch {
            environment: surroundings.environment.to_vec(),
            invoker: Some(surroundings.invoker),
            ..Launch::new(program, surroundings.run, &self.dir, deadlines)
        };
        match supervisor.start_aside(&self.mark, launch) {
            Ok(child) => {
                let since = Instant::now();
                let child = Box::new(child);
                self.state = State::Alive { child, since, speaks, at_work_ms: None, is_asked_to_end: false };
                self.await_readiness(supervisor);
            }
            Err(error) => self.fail(format!("{error}: {}", source_of(&error))),
        }
    }

    /// Waits until it is at work (before), until it runs (beside), or not at all (after).
    fn await_readiness(&mut self, supervisor: &mut Supervisor) {
        let mut until = match self.when {
            CompanionWhen::Before | CompanionWhen::Beside => Instant::now() + READY_WAIT,
            CompanionWhen::After => return,
        };
        let mut runs = false;
        loop {
            let State::Alive { child, since, speaks, at_work_ms, .. } = &mut self.state else { return };
            let wait = until.saturating_duration_since(Instant::now()).min(WAIT);
            match supervisor.next_event(child, wait) {
                ChildEvent::Running { .. } => {
                    runs = true;
                    match self.when {
                        CompanionWhen::Before if !*speaks => until = Instant::now() + HEAD_START,
                        CompanionWhen::Before => {}
                        CompanionWhen::Beside | CompanionWhen::After => return,
                    }
                }
                ChildEvent::Stage { .. } => {
                    *at_work_ms = Some(since.elapsed().as_millis());
                    return;
                }
                ChildEvent::Ended(outcome) => return self.ended(outcome),
                ChildEvent::Quiet if Instant::now() < until => {}
                ChildEvent::Quiet if runs && !*speaks => return,
                ChildEvent::Quiet => {
                    let late = format!("not at work after {} s", READY_WAIT.as_secs());
                    self.conclude(supervisor);
                    return self.fail(late);
                }
            }
        }
    }

    /// Looks how it is, without waiting.
    pub(super) fn look(&mut self, supervisor: &mut Supervisor) {
        loop {
            let State::Alive { child, since, at_work_ms, .. } = &mut self.state else { return };
            match supervisor.glance(child) {
                Some(ChildEvent::Stage { .. }) => *at_work_ms = Some(since.elapsed().as_millis()),
                Some(ChildEvent::Ended(outcome)) => return self.ended(outcome),
                Some(ChildEvent::Running { .. } | ChildEvent::Quiet) => {}
                None => return,
            }
        }
    }

    /// Why the trial is not what its cell asks for, if it is not.
    pub(super) fn failure(&self) -> Option<&str> {
        match &self.state {
            State::Waiting(_) | State::Alive { .. } => None,
            State::Over { failure, .. } => failure.as_deref(),
        }
    }

    /// Asks it to end. From now on its end is no failure.
    pub(super) fn end(&mut self, supervisor: &mut Supervisor) {
        if let State::Alive { child, is_asked_to_end, .. } = &mut self.state {
            *is_asked_to_end = true;
            supervisor.end(child, EndedBy::Stop);
        }
    }

    /// Ends it and waits until nothing of it is left.
    pub(super) fn conclude(&mut self, supervisor: &mut Supervisor) {
        self.look(supervisor);
        self.end(supervisor);
        while let State::Alive { child, .. } = &mut self.state {
            if let ChildEvent::Ended(outcome) = supervisor.next_event(child, WAIT) {
                self.ended(outcome);
            }
        }
    }

    /// Writes into the trial's outcome what became of it. A trial that would pass without its companion is none; a
    /// fault of the trial's own stays one.
    pub(super) fn tell(self, outcome: &mut Outcome) {
        let (words, failure, own) = match self.state {
            State::Over { words, failure, outcome } => (words, failure, outcome),
            State::Waiting(_) => {
                let why = format!("{}: never started, because the trial ended before", self.name);
                (why.clone(), Some(why), None)
            }
            State::Alive { .. } => unreachable!("it was concluded"),
        };
        if failure.is_some() && outcome.ended_by.is_none() && outcome.exit == Exit::Code(0) {
            outcome.ended_by = Some(EndedBy::Companion);
        }
        if let Some(failure) = &failure {
            outcome.notes.insert(COMPANION_FAILURE.to_owned(), failure.clone());
        }
        outcome.notes.insert(self.role.to_owned(), failure.unwrap_or(words));
        for (name, value) in own.into_iter().flat_map(|own| own.metrics) {
            outcome.metrics.insert(format!("{}.{name}", self.role), value);
        }
    }

    fn ended(&mut self, outcome: Box<Outcome>) {
        let State::Alive { since, speaks, at_work_ms, is_asked_to_end, .. } = &self.state else { return };
        let ran_ms = since.elapsed().as_millis();
        let at_work = at_work_ms.map(|ms| format!(" at work after {ms} ms,")).unwrap_or_default();
        let words = format!("{}:{at_work} ended after {ran_ms} ms", self.name);
        let is_fine = match (&outcome.exit, is_asked_to_end) {
            (Exit::Code(0), _) => outcome.protocol_error.is_none(),
            // A load obeys SIGTERM and says how it went; anything else may end as it likes.
            (Exit::Code(_), true) => outcome.failure.is_none(),
            (Exit::Signal { .. }, true) => true,
            (Exit::Code(_) | Exit::Signal { .. }, false) | (Exit::Unkillable | Exit::NotStarted(_), _) => false,
        };
        let failure = if !is_fine {
            let judgement = classify(&outcome).0;
            let detail = judgement.detail.unwrap_or_else(|| judgement.verdict.as_str().to_owned());
            Some(format!("{} failed after {ran_ms} ms: {detail}", self.name))
        } else if *speaks && at_work_ms.is_none() {
            Some(format!("{}: not at work yet when the trial ended, after {ran_ms} ms", self.name))
        } else {
            None
        };
        self.state = State::Over { words, failure, outcome: Some(outcome) };
    }

    fn fail(&mut self, why: String) {
        let failure = Some(format!("{}: {why}", self.name));
        self.state = State::Over { words: String::new(), failure, outcome: None };
    }
}

fn source_of(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}
