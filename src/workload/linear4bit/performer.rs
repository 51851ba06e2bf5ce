//! Drives a program: tells each stage, idles and compares where the cell says so, and has an engine do the rest.

use std::time::Instant;

use super::engine::{Engine, Surroundings};
use super::notes::Tally;
use super::pools::{BEAT_PERIOD, Pools};
use super::results::Results;
use super::{CHECK_STAGE, Course, GAP_STAGE, stage_name};
use crate::model::linear4bit_program::{LayerIndex, LayerStage, Operation, Place, ProgramSink};
use crate::model::outcome::PeakMemory;
use crate::model::settings::Check;
use crate::workload::worker::{Reporter, WorkError};

/// A program in progress.
pub(super) struct Performer<'a, E> {
    course: &'a Course<'a>,
    engine: E,
    reporter: &'a mut Reporter,
    pools: Pools,
    tallies: Vec<Tally>,
    results: Results<'a>,
    layer: LayerIndex,
    /// The stage of a layer that goes on, and since when.
    stage: Option<(LayerStage, Instant)>,
}

impl<'a, E: Engine> Performer<'a, E> {
    /// Begins.
    ///
    /// # Errors
    /// If a stage has no name, or threads cannot be started.
    pub(super) fn new(course: &'a Course<'a>, engine: E, reporter: &'a mut Reporter) -> Result<Self, WorkError> {
        let results = Results::new(course, engine.sampling());
        Ok(Self {
            course,
            engine,
            reporter,
            pools: Pools::new(course.linear4bit.init_threads)?,
            tallies: Tally::of_all(course)?,
            results,
            layer: LayerIndex(0),
            stage: None,
        })
    }

    /// After the sequence: compares what was not compared yet, and tells everything.
    ///
    /// # Errors
    /// The engine's, or if the parent does not listen, or a fault was to be injected that could not be.
    pub(super) fn conclude(&mut self) -> Result<(), WorkError> {
        self.close_stage();
        self.engine.leave()?;
        self.engine.sequence_is_over()?;
        self.reporter.stage(&stage_name(CHECK_STAGE)?)?;
        // The first wrong result is the trial's: what became of all bytes, before what the oracle says of some.
        self.tallies.iter().try_for_each(|tally| tally.tell_passage(self.reporter))?;
        self.results.check(&mut self.engine, &self.pools, self.reporter)?;
        if self.reporter.spoils() {
            let text = "the result to be spoiled by the injected fault was compared before, or never computed";
            return Err(WorkError::unsupported(text));
        }
        let times = self.engine.device_times()?.to_vec();
        for time in times {
            self.layer = time.layer;
            self.tally().add_device_time(time.stage, time.device_ms);
        }
        self.tallies.iter().try_for_each(|tally| tally.tell(self.reporter))?;
        self.engine.tell(self.reporter)?;
        let checked = self.results.checked();
        if self.course.computes() {
            self.reporter.metric("checked_rows", checked.rows as f64)?;
            self.reporter.metric("checked_outputs", checked.outputs as f64)?;
            self.reporter.metric("checked_packed_bytes", checked.packed_bytes as f64)?;
        } else {
            self.reporter.note("checked", "nothing: kernels = \"none\" computes nothing")?;
        }
        Ok(())
    }

    /// The end of a good trial: the peaks.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn finish(self) -> Result<PeakMemory, WorkError> {
        self.engine.finish(self.reporter)
    }

    /// The place of the layer at work among the tallies, the same in every iteration.
    fn tally_index(&self) -> usize {
        let warm_up = usize::from(self.course.memory.warm_up.is_some());
        match self.course.memory.place(self.layer) {
            Place::WarmUp => 0,
            Place::Sequence { position, .. } => warm_up + position,
        }
    }

    fn tally(&mut self) -> &mut Tally {
        let at = self.tally_index();
        &mut self.tallies[at]
    }

    fn close_stage(&mut self) {
        if let Some((stage, since)) = self.stage.take() {
            self.tally().add_time(stage, since.elapsed());
        }
    }

    /// Idles before every iteration but the first.
    fn gap(&mut self) -> Result<(), WorkError> {
        let begins = match self.course.memory.place(self.layer) {
            Place::WarmUp => false,
            Place::Sequence { iteration, position } => iteration > 0 && position == 0,
        };
        let gap = self.course.settings.gap.to_duration();
        if !begins || gap.is_zero() {
            return Ok(());
        }
        self.reporter.stage(&stage_name(GAP_STAGE)?)?;
        let since = Instant::now();
        while let Some(left) = gap.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left.min(BEAT_PERIOD));
            self.reporter.beat()?;
        }
        Ok(())
    }

    /// Compares the result of the layer at work in a stage of its own, if the cell wants it between shapes.
    fn check_between_shapes(&mut self) -> Result<(), WorkError> {
        match (self.course.linear4bit.check, self.stage) {
            (Check::Each, Some((LayerStage::Sync, _))) => {}
            (Check::Each | Check::End, _) => return Ok(()),
        }
        self.close_stage();
        let name = stage_name(&format!("{}.{CHECK_STAGE}", self.tally().name))?;
        self.reporter.stage(&name)?;
        self.results.check(&mut self.engine, &self.pools, self.reporter)
    }
}

impl<E: Engine> ProgramSink for Performer<'_, E> {
    type Error = WorkError;

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), WorkError> {
        self.close_stage();
        self.engine.leave()?;
        self.layer = layer;
        if stage == LayerStage::Construct {
            self.gap()?;
        }
        let name = self.tally().stage(stage).clone();
        self.reporter.stage(&name)?;
        self.engine.enter(layer, stage)?;
        self.stage = Some((stage, Instant::now()));
        Ok(())
    }

    fn perform(&mut self, operation: Operation) -> Result<(), WorkError> {
        let at = self.tally_index();
        let surroundings = Surroundings {
            course: self.course,
            layer: self.layer,
            tally: &mut self.tallies[at],
            results: &mut self.results,
            pools: &self.pools,
            reporter: self.reporter,
        };
        self.engine.perform(operation, surroundings)?;
        match operation {
            Operation::Synchronize => self.check_between_shapes(),
            Operation::HostAlloc { .. }
            | Operation::HostFree { .. }
            | Operation::Alloc { .. }
            | Operation::Free { .. }
            | Operation::HostToDevice { .. }
            | Operation::DeviceToDevice { .. }
            | Operation::Memset { .. }
            | Operation::Launch { .. }
            | Operation::EmptyCache => Ok(()),
        }
    }
}
