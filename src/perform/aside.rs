//! A program that runs to its end beside the trials: what prepares a directory, what runs before a trial.
//!
//! Owns how long it may take and what its end means in words. A person who asks the harness to stop ends it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::decide::classify::classify;
use crate::model::journal::Invoker;
use crate::model::outcome::{EndedBy, Outcome};
use crate::model::verdict::Verdict;
use crate::perform::processes::RunMark;
use crate::perform::supervise::{ChildEvent, Deadlines, EnvChange, Launch, Program, SideMark, Supervisor};

/// How soon a request to stop is noticed.
const WAIT: Duration = Duration::from_millis(200);

/// What runs, and within which limits.
pub(super) struct Aside<'a> {
    /// The program.
    pub(super) program: Program,
    /// The mark of its processes.
    pub(super) mark: &'a SideMark,
    /// The run.
    pub(super) run: &'a RunMark,
    /// The directory for its output.
    pub(super) dir: &'a Path,
    /// Changes of the invoker's environment.
    pub(super) environment: &'a [EnvChange],
    /// As whom it runs.
    pub(super) invoker: &'a Invoker,
    /// When patience ends.
    pub(super) timeout: Duration,
}

impl Aside<'_> {
    /// Runs it to its end. `signal` is the number of the signal that asks the harness to stop; 0 for none.
    ///
    /// # Errors
    /// In words, if it could not be started or did not pass.
    pub(super) fn run(self, supervisor: &mut Supervisor, signal: &AtomicUsize) -> Result<Box<Outcome>, String> {
        let Self { program, mark, run, dir, environment, invoker, timeout } = self;
        let deadlines = Deadlines { settle: Duration::ZERO, ..Deadlines::new(timeout) };
        let launch = Launch {
            environment: environment.to_vec(),
            invoker: Some(invoker),
            ..Launch::new(program, run, dir, deadlines)
        };
        let mut child = supervisor.start_aside(mark, launch).map_err(|error| error.to_string())?;
        let outcome = loop {
            match supervisor.next_event(&mut child, WAIT) {
                ChildEvent::Ended(outcome) => break outcome,
                ChildEvent::Running { .. } | ChildEvent::Stage { .. } | ChildEvent::Quiet => {}
            }
            if signal.load(Ordering::Relaxed) != 0 {
                supervisor.end(&mut child, EndedBy::Stop);
            }
        };
        let (judgement, _) = classify(&outcome);
        match judgement.verdict {
            Verdict::Pass => Ok(outcome),
            verdict => Err(judgement.detail.unwrap_or_else(|| verdict.as_str().to_owned())),
        }
    }
}
