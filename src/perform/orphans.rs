//! Ends what a run left behind when its harness died: processes that carry the run's mark in their environment.
//!
//! Used when a run is taken up again, never between trials: it searches the whole process table. It owns no state
//! and must not touch a process without the mark.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::perform::processes::{self, RunMark};

/// How long orphans have to obey SIGTERM.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// How long orphans have to be gone after SIGKILL.
pub const ORPHAN_KILL_WAIT: Duration = Duration::from_secs(5);

/// Pause between two looks. They are not our children, so nothing wakes us when they end.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// What was found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orphans {
    /// Processes of the run that were found.
    pub found: usize,
    /// Those that survived SIGKILL past the deadline: the boot is tainted.
    pub surviving: usize,
}

/// Ends every process that carries the mark of `run`, except this one: SIGTERM, [`ORPHAN_GRACE`], SIGKILL,
/// [`ORPHAN_KILL_WAIT`].
///
/// A process that hides its environment from us (another user's, without root) is not found.
pub fn end_orphans(run: &RunMark) -> Orphans {
    let mut found = marked(run);
    if found.is_empty() {
        return Orphans::default();
    }
    if !end_with(run, Signal::TERM, ORPHAN_GRACE, &mut found) {
        end_with(run, Signal::KILL, ORPHAN_KILL_WAIT, &mut found);
    }
    Orphans { found: found.len(), surviving: marked(run).len() }
}

/// Sends `signal` to all, newcomers too, until none is left (true) or `deadline` passed.
fn end_with(run: &RunMark, signal: Signal, deadline: Duration, found: &mut Vec<Pid>) -> bool {
    let until = Instant::now() + deadline;
    let mut signalled: Vec<Pid> = Vec::new();
    loop {
        let left = marked(run);
        if left.is_empty() {
            return true;
        }
        for pid in left {
            if !signalled.contains(&pid) {
                // It may have ended in between: then there is nothing left to do.
                let _ = kill_process(pid, signal);
                signalled.push(pid);
            }
            if !found.contains(&pid) {
                found.push(pid);
            }
        }
        if Instant::now() >= until {
            return false;
        }
        sleep(LOOK_PERIOD);
    }
}

fn marked(run: &RunMark) -> Vec<Pid> {
    let us = getpid();
    let is_of_run = |pid: &Pid| processes::mark(*pid).is_some_and(|mark| processes::is_of_run(&mark, run));
    processes::all().into_iter().filter(|pid| *pid != us).filter(is_of_run).collect()
}
