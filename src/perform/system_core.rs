//! The kernel's own core of a process: kept from filling a disk while the harness is the tracer, and found afterwards.
//!
//! Owns where to look and what may be written; the pattern of the system is never changed. The names are decided in
//! [`crate::decide::core_pattern`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::decide::core_pattern::{CorePattern, Dead, Handler, Room, core_bytes, too_much};
use crate::model::evidence::Fact;
use crate::model::journal::Persistence;
use crate::perform::host::Sysroot;
use crate::perform::persistence::persistence;

const PATTERN: &str = "proc/sys/kernel/core_pattern";
const USES_PID: &str = "proc/sys/kernel/core_uses_pid";

/// The most files of a directory among which a core is looked for.
const FILES_MAX: usize = 4096;

/// What makes the kernel write no core, into a file or a pipe: a file needs room for a page, and 1 is its own sign for a
/// pipe that must not be filled (fs/coredump.c).
const LIMIT_FOR_NONE: u64 = 1;

/// What the machine does with cores.
pub(super) fn pattern(sysroot: &Sysroot) -> Fact<CorePattern> {
    let adds_pid = sysroot.text(USES_PID).known().is_some_and(|text| text != "0");
    sysroot.text(PATTERN).and_then(|text| Fact::Known(CorePattern::parse(&text, adds_pid)))
}

/// Keeps the kernel from writing a core of `process`, which stands before its end, where that would take too much; says
/// why then.
pub(super) fn bound(process: Pid, pattern: &CorePattern) -> Option<String> {
    let proc = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
    let bytes = core_bytes(&fs::read_to_string(proc.join("status")).unwrap_or_default(), pattern);
    let place = match pattern {
        CorePattern::Nowhere => return None,
        CorePattern::File { directory, .. } => proc.join("cwd").join(directory),
        CorePattern::Program(_) => Path::new("/").join(pattern.directories().first().unwrap_or(&"")),
    };
    let why = too_much(bytes, room(&place))?;
    let none = Rlimit { current: Some(LIMIT_FOR_NONE), maximum: Some(LIMIT_FOR_NONE) };
    Some(match prlimit(Some(process), Resource::Core, none) {
        Ok(before) if before.current == Some(0) => format!("{why}; its limit is 0 anyway"),
        Ok(_) => format!("{why}, so the kernel was kept from it"),
        Err(error) => format!("{why}, and the kernel could not be kept from it: {error}"),
    })
}

fn room(place: &Path) -> Option<Room> {
    let place = fs::canonicalize(place).ok()?;
    let disk = rustix::fs::statvfs(&place).ok()?;
    let is_volatile = persistence(&place) == Persistence::Volatile;
    Some(Room { free: disk.f_bavail.saturating_mul(disk.f_frsize), is_volatile })
}

/// A core.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Core {
    /// Where it is.
    pub(super) path: PathBuf,
    /// How long it is.
    bytes: u64,
    /// What of that is on the disk: the rest are holes.
    on_disk: u64,
}

impl Core {
    /// Path and sizes, in words.
    pub(super) fn words(&self) -> String {
        let volatile = match persistence(&self.path) {
            Persistence::Volatile => ", in memory: gone after a reboot",
            Persistence::Persistent | Persistence::Unproven => "",
        };
        format!("{}, {} bytes of {} on the disk{volatile}", self.path.display(), self.on_disk, self.bytes)
    }
}

/// The newest core of `dead`, which worked in `cwd`; none that was there before `since`.
pub(super) fn find(
    sysroot: &Sysroot,
    pattern: &CorePattern,
    (dead, cwd): (&Dead<'_>, &Path),
    since: SystemTime,
) -> Option<Core> {
    let directories: Vec<PathBuf> = match pattern {
        CorePattern::File { directory, .. } => match directory.strip_prefix('/') {
            Some(absolute) => vec![sysroot.place(absolute)],
            None => vec![cwd.join(directory)],
        },
        CorePattern::Nowhere | CorePattern::Program(_) => {
            pattern.directories().iter().map(|directory| sysroot.place(directory)).collect()
        }
    };
    let files = directories.iter().filter_map(|directory| fs::read_dir(directory).ok());
    let cores = files.flat_map(|files| files.take(FILES_MAX)).filter_map(|file| {
        let file = file.ok()?;
        // Links are not followed: the directory may be the program's own.
        let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let modified = meta.modified().ok().filter(|modified| *modified >= since)?;
        let is_its = pattern.names(file.file_name().to_str()?, dead);
        is_its.then(|| (modified, Core { path: file.path(), bytes: meta.len(), on_disk: blocks(&meta) }))
    });
    cores.max_by_key(|(modified, _)| *modified).map(|(_, core)| core)
}

/// `st_blocks` counts 512 bytes whatever the file system (stat(2)).
fn blocks(meta: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(meta).saturating_mul(512)
}

/// Where else a core may be looked for that was not found.
pub(super) fn elsewhere(pattern: &CorePattern, pid: u32) -> String {
    match pattern {
        CorePattern::Program(Handler::SystemdCoredump) => format!("`coredumpctl info COREDUMP_PID={pid}` may know it"),
        CorePattern::Program(Handler::Apport) => "apport keeps none of a program that no package brought".to_owned(),
        CorePattern::Program(Handler::Other) => "only the program that it was handed to knows where it is".to_owned(),
        CorePattern::File { directory, .. } if directory.is_empty() => {
            "not in the directory in which the program began".to_owned()
        }
        CorePattern::File { directory, .. } => format!("not in {directory}"),
        CorePattern::Nowhere => "the system keeps none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const DEAD: Dead<'_> = Dead { pid: 4242, signal: 11, uid: 0, gid: 0, program: "/opt/x" };

    fn machine(pattern: &str, files: &[&str]) -> (tempfile::TempDir, Sysroot) {
        let tree = tempfile::tempdir().unwrap();
        for file in [PATTERN, USES_PID].iter().chain(files) {
            let path = tree.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, if *file == PATTERN { pattern } else { "0\n" }).unwrap();
        }
        let sysroot = Sysroot::new(tree.path().to_owned());
        (tree, sysroot)
    }

    fn found(text: &str, files: &[&str]) -> Option<String> {
        let (tree, sysroot) = machine(text, files);
        let pattern = pattern(&sysroot);
        let core = find(&sysroot, pattern.known()?, (&DEAD, &tree.path().join("work")), SystemTime::UNIX_EPOCH)?;
        Some(core.path.strip_prefix(tree.path()).unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn a_core_is_found_wherever_the_system_puts_it() {
        let apport = "var/lib/apport/coredump/core._opt_x.0.b0.4242.77";
        let systemd = "var/lib/systemd/coredump/core.x.0.b0.4242.1789.zst";
        for (pattern, core) in [
            ("core\n", "work/core"),
            ("core.%p\n", "work/core.4242"),
            ("/var/cores/%e.%p\n", "var/cores/anything.4242"),
            ("dumps/c\n", "work/dumps/c"),
            ("|/usr/share/apport/apport -p%p -- %E\n", apport),
            ("|/usr/share/apport/apport -p%p -- %E\n", "var/crash/_opt_x.0.crash"),
            ("|/lib/systemd/systemd-coredump %P\n", systemd),
        ] {
            assert_eq!(found(pattern, &[core]).as_deref(), Some(core), "{pattern}");
            assert_eq!(found(pattern, &["work/other", "var/crash/other"]), None, "{pattern}");
        }
        assert_eq!(found("|/opt/own %p\n", &[apport, systemd, "work/core"]), None);
    }

    #[test]
    fn a_core_of_an_earlier_trial_and_a_link_are_none() {
        let (tree, sysroot) = machine("core\n", &["work/core"]);
        let pattern = CorePattern::parse("core", false);
        let work = tree.path().join("work");
        let later = SystemTime::now() + Duration::from_secs(3600);
        assert_eq!(find(&sysroot, &pattern, (&DEAD, &work), later), None);
        fs::remove_file(work.join("core")).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", work.join("core")).unwrap();
        assert_eq!(find(&sysroot, &pattern, (&DEAD, &work), SystemTime::UNIX_EPOCH), None);
    }
}
