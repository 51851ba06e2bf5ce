//! Device memory that is owned, for checks and measurements outside a trial.
//!
//! A trial takes its memory through an allocator policy; this is for everything else, such as launching every kernel
//! once. The memory goes back when the tensor is dropped.

use std::rc::Rc;

use super::driver::{Context, Plain, Stream, bytes_of, bytes_of_mut};
use super::error::GpuError;
use super::kernels::DeviceBuffer;
use crate::workload::fast::zeroed;

/// Owned device memory.
#[derive(Debug)]
pub struct Tensor {
    context: Rc<Context>,
    buffer: DeviceBuffer,
}

impl Tensor {
    /// `bytes` of device memory, of which nothing is known.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], or the driver's.
    pub fn new(context: &Rc<Context>, bytes: u64) -> Result<Self, GpuError> {
        let none = GpuError::OutOfMemory { requested: bytes, allocated: 0, reserved: 0, memory: None };
        let address = context.alloc(bytes.max(1))?.ok_or(none)?;
        Ok(Self { context: context.clone(), buffer: DeviceBuffer { address, bytes } })
    }

    /// Device memory that holds `values`.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn of<T: Plain>(context: &Rc<Context>, values: &[T]) -> Result<Self, GpuError> {
        let tensor = Self::new(context, size_of_val(values) as u64)?;
        context.upload(tensor.buffer.address, bytes_of(values), Stream::LEGACY)?;
        Ok(tensor)
    }

    /// The memory, to launch on.
    pub fn buffer(&self) -> DeviceBuffer {
        self.buffer
    }

    /// The first `count` values, once everything before on the legacy default stream is done.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] if there are fewer, or the driver's.
    pub fn read<T: Plain>(&self, count: usize) -> Result<Vec<T>, GpuError> {
        let mut values = zeroed::<T>(count, "a copy of device memory")?;
        self.buffer.holds("a copy back", "the source", size_of_val(values.as_slice()) as u64)?;
        self.context.download(bytes_of_mut(&mut values), self.buffer.address, Stream::LEGACY)?;
        Ok(values)
    }

    /// Overwrites all of it with one byte.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&self, byte: u8, stream: Stream) -> Result<(), GpuError> {
        self.context.fill(self.buffer.address, byte, self.buffer.bytes, stream)
    }

    /// Copies all of `from`, which must not be larger.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn copy_from(&self, from: &Tensor, stream: Stream) -> Result<(), GpuError> {
        self.buffer.holds("a copy on the device", "the target", from.buffer.bytes)?;
        self.context.copy(self.buffer.address, from.buffer.address, from.buffer.bytes, stream)
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // A failure means a dead context, which the next call of anything reports.
        let _ = self.context.free(self.buffer.address);
    }
}
