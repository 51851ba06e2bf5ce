//! The seed's sequences, performed on the device: peaks and events beside the model's, results beside the oracle's.

use std::rc::Rc;
use std::time::Instant;

use jetfault::model::allocator::{AccountingSegments, AllocEvent, CachingAllocator, Placement, Usage};
use jetfault::model::linear4bit_program::{LayerIndex, LayerStage, Linear4bitMemory, Operation, ProgramSink, account};
use jetfault::model::settings::{
    AllocatorKind, Batch, Code, FloatType, Gc, Hygiene, Init, KernelSet, Layer, QuantType, Shape, Storage,
};
use jetfault::workload::gpu::driver::{Context, Stream};
use jetfault::workload::gpu::error::GpuError;
use jetfault::workload::gpu::executor::{Executor, Performance, device_model};
use jetfault::workload::gpu::kernels::Kernels;
use jetfault::workload::gpu::memory::{EventLog, allocator};
use jetfault::workload::kept::Kept;
use jetfault::workload::oracle;

use crate::Verdict;

/// Rows of a layer that the oracle looks at.
const SAMPLED_ROWS: usize = 64;
/// Decides weights and inputs.
const SEED: u64 = 1936;

/// The layers of the seed report.
pub(crate) fn layer(label: char) -> Layer {
    let (in_features, out_features) = match label {
        'A' => (4096, 32_768),
        'B' => (4096, 128_256),
        'C' => (3584, 152_064),
        other => panic!("no layer {other}"),
    };
    Layer { label: label.into(), shape: Shape::new(in_features, out_features).expect("a shape") }
}

/// A trial: its program and how it is performed.
struct Trial {
    name: &'static str,
    memory: Linear4bitMemory,
    kernels: KernelSet,
    init: Init,
    /// Peaks after each layer in MB, where PyTorch and bitsandbytes were measured on an H200.
    measured: &'static [&'static str],
}

/// The trials, whose device model is that of `context`.
fn trials(context: &Context) -> Vec<Trial> {
    let base = |labels: &str| Linear4bitMemory {
        device: device_model(context),
        gc: Gc::After(["A".to_owned()].into()),
        ..Linear4bitMemory::baseline(labels.chars().map(layer).collect())
    };
    let batch = |rows| Batch::new(rows).expect("a batch");
    let never = |memory: Linear4bitMemory| Linear4bitMemory { gc: Gc::Never, ..memory };
    let trial = |name, memory| Trial { name, memory, kernels: KernelSet::Bnb, init: Init::Host, measured: &[] };
    let warm_up = Shape::new(256, 256).expect("a shape");
    let plain = Linear4bitMemory { double_quant: false, storage: Storage::Uint8, ..base("AB") };
    let fp4 = Linear4bitMemory { quant: QuantType::Fp4, compute: FloatType::Fp16, ..base("A") };
    vec![
        Trial { measured: &["622.9", "2507.3", "2801.6"], ..trial("ABC", base("ABC")) },
        Trial { measured: &["2530.4"], ..trial("C", base("C")) },
        Trial {
            measured: &["874.6", "3456.7", "3857.3"],
            ..trial("ABC batch 2", Linear4bitMemory { batch: batch(2), ..base("ABC") })
        },
        // A star: in the recorded run the collector had taken the warm-up layer, 41 kB, before B was built.
        Trial {
            measured: &["0.3", "622.9", "2507.3*", "2870.9"],
            ..trial("256x256, ABC", never(Linear4bitMemory { warm_up: Some(warm_up), ..base("ABC") }))
        },
        trial("ABC hygiene each", never(Linear4bitMemory { hygiene: Hygiene::Each, ..base("ABC") })),
        trial("A batch 8", Linear4bitMemory { batch: batch(8), ..base("A") }),
        trial("AB plain uint8", plain),
        trial("A fp4 fp16", fp4.clone()),
        Trial { init: Init::Device, ..trial("C init device", base("C")) },
        Trial { kernels: KernelSet::Tuned, ..trial("C tuned", base("C")) },
        Trial { kernels: KernelSet::Tuned, ..trial("A tuned fp4 fp16", fp4) },
        Trial {
            kernels: KernelSet::Tuned,
            ..trial("A tuned batch 8", Linear4bitMemory { batch: batch(8), ..base("A") })
        },
        Trial { kernels: KernelSet::None, ..trial("ABC none", base("ABC")) },
        trial("ABC nvfp4", Linear4bitMemory { quant: QuantType::Nvfp4, ..base("ABC") }),
        trial("AB nvfp4 batch 8", Linear4bitMemory { quant: QuantType::Nvfp4, batch: batch(8), ..base("AB") }),
        trial("AB direct", Linear4bitMemory { allocator: AllocatorKind::Direct, ..base("AB") }),
        trial("AB async", Linear4bitMemory { allocator: AllocatorKind::Async, ..base("AB") }),
        trial("AB vmm", Linear4bitMemory { allocator: AllocatorKind::Vmm, ..base("AB") }),
    ]
}

/// Notes the peaks when each layer was called and waited for.
struct Watched<'a> {
    executor: &'a mut Executor,
    stage: LayerStage,
    peaks: Vec<u64>,
}

impl ProgramSink for Watched<'_> {
    type Error = GpuError;

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), GpuError> {
        self.stage = stage;
        self.executor.enter(layer, stage)
    }

    fn perform(&mut self, operation: Operation) -> Result<(), GpuError> {
        self.executor.perform(operation)?;
        if matches!((self.stage, operation), (LayerStage::Sync, Operation::Synchronize)) {
            self.peaks.push(self.executor.peak_memory().device_allocated);
        }
        Ok(())
    }
}

/// Performs all trials.
///
/// # Errors
/// The device's.
pub(crate) fn check(context: &Rc<Context>, verdict: &mut Verdict) -> Result<(), GpuError> {
    println!("\n## Memory and results\n");
    println!("Peaks in MB after each layer: allocated. `events` compares every allocator event with the model's.");
    println!("A star: in the recorded run the collector had taken the warm-up layer, 41 kB, before B was built.\n");
    println!("| trial | here | PyTorch, bitsandbytes | reserved | events | oracle | exact outputs | product | s |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for trial in trials(context) {
        perform(context, &trial, verdict)?;
    }
    Ok(())
}

fn perform(context: &Rc<Context>, trial: &Trial, verdict: &mut Verdict) -> Result<(), GpuError> {
    let start = Instant::now();
    let (stream, log) = (Stream::LEGACY, EventLog::default());
    let performance = Performance {
        kernels: trial.kernels,
        init: trial.init,
        seed: SEED,
        stream,
        sampled_rows: SAMPLED_ROWS,
        is_timed: true,
    };
    let allocator = allocator(trial.memory.allocator, context, stream, log.clone())?;
    let kernels = Kernels::new(context, Code::Any)?;
    let mut executor = Executor::new(kernels, allocator, trial.memory.clone(), performance);
    let mut watched = Watched { executor: &mut executor, stage: LayerStage::Construct, peaks: Vec::new() };
    trial.memory.emit(&mut watched)?;
    let peaks: Vec<String> = watched.peaks.iter().map(|bytes| megabytes(*bytes)).collect();
    for (here, measured) in peaks.iter().zip(trial.measured).filter(|(_, measured)| !measured.ends_with('*')) {
        verdict.expect(here == measured, || format!("{}: peak {here} MB, measured {measured}", trial.name));
    }
    let events = compare_events(trial, &log.events(), verdict);
    let (checked, exact) = check_results(&mut executor, trial, verdict)?;
    let reserved = match trial.memory.allocator {
        AllocatorKind::Async => context.pool_reserved()?.1,
        AllocatorKind::Caching | AllocatorKind::Direct | AllocatorKind::Vmm => executor.peak_memory().device_reserved,
    };
    println!(
        "| {} | {} | {} | {} | {events} | {checked} | {exact} | {} | {:.1} |",
        trial.name,
        peaks.join(", "),
        trial.measured.join(", "),
        megabytes(reserved),
        executor.dense_product().unwrap_or("gemv_4bit"),
        start.elapsed().as_secs_f64(),
    );
    executor.release_all()
}

/// What an event is without the place that the driver's addresses decide: among free blocks of one size the lowest
/// address is taken, and a driver gives addresses in no order.
fn without_place(event: &AllocEvent) -> (&'static str, u64, u64, Usage) {
    let none = Usage::default();
    match event {
        AllocEvent::SegmentAlloc { bytes, .. } => ("segment", *bytes, *bytes, none),
        AllocEvent::SegmentFree { bytes, .. } => ("segment-free", *bytes, *bytes, none),
        AllocEvent::Alloc(Placement { requested, block, .. }, usage) => ("alloc", *requested, *block, *usage),
        AllocEvent::Free(Placement { requested, block, .. }, usage) => ("free", *requested, *block, *usage),
        AllocEvent::OutOfMemory { requested } => ("out-of-memory", *requested, 0, none),
    }
}

/// How many events there are, and whether they are the model's.
fn compare_events(trial: &Trial, got: &[AllocEvent], verdict: &mut Verdict) -> String {
    let is_comparable = trial.memory.allocator == AllocatorKind::Caching && trial.kernels != KernelSet::Tuned;
    if !is_comparable {
        return format!("{}", got.len());
    }
    let mut model = CachingAllocator::observed(AccountingSegments::unlimited(), Vec::new());
    account(&trial.memory, &mut model).expect("unlimited memory never runs out");
    let expected = model.into_observer();
    if got == expected {
        return format!("{} =", got.len());
    }
    let same = got.iter().map(without_place).eq(expected.iter().map(without_place));
    verdict.expect(same, || {
        let at = got.iter().zip(&expected).position(|(got, expected)| without_place(got) != without_place(expected));
        format!("{}: event {at:?} of {} (model: {}) differs", trial.name, got.len(), expected.len())
    });
    format!("{} = but for the place", got.len())
}

/// What the oracle looked at, and how many layers' outputs have the bits of the CPU's.
fn check_results(executor: &mut Executor, trial: &Trial, verdict: &mut Verdict) -> Result<(String, String), GpuError> {
    let (mut layers, mut outputs) = (0, 0);
    executor.visit_results(|index, kept: Kept<'_>, sampling| {
        let name = trial.memory.layer_name(index);
        match oracle::check(kept, sampling) {
            Ok(checked) => outputs += checked.outputs,
            Err(mismatch) => verdict.expect(false, || format!("{} {name}: {mismatch}", trial.name)),
        }
        layers += 1;
        Ok::<(), GpuError>(())
    })?;
    let checked = format!("{layers} layers, {outputs} outputs");
    if layers == 0 || trial.memory.batch.rows() > 1 {
        return Ok((checked, String::new()));
    }
    // The last layer always lives, so that its whole output can be computed again by the CPU from the device's bytes.
    let last = LayerIndex(trial.memory.layer_count() as u32 - 1);
    let mut layer = executor.download_layer(last)?;
    let y = layer.forward(&executor.input(last))?;
    let same = executor.last_output() == Some((last, &y));
    verdict.expect(same, || format!("{}: the last output has other bits than the CPU's", trial.name));
    Ok((checked, format!("{}{}", y.width(), if same { " =" } else { " differ" })))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
