//! Host values as bytes, for copies to and from the device.

#![expect(unsafe_code, reason = "a copy to a device moves bytes, and slices of numbers are bytes")]

use half::{bf16, f16};

/// A number that is nothing but its bytes.
///
/// # Safety
/// The type has no padding, and every bit pattern is a value of it.
pub unsafe trait Plain: Copy + Default {}

// SAFETY: a byte.
unsafe impl Plain for u8 {}
// SAFETY: four bytes; every pattern is a number or NaN.
unsafe impl Plain for f32 {}
// SAFETY: a transparent u16.
unsafe impl Plain for bf16 {}
// SAFETY: a transparent u16.
unsafe impl Plain for f16 {}

/// The bytes of `values`, little-endian as both sides are.
pub(in super::super) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `T` has no padding, so that every byte is initialised; the length is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of `values`, to be overwritten.
pub(in super::super) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every pattern that is written is a value of `T`.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
