//! What this machine is: boot id, clocks, identity, and whatever else is read of it.
//!
//! Every path is joined to one root and every command goes through one runner, so that a captured tree can stand in for
//! the machine. Reads only, and nothing that wakes or touches a GPU.

mod sysroot;

mod command;

mod facts;

mod clocks;

use chrono::Utc;
use rustix::time::{ClockId, clock_gettime};

pub use clocks::Clocks;
pub use command::{Answer, Command, ask, ask_and_answer, find_program, run_briefly};
pub use facts::{MACHINE_SCHEMA, MachineFacts};
pub use sysroot::{CAPTURE_FILE, COMMANDS, Captured, Keep, Limit, Recording, Sysroot, TEXT_BYTES_MAX};

use std::io;

use crate::model::evidence::Fact;
use crate::model::ids::{BootId, IdError};
use crate::model::units::{Now, UptimeMs, WallTime};
use crate::perform::machine::MachineError;

/// Both clocks.
pub fn now() -> Now {
    let boottime = clock_gettime(ClockId::Boottime);
    let ms = boottime.tv_sec as u64 * 1000 + boottime.tv_nsec as u64 / 1_000_000;
    Now { uptime_ms: UptimeMs(ms), wall: WallTime(Utc::now()) }
}

impl Sysroot {
    /// The boot that is up.
    ///
    /// # Errors
    /// If the id cannot be read or makes no sense: then no reboot could ever be told from a restart of the harness.
    pub fn boot_id(&self) -> Result<BootId, MachineError> {
        const PATH: &str = "proc/sys/kernel/random/boot_id";
        let read = match self.text(PATH) {
            Fact::Known(text) => text.parse().map_err(|error: IdError| io::Error::other(error.to_string())),
            Fact::Absent => Err(io::ErrorKind::NotFound.into()),
            Fact::Denied(why) | Fact::Garbled(why) => Err(io::Error::other(why)),
        };
        read.map_err(|source| {
            MachineError::new(format!("read the boot id from {}", self.place(PATH).display()), source)
        })
    }
}
