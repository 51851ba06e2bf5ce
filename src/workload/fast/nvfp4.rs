//! NVFP4 on all threads: the bits of the twin `nvfp4`.
//!
//! Scales are rounded by arithmetic on their bits and indices by counting thresholds, where the twin searches; the lanes
//! of the product advance together over an input that is transposed once, where the twin takes one element at a time.

use rayon::prelude::*;

use super::gemv::{CHUNK, TASK_ROWS, Transposed, transpose};
use super::rounding::FastElement;
use super::{TASK_ELEMENTS, zeroed};
use crate::workload::reference::gemv_4bit::{LANES, RUN, shuffle_down_sum};
use crate::workload::reference::nvfp4::{
    E2M1, E2M1_MAX, E4M3_MAX, E4M3_MIN, GROUP, LANE_GROUPS, Nvfp4, Nvfp4Matrix, e4m3_value, global_scale,
};
use crate::workload::spec::LayerError;

// A lane takes as many elements at a time as one of `gemv_4bit`.
const _: () = assert!(RUN == LANE_GROUPS * GROUP);

/// Below the first of a pair the count stays, from the second on it grows: ties go to the even index.
const THRESHOLDS: [(f32, bool); 7] =
    [(0.25, false), (0.75, true), (1.25, false), (1.75, true), (2.5, false), (3.5, true), (5.0, false)];

/// Quantises `weights`, a multiple of [`GROUP`].
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn quantize(weights: &[f32]) -> Result<Nvfp4, LayerError> {
    let mut packed = zeroed::<u8>(weights.len() / 2, "packed weights")?;
    let mut scales = zeroed::<u8>(weights.len() / GROUP, "scales")?;
    let largest = weights.par_chunks(TASK_ELEMENTS).map(largest_magnitude).reduce(|| 0.0, f32::max);
    let global = global_scale(largest);
    let tasks = weights
        .par_chunks(TASK_ELEMENTS)
        .zip(packed.par_chunks_mut(TASK_ELEMENTS / 2))
        .zip(scales.par_chunks_mut(TASK_ELEMENTS / GROUP));
    tasks.for_each(|((weights, packed), scales)| {
        let groups = weights.as_chunks::<GROUP>().0.iter().zip(packed.as_chunks_mut::<{ GROUP / 2 }>().0).zip(scales);
        for ((group, packed), scale) in groups {
            (*scale, *packed) = quantize_group(group, global);
        }
    });
    Ok(Nvfp4 { packed, scales, global })
}

fn largest_magnitude(values: &[f32]) -> f32 {
    let larger = |largest: f32, value: &f32| if value.abs() > largest { value.abs() } else { largest };
    let (groups, rest) = values.as_chunks::<GROUP>();
    let mut lanes = [0f32; GROUP];
    for group in groups {
        for (lane, value) in lanes.iter_mut().zip(group) {
            *lane = larger(*lane, value);
        }
    }
    lanes.iter().chain(rest).fold(0.0, larger)
}

#[expect(clippy::manual_clamp, reason = "a NaN becomes the least, as in the reference")]
fn quantize_group(group: &[f32; GROUP], global: f32) -> (u8, [u8; GROUP / 2]) {
    let scale = largest_magnitude(group) / (E2M1_MAX * global);
    let scale = if scale == 0.0 { 1.0 } else { scale };
    let scale = e4m3_of(scale.max(E4M3_MIN).min(E4M3_MAX));
    let divisor = e4m3_value(scale) * global;
    let mut indices = [0u32; GROUP];
    for (index, weight) in indices.iter_mut().zip(group) {
        let q = weight / divisor;
        let magnitude = q.abs();
        *index = if q < 0.0 { 8 } else { 0 };
        for (threshold, is_above_from) in THRESHOLDS {
            // Written as what is not below, so that a NaN crosses all of them.
            let is_below = if is_above_from { magnitude < threshold } else { magnitude <= threshold };
            *index += u32::from(!is_below);
        }
    }
    let mut bytes = [0; GROUP / 2];
    for (byte, pair) in bytes.iter_mut().zip(indices.as_chunks::<2>().0) {
        *byte = (pair[0] | pair[1] << 4) as u8;
    }
    (scale, bytes)
}

/// The E4M3 byte nearest to `value`, which is between 2^-9 and 448; a tie to the even one.
fn e4m3_of(value: f32) -> u8 {
    /// The smallest normal E4M3.
    const MIN_NORMAL: f32 = 1.0 / 64.0;
    /// From 8 exponent bits with bias 127 to 4 with bias 7, above 3 bits of fraction.
    const REBIAS: u32 = 120 << 3;
    if value < MIN_NORMAL {
        return (value * 512.0).round_ties_even() as u8;
    }
    let bits = value.to_bits();
    let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
    (rounded - REBIAS) as u8
}

/// `Y` (rows x out_features) for `x` (rows x in_features).
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn product<T: FastElement + Default>(matrix: Nvfp4Matrix<'_>, x: &[T]) -> Result<Vec<T>, LayerError> {
    let out_features = matrix.out_features();
    let mut y = zeroed::<T>(x.len() / matrix.in_features * out_features, "outputs")?;
    for (x, y) in x.chunks(matrix.in_features).zip(y.chunks_mut(out_features)) {
        let x = transpose(x);
        y.par_chunks_mut(TASK_ROWS).enumerate().for_each(|(task, y)| {
            let mut scratch = [[0f32; LANES]; RUN];
            for (i, y) in y.iter_mut().enumerate() {
                *y = T::round(row_product(matrix, task * TASK_ROWS + i, &x, &mut scratch));
            }
        });
    }
    Ok(y)
}

/// One output before its last rounding. Lanes that a last chunk lacks get no scale, and add nothing.
fn row_product(matrix: Nvfp4Matrix<'_>, row: usize, x: &[Transposed], weights: &mut Transposed) -> f32 {
    let start = row * matrix.in_features;
    let packed = &matrix.packed[start / 2..(start + matrix.in_features) / 2];
    let scales = &matrix.scales[start / GROUP..(start + matrix.in_features) / GROUP];
    let mut acc = [0f32; LANES];
    for ((packed, scales), x) in packed.chunks(CHUNK / 2).zip(scales.chunks(CHUNK / GROUP)).zip(x) {
        decode(packed, weights);
        for half in 0..LANE_GROUPS {
            let mut inner = [0f32; LANES];
            for (x, weights) in x[half * GROUP..][..GROUP].iter().zip(&weights[half * GROUP..]) {
                for l in 0..LANES {
                    inner[l] += x[l] * weights[l];
                }
            }
            for (l, scale) in scales.iter().skip(half).step_by(LANE_GROUPS).enumerate() {
                acc[l] += inner[l] * e4m3_value(*scale);
            }
        }
    }
    shuffle_down_sum(acc) * matrix.global
}

/// The E2M1 values of one chunk, lane as the inner index; what the chunk lacks keeps what was there.
fn decode(packed: &[u8], weights: &mut Transposed) {
    const TABLE: [f32; 16] = {
        let mut table = [0f32; 16];
        let mut i = 0;
        while i < 8 {
            table[i] = E2M1[i];
            table[i + 8] = -E2M1[i];
            i += 1;
        }
        table
    };
    for (j, byte) in packed.iter().enumerate() {
        let (lane, place) = (2 * j / RUN, 2 * j % RUN);
        weights[place][lane] = TABLE[usize::from(byte & 15)];
        weights[place + 1][lane] = TABLE[usize::from(byte >> 4)];
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;
    use crate::workload::reference::numbers::Element;
    use crate::workload::reference::nvfp4 as twin;

    fn bits<T: Element>(values: &[T]) -> Vec<u32> {
        let canonical = |value: f32| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() };
        values.iter().map(|value| canonical(value.widen())).collect()
    }

    fn check<T: FastElement + Default>(quantized: &Nvfp4, in_features: usize, x: &[f32]) {
        let x: Vec<T> = x.iter().map(|x| T::round(*x)).collect();
        let Nvfp4 { packed, scales, global } = quantized;
        let matrix = Nvfp4Matrix { packed, scales, global: *global, in_features };
        assert_eq!(bits(&product(matrix, &x).unwrap()), bits(&twin::product(matrix, &x)));
    }

    #[test]
    fn a_scale_is_rounded_as_the_twin_rounds_it() {
        for byte in 1..0x7eu8 {
            let (value, next) = (e4m3_value(byte), e4m3_value(byte + 1));
            let middle = (value + next) / 2.0;
            for value in [value, middle.next_down(), middle, middle.next_up(), next.next_down()] {
                assert_eq!(e4m3_of(value), twin::e4m3_of(value), "{value:e}");
            }
        }
        assert_eq!(e4m3_of(448.0), 0x7e);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn quantising_has_the_bits_of_the_twin(
            groups in 1usize..40,
            values in proptest::collection::vec(prop_oneof![
                40 => -1f32..1f32,
                4 => Just(0f32),
                2 => Just(-0f32),
                1 => any::<u32>().prop_map(f32::from_bits),
            ], 640),
            scale in prop_oneof![Just(1f32), Just(1e-38), Just(1e38), Just(0f32)],
        ) {
            let weights: Vec<f32> = values[..groups * GROUP].iter().map(|value| value * scale).collect();
            let (fast, expected) = (quantize(&weights).unwrap(), twin::quantize(&weights));
            prop_assert_eq!(bits(&[fast.global]), bits(&[expected.global]));
            prop_assert_eq!((fast.scales, fast.packed), (expected.scales, expected.packed));
        }

        #[test]
        fn a_product_has_the_bits_of_the_twin(groups in 1usize..140, rows in 1usize..4, batch in 1usize..3, seed in any::<u32>()) {
            let in_features = groups * GROUP;
            let value = |i: usize| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
            let weights: Vec<f32> = (0..rows * in_features).map(|i| value(i) * 0.03).collect();
            let x: Vec<f32> = (0..batch * in_features).map(|i| value(i + 7)).collect();
            let quantized = twin::quantize(&weights);
            check::<bf16>(&quantized, in_features, &x);
            check::<f16>(&quantized, in_features, &x);
            check::<f32>(&quantized, in_features, &x);
        }
    }

    #[test]
    fn ties_and_their_neighbours_have_the_bits_of_the_twin() {
        // The largest weight is 2688, so that every scale is exact and a tie stays one.
        let ties = [0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
        let around = ties.iter().flat_map(|tie| [*tie, tie.next_up(), tie.next_down(), -tie]);
        let mut weights: Vec<f32> = around.map(|value| value * 448.0).collect();
        weights.resize(32, 2688.0);
        assert_eq!(quantize(&weights).unwrap(), twin::quantize(&weights));
    }
}
