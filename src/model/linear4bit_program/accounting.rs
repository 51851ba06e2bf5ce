//! The program run against an allocator, with nothing but counting behind it: rows and peaks.
//!
//! Owns the measuring points. A peak is the largest value at any moment, not at a few chosen
//! ones, and it names the allocation that reached it first. Host and reserved bytes are summed
//! because on a Jetson both are the same memory.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use super::{Buffer, LayerIndex, LayerStage, Linear4bitMemory, NotModelled, Operation, ProgramSink, Role, Site};
use crate::model::allocator::{
    AccountingSegments, AllocError, BlockHandle, CachingAllocator, DeviceAllocator, DirectAllocator, Usage,
};
use crate::model::settings::AllocatorKind;

/// The largest memory of a trial, in bytes, and where it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedMemory {
    /// Of the blocks in use (`max_memory_allocated`).
    pub peak_allocated: u64,
    /// Where that is.
    pub allocated_at: Site,
    /// Of the segments held from the driver (`max_memory_reserved`).
    pub peak_reserved: u64,
    /// Of the host weight and the segments together.
    pub peak_host_plus_reserved: u64,
    /// Where that is.
    pub at: Site,
}

/// The memory of a trial when one layer has been called and waited for. Peaks are those of the
/// process until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRow {
    /// The layer.
    pub layer: LayerIndex,
    /// Peak of the allocated bytes when the layer was built and not yet called.
    pub peak_after_construct: u64,
    /// The peaks when it was called.
    pub peak: PredictedMemory,
    /// The totals then.
    pub usage: Usage,
    /// The reserved bytes after hygiene, if there was any after this layer.
    pub reserved_after_hygiene: Option<u64>,
}

/// What a whole program did to an allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// One row for each layer, the warm-up included.
    pub rows: Vec<LayerRow>,
    /// The peaks of all.
    pub peak: PredictedMemory,
}

/// A program that did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("allocating at layer {} in {}", site.layer.0, site.stage)]
pub struct AccountError {
    /// The request that failed.
    pub site: Site,
    /// How.
    pub source: AllocError<Infallible>,
}

/// Predicts the peaks of a trial on a device that has memory enough.
///
/// Takes a few microseconds, so that a plan may ask for each of its cells.
///
/// # Errors
/// [`NotModelled`] for an allocator that is not described here.
///
/// # Examples
/// ```
/// use jetfault::model::linear4bit_program::{Linear4bitMemory, predict};
/// use jetfault::model::settings::{Layer, Shape};
/// let shapes = [("A", 4096, 32768), ("B", 4096, 128256), ("C", 3584, 152064)];
/// let sequence = shapes.map(|(label, i, o)| Layer { label: label.into(), shape: Shape::new(i, o).unwrap() });
/// let memory = Linear4bitMemory::baseline(sequence.to_vec());
/// let peak = predict(&memory).unwrap();
/// assert_eq!(peak.peak_host_plus_reserved, 7_089_422_336);
/// assert_eq!(memory.stage_name(peak.at), "C.alloc");
/// ```
pub fn predict(memory: &Linear4bitMemory) -> Result<PredictedMemory, NotModelled> {
    let unlimited = AccountingSegments::unlimited();
    let account = match memory.allocator {
        AllocatorKind::Caching => account(memory, &mut CachingAllocator::new(unlimited)),
        AllocatorKind::Direct => account(memory, &mut DirectAllocator::new(unlimited)),
        kind @ (AllocatorKind::Async | AllocatorKind::Vmm) => return Err(NotModelled::Allocator(kind)),
    };
    match account {
        Ok(account) => Ok(account.peak),
        Err(AccountError { source, .. }) => unreachable!("unlimited memory ran out: {source}"),
    }
}

/// Runs the program of `memory` against `allocator`, which should be fresh: its events and totals
/// are part of the result.
///
/// # Errors
/// The first request that failed, with its place.
pub fn account<A: DeviceAllocator<Fault = Infallible>>(
    memory: &Linear4bitMemory,
    allocator: &mut A,
) -> Result<Account, AccountError> {
    let mut accountant = Accountant::new(allocator);
    memory.emit(&mut accountant)?;
    Ok(accountant.finish())
}

/// The site before the first allocation; every program begins with one, which replaces it.
const NOWHERE: Site = Site { layer: LayerIndex(0), stage: LayerStage::Construct, role: Role::HostWeight };

const NO_PEAK: PredictedMemory = PredictedMemory {
    peak_allocated: 0,
    allocated_at: NOWHERE,
    peak_reserved: 0,
    peak_host_plus_reserved: 0,
    at: NOWHERE,
};

/// Counts what a program does to an allocator. Whoever also performs the program passes every call on to it.
#[derive(Debug)]
pub struct Accountant<'a, A> {
    allocator: &'a mut A,
    /// The block of every buffer that lives, by layer and role; as long as the layers that were entered.
    blocks: Vec<[Option<BlockHandle>; Role::COUNT]>,
    host_bytes: u64,
    layer: LayerIndex,
    stage: LayerStage,
    peak: PredictedMemory,
    peak_after_construct: u64,
    rows: Vec<LayerRow>,
}

impl<'a, A: DeviceAllocator<Fault = Infallible>> Accountant<'a, A> {
    /// Counts on `allocator`, which should be fresh: its totals are part of the result.
    pub fn new(allocator: &'a mut A) -> Self {
        Self {
            allocator,
            blocks: Vec::new(),
            host_bytes: 0,
            layer: LayerIndex(0),
            stage: LayerStage::Construct,
            peak: NO_PEAK,
            peak_after_construct: 0,
            rows: Vec::new(),
        }
    }

    /// What was counted.
    pub fn finish(mut self) -> Account {
        self.leave_hygiene();
        Account { rows: self.rows, peak: self.peak }
    }

    fn site(&self, role: Role) -> Site {
        Site { layer: self.layer, stage: self.stage, role }
    }

    fn failed(&self, role: Role, source: AllocError<Infallible>) -> AccountError {
        AccountError { site: self.site(role), source }
    }

    #[inline]
    fn block(&mut self, buffer: Buffer) -> &mut Option<BlockHandle> {
        &mut self.blocks[buffer.layer.position()][buffer.role as usize]
    }

    /// Only an allocation can raise a peak, so that it is looked at after each and nowhere else.
    #[inline]
    fn note_peak(&mut self, role: Role) {
        let usage = self.allocator.usage();
        let site = self.site(role);
        let peak = &mut self.peak;
        if usage.allocated > peak.peak_allocated {
            peak.peak_allocated = usage.allocated;
            peak.allocated_at = site;
        }
        peak.peak_reserved = peak.peak_reserved.max(usage.reserved);
        let sum = self.host_bytes + usage.reserved;
        if sum > peak.peak_host_plus_reserved {
            peak.peak_host_plus_reserved = sum;
            peak.at = site;
        }
    }

    fn close_row(&mut self) {
        self.rows.push(LayerRow {
            layer: self.layer,
            peak_after_construct: self.peak_after_construct,
            peak: self.peak,
            usage: self.allocator.usage(),
            reserved_after_hygiene: None,
        });
    }

    fn leave_hygiene(&mut self) {
        if self.stage == LayerStage::Hygiene {
            let reserved = self.allocator.usage().reserved;
            let row = self.rows.last_mut().expect("hygiene comes after a layer's row");
            row.reserved_after_hygiene = Some(reserved);
        }
    }
}

impl<A: DeviceAllocator<Fault = Infallible>> ProgramSink for Accountant<'_, A> {
    type Error = AccountError;

    #[inline]
    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), Self::Error> {
        self.leave_hygiene();
        self.layer = layer;
        self.stage = stage;
        while self.blocks.len() <= layer.position() {
            self.blocks.push([const { None }; Role::COUNT]);
        }
        match stage {
            LayerStage::Forward => self.peak_after_construct = self.peak.peak_allocated,
            LayerStage::Sync => self.close_row(),
            LayerStage::Construct
            | LayerStage::Alloc
            | LayerStage::Copy
            | LayerStage::Quantize
            | LayerStage::Passage
            | LayerStage::FreeHost
            | LayerStage::Hygiene => {}
        }
        Ok(())
    }

    #[inline]
    fn perform(&mut self, operation: Operation) -> Result<(), Self::Error> {
        match operation {
            Operation::HostAlloc { buffer, bytes } => {
                self.host_bytes += bytes;
                self.note_peak(buffer.role);
            }
            Operation::HostFree { bytes, .. } => self.host_bytes -= bytes,
            Operation::Alloc { buffer, bytes } => {
                let block = self.allocator.alloc(bytes).map_err(|source| self.failed(buffer.role, source))?;
                let before = self.block(buffer).replace(block);
                debug_assert!(before.is_none(), "{buffer:?} is allocated twice");
                self.note_peak(buffer.role);
            }
            Operation::Free { buffer } => {
                let block = self.block(buffer).take().expect("a program frees only what it has");
                let Ok(()) = self.allocator.free(block);
            }
            Operation::EmptyCache => {
                let Ok(()) = self.allocator.empty_cache();
            }
            Operation::HostToDevice { .. }
            | Operation::DeviceToDevice { .. }
            | Operation::Memset { .. }
            | Operation::Launch { .. }
            | Operation::Synchronize => {}
        }
        Ok(())
    }
}
