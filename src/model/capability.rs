//! What a build can perform of the settings that a matrix may ask for, and in words what it cannot.
//!
//! Owns the table from settings to what they need. A trial that would silently leave out what its cell asks for would
//! be a sample of another cell, so every setting that needs something beyond the plain child process is named here.
//! It does not look at the machine: whether a CPU or a permission is there is found out when a trial starts.

use super::linear4bit_program::LAYERS_MAX;
use super::settings::{
    AllocatorKind, Backend, Clocks, ColdFrom, CommandSettings, Companion, EnvOp, GpuPm, Init, KernelSet, Layer,
    Linear4bitSettings, Observer, OutputOracle, Prelude, QuantType, Settings, Start, StreamKind, Swap, WarmupShape,
    WorkloadSettings,
};
use super::template::{RunTimeHole, Template};
use super::verdict::STAGE_BYTES_MAX;
use super::words::words;

words! {
    /// Something that a build may be able to perform.
    Capability {
        /// Memory held beside the trial.
        Ballast = "ballast",
        /// Setting clocks.
        Clocks = "clocks",
        /// Running another program beside the trial.
        Companion = "companion",
        /// The CUDA backend.
        Cuda = "cuda",
        /// Weights made on the GPU.
        DeviceInit = "device-init",
        /// Dropping the page cache.
        DropCaches = "drop-caches",
        /// Allocators that leave segments to the driver.
        DriverAllocators = "driver-allocators",
        /// Runtime power management of the GPU.
        GpuPm = "gpu-pm",
        /// Other executables, libraries and revisions than the ones that are there.
        Identity = "identity",
        /// Checking which libraries a command mapped.
        Loads = "loads",
        /// A memory limit for the trial.
        MemoryMax = "memory-max",
        /// Running a worker under a debugger.
        Debugger = "debugger",
        /// Seeing a fatal signal before the process does.
        Observer = "observer",
        /// MXFP4 and INT4.
        OtherFormats = "other-formats",
        /// Checking output by pattern, by numbers or by what it must not contain.
        OutputPatterns = "output-patterns",
        /// Switching the board's power off and on.
        PowerHook = "power-hook",
        /// Switching the power mode.
        PowerMode = "power-mode",
        /// Filling the page cache.
        PrefillCache = "prefill-cache",
        /// Something that runs in an earlier process.
        Prelude = "prelude",
        /// Running a command several times in one trial.
        RepeatedCommand = "repeated-command",
        /// A whole model's layers.
        Stack = "stack",
        /// Changing swap.
        Swap = "swap",
        /// The tool's own fast kernels.
        TunedKernels = "tuned-kernels",
        /// A warming trial before a warm one.
        WarmStart = "warm-start",
    }
}

/// What a build can perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildCapabilities(pub &'static [Capability]);

/// What this build can perform; the last of them only where revisions are prepared.
const THIS: &[Capability] = &[
    Capability::Ballast,
    Capability::Clocks,
    Capability::Companion,
    Capability::Cuda,
    Capability::DeviceInit,
    Capability::DriverAllocators,
    Capability::DropCaches,
    Capability::GpuPm,
    Capability::Loads,
    Capability::MemoryMax,
    Capability::Observer,
    Capability::OutputPatterns,
    Capability::PowerHook,
    Capability::PowerMode,
    Capability::PrefillCache,
    Capability::Prelude,
    Capability::RepeatedCommand,
    Capability::Stack,
    Capability::Swap,
    Capability::TunedKernels,
    Capability::WarmStart,
    Capability::Identity,
];

impl BuildCapabilities {
    /// This build: the CPU and NVIDIA GPUs, and settings of the machine that last for a boot.
    pub const THIS: Self = Self(THIS.split_at(THIS.len() - 1).0);

    /// This build in a search of revisions, which prepares the ones that it tests.
    pub const WITH_REVISIONS: Self = Self(THIS);

    /// Whether the build can do it.
    pub fn has(self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }
}

/// Why a build cannot perform `settings`: every reason, separated by semicolons, or `None` if it can.
///
/// # Examples
/// ```
/// use jetfault::model::capability::{BuildCapabilities, cannot};
/// use jetfault::model::settings::{Linear4bitSettings, Settings, WorkloadSettings};
/// let mut settings = Settings::of(WorkloadSettings::Linear4bit(Linear4bitSettings::of(Vec::new())));
/// assert_eq!(cannot(&settings, BuildCapabilities::THIS), None);
/// settings.observer = jetfault::model::settings::Observer::Gdb;
/// let why = cannot(&settings, BuildCapabilities::THIS).unwrap();
/// assert_eq!(why, "this build cannot run a worker of its own under a debugger (observer = \"gdb\")");
/// ```
pub fn cannot(settings: &Settings, build: BuildCapabilities) -> Option<String> {
    let mut lacking = Lacking { build, reasons: Vec::new() };
    surroundings(settings, &mut lacking);
    match &settings.workload {
        WorkloadSettings::Command(command) => command_needs(settings, command, &mut lacking),
        WorkloadSettings::Linear4bit(linear4bit) => {
            linear4bit_needs(linear4bit, &mut lacking);
            limits(settings.iterations, (&linear4bit.sequence, linear4bit.warmup), &mut lacking);
            gpu_on_a_cpu(linear4bit, &mut lacking);
        }
        WorkloadSettings::Stack(stack) => {
            lacking.needs(Capability::Stack, true, || "run a stack of layers (kind = \"stack\")".into());
            linear4bit_needs(&stack.block, &mut lacking);
            limits(settings.iterations, (&stack.all_layers(), stack.block.warmup), &mut lacking);
            gpu_on_a_cpu(&stack.block, &mut lacking);
        }
    }
    (!lacking.reasons.is_empty()).then(|| lacking.reasons.join("; "))
}

/// Which of the settings only a GPU can perform, as a matrix writes it; `None` if a CPU can perform them all.
///
/// Whether there is a GPU is found out when a trial starts: with `backend = "auto"` such a cell must not silently become
/// another one on the CPU.
pub fn needs_gpu(linear4bit: &Linear4bitSettings) -> Option<String> {
    let allocator = match linear4bit.allocator {
        AllocatorKind::Caching | AllocatorKind::Direct => None,
        kind @ (AllocatorKind::Async | AllocatorKind::Vmm) => Some(format!("allocator = \"{kind}\"")),
    };
    let init = match linear4bit.init {
        Init::Host => None,
        Init::Device => Some("init = \"device\"".to_owned()),
    };
    let kernels = match linear4bit.kernels {
        KernelSet::Bnb | KernelSet::None => None,
        KernelSet::Tuned => Some("kernels = \"tuned\"".to_owned()),
    };
    let stream = match linear4bit.stream {
        StreamKind::Legacy => None,
        StreamKind::Own => Some("stream = \"own\"".to_owned()),
    };
    let needs: Vec<String> = [allocator, init, kernels, stream].into_iter().flatten().collect();
    (!needs.is_empty()).then(|| needs.join(", "))
}

struct Lacking {
    build: BuildCapabilities,
    reasons: Vec<String>,
}

impl Lacking {
    /// If the settings are such (`asked`) and the build lacks the capability, it cannot `what`.
    fn needs(&mut self, capability: Capability, asked: bool, what: impl FnOnce() -> String) {
        if asked && !self.build.has(capability) {
            self.reasons.push(format!("this build cannot {}", what()));
        }
    }
}

/// What the machine around the child needs. Every setting is named, so that a new one is a question asked here.
fn surroundings(settings: &Settings, lacking: &mut Lacking) {
    let Settings {
        ballast,
        clocks,
        cold_from,
        companion,
        drop_caches,
        gpu_pm,
        identity,
        memory_max,
        observer,
        power_mode,
        prefill_cache,
        prelude,
        start,
        swap,
        // Performed by every build: by the parent before the child starts, or by the worker itself.
        aslr: _,
        breadcrumbs: _,
        cpus: _,
        env: _,
        gap: _,
        iterations: _,
        limits: _,
        telemetry: _,
        // Variables of the environment that a driver obeys if one is loaded, and the worker's choice of an image.
        code: _,
        jit_cache: _,
        module_loading: _,
        // Not a part of what is performed.
        watch: _,
        workload: _,
    } = settings;
    let cold = *start == Start::Cold;
    lacking.needs(Capability::PowerHook, cold && *cold_from == ColdFrom::Power, || {
        "switch the board's power (cold_from = \"power\")".into()
    });
    lacking.needs(Capability::WarmStart, *start == Start::Warm, || {
        "use a GPU in a warming trial first (start = \"warm\")".into()
    });
    lacking.needs(Capability::PowerMode, power_mode.is_some(), || {
        format!("switch the power mode (power_mode = {:?})", power_mode.as_deref().unwrap_or_default())
    });
    lacking.needs(Capability::Clocks, *clocks != Clocks::Kept, || "set clocks (clocks)".into());
    lacking.needs(Capability::GpuPm, *gpu_pm != GpuPm::Kept, || {
        format!("change the GPU's runtime power management (gpu_pm = \"{gpu_pm}\")")
    });
    lacking.needs(Capability::DropCaches, *drop_caches, || "drop the page cache (drop_caches)".into());
    lacking.needs(Capability::PrefillCache, prefill_cache.get() > 0, || {
        format!("fill the page cache (prefill_cache = \"{prefill_cache}\")")
    });
    lacking.needs(Capability::Swap, *swap != Swap::Kept, || format!("change swap (swap = \"{swap}\")"));
    lacking.needs(Capability::Ballast, ballast.get() > 0, || {
        format!("hold memory beside the trial (ballast = \"{ballast}\")")
    });
    lacking.needs(Capability::MemoryMax, memory_max.is_some(), || {
        format!("limit the trial's memory (memory_max = \"{}\")", memory_max.unwrap_or_default())
    });
    lacking.needs(Capability::Observer, *observer == Observer::Core, || {
        format!("observe the process (observer = \"{observer}\")")
    });
    // A command is an ordinary child of a debugger; a worker converses with us.
    let is_worker = !matches!(settings.workload, WorkloadSettings::Command(_));
    lacking.needs(Capability::Debugger, *observer == Observer::Gdb && is_worker, || {
        format!("run a worker of its own under a debugger (observer = \"{observer}\")")
    });
    other_programs(companion.as_ref(), prelude.as_ref(), lacking);
    lacking.needs(Capability::Identity, !identity.is_empty() || names_a_revision(settings), || {
        format!("prepare the executable or library under test (identity = {identity:?})")
    });
}

fn other_programs(companion: Option<&Companion>, prelude: Option<&Prelude>, lacking: &mut Lacking) {
    lacking.needs(Capability::Companion, companion.is_some(), || {
        let when = companion.map(|Companion { when, .. }| when.as_str()).unwrap_or_default();
        format!("run another program {when} the trial (companion)")
    });
    lacking.needs(Capability::Prelude, prelude.is_some(), || match prelude {
        Some(Prelude::Forward(shape)) => format!("run a layer of {shape} in an earlier process (prelude)"),
        Some(Prelude::Command(_)) | None => "run a command before the trial (prelude)".into(),
    });
}

fn command_needs(settings: &Settings, command: &CommandSettings, lacking: &mut Lacking) {
    let CommandSettings {
        expect_output,
        loads,
        argv: _,
        artifacts: _,
        cwd: _,
        exit_codes: _,
        needs: _,
        output: _,
        prepare: _,
        server: _,
    } = command;
    let OutputOracle { contains: _, lacks, numbers, regex } = expect_output;
    let has_patterns = lacks.is_some() || regex.is_some() || !numbers.is_empty();
    lacking.needs(Capability::Loads, !loads.is_empty(), || "check which libraries a command maps (loads)".into());
    lacking.needs(Capability::OutputPatterns, has_patterns, || {
        "check what output must match or must not contain (expect_output)".into()
    });
    lacking.needs(Capability::RepeatedCommand, settings.iterations > 1, || {
        format!("run a command {} times in one trial (iterations)", settings.iterations)
    });
}

fn linear4bit_needs(linear4bit: &Linear4bitSettings, lacking: &mut Lacking) {
    let Linear4bitSettings {
        allocator,
        backend,
        init,
        kernels,
        quant,
        batch: _,
        blocksize: _,
        check: _,
        compute: _,
        double_quant: _,
        gc: _,
        hygiene: _,
        hygiene_steps: _,
        init_threads: _,
        input: _,
        passage: _,
        sequence: _,
        storage: _,
        stream: _,
        warmup: _,
    } = linear4bit;
    lacking
        .needs(Capability::Cuda, *backend == Backend::Cuda, || "use a GPU: it has no CUDA (backend = \"cuda\")".into());
    let is_driver_allocator = match allocator {
        AllocatorKind::Caching | AllocatorKind::Direct => false,
        AllocatorKind::Async | AllocatorKind::Vmm => true,
    };
    lacking.needs(Capability::DriverAllocators, is_driver_allocator, || {
        format!("emulate memory that only a driver places (allocator = \"{allocator}\")")
    });
    lacking.needs(Capability::DeviceInit, *init == Init::Device, || "make weights on a GPU (init = \"device\")".into());
    lacking.needs(Capability::TunedKernels, *kernels == KernelSet::Tuned, || {
        "run the tuned kernels, which are for GPUs (kernels = \"tuned\")".into()
    });
    let is_other_format = match quant {
        QuantType::Nf4 | QuantType::Fp4 | QuantType::Nvfp4 => false,
        QuantType::Mxfp4 | QuantType::Int4 => true,
    };
    lacking.needs(Capability::OtherFormats, is_other_format, || format!("quantise to {quant} (quant)"));
}

/// What no build can: a GPU's work without one.
fn gpu_on_a_cpu(linear4bit: &Linear4bitSettings, lacking: &mut Lacking) {
    match (linear4bit.backend, needs_gpu(linear4bit)) {
        (Backend::Cpu, Some(what)) => lacking.reasons.push(format!("{what} needs a GPU, and backend = \"cpu\"")),
        (Backend::Cpu | Backend::Auto | Backend::Cuda, _) => {}
    }
}

/// What no build can: a process is told of stage by stage, and what is told has limits.
fn limits(iterations: u32, (sequence, warmup): (&[Layer], Option<WarmupShape>), lacking: &mut Lacking) {
    let layers = sequence.len() as u64 * u64::from(iterations) + u64::from(warmup.is_some());
    if layers > LAYERS_MAX {
        lacking.reasons.push(format!("{layers} layers over all iterations are more than {LAYERS_MAX}"));
    }
    // `LABEL#4096.construct`: a label that comes again is numbered, and no stage has a longer name.
    let number = format!("#{}", sequence.len()).len();
    let label_bytes_max = STAGE_BYTES_MAX - number - ".construct".len();
    if let Some(Layer { label, .. }) = sequence.iter().find(|layer| layer.label.len() > label_bytes_max) {
        lacking
            .reasons
            .push(format!("the name of shape `{label}` is longer than the {label_bytes_max} bytes of a stage"));
    }
}

/// Whether any text needs the directories of a revision.
fn names_a_revision(settings: &Settings) -> bool {
    let names = |template: &Template| {
        template.run_time_holes().any(|hole| match hole {
            RunTimeHole::RevSrc | RunTimeHole::RevDir | RunTimeHole::RevId => true,
            RunTimeHole::MatrixDir | RunTimeHole::NeedsDir | RunTimeHole::PreparedDir | RunTimeHole::TrialDir => false,
        })
    };
    let in_env = settings.env.values().flatten().any(|operation| match operation {
        EnvOp::Append(text) | EnvOp::Remove(text) | EnvOp::Set(text) => names(text),
        EnvOp::Unset => false,
    });
    let in_command = match &settings.workload {
        WorkloadSettings::Command(command) => command.templates().any(names),
        WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => false,
    };
    in_env || in_command
}

#[cfg(test)]
mod tests;
