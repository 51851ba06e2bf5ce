//! Double quantisation of the absmax array on all threads: the bits of the twin `quantize_8bit`.

use rayon::prelude::*;

use super::zeroed;
use crate::workload::reference::codebook::{dynamic_map, dynamic_midpoints};
use crate::workload::reference::numbers::{flush, reciprocal_flushed};
use crate::workload::reference::quantize_8bit::{NESTED_BLOCKSIZE, Nested, Quantized8};
use crate::workload::reference::reductions::{MEAN_PIECE_ELEMENTS, sum_piece};
use crate::workload::spec::LayerError;

/// Nested blocks that one task takes at a time.
const TASK_BLOCKS: usize = 64;

/// Centres `absmax` by its mean and quantises the rest: one code per absmax, one absmax2 per 256.
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn nest(absmax: &[f32]) -> Result<Nested, LayerError> {
    let offset = mean(absmax);
    let mut centred = zeroed::<f32>(absmax.len(), "centred absmax")?;
    centred.par_iter_mut().zip(absmax).for_each(|(centred, absmax)| *centred = absmax - offset);
    Ok(Nested { quantized: quantize_8bit(&centred)?, offset })
}

/// The mean of `values`: pieces in parallel, their sums in order, so that every pool gives the same bits.
fn mean(values: &[f32]) -> f32 {
    let sums: Vec<f64> = values.par_chunks(MEAN_PIECE_ELEMENTS).map(sum_piece).collect();
    (sums.iter().sum::<f64>() / values.len() as f64) as f32
}

/// Quantises centred values in blocks of 256.
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn quantize_8bit(centred: &[f32]) -> Result<Quantized8, LayerError> {
    let midpoints = dynamic_midpoints(&dynamic_map());
    let mut codes = zeroed::<u8>(centred.len(), "nested codes")?;
    let mut absmax2 = zeroed::<f32>(centred.len().div_ceil(NESTED_BLOCKSIZE), "nested absmax")?;
    let tasks = centred
        .par_chunks(TASK_BLOCKS * NESTED_BLOCKSIZE)
        .zip(codes.par_chunks_mut(TASK_BLOCKS * NESTED_BLOCKSIZE))
        .zip(absmax2.par_chunks_mut(TASK_BLOCKS));
    tasks.for_each(|((centred, codes), absmax2)| {
        let blocks = centred.chunks(NESTED_BLOCKSIZE).zip(codes.chunks_mut(NESTED_BLOCKSIZE)).zip(absmax2);
        for ((centred, codes), absmax2) in blocks {
            let start = if centred.len() < NESTED_BLOCKSIZE { 0.0 } else { -f32::MAX };
            let largest = centred.iter().fold(start, |a: f32, c| if c.abs() > a { c.abs() } else { a });
            *absmax2 = flush(largest);
            let r = reciprocal_flushed(*absmax2);
            for (code, value) in codes.iter_mut().zip(centred) {
                *code = code_of(flush(flush(*value) * r), &midpoints);
            }
        }
    });
    Ok(Quantized8 { codes, absmax2 })
}

/// The code of a scaled value by binary search; a tie goes to the even neighbour, NaN to 0.
fn code_of(scaled: f32, midpoints: &[f32; 255]) -> u8 {
    let below = midpoints.partition_point(|midpoint| scaled > *midpoint);
    let tie = midpoints.get(below).is_some_and(|midpoint| *midpoint == scaled);
    (below + usize::from(tie) * (below % 2)) as u8
}

/// absmax', one per block.
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn restore(nested: &Nested) -> Result<Vec<f32>, LayerError> {
    let map = dynamic_map();
    let Nested { quantized: Quantized8 { codes, absmax2 }, offset } = nested;
    let mut absmax = zeroed::<f32>(codes.len(), "dequantised absmax")?;
    let blocks = absmax.par_chunks_mut(NESTED_BLOCKSIZE).zip(codes.par_chunks(NESTED_BLOCKSIZE)).zip(absmax2);
    blocks.for_each(|((absmax, codes), absmax2)| {
        for (absmax, code) in absmax.iter_mut().zip(codes) {
            *absmax = flush(flush(map[usize::from(*code)]) * flush(*absmax2)) + offset;
        }
    });
    Ok(absmax)
}
