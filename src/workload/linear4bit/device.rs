//! A GPU as an engine: the program performed on real device memory by real kernels.
//!
//! Owns the opening and closing of the device, and what is told of it. Everything CUDA goes through [`gpu`].
//!
//! [`gpu`]: crate::workload::gpu

use std::borrow::Cow;
use std::fs;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use super::engine::{Engine, Surroundings};
use super::results::sampling_of;
use super::{CLOSE_STAGE, CONTEXT_STAGE, Course, stage_name};
use crate::model::linear4bit_program::{
    Buffer, DeviceModel, Kernel, LayerIndex, LayerStage, Operation, ProgramSink, Role,
};
use crate::model::outcome::PeakMemory;
use crate::model::settings::{AllocatorKind, Init, ModuleLoading, Settings, StreamKind};
use crate::workload::gpu::driver::{Context, Stream};
use crate::workload::gpu::error::GpuError;
use crate::workload::gpu::executor::{Executor, Performance, StageTime, device_model};
use crate::workload::gpu::images::Target;
use crate::workload::gpu::kernels::Kernels;
use crate::workload::gpu::memory::{EventLog, allocator};
use crate::workload::host_weight::HostWeight;
use crate::workload::layer::Layer;
use crate::workload::oracle::Sampling;
use crate::workload::reference::numbers::Reciprocal;
use crate::workload::worker::{Reporter, WorkError};

/// The device that a trial uses: the first that the driver shows, which `CUDA_VISIBLE_DEVICES` decides.
const ORDINAL: u32 = 0;

/// A device with its context and the kernels that it runs.
#[derive(Debug)]
pub(super) struct OpenDevice {
    context: Rc<Context>,
    kernels: Kernels,
    /// How long it took to make the context, loading libcuda included.
    context_ms: f64,
}

impl OpenDevice {
    /// Opens the device in a stage of its own, so that a fault at context creation is not one of the first layer.
    /// With `module_loading = "eager"` all kernels are loaded here, else each with its first launch.
    ///
    /// # Errors
    /// The outer one if the parent does not listen, the inner one is the device's.
    pub(super) fn open(settings: &Settings, reporter: &mut Reporter) -> Result<Result<Self, GpuError>, WorkError> {
        reporter.stage(&stage_name(CONTEXT_STAGE)?)?;
        Ok(Self::of(settings))
    }

    fn of(settings: &Settings) -> Result<Self, GpuError> {
        let since = Instant::now();
        let context = Context::open(ORDINAL)?;
        let context_ms = since.elapsed().as_secs_f64() * 1000.0;
        let kernels = Kernels::new(&context, settings.code)?;
        match settings.module_loading {
            ModuleLoading::Eager => kernels.load_all()?,
            ModuleLoading::Kept | ModuleLoading::Lazy => {}
        }
        Ok(Self { context, kernels, context_ms })
    }

    /// As far as a program's requests depend on it.
    pub(super) fn model(&self) -> DeviceModel {
        device_model(&self.context)
    }

    /// Tells what runs, and why.
    pub(super) fn tell(&self, why: &str, reporter: &mut Reporter) -> io::Result<()> {
        let facts = self.context.facts();
        let target = self.kernels.target();
        let code = match target {
            Target::Sm87 | Target::Sm90 | Target::Sm110 => format!("cubin {}", target.name()),
            Target::Compute80 => format!("ptx {}, compiled by the driver", target.name()),
        };
        let memory = if facts.is_integrated { "shared with the host" } else { "its own" };
        for (name, text) in [
            ("backend", "cuda"),
            ("backend_why", why),
            ("device", &facts.name),
            ("compute_capability", &format!("{}.{}", facts.architecture.major, facts.architecture.minor)),
            ("driver", &format!("CUDA {}", facts.driver)),
            ("code", &code),
            ("device_memory", memory),
        ] {
            reporter.note(name, text)?;
        }
        reporter.metric("context_ms", self.context_ms)?;
        reporter.metric("multiprocessors", f64::from(facts.multiprocessors))
    }
}

/// What memory is free at one point.
#[derive(Debug, Clone, Copy)]
struct Free {
    /// As `cudaMemGetInfo` says.
    device_bytes: u64,
    /// `MemAvailable` of `/proc/meminfo`; on an integrated device it is the same memory, its page cache included.
    host_bytes: Option<u64>,
}

impl Free {
    fn read(context: &Context) -> Result<Self, GpuError> {
        let (device_bytes, _) = context.memory_info()?;
        Ok(Self { device_bytes, host_bytes: host_available() })
    }

    fn tell(self, when: &str, reporter: &mut Reporter) -> io::Result<()> {
        reporter.metric(&format!("{when}.device_free_bytes"), self.device_bytes as f64)?;
        match self.host_bytes {
            Some(bytes) => reporter.metric(&format!("{when}.host_available_bytes"), bytes as f64),
            None => Ok(()),
        }
    }
}

/// `MemAvailable` in bytes, proc_meminfo(5).
fn host_available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"))?;
    Some(kib.trim().parse::<u64>().ok()? * 1024)
}

/// A device at work on a program.
pub(super) struct DeviceEngine {
    context: Rc<Context>,
    executor: Executor,
    stream: Stream,
    sampling: Sampling,
    init: Init,
    allocator: AllocatorKind,
    before: Free,
    after: Option<Free>,
}

impl DeviceEngine {
    /// Ready to begin.
    ///
    /// # Errors
    /// The device's, such as that it has no memory pools.
    pub(super) fn new(course: &Course<'_>, device: OpenDevice) -> Result<Self, GpuError> {
        let OpenDevice { context, kernels, context_ms: _ } = device;
        let stream = match course.linear4bit.stream {
            StreamKind::Legacy => Stream::LEGACY,
            StreamKind::Own => context.new_stream()?,
        };
        let sampling = sampling_of(course, Reciprocal::WithinOneUlp);
        let performance = Performance {
            kernels: course.linear4bit.kernels,
            init: course.linear4bit.init,
            seed: course.seed,
            stream,
            sampled_rows: sampling.rows,
            is_timed: true,
        };
        let kind = course.memory.allocator;
        let allocator = allocator(kind, &context, stream, EventLog::default())?;
        let before = Free::read(&context)?;
        let executor = Executor::new(kernels, allocator, course.memory.clone(), performance);
        let init = course.linear4bit.init;
        Ok(Self { context, executor, stream, sampling, init, allocator: kind, before, after: None })
    }

    /// Makes the weight on the threads that the cell asks for, if it is made on the host.
    fn construct(&mut self, at: &mut Surroundings<'_, '_>) -> Result<(), WorkError> {
        match self.init {
            Init::Device => Ok(()),
            Init::Host => {
                let source = at.results.source(at.layer);
                let weight = at.pools.initialise(at.reporter, || HostWeight::construct(source))??;
                self.executor.provide(weight);
                Ok(())
            }
        }
    }
}

impl Engine for DeviceEngine {
    fn sampling(&self) -> Sampling {
        self.sampling
    }

    fn leave(&mut self) -> Result<(), WorkError> {
        Ok(self.executor.leave()?)
    }

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), WorkError> {
        Ok(self.executor.enter(layer, stage)?)
    }

    fn perform(&mut self, operation: Operation, mut at: Surroundings<'_, '_>) -> Result<(), WorkError> {
        if let Operation::HostAlloc { .. } = operation {
            self.construct(&mut at)?;
        }
        self.executor.perform(operation)?;
        match operation {
            Operation::Launch { kernel: Kernel::Quantize4bit | Kernel::QuantizeNvfp4, .. } if at.course.computes() => {
                let spec = at.course.spec(at.course.memory.shape(at.layer));
                at.tally.add_facts(&spec, at.course.rows());
                if self.executor.is_fused(at.layer) {
                    at.tally.say_fused();
                }
            }
            Operation::Synchronize => {
                if let Some(y) = self.executor.take_output(at.layer) {
                    at.results.keep_columns(at.layer, y);
                }
            }
            Operation::Free { buffer: Buffer { layer, role: Role::Packed } } => {
                let sample = self.executor.take_sample(layer);
                at.results.free(layer, |_| sample);
            }
            Operation::Launch { .. }
            | Operation::Free { .. }
            | Operation::HostAlloc { .. }
            | Operation::HostFree { .. }
            | Operation::Alloc { .. }
            | Operation::HostToDevice { .. }
            | Operation::DeviceToDevice { .. }
            | Operation::Memset { .. }
            | Operation::EmptyCache => {}
        }
        Ok(())
    }

    fn sequence_is_over(&mut self) -> Result<(), WorkError> {
        self.context.synchronize()?;
        self.after = Some(Free::read(&self.context)?);
        Ok(())
    }

    fn living(&mut self, index: LayerIndex) -> Result<Cow<'_, Layer>, WorkError> {
        Ok(Cow::Owned(self.executor.download_layer(index)?))
    }

    fn spoil(&mut self, index: LayerIndex, bits: u8) -> Result<(), WorkError> {
        Ok(self.executor.corrupt_first_byte(index, bits)?)
    }

    fn device_times(&mut self) -> Result<&[StageTime], WorkError> {
        Ok(self.executor.times()?)
    }

    fn tell(&mut self, reporter: &mut Reporter) -> Result<(), WorkError> {
        self.before.tell("before", reporter)?;
        if let Some(after) = self.after {
            after.tell("after", reporter)?;
        }
        if let Some(product) = self.executor.dense_product() {
            reporter.note("dense_product", product)?;
        }
        // Of the process, not of the layer: a weight that is made on the host comes before the first kernel.
        if let Some(launched) = self.executor.first_launch() {
            let age_ms = reporter.age_ms(launched);
            reporter.metric("first_kernel_ms", age_ms)?;
        }
        Ok(())
    }

    fn finish(self, reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
        let Self { context, executor, stream, allocator, .. } = self;
        let mut peak = executor.peak_memory();
        match allocator {
            // The pool decides what it holds, and says the most that it held.
            AllocatorKind::Async => peak.device_reserved = context.pool_reserved()?.1,
            AllocatorKind::Caching | AllocatorKind::Direct | AllocatorKind::Vmm => {}
        }
        reporter.stage(&stage_name(CLOSE_STAGE)?)?;
        // What other libraries made on the context goes before it does.
        drop(executor);
        if stream != Stream::LEGACY {
            context.destroy_stream(stream)?;
        }
        context.close()?;
        Ok(peak)
    }
}

impl From<GpuError> for WorkError {
    fn from(error: GpuError) -> Self {
        Self::Failed(error.to_failure())
    }
}
