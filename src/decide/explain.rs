//! Why a trial got its verdict: the facts observed, the row of the table that they meet, and what was missing.
//!
//! Owns the words for facts, which the tables keep as enums. It judges nothing itself: the row is looked up by the
//! label in the record, and where this build's tables would give another row, that is said.

mod boots;

pub use boots::BootEvidence;

use serde::{Deserialize, Serialize};

use crate::decide::agenda::Agenda;
use crate::decide::classify::{
    self, Ended, Ending, Fitness, GpuSign, OUTCOME_RULES, Oom, OutcomeFacts, Promise, Word, classify, signal_name,
};
use crate::decide::infer::{BOOT_RULES, boot_rule};
use crate::decide::plan::Plan;
use crate::decide::result::{ResultFold, TrialResult};
use crate::decide::run::{IllegalEvent, RunState};
use crate::model::evidence::Fact;
use crate::model::ids::{BootId, TrialId};
use crate::model::journal::{Event, Record};
use crate::model::observed::Observed;
use crate::model::outcome::{EndedBy, Exit, LastReply, Outcome};
use crate::model::verdict::{Counted, Judgement, Provenance};

/// Name and version of the format of an explanation.
pub const EXPLAIN_SCHEMA: &str = "jetfault.explain/1";

/// The chain from evidence to verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// [`EXPLAIN_SCHEMA`].
    pub schema: String,
    /// The trial.
    pub trial: TrialId,
    /// The label of its cell; absent if the plan does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Where its numbers come from; absent if it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// The boot whose end it did not live to see; absent if it did, or never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
    /// What was observed, in words.
    pub observed: Vec<Seen>,
    /// The facts that decide the row, in the order of the table's columns.
    pub facts: Vec<Seen>,
    /// The row.
    pub rule: RuleApplied,
    /// The verdict and what stands beside it.
    pub judgement: Judgement,
    /// How it enters the rate.
    pub counted: Counted,
    /// Evidence that was missing, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What would have led to another verdict or cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_decide: Vec<WouldDecide>,
    /// If this build's tables give another row for the same facts: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
}

impl Explanation {
    /// The explanation as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("an explanation has string keys and finite numbers");
        json.push(b'\n');
        json
    }

    /// Adds what was seen of the end of its boot and came when no verdict could be given any more.
    pub fn add_late(&mut self, outside: &Observed) {
        boots::from_outside(outside, &mut self.observed);
        self.observed.push(seen("seen too late", "the run was over: it changes no verdict"));
    }
}

/// One thing seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// What.
    pub what: String,
    /// How it was.
    pub how: String,
}

/// Which table a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleTable {
    /// Facts of an outcome, observed in the same boot.
    Outcome,
    /// Facts across a boot.
    Boot,
    /// The next step: the trial was never started.
    Step,
    /// A public report, of which the trial is a transcription.
    Told,
    /// None of this build's.
    Unknown,
}

/// The row that gave the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleApplied {
    /// Its table.
    pub table: RuleTable,
    /// Its label, as recorded.
    pub label: String,
    /// Why it gives what it gives.
    pub because: String,
}

/// What would have led elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WouldDecide {
    /// What would have had to be known.
    pub known: String,
    /// What the trial would then have been called.
    pub then: String,
    /// By which row, where it is one of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Reads a journal up to the verdict on one trial, and explains it.
#[derive(Debug)]
pub struct ExplainFold<'a> {
    plan: &'a Plan,
    agenda: &'a Agenda,
    trial: TrialId,
    state: RunState,
    results: ResultFold,
}

impl<'a> ExplainFold<'a> {
    /// A reader that waits for the verdict on `trial`.
    pub fn new(plan: &'a Plan, agenda: &'a Agenda, trial: TrialId) -> Self {
        Self { plan, agenda, trial, state: RunState::new(agenda), results: ResultFold::default() }
    }

    /// Takes note of `record`; gives the explanation if it is the verdict.
    ///
    /// # Errors
    /// If the record cannot follow what came before.
    pub fn apply(&mut self, record: &Record) -> Result<Option<Explanation>, IllegalEvent> {
        let is_verdict = matches!(&record.event, Event::Judged(judged) if judged.trial == self.trial);
        let evidence = if is_verdict { BootEvidence::of(&self.state, self.agenda) } else { None };
        self.state.apply(self.agenda, record)?;
        let result = self.results.apply(record).filter(|_| is_verdict);
        Ok(result.map(|result| explain(&result, self.plan, evidence.as_ref())))
    }

    /// Where the run stands: whether the trial is open, or was never due.
    pub fn state(&self) -> &RunState {
        &self.state
    }
}

/// Explains the verdict of `result`. `evidence` is what was known then of a trial that was not seen to end; without
/// it the facts of the row cannot be shown, only the row.
pub fn explain(result: &TrialResult, plan: &Plan, evidence: Option<&BootEvidence>) -> Explanation {
    let cell = plan.cell(&result.trial.cell);
    let judgement = result.judgement.clone();
    // Boots and positions of a transcription are made up, and nothing was seen.
    let is_told = rule_applied(&result.rule).table == RuleTable::Told;
    let evidence = evidence.filter(|_| !is_told);
    let (facts, own_rule, would_decide) = match (&result.outcome, evidence) {
        (Some(outcome), _) => {
            let (_, rule) = classify(outcome);
            (
                outcome_facts(&classify::facts_of(outcome)),
                Some(rule.label),
                Vec::from_iter(without_a_table(&result.rule)),
            )
        }
        (None, Some(evidence)) => {
            let facts = evidence.facts();
            let mut would = evidence.would_decide();
            would.extend(without_a_table(&result.rule));
            (boots::words(&facts), Some(boot_rule(&facts).label), would)
        }
        (None, None) => (Vec::new(), None, Vec::from_iter(without_a_table(&result.rule))),
    };
    Explanation {
        schema: EXPLAIN_SCHEMA.to_owned(),
        trial: result.trial.clone(),
        label: cell.map(|cell| cell.label.clone()),
        provenance: result.started.as_ref().map(|started| started.started.provenance),
        boot: result.started.as_ref().filter(|_| result.outcome.is_none()).map(|started| started.boot.clone()),
        observed: if is_told { told(result) } else { observed(result, evidence) },
        facts,
        rule: rule_applied(&result.rule),
        counted: judgement.verdict.counted(),
        missing: judgement.missing.clone(),
        judgement,
        would_decide,
        disagreement: own_rule.filter(|label| *label != result.rule).map(str::to_owned),
    }
}

/// The rules of the next step, which has no table of facts.
const STEP_RULES: [(&str, &str); 2] = [
    ("cannot-run-here", "this machine or build cannot do what the cell asks for, so it was not started"),
    ("needs-a-boot", "it needs a boot of its own, and the command line does not allow reboots"),
];

/// The rule called `label`, wherever it stands.
pub(super) fn rule_applied(label: &str) -> RuleApplied {
    let outcome = OUTCOME_RULES.iter().find(|rule| rule.label == label).map(|rule| (RuleTable::Outcome, rule.because));
    let boot = || BOOT_RULES.iter().find(|rule| rule.label == label).map(|rule| (RuleTable::Boot, rule.because));
    let step = || STEP_RULES.iter().find(|rule| rule.0 == label).map(|rule| (RuleTable::Step, rule.1));
    let told =
        || (label == "transcribed").then_some((RuleTable::Told, "a public report says so; nothing was measured"));
    let unknown = (RuleTable::Unknown, "this build has no rule of that name: another version wrote it");
    let (table, because) = outcome.or_else(boot).or_else(step).or_else(told).unwrap_or(unknown);
    RuleApplied { table, label: label.to_owned(), because: because.to_owned() }
}

/// Why the rule called `label` gives what it gives.
pub fn rule_because(label: &str) -> String {
    rule_applied(label).because
}

fn seen(what: &str, how: impl Into<String>) -> Seen {
    Seen { what: what.to_owned(), how: how.into() }
}

/// What a public report tells of the start of a trial.
fn told(result: &TrialResult) -> Vec<Seen> {
    let start = result.started.as_ref().and_then(|start| start.started.conditions.start.as_ref());
    start.iter().flat_map(|start| &start.because).map(|words| seen("start state", words.as_str())).collect()
}

fn observed(result: &TrialResult, evidence: Option<&BootEvidence>) -> Vec<Seen> {
    let mut observed = Vec::new();
    match &result.started {
        None => observed.push(seen("start", "it was never started")),
        Some(start) => {
            observed.push(seen("started in boot", start.boot.as_str()));
            let before = match start.started.position {
                0 => "first of this run in that boot".to_owned(),
                n => format!("after {n} of this run in that boot"),
            };
            observed.push(seen("position", before));
            let child = if result.running { "known to run" } else { "not known to run" };
            observed.push(seen("child", child));
        }
    }
    observed.push(seen("judged in boot", result.judged_in.as_str()));
    if let Some(old) = result.corrects {
        observed.push(seen("verdict before", format!("{old}, until it was known what was seen from outside")));
    }
    if let Some(stage) = &result.judgement.stage {
        let unrecorded = match result.judgement.unrecorded_ms {
            Some(ms) => format!("{stage} or later, up to {ms} ms unrecorded"),
            None => stage.to_string(),
        };
        observed.push(seen("last stage", unrecorded));
    }
    match (&result.outcome, evidence) {
        (Some(outcome), _) => of_outcome(outcome, &mut observed),
        (None, Some(evidence)) => boots::observed(evidence, &mut observed),
        (None, None) => {}
    }
    observed
}

fn of_outcome(outcome: &Outcome, observed: &mut Vec<Seen>) {
    let exit = match &outcome.exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal { number, core } => {
            let core = if *core { ", core dumped" } else { "" };
            format!("{} ({number}){core}", signal_name(*number))
        }
        Exit::Unkillable => "none: it survived SIGKILL".to_owned(),
        Exit::NotStarted(reason) => format!("none: it never ran, {reason}"),
    };
    observed.push(seen("exit", exit));
    if let Some(ended_by) = outcome.ended_by {
        observed.push(seen("ended by the harness", ended_by_words(ended_by)));
    }
    if let Some(reply) = outcome.last_reply {
        observed.push(seen("last word", reply_words(reply)));
    }
    if let Some(error) = &outcome.protocol_error {
        observed.push(seen("protocol", error.as_str()));
    }
    if let Some(failure) = &outcome.failure {
        let call = failure.call.as_deref().map(|call| format!("{call}: ")).unwrap_or_default();
        observed.push(seen("failure", format!("{call}{}", failure.text)));
    }
    if let Some(mismatch) = &outcome.mismatch {
        let text = format!("{}[{}]: {}, expected {}", mismatch.what, mismatch.index, mismatch.got, mismatch.expected);
        observed.push(seen("wrong result", text));
    }
    observed.extend(outcome.artifacts_missing.iter().map(|path| seen("artifact missing", path.as_str())));
    observed.extend(outcome.unmet.iter().map(|unmet| seen("output", unmet.as_str())));
    if let Some(text) = &outcome.error_text {
        observed.push(seen("first error text", text.as_str()));
    }
    observed.push(seen("duration", format!("{} ms", outcome.duration_ms)));
    observed.extend(outcome.notes.iter().map(|(name, words)| seen(name, words.as_str())));
    of_machine(outcome, observed);
}

/// What the machine said of the trial, beside the child.
fn of_machine(outcome: &Outcome, observed: &mut Vec<Seen>) {
    if outcome.suspended_ms > 0 {
        observed.push(seen("slept", format!("{} ms", outcome.suspended_ms)));
    }
    match &outcome.kernel {
        Fact::Absent => {}
        Fact::Known(found) if found.is_empty() => observed.push(seen("kernel", "it said nothing that matters")),
        Fact::Known(found) => observed.extend(found.iter().map(|found| seen("kernel", found.finding.text.as_str()))),
        Fact::Denied(why) | Fact::Garbled(why) => observed.push(seen("kernel", format!("not readable: {why}"))),
    }
    if let Fact::Known(kills @ 1..) = outcome.oom_kills {
        observed.push(seen("killed for memory", format!("{kills} processes of the machine")));
    }
    if let Some(crash) = &outcome.crash {
        let threads = std::iter::once(&crash.thread).chain(&crash.others);
        for thread in threads {
            let frames: Vec<String> = thread.frames.iter().map(ToString::to_string).collect();
            let what = if std::ptr::eq(thread, &crash.thread) { "crashed thread" } else { "threads" };
            observed.push(seen(what, format!("{} {} at {}", thread.count, thread.name, frames.join(" ← "))));
        }
    }
    if let Some(hang) = &outcome.hang {
        let words = format!("{}, {} ms of processor time in {} ms", hang.kind, hang.cpu_ms, hang.apart_ms);
        observed.push(seen("hang", words));
        for threads in &hang.threads {
            let place = if threads.wchan.is_empty() { String::new() } else { format!(" in {}", threads.wchan) };
            observed.push(seen("threads", format!("{} {} {}{place}", threads.count, threads.name, threads.state)));
            if !threads.kernel_stack.is_empty() {
                observed.push(seen("in the kernel", threads.kernel_stack.join(" ← ")));
            }
        }
        if let Some(why) = &hang.kernel_stacks_denied {
            observed.push(seen("in the kernel", format!("its stacks are not readable: {why}")));
        }
    }
    if let Fact::Known(events) = &outcome.memory_events {
        let counted = format!("{} times at its limit, {} processes killed", events.oom, events.oom_kill);
        observed.push(seen("control group", counted));
    }
}

fn ended_by_words(ended_by: EndedBy) -> &'static str {
    match ended_by {
        EndedBy::Timeout => "the whole trial took longer than its timeout",
        EndedBy::StageTimeout => "no change of stage within the stage timeout",
        EndedBy::SilenceTimeout => "no output within the silence timeout",
        EndedBy::Served => "nothing more was to be asked of it",
        EndedBy::Stop => "a person asked it to stop",
        EndedBy::Protocol => "the child broke the protocol",
        EndedBy::Companion => "its companion failed",
        EndedBy::Library => "nobody: it ended by itself, without the library that it must load",
    }
}

fn reply_words(reply: LastReply) -> &'static str {
    match reply {
        LastReply::Silence => "none",
        LastReply::Running => "at work",
        LastReply::Done => "done",
        LastReply::Failed => "failed",
    }
}

fn outcome_facts(facts: &OutcomeFacts) -> Vec<Seen> {
    let ended = match facts.ended {
        Ended::Itself => "by itself",
        Ended::Deadline => "by the harness: a deadline",
        Ended::Stop => "by the harness: a person asked",
        Ended::Protocol => "by the harness: broken protocol",
        Ended::Companion => "by the harness: its companion failed",
        Ended::OtherLibrary => "by itself, without the library that it must load",
    };
    let ending = match facts.ending {
        Ending::Zero => "exit code 0",
        Ending::NonZero => "an exit code that is not 0",
        Ending::Fatal => "a fatal signal",
        Ending::Kill => "SIGKILL",
        Ending::Asked => "a signal by which others ask",
        Ending::OtherSignal => "another signal",
        Ending::Unkillable => "survived SIGKILL",
        Ending::NotStarted => "never ran",
    };
    let word = match facts.word {
        Word::Command => "a command, which has none",
        Word::Silence => "none",
        Word::Running => "at work",
        Word::Done => "done",
        Word::FailedCuda => "failed: driver or runtime",
        Word::FailedOom => "failed: device memory",
        Word::FailedUnsupported => "failed: not possible here",
        Word::FailedOther => "failed",
    };
    let promise = match facts.promise {
        Promise::Kept => "kept",
        Promise::ArtifactMissing => "an artifact is missing",
        Promise::ResultWrong => "a result is wrong",
    };
    let oom = match facts.oom {
        Oom::Trial => "a process of the trial",
        Oom::Bystander => "another process",
        Oom::Nobody => "nobody, as far as is known",
    };
    let gpu = match facts.gpu {
        GpuSign::Dead => "it did not start",
        GpuSign::Fault => "a fault",
        GpuSign::Denied => "the user may not use it",
        GpuSign::NoMemory => "no memory to be had",
        GpuSign::Error => "a CUDA error in the output",
        GpuSign::Quiet => "nothing",
    };
    let fitness = match facts.fitness {
        Fitness::Fit => "fit, as far as is known",
        Fitness::Suspended => "it slept in between",
        Fitness::Undervolted => "its supply sagged",
    };
    let mut seen_facts = vec![seen("ended", ended), seen("its end", ending)];
    // A command has no conversation with the harness.
    if facts.word != Word::Command {
        seen_facts.push(seen("last word", word));
    }
    seen_facts.extend([
        seen("what it promised", promise),
        seen("out-of-memory killer took", oom),
        seen("said of the GPU", gpu),
        seen("machine", fitness),
    ]);
    seen_facts
}

/// What would have led elsewhere for rows whose question no fact of the table answers.
fn without_a_table(label: &str) -> Option<WouldDecide> {
    let (known, then) = match label {
        "sigkill" => ("a record of the out-of-memory killer, the kernel's or the trial's cgroup's", "oom-kill"),
        "same-boot" => ("how the child ended, which the harness did not live to see", "a verdict on the outcome"),
        "before-hello" | "silent-deadline" => ("the worker's first word", "a verdict on the workload"),
        "interrupted" | "asked-to-end" => ("its own end", "a verdict on the outcome"),
        "needs-a-boot" => ("`--allow-reboot`", "a trial"),
        _ => return None,
    };
    Some(WouldDecide { known: known.to_owned(), then: then.to_owned(), rule: None })
}
