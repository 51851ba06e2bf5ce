//! Identity of settings.

use super::*;
use crate::model::quantity::Finite;

fn layers() -> Vec<Layer> {
    vec![Layer { label: "A".to_owned(), shape: Shape::new(64, 128).unwrap() }]
}

fn command_companion(name: &str) -> CompanionProgram {
    CompanionProgram::Command(vec![Template::literal(name)])
}

fn every_field_set() -> Settings {
    let mut linear4bit = Linear4bitSettings::of(layers());
    linear4bit.allocator = AllocatorKind::Vmm;
    linear4bit.backend = Backend::Cpu;
    linear4bit.batch = Batch::new(2).unwrap();
    linear4bit.blocksize = Blocksize::new(128).unwrap();
    linear4bit.check = Check::Each;
    linear4bit.compute = FloatType::Fp16;
    linear4bit.double_quant = false;
    linear4bit.gc = Gc::Each;
    linear4bit.hygiene = "after:A,B".parse().unwrap();
    linear4bit.hygiene_steps = vec![HygieneStep::Sync];
    linear4bit.init = Init::Device;
    linear4bit.init_threads = 1;
    linear4bit.input = FloatType::Fp32;
    linear4bit.kernels = KernelSet::Tuned;
    linear4bit.quant = QuantType::Int4;
    linear4bit.storage = Storage::Fp32;
    linear4bit.stream = StreamKind::Own;
    linear4bit.warmup = Some("256x256".parse().unwrap());
    let stack = StackSettings { block: linear4bit, head: layers(), layers: 32 };
    Settings {
        ballast: Bytes::new(1),
        breadcrumbs: Breadcrumbs::Sync,
        clocks: Clocks::GpuMhz(600),
        code: Code::Ptx,
        cold_from: ColdFrom::Power,
        companion: Some(Companion { program: command_companion("x"), when: CompanionWhen::After }),
        cpus: "0-3,5".parse().unwrap(),
        drop_caches: true,
        env: BTreeMap::from([("X".to_owned(), vec![EnvOp::Append(Template::literal("y")), EnvOp::Unset])]),
        gap: Millis::new(5),
        gpu_pm: GpuPm::On,
        identity: "0.49.2".to_owned(),
        iterations: 3,
        jit_cache: JitCache::Fresh,
        memory_max: Some(Bytes::new(5)),
        module_loading: ModuleLoading::Eager,
        observer: Observer::Gdb,
        power_mode: Some("25W".to_owned()),
        prefill_cache: Bytes::new(7),
        prelude: Some(Prelude::Forward("256x256".parse().unwrap())),
        start: Start::Cold,
        swap: Swap::Disk,
        telemetry: Telemetry::Off,
        ..Settings::of(WorkloadSettings::Stack(stack))
    }
}

fn command() -> Settings {
    Settings::of(WorkloadSettings::Command(CommandSettings {
        argv: vec![Template::literal("a")],
        artifacts: vec![Template::literal("b")],
        cwd: Some(Template::literal("c")),
        exit_codes: vec![0, 3],
        expect_output: OutputOracle {
            contains: Some("d".to_owned()),
            lacks: None,
            numbers: BTreeMap::from([("n".to_owned(), NumberRange { max: Finite::new(2.5), min: Finite::new(-1.0) })]),
            regex: Some("e".to_owned()),
        },
        loads: vec![Template::literal("f")],
        needs: Some(CellId::of(b"other")),
        output: OutputKind::Pty,
        prepare: vec![Template::literal("g")],
        server: Some(Server { ready: Ready::Port(8000), requests: vec![vec![Template::literal("h")]] }),
    }))
}

#[test]
fn canonical_keys_are_sorted() {
    for settings in [every_field_set(), command()] {
        let canonical = settings.canonical_json();
        // A serde_json map is sorted by key, so a detour through it changes nothing only if the order was right.
        let value: serde_json::Value = serde_json::from_slice(&canonical).unwrap();
        assert_eq!(String::from_utf8(canonical).unwrap(), value.to_string());
    }
}

#[test]
fn settings_survive_json() {
    for settings in [every_field_set(), command()] {
        let json = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), settings, "{json}");
    }
}

#[test]
fn tool_defaults_are_left_out_of_the_identity() {
    let settings = Settings::of(WorkloadSettings::Linear4bit(Linear4bitSettings::of(layers())));
    assert_eq!(
        String::from_utf8(settings.canonical_json()).unwrap(),
        r#"{"workload":{"linear4bit":{"sequence":[[64,128,"A"]]}}}"#
    );
}

#[test]
fn a_companion_is_one_program_or_one_load() {
    let read = |json: &str| serde_json::from_str::<Companion>(json);
    let beside = |program| Companion { program, when: CompanionWhen::Beside };
    assert_eq!(read(r#"{"argv":["x"]}"#).unwrap(), beside(command_companion("x")));
    assert_eq!(read(r#"{"load":"gpu-load"}"#).unwrap(), beside(CompanionProgram::Load(CompanionLoad::Gpu)));
    for wrong in ["{}", r#"{"argv":["x"],"load":"gpu-load"}"#, r#"{"load":"cpu-load"}"#] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn watching_longer_does_not_make_another_cell() {
    let settings = command();
    let mut patient = settings.clone();
    patient.watch.timeout = Limit::After(Millis::from_secs(60));
    patient.watch.stages.push(StagePattern { name: "a".to_owned(), regex: "b".to_owned() });
    assert_eq!(settings.cell_id(), patient.cell_id());
    assert_eq!(patient.clone().identify(), patient.cell_id());
    patient.iterations = 2;
    assert_ne!(settings.cell_id(), patient.cell_id());
}

#[test]
fn a_point_after_a_layer_is_where_its_label_is() {
    let sequence: Vec<Layer> = ["A", "B", "A"]
        .iter()
        .map(|label| Layer { label: (*label).to_owned(), shape: Shape::new(1, 1).unwrap() })
        .collect();
    let at = |hygiene: &str| -> Vec<usize> {
        let hygiene: Hygiene = hygiene.parse().unwrap();
        (0..3).filter(|index| hygiene.is_after(*index, &sequence)).collect()
    };
    assert_eq!((at("none"), at("each"), at("after:A"), at("after:B")), (vec![], vec![0, 1], vec![0, 2], vec![1]));
}

#[test]
fn a_collection_is_at_the_drop_of_a_layer_and_only_each_names_the_warm_up() {
    let at = |gc: &str| -> Vec<bool> {
        let gc: Gc = gc.parse().unwrap();
        [Some("A"), Some("B"), None].into_iter().map(|label| gc.is_at_drop_of(label)).collect()
    };
    assert_eq!(at("never"), [false; 3]);
    assert_eq!(at("each"), [true; 3]);
    assert_eq!(at("after:B"), [false, true, false]);
}

#[test]
fn settings_with_dimensions_out_of_range_are_not_read() {
    for wrong in [r#""batch":0"#, r#""batch":5000"#, r#""blocksize":96"#] {
        let json = format!(r#"{{{wrong},"sequence":[[64,64,"A"]]}}"#);
        assert!(serde_json::from_str::<Linear4bitSettings>(&json).is_err(), "{json}");
    }
    assert!(serde_json::from_str::<Linear4bitSettings>(r#"{"sequence":[[0,64,"A"]]}"#).is_err());
}
