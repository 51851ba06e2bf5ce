//! The report for a terminal: headline, the cells, then what needs more words than a row has.

use std::fmt::Write;

use super::style::{Colour, Style, wrap};
use super::table::{Align, Row, cut, elastic, fixed, table};
use super::{counted, decisions, duration, interval_heading, one_line, peak_megabytes, source, surprise};
use crate::decide::hypotheses::{Hypothesis, Status};
use crate::decide::plan::CellRole;
use crate::decide::report::{CellReport, Reason, Report, Sampled, SignatureCount, Standing};
use crate::model::journal::Persistence;

/// The most rows of the table; a run with more shows those that say something first.
pub(super) const ROWS_MAX: usize = 200;

/// The most entries of each list under the table.
const ENTRIES_MAX: usize = 20;

/// The report as text.
pub fn report(report: &Report, style: &Style) -> String {
    let mut out = String::new();
    head(&mut out, report, style);
    let (cells, left_out) = chosen(&report.cells, ROWS_MAX);
    let rows: Vec<Row> = cells.iter().flat_map(|cell| rows_of(cell)).collect();
    let columns = [
        elastic("cell", 14),
        fixed("faults", Align::Right),
        fixed(interval_heading(report.interval), Align::Right),
        fixed("time", Align::Right),
        fixed("peak MB", Align::Right),
        elastic("notes", 10),
    ];
    out.push('\n');
    out.push_str(&table(&columns, &rows, style));
    if left_out > 0 {
        let _ = writeln!(out, "… and {} more; --format json has all", counted(left_out as u64, "cell"));
    }
    decisions(&mut out, &report.decisions, style);
    faults(&mut out, report, style);
    short(&mut out, report, style);
    surprises(&mut out, report, style);
    untested(&mut out, report, style);
    hypotheses(&mut out, report, style);
    out
}

/// What the run says of the usual explanations; the harness and axes that nobody varied only in other formats.
fn hypotheses(out: &mut String, report: &Report, style: &Style) {
    let rows: Vec<&Hypothesis> = report.hypotheses.iter().filter(|row| row.status != Status::NotTested).collect();
    if rows.is_empty() {
        return;
    }
    heading(out, style, "explanations");
    for row in rows.into_iter().take(ENTRIES_MAX) {
        let trials = counted(row.trials, "trial");
        let text = format!("{}: {}: {} ({trials})", row.status, one_line(&row.what), one_line(&row.evidence));
        wrap(out, "  ", &text, style.columns());
    }
}

fn head(out: &mut String, report: &Report, style: &Style) {
    for headline in &report.headlines {
        let colour = if headline.is_fault { Colour::Red } else { Colour::Bold };
        let mut text = String::new();
        wrap(&mut text, "", &one_line(&headline.text), style.columns());
        for line in text.lines() {
            let _ = writeln!(out, "{}", style.paint(colour, line));
        }
    }
    for control in &report.controls_failed {
        let text = format!("{control} did not give what it must: the cells that lean on it are undecided");
        wrap(out, "", &style.paint(Colour::Yellow, &text), usize::MAX);
    }
    let run = &report.run;
    let mut facts = vec![
        format!("run {}", run.id),
        standing(&run.standing),
        counted(u64::from(run.boots), "boot"),
        format!("seed {}", report.matrix.seed),
    ];
    facts.extend(run.device.as_ref().map(|device| format!("device {device}")));
    facts.extend(run.machine.iter().map(|(name, value)| format!("{name} {value}")));
    let mut text = String::new();
    wrap(&mut text, "", &one_line(&facts.join(", ")), style.columns());
    for line in text.lines() {
        let _ = writeln!(out, "{}", style.paint(Colour::Dim, line));
    }
    if let Some(warning) = persistence(run.persistence) {
        let _ = writeln!(out, "{}", style.paint(Colour::Yellow, warning));
    }
}

/// `complete`, or with its reason.
pub(super) fn standing(standing: &Standing) -> String {
    match standing {
        Standing::Open | Standing::Paused | Standing::Complete => standing.as_str().to_owned(),
        Standing::Stopped { why } => format!("stopped ({})", one_line(why)),
    }
}

/// What must be said where results may not survive.
pub(super) fn persistence(persistence: Option<Persistence>) -> Option<&'static str> {
    match persistence {
        Some(Persistence::Volatile) => Some("results were on volatile storage: a reset may have lost trials"),
        Some(Persistence::Unproven) => Some("results were on storage that is not proven to survive a reset"),
        Some(Persistence::Persistent) | None => None,
    }
}

/// At most `limit` cells in the order of the plan, faulty, short and surprising ones before others; and how many more.
pub(super) fn chosen(cells: &[CellReport], limit: usize) -> (Vec<&CellReport>, usize) {
    if cells.len() <= limit {
        return (cells.iter().collect(), 0);
    }
    let dullness = |cell: &CellReport| {
        let has_fault = cell.samples.iter().any(|sampled| sampled.rate.faults > 0);
        match (has_fault, cell.short.is_some() || surprise(cell).is_some()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    };
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|index| dullness(&cells[*index]));
    order.truncate(limit);
    order.sort_unstable();
    (order.into_iter().map(|index| &cells[index]).collect(), cells.len() - limit)
}

fn rows_of(cell: &CellReport) -> Vec<Row> {
    let label = one_line(&cell.label);
    if cell.samples.is_empty() {
        let texts = vec![label, "–".into(), "–".into(), String::new(), String::new(), notes(cell, None)];
        return vec![Row { texts, colour: Some(Colour::Yellow) }];
    }
    let row = |sampled: &Sampled| {
        let texts = vec![
            label.clone(),
            sampled.rate.fraction(),
            sampled.rate.bound(),
            time(sampled),
            sampled.peak_memory.map_or_else(String::new, |peak| peak_megabytes(&peak)),
            notes(cell, Some(sampled)),
        ];
        let colour = match (sampled.rate.faults, &cell.short) {
            (0, None) => None,
            (0, Some(_)) => Some(Colour::Yellow),
            _ => Some(Colour::Red),
        };
        Row { texts, colour }
    };
    cell.samples.iter().map(row).collect()
}

/// The median of clean trials, else of those whose fault was seen in its boot.
fn time(sampled: &Sampled) -> String {
    sampled.clean_ms.or(sampled.fault_ms).map_or_else(String::new, |durations| duration(durations.median))
}

fn notes(cell: &CellReport, sampled: Option<&Sampled>) -> String {
    let mut notes: Vec<String> = Vec::new();
    if let Some(sampled) = sampled {
        notes.extend(source(sampled.provenance).map(str::to_owned));
        notes.extend(sampled.faults.iter().map(|(verdict, count)| match sampled.faults.len() {
            1 => verdict.to_string(),
            _ => format!("{count} {verdict}"),
        }));
    }
    notes.extend(surprise(cell));
    if let Some(short) = &cell.short {
        notes.push(format!("short, {} of {}", short.counted, short.wanted));
    }
    notes.extend(cell.excluded.iter().map(|(verdict, count)| format!("{count} {verdict}")));
    notes.join(", ")
}

fn heading(out: &mut String, style: &Style, text: &str) {
    let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, text));
}

fn more(out: &mut String, left: usize) {
    if left > 0 {
        let _ = writeln!(out, "  … and {left} more; --format json has all");
    }
}

/// `reboot at C.forward or later (up to 100 ms unrecorded), cause undetermined`.
pub(super) fn signature_words(signed: &SignatureCount) -> String {
    let signature = &signed.signature;
    let mut text = signature.verdict.to_string();
    for part in [&signature.status, &signature.place].into_iter().flatten() {
        let _ = write!(text, ", {}", one_line(part));
    }
    match (&signature.stage, signed.unrecorded_ms) {
        (Some(stage), Some(ms)) => {
            let _ = write!(text, " at {stage} or later (up to {ms} ms unrecorded)");
        }
        (Some(stage), None) => {
            let _ = write!(text, " at {stage}");
        }
        (None, _) => {}
    }
    let causes: Vec<String> = signed
        .causes
        .iter()
        .map(|(cause, count)| match signed.causes.len() {
            1 => format!("cause {}", cause.as_str()),
            _ => format!("{count} {}", cause.as_str()),
        })
        .collect();
    if !causes.is_empty() {
        let _ = write!(text, ", {}", causes.join(", "));
    }
    text
}

fn faults(out: &mut String, report: &Report, style: &Style) {
    let pairs = report.cells.iter().flat_map(|cell| cell.samples.iter().map(move |sampled| (cell, sampled)));
    let signed: Vec<(&CellReport, &Sampled, &SignatureCount)> = pairs
        .flat_map(|(cell, sampled)| sampled.signatures.iter().map(move |signed| (cell, sampled, signed)))
        .collect();
    if signed.is_empty() {
        return;
    }
    heading(out, style, "faults");
    for (cell, sampled, signed) in signed.iter().take(ENTRIES_MAX) {
        let source = source(sampled.provenance).map(|source| format!(" ({source})")).unwrap_or_default();
        let text = format!("{}{source}: {}", one_line(&cell.label), signature_words(signed));
        wrap(out, &format!("{:>4} × ", signed.count), &text, style.columns());
        let _ = writeln!(
            out,
            "       {}",
            style.paint(Colour::Dim, &format!("jetfault explain {} {}", report.run.id, signed.first))
        );
    }
    more(out, signed.len().saturating_sub(ENTRIES_MAX));
}

fn short(out: &mut String, report: &Report, style: &Style) {
    let short: Vec<&CellReport> =
        report.cells.iter().filter(|cell| cell.short.is_some() && cell.counted() > 0).collect();
    if short.is_empty() {
        return;
    }
    heading(out, style, "short of trials");
    for cell in short.iter().take(ENTRIES_MAX) {
        let Some(short) = &cell.short else { continue };
        let given_up = if short.set_aside { ", given up" } else { "" };
        let text = format!(
            "{}: {} of {} counted{given_up}; {}",
            one_line(&cell.label),
            short.counted,
            short.wanted,
            reasons(cell)
        );
        wrap(out, "  ", &text, style.columns());
    }
    more(out, short.len().saturating_sub(ENTRIES_MAX));
}

/// Why trials were excluded: `2 × void (before-hello): exit 127`.
pub(super) fn reasons(cell: &CellReport) -> String {
    let in_words = |reason: &Reason| {
        let why = reason.why.as_deref().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
        format!("{} × {} ({}){why}", reason.count, reason.verdict, reason.rule)
    };
    let words: Vec<String> = cell.excluded_why.iter().map(in_words).collect();
    if words.is_empty() { "no trial of it was judged".to_owned() } else { words.join("; ") }
}

fn surprises(out: &mut String, report: &Report, style: &Style) {
    let surprising: Vec<(&CellReport, String)> =
        report.cells.iter().filter_map(|cell| surprise(cell).map(|text| (cell, text))).collect();
    if surprising.is_empty() {
        return;
    }
    heading(out, style, "not as expected");
    for (cell, expected) in surprising.iter().take(ENTRIES_MAX) {
        let rates: Vec<String> = cell.samples.iter().map(|sampled| sampled.rate.to_string()).collect();
        let lean = match cell.role {
            CellRole::Control => format!(" (it shows: {})", one_line(&cell.shows)),
            CellRole::Sample | CellRole::Warming => String::new(),
        };
        let text = format!("{}: {expected}, faults {}{lean}", one_line(&cell.label), rates.join(", "));
        wrap(out, "  ", &text, style.columns());
    }
    more(out, surprising.len().saturating_sub(ENTRIES_MAX));
}

fn untested(out: &mut String, report: &Report, style: &Style) {
    if report.untested.is_empty() {
        return;
    }
    heading(out, style, "not tested");
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for cell in report.cells.iter().filter(|cell| cell.counted() == 0) {
        let (why, label) = (reasons(cell), cut(&one_line(&cell.label), style.columns() / 2));
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, labels)) => labels.push(label),
            None => groups.push((why, vec![label])),
        }
    }
    for (why, labels) in groups.iter().take(ENTRIES_MAX) {
        if let [label] = &labels[..] {
            wrap(out, "  ", &format!("{label}: {why}"), style.columns());
            continue;
        }
        wrap(out, "  ", &format!("{}: {why}", counted(labels.len() as u64, "cell")), style.columns());
        let mut names = labels.iter().take(ENTRIES_MAX).cloned().collect::<Vec<_>>().join(" · ");
        if let left_out @ 1.. = labels.len().saturating_sub(ENTRIES_MAX) {
            let _ = write!(names, " · and {left_out} more");
        }
        wrap(out, "       ", &names, style.columns());
    }
    more(out, groups.len().saturating_sub(ENTRIES_MAX));
}
