//! Settings of the two workloads made of 4-bit linear layers.
//!
//! Defaults are those of bitsandbytes where it has one (`uint8` storage, blocks of 64, nested statistics) and the
//! quietest choice elsewhere, so that a short matrix means what a short script means.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::dimensions::{Batch, Blocksize, DimensionError, Shape};
use super::is_default;
use crate::model::quantity::QuantityError;
use crate::model::words::words;

/// One layer of a sequence; serialised as `[in_features, out_features, label]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32, String)", into = "(u32, u32, String)")]
pub struct Layer {
    /// Its name in `[shapes]`, which stages and hygiene points are named after. It is part of the identity, because a
    /// signature names a stage.
    pub label: String,
    /// Its size.
    pub shape: Shape,
}

impl TryFrom<(u32, u32, String)> for Layer {
    type Error = DimensionError;
    fn try_from((in_features, out_features, label): (u32, u32, String)) -> Result<Self, DimensionError> {
        Ok(Self { label, shape: Shape::new(in_features, out_features)? })
    }
}

impl From<Layer> for (u32, u32, String) {
    fn from(layer: Layer) -> Self {
        let (in_features, out_features) = layer.shape.into();
        (in_features, out_features, layer.label)
    }
}

/// A sequence of 4-bit linear layers, each constructed, moved, quantised and run before the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear4bitSettings {
    /// How device memory is requested.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allocator: AllocatorKind,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backend: Backend,
    /// Rows of the input.
    #[serde(default, skip_serializing_if = "is_default")]
    pub batch: Batch,
    /// Weights that share one absmax.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blocksize: Blocksize,
    /// When results are compared.
    #[serde(default, skip_serializing_if = "is_default")]
    pub check: Check,
    /// The type that the product is computed in.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compute: FloatType,
    /// Whether the absmax values are quantised themselves.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub double_quant: bool,
    /// When dropped layers really die.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gc: Gc,
    /// Where memory is cleaned up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hygiene: Hygiene,
    /// What a clean-up does, in order.
    #[serde(default = "all_steps", skip_serializing_if = "is_all_steps")]
    pub hygiene_steps: Vec<HygieneStep>,
    /// Where weights are made.
    #[serde(default, skip_serializing_if = "is_default")]
    pub init: Init,
    /// Threads that make weights; 0 is one per CPU.
    #[serde(default, skip_serializing_if = "is_default")]
    pub init_threads: u32,
    /// The type of the activations.
    #[serde(default, skip_serializing_if = "is_default")]
    pub input: FloatType,
    /// Whose kernels run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kernels: KernelSet,
    /// What packed weights go through before they are used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub passage: Passage,
    /// The 4-bit format.
    #[serde(default, skip_serializing_if = "is_default")]
    pub quant: QuantType,
    /// The layers, in order.
    pub sequence: Vec<Layer>,
    /// The type that the packed bytes are stored as.
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: Storage,
    /// The stream that the framework works on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stream: StreamKind,
    /// One small layer, run in the same process before the sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<WarmupShape>,
}

impl Linear4bitSettings {
    /// `sequence` with everything else at its default.
    pub fn of(sequence: Vec<Layer>) -> Self {
        Self {
            allocator: AllocatorKind::default(),
            backend: Backend::default(),
            batch: Batch::ONE,
            blocksize: Blocksize::DEFAULT,
            check: Check::default(),
            compute: FloatType::default(),
            double_quant: true,
            gc: Gc::default(),
            hygiene: Hygiene::default(),
            hygiene_steps: all_steps(),
            init: Init::default(),
            init_threads: 0,
            input: FloatType::default(),
            kernels: KernelSet::default(),
            passage: Passage::default(),
            quant: QuantType::default(),
            sequence,
            storage: Storage::default(),
            stream: StreamKind::default(),
            warmup: None,
        }
    }
}

/// A model's worth of layers: `block` repeated, then `head`, all constructed before the first forward and alive until the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackSettings {
    /// One block of the model, and how all layers are treated.
    pub block: Linear4bitSettings,
    /// Layers that follow the last block once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub head: Vec<Layer>,
    /// How often the block is repeated.
    #[serde(default = "super::one", skip_serializing_if = "super::is_one")]
    pub layers: u32,
}

impl StackSettings {
    /// Every layer in the order of a forward pass: `L00.q_proj`, …, `L31.down_proj`, `lm_head`.
    pub fn all_layers(&self) -> Vec<Layer> {
        let width = self.layers.saturating_sub(1).to_string().len().max(2);
        let numbered = |number: u32| {
            let label = move |label: &str| format!("L{number:0width$}.{label}");
            self.block.sequence.iter().map(move |layer| Layer { label: label(&layer.label), shape: layer.shape })
        };
        (0..self.layers).flat_map(numbered).chain(self.head.iter().cloned()).collect()
    }
}

/// The size of a warm-up layer, written `256x256`: whole blocks of the default size, and small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WarmupShape(Shape);

impl WarmupShape {
    /// The size of the layer.
    pub fn shape(self) -> Shape {
        self.0
    }
}

/// The largest side of a warm-up layer: beyond it, it is a layer and belongs in the sequence.
pub const WARMUP_SIDE_MAX: u32 = 8192;

impl FromStr for WarmupShape {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError {
            what: "warm-up shape",
            expected: "\"none\" or \"INxOUT\" with sides from 64 to 8192 in steps of 64, such as \"256x256\"",
            text: text.chars().take(64).collect(),
        };
        let (a, b) = text.split_once('x').ok_or_else(error)?;
        let side = |side: &str| match side.parse::<u32>() {
            Ok(n) if (64..=WARMUP_SIDE_MAX).contains(&n) && n % 64 == 0 && side == n.to_string() => Ok(n),
            _ => Err(error()),
        };
        Shape::new(side(a)?, side(b)?).map(Self).map_err(|_| error())
    }
}

impl fmt::Display for WarmupShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<WarmupShape> for String {
    fn from(value: WarmupShape) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for WarmupShape {
    type Error = QuantityError;
    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse()
    }
}

/// Defines a choice of points in a sequence: nowhere, everywhere, or at layers with certain labels.
macro_rules! points {
    ($(#[$meta:meta])* $name:ident, $what:literal {
        $(#[$nowhere_meta:meta])* $nowhere:ident = $word:literal,
        $(#[$each_meta:meta])* Each,
        $(#[$after_meta:meta])* After,
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum $name {
            $(#[$nowhere_meta])*
            #[default]
            $nowhere,
            $(#[$each_meta])*
            Each,
            $(#[$after_meta])*
            After(BTreeSet<String>),
        }
        impl $name {
            /// The labels that are named.
            pub fn labels(&self) -> impl Iterator<Item = &str> {
                match self {
                    Self::$nowhere | Self::Each => None,
                    Self::After(labels) => Some(labels.iter().map(String::as_str)),
                }
                .into_iter()
                .flatten()
            }
        }
        impl FromStr for $name {
            type Err = QuantityError;
            fn from_str(text: &str) -> Result<Self, QuantityError> {
                match text {
                    $word => return Ok(Self::$nowhere),
                    "each" => return Ok(Self::Each),
                    _ => {}
                }
                let labels: Option<BTreeSet<String>> = text
                    .strip_prefix("after:")
                    .map(|labels| labels.split(',').map(str::to_owned).collect());
                match labels {
                    Some(labels) if labels.iter().all(|label| crate::model::ids::is_name(label)) => Ok(Self::After(labels)),
                    Some(_) | None => Err(QuantityError {
                        what: $what,
                        expected: concat!("\"", $word, "\", \"each\" or \"after:A,B\" with names of shapes"),
                        text: text.chars().take(64).collect(),
                    }),
                }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::$nowhere => f.pad($word),
                    Self::Each => f.pad("each"),
                    Self::After(labels) => {
                        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                        f.pad(&format!("after:{}", labels.join(",")))
                    }
                }
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
        impl TryFrom<String> for $name {
            type Error = QuantityError;
            fn try_from(text: String) -> Result<Self, QuantityError> {
                text.parse()
            }
        }
    };
}

points! {
    /// Where memory is cleaned up.
    Hygiene, "hygiene point" {
        /// Nowhere.
        None = "none",
        /// After each layer of the sequence but its last.
        Each,
        /// After every layer with one of these labels.
        After,
    }
}

impl Hygiene {
    /// Whether there is a clean-up after the layer at `index` of `sequence`.
    pub fn is_after(&self, index: usize, sequence: &[Layer]) -> bool {
        match self {
            Self::None => false,
            Self::Each => index + 1 < sequence.len(),
            Self::After(labels) => sequence.get(index).is_some_and(|layer| labels.contains(&layer.label)),
        }
    }
}

points! {
    /// When dropped layers really die: PyTorch's 4-bit parameter refers to its layer, so only a cyclic collection frees it.
    ///
    /// A collection frees every layer dropped until then.
    Gc, "gc point" {
        /// Never: every layer lives until the process ends.
        Never = "never",
        /// At each drop, of the warm-up too.
        Each,
        /// When a layer with one of these labels is dropped.
        After,
    }
}

impl Gc {
    /// Whether the collector runs when the layer called `label` is dropped; the warm-up has no label.
    pub fn is_at_drop_of(&self, label: Option<&str>) -> bool {
        match self {
            Self::Never => false,
            Self::Each => true,
            Self::After(labels) => label.is_some_and(|label| labels.contains(label)),
        }
    }
}

words! {
    /// The 4-bit format.
    #[derive(Default)]
    QuantType {
        /// bitsandbytes NF4.
        #[default]
        Nf4 = "nf4",
        /// bitsandbytes FP4.
        Fp4 = "fp4",
        /// NVFP4: E2M1 in blocks of 16 with E4M3 scales.
        Nvfp4 = "nvfp4",
        /// MXFP4: E2M1 in blocks of 32 with E8M0 scales.
        Mxfp4 = "mxfp4",
        /// INT4 in groups of `blocksize`.
        Int4 = "int4",
    }
}

words! {
    /// The type that packed bytes are stored as; the bytes are the same.
    #[derive(Default)]
    Storage {
        /// One byte.
        #[default]
        Uint8 = "uint8",
        /// Two bytes, brain float.
        Bf16 = "bf16",
        /// Two bytes, half float.
        Fp16 = "fp16",
        /// Four bytes.
        Fp32 = "fp32",
    }
}

impl Storage {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Uint8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
        }
    }
}

words! {
    /// What packed weights go through between their quantisation and their first use.
    #[derive(Default)]
    Passage {
        /// Nothing.
        #[default]
        None = "none",
        /// A copy and back, which keeps bytes.
        Copy = "copy",
        /// What a cast does to the same bytes seen as uint8: a byte needs no conversion, so that all are kept.
        View = "view",
        /// Every element of the storage type to fp32 and back, which keeps numbers.
        Cast = "cast",
    }
}

words! {
    /// A floating-point type of activations and products.
    #[derive(Default)]
    FloatType {
        /// bfloat16: 8 significant bits.
        #[default]
        Bf16 = "bf16",
        /// IEEE binary16: 11 significant bits, largest finite value 65504.
        Fp16 = "fp16",
        /// IEEE binary32: 24 significant bits.
        Fp32 = "fp32",
    }
}

impl FloatType {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
        }
    }
}

words! {
    /// Where a 4-bit workload runs.
    #[derive(Default)]
    Backend {
        /// The GPU if there is one, else the CPU; the choice is recorded with each trial.
        #[default]
        Auto = "auto",
        /// The GPU.
        Cuda = "cuda",
        /// The CPU reference with emulated device memory.
        Cpu = "cpu",
    }
}

words! {
    /// How device memory is requested.
    #[derive(Default)]
    AllocatorKind {
        /// PyTorch's caching allocator with its default settings on one stream.
        #[default]
        Caching = "caching",
        /// Every request is its own `cudaMalloc` and every release its own `cudaFree`.
        Direct = "direct",
        /// The driver's stream-ordered pool (`cudaMallocAsync`).
        Async = "async",
        /// Growing segments on reserved virtual addresses (`cuMemMap`).
        Vmm = "vmm",
    }
}

words! {
    /// Whose kernels run.
    #[derive(Default)]
    KernelSet {
        /// Those that do what bitsandbytes does.
        #[default]
        Bnb = "bnb",
        /// The tool's own fast ones.
        Tuned = "tuned",
        /// Allocations and copies only: a fault there is not the library's.
        None = "none",
    }
}

words! {
    /// The stream that the framework works on. Quantisation is on the legacy default stream whatever this says, as
    /// bitsandbytes launches it there without asking.
    #[derive(Default)]
    StreamKind {
        /// The legacy default stream, PyTorch's own choice.
        #[default]
        Legacy = "legacy",
        /// A stream of the process's own, which the legacy default stream waits for and the other way round.
        Own = "own",
    }
}

words! {
    /// Where weights are made.
    #[derive(Default)]
    Init {
        /// On the CPU, then copied.
        #[default]
        Host = "host",
        /// On the GPU.
        Device = "device",
    }
}

words! {
    /// When results are compared with the oracle.
    #[derive(Default)]
    Check {
        /// After the sequence, so that the comparison cannot disturb it.
        #[default]
        End = "end",
        /// After each layer.
        Each = "each",
    }
}

words! {
    /// One step of a clean-up between layers.
    HygieneStep {
        /// Forget the layer (`del layer`). The input and the result stay.
        Drop = "drop",
        /// Return the cached segments to the driver (`torch.cuda.empty_cache()`).
        EmptyCache = "empty_cache",
        /// Wait for the device (`torch.cuda.synchronize()`).
        Sync = "sync",
        /// Run the cyclic collection (`gc.collect()`), whatever the axis `gc` says.
        Gc = "gc",
    }
}

impl HygieneStep {
    /// The steps of the report of bitsandbytes issue 1936, in its order.
    pub const DEFAULT: [Self; 3] = [Self::Drop, Self::EmptyCache, Self::Sync];
}

fn all_steps() -> Vec<HygieneStep> {
    HygieneStep::DEFAULT.to_vec()
}

fn is_all_steps(steps: &[HygieneStep]) -> bool {
    steps == HygieneStep::DEFAULT
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}
