//! The order of operations of a trial: construct, quantise and call each layer in turn.
//!
//! Owns the sequence and the sizes in it. It emits into a [`ProgramSink`], so that a prediction
//! counts without a list ever being built.

use std::convert::Infallible;

use super::{
    Buffer, DeviceModel, Kernel, LaunchDims, LayerIndex, LayerStage, Linear4bitMemory, Operation, Place, Role, Step,
};
use crate::model::settings::{FloatType, HygieneStep, QuantType, Shape};

/// Block maxima that share one maximum at the nested level; fixed in the library.
const NESTED_BLOCKSIZE: u64 = 256;
/// Threads that quantise a nested block.
const NESTED_QUANTIZE_THREADS: u32 = 128;
/// The 16 fp32 words of a 4-bit code book.
const CODE_BYTES: u64 = 64;
/// The 256 fp32 words of the 8-bit code.
const DYNAMIC_MAP_BYTES: u64 = 1024;
/// nvfp4 weights that share a scale of one byte.
const NVFP4_GROUP: u64 = 16;
/// One fp32 or one 32-bit counter.
const WORD_BYTES: u64 = 4;

/// Receives a program, one operation after the other.
pub trait ProgramSink {
    /// Why it stops taking operations.
    type Error;

    /// The next operations belong to this stage of this layer.
    ///
    /// # Errors
    /// The sink's own; the program ends there.
    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), Self::Error>;

    /// Does or records one operation.
    ///
    /// # Errors
    /// The sink's own; the program ends there.
    fn perform(&mut self, operation: Operation) -> Result<(), Self::Error>;
}

impl Linear4bitMemory {
    /// Emits the whole program into `sink`.
    ///
    /// # Errors
    /// The first error of the sink.
    pub fn emit<S: ProgramSink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut emitter = Emitter::new(self, sink);
        if let Some(shape) = self.warm_up {
            emitter.layer(shape)?;
        }
        for _ in 0..self.iterations {
            for (position, layer) in self.sequence.iter().enumerate() {
                emitter.layer(layer.shape)?;
                if self.hygiene.is_after(position, &self.sequence) {
                    emitter.hygiene()?;
                }
            }
        }
        Ok(())
    }

    /// The whole program as a list.
    pub fn steps(&self) -> Vec<Step> {
        let mut list = StepList { at: (LayerIndex(0), LayerStage::Construct), steps: Vec::new() };
        match self.emit(&mut list) {
            Ok(()) => list.steps,
            Err(never) => match never {},
        }
    }
}

struct StepList {
    at: (LayerIndex, LayerStage),
    steps: Vec<Step>,
}

impl ProgramSink for StepList {
    type Error = Infallible;

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), Infallible> {
        self.at = (layer, stage);
        Ok(())
    }

    fn perform(&mut self, operation: Operation) -> Result<(), Infallible> {
        let (layer, stage) = self.at;
        self.steps.push(Step { layer, stage, operation });
        Ok(())
    }
}

/// The sizes of one layer. n, nb and nb2 as in [`Role`].
#[derive(Debug, Clone, Copy)]
struct Sizes {
    shape: Shape,
    n: u64,
    nb: u64,
    nb2: u64,
}

impl Sizes {
    fn of(memory: &Linear4bitMemory, shape: Shape) -> Self {
        let n = shape.weights();
        let nb = n.div_ceil(memory.blocksize.weights());
        Self { shape, n, nb, nb2: nb.div_ceil(NESTED_BLOCKSIZE) }
    }

    fn weight_bytes(self) -> u64 {
        WORD_BYTES * self.n
    }

    fn absmax_bytes(self) -> u64 {
        WORD_BYTES * self.nb
    }

    /// Two weights a byte, in whole elements of the storage type: a rest is cut off, as the
    /// library does.
    fn packed_bytes(self, memory: &Linear4bitMemory) -> u64 {
        let element = memory.storage.bytes();
        (self.n + 1) / (2 * element) * element
    }
}

/// Thread blocks over which PyTorch spreads a full reduction of `elements` fp32 values, or
/// `None` when one does it all and needs no buffer.
///
/// The launch rule of PyTorch's reduction: `v` values fall to each thread of one thread block.
/// From 256 of them on the work is spread, over as many thread blocks as the device holds at
/// once, but so that a thread keeps at least 16 values and has at most 256.
fn reduce_thread_blocks(elements: u64, device: DeviceModel) -> Option<u64> {
    const THREADS: u64 = 512;
    const MIN_VALUES: u64 = 16;
    const MAX_VALUES: u64 = 256;
    let values = elements.div_ceil(THREADS);
    if values < MAX_VALUES {
        return None;
    }
    let resident = u64::from(device.multiprocessors) * (u64::from(device.threads_per_multiprocessor) / THREADS);
    Some(resident.min(values.div_ceil(MIN_VALUES)).max(values.div_ceil(MAX_VALUES)))
}

struct Emitter<'a, S> {
    memory: &'a Linear4bitMemory,
    sink: &'a mut S,
    /// The layer being emitted, and the position of the next one.
    layer: LayerIndex,
    next: u32,
    /// The layer that the name `layer` is bound to.
    bound: Option<LayerIndex>,
    /// Layers are dropped in their order: those below `dropped` are, those below `collected` are gone.
    dropped: u32,
    collected: u32,
    has_dynamic_map: bool,
    has_workspace: bool,
    /// The layer whose input and result still live.
    called: Option<LayerIndex>,
}

impl<'a, S: ProgramSink> Emitter<'a, S> {
    fn new(memory: &'a Linear4bitMemory, sink: &'a mut S) -> Self {
        Self {
            memory,
            sink,
            layer: LayerIndex(0),
            next: 0,
            bound: None,
            dropped: 0,
            collected: 0,
            has_dynamic_map: false,
            has_workspace: false,
            called: None,
        }
    }

    #[inline]
    fn enter(&mut self, stage: LayerStage) -> Result<(), S::Error> {
        self.sink.enter(self.layer, stage)
    }

    #[inline]
    fn buffer(&self, role: Role) -> Buffer {
        Buffer { layer: self.layer, role }
    }

    #[inline]
    fn alloc(&mut self, role: Role, bytes: u64) -> Result<(), S::Error> {
        let buffer = self.buffer(role);
        self.sink.perform(Operation::Alloc { buffer, bytes })
    }

    #[inline]
    fn free(&mut self, role: Role) -> Result<(), S::Error> {
        self.free_of(self.layer, role)
    }

    #[inline]
    fn free_of(&mut self, layer: LayerIndex, role: Role) -> Result<(), S::Error> {
        self.sink.perform(Operation::Free { buffer: Buffer { layer, role } })
    }

    #[inline]
    fn upload(&mut self, role: Role, bytes: u64) -> Result<(), S::Error> {
        let to = self.buffer(role);
        self.sink.perform(Operation::HostToDevice { to, bytes })
    }

    /// A kernel whose launch is the library's own.
    #[inline]
    fn launch(&mut self, kernel: Kernel, grid: u64, block: u32) -> Result<(), S::Error> {
        self.sink.perform(Operation::Launch { kernel, dims: Some(LaunchDims { grid, block }) })
    }

    /// A kernel of the framework or of cuBLAS, whose launch is theirs to choose.
    #[inline]
    fn framework(&mut self, kernel: Kernel) -> Result<(), S::Error> {
        self.sink.perform(Operation::Launch { kernel, dims: None })
    }

    fn layer(&mut self, shape: Shape) -> Result<(), S::Error> {
        self.layer = LayerIndex(self.next);
        self.next += 1;
        let sizes = Sizes::of(self.memory, shape);
        self.build(sizes)?;
        self.call(sizes)?;
        self.enter(LayerStage::Sync)?;
        self.sink.perform(Operation::Synchronize)
    }

    /// `layer = Linear4bit(…).to("cuda")`
    fn build(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        let bytes = sizes.weight_bytes();
        let host = self.buffer(Role::HostWeight);
        self.enter(LayerStage::Construct)?;
        self.sink.perform(Operation::HostAlloc { buffer: host, bytes })?;
        self.enter(LayerStage::Alloc)?;
        self.alloc(Role::Weight, bytes)?;
        self.enter(LayerStage::Copy)?;
        self.upload(Role::Weight, bytes)?;
        self.enter(LayerStage::Quantize)?;
        self.quantize(sizes)?;
        self.enter(LayerStage::FreeHost)?;
        self.sink.perform(Operation::HostFree { buffer: host, bytes })?;
        self.free(Role::Weight)?;
        // The old layer is still bound while the new one is built; only now does the name move.
        self.drop_bound()?;
        self.bound = Some(self.layer);
        Ok(())
    }

    fn quantize(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        match self.memory.quant {
            QuantType::Nvfp4 => self.quantize_nvfp4(sizes),
            QuantType::Nf4 | QuantType::Fp4 | QuantType::Mxfp4 | QuantType::Int4 => self.quantize_blockwise(sizes),
        }
    }

    /// The scale of the tensor must be known before the first group is packed.
    fn quantize_nvfp4(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        self.alloc(Role::GlobalScale, WORD_BYTES)?;
        let buffer = self.buffer(Role::GlobalScale);
        self.sink.perform(Operation::Memset { buffer, bytes: WORD_BYTES })?;
        self.framework(Kernel::LargestMagnitude)?;
        self.framework(Kernel::GlobalScale)?;
        self.alloc(Role::GroupScales, sizes.n.div_ceil(NVFP4_GROUP))?;
        self.alloc(Role::Packed, sizes.packed_bytes(self.memory))?;
        self.framework(Kernel::QuantizeNvfp4)
    }

    fn quantize_blockwise(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        self.alloc(Role::Absmax, sizes.absmax_bytes())?;
        self.alloc(Role::Packed, sizes.packed_bytes(self.memory))?;
        self.launch(Kernel::Quantize4bit, sizes.nb, self.memory.blocksize.quantize_threads())?;
        self.alloc(Role::Code, CODE_BYTES)?;
        self.upload(Role::Code, CODE_BYTES)?;
        self.alloc(Role::CodeMagnitudes, CODE_BYTES)?;
        self.framework(Kernel::Abs)?;
        self.alloc(Role::CodeMaximum, WORD_BYTES)?;
        self.framework(Kernel::Max)?;
        self.free(Role::CodeMagnitudes)?;
        self.framework(Kernel::Divide)?;
        self.free(Role::CodeMaximum)?;
        if self.memory.double_quant { self.quantize_absmax(sizes) } else { Ok(()) }
    }

    fn quantize_absmax(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        self.alloc(Role::Offset, WORD_BYTES)?;
        self.mean_of_absmax(sizes)?;
        self.alloc(Role::CentredAbsmax, sizes.absmax_bytes())?;
        self.framework(Kernel::Subtract)?;
        if !self.has_dynamic_map {
            self.has_dynamic_map = true;
            self.alloc(Role::DynamicMap, DYNAMIC_MAP_BYTES)?;
            self.upload(Role::DynamicMap, DYNAMIC_MAP_BYTES)?;
        }
        self.alloc(Role::NestedAbsmax, WORD_BYTES * sizes.nb2)?;
        self.alloc(Role::QuantizedAbsmax, sizes.nb)?;
        self.launch(Kernel::Quantize8bit, sizes.nb2, NESTED_QUANTIZE_THREADS)?;
        self.alloc(Role::DynamicMapCopy, DYNAMIC_MAP_BYTES)?;
        // The map is made with the first layer of a process, which is always layer 0.
        let from = Buffer { layer: LayerIndex(0), role: Role::DynamicMap };
        let to = self.buffer(Role::DynamicMapCopy);
        self.sink.perform(Operation::DeviceToDevice { from, to, bytes: DYNAMIC_MAP_BYTES })?;
        self.free(Role::CentredAbsmax)?;
        self.free(Role::Absmax)
    }

    fn mean_of_absmax(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        let Some(thread_blocks) = reduce_thread_blocks(sizes.nb, self.memory.device) else {
            return self.framework(Kernel::Mean);
        };
        self.alloc(Role::ReduceBuffer, WORD_BYTES * thread_blocks)?;
        self.alloc(Role::ReduceSemaphore, WORD_BYTES)?;
        let buffer = self.buffer(Role::ReduceSemaphore);
        self.sink.perform(Operation::Memset { buffer, bytes: WORD_BYTES })?;
        self.framework(Kernel::Mean)?;
        self.free(Role::ReduceSemaphore)?;
        self.free(Role::ReduceBuffer)
    }

    /// `x = randn(…); y = layer(x)`: each new value exists before the old one goes.
    fn call(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        let rows = self.memory.batch.rows();
        let (input, compute) = (self.memory.input, self.memory.compute);
        let called_before = self.called.replace(self.layer);
        self.enter(LayerStage::Forward)?;
        self.alloc(Role::Input, rows * sizes.shape.in_features() * input.bytes())?;
        self.framework(Kernel::Randn)?;
        if let Some(before) = called_before {
            self.free_of(before, Role::Input)?;
        }
        if compute == input {
            self.multiply(sizes, Role::Output)?;
        } else {
            self.alloc(Role::InputCast, rows * sizes.shape.in_features() * compute.bytes())?;
            self.framework(Kernel::Cast)?;
            self.multiply(sizes, Role::OutputBeforeCast)?;
            self.alloc(Role::Output, rows * sizes.shape.out_features() * input.bytes())?;
            self.framework(Kernel::Cast)?;
            self.free(Role::OutputBeforeCast)?;
            self.free(Role::InputCast)?;
        }
        match called_before {
            Some(before) => self.free_of(before, Role::Output),
            None => Ok(()),
        }
    }

    fn multiply(&mut self, sizes: Sizes, output: Role) -> Result<(), S::Error> {
        let whole_blocks = sizes.shape.in_features().is_multiple_of(self.memory.blocksize.weights());
        let output_bytes = self.memory.batch.rows() * sizes.shape.out_features() * self.memory.compute.bytes();
        if self.memory.quant == QuantType::Nvfp4 {
            self.alloc(output, output_bytes)?;
            return self.framework(Kernel::ProductNvfp4);
        }
        if self.memory.batch.rows() == 1 && whole_blocks {
            self.multiply_fused(sizes, output, output_bytes)
        } else {
            self.multiply_dense(sizes, output, output_bytes)
        }
    }

    /// One row is multiplied straight from the packed weights.
    fn multiply_fused(&mut self, sizes: Sizes, output: Role, output_bytes: u64) -> Result<(), S::Error> {
        if self.memory.double_quant {
            self.decode_absmax(sizes)?;
            self.alloc(Role::RestoredAbsmax, sizes.absmax_bytes())?;
            self.framework(Kernel::Add)?;
            self.free(Role::DecodedAbsmax)?;
        }
        self.alloc(output, output_bytes)?;
        self.launch(Kernel::Gemv4bit, sizes.shape.out_features().div_ceil(4), 128)?;
        if self.memory.double_quant { self.free(Role::RestoredAbsmax) } else { Ok(()) }
    }

    /// More rows, or a row that ends inside a block: all weights are decoded to fp32, the type
    /// they were quantised from, then cast, then multiplied by cuBLAS.
    fn multiply_dense(&mut self, sizes: Sizes, output: Role, output_bytes: u64) -> Result<(), S::Error> {
        let compute = self.memory.compute;
        if self.memory.double_quant {
            self.decode_absmax(sizes)?;
            self.framework(Kernel::Add)?;
        }
        self.alloc(Role::DequantizedWeight, sizes.weight_bytes())?;
        self.launch(Kernel::Dequantize4bit, sizes.n.div_ceil(1024), 64)?;
        if self.memory.double_quant {
            self.free(Role::DecodedAbsmax)?;
        }
        let mut weight = Role::DequantizedWeight;
        if compute != FloatType::Fp32 {
            self.alloc(Role::WeightCast, sizes.n * compute.bytes())?;
            self.framework(Kernel::Cast)?;
            self.free(weight)?;
            weight = Role::WeightCast;
        }
        self.alloc(output, output_bytes)?;
        if !self.has_workspace {
            self.has_workspace = true;
            self.alloc(Role::BlasWorkspace, self.memory.device.blas_workspace_bytes)?;
        }
        self.framework(Kernel::Gemm)?;
        self.free(weight)
    }

    fn decode_absmax(&mut self, sizes: Sizes) -> Result<(), S::Error> {
        self.alloc(Role::DecodedAbsmax, sizes.absmax_bytes())?;
        self.launch(Kernel::Dequantize8bit, sizes.nb.div_ceil(512), 64)
    }

    fn hygiene(&mut self) -> Result<(), S::Error> {
        self.enter(LayerStage::Hygiene)?;
        for &step in &self.memory.hygiene_steps {
            match step {
                HygieneStep::Drop => self.drop_bound()?,
                HygieneStep::EmptyCache => self.sink.perform(Operation::EmptyCache)?,
                HygieneStep::Sync => self.sink.perform(Operation::Synchronize)?,
                HygieneStep::Gc => self.collect()?,
            }
        }
        Ok(())
    }

    /// Nothing refers to the bound layer any more but itself, so that it dies only if the
    /// collector runs now; then all that were dropped before it die too.
    fn drop_bound(&mut self) -> Result<(), S::Error> {
        let Some(layer) = self.bound.take() else { return Ok(()) };
        self.dropped = layer.0 + 1;
        if self.memory.gc.is_at_drop_of(self.label_in_matrix(layer)) { self.collect() } else { Ok(()) }
    }

    /// The collector runs: all layers dropped until now die.
    fn collect(&mut self) -> Result<(), S::Error> {
        while self.collected < self.dropped {
            self.free_layer(LayerIndex(self.collected))?;
            self.collected += 1;
        }
        Ok(())
    }

    /// The label of a layer of the sequence; the warm-up has none.
    fn label_in_matrix(&self, layer: LayerIndex) -> Option<&'a str> {
        match self.memory.place(layer) {
            Place::WarmUp => None,
            Place::Sequence { position, .. } => Some(&self.memory.sequence[position].label),
        }
    }

    fn free_layer(&mut self, layer: LayerIndex) -> Result<(), S::Error> {
        const NESTED: &[Role] =
            &[Role::Packed, Role::QuantizedAbsmax, Role::Code, Role::Offset, Role::NestedAbsmax, Role::DynamicMapCopy];
        const PLAIN: &[Role] = &[Role::Packed, Role::Absmax, Role::Code];
        const NVFP4: &[Role] = &[Role::Packed, Role::GroupScales, Role::GlobalScale];
        let kept = match (self.memory.quant, self.memory.double_quant) {
            (QuantType::Nvfp4, _) => NVFP4,
            (QuantType::Nf4 | QuantType::Fp4 | QuantType::Mxfp4 | QuantType::Int4, true) => NESTED,
            (QuantType::Nf4 | QuantType::Fp4 | QuantType::Mxfp4 | QuantType::Int4, false) => PLAIN,
        };
        kept.iter().try_for_each(|&role| self.free_of(layer, role))
    }
}
