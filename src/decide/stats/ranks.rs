//! Ranks and several tests at once: Mann-Whitney exactly, Holm, Benjamini-Hochberg.

use super::special::normal_upper_tail;

/// The most values for which the rank test is exact; the exact distribution of more takes long and is normal by then.
pub const EXACT_RANKS_MAX: usize = 100;

/// The test of Mann and Whitney.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTest {
    /// Two-sided p of both groups having one distribution.
    pub p: f64,
    /// The chance that a value of the first group is above one of the second, ties counted half (area under the curve).
    pub auc: f64,
}

/// Whether values of `a` tend to be above or below those of `b`. Ties share their ranks. Exact (all ways to give the
/// ranks out, counted without listing them) up to [`EXACT_RANKS_MAX`] values, else by the normal approximation with the
/// tie correction. `None` if a group is empty or a value is not a number.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<RankTest> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    if a.is_empty() || b.is_empty() || all.iter().any(|value| value.is_nan()) {
        return None;
    }
    let ranks = doubled_ranks(&all);
    let (na, n) = (a.len() as u64, all.len() as u64);
    let observed: u64 = ranks[..a.len()].iter().sum();
    let middle = na * (n + 1);
    let smallest = na * (na + 1);
    let auc = (observed - smallest) as f64 / (2 * na * (n - na)) as f64;
    let off = observed.abs_diff(middle);
    let p =
        if all.len() <= EXACT_RANKS_MAX { exact_p(&ranks, a.len(), middle, off) } else { normal_p(&ranks, na, off) };
    Some(RankTest { p, auc })
}

/// Twice the rank of each value, ties sharing the mean of theirs: twice, so that they are whole numbers.
fn doubled_ranks(values: &[f64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|left, right| values[*left].total_cmp(&values[*right]));
    let mut ranks = vec![0; values.len()];
    let mut first = 0;
    for tied in order.chunk_by(|left, right| values[*left] == values[*right]) {
        let doubled = (2 * first + tied.len() + 1) as u64;
        tied.iter().for_each(|index| ranks[*index] = doubled);
        first += tied.len();
    }
    ranks
}

/// The part of all ways to choose `chosen` of the ranks whose sum is at least `off` away from `middle`.
fn exact_p(ranks: &[u64], chosen: usize, middle: u64, off: u64) -> f64 {
    let most: usize = ranks.iter().sum::<u64>() as usize;
    // ways[k][s]: how many ways to choose k ranks with the sum s.
    let mut ways = vec![vec![0.0_f64; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    let mut reached = 0;
    for (seen, rank) in ranks.iter().enumerate() {
        let rank = *rank as usize;
        for k in (0..chosen.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(k + 1);
            for (sum, count) in fewer[k][..=reached].iter().enumerate() {
                more[0][sum + rank] += count;
            }
        }
        reached += rank;
    }
    let total: f64 = ways[chosen].iter().sum();
    let extreme = (0_u64..).zip(&ways[chosen]).filter(|(sum, _)| sum.abs_diff(middle) >= off);
    extreme.map(|(_, count)| count).sum::<f64>() / total
}

/// The normal approximation: the variance of the doubled rank sum is four times na nb / (n (n - 1)) Σ (r - mean)².
fn normal_p(ranks: &[u64], na: u64, off: u64) -> f64 {
    let n = ranks.len() as f64;
    let (na, nb) = (na as f64, n - na as f64);
    let spread: f64 = ranks.iter().map(|rank| (*rank as f64 - (n + 1.0)).powi(2)).sum();
    let deviation = (na * nb / (n * (n - 1.0)) * spread).sqrt();
    if deviation == 0.0 { 1.0 } else { (2.0 * normal_upper_tail(off as f64 / deviation)).min(1.0) }
}

/// The p values adjusted by Holm (1979), in the order given: each may be read as if it were the only test.
pub fn holm(ps: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; ps.len()];
    let mut largest = 0.0_f64;
    for (rank, index) in ascending(ps).into_iter().enumerate() {
        largest = largest.max(((ps.len() - rank) as f64 * ps[index]).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

/// The p values adjusted by Benjamini and Hochberg (1995): a list of those below q has at most the part q of false
/// ones, on average. For display of many cells, not for a verdict on one.
pub fn benjamini_hochberg(ps: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; ps.len()];
    let mut smallest = 1.0_f64;
    for (rank, index) in ascending(ps).into_iter().enumerate().rev() {
        smallest = smallest.min(ps[index] * ps.len() as f64 / (rank + 1) as f64);
        adjusted[index] = smallest;
    }
    adjusted
}

fn ascending(ps: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|left, right| ps[*left].total_cmp(&ps[*right]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The p by listing every choice, the plain way.
    fn listed(a: &[f64], b: &[f64]) -> f64 {
        let all: Vec<f64> = a.iter().chain(b).copied().collect();
        let ranks = doubled_ranks(&all);
        let middle = (a.len() * (all.len() + 1)) as u64;
        let off = ranks[..a.len()].iter().sum::<u64>().abs_diff(middle);
        let choices = (0_u32..1 << all.len()).filter(|mask| mask.count_ones() as usize == a.len());
        let sums: Vec<u64> = choices
            .map(|mask| ranks.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, rank)| rank).sum())
            .collect();
        sums.iter().filter(|sum: &&u64| sum.abs_diff(middle) >= off).count() as f64 / sums.len() as f64
    }

    #[test]
    fn the_exact_test_counts_what_listing_lists() {
        for (a, b) in [
            (vec![9.0, 10.0, 11.0], (0..9).map(f64::from).collect::<Vec<_>>()),
            (vec![1.0, 1.0, 2.0, 2.0], vec![1.0, 2.0, 3.0]),
            (vec![5.0, 5.0], vec![5.0, 5.0, 5.0]),
            (vec![1.0], vec![2.0, 3.0]),
        ] {
            let got = mann_whitney(&a, &b).unwrap().p;
            assert!((got - listed(&a, &b)).abs() < 1e-12, "{a:?} {b:?}: {got}");
        }
    }

    #[test]
    fn the_normal_approximation_takes_over_where_it_is_close() {
        let ranks: Vec<u64> = (1..=100).map(|rank| 2 * rank).collect();
        for off in [400, 900, 1300] {
            let (exact, normal) = (exact_p(&ranks, 50, 50 * 101, off), normal_p(&ranks, 50, off));
            assert!((exact - normal).abs() < 0.01, "{off}: {exact} and {normal}");
        }
    }

    #[test]
    fn a_group_without_values_is_not_compared() {
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), None);
    }
}
