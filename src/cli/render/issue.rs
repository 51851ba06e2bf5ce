//! A bug report in Markdown: what its author would write by hand, from the figures of one run or several.
//!
//! The first line is the finding with its bound. At most [`LINES_MAX`] lines stand before the first fold; everything longer
//! folds away, and what does not fit a comment is cut, with a word on where the rest is.

mod details;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write;

use super::markdown::Safe;
use super::report::{persistence, standing};
use super::{counted, cut, one_line};
use crate::cli::issue::Corrections;
use crate::decide::brief::{BinaryRow, Brief, Pool, State};
use crate::decide::report::{Report, percent};
use crate::model::ids::DeviceId;
use crate::model::verdict::{Provenance, Verdict};

/// The longest a text may be: GitHub takes 65,536 characters in an issue or a comment, and some stay for the author.
pub const MARKDOWN_BYTES_MAX: usize = 60_000;

/// The most lines before the first fold.
pub const LINES_MAX: usize = 40;

/// Rows of the table by start state and binary.
const BINARIES_MAX: usize = 8;

/// Rows that failed, and rows that did not, before the fold.
const FAILS_MAX: usize = 4;

/// See [`FAILS_MAX`].
const WORKS_MAX: usize = 5;

/// Sentences on what may not be concluded before the fold.
const NOT_SHOWN_MAX: usize = 5;

/// The most different stages that the first line names.
const STAGES_MAX: usize = 3;

/// The longest remark of a transcription, in characters.
const TOLD_CHARS_MAX: usize = 160;

/// The longest sentence that is computed from names of axes and levels, in characters.
const SENTENCE_CHARS_MAX: usize = 700;

/// How to see it again.
#[derive(Debug, Clone, Default)]
pub struct Again {
    /// The command line.
    pub command: String,
    /// The matrix, as it was given.
    pub matrix: String,
    /// What a command workload runs, without the harness.
    pub program: Option<String>,
}

/// Everything that a bug report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Issue<'a> {
    /// The runs, the one that was asked for first.
    pub reports: &'a [Report],
    /// What they say together.
    pub brief: &'a Brief,
    /// Runs that correct the first.
    pub corrected_by: &'a Corrections,
    /// How to see it again.
    pub again: &'a Again,
    /// The end of the standard error of each excerpt's trial, where it is there.
    pub stderr: &'a [Option<String>],
}

/// The bug report. `device` gives a machine its name in it.
pub fn issue(issue: &Issue<'_>, safe: &mut Safe<'_>, device: &dyn Fn(&DeviceId) -> String) -> String {
    let mut out = String::new();
    let Some(first) = issue.reports.first() else { return out };
    let headline = headline(issue, first);
    let _ = writeln!(out, "**{}**\n", safe.prose(&cut(&headline, SENTENCE_CHARS_MAX)));
    remarks(&mut out, issue, first, safe);
    facts(&mut out, first, safe, device);
    by_state(&mut out, issue, safe);
    not_shown(&mut out, issue, safe);
    bracket(&mut out, issue.brief, safe);
    details::details(&mut out, issue, safe, device);
    out
}

/// `7/9 cold starts rebooted (77.8 %, 95 % CI 40.0–97.2 %), died in C.copy or later; 0/29 warm starts did (…)`.
fn headline(issue: &Issue<'_>, first: &Report) -> String {
    let mut pools: Vec<&Pool> = issue.brief.focus.iter().collect();
    pools.sort_by(|a, b| b.rate.low.total_cmp(&a.rate.low));
    let Some(foremost) = pools.first() else {
        let words: Vec<&str> = first.headlines.iter().map(|headline| headline.text.as_str()).collect();
        return words.join("; ");
    };
    let source = match foremost.provenance {
        Provenance::Measured => String::new(),
        other => format!("{}: ", other.as_str()),
    };
    let so_far = if first.run.standing.is_final() { "" } else { "so far, " };
    let label = if foremost.label == "baseline" { String::new() } else { format!("{}: ", one_line(&foremost.label)) };
    let mut parts = Vec::new();
    for (place, pool) in pools.iter().enumerate() {
        let verb = match (pool.rate.faults, place) {
            (0, 0) => "faulted".to_owned(),
            (0, _) => "did".to_owned(),
            _ => verb(pool),
        };
        let starts = pool.state.starts(pool.rate.counted);
        parts.push(format!("{} {starts} {verb} {}{}", pool.rate.fraction(), bound(pool), died(pool)));
    }
    format!("{source}{so_far}{label}{}", parts.join("; "))
}

/// The rate in parentheses, without its fraction.
fn bound(pool: &Pool) -> String {
    let text = pool.rate.to_string();
    text.split_once(' ').map(|(_, rest)| rest.to_owned()).unwrap_or(text)
}

/// What trials did, in the past tense.
fn verb(pool: &Pool) -> String {
    let Some((verdict, _)) = pool.verdicts.iter().next().filter(|_| pool.verdicts.len() == 1) else {
        let kinds: Vec<String> = pool.verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
        return format!("faulted: {}", kinds.join(", "));
    };
    let word = match verdict {
        Verdict::Reboot => "rebooted",
        Verdict::Crash => "crashed",
        Verdict::Hang => "hung",
        Verdict::Unkillable => "hung and survived SIGKILL",
        Verdict::OomKill => "were killed for want of memory",
        Verdict::CudaOom => "ran out of memory",
        Verdict::CudaError => "met a CUDA error",
        Verdict::WrongResult => "gave wrong results",
        Verdict::ArtifactMissing => "left no artifact",
        Verdict::Error => "failed",
        Verdict::Pass | Verdict::Killed | Verdict::Planned | Verdict::Operator | Verdict::Void => verdict.as_str(),
    };
    word.to_owned()
}

/// `, died in C.copy or later`.
fn died(pool: &Pool) -> String {
    if pool.rate.faults == 0 || pool.stages.is_empty() {
        return String::new();
    }
    let mut stages: Vec<(&str, u64)> = pool.stages.iter().map(|(stage, n)| (stage.as_str(), *n)).collect();
    stages.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let more = stages.len().saturating_sub(STAGES_MAX);
    let mut words: Vec<String> = match &stages[..] {
        [(only, _)] => vec![(*only).to_owned()],
        several => several.iter().take(STAGES_MAX).map(|(stage, n)| format!("{stage} ({n})")).collect(),
    };
    if more > 0 {
        words.push(counted(more as u64, "other stage"));
    }
    let later = if pool.or_later { " or later" } else { "" };
    format!(", died in {}{later}", words.join(", "))
}

/// What must be known before a figure is read.
fn remarks(out: &mut String, issue: &Issue<'_>, first: &Report, safe: &mut Safe<'_>) {
    let mut remarks = Vec::new();
    if issue.brief.focus.iter().any(|pool| pool.provenance == Provenance::Transcribed) {
        remarks.push("Transcribed from a public report; jetfault measured none of it.".to_owned());
    }
    let corrections = issue.corrected_by;
    if !corrections.ids.is_empty() {
        let runs: Vec<String> = corrections.ids.iter().map(|run| safe.code(run.as_str())).collect();
        let (told, runs) = (safe.code(first.run.id.as_str()), runs.join(", "));
        remarks.push(match corrections.runs.is_empty() {
            true => format!("What {told} told was corrected later by {runs}, which is not here: do not rely on these figures."),
            false => format!(
                "What {told} told first was corrected later: figures here are those of {runs} wherever they tried the same."
            ),
        });
    }
    let boards: BTreeSet<_> = issue.reports.iter().filter_map(|report| report.run.device.as_ref()).collect();
    if boards.len() > 1 {
        remarks.push(format!(
            "Trials of {} boards are counted together here; `jetfault report --joined` keeps the boards apart, and says \
             whether they differ.",
            boards.len()
        ));
    }
    for control in issue.reports.iter().flat_map(|report| &report.controls_failed) {
        remarks.push(format!("{} did not give what it must: what leans on it is undecided.", safe.code(control)));
    }
    if let Some(warning) = persistence(first.run.persistence) {
        remarks.push(format!("{}{}.", warning[..1].to_uppercase(), &warning[1..]));
    }
    if !remarks.is_empty() {
        let _ = writeln!(out, "{}\n", remarks.join(" "));
    }
}

/// One line that says which run, on what machine.
fn facts(out: &mut String, first: &Report, safe: &mut Safe<'_>, device: &dyn Fn(&DeviceId) -> String) {
    let run = &first.run;
    let mut facts = vec![
        format!("run {}", safe.code(run.id.as_str())),
        safe.prose(&standing(&run.standing)),
        counted(u64::from(run.boots), "boot"),
    ];
    facts.extend(run.device.as_ref().map(|id| safe.code(&device(id))));
    let told = |name: &str| run.machine.get(name).cloned();
    facts.extend(told("board").or(told("model")).or(told("os")).map(|board| safe.prose(&board)));
    for (name, title) in [("l4t", "L4T "), ("cuda", "CUDA "), ("driver", "driver "), ("power mode", "")] {
        facts.extend(told(name).map(|value| format!("{title}{}", safe.prose(&value))));
    }
    if !run.tool.is_empty() && run.tool != "transcribed" {
        facts.push(format!("jetfault {}", safe.prose(&run.tool)));
    }
    let _ = writeln!(out, "{}\n", facts.join(" · "));
}

/// Faults by start state, and within each by binary.
fn by_state(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>) {
    let brief = issue.brief;
    if brief.focus.is_empty() {
        return;
    }
    let has_states = brief.focus.iter().any(|pool| pool.state != State::None);
    let title = if has_states { "By start state and binary" } else { "By binary" };
    let has_sha = brief.binaries.iter().any(|row| row.sha256.is_some());
    let has_words = brief.binaries.iter().any(|row| !row.told.is_empty());
    let (sha, told) = (if has_sha { " sha256 |" } else { "" }, if has_words { " as told |" } else { "" });
    let _ = writeln!(out, "### {title}\n| start | binary | faults | rate, 95 % |{sha}{told}");
    let rule = |is_there: bool| if is_there { "---|" } else { "" };
    let _ = writeln!(out, "|---|---|---|---|{}{}", rule(has_sha), rule(has_words));
    let mut left = BINARIES_MAX;
    let mut left_out = 0;
    for pool in &brief.focus {
        let rows: Vec<&BinaryRow> = brief.binaries.iter().filter(|row| row.state == pool.state).collect();
        let is_split = rows.len() > 1;
        if is_split {
            let (sha, told) = (if has_sha { " |" } else { "" }, if has_words { " |" } else { "" });
            let (fraction, rate) = (pool.rate.fraction(), interval(&pool.rate));
            let _ = writeln!(out, "| **{}** | **all** | **{fraction}** | **{rate}** |{sha}{told}", pool.state);
            left = usize::saturating_sub(left, 1);
        }
        for row in rows {
            if left == 0 {
                left_out += 1;
                continue;
            }
            left -= 1;
            let mut binary = safe.code(&row.binary);
            if issue.reports.len() > 1 && brief.binaries.iter().any(|other| other.run != row.run) {
                let run = issue.reports.get(row.run).map(|report| report.run.id.as_str()).unwrap_or_default();
                binary += &format!(" in {}", safe.code(run));
            }
            let sha = match (&row.sha256, has_sha) {
                (_, false) => String::new(),
                (None, true) => " – |".to_owned(),
                (Some(sha), true) => format!(" {} |", safe.code(sha.get(..12).unwrap_or(sha))),
            };
            let told = match has_words {
                true => format!(" {} |", safe.prose(&told_words(row))),
                false => String::new(),
            };
            let rate = interval(&row.rate);
            let _ = writeln!(out, "| {} | {binary} | {} | {rate} |{sha}{told}", pool.state, row.rate.fraction());
        }
    }
    if left_out > 0 {
        let _ = writeln!(out, "| | … {} under “All cells” | | |", counted(left_out, "more row"));
    }
    out.push('\n');
}

/// The words of a transcription, without what all of them begin with.
fn told_words(row: &BinaryRow) -> String {
    let words: Vec<&str> = row.told.iter().map(|words| words.trim_start_matches("in the report: ")).collect();
    cut(&words.join("; "), TOLD_CHARS_MAX)
}

/// `77.8 % (40.0–97.2 %)`, or `at most 9.8 %`.
fn interval(rate: &crate::decide::report::Rate) -> String {
    match (rate.at_most, rate.observed()) {
        (None, Some(observed)) => format!("{} % ({})", percent(observed), rate.bound()),
        (Some(_), _) | (None, None) => rate.bound(),
    }
}

fn not_shown(out: &mut String, issue: &Issue<'_>, safe: &mut Safe<'_>) {
    let sentences = &issue.brief.not_shown;
    if sentences.is_empty() {
        return;
    }
    out.push_str("### What may not be concluded\n");
    // The last line says that there are more.
    let shown = if sentences.len() > NOT_SHOWN_MAX { NOT_SHOWN_MAX - 1 } else { sentences.len() };
    for sentence in &sentences[..shown] {
        let _ = writeln!(out, "- {}", safe.prose(&cut(sentence, SENTENCE_CHARS_MAX)));
    }
    if sentences.len() > shown {
        let _ = writeln!(out, "- … and {} more, under “Not tested, not shown”.", sentences.len() - shown);
    }
    out.push('\n');
}

/// What fails beside what does not.
fn bracket(out: &mut String, brief: &Brief, safe: &mut Safe<'_>) {
    if brief.fails.len() + brief.works.len() < 2 {
        return;
    }
    out.push_str("### What fails and what was not seen to\n| | what | start | faults | rate, 95 % | |\n|---|---|---|---|---|---|\n");
    let mut rows = |mark: &str, pools: &[Pool], limit: usize, word: &str| {
        for pool in pools.iter().take(limit) {
            let kinds = kinds(&pool.verdicts, pool.provenance);
            let _ = writeln!(
                out,
                "| {mark} | {} | {} | {} | {} | {kinds} |",
                safe.code(&pool.label),
                pool.state,
                pool.rate.fraction(),
                interval(&pool.rate)
            );
        }
        if let more @ 1.. = pools.len().saturating_sub(limit) {
            let _ = writeln!(out, "| {mark} | … {more} more {word} | | | | |");
        }
    };
    rows("fails", &brief.fails, FAILS_MAX, "that fail");
    rows("no fault", &brief.works, WORKS_MAX, "without a fault");
    out.push('\n');
}

/// `reboot`, or `6 reboot, 1 hang`, and where the numbers come from if they are not measured.
fn kinds(verdicts: &BTreeMap<Verdict, u64>, provenance: Provenance) -> String {
    let mut words: Vec<String> = match verdicts.len() {
        1 => verdicts.keys().map(ToString::to_string).collect(),
        _ => verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect(),
    };
    words.extend(super::source(provenance).map(|source| format!("*{source}*")));
    words.join(", ")
}
