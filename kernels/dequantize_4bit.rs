//! Blockwise 4-bit dequantisation to fp32, bf16 or fp16.
//!
//! ```text
//! i_k = high nibble of byte k/2 for even k, low nibble for odd k
//! v_k = flush(table[i_k] * flush(absmax[k / blocksize]))     f32; FP4's sign is applied before the multiply
//! y_k = T(v_k)                                               one rounding to nearest, subnormals kept
//! ```
//! `absmax` is the plain one or absmax' of the nested statistics. Rounding to fp32 first and to T later gives
//! the same bits, so that a detour over fp32 costs memory and not accuracy.

use super::codebook::CodeBook;
use super::numbers::{Element, multiply_flushed};

/// The index of element `k` in a packed byte stream.
pub fn nibble(packed: &[u8], k: usize) -> u8 {
    let byte = packed[k / 2];
    if k.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

/// The first `n` elements of `packed`, in the format `T`.
pub fn dequantize_4bit<T: Element>(
    packed: &[u8],
    absmax: &[f32],
    book: CodeBook,
    blocksize: usize,
    n: usize,
) -> Vec<T> {
    let table = book.kernel_table();
    let mut out = Vec::new();
    for k in 0..n {
        let code = table[usize::from(nibble(packed, k))];
        out.push(T::round(multiply_flushed(code, absmax[k / blocksize])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_block_of_nf4_comes_back_as_negative_zeros_and_of_fp4_as_zeros() {
        let bits = |book| dequantize_4bit::<f32>(&[0], &[0.0], book, 64, 2)[0].to_bits();
        assert_eq!(bits(CodeBook::Nf4), (-0f32).to_bits());
        assert_eq!(bits(CodeBook::Fp4), 0);
    }

    #[test]
    fn a_detour_over_fp32_changes_no_bit() {
        let packed: Vec<u8> = (0..=255).collect();
        let absmax = [0.013, 1.7e-5, 3.1e4, 0.7, 1e-7, 2.0, 0.3, 65000.0];
        for book in CodeBook::ALL {
            let wide = dequantize_4bit::<f32>(&packed, &absmax, book, 64, 512);
            let direct = dequantize_4bit::<half::f16>(&packed, &absmax, book, 64, 512);
            for (wide, direct) in wide.into_iter().zip(direct) {
                assert_eq!(half::f16::from_f32(wide).to_bits(), direct.to_bits());
            }
        }
    }
}
