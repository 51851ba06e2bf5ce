//! The GPU module against a driver that fails in every way: each failure is an error with its call and code, or an end
//! of the child, and never a pass.
//!
//! The child is this very test binary, started with the fake `libcuda.so` in its library path; it performs a small
//! program on it and says how it ended.

#[allow(unreachable_pub, dead_code, reason = "shared with the tests of the command line")]
#[path = "../cli/bench.rs"]
mod bench;

mod runs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use jetfault::model::linear4bit_program::Linear4bitMemory;
use jetfault::model::protocol::FailureKind;
use jetfault::model::settings::{AllocatorKind, Batch, Code, Init, KernelSet, Layer, Shape};
use jetfault::workload::gpu::driver::{Context, Stream};
use jetfault::workload::gpu::error::GpuError;
use jetfault::workload::gpu::executor::{Executor, Performance, device_model};
use jetfault::workload::gpu::kernels::Kernels;
use jetfault::workload::gpu::memory::{EventLog, allocator};

/// What the child prints when it came to its end.
const DONE: &str = "child: done";

/// The fake driver's directory; with `old` the one that lacks newer functions.
fn fake_driver(old: bool) -> &'static Path {
    static NEW: OnceLock<PathBuf> = OnceLock::new();
    static OLD: OnceLock<PathBuf> = OnceLock::new();
    let (cell, name) = if old { (&OLD, "old") } else { (&NEW, "new") };
    cell.get_or_init(|| {
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake_driver_{name}_{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver/libcuda.rs");
        let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
        rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-Ccodegen-units=1"]);
        if old {
            rustc.arg("--cfg=old_driver");
        }
        let built = rustc.arg("-o").arg(directory.join("libcuda.so")).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        directory
    })
}

/// The child on a fake driver, with these variables of its environment.
fn command(driver: Option<&Path>, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_child", "--ignored", "--nocapture"]).stdin(Stdio::null());
    match driver {
        Some(directory) => command.env("LD_LIBRARY_PATH", directory),
        None => command.env_remove("LD_LIBRARY_PATH"),
    };
    command.envs(environment.iter().copied());
    command
}

/// What the child printed to its end.
fn run(environment: &[(&str, &str)]) -> (String, Output) {
    let output = command(Some(fake_driver(false)), environment).output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output)
}

/// Performs a small program under the settings of the environment.
#[test]
#[ignore = "it is started by the other tests, on a fake driver"]
fn the_child() {
    match perform() {
        Ok(()) => println!("{DONE}"),
        Err(error) => {
            let failure = error.to_failure();
            println!("child: {:?} {:?} {:?} {}", failure.kind, failure.call, failure.code, failure.text);
        }
    }
}

fn perform() -> Result<(), GpuError> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let context = Context::open(variable("CHILD_DEVICE").parse().unwrap_or(0))?;
    let shape = Shape::new(256, 512).unwrap();
    let rows = variable("CHILD_BATCH").parse().unwrap_or(1);
    let memory = Linear4bitMemory {
        batch: Batch::new(rows).unwrap(),
        device: device_model(&context),
        allocator: variable("CHILD_ALLOCATOR").parse().unwrap_or(AllocatorKind::Caching),
        ..Linear4bitMemory::baseline(vec![Layer { label: "A".into(), shape }; 2])
    };
    let performance = Performance {
        kernels: variable("CHILD_KERNELS").parse().unwrap_or(KernelSet::Bnb),
        init: Init::Host,
        seed: 1,
        stream: context.new_stream()?,
        sampled_rows: 2,
        is_timed: true,
    };
    let kernels = Kernels::new(&context, variable("CHILD_CODE").parse().unwrap_or(Code::Any))?;
    let allocator = allocator(memory.allocator, &context, Stream::LEGACY, EventLog::default())?;
    let mut executor = Executor::new(kernels, allocator, memory.clone(), performance);
    memory.emit(&mut executor)?;
    executor.visit_results(|_, _, _| Ok::<(), GpuError>(()))?;
    executor.release_all()?;
    context.close()
}

#[test]
fn a_driver_that_works_lets_every_allocator_and_path_come_to_its_end() {
    for allocator in ["caching", "direct", "async", "vmm"] {
        for batch in ["1", "3"] {
            for kernels in ["bnb", "tuned", "none"] {
                let environment = [("CHILD_ALLOCATOR", allocator), ("CHILD_BATCH", batch), ("CHILD_KERNELS", kernels)];
                let (text, _) = run(&environment);
                assert!(text.contains(DONE), "{allocator} {batch} {kernels}: {text}");
            }
        }
    }
}

#[test]
fn a_machine_without_a_driver_or_a_device_says_so_and_does_not_panic() {
    let empty = tempfile::tempdir().unwrap();
    let output = command(Some(empty.path()), &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A machine with a GPU finds its real library here, and the child then works on it.
    let is_without = text.contains("child: Unsupported None None no libcuda can be loaded");
    assert!(is_without || text.contains(DONE), "{text}");
    for (environment, expected) in [
        (("FAKE_CUDA_DEVICES", "0"), "Unsupported None None the driver sees no CUDA device"),
        (("FAKE_CUDA", "cuInit=100"), "Unsupported None None the driver sees no CUDA device"),
        (("CHILD_DEVICE", "1"), "Unsupported None None there is no CUDA device 1: the driver sees 1"),
        (("FAKE_CUDA_DRIVER", "11040"), "Cuda None None the driver supports CUDA 11.4, and the kernels need 12.0"),
        (("FAKE_CUDA_CAPABILITY", "72"), "no-kernel-image: no kernel image for sm_72: this build has sm_87"),
    ] {
        let (text, _) = run(&[environment]);
        assert!(text.contains(expected), "{environment:?}: {text}");
    }
}

#[test]
fn every_error_of_the_driver_is_reported_with_its_call_and_code() {
    for call in [
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDriverGetVersion",
        "cuDeviceTotalMem_v2",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuStreamCreate",
        "cuMemAlloc_v2",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLaunchKernel",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuStreamSynchronize",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuEventElapsedTime",
        "cuCtxSynchronize",
        "cuMemFree_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ] {
        for code in [1, 719, 12_345] {
            let (text, _) = run(&[("FAKE_CUDA", &format!("{call}={code}"))]);
            let expected = format!("child: {:?} Some({call:?}) Some({code})", FailureKind::Cuda);
            assert!(text.contains(&expected) && !text.contains(DONE), "{call} {code}: {text}");
        }
    }
}

#[test]
fn memory_that_is_not_there_is_out_of_memory_in_every_allocator() {
    for (allocator, call) in [
        ("caching", "cuMemAlloc_v2"),
        ("direct", "cuMemAlloc_v2"),
        ("async", "cuMemAllocAsync"),
        ("vmm", "cuMemCreate"),
    ] {
        let (text, _) = run(&[("CHILD_ALLOCATOR", allocator), ("FAKE_CUDA", &format!("{call}=2"))]);
        let expected = "child: CudaOom Some(\"cuMemAlloc_v2\") Some(2) out of device memory";
        assert!(text.contains(expected), "{allocator}: {text}");
    }
    // 600 kB hold the fp32 weight of the first layer and not what comes after it.
    let (text, _) = run(&[("CHILD_ALLOCATOR", "direct"), ("FAKE_CUDA_BYTES", "600000")]);
    assert!(text.contains("CudaOom"), "{text}");
}

#[test]
fn an_error_that_comes_late_is_no_pass() {
    // The first launches work, a later one faults, and only a wait tells.
    let (text, _) = run(&[("FAKE_CUDA", "cuLaunchKernel=700"), ("FAKE_CUDA_AFTER", "9")]);
    assert!(text.contains("Some(\"cuLaunchKernel\") Some(700)"), "{text}");
    // Nothing is called after an answer that leaves the context dead: releasing it would succeed and hide the error.
    let (text, _) = run(&[("FAKE_CUDA", "cuCtxSynchronize=719,cuDevicePrimaryCtxRelease_v2=abort")]);
    assert!(
        text.contains("Some(\"cuCtxSynchronize\") Some(719) cuCtxSynchronize answered 719 (CUDA_ERROR_LAUNCH_FAILED)"),
        "{text}"
    );
    let (text, _) = run(&[("FAKE_CUDA", "cuDevicePrimaryCtxRelease_v2=4")]);
    assert!(text.contains("Some(4)") && !text.contains(DONE), "{text}");
}

#[test]
fn a_function_that_an_older_driver_lacks_is_named() {
    let run = |allocator: &str| {
        let output = command(Some(fake_driver(true)), &[("CHILD_ALLOCATOR", allocator)]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(run("async").contains("libcuda has no function cuDeviceGetDefaultMemPool"));
    assert!(run("vmm").contains("libcuda has no function cuMemGetAllocationGranularity"));
    assert!(run("caching").contains(DONE));
}

#[test]
fn a_refused_image_names_the_architectures_that_there_are() {
    for code in ["209", "222"] {
        let (text, _) = run(&[("FAKE_CUDA", &format!("cuModuleLoadData={code}"))]);
        assert!(text.contains("no-kernel-image: no kernel image for sm_87: this build has sm_87, sm_90"), "{text}");
    }
    let (text, _) = run(&[("FAKE_CUDA_CAPABILITY", "120"), ("CHILD_CODE", "cubin")]);
    assert!(text.contains("no-kernel-image: no kernel image for sm_120"), "{text}");
    let (text, _) = run(&[("FAKE_CUDA_CAPABILITY", "120"), ("CHILD_CODE", "any")]);
    assert!(text.contains(DONE), "{text}");
}

#[test]
fn a_driver_that_crashes_or_hangs_takes_only_the_child_with_it() {
    use std::os::unix::process::ExitStatusExt;
    for (fault, signal) in [("cuLaunchKernel=segv", 11), ("cuCtxSynchronize=abort", 6)] {
        let (text, output) = run(&[("FAKE_CUDA", fault)]);
        assert_eq!(output.status.signal(), Some(signal), "{fault}: {text}");
    }
    let mut child = command(Some(fake_driver(false)), &[("FAKE_CUDA", "cuStreamSynchronize=hang")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert!(child.try_wait().unwrap().is_none(), "it did not hang");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
