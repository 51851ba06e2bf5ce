//! A command that is repeated inside one trial (`iterations`), with idle time in between (`gap`).
//!
//! Each repetition is a process of its own; the first that does not pass is the trial's outcome, else the last. Its output
//! is that of the trial, and what the ones before it wrote is gone: a soak of a million repetitions keeps as much as one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::decide::classify::classify;
use crate::model::outcome::{EndedBy, Outcome};
use crate::model::settings::Observer;
use crate::model::verdict::{StageName, Verdict};
use crate::perform::supervise::{Bounds, ChildEvent, CommandLine, Deadlines, SETTLE_STAGE, SideMark};

/// The metric that counts the repetitions that passed.
const METRIC: &str = "iterations";

/// What every repetition is started with.
#[derive(Debug, Clone)]
pub(super) struct Repeated {
    /// The command.
    pub(super) command: CommandLine,
    /// The patience of the whole trial.
    pub(super) deadlines: Deadlines,
    /// See [`crate::perform::supervise::Launch`].
    pub(super) bounds: Bounds,
    /// See [`crate::perform::supervise::Launch`].
    pub(super) observer: Observer,
    /// The trial's directory.
    pub(super) trial_dir: PathBuf,
    /// The mark of the trial's processes.
    pub(super) mark: SideMark,
    /// How many there are.
    pub(super) iterations: u32,
    /// The idle time between two.
    pub(super) gap: Duration,
}

/// The repetitions of one trial.
#[derive(Debug)]
pub(super) struct Repetition {
    pub(super) what: Repeated,
    born: Instant,
    /// When the one that runs was started, or the last one.
    since: Instant,
    passed: u32,
    peak_host: u64,
    /// The processes and threads that were seen in those that ended.
    members: BTreeSet<u32>,
    rest: Option<Rest>,
}

/// After a repetition.
#[derive(Debug)]
struct Rest {
    until: Instant,
    /// What the last one came to, and is the trial's outcome if no other follows.
    outcome: Box<Outcome>,
    next: Next,
}

/// What comes after the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The next repetition.
    Another,
    /// The trial's end: the one before did not pass, and the machine is watched meanwhile.
    End,
    /// The trial's end, at once: somebody asked for it.
    Ended(EndedBy),
}

/// What is to be done between two repetitions.
pub(super) enum Pause {
    /// Wait for so long.
    Rest(Duration),
    /// Start the next.
    Over,
    /// Nothing more: the trial's outcome.
    Ended(Box<Outcome>),
}

impl Repetition {
    /// The repetitions of a trial whose first is started now.
    pub(super) fn new(what: Repeated) -> Self {
        let now = Instant::now();
        Self { what, born: now, since: now, passed: 0, peak_host: 0, members: BTreeSet::new(), rest: None }
    }

    /// The patience with the repetition that comes next. Only after the last one the machine is watched, and after one
    /// that does not pass: what comes after it is the trial's end.
    pub(super) fn deadlines(&self) -> Deadlines {
        let is_last = self.passed + 1 >= self.what.iterations;
        let Deadlines { timeout, settle, .. } = self.what.deadlines;
        Deadlines {
            timeout: timeout.saturating_sub(self.born.elapsed()),
            settle: if is_last { settle } else { Duration::ZERO },
            ..self.what.deadlines
        }
    }

    /// Where the pause between two repetitions stands; `None` while one runs.
    pub(super) fn pause(&mut self) -> Option<Pause> {
        let Rest { until, mut outcome, next } = self.rest.take()?;
        let left = until.saturating_duration_since(Instant::now());
        Some(match next {
            Next::Ended(why) => {
                outcome.ended_by = Some(why);
                self.tell(&mut outcome);
                Pause::Ended(outcome)
            }
            Next::Another if left.is_zero() => Pause::Over,
            Next::End if left.is_zero() => {
                self.tell(&mut outcome);
                Pause::Ended(outcome)
            }
            Next::Another | Next::End => {
                self.rest = Some(Rest { until, outcome, next });
                Pause::Rest(left)
            }
        })
    }

    /// Lets no other follow, if it pauses. One that did not pass is the trial's end anyway.
    pub(super) fn end(&mut self, why: EndedBy) {
        if let Some(Rest { next: next @ Next::Another, .. }) = &mut self.rest {
            *next = Next::Ended(why);
        }
    }

    /// Makes room for the output of the next repetition, which starts now.
    ///
    /// # Errors
    /// If the output of the last one cannot be removed.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.since = Instant::now();
        ["stdout.log", "stderr.log"].iter().try_for_each(|name| remove(&self.what.trial_dir.join(name)))
    }

    /// What `event` of the repetition that runs is for the trial.
    pub(super) fn of_trial(&mut self, event: ChildEvent, members: &BTreeSet<u32>) -> ChildEvent {
        let is_first = self.passed == 0;
        match event {
            ChildEvent::Running { .. } if !is_first => ChildEvent::Quiet,
            ChildEvent::Stage { stage, at_ms } => {
                ChildEvent::Stage { stage, at_ms: at_ms + millis(self.since - self.born) }
            }
            ChildEvent::Ended(mut outcome) => {
                self.members.extend(members);
                self.peak_host = self.peak_host.max(outcome.peak_memory.host);
                let has_passed = classify(&outcome).0.verdict == Verdict::Pass;
                self.passed += u32::from(has_passed);
                if has_passed && self.passed < self.what.iterations {
                    self.rest = Some(Rest { until: Instant::now() + self.what.gap, outcome, next: Next::Another });
                    return ChildEvent::Quiet;
                }
                // The last one by count was watched by its supervisor.
                let settle = self.what.deadlines.settle;
                if !has_passed && self.passed + 1 < self.what.iterations && !settle.is_zero() {
                    let stage: StageName = SETTLE_STAGE.parse().expect("a constant stage name");
                    outcome.stage_ms.push((stage.clone(), millis(settle)));
                    self.rest = Some(Rest { until: Instant::now() + settle, outcome, next: Next::End });
                    return ChildEvent::Stage { stage, at_ms: millis(self.born.elapsed()) };
                }
                self.tell(&mut outcome);
                ChildEvent::Ended(outcome)
            }
            event @ (ChildEvent::Running { .. } | ChildEvent::Quiet) => event,
        }
    }

    /// The processes and threads of every repetition.
    pub(super) fn members(&self) -> &BTreeSet<u32> {
        &self.members
    }

    fn tell(&self, outcome: &mut Outcome) {
        // What is watched after the end is no part of it.
        let settled =
            outcome.stage_ms.iter().find(|(stage, _)| stage.as_str() == SETTLE_STAGE).map_or(0, |(_, ms)| *ms);
        outcome.duration_ms = millis(self.born.elapsed()).saturating_sub(settled);
        outcome.peak_memory.host = self.peak_host;
        outcome.metrics.insert(METRIC.to_owned(), f64::from(self.passed));
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
