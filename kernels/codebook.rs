//! Code books of the 4-bit formats and of the 8-bit map for nested statistics: what an index means.
//!
//! ```text
//! value   = table[index] * absmax
//! index   = number of thresholds below x / absmax          (NF4, ascending table)
//! index   = 8 * (x < 0) + BY_COUNT[thresholds below |x| / absmax]   (FP4, bit 3 is the sign)
//! dynamic = { 0, 1, ±10^(i-6) * mean_j of 2^i cells of [0.1, 1] : i = 0..6 }, sorted
//! ```
//! Owns tables only; the bits are those of bitsandbytes 0.46 to 0.50, as their CUDA kernels hold them.

use super::reductions::abs_max;

/// A 4-bit code book: one of the 4-bit formats that have no scales inside a row, which are bitsandbytes' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeBook {
    /// 16 quantiles of a normal distribution, ascending.
    Nf4,
    /// Sign and three bits that name a magnitude; the magnitudes are not in order.
    Fp4,
}

impl CodeBook {
    /// Every code book.
    pub const ALL: [Self; 2] = [Self::Nf4, Self::Fp4];

    /// The table that the dequantise kernel holds: index 8 of FP4 is -0.0.
    pub const fn kernel_table(self) -> [f32; 16] {
        match self {
            Self::Nf4 => NF4,
            Self::Fp4 => FP4_KERNEL,
        }
    }

    /// The 16 floats in device memory that the gemv kernel reads: index 8 of FP4 is +0.0.
    ///
    /// bitsandbytes divides the raw values by their largest magnitude, which is 1 for NF4 and 12 for FP4.
    pub fn device_table(self) -> [f32; 16] {
        let raw = self.raw_table();
        let largest = abs_max(&raw);
        raw.map(|value| value / largest)
    }

    /// The table before it is divided by its largest magnitude, as the host sends it to the device.
    pub const fn raw_table(self) -> [f32; 16] {
        match self {
            Self::Nf4 => NF4,
            Self::Fp4 => FP4_TWELFTHS,
        }
    }

    /// The index of an element already divided by its block's absmax; NaN gives 0, a tie the lower magnitude.
    pub fn index_of(self, scaled: f32) -> u8 {
        match self {
            Self::Nf4 => count_below(&NF4_THRESHOLDS, scaled) as u8,
            Self::Fp4 => {
                let sign = if scaled < 0.0 { 8 } else { 0 };
                sign + FP4_INDEX_BY_COUNT[count_below(&FP4_THRESHOLDS, scaled.abs())]
            }
        }
    }
}

/// How many of `thresholds` are strictly below `value`; none for NaN.
fn count_below(thresholds: &[f32], value: f32) -> usize {
    thresholds.iter().filter(|&&threshold| value > threshold).count()
}

/// NF4: the normalised quantiles of QLoRA, as the CUDA source spells them.
#[expect(clippy::excessive_precision, reason = "these are the literals of the kernel; their f32 rounding is meant")]
pub const NF4: [f32; 16] = [
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
];

/// Decision thresholds of NF4: the midpoints of neighbouring codes, rounded to f32 with ties to even.
///
/// Four of the midpoints lie half-way between two f32. The CUDA source spells them as 16-digit decimals, and an
/// f32 literal read from those falls on the other side: a GPU decides a value on one of these four thresholds
/// for the neighbouring code, as if its reciprocal had been one unit in the last place off.
pub const NF4_THRESHOLDS: [f32; 15] = {
    let mut thresholds = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        thresholds[i] = ((NF4[i] as f64 + NF4[i + 1] as f64) / 2.0) as f32;
        i += 1;
    }
    thresholds
};

/// FP4 in twelfths, as bitsandbytes writes the table on the host (its `-0` is the integer 0).
const FP4_TWELFTHS: [f32; 16] =
    [0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0, 0.0, -0.0625, -8.0, -12.0, -4.0, -6.0, -2.0, -3.0];

/// FP4 as the dequantise kernel holds it.
const FP4_KERNEL: [f32; 16] = {
    let mut table = [0.0; 16];
    let mut i = 0;
    while i < 8 {
        table[i] = FP4_TWELFTHS[i] / 12.0;
        table[i + 8] = -table[i];
        i += 1;
    }
    table
};

/// Decision thresholds of FP4 magnitudes: the literals of the kernel, which are not exact midpoints.
pub const FP4_THRESHOLDS: [f32; 7] = [0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333];

/// The FP4 magnitude index for each count of thresholds below the magnitude.
pub const FP4_INDEX_BY_COUNT: [u8; 8] = [0, 1, 6, 7, 4, 5, 2, 3];

/// The 256 sorted values of the 8-bit dynamic map: 0, 1 and, for seven decades, cell means of [0.1, 1].
///
/// It is asymmetric: 1.0 is in it, -1.0 is not.
pub fn dynamic_map() -> [f32; 256] {
    let mut values = vec![0.0f32, 1.0];
    for decade in 0..7 {
        let scale = 10f64.powi(decade - 6) as f32;
        let bounds = linspace_tenth_to_one(1 << decade);
        for pair in bounds.windows(2) {
            let mean = (pair[0] + pair[1]) / 2.0;
            values.extend([scale * mean, -(scale * mean)]);
        }
    }
    values.sort_by(f32::total_cmp);
    values.try_into().expect("2 + 2 * (1 + 2 + 4 + … + 64) = 256 values")
}

/// PyTorch's f32 `linspace(0.1, 1, steps + 1)`: built from both ends, each value with a single rounding.
fn linspace_tenth_to_one(steps: usize) -> Vec<f32> {
    let step = (1.0 - 0.1f32) / steps as f32;
    (0..=steps)
        .map(
            |j| {
                if j < steps.div_ceil(2) {
                    step.mul_add(j as f32, 0.1)
                } else {
                    (-step).mul_add((steps - j) as f32, 1.0)
                }
            },
        )
        .collect()
}

/// The f32 midpoints between neighbouring values of the dynamic map: its decision thresholds.
pub fn dynamic_midpoints(map: &[f32; 256]) -> [f32; 255] {
    std::array::from_fn(|i| (map[i] + map[i + 1]) * 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_fp4_tables_differ_only_in_the_sign_of_index_8() {
        let (kernel, device) = (CodeBook::Fp4.kernel_table(), CodeBook::Fp4.device_table());
        for i in 0..16 {
            assert_eq!(kernel[i].to_bits() == device[i].to_bits(), i != 8, "{i}");
        }
        assert_eq!(kernel[8].to_bits(), (-0f32).to_bits());
    }

    #[test]
    fn every_code_is_the_index_of_its_own_value() {
        for book in CodeBook::ALL {
            for (index, value) in book.kernel_table().into_iter().enumerate() {
                // A negative zero compares equal to zero, so the sign of FP4's zero needs a negative value.
                let expected = if value == 0.0 && book == CodeBook::Fp4 { 0 } else { index as u8 };
                assert_eq!(book.index_of(value), expected, "{book:?} {index}");
            }
        }
        assert_eq!(CodeBook::Fp4.index_of(-1e-6), 8);
    }

    #[test]
    fn a_tie_goes_to_the_lower_magnitude_or_code_and_nan_to_index_0() {
        for (i, threshold) in NF4_THRESHOLDS.into_iter().enumerate() {
            assert_eq!(CodeBook::Nf4.index_of(threshold), i as u8);
            assert_eq!(CodeBook::Nf4.index_of(threshold.next_up()), i as u8 + 1);
        }
        for (i, threshold) in FP4_THRESHOLDS.into_iter().enumerate() {
            assert_eq!(CodeBook::Fp4.index_of(-threshold), 8 + FP4_INDEX_BY_COUNT[i]);
            assert_eq!(CodeBook::Fp4.index_of(-threshold.next_up()), 8 + FP4_INDEX_BY_COUNT[i + 1]);
        }
        for book in CodeBook::ALL {
            assert_eq!(book.index_of(f32::NAN), 0);
        }
    }
}
