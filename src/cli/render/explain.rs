//! The chain from evidence to verdict, for a terminal: read downwards, each step rests on the one above.

use std::fmt::Write;

use super::style::{Colour, Style, wrap};
use super::{cut, one_line};
use crate::decide::explain::{Explanation, RuleTable, Seen};
use crate::model::verdict::{Counted, RebootCause};

/// The explanation as text.
pub fn explain(explanation: &Explanation, style: &Style) -> String {
    let mut out = String::new();
    let trial = &explanation.trial;
    let label = explanation.label.as_deref().unwrap_or("a cell that is not in the plan");
    let source = explanation.provenance.map(|provenance| format!(", {}", provenance.as_str())).unwrap_or_default();
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, trial.to_string().as_str()));
    let text = format!("{}, round {}, attempt {}{source}", one_line(label), trial.round, trial.attempt);
    wrap(&mut out, "", &text, style.columns());
    let (colour, counted) = match explanation.counted {
        Counted::Clean => (Colour::Green, "counted as clean"),
        Counted::Fault => (Colour::Red, "counted as a fault"),
        Counted::Excluded => (Colour::Yellow, "in no rate"),
    };
    let _ = writeln!(out, "{}", style.paint(colour, &format!("{}: {counted}", verdict_words(explanation))));
    let mut step = 0;
    let mut heading = |out: &mut String, text: &str| {
        step += 1;
        let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, &format!("{step}. {text}")));
    };
    if !explanation.observed.is_empty() {
        heading(&mut out, "what was observed");
        seen(&mut out, style, &explanation.observed);
    }
    if !explanation.facts.is_empty() {
        heading(&mut out, "what that comes to: the facts that decide");
        seen(&mut out, style, &explanation.facts);
    }
    let table = match explanation.rule.table {
        RuleTable::Outcome => "of the outcome",
        RuleTable::Boot => "across a boot",
        RuleTable::Step => "of the next step",
        RuleTable::Told => "of a transcription",
        RuleTable::Unknown => "of no table of this build",
    };
    heading(&mut out, &format!("the rule that fits them: {} ({table})", explanation.rule.label));
    wrap(&mut out, "  because ", &explanation.rule.because, style.columns());
    if let Some(other) = &explanation.disagreement {
        let text = format!("this build would apply {other}: another version judged this trial");
        wrap(&mut out, "  but ", &text, style.columns());
    }
    heading(&mut out, &format!("the verdict: {}", verdict_words(explanation)));
    verdict(&mut out, explanation, style);
    if !explanation.missing.is_empty() {
        let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, "what was not there to be read"));
        for missing in &explanation.missing {
            wrap(&mut out, "  - ", &one_line(missing), style.columns());
        }
    }
    if !explanation.would_decide.is_empty() {
        let is_open =
            explanation.judgement.cause == Some(RebootCause::Undetermined) || explanation.counted == Counted::Excluded;
        let text = if is_open { "what would have decided it" } else { "what would have decided otherwise" };
        let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, text));
        for would in &explanation.would_decide {
            let rule = would.rule.as_ref().map(|rule| format!(" (rule {rule})")).unwrap_or_default();
            wrap(&mut out, "  - ", &format!("{} → {}{rule}", would.known, would.then), style.columns());
        }
    }
    out
}

/// The end of what a program wrote to a stream.
#[derive(Debug, Clone)]
pub struct Written {
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// The file that has all of it.
    pub path: String,
    /// Its last lines, if there are any.
    pub end: Option<String>,
}

/// The most lines of a stream that are shown.
const WRITTEN_LINES_MAX: usize = 6;

/// What a program wrote, its last lines, and where all of it is.
pub fn written(written: &[Written], style: &Style) -> String {
    let mut out = String::new();
    for Written { stream, path, end } in written {
        let Some(end) = end else { continue };
        let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, &format!("the end of its {stream}: {path}")));
        let lines: Vec<&str> = end.lines().collect();
        for line in &lines[lines.len().saturating_sub(WRITTEN_LINES_MAX)..] {
            let _ = writeln!(out, "  | {}", cut(&one_line(line), style.columns().saturating_sub(4)));
        }
    }
    out
}

/// `reboot, cause undetermined`.
fn verdict_words(explanation: &Explanation) -> String {
    let judgement = &explanation.judgement;
    let cause = judgement.cause.map(|cause| format!(", cause {}", cause.as_str())).unwrap_or_default();
    format!("{}{cause}", judgement.verdict)
}

fn seen(out: &mut String, style: &Style, seen: &[Seen]) {
    let width = seen.iter().map(|seen| seen.what.chars().count()).max().unwrap_or(0);
    for seen in seen {
        wrap(out, &format!("  {:<width$}  ", seen.what), &one_line(&seen.how), style.columns());
    }
}

fn verdict(out: &mut String, explanation: &Explanation, style: &Style) {
    let judgement = &explanation.judgement;
    wrap(out, "  ", &format!("meaning: {}", judgement.verdict.meaning()), style.columns());
    if let Some(detail) = &judgement.detail {
        wrap(out, "  ", &format!("detail: {}", one_line(detail)), style.columns());
    }
    if let Some(signature) = &judgement.signature {
        wrap(out, "  ", &format!("signature: {}", one_line(&signature.to_string())), style.columns());
    }
}
