//! The allocation program of a `linear4bit` trial against recorded and derived references.
//!
//! `tests/alloc/cases.json` holds the rows of each case; a `.trace` holds the events of one run,
//! either of the model's full program or as a real device recorded them (see its header).

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;

use jetfault::model::allocator::{
    AccountingSegments, AllocError, AllocEvent, BlockHandle, CachingAllocator, DeviceAllocator, Usage,
};
use jetfault::model::linear4bit_program::{
    Buffer, DeviceModel, Kernel, LaunchDims, LayerIndex, LayerRow, LayerStage, Linear4bitMemory, Operation,
    ProgramSink, Role, account, predict,
};
use jetfault::model::settings::{Batch, FloatType, Layer, Linear4bitSettings, QuantType, Shape, Storage};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    settings: Settings,
    rows: Vec<Row>,
}

/// As the matrix writes them; what is left out is the baseline.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    sequence: String,
    batch: u32,
    double_quant: bool,
    storage: Storage,
    warmup: String,
    hygiene: String,
    gc: String,
    device: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sequence: String::new(),
            batch: 1,
            double_quant: true,
            storage: Storage::Bf16,
            warmup: "none".into(),
            hygiene: "none".into(),
            gc: "never".into(),
            device: "orin".into(),
        }
    }
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Row {
    layer: String,
    peak_allocated: u64,
    /// The layer of that peak, where the reference names it.
    peak_allocated_in: Option<String>,
    peak_allocated_at: Role,
    allocated: u64,
    reserved: u64,
    peak_host_plus_reserved: u64,
    at: String,
    peak_after_construct: u64,
    reserved_after_hygiene: Option<u64>,
}

fn shape(label: char) -> Shape {
    match label {
        'A' => Shape::new(4096, 32768),
        'B' => Shape::new(4096, 128_256),
        'C' => Shape::new(3584, 152_064),
        other => panic!("no shape {other}"),
    }
    .unwrap()
}

fn sequence(labels: &str) -> Vec<Layer> {
    labels.chars().map(|label| Layer { label: label.into(), shape: shape(label) }).collect()
}

fn baseline(labels: &str) -> Linear4bitMemory {
    Linear4bitMemory::baseline(sequence(labels))
}

impl Settings {
    fn memory(&self) -> Linear4bitMemory {
        Linear4bitMemory {
            batch: Batch::new(self.batch).unwrap(),
            double_quant: self.double_quant,
            storage: self.storage,
            warm_up: (self.warmup == "256x256").then_some(Shape::WARM_UP),
            hygiene: self.hygiene.parse().unwrap(),
            gc: self.gc.parse().unwrap(),
            device: if self.device == "h200" { DeviceModel::H200 } else { DeviceModel::ORIN },
            ..baseline(&self.sequence)
        }
    }
}

fn fixture(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "alloc", name].iter().collect();
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The events of a trace, without its header.
fn trace(name: &str) -> Vec<String> {
    fixture(name).lines().filter(|line| !line.starts_with('#')).map(String::from).collect()
}

fn cases() -> Vec<Case> {
    serde_json::from_str(&fixture("cases.json")).unwrap()
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap()
}

fn rows(memory: &Linear4bitMemory) -> Vec<Row> {
    let account = account(memory, &mut CachingAllocator::new(AccountingSegments::unlimited())).unwrap();
    let row = |row: &LayerRow| Row {
        layer: memory.label(row.layer).into(),
        peak_allocated: row.peak.peak_allocated,
        peak_allocated_in: Some(memory.label(row.peak.allocated_at.layer).into()),
        peak_allocated_at: row.peak.allocated_at.role,
        allocated: row.usage.allocated,
        reserved: row.usage.reserved,
        peak_host_plus_reserved: row.peak.peak_host_plus_reserved,
        at: memory.stage_name(row.peak.at),
        peak_after_construct: row.peak_after_construct,
        reserved_after_hygiene: row.reserved_after_hygiene,
    };
    account.rows.iter().map(row).collect()
}

#[test]
fn every_reference_case_has_these_rows() {
    let cases = cases();
    assert_eq!(cases.len(), 25);
    for Case { name, settings, rows: expected } in cases {
        let mut actual = rows(&settings.memory());
        for (actual, expected) in actual.iter_mut().zip(&expected) {
            if expected.peak_allocated_in.is_none() {
                actual.peak_allocated_in = None;
            }
        }
        assert_eq!(actual, expected, "case {name}");
    }
}

/// Writes a program and what the allocator does with it, line by line as the traces do.
struct Tracer<'a> {
    memory: &'a Linear4bitMemory,
    allocator: CachingAllocator<AccountingSegments, Vec<AllocEvent>>,
    blocks: HashMap<Buffer, BlockHandle>,
    lines: Vec<String>,
}

impl Tracer<'_> {
    fn name(&self, buffer: Buffer) -> String {
        let role = serde_json::to_value(buffer.role).unwrap();
        format!("{}.{}", self.memory.label(buffer.layer), role.as_str().unwrap())
    }

    fn events_of(&mut self, buffer: Buffer) {
        let name = self.name(buffer);
        for event in std::mem::take(self.allocator.observer_mut()) {
            self.lines.push(match event {
                AllocEvent::SegmentAlloc { segment, bytes } => format!("segment-alloc {} {bytes}", segment.0),
                AllocEvent::SegmentFree { segment, bytes } => format!("segment-free {} {bytes}", segment.0),
                AllocEvent::Alloc(at, Usage { allocated, reserved }) => {
                    let (segment, offset) = (at.segment.0, at.offset);
                    format!("alloc {name} {} {} {segment}+{offset} {allocated} {reserved}", at.requested, at.block)
                }
                AllocEvent::Free(at, Usage { allocated, reserved }) => {
                    let (segment, offset) = (at.segment.0, at.offset);
                    format!("free {name} {} {segment}+{offset} {allocated} {reserved}", at.block)
                }
                AllocEvent::OutOfMemory { requested } => format!("out-of-memory {requested}"),
            });
        }
    }

    /// The traces leave out the framework's kernels, but for two.
    fn launch_line(kernel: Kernel, dims: Option<LaunchDims>) -> Option<String> {
        let name = serde_json::to_value(kernel).unwrap();
        let name = name.as_str().unwrap();
        match dims {
            Some(dims) => Some(format!("kernel {name} {} x {}", dims.grid, dims.block)),
            None => matches!(kernel, Kernel::Cast | Kernel::Gemm).then(|| format!("kernel {name}")),
        }
    }
}

impl ProgramSink for Tracer<'_> {
    type Error = AllocError<Infallible>;

    fn enter(&mut self, layer: LayerIndex, stage: LayerStage) -> Result<(), Self::Error> {
        if stage == LayerStage::Construct {
            self.lines.push(format!("layer {}", self.memory.label(layer)));
        }
        Ok(())
    }

    fn perform(&mut self, operation: Operation) -> Result<(), Self::Error> {
        match operation {
            Operation::HostAlloc { buffer, bytes } => {
                self.lines.push(format!("host-alloc {} {bytes}", self.name(buffer)));
            }
            Operation::HostFree { buffer, bytes } => {
                self.lines.push(format!("host-free {} {bytes}", self.name(buffer)));
            }
            Operation::Alloc { buffer, bytes } => {
                let block = self.allocator.alloc(bytes)?;
                assert_eq!(self.blocks.insert(buffer, block), None);
                self.events_of(buffer);
            }
            Operation::Free { buffer } => {
                let block = self.blocks.remove(&buffer).unwrap();
                let Ok(()) = self.allocator.free(block);
                self.events_of(buffer);
            }
            Operation::HostToDevice { bytes, .. } => self.lines.push(format!("host-to-device {bytes}")),
            Operation::DeviceToDevice { bytes, .. } => self.lines.push(format!("device-to-device {bytes}")),
            Operation::Memset { bytes, .. } => self.lines.push(format!("memset {bytes}")),
            Operation::Launch { kernel, dims } => self.lines.extend(Self::launch_line(kernel, dims)),
            Operation::EmptyCache | Operation::Synchronize => {}
        }
        Ok(())
    }
}

#[test]
fn the_program_of_a_traced_case_is_the_trace_operation_for_operation() {
    for name in ["C_alone_b1", "ABC_b1_cycle", "ABC_b2_cycle"] {
        let memory = case(name).settings.memory();
        let allocator = CachingAllocator::observed(AccountingSegments::unlimited(), Vec::new());
        let mut tracer = Tracer { memory: &memory, allocator, blocks: HashMap::new(), lines: Vec::new() };
        memory.emit(&mut tracer).unwrap();
        assert_eq!(tracer.lines, trace(&format!("{}.trace", name.to_lowercase())), "case {name}");
    }
}

fn recorded_line(event: &AllocEvent) -> String {
    match event {
        AllocEvent::SegmentAlloc { segment, bytes } => format!("segment-alloc {} {bytes}", segment.0),
        AllocEvent::SegmentFree { segment, bytes } => format!("segment-free {} {bytes}", segment.0),
        AllocEvent::Alloc(at, _) => format!("alloc {}+{} {}", at.segment.0, at.offset, at.requested),
        AllocEvent::Free(at, _) => format!("free {}+{} {}", at.segment.0, at.offset, at.requested),
        AllocEvent::OutOfMemory { requested } => format!("out-of-memory {requested}"),
    }
}

#[test]
fn the_allocator_does_what_pytorch_did_on_a_real_device_event_for_event() {
    for (batch, name) in [(1, "h200_abc_b1.trace"), (2, "h200_abc_b2.trace")] {
        let memory = Linear4bitMemory {
            batch: Batch::new(batch).unwrap(),
            gc: "after:A".parse().unwrap(),
            device: DeviceModel::H200,
            ..baseline("ABC")
        };
        let mut caching = CachingAllocator::observed(AccountingSegments::unlimited(), Vec::new());
        account(&memory, &mut caching).unwrap();
        let events: Vec<_> = caching.into_observer().iter().map(recorded_line).collect();
        assert_eq!(events, trace(name), "{name}");
    }
}

/// Peak of host and reserved bytes in MB (10^6), rounded.
fn peak_mb(memory: &Linear4bitMemory) -> u64 {
    (predict(memory).unwrap().peak_host_plus_reserved + 500_000) / 1_000_000
}

#[test]
fn the_predicted_peaks_are_those_of_the_analysis_of_the_seed_report() {
    let orders = [
        ("ABC", 7089),
        ("BAC", 6817),
        ("BCA", 6817),
        ("BC", 6817),
        ("CAB", 6751),
        ("ACB", 5174),
        ("CCC", 5294),
        ("AC", 4988),
        ("CBA", 4914),
        ("AB", 4830),
        ("C", 4728),
    ];
    for (order, mb) in orders {
        assert_eq!(peak_mb(&baseline(order)), mb, "{order}");
    }
    for (hygiene, gc, mb) in [
        ("after:A", "never", 6884),
        ("after:A", "each", 6817),
        ("after:A", "after:A", 6817),
        ("after:B", "never", 5261),
        ("each", "never", 5059),
        ("each", "each", 4728),
    ] {
        let memory = Linear4bitMemory { hygiene: hygiene.parse().unwrap(), gc: gc.parse().unwrap(), ..baseline("ABC") };
        assert_eq!(peak_mb(&memory), mb, "hygiene {hygiene}, gc {gc}");
    }
    for rows in [2, 8] {
        let memory = Linear4bitMemory { batch: Batch::new(rows).unwrap(), ..baseline("ABC") };
        assert_eq!(predict(&memory).unwrap().peak_host_plus_reserved, 8_408_530_944, "batch {rows}");
    }
}

#[test]
fn settings_that_only_change_numbers_leave_the_peak_where_it_was() {
    let expected = predict(&baseline("ABC")).unwrap();
    let fp4 = Linear4bitSettings { quant: QuantType::Fp4, ..Linear4bitSettings::of(sequence("ABC")) };
    let of_fp4 = Linear4bitMemory::of(&fp4, 1, DeviceModel::ORIN).unwrap();
    for memory in [
        of_fp4,
        Linear4bitMemory { storage: Storage::Uint8, ..baseline("ABC") },
        Linear4bitMemory { storage: Storage::Fp32, ..baseline("ABC") },
    ] {
        assert_eq!(predict(&memory).unwrap(), expected);
    }
    let fp16 = Linear4bitMemory { compute: FloatType::Fp16, ..baseline("ABC") };
    assert_eq!(predict(&fp16).unwrap().peak_host_plus_reserved, 7_089_422_336);
    let plain = Linear4bitMemory { double_quant: false, ..baseline("ABC") };
    assert_eq!(predict(&plain).unwrap().peak_host_plus_reserved, 7_089_422_336);
}
