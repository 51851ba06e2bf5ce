//! What a `linear4bit` layer is asked to be: shape, formats, block size, statistics.
//!
//! Owns the checks that make the numeric code total: whoever holds one of these types cannot index out
//! of range. Computes nothing.

use std::ops::Range;

use super::reference::codebook::CodeBook;
use super::reference::nvfp4;
use super::reference::quantize_8bit::NESTED_BLOCKSIZE;
use crate::model::settings::{Blocksize, DimensionError, FloatType, Linear4bitSettings, QuantType, Shape, Storage};

/// Why a layer cannot be made or called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    /// A dimension that no kernel is built for.
    #[error(transparent)]
    Dimension(#[from] DimensionError),
    /// The weight does not have the shape that the layer is asked to have.
    #[error("cannot quantise a weight of {weight} into a layer of {layer}")]
    OtherShape {
        /// The weight's shape.
        weight: Shape,
        /// The layer's.
        layer: Shape,
    },
    /// A row does not consist of whole groups.
    #[error("cannot quantise rows of {width} weights in groups of {group}")]
    Group {
        /// The layer's in_features.
        width: usize,
        /// Weights that share a scale.
        group: usize,
    },
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

/// A shape as indices count it: the weight is row-major, and all its bytes fit the address space.
impl Shape {
    /// Elements per row: in_features.
    pub fn width(self) -> usize {
        self.in_features() as usize
    }

    /// Rows: out_features.
    pub fn height(self) -> usize {
        self.out_features() as usize
    }

    /// Elements of the weight.
    pub fn elements(self) -> usize {
        self.width() * self.height()
    }
}

// The largest shape has 2^48 weights of four bytes.
const _: () = assert!(usize::BITS == 64, "the address space holds any shape");

impl Blocksize {
    /// Elements per block, as indices count them.
    pub fn elements(self) -> usize {
        self.weights() as usize
    }

    /// The block size of so many elements.
    ///
    /// # Errors
    /// If no kernel is built for it.
    pub fn of_elements(elements: usize) -> Result<Self, DimensionError> {
        Self::new(u32::try_from(elements).unwrap_or(u32::MAX))
    }
}

/// A 4-bit format that this build has no code book for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this build cannot quantise to {0}")]
pub struct NoCodeBook(pub QuantType);

impl TryFrom<QuantType> for CodeBook {
    type Error = NoCodeBook;
    fn try_from(quant: QuantType) -> Result<Self, NoCodeBook> {
        match quant {
            QuantType::Nf4 => Ok(Self::Nf4),
            QuantType::Fp4 => Ok(Self::Fp4),
            QuantType::Nvfp4 | QuantType::Mxfp4 | QuantType::Int4 => Err(NoCodeBook(quant)),
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

/// A code book under one absmax a block of consecutive elements: the formats of bitsandbytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blockwise {
    /// 4-bit code book.
    pub book: CodeBook,
    /// Elements per block.
    pub blocksize: Blocksize,
    /// How absmax is kept.
    pub statistics: StatisticsKind,
}

/// How weights become four bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// A code book with block maxima.
    Blockwise(Blockwise),
    /// E2M1 with E4M3 scales inside a row.
    Nvfp4,
}

impl WeightFormat {
    /// The format that `settings` ask for. NVFP4 has its own groups, and its scales are never nested.
    ///
    /// # Errors
    /// [`NoCodeBook`].
    pub fn of(settings: &Linear4bitSettings) -> Result<Self, NoCodeBook> {
        Self::new(settings.quant, settings.blocksize, settings.double_quant)
    }

    /// The same of single settings.
    ///
    /// # Errors
    /// [`NoCodeBook`].
    pub fn new(quant: QuantType, blocksize: Blocksize, double_quant: bool) -> Result<Self, NoCodeBook> {
        let statistics = if double_quant { StatisticsKind::Nested } else { StatisticsKind::Plain };
        match quant {
            QuantType::Nvfp4 => Ok(Self::Nvfp4),
            QuantType::Nf4 | QuantType::Fp4 | QuantType::Mxfp4 | QuantType::Int4 => {
                Ok(Self::Blockwise(Blockwise { book: quant.try_into()?, blocksize, statistics }))
            }
        }
    }

    /// Consecutive elements that share a scale.
    pub fn group(self) -> usize {
        match self {
            Self::Blockwise(Blockwise { blocksize, .. }) => blocksize.elements(),
            Self::Nvfp4 => nvfp4::GROUP,
        }
    }
}

/// Everything that decides what a layer computes, apart from its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerSpec {
    /// Shape of the weight.
    pub shape: Shape,
    /// How it is packed.
    pub format: WeightFormat,
    /// Under which type the packed bytes are kept.
    pub storage: Storage,
    /// The format of the product; none leaves it to the first input, see [`settle_compute`].
    pub compute: Option<FloatType>,
}

impl LayerSpec {
    /// Blocks of the weight, the last of which may lack elements.
    pub(super) fn blocks(&self) -> usize {
        self.shape.elements().div_ceil(self.format.group())
    }

    /// The blocks that hold elements of a row; a block may cross the end of a row.
    pub(super) fn blocks_of(&self, row: usize) -> Range<usize> {
        let (width, blocksize) = (self.shape.width(), self.format.group());
        row * width / blocksize..((row + 1) * width).div_ceil(blocksize)
    }

    /// The elements of whole blocks, less what the last one lacks.
    pub(super) fn elements_of(&self, blocks: &Range<usize>) -> Range<usize> {
        let blocksize = self.format.group();
        blocks.start * blocksize..(blocks.end * blocksize).min(self.shape.elements())
    }

    /// The packed bytes of the blocks of a row.
    pub(super) fn bytes_of(&self, row: usize) -> Range<usize> {
        let elements = self.elements_of(&self.blocks_of(row));
        elements.start / 2..elements.end.div_ceil(2)
    }

    /// The nested blocks that hold the block maxima of a row.
    pub(super) fn nested_blocks_of(&self, row: usize) -> Range<usize> {
        let blocks = self.blocks_of(row);
        blocks.start / NESTED_BLOCKSIZE..blocks.end.div_ceil(NESTED_BLOCKSIZE)
    }

    /// The blocks of a nested block; the last one may lack some.
    pub(super) fn blocks_of_nested(&self, nested: usize) -> Range<usize> {
        let blocks = self.blocks();
        nested * NESTED_BLOCKSIZE..((nested + 1) * NESTED_BLOCKSIZE).min(blocks)
    }
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
    fn every_code_book_is_a_format_and_the_other_formats_have_none() {
        let books: Vec<CodeBook> = QuantType::ALL.iter().filter_map(|&quant| quant.try_into().ok()).collect();
        assert_eq!(books, CodeBook::ALL);
        assert_eq!(CodeBook::try_from(QuantType::Int4).unwrap_err().to_string(), "this build cannot quantise to int4");
    }

    #[test]
    fn a_given_compute_format_stands_and_an_fp16_input_sets_none() {
        use FloatType::{Bf16, Fp16, Fp32};
        for &input in FloatType::ALL {
            assert_eq!(settle_compute(Some(Fp16), input), (Fp16, Some(Fp16)));
        }
        assert_eq!(settle_compute(None, Bf16), (Bf16, Some(Bf16)));
        assert_eq!(settle_compute(None, Fp32), (Fp32, Some(Fp32)));
        assert_eq!(settle_compute(None, Fp16), (Fp16, None));
    }
}
