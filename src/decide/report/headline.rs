//! What a run found, in one sentence that carries its bound.

use serde::{Deserialize, Serialize};

use super::cell::{CellReport, Sampled};
use super::rate::percent;
use super::{Rate, Standing};
use crate::decide::plan::CellRole;
use crate::model::verdict::Provenance;

/// A sentence about the trials of one provenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headline {
    /// Whose trials; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Whether it tells of a fault.
    pub is_fault: bool,
    /// The sentence.
    pub text: String,
}

/// The headlines of a run: one for each provenance that has counted trials, or one that says that none has.
pub(super) fn headlines(cells: &[CellReport], standing: &Standing) -> Vec<Headline> {
    let provenances = [Provenance::Measured, Provenance::Injected, Provenance::Simulated, Provenance::Transcribed];
    let so_far = if standing.is_final() { "" } else { "so far, " };
    let mut headlines: Vec<Headline> =
        provenances.into_iter().filter_map(|provenance| headline(cells, provenance, so_far)).collect();
    if let Some(first) = headlines.first_mut() {
        let untested = cells.iter().filter(|cell| cell.role == CellRole::Sample && cell.counted() == 0).count();
        if untested > 0 && standing.is_final() {
            first.text += &format!("; not tested: {}", cells_word(untested));
        }
        return headlines;
    }
    let text = format!("{so_far}nothing is known: no trial of {} was counted", cells_word(cells.len()));
    vec![Headline { provenance: None, is_fault: false, text }]
}

fn headline(cells: &[CellReport], provenance: Provenance, so_far: &str) -> Option<Headline> {
    let tested: Vec<(&CellReport, &Sampled)> = cells
        .iter()
        .filter(|cell| cell.role == CellRole::Sample)
        .filter_map(|cell| cell.of_provenance(provenance).map(|sampled| (cell, sampled)))
        .collect();
    let faulty: Vec<_> = tested.iter().copied().filter(|(_, sampled)| sampled.rate.faults > 0).collect();
    let without: Vec<Rate> =
        tested.iter().filter(|(_, sampled)| sampled.rate.faults == 0).map(|(_, sampled)| sampled.rate).collect();
    if tested.is_empty() {
        return None;
    }
    let source = match provenance {
        Provenance::Measured => String::new(),
        Provenance::Injected | Provenance::Simulated | Provenance::Transcribed => format!("{}: ", provenance.as_str()),
    };
    let found = match worst(&faulty) {
        None => nothing_seen(&without),
        Some((cell, sampled)) => {
            let one_of = format!("faults in {} of {} tested", faulty.len(), cells_word(tested.len()));
            let most = if faulty.len() == 1 { "" } else { "most in " };
            let rest = if without.is_empty() { String::new() } else { format!("; {}", elsewhere(&without)) };
            format!("{one_of}: {most}{}, {}{rest}", cell.label, fault_words(sampled))
        }
    };
    Some(Headline {
        provenance: Some(provenance),
        is_fault: !faulty.is_empty(),
        text: format!("{source}{so_far}{found}"),
    })
}

/// The cell whose rate is at least the highest: one fault in one trial says less than seven in nine.
fn worst<'a>(faulty: &[(&'a CellReport, &'a Sampled)]) -> Option<(&'a CellReport, &'a Sampled)> {
    let is_higher = |next: &Sampled, best: &Sampled| next.rate.low > best.rate.low;
    faulty.iter().copied().reduce(|best, next| if is_higher(next.1, best.1) { next } else { best })
}

/// `7/9 (77.8 %, 95 % CI 40.0–97.2 %) reboot`.
fn fault_words(sampled: &Sampled) -> String {
    let kinds: Vec<String> = if sampled.faults.len() == 1 {
        sampled.faults.keys().map(ToString::to_string).collect()
    } else {
        sampled.faults.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect()
    };
    let words = format!("{} {}", sampled.rate, kinds.join(", "));
    match sampled.rate.counted {
        1 => format!("{words}: one fault shows that it is there, its rate is not known"),
        _ => words,
    }
}

fn nothing_seen(rates: &[Rate]) -> String {
    let trials: u64 = rates.iter().map(|rate| rate.counted).sum();
    let trials = if trials == 1 { "1 trial".to_owned() } else { format!("{trials} trials") };
    format!("no fault in {trials} of {}; {}", cells_word(rates.len()), weakest(rates))
}

fn elsewhere(rates: &[Rate]) -> String {
    let cells = match rates.len() {
        1 => "the other cell".to_owned(),
        many => format!("the other {many}"),
    };
    format!("none in {cells}, where {}", weakest(rates))
}

/// The bound of the cell with the fewest trials: what every one of the cells is entitled to.
fn weakest(rates: &[Rate]) -> String {
    let Some(rate) = rates.iter().min_by_key(|rate| rate.counted) else { return String::new() };
    let trials = if rate.counted == 1 { "one trial".to_owned() } else { format!("{} trials", rate.counted) };
    let bound = percent(rate.at_most.unwrap_or(rate.high));
    format!("a rate of up to {bound} % stays possible after {trials} (95 %)")
}

fn cells_word(cells: usize) -> String {
    if cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") }
}
