//! The identity of a machine: what does not change while it is up.

use std::io;

use serde::{Deserialize, Serialize};
use sysinfo::System;

use super::sysroot::Sysroot;
use crate::model::evidence::Fact;
use crate::model::ids::{BootId, ContentDigest, DeviceId, IdError};
use crate::perform::machine::MachineError;

/// Device nodes whose presence means that a GPU may be used: Jetson's nvgpu and nvmap, and the desktop driver's.
const GPU_NODES: [&str; 4] = ["dev/nvhost-gpu", "dev/nvgpu/igpu0", "dev/nvmap", "dev/nvidiactl"];

/// Name and version of the format of `machine.json`.
pub const MACHINE_SCHEMA: &str = "jetfault.machine/1";

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

    /// Whether a GPU may be used on this machine.
    pub fn has_gpu_nodes(&self) -> bool {
        GPU_NODES.iter().any(|node| self.exists(node))
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
}
