//! Whether kept results are right, decided without the code that made them.
//!
//! For a seeded sample of output rows: the weights are generated again and quantised by the scalar twin, the
//! packed bytes and statistics must agree exactly, and the outputs must agree with a product in f64 computed
//! by definition from the packed bytes. It runs after the sequence, on what was kept, wherever that came
//! from; it never repairs anything. Shares with the fast code only the tables and single roundings.

mod nvfp4;

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use super::host_weight::WeightSource;
use super::kept::{Kept, Stored, StoredNested, StoredScales, StoredStatistics};
use super::reference::codebook::{dynamic_map, dynamic_midpoints};
use super::reference::numbers::Reciprocal;
use super::reference::philox_init::{Purpose, Stream, weight_quad, weight_scale};
use super::reference::quantize_4bit::{accepts, block_absmax};
use super::reference::quantize_8bit::{self, NESTED_BLOCKSIZE};
use super::spec::{Blockwise, WeightFormat};
use crate::model::settings::FloatType;

/// Which output rows are looked at, and how exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Decides the rows.
    pub seed: u64,
    /// How many rows at most; the first and the last are always among them.
    pub rows: usize,
    /// Which reciprocals the implementation may have used.
    pub reciprocal: Reciprocal,
}

impl Sampling {
    /// The sampling of the layer whose weight comes from `source`: each layer has rows of its own.
    #[must_use]
    pub fn of_layer(self, source: WeightSource) -> Self {
        Self { seed: self.seed.wrapping_add(u64::from(source.number)), ..self }
    }

    /// The sampled rows in order: the edges, where launch geometry goes wrong, and seeded ones between.
    pub fn rows_of(self, out_features: usize) -> Vec<usize> {
        if self.rows >= out_features {
            return (0..out_features).collect();
        }
        let stream = Stream { seed: self.seed, number: 0, purpose: Purpose::Sample };
        let mut rows = BTreeSet::from([0, out_features - 1]);
        let mut counter = 0;
        while rows.len() < self.rows {
            rows.insert((u64::from(stream.words(counter)[0]) % out_features as u64) as usize);
            counter += 1;
        }
        rows.into_iter().collect()
    }
}

/// What was looked at and found right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Output rows.
    pub rows: usize,
    /// Outputs.
    pub outputs: usize,
    /// Packed bytes.
    pub packed_bytes: usize,
}

/// The first thing that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// There are fewer values than the shape demands.
    #[error("{what} has {got} elements, expected {expected}")]
    Size {
        /// Which array.
        what: &'static str,
        /// Elements that the shape demands.
        expected: usize,
        /// Elements that are there.
        got: usize,
    },
    /// A packed byte differs.
    #[error("packed byte {index} (row {row}) is {got:#04x}, expected {expected:#04x}, xor {xor:#04x}")]
    Packed {
        /// Position in the packed stream.
        index: usize,
        /// The sampled row that led to it.
        row: usize,
        /// What quantising the generated weights gives.
        expected: u8,
        /// What is there.
        got: u8,
        /// The bits that differ.
        xor: u8,
    },
    /// The absmax of a block differs.
    #[error("absmax {index} is {got:e}, expected {expected:e}")]
    Absmax {
        /// The block.
        index: usize,
        /// The largest magnitude of the generated weights.
        expected: f32,
        /// What is there.
        got: f32,
    },
    /// The absmax of a nested block differs.
    #[error("nested absmax {index} is {got:e}, expected {expected:e}")]
    NestedAbsmax {
        /// The nested block.
        index: usize,
        /// The largest centred magnitude.
        expected: f32,
        /// What is there.
        got: f32,
    },
    /// The 8-bit code of an absmax differs.
    #[error("nested code {index} is {got}, expected {expected}")]
    NestedCode {
        /// The block whose absmax it stands for.
        index: usize,
        /// What quantising the centred absmax gives.
        expected: u8,
        /// What is there.
        got: u8,
    },
    /// The E4M3 scale of a group differs.
    #[error("scale {index} is {got:#04x}, expected {expected:#04x}")]
    Scale {
        /// The group.
        index: usize,
        /// What the generated weights give under the scale of the tensor.
        expected: u8,
        /// What is there.
        got: u8,
    },
    /// The scale of the tensor is not one that the generated weights allow.
    #[error("the scale of the tensor is {got:e}, expected {lowest:e} to {highest:e}")]
    Global {
        /// What the largest weight is at least.
        lowest: f32,
        /// What it is at most.
        highest: f32,
        /// What is there.
        got: f32,
    },
    /// The statistics are those of another format.
    #[error("the statistics are not those of the layer's format")]
    OtherFormat,
    /// The mean of all absmax is not one that the sampled ones allow.
    #[error("offset is {got:e}, expected {expected:e} ± {tolerance:e}")]
    Offset {
        /// Mean of the sampled absmax.
        expected: f32,
        /// What is there.
        got: f32,
        /// Ten standard errors.
        tolerance: f32,
    },
    /// An output differs by more than rounding can explain.
    #[error("output ({row}, {index}) is {got:e}, expected {expected:e} ± {tolerance:e}")]
    Output {
        /// Row of the input.
        row: usize,
        /// Row of the weight.
        index: usize,
        /// The product in f64.
        expected: f64,
        /// What is there.
        got: f64,
        /// What rounding explains.
        tolerance: f64,
    },
}

/// Checks a sample of the rows of one layer on the current rayon pool.
///
/// # Errors
/// The first [`Mismatch`] by position: statistics first, then packed bytes, then outputs.
pub fn check(kept: Kept<'_>, sampling: Sampling) -> Result<Checked, Mismatch> {
    check_sizes(kept)?;
    let rows = sampling.rows_of(kept.spec.shape.height());
    match (kept.spec.format, kept.statistics) {
        (WeightFormat::Blockwise(format), _) => {
            Oracle { kept, format, reciprocal: sampling.reciprocal }.check(&rows)?;
        }
        (WeightFormat::Nvfp4, StoredStatistics::Scaled(scales)) => nvfp4::check(kept, scales, &rows)?,
        (WeightFormat::Nvfp4, StoredStatistics::Plain(_) | StoredStatistics::Nested(_)) => {
            return Err(Mismatch::OtherFormat);
        }
    }
    let packed_bytes = rows.iter().map(|&row| kept.spec.bytes_of(row).len()).sum();
    Ok(Checked { rows: rows.len(), outputs: rows.len() * kept.x.rows(), packed_bytes })
}

/// The mismatch of the first item in order, however many threads look.
fn first_error<T: Copy + Sync>(items: &[T], check: impl Fn(T) -> Result<(), Mismatch> + Sync) -> Result<(), Mismatch> {
    items.par_iter().find_map_first(|&item| check(item).err()).map_or(Ok(()), Err)
}

fn check_sizes(kept: Kept<'_>) -> Result<(), Mismatch> {
    let shape = kept.spec.shape;
    let blocks = kept.spec.blocks();
    let (absmax, absmax2) = match kept.statistics {
        StoredStatistics::Plain(absmax) => (absmax.len(), blocks.div_ceil(NESTED_BLOCKSIZE)),
        StoredStatistics::Nested(nested) => (nested.codes.len(), nested.absmax2.len()),
        StoredStatistics::Scaled(StoredScales { scales, .. }) => (scales.len(), blocks.div_ceil(NESTED_BLOCKSIZE)),
    };
    for (what, expected, got) in [
        ("packed", shape.elements().div_ceil(2), kept.packed.len()),
        ("absmax", blocks, absmax),
        ("nested absmax", blocks.div_ceil(NESTED_BLOCKSIZE), absmax2),
        ("an input row", shape.width(), kept.x.width()),
        ("an output row", shape.height(), kept.y.width()),
        ("the output's column", kept.x.rows(), kept.y.rows()),
    ] {
        if expected != got {
            return Err(Mismatch::Size { what, expected, got });
        }
    }
    Ok(())
}

/// The weights of a range of elements, generated again.
fn weights_of(source: WeightSource, elements: Range<usize>) -> Vec<f32> {
    let (stream, scale) = (source.stream(), weight_scale(source.shape.width()));
    let quads = elements.start / 4..elements.end.div_ceil(4);
    let skipped = elements.start - quads.start * 4;
    let values = quads.flat_map(|quad| weight_quad(stream, quad as u64, scale));
    values.skip(skipped).take(elements.len()).collect()
}

/// The outputs of one row of the weight, which by definition is `weights`, for every row of the input.
fn check_outputs(kept: Kept<'_>, row: usize, weights: &[f64]) -> Result<(), Mismatch> {
    let x = kept.x.cast(kept.compute).widened();
    for (batch, x) in x.chunks(kept.x.width()).enumerate() {
        let (mut expected, mut magnitude) = (0.0, 0.0);
        for (x, weight) in x.iter().zip(weights) {
            expected += f64::from(*x) * weight;
            magnitude += (f64::from(*x) * weight).abs();
        }
        let got = kept.y.value(batch, row);
        let ulp = kept.y.format().ulp_at(expected).max(kept.compute.ulp_at(expected));
        let tolerance = relative_tolerance(kept.compute, weights.len()) * magnitude + ulp;
        // A NaN fails this comparison, as it must.
        let right = (got - expected).abs() <= tolerance;
        if !right {
            return Err(Mismatch::Output { row: batch, index: row, expected, got, tolerance });
        }
    }
    Ok(())
}

/// One layer of a blockwise format under examination.
#[derive(Clone, Copy)]
struct Oracle<'a> {
    kept: Kept<'a>,
    format: Blockwise,
    reciprocal: Reciprocal,
}

impl Oracle<'_> {
    fn check(self, rows: &[usize]) -> Result<(), Mismatch> {
        match self.kept.statistics {
            StoredStatistics::Plain(absmax) => first_error(rows, |row| self.check_absmax(absmax, row))?,
            StoredStatistics::Nested(nested) => self.check_nested(nested, rows)?,
            StoredStatistics::Scaled(_) => return Err(Mismatch::OtherFormat),
        }
        first_error(rows, |row| self.check_packed(row))?;
        first_error(rows, |row| check_outputs(self.kept, row, &self.row_in_f64(row)))
    }

    fn weights(self, elements: Range<usize>) -> Vec<f32> {
        weights_of(self.kept.source, elements)
    }

    fn blocksize(self) -> usize {
        self.format.blocksize.elements()
    }

    /// absmax of whole blocks by the twin.
    fn absmax_of(self, blocks: Range<usize>) -> Vec<f32> {
        let weights = self.weights(self.kept.spec.elements_of(&blocks));
        weights.chunks(self.blocksize()).map(|block| block_absmax(block, self.blocksize())).collect()
    }

    fn check_absmax(self, absmax: Stored<'_, f32>, row: usize) -> Result<(), Mismatch> {
        let blocks = self.kept.spec.blocks_of(row);
        for (index, expected) in blocks.clone().zip(self.absmax_of(blocks)) {
            let got = absmax.at(index);
            if got.to_bits() != expected.to_bits() {
                return Err(Mismatch::Absmax { index, expected, got });
            }
        }
        Ok(())
    }

    /// Every nested block that a sampled row leans on, whole, and whether the mean fits them.
    fn check_nested(self, nested: StoredNested<'_>, rows: &[usize]) -> Result<(), Mismatch> {
        let spec = self.kept.spec;
        let touched = rows.iter().flat_map(|&row| spec.nested_blocks_of(row));
        let indices: Vec<usize> = touched.collect::<BTreeSet<_>>().into_iter().collect();
        let absmax: Vec<Vec<f32>> =
            indices.par_iter().map(|&index| self.absmax_of(spec.blocks_of_nested(index))).collect();
        check_offset(nested.offset, absmax.iter().flatten().map(|absmax| f64::from(*absmax)))?;
        let midpoints = dynamic_midpoints(&dynamic_map());
        for (index, absmax) in indices.into_iter().zip(absmax) {
            self.check_nested_block(nested, index, &absmax, &midpoints)?;
        }
        Ok(())
    }

    fn check_nested_block(
        self,
        nested: StoredNested<'_>,
        index: usize,
        absmax: &[f32],
        midpoints: &[f32; 255],
    ) -> Result<(), Mismatch> {
        let centred: Vec<f32> = absmax.iter().map(|absmax| absmax - nested.offset).collect();
        let expected = block_absmax(&centred, NESTED_BLOCKSIZE);
        let got = nested.absmax2.at(index);
        if got.to_bits() != expected.to_bits() {
            return Err(Mismatch::NestedAbsmax { index, expected, got });
        }
        let first = index * NESTED_BLOCKSIZE;
        let codes = quantize_8bit::quantize_8bit(&centred).codes;
        for (i, (centred, expected)) in centred.into_iter().zip(codes).enumerate() {
            let code = nested.codes.at(first + i);
            if !quantize_8bit::accepts(centred, got, midpoints, code, self.reciprocal) {
                return Err(Mismatch::NestedCode { index: first + i, expected, got: code });
            }
        }
        Ok(())
    }

    /// The packed bytes of the blocks of one row against the twin's nibbles.
    fn check_packed(self, row: usize) -> Result<(), Mismatch> {
        let blocks = self.kept.spec.blocks_of(row);
        let mut weights = self.weights(self.kept.spec.elements_of(&blocks));
        let absmax = self.absmax_of(blocks);
        if weights.len() % 2 == 1 {
            // The missing half of the last byte is the code of zero.
            weights.push(0.0);
        }
        let per_block = self.blocksize() / 2;
        for (i, (index, pair)) in self.kept.spec.bytes_of(row).zip(weights.as_chunks::<2>().0).enumerate() {
            let absmax = absmax[i / per_block];
            let admits = |x, nibble| accepts(x, absmax, self.format.book, nibble, self.reciprocal);
            let got = self.kept.packed.at(index);
            if !admits(pair[0], got >> 4) || !admits(pair[1], got & 15) {
                let exact = |x| (0..16).find(|&nibble| accepts(x, absmax, self.format.book, nibble, Reciprocal::Exact));
                let expected = exact(pair[0]).unwrap_or(0) << 4 | exact(pair[1]).unwrap_or(0);
                return Err(Mismatch::Packed { index, row, expected, got, xor: expected ^ got });
            }
        }
        Ok(())
    }

    /// One row of the weight by definition: `table[index] * absmax'` in f64.
    fn row_in_f64(self, row: usize) -> Vec<f64> {
        let spec = self.kept.spec;
        let (table, map) = (self.format.book.kernel_table().map(f64::from), dynamic_map());
        let absmax = |block: usize| match self.kept.statistics {
            StoredStatistics::Plain(absmax) => f64::from(absmax.at(block)),
            StoredStatistics::Nested(StoredNested { codes, absmax2, offset }) => {
                let code = f64::from(map[usize::from(codes.at(block))]);
                code * f64::from(absmax2.at(block / NESTED_BLOCKSIZE)) + f64::from(offset)
            }
            StoredStatistics::Scaled(_) => unreachable!("the statistics were checked first"),
        };
        let width = spec.shape.width();
        let weight = |k: usize| {
            let index = self.kept.packed.at(k / 2) >> (4 * (1 - k % 2)) & 15;
            table[usize::from(index)] * absmax(k / self.blocksize())
        };
        (row * width..(row + 1) * width).map(weight).collect()
    }
}

/// Whether `offset` can be the mean of a population of which `sample` is a part.
///
/// The weights are independent, so the sample's mean is within ten standard errors for all practical purposes;
/// a sample of everything leaves only the rounding of the mean.
fn check_offset(offset: f32, sample: impl Iterator<Item = f64> + Clone) -> Result<(), Mismatch> {
    let count = sample.clone().count() as f64;
    let mean = sample.clone().sum::<f64>() / count;
    let variance = sample.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let tolerance = 10.0 * (variance / count).sqrt() + 1e-6 * mean;
    let right = (f64::from(offset) - mean).abs() <= tolerance;
    if right {
        Ok(())
    } else {
        Err(Mismatch::Offset { expected: mean as f32, got: offset, tolerance: tolerance as f32 })
    }
}

/// What rounding may make of a product, relative to the sum of the magnitudes of its terms.
///
/// With u the unit roundoff of the compute format, the fused kernel rounds the table value, the absmax, the
/// weight and the product of each term: 4u at worst. It takes at least 32 terms whose errors do not all point
/// one way, so 2u is granted: 2^-7 for bf16. Sums of K terms in f32 add at most K * 2^-24 in any order; that is
/// granted to the finer formats only, because bf16 has room for it.
fn relative_tolerance(compute: FloatType, terms: usize) -> f64 {
    let sums = (terms + 8) as f64 * FloatType::Fp32.unit_roundoff();
    (2.0 * compute.unit_roundoff() + sums).min(1.0 / 128.0)
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
