//! Settings: one full assignment of levels, typed, with shapes and placeholders resolved.
//!
//! This is what a trial is given and what a cell's identity is a hash of. It owns the types and the canonical
//! form, and must not know how a matrix spells them or which machine will perform them.
//!
//! **Identity.** [`Settings::cell_id`] hashes the canonical JSON: keys sorted, every field that holds its tool
//! default left out, [`Watch`] left out. So a new axis changes no old id, and neither does a longer time-out or
//! a better stage pattern, because they change how a trial is watched and not what it does. Oracles (`artifacts`,
//! `expect_output`, `loads`) are part of the identity: they decide what a pass means. JSON keys are sorted
//! because the fields of these structs are declared in alphabetical order, which a test checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::CellId;
use super::quantity::{Bytes, Limit, Millis};
use super::template::Template;
use super::words::words;

mod command;
mod companion;
mod dimensions;
mod limits;
mod linear4bit;
mod server;

pub use command::{CommandSettings, Keep, Metric, NumberRange, OutputKind, OutputOracle, StagePattern};
pub use companion::{Companion, CompanionLoad, CompanionProgram, CompanionWhen};
pub use dimensions::{Batch, Blocksize, DimensionError, Shape};
pub use limits::{Resource, ResourceLimits};
pub use linear4bit::{
    AllocatorKind, Backend, Check, FloatType, Gc, Hygiene, HygieneStep, Init, KernelSet, Layer, Linear4bitSettings,
    Passage, QuantType, StackSettings, Storage, StreamKind, WARMUP_SIDE_MAX, WarmupShape,
};
pub use server::{REQUESTS_MAX, Ready, Server};

/// The canonical settings of a cell, and how it is watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Whether the kernel places the trial's memory at random addresses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub aslr: Aslr,
    /// Host memory held by another process while the trial runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ballast: Bytes,
    /// How far a stage record is awaited.
    #[serde(default, skip_serializing_if = "is_default")]
    pub breadcrumbs: Breadcrumbs,
    /// Clocks held, or left alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub clocks: Clocks,
    /// Which machine code the driver may use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub code: Code,
    /// How the boot of a cold trial comes about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cold_from: ColdFrom,
    /// Another program that runs before, beside or after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub companion: Option<Companion>,
    /// The CPUs the trial may use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpus: Cpus,
    /// Whether clean page cache is dropped before the trial.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drop_caches: bool,
    /// Changes to the environment, in the order in which they are applied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Vec<EnvOp>>,
    /// Idle time between two iterations.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gap: Millis,
    /// Runtime power management of the GPU.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_pm: GpuPm,
    /// Which executable or library is under test: a revision, a version or a path; empty for the one that is there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// How often the workload is repeated inside one trial.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub iterations: u32,
    /// Whether the driver's JIT cache is the user's or a fresh one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jit_cache: JitCache,
    /// Limits of the trial's resources, where they differ from the invoker's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ResourceLimits,
    /// The limit of the trial's cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<Bytes>,
    /// When the driver loads kernels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub module_loading: ModuleLoading,
    /// What watches the process from inside its machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observer: Observer,
    /// The nvpmodel name or id; `None` leaves the mode alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<String>,
    /// How much of the page cache is filled with files before the trial.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prefill_cache: Bytes,
    /// What runs in an earlier process of the same boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prelude: Option<Prelude>,
    /// The start state that is asked for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Start,
    /// Swap, as it is or changed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swap: Swap,
    /// Whether telemetry is sampled while the trial runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub telemetry: Telemetry,
    /// How the trial is watched; not part of the identity.
    #[serde(default, skip_serializing_if = "is_default")]
    pub watch: Watch,
    /// What runs.
    pub workload: WorkloadSettings,
}

/// What runs in a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadSettings {
    /// The user's program.
    Command(CommandSettings),
    /// A sequence of 4-bit linear layers, each constructed and run before the next.
    Linear4bit(Linear4bitSettings),
    /// A model's worth of 4-bit linear layers, all alive at once.
    Stack(StackSettings),
}

/// How a trial is watched: what may change without making it another cell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Which artifacts are kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep: Keep,
    /// Figures read from the output of a command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// How long what makes `{prepared.dir}` may take; an hour if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_timeout: Option<Limit>,
    /// How long a server may take until it is ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready_timeout: Limit,
    /// How long a request to a server may take.
    #[serde(default, skip_serializing_if = "is_default")]
    pub request_timeout: Limit,
    /// How long the machine is watched after the child ended, still on the trial's account; see [`Watch::settle_on`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Millis>,
    /// No output of a command for so long is a hang.
    #[serde(default, skip_serializing_if = "is_default")]
    pub silence_timeout: Limit,
    /// No change of stage for so long is a hang.
    pub stage_timeout: Limit,
    /// The stages of a command, in order; a worker reports its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StagePattern>,
    /// The deadline of the whole trial.
    pub timeout: Limit,
}

/// How long the machine is watched by default after a trial that used a GPU: faults there surface late.
pub const SETTLE_GPU: Millis = Millis::from_secs(10);

/// How long the machine is watched by default after a trial that used none.
pub const SETTLE_CPU: Millis = Millis::from_secs(2);

impl Watch {
    /// The settling time: the matrix's, else the default for a trial that used a GPU or did not.
    pub fn settle_on(&self, device: Backend) -> Millis {
        match (self.settle, device) {
            (Some(settle), Backend::Auto | Backend::Cuda | Backend::Cpu) => settle,
            (None, Backend::Auto | Backend::Cuda) => SETTLE_GPU,
            (None, Backend::Cpu) => SETTLE_CPU,
        }
    }
}

impl Settings {
    /// The settings of `workload` with every axis at the tool's default and nothing watched.
    pub fn of(workload: WorkloadSettings) -> Self {
        Self {
            aslr: Aslr::default(),
            ballast: Bytes::default(),
            breadcrumbs: Breadcrumbs::default(),
            clocks: Clocks::default(),
            code: Code::default(),
            cold_from: ColdFrom::default(),
            companion: None,
            cpus: Cpus::default(),
            drop_caches: false,
            env: BTreeMap::new(),
            gap: Millis::default(),
            gpu_pm: GpuPm::default(),
            identity: String::new(),
            iterations: 1,
            jit_cache: JitCache::default(),
            limits: ResourceLimits::default(),
            memory_max: None,
            module_loading: ModuleLoading::default(),
            observer: Observer::default(),
            power_mode: None,
            prefill_cache: Bytes::default(),
            prelude: None,
            start: Start::default(),
            swap: Swap::default(),
            telemetry: Telemetry::default(),
            watch: Watch::default(),
            workload,
        }
    }

    /// The canonical JSON that the identity is a hash of.
    pub fn canonical_json(&self) -> Vec<u8> {
        let mut identity = self.clone();
        identity.watch = Watch::default();
        serde_json::to_vec(&identity).expect("settings have string keys and finite numbers")
    }

    /// The id of the cell with these settings; the same as [`Settings::cell_id`] without a copy, for plans of many cells.
    pub fn identify(&mut self) -> CellId {
        let watch = std::mem::take(&mut self.watch);
        let id = CellId::of(&serde_json::to_vec(self).expect("settings have string keys and finite numbers"));
        self.watch = watch;
        id
    }

    /// The id of the cell with these settings.
    pub fn cell_id(&self) -> CellId {
        CellId::of(&self.canonical_json())
    }

    /// The cell whose artifacts this one works with.
    pub fn needs(&self) -> Option<&CellId> {
        match &self.workload {
            WorkloadSettings::Command(command) => command.needs.as_ref(),
            WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => None,
        }
    }

    /// The 4-bit settings, for the two workloads that have them.
    pub fn linear4bit(&self) -> Option<&Linear4bitSettings> {
        match &self.workload {
            WorkloadSettings::Linear4bit(linear4bit) => Some(linear4bit),
            WorkloadSettings::Stack(stack) => Some(&stack.block),
            WorkloadSettings::Command(_) => None,
        }
    }
}

/// One change to one variable of the environment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvOp {
    /// Adds flags to the end of the value, after one space if there is a value already.
    Append(Template),
    /// Takes one flag out of a value that is a list of flags separated by spaces.
    Remove(Template),
    /// Replaces the value.
    Set(Template),
    /// Removes the variable.
    Unset,
}

/// The CPUs a trial may use, as ranges.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Cpus {
    /// Every CPU the user may use.
    #[default]
    All,
    /// These CPUs, as inclusive ranges in ascending order.
    Only(Vec<(u32, u32)>),
}

/// The highest CPU number a matrix may name.
pub const CPU_MAX: u32 = 1023;

impl std::str::FromStr for Cpus {
    type Err = super::quantity::QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || super::quantity::QuantityError {
            what: "list of CPUs",
            expected: "\"all\" or ascending numbers and ranges up to 1023, such as \"0-3,5\"",
            text: text.chars().take(64).collect(),
        };
        if text == "all" {
            return Ok(Self::All);
        }
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| error())?;
            let last: u32 = last.parse().map_err(|_| error())?;
            let ascending = ranges.last().is_none_or(|previous| previous.1 < first);
            if !ascending || first > last || last > CPU_MAX {
                return Err(error());
            }
            ranges.push((first, last));
        }
        Ok(Self::Only(ranges))
    }
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ranges = match self {
            Self::All => return f.pad("all"),
            Self::Only(ranges) => ranges,
        };
        let parts: Vec<String> =
            ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
        f.pad(&parts.join(","))
    }
}

impl From<Cpus> for String {
    fn from(value: Cpus) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for Cpus {
    type Error = super::quantity::QuantityError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// What runs in an earlier process of the same boot, before the trial and as part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prelude {
    /// A command.
    Command(Vec<Template>),
    /// One small 4-bit layer in the tool's own worker.
    Forward(WarmupShape),
}

/// GPU and CPU clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clocks {
    /// Left alone.
    #[default]
    Kept,
    /// Locked at the maximum of the power mode, as jetson_clocks does.
    Max,
    /// The GPU held at or below this many megahertz.
    GpuMhz(u32),
}

words! {
    /// The start state that is asked for.
    #[derive(Default)]
    Start {
        /// Whatever it is; recorded, not arranged.
        #[default]
        Any = "any",
        /// No compute client in this boot before this trial.
        Cold = "cold",
        /// A finished, recorded GPU trial came before it in this boot.
        Warm = "warm",
    }
}

words! {
    /// How the boot of a cold trial comes about.
    #[derive(Default)]
    ColdFrom {
        /// A planned reboot.
        #[default]
        Reboot = "reboot",
        /// The power hook of the board.
        Power = "power",
    }
}

words! {
    /// How far a stage record is awaited; observers hide races, so it is an axis.
    #[derive(Default)]
    Breadcrumbs {
        /// Written by the parent as the child reports, without making it wait.
        #[default]
        Async = "async",
        /// The child waits until the record is durable.
        Sync = "sync",
        /// The child reports no stage.
        Off = "off",
    }
}

words! {
    /// Whether the kernel places a process's memory at random addresses (personality(2), `ADDR_NO_RANDOMIZE`).
    #[derive(Default)]
    Aslr {
        /// As the system does it.
        #[default]
        Kept = "kept",
        /// At the same addresses in every process, so that absolute addresses may be compared.
        Off = "off",
    }
}

words! {
    /// What watches the process from inside its machine.
    #[derive(Default)]
    Observer {
        /// Nothing.
        #[default]
        None = "none",
        /// Core dumps are enabled.
        Core = "core",
        /// The process runs under gdb.
        Gdb = "gdb",
    }
}

words! {
    /// When the driver loads kernels (`CUDA_MODULE_LOADING`).
    #[derive(Default)]
    ModuleLoading {
        /// As the environment says.
        #[default]
        Kept = "kept",
        /// At first launch.
        Lazy = "lazy",
        /// At initialisation.
        Eager = "eager",
    }
}

words! {
    /// Whether the driver's JIT cache is the user's or a fresh one.
    #[derive(Default)]
    JitCache {
        /// The user's, which a reboot does not clear.
        #[default]
        Kept = "kept",
        /// An empty one for each trial.
        Fresh = "fresh",
    }
}

words! {
    /// Which machine code the driver may use.
    #[derive(Default)]
    Code {
        /// As the driver chooses.
        #[default]
        Any = "any",
        /// Only code built for this GPU.
        Cubin = "cubin",
        /// Only code compiled at load.
        Ptx = "ptx",
    }
}

words! {
    /// Runtime power management of the GPU.
    #[derive(Default)]
    GpuPm {
        /// Left alone.
        #[default]
        Kept = "kept",
        /// Held up.
        On = "on",
        /// May suspend when idle.
        Auto = "auto",
    }
}

words! {
    /// Swap, as it is or changed.
    #[derive(Default)]
    Swap {
        /// Left alone.
        #[default]
        Kept = "kept",
        /// All swap off.
        Off = "off",
        /// Only compressed memory.
        Zram = "zram",
        /// Only files or partitions.
        Disk = "disk",
    }
}

words! {
    /// Whether telemetry is sampled while the trial runs.
    #[derive(Default)]
    Telemetry {
        /// Sampled at the one cadence of the run.
        #[default]
        On = "on",
        /// Not sampled, to see whether sampling matters.
        Off = "off",
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

#[cfg(test)]
mod tests;
