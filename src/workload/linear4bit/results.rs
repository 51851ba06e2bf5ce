//! The results that are still to be compared with the oracle.
//!
//! Owns what is kept of a layer that the program frees: a sample, so that its memory really goes. Layers that live are
//! the engine's.

use super::Course;
use super::engine::Engine;
use super::pools::Pools;
use crate::model::linear4bit_program::LayerIndex;
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

/// Results to be compared.
#[derive(Debug)]
pub(super) struct Results<'a> {
    course: &'a Course<'a>,
    /// In the order of the calls.
    unchecked: Vec<Unchecked>,
    sampling: Sampling,
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
    pub(super) fn new(course: &'a Course<'a>, sampling: Sampling) -> Self {
        let checked = Checked { rows: 0, outputs: 0, packed_bytes: 0 };
        Self { course, unchecked: Vec::new(), sampling, checked }
    }

    /// Where the weight and the input of the layer at `index` come from.
    pub(super) fn source(&self, index: LayerIndex) -> WeightSource {
        let memory = &self.course.memory;
        WeightSource { shape: memory.shape(index), seed: self.course.seed, number: memory.number(index) }
    }

    /// The input of the layer at `index`, the same whenever it is asked for.
    pub(super) fn input(&self, index: LayerIndex) -> Rows {
        let WeightSource { shape, seed, number } = self.source(index);
        let rows = self.course.memory.batch.rows() as usize;
        Rows::random(rows, shape.width(), self.course.linear4bit.input, seed, number)
    }

    /// Keeps of an output what will be compared.
    pub(super) fn keep(&mut self, index: LayerIndex, y: &Rows) {
        let source = self.source(index);
        self.keep_columns(index, Columns::of(y, self.sampling.of_layer(source)));
    }

    /// Keeps what an engine kept of an output, under the sampling of this layer.
    pub(super) fn keep_columns(&mut self, index: LayerIndex, y: Columns) {
        let source = self.source(index);
        self.unchecked.push(Unchecked { index, y, sample: None, source });
    }

    /// The memory of the layer at `index` goes; `sample` makes what is kept of it, if its result is still to be
    /// compared.
    pub(super) fn free(&mut self, index: LayerIndex, sample: impl FnOnce(Sampling) -> Option<Sample>) {
        let sampling = self.sampling.of_layer(self.source(index));
        if let Ok(at) = self.unchecked.binary_search_by_key(&index, |unchecked| unchecked.index) {
            self.unchecked[at].sample = sample(sampling);
        }
    }

    /// What was compared and found right.
    pub(super) fn checked(&self) -> Checked {
        self.checked
    }

    /// Compares all results that were not compared yet, and tells what differs. Layers that live come from `engine`.
    pub(super) fn check(
        &mut self,
        engine: &mut impl Engine,
        pools: &Pools,
        reporter: &mut Reporter,
    ) -> Result<(), WorkError> {
        let last = LayerIndex(u32::try_from(self.course.memory.layer_count() - 1).unwrap_or(u32::MAX));
        for mut unchecked in std::mem::take(&mut self.unchecked) {
            if unchecked.index == last && reporter.spoils() {
                match &mut unchecked.sample {
                    Some(sample) => sample.corrupt_first_byte(SPOILED_BITS),
                    None => engine.spoil(unchecked.index, SPOILED_BITS)?,
                }
            }
            let living = match &unchecked.sample {
                Some(_) => None,
                None => Some(engine.living(unchecked.index)?),
            };
            let judged = pools.compute(reporter, || self.judge(&unchecked, living.as_deref()))?;
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

    fn judge(&self, unchecked: &Unchecked, living: Option<&Layer>) -> Result<Checked, Mismatch> {
        let Unchecked { index, y, sample, source } = unchecked;
        let spec = self.course.spec(source.shape);
        let x = self.input(*index);
        let (packed, statistics) = match (living, sample) {
            (Some(layer), _) => (Stored::Whole(layer.packed()), layer.statistics().into()),
            (None, Some(sample)) => (sample.packed(), sample.statistics()),
            (None, None) => unreachable!("a layer that goes before it is compared leaves a sample"),
        };
        let (source, compute) = (*source, self.course.linear4bit.compute);
        let kept = Kept { source, spec: &spec, packed, statistics, compute, x: &x, y: StoredRows::Columns(y) };
        oracle::check(kept, self.sampling.of_layer(source))
    }
}

/// What is looked at of each layer of `course`, by an engine whose kernels may use such reciprocals.
pub(super) fn sampling_of(course: &Course<'_>, reciprocal: Reciprocal) -> Sampling {
    let layers = usize::try_from(course.memory.layer_count()).unwrap_or(usize::MAX).max(1);
    Sampling { seed: course.seed, rows: (SAMPLED_ROWS_IN_ALL / layers).clamp(2, SAMPLED_ROWS), reciprocal }
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
        Mismatch::Scale { index, expected, got } => {
            ("quantize", index, format!("{expected:#04x}"), format!("{got:#04x}"))
        }
        Mismatch::Global { lowest, highest, got } => {
            ("quantize", 0, format!("{lowest:e} to {highest:e}"), format!("{got:e}"))
        }
        Mismatch::OtherFormat => ("quantize", 0, "the format's statistics".to_owned(), "another's".to_owned()),
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
