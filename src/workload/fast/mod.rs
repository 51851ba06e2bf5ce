//! The fast CPU code of the workload: many threads, blockwise, the bits of the twins.
//!
//! Everything runs on the rayon pool it is called in (so that `init_threads` is the caller's choice), and
//! no result depends on the number of threads. It shares constants and single roundings with
//! [`super::reference`], never its loops: the oracle and the property tests compare the two.

pub mod rounding;

pub(crate) mod weights;

pub mod quantize;

pub mod nested;

pub mod dequantize;

pub mod gemv;

pub mod matmul;

pub mod nvfp4;

use super::spec::LayerError;

/// Elements that one task takes at a time: a multiple of every block size, and about a second-level cache.
pub(crate) const TASK_ELEMENTS: usize = 1 << 14;

/// `len` zeros, every page of them touched, or an error instead of an abort.
///
/// # Errors
/// If the host does not give the memory for `what`.
pub(crate) fn zeroed<T: Clone + Default>(len: usize, what: &'static str) -> Result<Vec<T>, LayerError> {
    let mut values = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    values.try_reserve_exact(len).map_err(|_| LayerError::HostMemory { what, bytes })?;
    values.resize(len, T::default());
    Ok(values)
}

#[cfg(test)]
mod tests;
