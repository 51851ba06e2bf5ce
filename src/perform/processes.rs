//! What `/proc` says about other processes: whose child, which group, which trial they carry the mark of.
//!
//! Reads only. A process that vanishes while it is read is simply not there; nothing here is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustix::process::{Pid, getpid};

use crate::model::ids::{ContentDigest, RunId, TrialId};

/// The environment variable that every process of a trial inherits: `RUN/TRIAL`.
pub(super) const MARK_VARIABLE: &str = "JETFAULT_TRIAL";

/// How much of a process's environment is searched for the mark, in bytes.
const ENVIRON_BYTES_MAX: u64 = 1024 * 1024;

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

/// What the threads of `pid` do right now, as notes for people: state and kernel function of each kind of thread, and
/// the processor time used so far. It tells a blocked child from a spinning one and from one in D state.
pub(super) fn what_it_does(pid: Pid) -> Vec<(String, String)> {
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for task in fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten() {
        let Some(stat) = fs::read(task.path().join("stat")).ok().as_deref().and_then(Stat::parse) else { continue };
        let wchan = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
        let place = if wchan.is_empty() || wchan == "0" { "" } else { wchan.trim() };
        *kinds.entry(format!("{} {place}", char::from(stat.state)).trim().to_owned()).or_default() += 1;
    }
    let threads: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} x {kind}")).collect();
    let mut notes = vec![("hang.threads".to_owned(), threads.join(", "))];
    let ticks = fs::read_to_string(format!("{process}/stat")).ok().as_deref().and_then(cpu_ticks);
    notes.extend(ticks.map(|ticks| {
        let ms = ticks * 1000 / rustix::param::clock_ticks_per_second();
        ("hang.cpu_ms".to_owned(), ms.to_string())
    }));
    notes
}

/// User and system time of a whole process: fields 14 and 15 of `/proc/PID/stat`, proc_pid_stat(5).
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
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
    listed_children().unwrap_or_else(|| {
        let ours = getpid().as_raw_nonzero().get();
        all().into_iter().filter(|pid| Stat::read(*pid).is_some_and(|stat| stat.parent == ours)).collect()
    })
}

/// Each thread has its own list, and an orphan may be given to any of them.
fn listed_children() -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()? {
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
    fn we_are_in_the_list_of_all_and_know_our_parent() {
        let us = getpid();
        assert!(all().contains(&us));
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        assert_eq!(Stat::read(us).unwrap().parent, parent);
    }
}
