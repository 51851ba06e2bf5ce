//! The two unknown rates of every search: Beta-Bernoulli models with their evidence and means.
//!
//! Faults of the campaign come with an unknown rate where the fault is: Beta(1, 1). Where it is not, they may still come,
//! since a bare reboot can also be a brown-out: Beta(½, 24½), mean 2 %. Sharper priors name wrong commits at low rates.

use crate::decide::stats::{Counts, ln_gamma};

/// Runs up to which logarithms are tabulated; beyond, they are computed.
const TABLE_RUNS: usize = 1024;

/// A Beta distribution over a rate: as if so many faults and clean runs had been seen before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Weight of faults.
    pub faults: f64,
    /// Weight of clean runs.
    pub clean: f64,
}

impl Prior {
    /// Where the fault is: any rate.
    pub const BAD: Prior = Prior { faults: 1.0, clean: 1.0 };
    /// Where it is not: about 2 %.
    pub const GOOD: Prior = Prior { faults: 0.5, clean: 24.5 };

    /// The expected rate after `counts`.
    pub fn mean(self, counts: Counts) -> f64 {
        let (faults, clean) = (self.faults + counts.faults as f64, self.clean + counts.clean as f64);
        faults / (faults + clean)
    }
}

/// A prior with tables for the evidence of counts.
#[derive(Debug, Clone)]
pub struct Rate {
    prior: Prior,
    faults: Rising,
    clean: Rising,
    both: Rising,
}

impl Rate {
    /// The model with `prior`.
    pub fn new(prior: Prior) -> Self {
        let Prior { faults, clean } = prior;
        Self { prior, faults: Rising::new(faults), clean: Rising::new(clean), both: Rising::new(faults + clean) }
    }

    /// ln of the probability of a given order of these runs: ln B(a + f, b + s) - ln B(a, b).
    pub fn ln_evidence(&self, counts: Counts) -> f64 {
        self.faults.ln(counts.faults) + self.clean.ln(counts.clean) - self.both.ln(counts.counted())
    }

    /// The expected rate after `counts`.
    pub fn mean(&self, counts: Counts) -> f64 {
        self.prior.mean(counts)
    }
}

/// ln of the rising factorials a (a + 1) … (a + n - 1) of one a.
#[derive(Debug, Clone)]
struct Rising {
    from: f64,
    table: Vec<f64>,
}

impl Rising {
    fn new(from: f64) -> Self {
        let mut sum = 0.0;
        let table = (0..TABLE_RUNS).map(|n| {
            let before = sum;
            sum += (from + n as f64).ln();
            before
        });
        Self { from, table: table.collect() }
    }

    fn ln(&self, n: u64) -> f64 {
        let tabulated = usize::try_from(n).ok().and_then(|n| self.table.get(n)).copied();
        tabulated.unwrap_or_else(|| ln_gamma(self.from + n as f64) - ln_gamma(self.from))
    }
}

/// v log2 v, and 0 at 0: what entropies are sums of. Rounding may bring a vanished weight below 0.
pub fn v_log2_v(v: f64) -> f64 {
    if v > 0.0 { v * v.log2() } else { 0.0 }
}

/// Turns logarithms of weights into weights that sum to 1, in place.
pub fn normalise(ln_weights: &mut [f64]) {
    let largest = ln_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for weight in ln_weights.iter_mut() {
        *weight = (*weight - largest).exp();
        sum += *weight;
    }
    ln_weights.iter_mut().for_each(|weight| *weight /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::stats::ln_beta;

    #[test]
    fn the_evidence_is_a_quotient_of_beta_functions_within_and_beyond_the_table() {
        for prior in [Prior::BAD, Prior::GOOD] {
            let rate = Rate::new(prior);
            for faults in [0, 1, 7, 900, 5000] {
                for clean in [0, 2, 29, 1023, 1024, 40_000] {
                    let counts = Counts { faults, clean };
                    let want = ln_beta(prior.faults + faults as f64, prior.clean + clean as f64)
                        - ln_beta(prior.faults, prior.clean);
                    let got = rate.ln_evidence(counts);
                    assert!((got - want).abs() <= 1e-9 * (1.0 + want.abs()), "{counts:?}: {got} {want}");
                }
            }
        }
    }
}
