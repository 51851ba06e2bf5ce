//! Statistics: what x faults in n counted trials say about a fault rate, what two such counts say about each other, when
//! enough was seen; and what they do not say.
//!
//! Owns the special functions, intervals, exact tests and rules of stopping. It knows no trials, verdicts or words: those who
//! print a figure take the words from [`crate::decide::report`], so that no rate appears without its bound.
//!
//! The tool lives where rates are near 0 or 1 and n is between 1 and 10. There an approximate interval over-claims:
//! after one clean trial Wilson's says "at most 79 %", which is false a fifth of the time if the rate is 80 %.
//! Hence Clopper-Pearson is the default, and no function here approximates where an exact form exists.

use serde::{Deserialize, Serialize};

mod difference;
mod interval;
mod ranks;
mod sequential;
mod special;
mod stratified;
mod two_arms;
mod unconditional;

pub use difference::{chance_first_is_larger, miettinen_nurminen, newcombe};
pub use interval::{
    Interval, Method, PREDICTED_TRIALS_MAX, clean_trials_against, clean_trials_expected_against, clean_trials_for,
    clean_trials_for_belief, clean_trials_probability, clopper_pearson, confidence_sequence, faults_probability,
    jeffreys, lower_bound, upper_bound, wilson,
};
pub use ranks::{EXACT_RANKS_MAX, RankTest, benjamini_hochberg, holm, mann_whitney};
pub use sequential::{E_THRESHOLD, EValue, Operating, RATE_FLOOR, RATE_SPURIOUS, RATE_UNKNOWN, Sprt, SprtEnd};
pub use special::{
    ln_beta, ln_choose, ln_gamma, normal_quantile, normal_upper_tail, regularised_beta, regularised_beta_inverse,
};
pub use stratified::{MantelHaenszel, Stratified, cmh_exact, mantel_haenszel, overlap, smallest_p};
pub use two_arms::{Arms, Tails, clean_trials_by_fisher, fisher, fisher_mid, freeman_halton, smallest_greater};
pub use unconditional::{Barnard, UNCONDITIONAL_TRIALS_MAX, barnard, boschloo};

/// The counted trials of one cell: excluded trials are in neither number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Trials with a fault.
    pub faults: u64,
    /// Trials without one.
    pub clean: u64,
}

impl Counts {
    /// `faults` faults in `counted` trials; `None` if there are more faults than trials.
    pub fn of(faults: u64, counted: u64) -> Option<Self> {
        counted.checked_sub(faults).map(|clean| Self { faults, clean })
    }

    /// Faulty and clean trials together.
    pub fn counted(self) -> u64 {
        self.faults + self.clean
    }

    /// These trials and those.
    pub fn plus(self, more: Self) -> Self {
        Self { faults: self.faults + more.faults, clean: self.clean + more.clean }
    }

    /// The observed rate, 0 to 1; `None` without a counted trial.
    pub fn observed(self) -> Option<f64> {
        (self.counted() > 0).then(|| self.faults as f64 / self.counted() as f64)
    }
}

/// How often an interval must cover the true rate, as a number between 0 and 1, both excluded.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Confidence(f64);

impl Confidence {
    /// 95 %, the level of everything that is shown by default.
    pub const P95: Confidence = Confidence(0.95);

    /// The level `level`; `None` if it is not between 0 and 1.
    pub fn new(level: f64) -> Option<Self> {
        (level > 0.0 && level < 1.0).then_some(Self(level))
    }

    /// The level, such as 0.95.
    pub fn level(self) -> f64 {
        self.0
    }

    /// The chance of an error that is left, such as 0.05.
    pub fn alpha(self) -> f64 {
        1.0 - self.0
    }
}

#[cfg(test)]
mod tests;
