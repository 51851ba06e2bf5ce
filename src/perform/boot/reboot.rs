//! How a boot is ended: by systemd, a command, power off and the clock, a hook that cuts the power, or somebody else.
//!
//! Whoever calls this has declared the reboot, durably. A machine that does not go down in time is an error and no
//! second try: what keeps it up may be a person.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use crate::model::board::{Board, RebootBy};
use crate::model::evidence::Fact;
use crate::model::ids::BootId;
use crate::model::quantity::Millis;
use crate::perform::host::{Command, Keep, Limit, Sysroot, TEXT_BYTES_MAX, ask};
use crate::perform::machine::MachineError;

/// How long a command that only asks for a reboot may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether the boot is over, or whether we were asked to end.
const PERIOD: Duration = Duration::from_millis(100);

/// The alarm of the real-time clock (Documentation/admin-guide/rtc.rst).
const WAKE_ALARM: &str = "sys/class/rtc/rtc0/wakealarm";

/// What ends boots of one board.
#[derive(Debug, Clone)]
pub struct Rebooter {
    board: Board,
    by: RebootBy,
}

impl Rebooter {
    /// As `board` says; where it is a person who reboots, nothing is done but to say so.
    pub fn new(board: Board, by: RebootBy) -> Self {
        Self { board, by }
    }

    /// Who reboots.
    pub fn by(&self) -> RebootBy {
        self.by
    }

    /// Ends boot `here` of the machine under `sysroot`, and waits until it is over or `is_asked_to_end` says that
    /// somebody wants this process gone, which is how a shutdown begins.
    ///
    /// # Errors
    /// If what is to end it fails, or it is not over in time.
    pub fn end(
        &self,
        sysroot: &Sysroot,
        here: &BootId,
        is_asked_to_end: impl Fn() -> bool,
    ) -> Result<(), MachineError> {
        if self.by == RebootBy::Person {
            return Ok(());
        }
        // Other file systems than that of the results may have what the next boot needs.
        rustix::fs::sync();
        match self.by {
            RebootBy::Systemctl => command(&["systemctl", "reboot"], PATIENCE),
            RebootBy::Command => command(&words(&self.board.reboot.command), PATIENCE),
            RebootBy::PowerOff => {
                set_alarm(sysroot, self.board.reboot.off_for)?;
                command(&["systemctl", "poweroff"], PATIENCE)
            }
            RebootBy::Hook => self.cut_power(),
            RebootBy::Elsewhere | RebootBy::Person => Ok(()),
        }?;
        self.await_end(sysroot, here, is_asked_to_end)
    }

    /// Whether the power can be cut, where another method did not end the boot.
    pub fn can_cut_power(&self) -> bool {
        !self.board.power.cycle.is_empty() && !matches!(self.by, RebootBy::Hook | RebootBy::Person)
    }

    /// Cuts the power by the board's hook.
    ///
    /// # Errors
    /// If the hook fails.
    pub fn cut_power(&self) -> Result<(), MachineError> {
        command(&words(&self.board.power.cycle), self.board.power.timeout.to_duration())
    }

    /// Waits for the end of a boot that was asked for.
    ///
    /// # Errors
    /// If it does not come in time.
    pub fn await_end(
        &self,
        sysroot: &Sysroot,
        here: &BootId,
        is_asked_to_end: impl Fn() -> bool,
    ) -> Result<(), MachineError> {
        let patience = self.board.reboot.patience;
        let until = Instant::now() + patience.to_duration();
        // Only a tree that stands in for a machine lives on in its next boot.
        let is_over = || sysroot.boot_id().is_ok_and(|boot| boot != *here);
        while Instant::now() < until {
            if is_asked_to_end() || is_over() {
                return Ok(());
            }
            std::thread::sleep(PERIOD);
        }
        let what = format!("reboot by {}: the machine is still up {patience} after it was asked to", self.by);
        Err(MachineError::new(what, ErrorKind::TimedOut.into()))
    }
}

fn words(argv: &[String]) -> Vec<&str> {
    argv.iter().map(String::as_str).collect()
}

/// Runs a command that must succeed in time.
fn command(argv: &[&str], patience: Duration) -> Result<(), MachineError> {
    let limit = Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start };
    let what = || format!("reboot by `{}`", argv.join(" "));
    let answer =
        ask(&Command { file: "reboot", argv, patience, limit }).map_err(|source| MachineError::new(what(), source))?;
    if answer.status.success() {
        return Ok(());
    }
    let words = answer.complaint.lines().next().unwrap_or("it said nothing").to_owned();
    Err(MachineError::new(what(), io::Error::other(format!("{words} ({})", answer.status))))
}

/// Sets the alarm that switches the board on again, and reads it back: without it the board would stay off.
fn set_alarm(sysroot: &Sysroot, off_for: Millis) -> Result<(), MachineError> {
    let path = sysroot.place(WAKE_ALARM);
    let what = || format!("set the alarm that switches this board on again ({})", path.display());
    // An alarm that is set already is refused; 0 clears it.
    let set = ["0", &format!("+{}", off_for.ms().div_ceil(1000))];
    for text in set {
        sysroot.write_attribute(WAKE_ALARM, text).map_err(|source| MachineError::new(what(), source))?;
    }
    match sysroot.text(WAKE_ALARM) {
        Fact::Known(alarm) if !alarm.is_empty() && alarm != "0" => Ok(()),
        Fact::Known(_) => Err(MachineError::new(what(), io::Error::other("it took no alarm"))),
        Fact::Absent => Err(MachineError::new(what(), ErrorKind::NotFound.into())),
        Fact::Denied(why) | Fact::Garbled(why) => Err(MachineError::new(what(), io::Error::other(why))),
    }
}
