//! In which state a trial started: what was seen of the GPU before it, and what follows.
//!
//! Owns the words and the stored form. It reads nothing, and the rules are in [`crate::decide::start_state`].

use serde::{Deserialize, Serialize};

use super::evidence::Fact;
use super::ids::TrialId;
use super::settings::Start;
use super::words::words;

words! {
    /// How sure it is that nothing computed on the GPU in this boot before.
    ColdProof {
        /// The GPU was never initialised, or there is none.
        Proven = "proven",
        /// Nothing that was seen speaks against it.
        Consistent = "consistent",
        /// Something used it.
        Not = "not",
        /// Too little could be seen.
        Unknown = "unknown",
    }
}

words! {
    /// How the boot before this one ended.
    PriorEnd {
        /// The harness asked for it, or the system shut down in order.
        Planned = "planned",
        /// A trial took the machine down.
        Fault = "fault",
        /// The supply failed.
        Power = "power",
        /// Nothing tells.
        Unknown = "unknown",
    }
}

/// The start state of a trial, with what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartState {
    /// How sure it is that nothing computed on the GPU in this boot before.
    pub cold: ColdProof,
    /// Label of the rule that says so.
    pub rule: String,
    /// What it rests on, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
    /// The last trial of ours that computed on the GPU in this boot and passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmed_by: Option<TrialId>,
    /// Milliseconds for which the GPU was powered in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_active_ms: Option<u64>,
    /// Programs that were running and can touch the GPU: `NAME (PID)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}

impl StartState {
    /// Whether a cold trial may start in it.
    pub fn is_cold(&self) -> bool {
        match self.cold {
            ColdProof::Proven | ColdProof::Consistent => true,
            ColdProof::Not | ColdProof::Unknown => false,
        }
    }

    /// The state in one word, as conditions on `start` mean it.
    pub fn start(&self) -> Start {
        match (self.is_cold(), &self.warmed_by) {
            (true, _) => Start::Cold,
            (false, Some(_)) => Start::Warm,
            (false, None) => Start::Any,
        }
    }
}

/// Which driver the GPU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuDriver {
    /// There is no GPU.
    None,
    /// nvgpu: Jetson up to Orin.
    Nvgpu,
    /// nvidia.ko on a Jetson: Thor.
    NvidiaTegra,
    /// nvidia.ko on anything else.
    Nvidia,
}

/// Where traces of the GPU's use are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceSources {
    /// In files: it costs microseconds.
    Files,
    /// In files, and by asking a program of the driver, which may take a second.
    FilesAndPrograms,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its name, as the kernel keeps it.
    pub name: String,
    /// Its id.
    pub pid: u32,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.pid)
    }
}

/// What a machine shows of the use of its GPU in this boot, read without waking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuTraces {
    /// The driver.
    pub driver: GpuDriver,
    /// The trial of ours, of whatever run, that left its mark in this boot.
    pub marked_by: Option<String>,
    /// nvgpu: whether the golden context image was made, which the first initialisation does (`golden_img_status`).
    pub golden_image: Fact<bool>,
    /// nvgpu: whether there are device nodes beside `power`, which the first initialisation makes.
    pub all_nodes: Fact<bool>,
    /// nvgpu: milliseconds for which the GPU was powered (`power/runtime_active_time`).
    pub active_ms: Fact<u64>,
    /// nvgpu: whether it is kept powered, so that this time tells nothing (`power/control` is `on`).
    pub kept_powered: bool,
    /// nvidia.ko: whether the module without which no CUDA program runs is loaded (`nvidia_uvm`).
    pub uvm: Fact<bool>,
    /// nvidia.ko: compute clients that ended, where accounting is enabled.
    pub accounted: Fact<u32>,
    /// Processes that have a device node open.
    pub holders: Fact<Vec<Process>>,
    /// nvgpu: processes that have GPU memory (`nvmap/iovmm/clients`).
    pub clients: Fact<Vec<Process>>,
    /// Running programs that use a GPU of their own accord.
    pub users: Vec<Process>,
    /// Running programs that may let others use it, such as container engines.
    pub bystanders: Vec<Process>,
    /// Milliseconds since the machine started, if it says so.
    pub uptime_ms: Option<u64>,
}
