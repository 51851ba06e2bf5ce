//! What one level of a knob looks like, where it is no plain word or number.

use super::super::document::{Node, Value};
use super::super::draft::Change;
use super::super::problem::Problems;
use super::super::reader::{Reader, argv, array, boolean, count, parsed, scalar, text, within, word};
use super::ITERATIONS_MAX;
use super::Knob;
use super::LAYERS_MAX;
use crate::model::quantity::{Bytes, Millis};
use crate::model::settings::*;

/// The axes that every workload has.
pub(super) fn machine_level(knob: Knob, node: &Node, problems: &mut Problems) -> Option<Change> {
    let what = knob.as_str();
    macro_rules! word {
        ($type:ty, $field:ident) => {{
            let value = word::<$type>(node, &format!("level of `{what}`"), <$type>::WORDS, problems)?;
            Change::settings(what, move |settings| settings.$field = value)
        }};
    }
    macro_rules! value {
        ($read:expr, $field:ident) => {{
            let value = $read?;
            Change::settings(what, move |settings| settings.$field = value.clone())
        }};
    }
    Some(match knob {
        Knob::Aslr => word!(Aslr, aslr),
        Knob::Ballast => value!(bytes(node, problems), ballast),
        Knob::Breadcrumbs => word!(Breadcrumbs, breadcrumbs),
        Knob::Clocks => value!(clocks(node, problems), clocks),
        Knob::Code => word!(Code, code),
        Knob::ColdFrom => word!(ColdFrom, cold_from),
        Knob::Companion => value!(or_none(node, |node| companion(node, problems)), companion),
        Knob::Cpus => value!(cpus(node, problems), cpus),
        Knob::DropCaches => value!(boolean(node, problems), drop_caches),
        Knob::Gap => value!(parsed::<Millis>(node, problems), gap),
        Knob::GpuPm => word!(GpuPm, gpu_pm),
        Knob::Identity => {
            value!(scalar(node, problems).map(|name| if name == "none" { String::new() } else { name }), identity)
        }
        Knob::Iterations => value!(within(node, 1..=ITERATIONS_MAX, problems), iterations),
        Knob::JitCache => word!(JitCache, jit_cache),
        Knob::Limits => value!(parsed::<ResourceLimits>(node, problems), limits),
        Knob::MemoryMax => value!(or_none(node, |node| bytes(node, problems)), memory_max),
        Knob::ModuleLoading => word!(ModuleLoading, module_loading),
        Knob::Observer => word!(Observer, observer),
        Knob::PowerMode => value!(scalar(node, problems).map(|mode| (mode != "kept").then_some(mode)), power_mode),
        Knob::PrefillCache => value!(bytes(node, problems), prefill_cache),
        Knob::Prelude => value!(or_none(node, |node| prelude(node, problems)), prelude),
        Knob::Start => word!(Start, start),
        Knob::Swap => word!(Swap, swap),
        Knob::Telemetry => word!(Telemetry, telemetry),
        Knob::Allocator
        | Knob::Batch
        | Knob::Blocksize
        | Knob::Check
        | Knob::Compute
        | Knob::DoubleQuant
        | Knob::Gc
        | Knob::Head
        | Knob::Hygiene
        | Knob::HygieneSteps
        | Knob::Init
        | Knob::InitThreads
        | Knob::Input
        | Knob::Kernels
        | Knob::Layers
        | Knob::Passage
        | Knob::Quant
        | Knob::Sequence
        | Knob::Storage
        | Knob::Stream
        | Knob::Profile
        | Knob::Warmup => return None,
    })
}

/// How often a block comes; `"all"` is as often as the profile says.
pub(super) fn layers(node: &Node, problems: &mut Problems) -> Option<Option<u32>> {
    or_word("all", node, |node| within(node, 1..=LAYERS_MAX, problems))
}

/// `"none"`, or what `read` makes of it.
pub(super) fn or_none<T>(node: &Node, read: impl FnOnce(&Node) -> Option<T>) -> Option<Option<T>> {
    or_word("none", node, read)
}

fn or_word<T>(word: &str, node: &Node, read: impl FnOnce(&Node) -> Option<T>) -> Option<Option<T>> {
    match &node.value {
        Value::String(text) if text == word => Some(None),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => read(node).map(Some),
    }
}

pub(super) fn batch(node: &Node, problems: &mut Problems) -> Option<Batch> {
    Batch::new(within(node, 1..=Batch::MAX, problems)?).ok()
}

pub(super) fn blocksize(node: &Node, problems: &mut Problems) -> Option<Blocksize> {
    let size = count(node, 0, problems)?;
    let blocksize = Blocksize::new(size).ok();
    if blocksize.is_none() {
        let what = if size.is_power_of_two() {
            format!("no kernel has blocks of {size}")
        } else {
            format!("blocksize {size} is not a power of two")
        };
        problems
            .error(node.span, what)
            .hint("the 4-bit kernels have blocks of 32, 64, 128, 256, 512, 1024, 2048 and 4096 weights");
    }
    blocksize
}

pub(super) fn steps(node: &Node, problems: &mut Problems) -> Option<Vec<HygieneStep>> {
    let nodes = array(node, "an array of clean-up steps", problems)?;
    let steps: Vec<HygieneStep> =
        nodes.iter().filter_map(|node| word(node, "clean-up step", HygieneStep::WORDS, problems)).collect();
    if nodes.is_empty() {
        problems.error(node.span, "a clean-up without steps").hint("to clean up nowhere, use hygiene = \"none\"");
    }
    (steps.len() == nodes.len() && !steps.is_empty()).then_some(steps)
}

/// A size; a bare integer is bytes.
fn bytes(node: &Node, problems: &mut Problems) -> Option<Bytes> {
    match node.value {
        Value::Integer(number) if number >= 0 => Some(Bytes::new(number.unsigned_abs())),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => parsed(node, problems),
    }
}

/// A list of CPUs; a bare integer is one CPU.
fn cpus(node: &Node, problems: &mut Problems) -> Option<Cpus> {
    let text = scalar(node, problems)?;
    text.parse()
        .map_err(|error: crate::model::quantity::QuantityError| problems.error(node.span, error.to_string()))
        .ok()
}

fn clocks(node: &Node, problems: &mut Problems) -> Option<Clocks> {
    let text = text(node, problems)?;
    let mhz = text.strip_prefix("gpu:").and_then(|rest| rest.strip_suffix("MHz")).and_then(|mhz| mhz.parse().ok());
    match (text, mhz) {
        ("kept", _) => Some(Clocks::Kept),
        ("max", _) => Some(Clocks::Max),
        (_, Some(mhz @ 1..=10_000)) => Some(Clocks::GpuMhz(mhz)),
        _ => {
            problems
                .error(node.span, format!("unknown level of `clocks` `{text}`"))
                .hint("expected `kept`, `max` or a cap of the GPU clock such as `gpu:612MHz`");
            None
        }
    }
}

fn prelude(node: &Node, problems: &mut Problems) -> Option<Prelude> {
    match &node.value {
        Value::Array(_) => argv(node, problems).map(Prelude::Command),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Table(_) => parsed(node, problems).map(Prelude::Forward),
    }
}

fn companion(node: &Node, problems: &mut Problems) -> Option<Companion> {
    let beside = |program| Companion { program, when: CompanionWhen::default() };
    match &node.value {
        Value::Array(_) => return argv(node, problems).map(CompanionProgram::Command).map(beside),
        Value::String(_) => return load(node, problems).map(beside),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => {}
    }
    let mut reader = Reader::new(node, "a companion", problems)?;
    let program = match reader.take("load") {
        Some(node) => load(node, problems),
        None => {
            let argv = reader.require("argv", problems).and_then(|node| argv(node, problems));
            argv.map(CompanionProgram::Command)
        }
    };
    let when = reader.take("when").map(|node| word(node, "moment", CompanionWhen::WORDS, problems));
    reader.finish(problems);
    Some(Companion { program: program?, when: when.unwrap_or(Some(CompanionWhen::default()))? })
}

fn load(node: &Node, problems: &mut Problems) -> Option<CompanionProgram> {
    word(node, "load", CompanionLoad::WORDS, problems).map(CompanionProgram::Load)
}
