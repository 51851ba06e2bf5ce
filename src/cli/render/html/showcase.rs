//! The lower part of the page: stages, memory, the trials that are looked at closely, and what the machine said.

use super::super::report::chosen;
use super::super::{duration, megabytes};
use super::Material;
use super::glyph::{shape, tone};
use super::plots::{BarStage, MemoryBar, STAGE_COLOURS, stage_bar, telemetry};
use crate::cli::dossier::Dossier;
use crate::decide::explain::Seen;
use crate::decide::report::trials::Close;
use crate::perform::exhibits::Exhibit;
use crate::perform::veil::Veil;

/// The most cells whose stages and memory are drawn.
const BARS_MAX: usize = 60;

/// The stages of the cells.
pub(super) struct StagesView {
    pub(super) bars: Vec<BarView>,
    /// The steps that occur, with the number of their colour.
    pub(super) legend: Vec<(usize, String)>,
    pub(super) left_out: usize,
}

/// One cell as a bar.
pub(super) struct BarView {
    pub(super) label: String,
    pub(super) picture: String,
    pub(super) figure: String,
    /// The same in words, row by row, for those who cannot see it.
    pub(super) table: Vec<(String, String, String)>,
}

/// The median stages of clean trials, cell by cell.
pub(super) fn stages(dossier: &Dossier, veil: &mut Veil) -> StagesView {
    let total = |index: usize| dossier.stages[index].stages.iter().map(|time| time.median_ms).sum::<u64>();
    let with_stages: Vec<usize> = (0..dossier.stages.len()).filter(|index| total(*index) > 0).collect();
    let shown = &with_stages[..with_stages.len().min(BARS_MAX)];
    let longest = shown.iter().map(|index| total(*index)).max().unwrap_or(0);
    let mut known = Vec::new();
    let mut bars = Vec::new();
    for index in shown {
        let times: Vec<BarStage> = dossier.stages[*index]
            .stages
            .iter()
            .map(|time| BarStage {
                name: veil.text(time.stage.as_str()),
                median_ms: time.median_ms,
                longest_ms: time.longest_ms,
            })
            .collect();
        let label = veil.text(&dossier.plan.cells[*index].label);
        let words = format!("Stages of {label}: {} in all", duration(total(*index)));
        bars.push(BarView {
            picture: stage_bar(&times, longest, &mut known, &words),
            figure: duration(total(*index)),
            table: times
                .iter()
                .map(|time| (time.name.clone(), duration(time.median_ms), duration(time.longest_ms)))
                .collect(),
            label,
        });
    }
    let legend = known.iter().enumerate().map(|(index, step)| (index % STAGE_COLOURS, step.clone())).collect();
    StagesView { bars, legend, left_out: with_stages.len() - shown.len() }
}

/// The memory of the cells.
pub(super) struct MemoryView {
    pub(super) bars: Vec<BarView>,
    pub(super) limit: Option<String>,
    pub(super) left_out: usize,
}

/// The highest peaks of each cell beside what was predicted and what the machine has.
pub(super) fn memory(dossier: &Dossier, veil: &mut Veil) -> MemoryView {
    let limit = dossier.machine.as_ref().map(|machine| machine.memory_bytes).filter(|bytes| *bytes > 0);
    let (cells, _) = chosen(&dossier.report.cells, usize::MAX);
    let figures = |cell: &crate::decide::report::CellReport| {
        let peaks = cell.samples.iter().filter_map(|sampled| sampled.peak_memory);
        let measured = peaks
            .map(|peak| if peak.host_plus_reserved > 0 { peak.host_plus_reserved } else { peak.host })
            .max()
            .filter(|bytes| *bytes > 0);
        (measured, cell.predicted.as_ref().map(|peak| peak.host_plus_reserved_bytes))
    };
    let with_figures: Vec<_> = cells
        .into_iter()
        .map(|cell| (cell, figures(cell)))
        .filter(|(_, (measured, predicted))| measured.is_some() || predicted.is_some())
        .collect();
    let shown = &with_figures[..with_figures.len().min(BARS_MAX)];
    let highest = shown.iter().flat_map(|(_, (measured, predicted))| [*measured, *predicted]).flatten().max();
    // A machine with much more memory than was used would make every bar a dot.
    let is_near = |limit: &u64| highest.is_some_and(|highest| highest > limit / 8);
    let limit_shown = limit.filter(is_near);
    let end = highest.max(limit_shown).unwrap_or(1) / 100 * 104;
    let bar = |(cell, (measured, predicted)): &(&crate::decide::report::CellReport, (Option<u64>, Option<u64>))| {
        let picture = MemoryBar { measured: *measured, predicted: *predicted, limit: limit_shown, end };
        let words = [("measured", measured), ("predicted", predicted)];
        let words = words.iter().filter_map(|(name, bytes)| bytes.map(|bytes| format!("{name} {}", megabytes(bytes))));
        let figure = format!("{} MB", words.collect::<Vec<_>>().join(", "));
        let label = veil.text(&cell.label);
        BarView { picture: picture.picture(&format!("Memory of {label}: {figure}")), label, figure, table: Vec::new() }
    };
    MemoryView {
        bars: shown.iter().map(bar).collect(),
        limit: limit.map(|bytes| format!("{} MB", megabytes(bytes))),
        left_out: with_figures.len() - shown.len(),
    }
}

/// A trial that is looked at closely.
pub(super) struct CloseView {
    pub(super) row: usize,
    pub(super) tone: &'static str,
    pub(super) shape: char,
    pub(super) verdict: String,
    pub(super) trial: String,
    pub(super) label: String,
    pub(super) is_fault: bool,
    pub(super) telemetry: Option<String>,
    pub(super) seen: Vec<(String, String)>,
    pub(super) rule: String,
    pub(super) because: String,
    pub(super) missing: Vec<String>,
    pub(super) would: Vec<String>,
    pub(super) outputs: Vec<PieceView>,
}

/// A piece of a file.
pub(super) struct PieceView {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) left_out: u64,
}

/// The trials that are looked at closely, as they were chosen: faults first.
pub(super) fn close(dossier: &Dossier, material: &Material, veil: &mut Veil) -> Vec<CloseView> {
    let memory = dossier.machine.as_ref().map(|machine| machine.memory_bytes).filter(|bytes| *bytes > 0);
    let mut views = Vec::new();
    for (number, close) in dossier.close.iter().enumerate() {
        let samples = material.series.get(number).map_or(&[][..], Vec::as_slice);
        let outputs = material.outputs.get(number).map_or(&[][..], Vec::as_slice);
        let names: Vec<String> = close.result.stages.iter().map(|stage| veil.text(stage.stage.as_str())).collect();
        let picture = telemetry(&close.result, &names, samples, memory);
        views.push(close_view(dossier, close, picture, outputs, veil));
    }
    views
}

fn close_view(
    dossier: &Dossier,
    close: &Close,
    telemetry: Option<String>,
    outputs: &[Exhibit],
    veil: &mut Veil,
) -> CloseView {
    let row = &dossier.rows[close.row];
    let why = &close.explanation;
    let judgement = &row.judgement;
    let cause = judgement.cause.map(|cause| format!(" ({})", cause.as_str())).unwrap_or_default();
    let stage = judgement.stage.as_ref().map(|stage| format!(" at {stage} or later")).unwrap_or_default();
    let counted = judgement.verdict.counted();
    let is_fault = counted == crate::model::verdict::Counted::Fault;
    let mut words = |seen: &Seen| (veil.text(&seen.what), veil.text(&seen.how));
    CloseView {
        row: close.row,
        tone: tone(row.counted),
        shape: shape(judgement.verdict),
        seen: why.observed.iter().map(&mut words).collect(),
        verdict: veil.text(&format!("{}{cause}{}", judgement.verdict, if is_fault { &stage } else { "" })),
        trial: row.trial.to_string(),
        label: veil.text(dossier.label(row)),
        is_fault,
        telemetry,
        rule: why.rule.label.clone(),
        because: veil.text(&why.rule.because),
        missing: why.missing.iter().map(|missing| veil.text(missing)).collect(),
        would: why.would_decide.iter().map(|would| veil.text(&format!("{} → {}", would.known, would.then))).collect(),
        outputs: outputs.iter().map(|exhibit| piece(exhibit, veil)).collect(),
    }
}

/// What the machine said at the beginning of a boot.
pub(super) struct SaidView {
    pub(super) number: usize,
    pub(super) boot: String,
    pub(super) pieces: Vec<PieceView>,
}

/// What the machine said, boot by boot, the newest first.
pub(super) fn said(dossier: &Dossier, material: &Material, veil: &mut Veil) -> Vec<SaidView> {
    let number = |boot: &str| dossier.boots.iter().position(|row| row.boot.as_str() == boot).map_or(0, |at| at + 1);
    let view = |(boot, exhibits): &(String, Vec<Exhibit>)| SaidView {
        number: number(boot),
        boot: boot.clone(),
        pieces: exhibits.iter().map(|exhibit| piece(exhibit, veil)).collect(),
    };
    material.said.iter().map(view).collect()
}

/// A piece of a file as text: of control characters only the ends of lines and tabulators stay.
fn piece(exhibit: &Exhibit, veil: &mut Veil) -> PieceView {
    let bytes = veil.file(&exhibit.name, exhibit.bytes.clone());
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    PieceView {
        name: veil.text(&exhibit.name),
        text: text.chars().filter(is_shown).collect(),
        left_out: exhibit.left_out,
    }
}
