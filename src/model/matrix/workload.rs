//! The `[workload]` section: what runs, its deadlines, and how a command's output is read.

use std::collections::BTreeMap;

use super::axis::WorkloadKind;
use super::document::Node;
use super::env::env_ops;
use super::problem::{Problems, suggest};
use super::reader::{
    Reader, argv, array, integer, named, number, parsed, pattern, template, templates, text, within, word,
};
use crate::model::quantity::{Finite, Limit, Millis};
use crate::model::settings::{
    Backend, CommandSettings, EnvOp, Keep, Linear4bitSettings, Metric, NumberRange, OutputKind, OutputOracle,
    REQUESTS_MAX, Ready, Server, StackSettings, StagePattern, Watch, WorkloadSettings,
};

/// Whole-trial deadline of the 4-bit workloads: the seed's slowest trial takes a tenth of it.
const LAYERS_TIMEOUT: Limit = Limit::After(Millis::from_secs(600));
/// A stage of a 4-bit workload that takes longer hangs: the slowest known, making a 0.5 GB layer, takes 20 s.
const LAYERS_STAGE_TIMEOUT: Limit = Limit::After(Millis::from_secs(120));
/// Whole-trial deadline of a command: engine builds take tens of minutes.
const COMMAND_TIMEOUT: Limit = Limit::After(Millis::from_secs(3600));
/// Silence of a command is not a hang: compilers are silent for minutes.
const COMMAND_STAGE_TIMEOUT: Limit = Limit::Off;

/// The workload as written, before the baseline.
pub(super) struct Workload {
    pub(super) settings: WorkloadSettings,
    pub(super) watch: Watch,
    pub(super) env: Vec<(String, EnvOp, String)>,
}

const KINDS: &[&str] = &["linear4bit", "stack", "command"];

/// Which kind of workload it is; everything else depends on it.
pub(super) fn kind(node: &Node, problems: &mut Problems) -> Option<WorkloadKind> {
    let mut reader = Reader::new(node, "[workload]", problems)?;
    let node = reader.require("kind", problems)?;
    match text(node, problems)? {
        "linear4bit" => Some(WorkloadKind::Linear4bit),
        "stack" => Some(WorkloadKind::Stack),
        "command" => Some(WorkloadKind::Command),
        other => {
            problems.error(node.span, format!("unknown workload `{other}`")).hint(suggest(other, KINDS));
            None
        }
    }
}

/// Reads the section.
pub(super) fn read(node: &Node, kind: WorkloadKind, problems: &mut Problems) -> Option<Workload> {
    let mut reader = Reader::new(node, "[workload]", problems)?;
    let _known = reader.take("kind");
    let (timeout, stage_timeout) = match kind {
        WorkloadKind::Linear4bit | WorkloadKind::Stack => (LAYERS_TIMEOUT, LAYERS_STAGE_TIMEOUT),
        WorkloadKind::Command => (COMMAND_TIMEOUT, COMMAND_STAGE_TIMEOUT),
    };
    let mut watch = Watch {
        timeout: reader.take("timeout").and_then(|node| parsed(node, problems)).unwrap_or(timeout),
        stage_timeout: reader.take("stage_timeout").and_then(|node| parsed(node, problems)).unwrap_or(stage_timeout),
        settle: reader.take("settle").and_then(|node| parsed(node, problems)),
        ..Watch::default()
    };
    let env = reader.take("env").map(|node| env_ops(node, "[workload] env", problems)).unwrap_or_default();
    let settings = match kind {
        WorkloadKind::Linear4bit => WorkloadSettings::Linear4bit(layers(&mut reader, problems)),
        WorkloadKind::Stack => {
            let block = layers(&mut reader, problems);
            WorkloadSettings::Stack(StackSettings { block, head: Vec::new(), layers: 1 })
        }
        WorkloadKind::Command => {
            if reader.require("argv", problems).is_none() {
                problems
                    .error(node.span, "a command workload needs a command")
                    .hint("add argv = [\"program\", \"argument\"]");
            }
            observed(&mut reader, &mut watch, problems);
            WorkloadSettings::Command(command(&mut reader, CommandSettings::default(), problems))
        }
    };
    reader.finish(problems);
    Some(Workload { settings, watch, env })
}

fn layers(reader: &mut Reader<'_>, problems: &mut Problems) -> Linear4bitSettings {
    let backend = reader.take("backend").and_then(|node| word(node, "backend", Backend::WORDS, problems));
    Linear4bitSettings { backend: backend.unwrap_or_default(), ..Linear4bitSettings::of(Vec::new()) }
}

/// The keys of a command, over `base`: a control inherits what it does not say.
pub(super) fn command(reader: &mut Reader<'_>, base: CommandSettings, problems: &mut Problems) -> CommandSettings {
    CommandSettings {
        argv: reader.take("argv").and_then(|node| argv(node, problems)).unwrap_or(base.argv),
        artifacts: reader.take("artifacts").and_then(|node| templates(node, problems)).unwrap_or(base.artifacts),
        cwd: reader.take("cwd").and_then(|node| template(node, problems)).or(base.cwd),
        exit_codes: reader.take("exit_codes").and_then(|node| exit_codes(node, problems)).unwrap_or(base.exit_codes),
        expect_output: reader
            .take("expect_output")
            .and_then(|node| oracle(node, problems))
            .unwrap_or(base.expect_output),
        loads: reader.take("loads").and_then(|node| templates(node, problems)).unwrap_or(base.loads),
        output: reader
            .take("output")
            .and_then(|node| word(node, "value of `output`", OutputKind::WORDS, problems))
            .unwrap_or(base.output),
        prepare: reader.take("prepare").and_then(|node| argv(node, problems)).unwrap_or(base.prepare),
        server: reader.take("server").and_then(|node| server(node, problems)).or(base.server),
        needs: base.needs,
    }
}

/// The codes that are a success; 0 alone is what an absent list means, so that both are the same cell.
fn exit_codes(node: &Node, problems: &mut Problems) -> Option<Vec<i32>> {
    let nodes = array(node, "an array of exit codes", problems)?;
    if nodes.is_empty() {
        problems.error(node.span, "no exit code is a success").hint("leave `exit_codes` out for 0 alone");
    }
    let code = |node| integer(node, 0..=255, problems).and_then(|code| i32::try_from(code).ok());
    let mut codes: Vec<i32> = nodes.iter().filter_map(code).collect();
    codes.sort_unstable();
    codes.dedup();
    Some(if codes == [0] { Vec::new() } else { codes })
}

/// `{ ready = { port = 8000 }, requests = [["curl", "…"]] }`.
fn server(node: &Node, problems: &mut Problems) -> Option<Server> {
    let mut reader = Reader::new(node, "server", problems)?;
    let ready = reader.require("ready", problems).and_then(|node| ready(node, problems));
    let nodes = reader.require("requests", problems).and_then(|node| array(node, "an array of commands", problems));
    reader.finish(problems);
    let nodes = nodes?;
    if nodes.is_empty() || nodes.len() > REQUESTS_MAX {
        problems
            .error(node.span, format!("a server with {} requests", nodes.len()))
            .hint(format!("expected 1 to {REQUESTS_MAX} commands; more of the same go into one script"));
    }
    let requests = nodes.iter().filter_map(|node| argv(node, problems)).collect();
    Some(Server { ready: ready?, requests })
}

fn ready(node: &Node, problems: &mut Problems) -> Option<Ready> {
    let mut reader = Reader::new(node, "ready", problems)?;
    let port = reader.take("port").and_then(|node| within(node, 1..=65535, problems));
    let regex = reader.take("regex").and_then(|node| pattern(node, 0, problems));
    reader.finish(problems);
    match (port.and_then(|port| u16::try_from(port).ok()), regex) {
        (Some(port), None) => Some(Ready::Port(port)),
        (None, Some(regex)) => Some(Ready::Regex(regex)),
        (None, None) | (Some(_), Some(_)) => {
            problems.error(node.span, "a server is ready in one way").hint("expected `port = 8000` or `regex = '…'`");
            None
        }
    }
}

/// How the output of a command is read.
fn observed(reader: &mut Reader<'_>, watch: &mut Watch, problems: &mut Problems) {
    watch.keep =
        reader.take("keep").and_then(|node| word(node, "value of `keep`", Keep::WORDS, problems)).unwrap_or_default();
    let mut limit = |key| reader.take(key).and_then(|node| parsed(node, problems));
    watch.prepare_timeout = limit("prepare_timeout");
    watch.ready_timeout = limit("ready_timeout").unwrap_or_default();
    watch.request_timeout = limit("request_timeout").unwrap_or_default();
    watch.silence_timeout = limit("silence_timeout").unwrap_or_default();
    watch.stages = reader.take("stages").map(|node| stages(node, problems)).unwrap_or_default();
    watch.metrics = reader.take("metrics").map(|node| metrics(node, problems)).unwrap_or_default();
}

fn oracle(node: &Node, problems: &mut Problems) -> Option<OutputOracle> {
    let mut reader = Reader::new(node, "expect_output", problems)?;
    let mut words = |key| reader.take(key).and_then(|node| text(node, problems)).map(str::to_owned);
    let (contains, lacks) = (words("contains"), words("lacks"));
    let numbers = reader.take("numbers").map(|node| numbers(node, problems)).unwrap_or_default();
    let regex = reader.take("regex").and_then(|node| pattern(node, 0, problems));
    reader.finish(problems);
    let oracle = OutputOracle { contains, lacks, numbers, regex };
    if oracle == OutputOracle::default() && !problems.has_errors() {
        problems
            .error(node.span, "expect_output expects nothing")
            .hint("add `contains`, `lacks`, `regex` or `numbers`");
    }
    Some(oracle)
}

/// `{ cos = { min = 0.99 }, sum = { is = 12.5, within = 0.1 } }`.
fn numbers(node: &Node, problems: &mut Problems) -> BTreeMap<String, NumberRange> {
    let mut numbers = BTreeMap::new();
    for entry in named(node, "numbers", problems) {
        let Some(mut reader) = Reader::new(&entry.node, "a range of numbers", problems) else { continue };
        let mut read = |key| reader.take(key).and_then(|node| number(node, f64::MIN..=f64::MAX, problems));
        let (min, max, is, within) = (read("min"), read("max"), read("is"), read("within"));
        reader.finish(problems);
        let (min, max) = match (min, max, is, within) {
            (None, None, Some(is), within) => {
                let within = within.unwrap_or(0.0).abs();
                (Some(is - within), Some(is + within))
            }
            (min, max, None, None) if min.is_some() || max.is_some() => (min, max),
            _ => {
                problems
                    .error(entry.node.span, format!("the range of `{}` is not one", entry.key))
                    .hint("expected `min`, `max` or both, or `is` with `within`");
                continue;
            }
        };
        if min > max && max.is_some() {
            problems.error(entry.node.span, format!("no number lies in the range of `{}`", entry.key));
        }
        let end = |end: Option<f64>| end.and_then(Finite::new);
        numbers.insert(entry.key.clone(), NumberRange { max: end(max), min: end(min) });
    }
    numbers
}

fn stages(node: &Node, problems: &mut Problems) -> Vec<StagePattern> {
    let Some(nodes) = array(node, "an array of `{ name = …, regex = … }`", problems) else { return Vec::new() };
    let mut stages: Vec<StagePattern> = Vec::new();
    for node in nodes {
        let Some(mut reader) = Reader::new(node, "a stage", problems) else { continue };
        let name = reader.require("name", problems).and_then(|node| text(node, problems));
        let regex = reader.require("regex", problems).and_then(|node| pattern(node, 0, problems));
        reader.finish(problems);
        let (Some(name), Some(regex)) = (name, regex) else { continue };
        if stages.iter().any(|stage| stage.name == name) {
            problems.error(node.span, format!("stage `{name}` is there twice"));
        }
        stages.push(StagePattern { name: name.to_owned(), regex });
    }
    stages
}

fn metrics(node: &Node, problems: &mut Problems) -> Vec<Metric> {
    let entries = named(node, "metrics", problems);
    let metrics = entries.iter().filter_map(|entry| {
        let regex = pattern(&entry.node, 1, problems)?;
        Some(Metric { name: entry.key.clone(), regex })
    });
    metrics.collect()
}
