//! Rounding an f32 to a narrower format and keeping it as f32, without branches.
//!
//! The conversions of a number library test for NaN with a jump; here every case is a select, so that the
//! compiler can use vector instructions of the baseline CPU. The bits are those of [`Element::round`].

use half::{bf16, f16};

use crate::workload::reference::numbers::{Element, flush};

/// A format with branch-free arithmetic for the inner loops.
pub trait FastElement: Element {
    /// `Self::round(value).widen()`.
    fn round_value(value: f32) -> f32;

    /// The weight of a table value and a block's absmax, both already of this format.
    fn weight(q: f32, s: f32) -> f32;

    /// One step of a gemv lane: `acc` and the product of `x` and `w`, both of this format.
    fn accumulate(acc: f32, x: f32, w: f32) -> f32;
}

impl FastElement for f32 {
    fn round_value(value: f32) -> f32 {
        value
    }
    fn weight(q: f32, s: f32) -> f32 {
        flush(flush(q) * flush(s))
    }
    fn accumulate(acc: f32, x: f32, w: f32) -> f32 {
        flush(flush(x).mul_add(flush(w), acc))
    }
}

impl FastElement for bf16 {
    fn round_value(value: f32) -> f32 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
        // The addition would carry a NaN into another class.
        if value.is_nan() { value } else { f32::from_bits(rounded) }
    }
    fn weight(q: f32, s: f32) -> f32 {
        Self::round_value(q * s)
    }
    fn accumulate(acc: f32, x: f32, w: f32) -> f32 {
        flush(acc + flush(Self::round_value(x * w)))
    }
}

/// The smallest normal fp16.
const FP16_MIN_NORMAL: f32 = 1.0 / 16_384.0;
/// Adding and subtracting it leaves a multiple of 2^-24, the quantum of subnormal fp16, rounded to even.
const FP16_SUBNORMAL_MAGIC: f32 = 0.75;
/// From here on fp16 rounds to infinity.
const FP16_OVERFLOW: f32 = 65_520.0;

impl FastElement for f16 {
    fn round_value(value: f32) -> f32 {
        let bits = value.to_bits();
        let normal = f32::from_bits(bits.wrapping_add(0x0fff + ((bits >> 13) & 1)) & 0xffff_e000);
        let magnitude = value.abs();
        let subnormal = ((magnitude + FP16_SUBNORMAL_MAGIC) - FP16_SUBNORMAL_MAGIC).copysign(value);
        let finite = if magnitude < FP16_MIN_NORMAL { subnormal } else { normal };
        let bounded = if magnitude >= FP16_OVERFLOW { f32::INFINITY.copysign(value) } else { finite };
        if value.is_nan() { value } else { bounded }
    }
    fn weight(q: f32, s: f32) -> f32 {
        Self::round_value(q * s)
    }
    fn accumulate(acc: f32, x: f32, w: f32) -> f32 {
        // Sums of fp16 values are multiples of 2^-24 and never subnormal, so there is nothing to flush.
        acc + Self::round_value(x * w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    /// Every value of a 16-bit format, and around each the half-way point to the next with its neighbours.
    fn critical<T: Element>(from_bits: impl Fn(u16) -> T) -> Vec<f32> {
        let mut values = Vec::new();
        for bits in 0..=u16::MAX {
            let value = from_bits(bits).widen();
            let next = from_bits(bits.wrapping_add(1)).widen();
            let middle = ((f64::from(value) + f64::from(next)) / 2.0) as f32;
            values.extend([value, middle, middle.next_down(), middle.next_up(), value.next_up(), value.next_down()]);
        }
        values.extend([65_519.996, 65_520.0, 65_536.0, f32::MAX, f32::MIN, f32::from_bits(0x7fff_ffff)]);
        values
    }

    fn check<T: FastElement>(values: Vec<f32>) {
        for value in values {
            assert!(same(T::round_value(value), T::round(value).widen()), "{value:e} {:08x}", value.to_bits());
        }
    }

    #[test]
    fn the_branch_free_roundings_agree_with_the_library_on_every_critical_value() {
        check::<f16>(critical(f16::from_bits));
        check::<bf16>(critical(bf16::from_bits));
    }
}
