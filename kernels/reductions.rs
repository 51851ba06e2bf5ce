//! Reductions around the quantise kernels: largest magnitude, mean, centring.
//!
//! ```text
//! abs_max(x) = max |x_i|, from 0, NaN ignored
//! mean(x)    = f32( sum over pieces of 4096 of ( sum in order, f64 ) / n )
//! centred_i  = x_i - mean                                   (f32, no flush)
//! ```
//! PyTorch sums in f32 in an order that depends on the GPU, so its mean differs in the last few bits. Here
//! the order is fixed and the accumulator wide, so that the result does not depend on the thread count.

/// How many elements are summed in order before the partial sums are: fixed, because it decides the bits.
pub const MEAN_PIECE_ELEMENTS: usize = 4096;

/// The largest magnitude of `values`; 0 for none, NaN ignored.
pub fn abs_max(values: &[f32]) -> f32 {
    let mut largest = 0.0;
    for value in values {
        if value.abs() > largest {
            largest = value.abs();
        }
    }
    largest
}

/// The sum of one piece, in order.
pub fn sum_piece(piece: &[f32]) -> f64 {
    let mut sum = 0.0;
    for value in piece {
        sum += f64::from(*value);
    }
    sum
}

/// The mean of `values`; NaN for none.
pub fn mean(values: &[f32]) -> f32 {
    let mut sum = 0.0;
    for piece in values.chunks(MEAN_PIECE_ELEMENTS) {
        sum += sum_piece(piece);
    }
    (sum / values.len() as f64) as f32
}

/// `values` less `offset`, element by element, shape kept.
pub fn centred(values: &[f32], offset: f32) -> Vec<f32> {
    values.iter().map(|value| value - offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_magnitude_ignores_signs_and_nan() {
        assert_eq!(abs_max(&[1.0, -3.0, f32::NAN, 2.0]), 3.0);
        assert_eq!(abs_max(&[]), 0.0);
    }

    #[test]
    fn the_mean_survives_a_sum_that_f32_would_lose() {
        // In f32 the ones vanish beside 2^24; the mean is exactly (2^24 + 9999) / 10000.
        let mut values = vec![1.0f32; 10_000];
        values[0] = 16_777_216.0;
        assert_eq!(mean(&values), ((16_777_216.0 + 9_999.0) / 10_000.0) as f32);
    }

    #[test]
    fn centring_by_the_mean_leaves_a_mean_of_nearly_zero() {
        let values: Vec<f32> = (0..5000).map(|i| (i % 97) as f32 * 0.01).collect();
        assert!(mean(&centred(&values, mean(&values))).abs() < 1e-7);
    }
}
