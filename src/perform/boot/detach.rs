//! A run that outlives the session of whoever started it: in a transient unit of systemd, else in a session of its own.
//!
//! What ends with an ssh session is its terminal and, where logind is told so, everything in its scope. A unit is in
//! neither; a process of its own session is only out of the terminal's reach, and is what a machine without systemd, or
//! a user without its powers, can have. It decides nothing about the run: the process it starts is `jetfault resume`.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{geteuid, setsid};

use super::unit::BOOTED;
use crate::model::evidence::Fact;
use crate::model::ids::RunId;
use crate::perform::host::{Sysroot, run_briefly};

/// The name under which the binary is the process in the middle, which leaves the session and is not waited for.
pub const DETACH_SUBCOMMAND: &str = "__detach";

/// The file in a run's directory that keeps what a detached harness says, where systemd does not keep it.
const LOG: &str = "detached.log";

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

#[cfg(test)]
mod tests {
    use super::*;

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
