//! Several runs as one report, a row for each device; and the same in Markdown.

use std::fmt::Write;

use super::markdown::Safe;
use super::style::{Colour, Style, wrap};
use super::table::{Align, Row, elastic, fixed, table};
use super::{counted, interval_heading, one_line, report, source};
use crate::decide::compare::p_words;
use crate::decide::joined::{DeviceSample, Finding, Joined, JoinedCell, OfDevice, Together};

/// The most cells that are listed.
const CELLS_MAX: usize = 200;

/// What stands in the column of devices for all of them.
const TOGETHER: &str = "together";

/// The report as text.
pub fn joined(joined: &Joined, style: &Style) -> String {
    let mut out = String::new();
    wrap(&mut out, "", &style.paint(Colour::Bold, &headline(joined)), usize::MAX);
    for run in &joined.runs {
        let words = format!("{}: {}, {}", run.device, run.id, report::standing(&run.standing));
        wrap(&mut out, "  ", &one_line(&format!("{words}, {}", counted(run.counted, "trial"))), style.columns());
    }
    let columns = [
        elastic("cell", 14),
        elastic("device", 8),
        fixed("faults", Align::Right),
        fixed(interval_heading(joined.interval), Align::Right),
        elastic("notes", 12),
    ];
    let lines = joined.cells.iter().take(CELLS_MAX).flat_map(lines);
    let rows: Vec<Row> =
        lines.map(|line| Row { colour: line.colour, texts: line.texts().map(one_line).into() }).collect();
    out.push('\n');
    out.push_str(&table(&columns, &rows, style));
    if let left @ 1.. = joined.cells.len().saturating_sub(CELLS_MAX) {
        let _ = writeln!(out, "… and {left} more; --format json has all");
    }
    let apart = apart(joined);
    if !joined.remarks.is_empty() || !apart.is_empty() {
        out.push('\n');
    }
    for words in &apart {
        wrap(&mut out, "", &one_line(words), style.columns());
    }
    for remark in &joined.remarks {
        wrap(&mut out, "", &one_line(remark), style.columns());
    }
    out
}

/// The report in Markdown.
pub fn joined_markdown(joined: &Joined, safe: &mut Safe<'_>) -> String {
    let mut out = format!("**{}**\n\n", safe.prose(&headline(joined)));
    for run in &joined.runs {
        let standing = report::standing(&run.standing);
        let (device, id) = (safe.code(&run.device), safe.code(run.id.as_str()));
        let _ = writeln!(out, "- {device}: {id}, {}, {}", safe.prose(&standing), counted(run.counted, "trial"));
    }
    let heading = interval_heading(joined.interval);
    let _ = writeln!(out, "\n| cell | device | faults | {heading} | |\n|---|---|--:|--:|---|");
    for line in joined.cells.iter().take(CELLS_MAX).flat_map(lines) {
        let [label, device, faults, bound, notes] = line.texts();
        let device = if device == TOGETHER { device.to_owned() } else { safe.code(device) };
        let label = if label.is_empty() { String::new() } else { safe.code(label) };
        let _ = writeln!(out, "| {label} | {device} | {faults} | {bound} | {} |", safe.prose(notes));
    }
    if let left @ 1.. = joined.cells.len().saturating_sub(CELLS_MAX) {
        let _ = writeln!(out, "\n{left} more cells are left out.");
    }
    out.push('\n');
    for words in &apart(joined) {
        let _ = writeln!(out, "- {}", safe.prose(words));
    }
    for remark in &joined.remarks {
        let _ = writeln!(out, "- {}", safe.prose(remark));
    }
    out
}

/// The cells whose devices have no rate in common, with the reason.
fn apart(joined: &Joined) -> Vec<String> {
    let of_cell = |cell: &JoinedCell| {
        let is_apart = |together: &&Together| together.finding != Finding::NotShown;
        let words = cell.together.iter().filter(is_apart).map(|together| format!("{}: {}", cell.label, together.says));
        words.collect::<Vec<_>>()
    };
    joined.cells.iter().take(CELLS_MAX).flat_map(of_cell).collect()
}

fn headline(joined: &Joined) -> String {
    let trials = joined.runs.iter().map(|run| run.counted).sum();
    let (runs, devices) = (joined.runs.len() as u64, joined.devices().len() as u64);
    format!("{} on {}, {}", counted(runs, "run"), counted(devices, "device"), counted(trials, "counted trial"))
}

/// A row, before it is laid out.
struct Line {
    label: String,
    device: String,
    faults: String,
    bound: String,
    notes: String,
    colour: Option<Colour>,
}

impl Line {
    fn texts(&self) -> [&str; 5] {
        [&self.label, &self.device, &self.faults, &self.bound, &self.notes]
    }
}

/// A line for each device and provenance, and below them what may be said of the devices together.
fn lines(cell: &JoinedCell) -> Vec<Line> {
    let mut lines: Vec<Line> = cell.devices.iter().flat_map(of_device).collect();
    lines.extend(cell.together.iter().map(of_together));
    if let Some(first) = lines.first_mut() {
        first.label.clone_from(&cell.label);
    }
    lines
}

fn of_device(own: &OfDevice) -> Vec<Line> {
    let excluded = (own.excluded > 0).then(|| format!("{} excluded", own.excluded));
    let line = |faults: String, bound: String, notes: Vec<String>, colour| Line {
        label: String::new(),
        device: own.device.clone(),
        faults,
        bound,
        notes: notes.join(", "),
        colour,
    };
    if own.samples.is_empty() {
        let notes = excluded.into_iter().collect();
        return vec![line("–".into(), "–".into(), notes, Some(Colour::Yellow))];
    }
    let of_sample = |sample: &DeviceSample| {
        let mut notes: Vec<String> = source(sample.provenance).map(str::to_owned).into_iter().collect();
        notes.extend(sample.faults.iter().filter(|(_, n)| **n > 0).map(|(verdict, n)| match sample.faults.len() {
            1 => verdict.to_string(),
            _ => format!("{n} {verdict}"),
        }));
        notes.extend(excluded.clone());
        let colour = (sample.rate.faults > 0).then_some(Colour::Red);
        line(sample.rate.fraction(), sample.rate.bound(), notes, colour)
    };
    own.samples.iter().map(of_sample).collect()
}

fn of_together(together: &Together) -> Line {
    let rate = together.rate.as_ref();
    let mut notes: Vec<String> = source(together.provenance).map(str::to_owned).into_iter().collect();
    let p = together.p.map(|p| format!(", p = {}", p_words(p))).unwrap_or_default();
    notes.push(match together.finding {
        Finding::Differs => format!("devices differ{p}"),
        Finding::NotShown => format!("no difference shown{p}"),
        Finding::Untested => "not tested".to_owned(),
    });
    Line {
        label: String::new(),
        device: TOGETHER.to_owned(),
        faults: rate.map_or_else(|| "–".to_owned(), |rate| rate.fraction()),
        bound: rate.map_or_else(|| "–".to_owned(), |rate| rate.bound()),
        notes: notes.join(", "),
        colour: (together.finding == Finding::Differs).then_some(Colour::Yellow),
    }
}
