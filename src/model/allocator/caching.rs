//! PyTorch's caching allocator with its default settings, on one stream.
//!
//! Owns the rules: rounding, the two pools, segment sizes, best fit, splitting, merging, and what
//! happens when the driver refuses. They are those of the allocator in PyTorch 2.5 to 2.11, and
//! the event lists recorded from it on a real device are reproduced to the byte (`tests/alloc`).
//! Settings that change them (`max_split_size_mb`, `expandable_segments`, rounding to powers of
//! two) and several streams are deliberately absent.

use super::{
    Address, AllocError, AllocEvent, AllocObserver, BlockHandle, DeviceAllocator, Placement, SegmentError,
    SegmentNumber, Segments, Totals, Unobserved, Usage,
};

const MIB: u64 = 1 << 20;
/// Every block is a multiple of this, and none is smaller.
const ROUND_BYTES: u64 = 512;
/// A rounded size up to here is served from the small pool.
const SMALL_MAX_BYTES: u64 = MIB;
/// The segments of the small pool.
const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// The segments that several medium blocks of the large pool share.
const SHARED_SEGMENT_BYTES: u64 = 20 * MIB;
/// A rounded size from here on gets a segment of its own, rounded up to [`SEGMENT_ROUND_BYTES`].
const OWN_SEGMENT_MIN_BYTES: u64 = 10 * MIB;
const SEGMENT_ROUND_BYTES: u64 = 2 * MIB;
/// The rest of a large block is split off only when it is larger than this: exactly 1 MiB stays.
const LARGE_REST_MAX_BYTES: u64 = MIB;

/// Live and free blocks seldom number more than this; beyond it the tables grow.
const USUAL_BLOCKS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    Small,
    Large,
}

impl Pool {
    fn of(size: u64) -> Self {
        if size <= SMALL_MAX_BYTES { Self::Small } else { Self::Large }
    }

    /// Whether a block splits when `rest` bytes of it are not needed.
    fn splits(self, rest: u64) -> bool {
        match self {
            Self::Small => rest >= ROUND_BYTES,
            Self::Large => rest > LARGE_REST_MAX_BYTES,
        }
    }

    /// The bytes to ask the driver for when no free block holds `size`.
    fn segment_bytes(self, size: u64) -> u64 {
        match self {
            Self::Small => SMALL_SEGMENT_BYTES,
            Self::Large if size < OWN_SEGMENT_MIN_BYTES => SHARED_SEGMENT_BYTES,
            Self::Large => size.next_multiple_of(SEGMENT_ROUND_BYTES),
        }
    }
}

/// A free block as best fit sees it: ordered by size, then by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FreeBlock {
    size: u64,
    address: Address,
    index: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockState {
    Free,
    InUse {
        requested: u64,
    },
    /// The entry holds no block now: it was merged away or its segment went back.
    Vacant,
}

/// A piece of a segment, linked to its neighbours there.
#[derive(Debug, Clone, Copy)]
struct Block {
    address: Address,
    size: u64,
    segment: SegmentNumber,
    offset: u64,
    pool: Pool,
    before: Option<u32>,
    after: Option<u32>,
    state: BlockState,
}

impl Block {
    fn is_whole_segment(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }

    fn placement(&self, requested: u64) -> Placement {
        Placement { requested, block: self.size, segment: self.segment, offset: self.offset }
    }
}

/// The caching allocator over any backing.
///
/// # Examples
/// ```
/// use jetfault::model::allocator::{AccountingSegments, CachingAllocator, DeviceAllocator};
/// let mut caching = CachingAllocator::new(AccountingSegments::unlimited());
/// let block = caching.alloc(64).unwrap();
/// assert_eq!((caching.usage().allocated, caching.usage().reserved), (512, 2 << 20));
/// caching.free(block).unwrap();
/// assert_eq!((caching.usage().allocated, caching.usage().reserved), (0, 2 << 20));
/// ```
#[derive(Debug)]
pub struct CachingAllocator<S, O = Unobserved> {
    segments: S,
    observer: O,
    blocks: Vec<Block>,
    vacant: Vec<u32>,
    free_small: Vec<FreeBlock>,
    free_large: Vec<FreeBlock>,
    next_segment: u32,
    totals: Totals,
}

impl<S: Segments> CachingAllocator<S> {
    /// The rules over `segments`, with events that nobody sees.
    pub fn new(segments: S) -> Self {
        Self::observed(segments, Unobserved)
    }
}

impl<S: Segments, O: AllocObserver> CachingAllocator<S, O> {
    /// The rules over `segments`, telling `observer` what they do.
    pub fn observed(segments: S, observer: O) -> Self {
        Self {
            segments,
            observer,
            blocks: Vec::with_capacity(USUAL_BLOCKS),
            vacant: Vec::with_capacity(USUAL_BLOCKS),
            free_small: Vec::with_capacity(USUAL_BLOCKS / 2),
            free_large: Vec::with_capacity(USUAL_BLOCKS / 2),
            next_segment: 0,
            totals: Totals::default(),
        }
    }

    /// What stands behind the rules.
    pub fn segments(&self) -> &S {
        &self.segments
    }

    /// The observer, to take from it what it has seen so far.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// The observer with what it has seen.
    pub fn into_observer(self) -> O {
        self.observer
    }

    fn free_list(&mut self, pool: Pool) -> &mut Vec<FreeBlock> {
        match pool {
            Pool::Small => &mut self.free_small,
            Pool::Large => &mut self.free_large,
        }
    }

    fn add_free(&mut self, index: u32) {
        let block = &self.blocks[index as usize];
        let (pool, entry) = (block.pool, FreeBlock { size: block.size, address: block.address, index });
        let list = self.free_list(pool);
        let at = list.partition_point(|other| *other < entry);
        list.insert(at, entry);
    }

    fn remove_free(&mut self, index: u32) {
        let block = &self.blocks[index as usize];
        let (pool, entry) = (block.pool, FreeBlock { size: block.size, address: block.address, index });
        let list = self.free_list(pool);
        let at = list.binary_search(&entry).expect("a free block is in the list of its pool");
        list.remove(at);
    }

    fn take_best_fit(&mut self, pool: Pool, size: u64) -> Option<u32> {
        let list = self.free_list(pool);
        let at = list.partition_point(|other| other.size < size);
        (at < list.len()).then(|| list.remove(at).index)
    }

    fn add_block(&mut self, block: Block) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self.blocks[index as usize] = block;
            return index;
        }
        self.blocks.push(block);
        u32::try_from(self.blocks.len() - 1).expect("fewer than 2^32 blocks are live")
    }

    fn retire(&mut self, index: u32) {
        self.blocks[index as usize].state = BlockState::Vacant;
        self.vacant.push(index);
    }

    /// Gets a new segment as one free block that is in no list. When the driver refuses, all
    /// cached segments go back to it and it is asked once more.
    fn grow(&mut self, pool: Pool, size: u64, requested: u64) -> Result<u32, AllocError<S::Fault>> {
        let bytes = pool.segment_bytes(size);
        let address = match self.segments.malloc(bytes) {
            Err(SegmentError::Exhausted) => {
                self.empty_cache().map_err(AllocError::Fault)?;
                self.segments.malloc(bytes)
            }
            answered => answered,
        };
        let address = match address {
            Ok(address) => address,
            Err(SegmentError::Fault(fault)) => return Err(AllocError::Fault(fault)),
            Err(SegmentError::Exhausted) => {
                self.observer.observe(AllocEvent::OutOfMemory { requested });
                return Err(AllocError::OutOfMemory { requested, segment: bytes, usage: self.totals.now });
            }
        };
        let segment = SegmentNumber(self.next_segment);
        self.next_segment += 1;
        self.totals.reserve(bytes);
        self.observer.observe(AllocEvent::SegmentAlloc { segment, bytes });
        let (before, after, state) = (None, None, BlockState::Free);
        Ok(self.add_block(Block { address, size: bytes, segment, offset: 0, pool, before, after, state }))
    }

    /// Cuts the block to `size` when its pool splits such a rest, and puts the rest into the pool.
    fn split(&mut self, index: u32, size: u64) {
        let block = self.blocks[index as usize];
        let rest = block.size - size;
        if !block.pool.splits(rest) {
            return;
        }
        let rest = self.add_block(Block {
            address: block.address.offset_by(size),
            size: rest,
            offset: block.offset + size,
            before: Some(index),
            state: BlockState::Free,
            ..block
        });
        if let Some(after) = block.after {
            self.blocks[after as usize].before = Some(rest);
        }
        let front = &mut self.blocks[index as usize];
        front.size = size;
        front.after = Some(rest);
        self.add_free(rest);
    }

    /// Takes the block after `index` into it. Both must be free and in no list.
    fn absorb_after(&mut self, index: u32, after: u32) {
        let gone = self.blocks[after as usize];
        let block = &mut self.blocks[index as usize];
        block.size += gone.size;
        block.after = gone.after;
        if let Some(next) = gone.after {
            self.blocks[next as usize].before = Some(index);
        }
        self.retire(after);
    }

    fn free_neighbour(&self, neighbour: Option<u32>) -> Option<u32> {
        neighbour.filter(|&index| self.blocks[index as usize].state == BlockState::Free)
    }

    /// Returns every segment of `pool` that is one free block, in the order of the list.
    fn release_whole_segments(&mut self, pool: Pool) -> Result<(), S::Fault> {
        let mut at = 0;
        while let Some(&FreeBlock { index, size, address }) = self.free_list(pool).get(at) {
            let block = self.blocks[index as usize];
            if !block.is_whole_segment() {
                at += 1;
                continue;
            }
            self.segments.free(address)?;
            self.free_list(pool).remove(at);
            self.retire(index);
            self.totals.now.reserved -= size;
            self.observer.observe(AllocEvent::SegmentFree { segment: block.segment, bytes: size });
        }
        Ok(())
    }
}

impl<S: Segments, O: AllocObserver> DeviceAllocator for CachingAllocator<S, O> {
    type Fault = S::Fault;

    fn alloc(&mut self, bytes: u64) -> Result<BlockHandle, AllocError<S::Fault>> {
        let size = bytes.max(1).next_multiple_of(ROUND_BYTES);
        let pool = Pool::of(size);
        let index = match self.take_best_fit(pool, size) {
            Some(index) => index,
            None => self.grow(pool, size, bytes)?,
        };
        self.split(index, size);
        let block = &mut self.blocks[index as usize];
        block.state = BlockState::InUse { requested: bytes };
        let placement = block.placement(bytes);
        self.totals.allocate(placement.block);
        self.observer.observe(AllocEvent::Alloc(placement, self.totals.now));
        Ok(BlockHandle(index))
    }

    fn free(&mut self, handle: BlockHandle) -> Result<(), S::Fault> {
        let mut index = handle.0;
        let block = self.blocks[index as usize];
        let BlockState::InUse { requested } = block.state else {
            panic!("block {index} is not in use in this allocator");
        };
        self.totals.now.allocated -= block.size;
        self.observer.observe(AllocEvent::Free(block.placement(requested), self.totals.now));
        self.blocks[index as usize].state = BlockState::Free;
        if let Some(after) = self.free_neighbour(block.after) {
            self.remove_free(after);
            self.absorb_after(index, after);
        }
        if let Some(before) = self.free_neighbour(block.before) {
            self.remove_free(before);
            self.absorb_after(before, index);
            index = before;
        }
        self.add_free(index);
        Ok(())
    }

    /// The large pool goes first, each pool by ascending size.
    fn empty_cache(&mut self) -> Result<(), S::Fault> {
        self.release_whole_segments(Pool::Large)?;
        self.release_whole_segments(Pool::Small)
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
mod tests;
