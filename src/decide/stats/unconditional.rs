//! Unconditional exact tests of two arms: Boschloo and Barnard.
//!
//! They have more power than Fisher's with the same guarantee, because they do not take the number of faults as given:
//! the chance of a rejection is maximised over the unknown common rate instead. Second figures beside Fisher's.

use super::special::ln_choose;
use super::two_arms::{Arms, Hypergeometric, Tails, fisher};

/// The most trials of both arms for which these tests are made; above, Fisher's differs little and this takes long.
pub const UNCONDITIONAL_TRIALS_MAX: u64 = 1000;

/// Points of the grid over the common rate, both ends included.
const GRID: u32 = 4001;

/// Steps of the golden section around the best of the grid.
const GOLDEN_STEPS: u32 = 80;

/// Boschloo's test: the region is all tables whose one-sided Fisher p is no larger than that of the table seen. The
/// two-sided p is twice the smaller one. `None` above [`UNCONDITIONAL_TRIALS_MAX`].
pub fn boschloo(arms: Arms) -> Option<Tails> {
    let (greater, less) = (boschloo_greater(arms)?, boschloo_greater(arms.swapped())?);
    Some(Tails { greater, less, two_sided: (2.0 * greater.min(less)).min(1.0) })
}

fn boschloo_greater(arms: Arms) -> Option<f64> {
    let observed = fisher(arms).greater * (1.0 + 1e-12) + 1e-15;
    largest_chance(arms, |distribution| {
        // The tail grows towards fewer faults of the first level: the region is its longest piece that is small enough.
        let mut tail = 0.0;
        for chance in distribution.chances.iter().rev() {
            if tail + chance > observed {
                break;
            }
            tail += chance;
        }
        tail
    })
}

/// Barnard's test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Barnard {
    /// The difference of the rates over its pooled standard error.
    pub score: f64,
    /// Towards a higher rate of the first level.
    pub greater: f64,
    /// Either way.
    pub two_sided: f64,
}

/// Barnard's test with the pooled score: the region is all tables whose score is at least that of the table seen.
/// `None` above [`UNCONDITIONAL_TRIALS_MAX`].
pub fn barnard(arms: Arms) -> Option<Barnard> {
    /// Scores that differ by less differ by rounding.
    const TIE: f64 = 1e-12;
    let (na, nb) = (arms.a.counted(), arms.b.counted());
    let observed = score(arms.a.faults, na, arms.b.faults, nb);
    let chance_where = |is_extreme: &dyn Fn(f64) -> bool| {
        largest_chance(arms, |distribution| {
            let faults_of = |at: usize| distribution.fewest + at as u64;
            let all = distribution.faults;
            let extreme = distribution.chances.iter().enumerate().filter(|(at, _)| {
                let own = faults_of(*at);
                is_extreme(score(own, na, all - own, nb))
            });
            extreme.map(|(_, chance)| chance).sum()
        })
    };
    Some(Barnard {
        score: observed,
        greater: chance_where(&|score| score >= observed - TIE)?,
        two_sided: chance_where(&|score| score.abs() >= observed.abs() - TIE)?,
    })
}

/// (pa - pb) / sqrt(p (1 - p) (1/na + 1/nb)), with the pooled rate p; 0 where nothing varies.
fn score(xa: u64, na: u64, xb: u64, nb: u64) -> f64 {
    let (na, nb) = (na as f64, nb as f64);
    let pooled = (xa + xb) as f64 / (na + nb);
    let variance = pooled * (1.0 - pooled) * (1.0 / na + 1.0 / nb);
    if variance == 0.0 { 0.0 } else { (xa as f64 / na - xb as f64 / nb) / variance.sqrt() }
}

/// The tables with one number of faults in all.
struct Layer {
    /// That number.
    faults: u64,
    fewest: u64,
    chances: Vec<f64>,
}

/// The largest chance, over the common rate, of a table in a region; `rejected` is the chance of the region among the
/// tables with one number of faults, which does not depend on the rate.
fn largest_chance(arms: Arms, rejected: impl Fn(&Layer) -> f64) -> Option<f64> {
    let (na, nb) = (arms.a.counted(), arms.b.counted());
    let n = na + nb;
    if n > UNCONDITIONAL_TRIALS_MAX {
        return None;
    }
    // For each number of faults: (faults, ln of C(n, faults) times the chance of the region), where that is not 0.
    let layers: Vec<(u64, f64)> = (0..=n)
        .filter_map(|faults| {
            let Hypergeometric { fewest, chances } = Hypergeometric::of(na, nb, faults);
            let chance = rejected(&Layer { faults, fewest, chances });
            (chance > 0.0).then(|| (faults, ln_choose(n, faults) + chance.ln()))
        })
        .collect();
    let chance = |rate: f64| -> f64 {
        let power = |base: f64, exponent: u64| if exponent == 0 { 0.0 } else { exponent as f64 * base };
        let (ln_fault, ln_clean) = (rate.ln(), (-rate).ln_1p());
        layers.iter().map(|(faults, ln)| (ln + power(ln_fault, *faults) + power(ln_clean, n - faults)).exp()).sum()
    };
    Some(maximum(chance).min(1.0))
}

/// The maximum of `f` over 0 to 1: the best of a grid, made better by golden section between its neighbours.
fn maximum(f: impl Fn(f64) -> f64) -> f64 {
    let step = 1.0 / f64::from(GRID - 1);
    let (mut best, mut at) = (f64::MIN, 0.0);
    for point in 0..GRID {
        let x = f64::from(point) * step;
        let value = f(x);
        if value > best {
            (best, at) = (value, x);
        }
    }
    let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = ((at - step).max(0.0), (at + step).min(1.0));
    for _ in 0..GOLDEN_STEPS {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if f(left) > f(right) {
            high = right;
        } else {
            low = left;
        }
    }
    best.max(f((low + high) / 2.0))
}
