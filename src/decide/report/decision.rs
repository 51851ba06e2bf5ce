//! What a run until decided has decided, in words that carry the bound.

use serde::{Deserialize, Serialize};

use super::rate::{Rate, percent};
use crate::decide::plan::Plan;
use crate::decide::stats::{Confidence, E_THRESHOLD};
use crate::decide::stats::{Counts, Method, lower_bound};
use crate::decide::stopping::{Decision, End, Stopping};
use crate::model::ids::CellId;

/// A decision about a cell, or about two that differ in the compared axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// The cell; of a pair the one with the baseline's level.
    pub cell: CellId,
    /// Its label.
    pub label: String,
    /// Of a pair: the other cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<CellId>,
    /// How it ended; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// Of a pair: the larger e-value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e_value: Option<f64>,
    /// The decision in words.
    pub text: String,
}

impl DecisionReport {
    /// The words for `decision` of `plan`, by the rule `stopping`.
    pub(super) fn of(decision: &Decision, plan: &Plan, stopping: &Stopping) -> Option<Self> {
        let cell = plan.cells.get(decision.cell)?;
        let other = decision.other.and_then(|other| plan.cells.get(other));
        let mut text = match other {
            None => alone(decision, stopping),
            Some(other) => of_pair(decision, [&cell.label, &other.label], stopping),
        };
        if decision.others > 0 {
            text += &format!("; {} trials with another fault are no evidence", decision.others);
        }
        Some(Self {
            cell: cell.id.clone(),
            label: cell.label.clone(),
            other: other.map(|other| other.id.clone()),
            end: decision.end,
            e_value: decision.e_value,
            text,
        })
    }
}

fn fraction(counts: Counts) -> String {
    format!("{}/{}", counts.faults, counts.counted())
}

fn alone(decision: &Decision, stopping: &Stopping) -> String {
    let counts = decision.counts.a;
    let rate = percent(stopping.p1).trim_end_matches(".0").to_owned();
    match decision.end {
        Some(End::Faults) => format!("FAULTS: {}", Rate::of(counts, Method::ConfidenceSequence)),
        Some(End::Below) => {
            let wrong = percent(stopping.beta).trim_end_matches(".0").to_owned();
            let against = stopping.baseline.map_or_else(String::new, |baseline| {
                let least = percent(lower_bound(baseline, Confidence::P95));
                format!("; baseline {} (at least {least} %)", fraction(baseline))
            });
            format!(
                "BELOW {rate} %: {}, said wrongly at most {wrong} % of the time if its rate is {rate} % or more{against}",
                fraction(counts)
            )
        }
        Some(End::Inconclusive | End::FirstMore | End::SecondMore) => {
            format!("INCONCLUSIVE: {}", Rate::of(counts, Method::ConfidenceSequence))
        }
        None => {
            let left = clean_left(counts, stopping);
            format!("open: {}; {left} clean trials in a row would put it below {rate} %", fraction(counts))
        }
    }
}

/// The clean trials in a row that would end the test.
fn clean_left(counts: Counts, stopping: &Stopping) -> u64 {
    let test = stopping.test();
    let left = (test.bounds().0 - test.evidence(counts)) / test.step(false);
    left.max(0.0).ceil() as u64
}

fn of_pair(decision: &Decision, labels: [&str; 2], stopping: &Stopping) -> String {
    let [a, b] = labels;
    let counts = format!("{a} {} against {b} {}", fraction(decision.counts.a), fraction(decision.counts.b));
    let evidence = format!(
        "e-value {:.1} after {} complete blocks ({E_THRESHOLD} decides)",
        decision.e_value.unwrap_or(1.0),
        decision.blocks
    );
    match decision.end {
        Some(End::FirstMore) => format!("{a} FAULTS MORE OFTEN: {counts}, {evidence}"),
        Some(End::SecondMore) => format!("{b} FAULTS MORE OFTEN: {counts}, {evidence}"),
        Some(End::Inconclusive | End::Faults | End::Below) => format!("INCONCLUSIVE: {counts}, {evidence}"),
        None => format!("open: {counts}, {evidence}, at most {} blocks", stopping.max),
    }
}
