//! Product of several rows of activations and a packed weight: Y = X W^T, W of shape (out, in).
//!
//! ```text
//! w_ok = T( flush(table[i_ok] * absmax[(o * in + k) / blocksize]) )      one rounding, see the dequantise kernel
//! y_ro = T( sum over k of x_rk * w_ok )                                  f64, in order
//! ```
//! A matrix product leaves the order of its additions open, so that no kernel has to meet these bits: it has to be
//! within the rounding of K additions in f32, of which the oracle makes a tolerance.

use super::codebook::CodeBook;
use super::dequantize_4bit::dequantize_4bit;
use super::gemv_4bit::PackedMatrix;
use super::numbers::Element;

/// `Y` (rows x out_features, row-major) for `x` (rows x in_features).
pub fn matmul_4bit<T: Element>(matrix: PackedMatrix<'_>, x: &[T]) -> Vec<T> {
    let PackedMatrix { packed, absmax, book, blocksize, in_features, out_features } = matrix;
    let weight = dense::<T>(packed, absmax, book, blocksize, in_features * out_features);
    let mut y = Vec::new();
    for row in x.chunks(in_features) {
        for column in weight.chunks(in_features) {
            let mut sum = 0.0;
            for (x, w) in row.iter().zip(column) {
                sum += f64::from(x.widen()) * f64::from(w.widen());
            }
            y.push(T::round(sum as f32));
        }
    }
    y
}

/// The weight in the compute format.
fn dense<T: Element>(packed: &[u8], absmax: &[f32], book: CodeBook, blocksize: usize, n: usize) -> Vec<T> {
    dequantize_4bit(packed, absmax, book, blocksize, n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_meets_every_column() {
        // NF4: 15 is 1, 7 is 0, 0 is -1; two output columns of 32 elements.
        let packed: Vec<u8> = [[0xf7; 16], [0x70; 16]].concat();
        let matrix = PackedMatrix {
            packed: &packed,
            absmax: &[1.0, 2.0],
            book: CodeBook::Nf4,
            blocksize: 32,
            in_features: 32,
            out_features: 2,
        };
        let x: Vec<f32> = (0..64).map(|i| if i < 32 { 1.0 } else { i as f32 }).collect();
        let even: f32 = (32..64).step_by(2).map(|i| i as f32).sum();
        let odd: f32 = (33..64).step_by(2).map(|i| i as f32).sum();
        assert_eq!(matmul_4bit(matrix, &x), [16.0, -32.0, even, -2.0 * odd]);
    }
}
