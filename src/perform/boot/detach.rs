//! A run that outlives the session of whoever started it: in a transient unit of systemd, else in a session of its own.
//!
//! What ends with an ssh session is its terminal and, where logind is told so, everything in its scope. A unit is in
//! neither; a process of its own session is only out of the terminal's reach, and is what a machine without systemd, or
//! a user without its powers, can have. It decides nothing about the run: the process it starts is `jetfault resume`.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{geteuid, setsid};

use super::unit::BOOTED;
use crate::model::evidence::Fact;
use crate::model::ids::RunId;
use crate::perform::host::{Sysroot, run_briefly};
use crate::perform::store::names;

/// The name under which the binary is the process in the middle, which leaves the session and is not waited for.
pub const DETACH_SUBCOMMAND: &str = "__detach";

/// The file in a run's directory that keeps what a detached harness says, where systemd does not keep it.
const LOG: &str = "detached.log";

/// How much of its end is read for the error that ended it.
const TAIL_BYTES: u64 = 4096;

/// An error that ends a harness is said after its last record; a file system may keep times of a second.
const SAME_TIME: Duration = Duration::from_secs(2);

/// How long systemd may take to start a unit.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run that could not be left to another process.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// systemd refused.
    #[error("systemd-run does not start a unit: {0}")]
    Unit(String),
    /// No process could be started.
    #[error("cannot start a process of its own session: {0}")]
    Session(#[from] io::Error),
}

/// What goes on with a run when nobody is logged in.
#[derive(Debug, Clone, Copy)]
pub struct Detached<'a> {
    /// The binary.
    pub harness: &'a Path,
    /// The run.
    pub run: &'a RunId,
    /// Its directory.
    pub run_dir: &'a Path,
    /// The root of the machine, where it is another one's tree.
    pub sysroot: &'a Sysroot,
}

impl Detached<'_> {
    /// Starts it, and says where its words go.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self) -> Result<String, DetachError> {
        if self.sysroot.is_live() && self.sysroot.exists(BOOTED) && geteuid().is_root() {
            return self.start_unit();
        }
        let log = self.run_dir.join(LOG);
        let mut middle = Command::new(self.harness);
        middle.arg(DETACH_SUBCOMMAND).arg(&log).args(self.arguments());
        let status = middle.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        match status.success() {
            true => Ok(log.display().to_string()),
            false => Err(io::Error::other(format!("the process in the middle ended with {status}")).into()),
        }
    }

    fn start_unit(&self) -> Result<String, DetachError> {
        let argv = self.unit_argv();
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        match run_briefly("systemd-run", &argv, PATIENCE) {
            Fact::Known(_) => Ok(format!("journalctl -u {}", self.unit())),
            Fact::Absent => Err(DetachError::Unit("it is not there".to_owned())),
            Fact::Denied(why) | Fact::Garbled(why) => Err(DetachError::Unit(why)),
        }
    }

    fn unit(&self) -> String {
        format!("jetfault-{}", self.run)
    }

    /// What systemd-run(1) is asked for. The unit goes when it ends, however it ends, so that the run may be resumed in
    /// another of the same name.
    fn unit_argv(&self) -> Vec<String> {
        let unit = format!("--unit={}", self.unit());
        let description = format!("--description=jetfault carries on the run {}", self.run);
        let options = [
            &unit,
            &description,
            "--collect",
            "--quiet",
            "--no-ask-password",
            // As for the boot service: the workload is ended by the harness, which then has its time to write.
            "--property=KillMode=mixed",
            "--property=TimeoutStopSec=90s",
            "--property=Delegate=yes",
            "--property=SuccessExitStatus=1 3",
            "--",
        ];
        let harness = self.harness.to_string_lossy().into_owned();
        let in_unit = "--in-unit".to_owned();
        let arguments = self.arguments().into_iter().map(|argument| argument.to_string_lossy().into_owned());
        options.into_iter().map(str::to_owned).chain([harness]).chain(arguments).chain([in_unit]).collect()
    }

    fn arguments(&self) -> Vec<OsString> {
        let tree = (!self.sysroot.is_live()).then(|| self.sysroot.place(""));
        let tree = tree.into_iter().flat_map(|tree| [OsString::from("--sysroot"), tree.into()]);
        tree.chain([OsString::from("resume"), self.run_dir.into()]).collect()
    }
}

/// What the process in the middle does: it leaves the session, and starts the harness with the arguments after the
/// first, its words appended to the file that the first names. The harness is then no leader of a session either, and
/// never comes by a terminal.
///
/// # Errors
/// If the session cannot be left, or the harness not be started.
pub fn leave(harness: &Path, arguments: &[OsString]) -> io::Result<()> {
    let [log, arguments @ ..] = arguments else { return Err(io::ErrorKind::InvalidInput.into()) };
    setsid()?;
    let log = OpenOptions::new().append(true).create(true).open(PathBuf::from(log))?;
    let said = log.try_clone()?;
    Command::new(harness).args(arguments).stdin(Stdio::null()).stdout(said).stderr(log).spawn().map(drop)
}

/// The error with which what went on with the run in `run_dir` ended, if that is told and nothing was recorded since.
pub fn last_words(run_dir: &Path) -> Option<String> {
    let mut log = File::open(run_dir.join(LOG)).ok()?;
    let modified = |meta: Metadata| meta.modified().ok();
    let (told, recorded) =
        (modified(log.metadata().ok()?)?, modified(fs::metadata(run_dir.join(names::JOURNAL)).ok()?)?);
    if told + SAME_TIME < recorded {
        return None;
    }
    let end = log.seek(SeekFrom::End(0)).ok()?;
    log.seek(SeekFrom::Start(end.saturating_sub(TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    log.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    tail.lines().rev().find_map(|line| line.strip_prefix("error: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn an_error_is_told_until_something_is_recorded_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let (log, journal) = (dir.path().join(LOG), dir.path().join(names::JOURNAL));
        assert_eq!(last_words(dir.path()), None);
        fs::write(&journal, "").unwrap();
        fs::write(&log, "[1/6] a: pass\nerror: an old one\nerror: the disk is full\nhint: free some space\n").unwrap();
        assert_eq!(last_words(dir.path()).unwrap(), "the disk is full");
        let later = SystemTime::now() + Duration::from_secs(60);
        File::options().append(true).open(&journal).unwrap().set_modified(later).unwrap();
        assert_eq!(last_words(dir.path()), None);
    }

    #[test]
    fn the_unit_runs_resume_and_goes_when_it_ends() {
        let run: RunId = "a-001".parse().unwrap();
        let sysroot = Sysroot::new(PathBuf::from("/"));
        let (harness, run_dir) = (Path::new("/opt/jet fault"), Path::new("/data/results/a-001"));
        let argv = Detached { harness, run: &run, run_dir, sysroot: &sysroot }.unit_argv();
        let split = argv.iter().position(|word| word == "--").unwrap();
        assert_eq!(argv[split + 1..], ["/opt/jet fault", "resume", "/data/results/a-001", "--in-unit"]);
        let options = &argv[..split];
        assert!(options.contains(&"--unit=jetfault-a-001".to_owned()), "{options:?}");
        assert!(options.contains(&"--collect".to_owned()), "{options:?}");
    }
}
