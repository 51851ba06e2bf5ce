//! Where a run stands, for a terminal: few lines, the next step first.

use std::fmt::Write;

use super::style::{Colour, Style, wrap};
use super::table::{Align, Column, Row, elastic, fixed, table};
use super::{counted, decisions, duration, interval_heading, one_line, report, source};
use crate::decide::report::Standing;
use crate::decide::stats::Method;
use crate::decide::status::{CellStatus, OpenStatus, Status};

/// The most cells that are listed; a terminal has few lines.
const CELLS_MAX: usize = 100;

/// The status as text.
pub fn status(status: &Status, style: &Style) -> String {
    let mut out = String::new();
    let name = status.run.as_ref().map_or("a run that was not opened", |run| run.as_str());
    let standing = report::standing(&status.standing);
    let colour = match status.standing {
        Standing::Open | Standing::Complete => Colour::Bold,
        Standing::Paused | Standing::Stopped { .. } => Colour::Yellow,
    };
    let _ = writeln!(out, "{}", style.paint(colour, &format!("{name}: {standing}")));
    let fact = |out: &mut String, name: &str, text: &str| {
        wrap(out, &format!("{name:<8} "), &one_line(text), style.columns());
    };
    fact(&mut out, "trials", &trials(status));
    fact(&mut out, "boots", &boots(status));
    if let Some(text) = status.open.as_ref().map(open) {
        fact(&mut out, "open", &text);
    }
    if let Some(last) = &status.last {
        fact(&mut out, "last", &format!("{} of {}: {} ({})", last.trial, last.label, last.verdict, last.wall));
        if !last.evidence.is_empty() {
            fact(&mut out, "", &last.evidence);
        }
    }
    let said =
        [("boot", &status.boot), ("where", &status.elsewhere), ("armed", &status.armed), ("trouble", &status.trouble)];
    for (name, text) in said.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
        fact(&mut out, name, text);
    }
    fact(&mut out, "next", &status.next);
    if let Some(waits) = &status.waits {
        fact(&mut out, "waits", waits);
    }
    if let Some(command) = &status.go_on {
        fact(&mut out, "go on", command);
    }
    if let Some(command) = &status.stop {
        fact(&mut out, "stop", command);
    }
    cells(&mut out, status, style);
    decisions(&mut out, &status.decisions, style);
    out
}

/// `14 used, 104 left`.
pub(super) fn boots(status: &Status) -> String {
    let left = status.boots_max.saturating_sub(u64::from(status.boots));
    format!("{} used, {left} left of {} at most", status.boots, status.boots_max)
}

/// The trial that is open, how long it runs, and where it is.
pub(super) fn open(open: &OpenStatus) -> String {
    let stage = open.stage.as_ref().map(|stage| format!(", at {stage}")).unwrap_or_default();
    let child = if open.running { "" } else { ", its child not known to run" };
    format!("{} of {}, {}{stage}{child}", open.trial, open.label, duration(open.for_ms))
}

/// How far it is, and how long the rest may take.
pub(super) fn trials(status: &Status) -> String {
    let trials = &status.trials;
    let most = if trials.is_limit { "at most " } else { "" };
    let mut text = format!("{} of {most}{} counted", trials.counted, trials.wanted);
    if trials.excluded > 0 {
        let _ = write!(text, ", {} excluded", trials.excluded);
    }
    if trials.left > 0 {
        let _ = write!(text, ", {most}{} left", trials.left);
        if trials.left_seconds > 0 {
            let _ = write!(text, " (about {})", duration(trials.left_seconds * 1000));
        }
    }
    text
}

fn cells(out: &mut String, status: &Status, style: &Style) {
    let columns = columns(status.interval);
    let rows: Vec<Row> = status.cells.iter().take(CELLS_MAX).flat_map(rows_of).collect();
    out.push('\n');
    out.push_str(&table(&columns, &rows, style));
    let left_out = status.cells.len().saturating_sub(CELLS_MAX);
    if left_out > 0 {
        let _ = writeln!(out, "… and {} more; --format json has all", counted(left_out as u64, "cell"));
    }
}

/// The columns of the table of cells.
pub(super) fn columns(interval: Method) -> [Column; 5] {
    [
        elastic("cell", 14),
        fixed("counted", Align::Right),
        fixed("faults", Align::Right),
        fixed(interval_heading(interval), Align::Right),
        elastic("notes", 10),
    ]
}

/// How many lines a cell takes.
pub(super) fn lines_of(cell: &CellStatus) -> usize {
    cell.rates.len().max(1)
}

/// The lines of a cell.
pub(super) fn rows_of(cell: &CellStatus) -> Vec<Row> {
    let mut notes = Vec::new();
    if cell.set_aside {
        notes.push("given up".to_owned());
    }
    if cell.excluded > 0 {
        notes.push(format!("{} excluded", cell.excluded));
    }
    let row = |fraction: String, bound: String, notes: &[String], colour: Option<Colour>| Row {
        texts: vec![
            one_line(&cell.label),
            format!("{}/{}", cell.counted, cell.wanted),
            fraction,
            bound,
            notes.join(", "),
        ],
        colour,
    };
    if cell.rates.is_empty() {
        let colour = cell.set_aside.then_some(Colour::Yellow);
        return vec![row("–".into(), "–".into(), &notes, colour)];
    }
    let of_rate = |(provenance, rate): &(_, crate::decide::report::Rate)| {
        let mut notes = notes.clone();
        notes.extend(source(*provenance).map(str::to_owned));
        row(rate.fraction(), rate.bound(), &notes, (rate.faults > 0).then_some(Colour::Red))
    };
    cell.rates.iter().map(of_rate).collect()
}
