//! What the worker says in words and numbers besides its stages.
//!
//! Everything but the backend is told when the sequence is over: nothing is said between shapes.

use std::io;
use std::time::Duration;

use super::{Course, EMULATED_DEVICE, stage_name};
use crate::model::linear4bit_program::{LayerIndex, LayerStage};
use crate::model::settings::{Code, JitCache, ModuleLoading};
use crate::model::verdict::StageName;
use crate::workload::layer::ForwardPath;
use crate::workload::spec::LayerSpec;
use crate::workload::worker::{Reporter, WorkError};

/// How many stages a layer has.
const STAGES: usize = LayerStage::ALL.len();

/// What is to be told of the layers of one name: one of the sequence, or the warm-up, in all iterations.
#[derive(Debug)]
pub(super) struct Tally {
    /// The name, such as `C#2`.
    pub(super) name: String,
    /// Its stages, by [`LayerStage`].
    stages: Vec<StageName>,
    /// Total time and number of occurrences of each stage.
    times: [(Duration, u32); STAGES],
    /// The same on the device, in milliseconds.
    device_times: [(f64, u32); STAGES],
    /// Of the first such layer.
    facts: Option<LayerFacts>,
}

impl Tally {
    /// One for each layer of the first iteration, by its index.
    ///
    /// # Errors
    /// If a label is too long for the name of a stage.
    pub(super) fn of_all(course: &Course<'_>) -> Result<Vec<Self>, WorkError> {
        let warm_up = u32::from(course.memory.warm_up.is_some());
        let tally = |index| {
            let name = course.memory.layer_name(LayerIndex(index));
            let stages = LayerStage::ALL.iter().map(|stage| stage_name(&format!("{name}.{stage}")));
            let stages = stages.collect::<Result<_, _>>()?;
            Ok(Self { name, stages, times: Default::default(), device_times: Default::default(), facts: None })
        };
        (0..course.memory.sequence.len() as u32 + warm_up).map(tally).collect()
    }

    /// The name of a stage.
    pub(super) fn stage(&self, stage: LayerStage) -> &StageName {
        &self.stages[stage as usize]
    }

    /// Adds one occurrence of a stage.
    pub(super) fn add_time(&mut self, stage: LayerStage, took: Duration) {
        let (total, count) = &mut self.times[stage as usize];
        *total += took;
        *count += 1;
    }

    /// Adds one occurrence of a stage on the device.
    pub(super) fn add_device_time(&mut self, stage: LayerStage, ms: f32) {
        let (total, count) = &mut self.device_times[stage as usize];
        *total += f64::from(ms);
        *count += 1;
    }

    /// Notes what a layer of this `spec` looks like and how `rows` rows are multiplied by it; the first layer counts.
    pub(super) fn add_facts(&mut self, spec: &LayerSpec, rows: usize) {
        self.facts.get_or_insert_with(|| LayerFacts::of(spec, rows));
    }

    /// Notes that several rows are multiplied straight from the packed weights, which the tuned kernels do.
    pub(super) fn say_fused(&mut self) {
        if let Some(facts) = &mut self.facts {
            facts.forward_path = "fused: several rows straight from the packed weights";
        }
    }

    /// Tells `A.copy_ms`, `A.copy_device_ms` and so on, each the mean over the iterations, and the facts.
    pub(super) fn tell(&self, reporter: &mut Reporter) -> io::Result<()> {
        for (stage, (total, count)) in self.stages.iter().zip(&self.times) {
            if *count > 0 {
                reporter.metric(&format!("{stage}_ms"), total.as_secs_f64() * 1000.0 / f64::from(*count))?;
            }
        }
        for (stage, (total, count)) in self.stages.iter().zip(&self.device_times) {
            if *count > 0 {
                reporter.metric(&format!("{stage}_device_ms"), total / f64::from(*count))?;
            }
        }
        match &self.facts {
            Some(facts) => facts.tell(&self.name, reporter),
            None => Ok(()),
        }
    }
}

/// What a layer looks like once it is quantised, and how it is called.
#[derive(Debug)]
struct LayerFacts {
    packed_bytes: usize,
    storage: String,
    forward_path: &'static str,
}

impl LayerFacts {
    fn of(spec: &LayerSpec, rows: usize) -> Self {
        let packed_bytes = spec.shape.elements().div_ceil(2);
        let element_bytes = spec.storage.bytes() as usize;
        let cut = match packed_bytes % element_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} bytes are written beyond them"),
        };
        let forward_path = match ForwardPath::of(spec, rows) {
            ForwardPath::Gemv => "fused: one row straight from the packed weights",
            ForwardPath::FusedRows => "fused: several rows straight from the packed weights",
            ForwardPath::DequantizeThenMatmul if rows == 1 => "dense: the row does not consist of whole blocks",
            ForwardPath::DequantizeThenMatmul => "dense: several rows",
        };
        Self {
            packed_bytes,
            storage: format!("{} elements of {}{cut}", packed_bytes / element_bytes, spec.storage),
            forward_path,
        }
    }

    fn tell(&self, name: &str, reporter: &mut Reporter) -> io::Result<()> {
        reporter.metric(&format!("{name}.packed_bytes"), self.packed_bytes as f64)?;
        reporter.note(&format!("{name}.storage"), &self.storage)?;
        reporter.note(&format!("{name}.forward_path"), self.forward_path)
    }
}

/// Tells that the CPU computes and why, and which settings have no effect on it.
pub(super) fn tell_cpu(course: &Course<'_>, why: &str, reporter: &mut Reporter) -> io::Result<()> {
    reporter.note("backend", "cpu")?;
    reporter.note("backend_why", why)?;
    let device = format!(
        "{} multiprocessors of {} threads; its memory is counted, never touched",
        EMULATED_DEVICE.multiprocessors, EMULATED_DEVICE.threads_per_multiprocessor
    );
    reporter.note("emulated_device", &device)?;
    let settings = course.settings;
    let idle = [
        ("module_loading", settings.module_loading != ModuleLoading::Kept),
        ("jit_cache", settings.jit_cache != JitCache::Kept),
        ("code", settings.code != Code::Any),
    ];
    let idle: Vec<&str> = idle.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    if !idle.is_empty() {
        reporter.note("without_effect", &format!("{}: no GPU driver is loaded", idle.join(", ")))?;
    }
    Ok(())
}
