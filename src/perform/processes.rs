//! What `/proc` says about other processes: whose child, which group, which trial they carry the mark of.
//!
//! Reads only. A process that vanishes while it is read is simply not there; nothing here is an error.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, getpid};

use crate::decide::hang::{ThreadLook, kernel_stack};
use crate::model::ids::{ContentDigest, RunId, TrialId};

/// The environment variable that every process of a trial inherits: `RUN/TRIAL`.
pub(super) const MARK_VARIABLE: &str = "JETFAULT_TRIAL";

/// How much of a process's environment is searched for the mark, in bytes.
const ENVIRON_BYTES_MAX: u64 = 1024 * 1024;

/// The most threads of one trial that are looked at.
const THREADS_MAX: usize = 4096;

/// The most processes of one trial that are followed.
const PROCESSES_MAX: usize = 1024;

/// What tells the processes of one run from those of every other, on this machine: its id, and a digest of where its
/// directory is, since runs in two results directories may have the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunMark(String);

impl RunMark {
    /// The mark of run `id` in directory `path`, which must be absolute.
    pub fn new(id: &RunId, path: &Path) -> Self {
        let digest = ContentDigest::of(path.as_os_str().as_encoded_bytes());
        Self(format!("{id}@{}", &digest.as_str()[..8]))
    }
}

impl fmt::Display for RunMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The value of [`MARK_VARIABLE`] for one trial.
pub(super) fn mark_of(run: &RunMark, trial: &TrialId) -> String {
    format!("{run}/{trial}")
}

/// Whether `mark` is of a trial of `run`.
pub(super) fn is_of_run(mark: &str, run: &RunMark) -> bool {
    mark.split('/').next() == Some(run.0.as_str())
}

/// The part of `/proc/PID/stat` that tells where a process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// One letter: `R`, `S`, `D`, `Z` and so on.
    pub(super) state: u8,
    /// The parent.
    pub(super) parent: i32,
    /// The process group.
    pub(super) group: i32,
    /// The session.
    pub(super) session: i32,
}

impl Stat {
    /// Reads the entry of `pid`; `None` if there is no such process any more.
    pub(super) fn read(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
    }

    /// The command name stands in parentheses and may itself hold some, so fields are counted from the last one.
    fn parse(text: &[u8]) -> Option<Self> {
        let after = text.iter().rposition(|b| *b == b')')? + 1;
        let text = std::str::from_utf8(&text[after..]).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let mut number = || fields.next()?.parse().ok();
        Some(Self { state, parent: number()?, group: number()?, session: number()? })
    }

    /// Whether it ended and waits to be reaped.
    pub(super) fn is_zombie(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// The trial mark that `pid` was started with, if it has one and we may see it. A zombie has none.
pub(super) fn mark(pid: Pid) -> Option<String> {
    let mut environ = Vec::new();
    let file = File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    file.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ).ok()?;
    let value = environ
        .split(|b| *b == 0)
        .find_map(|entry| entry.strip_prefix(MARK_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Every thread of `processes` right now, [`THREADS_MAX`] at most.
pub(super) fn threads(processes: &[Pid]) -> Vec<ThreadLook> {
    let look = |task: fs::DirEntry| {
        let stat = fs::read(task.path().join("stat")).ok()?;
        // Whoever may not know reads `0`.
        let wchan = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
        let wchan = if wchan.trim() == "0" { "" } else { wchan.trim() };
        // Root only, and where the kernel keeps such stacks at all.
        let stack = fs::read_to_string(task.path().join("stack"));
        let stack = stack.map(|text| kernel_stack(&text)).map_err(|error| error.to_string());
        Some(ThreadLook { kernel_stack: stack, ..thread_look(&stat, wchan, clock_ticks_per_second())? })
    };
    tasks(processes).filter_map(look).take(THREADS_MAX).collect()
}

/// The ids of every thread of `processes`, and so of the processes themselves, [`THREADS_MAX`] at most.
pub(super) fn ids(processes: &[Pid]) -> impl Iterator<Item = u32> {
    tasks(processes).filter_map(|task| task.file_name().to_str()?.parse().ok()).take(THREADS_MAX)
}

fn tasks(processes: &[Pid]) -> impl Iterator<Item = fs::DirEntry> {
    let tasks = processes.iter().filter_map(|pid| fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok());
    tasks.flatten().flatten()
}

/// A thread from its `stat`, proc_pid_stat(5): field 1 is its id, 2 its name, 3 its state, 14 and 15 its time.
fn thread_look(stat: &[u8], wchan: &str, ticks_per_second: u64) -> Option<ThreadLook> {
    let state = char::from(Stat::parse(stat)?.state);
    let text = String::from_utf8_lossy(stat);
    let (tid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(')')?;
    let mut ticks = rest.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = ticks.next()?.ok()? + ticks.next()?.ok()?;
    let cpu_ms = ticks * 1000 / ticks_per_second.max(1);
    Some(ThreadLook {
        tid: tid.parse().ok()?,
        name: name.to_owned(),
        state,
        wchan: wchan.to_owned(),
        cpu_ms,
        kernel_stack: Ok(Vec::new()),
    })
}

/// `roots` and everything that descends from them, [`PROCESSES_MAX`] at most.
pub(super) fn with_descendants(roots: Vec<Pid>) -> Vec<Pid> {
    let parents = match children_of(getpid()) {
        Some(_) => None,
        None => Some(all().into_iter().filter_map(|pid| Some((pid, Stat::read(pid)?.parent))).collect::<Vec<_>>()),
    };
    let children = |of: Pid| match &parents {
        None => children_of(of).unwrap_or_default(),
        Some(parents) => {
            let its = |(_, parent): &&(Pid, i32)| *parent == of.as_raw_nonzero().get();
            parents.iter().filter(its).map(|(pid, _)| *pid).collect()
        }
    };
    let mut found = roots;
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_MAX {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

/// Every process of the machine.
pub(super) fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| parse_pid(entry.ok()?.file_name().to_str()?)).collect()
}

/// Our own children, zombies among them, adopted ones too.
///
/// Kernels without `CONFIG_PROC_CHILDREN` have no list by parent; there the whole table is searched.
pub(super) fn children() -> Vec<Pid> {
    children_of(getpid()).unwrap_or_else(|| {
        let ours = getpid().as_raw_nonzero().get();
        all().into_iter().filter(|pid| Stat::read(*pid).is_some_and(|stat| stat.parent == ours)).collect()
    })
}

/// The children of `process`; `None` if it is gone, or the kernel was built without such lists.
///
/// Each thread has its own list, and an orphan may be given to any of them.
fn children_of(process: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).ok()? {
        // A thread may end between the listing and the reading; a missing file of the first thread means no support.
        match fs::read_to_string(task.ok()?.path().join("children")) {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            Err(_) if fs::exists("/proc/thread-self/children").unwrap_or(false) => {}
            Err(_) => return None,
        }
    }
    Some(children)
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let stat = Stat::parse(b"71 (a) (b) S 1) Z 12 34 56 0 -1 4194560").unwrap();
        assert_eq!(stat, Stat { state: b'Z', parent: 12, group: 34, session: 56 });
        assert!(stat.is_zombie());
        assert_eq!(Stat::parse(b"71 (a) S x"), None);
    }

    #[test]
    fn a_thread_is_read_from_its_stat_whatever_it_calls_itself() {
        // Constructed: a thread that waits in the driver, as `/proc/PID/task/TID/stat` of Linux 5.15 shows one.
        let stat = b"2093 (cuda) EvtHandlr) D 1 2092 2092 0 -1 4194368 903 0 0 0 150 25 0 0 20 0 9 0 81234 1 2 3";
        let expected = ThreadLook {
            tid: 2093,
            name: "cuda) EvtHandlr".into(),
            state: 'D',
            wchan: "nvgpu_channel_close".into(),
            cpu_ms: 1750,
            kernel_stack: Ok(Vec::new()),
        };
        assert_eq!(thread_look(stat, "nvgpu_channel_close", 100), Some(expected));
        assert_eq!(thread_look(b"2093 (cut) D 1 2092 2092 0 -1", "", 100), None);
        assert_eq!(thread_look(b"", "", 100), None);
    }

    #[test]
    fn our_own_threads_are_looked_at() {
        let looks = threads(&[getpid()]);
        assert!(looks.iter().any(|look| look.state == 'R'), "{looks:?}");
    }

    #[test]
    fn descendants_are_followed() {
        let mut child = std::process::Command::new("/bin/sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut found = Vec::new();
        while found.len() < 2 && std::time::Instant::now() < until {
            found = with_descendants(vec![pid]);
        }
        for pid in found.iter().rev() {
            rustix::process::kill_process(*pid, rustix::process::Signal::KILL).unwrap();
        }
        child.wait().unwrap();
        assert_eq!((found.len(), found[0]), (2, pid));
    }

    #[test]
    fn we_are_in_the_list_of_all_and_know_our_parent() {
        let us = getpid();
        assert!(all().contains(&us));
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        assert_eq!(Stat::read(us).unwrap().parent, parent);
    }
}
