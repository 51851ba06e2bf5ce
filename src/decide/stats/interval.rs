//! Intervals and bounds of one rate, and how many clean trials a claim needs.

use serde::{Deserialize, Serialize};

use super::special::{bisect, ln_beta, ln_choose, normal_quantile, regularised_beta, regularised_beta_inverse};
use super::{Confidence, Counts};
use crate::model::words::words;

/// Both parameters of the Jeffreys prior Beta(½, ½), also of the mixture behind the confidence sequence.
const HALF: f64 = 0.5;

words! {
    /// How an interval is made.
    #[derive(Default)]
    Method {
        /// Exact for a number of trials fixed in advance; never covers less often than it says.
        #[default]
        ClopperPearson = "clopper-pearson",
        /// Valid at every look, for campaigns whose length depends on what they see.
        ConfidenceSequence = "confidence-sequence",
        /// Right on average over rates, wrong near 0 and 1 with few trials.
        Wilson = "wilson",
        /// The Bayesian interval with the Jeffreys prior.
        Jeffreys = "jeffreys",
    }
}

impl Method {
    /// The two-sided interval of this kind.
    pub fn interval(self, counts: Counts, confidence: Confidence) -> Interval {
        match self {
            Method::ClopperPearson => clopper_pearson(counts, confidence),
            Method::ConfidenceSequence => confidence_sequence(counts, confidence),
            Method::Wilson => wilson(counts, confidence),
            Method::Jeffreys => jeffreys(counts, confidence),
        }
    }
}

/// Where a rate may lie: both ends from 0 to 1. Without a counted trial it is everything.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Nothing is known.
    pub const UNKNOWN: Interval = Interval { low: 0.0, high: 1.0 };

    /// The interval with its ends at exactly 0 or 1 where all trials were of one kind.
    fn closed(counts: Counts, low: impl FnOnce() -> f64, high: impl FnOnce() -> f64) -> Self {
        let low = if counts.faults == 0 { 0.0 } else { low() };
        let high = if counts.clean == 0 { 1.0 } else { high() };
        Self { low, high }
    }
}

/// The two-sided Clopper-Pearson interval: α/2 in each tail of the binomial distribution.
pub fn clopper_pearson(counts: Counts, confidence: Confidence) -> Interval {
    let tail = Confidence(1.0 - confidence.alpha() / 2.0);
    Interval { low: lower_bound(counts, tail), high: upper_bound(counts, tail) }
}

/// The one-sided Clopper-Pearson upper bound: the rate is at most this. For 0 faults in n exactly 1 - α^(1/n).
pub fn upper_bound(counts: Counts, confidence: Confidence) -> f64 {
    let (x, n) = (counts.faults as f64, counts.counted() as f64);
    match (counts.faults, counts.clean) {
        (_, 0) => 1.0,
        (0, _) => -(confidence.alpha().ln() / n).exp_m1(),
        (_, clean) => regularised_beta_inverse(confidence.level(), x + 1.0, clean as f64),
    }
}

/// The one-sided Clopper-Pearson lower bound: the rate is at least this.
pub fn lower_bound(counts: Counts, confidence: Confidence) -> f64 {
    let (x, n) = (counts.faults as f64, counts.counted() as f64);
    match (counts.faults, counts.clean) {
        (0, _) => 0.0,
        (_, 0) => (confidence.alpha().ln() / n).exp(),
        (_, clean) => regularised_beta_inverse(confidence.alpha(), x, clean as f64 + 1.0),
    }
}

/// Wilson's interval: the rates that a normal test does not reject.
pub fn wilson(counts: Counts, confidence: Confidence) -> Interval {
    let Some(observed) = counts.observed() else { return Interval::UNKNOWN };
    let n = counts.counted() as f64;
    let z = normal_quantile(0.5 + confidence.level() / 2.0);
    let scale = 1.0 + z * z / n;
    let centre = (observed + z * z / (2.0 * n)) / scale;
    let half_width = z / scale * (observed * (1.0 - observed) / n + z * z / (4.0 * n * n)).sqrt();
    Interval::closed(counts, || centre - half_width, || centre + half_width)
}

/// The central interval of the posterior with the Jeffreys prior Beta(½, ½).
pub fn jeffreys(counts: Counts, confidence: Confidence) -> Interval {
    if counts.counted() == 0 {
        return Interval::UNKNOWN;
    }
    let (a, b) = (counts.faults as f64 + HALF, counts.clean as f64 + HALF);
    let tail = confidence.alpha() / 2.0;
    let end = |probability| regularised_beta_inverse(probability, a, b);
    Interval::closed(counts, || end(tail), || end(1.0 - tail))
}

/// The peek-safe interval: Robbins' beta mixture, all rates p with
/// ln B(½ + x, ½ + n - x) - ln B(½, ½) - x ln p - (n - x) ln(1 - p) < ln(1/α).
///
/// It covers the rate at every look at once, so it stays valid when what was seen decides whether to go on.
pub fn confidence_sequence(counts: Counts, confidence: Confidence) -> Interval {
    let Some(observed) = counts.observed() else { return Interval::UNKNOWN };
    let (x, clean) = (counts.faults as f64, counts.clean as f64);
    let evidence = ln_beta(HALF + x, HALF + clean) - ln_beta(HALF, HALF) + confidence.alpha().ln();
    let times = |factor: f64, ln: f64| if factor == 0.0 { 0.0 } else { factor * ln };
    let is_outside = |p: f64| evidence - times(x, p.ln()) - times(clean, (-p).ln_1p()) >= 0.0;
    Interval::closed(
        counts,
        || observed * bisect(|share| is_outside(observed * share)),
        || observed + (1.0 - observed) * bisect(|share| !is_outside(observed + (1.0 - observed) * share)),
    )
}

/// The fewest clean trials, without a fault, after which the rate is below `rate` (above 0, below 1):
/// the smallest n with (1 - rate)^n ≤ α.
pub fn clean_trials_for(rate: f64, confidence: Confidence) -> u64 {
    // The small number forgives the rounding of two logarithms where the quotient is whole.
    (confidence.alpha().ln() / (-rate).ln_1p() - 1e-12).ceil() as u64
}

/// The same as a Bayesian with the Jeffreys prior would have it: the smallest n with I(rate; ½, n + ½) ≥ confidence.
/// It is smaller, and right only on average; for plans, not for verdicts.
pub fn clean_trials_for_belief(rate: f64, confidence: Confidence) -> u64 {
    let is_enough = |n: u64| regularised_beta(rate, HALF, n as f64 + HALF) >= confidence.level();
    let mut enough = clean_trials_for(rate, confidence).max(1);
    while !is_enough(enough) {
        enough *= 2;
    }
    let mut too_few = 0;
    if is_enough(too_few) {
        return 0;
    }
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if is_enough(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    enough
}

/// The fewest clean trials after which a cell's rate is below what its baseline's is at least; `None` if the baseline
/// has no fault. For verdicts: a better-measured baseline needs fewer.
pub fn clean_trials_against(baseline: Counts, confidence: Confidence) -> Option<u64> {
    let least = lower_bound(baseline, confidence);
    match least {
        _ if least <= 0.0 => None,
        _ if least >= 1.0 => Some(1),
        _ => Some(clean_trials_for(least, confidence)),
    }
}

/// The fewest trials that would all be clean with a chance of at most α if the cell were like its baseline; `None` if
/// that takes more than [`PREDICTED_TRIALS_MAX`]. For plans: it averages over what the baseline's rate may be.
pub fn clean_trials_expected_against(baseline: Counts, confidence: Confidence) -> Option<u64> {
    let mut chance = 1.0;
    for trial in 0..PREDICTED_TRIALS_MAX {
        if chance <= confidence.alpha() {
            return Some(trial);
        }
        chance *= next_is_clean(baseline, trial);
    }
    None
}

/// The most trials that [`clean_trials_expected_against`] looks ahead.
pub const PREDICTED_TRIALS_MAX: u64 = 100_000;

/// The chance that the next `trials` trials are all clean if the cell is like its baseline, whose rate is unknown:
/// the product over i of (½ + clean + i) / (1 + counted + i).
pub fn clean_trials_probability(baseline: Counts, trials: u64) -> f64 {
    (0..trials).map(|trial| next_is_clean(baseline, trial)).product()
}

/// The chance of at least `faults` faults in the next `trials` if they are like `history`, whose rate is unknown
/// (Jeffreys prior): the beta-binomial distribution.
pub fn faults_probability(history: Counts, faults: u64, trials: u64) -> f64 {
    let (a, b) = (history.faults as f64 + HALF, history.clean as f64 + HALF);
    let chance = |k: u64| (ln_choose(trials, k) + ln_beta(a + k as f64, b + (trials - k) as f64) - ln_beta(a, b)).exp();
    (faults..=trials).map(chance).sum::<f64>().min(1.0)
}

fn next_is_clean(baseline: Counts, trial: u64) -> f64 {
    (HALF + (baseline.clean + trial) as f64) / (1.0 + (baseline.counted() + trial) as f64)
}
