//! What is left of a layer and one forward call when the sequence is over: all of it, or a sample.
//!
//! A layer that the program frees must really go, or the memory of the process would not be what it claims to be. So
//! before it goes, what the oracle will look at is copied: a few rows of packed bytes with their statistics, and a
//! few outputs, each piece by itself, so that nothing large is copied between two layers. Owns the copying and the
//! access; it computes nothing and judges nothing.

use std::convert::Infallible;
use std::ops::Range;

use super::host_weight::WeightSource;
use super::layer::{Layer, Statistics};
use super::oracle::Sampling;
use super::reference::quantize_8bit::{NESTED_BLOCKSIZE, Nested};
use super::rows::Rows;
use super::spec::{Blockwise, LayerSpec, StatisticsKind, WeightFormat};
use crate::model::settings::FloatType;

/// What is left of a layer and one forward call.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    /// Where the weight came from.
    pub source: WeightSource,
    /// What the layer was asked to be.
    pub spec: &'a LayerSpec,
    /// The packed bytes.
    pub packed: Stored<'a, u8>,
    /// The statistics.
    pub statistics: StoredStatistics<'a>,
    /// The format that the product was computed in.
    pub compute: FloatType,
    /// The input.
    pub x: &'a Rows,
    /// The output.
    pub y: StoredRows<'a>,
}

impl<'a> Kept<'a> {
    /// What `layer` and its call `x` → `y` left.
    pub fn of(layer: &'a Layer, x: &'a Rows, y: &'a Rows) -> Self {
        Self {
            source: layer.source(),
            spec: layer.spec(),
            packed: Stored::Whole(layer.packed()),
            statistics: layer.statistics().into(),
            compute: layer.compute_for(x.format()),
            x,
            y: StoredRows::Whole(y),
        }
    }
}

/// An array of which only some pieces may have been kept.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'a, T> {
    /// All of it.
    Whole(&'a [T]),
    /// Pieces of it.
    Pieces(&'a Pieces<T>),
}

impl<T: Copy> Stored<'_, T> {
    /// Elements of the whole array.
    pub fn len(self) -> usize {
        match self {
            Self::Whole(whole) => whole.len(),
            Self::Pieces(pieces) => pieces.len,
        }
    }

    /// Whether the whole array is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// One element.
    ///
    /// # Panics
    /// If there is no such element, or it was not kept.
    pub fn at(self, index: usize) -> T {
        match self {
            Self::Whole(whole) => whole[index],
            Self::Pieces(pieces) => pieces.at(index),
        }
    }
}

/// Pieces of an array, in ascending order of both ends; they may overlap.
#[derive(Debug, Clone, PartialEq)]
pub struct Pieces<T> {
    len: usize,
    pieces: Vec<(usize, Vec<T>)>,
}

impl<T: Copy> Pieces<T> {
    /// Reads `ranges` of an array of `len` elements; a range that reaches beyond its end is cut.
    fn read<E>(
        len: usize,
        ranges: impl Iterator<Item = Range<usize>>,
        mut read: impl FnMut(Range<usize>) -> Result<Vec<T>, E>,
    ) -> Result<Self, E> {
        let piece = |range: Range<usize>| {
            let end = range.end.min(len);
            let start = range.start.min(end);
            Ok((start, read(start..end)?))
        };
        Ok(Self { len, pieces: ranges.map(piece).collect::<Result<_, E>>()? })
    }

    fn at(&self, index: usize) -> T {
        // Both ends ascend, so the last piece that begins at or before the index holds it if any does.
        let after = self.pieces.partition_point(|(start, _)| *start <= index);
        let (start, piece) = &self.pieces[after - 1];
        piece[index - start]
    }
}

/// The statistics, or what was kept of them.
#[derive(Debug, Clone, Copy)]
pub enum StoredStatistics<'a> {
    /// One fp32 per block.
    Plain(Stored<'a, f32>),
    /// Doubly quantised.
    Nested(StoredNested<'a>),
    /// One E4M3 a group under a scale of the tensor.
    Scaled(StoredScales<'a>),
}

/// The scales of NVFP4, or what was kept of them.
#[derive(Debug, Clone, Copy)]
pub struct StoredScales<'a> {
    /// One E4M3 a group.
    pub scales: Stored<'a, u8>,
    /// The scale of the tensor.
    pub global: f32,
}

/// Doubly quantised statistics, or what was kept of them.
#[derive(Debug, Clone, Copy)]
pub struct StoredNested<'a> {
    /// One code per block.
    pub codes: Stored<'a, u8>,
    /// One fp32 per nested block.
    pub absmax2: Stored<'a, f32>,
    /// The mean of the block maxima.
    pub offset: f32,
}

impl<'a> From<&'a Statistics> for StoredStatistics<'a> {
    fn from(statistics: &'a Statistics) -> Self {
        match statistics {
            Statistics::Plain(absmax) => Self::Plain(Stored::Whole(absmax)),
            Statistics::Nested(Nested { quantized, offset }) => Self::Nested(StoredNested {
                codes: Stored::Whole(&quantized.codes),
                absmax2: Stored::Whole(&quantized.absmax2),
                offset: *offset,
            }),
            Statistics::Scaled { scales, global } => {
                Self::Scaled(StoredScales { scales: Stored::Whole(scales), global: *global })
            }
        }
    }
}

/// The output, or what was kept of it.
#[derive(Debug, Clone, Copy)]
pub enum StoredRows<'a> {
    /// All of it.
    Whole(&'a Rows),
    /// Some columns of it.
    Columns(&'a Columns),
}

impl StoredRows<'_> {
    /// Rows of the whole output.
    pub fn rows(self) -> usize {
        match self {
            Self::Whole(rows) => rows.rows(),
            Self::Columns(columns) => columns.rows,
        }
    }

    /// Values per row of the whole output.
    pub fn width(self) -> usize {
        match self {
            Self::Whole(rows) => rows.width(),
            Self::Columns(columns) => columns.width,
        }
    }

    /// The format.
    pub fn format(self) -> FloatType {
        match self {
            Self::Whole(rows) => rows.format(),
            Self::Columns(columns) => columns.format,
        }
    }

    /// One value.
    ///
    /// # Panics
    /// If there is no such value, or it was not kept.
    pub fn value(self, row: usize, column: usize) -> f64 {
        match self {
            Self::Whole(rows) => rows.value(row, column),
            Self::Columns(columns) => columns.value(row, column),
        }
    }
}

/// Some columns of an output: those of the sampled rows of the weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    rows: usize,
    width: usize,
    format: FloatType,
    /// Which columns, ascending.
    columns: Vec<usize>,
    /// The values, column after column.
    values: Vec<f64>,
}

impl Columns {
    /// Copies the columns of `y` that `sampling` looks at.
    pub fn of(y: &Rows, sampling: Sampling) -> Self {
        let columns = sampling.rows_of(y.width());
        let values = columns.iter().flat_map(|&column| (0..y.rows()).map(move |row| y.value(row, column)));
        Self { rows: y.rows(), width: y.width(), format: y.format(), values: values.collect(), columns }
    }

    fn value(&self, row: usize, column: usize) -> f64 {
        let at = self.columns.binary_search(&column).expect("only sampled columns are looked at");
        self.values[at * self.rows + row]
    }
}

/// A sample of a layer that is gone.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    packed: Pieces<u8>,
    statistics: SampledStatistics,
}

#[derive(Debug, Clone, PartialEq)]
enum SampledStatistics {
    Plain(Pieces<f32>),
    Nested { codes: Pieces<u8>, absmax2: Pieces<f32>, offset: f32 },
    Scaled { scales: Pieces<u8>, global: f32 },
}

/// An array of bytes of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteArray {
    /// The packed weights.
    Packed,
    /// The quantised block maxima.
    Codes,
    /// The E4M3 scales of groups.
    Scales,
}

/// An array of fp32 of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatArray {
    /// The block maxima.
    Absmax,
    /// Their own block maxima.
    NestedAbsmax,
    /// The mean of the block maxima: one value.
    Offset,
    /// The scale of the tensor: one value.
    Global,
}

/// A layer that can be read in pieces, wherever it lies.
pub trait InPieces {
    /// Why a piece could not be read.
    type Error;

    /// The elements of an array in `range`, which does not reach beyond it.
    ///
    /// # Errors
    /// If they cannot be read.
    fn bytes(&mut self, array: ByteArray, range: Range<usize>) -> Result<Vec<u8>, Self::Error>;

    /// The elements of an array in `range`, which does not reach beyond it.
    ///
    /// # Errors
    /// If they cannot be read.
    fn floats(&mut self, array: FloatArray, range: Range<usize>) -> Result<Vec<f32>, Self::Error>;
}

/// A layer in the memory of this process.
struct InMemory<'a>(&'a Layer);

impl InPieces for InMemory<'_> {
    type Error = Infallible;

    fn bytes(&mut self, array: ByteArray, range: Range<usize>) -> Result<Vec<u8>, Infallible> {
        Ok(match (array, self.0.statistics()) {
            (ByteArray::Packed, _) => self.0.packed()[range].to_vec(),
            (ByteArray::Codes, Statistics::Nested(nested)) => nested.quantized.codes[range].to_vec(),
            (ByteArray::Scales, Statistics::Scaled { scales, .. }) => scales[range].to_vec(),
            (ByteArray::Codes, Statistics::Plain(_) | Statistics::Scaled { .. }) => Vec::new(),
            (ByteArray::Scales, Statistics::Plain(_) | Statistics::Nested(_)) => Vec::new(),
        })
    }

    fn floats(&mut self, array: FloatArray, range: Range<usize>) -> Result<Vec<f32>, Infallible> {
        Ok(match (array, self.0.statistics()) {
            (FloatArray::Absmax, Statistics::Plain(absmax)) => absmax[range].to_vec(),
            (FloatArray::NestedAbsmax, Statistics::Nested(nested)) => nested.quantized.absmax2[range].to_vec(),
            (FloatArray::Offset, Statistics::Nested(nested)) => vec![nested.offset],
            (FloatArray::Global, Statistics::Scaled { global, .. }) => vec![*global],
            (FloatArray::Absmax, Statistics::Nested(_)) => Vec::new(),
            (FloatArray::NestedAbsmax | FloatArray::Offset, Statistics::Plain(_)) => Vec::new(),
            (FloatArray::Absmax | FloatArray::NestedAbsmax | FloatArray::Offset, Statistics::Scaled { .. }) => {
                Vec::new()
            }
            (FloatArray::Global, Statistics::Plain(_) | Statistics::Nested(_)) => Vec::new(),
        })
    }
}

impl Sample {
    /// Copies what `sampling` will look at of `layer`.
    pub fn of(layer: &Layer, sampling: Sampling) -> Self {
        let Ok(sample) = Self::read(layer.spec(), sampling, &mut InMemory(layer));
        sample
    }

    /// Reads what `sampling` will look at of a layer of this `spec`, and no more: a few kilobytes in short pieces.
    ///
    /// # Errors
    /// The layer's.
    pub fn read<L: InPieces>(spec: &LayerSpec, sampling: Sampling, layer: &mut L) -> Result<Self, L::Error> {
        let rows = sampling.rows_of(spec.shape.height());
        let blocks = spec.blocks();
        let nested = || rows.iter().map(|&row| spec.nested_blocks_of(row));
        let covered =
            |blocks: Range<usize>| spec.blocks_of_nested(blocks.start).start..spec.blocks_of_nested(blocks.end - 1).end;
        let packed =
            Pieces::read(spec.shape.elements().div_ceil(2), rows.iter().map(|&row| spec.bytes_of(row)), |range| {
                layer.bytes(ByteArray::Packed, range)
            })?;
        let ranges = rows.iter().map(|&row| spec.blocks_of(row));
        let statistics = match spec.format {
            WeightFormat::Nvfp4 => SampledStatistics::Scaled {
                scales: Pieces::read(blocks, ranges, |range| layer.bytes(ByteArray::Scales, range))?,
                global: layer.floats(FloatArray::Global, 0..1)?[0],
            },
            WeightFormat::Blockwise(Blockwise { statistics: StatisticsKind::Plain, .. }) => {
                SampledStatistics::Plain(Pieces::read(blocks, ranges, |range| layer.floats(FloatArray::Absmax, range))?)
            }
            WeightFormat::Blockwise(Blockwise { statistics: StatisticsKind::Nested, .. }) => {
                SampledStatistics::Nested {
                    codes: Pieces::read(blocks, nested().map(covered), |range| layer.bytes(ByteArray::Codes, range))?,
                    absmax2: Pieces::read(blocks.div_ceil(NESTED_BLOCKSIZE), nested(), |range| {
                        layer.floats(FloatArray::NestedAbsmax, range)
                    })?,
                    offset: layer.floats(FloatArray::Offset, 0..1)?[0],
                }
            }
        };
        Ok(Self { packed, statistics })
    }

    /// The packed bytes that were kept.
    pub fn packed(&self) -> Stored<'_, u8> {
        Stored::Pieces(&self.packed)
    }

    /// The statistics that were kept.
    pub fn statistics(&self) -> StoredStatistics<'_> {
        match &self.statistics {
            SampledStatistics::Plain(absmax) => StoredStatistics::Plain(Stored::Pieces(absmax)),
            SampledStatistics::Nested { codes, absmax2, offset } => StoredStatistics::Nested(StoredNested {
                codes: Stored::Pieces(codes),
                absmax2: Stored::Pieces(absmax2),
                offset: *offset,
            }),
            SampledStatistics::Scaled { scales, global } => {
                StoredStatistics::Scaled(StoredScales { scales: Stored::Pieces(scales), global: *global })
            }
        }
    }

    /// Flips the bits `xor` of the first packed byte, which belongs to row 0 and is in every sample: the injected
    /// fault `wrong`, as [`Layer::corrupt_packed`] does to a layer that lives.
    pub fn corrupt_first_byte(&mut self, xor: u8) {
        self.packed.pieces[0].1[0] ^= xor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_pieces_give_the_elements_of_the_whole() {
        let whole: Vec<u32> = (0..100).collect();
        let ranges = [0..10, 8..12, 12..12, 40..99, 98..200].into_iter();
        let Ok(pieces) = Pieces::read(whole.len(), ranges, |range| Ok::<_, Infallible>(whole[range].to_vec()));
        let stored = Stored::Pieces(&pieces);
        assert_eq!(stored.len(), 100);
        for index in (0..12).chain(40..100) {
            assert_eq!(stored.at(index), index as u32);
        }
    }
}
