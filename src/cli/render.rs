//! What people read: text for a terminal and Markdown for a bug report, made from data.
//!
//! Owns layout, colour and the units of figures. It must not compute a figure or choose words for a claim: both come
//! with the data, so that text, Markdown and JSON cannot disagree. Text is not a stable format; JSON is.

mod blocks;
mod compare;
mod doctor;
mod drill;
mod explain;
mod fleet;
mod follow;
mod home;
mod html;
mod inspect;
mod issue;
mod joined;
mod likeness;
mod markdown;
mod nightly;
mod plan;
mod rehearsal;
mod report;
mod standing;
mod status;
mod style;
mod table;

pub use blocks::blocks;
pub use compare::{comparisons, comparisons_markdown, covariates, covariates_markdown};
pub use doctor::doctor;
pub use drill::drill;
pub use explain::{Written, explain, written};
pub use fleet::fleet;
pub use follow::{Screen, Tally, change, follow, standing_line};
pub use home::{Home, LastRun, home};
pub(super) use html::{Material, comparisons_html, html};
pub use inspect::inspect;
pub use issue::{Again, Issue, LINES_MAX, MARKDOWN_BYTES_MAX, issue};
pub use joined::{joined, joined_markdown};
pub use likeness::{fault_pairs, fault_pairs_markdown};
pub use markdown::Safe;
pub use nightly::night;
pub use plan::plan;
pub use rehearsal::rehearsal;
pub use report::report;
pub use standing::standing;
pub use status::status;
pub use style::{COLUMNS_DEFAULT, COLUMNS_MAX, COLUMNS_MIN, Colour, Style};

pub(super) use crate::model::units::counted;

use std::fmt::Write;

use crate::decide::report::{CellReport, DecisionReport};
use crate::decide::stats::Method;
use crate::model::outcome::PeakMemory;
use crate::model::verdict::Provenance;

/// Bytes in megabytes of 1,000,000, with one decimal, as PyTorch's users are used to seeing peaks: `7089.4`.
fn megabytes(bytes: u64) -> String {
    format!("{}.{}", (bytes + 50_000) / 1_000_000, (bytes + 50_000) % 1_000_000 / 100_000)
}

/// The peak of host and reserved device memory together; nothing where it was not followed, as in a command.
fn peak_megabytes(peak: &PeakMemory) -> String {
    match peak.host_plus_reserved {
        0 => String::new(),
        bytes => megabytes(bytes),
    }
}

/// Milliseconds in the unit that leaves two to four digits: `87 ms`, `13.2 s`, `4.5 min`, `2.1 h`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms as f64 / 1000.0;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..100_000 => format!("{seconds:.1} s"),
        100_000..6_000_000 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// `text` in at most `width` characters, the last one an ellipsis if something was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    table::cut(text, width)
}

/// What must be said of a cell beside its rate, in files that are passed on.
fn beside_the_rate(cell: &CellReport) -> Vec<String> {
    let mut words: Vec<String> = surprise(cell).into_iter().collect();
    words.extend(cell.short.as_ref().map(|short| format!("short: {} of {}", short.counted, short.wanted)));
    words.extend(cell.excluded.iter().map(|(verdict, count)| format!("{count} {verdict} excluded")));
    let uncounted = &cell.uncounted;
    if uncounted.trials > 0 {
        words.push(format!("{} uncounted, {} with a fault", uncounted.trials, uncounted.faults));
    }
    words
}

/// What was expected of a cell, if it came otherwise.
fn surprise(cell: &CellReport) -> Option<String> {
    use crate::decide::report::Met;
    let expectation = cell.expectation?;
    match expectation.met {
        Met::NotMet => Some(format!("expected {}", expectation.verdict)),
        Met::Met | Met::Untested => None,
    }
}

/// The heading of intervals made by `method`.
fn interval_heading(method: Method) -> &'static str {
    match method {
        Method::ClopperPearson => "95 % interval",
        Method::ConfidenceSequence => "95 % at every look",
        Method::Wilson => "95 % Wilson",
        Method::Jeffreys => "95 % Jeffreys",
    }
}

/// What was decided, a line each.
fn decisions(out: &mut String, decisions: &[DecisionReport], style: &Style) {
    if decisions.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Colour::Bold, "decided"));
    for decision in decisions.iter().take(DECISIONS_MAX) {
        // The words of a pair name both cells.
        let label = if decision.other.is_some() { String::new() } else { format!("{}: ", decision.label) };
        style::wrap(out, "  ", &one_line(&format!("{label}{}", decision.text)), style.columns());
    }
    if let left @ 1.. = decisions.len().saturating_sub(DECISIONS_MAX) {
        let _ = writeln!(out, "  … and {left} more; --format json has all");
    }
}

/// The most decisions that are listed.
const DECISIONS_MAX: usize = 40;

/// The mark of numbers that are not measured.
fn source(provenance: Provenance) -> Option<&'static str> {
    match provenance {
        Provenance::Measured => None,
        Provenance::Injected | Provenance::Simulated | Provenance::Transcribed => Some(provenance.as_str()),
    }
}

/// Text from outside (labels, words of the system) on one line, without control characters.
pub fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
