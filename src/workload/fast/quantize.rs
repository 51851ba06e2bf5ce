//! Blockwise 4-bit quantisation on all threads: the bits of the twin `quantize_4bit`.
//!
//! A block is read twice while it is in the cache: once for its absmax, once for its indices, 32 elements
//! at a time in fixed-size arrays that the compiler turns into vector compares.

use rayon::prelude::*;

use super::{TASK_ELEMENTS, zeroed};
use crate::model::settings::Blocksize;
use crate::workload::reference::codebook::{CodeBook, FP4_INDEX_BY_COUNT, FP4_THRESHOLDS, NF4_THRESHOLDS};
use crate::workload::reference::numbers::{Element, flush, reciprocal_flushed};
use crate::workload::reference::quantize_4bit::Quantized;
use crate::workload::spec::LayerError;

/// Elements whose indices are found together.
const GROUP: usize = 32;

/// Quantises `x`: ceil(n / 2) packed bytes and ceil(n / blocksize) absmax.
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn quantize_4bit<T: Element>(x: &[T], book: CodeBook, blocksize: Blocksize) -> Result<Quantized, LayerError> {
    let blocksize = blocksize.elements();
    let mut packed = zeroed::<u8>(x.len().div_ceil(2), "packed weights")?;
    let mut absmax = zeroed::<f32>(x.len().div_ceil(blocksize), "absmax")?;
    let tasks = x
        .par_chunks(TASK_ELEMENTS)
        .zip(packed.par_chunks_mut(TASK_ELEMENTS / 2))
        .zip(absmax.par_chunks_mut(TASK_ELEMENTS / blocksize));
    tasks.for_each(|((x, packed), absmax)| {
        let blocks = x.chunks(blocksize).zip(packed.chunks_mut(blocksize / 2)).zip(absmax);
        for ((x, packed), absmax) in blocks {
            *absmax = block_absmax(x, blocksize);
            let r = reciprocal_flushed(*absmax);
            match book {
                CodeBook::Nf4 => pack_block(x, r, packed, nf4_indices),
                CodeBook::Fp4 => pack_block(x, r, packed, fp4_indices),
            }
        }
    });
    Ok(Quantized { packed, absmax })
}

/// The largest magnitude of a block, in [`GROUP`] independent maxima so that no compare waits for another.
fn block_absmax<T: Element>(x: &[T], blocksize: usize) -> f32 {
    let larger = |largest: f32, magnitude: f32| if magnitude > largest { magnitude } else { largest };
    let mut lanes = [-f32::MAX; GROUP];
    let (groups, rest) = x.as_chunks::<GROUP>();
    for group in groups {
        for (lane, element) in lanes.iter_mut().zip(group) {
            *lane = larger(*lane, element.widen().abs());
        }
    }
    for (lane, element) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, element.widen().abs());
    }
    let start = if x.len() < blocksize { 0.0 } else { -f32::MAX };
    // Flushing is monotone, so flushing the maximum is the maximum of the flushed.
    flush(lanes.into_iter().fold(start, larger))
}

/// Packs one block.
fn pack_block<T: Element>(x: &[T], r: f32, packed: &mut [u8], indices: fn(&[f32; GROUP]) -> [u8; GROUP]) {
    let (groups, rest) = x.as_chunks::<GROUP>();
    let (bytes, rest_bytes) = packed.split_at_mut(groups.len() * GROUP / 2);
    for (group, bytes) in groups.iter().zip(bytes.as_chunks_mut::<{ GROUP / 2 }>().0) {
        *bytes = pack_group(group, r, indices);
    }
    if !rest.is_empty() {
        // What the group lacks is quantised as 0; at most half a byte of that is kept.
        let mut group = [0f32; GROUP];
        for (value, element) in group.iter_mut().zip(rest) {
            *value = element.widen();
        }
        rest_bytes.copy_from_slice(&pack_group(&group, r, indices)[..rest_bytes.len()]);
    }
}

/// Packs 32 elements.
fn pack_group<T: Element>(group: &[T; GROUP], r: f32, indices: fn(&[f32; GROUP]) -> [u8; GROUP]) -> [u8; GROUP / 2] {
    let mut scaled = [0f32; GROUP];
    for (scaled, element) in scaled.iter_mut().zip(group) {
        *scaled = flush(flush(element.widen()) * r);
    }
    let indices = indices(&scaled);
    let mut bytes = [0; GROUP / 2];
    for (byte, pair) in bytes.iter_mut().zip(indices.as_chunks::<2>().0) {
        *byte = pair[0] << 4 | pair[1];
    }
    bytes
}

/// NF4 indices: one compare per threshold, counted.
fn nf4_indices(scaled: &[f32; GROUP]) -> [u8; GROUP] {
    let mut counts = [0u32; GROUP];
    for (count, value) in counts.iter_mut().zip(scaled) {
        for threshold in NF4_THRESHOLDS {
            *count += u32::from(*value > threshold);
        }
    }
    counts.map(|count| count as u8)
}

/// What crossing each FP4 threshold adds to the magnitude index, modulo 2^32.
const FP4_STEPS: [u32; 7] = {
    let mut steps = [0; 7];
    let mut i = 0;
    while i < 7 {
        steps[i] = (FP4_INDEX_BY_COUNT[i + 1] as u32).wrapping_sub(FP4_INDEX_BY_COUNT[i] as u32);
        i += 1;
    }
    steps
};

/// FP4 indices: the sign, and the steps of all thresholds below the magnitude.
fn fp4_indices(scaled: &[f32; GROUP]) -> [u8; GROUP] {
    let mut sums = [0u32; GROUP];
    for (sum, value) in sums.iter_mut().zip(scaled) {
        *sum = if *value < 0.0 { 8 } else { 0 };
        for (threshold, step) in FP4_THRESHOLDS.into_iter().zip(FP4_STEPS) {
            *sum = sum.wrapping_add(if value.abs() > threshold { step } else { 0 });
        }
    }
    sums.map(|sum| sum as u8)
}
