//! Searches with a test that fails only sometimes: since which revision, from which level on, because of which knobs,
//! by which part of a sequence.
//!
//! Every search is a fold of what its runs showed and a pure function from there to the next run, so that it goes on
//! after any number of reboots by replaying a journal, and so that the same code is rehearsed on a simulated board.
//! It knows places and rates, no cells, trials or verdicts: whoever feeds it decides what counts. Runs that the
//! harness lost and faults of another signature must not reach it, or one lost connection names a wrong commit.
//!
//! The mathematics is one model: faults come with one unknown rate where the fault is, and with another, small one
//! where it is not. See [`rate`] for the priors, [`posterior`] for hypotheses in an order, [`trigger`] for sets.

pub mod rate;

pub mod posterior;

pub mod revisions;

pub mod levels;

pub mod trigger;

pub mod probdd;

pub mod knobs;

pub mod orders;

pub mod repeat;

use serde::{Deserialize, Serialize};

use crate::decide::stats::Counts;
use crate::model::words::words;

/// The posterior at which a search is content.
pub const THRESHOLD: f64 = 0.95;

/// What one counted run showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seen {
    /// The fault with the campaign's signature.
    Fault,
    /// No fault.
    Clean,
}

impl Seen {
    /// [`Seen::Fault`] if `fault`.
    pub fn fault_if(fault: bool) -> Self {
        if fault { Seen::Fault } else { Seen::Clean }
    }

    /// Adds this run to `counts`.
    pub fn count(self, counts: &mut Counts) {
        match self {
            Seen::Fault => counts.faults += 1,
            Seen::Clean => counts.clean += 1,
        }
    }
}

words! {
    /// What a run of a search is for.
    Purpose {
        /// To see the fault where it is said to be.
        BadEnd = "bad-end",
        /// To see nothing where nothing is said to be.
        GoodEnd = "good-end",
        /// To tell hypotheses apart.
        Search = "search",
        /// To notice that the fault rate itself changes.
        Sentinel = "sentinel",
        /// To lean the answer on runs of its own.
        Confirm = "confirm",
    }
}

/// The next step of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<P, A> {
    /// Run once at this place.
    Test {
        /// Where.
        at: P,
        /// What for.
        purpose: Purpose,
    },
    /// The search is over.
    Done(A),
}

/// A search: a fold of runs, and what to run next.
pub trait Search {
    /// What one run is made at.
    type Place: Clone + PartialEq + std::fmt::Debug;
    /// What it finds.
    type Answer: Clone + PartialEq + std::fmt::Debug;

    /// Takes note of one counted run.
    fn observe(&mut self, at: &Self::Place, seen: Seen);

    /// What is to be done now. Without a further observation the answer stays the same.
    fn next(&self) -> Step<Self::Place, Self::Answer>;
}

/// How many runs are left, roughly, if `bits` are unknown and the next run tells `gain` of them on average.
pub fn runs_left(bits: f64, gain: f64) -> f64 {
    /// What a posterior of 95 % leaves unknown.
    const CONTENT_BITS: f64 = 0.3;
    ((bits - CONTENT_BITS) / gain.max(f64::MIN_POSITIVE)).max(1.0)
}

/// How many runs the ends of a search get before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Faults that the bad end must show.
    pub bad_faults: u64,
    /// The most runs that it gets for them.
    pub bad_runs_max: u64,
    /// Runs of the good end.
    pub good_runs: u64,
    /// Clean runs of the bad end, without any fault, after which it does not reproduce: 9 exclude a rate of 30 %.
    pub clean_max: u64,
}

impl Gate {
    /// One fault, two good runs: the default.
    pub const QUICK: Gate = Gate { bad_faults: 1, bad_runs_max: 20, good_runs: 2, clean_max: 9 };
    /// Three faults, five good runs: four runs more, and fewer wrong answers at low rates.
    pub const THOROUGH: Gate = Gate { bad_faults: 3, bad_runs_max: 20, good_runs: 5, clean_max: 9 };

    /// What the bad end still needs after `counts`.
    pub fn bad_end(self, counts: Counts) -> GateStep {
        if counts.faults == 0 && counts.clean >= self.clean_max {
            GateStep::Refused
        } else if counts.faults < self.bad_faults && counts.counted() < self.bad_runs_max {
            GateStep::Run
        } else {
            GateStep::Passed
        }
    }

    /// Whether the good end still needs a run after `counts`.
    pub fn wants_good_end(self, counts: Counts) -> bool {
        counts.counted() < self.good_runs
    }
}

/// Where the gate at the bad end stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateStep {
    /// It needs another run.
    Run,
    /// The fault was seen.
    Passed,
    /// The fault does not reproduce: whatever the search named would be arbitrary.
    Refused,
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests;
