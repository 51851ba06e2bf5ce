//! The worker's work on a `linear4bit` cell, through the real binary: what it says, in which order, and how it ends.
//!
//! Shapes are small; what is checked at full size is the arithmetic of the allocation program and of the kernels, each
//! in its own tests.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use jetfault::decide::predict::predict;
use jetfault::model::outcome::PeakMemory;
use jetfault::model::protocol::{
    Conversation, Failure, FailureKind, InjectedFault, Mismatch, PROTOCOL_VERSION, Reply, Request, Work, WorkerFault,
};
use jetfault::model::quantity::Millis;
use jetfault::model::settings::{
    AllocatorKind, Backend, Batch, Blocksize, Breadcrumbs, Check, FloatType, Init, KernelSet, Layer,
    Linear4bitSettings, ModuleLoading, QuantType, Settings, Shape, Storage, WorkloadSettings,
};

/// What a worker said, and the code it ended with.
struct Said {
    replies: Vec<Reply>,
    code: Option<i32>,
}

impl Said {
    fn stages(&self) -> Vec<&str> {
        let mut stages = Vec::new();
        for reply in &self.replies {
            if let Reply::Stage { stage } = reply {
                stages.push(stage.as_str());
            }
        }
        stages
    }

    fn metric(&self, wanted: &str) -> Option<f64> {
        self.replies.iter().rev().find_map(|reply| match reply {
            Reply::Metric { name, value } if name == wanted => Some(*value),
            _ => None,
        })
    }

    fn note(&self, wanted: &str) -> Option<&str> {
        self.replies.iter().rev().find_map(|reply| match reply {
            Reply::Note { name, text } if name == wanted => Some(text.as_str()),
            _ => None,
        })
    }

    fn mismatches(&self) -> Vec<&Mismatch> {
        let mut mismatches = Vec::new();
        for reply in &self.replies {
            if let Reply::Mismatch(mismatch) = reply {
                mismatches.push(mismatch);
            }
        }
        mismatches
    }

    fn peak(&self) -> PeakMemory {
        match (self.replies.last(), self.code) {
            (Some(Reply::Done { peak_memory }), Some(0)) => *peak_memory,
            (last, code) => panic!("not done but {last:?}, code {code:?}"),
        }
    }

    fn failure(&self) -> &Failure {
        match (self.replies.last(), self.code) {
            (Some(Reply::Failed(failure)), Some(1)) => failure,
            (last, code) => panic!("not failed but {last:?}, code {code:?}"),
        }
    }

    /// Done, every result right, and the memory that was predicted before it ran.
    fn is_a_pass_of(&self, settings: &Settings) {
        let peak = self.peak();
        assert_eq!(self.mismatches(), Vec::<&Mismatch>::new());
        let predicted = predict(settings).unwrap();
        assert_eq!(
            (peak.device_allocated, peak.device_reserved, peak.host_plus_reserved),
            (predicted.allocated_bytes, predicted.reserved_bytes, predicted.host_plus_reserved_bytes)
        );
        assert!(peak.host > 0);
    }
}

/// Holds the whole conversation, and checks that every reply may come where it came.
fn converse(settings: &Settings, inject: Option<InjectedFault>) -> Said {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut worker = Command::new(env!("CARGO_BIN_EXE_jetfault"))
        .arg("__worker")
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let request = Request {
        protocol: PROTOCOL_VERSION,
        trial: "c-0123456789abcdef-r001-a1".parse().unwrap(),
        seed: 1936,
        work: Work::Cell(Box::new(settings.clone())),
        breadcrumbs: settings.breadcrumbs,
        inject,
    };
    let mut line = serde_json::to_vec(&request).unwrap();
    line.push(b'\n');
    ours.write_all(&line).unwrap();
    let mut state = Conversation::Silent;
    let mut replies = Vec::new();
    for line in BufReader::new(ours).lines() {
        let reply: Reply = serde_json::from_str(&line.unwrap()).unwrap();
        state = state.next(&reply).unwrap();
        replies.push(reply);
    }
    Said { replies, code: worker.wait().unwrap().code() }
}

/// No device is shown to the worker; whether there is a driver is the machine's.
fn says_no_gpu(text: &str) -> bool {
    text.ends_with("no libcuda can be loaded") || text.ends_with("the driver sees no CUDA device")
}

fn run(settings: &Settings) -> Said {
    converse(settings, None)
}

fn layer(label: char) -> Layer {
    let (in_features, out_features) = match label {
        'A' => (128, 96),
        'B' => (64, 333),
        'C' => (448, 1188),
        'D' => (1024, 2048),
        other => panic!("no shape {other}"),
    };
    Layer { label: label.into(), shape: Shape::new(in_features, out_features).unwrap() }
}

fn cell(labels: &str, change: impl FnOnce(&mut Linear4bitSettings)) -> Settings {
    let mut linear4bit = Linear4bitSettings::of(labels.chars().map(layer).collect());
    linear4bit.backend = Backend::Cpu;
    change(&mut linear4bit);
    Settings::of(WorkloadSettings::Linear4bit(linear4bit))
}

/// All stages of layers, without hygiene.
fn stages_of(names: &[&str]) -> Vec<String> {
    let stages = ["construct", "alloc", "copy", "quantize", "free_host", "forward", "sync"];
    names.iter().flat_map(|name| stages.map(|stage| format!("{name}.{stage}"))).collect()
}

#[test]
fn stages_come_in_their_order_and_a_label_that_comes_again_is_numbered() {
    let settings = cell("ABA", |l| {
        l.warmup = Some("256x256".parse().unwrap());
        l.hygiene = "after:B".parse().unwrap();
    });
    let said = run(&settings);
    said.is_a_pass_of(&settings);
    let mut expected = stages_of(&["warmup", "A", "B"]);
    expected.push("B.hygiene".into());
    expected.extend(stages_of(&["A#2"]));
    expected.push("check".into());
    assert_eq!(said.stages(), expected);
    for stage in &expected[..expected.len() - 1] {
        assert!(said.metric(&format!("{stage}_ms")).is_some_and(|ms| ms >= 0.0), "{stage}");
    }
}

#[test]
fn a_worker_says_what_it_computed_on_and_what_the_layers_are() {
    let said = run(&cell("B", |_| {}));
    assert_eq!((said.note("backend"), said.note("backend_why")), (Some("cpu"), Some("backend = \"cpu\"")));
    assert_eq!(said.metric("B.packed_bytes"), Some(64.0 * 333.0 / 2.0));
    assert_eq!(said.note("B.storage"), Some("10656 elements of uint8"));
    assert!(said.note("B.forward_path").unwrap().starts_with("fused"));
    assert_eq!((said.metric("checked_rows"), said.metric("checked_outputs")), (Some(16.0), Some(16.0)));
    assert_eq!((said.metric("checked_packed_bytes"), said.note("without_effect")), (Some(16.0 * 32.0), None));

    let mut settings = cell("B", |l| {
        l.backend = Backend::Auto;
        l.batch = Batch::new(2).unwrap();
        l.storage = Storage::Fp32;
    });
    settings.module_loading = ModuleLoading::Eager;
    let said = run(&settings);
    let why = said.note("backend_why").unwrap().strip_prefix("backend = \"auto\", and ");
    assert!(why.is_some_and(says_no_gpu), "{:?}", said.note("backend_why"));
    assert_eq!(said.stages()[..2], ["context", "B.construct"]);
    assert_eq!(said.note("B.storage"), Some("2664 elements of fp32"));
    assert_eq!(said.note("B.forward_path"), Some("dense: several rows"));
    assert!(said.note("without_effect").unwrap().starts_with("module_loading: "));
    assert_eq!(said.metric("checked_outputs"), Some(32.0));
}

#[test]
fn every_setting_that_changes_numbers_or_memory_gives_right_results_and_the_predicted_peaks() {
    let changes: [fn(&mut Linear4bitSettings); 17] = [
        |l| l.quant = QuantType::Fp4,
        |l| l.quant = QuantType::Nvfp4,
        |l| (l.quant, l.storage, l.batch) = (QuantType::Nvfp4, Storage::Bf16, Batch::new(3).unwrap()),
        |l| (l.quant, l.hygiene, l.gc) = (QuantType::Nvfp4, "each".parse().unwrap(), "each".parse().unwrap()),
        |l| l.double_quant = false,
        |l| l.batch = Batch::new(2).unwrap(),
        |l| (l.quant, l.storage, l.batch) = (QuantType::Fp4, Storage::Uint8, Batch::new(3).unwrap()),
        |l| l.compute = FloatType::Fp16,
        |l| (l.compute, l.input) = (FloatType::Fp32, FloatType::Fp32),
        |l| l.input = FloatType::Fp16,
        // 448 is no multiple of 256: one row takes the dense path.
        |l| l.blocksize = Blocksize::new(256).unwrap(),
        |l| l.allocator = AllocatorKind::Direct,
        |l| (l.hygiene, l.gc) = ("each".parse().unwrap(), "each".parse().unwrap()),
        |l| (l.hygiene, l.gc) = ("after:A".parse().unwrap(), "after:A".parse().unwrap()),
        |l| {
            (l.hygiene, l.hygiene_steps) =
                ("after:C".parse().unwrap(), serde_json::from_str(r#"["drop","gc"]"#).unwrap())
        },
        |l| l.warmup = Some("64x128".parse().unwrap()),
        |l| l.init_threads = 1,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let settings = cell("ABC", change);
        let said = run(&settings);
        said.is_a_pass_of(&settings);
        let layers = 3.0 + f64::from(u8::from(said.stages()[0].starts_with("warmup")));
        assert_eq!(said.metric("checked_rows"), Some(16.0 * layers), "change {index}");
    }
}

#[test]
fn iterations_repeat_the_sequence_with_a_gap_between_and_the_same_names() {
    let mut settings = cell("AB", |l| l.gc = "after:A".parse().unwrap());
    (settings.iterations, settings.gap) = (3, Millis::new(2));
    let said = run(&settings);
    said.is_a_pass_of(&settings);
    let once = stages_of(&["A", "B"]);
    let mut expected = once.clone();
    for _ in 1..3 {
        expected.push("gap".into());
        expected.extend(once.clone());
    }
    expected.push("check".into());
    assert_eq!(said.stages(), expected);
    assert_eq!(said.metric("checked_rows"), Some(16.0 * 6.0));
}

#[test]
fn results_are_compared_between_shapes_only_if_the_cell_asks_for_it() {
    let settings = cell("AB", |l| l.check = Check::Each);
    let said = run(&settings);
    said.is_a_pass_of(&settings);
    let mut expected = stages_of(&["A"]);
    expected.push("A.check".into());
    expected.extend(stages_of(&["B"]));
    expected.extend(["B.check".into(), "check".into()]);
    assert_eq!(said.stages(), expected);
    assert_eq!(said.metric("checked_rows"), Some(32.0));
}

#[test]
fn allocations_and_copies_alone_take_the_same_memory_and_compute_nothing() {
    let settings = cell("ABC", |l| l.kernels = KernelSet::None);
    let said = run(&settings);
    said.is_a_pass_of(&settings);
    assert_eq!(predict(&settings), predict(&cell("ABC", |_| {})));
    assert_eq!((said.metric("A.packed_bytes"), said.metric("checked_rows")), (None, None));
    assert!(said.note("checked").unwrap().starts_with("nothing"));
}

fn wrong(at: &str) -> Option<InjectedFault> {
    Some(InjectedFault { fault: WorkerFault::Wrong, at: Some(at.parse().unwrap()) })
}

#[test]
fn one_spoiled_nibble_of_the_last_layer_is_a_wrong_result() {
    let collected = |l: &mut Linear4bitSettings| {
        (l.hygiene, l.gc) = ("after:B".parse().unwrap(), "each".parse().unwrap());
    };
    let each = |l: &mut Linear4bitSettings| l.check = Check::Each;
    // The layer lives, it is gone but for its sample, and it is compared at once.
    let cells = [("check", cell("AB", |_| {})), ("A.copy", cell("AB", collected)), ("B.forward", cell("AB", each))];
    for (at, settings) in cells {
        let said = converse(&settings, wrong(at));
        said.peak();
        let [mismatch] = said.mismatches()[..] else { panic!("{at}: {:?}", said.mismatches()) };
        assert_eq!((mismatch.what.as_str(), mismatch.index, mismatch.count), ("B.quantize", 0, 1), "{at}");
        assert_ne!(mismatch.expected, mismatch.got);
        assert!(said.note("B.mismatch").unwrap().starts_with("packed byte 0 (row 0) is"), "{at}");
        assert_eq!(said.metric("checked_rows"), Some(16.0), "{at}: A was right");
    }
}

#[test]
fn a_fault_that_cannot_be_injected_is_not_a_pass() {
    let too_late = cell("A", |l| l.check = Check::Each);
    let nothing = cell("A", |l| l.kernels = KernelSet::None);
    for settings in [too_late, nothing] {
        let said = converse(&settings, wrong("check"));
        assert_eq!(said.failure().kind, FailureKind::Unsupported);
    }
}

#[test]
fn what_this_build_cannot_do_is_refused_before_anything_runs() {
    type Change = fn(&mut Linear4bitSettings);
    let refused: [(Change, &str); 3] = [
        (|l| l.quant = QuantType::Mxfp4, "mxfp4"),
        (|l| l.kernels = KernelSet::Tuned, "tuned"),
        (|l| l.allocator = AllocatorKind::Vmm, "vmm"),
    ];
    for (change, word) in refused {
        let said = run(&cell("A", change));
        let failure = said.failure();
        assert_eq!(failure.kind, FailureKind::Unsupported);
        assert!(failure.text.contains(word), "{}", failure.text);
        assert!(said.stages().is_empty(), "{word}");
    }
}

#[test]
fn a_machine_without_a_gpu_refuses_what_only_a_gpu_does_and_computes_the_rest() {
    type Change = fn(&mut Linear4bitSettings);
    let refused: [(Change, &str); 5] = [
        (|l| l.backend = Backend::Cuda, ""),
        (|l| l.kernels = KernelSet::Tuned, "kernels = \"tuned\" needs a GPU, and "),
        (|l| l.allocator = AllocatorKind::Async, "allocator = \"async\" needs a GPU"),
        (|l| l.allocator = AllocatorKind::Vmm, "allocator = \"vmm\" needs a GPU"),
        (|l| l.init = Init::Device, "init = \"device\" needs a GPU"),
    ];
    for (change, word) in refused {
        let said = run(&cell("A", |l| {
            l.backend = Backend::Auto;
            change(l);
        }));
        let failure = said.failure();
        assert_eq!(failure.kind, FailureKind::Unsupported, "{word}");
        assert!(failure.text.contains(word) && says_no_gpu(&failure.text), "{}", failure.text);
        assert_eq!(said.stages(), ["context"], "{word}");
    }
}

#[test]
fn a_cpu_that_the_machine_does_not_give_is_refused() {
    let mut settings = cell("A", |_| {});
    settings.cpus = "1023".parse().unwrap();
    let said = run(&settings);
    assert_eq!(said.failure().kind, FailureKind::Unsupported);
    assert!(said.failure().text.contains("cannot run on cpus 1023"), "{}", said.failure().text);
}

#[test]
fn a_layer_that_is_never_collected_keeps_its_memory_and_one_that_is_collected_gives_it_back() {
    // 1 MiB of packed weights and 32 KiB of codes each. The peak is never below that of this test program, which the
    // kernel carries over into the worker, so the sum must be well above it.
    let host = |gc: &str| {
        let mut settings = cell("D", |l| l.gc = gc.parse().unwrap());
        settings.iterations = 24;
        let said = run(&settings);
        said.is_a_pass_of(&settings);
        said.peak().host
    };
    let (never, each) = (host("never"), host("each"));
    assert!(never > each + (12 << 20), "{never} and {each}");
}

#[test]
fn breadcrumbs_that_are_off_tell_no_stage_and_the_same_results() {
    let mut settings = cell("AB", |_| {});
    settings.breadcrumbs = Breadcrumbs::Off;
    let said = run(&settings);
    said.is_a_pass_of(&settings);
    assert!(said.stages().is_empty());
    assert_eq!(said.metric("checked_rows"), Some(32.0));
}
