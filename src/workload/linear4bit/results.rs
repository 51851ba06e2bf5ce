//! The layers that live and the results that are still to be compared with the oracle.
//!
//! Owns what is kept of a layer that the program frees: a sample, so that its memory really goes.

use std::collections::BTreeMap;

use super::Course;
use super::pools::Pools;
use crate::model::linear4bit_program::{LayerIndex, Place};
use crate::model::protocol;
use crate::workload::host_weight::WeightSource;
use crate::workload::kept::{Columns, Kept, Sample, Stored, StoredRows};
use crate::workload::layer::Layer;
use crate::workload::oracle::{self, Checked, Mismatch, Sampling};
use crate::workload::reference::numbers::Reciprocal;
use crate::workload::rows::Rows;
use crate::workload::worker::{Reporter, WorkError};

/// Rows of each weight that the oracle looks at.
const SAMPLED_ROWS: usize = 16;

/// Rows over all layers of a process, so that the samples of many iterations stay within tens of megabytes; the first
/// and the last row of each layer are always sampled.
const SAMPLED_ROWS_IN_ALL: usize = 16_384;

/// The nibble that the injected fault `wrong` spoils: all of the even element of byte 0, which every sample has.
const SPOILED_BITS: u8 = 0xf0;

/// Layers that live, and results to be compared.
#[derive(Debug)]
pub(super) struct Results<'a> {
    course: &'a Course<'a>,
    layers: BTreeMap<LayerIndex, Layer>,
    /// In the order of the calls.
    unchecked: Vec<Unchecked>,
    sampled_rows: usize,
    checked: Checked,
}

/// A call whose result is still to be compared.
#[derive(Debug)]
struct Unchecked {
    index: LayerIndex,
    y: Columns,
    /// What is left of the layer, if it is gone.
    sample: Option<Sample>,
    source: WeightSource,
}

impl<'a> Results<'a> {
    pub(super) fn new(course: &'a Course<'a>) -> Self {
        let layers = usize::try_from(course.memory.layer_count()).unwrap_or(usize::MAX).max(1);
        Self {
            course,
            layers: BTreeMap::new(),
            unchecked: Vec::new(),
            sampled_rows: (SAMPLED_ROWS_IN_ALL / layers).clamp(2, SAMPLED_ROWS),
            checked: Checked { rows: 0, outputs: 0, packed_bytes: 0 },
        }
    }

    /// Where the weight and the input of the layer at `index` come from. The warm-up takes no number from the
    /// sequence, so that a cell with it has the numbers of the cell without it.
    pub(super) fn source(&self, index: LayerIndex) -> WeightSource {
        let memory = &self.course.memory;
        let number = match memory.place(index) {
            Place::WarmUp => u32::MAX,
            Place::Sequence { iteration, position } => iteration * memory.sequence.len() as u32 + position as u32,
        };
        WeightSource { shape: memory.shape(index), seed: self.course.seed, number }
    }

    /// The input of the layer at `index`, the same whenever it is asked for.
    pub(super) fn input(&self, index: LayerIndex) -> Rows {
        let WeightSource { shape, seed, number } = self.source(index);
        let rows = self.course.memory.batch.rows() as usize;
        Rows::random(rows, shape.width(), self.course.linear4bit.input, seed, number)
    }

    /// A layer comes to life.
    pub(super) fn add(&mut self, index: LayerIndex, layer: Layer) {
        self.layers.insert(index, layer);
    }

    /// The living layer at `index`.
    pub(super) fn layer(&mut self, index: LayerIndex) -> Option<&mut Layer> {
        self.layers.get_mut(&index)
    }

    /// Keeps of an output what will be compared.
    pub(super) fn keep(&mut self, index: LayerIndex, y: &Rows) {
        let source = self.source(index);
        let y = Columns::of(y, self.sampling(source));
        self.unchecked.push(Unchecked { index, y, sample: None, source });
    }

    /// The memory of a layer goes, but for a sample if its result is still to be compared.
    pub(super) fn free(&mut self, index: LayerIndex) {
        let Some(layer) = self.layers.remove(&index) else { return };
        let sampling = self.sampling(layer.source());
        if let Ok(at) = self.unchecked.binary_search_by_key(&index, |unchecked| unchecked.index) {
            self.unchecked[at].sample = Some(Sample::of(&layer, sampling));
        }
    }

    fn sampling(&self, source: WeightSource) -> Sampling {
        let seed = source.seed.wrapping_add(u64::from(source.number));
        Sampling { seed, rows: self.sampled_rows, reciprocal: Reciprocal::Exact }
    }

    /// What was compared and found right.
    pub(super) fn checked(&self) -> Checked {
        self.checked
    }

    /// Compares all results that were not compared yet, and tells what differs.
    pub(super) fn check(&mut self, pools: &Pools, reporter: &mut Reporter) -> Result<(), WorkError> {
        let last = LayerIndex(u32::try_from(self.course.memory.layer_count() - 1).unwrap_or(u32::MAX));
        for mut unchecked in std::mem::take(&mut self.unchecked) {
            if unchecked.index == last && reporter.spoils() {
                self.spoil(&mut unchecked);
            }
            let judged = pools.compute(reporter, || self.judge(&unchecked))?;
            match judged {
                Ok(Checked { rows, outputs, packed_bytes }) => {
                    self.checked.rows += rows;
                    self.checked.outputs += outputs;
                    self.checked.packed_bytes += packed_bytes;
                }
                Err(mismatch) => {
                    let name = self.course.memory.layer_name(unchecked.index);
                    reporter.note(&format!("{name}.mismatch"), &mismatch.to_string())?;
                    reporter.mismatch(told(&name, mismatch))?;
                }
            }
        }
        Ok(())
    }

    fn spoil(&mut self, unchecked: &mut Unchecked) {
        match (self.layers.get_mut(&unchecked.index), &mut unchecked.sample) {
            (Some(layer), _) => layer.corrupt_packed(0, SPOILED_BITS),
            (None, Some(sample)) => sample.corrupt_first_byte(SPOILED_BITS),
            (None, None) => unreachable!("a layer that goes before it is compared leaves a sample"),
        }
    }

    fn judge(&self, unchecked: &Unchecked) -> Result<Checked, Mismatch> {
        let Unchecked { index, y, sample, source } = unchecked;
        let spec = self.course.spec(source.shape);
        let x = self.input(*index);
        let living = self.layers.get(index);
        let (packed, statistics) = match (living, sample) {
            (Some(layer), _) => (Stored::Whole(layer.packed()), layer.statistics().into()),
            (None, Some(sample)) => (sample.packed(), sample.statistics()),
            (None, None) => unreachable!("a layer that goes before it is compared leaves a sample"),
        };
        let (source, compute) = (*source, self.course.linear4bit.compute);
        let kept = Kept { source, spec: &spec, packed, statistics, compute, x: &x, y: StoredRows::Columns(y) };
        oracle::check(kept, self.sampling(source))
    }
}

/// A mismatch in the words of the protocol: the step that went wrong, and the first element.
fn told(name: &str, mismatch: Mismatch) -> protocol::Mismatch {
    let (step, index, expected, got) = match mismatch {
        Mismatch::Size { expected, got, .. } => ("quantize", 0, expected.to_string(), got.to_string()),
        Mismatch::Packed { index, expected, got, .. } => {
            ("quantize", index, format!("{expected:#04x}"), format!("{got:#04x}"))
        }
        Mismatch::Absmax { index, expected, got } | Mismatch::NestedAbsmax { index, expected, got } => {
            ("quantize", index, format!("{expected:e}"), format!("{got:e}"))
        }
        Mismatch::NestedCode { index, expected, got } => ("quantize", index, expected.to_string(), got.to_string()),
        Mismatch::Offset { expected, got, tolerance } => {
            ("quantize", 0, format!("{expected:e} ± {tolerance:e}"), format!("{got:e}"))
        }
        Mismatch::Output { index, expected, got, tolerance, .. } => {
            ("forward", index, format!("{expected:e} ± {tolerance:e}"), format!("{got:e}"))
        }
    };
    // The oracle stops at the first element that differs.
    protocol::Mismatch { what: format!("{name}.{step}"), index: index as u64, expected, got, count: 1 }
}
