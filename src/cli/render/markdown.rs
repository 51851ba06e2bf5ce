//! The report in Markdown, to paste into a bug report: it renders on GitHub and stays below its limit.
//!
//! Whatever comes from outside stands in code spans, where no mark-up, mention or issue number is read into it.

use std::fmt::Write;

use super::report::{chosen, persistence, reasons, signature_words, standing};
use super::{counted, duration, megabytes, one_line, peak_megabytes, source, surprise};
use crate::decide::report::{CellReport, Durations, Report, Sampled};

/// The longest a text may be: GitHub takes 65,536 characters in an issue or a comment, and some stay for the author.
pub const MARKDOWN_BYTES_MAX: usize = 60_000;

/// How much of it the table of cells may take; the rest is for faults and for what was not tested.
const CELLS_BYTES_MAX: usize = 36_000;

/// How much may be used when the list of faults ends.
const FAULTS_BYTES_MAX: usize = 50_000;

/// The longest text from outside in one place, in characters.
const SPAN_CHARS_MAX: usize = 200;

/// The report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    cells(&mut out, report);
    decided(&mut out, report);
    faults(&mut out, report);
    untested(&mut out, report);
    hypotheses(&mut out, report);
    out
}

/// What the run says of the usual explanations, as far as there is room.
fn hypotheses(out: &mut String, report: &Report) {
    if report.hypotheses.is_empty() {
        return;
    }
    out.push_str("\n| explanation | | evidence | trials |\n|---|---|---|---|\n");
    for row in &report.hypotheses {
        let line = format!("| {} | {} | {} | {} |\n", prose(&row.what), row.status, prose(&row.evidence), row.trials);
        if out.len() + line.len() > MARKDOWN_BYTES_MAX {
            return;
        }
        out.push_str(&line);
    }
}

fn decided(out: &mut String, report: &Report) {
    let mut left = report.decisions.len();
    for decision in &report.decisions {
        if out.len() > CELLS_BYTES_MAX {
            let _ = writeln!(out, "- … and {left} more decisions");
            break;
        }
        let label = if decision.other.is_some() { String::new() } else { format!("{}: ", code(&decision.label)) };
        let _ = writeln!(out, "- {label}{}", prose(&decision.text));
        left -= 1;
    }
    if !report.decisions.is_empty() {
        out.push('\n');
    }
}

fn head(out: &mut String, report: &Report) {
    let run = &report.run;
    let _ = writeln!(out, "## jetfault: {}\n", code(run.id.as_str()));
    for headline in &report.headlines {
        let _ = writeln!(out, "**{}**\n", prose(&headline.text));
    }
    for control in &report.controls_failed {
        let _ =
            writeln!(out, "{} did not give what it must: the cells that lean on it are undecided.\n", code(control));
    }
    if let Some(warning) = persistence(run.persistence) {
        let _ = writeln!(out, "{warning}.\n");
    }
    let mut facts = vec![
        format!("matrix {} ({})", code(&report.matrix.name), code(&report.matrix.digest.as_str()[..12])),
        prose(&standing(&run.standing)),
        counted(u64::from(run.boots), "boot"),
        format!("seed {}", report.matrix.seed),
    ];
    facts.extend(report.matrix.overrides.iter().chain(&report.matrix.only).map(|text| code(text)));
    facts.extend(run.device.as_ref().map(|device| format!("device {}", code(device.as_str()))));
    if !run.tool.is_empty() {
        facts.push(format!("jetfault {}", code(&run.tool)));
    }
    facts.extend(run.machine.iter().map(|(name, value)| format!("{} {}", prose(name), code(value))));
    let _ = writeln!(out, "{}\n", facts.join(" · "));
}

fn cells(out: &mut String, report: &Report) {
    let (cells, mut left_out) = chosen(&report.cells, usize::from(u16::MAX));
    let rows: Vec<(&CellReport, Vec<String>)> = {
        // Where not everything fits, faulty and short cells come before others, still in the order of the plan.
        let mut limit = cells.len();
        loop {
            let (some, more) = chosen(&report.cells, limit);
            let rows: Vec<_> = some.iter().map(|cell| (*cell, rows_of(cell))).collect();
            let bytes: usize = rows.iter().flat_map(|(_, rows)| rows).map(|row| row.len() + 1).sum();
            if bytes <= CELLS_BYTES_MAX || limit == 0 {
                left_out = left_out.max(more);
                break rows;
            }
            limit = (limit * CELLS_BYTES_MAX / bytes).min(limit - 1);
        }
    };
    out.push_str("| cell | faults | time, median (range) | peak, predicted (MB) | notes |\n");
    out.push_str("|---|---|---|---|---|\n");
    for row in rows.iter().flat_map(|(_, rows)| rows) {
        let _ = writeln!(out, "{row}");
    }
    if left_out > 0 {
        let _ =
            writeln!(out, "\n{} more are left out here; the JSON report has them.", counted(left_out as u64, "cell"));
    }
    out.push('\n');
}

fn rows_of(cell: &CellReport) -> Vec<String> {
    if cell.samples.is_empty() {
        return vec![format!(
            "| {} | not tested | | {} | {} |",
            code(&cell.label),
            peak(cell, None),
            notes(cell, None)
        )];
    }
    let row = |sampled: &Sampled| {
        format!(
            "| {} | {} | {} | {} | {} |",
            code(&cell.label),
            sampled.rate,
            sampled.clean_ms.or(sampled.fault_ms).map_or_else(String::new, range),
            peak(cell, Some(sampled)),
            notes(cell, Some(sampled))
        )
    };
    cell.samples.iter().map(row).collect()
}

fn range(durations: Durations) -> String {
    let Durations { trials, median, shortest, longest } = durations;
    match trials {
        1 => duration(median),
        _ if duration(shortest) == duration(longest) => duration(median),
        _ => format!("{} ({}–{})", duration(median), duration(shortest), duration(longest)),
    }
}

fn peak(cell: &CellReport, sampled: Option<&Sampled>) -> String {
    let seen = sampled.and_then(|sampled| sampled.peak_memory).map(|peak| peak_megabytes(&peak));
    let predicted = cell.predicted.as_ref().map(|peak| megabytes(peak.host_plus_reserved_bytes));
    match (seen, predicted) {
        (None, None) => String::new(),
        (Some(seen), None) => seen,
        (seen, Some(predicted)) => format!("{}, {predicted}", seen.unwrap_or_else(|| "–".to_owned())),
    }
}

fn notes(cell: &CellReport, sampled: Option<&Sampled>) -> String {
    let mut notes: Vec<String> = Vec::new();
    if let Some(sampled) = sampled {
        notes.extend(source(sampled.provenance).map(|source| format!("**{source}**")));
        notes.extend(sampled.faults.iter().map(|(verdict, count)| format!("{count} {verdict}")));
    }
    notes.extend(surprise(cell));
    if let Some(short) = &cell.short {
        notes.push(format!("short: {} of {}", short.counted, short.wanted));
    }
    notes.extend(cell.excluded.iter().map(|(verdict, count)| format!("{count} {verdict} excluded")));
    if cell.uncounted.trials > 0 {
        notes.push(format!("{} uncounted, {} with a fault", cell.uncounted.trials, cell.uncounted.faults));
    }
    notes.join(", ")
}

fn faults(out: &mut String, report: &Report) {
    let mut is_first = true;
    for cell in &report.cells {
        for sampled in &cell.samples {
            for signed in &sampled.signatures {
                if std::mem::take(&mut is_first) {
                    out.push_str("### Faults\n\n");
                }
                if out.len() > FAULTS_BYTES_MAX {
                    out.push_str("- further ones are left out here; the JSON report has them\n\n");
                    return;
                }
                let source = source(sampled.provenance).map(|source| format!(", {source}")).unwrap_or_default();
                let words = code(&signature_words(signed));
                let first = code(&signed.first.to_string());
                let _ = writeln!(out, "- {} × {words} in {}{source}; first {first}", signed.count, code(&cell.label));
            }
        }
    }
    if !is_first {
        out.push('\n');
    }
}

fn untested(out: &mut String, report: &Report) {
    out.push_str("### Not tested\n\n");
    let short = report.cells.iter().filter(|cell| cell.counted() == 0 || cell.short.is_some());
    let mut is_empty = true;
    for cell in short {
        is_empty = false;
        let counted = match cell.counted() {
            0 => String::new(),
            n => format!(" ({n} of {} counted)", cell.wanted),
        };
        let line = format!("- {}{counted}: {}\n", code(&cell.label), code(&reasons(cell)));
        if out.len() + line.len() > MARKDOWN_BYTES_MAX - 100 {
            out.push_str("- further ones are left out here; the JSON report has them\n");
            return;
        }
        out.push_str(&line);
    }
    if is_empty {
        out.push_str("Every cell has its trials. Whatever is not in the table was not tested.\n");
    }
}

/// Text from outside as a code span that is safe in a table cell: one line, cut, and fenced with more backticks than it
/// has in a row.
pub(super) fn code(text: &str) -> String {
    let text = super::table::cut(&one_line(text), SPAN_CHARS_MAX).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') || text.is_empty() { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Text of ours that holds text from outside, with everything escaped that Markdown or GitHub would read into it.
pub(super) fn prose(text: &str) -> String {
    let mut out = String::new();
    for c in one_line(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // An entity is shown as the character and is not looked at for a mention or an issue.
            '@' => out.push_str("&#64;"),
            '#' => out.push_str("&#35;"),
            _ => out.push(c),
        }
    }
    out
}
