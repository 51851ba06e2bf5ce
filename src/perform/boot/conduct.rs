//! What a trial waits for in a boot that the service began: a chance to log in, people, the boot's verification.
//!
//! Reads a few small files; what follows from them is [`crate::decide::clearance`]'s.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::KERNEL_WORD;
use crate::decide::clearance::{Clearance, Login, Scene, Sshd, clearance};
use crate::model::evidence::Fact;
use crate::perform::evidence::boot_slots;
use crate::perform::files::write_replaceably;
use crate::perform::host::Sysroot;

/// Where logind keeps sessions, a file each.
const SESSIONS: &str = "run/systemd/sessions";

/// Where the server for logins is.
const SSHD: &str = "usr/sbin/sshd";

/// The kernel's tables of sockets; state `0A` is listening (`TCP_LISTEN`), port 22 is `0016`.
const SOCKETS: [&str; 2] = ["proc/net/tcp", "proc/net/tcp6"];
const LISTENING: &str = "0A";
const SSH_PORT: &str = ":0016";

/// The file in a run's directory that says why its next trial waits.
const HOLD: &str = "HOLD";

/// The file by which a person says that it may go on.
const GO: &str = "GO";

/// A boot that the service began.
#[derive(Debug)]
pub struct AtBoot {
    sysroot: Sysroot,
    run_dir: PathBuf,
    delay: Duration,
    begun: Instant,
    /// When sshd was first seen to listen.
    listening: Option<Instant>,
    /// Why the next trial waits, as it was last said.
    said: Option<String>,
}

impl AtBoot {
    /// The boot of the machine under `sysroot`, for the run in `run_dir`.
    pub fn new(sysroot: Sysroot, run_dir: PathBuf, delay: Duration) -> Self {
        // What an earlier harness left says nothing about this boot.
        let _ = fs::remove_file(run_dir.join(HOLD));
        let _ = fs::remove_file(run_dir.join(GO));
        Self { sysroot, run_dir, delay, begun: Instant::now(), listening: None, said: None }
    }

    /// Whether the next trial may start. Why it waits is told once, and kept for those who ask.
    pub fn clearance(&mut self) -> Clearance {
        let scene = self.scene();
        let clearance = clearance(&scene, ms(self.delay));
        let why = match &clearance {
            Clearance::Wait(why) => Some(why.clone()),
            Clearance::Go | Clearance::Stop(_) => None,
        };
        if why != self.said {
            match &why {
                Some(why) => {
                    tracing::warn!("waiting: {why}");
                    // A full disk is met by the next record, with its words.
                    let _ = write_replaceably(&self.run_dir.join(HOLD), why.as_bytes());
                }
                None => drop(fs::remove_file(self.run_dir.join(HOLD))),
            }
            self.said = why;
        }
        clearance
    }

    fn scene(&mut self) -> Scene {
        let sshd = match (self.sysroot.exists(SSHD), is_listening(&self.sysroot)) {
            (_, true) => Sshd::Listening(ms(self.listening.get_or_insert_with(Instant::now).elapsed())),
            (true, false) => Sshd::Starting,
            (false, false) => Sshd::None,
        };
        let low = boot_slots(&self.sysroot).low();
        Scene {
            up_ms: ms(self.begun.elapsed()),
            sshd,
            logins: logins(&self.sysroot),
            released: self.run_dir.join(GO).exists(),
            unverified: low.map(|(slot, left, most)| format!("slot {slot} has {left} of {most} tries left")),
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn is_listening(sysroot: &Sysroot) -> bool {
    let listens = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(SSH_PORT));
        local && words.nth(1) == Some(LISTENING)
    };
    SOCKETS.iter().any(|table| sysroot.text(table).known().is_some_and(|text| text.lines().any(listens)))
}

/// Sessions of logind that have a terminal: `USER=`, `TTY=`, `STATE=` among other lines.
fn logins(sysroot: &Sysroot) -> Vec<Login> {
    let names = sysroot.entries(SESSIONS);
    let names = names.known().map(Vec::as_slice).unwrap_or_default();
    let session = |name: &String| {
        let text = match sysroot.text(&format!("{SESSIONS}/{name}")) {
            Fact::Known(text) => text,
            Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => return None,
        };
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
        let terminal = value("TTY=").filter(|terminal| !terminal.is_empty())?;
        if value("STATE=").as_deref() == Some("closing") {
            return None;
        }
        let idle_ms = idle_ms(&sysroot.place(&format!("dev/{terminal}")));
        Some(Login { user: value("USER=").unwrap_or_else(|| "somebody".into()), terminal, idle_ms })
    };
    names.iter().filter_map(session).collect()
}

/// How long ago a terminal was last read or written, as w(1) tells it; 0 if it does not say.
fn idle_ms(terminal: &Path) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ms);
    let last = fs::metadata(terminal).map(|meta| meta.atime().max(meta.mtime()));
    last.map_or(0, |seconds| now.saturating_sub(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)))
}

/// Why the next trial of the run in `run_dir` waits, if a harness said so.
pub fn hold_of(run_dir: &Path) -> Option<String> {
    fs::read_to_string(run_dir.join(HOLD)).ok()
}

/// Says that the run in `run_dir` may go on, though somebody is logged in.
///
/// # Errors
/// If it cannot be written down.
pub fn release(run_dir: &Path) -> std::io::Result<()> {
    fs::write(run_dir.join(GO), b"")
}

/// Whether the kernel's command line forbids to start anything in this boot.
pub fn is_switched_off(sysroot: &Sysroot) -> bool {
    let line = sysroot.text("proc/cmdline");
    line.known().is_some_and(|line| line.split_ascii_whitespace().any(|word| word == KERNEL_WORD))
}
