//! When enough was seen: the sequential probability ratio test of one cell, and the e-value of two arms.
//!
//! Both may be looked at after every trial; that is what they are for. What is not free is to begin again after a
//! verdict, to drop trials, or to move the rates that are tested once trials were seen.

use super::two_arms::Arms;
use super::{Confidence, Counts, lower_bound};

/// A rate of matching faults that have another cause: brown-outs, a hand on the plug.
pub const RATE_SPURIOUS: f64 = 0.01;

/// The rate that is tested for where no baseline is known.
pub const RATE_UNKNOWN: f64 = 0.30;

/// The lowest rate that is tested for, however badly the baseline is known: below it a decision costs too many boots.
pub const RATE_FLOOR: f64 = 0.10;

/// The e-value at which two arms are told apart: 1 over the chance of an error of 5 %.
pub const E_THRESHOLD: f64 = 20.0;

/// A test of one cell with two simple hypotheses (Wald 1945): its fault rate is `p0`, or it is `p1`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sprt {
    /// The rate of a cell that does not have the fault, 0 or more.
    pub p0: f64,
    /// The rate of one that has it, above `p0`, below 1.
    pub p1: f64,
    /// The chance of saying "faults" at rate `p0`.
    pub alpha: f64,
    /// The chance of saying "below" at rate `p1`.
    pub beta: f64,
}

/// How the test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SprtEnd {
    /// The cell has the fault.
    Faults,
    /// Its rate is below `p1`.
    Below,
    /// The most trials were seen, and neither is shown.
    Inconclusive,
}

/// What a test does at one true rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operating {
    /// The chance of ending with "faults".
    pub faults: f64,
    /// Of ending with "below".
    pub below: f64,
    /// Of ending inconclusive.
    pub inconclusive: f64,
    /// The trials it takes on average.
    pub trials: f64,
}

impl Sprt {
    /// The default test for `p1`: a spurious rate of 1 %, both errors at most 5 %.
    pub fn for_rate(p1: f64) -> Self {
        Self { p0: RATE_SPURIOUS, p1, alpha: Confidence::P95.alpha(), beta: Confidence::P95.alpha() }
    }

    /// The rate to test for where `baseline` is known of the same cell but for what is compared: its one-sided lower
    /// bound, so that a badly known baseline needs more clean trials.
    pub fn rate_against(baseline: Counts) -> f64 {
        lower_bound(baseline, Confidence::P95).clamp(RATE_FLOOR, MOST_RATE)
    }

    /// The same test as one of `cells` that are decided together (Bonferroni). Only the claim of a fault is corrected.
    pub fn among(self, cells: u32) -> Self {
        Self { alpha: self.alpha / f64::from(cells.max(1)), ..self }
    }

    /// ln B ≤ and ln A ≥: where the test ends, in the units of [`Sprt::evidence`].
    pub fn bounds(&self) -> (f64, f64) {
        ((self.beta / (1.0 - self.alpha)).ln(), ((1.0 - self.beta) / self.alpha).ln())
    }

    /// The logarithm of the likelihood ratio of `p1` to `p0`. With `p0` = 0 one fault makes it infinite.
    pub fn evidence(&self, counts: Counts) -> f64 {
        let times = |count: u64, ln: f64| if count == 0 { 0.0 } else { count as f64 * ln };
        times(counts.faults, self.step(true)) + times(counts.clean, self.step(false))
    }

    /// What one trial adds.
    pub fn step(&self, fault: bool) -> f64 {
        if fault { (self.p1 / self.p0).ln() } else { (-self.p1).ln_1p() - (-self.p0).ln_1p() }
    }

    /// How the test ends with these counts, if it does, with no more than `cap` trials.
    pub fn end(&self, counts: Counts, cap: u64) -> Option<SprtEnd> {
        let (below, faults) = self.bounds();
        let evidence = self.evidence(counts);
        if evidence >= faults {
            Some(SprtEnd::Faults)
        } else if evidence <= below {
            Some(SprtEnd::Below)
        } else {
            (counts.counted() >= cap).then_some(SprtEnd::Inconclusive)
        }
    }

    /// The clean trials that end it if no trial faults.
    pub fn clean_trials(&self) -> u64 {
        (self.bounds().0 / self.step(false)).ceil() as u64
    }

    /// The faults that end it if every trial faults.
    pub fn fault_trials(&self) -> u64 {
        (self.bounds().1 / self.step(true)).ceil().max(1.0) as u64
    }

    /// Where it is cut off: three times the clean trials that it needs, which it hardly ever reaches.
    pub fn cap(&self) -> u64 {
        3 * self.clean_trials()
    }

    /// What it does at the true rate `rate`, cut off at `cap` trials: exact, by the chances of all counts that have not
    /// ended it.
    pub fn operating(&self, rate: f64, cap: u64) -> Operating {
        let mut operating = Operating { faults: 0.0, below: 0.0, inconclusive: 0.0, trials: 0.0 };
        // open[x]: the chance of x faults so far, the test still going on.
        let mut open = vec![1.0_f64];
        for counted in 1..=cap {
            operating.trials += open.iter().sum::<f64>();
            let mut next = vec![0.0; open.len() + 1];
            for (faults, chance) in open.iter().enumerate() {
                next[faults] += chance * (1.0 - rate);
                next[faults + 1] += chance * rate;
            }
            for (faults, chance) in next.iter_mut().enumerate() {
                let counts = Counts { faults: faults as u64, clean: counted - faults as u64 };
                let ended = match self.end(counts, u64::MAX) {
                    Some(SprtEnd::Faults) => &mut operating.faults,
                    Some(SprtEnd::Below) => &mut operating.below,
                    Some(SprtEnd::Inconclusive) | None => continue,
                };
                *ended += std::mem::take(chance);
            }
            open = next;
        }
        operating.inconclusive = open.iter().sum();
        operating
    }

    /// The most trials that it takes on average, over all rates (on a grid of one per cent), cut off at `cap`.
    pub fn most_expected(&self, cap: u64) -> f64 {
        (0..=100).map(|percent| self.operating(f64::from(percent) / 100.0, cap).trials).fold(0.0, f64::max)
    }
}

/// The highest rate that is tested for; at 1 a single clean trial would prove the contrary.
const MOST_RATE: f64 = 0.95;

/// Evidence that the first level has the higher rate, collected block by block: a product of likelihood ratios that bet on
/// what the earlier blocks showed.
///
/// If the first rate is no higher, its expectation is at most 1 at every block, so it ever reaches 20 with a chance of at
/// most 5 %, however often one looks (Ville 1939; the construction for 2×2 blocks: Turner, Ly and Grünwald,
/// "Generic E-variables for exact sequential k-sample tests", 2024).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EValue {
    seen: Arms,
    ln: f64,
}

impl EValue {
    /// Takes note of the next complete block.
    pub fn add(&mut self, block: Arms) {
        let (na, nb) = (block.a.counted() as f64, block.b.counted() as f64);
        if na + nb > 0.0 {
            let (theta_a, theta_b) = self.bet();
            let null = (na * theta_a + nb * theta_b) / (na + nb);
            if theta_a > theta_b {
                self.ln += growth(block.a, theta_a, null) + growth(block.b, theta_b, null);
            }
        }
        self.seen = self.seen.plus(block);
    }

    /// The rates that the next block is bet on: what was seen, half a fault and half a clean trial added; before
    /// anything was seen 75 % and 25 %.
    fn bet(&self) -> (f64, f64) {
        if self.seen.counted() == 0 {
            return (0.75, 0.25);
        }
        let rate = |counts: Counts| (counts.faults as f64 + 0.5) / (counts.counted() as f64 + 1.0);
        (rate(self.seen.a), rate(self.seen.b))
    }

    /// The e-value, 1 before the first block.
    pub fn value(&self) -> f64 {
        self.ln.exp()
    }
}

/// The logarithm of the likelihood ratio of rate `bet` to rate `null`.
fn growth(counts: Counts, bet: f64, null: f64) -> f64 {
    let times = |count: u64, ln: f64| if count == 0 { 0.0 } else { count as f64 * ln };
    times(counts.faults, (bet / null).ln()) + times(counts.clean, ((1.0 - bet) / (1.0 - null)).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_e_value_promises_no_more_than_even_odds_where_the_first_rate_is_no_higher() {
        // The expectation of the factor of the next pair, after every history of up to four pairs.
        let pairs = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(xa, xb)| Arms::of(xa, 1, xb, 1).unwrap());
        let mut histories = vec![EValue::default()];
        for _ in 0..4 {
            for history in &histories {
                for (pa, pb) in (0..=20).flat_map(|b| (0..=b).map(move |a| (f64::from(a) / 20.0, f64::from(b) / 20.0)))
                {
                    let chance = |arms: Arms| {
                        let of = |counts: Counts, p: f64| if counts.faults == 1 { p } else { 1.0 - p };
                        of(arms.a, pa) * of(arms.b, pb)
                    };
                    let factor = |arms: Arms| {
                        let mut next = *history;
                        next.add(arms);
                        next.value() / history.value()
                    };
                    let expectation: f64 = pairs.iter().map(|arms| chance(*arms) * factor(*arms)).sum();
                    assert!(expectation <= 1.0 + 1e-12, "{history:?}, rates {pa} and {pb}: {expectation}");
                }
            }
            histories = histories
                .iter()
                .flat_map(|history| {
                    pairs.map(|pair| {
                        let mut next = *history;
                        next.add(pair);
                        next
                    })
                })
                .collect();
        }
    }

    #[test]
    fn four_perfect_pairs_tell_two_arms_apart() {
        let mut e = EValue::default();
        let mut pairs = 0;
        while e.value() < E_THRESHOLD {
            e.add(Arms::of(1, 1, 0, 1).unwrap());
            pairs += 1;
        }
        assert_eq!(pairs, 4);
    }

    #[test]
    fn a_better_known_baseline_is_tested_for_at_a_higher_rate() {
        let needs = |faults, counted| {
            let rate = Sprt::rate_against(Counts::of(faults, counted).unwrap());
            Sprt::for_rate(rate).clean_trials()
        };
        assert_eq!((needs(7, 9), needs(14, 20), Sprt::for_rate(RATE_UNKNOWN).clean_trials()), (6, 5, 9));
        assert_eq!(Sprt::rate_against(Counts::of(1, 3).unwrap()), RATE_FLOOR);
    }

    #[test]
    fn the_default_test_keeps_its_promises() {
        let test = Sprt::for_rate(RATE_UNKNOWN);
        let spurious = test.operating(RATE_SPURIOUS, test.cap());
        assert!((0.015..=0.035).contains(&spurious.faults), "{spurious:?}");
        assert!(test.operating(RATE_UNKNOWN, test.cap()).below <= 0.05);
        assert!((test.most_expected(200) - 11.04).abs() < 0.01, "{}", test.most_expected(200));
        assert!(test.most_expected(test.cap()) < test.most_expected(200), "{}", test.most_expected(test.cap()));
    }

    #[test]
    fn a_fault_too_late_does_not_decide_alone() {
        let test = Sprt::for_rate(RATE_UNKNOWN);
        let end = |faults, clean| test.end(Counts { faults, clean }, test.cap());
        assert_eq!((end(1, 0), end(1, 1), end(1, 2)), (Some(SprtEnd::Faults), Some(SprtEnd::Faults), None));
        assert_eq!((end(0, 8), end(0, 9)), (None, Some(SprtEnd::Below)));
        let with_signature = Sprt { p0: 0.0, ..test };
        assert_eq!(with_signature.end(Counts { faults: 1, clean: 8 }, 27), Some(SprtEnd::Faults));
    }
}
