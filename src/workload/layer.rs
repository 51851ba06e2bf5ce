//! One 4-bit linear layer on the CPU, in the steps that a driver reports as stages.
//!
//! `HostWeight::construct` → [`Layer::quantize`] → drop the host weight → [`Layer::forward`]. The layer owns
//! its packed bytes and statistics for as long as it lives, which is what keeps memory occupied. It knows no
//! allocator and reports nothing.

use half::{bf16, f16};

use super::fast;
use super::fast::rounding::FastElement;
use super::host_weight::{HostWeight, WeightSource};
use super::reference::gemv_4bit::PackedMatrix;
use super::reference::nvfp4::{GROUP, Nvfp4, Nvfp4Matrix};
use super::reference::quantize_8bit::Nested;
use super::rows::{IntoWords, Rows, Words};
use super::spec::{Blockwise, LayerError, LayerSpec, StatisticsKind, WeightFormat, settle_compute};
use crate::model::settings::{FloatType, Storage};

/// What the packed indices are multiplied by, as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Statistics {
    /// One fp32 per block.
    Plain(Vec<f32>),
    /// Doubly quantised.
    Nested(Nested),
    /// One E4M3 a group under a scale of the tensor.
    Scaled {
        /// One E4M3 a group.
        scales: Vec<u8>,
        /// The scale of the tensor.
        global: f32,
    },
}

/// How a forward call is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardPath {
    /// The fused product of one row with the packed weight.
    Gemv,
    /// The fused product of several rows with the packed weight.
    FusedRows,
    /// Dequantise, then an ordinary matrix product.
    DequantizeThenMatmul,
}

impl ForwardPath {
    /// How a call of a layer of this `spec` with so many rows is computed.
    pub fn of(spec: &LayerSpec, rows: usize) -> Self {
        match spec.format {
            WeightFormat::Nvfp4 if rows == 1 => Self::Gemv,
            WeightFormat::Nvfp4 => Self::FusedRows,
            WeightFormat::Blockwise(Blockwise { blocksize, .. }) => {
                let is_fused = rows == 1 && spec.shape.width().is_multiple_of(blocksize.elements());
                if is_fused { Self::Gemv } else { Self::DequantizeThenMatmul }
            }
        }
    }
}

/// A quantised layer.
#[derive(Debug, Clone)]
pub struct Layer {
    spec: LayerSpec,
    source: WeightSource,
    packed: Vec<u8>,
    statistics: Statistics,
    compute: Option<FloatType>,
}

impl Layer {
    /// Quantises `weight`, which must have the shape of `spec`.
    ///
    /// # Errors
    /// If the shapes differ or the host does not give the memory.
    pub fn quantize(weight: &HostWeight, spec: LayerSpec) -> Result<Self, LayerError> {
        let shape = weight.source().shape;
        if shape != spec.shape {
            return Err(LayerError::OtherShape { weight: shape, layer: spec.shape });
        }
        let (packed, statistics) = match spec.format {
            WeightFormat::Blockwise(format) => quantize_blockwise(weight.as_slice(), format)?,
            WeightFormat::Nvfp4 if !shape.width().is_multiple_of(GROUP) => {
                return Err(LayerError::Group { width: shape.width(), group: GROUP });
            }
            WeightFormat::Nvfp4 => {
                let Nvfp4 { packed, scales, global } = fast::nvfp4::quantize(weight.as_slice())?;
                (packed, Statistics::Scaled { scales, global })
            }
        };
        let (source, compute) = (weight.source(), spec.compute);
        Ok(Self { spec, source, packed, statistics, compute })
    }

    /// A layer that was quantised elsewhere, such as on a device. Nothing is checked: that is the oracle's.
    pub fn from_parts(spec: LayerSpec, source: WeightSource, packed: Vec<u8>, statistics: Statistics) -> Self {
        Self { spec, source, packed, statistics, compute: spec.compute }
    }

    /// What the layer was asked to be.
    pub fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    /// Where its weight came from.
    pub fn source(&self) -> WeightSource {
        self.source
    }

    /// The packed bytes: ceil(n / 2) of them, the even element in the high nibble, in the low one of NVFP4.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// The statistics.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The packed tensor as its storage type sees it.
    pub fn storage_view(&self) -> StorageView<'_> {
        StorageView::new(self.spec.storage, &self.packed)
    }

    /// Flips the bits `xor` of one packed byte: the injected fault `wrong`, and the proof that the oracle sees it.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn corrupt_packed(&mut self, byte: usize, xor: u8) {
        self.packed[byte] ^= xor;
    }

    /// How a call with so many rows is computed.
    ///
    /// The fused kernel takes one row whose blocks do not cross row ends; bitsandbytes warns and dequantises
    /// when a single row does not qualify.
    pub fn path(&self, rows: usize) -> ForwardPath {
        ForwardPath::of(&self.spec, rows)
    }

    /// `x W^T` (rows x out_features) in the format of `x`, computed in the layer's compute format.
    ///
    /// Without a given compute format the first fp32 or bf16 input sets it, hence `&mut`.
    ///
    /// # Errors
    /// If the width of `x` is not in_features or the host does not give the memory.
    pub fn forward(&mut self, x: &Rows) -> Result<Rows, LayerError> {
        let expected = self.spec.shape.width();
        if x.width() != expected {
            return Err(LayerError::Width { expected, got: x.width() });
        }
        let (compute, kept) = settle_compute(self.compute, x.format());
        self.compute = kept;
        let y = match x.cast(compute).words() {
            Words::Bf16(x) => self.multiply::<bf16>(x)?,
            Words::Fp16(x) => self.multiply::<f16>(x)?,
            Words::Fp32(x) => self.multiply::<f32>(x)?,
        };
        Ok(y.cast(x.format()))
    }

    /// The compute format that a call with this input would use.
    pub fn compute_for(&self, input: FloatType) -> FloatType {
        settle_compute(self.compute, input).0
    }

    fn multiply<T: FastElement + IntoWords + Default>(&self, x: &[T]) -> Result<Rows, LayerError> {
        let shape = self.spec.shape;
        let blockwise = |absmax: &[f32]| {
            let WeightFormat::Blockwise(Blockwise { book, blocksize, .. }) = self.spec.format else {
                unreachable!("only blockwise formats have block maxima")
            };
            let matrix = PackedMatrix {
                packed: &self.packed,
                absmax,
                book,
                blocksize: blocksize.elements(),
                in_features: shape.width(),
                out_features: shape.height(),
            };
            match self.path(x.len() / shape.width()) {
                ForwardPath::Gemv => fast::gemv::gemv_4bit(matrix, x),
                ForwardPath::FusedRows | ForwardPath::DequantizeThenMatmul => fast::matmul::matmul(matrix, x),
            }
        };
        let y = match &self.statistics {
            Statistics::Plain(absmax) => blockwise(absmax)?,
            Statistics::Nested(nested) => blockwise(&fast::nested::restore(nested)?)?,
            Statistics::Scaled { scales, global } => {
                let (packed, in_features) = (self.packed.as_slice(), shape.width());
                fast::nvfp4::product(Nvfp4Matrix { packed, scales, global: *global, in_features }, x)?
            }
        };
        Ok(Rows::new(shape.height(), y))
    }
}

fn quantize_blockwise(weight: &[f32], format: Blockwise) -> Result<(Vec<u8>, Statistics), LayerError> {
    let quantized = fast::quantize::quantize_4bit(weight, format.book, format.blocksize)?;
    let statistics = match format.statistics {
        StatisticsKind::Plain => Statistics::Plain(quantized.absmax),
        StatisticsKind::Nested => Statistics::Nested(fast::nested::nest(&quantized.absmax)?),
    };
    Ok((quantized.packed, statistics))
}

/// The packed bytes re-typed, little-endian; no byte moves.
///
/// The tensor has (n + 1) / (2 * size) elements rounded down: with an element wider than a byte, the last
/// bytes may lie outside it, although the kernel writes them.
#[derive(Debug, Clone, Copy)]
pub struct StorageView<'a> {
    storage: Storage,
    bytes: &'a [u8],
}

impl<'a> StorageView<'a> {
    /// `bytes` seen as `storage`.
    pub fn new(storage: Storage, bytes: &'a [u8]) -> Self {
        Self { storage, bytes }
    }

    fn element_bytes(self) -> usize {
        self.storage.bytes() as usize
    }

    /// Elements of the tensor, whose shape is (elements, 1).
    pub fn elements(self) -> usize {
        self.bytes.len() / self.element_bytes()
    }

    /// Bytes that the kernel writes and the tensor does not reach; 0 for every real shape.
    pub fn truncated_bytes(self) -> usize {
        self.bytes.len() % self.element_bytes()
    }

    /// The elements as bit patterns, low bits first.
    pub fn words(self) -> impl Iterator<Item = u32> + 'a {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        self.bytes.chunks_exact(self.element_bytes()).map(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_type_is_another_view_of_the_same_bytes() {
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89];
        let words = |storage| StorageView::new(storage, &bytes).words().collect::<Vec<_>>();
        assert_eq!(words(Storage::Uint8), [0x01, 0x23, 0x45, 0x67, 0x89]);
        assert_eq!(words(Storage::Bf16), [0x2301, 0x6745]);
        assert_eq!(words(Storage::Fp16), words(Storage::Bf16));
        assert_eq!(words(Storage::Fp32), [0x6745_2301]);
    }

    #[test]
    fn the_tensor_is_cut_when_the_elements_do_not_fill_a_word() {
        for n in 1usize..50 {
            let bytes = vec![0; n.div_ceil(2)];
            for &storage in Storage::ALL {
                let view = StorageView::new(storage, &bytes);
                assert_eq!(view.elements(), (n + 1) / (2 * storage.bytes() as usize), "{n} {storage}");
                assert_eq!(view.elements() * storage.bytes() as usize + view.truncated_bytes(), bytes.len());
            }
        }
    }
}
