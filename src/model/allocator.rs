//! Device memory as an allocator policy sees it: requests, blocks, segments and their totals.
//!
//! Owns the rules by which a request becomes memory from the driver, and the counting of it.
//! The rules (`caching`, `direct`) are separate from what stands behind them: a [`Segments`]
//! backing hands out driver allocations, which may be a real device or [`AccountingSegments`],
//! which only counts. The same rules therefore predict a peak and later produce it.
//! This module must not know which requests a workload makes, and it touches no device itself.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

mod caching;
mod direct;

pub use caching::CachingAllocator;
pub use direct::DirectAllocator;

/// A device address, as the backing gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on.
    #[must_use]
    pub fn offset_by(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// The ordinal of a driver allocation in its allocator: 0 is the first one ever made. Not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentNumber(pub u32);

/// A block that is in use.
///
/// It cannot be copied, and giving it back consumes it, so no block is released twice.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a block that is dropped stays allocated for ever"]
pub struct BlockHandle(u32);

/// What lies behind a policy: the driver's own allocation calls.
pub trait Segments {
    /// A failure that is not a lack of memory, after which nothing about the device is known.
    type Fault;

    /// Allocates `bytes` of device memory (`cudaMalloc`).
    ///
    /// # Errors
    /// [`SegmentError::Exhausted`] when the memory is not there, which a policy may answer by
    /// returning what it has cached; [`SegmentError::Fault`] for everything else.
    fn malloc(&mut self, bytes: u64) -> Result<Address, SegmentError<Self::Fault>>;

    /// Returns the whole allocation that began at `address` (`cudaFree`).
    ///
    /// # Errors
    /// The driver's fault: such a call has no ordinary way to fail.
    fn free(&mut self, address: Address) -> Result<(), Self::Fault>;

    /// Returns to the device what the backing itself keeps of freed allocations; most keep nothing.
    ///
    /// # Errors
    /// The driver's fault.
    fn trim(&mut self) -> Result<(), Self::Fault> {
        Ok(())
    }
}

/// Why a backing gave no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentError<F> {
    /// The device has no such amount of memory left.
    Exhausted,
    /// The driver reported something other than a lack of memory.
    Fault(F),
}

/// Why a policy gave no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocError<F> {
    /// A clean failure: the driver refused twice, the second time after the cache was returned.
    #[error(
        "out of device memory: {requested} bytes requested, {segment} from the driver, \
         {allocated} allocated, {reserved} reserved", allocated = usage.allocated, reserved = usage.reserved
    )]
    OutOfMemory {
        /// The bytes that the workload asked for.
        requested: u64,
        /// The bytes that the policy asked the driver for.
        segment: u64,
        /// The totals after the cache was returned.
        usage: Usage,
    },
    /// The driver reported something other than a lack of memory.
    #[error("device fault while allocating memory")]
    Fault(F),
}

/// The totals of an allocator at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of the blocks in use. It counts whole blocks: rounding and unsplit rests included.
    pub allocated: u64,
    /// Bytes of all segments held from the driver, in use or cached.
    pub reserved: u64,
}

/// Where a block lies and how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The bytes that were asked for.
    pub requested: u64,
    /// The bytes that the block takes.
    pub block: u64,
    /// The segment that holds it.
    pub segment: SegmentNumber,
    /// The distance in bytes from the start of the segment.
    pub offset: u64,
}

/// One thing that an allocator did, in the order of doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocEvent {
    /// A segment came from the driver.
    SegmentAlloc {
        /// Its ordinal.
        segment: SegmentNumber,
        /// Its size.
        bytes: u64,
    },
    /// A segment went back to the driver.
    SegmentFree {
        /// Its ordinal.
        segment: SegmentNumber,
        /// Its size.
        bytes: u64,
    },
    /// A block was handed out; the totals are those after it.
    Alloc(Placement, Usage),
    /// A block was given back; the totals are those after it.
    Free(Placement, Usage),
    /// A request failed for good.
    OutOfMemory {
        /// The bytes that were asked for.
        requested: u64,
    },
}

/// Something that wants to see the events of an allocator.
pub trait AllocObserver {
    /// Called once for each event, after the allocator's totals have changed.
    fn observe(&mut self, event: AllocEvent);
}

/// Sees nothing, and costs nothing: predictions need totals only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl AllocObserver for Unobserved {
    #[inline]
    fn observe(&mut self, _: AllocEvent) {}
}

impl AllocObserver for Vec<AllocEvent> {
    fn observe(&mut self, event: AllocEvent) {
        self.push(event);
    }
}

/// A policy over device memory.
pub trait DeviceAllocator {
    /// What the backing reports when it is not a lack of memory.
    type Fault;

    /// Hands out a block of at least `bytes`. A request of 0 is answered like one of 1.
    ///
    /// # Errors
    /// See [`AllocError`]. After `OutOfMemory` the allocator is consistent and may be used on.
    fn alloc(&mut self, bytes: u64) -> Result<BlockHandle, AllocError<Self::Fault>>;

    /// Takes a block back.
    ///
    /// # Errors
    /// Only a fault of the driver.
    fn free(&mut self, block: BlockHandle) -> Result<(), Self::Fault>;

    /// Returns to the driver every segment that no block in use holds on to.
    ///
    /// # Errors
    /// Only a fault of the driver.
    fn empty_cache(&mut self) -> Result<(), Self::Fault>;

    /// Where the block lies on the device.
    fn address(&self, block: &BlockHandle) -> Address;

    /// The totals now.
    fn usage(&self) -> Usage;

    /// The largest value that each total has had. They need not have been reached together.
    fn peak(&self) -> Usage;
}

/// The running totals of an allocator together with their maxima.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    now: Usage,
    peak: Usage,
}

impl Totals {
    #[inline]
    fn reserve(&mut self, bytes: u64) {
        self.now.reserved += bytes;
        self.peak.reserved = self.peak.reserved.max(self.now.reserved);
    }

    #[inline]
    fn allocate(&mut self, bytes: u64) {
        self.now.allocated += bytes;
        self.peak.allocated = self.peak.allocated.max(self.now.allocated);
    }
}

/// A backing that hands out numbers instead of memory.
///
/// Addresses grow and are never used twice, so that "lowest address" means "oldest segment".
/// A driver may hand out addresses in another order; only ties between equal sizes see it.
#[derive(Debug, Clone)]
pub struct AccountingSegments {
    live: Vec<(Address, u64)>,
    in_use: u64,
    capacity: Option<u64>,
    next: u64,
}

impl AccountingSegments {
    /// The first address handed out: not 0, as no driver gives that one.
    const FIRST: u64 = 1 << 32;
    /// Segments are laid out on this grid, which is the device's large page (2 MiB).
    const ALIGNMENT: u64 = 2 << 20;

    /// A backing that never runs out.
    pub fn unlimited() -> Self {
        Self { live: Vec::with_capacity(16), in_use: 0, capacity: None, next: Self::FIRST }
    }

    /// A backing that holds at most `bytes` at a time.
    pub fn with_capacity(bytes: u64) -> Self {
        Self { capacity: Some(bytes), ..Self::unlimited() }
    }

    /// The bytes of all segments that are out.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }
}

impl Segments for AccountingSegments {
    type Fault = Infallible;

    fn malloc(&mut self, bytes: u64) -> Result<Address, SegmentError<Infallible>> {
        let in_use = self.in_use + bytes;
        if self.capacity.is_some_and(|capacity| in_use > capacity) {
            return Err(SegmentError::Exhausted);
        }
        let address = Address(self.next);
        self.next += bytes.next_multiple_of(Self::ALIGNMENT);
        self.in_use = in_use;
        self.live.push((address, bytes));
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), Infallible> {
        let at = self.live.iter().position(|&(live, _)| live == address);
        let at = at.expect("a policy returns only segments that it got");
        let (_, bytes) = self.live.swap_remove(at);
        self.in_use -= bytes;
        Ok(())
    }
}
