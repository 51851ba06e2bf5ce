//! The JSON Schema of the matrix language, for editors and for `jetfault schema`.
//!
//! It is made of the same sets of words and limits that the reader uses, so a new level is in both. It is looser
//! than the reader where a schema cannot know (names of shapes, placeholders, what differs from the baseline).

use serde_json::{Map, Value, json};

use super::axis::{INIT_THREADS_MAX, ITERATIONS_MAX, Knob, LAYERS_MAX};
use super::{Design, FaultName, LEVELS_MAX, PLAN_TRIALS_MAX, Tool, VerdictName};
use crate::model::settings::*;

/// The schema of a matrix file (JSON Schema, draft 2020-12).
pub fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "jetfault matrix",
        "description": "A workload, a baseline and axes.",
        "type": "object",
        "required": ["matrix", "workload"],
        "additionalProperties": false,
        "properties": {
            "matrix": matrix(),
            "workload": workload(),
            "profiles": map("Layers of models by name, beside the shipped ones", profile()),
            "shapes": map("[in_features, out_features] by name", json!({
                "type": "array", "items": { "type": "integer", "minimum": 1 }, "minItems": 2, "maxItems": 2
            })),
            "vars": map("Values of placeholders.", json!(true)),
            "baseline": baseline(),
            "axes": axes(),
            "exclude": { "type": "array", "items": { "type": "object" }, "description": "Combinations that are never run." },
            "cell": { "type": "array", "items": { "type": "object" }, "description": "Cells by themselves; an empty one is the baseline." },
            "expect": { "type": "array", "description": "What cells are expected to end as; other ends are told.", "items": object("What is expected of cells.", &["verdict"], &[
                ("cell", told("The cell, by its levels.", json!({ "type": "object" }))),
                ("verdict", words("The verdict.", VerdictName::WORDS)),
            ]) },
            "controls": map("Cells whose failure makes others undecided.", control()),
            "factors": map("Label-only factors.", json!(true)),
            "revisions": revisions(),
            "bisect": object("How bisection flips axes.", &[], &[("use", told("The level to which each axis flips.", json!({ "type": "object" })))]),
            "nightly": object("Comparison with earlier nights.", &[], &[("subject", strings("Factors left out of the history key."))]),
            "safety": object("Limits of what a run may do to a board.", &[], &[
                ("max_boots", told("The most boots of the run; twice what the plan needs and ten, if nothing is said.", integer(1, None))),
                ("max_unexpected_per_hour", told("More boots in an hour that no trial explains stop the run; 6 if nothing is said.", integer(1, None))),
                ("expires", told("A run that takes longer stops; 7d if nothing is said.", duration())),
            ]),
            "inject": { "type": "array", "description": "Deliberate faults.", "items": object("A deliberate fault.", &["fault"], &[
                ("fault", words("What is done.", FaultName::WORDS)),
                ("at", text("The stage, such as C.forward.")),
                ("rate", told("In which share of the trials; 1 if nothing is said.", json!({ "type": "number", "minimum": 0, "maximum": 1 }))),
                ("if", told("Only in cells with these levels.", json!({ "type": "object" }))),
            ]) },
            "board": object("The simulated board of `rehearse`.", &[], &[
                ("minutes_per_boot", told("What a boot takes.", json!({ "type": "number", "minimum": 0 }))),
                ("minutes_per_trial", told("What a trial takes.", json!({ "type": "number", "minimum": 0 }))),
                ("spurious_rate", told("How often a trial faults whatever its cell.", json!({ "type": "number", "minimum": 0, "maximum": 1 }))),
                ("boot_lottery", told("The share of boots in which no trial faults.", json!({ "type": "number", "minimum": 0, "maximum": 1 }))),
                ("drift", told("By how much the rates change from the first trial to the last.", json!({ "type": "number", "minimum": -1, "maximum": 1 }))),
            ]),
            "tools": { "type": "object", "description": "Programs that take the place of the machine's.", "additionalProperties": false, "properties":
                Tool::WORDS.iter().map(|tool| ((*tool).to_owned(), text("A path."))).collect::<Map<_, _>>() },
        }
    })
}

fn matrix() -> Value {
    let trials = json!({ "anyOf": [integer(1, Some(PLAN_TRIALS_MAX)), { "const": "until-decided" }] });
    object(
        "Name, design and number of trials.",
        &["name", "trials"],
        &[
            ("name", text("Runs are called NAME-001.")),
            ("about", text("What it is for.")),
            ("design", words("One axis at a time, all combinations, or only the `[[cell]]`s.", Design::WORDS)),
            ("trials", told("Trials of each cell.", trials)),
            (
                "decide",
                object(
                    "What is decided.",
                    &[],
                    &[
                        ("compare", text("An axis of two arms.")),
                        (
                            "max",
                            told(
                                "The most trials of a cell, or pairs of two arms; 40 if nothing is said.",
                                integer(1, None),
                            ),
                        ),
                    ],
                ),
            ),
            ("seed", told("What the order of trials is drawn from.", integer(0, None))),
        ],
    )
}

fn profile() -> Value {
    let side = || integer(1, Some(u64::from(Shape::FEATURES_MAX)));
    let layer = object(
        "A layer.",
        &["name", "in", "out"],
        &[("name", text("Its name in stages.")), ("in", told("Inputs.", side())), ("out", told("Outputs.", side()))],
    );
    let layers = || json!({ "type": "array", "items": layer.clone() });
    object(
        "The linear layers of a model.",
        &["block"],
        &[
            ("about", text("What it is.")),
            ("source", text("Where the sizes are from.")),
            ("layers", told("How often the block comes.", integer(1, Some(u64::from(LAYERS_MAX))))),
            ("block", told("The layers of a block, in their order.", layers())),
            ("head", told("The layers after the last block.", layers())),
        ],
    )
}

fn workload() -> Value {
    let stage = object(
        "A stage of a command.",
        &["name", "regex"],
        &[("name", text("Its name.")), ("regex", text("A line of the output that begins it."))],
    );
    let mut keys = vec![
        (
            "kind",
            words(
                "Layers one by one, the layers of a model in a chain, or a program.",
                &["linear4bit", "stack", "command"],
            ),
        ),
        ("backend", words("Where the layers are computed; auto is cuda where there is a GPU.", Backend::WORDS)),
        ("timeout", told("A trial that takes longer hangs; 10m if nothing is said, 1h for a command.", limit())),
        ("stage_timeout", told("A stage that takes longer hangs; 2m if nothing is said, off for a command.", limit())),
        ("silence_timeout", told("A command that is silent for longer hangs; off if nothing is said.", limit())),
        ("prepare_timeout", told("The most that `prepare` may take; 1h if nothing is said.", limit())),
        ("ready_timeout", told("The most that a server may take until it is ready.", limit())),
        ("request_timeout", told("The most that a request may take.", limit())),
        ("settle", told("How long the machine is watched after a trial before its verdict.", duration())),
        ("env", told("Changes of the environment, in every cell.", json!({ "type": "object" }))),
        ("keep", words("When the artifacts of a trial are kept.", Keep::WORDS)),
        ("stages", told("Where a fault is placed, in their order.", json!({ "type": "array", "items": stage }))),
        ("metrics", map("Patterns with one group.", json!({ "type": "string" }))),
    ];
    keys.extend(command());
    object("What runs.", &["kind"], &keys)
}

/// The keys that a command workload and a control share.
fn command() -> Vec<(&'static str, Value)> {
    let exit_codes = json!({ "type": "array", "items": integer(0, Some(255)), "minItems": 1 });
    let any_number = |about: &str| json!({ "type": "number", "description": about });
    let range = object(
        "Where a metric must lie.",
        &[],
        &[
            ("min", any_number("At least.")),
            ("max", any_number("At most.")),
            ("is", any_number("This, within `within`.")),
            ("within", any_number("How far from `is` it may be; 0 if nothing is said.")),
        ],
    );
    let oracle = object(
        "What the output must and must not say.",
        &[],
        &[
            ("contains", text("A text.")),
            ("lacks", text("A text.")),
            ("regex", text("A pattern.")),
            ("numbers", map("Ranges of metrics.", range)),
        ],
    );
    vec![
        ("argv", strings("The program and its arguments; no shell.")),
        ("artifacts", strings("Files that must exist after exit 0.")),
        ("cwd", text("Where it runs.")),
        ("exit_codes", told("Exit codes that pass; 0 if nothing is said.", exit_codes)),
        ("expect_output", oracle),
        ("loads", strings("Libraries that must be mapped from these paths.")),
        (
            "output",
            words("What it writes to: pipes, or a terminal, which many programs flush at once.", OutputKind::WORDS),
        ),
        ("prepare", strings("What makes {prepared.dir}, once for all trials that ask for the same.")),
        ("server", server()),
    ]
}

fn server() -> Value {
    let ready = object(
        "When it is ready.",
        &[],
        &[
            ("port", told("A port of this machine that it listens on.", integer(1, Some(65535)))),
            ("regex", text("A line of its output.")),
        ],
    );
    let requests = json!({ "type": "array", "items": strings("A program and its arguments."), "minItems": 1 });
    object(
        "A program that serves until it is asked to end.",
        &["ready", "requests"],
        &[
            ("ready", ready),
            ("requests", told("Programs that are run one after the other once it is ready.", requests)),
        ],
    )
}

fn control() -> Value {
    let mut keys = vec![
        ("needs", text("The label of the cell whose artifacts it works with.")),
        ("cell", told("The cell, by its levels.", json!({ "type": "object" }))),
        ("env", told("Changes of the environment.", json!({ "type": "object" }))),
        ("verdict", words("The verdict.", VerdictName::WORDS)),
        ("shows", text("What it shows.")),
        ("trials", told("Its trials; as many as of a cell, if nothing is said.", integer(1, None))),
        ("timeout", told("A control that takes longer hangs.", limit())),
    ];
    keys.extend(command());
    object("A control.", &[], &keys)
}

fn revisions() -> Value {
    object(
        "The revisions to bisect.",
        &["repo", "good", "bad"],
        &[
            ("repo", text("The checkout; it is never touched.")),
            ("good", text("A revision without the fault.")),
            ("bad", text("A revision with the fault.")),
            ("first_parent", told("Whether only first parents are searched.", json!({ "type": "boolean" }))),
            ("prepare", strings("Builds a revision.")),
            ("prepare_timeout", told("The most that `prepare` may take; 1h if nothing is said.", limit())),
            ("skip", strings("Revisions known not to build.")),
        ],
    )
}

fn baseline() -> Value {
    let levels = Knob::ALL.iter().map(|knob| (knob.to_string(), level(*knob)));
    let mut properties: Map<String, Value> = levels.collect();
    properties.insert("env".to_owned(), map("Changes of the environment.", env_op()));
    // A command workload has names of its own here.
    json!({ "type": "object", "description": "A level for every axis.", "properties": properties })
}

fn axes() -> Value {
    let array = |level: Value| json!({ "type": "array", "items": level, "minItems": 1, "maxItems": LEVELS_MAX });
    let levels = Knob::ALL.iter().map(|knob| {
        let level = level(*knob);
        let about = level["description"].clone();
        let table =
            json!({ "type": "object", "required": ["levels"], "properties": { "levels": array(level.clone()) } });
        (knob.to_string(), json!({ "description": about, "anyOf": [array(level), table] }))
    });
    let mut properties: Map<String, Value> = levels.collect();
    properties.insert(
        "env".to_owned(),
        map(
            "Axes over one variable of the environment each.",
            json!({ "anyOf": [array(env_op()), { "type": "object" }] }),
        ),
    );
    let own = object(
        "An axis that moves several variables, or one variable of the environment.",
        &[],
        &[
            ("levels", array(json!(true))),
            ("labels", json!({ "type": "array" })),
            ("env", text("A variable of the environment.")),
            ("set", strings("Values.")),
            ("append", strings("Flags.")),
            ("remove", strings("Flags.")),
            ("unset", json!({ "type": "boolean" })),
        ],
    );
    json!({
        "type": "object",
        "description": "Further levels; the baseline's own is never repeated.",
        "properties": properties,
        "additionalProperties": { "anyOf": [array(json!(true)), own] },
    })
}

/// The schema of one level of an axis of the tool, with a description.
fn level(knob: Knob) -> Value {
    let number = |about: &str, least: u32, most: u32| json!({ "description": about, "type": "integer", "minimum": least, "maximum": most });
    let truth = |about: &str| json!({ "description": about, "type": "boolean" });
    let any = |about: &str| json!({ "description": about });
    match knob {
        Knob::Allocator => words("How device memory is requested.", AllocatorKind::WORDS),
        Knob::Aslr => {
            words("Addresses of the trial's memory: as the system does it, or the same in every process.", Aslr::WORDS)
        }
        Knob::Ballast => any("Host memory held by another process, such as \"1GiB\"."),
        Knob::Batch => number("Rows of the input.", 1, Batch::MAX),
        Knob::Blocksize => number("Weights per absmax; a power of two.", Blocksize::ALLOWED[0], Blocksize::ALLOWED[7]),
        Knob::Breadcrumbs => words("How far a stage record is awaited.", Breadcrumbs::WORDS),
        Knob::Check => words("When results are compared.", Check::WORDS),
        Knob::Clocks => any("\"kept\", \"max\" or \"gpu:612MHz\"."),
        Knob::Code => words("Machine code that the driver may use.", Code::WORDS),
        Knob::ColdFrom => words("How the boot of a cold trial comes about.", ColdFrom::WORDS),
        Knob::Companion => any("\"none\", \"gpu-load\", a command, or { argv = […] or load = \"gpu-load\", \
             when = \"before\" | \"beside\" | \"after\" }."),
        Knob::Compute => words("Type of the product.", FloatType::WORDS),
        Knob::Cpus => any("\"all\", or CPUs such as \"0-3,5\"."),
        Knob::DoubleQuant => truth("Whether the absmax values are quantised."),
        Knob::DropCaches => truth("Whether clean page cache is dropped before the trial."),
        Knob::Gap => any("Idle time between iterations."),
        Knob::Gc => any("\"never\", \"each\" or \"after:A,B\": when dropped layers really die."),
        Knob::GpuPm => words("Runtime power management of the GPU.", GpuPm::WORDS),
        Knob::Head => any("Layers after the last block of a stack."),
        Knob::Hygiene => any("\"none\", \"each\" or \"after:A,B\": where memory is cleaned up."),
        Knob::HygieneSteps => any("What a clean-up does: drop, empty_cache, sync, gc."),
        Knob::Identity => any("Which executable or library is under test."),
        Knob::Init => words("Where weights are made.", Init::WORDS),
        Knob::InitThreads => number("Threads that make weights; 0 is one per CPU.", 0, INIT_THREADS_MAX),
        Knob::Input => words("Type of the activations.", FloatType::WORDS),
        Knob::Iterations => number("Repetitions inside a trial.", 1, ITERATIONS_MAX),
        Knob::JitCache => words("The driver's JIT cache.", JitCache::WORDS),
        Knob::Kernels => words("Whose kernels run; none: allocations and copies only.", KernelSet::WORDS),
        Knob::Layers => any("How often the block of a stack comes; \"all\" is as often as its profile says."),
        Knob::Limits => any("Limits of resources such as \"nofile=64 core=unlimited\", or \"kept\"."),
        Knob::MemoryMax => any("Limit of the trial's cgroup, such as \"4G\", or \"none\"."),
        Knob::ModuleLoading => words("When the driver loads kernels.", ModuleLoading::WORDS),
        Knob::Observer => words("What watches the process.", Observer::WORDS),
        Knob::Passage => words("What packed weights go through before they are used.", Passage::WORDS),
        Knob::PowerMode => any("An nvpmodel name or id; \"kept\" leaves it alone."),
        Knob::PrefillCache => any("Page cache filled with files first, such as \"2GB\"."),
        Knob::Prelude => any("\"none\", \"256x256\" or a command: what runs in an earlier process of the boot."),
        Knob::Profile => any("The model whose layers a stack has: a shipped profile, or one of `[profiles]`."),
        Knob::Quant => words("The 4-bit format.", QuantType::WORDS),
        Knob::Sequence => any("The layers: one letter each, or a list of names of shapes."),
        Knob::Start => words("The start state.", Start::WORDS),
        Knob::Storage => words("Type that packed bytes are stored as.", Storage::WORDS),
        Knob::Stream => words("Stream that the framework works on.", StreamKind::WORDS),
        Knob::Swap => words("Swap.", Swap::WORDS),
        Knob::Telemetry => words("Sampling while the trial runs.", Telemetry::WORDS),
        Knob::Warmup => any("\"none\" or \"256x256\": one small layer first, in the same process."),
    }
}

fn env_op() -> Value {
    json!({ "anyOf": [
        { "type": ["string", "number", "boolean"] },
        { "type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false, "properties": {
            "set": {}, "append": {}, "remove": {}, "unset": { "const": true }
        } },
    ] })
}

fn object(about: &str, required: &[&str], keys: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    json!({
        "type": "object",
        "description": about,
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

fn words(about: &str, words: &[&str]) -> Value {
    json!({ "description": about, "enum": words })
}

fn map(about: &str, value: Value) -> Value {
    json!({ "type": "object", "description": about, "additionalProperties": value })
}

fn strings(about: &str) -> Value {
    json!({ "type": "array", "description": about, "items": { "type": ["string", "number", "boolean"] } })
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn integer(least: u64, most: Option<u64>) -> Value {
    match most {
        Some(most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        None => json!({ "type": "integer", "minimum": least }),
    }
}

/// `value` with words of its own.
fn told(about: &str, mut value: Value) -> Value {
    value["description"] = about.into();
    value
}

/// Such as "500ms", "10s", "2m", "1h", "7d".
fn duration() -> Value {
    json!({ "type": "string", "pattern": "^[0-9.]+ *(ms|s|m|h|d)$" })
}

/// A duration, or "off".
fn limit() -> Value {
    json!({ "type": "string", "pattern": "^(off|[0-9.]+ *(ms|s|m|h|d))$" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key of `value` is allowed by `schema`; enough of a validator to notice a key that only the reader knows.
    fn check(path: &str, value: &toml::Value, schema: &Value) {
        if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
            let kind = if value.is_table() { "object" } else { "array" };
            let fitting = any.iter().find(|schema| schema["type"] == kind).unwrap_or(&Value::Null);
            return check(path, value, fitting);
        }
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    let path = format!("{path}.{key}");
                    let known = schema.get("properties").and_then(|properties| properties.get(key));
                    let other = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
                    assert!(known.is_some() || *other != Value::Bool(false), "{path} is not in the schema");
                    check(&path, value, known.unwrap_or(other));
                }
            }
            toml::Value::Array(values) => {
                for value in values {
                    check(path, value, schema.get("items").unwrap_or(&Value::Null));
                }
            }
            leaf => {
                let words = schema.get("enum").and_then(Value::as_array);
                let shown = leaf.as_str().unwrap_or_default();
                assert!(words.is_none_or(|words| words.iter().any(|word| word == shown)), "{path} = {leaf}");
            }
        }
    }

    #[test]
    fn the_schema_has_every_key_that_the_matrices_use() {
        for text in [
            include_str!("fixtures/everything.toml"),
            include_str!("../../../matrices/quickstart.toml"),
            include_str!("../../../matrices/command.toml"),
            include_str!("../../../matrices/bnb-1936.toml"),
            include_str!("../../../matrices/bnb-1936-small.toml"),
            include_str!("../../../matrices/cold-start.toml"),
            include_str!("../../../matrices/power-modes.toml"),
            include_str!("../../../matrices/edge-llm-nvfp4.toml"),
            include_str!("../../../matrices/bnb-python.toml"),
            include_str!("../../../matrices/llama-moe-hang.toml"),
            include_str!("../../../matrices/trt-v-tensor.toml"),
            include_str!("../../../matrices/vllm-fifth-request.toml"),
            include_str!("../../../matrices/ollama-page-cache.toml"),
            include_str!("../../../matrices/wheel-without-kernel.toml"),
            include_str!("../../../matrices/two-instances.toml"),
            include_str!("../../../matrices/engine-without-file.toml"),
            include_str!("../../../matrices/drill.toml"),
        ] {
            check("", &toml::from_str::<toml::Value>(text).unwrap(), &json_schema());
        }
    }
}
