//! Where a campaign stands, for a terminal.

use std::fmt::Write;

use super::one_line;
use super::style::{Colour, Style, wrap};
use super::table::{Align, Row, elastic, fixed, table};
use crate::decide::campaign::{FindingKind, Standing};

/// The standing as text.
pub fn standing(standing: &Standing, style: &Style) -> String {
    let mut out = String::new();
    let head = match standing.finding {
        FindingKind::Open => format!("bisect {}: not decided yet", standing.question),
        finding => format!("bisect {}: {finding}", standing.question),
    };
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, &head));
    for sentence in &standing.sentences {
        wrap(&mut out, "  ", &one_line(sentence), style.columns());
    }
    if !standing.posterior.is_empty() {
        let _ = writeln!(out, "\nlikeliest answers");
        for (answer, probability) in &standing.posterior {
            let _ = writeln!(out, "  {:>5.1} %  {}", 100.0 * probability, one_line(answer));
        }
    }
    if !standing.evidence.is_empty() {
        out.push('\n');
        let columns = [
            elastic("evidence", 20),
            fixed("faults", Align::Right),
            fixed("rate (95 % at every look)", Align::Left),
            elastic("", 8),
        ];
        let row = |evidence: &crate::decide::campaign::Evidence| Row {
            texts: vec![
                one_line(&evidence.place),
                evidence.rate.fraction(),
                evidence.rate.bound(),
                one_line(&evidence.note),
            ],
            colour: None,
        };
        let rows: Vec<Row> = standing.evidence.iter().map(row).collect();
        out.push_str(&table(&columns, &rows, style));
    }
    beside(&mut out, standing, style);
    out
}

/// What did not count, what was set aside, and what is left.
fn beside(out: &mut String, standing: &Standing, style: &Style) {
    let mut line = |text: String| wrap(out, "", &one_line(&text), style.columns());
    if let Some(signature) = &standing.signature {
        line(format!("the fault that counts: {signature}"));
    }
    for (signature, count) in &standing.other_faults {
        line(format!("not counted: {count} × {signature}"));
    }
    if standing.excluded > 0 {
        line(format!("excluded trials: {}", standing.excluded));
    }
    for (place, why) in &standing.set_aside {
        line(format!("set aside: {place}: {why}"));
    }
    let left = standing.runs_left.map_or_else(String::new, |runs| format!(", about {runs} left"));
    line(format!("runs: {}{left}", standing.runs));
}
