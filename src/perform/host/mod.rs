//! What this machine is: boot id, clocks, identity, and whatever else is read of it.
//!
//! Every path is joined to one root and every command goes through one runner, so that a captured tree can stand in for
//! the machine. Reads only, and nothing that wakes or touches a GPU.

mod sysroot;

mod command;

mod facts;

use chrono::Utc;
use rustix::time::{ClockId, clock_gettime};

pub use command::{Command, run_briefly};
pub use facts::{MACHINE_SCHEMA, MachineFacts};
pub use sysroot::{CAPTURE_FILE, COMMANDS, Captured, Keep, Limit, Recording, Sysroot, TEXT_BYTES_MAX};

use crate::model::units::{Now, UptimeMs, WallTime};

/// Both clocks.
pub fn now() -> Now {
    let boottime = clock_gettime(ClockId::Boottime);
    let ms = boottime.tv_sec as u64 * 1000 + boottime.tv_nsec as u64 / 1_000_000;
    Now { uptime_ms: UptimeMs(ms), wall: WallTime(Utc::now()) }
}
