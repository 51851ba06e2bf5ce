//! The unit of systemd that carries a run on after each boot, and the line that tells whoever logs in.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};

use super::KERNEL_WORD;
use crate::model::ids::RunId;
use crate::perform::files::{make_dir_durably, sync_dir, write_durably};
use crate::perform::host::{Sysroot, run_briefly};
use crate::perform::machine::MachineError;

/// The name of the unit.
const UNIT: &str = "jetfault.service";

/// Where units of the machine's administrator are (systemd.unit(5)).
const UNITS: &str = "etc/systemd/system";

/// The target that a unit joins to be started at a boot.
const WANTS: &str = "multi-user.target.wants";

/// Where lines for people who log in are (pam_motd(8)).
const MOTD_DIR: &str = "etc/motd.d";

/// Our line there.
const MOTD: &str = "50-jetfault";

/// Where systemd says that it runs this machine (sd_booted(3)).
pub(super) const BOOTED: &str = "run/systemd/system";

/// What a unit file of ours begins with, before the directory of its run.
const HEADER: &str = "# Written by `jetfault arm` for the run in ";

/// How long systemctl may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the unit does.
#[derive(Debug, Clone)]
pub struct Unit<'a> {
    /// The binary.
    pub harness: &'a Path,
    /// The run.
    pub run: &'a RunId,
    /// Its directory.
    pub run_dir: &'a Path,
    /// The root of the machine, where it is another one's tree.
    pub sysroot: &'a Sysroot,
    /// The delay before the first trial of a boot, in seconds.
    pub delay_s: u64,
    /// Where the unit is installed, if not where systemd looks first.
    pub unit_dir: Option<&'a Path>,
}

impl Unit<'_> {
    /// The text of the unit.
    ///
    /// The power mode, the crash log and the boot loader's counters are set up first, and nothing graphical is waited
    /// for. A workload inherits what the unit is forbidden, so that is only what no workload does.
    pub fn text(&self) -> String {
        let Self { harness, run, run_dir, sysroot, delay_s, unit_dir } = self;
        let option = |name: &str, path: &Path| format!(" {name} {}", quoted(&path.to_string_lossy()));
        let tree = match sysroot.is_live() {
            true => String::new(),
            false => option("--sysroot", &sysroot.place("")),
        };
        let units = unit_dir.map_or_else(String::new, |dir| option("--unit-dir", dir));
        let harness = quoted(&harness.to_string_lossy());
        let dir = run_dir.to_string_lossy();
        let path = quoted(&dir);
        format!(
            "{HEADER}{dir}\n\
             # It is removed when the run ends or rests. By hand: jetfault stop, jetfault disarm, a file STOP in the\n\
             # directory above, or the word {KERNEL_WORD} on the kernel's command line.\n\
             \n\
             [Unit]\n\
             Description=jetfault carries on the run {run}\n\
             After=nvpmodel.service nvramoopsconfig.service nv-l4t-bootloader-config.service\n\
             RequiresMountsFor={path}\n\
             ConditionKernelCommandLine=!{KERNEL_WORD}\n\
             StartLimitIntervalSec=1h\n\
             StartLimitBurst=5\n\
             \n\
             [Service]\n\
             Type=exec\n\
             ExecStart={harness}{tree} resume {path} --at-boot --boot-delay {delay_s}{units}\n\
             # 1 and 3 are results. After a matrix or binary that is not the run's (2), a machine that is not fit (4) or\n\
             # a damaged journal (6) another attempt changes nothing.\n\
             SuccessExitStatus=1 3\n\
             RestartPreventExitStatus=2 4 6\n\
             Restart=on-failure\n\
             RestartSec=10s\n\
             KillMode=mixed\n\
             TimeoutStopSec=90s\n\
             Delegate=yes\n\
             KeyringMode=private\n\
             ProtectHostname=yes\n\
             RestrictSUIDSGID=yes\n\
             \n\
             [Install]\n\
             WantedBy=multi-user.target\n"
        )
    }
}

/// A word of a command line as systemd reads it (systemd.service(5), "Command lines").
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

/// Why a unit cannot be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// The directory of units is not there.
    #[error("no directory of systemd's units: {}", .0.display())]
    NoDir(PathBuf),
    /// It may not be written.
    #[error("{} may not be written by this user: arming takes root", .0.display())]
    NotRoot(PathBuf),
    /// Systemd does not run this machine.
    #[error("systemd does not run this machine, and so it starts nothing at a boot")]
    NoSystemd,
    /// The machine is armed for another run.
    #[error("this machine is armed for another run: {}", .0.display())]
    Other(PathBuf),
    /// A unit of that name that is not ours.
    #[error("{} was not written by jetfault", .0.display())]
    NotOurs(PathBuf),
    /// An effect failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// The directory in which the unit is installed.
#[derive(Debug, Clone)]
pub struct UnitDir {
    path: PathBuf,
    /// Where our line for people who log in is, if the machine has such lines.
    motd: Option<PathBuf>,
    /// Whether the systemd of this machine reads it.
    is_live: bool,
    is_booted: bool,
}

impl UnitDir {
    /// `chosen`, or that of the machine under `sysroot`.
    pub fn new(sysroot: &Sysroot, chosen: Option<&Path>) -> Self {
        let motd = Some(sysroot.place(MOTD_DIR)).filter(|dir| chosen.is_none() && dir.is_dir());
        Self {
            path: chosen.map_or_else(|| sysroot.place(UNITS), Path::to_path_buf),
            motd: motd.map(|dir| dir.join(MOTD)),
            is_live: chosen.is_none() && sysroot.is_live(),
            is_booted: chosen.is_some() || !sysroot.is_live() || sysroot.exists(BOOTED),
        }
    }

    fn unit(&self) -> PathBuf {
        self.path.join(UNIT)
    }

    fn link(&self) -> PathBuf {
        self.path.join(WANTS).join(UNIT)
    }

    /// Whether a unit can be installed here for the run in `run_dir`; asked before anything is changed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self, run_dir: Option<&Path>) -> Result<(), UnitError> {
        if !self.path.is_dir() {
            return Err(UnitError::NoDir(self.path.clone()));
        }
        match access(&self.path, Access::WRITE_OK).map_err(io::Error::from) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(UnitError::NotRoot(self.path.clone()));
            }
            Err(error) => return Err(MachineError::new(format!("write to {}", self.path.display()), error).into()),
            Ok(()) => {}
        }
        if !self.is_booted {
            return Err(UnitError::NoSystemd);
        }
        match (self.armed_for()?, run_dir) {
            (Some(other), Some(run_dir)) if other != run_dir => Err(UnitError::Other(other)),
            (Some(_), None) | (Some(_) | None, _) => Ok(()),
        }
    }

    /// The directory of the run that the machine is armed for.
    ///
    /// # Errors
    /// If the unit of that name is not ours, or cannot be read.
    pub fn armed_for(&self) -> Result<Option<PathBuf>, UnitError> {
        let text = match fs::read_to_string(self.unit()) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(MachineError::new(format!("read {}", self.unit().display()), error).into()),
        };
        let dir = text.lines().next().and_then(|line| line.strip_prefix(HEADER));
        dir.map(|dir| Some(PathBuf::from(dir))).ok_or_else(|| UnitError::NotOurs(self.unit()))
    }

    /// Whether the machine is armed for the run in `run_dir`.
    pub fn is_armed_for(&self, run_dir: &Path) -> bool {
        self.armed_for().ok().flatten().is_some_and(|dir| dir == run_dir)
    }

    /// Installs `unit`, durably, so that the next boot starts it.
    ///
    /// # Errors
    /// See [`UnitDir::check`], or if a write fails; the machine is then armed as before, or not.
    pub fn arm(&self, unit: &Unit<'_>) -> Result<(), UnitError> {
        self.check(Some(unit.run_dir))?;
        write_durably(&self.unit(), unit.text().as_bytes())?;
        let link = self.link();
        let wants = self.path.join(WANTS);
        make_dir_durably(&wants)?;
        match symlink(Path::new("..").join(UNIT), &link) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(MachineError::new(format!("link {}", link.display()), error).into());
            }
            Err(_) | Ok(()) => sync_dir(&wants)?,
        }
        if let Some(motd) = &self.motd {
            let words = format!(
                "jetfault carries on {} and may reboot this machine at any time: `jetfault status`, `jetfault stop`.\n",
                unit.run
            );
            write_durably(motd, words.as_bytes())?;
        }
        self.reload();
        Ok(())
    }

    /// Removes the unit, durably; says whether there was one.
    ///
    /// # Errors
    /// If it is not ours, or cannot be removed.
    pub fn disarm(&self) -> Result<bool, UnitError> {
        let was_armed = self.armed_for()?.is_some();
        let files = [Some(self.link()), self.motd.clone(), Some(self.unit())];
        for file in files.into_iter().flatten() {
            match fs::remove_file(&file) {
                Ok(()) => sync_dir(file.parent().unwrap_or(Path::new("/")))?,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(UnitError::NotRoot(file)),
                Err(error) => return Err(MachineError::new(format!("remove {}", file.display()), error).into()),
            }
        }
        if was_armed {
            self.reload();
        }
        Ok(was_armed)
    }

    /// Starts the unit now; says whether this machine's systemd could be asked to.
    ///
    /// # Errors
    /// In words, if systemd refuses.
    pub fn start(&self) -> Result<bool, String> {
        if !self.is_live {
            return Ok(false);
        }
        systemctl(&["start", "--no-block", UNIT]).map(|()| true)
    }

    /// Tells systemd of the change. The next boot reads the files whether or not it heard.
    fn reload(&self) {
        if self.is_live
            && let Err(why) = systemctl(&["daemon-reload"])
        {
            tracing::warn!("systemctl daemon-reload: {why}");
        }
    }
}

fn systemctl(args: &[&str]) -> Result<(), String> {
    use crate::model::evidence::Fact;
    match run_briefly("systemctl", args, PATIENCE) {
        Fact::Known(_) => Ok(()),
        Fact::Absent => Err("systemctl is not there".to_owned()),
        Fact::Denied(why) | Fact::Garbled(why) => Err(why),
    }
}
