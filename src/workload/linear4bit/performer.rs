//! Performs the program: tells each stage, counts each request, and does for real what is the host's to do.

use std::convert::Infallible;
use std::time::Instant;

use super::notes::Tally;
use super::pools::{BEAT_PERIOD, Pools};
use super::results::Results;
use super::{CHECK_STAGE, Course, GAP_STAGE, stage_name};
use crate::model::allocator::DeviceAllocator;
use crate::model::linear4bit_program::{
    AccountError, Accountant, Buffer, Kernel, LayerIndex, LayerStage, Operation, Place, PredictedMemory, ProgramSink,
    Role,
};
use crate::model::protocol::FailureKind;
use crate::model::settings::Check;
use crate::workload::host_weight::HostWeight;
use crate::workload::layer::Layer;
use crate::workload::rows::Rows;
use crate::workload::worker::{Reporter, WorkError};

/// A program in progress.
pub(super) struct Performer<'a, A> {
    course: &'a Course<'a>,
    accountant: Accountant<'a, A>,
    reporter: &'a mut Reporter,
    pools: Pools,
    tallies: Vec<Tally>,
    results: Results<'a>,
    layer: LayerIndex,
    /// The stage of a layer that goes on, and since when.
    stage: Option<(LayerStage, Instant)>,
    host: Option<HostWeight>,
    x: Option<Rows>,
}

impl<'a, A: DeviceAllocator<Fault = Infallible>> Performer<'a, A> {
    /// Begins. `allocator` should be fresh.
    ///
    /// # Errors
    /// If a stage has no name, or threads cannot be started.
    pub(super) fn new(
        course: &'a Course<'a>,
        allocator: &'a mut A,
        reporter: &'a mut Reporter,
    ) -> Result<Self, WorkError> {
        Ok(Self {
            course,
            accountant: Accountant::new(allocator),
            reporter,
            pools: Pools::new(course.linear4bit.init_threads)?,
            tallies: Tally::of_all(course)?,
            results: Results::new(course),
            layer: LayerIndex(0),
            stage: None,
            host: None,
            x: None,
        })
    }

    /// Compares what was not compared yet, tells everything, and returns the peaks.
    ///
    /// # Errors
    /// If the parent does not listen, or a fault was to be injected that could not be.
    pub(super) fn finish(mut self) -> Result<PredictedMemory, WorkError> {
        self.close_stage();
        self.reporter.stage(&stage_name(CHECK_STAGE)?)?;
        self.results.check(&self.pools, self.reporter)?;
        if self.reporter.spoils() {
            let text = "the result to be spoiled by the injected fault was compared before, or never computed";
            return Err(WorkError::unsupported(text));
        }
        self.tallies.iter().try_for_each(|tally| tally.tell(self.reporter))?;
        let checked = self.results.checked();
        if self.course.computes() {
            self.reporter.metric("checked_rows", checked.rows as f64)?;
            self.reporter.metric("checked_outputs", checked.outputs as f64)?;
            self.reporter.metric("checked_packed_bytes", checked.packed_bytes as f64)?;
        } else {
            self.reporter.note("checked", "nothing: kernels = \"none\" computes nothing")?;
        }
        Ok(self.accountant.finish().peak)
    }

    /// The tally of the layer at work, the same in every iteration.
    fn tally(&mut self) -> &mut Tally {
        let warm_up = usize::from(self.course.memory.warm_up.is_some());
        let at = match self.course.memory.place(self.layer) {
            Place::WarmUp => 0,
            Place::Sequence { position, .. } => warm_up + position,
        };
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

    fn construct(&mut self) -> Result<(), WorkError> {
        let source = self.results.source(self.layer);
        self.host = Some(self.pools.initialise(self.reporter, || HostWeight::construct(source))??);
        Ok(())
    }

    fn launch(&mut self, kernel: Kernel) -> Result<(), WorkError> {
        if !self.course.computes() {
            return Ok(());
        }
        match kernel {
            Kernel::Quantize4bit => self.quantize(),
            Kernel::Randn => {
                self.x = Some(self.results.input(self.layer));
                Ok(())
            }
            Kernel::Gemv4bit | Kernel::Gemm => self.forward(),
            // The fast code does these inside the steps above.
            Kernel::Quantize8bit
            | Kernel::Dequantize8bit
            | Kernel::Dequantize4bit
            | Kernel::Cast
            | Kernel::Abs
            | Kernel::Max
            | Kernel::Divide
            | Kernel::Mean
            | Kernel::Subtract
            | Kernel::Add => Ok(()),
        }
    }

    fn quantize(&mut self) -> Result<(), WorkError> {
        let host = self.host.as_ref().expect("a program quantises what it constructed");
        let spec = self.course.spec(host.source().shape);
        let layer = self.pools.compute(self.reporter, || Layer::quantize(host, spec))??;
        let rows = self.course.memory.batch.rows() as usize;
        self.tally().add_facts(&layer, rows);
        self.results.add(self.layer, layer);
        Ok(())
    }

    fn forward(&mut self) -> Result<(), WorkError> {
        let x = self.x.take().expect("a program makes an input before it multiplies");
        let layer = self.results.layer(self.layer).expect("a program multiplies by the layer it quantised");
        let y = self.pools.compute(self.reporter, || layer.forward(&x))??;
        self.results.keep(self.layer, &y);
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
        self.results.check(&self.pools, self.reporter)
    }
}

impl<A: DeviceAllocator<Fault = Infallible>> ProgramSink for Performer<'_, A> {
    type Error = WorkError;

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), WorkError> {
        self.close_stage();
        self.accountant.enter(layer, stage).map_err(out_of_memory)?;
        self.layer = layer;
        if stage == LayerStage::Construct {
            self.gap()?;
        }
        let name = self.tally().stage(stage).clone();
        self.reporter.stage(&name)?;
        self.stage = Some((stage, Instant::now()));
        Ok(())
    }

    fn perform(&mut self, operation: Operation) -> Result<(), WorkError> {
        self.accountant.perform(operation).map_err(out_of_memory)?;
        match operation {
            Operation::HostAlloc { .. } => self.construct(),
            Operation::HostFree { .. } => {
                self.host = None;
                Ok(())
            }
            Operation::Launch { kernel, .. } => self.launch(kernel),
            // The packed weights stand for all that a layer keeps.
            Operation::Free { buffer: Buffer { layer, role: Role::Packed } } => {
                self.results.free(layer);
                Ok(())
            }
            Operation::Synchronize => self.check_between_shapes(),
            Operation::Free { .. }
            | Operation::Alloc { .. }
            | Operation::HostToDevice { .. }
            | Operation::DeviceToDevice { .. }
            | Operation::Memset { .. }
            | Operation::EmptyCache => Ok(()),
        }
    }
}

fn out_of_memory(error: AccountError) -> WorkError {
    WorkError::of(FailureKind::CudaOom, format!("{error}: {}", error.source))
}
