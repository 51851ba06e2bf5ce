//! The unmodified binary on a fake driver, from the command line to the verdict: every failure is a verdict with its
//! call and its stage, and the parent lives.

use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::bench::{Bench, PATIENCE, Said};
use crate::fake_driver;

/// What is set in the environment of the trial, and in its baseline.
struct Trial {
    environment: &'static [(&'static str, &'static str)],
    settings: &'static str,
}

/// Allocations and copies alone: the kernels of the fake driver compute nothing.
const NONE: &str = "kernels = \"none\"";

impl Trial {
    fn matrix(&self, backend: &str) -> String {
        let env = |(name, value): &(&str, &str)| format!("env.{name} = {{ set = \"{value}\" }}\n");
        format!(
            "[matrix]\nname = \"driver\"\ntrials = 1\nseed = 1\n\
             [workload]\nkind = \"linear4bit\"\nbackend = \"{backend}\"\nsettle = \"0s\"\nstage_timeout = \"2s\"\n\
             [shapes]\nA = [256, 512]\n[baseline]\nsequence = \"AA\"\n{}\n{}",
            self.settings,
            self.environment.iter().map(env).collect::<String>()
        )
    }

    fn command(&self, bench: &Bench, backend: &str) -> Command {
        let file = bench.write("driver.toml", &self.matrix(backend));
        let mut command = bench.command(&["run", &file]);
        command.env("LD_LIBRARY_PATH", fake_driver(false));
        command
    }

    /// The result of the first trial, from a run that ended with `code`.
    fn run(&self, backend: &str, code: i32) -> Value {
        let bench = Bench::new();
        Said::of(&self.command(&bench, backend).output().unwrap()).ends(code);
        serde_json::from_str(&bench.results_of("driver-001")[0].1).unwrap()
    }
}

fn judged(result: &Value) -> (&str, &str, &str) {
    let judgement = &result["judgement"];
    let word = |name: &str| judgement[name].as_str().unwrap_or_default();
    (word("verdict"), word("stage"), word("detail"))
}

#[test]
fn a_device_that_works_passes_under_every_allocator_and_says_what_it_is() {
    for settings in [
        NONE,
        "kernels = \"none\"\nallocator = \"direct\"",
        "kernels = \"none\"\nallocator = \"async\"",
        "kernels = \"none\"\nallocator = \"async\"\nstream = \"own\"",
        "kernels = \"none\"\nbatch = 2\nstream = \"own\"",
        "kernels = \"none\"\nallocator = \"vmm\"\nmodule_loading = \"eager\"",
        "kernels = \"none\"\nbatch = 2\nhygiene = \"each\"\ngc = \"each\"\nwarmup = \"256x256\"",
        "kernels = \"none\"\nquant = \"nvfp4\"\npassage = \"copy\"\nhygiene = \"each\"\ngc = \"each\"",
    ] {
        let result = Trial { environment: &[], settings }.run("auto", 0);
        assert_eq!(judged(&result), ("pass", "close", ""), "{settings}");
        let notes = &result["outcome"]["notes"];
        assert_eq!((&notes["backend"], &notes["device"]), (&"cuda".into(), &"Fake Orin".into()), "{settings}");
        assert_eq!((&notes["code"], &notes["driver"]), (&"cubin sm_87".into(), &"CUDA 12.6".into()), "{settings}");
        let metrics = &result["outcome"]["metrics"];
        assert_eq!(metrics["before.device_free_bytes"], (8u64 << 30) as f64, "{settings}: {metrics}");
        assert_eq!(metrics["A.copy_device_ms"], 1.5, "{settings}");
        assert!(metrics["context_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{settings}");
        assert_eq!(metrics["first_kernel_ms"], Value::Null, "{settings}: there is none");
        assert!(metrics["A.copy_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{settings}");
        assert!(result["outcome"]["peak_memory"]["device_allocated"].as_u64() > Some(256 * 512 * 4), "{settings}");
    }
    let ptx = Trial { environment: &[], settings: "kernels = \"none\"\ncode = \"ptx\"" }.run("cuda", 0);
    assert_eq!(ptx["outcome"]["notes"]["code"], "ptx compute_80, compiled by the driver");
}

#[test]
fn a_device_that_computes_nothing_is_a_wrong_result() {
    for settings in [
        "kernels = \"bnb\"",
        "kernels = \"tuned\"",
        "hygiene = \"each\"\ngc = \"each\"",
        "quant = \"nvfp4\"",
        "quant = \"nvfp4\"\nbatch = 4\nhygiene = \"each\"\ngc = \"each\"",
        "storage = \"bf16\"\npassage = \"cast\"",
    ] {
        let result = Trial { environment: &[], settings }.run("cuda", 1);
        let (verdict, _, detail) = judged(&result);
        assert_eq!(verdict, "wrong-result", "{settings}: {detail}");
        let metric = |name: &str| result["outcome"]["metrics"][name].as_f64().unwrap();
        assert!(metric("first_kernel_ms") > metric("context_ms"), "{settings}");
        assert!(detail.starts_with("A.quantize["), "{settings}: {detail}");
    }
}

#[test]
fn a_stack_is_built_and_called_on_a_device_and_a_fault_in_it_is_in_its_layer() {
    let run = |environment, settings, code| {
        let bench = Bench::new();
        let trial = Trial { environment, settings };
        let mut command = trial.command(&bench, "cuda");
        bench.write("driver.toml", &trial.matrix("cuda").replacen("linear4bit", "stack", 1));
        Said::of(&command.output().unwrap()).ends(code);
        serde_json::from_str::<Value>(&bench.results_of("driver-001")[0].1).unwrap()
    };
    for settings in ["kernels = \"none\"\nlayers = 3", "kernels = \"none\"\nlayers = 2\nquant = \"nvfp4\"\nbatch = 2"] {
        let result = run(&[], settings, 0);
        assert_eq!(judged(&result), ("pass", "close", ""), "{settings}");
        assert!(result["outcome"]["metrics"]["L01.A#2.forward_device_ms"].is_number(), "{settings}");
    }
    // Two layers are waited for before the third is: the last of them is L01.A.
    let result =
        run(&[("FAKE_CUDA", "cuCtxSynchronize=700"), ("FAKE_CUDA_AFTER", "2")], "kernels = \"none\"\nlayers = 2", 1);
    assert_eq!((judged(&result).0, judged(&result).1), ("cuda-error", "L01.A.sync"));
}

#[test]
fn nothing_large_is_copied_back_between_two_layers() {
    // The packed weight has 65,536 bytes. The first layer is freed in mid-sequence, and only what the oracle looks at is
    // kept of it; the second one lives, and is copied back as a whole when the sequence is over.
    for settings in ["gc = \"each\"\nhygiene = \"each\"", "gc = \"each\"\ndouble_quant = false"] {
        let environment = &[("FAKE_CUDA_COPY_BACK_MAX", "4096")];
        let result = Trial { environment, settings }.run("cuda", 1);
        let (verdict, stage, detail) = judged(&result);
        assert_eq!((verdict, stage), ("cuda-error", "check"), "{settings}: {detail}");
        assert!(detail.starts_with("cuMemcpyDtoHAsync_v2"), "{settings}: {detail}");
    }
}

/// The result of a trial with a load beside it.
///
/// Nobody waits for a load that begins after the trial, so that a trial may be over before a slow machine has the load at
/// work. That is void with words of its own, and asks for a longer trial.
fn beside_a_load(environment: &'static [(&'static str, &'static str)], when: &str) -> Value {
    let run = |gap_s: u32| {
        let settings = format!(
            "kernels = \"none\"\ngap = \"{gap_s}s\"\niterations = 2\n\
             companion = {{ load = \"gpu-load\", when = \"{when}\" }}"
        );
        let bench = Bench::new();
        let trial = Trial { environment, settings: settings.leak() };
        let mut command = trial.command(&bench, "cuda");
        // The gap is a stage in which nothing changes.
        let patient = trial.matrix("cuda").replacen("stage_timeout = \"2s\"", "stage_timeout = \"5m\"", 1);
        bench.write("driver.toml", &patient);
        let said = Said::of(&command.output().unwrap());
        let results = bench.results_of("driver-001");
        serde_json::from_str::<Value>(&results.first().unwrap_or_else(|| panic!("{}", said.err)).1).unwrap()
    };
    let is_too_short = |result: &Value| {
        let detail = judged(result).2;
        // Asked to end before its first launch, or while that failed.
        detail.contains("not at work yet when the trial ended") || detail.ends_with(": interrupted")
    };
    let mut longer_and_longer = [1, 4, 16, 64].into_iter().map(run);
    longer_and_longer.find(|result| !is_too_short(result)).expect("the load is at work within a minute")
}

#[test]
fn a_load_beside_the_trial_is_at_work_until_its_end() {
    for when in ["before", "beside", "after"] {
        // A copy of the fake driver takes the time of the host: on a busy machine a burst of whole ones is not over when
        // the patience with a load that was asked to end is.
        let result = beside_a_load(&[("FAKE_CUDA_COPY_BYTES", "4096")], when);
        assert_eq!(judged(&result).0, "pass", "{when}: {result}");
        let outcome = &result["outcome"];
        let note = outcome["notes"]["companion"].as_str().unwrap();
        assert!(note.starts_with("gpu-load: at work after ") && note.contains(" ms, ended after "), "{when}: {note}");
        assert!(outcome["metrics"]["companion.gb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{when}: {outcome}");
    }
}

#[test]
fn a_load_that_the_driver_fails_makes_the_trial_void() {
    // The load launches kernels, and the trial itself none.
    let result = beside_a_load(&[("FAKE_CUDA", "cuLaunchKernel=719")], "beside");
    let (verdict, _, detail) = judged(&result);
    assert_eq!(verdict, "void", "{result}");
    assert!(detail.starts_with("gpu-load failed after ") && detail.contains("cuLaunchKernel: "), "{detail}");
}

#[test]
fn every_error_of_the_driver_is_a_verdict_with_its_call_and_stage() {
    let bnb = "kernels = \"bnb\"";
    type Case = (&'static [(&'static str, &'static str)], &'static str, [&'static str; 3]);
    let cases: [Case; 13] = [
        (&[("FAKE_CUDA", "cuInit=999")], NONE, ["cuda-error", "context", "cuInit: "]),
        // A device that another process holds for itself.
        (
            &[("FAKE_CUDA", "cuDevicePrimaryCtxRetain=46")],
            NONE,
            ["cuda-error", "context", "cuDevicePrimaryCtxRetain: "],
        ),
        (&[("FAKE_CUDA", "cuDevicePrimaryCtxRetain=2")], NONE, ["cuda-oom", "context", "cuDevicePrimaryCtxRetain: "]),
        (&[("FAKE_CUDA_DRIVER", "11040")], NONE, ["cuda-error", "context", "the driver supports CUDA 11.4"]),
        (&[("FAKE_CUDA_CAPABILITY", "72")], NONE, ["error", "context", "no-kernel-image: no kernel image for sm_72"]),
        (&[("FAKE_CUDA", "cuModuleLoadData=209")], bnb, ["error", "A.quantize", "no-kernel-image: no kernel image"]),
        (&[("FAKE_CUDA", "cuModuleLoadData=200")], bnb, ["cuda-error", "A.quantize", "cuModuleLoadData: "]),
        (
            &[("FAKE_CUDA", "cuMemAlloc_v2=2")],
            NONE,
            ["cuda-oom", "A.alloc", "refused: cuMemAlloc_v2: out of device memory"],
        ),
        (&[("FAKE_CUDA", "cuMemcpyHtoDAsync_v2=700")], NONE, ["cuda-error", "A.copy", "cuMemcpyHtoDAsync_v2: "]),
        (&[("FAKE_CUDA", "cuLaunchKernel=719")], bnb, ["cuda-error", "A.quantize", "cuLaunchKernel: "]),
        // The second layer waits second.
        (
            &[("FAKE_CUDA", "cuCtxSynchronize=700"), ("FAKE_CUDA_AFTER", "1")],
            NONE,
            ["cuda-error", "A#2.sync", "cuCtxSynchronize: "],
        ),
        (&[("FAKE_CUDA", "cuMemcpyDtoHAsync_v2=719")], bnb, ["cuda-error", "A.sync", "cuMemcpyDtoHAsync_v2: "]),
        (
            &[("FAKE_CUDA", "cuDevicePrimaryCtxRelease_v2=4")],
            NONE,
            ["cuda-error", "close", "cuDevicePrimaryCtxRelease_v2: "],
        ),
    ];
    for (environment, settings, [verdict, stage, detail]) in cases {
        let result = Trial { environment, settings }.run("cuda", 1);
        let got = judged(&result);
        assert_eq!((got.0, got.1), (verdict, stage), "{environment:?}: {}", got.2);
        assert!(got.2.starts_with(detail), "{environment:?}: {}", got.2);
    }
}

#[test]
fn memory_that_runs_out_in_any_step_is_told_with_the_step() {
    type Case = (&'static [(&'static str, &'static str)], &'static str);
    // The fp32 weight has 524288 bytes, what is made of it 74 kB, and the first layer is still there when the second is
    // made.
    let cases: [Case; 3] = [
        (&[("FAKE_CUDA_BYTES", "500000")], "A.alloc"),
        (&[("FAKE_CUDA_BYTES", "590000")], "A.quantize"),
        (&[("FAKE_CUDA_BYTES", "650000")], "A#2.quantize"),
    ];
    for (environment, stage) in cases {
        let result = Trial { environment, settings: "kernels = \"none\"\nallocator = \"direct\"" }.run("cuda", 1);
        let (verdict, at, detail) = judged(&result);
        assert_eq!((verdict, at), ("cuda-oom", stage), "{environment:?}: {detail}");
        assert!(detail.starts_with("real: "), "{environment:?}: {detail}");
    }
}

#[test]
fn a_driver_without_a_device_leaves_the_cpu_to_auto_and_voids_cuda() {
    let trial = |settings| Trial { environment: &[("FAKE_CUDA_DEVICES", "0")], settings };
    let result = trial("batch = 2").run("auto", 0);
    let notes = &result["outcome"]["notes"];
    assert_eq!(notes["backend"], "cpu");
    assert_eq!(notes["backend_why"], "backend = \"auto\", and the driver sees no CUDA device");
    for (settings, backend, detail) in [
        ("", "cuda", "the driver sees no CUDA device"),
        ("kernels = \"tuned\"", "auto", "kernels = \"tuned\" needs a GPU, and the driver sees no CUDA device"),
        ("init = \"device\"", "auto", "init = \"device\" needs a GPU, and the driver sees no CUDA device"),
    ] {
        let result = trial(settings).run(backend, 3);
        assert_eq!(judged(&result), ("void", "context", detail), "{settings}");
    }
    // A driver that is there and fails is a fault, and no reason to compute elsewhere.
    let broken = Trial { environment: &[("FAKE_CUDA", "cuInit=999")], settings: "" }.run("auto", 1);
    assert_eq!(judged(&broken).0, "cuda-error");
}

#[test]
fn a_driver_that_crashes_is_a_crash_of_the_child() {
    let crash = |environment, settings| Trial { environment, settings }.run("cuda", 1);
    let result = crash(&[("FAKE_CUDA", "cuLaunchKernel=segv")], "kernels = \"bnb\"");
    assert_eq!((judged(&result).0, judged(&result).1), ("crash", "A.quantize"));
    let result = crash(&[("FAKE_CUDA", "cuCtxSynchronize=abort")], NONE);
    assert_eq!((judged(&result).0, judged(&result).1), ("crash", "A.sync"));
}

#[test]
fn a_driver_that_hangs_is_a_hang_and_only_the_child_has_it_mapped() {
    let bench = Bench::new();
    let trial = Trial { environment: &[("FAKE_CUDA", "cuCtxSynchronize=hang")], settings: NONE };
    let mut parent = trial.command(&bench, "cuda").spawn().unwrap();
    let has_driver = |process: u32| {
        fs::read_to_string(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.contains("libcuda.so"))
    };
    let until = Instant::now() + PATIENCE;
    let mut is_seen = false;
    while !is_seen {
        assert!(Instant::now() < until && parent.try_wait().unwrap().is_none(), "no child mapped the driver");
        is_seen = children(parent.id()).into_iter().any(has_driver);
        assert!(!has_driver(parent.id()), "the notary loaded the driver");
    }
    while parent.try_wait().unwrap().is_none() {
        assert!(!has_driver(parent.id()), "the notary loaded the driver");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(parent.wait().unwrap().code(), Some(1));
    let result: Value = serde_json::from_str(&bench.results_of("driver-001")[0].1).unwrap();
    assert_eq!((judged(&result).0, judged(&result).1), ("hang", "A.sync"));
}

/// The children of all threads of a process.
fn children(process: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let lists: Vec<String> = tasks.filter_map(Result::ok).map(of_task).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect()
}

fn doctor(environment: &[(&str, &str)], format: &str) -> Said {
    let bench = Bench::new();
    let mut command = bench.command(&["doctor", "--gpu", "--format", format]);
    command.env("LD_LIBRARY_PATH", fake_driver(false)).envs(environment.iter().copied());
    Said::of(&command.output().unwrap())
}

#[test]
fn the_doctor_lists_every_kernel_and_calls_a_device_unfit_that_computes_nothing() {
    let said = doctor(&[], "json");
    said.ends(4);
    let fitness: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(fitness["schema"], "jetfault.doctor/1");
    let device = &fitness["gpu"]["device"];
    assert_eq!((&device["device"], &device["code"]), (&"Fake Orin".into(), &"sm_87".into()));
    assert!(device["kernels"].as_array().unwrap().len() > 40);
    let text = doctor(&[], "text");
    assert!(text.out.contains("kernels are not right") && text.out.contains("wrong    gemv_4bit"), "{}", text.out);
}

#[test]
fn the_doctor_tells_an_image_that_does_not_fit_from_a_driver_that_dies() {
    for (environment, finding) in [
        (("FAKE_CUDA_CAPABILITY", "72"), "no-kernel-image: no kernel image for sm_72: this build has sm_87, sm_90"),
        (("FAKE_CUDA", "cuModuleLoadData=209"), "no-kernel-image: no kernel image for sm_87"),
        (("FAKE_CUDA_DEVICES", "0"), "no-gpu: the driver sees no CUDA device"),
        (("FAKE_CUDA", "cuInit=segv"), "the child that examined the GPU died"),
    ] {
        let said = doctor(&[environment], "json");
        said.ends(4);
        let fitness: Value = serde_json::from_str(&said.out).unwrap();
        let checks = fitness["checks"].as_array().unwrap();
        let gpu = checks.iter().find(|check| check["name"] == "gpu").unwrap();
        assert_eq!(gpu["state"], "failure");
        assert!(gpu["finding"].as_str().unwrap().starts_with(finding), "{environment:?}: {gpu}");
        assert!(gpu["mending"].is_string(), "{environment:?}");
    }
}
