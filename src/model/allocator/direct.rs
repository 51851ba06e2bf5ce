//! The policy without a policy: each request is a driver allocation of its own.
//!
//! It has no cache, so nothing is rounded, kept or merged, and `allocated` equals `reserved`.
//! What the driver rounds a small allocation to is the driver's affair and is not counted.

use super::{
    Address, AllocError, AllocEvent, AllocObserver, BlockHandle, DeviceAllocator, Placement, SegmentError,
    SegmentNumber, Segments, Totals, Unobserved, Usage,
};

/// One driver allocation for each request.
#[derive(Debug)]
pub struct DirectAllocator<S, O = Unobserved> {
    segments: S,
    observer: O,
    blocks: Vec<Direct>,
    vacant: Vec<u32>,
    next_segment: u32,
    totals: Totals,
}

#[derive(Debug, Clone, Copy)]
struct Direct {
    address: Address,
    placement: Placement,
}

impl<S: Segments> DirectAllocator<S> {
    /// A policy over `segments` whose events nobody sees.
    pub fn new(segments: S) -> Self {
        Self::observed(segments, Unobserved)
    }
}

impl<S: Segments, O: AllocObserver> DirectAllocator<S, O> {
    /// A policy over `segments` that tells `observer` what it does.
    pub fn observed(segments: S, observer: O) -> Self {
        Self { segments, observer, blocks: Vec::new(), vacant: Vec::new(), next_segment: 0, totals: Totals::default() }
    }

    /// The observer with what it has seen.
    pub fn into_observer(self) -> O {
        self.observer
    }
}

impl<S: Segments, O: AllocObserver> DeviceAllocator for DirectAllocator<S, O> {
    type Fault = S::Fault;

    fn alloc(&mut self, bytes: u64) -> Result<BlockHandle, AllocError<S::Fault>> {
        let size = bytes.max(1);
        let address = match self.segments.malloc(size) {
            Ok(address) => address,
            Err(SegmentError::Fault(fault)) => return Err(AllocError::Fault(fault)),
            Err(SegmentError::Exhausted) => {
                self.observer.observe(AllocEvent::OutOfMemory { requested: bytes });
                return Err(AllocError::OutOfMemory { requested: bytes, segment: size, usage: self.totals.now });
            }
        };
        let segment = SegmentNumber(self.next_segment);
        self.next_segment += 1;
        self.totals.reserve(size);
        self.totals.allocate(size);
        let placement = Placement { requested: bytes, block: size, segment, offset: 0 };
        self.observer.observe(AllocEvent::SegmentAlloc { segment, bytes: size });
        self.observer.observe(AllocEvent::Alloc(placement, self.totals.now));
        let block = Direct { address, placement };
        Ok(BlockHandle(match self.vacant.pop() {
            Some(index) => {
                self.blocks[index as usize] = block;
                index
            }
            None => {
                self.blocks.push(block);
                u32::try_from(self.blocks.len() - 1).expect("fewer than 2^32 blocks are live")
            }
        }))
    }

    fn free(&mut self, block: BlockHandle) -> Result<(), S::Fault> {
        let Direct { address, placement } = self.blocks[block.0 as usize];
        self.segments.free(address)?;
        self.vacant.push(block.0);
        self.totals.now.allocated -= placement.block;
        self.totals.now.reserved -= placement.block;
        self.observer.observe(AllocEvent::Free(placement, self.totals.now));
        self.observer.observe(AllocEvent::SegmentFree { segment: placement.segment, bytes: placement.block });
        Ok(())
    }

    /// This policy keeps no cache; its backing may.
    fn empty_cache(&mut self) -> Result<(), S::Fault> {
        self.segments.trim()
    }

    fn address(&self, block: &BlockHandle) -> Address {
        self.blocks[block.0 as usize].address
    }

    fn usage(&self) -> Usage {
        self.totals.now
    }

    fn peak(&self) -> Usage {
        self.totals.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::allocator::AccountingSegments;

    #[test]
    fn every_request_goes_to_the_driver_as_it_is_and_comes_back_at_once() {
        let mut direct = DirectAllocator::observed(AccountingSegments::unlimited(), Vec::new());
        let small = direct.alloc(64).unwrap();
        let large = direct.alloc(3_000_001).unwrap();
        assert_eq!(direct.usage(), Usage { allocated: 3_000_065, reserved: 3_000_065 });
        assert_ne!(direct.address(&small), direct.address(&large));
        direct.free(small).unwrap();
        let again = direct.alloc(64).unwrap();
        direct.free(large).unwrap();
        direct.free(again).unwrap();
        assert_eq!(direct.usage(), Usage::default());
        assert_eq!(direct.peak().reserved, 3_000_065);
        let segments = |event: &AllocEvent| matches!(event, AllocEvent::SegmentAlloc { .. });
        assert_eq!(direct.into_observer().iter().filter(|event| segments(event)).count(), 3);
    }

    #[test]
    fn a_refused_request_is_out_of_memory_and_leaves_the_totals_alone() {
        let mut direct = DirectAllocator::new(AccountingSegments::with_capacity(100));
        let _held = direct.alloc(60).unwrap();
        let refused = direct.alloc(41).unwrap_err();
        let usage = Usage { allocated: 60, reserved: 60 };
        assert_eq!(refused, AllocError::OutOfMemory { requested: 41, segment: 41, usage });
        assert!(direct.alloc(40).is_ok());
    }
}
