//! NVFP4: E2M1 weights in groups of 16 with one E4M3 scale each, under one fp32 scale of the whole tensor.
//!
//! ```text
//! global   = max |w| / (6 * 448)                    of the tensor; 1 if all weights are zero
//! s_g      = e4m3( max |w| of group g / (6 * global) )   0 becomes 1; clamped to 2^-9 .. 448; nearest even
//! i_k      = e2m1( w_k / (s_g * global) )           nearest even, saturating; NaN gives +6
//! byte_j   = i_2j+1 << 4 | i_2j                     the even element in the LOW nibble
//! w'_k     = e2m1(i_k) * s_g * global               global MULTIPLIES
//! ```
//! and the product of one row of activations and a packed weight W of shape (out, in):
//! ```text
//! lane l of 32 takes groups 2l and 2l+1, then +64, …, in order
//! inner    = sum over the 16 of a group, in order, of x_k * e2m1(i_k)      f32, product and sum rounded apart
//! acc[l]   = acc[l] + inner * s_g                                          f32, two roundings
//! acc[l]  += acc[l + d], d = 1, 2, 4, 8, 16;   y = T(acc[0] * global)
//! ```
//! Several rows are as many single ones, bit for bit. E2M1 times a bf16 or fp16 value is exact in f32, so that a fused
//! multiply-add has the same bits there. Nothing is flushed.
//!
//! Layout and quantisation are those of NVIDIA's ModelOpt (`modelopt/torch/quantization/qtensor/nvfp4_tensor.py`): its
//! packer sets the sign bit only for values below zero, so that -0.0 packs as 0, where the conversion instruction of
//! SM100 keeps the sign. Files of compressed-tensors hold `1 / global` instead and divide.

use super::gemv_4bit::{LANES, shuffle_down_sum};
use super::numbers::Element;

/// Weights that share an E4M3 scale.
pub const GROUP: usize = 16;
/// Groups that a lane takes at a time.
pub const LANE_GROUPS: usize = 2;

/// The magnitudes of E2M1 by the three low bits; bit 3 is the sign.
pub const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
/// The largest magnitude of E2M1.
pub const E2M1_MAX: f32 = 6.0;
/// The largest magnitude of E4M3.
pub const E4M3_MAX: f32 = 448.0;
/// The smallest magnitude of E4M3 above zero.
pub const E4M3_MIN: f32 = 1.0 / 512.0;

/// A weight in NVFP4.
#[derive(Debug, Clone, PartialEq)]
pub struct Nvfp4 {
    /// Two indices a byte, row-major.
    pub packed: Vec<u8>,
    /// One E4M3 a group.
    pub scales: Vec<u8>,
    /// The scale of the tensor.
    pub global: f32,
}

/// The value of an E2M1 nibble.
pub fn e2m1_value(nibble: u8) -> f32 {
    let magnitude = E2M1[usize::from(nibble & 7)];
    if nibble & 8 == 0 { magnitude } else { -magnitude }
}

/// The E2M1 nibble nearest to `value`, a tie to the even one.
pub fn e2m1_of(value: f32) -> u8 {
    if value.is_nan() {
        return 7;
    }
    let nearest = nearest_even(&E2M1, value.abs());
    if value < 0.0 { nearest | 8 } else { nearest }
}

/// The value of an E4M3 byte (bias 7, no infinity).
pub fn e4m3_value(byte: u8) -> f32 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction * E4M3_MIN,
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The E4M3 byte nearest to `value`, which is between 0 and 448; a tie to the even one.
pub fn e4m3_of(value: f32) -> u8 {
    let values: Vec<f32> = (0..=0x7e).map(e4m3_value).collect();
    nearest_even(&values, value)
}

/// The position in the ascending `values` nearest to `value`, a tie to the even position, beyond the end the last one.
fn nearest_even(values: &[f32], value: f32) -> u8 {
    let mut nearest = 0;
    for (position, candidate) in values.iter().enumerate().skip(1) {
        let (below, above) = (f64::from(value) - f64::from(values[nearest]), f64::from(*candidate) - f64::from(value));
        if above < below || (above == below && position % 2 == 0) {
            nearest = position;
        }
    }
    nearest as u8
}

/// The scale of a tensor whose largest magnitude is `largest`.
pub fn global_scale(largest: f32) -> f32 {
    if largest > 0.0 { largest / (E2M1_MAX * E4M3_MAX) } else { 1.0 }
}

/// The scale of a group whose largest magnitude is `largest`.
#[expect(clippy::manual_clamp, reason = "a NaN becomes the least, as the comparisons of a GPU have it")]
pub fn group_scale(largest: f32, global: f32) -> u8 {
    let scale = largest / (E2M1_MAX * global);
    let scale = if scale == 0.0 { 1.0 } else { scale };
    e4m3_of(scale.max(E4M3_MIN).min(E4M3_MAX))
}

/// The largest magnitude, NaN ignored.
pub fn largest_magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, value| if value.abs() > largest { value.abs() } else { largest })
}

/// Quantises `weights`, a multiple of [`GROUP`].
pub fn quantize(weights: &[f32]) -> Nvfp4 {
    quantize_under(weights, global_scale(largest_magnitude(weights)))
}

/// Quantises `weights` under a scale of the tensor that is given.
pub fn quantize_under(weights: &[f32], global: f32) -> Nvfp4 {
    let mut quantized = Nvfp4 { packed: Vec::new(), scales: Vec::new(), global };
    for group in weights.as_chunks::<GROUP>().0 {
        let scale = group_scale(largest_magnitude(group), global);
        let divisor = e4m3_value(scale) * global;
        quantized.scales.push(scale);
        for pair in group.as_chunks::<2>().0 {
            quantized.packed.push(e2m1_of(pair[0] / divisor) | e2m1_of(pair[1] / divisor) << 4);
        }
    }
    quantized
}

/// The nibble of element `k`.
pub fn nibble(packed: &[u8], k: usize) -> u8 {
    if k.is_multiple_of(2) { packed[k / 2] & 15 } else { packed[k / 2] >> 4 }
}

/// All weights: `T(f32(e2m1 * s) * global)`, of which the first product is exact.
pub fn dequantize<T: Element>(quantized: &Nvfp4) -> Vec<T> {
    let weight = |k: usize| {
        e2m1_value(nibble(&quantized.packed, k)) * e4m3_value(quantized.scales[k / GROUP]) * quantized.global
    };
    (0..2 * quantized.packed.len()).map(|k| T::round(weight(k))).collect()
}

/// A packed weight as the kernels see it.
#[derive(Debug, Clone, Copy)]
pub struct Nvfp4Matrix<'a> {
    /// Two indices a byte, row-major.
    pub packed: &'a [u8],
    /// One E4M3 a group.
    pub scales: &'a [u8],
    /// The scale of the tensor.
    pub global: f32,
    /// Elements per row, a multiple of [`GROUP`].
    pub in_features: usize,
}

impl Nvfp4Matrix<'_> {
    /// Rows.
    pub fn out_features(self) -> usize {
        2 * self.packed.len() / self.in_features
    }
}

/// `Y` (rows x out_features) for `x` (rows x in_features).
pub fn product<T: Element>(matrix: Nvfp4Matrix<'_>, x: &[T]) -> Vec<T> {
    let rows = x.chunks(matrix.in_features);
    rows.flat_map(|x| (0..matrix.out_features()).map(move |row| T::round(row_product(matrix, row, x)))).collect()
}

/// One output before its last rounding.
fn row_product<T: Element>(matrix: Nvfp4Matrix<'_>, row: usize, x: &[T]) -> f32 {
    let mut acc = [0f32; LANES];
    for (group, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
        let first = row * matrix.in_features + group * GROUP;
        let mut inner = 0f32;
        for (i, x) in x.iter().enumerate() {
            inner += x.widen() * e2m1_value(nibble(matrix.packed, first + i));
        }
        acc[group / LANE_GROUPS % LANES] += inner * e4m3_value(matrix.scales[first / GROUP]);
    }
    shuffle_down_sum(acc) * matrix.global
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// Three groups whose largest magnitudes are 1.75, its sixteenth, and zero of both signs.
    fn golden() -> Vec<f32> {
        let scale = |i: usize| [1.0, 0.0625, 0.0][i / 16];
        (0..48).map(|i| scale(i) * (((i * 37) % 29) as f32 - 14.0) / 8.0).collect()
    }

    #[test]
    fn the_golden_vector_has_its_bytes() {
        let quantized = quantize(&golden());
        assert_eq!(quantized.global.to_bits(), 0x3a2a_aaab);
        assert_eq!(quantized.scales, [0x7e, 0x5e, 0x38]);
        let hex: String = quantized.packed.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(hex, "DF62BE740DF53CE65AD761BF739EF52D0000000000000000");
        let sum: f32 = dequantize::<f32>(&quantized).iter().sum();
        assert!((sum + 2.333_333_4).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn every_code_is_the_nearest_to_its_own_value_and_ties_are_even() {
        for nibble in 0..16 {
            // -0.0 packs as 0.
            assert_eq!(e2m1_of(e2m1_value(nibble)), if nibble == 8 { 0 } else { nibble });
        }
        for byte in 0..=0x7e {
            assert_eq!(e4m3_of(e4m3_value(byte)), byte);
        }
        for below in 0..7u8 {
            let tie: f32 = (E2M1[usize::from(below)] + E2M1[usize::from(below) + 1]) / 2.0;
            let (even, above) = (below + below % 2, below + 1);
            assert_eq!(
                [tie, -tie, tie.next_down(), tie.next_up()].map(e2m1_of),
                [even, even | 8, below, above],
                "{tie}"
            );
        }
        for byte in 0..0x7e {
            let tie = (e4m3_value(byte) + e4m3_value(byte + 1)) / 2.0;
            assert_eq!(e4m3_of(tie), byte + byte % 2, "{tie}");
        }
    }

    #[test]
    fn what_is_beyond_the_range_saturates_and_a_nan_is_six() {
        assert_eq!([7.0, f32::INFINITY, f32::NAN, -1e30].map(e2m1_of), [7, 7, 7, 15]);
        assert_eq!([e4m3_value(0x7f).is_nan(), e4m3_value(0xff).is_nan()], [true; 2]);
        assert_eq!((e4m3_value(0x7e), e4m3_value(1), e4m3_value(0x08)), (448.0, 2f32.powi(-9), 2f32.powi(-6)));
    }

    #[test]
    fn a_negative_zero_packs_as_zero_and_a_value_that_rounds_to_zero_keeps_its_sign() {
        assert_eq!((e2m1_of(-0.0), e2m1_of(-0.1)), (0, 8));
        let quantized = quantize(&golden());
        assert!(quantized.packed[16..].iter().all(|byte| *byte == 0), "the third group is zeros of both signs");
    }

    #[test]
    fn a_tensor_of_zeros_has_scales_of_one() {
        let quantized = quantize(&[0.0; 32]);
        assert_eq!(quantized, Nvfp4 { packed: vec![0; 16], scales: vec![0x38; 2], global: 1.0 });
    }

    #[test]
    fn the_round_trip_is_within_half_a_step_of_the_scale() {
        // In f64: |w - w'| is at most half the widest step between neighbours (1, between 4 and 6) times the scale; the
        // scale itself may have been rounded down by 2^-4 of it, which then cuts at 6.
        let weights: Vec<f32> = (0..4096).map(|i| ((i as f32) * 0.7).sin() * (1.0 + (i / 256) as f32)).collect();
        let quantized = quantize(&weights);
        for (k, (before, after)) in weights.iter().zip(dequantize::<f32>(&quantized)).enumerate() {
            let scale = f64::from(e4m3_value(quantized.scales[k / GROUP])) * f64::from(quantized.global);
            let error = (f64::from(*before) - f64::from(after)).abs();
            assert!(error <= scale * (1.0 + 1e-6), "{k}: {before} {after}");
        }
        // What came back quantises to itself: every value is one of the format.
        let again = quantize_under(&dequantize::<f32>(&quantized), quantized.global);
        let decoded = |q: &Nvfp4| dequantize::<f32>(q);
        assert_eq!(decoded(&again), decoded(&quantized));
    }

    /// The traps that go wrong without an error: each gives other values than the right reading.
    #[test]
    fn the_silent_traps_change_the_values() {
        let weights = golden();
        let right = quantize(&weights);
        let differs = |wrong: &Nvfp4| dequantize::<f32>(wrong) != dequantize::<f32>(&right);
        let swapped = right.packed.iter().map(|byte| byte.rotate_left(4)).collect();
        assert!(differs(&Nvfp4 { packed: swapped, ..right.clone() }), "nibbles in the other order");
        assert!(differs(&Nvfp4 { global: 1.0 / right.global, ..right.clone() }), "a reciprocal global scale");
        let signed = right.packed.iter().map(|byte| byte ^ 0x88).collect();
        assert!(differs(&Nvfp4 { packed: signed, ..right.clone() }), "signs");
        // Rounding ties down instead of to even, as a search in the midpoints does.
        let tie_down =
            |value: f32| [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0].iter().filter(|t| value > **t).count() as u8;
        let ties: Vec<f32> = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0].into();
        let unlike: Vec<f32> = ties.into_iter().filter(|tie| tie_down(*tie) != e2m1_of(*tie)).collect();
        assert_eq!(unlike, [0.75, 1.75, 3.5]);
    }

    fn matrix(quantized: &Nvfp4, in_features: usize) -> Nvfp4Matrix<'_> {
        Nvfp4Matrix { packed: &quantized.packed, scales: &quantized.scales, global: quantized.global, in_features }
    }

    fn check_product<T: Element>(unit_roundoff: f64) {
        // A chunk and a bit, of an odd number of groups.
        let (in_features, out_features) = (1024 + 48, 5);
        let weights: Vec<f32> = (0..in_features * out_features).map(|i| (i as f32 * 0.37).sin() * 0.02).collect();
        let quantized = quantize(&weights);
        let x: Vec<T> = (0..2 * in_features).map(|i| T::round((i as f32 * 0.11).cos())).collect();
        let y = product(matrix(&quantized, in_features), &x);
        let decoded = dequantize::<f32>(&quantized);
        for (i, y) in y.iter().enumerate() {
            let (row, output) = (i / out_features, i % out_features);
            let (mut expected, mut magnitude) = (0f64, 0f64);
            for k in 0..in_features {
                let term = f64::from(x[row * in_features + k].widen()) * f64::from(decoded[output * in_features + k]);
                expected += term;
                magnitude += term.abs();
            }
            let tolerance = magnitude * 64.0 * 2f64.powi(-24) + expected.abs() * unit_roundoff;
            assert!((f64::from(y.widen()) - expected).abs() <= tolerance, "{i}: {} {expected}", y.widen());
        }
    }

    #[test]
    fn a_product_is_that_of_the_decoded_weights_in_f64() {
        check_product::<f32>(2f64.powi(-24));
        check_product::<bf16>(2f64.powi(-8));
        check_product::<f16>(2f64.powi(-11));
    }
}
