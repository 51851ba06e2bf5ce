//! What a `linear4bit` layer is asked to be: shape, formats, block size, statistics.
//!
//! Owns the checks that make the numeric code total: whoever holds one of these types cannot index out
//! of range. Computes nothing.

use super::reference::codebook::CodeBook;
use super::reference::numbers::FloatType;

/// Why a layer cannot be made or called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    /// A dimension is zero, or the tensor would not fit an address space.
    #[error("cannot make a weight of {out_features} rows of {in_features}: {why}")]
    Shape {
        /// Elements per row.
        in_features: usize,
        /// Rows.
        out_features: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not one of the block sizes that the kernels are built for.
    #[error("block size {0} is not one of 32, 64, 128, 256, 512, 1024, 2048, 4096")]
    Blocksize(usize),
    /// The host did not give the memory.
    #[error("cannot allocate {bytes} bytes of host memory for {what}")]
    HostMemory {
        /// What it was for.
        what: &'static str,
        /// How much was asked for.
        bytes: usize,
    },
    /// The input of a forward call does not fit the layer.
    #[error("cannot multiply an input of width {got} by a weight with {expected} inputs")]
    Width {
        /// The layer's in_features.
        expected: usize,
        /// The input's width.
        got: usize,
    },
}

/// The shape of a weight: `out_features` rows of `in_features`, row-major; neither is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    in_features: usize,
    out_features: usize,
}

impl Shape {
    /// A shape.
    ///
    /// # Errors
    /// If a dimension is zero or the fp32 weight would exceed the address space.
    pub fn new(in_features: usize, out_features: usize) -> Result<Self, LayerError> {
        let bad = |why| LayerError::Shape { in_features, out_features, why };
        if in_features == 0 || out_features == 0 {
            return Err(bad("a dimension is zero"));
        }
        let bytes = in_features.checked_mul(out_features).and_then(|n| n.checked_mul(4));
        match bytes {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(Self { in_features, out_features }),
            Some(_) | None => Err(bad("it exceeds the address space")),
        }
    }

    /// Elements per row.
    pub fn in_features(self) -> usize {
        self.in_features
    }

    /// Rows.
    pub fn out_features(self) -> usize {
        self.out_features
    }

    /// Elements of the weight.
    pub fn elements(self) -> usize {
        self.in_features * self.out_features
    }
}

/// Elements per block: a power of two from 32 to 4096.
///
/// bitsandbytes has 32 on CUDA from 0.49.2 on, and packed 1024 and above wrongly in 0.46.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Blocksize(usize);

impl Blocksize {
    /// The smallest block.
    pub const MIN: usize = 32;
    /// The largest block.
    pub const MAX: usize = 4096;

    /// A block size.
    ///
    /// # Errors
    /// If no kernel is built for it.
    pub fn new(elements: usize) -> Result<Self, LayerError> {
        if elements.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&elements) {
            Ok(Self(elements))
        } else {
            Err(LayerError::Blocksize(elements))
        }
    }

    /// The number of elements.
    pub fn get(self) -> usize {
        self.0
    }
}

/// The type under which the packed bytes are kept; the bytes are the same for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StorageType {
    /// Bytes.
    Uint8,
    /// Two bytes an element.
    Bf16,
    /// Two bytes an element.
    Fp16,
    /// Four bytes an element.
    Fp32,
}

impl StorageType {
    /// Every storage type, in the order of the matrix language.
    pub const ALL: [Self; 4] = [Self::Uint8, Self::Bf16, Self::Fp16, Self::Fp32];

    /// The name in matrices and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uint8 => "uint8",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp32 => "fp32",
        }
    }

    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Uint8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
        }
    }
}

/// How the absmax of each block is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatisticsKind {
    /// One fp32 per block.
    Plain,
    /// 8-bit codes under a second absmax and a mean: double quantisation.
    Nested,
}

/// Everything that decides what a layer computes, apart from its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerSpec {
    /// Shape of the weight.
    pub shape: Shape,
    /// 4-bit code book.
    pub book: CodeBook,
    /// Elements per block.
    pub blocksize: Blocksize,
    /// How absmax is kept.
    pub statistics: StatisticsKind,
    /// Under which type the packed bytes are kept.
    pub storage: StorageType,
    /// The format of the product; none leaves it to the first input, see [`settle_compute`].
    pub compute: Option<FloatType>,
}

/// The compute format of a call, and what the layer remembers after it.
///
/// bitsandbytes since 0.47: a format given to the constructor stands. Without one, the first fp32 or bf16
/// input sets it for good, while an fp16 input is computed in fp16 and sets nothing.
pub fn settle_compute(given: Option<FloatType>, input: FloatType) -> (FloatType, Option<FloatType>) {
    match (given, input) {
        (Some(compute), FloatType::Bf16 | FloatType::Fp16 | FloatType::Fp32) => (compute, Some(compute)),
        (None, FloatType::Bf16 | FloatType::Fp32) => (input, Some(input)),
        (None, FloatType::Fp16) => (input, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_sizes_of_the_kernels_exist() {
        let built: Vec<usize> = (0..10_000).filter(|&n| Blocksize::new(n).is_ok()).collect();
        assert_eq!(built, [32, 64, 128, 256, 512, 1024, 2048, 4096]);
    }

    #[test]
    fn a_shape_that_cannot_exist_is_refused() {
        assert!(Shape::new(0, 4).is_err());
        assert!(Shape::new(4, 0).is_err());
        assert!(Shape::new(usize::MAX / 2, 4).is_err());
        assert_eq!(Shape::new(3584, 152_064).unwrap().elements(), 544_997_376);
    }

    #[test]
    fn a_given_compute_format_stands_and_an_fp16_input_sets_none() {
        use FloatType::{Bf16, Fp16, Fp32};
        for input in FloatType::ALL {
            assert_eq!(settle_compute(Some(Fp16), input), (Fp16, Some(Fp16)));
        }
        assert_eq!(settle_compute(None, Bf16), (Bf16, Some(Bf16)));
        assert_eq!(settle_compute(None, Fp32), (Fp32, Some(Fp32)));
        assert_eq!(settle_compute(None, Fp16), (Fp16, None));
    }
}
