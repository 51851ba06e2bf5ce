//! The chain from evidence to verdict, for a terminal: read downwards, each step rests on the one above.

use std::fmt::Write;

use super::one_line;
use super::style::{Colour, Style, wrap};
use crate::decide::explain::{Explanation, RuleTable, Seen};
use crate::model::verdict::Counted;

/// The explanation as text.
pub fn explain(explanation: &Explanation, style: &Style) -> String {
    let mut out = String::new();
    let trial = &explanation.trial;
    let label = explanation.label.as_deref().unwrap_or("a cell that is not in the plan");
    let source = explanation.provenance.map(|provenance| format!(", {}", provenance.as_str())).unwrap_or_default();
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, trial.to_string().as_str()));
    let text = format!("{}, round {}, attempt {}{source}", one_line(label), trial.round, trial.attempt);
    wrap(&mut out, "", &text, style.columns());
    seen(&mut out, style, "observed", &explanation.observed);
    seen(&mut out, style, "facts", &explanation.facts);
    let table = match explanation.rule.table {
        RuleTable::Outcome => " (of the outcome)",
        RuleTable::Boot => " (across a boot)",
        RuleTable::Step => " (of the next step)",
        RuleTable::Unknown => "",
    };
    let rule = format!("rule {}{table}", explanation.rule.label);
    let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, &rule));
    wrap(&mut out, "  because ", &explanation.rule.because, style.columns());
    if let Some(other) = &explanation.disagreement {
        let text = format!("this build would apply {other}: another version judged this trial");
        wrap(&mut out, "  but ", &text, style.columns());
    }
    verdict(&mut out, explanation, style);
    if !explanation.missing.is_empty() {
        let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, "missing"));
        for missing in &explanation.missing {
            wrap(&mut out, "  - ", &one_line(missing), style.columns());
        }
    }
    if !explanation.would_decide.is_empty() {
        let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, "would have decided otherwise"));
        for would in &explanation.would_decide {
            let rule = would.rule.as_ref().map(|rule| format!(" (rule {rule})")).unwrap_or_default();
            wrap(&mut out, "  - ", &format!("{} → {}{rule}", would.known, would.then), style.columns());
        }
    }
    out
}

fn seen(out: &mut String, style: &Style, heading: &str, seen: &[Seen]) {
    if seen.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, heading));
    let width = seen.iter().map(|seen| seen.what.chars().count()).max().unwrap_or(0);
    for seen in seen {
        wrap(out, &format!("  {:<width$}  ", seen.what), &one_line(&seen.how), style.columns());
    }
}

fn verdict(out: &mut String, explanation: &Explanation, style: &Style) {
    let judgement = &explanation.judgement;
    let cause = judgement.cause.map(|cause| format!(", cause {}", cause.as_str())).unwrap_or_default();
    let (colour, counted) = match explanation.counted {
        Counted::Clean => (Colour::Green, "counted as clean"),
        Counted::Fault => (Colour::Red, "counted as a fault"),
        Counted::Excluded => (Colour::Yellow, "in no rate"),
    };
    let text = format!("verdict {}{cause}: {counted}", judgement.verdict);
    let _ = writeln!(out, "\n{}", style.paint(colour, &text));
    wrap(out, "  ", &format!("meaning: {}", judgement.verdict.meaning()), style.columns());
    if let Some(detail) = &judgement.detail {
        wrap(out, "  ", &format!("detail: {}", one_line(detail)), style.columns());
    }
    if let Some(signature) = &judgement.signature {
        wrap(out, "  ", &format!("signature: {}", one_line(&signature.to_string())), style.columns());
    }
}
