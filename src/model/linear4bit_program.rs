//! What a `linear4bit` trial asks of memory, in which order: its settings and its program.
//!
//! Owns the words of that program (stages, buffers, operations) and the settings that shape it.
//! The order itself is in [`sequence`], the accounting of it in [`accounting`]. The program knows
//! nothing of the allocator that serves it, and it runs nothing: a prediction counts its
//! operations, the workload performs them.
//!
//! The order is that of bitsandbytes 0.46.1 to 0.49.2 on PyTorch, which are the same here;
//! 0.50 replaced the forward path and is not described. The order of nvfp4, which bitsandbytes does
//! not have, is our own: statistics first, then the packed weights, and a product that decodes nothing
//! to memory.

use serde::{Deserialize, Serialize};

use super::settings::{
    AllocatorKind, Batch, Blocksize, FloatType, Gc, Hygiene, HygieneStep, Init, KernelSet, Layer, Linear4bitSettings,
    QuantType, Shape, Storage,
};
use super::words::words;

pub mod accounting;
mod device;
pub mod sequence;

pub use accounting::{Account, AccountError, Accountant, LayerRow, PredictedMemory, account, predict};
pub use device::DeviceModel;
pub use sequence::ProgramSink;

/// The most layers that one process builds, over all iterations: what is told of each, and kept for each, is bounded.
pub const LAYERS_MAX: u64 = 50_000;

/// How stages of the warm-up begin.
pub const WARM_UP_NAME: &str = "warmup";

/// The settings of a trial that its memory depends on: the input of [`predict`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Linear4bitMemory {
    /// A layer that is built and called before the sequence, in the same process.
    pub warm_up: Option<Shape>,
    /// The layers in their order; one label may come more than once.
    pub sequence: Vec<Layer>,
    /// How often the sequence is run in the process.
    pub iterations: u32,
    /// Rows of the input.
    pub batch: Batch,
    /// The type of the input and of the result.
    pub input: FloatType,
    /// The type that the packed weights are kept as.
    pub storage: Storage,
    /// The type that the layer computes in.
    pub compute: FloatType,
    /// The 4-bit format: nf4 and fp4 make the same requests, nvfp4 has a program of its own.
    pub quant: QuantType,
    /// Whether the block maxima are quantised too; nvfp4 has none.
    pub double_quant: bool,
    /// Weights for one block maximum.
    pub blocksize: Blocksize,
    /// After which layers of the sequence the hygiene steps are done.
    pub hygiene: Hygiene,
    /// What hygiene does, in this order.
    pub hygiene_steps: Vec<HygieneStep>,
    /// At which layers' drop Python's cyclic collector runs.
    ///
    /// The weight of a layer refers back to the layer, so that a dropped layer keeps its memory
    /// until a collection. A collection frees every layer dropped until then.
    pub gc: Gc,
    /// The policy that serves the requests.
    pub allocator: AllocatorKind,
    /// The device, as far as it changes a request.
    pub device: DeviceModel,
}

/// Settings whose requests are not described here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotModelled {
    /// A policy whose segments are the driver's own decision.
    #[error("no memory is predicted for the allocator {0}")]
    Allocator(AllocatorKind),
    /// A format that nothing here packs.
    #[error("no memory is predicted for {0}, which this build does not have")]
    Quant(QuantType),
    /// Kernels that ask for other memory.
    #[error("no memory is predicted for the kernels {0}")]
    Kernels(KernelSet),
    /// Weights that never are in host memory.
    #[error("no memory is predicted for weights that are made on the {0}")]
    Init(Init),
    /// More than [`LAYERS_MAX`].
    #[error("{0} layers over all iterations are more than {LAYERS_MAX}")]
    Layers(u64),
}

/// Where in the process a layer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before the sequence.
    WarmUp,
    /// In the sequence.
    Sequence {
        /// Which run of the sequence, from 0.
        iteration: u32,
        /// Position in the sequence, from 0.
        position: usize,
    },
}

impl Linear4bitMemory {
    /// The baseline of the seed report on an Orin: bf16 throughout, nested, batch 1, no hygiene.
    pub fn baseline(sequence: Vec<Layer>) -> Self {
        Self {
            warm_up: None,
            sequence,
            iterations: 1,
            batch: Batch::ONE,
            input: FloatType::Bf16,
            storage: Storage::Bf16,
            compute: FloatType::Bf16,
            quant: QuantType::Nf4,
            double_quant: true,
            blocksize: Blocksize::DEFAULT,
            hygiene: Hygiene::None,
            hygiene_steps: HygieneStep::DEFAULT.to_vec(),
            gc: Gc::Never,
            allocator: AllocatorKind::Caching,
            device: DeviceModel::ORIN,
        }
    }

    /// What the memory of `settings` depends on, when their sequence is run `iterations` times on `device`.
    ///
    /// `kernels = "none"` makes the same requests.
    ///
    /// # Errors
    /// See [`NotModelled`].
    pub fn of(settings: &Linear4bitSettings, iterations: u32, device: DeviceModel) -> Result<Self, NotModelled> {
        match settings.kernels {
            KernelSet::Bnb | KernelSet::None => {}
            KernelSet::Tuned => return Err(NotModelled::Kernels(KernelSet::Tuned)),
        }
        match settings.init {
            Init::Host => {}
            Init::Device => return Err(NotModelled::Init(Init::Device)),
        }
        match settings.allocator {
            AllocatorKind::Caching | AllocatorKind::Direct => {}
            kind @ (AllocatorKind::Async | AllocatorKind::Vmm) => return Err(NotModelled::Allocator(kind)),
        }
        Self::program(settings, iterations, device)
    }

    /// The program of `settings` for a real device, whatever becomes of its requests there: an allocator of the
    /// driver's own, kernels that need less, and weights that never are in host memory are performed as well, and only
    /// their memory is not predicted.
    ///
    /// # Errors
    /// [`NotModelled::Quant`] and [`NotModelled::Layers`].
    pub fn program(settings: &Linear4bitSettings, iterations: u32, device: DeviceModel) -> Result<Self, NotModelled> {
        match settings.quant {
            QuantType::Nf4 | QuantType::Fp4 | QuantType::Nvfp4 => {}
            quant @ (QuantType::Mxfp4 | QuantType::Int4) => return Err(NotModelled::Quant(quant)),
        }
        let memory = Self {
            warm_up: settings.warmup.map(|warmup| warmup.shape()),
            sequence: settings.sequence.clone(),
            iterations,
            batch: settings.batch,
            input: settings.input,
            storage: settings.storage,
            compute: settings.compute,
            quant: settings.quant,
            double_quant: settings.double_quant,
            blocksize: settings.blocksize,
            hygiene: settings.hygiene.clone(),
            hygiene_steps: settings.hygiene_steps.clone(),
            gc: settings.gc.clone(),
            allocator: settings.allocator,
            device,
        };
        match memory.layer_count() {
            0..=LAYERS_MAX => Ok(memory),
            layers => Err(NotModelled::Layers(layers)),
        }
    }

    /// Where in the process the layer at `index` stands.
    pub fn place(&self, index: LayerIndex) -> Place {
        let Some(at) = index.position().checked_sub(usize::from(self.warm_up.is_some())) else { return Place::WarmUp };
        let length = self.sequence.len().max(1);
        Place::Sequence { iteration: (at / length) as u32, position: at % length }
    }

    /// The number that the weight and the input of the layer at `index` are drawn by. The warm-up takes none from the
    /// sequence, so that a cell with it has the numbers of the cell without it.
    pub fn number(&self, index: LayerIndex) -> u32 {
        match self.place(index) {
            Place::WarmUp => u32::MAX,
            Place::Sequence { iteration, position } => iteration * self.sequence.len() as u32 + position as u32,
        }
    }

    /// The label of the layer at `index`; the warm-up has none of its own and is called [`WARM_UP_NAME`].
    pub fn label(&self, index: LayerIndex) -> &str {
        match self.place(index) {
            Place::WarmUp => WARM_UP_NAME,
            Place::Sequence { position, .. } => &self.sequence[position].label,
        }
    }

    /// The size of the layer at `index`.
    pub fn shape(&self, index: LayerIndex) -> Shape {
        match (self.place(index), self.warm_up) {
            (Place::WarmUp, Some(shape)) => shape,
            (Place::WarmUp, None) => unreachable!("only a process with a warm-up has a layer there"),
            (Place::Sequence { position, .. }, _) => self.sequence[position].shape,
        }
    }

    /// How the layer at `index` is called in stages and metrics: its label, and from the second layer of that label
    /// in the sequence on `#` and which one it is, so that `CCC` has `C`, `C#2` and `C#3`.
    ///
    /// Every iteration has the same names: a fault in the tenth iteration is the fault of the first. No name of a
    /// shape contains `#`.
    pub fn layer_name(&self, index: LayerIndex) -> String {
        let label = self.label(index);
        let nth = match self.place(index) {
            Place::WarmUp => 1,
            Place::Sequence { position, .. } => {
                self.sequence[..=position].iter().filter(|layer| layer.label == label).count()
            }
        };
        if nth == 1 { label.to_owned() } else { format!("{label}#{nth}") }
    }

    /// The stage of `site` as journals write it, such as `C.copy` or `C#2.copy`.
    pub fn stage_name(&self, site: Site) -> String {
        format!("{}.{}", self.layer_name(site.layer), site.stage)
    }

    /// How many layers the process builds, the warm-up and all iterations included.
    pub fn layer_count(&self) -> u64 {
        self.sequence.len() as u64 * u64::from(self.iterations) + u64::from(self.warm_up.is_some())
    }
}

/// A layer by its position in the process: 0 is the warm-up if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerIndex(pub u32);

impl LayerIndex {
    pub(super) fn position(self) -> usize {
        self.0 as usize
    }
}

words! {
    /// A named step in the life of one layer.
    LayerStage {
        /// The fp32 weight comes to be in host memory and is filled.
        Construct = "construct",
        /// The fp32 weight gets its device memory.
        Alloc = "alloc",
        /// It is copied there.
        Copy = "copy",
        /// It is quantised, and its block maxima too if they are nested.
        Quantize = "quantize",
        /// Both fp32 weights go, and the name `layer` is bound to the new layer.
        FreeHost = "free_host",
        /// An input is made and the layer is called.
        Forward = "forward",
        /// The device is waited for.
        Sync = "sync",
        /// The hygiene steps.
        Hygiene = "hygiene",
    }
}

/// What a buffer is for. Sizes: n weights, nb block maxima, nb2 maxima of those, T the compute type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The fp32 weight in host memory (4n).
    HostWeight,
    /// The fp32 weight on the device (4n).
    Weight,
    /// The block maxima in fp32 (4nb); kept when they are not nested.
    Absmax,
    /// The packed 4-bit weights (n/2); kept.
    Packed,
    /// The scale of an nvfp4 tensor (4); kept.
    GlobalScale,
    /// The E4M3 scales of nvfp4 groups (n/16); kept.
    GroupScales,
    /// The code book (64); kept.
    Code,
    /// Magnitudes of the code book, while it is normalised (64).
    CodeMagnitudes,
    /// Their maximum (4).
    CodeMaximum,
    /// The mean of the block maxima (4); kept.
    Offset,
    /// Partial sums of that mean, when more than one thread block adds (4 for each of them).
    ReduceBuffer,
    /// The counter by which the last of those thread blocks knows itself (4).
    ReduceSemaphore,
    /// The block maxima less their mean (4nb).
    CentredAbsmax,
    /// The 8-bit code (1024); made once in a process and kept.
    DynamicMap,
    /// The maxima of the block maxima (4nb2); kept.
    NestedAbsmax,
    /// The quantised block maxima (nb); kept.
    QuantizedAbsmax,
    /// The layer's own copy of the 8-bit code (1024); kept.
    DynamicMapCopy,
    /// The input (batch x in); lives until the next input exists.
    Input,
    /// The input in T, when that is another type.
    InputCast,
    /// The block maxima decoded from 8 bits (4nb).
    DecodedAbsmax,
    /// Those with the mean added (4nb).
    RestoredAbsmax,
    /// All weights decoded, in fp32, the type of the weight that was quantised (4n).
    DequantizedWeight,
    /// Those in T, when that is another type.
    WeightCast,
    /// The result in T, when the input has another type.
    OutputBeforeCast,
    /// The result (batch x out); lives until the next result exists.
    Output,
    /// What cuBLAS works in; got at the first GEMM of a process and kept.
    BlasWorkspace,
}

impl Role {
    /// How many roles there are.
    pub const COUNT: usize = Self::BlasWorkspace as usize + 1;
}

/// A buffer: one role of one layer. What is shared by the process belongs to the layer that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Buffer {
    /// The layer.
    pub layer: LayerIndex,
    /// What it is for.
    pub role: Role,
}

/// A place in the program: where a peak was reached or a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Site {
    /// The layer at work.
    pub layer: LayerIndex,
    /// Its stage.
    pub stage: LayerStage,
    /// The buffer whose allocation it was.
    pub role: Role,
}

/// A kernel of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    /// fp32 weights to 4 bits.
    Quantize4bit,
    /// Centred block maxima to 8 bits.
    Quantize8bit,
    /// 8-bit block maxima to fp32.
    Dequantize8bit,
    /// 4-bit weights to fp32.
    Dequantize4bit,
    /// One row times the packed weights.
    Gemv4bit,
    /// Dense matrix product.
    Gemm,
    /// The largest magnitude of all weights.
    LargestMagnitude,
    /// The scale of an nvfp4 tensor from it.
    GlobalScale,
    /// fp32 weights to nvfp4.
    QuantizeNvfp4,
    /// Rows times packed nvfp4 weights.
    ProductNvfp4,
    /// Conversion between floating-point types.
    Cast,
    /// Random input.
    Randn,
    /// Element-wise magnitude.
    Abs,
    /// Maximum of all elements.
    Max,
    /// Element-wise division.
    Divide,
    /// Mean of all elements.
    Mean,
    /// Element-wise difference.
    Subtract,
    /// Element-wise sum.
    Add,
}

/// How a kernel is launched, in one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchDims {
    /// Thread blocks.
    pub grid: u64,
    /// Threads in each.
    pub block: u32,
}

/// One operation of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Host memory is got and all its pages are written.
    HostAlloc {
        /// For what.
        buffer: Buffer,
        /// How much.
        bytes: u64,
    },
    /// Host memory goes back to the operating system.
    HostFree {
        /// Which.
        buffer: Buffer,
        /// How much.
        bytes: u64,
    },
    /// Device memory is requested from the allocator.
    Alloc {
        /// For what.
        buffer: Buffer,
        /// How much, before any rounding.
        bytes: u64,
    },
    /// Device memory goes back to the allocator.
    Free {
        /// Which.
        buffer: Buffer,
    },
    /// A copy from pageable host memory, which the host waits for.
    HostToDevice {
        /// The device side.
        to: Buffer,
        /// How much.
        bytes: u64,
    },
    /// A copy within the device.
    DeviceToDevice {
        /// The source.
        from: Buffer,
        /// The target.
        to: Buffer,
        /// How much.
        bytes: u64,
    },
    /// Zeroes are written.
    Memset {
        /// Where.
        buffer: Buffer,
        /// How much.
        bytes: u64,
    },
    /// A kernel is launched.
    Launch {
        /// Which.
        kernel: Kernel,
        /// How; `None` where a framework or cuBLAS chooses.
        dims: Option<LaunchDims>,
    },
    /// The allocator returns what it has cached.
    EmptyCache,
    /// The host waits for the device.
    Synchronize,
}

/// An operation and the stage that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// The layer at work.
    pub layer: LayerIndex,
    /// Its stage.
    pub stage: LayerStage,
    /// What is done.
    pub operation: Operation,
}

#[cfg(test)]
mod tests;
