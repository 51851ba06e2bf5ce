//! What the machine said of the first fault of each kind.

use crate::decide::compare::signature_words;
use crate::decide::explain::rule_because;
use crate::decide::result::TrialResult;
use crate::model::evidence::{EndSign, Fact, Findings, Shutdown};
use crate::model::ids::TrialId;
use crate::model::observed::Observed;
use crate::model::outcome::Outcome;

/// The most kinds of faults of which something is shown.
const EXCERPTS_MAX: usize = 8;

/// The most lines of one source.
const LINES_MAX: usize = 6;

/// One line and who said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Who.
    pub source: &'static str,
    /// What.
    pub text: String,
}

/// What the machine said of one fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Excerpt {
    /// The run, as an index.
    pub run: usize,
    /// The trial.
    pub trial: TrialId,
    /// What was tried.
    pub label: String,
    /// What makes the fault the same as another, without its stage.
    pub signature: String,
    /// The verdict in words: its cause, its stage.
    pub verdict: String,
    /// The rule that gave it, and why.
    pub rule: String,
    /// What was said.
    pub lines: Vec<Line>,
    /// What was not there to be read, and would have said more.
    pub missing: Vec<String>,
}

/// Excerpts in the making.
#[derive(Debug, Default)]
pub(super) struct Fold {
    found: Vec<Excerpt>,
}

impl Fold {
    /// Takes note of a fault; `findings` is what the next boot says of one that was not seen to end, and `outside` what
    /// desks saw of it.
    pub(super) fn add(
        &mut self,
        run: usize,
        label: &str,
        result: &TrialResult,
        findings: Option<&Findings>,
        outside: &[Observed],
    ) {
        let signature = signature_words(&result.judgement);
        let is_known = |known: &Excerpt| known.signature == signature && known.label == label;
        if self.found.len() >= EXCERPTS_MAX || self.found.iter().any(is_known) {
            return;
        }
        let judgement = &result.judgement;
        let mut verdict = judgement.verdict.to_string();
        if let Some(cause) = judgement.cause {
            verdict += &format!(", cause {}", cause.as_str());
        }
        if let Some(stage) = &judgement.stage {
            verdict += &format!(", last stage {stage}");
        }
        if let Some(ms) = judgement.unrecorded_ms {
            verdict += &format!(" (up to {ms} ms unrecorded)");
        }
        let mut lines = Vec::new();
        if let Some(detail) = &judgement.detail {
            lines.push(Line { source: "verdict", text: detail.clone() });
        }
        if let Some(outcome) = &result.outcome {
            of_outcome(outcome, &mut lines);
        }
        if let Some(findings) = findings {
            of_findings(findings, &mut lines);
        }
        let from_outside = |seen: &Observed| Line { source: "seen from outside", text: seen.in_words() };
        lines.extend(outside.iter().take(LINES_MAX).map(from_outside));
        self.found.push(Excerpt {
            run,
            trial: result.trial.clone(),
            label: label.to_owned(),
            signature,
            verdict,
            rule: format!("{}: {}", result.rule, rule_because(&result.rule)),
            lines,
            missing: judgement.missing.clone(),
        });
    }

    /// All of them, in the order in which their faults came first.
    pub(super) fn finish(self) -> Vec<Excerpt> {
        self.found
    }
}

fn of_outcome(outcome: &Outcome, lines: &mut Vec<Line>) {
    if let Some(failure) = &outcome.failure {
        let call = failure.call.as_deref().map(|call| format!("{call}: ")).unwrap_or_default();
        lines.push(Line { source: "workload", text: format!("{call}{}", failure.text) });
    }
    if let Some(text) = &outcome.error_text {
        lines.push(Line { source: "stderr", text: text.clone() });
    }
    if let Fact::Known(found) = &outcome.kernel {
        lines.extend(
            found.iter().take(LINES_MAX).map(|found| Line { source: "kernel", text: found.finding.text.clone() }),
        );
    }
    if let Some(crash) = &outcome.crash {
        let frames = crash.thread.frames.iter().take(LINES_MAX);
        lines.extend(frames.map(|frame| Line { source: "stack", text: frame.to_string() }));
    }
}

fn of_findings(findings: &Findings, lines: &mut Vec<Line>) {
    let mut say = |source, text: String| lines.push(Line { source, text });
    let mut signs = |source, signs: &[EndSign]| {
        signs.iter().take(LINES_MAX).for_each(|sign| say(source, sign.line.clone()));
    };
    if let Fact::Known(records) = &findings.crash_records {
        records.iter().for_each(|record| signs("crash record", &record.signs));
    }
    if let Fact::Known(end) = &findings.kernel_end {
        signs("kernel of the boot before", end);
    }
    match &findings.shutdown {
        Fact::Known(Shutdown::Clean) => say("journal of the boot before", "it was shut down in order".into()),
        Fact::Known(Shutdown::Unclean) => say("journal of the boot before", "ordinary lines up to the last one".into()),
        Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => {}
    }
    if let Fact::Known(who) = &findings.ordered_by {
        say("ordered by", who.clone());
    }
    if let Fact::Known(reset) = &findings.reset {
        let level = reset.level.as_deref().map(|level| format!(" ({level})")).unwrap_or_default();
        say("reset controller", format!("{}{level}", reset.reason));
    }
}
