//! What a board is to do on purpose: `[[inject]]`, and `[board]`, the simulated one of `rehearse`.

use super::axis::WorkloadKind;
use super::choices::Matcher;
use super::document::Node;
use super::levels::Levels;
use super::problem::{Problems, suggest};
use super::reader::{Reader, number, text, word};
use super::sections::each;
use crate::model::injection::START;
use crate::model::words::words;

words! {
    /// A fault that a trial commits on purpose.
    FaultName {
        /// The machine is reset at once (sysrq-b).
        Reset = "reset",
        /// The kernel panics (sysrq-c).
        Panic = "panic",
        /// The machine switches itself off (sysrq-o).
        Poweroff = "poweroff",
        /// The whole machine stops: every processor spins in the real-time class.
        Freeze = "freeze",
        /// The process sleeps for ever.
        Hang = "hang",
        /// The process spins for ever.
        Spin = "spin",
        /// SIGSEGV.
        Segv = "segv",
        /// SIGABRT.
        Abort = "abort",
        /// Memory is taken until the kernel kills.
        Oom = "oom",
        /// A non-zero exit.
        Exit = "exit",
        /// A wrong number.
        Wrong = "wrong",
        /// An error of the driver.
        CudaError = "cuda-error",
        /// A stage takes longer.
        Slow = "slow",
    }
}

/// A deliberate fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Inject {
    /// Which.
    pub fault: FaultName,
    /// The stage in which it happens; `None` is the first.
    pub at: Option<String>,
    /// In which part of the trials, 0 to 1.
    pub rate: f64,
    /// In which cells; a condition on `start` also asks for the state the trial really starts in.
    pub condition: Matcher,
}

/// The simulated board of `rehearse`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Board {
    /// Minutes that a boot takes.
    pub minutes_per_boot: f64,
    /// Minutes that a trial takes.
    pub minutes_per_trial: f64,
    /// Probability that a trial fails for another reason.
    pub spurious_rate: f64,
    /// Part of the boots in which the fault cannot happen at all.
    pub boot_lottery: f64,
    /// Change of every rate over the first 40 trials, as a part of it (-1 to 1); then it stays.
    pub drift: f64,
}

impl Default for Board {
    fn default() -> Self {
        Self { minutes_per_boot: 2.0, minutes_per_trial: 1.0, spurious_rate: 0.0, boot_lottery: 0.0, drift: 0.0 }
    }
}

/// The two sections of a model of a board: `[[inject]]` and `[board]`.
pub(super) fn model(root: &Node, levels: &Levels<'_>, problems: &mut Problems) -> Option<(Vec<Inject>, Option<Board>)> {
    let mut reader = Reader::new(root, "the model of a board", problems)?;
    let inject_node = reader.take("inject");
    let board_node = reader.take("board");
    reader.finish(problems);
    let faults = each(inject_node, |node| inject(node, levels, problems));
    Some((faults, board_node.and_then(|node| board(node, problems))))
}

pub(super) fn inject(node: &Node, levels: &Levels<'_>, problems: &mut Problems) -> Option<Inject> {
    let mut reader = Reader::new(node, "[[inject]]", problems)?;
    let fault = reader.require("fault", problems).and_then(|node| word(node, "fault", FaultName::WORDS, problems));
    let at = reader.take("at").map(|node| stage(node, levels, problems));
    let rate = reader.take("rate").map(|node| number(node, 0.0..=1.0, problems));
    let condition = reader.take("if").map(|node| levels.matcher(node, "a condition", problems));
    reader.finish(problems);
    Some(Inject {
        fault: fault?,
        at: match at {
            Some(at) => Some(at?),
            None => None,
        },
        rate: rate.unwrap_or(Some(1.0))?,
        condition: condition.unwrap_or_else(|| Some(Matcher::default()))?,
    })
}

/// The steps of one layer, in order.
const LAYER_STAGES: [&str; 9] =
    ["construct", "alloc", "copy", "quantize", "passage", "free_host", "forward", "sync", "hygiene"];

/// Every step of layers with these labels, and the check at the end.
fn steps_of(labels: impl Iterator<Item = String>) -> Vec<String> {
    let steps = labels.flat_map(|label| LAYER_STAGES.map(|step| format!("{label}.{step}")));
    steps.chain(std::iter::once("check".to_owned())).collect()
}

/// A stage of this workload, or the moment before it.
fn stage(node: &Node, levels: &Levels<'_>, problems: &mut Problems) -> Option<String> {
    let name = text(node, problems)?;
    let mut stages: Vec<String> = match levels.context.kind {
        WorkloadKind::Command => levels.draft.settings.watch.stages.iter().map(|stage| stage.name.clone()).collect(),
        WorkloadKind::Linear4bit => steps_of(levels.context.shapes.keys().cloned()),
        WorkloadKind::Stack => steps_of(levels.stack_labels().into_iter()),
    };
    stages.extend([START.to_owned(), "settle".to_owned()]);
    if !stages.iter().any(|stage| stage == name) {
        let stages: Vec<&str> = stages.iter().map(String::as_str).collect();
        problems.error(node.span, format!("`{name}` is not a stage of this workload")).hint(suggest(name, &stages));
        return None;
    }
    Some(name.to_owned())
}

pub(super) fn board(node: &Node, problems: &mut Problems) -> Option<Board> {
    let mut reader = Reader::new(node, "[board]", problems)?;
    let mut figure = |key, range, default| match reader.take(key) {
        Some(node) => number(node, range, problems),
        None => Some(default),
    };
    let usual = Board::default();
    let board = Board {
        minutes_per_boot: figure("minutes_per_boot", 0.0..=1440.0, usual.minutes_per_boot)?,
        minutes_per_trial: figure("minutes_per_trial", 0.0..=1440.0, usual.minutes_per_trial)?,
        spurious_rate: figure("spurious_rate", 0.0..=1.0, usual.spurious_rate)?,
        boot_lottery: figure("boot_lottery", 0.0..=1.0, usual.boot_lottery)?,
        drift: figure("drift", -1.0..=1.0, usual.drift)?,
    };
    reader.finish(problems);
    Some(board)
}
