//! Two looks at every thread of a trial before its deadline ends it: one a second ahead, one at the deadline.
//!
//! So the child is not kept a moment longer, and once it is asked to end nobody can see any more what it hung on.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::decide::hang::{Looks, Stages, ThreadLook, hang_of};
use crate::model::hang::Hang;
use crate::perform::processes;

/// How long before a deadline the first look is taken.
const AHEAD: Duration = Duration::from_secs(1);

/// The first look, if it was taken for the deadline that is next.
#[derive(Debug, Default)]
pub(super) struct FirstLook(Option<Taken>);

#[derive(Debug)]
struct Taken {
    at: Instant,
    deadline: Instant,
    stage_since: Instant,
    threads: Vec<ThreadLook>,
}

impl FirstLook {
    /// When it is due for `deadline`, given when the span that ends there began; none if it was taken.
    pub(super) fn due(&self, began: Instant, deadline: Instant) -> Option<Instant> {
        if self.0.as_ref().is_some_and(|taken| taken.deadline == deadline) {
            return None;
        }
        let half = (deadline - began) / 2;
        Some(deadline - AHEAD.min(half))
    }

    /// Takes it.
    pub(super) fn take(&mut self, deadline: Instant, stage_since: Instant, members: &[Pid]) {
        let at = Instant::now();
        self.0 = Some(Taken { at, deadline, stage_since, threads: processes::threads(members) });
    }

    /// Takes the second, and tells what the trial did meanwhile.
    pub(super) fn compare(&mut self, stage_since: Instant, members: &[Pid]) -> Option<Hang> {
        let first = self.0.take()?;
        let stages = if stage_since == first.stage_since { Stages::Still } else { Stages::Moved };
        let apart_ms = u64::try_from(first.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(hang_of(&Looks { before: first.threads, after: processes::threads(members), apart_ms, stages }))
    }
}
