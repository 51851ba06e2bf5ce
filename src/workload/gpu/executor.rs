//! The allocation program of a trial, performed for real: what a prediction counts is done here on a device.
//!
//! Owns the buffers by their role and knows which of them a kernel of the program works on. It is a
//! [`ProgramSink`]: whoever drives it reports the stages and stops at the first error. Results are copied back after
//! the wait that ends a layer, or when the program frees it, and are judged by nobody here.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use super::blas::Blas;
use super::driver::{Context, Stream, Timer, bytes_of};
use super::error::GpuError;
use super::kernels::{DeviceBuffer, Kernels, Packing, Tuning};
use super::memory::GpuAllocator;
use crate::model::allocator::{AllocError, BlockHandle, Usage};
use crate::model::linear4bit_program::{
    Buffer, DeviceModel, LayerIndex, LayerStage, Linear4bitMemory, Operation, ProgramSink, Role,
};
use crate::model::outcome::PeakMemory;
use crate::model::protocol::MemoryRefused;
use crate::model::settings::{FloatType, Init, KernelSet};
use crate::workload::host_weight::{HostWeight, WeightSource};
use crate::workload::kept::{Columns, Sample};
use crate::workload::oracle::Sampling;
use crate::workload::reference::codebook::dynamic_map;
use crate::workload::reference::numbers::Reciprocal;
use crate::workload::rows::Rows;
use crate::workload::spec::{Blockwise, LayerSpec, WeightFormat};

mod launches;

mod results;

/// What the program does not say: whose kernels, which numbers, which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Performance {
    /// Whose kernels run.
    pub kernels: KernelSet,
    /// Where weights are made.
    pub init: Init,
    /// Decides weights and inputs.
    pub seed: u64,
    /// The stream that the framework is on; quantisation always uses the legacy default stream, as bitsandbytes does.
    pub stream: Stream,
    /// Rows of each layer that the oracle looks at.
    pub sampled_rows: usize,
    /// Whether stages are timed with device events.
    pub is_timed: bool,
}

/// The device as far as the program's requests depend on it: its multiprocessors, and the workspace that PyTorch gives
/// cuBLAS, which is 32 MiB from sm_90 on.
pub fn device_model(context: &Context) -> DeviceModel {
    let facts = context.facts();
    let known = if facts.architecture.major >= 9 { DeviceModel::H200 } else { DeviceModel::ORIN };
    DeviceModel {
        multiprocessors: facts.multiprocessors,
        threads_per_multiprocessor: facts.threads_per_multiprocessor,
        ..known
    }
}

/// Device time of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageTime {
    /// The layer.
    pub layer: LayerIndex,
    /// Its stage.
    pub stage: LayerStage,
    /// From the end of the work before it to the end of its own, on the stream of the framework.
    pub device_ms: f32,
}

/// A block in use and how much of it was asked for.
#[derive(Debug)]
struct Held {
    block: BlockHandle,
    buffer: DeviceBuffer,
}

/// How the dense product is computed.
#[derive(Debug)]
enum Dense {
    /// None was needed yet.
    Unknown,
    /// By cuBLAS.
    Blas(Blas),
    /// By our own kernel: no cuBLAS is installed.
    Own,
}

/// Performs a program on one context.
pub struct Executor {
    context: Rc<Context>,
    kernels: Kernels,
    allocator: GpuAllocator,
    memory: Linear4bitMemory,
    performance: Performance,
    format: WeightFormat,
    /// Whose output a layer of a stack is called with.
    feeders: Vec<Option<LayerIndex>>,
    at: (LayerIndex, LayerStage),
    held: BTreeMap<Buffer, Held>,
    /// What `tuned` needs longer than the program keeps it.
    deferred: Vec<Buffer>,
    host: Option<HostWeight>,
    host_bytes: u64,
    /// The role that was allocated last: a cast is into that one.
    last: Role,
    dense: Dense,
    /// Of each output what the oracle will look at, and the last one whole.
    outputs: BTreeMap<LayerIndex, Columns>,
    last_output: Option<(LayerIndex, Rows)>,
    samples: BTreeMap<LayerIndex, Sample>,
    timer: Option<Timer>,
    /// Stages that ended and whose device time was not read yet: reading waits, and a stage must not.
    unread: Vec<(LayerIndex, LayerStage, Timer)>,
    times: Vec<StageTime>,
    peak_sum: u64,
}

impl Executor {
    /// Ready for the program of `memory`, with nothing allocated.
    ///
    /// # Panics
    /// If `memory` is of a format that this build does not have, which no program is.
    pub fn new(kernels: Kernels, allocator: GpuAllocator, memory: Linear4bitMemory, performance: Performance) -> Self {
        let format = WeightFormat::new(memory.quant, memory.blocksize, memory.double_quant);
        Self {
            format: format.expect("a program is of a format that this build has"),
            feeders: memory.feeders(),
            context: kernels.context().clone(),
            kernels,
            allocator,
            memory,
            performance,
            at: (LayerIndex(0), LayerStage::Construct),
            held: BTreeMap::new(),
            deferred: Vec::new(),
            host: None,
            host_bytes: 0,
            last: Role::HostWeight,
            dense: Dense::Unknown,
            outputs: BTreeMap::new(),
            last_output: None,
            samples: BTreeMap::new(),
            timer: None,
            unread: Vec::new(),
            times: Vec::new(),
            peak_sum: 0,
        }
    }

    /// The totals of the allocator now.
    pub fn usage(&self) -> Usage {
        self.allocator.usage()
    }

    /// The peaks of device memory so far; the peak of the host's own memory is not known here and 0.
    pub fn peak_memory(&self) -> PeakMemory {
        let peak = self.allocator.peak();
        PeakMemory {
            host: 0,
            device_allocated: peak.allocated,
            device_reserved: peak.reserved,
            host_plus_reserved: self.peak_sum,
        }
    }

    /// The device times of the stages so far, if they are taken. It waits for the last stage.
    ///
    /// # Errors
    /// The device's.
    pub fn times(&mut self) -> Result<&[StageTime], GpuError> {
        self.stop_timer()?;
        self.read_timers()?;
        Ok(&self.times)
    }

    /// Ends the stage at work, if its end shall not wait for the next one.
    ///
    /// # Errors
    /// The device's.
    pub fn leave(&mut self) -> Result<(), GpuError> {
        self.stop_timer()
    }

    /// Takes the weight that the stage `construct` would otherwise make on the calling thread's pool.
    pub fn provide(&mut self, weight: HostWeight) {
        self.host = Some(weight);
    }

    /// What is kept of the output of the layer at `index`, once it was waited for; it is not kept here any longer.
    pub fn take_output(&mut self, index: LayerIndex) -> Option<Columns> {
        self.outputs.remove(&index)
    }

    /// What is left of the layer at `index`, once the program freed it; it is not kept any longer.
    pub fn take_sample(&mut self, index: LayerIndex) -> Option<Sample> {
        self.samples.remove(&index)
    }

    /// When the first kernel of the process was launched.
    pub fn first_launch(&self) -> Option<Instant> {
        self.kernels.first_launch()
    }

    /// Whether several rows are multiplied straight from the packed weights of the layer at `index`.
    pub fn is_fused(&self, index: LayerIndex) -> bool {
        self.fuses(index)
    }

    /// How dense products were computed: the library's name, or our own kernel, or not at all.
    pub fn dense_product(&self) -> Option<&'static str> {
        match &self.dense {
            Dense::Unknown => None,
            Dense::Blas(blas) => Some(blas.name()),
            Dense::Own => Some("matmul_dense"),
        }
    }

    /// Gives everything back, so that another program can be performed in the same process. A trial does not: its
    /// memory goes with its process.
    ///
    /// # Errors
    /// The device's.
    pub fn release_all(&mut self) -> Result<(), GpuError> {
        self.stop_timer()?;
        self.read_timers()?;
        // cuBLAS works in memory of the program, which goes now.
        self.dense = Dense::Unknown;
        while let Some((_, held)) = self.held.pop_first() {
            self.allocator.free(held.block)?;
        }
        self.allocator.empty_cache()
    }

    /// The input of the layer at `index` with the bits that the device made, if it is no other layer's output.
    pub fn input(&self, index: LayerIndex) -> Rows {
        let WeightSource { shape, seed, number, .. } = self.source(index);
        Rows::random(self.rows() as usize, shape.width(), self.memory.input, seed, number)
    }

    fn rows(&self) -> u32 {
        self.memory.batch.rows() as u32
    }

    fn tuning(&self) -> Option<Tuning> {
        match self.performance.kernels {
            KernelSet::Bnb => Some(Tuning::Bnb),
            KernelSet::Tuned => Some(Tuning::Tuned),
            KernelSet::None => None,
        }
    }

    /// Where the weight and the input of a layer come from. The warm-up takes no number from the sequence, so that a
    /// cell with it has the numbers of the cell without it.
    fn source(&self, index: LayerIndex) -> WeightSource {
        let (shape, number) = (self.memory.shape(index), self.memory.number(index));
        WeightSource { shape, seed: self.performance.seed, number, spread: self.memory.composition.into() }
    }

    /// Which rows of a layer the oracle looks at: others for each layer.
    fn sampling(&self, index: LayerIndex) -> Sampling {
        let rows = self.performance.sampled_rows;
        let all = Sampling { seed: self.performance.seed, rows, reciprocal: Reciprocal::WithinOneUlp };
        all.of_layer(self.source(index))
    }

    fn spec(&self, index: LayerIndex) -> LayerSpec {
        LayerSpec {
            shape: self.memory.shape(index),
            format: self.format,
            storage: self.memory.storage,
            compute: Some(self.memory.compute),
        }
    }

    fn packing(&self, index: LayerIndex) -> Packing {
        let Blockwise { book, blocksize, .. } = self.blockwise();
        Packing { book, blocksize, elements: self.memory.shape(index).weights() }
    }

    /// The format of a program whose kernels are those of blockwise formats.
    fn blockwise(&self) -> Blockwise {
        match self.format {
            WeightFormat::Blockwise(format) => format,
            WeightFormat::Nvfp4 => unreachable!("the program of nvfp4 launches kernels of its own"),
        }
    }

    /// The buffer of a role.
    fn buffer(&self, layer: LayerIndex, role: Role) -> Result<DeviceBuffer, GpuError> {
        let missing = || GpuError::BadLaunch { kernel: format!("{role:?}"), why: "the program has no such buffer" };
        self.held.get(&Buffer { layer, role }).map(|held| held.buffer).ok_or_else(missing)
    }

    /// Asks at once what the driver calls free: a moment later the buffers of this trial are given back.
    fn with_free_memory(&self, error: AllocError<GpuError>) -> GpuError {
        let AllocError::OutOfMemory { requested, segment: asked, usage } = error else { return error.into() };
        let memory = self.context.memory_info().ok().map(|(free, _)| MemoryRefused { asked, free });
        GpuError::OutOfMemory { requested, allocated: usage.allocated, reserved: usage.reserved, memory }
    }

    fn alloc(&mut self, buffer: Buffer, bytes: u64) -> Result<(), GpuError> {
        self.last = buffer.role;
        if self.is_spared(buffer.role) {
            return Ok(());
        }
        let block = self.allocator.alloc(bytes).map_err(|error| self.with_free_memory(error))?;
        let place = DeviceBuffer { address: self.allocator.address(&block), bytes };
        self.held.insert(buffer, Held { block, buffer: place });
        self.note_peak();
        Ok(())
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), GpuError> {
        if self.is_spared(buffer.role) {
            return Ok(());
        }
        if buffer.role == Role::DecodedAbsmax && self.fuses(buffer.layer) {
            self.deferred.push(buffer);
            return Ok(());
        }
        // Packed weights go first of all that a layer keeps.
        if buffer.role == Role::Packed {
            self.keep_sample(buffer.layer)?;
        }
        self.release(buffer)
    }

    fn release(&mut self, buffer: Buffer) -> Result<(), GpuError> {
        match self.held.remove(&buffer) {
            Some(held) => self.allocator.free(held.block),
            None => Ok(()),
        }
    }

    fn note_peak(&mut self) {
        self.peak_sum = self.peak_sum.max(self.host_bytes + self.allocator.usage().reserved);
    }

    fn upload(&mut self, to: Buffer, bytes: u64) -> Result<(), GpuError> {
        let target = self.buffer(to.layer, to.role)?;
        target.holds("a copy to the device", "the target", bytes)?;
        let stream = self.performance.stream;
        let send = |values: &[f32]| {
            target.holds("a copy to the device", "the target", size_of_val(values) as u64)?;
            self.context.upload(target.address, bytes_of(values), stream)
        };
        match to.role {
            Role::Weight => match &self.host {
                Some(host) => send(host.as_slice()),
                None => {
                    let source = self.source(to.layer);
                    self.kernels.weights((target, source.shape.weights()), source.stream(), source.scale(), stream)?;
                    self.context.synchronize_stream(stream)
                }
            },
            Role::Code => send(&self.blockwise().book.raw_table()),
            // The map, and anything that a later program would copy: the map is the only other one there is.
            Role::DynamicMap => send(&dynamic_map()),
            other => Err(GpuError::BadLaunch { kernel: format!("{other:?}"), why: "nothing is known to copy there" }),
        }
    }

    fn construct(&mut self, layer: LayerIndex, bytes: u64) -> Result<(), GpuError> {
        match self.performance.init {
            Init::Host => {
                if self.host.is_none() {
                    self.host = Some(HostWeight::construct(self.source(layer))?);
                }
                self.host_bytes += bytes;
                self.note_peak();
            }
            Init::Device => {}
        }
        Ok(())
    }

    fn stop_timer(&mut self) -> Result<(), GpuError> {
        if let Some(timer) = self.timer.take() {
            let (layer, stage) = self.at;
            timer.end()?;
            self.unread.push((layer, stage, timer));
        }
        Ok(())
    }

    /// Reads the times of the stages that ended; called where the program waits anyway.
    fn read_timers(&mut self) -> Result<(), GpuError> {
        for (layer, stage, timer) in std::mem::take(&mut self.unread) {
            self.times.push(StageTime { layer, stage, device_ms: timer.elapsed()? });
        }
        Ok(())
    }
}

impl ProgramSink for Executor {
    type Error = GpuError;

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), GpuError> {
        self.stop_timer()?;
        self.at = (layer, stage);
        if self.performance.is_timed {
            self.timer = Some(Timer::start(&self.context, self.performance.stream)?);
        }
        Ok(())
    }

    fn perform(&mut self, operation: Operation) -> Result<(), GpuError> {
        let stream = self.performance.stream;
        match operation {
            Operation::HostAlloc { buffer, bytes } => self.construct(buffer.layer, bytes),
            Operation::HostFree { bytes, .. } => {
                if self.host.take().is_some() {
                    self.host_bytes -= bytes;
                }
                Ok(())
            }
            Operation::Alloc { buffer, bytes } => self.alloc(buffer, bytes),
            Operation::Free { buffer } => self.free(buffer),
            Operation::HostToDevice { to, bytes } => self.upload(to, bytes),
            Operation::DeviceToDevice { from, to, bytes } => {
                let (from, to) = (self.buffer(from.layer, from.role)?, self.buffer(to.layer, to.role)?);
                from.holds("a copy on the device", "the source", bytes)?;
                to.holds("a copy on the device", "the target", bytes)?;
                self.context.copy(to.address, from.address, bytes, stream)
            }
            Operation::Memset { buffer, bytes } => {
                let buffer = self.buffer(buffer.layer, buffer.role)?;
                buffer.holds("a fill", "the target", bytes)?;
                self.context.fill(buffer.address, 0, bytes, stream)
            }
            Operation::Launch { kernel, .. } => match self.tuning() {
                Some(tuning) => self.launch(kernel, tuning),
                None => Ok(()),
            },
            Operation::EmptyCache => self.allocator.empty_cache(),
            Operation::Synchronize => {
                self.context.synchronize()?;
                self.read_timers()?;
                match self.at.1 {
                    LayerStage::Sync if self.tuning().is_none() => Ok(()),
                    LayerStage::Sync => self.keep_output(),
                    LayerStage::Construct
                    | LayerStage::Alloc
                    | LayerStage::Copy
                    | LayerStage::Quantize
                    | LayerStage::Passage
                    | LayerStage::FreeHost
                    | LayerStage::Forward
                    | LayerStage::Hygiene => Ok(()),
                }
            }
        }
    }
}
