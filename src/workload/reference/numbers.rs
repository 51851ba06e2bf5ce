//! The number formats and the f32 habits of the GPU that both the twins and the fast code obey.
//!
//! Owns widening, rounding and flush-to-zero of single values. Knows no tensor and no kernel.

use half::{bf16, f16};

use crate::model::settings::FloatType;

impl FloatType {
    /// Significant bits, the implicit one included.
    pub const fn significant_bits(self) -> i32 {
        match self {
            Self::Bf16 => 8,
            Self::Fp16 => 11,
            Self::Fp32 => 24,
        }
    }

    /// The largest relative error of one rounding to nearest of a normal value: half an ulp of 1.0.
    pub fn unit_roundoff(self) -> f64 {
        2f64.powi(-self.significant_bits())
    }

    /// Distance between neighbouring values of this format around the finite `value`, subnormals included.
    pub fn ulp_at(self, value: f64) -> f64 {
        let lowest_exponent = match self {
            Self::Bf16 | Self::Fp32 => -126,
            Self::Fp16 => -14,
        };
        // The exponent field of the f64 is read directly: log2 would round up just below a power of two.
        let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        2f64.powi(exponent.max(lowest_exponent) - (self.significant_bits() - 1))
    }
}

/// A value stored in one of the [`FloatType`]s.
pub trait Element: Copy + Send + Sync + 'static {
    /// The format.
    const FLOAT_TYPE: FloatType;

    /// The same value as f32; exact.
    fn widen(self) -> f32;

    /// The nearest value of the format, ties to even, subnormals kept, overflow to infinity, NaN to NaN.
    fn round(value: f32) -> Self;
}

impl Element for f32 {
    const FLOAT_TYPE: FloatType = FloatType::Fp32;
    fn widen(self) -> f32 {
        self
    }
    fn round(value: f32) -> Self {
        value
    }
}

impl Element for bf16 {
    const FLOAT_TYPE: FloatType = FloatType::Bf16;
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn round(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

impl Element for f16 {
    const FLOAT_TYPE: FloatType = FloatType::Fp16;
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn round(value: f32) -> Self {
        f16::from_f32(value)
    }
}

/// Flush to zero: a subnormal becomes a zero of its sign, everything else stays.
///
/// bitsandbytes builds its kernels with `--use_fast_math`, so every f32 operand and result there is flushed.
pub fn flush(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0f32.copysign(value) } else { value }
}

/// `a * b` as the GPU computes it with fast math: operands and result flushed.
pub fn multiply_flushed(a: f32, b: f32) -> f32 {
    flush(flush(a) * flush(b))
}

/// `a + b` as the GPU computes it with fast math: operands and result flushed.
pub fn add_flushed(a: f32, b: f32) -> f32 {
    flush(flush(a) + flush(b))
}

/// `1 / value`, operand and result flushed: 0 gives infinity, more than 2^126 gives 0.
///
/// The GPU's `rcp.approx.ftz` is within one unit in the last place of this; see [`Reciprocal`].
pub fn reciprocal_flushed(value: f32) -> f32 {
    flush(1.0 / flush(value))
}

/// Which reciprocals of an absmax an implementation may have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reciprocal {
    /// The correctly rounded one, as on the CPU.
    Exact,
    /// Any of the three f32 around the correctly rounded one, as the approximate instruction of a GPU.
    WithinOneUlp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnormal_is_flushed_to_a_zero_of_its_sign() {
        let tiny = -f32::from_bits(1);
        assert_eq!(flush(tiny).to_bits(), (-0f32).to_bits());
        assert_eq!(flush(f32::MIN_POSITIVE), f32::MIN_POSITIVE);
        assert!(flush(f32::NAN).is_nan());
    }

    #[test]
    fn the_reciprocal_of_a_huge_value_is_zero_and_of_a_subnormal_infinite() {
        assert_eq!(reciprocal_flushed(2f32.powi(127)), 0.0);
        assert_eq!(reciprocal_flushed(2f32.powi(126)), f32::MIN_POSITIVE);
        assert_eq!(reciprocal_flushed(f32::from_bits(5)), f32::INFINITY);
    }

    #[test]
    fn an_ulp_is_the_gap_to_the_next_value_of_the_format() {
        for value in [1.0f32, 1.99, 0.75, 3e-5, 1e-7, 60000.0] {
            let half = f16::from_f32(value);
            let gap = f16::from_bits(half.to_bits() + 1).to_f64() - half.to_f64();
            assert_eq!(FloatType::Fp16.ulp_at(half.to_f64()), gap, "{value}");
            let brain = bf16::from_f32(value);
            let gap = bf16::from_bits(brain.to_bits() + 1).to_f64() - brain.to_f64();
            assert_eq!(FloatType::Bf16.ulp_at(brain.to_f64()), gap, "{value}");
        }
        assert_eq!(FloatType::Fp32.ulp_at(0.0), f64::from(f32::from_bits(1)));
        for &format in FloatType::ALL {
            assert_eq!(format.unit_roundoff(), format.ulp_at(1.0) / 2.0);
        }
    }
}
