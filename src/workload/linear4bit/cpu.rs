//! The CPU as an engine: the host's part is done for real, kernels by their fast CPU code, and requests are counted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;

use super::Course;
use super::engine::{Engine, Surroundings};
use super::results::sampling_of;
use crate::model::allocator::DeviceAllocator;
use crate::model::linear4bit_program::{
    AccountError, Accountant, Buffer, Kernel, LayerIndex, LayerStage, Operation, ProgramSink, Role,
};
use crate::model::outcome::PeakMemory;
use crate::model::protocol::FailureKind;
use crate::workload::gpu::executor::StageTime;
use crate::workload::host_weight::HostWeight;
use crate::workload::kept::Sample;
use crate::workload::layer::Layer;
use crate::workload::oracle::Sampling;
use crate::workload::reference::numbers::Reciprocal;
use crate::workload::rows::Rows;
use crate::workload::worker::{Reporter, WorkError};

/// The CPU, with the allocator that would have served a device.
pub(super) struct CpuEngine<'a, A> {
    accountant: Accountant<'a, A>,
    layers: BTreeMap<LayerIndex, Layer>,
    host: Option<HostWeight>,
    x: Option<Rows>,
    sampling: Sampling,
}

impl<'a, A: DeviceAllocator<Fault = Infallible>> CpuEngine<'a, A> {
    /// Ready to begin. `allocator` should be fresh.
    pub(super) fn new(course: &Course<'_>, allocator: &'a mut A) -> Self {
        Self {
            accountant: Accountant::new(allocator),
            layers: BTreeMap::new(),
            host: None,
            x: None,
            sampling: sampling_of(course, Reciprocal::Exact),
        }
    }

    fn launch(&mut self, kernel: Kernel, at: Surroundings<'_, '_>) -> Result<(), WorkError> {
        if !at.course.computes() {
            return Ok(());
        }
        match kernel {
            Kernel::Quantize4bit | Kernel::QuantizeNvfp4 => self.quantize(at),
            Kernel::Randn => {
                self.x = Some(at.results.input(at.layer));
                Ok(())
            }
            Kernel::Gemv4bit | Kernel::Gemm | Kernel::ProductNvfp4 => self.forward(at),
            // The fast code does these inside the steps above.
            Kernel::Quantize8bit
            | Kernel::Dequantize8bit
            | Kernel::Dequantize4bit
            | Kernel::Cast
            | Kernel::LargestMagnitude
            | Kernel::GlobalScale
            | Kernel::Abs
            | Kernel::Max
            | Kernel::Divide
            | Kernel::Mean
            | Kernel::Subtract
            | Kernel::Add => Ok(()),
        }
    }

    fn quantize(&mut self, at: Surroundings<'_, '_>) -> Result<(), WorkError> {
        let host = self.host.as_ref().expect("a program quantises what it constructed");
        let spec = at.course.spec(host.source().shape);
        let layer = at.pools.compute(at.reporter, || Layer::quantize(host, spec))??;
        at.tally.add_facts(&spec, at.course.rows());
        self.layers.insert(at.layer, layer);
        Ok(())
    }

    fn forward(&mut self, at: Surroundings<'_, '_>) -> Result<(), WorkError> {
        let x = self.x.take().expect("a program makes an input before it multiplies");
        let layer = self.layers.get_mut(&at.layer).expect("a program multiplies by the layer it quantised");
        let y = at.pools.compute(at.reporter, || layer.forward(&x))??;
        at.results.keep(at.layer, &y);
        Ok(())
    }
}

impl<A: DeviceAllocator<Fault = Infallible>> Engine for CpuEngine<'_, A> {
    fn sampling(&self) -> Sampling {
        self.sampling
    }

    fn leave(&mut self) -> Result<(), WorkError> {
        Ok(())
    }

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), WorkError> {
        self.accountant.enter(layer, stage).map_err(out_of_memory)
    }

    fn perform(&mut self, operation: Operation, at: Surroundings<'_, '_>) -> Result<(), WorkError> {
        self.accountant.perform(operation).map_err(out_of_memory)?;
        match operation {
            Operation::HostAlloc { .. } => {
                let source = at.results.source(at.layer);
                self.host = Some(at.pools.initialise(at.reporter, || HostWeight::construct(source))??);
                Ok(())
            }
            Operation::HostFree { .. } => {
                self.host = None;
                Ok(())
            }
            Operation::Launch { kernel, .. } => self.launch(kernel, at),
            // The packed weights stand for all that a layer keeps.
            Operation::Free { buffer: Buffer { layer, role: Role::Packed } } => {
                if let Some(gone) = self.layers.remove(&layer) {
                    at.results.free(layer, |sampling| Some(Sample::of(&gone, sampling)));
                }
                Ok(())
            }
            Operation::Free { .. }
            | Operation::Alloc { .. }
            | Operation::HostToDevice { .. }
            | Operation::DeviceToDevice { .. }
            | Operation::Memset { .. }
            | Operation::EmptyCache
            | Operation::Synchronize => Ok(()),
        }
    }

    fn sequence_is_over(&mut self) -> Result<(), WorkError> {
        Ok(())
    }

    fn living(&mut self, index: LayerIndex) -> Result<Cow<'_, Layer>, WorkError> {
        Ok(Cow::Borrowed(self.layers.get(&index).expect("a layer that goes before it is compared leaves a sample")))
    }

    fn spoil(&mut self, index: LayerIndex, bits: u8) -> Result<(), WorkError> {
        let layer = self.layers.get_mut(&index).expect("a layer that goes before it is compared leaves a sample");
        layer.corrupt_packed(0, bits);
        Ok(())
    }

    fn device_times(&mut self) -> Result<&[StageTime], WorkError> {
        Ok(&[])
    }

    fn tell(&mut self, _: &mut Reporter) -> Result<(), WorkError> {
        Ok(())
    }

    fn finish(self, _: &mut Reporter) -> Result<PeakMemory, WorkError> {
        let peak = self.accountant.finish().peak;
        Ok(PeakMemory {
            host: 0,
            device_allocated: peak.peak_allocated,
            device_reserved: peak.peak_reserved,
            host_plus_reserved: peak.peak_host_plus_reserved,
        })
    }
}

fn out_of_memory(error: AccountError) -> WorkError {
    WorkError::of(FailureKind::CudaOom, format!("{error}: {}", error.source))
}
