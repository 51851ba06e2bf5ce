//! The rules one by one, and any sequence of them against a shadow that knows only the events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::allocator::AccountingSegments;

type Observed = CachingAllocator<AccountingSegments, Vec<AllocEvent>>;

fn observed() -> Observed {
    CachingAllocator::observed(AccountingSegments::unlimited(), Vec::new())
}

/// The block and the segment that a first request of `bytes` gets.
fn first_block_and_segment(bytes: u64) -> (u64, u64) {
    let mut caching = CachingAllocator::new(AccountingSegments::unlimited());
    let _block = caching.alloc(bytes).unwrap();
    (caching.usage().allocated, caching.usage().reserved)
}

#[test]
fn a_first_request_gets_the_block_and_the_segment_of_its_size_class() {
    let cases = [
        (0, 512, 2 * MIB),
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (2_179_989_504, 2_181_038_080, 2_181_038_080),
    ];
    for (requested, block, segment) in cases {
        assert_eq!(first_block_and_segment(requested), (block, segment), "{requested} bytes");
    }
}

#[test]
fn a_large_rest_of_exactly_one_mebibyte_is_kept_and_one_step_more_is_split_off() {
    for (rest, block) in [(MIB, 16 * MIB), (MIB + ROUND_BYTES, 15 * MIB - ROUND_BYTES)] {
        assert_eq!(first_block_and_segment(16 * MIB - rest), (block, 16 * MIB));
    }
}

#[test]
fn the_smallest_block_that_fits_is_taken_and_of_equals_the_lowest() {
    let mut caching = observed();
    let sizes = [8192, 512, 4096, 512, 4096, 512];
    let mut blocks: Vec<_> = sizes.iter().map(|&bytes| Some(caching.alloc(bytes).unwrap())).collect();
    let mut addresses = Vec::new();
    for index in [0, 4, 2] {
        let block = blocks[index].take().unwrap();
        addresses.push(caching.address(&block));
        caching.free(block).unwrap();
    }
    let [large, high, low] = addresses[..] else { unreachable!("three blocks were freed") };
    let first = caching.alloc(4000).unwrap();
    let second = caching.alloc(4000).unwrap();
    let third = caching.alloc(4000).unwrap();
    assert_eq!([&first, &second, &third].map(|block| caching.address(block)), [low, high, large]);
}

#[test]
fn a_refusal_returns_the_cache_and_asks_once_more() {
    let mut caching = CachingAllocator::observed(AccountingSegments::with_capacity(100 * MIB), Vec::new());
    let cached = [caching.alloc(40 * MIB).unwrap(), caching.alloc(30 * MIB).unwrap()];
    let kept = caching.alloc(12 * MIB).unwrap();
    for block in cached {
        caching.free(block).unwrap();
    }
    let _fits_now = caching.alloc(88 * MIB).unwrap();
    assert_eq!(caching.usage(), Usage { allocated: 100 * MIB, reserved: 100 * MIB });
    let usage = caching.usage();
    let refused = caching.alloc(512).unwrap_err();
    assert_eq!(refused, AllocError::OutOfMemory { requested: 512, segment: 2 * MIB, usage });
    caching.free(kept).unwrap();
    assert!(caching.alloc(512).is_ok(), "the allocator works on after a refusal");
    let released = released_segments(&caching.into_observer());
    assert_eq!(released, [30 * MIB, 40 * MIB, 12 * MIB]);
}

#[test]
fn empty_cache_returns_large_segments_by_size_then_small_ones_and_no_segment_in_part_use() {
    let mut caching = observed();
    let small = caching.alloc(512).unwrap();
    let sizes = [32 * MIB, 14 * MIB, 2 * MIB];
    let large = sizes.map(|bytes| caching.alloc(bytes).unwrap());
    let held = caching.alloc(3 * MIB).unwrap();
    caching.free(small).unwrap();
    for block in large {
        caching.free(block).unwrap();
    }
    caching.empty_cache().unwrap();
    assert_eq!(caching.usage(), Usage { allocated: 3 * MIB, reserved: 20 * MIB });
    caching.free(held).unwrap();
    caching.empty_cache().unwrap();
    assert_eq!((caching.usage(), caching.segments().in_use()), (Usage::default(), 0));
    assert_eq!(released_segments(&caching.into_observer()), [14 * MIB, 32 * MIB, 2 * MIB, 20 * MIB]);
}

#[test]
#[should_panic(expected = "not in use")]
fn a_block_of_another_allocator_is_a_bug_that_is_seen() {
    let mut one = observed();
    let mut other = observed();
    let free = one.alloc(1).unwrap();
    let foreign = other.alloc(1).unwrap();
    one.free(free).unwrap();
    let _ = one.free(foreign);
}

fn released_segments(events: &[AllocEvent]) -> Vec<u64> {
    let released = |event: &AllocEvent| match event {
        AllocEvent::SegmentFree { bytes, .. } => Some(*bytes),
        AllocEvent::SegmentAlloc { .. }
        | AllocEvent::Alloc(..)
        | AllocEvent::Free(..)
        | AllocEvent::OutOfMemory { .. } => None,
    };
    events.iter().filter_map(released).collect()
}

/// What an outsider can know: the segments and the blocks in use, from the events alone.
#[derive(Default)]
struct Shadow {
    segments: BTreeMap<u32, u64>,
    in_use: BTreeMap<(u32, u64), u64>,
}

impl Shadow {
    fn follow(&mut self, event: AllocEvent) {
        match event {
            AllocEvent::SegmentAlloc { segment, bytes } => {
                assert!(self.segments.insert(segment.0, bytes).is_none(), "a segment number is used twice");
            }
            AllocEvent::SegmentFree { segment, bytes } => {
                assert_eq!(self.segments.remove(&segment.0), Some(bytes));
                assert!(!self.in_use.keys().any(|&(of, _)| of == segment.0), "a segment in use went back");
            }
            AllocEvent::Alloc(placement, usage) => self.place(placement, usage),
            AllocEvent::Free(placement, usage) => {
                let size = self.in_use.remove(&(placement.segment.0, placement.offset));
                assert_eq!(size, Some(placement.block));
                assert_eq!(usage, self.usage());
            }
            AllocEvent::OutOfMemory { .. } => {}
        }
    }

    fn place(&mut self, placement: Placement, usage: Usage) {
        let Placement { requested, block, segment, offset } = placement;
        assert!(requested <= block && block % ROUND_BYTES == 0 && offset % ROUND_BYTES == 0);
        assert!(offset + block <= self.segments[&segment.0], "a block ends inside its segment");
        let before = self.in_use.range(..(segment.0, offset)).next_back();
        assert!(before.is_none_or(|(&(of, at), size)| of != segment.0 || at + size <= offset), "blocks overlap");
        let after = self.in_use.range((segment.0, offset)..).next();
        assert!(after.is_none_or(|(&(of, at), _)| of != segment.0 || offset + block <= at), "blocks overlap");
        self.in_use.insert((segment.0, offset), block);
        assert_eq!(usage, self.usage());
    }

    fn usage(&self) -> Usage {
        Usage { allocated: self.in_use.values().sum(), reserved: self.segments.values().sum() }
    }
}

/// The inner tables agree with each other and with the totals.
fn check_tables(caching: &Observed) {
    let free: u64 = caching.free_small.iter().chain(&caching.free_large).map(|block| block.size).sum();
    let usage = caching.usage();
    assert_eq!(usage.allocated + free, usage.reserved);
    assert_eq!(usage.reserved, caching.segments.in_use());
    for (list, pool) in [(&caching.free_small, Pool::Small), (&caching.free_large, Pool::Large)] {
        assert!(list.is_sorted());
        for entry in list {
            let block = &caching.blocks[entry.index as usize];
            assert_eq!((block.size, block.address, block.pool), (entry.size, entry.address, pool));
            assert_eq!(block.state, BlockState::Free);
            assert_eq!(caching.free_neighbour(block.after), None, "free neighbours are merged");
            assert_eq!(caching.free_neighbour(block.before), None, "free neighbours are merged");
        }
    }
    for (index, block) in (0_u32..).zip(&caching.blocks) {
        let Some(after) = block.after.filter(|_| block.state != BlockState::Vacant) else { continue };
        let next = &caching.blocks[after as usize];
        assert_eq!(next.before, Some(index));
        assert_eq!((next.offset, next.segment), (block.offset + block.size, block.segment), "no gap between blocks");
    }
}

#[derive(Debug, Clone)]
enum Act {
    Alloc(u64),
    Free(prop::sample::Index),
    EmptyCache,
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![1..2048_u64, 1..3 * MIB, MIB - 600..MIB + 600, 9 * MIB..24 * MIB, 1..300 * MIB];
    prop_oneof![
        6 => bytes.prop_map(Act::Alloc),
        5 => any::<prop::sample::Index>().prop_map(Act::Free),
        1 => Just(Act::EmptyCache),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_blocks_apart_and_accounts_for_every_byte(
        acts in prop::collection::vec(act(), 1..120),
        capacity_mib in 64..2048_u64,
    ) {
        let backing = AccountingSegments::with_capacity(capacity_mib * MIB);
        let mut caching = CachingAllocator::observed(backing, Vec::new());
        let mut shadow = Shadow::default();
        let mut live = Vec::new();
        for act in acts {
            match act {
                Act::Alloc(bytes) => match caching.alloc(bytes) {
                    Ok(block) => live.push(block),
                    Err(AllocError::OutOfMemory { requested, segment, usage }) => {
                        prop_assert_eq!(requested, bytes);
                        prop_assert!(usage.reserved + segment > capacity_mib * MIB, "refused only for lack of memory");
                    }
                    Err(AllocError::Fault(never)) => match never {},
                },
                Act::Free(_) if live.is_empty() => {}
                Act::Free(which) => caching.free(live.swap_remove(which.index(live.len()))).unwrap(),
                Act::EmptyCache => caching.empty_cache().unwrap(),
            }
            for event in std::mem::take(&mut caching.observer) {
                shadow.follow(event);
            }
            check_tables(&caching);
        }
        for block in live {
            caching.free(block).unwrap();
        }
        caching.empty_cache().unwrap();
        prop_assert_eq!(caching.usage(), Usage::default());
    }
}
