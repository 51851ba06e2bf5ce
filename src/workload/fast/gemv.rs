//! The fused one-row product on all threads: the bits of the twin `gemv_4bit`.
//!
//! The twin's lane takes 32 consecutive elements, which no vector unit likes. So the input is transposed
//! once, `x[chunk][j][lane]`, the nibbles of a chunk are decoded into the same order, and the 32 lanes then
//! advance together: every lane still adds its products in its own order.

use rayon::prelude::*;

use super::rounding::FastElement;
use super::zeroed;
use crate::workload::reference::gemv_4bit::{LANES, PackedMatrix, RUN, shuffle_down_sum};
use crate::workload::spec::LayerError;

/// Elements that a warp takes at a time.
pub(super) const CHUNK: usize = LANES * RUN;
/// A chunk with the lane as the inner index.
pub(super) type Transposed = [[f32; LANES]; RUN];
/// Output rows of one task.
pub(super) const TASK_ROWS: usize = 64;

/// `y` (out_features elements) for the one row `x` (in_features elements, a multiple of the block size).
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn gemv_4bit<T: FastElement + Default>(matrix: PackedMatrix<'_>, x: &[T]) -> Result<Vec<T>, LayerError> {
    let x = transpose(x);
    let code = matrix.book.device_table().map(T::round_value);
    let mut y = zeroed::<T>(matrix.out_features, "outputs")?;
    y.par_chunks_mut(TASK_ROWS).enumerate().for_each(|(task, y)| {
        let mut scratch = [[0f32; LANES]; RUN];
        for (i, y) in y.iter_mut().enumerate() {
            *y = T::round(row_product::<T>(matrix, task * TASK_ROWS + i, &code, &x, &mut scratch));
        }
    });
    Ok(y)
}

/// The input in the order of the lanes; what a last chunk lacks is 0 and never used.
pub(super) fn transpose<T: FastElement>(x: &[T]) -> Vec<Transposed> {
    let chunk = |x: &[T]| {
        let mut transposed = [[0f32; LANES]; RUN];
        for (k, element) in x.iter().enumerate() {
            transposed[k % RUN][k / RUN] = element.widen();
        }
        transposed
    };
    x.chunks(CHUNK).map(chunk).collect()
}

/// One output before its last rounding.
fn row_product<T: FastElement>(
    matrix: PackedMatrix<'_>,
    row: usize,
    code: &[f32; 16],
    x: &[Transposed],
    weights: &mut Transposed,
) -> f32 {
    let start = row * matrix.in_features;
    let packed = &matrix.packed[start / 2..(start + matrix.in_features) / 2];
    let absmax = &matrix.absmax[start / matrix.blocksize..];
    let mut acc = [0f32; LANES];
    for ((packed, x), chunk) in packed.chunks(CHUNK / 2).zip(x).zip(0..) {
        decode::<T>(packed, &absmax[chunk * CHUNK / matrix.blocksize..], matrix.blocksize, code, weights);
        if packed.len() == CHUNK / 2 {
            for (x, weights) in x.iter().zip(weights.iter()) {
                for l in 0..LANES {
                    acc[l] = T::accumulate(acc[l], x[l], weights[l]);
                }
            }
        } else {
            // The lanes beyond the end of the row have nothing to add, not even a zero.
            let lanes = packed.len() * 2 / RUN;
            for (x, weights) in x.iter().zip(weights.iter()) {
                for l in 0..lanes {
                    acc[l] = T::accumulate(acc[l], x[l], weights[l]);
                }
            }
        }
    }
    shuffle_down_sum(acc)
}

/// The weights of one chunk, lane as the inner index. `absmax` begins at the chunk's first block.
fn decode<T: FastElement>(packed: &[u8], absmax: &[f32], blocksize: usize, code: &[f32; 16], weights: &mut Transposed) {
    // A block may be longer than a chunk; chunks then start inside it, and `absmax` still begins with it.
    for ((l, run), s) in packed.chunks_exact(RUN / 2).enumerate().zip(lane_absmax(absmax, blocksize)) {
        let s = T::round_value(s);
        let table = code.map(|q| T::weight(q, s));
        for (j, byte) in run.iter().enumerate() {
            weights[2 * j][l] = table[usize::from(byte >> 4)];
            weights[2 * j + 1][l] = table[usize::from(byte & 15)];
        }
    }
}

/// The absmax of each lane of a chunk.
fn lane_absmax(absmax: &[f32], blocksize: usize) -> impl Iterator<Item = f32> {
    (0..LANES).map_while(move |l| absmax.get(l * RUN / blocksize).copied())
}
