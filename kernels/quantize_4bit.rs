//! Blockwise 4-bit quantisation: `x` (n elements) to packed nibbles and one absmax per block.
//!
//! ```text
//! absmax_b = max over block b of |x|, from -FLT_MAX, NaN ignored, flushed; missing elements are 0
//! r_b      = flush(1 / absmax_b)
//! i_k      = index(flush(flush(x_k) * r_b))                 one multiply, no clamp
//! byte_j   = i_2j << 4 | i_2j+1                             the even element in the HIGH nibble
//! ```
//! Shapes: `packed` has ceil(n / 2) bytes, `absmax` ceil(n / blocksize) values. An all-zero or subnormal
//! block has r = inf, 0 * inf = NaN and index 0; a block above 2^126 has r = 0 and is lost.

use super::codebook::CodeBook;
use super::numbers::{Element, Reciprocal, flush, multiply_flushed, reciprocal_flushed};

/// What quantisation makes of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized {
    /// Two indices a byte.
    pub packed: Vec<u8>,
    /// The largest magnitude of each block, whatever the sign of that element.
    pub absmax: Vec<f32>,
}

/// Quantises `x` in blocks of `blocksize` consecutive elements (even, at least 2).
pub fn quantize_4bit<T: Element>(x: &[T], book: CodeBook, blocksize: usize) -> Quantized {
    let mut packed = vec![0u8; x.len().div_ceil(2)];
    let mut absmax = Vec::new();
    for (b, block) in x.chunks(blocksize).enumerate() {
        let largest = block_absmax(block, blocksize);
        let r = reciprocal_flushed(largest);
        for (k, element) in block.iter().enumerate() {
            let index = index_under(*element, r, book);
            let position = b * blocksize + k;
            packed[position / 2] |= if position.is_multiple_of(2) { index << 4 } else { index };
        }
        absmax.push(largest);
    }
    if x.len() % 2 == 1 {
        // The kernel quantises a missing last element as 0, under the reciprocal of the last block.
        let r = reciprocal_flushed(absmax[absmax.len() - 1]);
        let last = packed.len() - 1;
        packed[last] |= index_under(0f32, r, book);
    }
    Quantized { packed, absmax }
}

/// The absmax of one block of at most `blocksize` elements.
pub fn block_absmax<T: Element>(block: &[T], blocksize: usize) -> f32 {
    let mut largest = -f32::MAX;
    for element in block {
        let magnitude = flush(element.widen().abs());
        if magnitude > largest {
            largest = magnitude;
        }
    }
    if block.len() < blocksize { largest.max(0.0) } else { largest }
}

/// The index of one element under the reciprocal `r` of its block's absmax.
pub fn index_under<T: Element>(element: T, r: f32, book: CodeBook) -> u8 {
    book.index_of(multiply_flushed(element.widen(), r))
}

/// Whether `index` is what an implementation with such a reciprocal may give for `element`.
pub fn accepts<T: Element>(element: T, absmax: f32, book: CodeBook, index: u8, reciprocal: Reciprocal) -> bool {
    let r = reciprocal_flushed(absmax);
    match reciprocal {
        Reciprocal::Exact => index_under(element, r, book) == index,
        Reciprocal::WithinOneUlp => {
            [r, r.next_down(), r.next_up()].iter().any(|&r| index_under(element, r, book) == index)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_even_element_lies_in_the_high_nibble() {
        let quantized = quantize_4bit(&[1f32, -1.0, 0.0, 1.0], CodeBook::Nf4, 4);
        assert_eq!(quantized, Quantized { packed: vec![0xf0, 0x7f], absmax: vec![1.0] });
    }

    #[test]
    fn a_zero_block_is_index_0_and_keeps_absmax_0() {
        for book in CodeBook::ALL {
            let quantized = quantize_4bit(&[0f32; 64], book, 64);
            assert_eq!(quantized, Quantized { packed: vec![0; 32], absmax: vec![0.0] });
        }
    }

    #[test]
    fn a_subnormal_block_behaves_as_zero_and_a_huge_one_is_lost() {
        let tiny = quantize_4bit(&[f32::from_bits(7); 64], CodeBook::Nf4, 64);
        assert_eq!(tiny, Quantized { packed: vec![0; 32], absmax: vec![0.0] });
        let huge = quantize_4bit(&[f32::MAX; 64], CodeBook::Nf4, 64);
        assert_eq!(huge, Quantized { packed: vec![0x77; 32], absmax: vec![f32::MAX] });
    }

    #[test]
    fn a_block_of_nan_has_no_absmax_but_a_partial_one_has_zero() {
        assert_eq!(block_absmax(&[f32::NAN; 64], 64), -f32::MAX);
        assert_eq!(block_absmax(&[f32::NAN; 63], 64), 0.0);
    }

    #[test]
    fn an_odd_tail_is_filled_with_the_code_of_zero() {
        assert_eq!(quantize_4bit(&[1f32], CodeBook::Nf4, 64).packed, [0xf7]);
        assert_eq!(quantize_4bit(&[0f32], CodeBook::Nf4, 64).packed, [0x00]);
    }

    #[test]
    fn only_an_element_next_to_a_threshold_may_differ_on_a_gpu() {
        let absmax = 3.0;
        let at_tie = super::super::codebook::NF4_THRESHOLDS[10] * absmax;
        let admitted = |x: f32, reciprocal| -> Vec<u8> {
            (0..16).filter(|&i| accepts(x, absmax, CodeBook::Nf4, i, reciprocal)).collect()
        };
        assert_eq!(admitted(at_tie, Reciprocal::Exact).len(), 1);
        assert_eq!(admitted(at_tie, Reciprocal::WithinOneUlp), [10, 11]);
        assert_eq!(admitted(1.0, Reciprocal::WithinOneUlp).len(), 1);
    }
}
