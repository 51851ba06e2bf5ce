//! The product for more than one row: dequantise, round to the compute format, multiply with f32 sums.
//!
//! bitsandbytes materialises the whole fp32 weight and a copy in the compute format before it calls a GEMM.
//! The values do not depend on that: `T(f32 product)` element by element is the same. So one row of the
//! weight at a time is decoded here, and the memory of the detour is accounted elsewhere, never touched.
//! A GEMM leaves its order of additions open; ours is fixed: element k goes to sum k mod 16, and the sums are
//! added pairwise.

use rayon::prelude::*;

use super::dequantize::Blocks;
use super::rounding::FastElement;
use super::zeroed;
use crate::model::settings::Blocksize;
use crate::workload::reference::gemv_4bit::PackedMatrix;
use crate::workload::spec::LayerError;

/// Independent sums of one dot product.
const SUMS: usize = 16;
/// Output rows of one task.
const TASK_ROWS: usize = 16;

/// `y` (rows x out_features, row-major) for `x` (rows x in_features).
///
/// # Errors
/// If the host does not give the memory for the result, or `matrix` has a block size no kernel is built for.
pub fn matmul<T: FastElement + Default>(matrix: PackedMatrix<'_>, x: &[T]) -> Result<Vec<T>, LayerError> {
    let blocksize = Blocksize::of_elements(matrix.blocksize)?;
    let blocks = Blocks { packed: matrix.packed, absmax: matrix.absmax, book: matrix.book, blocksize };
    let rows = x.len() / matrix.in_features;
    let x: Vec<f32> = x.iter().map(|element| element.widen()).collect();
    // Tasks own whole rows of the weight, so the result is first laid out as (out_features x rows).
    let mut by_output = zeroed::<T>(matrix.out_features * rows, "outputs")?;
    by_output.par_chunks_mut(TASK_ROWS * rows).enumerate().for_each(|(task, outputs)| {
        let mut weights = vec![0f32; matrix.in_features];
        for (i, outputs) in outputs.chunks_mut(rows).enumerate() {
            let row = task * TASK_ROWS + i;
            blocks.decode(row * matrix.in_features, &mut weights, T::round_value);
            for (output, x) in outputs.iter_mut().zip(x.chunks(matrix.in_features)) {
                *output = T::round(dot(x, &weights));
            }
        }
    });
    let at = |i: usize| by_output[i % matrix.out_features * rows + i / matrix.out_features];
    Ok((0..by_output.len()).map(at).collect())
}

/// The dot product in the order given above.
fn dot(x: &[f32], weights: &[f32]) -> f32 {
    let mut sums = [0f32; SUMS];
    let ((x, x_rest), (weights, weights_rest)) = (x.as_chunks::<SUMS>(), weights.as_chunks::<SUMS>());
    for (x, weights) in x.iter().zip(weights) {
        for i in 0..SUMS {
            sums[i] += x[i] * weights[i];
        }
    }
    for ((sum, x), weight) in sums.iter_mut().zip(x_rest).zip(weights_rest) {
        *sum += x * weight;
    }
    let mut width = SUMS;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            sums[i] += sums[i + width];
        }
    }
    sums[0]
}
