//! Settings of the two workloads made of 4-bit linear layers.
//!
//! Defaults are those of bitsandbytes where it has one (`uint8` storage, blocks of 64, nested statistics) and the
//! quietest choice elsewhere, so that a short matrix means what a short script means.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::model::quantity::QuantityError;
use crate::model::words::words;

/// One layer of a sequence; serialised as `[in_features, out_features, label]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32, String)", into = "(u32, u32, String)")]
pub struct Layer {
    /// Columns of the weight.
    pub in_features: u32,
    /// Rows of the weight.
    pub out_features: u32,
    /// Its name in `[shapes]`, which stages and hygiene points are named after. It is part of the identity, because a
    /// signature names a stage.
    pub label: String,
}

impl Layer {
    /// Number of weights.
    pub fn weights(&self) -> u64 {
        u64::from(self.in_features) * u64::from(self.out_features)
    }
}

impl From<(u32, u32, String)> for Layer {
    fn from((in_features, out_features, label): (u32, u32, String)) -> Self {
        Self { in_features, out_features, label }
    }
}

impl From<Layer> for (u32, u32, String) {
    fn from(layer: Layer) -> Self {
        (layer.in_features, layer.out_features, layer.label)
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
    #[serde(default = "super::one", skip_serializing_if = "super::is_one")]
    pub batch: u32,
    /// Weights that share one absmax; a power of two.
    #[serde(default = "sixty_four", skip_serializing_if = "is_sixty_four")]
    pub blocksize: u32,
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
    /// The 4-bit format.
    #[serde(default, skip_serializing_if = "is_default")]
    pub quant: QuantType,
    /// The layers, in order.
    pub sequence: Vec<Layer>,
    /// The type that the packed bytes are stored as.
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: Storage,
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
            batch: 1,
            blocksize: 64,
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
            quant: QuantType::default(),
            sequence,
            storage: Storage::default(),
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

/// Input and output features of a warm-up layer, written `256x256`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WarmupShape {
    /// Columns of the weight.
    pub in_features: u32,
    /// Rows of the weight.
    pub out_features: u32,
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
        Ok(Self { in_features: side(a)?, out_features: side(b)? })
    }
}

impl fmt::Display for WarmupShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}", self.in_features, self.out_features))
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

/// Defines a choice of points between layers: nowhere, after each layer but the last, or after the named ones.
macro_rules! points {
    ($(#[$meta:meta])* $name:ident, $nowhere:ident = $word:literal, $what:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum $name {
            /// Nowhere.
            #[default]
            $nowhere,
            /// After each layer but the last.
            Each,
            /// After every layer with one of these labels.
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
            /// Whether the layer at `index` of `sequence` is such a point.
            pub fn is_after(&self, index: usize, sequence: &[Layer]) -> bool {
                match self {
                    Self::$nowhere => false,
                    Self::Each => index + 1 < sequence.len(),
                    Self::After(labels) => sequence.get(index).is_some_and(|layer| labels.contains(&layer.label)),
                }
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
    Hygiene, None = "none", "hygiene point"
}

points! {
    /// When dropped layers really die: PyTorch's 4-bit parameter refers to its layer, so only a cyclic collection frees it.
    Gc, Never = "never", "gc point"
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
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Uint8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
        }
    }
}

words! {
    /// A floating-point type of activations and products.
    #[derive(Default)]
    FloatType {
        /// Brain float.
        #[default]
        Bf16 = "bf16",
        /// Half float.
        Fp16 = "fp16",
        /// Single precision.
        Fp32 = "fp32",
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
        /// PyTorch's caching allocator.
        #[default]
        Caching = "caching",
        /// One cudaMalloc and cudaFree per tensor.
        Direct = "direct",
        /// cudaMallocAsync.
        Async = "async",
        /// cuMemCreate and cuMemMap.
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
        /// Drop the layer.
        Drop = "drop",
        /// Return cached blocks to the driver.
        EmptyCache = "empty_cache",
        /// Wait for the device.
        Sync = "sync",
        /// Run the cyclic collection.
        Gc = "gc",
    }
}

fn all_steps() -> Vec<HygieneStep> {
    vec![HygieneStep::Drop, HygieneStep::EmptyCache, HygieneStep::Sync]
}

fn is_all_steps(steps: &[HygieneStep]) -> bool {
    steps == [HygieneStep::Drop, HygieneStep::EmptyCache, HygieneStep::Sync]
}

fn sixty_four() -> u32 {
    64
}

fn is_sixty_four(value: &u32) -> bool {
    *value == 64
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}
