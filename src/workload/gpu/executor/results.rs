//! What is copied back of a program's results: whole layers and outputs, or the sample of a layer that goes.

use std::ops::Range;

use half::{bf16, f16};

use super::super::driver::{Plain, Stream, bytes_of_mut};
use super::{Executor, FloatType, GpuError, LayerIndex, Role};
use crate::workload::fast::zeroed;
use crate::workload::kept::{ByteArray, Columns, FloatArray, InPieces, Kept, Sample, Stored, StoredRows};
use crate::workload::layer::{Layer, Statistics};
use crate::workload::oracle::Sampling;
use crate::workload::reference::quantize_8bit::{Nested, Quantized8};
use crate::workload::rows::{IntoWords, Rows};
use crate::workload::spec::{Blockwise, StatisticsKind, WeightFormat};

impl Executor {
    /// Visits what is left of every layer whose result was not visited yet, in order, with the sampling under which it
    /// was kept: layers that live are copied back whole, one at a time, of those that were freed there is the sample.
    /// With `kernels = "none"` there is nothing to visit.
    ///
    /// # Errors
    /// The device's, or the visitor's.
    pub fn visit_results<E: From<GpuError>>(
        &mut self,
        mut visit: impl FnMut(LayerIndex, Kept<'_>, Sampling) -> Result<(), E>,
    ) -> Result<(), E> {
        self.stop_timer()?;
        self.read_timers()?;
        if self.tuning().is_none() {
            return Ok(());
        }
        for (index, y) in std::mem::take(&mut self.outputs) {
            let (x, y, sampling) = (&self.input(index), StoredRows::Columns(&y), self.sampling(index));
            let (source, compute, spec) = (self.source(index), self.memory.compute, &self.spec(index));
            if let Some(sample) = self.samples.remove(&index) {
                let (packed, statistics) = (sample.packed(), sample.statistics());
                visit(index, Kept { source, spec, packed, statistics, compute, x, y }, sampling)?;
            } else {
                let layer = self.download_layer(index)?;
                let (packed, statistics) = (Stored::Whole(layer.packed()), layer.statistics().into());
                visit(index, Kept { source, spec, packed, statistics, compute, x, y }, sampling)?;
            }
        }
        Ok(())
    }

    /// The layer at `index` as the device has it, with its bits.
    ///
    /// # Errors
    /// The device's.
    pub fn download_layer(&self, index: LayerIndex) -> Result<Layer, GpuError> {
        let spec = self.spec(index);
        let blocks = spec.shape.elements().div_ceil(spec.format.group());
        let packed = self.download(index, Role::Packed, spec.shape.elements().div_ceil(2))?;
        let statistics = match spec.format {
            WeightFormat::Nvfp4 => Statistics::Scaled {
                scales: self.download(index, Role::GroupScales, blocks)?,
                global: self.download::<f32>(index, Role::GlobalScale, 1)?[0],
            },
            WeightFormat::Blockwise(Blockwise { statistics: StatisticsKind::Plain, .. }) => {
                Statistics::Plain(self.download(index, Role::Absmax, blocks)?)
            }
            WeightFormat::Blockwise(Blockwise { statistics: StatisticsKind::Nested, .. }) => {
                let codes = self.download(index, Role::QuantizedAbsmax, blocks)?;
                let absmax2 = self.download(index, Role::NestedAbsmax, blocks.div_ceil(256))?;
                let offset = self.download::<f32>(index, Role::Offset, 1)?[0];
                Statistics::Nested(Nested { quantized: Quantized8 { codes, absmax2 }, offset })
            }
        };
        Ok(Layer::from_parts(spec, self.source(index), packed, statistics))
    }

    /// The last output that was waited for, whole, and its layer.
    pub fn last_output(&self) -> Option<(LayerIndex, &Rows)> {
        self.last_output.as_ref().map(|(index, y)| (*index, y))
    }

    /// Flips bits of the first packed byte of the layer at `index`: the injected fault `wrong`.
    ///
    /// # Errors
    /// The device's.
    pub fn corrupt_first_byte(&self, index: LayerIndex, xor: u8) -> Result<(), GpuError> {
        let mut byte = self.download::<u8>(index, Role::Packed, 1)?;
        byte[0] ^= xor;
        self.context.upload(self.buffer(index, Role::Packed)?.address, &byte, Stream::LEGACY)
    }

    pub(super) fn download<T: Plain>(&self, layer: LayerIndex, role: Role, count: usize) -> Result<Vec<T>, GpuError> {
        self.download_range(layer, role, 0..count)
    }

    fn download_range<T: Plain>(&self, layer: LayerIndex, role: Role, range: Range<usize>) -> Result<Vec<T>, GpuError> {
        let buffer = self.buffer(layer, role)?;
        buffer.holds("a copy back", "the source", (range.end * size_of::<T>()) as u64)?;
        let mut values = zeroed::<T>(range.len(), "results")?;
        let from = buffer.from((range.start * size_of::<T>()) as u64);
        self.context.download(bytes_of_mut(&mut values), from.address, self.performance.stream)?;
        Ok(values)
    }

    pub(super) fn keep_output(&mut self) -> Result<(), GpuError> {
        let (layer, _) = self.at;
        let height = self.memory.shape(layer).height();
        let y = match self.memory.input {
            FloatType::Bf16 => self.output::<bf16>(layer, height)?,
            FloatType::Fp16 => self.output::<f16>(layer, height)?,
            FloatType::Fp32 => self.output::<f32>(layer, height)?,
        };
        self.outputs.insert(layer, Columns::of(&y, self.sampling(layer)));
        self.last_output = Some((layer, y));
        Ok(())
    }

    fn output<T: Plain + IntoWords>(&self, layer: LayerIndex, height: usize) -> Result<Rows, GpuError> {
        let values = self.download::<T>(layer, Role::Output, self.rows() as usize * height)?;
        Ok(Rows::new(height, values))
    }

    /// Before the packed weights of a layer go, what the oracle will look at is kept: some fifty copies of a few hundred
    /// bytes. The layer as a whole would be hundreds of megabytes on their way between two layers of the sequence.
    pub(super) fn keep_sample(&mut self, index: LayerIndex) -> Result<(), GpuError> {
        if self.tuning().is_some() {
            let sample =
                Sample::read(&self.spec(index), self.sampling(index), &mut OnDevice { executor: self, index })?;
            self.samples.insert(index, sample);
        }
        Ok(())
    }
}

/// A layer that lies on the device.
struct OnDevice<'a> {
    executor: &'a Executor,
    index: LayerIndex,
}

impl InPieces for OnDevice<'_> {
    type Error = GpuError;

    fn bytes(&mut self, array: ByteArray, range: Range<usize>) -> Result<Vec<u8>, GpuError> {
        let role = match array {
            ByteArray::Packed => Role::Packed,
            ByteArray::Codes => Role::QuantizedAbsmax,
            ByteArray::Scales => Role::GroupScales,
        };
        self.executor.download_range(self.index, role, range)
    }

    fn floats(&mut self, array: FloatArray, range: Range<usize>) -> Result<Vec<f32>, GpuError> {
        let role = match array {
            FloatArray::Absmax => Role::Absmax,
            FloatArray::NestedAbsmax => Role::NestedAbsmax,
            FloatArray::Offset => Role::Offset,
            FloatArray::Global => Role::GlobalScale,
        };
        self.executor.download_range(self.index, role, range)
    }
}
