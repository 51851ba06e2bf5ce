//! Fused product of one row of activations and a packed weight: y = W x, W of shape (out, in).
//!
//! ```text
//! w_k = T(T(code[i_k]) * T(absmax[k / blocksize]))          fp32: flushed
//! bf16, fp16:  acc = flush(acc + T(x_k * w_k))              the product is rounded to T before it is added
//! fp32:        acc = flush(fma(x_k, w_k, acc))
//! lane l of 32 takes k = 32l .. 32l+31, then +1024, …, in order; then acc[l] += acc[l + d], d = 1, 2, 4, 8, 16
//! y   = T(acc[0])
//! ```
//! The f32 product of two bf16 or fp16 values is exact down to 2^-149, and below 2^-126 the 16 significant bits
//! of a bf16 product leave no double rounding, so `T(f32 product)` is the single rounding of the hardware.

use super::codebook::CodeBook;
use super::dequantize_4bit::nibble;
use super::numbers::{Element, add_flushed, flush, multiply_flushed};
use crate::model::settings::FloatType;

/// Lanes of a warp; one warp computes one output.
pub const LANES: usize = 32;
/// Consecutive elements that a lane takes at a time.
pub const RUN: usize = 32;

/// A packed weight as the kernel sees it.
#[derive(Debug, Clone, Copy)]
pub struct PackedMatrix<'a> {
    /// Two indices a byte, row-major.
    pub packed: &'a [u8],
    /// absmax or absmax', one per block.
    pub absmax: &'a [f32],
    /// What an index means.
    pub book: CodeBook,
    /// Elements per block; divides `in_features`.
    pub blocksize: usize,
    /// Elements per row.
    pub in_features: usize,
    /// Rows.
    pub out_features: usize,
}

/// `y` (out_features elements) for the one row `x` (in_features elements).
pub fn gemv_4bit<T: Element>(matrix: PackedMatrix<'_>, x: &[T]) -> Vec<T> {
    (0..matrix.out_features).map(|row| T::round(row_product(matrix, row, x))).collect()
}

/// One output before its last rounding: what lane 0 holds after the tree.
fn row_product<T: Element>(matrix: PackedMatrix<'_>, row: usize, x: &[T]) -> f32 {
    let code = matrix.book.device_table();
    let mut acc = [0f32; LANES];
    for k in 0..matrix.in_features {
        let element = row * matrix.in_features + k;
        let q = T::round(code[usize::from(nibble(matrix.packed, element))]);
        let s = T::round(matrix.absmax[element / matrix.blocksize]);
        let lane = &mut acc[k / RUN % LANES];
        *lane = accumulate(*lane, x[k], weight(q, s));
    }
    shuffle_down_sum(acc)
}

/// The dequantised weight in the compute format.
pub fn weight<T: Element>(q: T, s: T) -> T {
    match T::FLOAT_TYPE {
        FloatType::Bf16 | FloatType::Fp16 => T::round(q.widen() * s.widen()),
        FloatType::Fp32 => T::round(multiply_flushed(q.widen(), s.widen())),
    }
}

/// One step of a lane.
pub fn accumulate<T: Element>(acc: f32, x: T, w: T) -> f32 {
    match T::FLOAT_TYPE {
        FloatType::Bf16 | FloatType::Fp16 => add_flushed(acc, T::round(x.widen() * w.widen()).widen()),
        FloatType::Fp32 => flush(flush(x.widen()).mul_add(flush(w.widen()), acc)),
    }
}

/// Lane 0 after the shuffle-down tree over the lanes of a warp.
pub fn shuffle_down_sum(mut acc: [f32; LANES]) -> f32 {
    for distance in [1, 2, 4, 8, 16] {
        // A lane beyond the last one reads its own value, as the hardware does; lane 0 never sees that.
        acc = std::array::from_fn(|l| acc[l] + if l + distance < LANES { acc[l + distance] } else { acc[l] });
    }
    acc[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn a_row_of_ones_sums_its_inputs() {
        let packed = vec![0xff; 32];
        let matrix = PackedMatrix {
            packed: &packed,
            absmax: &[1.0],
            book: CodeBook::Nf4,
            blocksize: 64,
            in_features: 64,
            out_features: 1,
        };
        let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
        assert_eq!(gemv_4bit(matrix, &x), [2016.0]);
    }

    #[test]
    fn the_tree_adds_neighbours_first() {
        let mut acc = [0f32; LANES];
        // (1 + 2^-24) is lost in f32, (2^-24 + 2^-24) is not: the pair decides what survives.
        (acc[0], acc[1], acc[2], acc[3]) = (1.0, 0.0, 2f32.powi(-24), 2f32.powi(-24));
        assert_eq!(shuffle_down_sum(acc), 1.0 + 2f32.powi(-23));
        (acc[1], acc[3]) = (2f32.powi(-24), 0.0);
        assert_eq!(shuffle_down_sum(acc), 1.0);
    }

    #[test]
    fn a_bf16_product_below_the_normal_range_is_rounded_once() {
        // Every pair of significands at every exponent sum where f32 or bf16 become subnormal, against f64.
        for exponent in [-62, -64, -66, -67, -68, -70] {
            for a in (128u32..256).step_by(3) {
                for b in 128u32..256 {
                    let x = bf16::from_f64(f64::from(a) * 2f64.powi(exponent - 7));
                    let y = bf16::from_f64(f64::from(b) * 2f64.powi(exponent - 7));
                    let quanta = x.to_f64() * y.to_f64() * 2f64.powi(133);
                    let exact = if quanta < 128.0 { quanta.round_ties_even() * 2f64.powi(-133) } else { continue };
                    assert_eq!(weight(x, y).to_f64(), exact, "{a} {b} {exponent}");
                }
            }
        }
    }
}
