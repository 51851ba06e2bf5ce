//! Two arms: what counted trials of two levels say about their difference, exactly.
//!
//! Owns the conditional tests of one table (Fisher) and of several groups (Freeman-Halton), and the smallest p that a
//! design could give, which is worth knowing before any trial. Which trials may be put into one table is not known here.

use super::Counts;
use super::special::ln_choose;

/// Two tables are as likely as each other if their chances differ by no more than this part: rounding, not meaning.
const TIE: f64 = 1e-7;

/// The counted trials of two levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Arms {
    /// Of the first.
    pub a: Counts,
    /// Of the second.
    pub b: Counts,
}

impl Arms {
    /// `xa` faults in `na` trials of the first level, `xb` in `nb` of the second; `None` if there are more faults than
    /// trials.
    pub fn of(xa: u64, na: u64, xb: u64, nb: u64) -> Option<Self> {
        Some(Self { a: Counts::of(xa, na)?, b: Counts::of(xb, nb)? })
    }

    /// Counted trials of both.
    pub fn counted(self) -> u64 {
        self.a.counted() + self.b.counted()
    }

    /// Faults of both.
    pub fn faults(self) -> u64 {
        self.a.faults + self.b.faults
    }

    /// These trials and those.
    pub fn plus(self, more: Self) -> Self {
        Self { a: self.a.plus(more.a), b: self.b.plus(more.b) }
    }

    /// The same with the levels changed round.
    pub fn swapped(self) -> Self {
        Self { a: self.b, b: self.a }
    }

    /// The table of the same size in which every trial of the first level faults and none of the second does.
    pub fn extreme(self) -> Self {
        let (a, b) = (self.a.counted(), self.b.counted());
        Self { a: Counts { faults: a, clean: 0 }, b: Counts { faults: 0, clean: b } }
    }
}

/// The p values of a test: how often a table at least as extreme comes if both levels have the same rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tails {
    /// Towards a higher rate of the first level.
    pub greater: f64,
    /// Towards a lower one.
    pub less: f64,
    /// Either way.
    pub two_sided: f64,
}

/// What is known of the faults of the first level once all margins are: the hypergeometric distribution.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hypergeometric {
    /// The fewest faults that the first level can have.
    pub(super) fewest: u64,
    /// The chance of so many, one more, and so on.
    pub(super) chances: Vec<f64>,
}

impl Hypergeometric {
    /// For `na` and `nb` trials with `faults` faults in all: C(na, k) C(nb, faults - k) / C(na + nb, faults).
    pub(super) fn of(na: u64, nb: u64, faults: u64) -> Self {
        let (fewest, most) = (faults.saturating_sub(nb), na.min(faults));
        let all = ln_choose(na + nb, faults);
        let chance = |k| (ln_choose(na, k) + ln_choose(nb, faults - k) - all).exp();
        Self { fewest, chances: (fewest..=most).map(chance).collect() }
    }

    /// Of the tables with the margins of `arms`.
    fn of_arms(arms: Arms) -> Self {
        Self::of(arms.a.counted(), arms.b.counted(), arms.faults())
    }

    /// The p values of `faults` faults of the first level.
    fn tails(&self, faults: u64) -> Tails {
        let at = (faults - self.fewest) as usize;
        let observed = self.chances[at];
        let unlikely = self.chances.iter().filter(|chance| **chance <= observed * (1.0 + TIE));
        Tails {
            greater: self.chances[at..].iter().sum::<f64>().min(1.0),
            less: self.chances[..=at].iter().sum::<f64>().min(1.0),
            two_sided: unlikely.sum::<f64>().min(1.0),
        }
    }
}

/// Fisher's exact test. Its two-sided p sums the tables that are no likelier than the one seen.
pub fn fisher(arms: Arms) -> Tails {
    Hypergeometric::of_arms(arms).tails(arms.a.faults)
}

/// Fisher's test with only half of the observed table counted (mid-p). It is not guaranteed to keep its level; a second
/// figure, never a verdict.
pub fn fisher_mid(arms: Arms) -> Tails {
    let distribution = Hypergeometric::of_arms(arms);
    let Tails { greater, less, two_sided } = distribution.tails(arms.a.faults);
    let observed = distribution.chances[(arms.a.faults - distribution.fewest) as usize];
    let as_likely = distribution.chances.iter().filter(|chance| (**chance - observed).abs() <= observed * TIE);
    Tails {
        greater: greater - observed / 2.0,
        less: less - observed / 2.0,
        two_sided: two_sided - as_likely.sum::<f64>() / 2.0,
    }
}

/// The smallest one-sided p that these margins allow.
pub fn smallest_greater(arms: Arms) -> f64 {
    Hypergeometric::of_arms(arms).chances.last().copied().unwrap_or(1.0)
}

/// The fewest clean trials, without a fault, after which Fisher's one-sided test tells a cell from `baseline`; `None`
/// if `limit` are not enough. For plans: it is smaller than what a bound needs.
pub fn clean_trials_by_fisher(baseline: Counts, alpha: f64, limit: u64) -> Option<u64> {
    let p = |clean| fisher(Arms { a: baseline, b: Counts { faults: 0, clean } }).greater;
    // A p that is alpha but for rounding (1/1 against 0/19: 1/20) does not tell them apart.
    (1..=limit).find(|clean| p(*clean) < alpha * (1.0 - TIE))
}

/// The exact test of Freeman and Halton: the p of several groups having one rate, by the chance of all tables with the
/// same margins that are no likelier than the one seen.
///
/// The tables are never listed: it convolves the groups, keeping for each number of faults the chances reached so far,
/// equal ones together. `None` if more than `limit` different chances would have to be kept.
pub fn freeman_halton(groups: &[Counts], limit: usize) -> Option<f64> {
    let trials: u64 = groups.iter().map(|group| group.counted()).sum();
    let faults: u64 = groups.iter().map(|group| group.faults).sum();
    let all = ln_choose(trials, faults);
    let observed: f64 = groups.iter().map(|group| ln_choose(group.counted(), group.faults)).sum::<f64>() - all;
    // For each number of faults given out: (ln of the chance of one table, how many tables have it).
    let mut reached: Vec<Vec<(f64, f64)>> = vec![Vec::new(); faults as usize + 1];
    reached[0].push((-all, 1.0));
    for group in groups {
        let mut next: Vec<Vec<(f64, f64)>> = vec![Vec::new(); faults as usize + 1];
        for (given, tables) in reached.iter().enumerate() {
            for own in 0..=group.counted().min(faults - given as u64) {
                let ln = ln_choose(group.counted(), own);
                next[given + own as usize].extend(tables.iter().map(|(table, count)| (table + ln, *count)));
            }
        }
        next.iter_mut().for_each(merge);
        if next.iter().map(Vec::len).sum::<usize>() > limit {
            return None;
        }
        reached = next;
    }
    let as_unlikely = reached[faults as usize].iter().filter(|(ln, _)| *ln <= observed + TIE.ln_1p());
    Some(as_unlikely.map(|(ln, count)| count * ln.exp()).sum::<f64>().min(1.0))
}

/// Puts equal chances together.
fn merge(tables: &mut Vec<(f64, f64)>) {
    /// Logarithms that differ by less than this differ by rounding.
    const SAME: f64 = 1e-10;
    tables.sort_by(|left, right| left.0.total_cmp(&right.0));
    tables.dedup_by(|later, kept| {
        let same = later.0 - kept.0 < SAME;
        if same {
            kept.1 += later.1;
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_p_of_a_design_is_known_before_it_runs() {
        for (na, nb, want) in [
            (4, 1, 0.2),
            (4, 2, 0.066_667),
            (4, 3, 0.028_571),
            (3, 3, 0.1),
            (4, 4, 0.028_571),
            (5, 5, 0.007_937),
            (9, 1, 0.1),
            (9, 2, 0.018_182),
            (9, 3, 0.004_545),
            (29, 1, 0.033_333),
        ] {
            let p = fisher(Arms::of(na, na, 0, nb).unwrap()).two_sided;
            assert!((p - want).abs() < 1e-6, "{na} and {nb}: {p}");
        }
    }

    #[test]
    fn changing_the_levels_round_changes_the_tails_round() {
        for na in 1..=8 {
            for nb in 1..=8 {
                for (xa, xb) in (0..=na).flat_map(|xa| (0..=nb).map(move |xb| (xa, xb))) {
                    let arms = Arms::of(xa, na, xb, nb).unwrap();
                    let (there, back) = (fisher(arms), fisher(arms.swapped()));
                    assert!((there.greater - back.less).abs() < 1e-12, "{arms:?}");
                    assert!((there.two_sided - back.two_sided).abs() < 1e-12, "{arms:?}");
                }
            }
        }
    }

    #[test]
    fn two_groups_are_two_arms() {
        for (xa, na, xb, nb) in [(7, 9, 0, 3), (2, 3, 0, 3), (5, 9, 4, 9), (12, 20, 3, 18)] {
            let arms = Arms::of(xa, na, xb, nb).unwrap();
            let groups = freeman_halton(&[arms.a, arms.b], 1000).unwrap();
            assert!((groups - fisher(arms).two_sided).abs() < 1e-10, "{arms:?}");
        }
        assert_eq!(freeman_halton(&[Counts { faults: 20, clean: 20 }; 6], 10), None, "a limit is kept");
    }
}
