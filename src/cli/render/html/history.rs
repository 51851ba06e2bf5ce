//! What happened when: the boots with their trials, what faults have in common, and every trial as a row.

use std::collections::HashMap;

use super::super::report::signature_words;
use super::super::{counted, duration, one_line, peak_megabytes, source};
use super::glyph::{shape, tone};
use crate::cli::dossier::Dossier;
use crate::decide::report::boots::{BootEnd, BootRow};
use crate::decide::report::trials::TrialRow;
use crate::model::ids::TrialId;
use crate::model::verdict::{Counted, Provenance, RebootCause, Signature, Verdict};
use crate::perform::veil::Veil;

/// The most boots that are shown: the newest.
const BOOTS_MAX: usize = 300;

/// The most marks in the line of a boot.
const MARKS_MAX: usize = 40;

/// In a boot with more trials than this, trials in a row with the same verdict share one mark.
const SINGLE_MARKS_MAX: usize = 12;

/// The most trials that have a row: the newest, so that the page stays one that a browser opens.
const ROWS_MAX: usize = 20_000;

/// The longest text of a row's last column, in characters.
const SAYS_CHARS_MAX: usize = 160;

/// The most signatures.
const SIGNATURES_MAX: usize = 200;

/// The boots.
pub(super) struct BootsView {
    pub(super) boots: Vec<BootView>,
    /// How many older ones there were.
    pub(super) left_out: usize,
    /// The verdicts that occur, for the legend.
    pub(super) legend: Vec<(&'static str, char, Verdict)>,
}

/// One boot.
pub(super) struct BootView {
    pub(super) number: usize,
    pub(super) id: String,
    pub(super) wall: String,
    pub(super) lasted: String,
    pub(super) marks: Vec<MarkView>,
    pub(super) marks_left_out: usize,
    pub(super) tone: &'static str,
    pub(super) end: String,
    pub(super) said: String,
    pub(super) seen: String,
}

/// One trial of a boot, or several in a row that ended alike.
pub(super) struct MarkView {
    pub(super) row: usize,
    pub(super) tone: &'static str,
    pub(super) shape: char,
    pub(super) title: String,
    pub(super) times: usize,
}

/// The boots with their trials.
pub(super) fn boots(dossier: &Dossier, veil: &mut Veil) -> BootsView {
    let left_out = dossier.boots.len().saturating_sub(BOOTS_MAX);
    let newest = dossier.boots.iter().enumerate().skip(left_out);
    let boots = newest.map(|(index, boot)| boot_view(dossier, index + 1, boot, veil)).collect();
    let occurs = |verdict: &Verdict| dossier.rows.iter().any(|row| row.judgement.verdict == *verdict);
    let legend = Verdict::ALL.into_iter().filter(occurs);
    BootsView {
        boots,
        left_out,
        legend: legend.map(|verdict| (tone(verdict.counted()), shape(verdict), verdict)).collect(),
    }
}

fn boot_view(dossier: &Dossier, number: usize, boot: &BootRow, veil: &mut Veil) -> BootView {
    let mut marks: Vec<MarkView> = Vec::new();
    let mut left_out = 0;
    let mut last = None;
    let may_share = boot.trials.len() > SINGLE_MARKS_MAX;
    for index in &boot.trials {
        let Some(row) = dossier.rows.get(*index) else { continue };
        let kind = (row.judgement.verdict, row.counted);
        if let Some(mark) = marks.last_mut().filter(|_| may_share && last == Some(kind)) {
            mark.times += 1;
        } else if marks.len() < MARKS_MAX {
            marks.push(MarkView {
                row: *index,
                tone: tone(row.counted),
                shape: shape(row.judgement.verdict),
                title: veil.text(&format!("{} {}", dossier.label(row), verdict_words(row))),
                times: 1,
            });
        } else {
            left_out += 1;
            continue;
        }
        last = Some(kind);
    }
    BootView {
        number,
        id: boot.boot.as_str()[..8].to_owned(),
        // Down to the minute: what a clock of a board says is for people.
        wall: boot.wall.to_string().replace('T', " ").chars().take(16).collect(),
        lasted: duration(boot.uptime_ms.1.0.saturating_sub(boot.uptime_ms.0.0)),
        marks,
        marks_left_out: left_out,
        tone: match boot.end {
            BootEnd::Fault(_) => "f",
            BootEnd::Last | BootEnd::Asked(_) | BootEnd::Cut | BootEnd::Ordered | BootEnd::Unexplained => "x",
        },
        end: veil.text(&one_line(&boot.end.in_words())),
        said: veil.text(&one_line(&boot.said.join("; "))),
        seen: veil.text(&one_line(&boot.seen.join("; "))),
    }
}

/// A verdict with its cause and stage.
fn verdict_words(row: &TrialRow) -> String {
    let judgement = &row.judgement;
    let cause = judgement.cause.map(|cause| format!(" ({})", cause.as_str())).unwrap_or_default();
    let stage = judgement.stage.as_ref().map(|stage| format!(" at {stage}")).unwrap_or_default();
    format!("{}{cause}{stage}", judgement.verdict)
}

/// What makes faults the same.
pub(super) struct SignatureView {
    pub(super) shape: char,
    pub(super) words: String,
    pub(super) count: u64,
    pub(super) cells: String,
    pub(super) source: &'static str,
    /// The first trial that had it, and its row.
    pub(super) first: String,
    pub(super) row: Option<usize>,
}

/// Faults by signature over all cells, the commonest first.
pub(super) fn signatures(dossier: &Dossier, veil: &mut Veil) -> Vec<SignatureView> {
    /// A signature, how often it was seen, in which cells, the first trial that had it, and its words.
    struct Group<'a> {
        count: u64,
        cells: Vec<&'a str>,
        first: &'a TrialId,
        causes: Vec<(RebootCause, u64)>,
        words: String,
    }
    let mut groups: Vec<((&Signature, Provenance), Group<'_>)> = Vec::new();
    for cell in &dossier.report.cells {
        for (sampled, signed) in
            cell.samples.iter().flat_map(|sampled| sampled.signatures.iter().map(move |signed| (sampled, signed)))
        {
            let key = (&signed.signature, sampled.provenance);
            let at = groups.iter().position(|(known, _)| *known == key);
            let at = at.unwrap_or_else(|| {
                let words = signature_words(signed);
                let group = Group { count: 0, cells: Vec::new(), first: &signed.first, causes: Vec::new(), words };
                groups.push((key, group));
                groups.len() - 1
            });
            let group = &mut groups[at].1;
            group.count += signed.count;
            group.cells.push(&cell.label);
            for (cause, count) in &signed.causes {
                match group.causes.iter_mut().find(|(known, _)| known == cause) {
                    Some((_, known)) => *known += count,
                    None => group.causes.push((*cause, *count)),
                }
            }
        }
    }
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    groups.truncate(SIGNATURES_MAX);
    let rows: HashMap<&TrialId, usize> =
        dossier.rows.iter().enumerate().map(|(index, row)| (&row.trial, index)).collect();
    let view = |((signature, provenance), group): ((&Signature, Provenance), Group<'_>)| SignatureView {
        shape: shape(signature.verdict),
        words: {
            // The words of one cell name its causes; of several cells the sum is said.
            let causes: Vec<String> =
                group.causes.iter().map(|(cause, count)| format!("{count} {}", cause.as_str())).collect();
            match group.cells.len() {
                1 => veil.text(&group.words),
                _ if causes.is_empty() => veil.text(&signature.to_string()),
                _ => veil.text(&format!("{signature} ({})", causes.join(", "))),
            }
        },
        count: group.count,
        cells: veil.text(&cells_words(&group.cells)),
        source: source(provenance).unwrap_or_default(),
        first: group.first.to_string(),
        row: rows.get(group.first).copied(),
    };
    groups.into_iter().map(view).collect()
}

/// The names of a few cells, or how many there are.
fn cells_words(cells: &[&str]) -> String {
    const NAMED_MAX: usize = 6;
    match cells.len() {
        0..=NAMED_MAX => cells.join(", "),
        many => format!("{} and {} more", cells[..NAMED_MAX].join(", "), counted((many - NAMED_MAX) as u64, "cell")),
    }
}

/// All trials.
pub(super) struct RowsView {
    pub(super) rows: Vec<RowView>,
    /// How many older ones there were.
    pub(super) left_out: usize,
    /// Whether any row has something in the column.
    pub(super) has_start: bool,
    pub(super) has_stage: bool,
    pub(super) has_time: bool,
    pub(super) has_peak: bool,
    /// The verdicts that occur, with their number, for the filter.
    pub(super) verdicts: Vec<(&'static str, char, Verdict, usize)>,
}

/// One trial.
pub(super) struct RowView {
    pub(super) index: usize,
    pub(super) tone: &'static str,
    pub(super) shape: char,
    pub(super) verdict: String,
    pub(super) trial: String,
    /// Whether there is a close look at it.
    pub(super) has_close: bool,
    pub(super) label: String,
    pub(super) boot: String,
    pub(super) start: &'static str,
    pub(super) stage: String,
    pub(super) time: String,
    pub(super) time_ms: u64,
    pub(super) peak: String,
    pub(super) says: String,
}

/// The trials as rows.
pub(super) fn rows(dossier: &Dossier, veil: &mut Veil) -> RowsView {
    let numbers = dossier.boot_numbers();
    let left_out = dossier.rows.len().saturating_sub(ROWS_MAX);
    let mut has_close = vec![false; dossier.rows.len()];
    dossier.close.iter().for_each(|close| has_close[close.row] = true);
    let view = |(index, row): (usize, &TrialRow)| {
        let start = row.start.as_ref();
        let outcome = row.outcome.as_ref();
        let judgement = &row.judgement;
        RowView {
            index,
            tone: tone(row.counted),
            shape: shape(judgement.verdict),
            verdict: match judgement.cause {
                Some(cause) => format!("{} ({})", judgement.verdict, cause.as_str()),
                None => judgement.verdict.to_string(),
            },
            trial: row.trial.to_string(),
            has_close: has_close[index],
            label: veil.text(dossier.label(row)),
            boot: start.and_then(|start| numbers.get(&start.boot)).map(usize::to_string).unwrap_or_default(),
            start: start.and_then(|start| start.state).map_or("", |(state, _)| state.as_str()),
            stage: judgement.stage.as_ref().map(|stage| veil.text(stage.as_str())).unwrap_or_default(),
            time: outcome.map(|outcome| duration(outcome.duration_ms)).unwrap_or_default(),
            time_ms: outcome.map_or(0, |outcome| outcome.duration_ms),
            peak: outcome.map(|outcome| peak_megabytes(&outcome.peak)).unwrap_or_default(),
            says: cut(&veil.text(&says(row))),
        }
    };
    let of = |verdict: Verdict| dossier.rows.iter().filter(|row| row.judgement.verdict == verdict).count();
    let verdicts =
        Verdict::ALL.into_iter().map(|verdict| (tone(verdict.counted()), shape(verdict), verdict, of(verdict)));
    let rows: Vec<RowView> = dossier.rows.iter().enumerate().skip(left_out).map(view).collect();
    RowsView {
        has_start: rows.iter().any(|row| !row.start.is_empty()),
        has_stage: rows.iter().any(|row| !row.stage.is_empty()),
        has_time: rows.iter().any(|row| !row.time.is_empty()),
        has_peak: rows.iter().any(|row| !row.peak.is_empty()),
        rows,
        left_out,
        verdicts: verdicts.filter(|(.., count)| *count > 0).collect(),
    }
}

/// What stands beside the verdict: where its numbers come from, its detail, else the place of its signature.
fn says(row: &TrialRow) -> String {
    let judgement = &row.judgement;
    let mut words: Vec<String> = Vec::new();
    words.extend(row.start.as_ref().and_then(|start| source(start.provenance)).map(str::to_owned));
    words.extend(judgement.detail.as_deref().map(one_line));
    if let Some(signature) = &judgement.signature {
        words.extend([&signature.status, &signature.place].into_iter().flatten().map(|part| one_line(part)));
    }
    if row.counted == Counted::Excluded && judgement.verdict.counted() != Counted::Excluded {
        words.push("in no rate".to_owned());
    }
    words.join("; ")
}

fn cut(text: &str) -> String {
    super::super::table::cut(text, SAYS_CHARS_MAX)
}
