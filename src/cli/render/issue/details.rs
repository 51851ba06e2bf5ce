//! What folds away: environment, all cells, stages, explanations, evidence, how to see it again, what was not tested.
//!
//! Each part has a share of what a comment may hold. Where it is used up, the part says where the rest is.

use std::fmt::Write;

use super::Issue;
use crate::cli::render::markdown::Safe;
use crate::cli::render::report::{chosen, reasons, signature_words, standing};
use crate::cli::render::{beside_the_rate, counted, cut, duration, megabytes, peak_megabytes, source};
use crate::decide::brief::{Line, StageTimes};
use crate::decide::hypotheses::Hypothesis;
use crate::decide::report::{CellReport, Durations, Report, Sampled};
use crate::model::ids::DeviceId;

/// Bytes of the table of cells, over all runs.
const CELLS_BYTES_MAX: usize = 17_000;

/// Bytes of the times of stages.
const STAGES_BYTES_MAX: usize = 5_000;

/// Bytes of what explains the fault and what does not.
const EXPLANATIONS_BYTES_MAX: usize = 5_000;

/// Bytes of what the machine said.
const EVIDENCE_BYTES_MAX: usize = 10_000;

/// Bytes of one fault's evidence.
const EXCERPT_BYTES_MAX: usize = 2_500;

/// Bytes of the matrix.
const MATRIX_BYTES_MAX: usize = 6_000;

/// Bytes of what was not tested.
const UNTESTED_BYTES_MAX: usize = 5_000;

/// Bytes of the environment.
const ENVIRONMENT_BYTES_MAX: usize = 3_000;

/// Appends all of it.
pub(super) fn details(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>, device: &dyn Fn(&DeviceId) -> String) {
    environment(out, issue, safe, device);
    cells(out, issue, safe);
    stages(out, &issue.brief.stages, safe);
    explanations(out, issue, safe);
    evidence(out, issue, safe);
    again(out, issue, safe);
    untested(out, issue, safe);
}

/// A part that folds away.
fn fold(out: &mut String, title: &str, body: &str) {
    let _ = writeln!(out, "<details>\n<summary>{title}</summary>\n\n{}\n</details>\n", body.trim());
}

/// Lines up to a number of bytes.
struct Budget {
    text: String,
    bytes: usize,
    left_out: u64,
}

impl Budget {
    fn new(head: &str, bytes: usize) -> Self {
        Self { text: head.to_owned(), bytes, left_out: 0 }
    }

    /// Appends `line` if there is room and nothing was left out before it.
    fn line(&mut self, line: &str) {
        if self.left_out == 0 && self.text.len() + line.len() < self.bytes {
            self.text.push_str(line);
            self.text.push('\n');
        } else {
            self.left_out += 1;
        }
    }

    /// The lines, and how many of `noun` are elsewhere.
    fn finish(mut self, noun: &str, elsewhere: &str) -> String {
        if self.left_out > 0 {
            let _ = write!(self.text, "\n{} left out here: {elsewhere} has all.\n", counted(self.left_out, noun));
        }
        self.text
    }
}

/// The command that gives everything of a run.
fn all_of(report: &Report) -> String {
    format!("`jetfault report {} --format json`", report.run.id)
}

fn environment(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>, device: &dyn Fn(&DeviceId) -> String) {
    let mut body = Budget::new("| | |\n|---|---|\n", ENVIRONMENT_BYTES_MAX);
    let mut before: Option<&Report> = None;
    for report in issue.reports {
        let (run, matrix) = (&report.run, &report.matrix);
        let mut facts = vec![
            format!("matrix {} {}", safe.code(&matrix.name), safe.code(&matrix.digest.as_str()[..12])),
            safe.prose(&standing(&run.standing)),
            counted(u64::from(run.boots), "boot"),
            format!("seed {}", matrix.seed),
        ];
        facts.extend(run.device.as_ref().map(|machine| format!("board {}", safe.code(&device(machine)))));
        facts.extend(matrix.overrides.iter().chain(&matrix.only).map(|change| safe.code(change)));
        body.line(&format!("| run {} | {} |", safe.code(run.id.as_str()), facts.join(", ")));
        if before.is_none_or(|before| before.run.machine != run.machine) {
            for (name, value) in &run.machine {
                let name = safe.prose(name);
                body.line(&format!("| {name} | {} |", safe.code(value)));
            }
        }
        before = Some(report);
    }
    fold(out, "Environment", &body.finish("row", &issue.reports.first().map(all_of).unwrap_or_default()));
}

fn cells(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>) {
    let share = CELLS_BYTES_MAX / issue.reports.len().max(1);
    let mut body = String::new();
    let mut number = 0;
    for report in issue.reports {
        number += report.cells.len();
        if issue.reports.len() > 1 {
            let _ = writeln!(body, "{}\n", safe.code(report.run.id.as_str()));
        }
        let head = "| cell | n | faults | rate, 95 % | stage and signature | time, median (range) | peak, predicted MB | notes |\n\
                    |---|---|---|---|---|---|---|---|\n";
        // Where not everything fits, faulty and short cells come before others, still in the order of the plan.
        let mut limit = report.cells.len();
        let rows = loop {
            let (some, _) = chosen(&report.cells, limit);
            let rows: Vec<String> = some.iter().flat_map(|cell| rows_of(cell, safe)).collect();
            let bytes: usize = rows.iter().map(|row| row.len() + 1).sum();
            if bytes + head.len() < share || limit == 0 {
                break rows;
            }
            limit = (limit * share / (bytes + head.len())).min(limit - 1);
        };
        let mut part = Budget::new(head, usize::MAX);
        rows.iter().for_each(|row| part.line(row));
        part.left_out = report.cells.len().saturating_sub(limit) as u64;
        body.push_str(&part.finish("cell", &all_of(report)));
        body.push('\n');
    }
    fold(out, &format!("All cells ({number})"), &body);
}

fn rows_of(cell: &CellReport, safe: &mut Safe<'_>) -> Vec<String> {
    let label = safe.code(&cell.label);
    if cell.samples.is_empty() {
        return vec![format!("| {label} | 0 | not tested | | | | {} | {} |", peak(cell, None), notes(cell, None))];
    }
    let mut row = |sampled: &Sampled| {
        let signatures: Vec<String> = sampled
            .signatures
            .iter()
            .map(|signed| format!("{} × {}", signed.count, safe.code(&signature_words(signed))))
            .collect();
        format!(
            "| {label} | {} | {} | {} | {} | {} | {} | {} |",
            sampled.rate.counted,
            sampled.rate.faults,
            super::interval(&sampled.rate),
            signatures.join("<br>"),
            sampled.clean_ms.or(sampled.fault_ms).map_or_else(String::new, range),
            peak(cell, Some(sampled)),
            notes(cell, Some(sampled))
        )
    };
    cell.samples.iter().map(&mut row).collect()
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
    notes.extend(sampled.and_then(|sampled| source(sampled.provenance)).map(|source| format!("*{source}*")));
    notes.extend(beside_the_rate(cell));
    notes.join(", ")
}

fn stages(out: &mut String, stages: &[StageTimes], safe: &mut Safe<'_>) {
    if stages.is_empty() {
        return;
    }
    let head = "Of trials without a fault.\n\n| what | stage | trials | median | range |\n|---|---|---|---|---|\n";
    let mut body = Budget::new(head, STAGES_BYTES_MAX);
    for StageTimes { label, stage, times } in stages {
        let range = format!("{}–{}", duration(times.shortest), duration(times.longest));
        let (label, stage) = (safe.code(label), safe.code(stage.as_str()));
        body.line(&format!("| {label} | {stage} | {} | {} | {range} |", times.trials, duration(times.median)));
    }
    fold(out, "Time in each stage", &body.finish("row", "the journal of the run"));
}

fn explanations(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>) {
    let rows: Vec<_> = issue.reports.iter().flat_map(|report| &report.hypotheses).collect();
    if rows.is_empty() && issue.brief.shown.is_empty() {
        return;
    }
    let mut body = Budget::new("", EXPLANATIONS_BYTES_MAX);
    for sentence in &issue.brief.shown {
        body.line(&format!("- {}", safe.prose(&cut(sentence, 2 * super::SENTENCE_CHARS_MAX))));
    }
    if !rows.is_empty() {
        body.line("\n| explanation | | evidence | trials |\n|---|---|---|---|");
    }
    // Runs that are reported together say the same of most explanations; then the one with most trials speaks.
    let mut said: Vec<&Hypothesis> = Vec::new();
    for row in rows {
        let is_same = |known: &&mut &Hypothesis| {
            (&known.what, known.status, &known.evidence) == (&row.what, row.status, &row.evidence)
        };
        match said.iter_mut().find(is_same) {
            Some(known) if known.trials < row.trials => *known = row,
            Some(_) => {}
            None => said.push(row),
        }
    }
    for row in said {
        let (what, evidence) = (safe.prose(&row.what), safe.prose(&row.evidence));
        body.line(&format!("| {what} | **{}** | {evidence} | {} |", row.status, row.trials));
    }
    let elsewhere = issue.reports.first().map(all_of).unwrap_or_default();
    fold(out, "Ruled out, supported, undecided", &body.finish("row", &elsewhere));
}

fn evidence(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>) {
    let excerpts = &issue.brief.excerpts;
    if excerpts.is_empty() {
        return;
    }
    let mut body = Budget::new("The first fault of each kind.\n\n", EVIDENCE_BYTES_MAX);
    let mut lines: Vec<String> = Vec::new();
    for (place, excerpt) in excerpts.iter().enumerate() {
        let run = issue.reports.get(excerpt.run).map(|report| report.run.id.as_str()).unwrap_or_default();
        let mut text = format!("**{}** in {}\n\n", safe.prose(&excerpt.verdict), safe.code(&excerpt.label));
        let _ = writeln!(text, "Rule {}.", safe.prose(&excerpt.rule));
        lines.clear();
        let stderr = issue.stderr.get(place).and_then(Option::as_ref);
        // The first error is a line of what follows, as a rule.
        let is_shown = |line: &Line| stderr.is_some_and(|stderr| stderr.contains(&line.text));
        let said = excerpt.lines.iter().filter(|line| line.source != "stderr" || !is_shown(line));
        let mut texts: Vec<&str> = Vec::new();
        for line in said {
            if !texts.contains(&line.text.as_str()) {
                texts.push(&line.text);
                lines.push(format!("[{}] {}", line.source, line.text));
            }
        }
        if let Some(stderr) = stderr {
            lines.push("[stderr, its end]".to_owned());
            lines.extend(stderr.lines().map(str::to_owned));
        }
        if !lines.is_empty() {
            let _ = write!(text, "\n{}", safe.block("text", &lines.join("\n"), EXCERPT_BYTES_MAX));
        }
        if !excerpt.missing.is_empty() {
            let _ =
                writeln!(text, "\nNot there, and would have said more: {}.", safe.prose(&excerpt.missing.join("; ")));
        }
        let _ = writeln!(text, "\nThe whole chain: `jetfault explain {run} {}`", excerpt.trial);
        body.line(&text);
    }
    let elsewhere = issue.reports.first().map(|report| format!("`jetfault report {}`", report.run.id));
    fold(out, "Evidence", &body.finish("kind of fault", &elsewhere.unwrap_or_default()));
}

fn again(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>) {
    let again = issue.again;
    let mut body = String::new();
    if !again.command.is_empty() {
        let _ = writeln!(body, "{}", safe.block("sh", &again.command, EXCERPT_BYTES_MAX));
    }
    if let Some(program) = &again.program {
        let _ = writeln!(body, "What it runs, without jetfault:\n\n{}", safe.block("sh", program, EXCERPT_BYTES_MAX));
    }
    if !again.matrix.is_empty() {
        let _ = writeln!(body, "`matrix.toml`:\n\n{}", safe.block("toml", &again.matrix, MATRIX_BYTES_MAX));
    }
    if !body.is_empty() {
        fold(out, "How to reproduce", &body);
    }
}

fn untested(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>) {
    let mut body = Budget::new("", UNTESTED_BYTES_MAX);
    if issue.brief.not_shown.len() > super::NOT_SHOWN_MAX {
        for sentence in &issue.brief.not_shown[super::NOT_SHOWN_MAX - 1..] {
            body.line(&format!("- {}", safe.prose(&cut(sentence, super::SENTENCE_CHARS_MAX))));
        }
    }
    for cell in issue.reports.iter().flat_map(|report| &report.cells) {
        if cell.counted() > 0 && cell.short.is_none() {
            continue;
        }
        let counted = match cell.counted() {
            0 => String::new(),
            n => format!(" ({n} of {} counted)", cell.wanted),
        };
        body.line(&format!("- {}{counted}: {}", safe.code(&cell.label), safe.code(&reasons(cell))));
    }
    body.line("- Whatever stands in no table here was not tested.");
    let elsewhere = issue.reports.first().map(all_of).unwrap_or_default();
    fold(out, "Not tested, not shown", &body.finish("entry", &elsewhere));
}
