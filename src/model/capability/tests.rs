//! One case for each setting that needs something, and one for those that need nothing.

use super::*;
use crate::model::quantity::{Bytes, Millis};
use crate::model::settings::{
    Breadcrumbs, Check, Code, CompanionProgram, CompanionWhen, FloatType, JitCache, ModuleLoading, OutputOracle, Shape,
    StackSettings, Storage, Telemetry,
};

fn layers() -> Linear4bitSettings {
    Linear4bitSettings::of(vec![Layer { label: "A".into(), shape: Shape::new(64, 64).unwrap() }])
}

fn with(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::of(WorkloadSettings::Linear4bit(layers()));
    change(&mut settings);
    settings
}

fn of_layers(change: impl FnOnce(&mut Linear4bitSettings)) -> Settings {
    let mut linear4bit = layers();
    change(&mut linear4bit);
    Settings::of(WorkloadSettings::Linear4bit(linear4bit))
}

fn of_command(change: impl FnOnce(&mut CommandSettings)) -> Settings {
    let mut command = CommandSettings { argv: vec![Template::literal("true")], ..CommandSettings::default() };
    change(&mut command);
    Settings::of(WorkloadSettings::Command(command))
}

/// Settings, the only capability that they need, and a word that names the setting.
fn cases() -> Vec<(Settings, Capability, &'static str)> {
    use Capability as C;
    let stack = StackSettings { block: layers(), head: Vec::new(), layers: 2 };
    let program = CompanionProgram::Command(vec![Template::literal("stress")]);
    let companion = Companion { program, when: CompanionWhen::Beside };
    vec![
        (with(|s| s.ballast = Bytes::new(1 << 30)), C::Ballast, "ballast = \"1GiB\""),
        (with(|s| s.clocks = Clocks::Max), C::Clocks, "clocks"),
        (with(|s| s.companion = Some(companion)), C::Companion, "companion"),
        (of_layers(|l| l.backend = Backend::Cuda), C::Cuda, "has no CUDA"),
        (of_layers(|l| l.init = Init::Device), C::DeviceInit, "init = \"device\""),
        (with(|s| s.drop_caches = true), C::DropCaches, "drop_caches"),
        (of_layers(|l| l.allocator = AllocatorKind::Async), C::DriverAllocators, "async"),
        (of_layers(|l| l.allocator = AllocatorKind::Vmm), C::DriverAllocators, "vmm"),
        (with(|s| s.gpu_pm = GpuPm::On), C::GpuPm, "gpu_pm = \"on\""),
        (with(|s| s.identity = "0.49.2".into()), C::Identity, "0.49.2"),
        (of_command(|c| c.argv.push("{rev.dir}/x".parse().unwrap())), C::Identity, "identity"),
        (of_command(|c| c.loads.push(Template::literal("lib.so"))), C::Loads, "loads"),
        (with(|s| s.memory_max = Some(Bytes::new(1 << 20))), C::MemoryMax, "memory_max = \"1MiB\""),
        (with(|s| s.observer = Observer::Core), C::Observer, "core"),
        (with(|s| s.observer = Observer::Gdb), C::Debugger, "gdb"),
        (of_layers(|l| l.quant = QuantType::Mxfp4), C::OtherFormats, "mxfp4"),
        (of_layers(|l| l.quant = QuantType::Int4), C::OtherFormats, "int4"),
        (
            of_command(|c| c.expect_output = OutputOracle { lacks: Some("x".into()), ..OutputOracle::default() }),
            C::OutputPatterns,
            "expect_output",
        ),
        (with(|s| (s.start, s.cold_from) = (Start::Cold, ColdFrom::Power)), C::PowerHook, "cold_from"),
        (with(|s| s.power_mode = Some("25W".into())), C::PowerMode, "25W"),
        (with(|s| s.prefill_cache = Bytes::new(1 << 20)), C::PrefillCache, "prefill_cache"),
        (with(|s| s.prelude = Some(Prelude::Forward("256x256".parse().unwrap()))), C::Prelude, "256x256"),
        (Settings { iterations: 3, ..of_command(|_| {}) }, C::RepeatedCommand, "3 times"),
        (Settings::of(WorkloadSettings::Stack(stack)), C::Stack, "stack"),
        (with(|s| s.swap = Swap::Off), C::Swap, "swap = \"off\""),
        (of_layers(|l| l.kernels = KernelSet::Tuned), C::TunedKernels, "tuned"),
        (with(|s| s.start = Start::Warm), C::WarmStart, "start = \"warm\""),
    ]
}

#[test]
fn each_setting_that_needs_something_is_refused_with_its_name() {
    for (settings, capability, word) in cases() {
        let reason = cannot(&settings, BuildCapabilities(&[])).unwrap_or_else(|| panic!("{capability} is not asked"));
        assert!(reason.starts_with("this build cannot ") && reason.contains(word), "{capability}: {reason}");
        assert_eq!(reason.matches("this build").count(), 1, "{capability}: {reason}");
    }
}

#[test]
fn a_build_that_can_do_everything_refuses_nothing() {
    for (settings, capability, _) in cases() {
        assert_eq!(cannot(&settings, BuildCapabilities(Capability::ALL)), None, "{capability}");
    }
}

#[test]
fn this_build_refuses_what_it_lacks_and_nothing_else() {
    for (settings, capability, _) in cases() {
        let is_refused = cannot(&settings, BuildCapabilities::THIS).is_some();
        assert_eq!(is_refused, !BuildCapabilities::THIS.has(capability), "{capability}");
    }
}

#[test]
fn what_only_a_gpu_does_is_named_and_never_asked_of_a_cpu() {
    assert_eq!(needs_gpu(&layers()), None);
    let mut linear4bit = layers();
    (linear4bit.allocator, linear4bit.init) = (AllocatorKind::Vmm, Init::Device);
    linear4bit.stream = StreamKind::Own;
    assert_eq!(needs_gpu(&linear4bit).unwrap(), "allocator = \"vmm\", init = \"device\", stream = \"own\"");
    let on_cpu = of_layers(|l| (l.backend, l.kernels) = (Backend::Cpu, KernelSet::Tuned));
    let reason = cannot(&on_cpu, BuildCapabilities::THIS).unwrap();
    assert_eq!(reason, "kernels = \"tuned\" needs a GPU, and backend = \"cpu\"");
    let anywhere = of_layers(|l| (l.backend, l.kernels) = (Backend::Auto, KernelSet::Tuned));
    assert_eq!(cannot(&anywhere, BuildCapabilities::THIS), None);
}

#[test]
fn every_capability_is_needed_by_some_setting() {
    for capability in Capability::ALL {
        assert!(cases().iter().any(|(_, asked, _)| asked == capability), "{capability}");
    }
}

#[test]
fn what_a_child_or_the_machine_can_have_is_performed() {
    let settings = with(|s| {
        s.start = Start::Cold;
        s.drop_caches = true;
        s.swap = Swap::Off;
        s.breadcrumbs = Breadcrumbs::Sync;
        s.code = Code::Ptx;
        s.cpus = "0".parse().unwrap();
        s.env.insert("X".into(), vec![EnvOp::Unset]);
        s.gap = Millis::new(5);
        s.iterations = 3;
        s.jit_cache = JitCache::Fresh;
        s.module_loading = ModuleLoading::Eager;
        s.telemetry = Telemetry::Off;
    });
    assert_eq!(cannot(&settings, BuildCapabilities::THIS), None);
    let settings = of_layers(|l| {
        l.allocator = AllocatorKind::Direct;
        l.check = Check::Each;
        l.compute = FloatType::Fp16;
        l.init_threads = 1;
        l.kernels = KernelSet::None;
        l.quant = QuantType::Fp4;
        l.storage = Storage::Fp32;
    });
    assert_eq!(cannot(&settings, BuildCapabilities::THIS), None);
    assert_eq!(cannot(&of_command(|_| {}), BuildCapabilities::THIS), None);
}

#[test]
fn several_reasons_are_all_told_and_too_many_layers_are_one() {
    let settings = with(|s| (s.ballast, s.observer) = (Bytes::new(1), Observer::Gdb));
    assert_eq!(cannot(&settings, BuildCapabilities(&[])).unwrap().matches("; ").count(), 1);
    let settings = with(|s| s.iterations = 1_000_000);
    let reason = cannot(&settings, BuildCapabilities(Capability::ALL)).unwrap();
    assert_eq!(reason, "1000000 layers over all iterations are more than 50000");
    let settings = of_layers(|l| l.sequence[0].label = "A".repeat(53));
    assert!(cannot(&settings, BuildCapabilities(Capability::ALL)).unwrap().contains("longer than the 52 bytes"));
    assert_eq!(cannot(&of_layers(|l| l.sequence[0].label = "A".repeat(52)), BuildCapabilities::THIS), None);
}
