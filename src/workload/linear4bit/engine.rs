//! What performs a program: the seam between the CPU, whose device memory is counted, and a device.
//!
//! Owns the trait and what an engine may use while it works. Stages, gaps, comparisons and what is told are the
//! performer's, the same for every engine.

use std::borrow::Cow;

use super::Course;
use super::notes::Tally;
use super::pools::Pools;
use super::results::Results;
use crate::model::linear4bit_program::{LayerIndex, LayerStage, Operation};
use crate::model::outcome::PeakMemory;
use crate::workload::gpu::executor::StageTime;
use crate::workload::layer::Layer;
use crate::workload::oracle::Sampling;
use crate::workload::worker::{Reporter, WorkError};

/// What an engine may use while it performs an operation.
pub(super) struct Surroundings<'a, 'course> {
    /// What is to be done.
    pub(super) course: &'course Course<'course>,
    /// The layer at work.
    pub(super) layer: LayerIndex,
    /// What is told of the layer at work.
    pub(super) tally: &'a mut Tally,
    /// Where outputs go.
    pub(super) results: &'a mut Results<'course>,
    /// The threads that compute.
    pub(super) pools: &'a Pools,
    /// Who is told that a long computation goes on.
    pub(super) reporter: &'a mut Reporter,
}

/// Performs the operations of a program and holds its layers.
pub(super) trait Engine: Sized {
    /// What is looked at of each result, and how exactly.
    fn sampling(&self) -> Sampling;

    /// The stage at work ends; the next one was not told yet, so that an error belongs to the one that ends.
    ///
    /// # Errors
    /// The engine's.
    fn leave(&mut self) -> Result<(), WorkError>;

    /// A stage of a layer begins, and was told.
    ///
    /// # Errors
    /// The engine's.
    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), WorkError>;

    /// Performs one operation.
    ///
    /// # Errors
    /// The engine's, or that the parent does not listen.
    fn perform(&mut self, operation: Operation, at: Surroundings<'_, '_>) -> Result<(), WorkError>;

    /// The sequence is over; nothing was compared yet.
    ///
    /// # Errors
    /// The engine's.
    fn sequence_is_over(&mut self) -> Result<(), WorkError>;

    /// A layer that the program has not freed, with the bits that are there.
    ///
    /// # Errors
    /// The engine's.
    fn living(&mut self, index: LayerIndex) -> Result<Cow<'_, Layer>, WorkError>;

    /// Flips `bits` of the first packed byte of a layer that lives: the injected fault `wrong`.
    ///
    /// # Errors
    /// The engine's.
    fn spoil(&mut self, index: LayerIndex, bits: u8) -> Result<(), WorkError>;

    /// How long each stage took on the device; none if there is no device.
    ///
    /// # Errors
    /// The engine's.
    fn device_times(&mut self) -> Result<&[StageTime], WorkError>;

    /// Tells what only the engine knows.
    ///
    /// # Errors
    /// The engine's, or that the parent does not listen.
    fn tell(&mut self, reporter: &mut Reporter) -> Result<(), WorkError>;

    /// The end of a good trial: the peaks of memory, that of the host's own left at 0.
    ///
    /// # Errors
    /// The engine's: an error that comes late is an error. Or that the parent does not listen.
    fn finish(self, reporter: &mut Reporter) -> Result<PeakMemory, WorkError>;
}
