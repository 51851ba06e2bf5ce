//! The processes that descend from a trial's child: found cheaply, ended surely.
//!
//! The harness is a child subreaper (prctl(2)): whoever loses its parent becomes our child, even after a double fork
//! and `setsid`, and its end wakes us. So two system calls tell that nothing is left, which is the usual case; only
//! when they do not, our own children are listed and compared with the trial's group and environment mark. The whole
//! process table is never searched here; [`crate::perform::orphans`] does that, after the harness itself died.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, test_kill_process_group, waitid,
};

use crate::perform::os;
use crate::perform::processes::{self, Stat};

/// Whether processes that end are counted as leaked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// They ended by themselves.
    ByThemselves,
    /// They had to be killed.
    Killed,
}

/// Everything that descends from one trial's child.
#[derive(Debug)]
pub(super) struct Family {
    /// The child, which leads the process group.
    leader: Pid,
    /// The environment mark.
    mark: String,
    /// Children that we had before this trial: not its, unless they carry its mark.
    before: Vec<Pid>,
    ending: Ending,
    /// How many had to be killed, the leader not counted.
    leaked: u32,
}

impl Family {
    /// Children that the harness has now; taken before the child of a trial is started.
    pub(super) fn children_before() -> Vec<Pid> {
        if has_children() { processes::children() } else { Vec::new() }
    }

    /// The family of the child `leader`, which must be the leader of its own process group.
    pub(super) fn new(leader: Pid, mark: String, mut before: Vec<Pid>) -> Self {
        // One that was born ahead was there.
        before.retain(|pid| *pid != leader);
        Self { leader, mark, before, ending: Ending::ByThemselves, leaked: 0 }
    }

    /// Sends `signal` to the child's process group; whoever is gone needs none.
    pub(super) fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }

    /// Every process of the trial that is there now.
    pub(super) fn members(&self) -> Vec<Pid> {
        // The leader is among our children too, unless it was reaped.
        processes::with_descendants(self.adopted().into_iter().map(|(pid, _)| pid).collect())
    }

    /// Reaps members that ended, and tells whether any is left. Call it after the leader was reaped.
    pub(super) fn is_left(&mut self) -> bool {
        if !self.has_group() && !has_children() {
            return false;
        }
        let mut is_left = false;
        for (pid, stat) in self.adopted() {
            is_left |= !(stat.is_zombie() && self.reap(pid));
        }
        // A member may still have a parent of its own, and then is not in the list of our children.
        is_left || self.has_group()
    }

    /// Kills whoever is left. New orphans may come of it: repeat until [`Family::is_left`] says no.
    pub(super) fn kill(&mut self) {
        if self.ending == Ending::ByThemselves {
            // Who ended in time and was not reaped yet is no leak.
            self.is_left();
            self.ending = Ending::Killed;
        }
        self.signal_group(Signal::KILL);
        for (pid, stat) in self.adopted() {
            if !stat.is_zombie() {
                // It may have ended in between.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// How many had to be killed.
    pub(super) fn leaked(&self) -> u32 {
        self.leaked
    }

    fn has_group(&self) -> bool {
        // Members that we may not signal are members too.
        !matches!(test_kill_process_group(self.leader), Err(Errno::SRCH))
    }

    /// Our own children that belong to the trial.
    fn adopted(&self) -> Vec<(Pid, Stat)> {
        // Not getsid(2) by its wrapper: in a container whose session was made outside, the answer is 0, which is no pid.
        let session = Stat::read(getpid()).map(|stat| stat.session);
        processes::children()
            .into_iter()
            .filter_map(|pid| Some((pid, Stat::read(pid)?)))
            .filter(|(pid, stat)| self.owns(*pid, *stat, session))
            .collect()
    }

    /// A zombie or a process that cleared its environment shows no mark. It is the trial's if it left our session:
    /// what the harness itself starts stays in it.
    fn owns(&self, pid: Pid, stat: Stat, our_session: Option<i32>) -> bool {
        if stat.group == self.leader.as_raw_nonzero().get() {
            return true;
        }
        match processes::mark(pid) {
            Some(mark) => mark == self.mark,
            None => !self.before.contains(&pid) && our_session.is_some_and(|session| stat.session != session),
        }
    }

    fn reap(&mut self, pid: Pid) -> bool {
        let is_reaped = matches!(os::try_reap(pid), Ok(Some(_)) | Err(_));
        if is_reaped && self.ending == Ending::Killed {
            self.leaked += 1;
        }
        is_reaped
    }
}

/// One system call: whether this process has any child at all, alive or not.
fn has_children() -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, peek), Err(Errno::CHILD))
}
