//! The driver's stream-ordered memory pool.

#![expect(unsafe_code, reason = "the driver is a C library")]

use std::ptr;

use super::{Address, Context, GpuError, Handle, Stream, none_if_exhausted};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: i32 = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED_NOW: i32 = 5;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`.
const RESERVED_HIGH: i32 = 6;

impl Context {
    /// `cuMemAllocAsync`; `None` when the memory is not there.
    pub(in super::super) fn pool_alloc(&self, bytes: u64, stream: Stream) -> Result<Option<Address>, GpuError> {
        let mut address = 0;
        // SAFETY: the pointer is written; the memory is used on the same stream or after a wait.
        let answer = unsafe { self.functions.pool_alloc(&raw mut address, bytes as usize, stream.0) };
        none_if_exhausted(answer.map(|()| Address(address)))
    }

    /// `cuMemFreeAsync`.
    pub(in super::super) fn pool_free(&self, address: Address, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: the address came from `pool_alloc`; the driver refuses others.
        unsafe { self.functions.pool_free(address.0, stream.0) }
    }

    fn pool(&self) -> Result<Handle, GpuError> {
        let mut pool = ptr::null_mut();
        // SAFETY: the pointer is written.
        unsafe { self.functions.device_pool(&raw mut pool, self.device)? };
        Ok(pool)
    }

    /// Lets the pool keep what is freed, as a framework does; the default gives it back at every wait.
    pub(in super::super) fn pool_keeps_all(&self) -> Result<(), GpuError> {
        let mut threshold = u64::MAX;
        // SAFETY: the value of this attribute is a u64.
        unsafe { self.functions.pool_set_attribute(self.pool()?, RELEASE_THRESHOLD, (&raw mut threshold).cast()) }
    }

    /// Bytes that the pool holds from the driver: now, and at most so far.
    ///
    /// # Errors
    /// The driver's.
    pub fn pool_reserved(&self) -> Result<(u64, u64), GpuError> {
        let (pool, mut now, mut high) = (self.pool()?, 0u64, 0u64);
        // SAFETY: the values of these attributes are u64.
        unsafe {
            self.functions.pool_attribute(pool, RESERVED_NOW, (&raw mut now).cast())?;
            self.functions.pool_attribute(pool, RESERVED_HIGH, (&raw mut high).cast())?;
        }
        Ok((now, high))
    }

    /// Returns what the pool holds and nobody uses.
    pub(in super::super) fn pool_trim(&self) -> Result<(), GpuError> {
        // SAFETY: the pool is the device's default one.
        unsafe { self.functions.pool_trim(self.pool()?, 0) }
    }
}
