//! The child of one trial, from its birth to the last process it left behind.
//!
//! The supervisor owns the asynchronous runtime, the only one in the program, and the truth about processes: exit,
//! signal, deadline. It neither judges (that is the outcome's reader) nor journals (that is its caller): events are
//! *pulled*, so that the caller can make each one durable before the next is looked at. A child that dies, floods,
//! lies, hangs, closes its pipes or leaves processes behind never blocks it for longer than its deadlines.
//!
//! Only the thread that made the supervisor may use it, and it must live as long as the children: the kernel kills
//! them when that *thread* ends (`PR_SET_PDEATHSIG`, prctl(2)).

mod child;
mod family;
mod launch;
mod libraries;
mod lines;
mod looks;
mod output;
mod pipes;
mod ran;
mod replies;
mod spawn;
mod streams;
mod tracer;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use crate::model::ids::TrialId;
use crate::model::journal::Started;
use crate::model::outcome::EndedBy;
use crate::model::settings::Observer;
use crate::model::verdict::StageName;
use crate::perform::journal::Durable;
use crate::perform::processes::{self, RunMark};

pub use crate::perform::machine::ChildEvent;
pub use child::Child;
pub use launch::{
    Bounds, CommandLine, Deadlines, EnvChange, Expectation, GRACE, KILL_WAIT, Launch, OUTPUT_BYTES_MAX, Program, SETTLE,
};
pub(in crate::perform) use libraries::Identities;
pub use output::assemble_output;
pub use spawn::WORKER_SUBCOMMAND;
pub(in crate::perform) use tracer::CORE as SMALL_CORE;

/// The score that makes the harness the last victim of the out-of-memory killer, short of exempt (-1000).
pub const PROTECTED_OOM_SCORE_ADJ: i32 = -900;

/// The stage in which the machine is watched after the child's end.
pub const SETTLE_STAGE: &str = "settle";

/// The stage in which a server is ready.
pub const READY_STAGE: &str = "ready";

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The record that is durable is of another trial than the request.
    #[error("the started trial {started} is not the requested {requested}")]
    OtherTrial {
        /// The trial whose start is on the disk.
        started: TrialId,
        /// The trial of the request.
        requested: TrialId,
    },
    /// Our own binary could not be started.
    #[error("start {}", program.display())]
    Spawn {
        /// The binary.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not let the child be traced; the child was killed.
    #[error("trace the child (observer = \"core\"): {0}; a container may forbid it")]
    Trace(io::Error),
    /// The child's pipes could not be watched; the child was killed.
    #[error("watch the child's pipes")]
    Watch(#[source] io::Error),
}

/// The right to start a program beside the trials' own, and the mark that its processes carry.
#[derive(Debug, Clone)]
pub struct SideMark(String);

impl SideMark {
    /// For a repetition of a trial of `run` whose start is on the disk: the trial's own mark.
    pub fn of_trial(started: &Durable<Started>, run: &RunMark) -> Self {
        Self(processes::mark_of(run, &started.get().trial))
    }

    /// For the companion of a trial of `run` whose start is on the disk.
    pub fn of_companion(started: &Durable<Started>, run: &RunMark) -> Self {
        Self(format!("{}/companion", processes::mark_of(run, &started.get().trial)))
    }

    /// For what runs before a trial of `run` whose start is on the disk.
    pub fn of_prelude(started: &Durable<Started>, run: &RunMark) -> Self {
        Self(format!("{}/prelude", processes::mark_of(run, &started.get().trial)))
    }

    /// For a request to the server of a trial of `run` whose start is on the disk.
    pub fn of_request(started: &Durable<Started>, run: &RunMark) -> Self {
        Self(format!("{}/request", processes::mark_of(run, &started.get().trial)))
    }

    /// For the debugger that looks at a crash of a trial of `run`.
    pub(super) fn of_debugger(run: &RunMark, trial: &TrialId) -> Self {
        Self(format!("{}/debugger", processes::mark_of(run, trial)))
    }

    /// For what `run` prepares in `place`, which is no trial: nothing that it does is counted.
    pub fn of_preparation(run: &RunMark, place: &Path) -> Self {
        Self(format!("{run}/prepare/{}", place.file_name().unwrap_or_default().to_string_lossy()))
    }
}

/// Starts children and watches them: one trial's at a time, and its companion.
#[derive(Debug)]
pub struct Supervisor {
    /// The binary that is re-entered as worker or trampoline.
    harness: PathBuf,
    runtime: Runtime,
    /// Wakes us when a child or an adopted orphan ends.
    child_ended: SignalStream,
    /// The score that children return to, once the harness protected itself.
    oom_score_adj: Option<i32>,
    /// What the child of the next trial is made of.
    spare: Option<spawn::Spare>,
}

impl Supervisor {
    /// A supervisor that re-enters the binary `harness`. From now on orphans of this process's descendants become
    /// its own children, so that none is lost.
    ///
    /// # Errors
    /// If the runtime cannot be made.
    pub fn new(harness: PathBuf) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let child_ended = {
            let _context = runtime.enter();
            signal(SignalKind::child())?
        };
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self { harness, runtime, child_ended, oom_score_adj: None, spare: None })
    }

    /// Protects this process, not its children, from the out-of-memory killer.
    ///
    /// # Errors
    /// Without the right to (`CAP_SYS_RESOURCE`); the caller goes on unprotected.
    pub fn protect(&mut self) -> io::Result<()> {
        const SCORE: &str = "/proc/self/oom_score_adj";
        let before = std::fs::read_to_string(SCORE)?;
        let before = before.trim().parse().map_err(|_| io::Error::other(format!("{SCORE} reads {before:?}")))?;
        std::fs::write(SCORE, PROTECTED_OOM_SCORE_ADJ.to_string())?;
        self.oom_score_adj = Some(before);
        Ok(())
    }

    /// Does ahead what the child of the next trial costs before it is told what to become, while the end of the one before
    /// is written down: a process of this binary is started, which waits for its request and ends with us. Nothing of the
    /// trial is started, and no such process is there while a trial runs.
    pub fn expect_child(&mut self) {
        if self.spare.is_none() {
            // Where it fails here it fails where the child is started, which says so.
            self.spare = spawn::Spare::new(&self.harness).ok();
        }
    }

    /// Starts the child of a trial whose start is on the disk.
    ///
    /// A user's program that cannot be executed is not an error here: it ends with `NotStarted`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(&mut self, started: &Durable<Started>, launch: Launch<'_>) -> Result<Child, StartError> {
        let trial = &started.get().trial;
        if let Program::Worker(request) = &launch.program
            && request.trial != *trial
        {
            return Err(StartError::OtherTrial { started: trial.clone(), requested: request.trial.clone() });
        }
        let mark = processes::mark_of(launch.run, trial);
        let spare = self.spare.take();
        self.start_marked(mark, launch, spare)
    }

    /// Starts a program beside the trials' own. Its processes are a family of their own.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_aside(&mut self, mark: &SideMark, launch: Launch<'_>) -> Result<Child, StartError> {
        self.start_marked(mark.0.clone(), launch, None)
    }

    fn start_marked(
        &mut self,
        mark: String,
        launch: Launch<'_>,
        spare: Option<spawn::Spare>,
    ) -> Result<Child, StartError> {
        let before = family::Family::children_before();
        let origin = spawn::Origin { harness: &self.harness, oom_score_adj: self.oom_score_adj, mark: &mark };
        let born = Instant::now();
        let (newborn, outgoing) = spawn::spawn(&origin, &launch, spare)
            .map_err(|source| StartError::Spawn { program: self.harness.clone(), source })?;
        let family = family::Family::new(newborn.pid, mark, before);
        let pid = newborn.pid;
        let end = |source: StartError| {
            // A child that nobody can watch must not live; if it is gone already, so much the better.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            source
        };
        let tracer = match launch.observer {
            Observer::None | Observer::Gdb => None,
            Observer::Core => {
                let pattern = launch.core_pattern.clone();
                let tracer = tracer::Tracer::seize(pid, launch.trial_dir, pattern);
                Some(tracer.map_err(|error| end(StartError::Trace(error)))?)
            }
        };
        let _context = self.runtime.enter();
        Child::new(child::Birth { born, newborn, outgoing, family, tracer }, launch)
            .map_err(|error| end(StartError::Watch(error)))
    }

    /// The next event of `child`, waiting at most `wait` for it.
    pub fn next_event(&mut self, child: &mut Child, wait: Duration) -> ChildEvent {
        let until = Instant::now() + wait;
        self.runtime.block_on(child.next_event(&mut self.child_ended, until))
    }

    /// What happened to `child` so far, without waiting; nothing, or nothing more, is `None`.
    pub fn glance(&mut self, child: &mut Child) -> Option<ChildEvent> {
        child.glance()
    }

    /// Tells a worker that its last stage is durable. A worker that is gone needs no answer.
    pub fn acknowledge(&mut self, child: &mut Child) {
        child.acknowledge();
    }

    /// Says for a child that cannot say it itself that it reached `stage`.
    pub fn reach(&mut self, child: &mut Child, stage: StageName) {
        child.reach(stage);
    }

    /// Begins to end the child: SIGTERM now; SIGKILL and the second deadline follow while the caller goes on to pull
    /// events until `Ended`. A child that is being ended already, or has ended, is left as it is.
    pub fn end(&mut self, child: &mut Child, why: EndedBy) {
        child.end(why);
    }

    /// Makes durable what the child wrote so far. The caller does it once a second, so that the last lines before a
    /// reset exist.
    ///
    /// # Errors
    /// The first error of any write or sync of the child's output: no trial without a record.
    pub fn sync_output(&mut self, child: &mut Child) -> io::Result<()> {
        child.sync_output()
    }
}
