//! Tonight against the nights before: what each cell's history makes of a fault, or of its absence.
//!
//! Owns the states of a cell and how a night moves it on. A history is a fold of the journals of earlier runs and is
//! stored nowhere else. One rule matters more than the others: a fault in a cell that was stable is confirmed the same
//! night, on new trials, and the fault that raised the question is not counted in the answer. With fifty cells of three trials
//! and one spurious fault in two hundred, that is one false alarm in four months instead of three in four nights.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::decide::report::percent;
use crate::decide::stats::{
    Confidence, Counts, RATE_UNKNOWN, Sprt, SprtEnd, clean_trials_against, clean_trials_for, faults_probability,
    lower_bound, upper_bound,
};
use crate::model::ids::{CellId, RunId};
use crate::model::words::words;

/// The latest admissible trials that a history consists of.
pub const WINDOW: usize = 30;

/// The latest trials over which a cell is put into quarantine.
pub const QUARANTINE_TRIALS: usize = 10;

/// The part of them that may be no samples before a cell is put into quarantine.
pub const QUARANTINE_SHARE: f64 = 0.2;

words! {
    /// Where a cell stands.
    CellState {
        /// Too little was seen under this key.
        Unknown = "UNKNOWN",
        /// Its rate is below the one tested for.
        StableClean = "STABLE_CLEAN",
        /// It was stable, and a fault came: it is being confirmed.
        Confirming = "CONFIRMING",
        /// It was stable, and the fault was confirmed.
        NewFault = "NEW_FAULT",
        /// It faults.
        Faulting = "FAULTING",
        /// It faulted, and not in the last night.
        SuspectedFixed = "SUSPECTED_FIXED",
        /// It faulted, and as many clean trials in a row followed as its rate before asks for.
        Fixed = "FIXED",
        /// Its trials say nothing: faults of several kinds, or too many trials that are no samples.
        Quarantined = "QUARANTINED",
    }
}

/// What one trial of a cell was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trial {
    /// Without a fault.
    Clean,
    /// With this fault, in words without its stage.
    Fault(String),
    /// No sample.
    Excluded,
}

/// One night of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Night {
    /// The run.
    pub run: RunId,
    /// The trials that every night has.
    pub trials: Vec<Trial>,
    /// Those that were added to confirm a fault.
    pub confirming: Vec<Trial>,
}

/// A cell's part of a nightly plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NightlyCell {
    /// The cell.
    pub cell: CellId,
    /// Its key: what must be the same for a history to be carried on.
    pub key: String,
    /// Where it stood before tonight.
    pub before: History,
}

/// What a plan holds of the nights before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nightly {
    /// What changes from night to night and is not part of a key.
    pub subject: Vec<String>,
    /// Trials that every night has of each cell; later rounds confirm.
    pub trials: u32,
    /// The cells.
    pub cells: Vec<NightlyCell>,
}

impl Nightly {
    /// The cell with this id.
    pub fn cell(&self, id: &CellId) -> Option<&NightlyCell> {
        self.cells.iter().find(|cell| cell.cell == *id)
    }
}

/// Where a cell stands after its nights: a fold of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The state.
    pub state: CellState,
    /// Since which run it is in that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<RunId>,
    /// How many nights.
    pub nights: u32,
    /// The latest samples, the oldest first: whether each had a fault.
    window: Vec<bool>,
    /// The latest trials of any kind, the oldest first.
    latest: Vec<Trial>,
    /// Samples of a cell that is not known yet.
    unknown: Counts,
    /// Samples since it began to fault.
    faulting: Counts,
    /// Clean samples in a row since its last fault.
    clean: u64,
    /// The state under a quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    under: Option<CellState>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            state: CellState::Unknown,
            since: None,
            nights: 0,
            window: Vec::new(),
            latest: Vec::new(),
            unknown: Counts::default(),
            faulting: Counts::default(),
            clean: 0,
            under: None,
        }
    }
}

/// The samples of trials.
fn counts(trials: &[Trial]) -> Counts {
    trials.iter().fold(Counts::default(), |counts, trial| match trial {
        Trial::Clean => Counts { clean: counts.clean + 1, ..counts },
        Trial::Fault(_) => Counts { faults: counts.faults + 1, ..counts },
        Trial::Excluded => counts,
    })
}

/// The test that confirms: it begins afresh.
pub fn confirming() -> Sprt {
    Sprt::for_rate(RATE_UNKNOWN)
}

/// How the confirmation of a night ended, if it did.
pub fn confirmed(night: &Night) -> Option<SprtEnd> {
    confirming().end(counts(&night.confirming), confirming().cap())
}

impl History {
    /// The samples of the window.
    pub fn in_window(&self) -> Counts {
        let faults = self.window.iter().filter(|fault| **fault).count() as u64;
        Counts { faults, clean: self.window.len() as u64 - faults }
    }

    /// The clean samples in a row that are asked for before a cell that faulted is called fixed.
    pub fn clean_needed(&self) -> u64 {
        clean_trials_against(self.faulting, Confidence::P95)
            .unwrap_or_else(|| clean_trials_for(RATE_UNKNOWN, Confidence::P95))
    }

    /// Whether a fault in `trials` of tonight is to be confirmed at once.
    pub fn asks_to_confirm(&self, trials: &[Trial]) -> bool {
        let is_stable = matches!(self.state, CellState::StableClean | CellState::Confirming);
        is_stable && (counts(trials).faults > 0 || self.state == CellState::Confirming)
    }

    /// The history with one more night.
    pub fn after(&self, night: &Night) -> Self {
        let mut next = self.clone();
        let tonight = counts(&night.trials);
        next.nights += 1;
        let samples = night.trials.iter().chain(&night.confirming);
        next.window.extend(samples.clone().filter_map(|trial| match trial {
            Trial::Clean => Some(false),
            Trial::Fault(_) => Some(true),
            Trial::Excluded => None,
        }));
        next.window.drain(..next.window.len().saturating_sub(WINDOW));
        next.latest.extend(samples.cloned());
        next.latest.drain(..next.latest.len().saturating_sub(QUARANTINE_TRIALS));
        let from = self.under.unwrap_or(self.state);
        let to = next.moved(from, tonight, night);
        (next.state, next.under) = if next.says_nothing() { (CellState::Quarantined, Some(to)) } else { (to, None) };
        if next.state != self.state || next.since.is_none() {
            next.since = Some(night.run.clone());
        }
        next
    }

    /// The state that a night leads to from `state`.
    fn moved(&mut self, state: CellState, tonight: Counts, night: &Night) -> CellState {
        match state {
            CellState::Unknown => {
                self.unknown = self.unknown.plus(tonight);
                let test = confirming();
                match test.end(self.unknown, u64::MAX) {
                    Some(SprtEnd::Below) => CellState::StableClean,
                    Some(SprtEnd::Faults) => self.began_to_fault(self.unknown, CellState::Faulting),
                    Some(SprtEnd::Inconclusive) | None => CellState::Unknown,
                }
            }
            CellState::StableClean | CellState::Confirming => {
                if tonight.faults == 0 && state == CellState::StableClean {
                    return CellState::StableClean;
                }
                match confirmed(night) {
                    Some(SprtEnd::Faults) => {
                        self.began_to_fault(tonight.plus(counts(&night.confirming)), CellState::NewFault)
                    }
                    Some(SprtEnd::Below) => CellState::StableClean,
                    Some(SprtEnd::Inconclusive) | None => CellState::Confirming,
                }
            }
            CellState::NewFault | CellState::Faulting | CellState::SuspectedFixed | CellState::Fixed => {
                self.faulted_before(state, tonight)
            }
            CellState::Quarantined => CellState::Unknown,
        }
    }

    fn began_to_fault(&mut self, seen: Counts, state: CellState) -> CellState {
        self.faulting = seen;
        self.clean = 0;
        state
    }

    fn faulted_before(&mut self, state: CellState, tonight: Counts) -> CellState {
        if tonight.faults > 0 {
            // The clean trials since were of the same rate after all.
            self.faulting = self.faulting.plus(Counts { faults: 0, clean: self.clean }).plus(tonight);
            self.clean = 0;
            return CellState::Faulting;
        }
        self.clean += tonight.clean;
        match state {
            _ if tonight.clean == 0 => state,
            CellState::Fixed => CellState::Fixed,
            _ if self.clean >= self.clean_needed() => CellState::Fixed,
            _ => CellState::SuspectedFixed,
        }
    }

    /// Whether the latest trials say nothing: faults of several kinds, or too few samples.
    fn says_nothing(&self) -> bool {
        let kinds: BTreeSet<&String> = self
            .latest
            .iter()
            .filter_map(|trial| match trial {
                Trial::Fault(signature) => Some(signature),
                Trial::Clean | Trial::Excluded => None,
            })
            .collect();
        let excluded = self.latest.iter().filter(|trial| **trial == Trial::Excluded).count();
        let is_full = self.latest.len() == QUARANTINE_TRIALS;
        kinds.len() > 1 || (is_full && excluded as f64 > QUARANTINE_SHARE * self.latest.len() as f64)
    }
}

words! {
    /// What a night means for a scheduler.
    Alarm {
        /// Nothing new.
        None = "none",
        /// A fault that was not there, or not known.
        Fault = "fault",
        /// It is not known yet.
        Undecided = "undecided",
    }
}

/// A cell's part of tonight's report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellNight {
    /// The cell.
    pub cell: CellId,
    /// Its label.
    pub label: String,
    /// Where it stood before.
    pub before: CellState,
    /// Where it stands now.
    pub state: CellState,
    /// Since which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<RunId>,
    /// Tonight's samples, without those that confirm.
    pub tonight: Counts,
    /// Those that confirm.
    pub confirming: Counts,
    /// The samples of the nights before.
    pub history: Counts,
    /// How likely so many faults tonight are if nothing changed; no verdict rests on it.
    pub chance: f64,
    /// The same, adjusted for the number of cells (Benjamini-Hochberg), for the table.
    pub adjusted: f64,
    /// What it means for a scheduler.
    pub alarm: Alarm,
    /// In words, with the bound.
    pub says: String,
}

/// What a cell's night comes to. `expects_fault` tells whether the matrix expects one.
pub fn cell_night(nightly: &NightlyCell, label: &str, night: &Night, expects_fault: bool) -> CellNight {
    let after = nightly.before.after(night);
    let tonight = counts(&night.trials);
    let history = nightly.before.in_window();
    let chance =
        if tonight.counted() == 0 { 1.0 } else { faults_probability(history, tonight.faults, tonight.counted()) };
    CellNight {
        cell: nightly.cell.clone(),
        label: label.to_owned(),
        before: nightly.before.state,
        state: after.state,
        since: after.since.clone(),
        tonight,
        confirming: counts(&night.confirming),
        history,
        chance,
        adjusted: chance,
        alarm: alarm(&nightly.before, &after, tonight, expects_fault),
        says: words(&nightly.before, &after, tonight, night),
    }
}

fn alarm(before: &History, after: &History, tonight: Counts, expects_fault: bool) -> Alarm {
    match after.state {
        _ if tonight.counted() == 0 => Alarm::Undecided,
        CellState::NewFault => Alarm::Fault,
        CellState::Faulting if expects_fault => Alarm::None,
        // Known before tonight: the table says so, and nobody is woken again.
        CellState::Faulting if matches!(before.state, CellState::Faulting | CellState::NewFault) => Alarm::None,
        CellState::Faulting => Alarm::Fault,
        CellState::Confirming => Alarm::Undecided,
        CellState::Unknown if tonight.faults > 0 && !expects_fault => Alarm::Undecided,
        CellState::Unknown
        | CellState::StableClean
        | CellState::SuspectedFixed
        | CellState::Fixed
        | CellState::Quarantined => Alarm::None,
    }
}

fn fraction(counts: Counts) -> String {
    format!("{}/{}", counts.faults, counts.counted())
}

fn words(before: &History, after: &History, tonight: Counts, night: &Night) -> String {
    let history = fraction(before.in_window());
    let confirming = fraction(counts(&night.confirming));
    match after.state {
        CellState::Unknown => {
            let seen = after.unknown;
            let most = percent(upper_bound(seen, Confidence::P95));
            format!("{} so far, rate at most {most} %: too few to be called stable", fraction(seen))
        }
        CellState::StableClean if tonight.faults > 0 => {
            format!("{} tonight after {history}; {confirming} on new trials: taken for spurious", fraction(tonight))
        }
        CellState::StableClean => {
            let window = after.in_window();
            format!("{} of late, rate at most {} %", fraction(window), percent(upper_bound(window, Confidence::P95)))
        }
        CellState::Confirming => {
            format!("{} tonight after {history}; {confirming} so far on new trials", fraction(tonight))
        }
        CellState::NewFault => {
            format!("{} tonight after {history}, and {confirming} on new trials", fraction(tonight))
        }
        CellState::Faulting => format!("{} tonight, {} since it began", fraction(tonight), fraction(after.faulting)),
        CellState::SuspectedFixed | CellState::Fixed => toward_fixed(after),
        CellState::Quarantined => {
            "its trials say nothing: faults of several kinds, or too many that are no samples".into()
        }
    }
}

/// `3/6 clean trials toward FIXED (rate now at most 63 %, needs less than 45 %)`.
fn toward_fixed(after: &History) -> String {
    let clean = Counts { faults: 0, clean: after.clean };
    let most = percent(upper_bound(clean, Confidence::P95));
    let least = percent(lower_bound(after.faulting, Confidence::P95));
    let was = fraction(after.faulting);
    match after.state {
        CellState::Fixed => {
            format!("{} clean trials in a row, rate at most {most} %; it was {was}, at least {least} %", after.clean)
        }
        _ => format!(
            "{}/{} clean trials toward FIXED (rate now at most {most} %, needs less than {least} %; it was {was})",
            after.clean,
            after.clean_needed()
        ),
    }
}

#[cfg(test)]
mod tests;
