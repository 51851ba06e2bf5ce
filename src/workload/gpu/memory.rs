//! Device memory as the allocator policies get it from the driver: the levels of the axis `allocator`.
//!
//! Owns three backings of [`Segments`] (`cuMemAlloc`, the stream-ordered pool, mapped physical memory) and the choice
//! of the policy above them. The policies themselves are the model's: what predicts a peak produces it here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::driver::{Context, Stream};
use super::error::GpuError;
use crate::model::allocator::{
    Address, AllocEvent, AllocObserver, CachingAllocator, DeviceAllocator, DirectAllocator, SegmentError, Segments,
};
use crate::model::settings::AllocatorKind;

/// The events of an allocator, shared between it and whoever reads them.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Rc<RefCell<Vec<AllocEvent>>>);

impl EventLog {
    /// The events so far, in their order.
    pub fn events(&self) -> Vec<AllocEvent> {
        self.0.borrow().clone()
    }
}

impl AllocObserver for EventLog {
    fn observe(&mut self, event: AllocEvent) {
        self.0.borrow_mut().push(event);
    }
}

/// A policy over real device memory.
pub type GpuAllocator = Box<dyn DeviceAllocator<Fault = GpuError>>;

/// The policy `kind` on `context`, telling `log` what it does.
///
/// `caching` stands on `cuMemAlloc`, `direct` hands every request to it, `async` every request to the stream-ordered
/// pool, which keeps what is freed until the cache is emptied. `vmm` is the caching policy on segments of mapped
/// physical memory; its segments have a fixed size and do not grow.
///
/// # Errors
/// The driver's, and for `async` [`GpuError::BadLaunch`] on a device without pools.
pub fn allocator(
    kind: AllocatorKind,
    context: &Rc<Context>,
    stream: Stream,
    log: EventLog,
) -> Result<GpuAllocator, GpuError> {
    let context = context.clone();
    Ok(match kind {
        AllocatorKind::Caching => Box::new(CachingAllocator::observed(DriverSegments { context }, log)),
        AllocatorKind::Direct => Box::new(DirectAllocator::observed(DriverSegments { context }, log)),
        AllocatorKind::Async => {
            if !context.facts().has_pools {
                return Err(GpuError::BadLaunch { kernel: "cuMemAllocAsync".into(), why: "the device has no pools" });
            }
            context.pool_keeps_all()?;
            Box::new(DirectAllocator::observed(PoolSegments { context, stream }, log))
        }
        AllocatorKind::Vmm => {
            let mappings = BTreeMap::new();
            Box::new(CachingAllocator::observed(MappedSegments { context, mappings }, log))
        }
    })
}

/// Turns the driver's answer into the policy's words.
fn answered(address: Result<Option<Address>, GpuError>) -> Result<Address, SegmentError<GpuError>> {
    address.map_err(SegmentError::Fault)?.ok_or(SegmentError::Exhausted)
}

/// `cuMemAlloc` and `cuMemFree`, which are `cudaMalloc` and `cudaFree`.
#[derive(Debug)]
struct DriverSegments {
    context: Rc<Context>,
}

impl Segments for DriverSegments {
    type Fault = GpuError;

    fn malloc(&mut self, bytes: u64) -> Result<Address, SegmentError<GpuError>> {
        answered(self.context.alloc(bytes))
    }

    fn free(&mut self, address: Address) -> Result<(), GpuError> {
        self.context.free(address)
    }
}

/// `cuMemAllocAsync` and `cuMemFreeAsync` on one stream.
#[derive(Debug)]
struct PoolSegments {
    context: Rc<Context>,
    stream: Stream,
}

impl Segments for PoolSegments {
    type Fault = GpuError;

    fn malloc(&mut self, bytes: u64) -> Result<Address, SegmentError<GpuError>> {
        answered(self.context.pool_alloc(bytes, self.stream))
    }

    fn free(&mut self, address: Address) -> Result<(), GpuError> {
        self.context.pool_free(address, self.stream)
    }

    fn trim(&mut self) -> Result<(), GpuError> {
        self.context.synchronize_stream(self.stream)?;
        self.context.pool_trim()
    }
}

/// Physical memory mapped at reserved addresses.
#[derive(Debug)]
struct MappedSegments {
    context: Rc<Context>,
    mappings: BTreeMap<Address, super::driver::Mapping>,
}

impl Segments for MappedSegments {
    type Fault = GpuError;

    fn malloc(&mut self, bytes: u64) -> Result<Address, SegmentError<GpuError>> {
        let mapping = self.context.map(bytes).map_err(SegmentError::Fault)?.ok_or(SegmentError::Exhausted)?;
        self.mappings.insert(mapping.address, mapping);
        Ok(mapping.address)
    }

    fn free(&mut self, address: Address) -> Result<(), GpuError> {
        let mapping = self.mappings.remove(&address).expect("a policy returns only segments that it got");
        self.context.unmap(mapping)
    }
}
