//! The work on a `linear4bit` cell on the CPU: the allocation program of bitsandbytes, performed.
//!
//! The program says what is requested, computed and freed in which order and stage. Here every host operation is done
//! for real, every kernel by its fast CPU code, and every device request is counted by the allocator that would have
//! served it: the memory behind it is never touched. What a layer keeps on the device it keeps in this process, and it
//! goes when the program frees it, so that a reference cycle is as expensive as it is there.
//!
//! Results are compared with the oracle after the sequence, never between shapes, unless the cell asks for it: what
//! runs between two shapes is what the cell says and nothing else. Must not decide what a cell means, and must not
//! know who listens.
//!
//! Stages are `A.construct`, … with the names of [`Linear4bitMemory::layer_name`], then `gap` between two iterations,
//! `A.check` where results are compared after each layer, and `check` at the end.

mod notes;
mod performer;
mod pools;
mod results;

use std::convert::Infallible;

use crate::model::allocator::{AccountingSegments, CachingAllocator, DeviceAllocator, DirectAllocator};
use crate::model::capability::{BuildCapabilities, cannot};
use crate::model::ids::IdError;
use crate::model::linear4bit_program::{DeviceModel, Linear4bitMemory, PredictedMemory};
use crate::model::outcome::PeakMemory;
use crate::model::protocol::FailureKind;
use crate::model::settings::{AllocatorKind, KernelSet, Linear4bitSettings, Settings, Shape, WorkloadSettings};
use crate::model::verdict::StageName;
use crate::workload::reference::codebook::CodeBook;
use crate::workload::spec::{LayerError, LayerSpec, NoCodeBook, StatisticsKind};
use crate::workload::worker::{Reporter, WorkError};

use performer::Performer;

/// The device whose memory is emulated: the smallest board that the workload is about.
pub const EMULATED_DEVICE: DeviceModel = DeviceModel::ORIN;

/// The stage in which results are compared.
pub const CHECK_STAGE: &str = "check";

/// The stage of the idle time between two iterations.
pub const GAP_STAGE: &str = "gap";

/// What is to be done, checked to be possible.
#[derive(Debug, Clone)]
struct Course<'a> {
    settings: &'a Settings,
    linear4bit: &'a Linear4bitSettings,
    memory: Linear4bitMemory,
    book: CodeBook,
    seed: u64,
}

/// Does the work on a cell and returns the peaks of the memory that the device allocator would have taken.
///
/// # Errors
/// If the cell asks for what this build cannot do, the host does not give the memory, or the parent does not listen.
pub fn work(settings: &Settings, seed: u64, reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
    let course = Course::of(settings, seed)?;
    let unlimited = AccountingSegments::unlimited();
    let peak = match course.memory.allocator {
        AllocatorKind::Caching => perform(&course, &mut CachingAllocator::new(unlimited), reporter)?,
        AllocatorKind::Direct => perform(&course, &mut DirectAllocator::new(unlimited), reporter)?,
        kind @ (AllocatorKind::Async | AllocatorKind::Vmm) => {
            return Err(WorkError::unsupported(format!("no device memory is emulated for the allocator {kind}")));
        }
    };
    // The peak of host memory is the kernel's to tell.
    Ok(PeakMemory {
        host: 0,
        device_allocated: peak.peak_allocated,
        device_reserved: peak.peak_reserved,
        host_plus_reserved: peak.peak_host_plus_reserved,
    })
}

impl<'a> Course<'a> {
    fn of(settings: &'a Settings, seed: u64) -> Result<Self, WorkError> {
        // What surrounds the process is its parent's to refuse.
        let own = Settings { iterations: settings.iterations, ..Settings::of(settings.workload.clone()) };
        if let Some(reason) = cannot(&own, BuildCapabilities::THIS) {
            return Err(WorkError::unsupported(reason));
        }
        let linear4bit = match &settings.workload {
            WorkloadSettings::Linear4bit(linear4bit) => linear4bit,
            WorkloadSettings::Command(_) => return Err(WorkError::unsupported("a command is not the worker's to run")),
            WorkloadSettings::Stack(_) => return Err(WorkError::unsupported("this build has no stack of layers")),
        };
        let memory = Linear4bitMemory::of(linear4bit, settings.iterations, EMULATED_DEVICE);
        let memory = memory.map_err(|reason| WorkError::unsupported(reason.to_string()))?;
        let book = linear4bit.quant.try_into();
        let book = book.map_err(|reason: NoCodeBook| WorkError::unsupported(reason.to_string()))?;
        Ok(Self { settings, linear4bit, memory, book, seed })
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
            book: self.book,
            blocksize: self.linear4bit.blocksize,
            statistics: if self.linear4bit.double_quant { StatisticsKind::Nested } else { StatisticsKind::Plain },
            storage: self.linear4bit.storage,
            // bitsandbytes 0.49: a format given to the constructor stands whatever the input is.
            compute: Some(self.linear4bit.compute),
        }
    }
}

fn perform<A: DeviceAllocator<Fault = Infallible>>(
    course: &Course<'_>,
    allocator: &mut A,
    reporter: &mut Reporter,
) -> Result<PredictedMemory, WorkError> {
    notes::tell_backend(course, reporter)?;
    let mut performer = Performer::new(course, allocator, reporter)?;
    course.memory.emit(&mut performer)?;
    performer.finish()
}

fn stage_name(name: &str) -> Result<StageName, WorkError> {
    name.parse().map_err(|error: IdError| WorkError::unsupported(error.to_string()))
}

impl From<LayerError> for WorkError {
    fn from(error: LayerError) -> Self {
        let kind = match &error {
            LayerError::HostMemory { .. } => FailureKind::HostOom,
            LayerError::Dimension(_) | LayerError::OtherShape { .. } | LayerError::Width { .. } => FailureKind::Other,
        };
        Self::of(kind, error.to_string())
    }
}
