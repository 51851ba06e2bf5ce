//! What this machine is: boot id, clocks, identity, and what it says about the end of the boot before.
//!
//! Every path is joined to one root, so that a captured tree can stand in for the machine. Reads only, and nothing that
//! wakes or touches a GPU.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chrono::Utc;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sysinfo::System;

use crate::model::evidence::{Evidence, Fact, Findings};
use crate::model::ids::{BootId, ContentDigest, DeviceId};
use crate::model::units::{Now, UptimeMs, WallTime};
use crate::perform::machine::MachineError;
use crate::perform::store::read_limited;

/// The most bytes of one file that are read as an item.
const ITEM_BYTES_MAX: u64 = 64 * 1024;

/// How long a command may take before its answer is given up.
const COMMAND_PATIENCE: Duration = Duration::from_secs(10);

/// Device nodes whose presence means that a GPU may be used: Jetson's nvgpu and nvmap, and the desktop driver's.
const GPU_NODES: [&str; 4] = ["dev/nvhost-gpu", "dev/nvgpu/igpu0", "dev/nvmap", "dev/nvidiactl"];

/// Name and version of the format of `machine.json`.
pub const MACHINE_SCHEMA: &str = "jetfault.machine/1";

/// The root under which the machine is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysroot(PathBuf);

/// The machine at the beginning of a run. No serial number, address, host or user name is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// [`MACHINE_SCHEMA`].
    pub schema: String,
    /// The machine's name here.
    pub device: DeviceId,
    /// The model that the device tree or the firmware tells.
    pub model: Fact<String>,
    /// Kernel release.
    pub kernel: Fact<String>,
    /// Distribution.
    pub os: Fact<String>,
    /// Jetson Linux release, from `/etc/nv_tegra_release`.
    pub l4t: Fact<String>,
    /// Processor architecture of the harness.
    pub architecture: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// Whether a GPU's device nodes are there.
    pub gpu_nodes: bool,
    /// Version of the harness.
    pub tool: String,
    /// Digest of the harness binary.
    pub binary: ContentDigest,
}

impl Sysroot {
    /// The machine under `root`; `/` for this one.
    pub fn new(root: PathBuf) -> Self {
        Self(root)
    }

    /// Whether it is this machine and not a captured one.
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where `relative` is under this root.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// The boot that is up.
    ///
    /// # Errors
    /// If the id cannot be read or makes no sense: then no reboot could ever be told from a restart of the harness.
    pub fn boot_id(&self) -> Result<BootId, MachineError> {
        let path = self.path("proc/sys/kernel/random/boot_id");
        let read = read_limited(&path, ITEM_BYTES_MAX).and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.parse().map_err(|error: crate::model::ids::IdError| io::Error::other(error.to_string()))
        });
        read.map_err(|source| MachineError::new(format!("read the boot id from {}", path.display()), source))
    }

    /// The text of a file, trimmed.
    pub fn text(&self, relative: &str) -> Fact<String> {
        match read_limited(&self.path(relative), ITEM_BYTES_MAX) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Fact::Known(text.trim_matches(['\n', '\0', ' ']).to_owned()),
                Err(error) => Fact::Garbled(error.to_string()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Fact::Absent,
            Err(error) => Fact::Denied(error.to_string()),
        }
    }

    /// Whether a GPU may be used on this machine.
    pub fn has_gpu_nodes(&self) -> bool {
        GPU_NODES.iter().any(|node| self.path(node).exists())
    }

    /// The machine's id: `name` if one was given, else derived from `/etc/machine-id`.
    pub fn device(&self, name: Option<&DeviceId>) -> DeviceId {
        match (name, self.text("etc/machine-id")) {
            (Some(name), _) => name.clone(),
            (None, Fact::Known(id)) => DeviceId::of_machine(&id),
            (None, Fact::Absent | Fact::Denied(_) | Fact::Garbled(_)) => DeviceId::of_machine(""),
        }
    }

    /// What machine this is.
    pub fn facts(&self, device: DeviceId, binary: ContentDigest) -> MachineFacts {
        let mut system = System::new();
        system.refresh_memory();
        let model = match self.text("proc/device-tree/model") {
            Fact::Absent => self.text("sys/class/dmi/id/product_name"),
            model => model,
        };
        MachineFacts {
            schema: MACHINE_SCHEMA.to_owned(),
            device,
            model,
            kernel: self.text("proc/sys/kernel/osrelease"),
            os: self.os_name(),
            l4t: self.text("etc/nv_tegra_release"),
            architecture: std::env::consts::ARCH.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: system.total_memory(),
            swap_bytes: system.total_swap(),
            gpu_nodes: self.has_gpu_nodes(),
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            binary,
        }
    }

    fn os_name(&self) -> Fact<String> {
        match self.text("etc/os-release") {
            Fact::Known(text) => {
                let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
                name.map_or(Fact::Absent, |name| Fact::Known(name.trim_matches('"').to_owned()))
            }
            unknown => unknown,
        }
    }

    /// What the machine says about the end of the boot before.
    ///
    /// # Errors
    /// If even the boot id cannot be read.
    pub fn capture(&self) -> Result<Evidence, MachineError> {
        let mut items = BTreeMap::new();
        for (name, path) in [
            ("kernel", "proc/sys/kernel/osrelease"),
            ("uptime", "proc/uptime"),
            ("panic", "proc/sys/kernel/panic"),
            ("panic_on_oops", "proc/sys/kernel/panic_on_oops"),
        ] {
            items.insert(name.to_owned(), self.text(path));
        }
        Ok(Evidence {
            boot: self.boot_id()?,
            // This build reads no more yet; a cause is never named from what was not looked at.
            findings: Findings { boots: self.boots(), ..Findings::default() },
            items,
        })
    }

    /// The boots that the system journal remembers, oldest first.
    pub(super) fn boots(&self) -> Fact<Vec<BootId>> {
        let listed = if self.is_live() {
            run_briefly("journalctl", &["--list-boots", "--no-pager"], COMMAND_PATIENCE)
        } else {
            self.text("cmd/journalctl-list-boots.txt")
        };
        match listed {
            Fact::Known(text) => parse_list_boots(&text),
            Fact::Absent => Fact::Absent,
            Fact::Denied(why) => Fact::Denied(why),
            Fact::Garbled(raw) => Fact::Garbled(raw),
        }
    }
}

/// The boots in the output of `journalctl --list-boots`, with or without its header line (systemd 245 to 257).
fn parse_list_boots(text: &str) -> Fact<Vec<BootId>> {
    let mut boots = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (index, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if index == "IDX" {
            continue;
        }
        let well_formed = index.parse::<i32>().is_ok() && id.len() == 32 && id.is_ascii();
        let id = well_formed.then(|| {
            let dashed = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
            dashed.parse::<BootId>().ok()
        });
        match id.flatten() {
            Some(id) => boots.push(id),
            None => return Fact::Garbled(line.chars().take(200).collect()),
        }
    }
    if boots.is_empty() { Fact::Absent } else { Fact::Known(boots) }
}

/// The standard output of a command that must answer within `patience`.
pub(super) fn run_briefly(program: &str, args: &[&str], patience: Duration) -> Fact<String> {
    let child =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Fact::Absent,
        Err(error) => return Fact::Denied(error.to_string()),
    };
    let until = Instant::now() + patience;
    let mut output = child.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(&mut output, ITEM_BYTES_MAX), &mut text).map(|_| text)
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                // It may have ended in between; either way it is waited for, so that it leaves nothing behind.
                let _ = child.kill();
                let _ = child.wait();
                return Fact::Denied(format!("{program} did not answer within {} s", patience.as_secs()));
            }
        }
    };
    match reader.join().expect("reading does not panic") {
        Ok(text) if status.success() => Fact::Known(String::from_utf8_lossy(&text).into_owned()),
        Ok(_) => Fact::Denied(format!("{program}: {status}")),
        Err(error) => Fact::Denied(error.to_string()),
    }
}

/// Both clocks.
pub fn now() -> Now {
    let boottime = clock_gettime(ClockId::Boottime);
    let ms = boottime.tv_sec as u64 * 1000 + boottime.tv_nsec as u64 / 1_000_000;
    Now { uptime_ms: UptimeMs(ms), wall: WallTime(Utc::now()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_are_read_with_and_without_a_header() {
        let old = "-1 1f06b7399e6f4d8eb4cd0d9449a8b993 Sat 2026-05-02 10:00:00 UTC—Sat 2026-05-02 10:05:00 UTC\n\
                    0 2f06b7399e6f4d8eb4cd0d9449a8b993 Sat 2026-05-02 10:06:00 UTC—Sat 2026-05-02 10:09:00 UTC\n";
        let new = format!("IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY\n{old}");
        let boots = parse_list_boots(old);
        assert_eq!(boots.known().map(Vec::len), Some(2));
        assert_eq!(boots, parse_list_boots(&new));
        assert_eq!(parse_list_boots(""), Fact::Absent);
        assert!(matches!(parse_list_boots("No journal files were found."), Fact::Garbled(_)));
    }
}
