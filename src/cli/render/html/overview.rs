//! The upper part of the page: what was found, on what, and the cells with their rates.

use std::collections::HashMap;

use super::super::report::{chosen, reasons};
use super::super::{beside_the_rate, counted, duration, megabytes, peak_megabytes, source};
use super::glyph::{UNTESTED, shade, shape, tone};
use super::plots::{strip, strip_scale};
use crate::cli::dossier::Dossier;
use crate::decide::plan::CellRole;
use crate::decide::report::heat::{HeatLevel, heat};
use crate::decide::report::{CellReport, Report, Sampled};
use crate::decide::stats::Method;
use crate::model::verdict::{Counted, Provenance, Verdict};
use crate::perform::veil::Veil;

/// The most cells that have a row; faulty, short and surprising ones come before others.
const CELLS_MAX: usize = 300;

/// The most axes, and levels of an axis, that are shown.
const AXES_MAX: usize = 40;
const LEVELS_MAX: usize = 48;

/// The most entries of a list.
const ENTRIES_MAX: usize = 100;

/// A sentence about the trials of one provenance.
pub(super) struct HeadlineView {
    pub(super) tone: &'static str,
    pub(super) text: String,
}

/// What a run found.
pub(super) fn headlines(report: &Report, veil: &mut Veil) -> Vec<HeadlineView> {
    let tone = |is_fault: bool, provenance: Option<Provenance>| match (is_fault, provenance) {
        (true, _) => tone(Counted::Fault),
        (false, Some(_)) => tone(Counted::Clean),
        (false, None) => tone(Counted::Excluded),
    };
    let view = |line: &crate::decide::report::Headline| HeadlineView {
        tone: tone(line.is_fault, line.provenance),
        text: veil.text(&line.text),
    };
    report.headlines.iter().map(view).collect()
}

/// A few figures: how much was tried.
pub(super) fn tiles(dossier: &Dossier) -> Vec<(String, &'static str)> {
    let count = |counted: Counted| dossier.rows.iter().filter(|row| row.counted == counted).count();
    let (faults, clean, excluded) = (count(Counted::Fault), count(Counted::Clean), count(Counted::Excluded));
    vec![
        ((faults + clean).to_string(), "counted trials"),
        (faults.to_string(), "faults"),
        (clean.to_string(), "clean"),
        (excluded.to_string(), "in no rate"),
        (dossier.report.cells.len().to_string(), "cells"),
        (dossier.boots.len().to_string(), "boots"),
    ]
}

/// What the run is of, and on which machine.
pub(super) fn facts(dossier: &Dossier, veil: &mut Veil) -> Vec<(String, String)> {
    let (report, run) = (&dossier.report, &dossier.report.run);
    let mut facts = vec![
        ("matrix".to_owned(), format!("{} ({})", report.matrix.name, &report.matrix.digest.as_str()[..12])),
        ("seed".to_owned(), report.matrix.seed.to_string()),
    ];
    let options = report.matrix.overrides.iter().chain(&report.matrix.only);
    facts.extend(options.map(|text| ("changed".to_owned(), text.clone())));
    facts.extend(run.device.as_ref().map(|device| ("device".to_owned(), device.to_string())));
    if !run.tool.is_empty() {
        facts.push(("jetfault".to_owned(), run.tool.clone()));
    }
    facts.extend(run.machine.iter().map(|(name, value)| (name.clone(), value.clone())));
    let interval = match report.interval {
        Method::ClopperPearson => "95 %, Clopper and Pearson",
        Method::ConfidenceSequence => "95 % at every look: a confidence sequence",
        Method::Wilson => "95 %, Wilson",
        Method::Jeffreys => "95 %, Jeffreys",
    };
    facts.push(("intervals".to_owned(), interval.to_owned()));
    facts.iter().map(|(name, value)| (veil.text(name), veil.text(value))).collect()
}

/// One axis.
pub(super) struct HeatView {
    pub(super) axis: String,
    pub(super) levels: Vec<LevelView>,
    pub(super) left_out: usize,
}

/// One level of an axis.
pub(super) struct LevelView {
    pub(super) level: String,
    pub(super) is_baseline: bool,
    pub(super) shade: &'static str,
    pub(super) shape: char,
    pub(super) figure: String,
    pub(super) bound: String,
    /// The cell that is shown, to be looked up in the table.
    pub(super) anchor: Option<usize>,
}

/// Axis by level.
pub(super) fn heat_views(report: &Report, veil: &mut Veil) -> Vec<HeatView> {
    let mut views = Vec::new();
    // A word that stands on every tile says nothing; the headlines have it.
    let is_mixed = report.headlines.len() > 1;
    for row in heat(&report.cells).into_iter().take(AXES_MAX) {
        let left_out = row.levels.len().saturating_sub(LEVELS_MAX);
        let levels =
            row.levels.iter().take(LEVELS_MAX).map(|level| level_view(report, level, is_mixed, veil)).collect();
        views.push(HeatView { axis: veil.text(&row.axis), levels, left_out });
    }
    views
}

fn level_view(report: &Report, level: &HeatLevel, is_mixed: bool, veil: &mut Veil) -> LevelView {
    let sampled = level.alone.and_then(|index| report.cells[index].samples.first());
    let (shade, shape, figure, bound) = match sampled {
        Some(sampled) => (
            shade(&sampled.rate),
            foremost(sampled),
            sampled.rate.fraction(),
            match source(sampled.provenance).filter(|_| is_mixed) {
                Some(source) => format!("{}, {source}", sampled.rate.bound()),
                None => sampled.rate.bound(),
            },
        ),
        None => {
            let tested = level.among.iter().map(|index| &report.cells[*index]).filter(|cell| cell.counted() > 0);
            let (mut cells, mut faulty) = (0, 0);
            for cell in tested {
                cells += 1;
                faulty += usize::from(cell.samples.iter().any(|sampled| sampled.rate.faults > 0));
            }
            match (cells, faulty) {
                (0, _) => ("n", UNTESTED, "not tested".to_owned(), String::new()),
                (_, 0) => ("p1", shape(Verdict::Pass), counted(cells, "cell"), "none faults".to_owned()),
                (_, faulty) => ("f1", '▲', counted(cells, "cell"), format!("{faulty} with faults")),
            }
        }
    };
    LevelView {
        level: veil.text(&level.level),
        is_baseline: level.is_baseline,
        shade,
        shape,
        figure,
        bound,
        anchor: level.alone,
    }
}

/// The shape of the commonest fault, or of a pass.
fn foremost(sampled: &Sampled) -> char {
    let worst = sampled.faults.iter().max_by_key(|(_, count)| **count).map(|(verdict, _)| *verdict);
    if sampled.rate.counted == 0 { UNTESTED } else { shape(worst.unwrap_or(Verdict::Pass)) }
}

/// The table of cells.
pub(super) struct CellsView {
    pub(super) scale: String,
    pub(super) rows: Vec<CellView>,
    pub(super) left_out: usize,
}

/// One cell and provenance.
pub(super) struct CellView {
    /// Its anchor; absent for a second row of the same cell.
    pub(super) anchor: Option<usize>,
    pub(super) label: String,
    pub(super) is_control: bool,
    pub(super) tone: &'static str,
    pub(super) shape: char,
    pub(super) figure: String,
    /// The observed rate in per mille, to sort by.
    pub(super) order: i64,
    pub(super) strip: String,
    pub(super) bound: String,
    pub(super) time: String,
    pub(super) time_ms: u64,
    pub(super) peak: String,
    pub(super) peak_bytes: u64,
    pub(super) notes: String,
}

/// The cells that have something to say, in the order of the plan.
pub(super) fn cells(report: &Report, veil: &mut Veil) -> CellsView {
    let index_of: HashMap<_, _> = report.cells.iter().enumerate().map(|(index, cell)| (&cell.id, index)).collect();
    let (some, left_out) = chosen(&report.cells, CELLS_MAX);
    let mut rows = Vec::new();
    for cell in some {
        let anchor = index_of.get(&cell.id).copied();
        if cell.samples.is_empty() {
            rows.push(cell_view(cell, None, anchor, veil));
        }
        for (number, sampled) in cell.samples.iter().enumerate() {
            rows.push(cell_view(cell, Some(sampled), anchor.filter(|_| number == 0), veil));
        }
    }
    CellsView { scale: strip_scale(), rows, left_out }
}

fn cell_view(cell: &CellReport, sampled: Option<&Sampled>, anchor: Option<usize>, veil: &mut Veil) -> CellView {
    let durations = sampled.and_then(|sampled| sampled.clean_ms.or(sampled.fault_ms));
    let peak = sampled.and_then(|sampled| sampled.peak_memory);
    let measured = peak.map(|peak| peak_megabytes(&peak)).unwrap_or_default();
    let predicted = cell.predicted.as_ref().map(|peak| megabytes(peak.host_plus_reserved_bytes));
    let is_faulty = sampled.is_some_and(|sampled| sampled.rate.faults > 0);
    CellView {
        anchor,
        label: veil.text(&cell.label),
        is_control: cell.role == CellRole::Control,
        tone: match sampled {
            None => "n",
            Some(_) => tone(if is_faulty { Counted::Fault } else { Counted::Clean }),
        },
        shape: sampled.map_or(UNTESTED, foremost),
        figure: sampled.map_or_else(|| "not tested".to_owned(), |sampled| sampled.rate.fraction()),
        order: sampled
            .and_then(|sampled| sampled.rate.observed())
            .map_or(-1, |observed| (observed * 1000.0).round() as i64),
        strip: sampled.map(|sampled| strip(&sampled.rate)).unwrap_or_default(),
        bound: sampled.map(|sampled| sampled.rate.bound()).unwrap_or_default(),
        time: durations.map(|durations| duration(durations.median)).unwrap_or_default(),
        time_ms: durations.map_or(0, |durations| durations.median),
        peak: match predicted {
            Some(predicted) if measured.is_empty() => format!("predicted {predicted}"),
            Some(predicted) => format!("{measured} of {predicted} predicted"),
            None => measured,
        },
        peak_bytes: peak.map_or(0, |peak| peak.host_plus_reserved),
        notes: veil.text(&notes(cell, sampled)),
    }
}

fn notes(cell: &CellReport, sampled: Option<&Sampled>) -> String {
    let mut notes: Vec<String> = Vec::new();
    if let Some(sampled) = sampled {
        notes.extend(source(sampled.provenance).map(str::to_owned));
        notes.extend(sampled.faults.iter().map(|(verdict, count)| format!("{count} {verdict}")));
    }
    notes.extend(beside_the_rate(cell));
    notes.join(", ")
}

/// What was decided, where the number of trials is not fixed.
pub(super) fn decisions(report: &Report, veil: &mut Veil) -> Vec<String> {
    let words = |decision: &crate::decide::report::DecisionReport| match decision.other {
        Some(_) => decision.text.clone(),
        None => format!("{}: {}", decision.label, decision.text),
    };
    report.decisions.iter().take(ENTRIES_MAX).map(|decision| veil.text(&words(decision))).collect()
}

/// What the run says of one of the usual explanations.
pub(super) struct HypothesisView {
    pub(super) what: String,
    pub(super) status: &'static str,
    pub(super) evidence: String,
    pub(super) trials: u64,
}

/// The usual explanations.
pub(super) fn hypotheses(report: &Report, veil: &mut Veil) -> Vec<HypothesisView> {
    let view = |row: &crate::decide::hypotheses::Hypothesis| HypothesisView {
        what: veil.text(&row.what),
        status: row.status.as_str(),
        evidence: veil.text(&row.evidence),
        trials: row.trials,
    };
    report.hypotheses.iter().take(ENTRIES_MAX).map(view).collect()
}

/// Cells without a counted trial, or with fewer than asked for, and why.
pub(super) fn untested(report: &Report, veil: &mut Veil) -> Vec<(String, String)> {
    let short = report.cells.iter().filter(|cell| cell.counted() == 0 || cell.short.is_some()).take(ENTRIES_MAX);
    short
        .map(|cell| {
            let counted = match cell.counted() {
                0 => String::new(),
                n => format!("{n} of {} counted; ", cell.wanted),
            };
            (veil.text(&cell.label), format!("{counted}{}", veil.text(&reasons(cell))))
        })
        .collect()
}
