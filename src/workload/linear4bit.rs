//! The work on a `linear4bit` cell: the allocation program of bitsandbytes, performed on a GPU or on the CPU.
//!
//! The program says what is requested, computed and freed in which order and stage. A GPU performs all of it on its own
//! memory. The CPU does every host operation for real and every kernel by its fast code, and every device request is
//! counted by the allocator that would have served it: the memory behind it is never touched. What a layer keeps on the
//! device it keeps in this process, and it goes when the program frees it, so that a reference cycle is as expensive as
//! it is there.
//!
//! Results are compared with the oracle after the sequence, never between shapes, unless the cell asks for it: what
//! runs between two shapes is what the cell says and nothing else. Must not decide what a cell means, and must not
//! know who listens.
//!
//! Stages are `context` if a GPU is tried, `A.construct`, … with the names of [`Linear4bitMemory::layer_name`], then
//! `gap` between two iterations, `A.check` where results are compared after each layer, `check` at the end, and `close`
//! when a GPU is given back.

mod cpu;
mod device;
mod engine;
mod notes;
mod performer;
mod pools;
mod results;

use crate::model::allocator::{AccountingSegments, CachingAllocator, DirectAllocator};
use crate::model::capability::{BuildCapabilities, cannot, needs_gpu};
use crate::model::ids::IdError;
use crate::model::linear4bit_program::{DeviceModel, Linear4bitMemory, NotModelled};
use crate::model::outcome::PeakMemory;
use crate::model::protocol::FailureKind;
use crate::model::settings::{
    AllocatorKind, Backend, KernelSet, Linear4bitSettings, Settings, Shape, WorkloadSettings,
};
use crate::model::verdict::StageName;
use crate::workload::spec::{LayerError, LayerSpec, NoCodeBook, WeightFormat};
use crate::workload::worker::{Reporter, WorkError};

use cpu::CpuEngine;
use device::{DeviceEngine, OpenDevice};
use engine::Engine;
use performer::Performer;

/// The device whose memory is emulated on the CPU: the smallest board that the workload is about.
pub const EMULATED_DEVICE: DeviceModel = DeviceModel::ORIN;

/// The stage in which a GPU is looked for and its context made.
pub const CONTEXT_STAGE: &str = "context";

/// The stage in which results are compared.
pub const CHECK_STAGE: &str = "check";

/// The stage in which the context of a GPU is given back.
pub const CLOSE_STAGE: &str = "close";

/// The stage of the idle time between two iterations.
pub const GAP_STAGE: &str = "gap";

/// What is to be done, checked to be possible.
#[derive(Debug, Clone)]
struct Course<'a> {
    settings: &'a Settings,
    linear4bit: &'a Linear4bitSettings,
    memory: Linear4bitMemory,
    format: WeightFormat,
    seed: u64,
}

/// Does the work on a cell and returns the peaks of device memory, or on the CPU of what it would have been.
///
/// # Errors
/// If the cell asks for what this build or machine cannot do, the device fails, memory is not there, or the parent does
/// not listen.
pub fn work(settings: &Settings, seed: u64, reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
    let linear4bit = asked(settings)?;
    match linear4bit.backend {
        Backend::Cpu => work_on_cpu(settings, seed, "backend = \"cpu\"", reporter),
        Backend::Cuda => {
            let device = OpenDevice::open(settings, reporter)??;
            work_on_device(settings, seed, ("backend = \"cuda\"", device), reporter)
        }
        Backend::Auto => match OpenDevice::open(settings, reporter)? {
            Ok(device) => work_on_device(settings, seed, ("backend = \"auto\", and there is a GPU", device), reporter),
            // A driver that is there and fails is a fault, and not a reason to compute elsewhere.
            Err(error) if !error.is_absence() => Err(error.into()),
            Err(error) => match needs_gpu(linear4bit) {
                Some(what) => Err(WorkError::unsupported(format!("{what} needs a GPU, and {error}"))),
                None => work_on_cpu(settings, seed, &format!("backend = \"auto\", and {error}"), reporter),
            },
        },
    }
}

/// The layers that are asked for, if this build can do what the cell wants.
fn asked(settings: &Settings) -> Result<&Linear4bitSettings, WorkError> {
    // What surrounds the process is its parent's to refuse.
    let own = Settings { iterations: settings.iterations, ..Settings::of(settings.workload.clone()) };
    if let Some(reason) = cannot(&own, BuildCapabilities::THIS) {
        return Err(WorkError::unsupported(reason));
    }
    match &settings.workload {
        WorkloadSettings::Linear4bit(linear4bit) => Ok(linear4bit),
        WorkloadSettings::Command(_) => Err(WorkError::unsupported("a command is not the worker's to run")),
        WorkloadSettings::Stack(_) => Err(WorkError::unsupported("this build has no stack of layers")),
    }
}

fn work_on_cpu(settings: &Settings, seed: u64, why: &str, reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
    let course = Course::of(settings, seed, |linear4bit| {
        Linear4bitMemory::of(linear4bit, settings.iterations, EMULATED_DEVICE)
    })?;
    notes::tell_cpu(&course, why, reporter)?;
    let unlimited = AccountingSegments::unlimited();
    match course.memory.allocator {
        AllocatorKind::Caching => {
            let mut allocator = CachingAllocator::new(unlimited);
            perform(&course, CpuEngine::new(&course, &mut allocator), reporter)
        }
        AllocatorKind::Direct => {
            let mut allocator = DirectAllocator::new(unlimited);
            perform(&course, CpuEngine::new(&course, &mut allocator), reporter)
        }
        kind @ (AllocatorKind::Async | AllocatorKind::Vmm) => {
            Err(WorkError::unsupported(format!("no device memory is emulated for the allocator {kind}")))
        }
    }
}

fn work_on_device(
    settings: &Settings,
    seed: u64,
    (why, device): (&str, OpenDevice),
    reporter: &mut Reporter,
) -> Result<PeakMemory, WorkError> {
    let model = device.model();
    let course =
        Course::of(settings, seed, |linear4bit| Linear4bitMemory::program(linear4bit, settings.iterations, model))?;
    device.tell(why, reporter)?;
    let engine = DeviceEngine::new(&course, device)?;
    perform(&course, engine, reporter)
}

impl<'a> Course<'a> {
    fn of(
        settings: &'a Settings,
        seed: u64,
        memory: impl FnOnce(&Linear4bitSettings) -> Result<Linear4bitMemory, NotModelled>,
    ) -> Result<Self, WorkError> {
        let linear4bit = asked(settings)?;
        let memory = memory(linear4bit).map_err(|reason| WorkError::unsupported(reason.to_string()))?;
        let format = WeightFormat::of(linear4bit);
        let format = format.map_err(|reason: NoCodeBook| WorkError::unsupported(reason.to_string()))?;
        Ok(Self { linear4bit, settings, memory, format, seed })
    }

    /// Rows of the input.
    fn rows(&self) -> usize {
        self.memory.batch.rows() as usize
    }

    /// Whether anything is computed, or memory only requested and copied.
    fn computes(&self) -> bool {
        match self.linear4bit.kernels {
            KernelSet::Bnb | KernelSet::Tuned => true,
            KernelSet::None => false,
        }
    }

    fn spec(&self, shape: Shape) -> LayerSpec {
        LayerSpec {
            shape,
            format: self.format,
            storage: self.linear4bit.storage,
            // bitsandbytes 0.49: a format given to the constructor stands whatever the input is.
            compute: Some(self.linear4bit.compute),
        }
    }
}

fn perform<E: Engine>(course: &Course<'_>, engine: E, reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
    let mut performer = Performer::new(course, engine, reporter)?;
    let performed = course.memory.emit(&mut performer).and_then(|()| performer.conclude());
    match performed {
        Ok(()) => performer.finish(),
        Err(error) => {
            // A device that failed may never answer when it is asked to give back what it has. The failure must be said
            // first, and the process, with all that it holds, ends right after.
            std::mem::forget(performer);
            Err(error)
        }
    }
}

fn stage_name(name: &str) -> Result<StageName, WorkError> {
    name.parse().map_err(|error: IdError| WorkError::unsupported(error.to_string()))
}

impl From<LayerError> for WorkError {
    fn from(error: LayerError) -> Self {
        let kind = match &error {
            LayerError::HostMemory { .. } => FailureKind::HostOom,
            LayerError::Dimension(_)
            | LayerError::Group { .. }
            | LayerError::OtherShape { .. }
            | LayerError::Width { .. } => FailureKind::Other,
        };
        Self::of(kind, error.to_string())
    }
}
