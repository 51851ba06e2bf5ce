//! What a matrix means, and what is said of a wrong one.

use super::*;
use crate::model::settings::*;
use crate::model::template::Template;

/// A small matrix of layers that every case changes a little.
const LAYERS: &str = r#"[matrix]
name = "m"
trials = 3

[workload]
kind = "linear4bit"

[shapes]
A = [128, 256]
B = [64, 512]

[baseline]
sequence = "AB"

[axes]
batch = [2]
"#;

/// A small matrix of a command.
const COMMAND: &str = r#"[matrix]
name = "m"
trials = 3

[workload]
kind = "command"
argv = ["{venv}/bin/python", "{matrix.dir}/repro.py", "--dense", "{dense}", "{extra}"]

[vars]
venv = "/data/venv"

[baseline]
dense = "nvfp4-qdq"
extra = []

[axes]
dense = ["fp16"]
"#;

/// Compares with the stored text.
macro_rules! shown {
    ($text:expr $(,)?) => {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!($text);
        });
    };
}

fn valid(text: &str) -> Matrix {
    parse(text, "m.toml", &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn complaint(text: &str, overrides: &[Override]) -> String {
    match parse(text, "m.toml", overrides) {
        Ok(_) => panic!("this matrix is valid:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// The complaints about `base` with one text replaced by another, one after the other.
fn complaints(base: &str, changes: &[(&str, &str)]) -> String {
    let mut all = Vec::new();
    for (from, to) in changes {
        assert!(base.contains(from), "{from}");
        all.push(complaint(&base.replacen(from, to, 1), &[]));
    }
    all.join("\n\n")
}

fn changed(base: &str, from: &str, to: &str) -> Matrix {
    assert!(base.contains(from), "{from}");
    valid(&base.replacen(from, to, 1))
}

fn level(matrix: &Matrix, axis: &str, label: &str) -> Settings {
    let axis = matrix.axis(axis).unwrap();
    let level = axis.levels.iter().find(|level| level.label == label).unwrap_or_else(|| panic!("{axis:?}"));
    let mut draft = matrix.baseline();
    draft.apply(&level.changes);
    draft.finish()
}

fn argv(settings: &Settings) -> Vec<String> {
    match &settings.workload {
        WorkloadSettings::Command(command) => command.argv.iter().map(ToString::to_string).collect(),
        WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => panic!("not a command"),
    }
}

#[test]
fn what_is_not_toml_is_shown_where_it_stops_being_toml() {
    shown!(complaints(
        LAYERS,
        &[("trials = 3", "trials = "), ("[axes]", "[axes"), ("name = \"m\"", "name = \"m\"\nname = \"n\"")]
    ));
}

#[test]
fn an_unknown_key_is_met_with_the_nearest_known_one() {
    shown!(complaints(
        LAYERS,
        &[
            ("trials = 3", "trails = 3"),
            ("[shapes]", "[shape]"),
            ("kind = \"linear4bit\"", "kind = \"linear4bit\"\nargv = [\"x\"]"),
            ("batch = [2]", "bacth = [2]"),
            ("sequence = \"AB\"", "sequence = \"AB\"\nflux = 1"),
            ("batch = [2]", "layers = [2]"),
        ]
    ));
}

#[test]
fn a_wrong_level_is_met_with_the_right_ones() {
    shown!(complaints(
        LAYERS,
        &[
            ("batch = [2]", "storage = [\"unit8\"]"),
            ("batch = [2]", "compute = [\"uint8\"]"),
            ("batch = [2]", "batch = [0]"),
            ("batch = [2]", "batch = [\"2\"]"),
            ("batch = [2]", "batch = 2"),
            ("batch = [2]", "blocksize = [48]"),
            ("batch = [2]", "blocksize = [8192]"),
            ("batch = [2]", "warmup = [\"257x256\"]"),
            ("batch = [2]", "hygiene = [\"after:Z\"]"),
            ("batch = [2]", "hygiene = [\"sometimes\"]"),
            ("batch = [2]", "hygiene_steps = [[\"dorp\"]]"),
            ("batch = [2]", "cpus = [\"3-1\"]"),
            ("batch = [2]", "ballast = [\"1 ton\"]"),
            ("batch = [2]", "gap = [\"soon\"]"),
            ("batch = [2]", "clocks = [\"fast\"]"),
            ("batch = [2]", "companion = [{ when = \"never\" }]"),
            ("batch = [2]", "start = [\"\"]"),
            ("kind = \"linear4bit\"", "kind = \"linear8bit\""),
            ("kind = \"linear4bit\"", "kind = \"linear4bit\"\ntimeout = \"soon\""),
        ]
    ));
}

#[test]
fn a_shape_must_be_defined_and_have_weights() {
    shown!(complaints(
        LAYERS,
        &[
            ("sequence = \"AB\"", "sequence = \"AXBX\""),
            ("batch = [2]", "sequence = [\"BA\", [\"A\", \"lm_head\"]]"),
            ("A = [128, 256]", "A = [0, 256]"),
            ("A = [128, 256]", "A = [128]"),
            ("A = [128, 256]", "A = [16777216, 16777216]"),
            ("sequence = \"AB\"", "quant = \"fp4\""),
        ]
    ));
}

#[test]
fn an_axis_has_levels_that_differ() {
    shown!(complaints(
        LAYERS,
        &[
            ("batch = [2]", "batch = []"),
            ("batch = [2]", "batch = [2, 4, 2]"),
            ("batch = [2]", "batch = [2, 1]"),
            ("batch = [2]", "storage = [\"uint8\"]"),
            ("batch = [2]", "sequence = [\"BA\", [\"B\", \"A\"]]"),
            ("batch = [2]", "env.X = [\"1\", { set = \"1\" }]"),
            ("batch = [2]", "env.X = [\"1\", { set = \"2\", unset = true }, { replace = \"3\" }, { unset = false }]"),
            ("batch = [2]", "env.1X = [\"1\"]"),
        ]
    ));
}

#[test]
fn trials_and_decisions_make_sense() {
    shown!(complaints(
        LAYERS,
        &[
            ("trials = 3", "trials = 0"),
            ("trials = 3", "trials = -1"),
            ("trials = 3", "trials = \"many\""),
            ("trials = 3", "trials = 3\ndecide = { max = 20 }"),
            ("trials = 3", "trials = \"until-decided\"\ndecide = { compare = \"bacth\" }"),
            (
                "trials = 3\n",
                "trials = \"until-decided\"\ndecide = { compare = \"sequence\" }\n[[cell]]\nsequence = \"A\"\n"
            ),
            ("trials = 3", "trials = 3\ndesign = \"list\""),
            ("name = \"m\"", "name = \"../m\""),
        ]
    ));
}

#[test]
fn a_placeholder_is_known_and_a_pattern_compiles() {
    shown!(complaints(
        COMMAND,
        &[
            ("{venv}/bin", "{vnev}/bin"),
            ("{venv}/bin", "{rev.dir}/bin"),
            ("{venv}/bin", "{venv/bin"),
            ("[vars]", "stages = [{ name = \"a\", regex = '(' }, { name = \"b\", regexp = 'x' }]\n[vars]"),
            ("[vars]", "metrics = { build_s = 'took .* s' }\n[vars]"),
            ("[vars]", "expect_output = { contain = \"done\" }\n[vars]"),
            ("dense = [\"fp16\"]", "dnese = [\"fp16\"]"),
            ("dense = [\"fp16\"]", "warmup = [\"256x256\"]"),
            ("dense = \"nvfp4-qdq\"\n", ""),
            ("dense = [\"fp16\"]", "dense = [\"{venv}/x\"]"),
            ("dense = [\"fp16\"]", "size = { levels = [{ dense = \"a\", extras = 1 }] }"),
            ("dense = [\"fp16\"]", "size = { levels = [{ dense = \"a\" }, { dense = \"b\" }], labels = [\"s\"] }"),
            (
                "argv = [\"{venv}/bin/python\", \"{matrix.dir}/repro.py\", \"--dense\", \"{dense}\", \"{extra}\"]",
                "argv = []"
            ),
        ]
    ));
}

#[test]
fn the_smaller_sections_are_checked_as_well() {
    let with = |text: &'static str| ("[axes]", text);
    shown!(complaints(
        LAYERS,
        &[
            with("[[inject]]\nfault = \"rest\"\nat = \"C.forward\"\nrate = 2\nif = { start = \"cool\" }\n[axes]"),
            with("[[expect]]\nverdict = \"passed\"\ncell = { batch = 4 }\n[axes]"),
            with("[[exclude]]\nbatches = 2\n[[exclude]]\n[axes]"),
            with("[revisions]\nrepo = \"/r\"\ngood = \"1\"\nbad = \"1\"\n[axes]"),
            with("[bisect.use]\nbatch = 1\n[axes]"),
            with("[nightly]\nsubject = [\"identiy\"]\n[axes]"),
            with("[safety]\nmax_boots = 0\nexpires = 7\n[axes]"),
            with("[board]\nspurious_rate = 1.5\n[axes]"),
            with("[tools]\nnvpmodle = \"/x\"\n[axes]"),
            with("[controls.c]\nverdict = \"pass\"\ncel = {}\n[axes]"),
            with("[[cell]]\nbatch = 0\n[axes]"),
            with("[factors]\n\"a b\" = \"x\"\n[axes]"),
        ]
    ));
}

#[test]
fn several_mistakes_are_reported_at_once_and_in_order() {
    let text = "[matrix]\nname = \"m\"\ntrials = 0\n[workload]\nkind = \"linear4bit\"\nsetle = \"1s\"\n[shapes]\nA = [64, 0]\n\
                [baseline]\nsequence = \"AQ\"\nstorage = \"bf61\"\n[axes]\nbatch = []\nquant = [\"fp4\", \"fp4\"]\n";
    shown!(complaint(text, &[]));
}

#[test]
fn a_mistake_on_the_command_line_is_shown_on_the_command_line() {
    let set = |argument: &str| vec![Override::set(argument).unwrap()];
    let all = [
        complaint(LAYERS, &set("baseline.start=coold")),
        complaint(LAYERS, &set("baseline.strat=cold")),
        complaint(LAYERS, &set("matrix.name.x=1")),
        complaint(LAYERS, &set("axes.batch=[2, 0]")),
        complaint(LAYERS, &[Override::trials(0)]),
    ];
    shown!(all.join("\n\n"));
}

#[test]
fn bytes_that_are_no_text_and_files_that_are_no_matrix_are_refused() {
    let mut bytes = LAYERS.as_bytes().to_vec();
    bytes[20] = 0xff;
    let not_text = parse_bytes(&bytes, "m.toml", &[]).unwrap_err().to_string();
    let large = parse(&"#".repeat(MATRIX_BYTES_MAX + 1), "m.toml", &[]).unwrap_err().to_string();
    let empty = parse("", "m.toml", &[]).unwrap_err().to_string();
    shown!([not_text, large, empty].join("\n\n"));
}

#[test]
fn a_control_character_of_a_file_does_not_reach_the_terminal() {
    let text = LAYERS.replacen("batch = [2]", "storage = [\"\\u001b[31m\u{9b}\"]", 1);
    assert!(complaint(&text, &[]).chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn set_and_trials_change_the_matrix_and_its_digest() {
    let plain = valid(LAYERS);
    let set = [
        Override::set("baseline.start=cold").unwrap(),
        Override::set("workload.settle=1s").unwrap(),
        Override::trials(7),
    ];
    let matrix = parse(LAYERS, "m.toml", &set).unwrap();
    let settings = matrix.baseline().finish();
    assert_eq!((settings.start, matrix.trials.clone()), (Start::Cold, TrialsRule::Fixed(7)));
    assert_eq!(settings.watch.settle.map(|settle| settle.ms()), Some(1000));
    assert_eq!(matrix.overrides, ["--set baseline.start=cold", "--set workload.settle=1s", "--trials 7"]);
    assert_ne!(matrix.digest, plain.digest);
    assert_eq!(valid(&format!("# a comment\n{LAYERS}\n# another\n")).digest, plain.digest);
}

#[test]
fn a_baseline_from_the_command_line_does_not_make_the_file_wrong() {
    let text = include_str!("../../../matrices/bnb-1936.toml");
    for (argument, axis, levels) in [
        ("baseline.start=any", "start", 1),
        ("baseline.start=warm", "start", 0),
        ("baseline.batch=2", "batch", 1),
        ("baseline.warmup=256x256", "warmup", 0),
        ("baseline.hygiene=each", "hygiene", 2),
        ("axes.sequence=[\"CCC\"]", "sequence", 1),
        ("axes.batch=[4]", "batch", 1),
    ] {
        let matrix = parse(text, "bnb-1936.toml", &[Override::set(argument).unwrap()]);
        let matrix = matrix.unwrap_or_else(|error| panic!("{argument}: {error}"));
        assert_eq!(matrix.axis(axis).map_or(0, |axis| axis.levels.len()), levels, "{argument}");
    }
}

#[test]
fn a_byte_order_mark_and_carriage_returns_change_nothing() {
    let text = format!("\u{feff}{}", LAYERS.replace('\n', "\r\n"));
    assert_eq!(valid(&text).digest, valid(LAYERS).digest);
    assert!(complaint(&text.replace("[2]", "[0]"), &[]).contains("m.toml:16:10"));
}

#[test]
fn a_list_valued_level_spreads_and_a_variable_is_filled() {
    let matrix = changed(
        COMMAND,
        "dense = [\"fp16\"]",
        "dense = [\"fp16\"]\nextra = [[\"-x\", \"{trial.dir}\"], \"\", [\"-y\"]]",
    );
    assert_eq!(
        argv(&matrix.baseline().finish()),
        ["/data/venv/bin/python", "{matrix.dir}/repro.py", "--dense", "nvfp4-qdq"]
    );
    assert_eq!(argv(&level(&matrix, "extra", "-x {trial.dir}"))[4..], ["-x", "{trial.dir}"]);
    assert_eq!(argv(&level(&matrix, "dense", "fp16"))[3], "fp16");
}

#[test]
fn an_environment_axis_sets_unsets_appends_and_removes() {
    let axes = "[axes.lunowud]\nenv = \"__LUNOWUD\"\nappend = [\"-mlir:autotune:num_threads=1\", \"-mlir:collective:fp4=off\"]\nunset = true\n\
                [axes.env]\nMALLOC_ARENA_MAX = [{ set = \"1\" }, { unset = true }, \"2\"]\nFLAGS = [{ remove = \"-a\" }]\n\
                MORE = { set = [\"1\", \"2\"], append = \"x\", unset = true }\n[axes]";
    let text = LAYERS.replacen("[axes]", axes, 1).replacen("batch = [2]\n", "", 1);
    let text = text.replacen("[axes]\n", "[baseline.env]\nFLAGS = \"-a -b\"\n", 1);
    let matrix = valid(&text);
    let env = |axis: &str, label: &str, name: &str| level(&matrix, axis, label).env[name].clone();
    let flag = Template::literal("-mlir:collective:fp4=off");
    assert_eq!(env("lunowud", "+-mlir:collective:fp4=off", "__LUNOWUD"), [EnvOp::Append(flag)]);
    assert_eq!(env("env.MALLOC_ARENA_MAX", "unset", "MALLOC_ARENA_MAX"), [EnvOp::Unset]);
    assert_eq!(env("env.MALLOC_ARENA_MAX", "2", "MALLOC_ARENA_MAX"), [EnvOp::Set(Template::literal("2"))]);
    let ops = env("env.FLAGS", "--a", "FLAGS");
    assert_eq!(ops, [EnvOp::Set(Template::literal("-a -b")), EnvOp::Remove(Template::literal("-a"))]);
    assert_eq!(matrix.axis("env.FLAGS").unwrap().baseline, "-a -b");
    assert_eq!(matrix.axis("env.MORE").unwrap().labels().collect::<Vec<_>>(), ["kept", "1", "2", "+x", "unset"]);
}

#[test]
fn one_level_may_move_several_variables() {
    let matrix = changed(
        COMMAND,
        "dense = [\"fp16\"]",
        "[axes.size]\nlevels = [{ dense = \"fp16\", cpus = \"0\", env = { X = \"1\" } }, { dense = \"auto\" }]\nlabels = [\"small\", \"large\"]",
    );
    let small = level(&matrix, "size", "small");
    assert_eq!((argv(&small)[3].as_str(), small.cpus.to_string().as_str(), small.env.len()), ("fp16", "0", 1));
    assert_eq!(matrix.axis("size").unwrap().baseline, "dense=nvfp4-qdq,cpus=all,env.X=kept");
}

#[test]
fn every_axis_of_the_tool_can_be_varied() {
    let levels = [
        (Knob::Allocator, "\"vmm\""),
        (Knob::Aslr, "\"off\""),
        (Knob::Ballast, "\"1GiB\""),
        (Knob::Batch, "4"),
        (Knob::Blocksize, "128"),
        (Knob::Breadcrumbs, "\"sync\""),
        (Knob::Check, "\"each\""),
        (Knob::Clocks, "\"gpu:612MHz\""),
        (Knob::Code, "\"ptx\""),
        (Knob::ColdFrom, "\"power\""),
        (Knob::Companion, "{ argv = [\"stress\", \"-c1\"], when = \"before\" }"),
        (Knob::Compute, "\"fp32\""),
        (Knob::Cpus, "0"),
        (Knob::DoubleQuant, "false"),
        (Knob::DropCaches, "true"),
        (Knob::Gap, "\"700ms\""),
        (Knob::Gc, "\"after:A\""),
        (Knob::GpuPm, "\"on\""),
        (Knob::Head, "\"B\""),
        (Knob::Hygiene, "\"after:A,B\""),
        (Knob::HygieneSteps, "[\"drop\", \"gc\"]"),
        (Knob::Identity, "\"0.49.2\""),
        (Knob::Init, "\"device\""),
        (Knob::InitThreads, "1"),
        (Knob::Input, "\"fp16\""),
        (Knob::Iterations, "5"),
        (Knob::JitCache, "\"fresh\""),
        (Knob::Kernels, "\"none\""),
        (Knob::Layers, "32"),
        (Knob::Limits, "\"nofile=64\""),
        (Knob::MemoryMax, "\"2G\""),
        (Knob::ModuleLoading, "\"eager\""),
        (Knob::Observer, "\"gdb\""),
        (Knob::Passage, "\"cast\""),
        (Knob::PowerMode, "2"),
        (Knob::PrefillCache, "\"2GB\""),
        (Knob::Prelude, "\"256x256\""),
        (Knob::Profile, "\"tiny\""),
        (Knob::Quant, "\"int4\""),
        (Knob::Sequence, "[\"B\", \"A\", \"B\"]"),
        (Knob::Start, "\"warm\""),
        (Knob::Storage, "\"fp32\""),
        (Knob::Stream, "\"own\""),
        (Knob::Swap, "\"disk\""),
        (Knob::Telemetry, "\"off\""),
        (Knob::Warmup, "\"256x256\""),
    ];
    assert_eq!(levels.map(|(knob, _)| knob), Knob::ALL, "an axis is missing here");
    let stack = LAYERS.replacen("linear4bit", "stack", 1);
    let baseline = valid(&stack).baseline().finish();
    for (knob, text) in levels {
        let matrix = changed(&stack, "batch = [2]", &format!("{knob} = [{text}]"));
        let axis = matrix.axis(knob.as_str()).unwrap();
        assert_ne!(level(&matrix, knob.as_str(), &axis.levels[0].label).cell_id(), baseline.cell_id(), "{knob}");
    }
}

#[test]
fn the_named_default_of_an_axis_is_its_default() {
    for knob in Knob::ALL.iter().filter(|knob| **knob != Knob::Sequence) {
        let label = knob.default_label();
        let text = if *knob == Knob::HygieneSteps {
            "[\"drop\", \"empty_cache\", \"sync\"]".to_owned()
        } else if label.parse::<u32>().is_ok() || label.parse::<bool>().is_ok() {
            label.to_owned()
        } else {
            format!("\"{label}\"")
        };
        let stack = LAYERS.replacen("linear4bit", "stack", 1);
        let said =
            changed(&stack, "sequence = \"AB\"", &format!("sequence = \"AB\"\n{knob} = {text}\n")).baseline().finish();
        assert_eq!(said, valid(&stack).baseline().finish(), "{knob}");
    }
}

#[test]
fn every_section_of_the_language_is_read() {
    let matrix = valid(include_str!("fixtures/everything.toml"));
    assert_eq!(matrix.revisions.as_ref().unwrap().good, "0.49.2");
    assert_eq!(matrix.bisect_use["dense"], "fp16");
    assert_eq!(matrix.nightly_subject, ["identity"]);
    assert_eq!((matrix.safety.max_boots, matrix.safety.expires.ms()), (Some(40), 86_400_000));
    assert_eq!((matrix.inject[0].fault, matrix.inject[0].at.as_deref()), (FaultName::Reset, Some("C.construct")));
    assert_eq!(matrix.board.unwrap().minutes_per_boot, 1.5);
    assert_eq!(matrix.tools[&Tool::Nvpmodel], "/opt/nvpmodel");
    assert_eq!(matrix.factors["supply"], "5V4A");
    assert_eq!((matrix.controls[0].verdict, matrix.controls[0].trials), (VerdictName::Pass, Some(1)));
    let settings = matrix.baseline().finish();
    assert_eq!(settings.watch.stages[0].name, "C.construct");
    shown!(serde_json::to_string_pretty(&settings).unwrap());
}

#[test]
fn the_model_of_a_board_fits_its_matrix() {
    let model = "[board]\nminutes_per_boot = 2\n[[inject]]\nfault = \"reset\"\nat = \"A.copy\"\nif = { batch = 2 }\n";
    let matrix = valid(LAYERS).with_model(model, "model.toml").unwrap();
    assert_eq!((matrix.inject.len(), matrix.board.map(|board| board.spurious_rate)), (1, Some(0.0)));
    let wrong = model.replace("batch = 2", "batch = 3").replace("[board]", "[bored]");
    shown!(valid(LAYERS).with_model(&wrong, "model.toml").unwrap_err().to_string());
}

#[test]
fn the_shipped_matrices_are_valid() {
    for (name, text) in [
        ("quickstart", include_str!("../../../matrices/quickstart.toml")),
        ("command", include_str!("../../../matrices/command.toml")),
        ("bnb-1936", include_str!("../../../matrices/bnb-1936.toml")),
        ("bnb-1936-small", include_str!("../../../matrices/bnb-1936-small.toml")),
        ("cold-start", include_str!("../../../matrices/cold-start.toml")),
        ("power-modes", include_str!("../../../matrices/power-modes.toml")),
        ("edge-llm-nvfp4", include_str!("../../../matrices/edge-llm-nvfp4.toml")),
        ("bnb-python", include_str!("../../../matrices/bnb-python.toml")),
        ("llama-moe-hang", include_str!("../../../matrices/llama-moe-hang.toml")),
        ("trt-v-tensor", include_str!("../../../matrices/trt-v-tensor.toml")),
        ("vllm-fifth-request", include_str!("../../../matrices/vllm-fifth-request.toml")),
        ("ollama-page-cache", include_str!("../../../matrices/ollama-page-cache.toml")),
        ("wheel-without-kernel", include_str!("../../../matrices/wheel-without-kernel.toml")),
        ("two-instances", include_str!("../../../matrices/two-instances.toml")),
        ("engine-without-file", include_str!("../../../matrices/engine-without-file.toml")),
        ("drill", include_str!("../../../matrices/drill.toml")),
    ] {
        assert_eq!(valid(text).name, name);
    }
}

#[test]
fn no_text_makes_the_reader_panic() {
    // Every prefix of a matrix, and every matrix with one character gone, is a matrix or a complaint.
    let text = include_str!("fixtures/everything.toml");
    let small: Vec<usize> = (0..text.len()).filter(|at| text.is_char_boundary(*at)).step_by(7).collect();
    for at in small {
        let shorter = &text[..at];
        let without: String = text.char_indices().filter(|(index, _)| *index != at).map(|(_, c)| c).collect();
        for text in [shorter, without.as_str()] {
            if let Err(error) = parse(text, "m.toml", &[]) {
                assert!(!error.problems().is_empty() && error.to_string().starts_with("error: "), "{error}");
            }
        }
    }
}
