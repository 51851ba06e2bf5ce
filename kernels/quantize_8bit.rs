//! Nested (double) quantisation: the absmax array itself, centred, in 8-bit codes with blocks of 256.
//!
//! ```text
//! c         = absmax - mean(absmax)                         see the reductions
//! absmax2_j = max |c| over nested block j;  x' = flush(c * flush(1 / absmax2_j))
//! q         = L = number of midpoints below x';  x' equal to midpoint L: the EVEN one of L, L + 1;  NaN: 0
//! absmax'   = f32( flush(map[q] * absmax2_j) + offset )     two roundings, the addition not flushed
//! ```
//! Shapes: `codes` has one byte per absmax (nb), `absmax2` ceil(nb / 256) values.

use super::codebook::{dynamic_map, dynamic_midpoints};
use super::numbers::{Reciprocal, multiply_flushed, reciprocal_flushed};
use super::quantize_4bit::block_absmax;
use super::reductions::{centred, mean};

/// Block size of the nested level; bitsandbytes knows no other.
pub const NESTED_BLOCKSIZE: usize = 256;

/// The 8-bit codes of a centred absmax array.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized8 {
    /// One index into the dynamic map per value.
    pub codes: Vec<u8>,
    /// The largest magnitude of each nested block.
    pub absmax2: Vec<f32>,
}

/// Doubly quantised statistics: everything needed to get absmax' back.
#[derive(Debug, Clone, PartialEq)]
pub struct Nested {
    /// The codes and their absmax.
    pub quantized: Quantized8,
    /// The mean that was taken off.
    pub offset: f32,
}

/// Centres `absmax` by its mean and quantises the rest.
pub fn nest(absmax: &[f32]) -> Nested {
    let offset = mean(absmax);
    Nested { quantized: quantize_8bit(&centred(absmax, offset)), offset }
}

/// Quantises `centred_absmax` in blocks of [`NESTED_BLOCKSIZE`].
pub fn quantize_8bit(centred_absmax: &[f32]) -> Quantized8 {
    let midpoints = dynamic_midpoints(&dynamic_map());
    let mut quantized = Quantized8 { codes: Vec::new(), absmax2: Vec::new() };
    for block in centred_absmax.chunks(NESTED_BLOCKSIZE) {
        let largest = block_absmax(block, NESTED_BLOCKSIZE);
        let r = reciprocal_flushed(largest);
        for value in block {
            quantized.codes.push(code_of(multiply_flushed(*value, r), &midpoints));
        }
        quantized.absmax2.push(largest);
    }
    quantized
}

/// The code of a value already divided by its block's absmax.
pub fn code_of(scaled: f32, midpoints: &[f32; 255]) -> u8 {
    let mut below = 0;
    while below < 255 && scaled > midpoints[below] {
        below += 1;
    }
    let tie = below < 255 && scaled == midpoints[below];
    // The kernel is a binary search from index 127; its ties all end on the even neighbour.
    if tie && below % 2 == 1 { below as u8 + 1 } else { below as u8 }
}

/// Whether `code` is what an implementation with such a reciprocal may give for `centred_value`.
pub fn accepts(centred_value: f32, absmax2: f32, midpoints: &[f32; 255], code: u8, reciprocal: Reciprocal) -> bool {
    let r = reciprocal_flushed(absmax2);
    let code_under = |r: f32| code_of(multiply_flushed(centred_value, r), midpoints);
    match reciprocal {
        Reciprocal::Exact => code_under(r) == code,
        Reciprocal::WithinOneUlp => [r, r.next_down(), r.next_up()].iter().any(|&r| code_under(r) == code),
    }
}

/// The centred values back: `map[code] * absmax2`, flushed.
pub fn dequantize_8bit(quantized: &Quantized8) -> Vec<f32> {
    let map = dynamic_map();
    let mut values = Vec::new();
    for (i, code) in quantized.codes.iter().enumerate() {
        values.push(multiply_flushed(map[usize::from(*code)], quantized.absmax2[i / NESTED_BLOCKSIZE]));
    }
    values
}

/// absmax': the statistics that dequantisation and gemv use.
pub fn restore(nested: &Nested) -> Vec<f32> {
    dequantize_8bit(&nested.quantized).iter().map(|value| value + nested.offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tie_goes_to_the_even_neighbour() {
        let midpoints = dynamic_midpoints(&dynamic_map());
        for (i, midpoint) in midpoints.into_iter().enumerate() {
            assert_eq!(usize::from(code_of(midpoint, &midpoints)), i + i % 2);
            assert_eq!(usize::from(code_of(midpoint.next_up(), &midpoints)), i + 1);
            assert_eq!(usize::from(code_of(midpoint.next_down(), &midpoints)), i);
        }
        assert_eq!(code_of(f32::NAN, &midpoints), 0);
    }

    #[test]
    fn a_constant_absmax_nests_to_zeros_and_comes_back() {
        let nested = nest(&[0.5; 300]);
        assert_eq!(nested.quantized, Quantized8 { codes: vec![0; 300], absmax2: vec![0.0; 2] });
        assert_eq!(restore(&nested), vec![0.5; 300]);
    }

    #[test]
    fn nesting_keeps_each_absmax_within_half_the_widest_step() {
        let absmax: Vec<f32> = (0..1000).map(|i| 0.01 + 0.001 * ((i * 37) % 101) as f32 / 101.0).collect();
        let nested = nest(&absmax);
        // The widest step of the map is about 0.0145, at both ends, and -1 is missing by 0.00703.
        let bound = nested.quantized.absmax2.iter().fold(0f32, |a, b| a.max(*b)) * 0.0075;
        for (before, after) in absmax.iter().zip(restore(&nested)) {
            assert!((before - after).abs() <= bound, "{before} {after}");
        }
    }
}
