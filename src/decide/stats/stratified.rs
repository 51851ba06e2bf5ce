//! Two arms in several strata: like is compared with like, and the strata are put together exactly.

use std::collections::BTreeMap;

use super::two_arms::{Arms, Hypergeometric, Tails};

/// Two sums are as likely as each other if their chances differ by no more than this part.
const TIE: f64 = 1e-7;

/// The exact stratified test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stratified {
    /// How many strata say anything: those with trials of both levels, and with faults and clean trials.
    pub informative: usize,
    /// The p values; 1 without an informative stratum.
    pub tails: Tails,
}

/// The exact conditional test that a common odds ratio is 1 (the exact form of Cochran-Mantel-Haenszel): the faults of
/// the first level, summed over strata, against the convolution of the hypergeometric distributions of the strata.
pub fn cmh_exact(strata: &[Arms]) -> Stratified {
    let mut chances = vec![1.0];
    let mut fewest = 0;
    let mut observed = 0;
    let mut informative = 0;
    for arms in strata.iter().filter(|arms| is_informative(**arms)) {
        let stratum = Hypergeometric::of(arms.a.counted(), arms.b.counted(), arms.faults());
        chances = convolve(&chances, &stratum.chances);
        fewest += stratum.fewest;
        observed += arms.a.faults;
        informative += 1;
    }
    let at = (observed - fewest) as usize;
    let unlikely = chances.iter().filter(|chance| **chance <= chances[at] * (1.0 + TIE));
    let tails = Tails {
        greater: chances[at..].iter().sum::<f64>().min(1.0),
        less: chances[..=at].iter().sum::<f64>().min(1.0),
        two_sided: unlikely.sum::<f64>().min(1.0),
    };
    Stratified { informative, tails }
}

fn is_informative(arms: Arms) -> bool {
    let faults = arms.faults();
    arms.a.counted() > 0 && arms.b.counted() > 0 && faults > 0 && faults < arms.counted()
}

fn convolve(left: &[f64], right: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; left.len() + right.len() - 1];
    for (i, a) in left.iter().enumerate() {
        for (sum, b) in sums[i..].iter_mut().zip(right) {
            *sum += a * b;
        }
    }
    sums
}

/// The smallest two-sided p that trials so distributed over strata could have given: all faults on one side, or all on
/// the other. Worth knowing before any trial.
pub fn smallest_p(strata: &[Arms]) -> f64 {
    let p = |side: fn(Arms) -> Arms| {
        let extreme: Vec<Arms> = strata.iter().map(|arms| side(*arms)).collect();
        cmh_exact(&extreme).tails.two_sided
    };
    p(Arms::extreme).min(p(|arms| arms.swapped().extreme().swapped()))
}

/// The estimate of Mantel and Haenszel (1959). For display only, where no cell is empty: it is asymptotic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MantelHaenszel {
    /// Faults of the first level beyond what its trials would have if the levels did not matter.
    pub excess: f64,
    /// The variance of that number.
    pub variance: f64,
    /// χ² with one degree of freedom and Yates' correction.
    pub chi_square: f64,
    /// The same without the correction.
    pub chi_square_uncorrected: f64,
    /// The common odds ratio; infinite where the second level has no fault to weigh.
    pub odds_ratio: f64,
}

/// χ² and common odds ratio over `strata`.
pub fn mantel_haenszel(strata: &[Arms]) -> MantelHaenszel {
    let (mut excess, mut variance, mut over, mut under) = (0.0, 0.0, 0.0, 0.0);
    for arms in strata {
        let (na, nb) = (arms.a.counted() as f64, arms.b.counted() as f64);
        let (n, m) = (na + nb, arms.faults() as f64);
        if n < 2.0 || na == 0.0 || nb == 0.0 {
            continue;
        }
        excess += arms.a.faults as f64 - na * m / n;
        variance += na * nb * m * (n - m) / (n * n * (n - 1.0));
        over += (arms.a.faults * arms.b.clean) as f64 / n;
        under += (arms.b.faults * arms.a.clean) as f64 / n;
    }
    let chi_square = |correction: f64| {
        let off = (excess.abs() - correction).max(0.0);
        if variance > 0.0 { off * off / variance } else { 0.0 }
    };
    MantelHaenszel {
        excess,
        variance,
        chi_square: chi_square(0.5),
        chi_square_uncorrected: chi_square(0.0),
        odds_ratio: if under > 0.0 { over / under } else { f64::INFINITY },
    }
}

/// How much two distributions over the levels of a factor overlap: the sum over levels of the smaller share, 0 to 1.
/// 0 means that the factor is aliased with what is compared. `None` if either side is empty.
pub fn overlap<K: Ord>(a: &BTreeMap<K, u64>, b: &BTreeMap<K, u64>) -> Option<f64> {
    let (na, nb) = (a.values().sum::<u64>(), b.values().sum::<u64>());
    if na == 0 || nb == 0 {
        return None;
    }
    let share = |count: u64, of: u64| count as f64 / of as f64;
    let common = a.iter().filter_map(|(level, count)| Some((*count, *b.get(level)?)));
    Some(common.map(|(of_a, of_b)| share(of_a, na).min(share(of_b, nb))).sum())
}
