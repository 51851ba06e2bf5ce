//! What no single level can show: settings that cannot be run, or that do not mean what they seem to.
//!
//! Pure rules over one cell's settings. Where a finding is shown is decided by whoever knows the cell's levels.

use super::axis::Knob;
use super::problem::Severity;
use crate::model::settings::{
    Batch, Blocksize, Check, CommandSettings, Gc, Hygiene, KernelSet, Layer, Linear4bitSettings, Metric, QuantType,
    Settings, WorkloadSettings,
};
use crate::model::template::RunTimeHole;

/// The group of NVFP4: one E4M3 scale for 16 weights of a row.
const NVFP4_GROUP: u64 = 16;
/// The group of MXFP4: one E8M0 scale for 32 weights of a row.
const MXFP4_GROUP: u64 = 32;
/// The most layers of a stack, blocks and head together.
const STACK_LAYERS_MAX: usize = 16_384;

/// Something about a cell that is wrong or surprising.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether it can be run all the same.
    pub severity: Severity,
    /// What it is.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// The axes that bring it about, the likeliest first.
    pub blame: Vec<Knob>,
    /// The shape it is about.
    pub shape: Option<String>,
}

/// Everything to be said about `settings`.
pub fn examine(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if settings.gap.ms() > 0 && settings.iterations == 1 {
        findings.push(impossible(
            format!("a gap of {} between the iterations of a trial that has one", settings.gap),
            "set `iterations` to 2 or more, or exclude the combination",
            &[Knob::Gap, Knob::Iterations],
        ));
    }
    if let Some(patience) = settings.watch.stage_timeout.millis()
        && settings.gap >= patience
    {
        findings.push(impossible(
            format!("a gap of {} would be taken for a hang: `stage_timeout` is {patience}", settings.gap),
            "set `stage_timeout` to more than the gap",
            &[Knob::Gap],
        ));
    }
    match &settings.workload {
        WorkloadSettings::Linear4bit(linear4bit) => layers(linear4bit, &[], &mut findings),
        WorkloadSettings::Stack(stack) => {
            layers(&stack.block, &stack.head, &mut findings);
            residents(&stack.block, settings.iterations, &mut findings);
            let repeats = usize::try_from(stack.layers).unwrap_or(usize::MAX);
            let total = stack.block.sequence.len().saturating_mul(repeats).saturating_add(stack.head.len());
            if total > STACK_LAYERS_MAX {
                findings.push(impossible(
                    format!("{total} layers are more than {STACK_LAYERS_MAX}"),
                    "repeat the block less often",
                    &[Knob::Layers, Knob::Sequence],
                ));
            }
        }
        WorkloadSettings::Command(workload) => {
            if settings.iterations > 1 && workload.server.is_some() {
                findings.push(impossible(
                    format!(
                        "{} iterations of a server, which is started once for all its requests",
                        settings.iterations
                    ),
                    "repeat the requests under `server`, or run more trials",
                    &[Knob::Iterations],
                ));
            }
            command(workload, &settings.watch.metrics, &mut findings);
        }
    }
    findings
}

/// What has no meaning where all layers stay.
fn residents(settings: &Linear4bitSettings, iterations: u32, findings: &mut Vec<Finding>) {
    let drops = [(settings.hygiene != Hygiene::None, Knob::Hygiene), (settings.gc != Gc::Never, Knob::Gc)];
    for (_, knob) in drops.into_iter().filter(|(is_set, _)| *is_set) {
        findings.push(impossible(
            format!("`{knob}` with a stack, which drops no layer before its end"),
            "leave it out, or use kind = \"linear4bit\"",
            &[knob],
        ));
    }
    if iterations > 1 {
        findings.push(impossible(
            format!("{iterations} iterations of a stack: a second model would be built beside the first"),
            "run more trials instead",
            &[Knob::Iterations],
        ));
    }
}

/// Placeholders that nothing fills.
fn command(settings: &CommandSettings, metrics: &[Metric], findings: &mut Vec<Finding>) {
    let has = |hole| settings.templates().any(|text| text.run_time_holes().any(|other| other == hole));
    let prepares = |hole| settings.prepare.iter().any(|text| text.run_time_holes().any(|other| other == hole));
    let mut check = |is_wrong: bool, message: &str, hint: &str| {
        if is_wrong {
            findings.push(impossible(message.to_owned(), hint, &[]));
        }
    };
    check(
        settings.prepare.is_empty() && has(RunTimeHole::PreparedDir),
        "`{prepared.dir}` is a directory that nothing makes",
        "say under `prepare` which command does",
    );
    check(
        settings.needs.is_none() && has(RunTimeHole::NeedsDir),
        "`{needs.dir}` is the directory of a trial of no cell",
        "only a control has it: say under `needs` which cell it works with",
    );
    check(
        [RunTimeHole::TrialDir, RunTimeHole::NeedsDir].into_iter().any(prepares),
        "what `prepare` makes is for many trials, and has no directory of one",
        "use `{prepared.dir}`",
    );
    let unread = settings.expect_output.numbers.keys();
    for name in unread.filter(|name| !metrics.iter().any(|metric| metric.name == **name)) {
        let hint = "say under `metrics` by which pattern it is found";
        findings.push(impossible(format!("no metric is called `{name}`"), hint, &[]));
    }
}

fn layers(settings: &Linear4bitSettings, head: &[Layer], findings: &mut Vec<Finding>) {
    if settings.sequence.is_empty() {
        findings.push(impossible("a cell without layers".to_owned(), "give it a `sequence`", &[Knob::Sequence]));
    }
    let has = |label: &str| settings.sequence.iter().chain(head).any(|layer| layer.label == label);
    for label in settings.hygiene.labels().filter(|label| !has(label)) {
        findings.push(impossible(
            format!("hygiene after `{label}` never happens: the sequence has no `{label}`"),
            "exclude the combination, or clean up after a layer that is there",
            &[Knob::Hygiene, Knob::Sequence],
        ));
    }
    for label in settings.gc.labels().filter(|label| !has(label)) {
        findings.push(impossible(
            format!("gc after `{label}` never happens: the sequence has no `{label}`"),
            "exclude the combination, or collect after a layer that is there",
            &[Knob::Gc, Knob::Sequence],
        ));
    }
    if settings.kernels == KernelSet::None && settings.check == Check::Each {
        findings.push(impossible(
            "results compared after each layer, with kernels = \"none\" that compute none".to_owned(),
            "leave `check` at `end`",
            &[Knob::Kernels, Knob::Check],
        ));
    }
    let has_own_scales = settings.quant == QuantType::Nvfp4;
    if has_own_scales && (!settings.double_quant || settings.blocksize != Blocksize::DEFAULT) {
        findings.push(Finding {
            severity: Severity::Warning,
            ..impossible(
                "`blocksize` and `double_quant` change nothing with nvfp4, which has groups and scales of its own"
                    .to_owned(),
                "exclude the combination: its cells would be repeats of one another",
                &[Knob::Quant, Knob::DoubleQuant, Knob::Blocksize],
            )
        });
    }
    let mut seen: Vec<&str> = Vec::new();
    for layer in settings.sequence.iter().chain(head) {
        if !seen.contains(&layer.label.as_str()) {
            seen.push(&layer.label);
            divisibility(settings, layer, findings);
        }
    }
}

/// What the kernels and the packed tensor need of a layer's sides.
fn divisibility(settings: &Linear4bitSettings, layer: &Layer, findings: &mut Vec<Finding>) {
    let Layer { label, shape } = layer;
    let in_features = shape.in_features();
    let group = match settings.quant {
        QuantType::Nf4 | QuantType::Fp4 => None,
        QuantType::Nvfp4 => Some(NVFP4_GROUP),
        QuantType::Mxfp4 => Some(MXFP4_GROUP),
        QuantType::Int4 => Some(settings.blocksize.weights()),
    };
    match group {
        Some(group) if !in_features.is_multiple_of(group) => findings.push(Finding {
            shape: Some(label.clone()),
            ..impossible(
                format!(
                    "in_features {in_features} of `{label}` is not a multiple of {group}, the group of {}",
                    settings.quant
                ),
                "a group of weights with one scale lies in one row",
                &[Knob::Quant, Knob::Blocksize],
            )
        }),
        // The fused kernel of bitsandbytes 0.46 to 0.49 needs whole blocks per row and falls back with a warning.
        None if settings.batch == Batch::ONE && !in_features.is_multiple_of(settings.blocksize.weights()) => findings
            .push(Finding {
                severity: Severity::Warning,
                shape: Some(label.clone()),
                ..impossible(
                    format!(
                        "in_features {in_features} of `{label}` is not a multiple of blocksize {}",
                        settings.blocksize
                    ),
                    "one row then takes the path of many rows: the weight is dequantised as a whole, with its memory",
                    &[Knob::Blocksize, Knob::Batch],
                )
            }),
        Some(_) | None => {}
    }
    let per_element = 2 * settings.storage.bytes();
    if !shape.weights().is_multiple_of(per_element) {
        findings.push(Finding {
            shape: Some(label.clone()),
            ..impossible(
                format!(
                    "`{label}` has {in_features} x {} weights, not a multiple of {per_element}: \
                     packed bytes would not fill {} elements",
                    shape.out_features(),
                    settings.storage
                ),
                "the packed tensor would be cut short while the kernel writes all of it; choose a smaller storage or other sides",
                &[Knob::Storage],
            )
        });
    }
}

fn impossible(message: String, hint: &str, blame: &[Knob]) -> Finding {
    Finding { severity: Severity::Error, message, hint: hint.to_owned(), blame: blame.to_vec(), shape: None }
}
