//! What a `linear4bit` trial asks of memory, in which order: its settings and its program.
//!
//! Owns the words of that program (stages, buffers, operations) and the settings that shape it.
//! The order itself is in [`sequence`], the accounting of it in [`accounting`]. The program knows
//! nothing of the allocator that serves it, and it runs nothing: a prediction counts its
//! operations, the workload performs them.
//!
//! The order is that of bitsandbytes 0.46.1 to 0.49.2 on PyTorch, which are the same here;
//! 0.50 replaced the forward path and is not described.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::allocator::AllocatorKind;

pub mod accounting;
pub mod sequence;
mod settings;

pub use accounting::{Account, AccountError, LayerRow, NotModelled, PredictedMemory, account, predict};
pub use sequence::ProgramSink;
pub use settings::{Batch, Blocksize, DeviceModel, FloatDtype, Occasion, Quant, SettingError, Shape, StorageDtype};

/// The settings of a trial that its memory depends on: the input of [`predict`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Linear4bitMemory {
    /// A layer that is built and called before the sequence, in the same process.
    pub warm_up: Option<Shape>,
    /// The layers in their order; one label may come more than once.
    pub sequence: Vec<Layer>,
    /// Rows of the input.
    pub batch: Batch,
    /// The type of the input and of the result.
    pub input: FloatDtype,
    /// The code book. It changes no size.
    pub quant: Quant,
    /// The type that the packed weights are kept as.
    pub storage: StorageDtype,
    /// The type that the layer computes in.
    pub compute: FloatDtype,
    /// Whether the block maxima are quantised too.
    pub double_quant: bool,
    /// Weights for one block maximum.
    pub blocksize: Blocksize,
    /// After which layers of the sequence the hygiene steps are done.
    pub hygiene: Occasion,
    /// What hygiene does, in this order.
    pub hygiene_steps: Vec<HygieneStep>,
    /// At which layers' drop Python's cyclic collector runs.
    ///
    /// The weight of a layer refers back to the layer, so that a dropped layer keeps its memory
    /// until a collection. A collection frees every layer dropped until then.
    pub gc: Occasion,
    /// The policy that serves the requests.
    pub allocator: AllocatorKind,
    /// The device, as far as it changes a request.
    pub device: DeviceModel,
}

impl Linear4bitMemory {
    /// The baseline of the seed report on an Orin: nf4, bf16 throughout, nested, batch 1, no hygiene.
    pub fn baseline(sequence: Vec<Layer>) -> Self {
        Self {
            warm_up: None,
            sequence,
            batch: Batch::ONE,
            input: FloatDtype::Bf16,
            quant: Quant::Nf4,
            storage: StorageDtype::Bf16,
            compute: FloatDtype::Bf16,
            double_quant: true,
            blocksize: Blocksize::DEFAULT,
            hygiene: Occasion::Never,
            hygiene_steps: HygieneStep::DEFAULT.to_vec(),
            gc: Occasion::Never,
            allocator: AllocatorKind::Caching,
            device: DeviceModel::ORIN,
        }
    }

    /// How the layer at `index` is called in stages and reports; the warm-up has no label of its own.
    pub fn label(&self, index: LayerIndex) -> &str {
        match (index.position(), &self.warm_up) {
            (0, Some(_)) => "warmup",
            (at, Some(_)) => &self.sequence[at - 1].label,
            (at, None) => &self.sequence[at].label,
        }
    }

    /// The stage of `site` as journals write it, such as `C.copy`.
    pub fn stage_name(&self, site: Site) -> String {
        format!("{}.{}", self.label(site.layer), site.stage)
    }

    /// How many layers the process builds, the warm-up included.
    pub fn layer_count(&self) -> usize {
        self.sequence.len() + usize::from(self.warm_up.is_some())
    }
}

/// A layer of the sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layer {
    /// The name of its shape in the matrix.
    pub label: String,
    /// Its size.
    pub shape: Shape,
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

/// One thing that hygiene may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HygieneStep {
    /// Forget the layer (`del layer`). The input and the result stay.
    Drop,
    /// Return the cached segments (`torch.cuda.empty_cache()`).
    EmptyCache,
    /// Wait for the device (`torch.cuda.synchronize()`).
    Sync,
}

impl HygieneStep {
    /// The steps of the seed report.
    pub const DEFAULT: [Self; 3] = [Self::Drop, Self::EmptyCache, Self::Sync];
}

/// A named step in the life of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerStage {
    /// The fp32 weight comes to be in host memory and is filled.
    Construct,
    /// The fp32 weight gets its device memory.
    Alloc,
    /// It is copied there.
    Copy,
    /// It is quantised, and its block maxima too if they are nested.
    Quantize,
    /// Both fp32 weights go, and the name `layer` is bound to the new layer.
    FreeHost,
    /// An input is made and the layer is called.
    Forward,
    /// The device is waited for.
    Sync,
    /// The hygiene steps.
    Hygiene,
}

impl fmt::Display for LayerStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Construct => "construct",
            Self::Alloc => "alloc",
            Self::Copy => "copy",
            Self::Quantize => "quantize",
            Self::FreeHost => "free_host",
            Self::Forward => "forward",
            Self::Sync => "sync",
            Self::Hygiene => "hygiene",
        })
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
