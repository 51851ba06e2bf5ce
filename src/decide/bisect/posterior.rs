//! Where the change is, after what was seen: hypotheses over positions in an order.
//!
//! Positions 0 to N: 0 is the good end, N the bad end. Hypothesis t in 1..=N says that t is the first bad position;
//! hypothesis 0 says that the good end is bad already, so that the range does not hold the change at all.

use super::rate::{Prior, Rate, normalise, v_log2_v};
use crate::decide::stats::Counts;

/// P(the good end is bad already) before anything was seen.
pub const ALREADY_BAD: f64 = 0.05;

/// Which positions are bad under each hypothesis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Positions on a line: i is bad under t exactly if i ≥ t.
    Line {
        /// N: how many positions there are beside the good end.
        last: usize,
    },
    /// Any history: each hypothesis with the positions that are bad under it.
    Graph(Vec<Positions>),
}

/// A set of positions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Positions(Vec<u64>);

impl Positions {
    /// No position of `0..count`.
    pub fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    /// Every position of `0..count`.
    pub fn all(count: usize) -> Self {
        let mut all = Self::none(count);
        (0..count).for_each(|position| all.insert(position));
        all
    }

    /// Adds a position.
    pub fn insert(&mut self, position: usize) {
        self.0[position / 64] |= 1 << (position % 64);
    }

    /// Whether it holds `position`.
    pub fn contains(&self, position: usize) -> bool {
        self.0[position / 64] >> (position % 64) & 1 == 1
    }

    /// Adds everything in `other`.
    pub fn extend(&mut self, other: &Positions) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Those that are in `other` too.
    pub fn within(&self, other: &Positions) -> Positions {
        Self(self.0.iter().zip(&other.0).map(|(mine, theirs)| mine & theirs).collect())
    }
}

impl Order {
    /// N, the bad end; there are N + 1 positions and as many hypotheses.
    pub fn last(&self) -> usize {
        match self {
            Order::Line { last } => *last,
            Order::Graph(bad) => bad.len() - 1,
        }
    }

    /// Whether `position` is bad under `hypothesis`.
    pub fn is_bad(&self, position: usize, hypothesis: usize) -> bool {
        match self {
            Order::Line { .. } => position >= hypothesis,
            Order::Graph(bad) => bad[hypothesis].contains(position),
        }
    }

    /// For each hypothesis the first one that no test of `testable` positions tells from it.
    pub fn classes(&self, testable: &Positions) -> Vec<usize> {
        match self {
            Order::Line { last } => {
                let mut first = 0;
                (0..=*last)
                    .map(|t| {
                        if t > 0 && testable.contains(t - 1) {
                            first = t;
                        }
                        first
                    })
                    .collect()
            }
            Order::Graph(bad) => {
                let mut firsts = std::collections::HashMap::new();
                (0..).zip(bad).map(|(t, bad)| *firsts.entry(bad.within(testable)).or_insert(t)).collect()
            }
        }
    }
}

/// The prior of the hypotheses: [`ALREADY_BAD`] for 0, the rest spread over the others as `weights` says.
pub fn prior(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    std::iter::once(ALREADY_BAD).chain(weights.iter().map(|weight| (1.0 - ALREADY_BAD) * weight / sum)).collect()
}

/// How faults come at good positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FalseFaults {
    /// Now and then.
    #[default]
    Possible,
    /// Never: one fault proves a position bad. Only for a signature that nothing else can leave.
    Impossible,
}

/// The two rate models of a search.
#[derive(Debug, Clone)]
pub struct Rates {
    bad: Rate,
    good: Rate,
    false_faults: FalseFaults,
}

impl Rates {
    /// The models; `controls` are runs of cells that are known to be good, if there are many.
    pub fn new(false_faults: FalseFaults, controls: Counts) -> Self {
        let good = match controls.counted() {
            CONTROLS_MIN.. => Prior { faults: 0.5 + controls.faults as f64, clean: 0.5 + controls.clean as f64 },
            _ => Prior::GOOD,
        };
        Self { bad: Rate::new(Prior::BAD), good: Rate::new(good), false_faults }
    }

    /// ln of the evidence of the runs at bad and at good places.
    pub fn ln_evidence(&self, bad: Counts, good: Counts) -> f64 {
        let of_good = match self.false_faults {
            FalseFaults::Impossible if good.faults > 0 => f64::NEG_INFINITY,
            FalseFaults::Impossible => 0.0,
            FalseFaults::Possible => self.good.ln_evidence(good),
        };
        self.bad.ln_evidence(bad) + of_good
    }

    /// How much more likely `counts` are at a bad place than at a good one (ln of the Bayes factor).
    pub fn ln_bad_against_good(&self, counts: Counts) -> f64 {
        let none = Counts::default();
        self.ln_evidence(counts, none) - self.ln_evidence(none, counts)
    }

    /// The expected rates at bad and at good places.
    pub fn means(&self, bad: Counts, good: Counts) -> (f64, f64) {
        let of_good = match self.false_faults {
            FalseFaults::Impossible => 0.0,
            FalseFaults::Possible => self.good.mean(good),
        };
        (self.bad.mean(bad), of_good)
    }
}

/// From so many runs of controls on, their rate replaces the prior of spurious faults.
pub const CONTROLS_MIN: u64 = 100;

/// The hypotheses after what was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// The weight of each hypothesis; they sum to 1.
    pub weights: Vec<f64>,
    /// Under each, the expected fault rate at bad positions.
    pub bad_means: Vec<f64>,
    /// Under each, the expected fault rate at good positions.
    pub good_means: Vec<f64>,
}

/// One hypothesis' share of what a run may show, were its position bad or good.
#[derive(Clone, Copy, Default)]
struct Share {
    fault: f64,
    clean: f64,
    /// The sum of v log2 v of both.
    surprise: f64,
}

impl Share {
    fn new(weight: f64, rate: f64) -> Self {
        let (fault, clean) = (weight * rate, weight * (1.0 - rate));
        Self { fault, clean, surprise: v_log2_v(fault) + v_log2_v(clean) }
    }

    fn and(self, other: Share) -> Self {
        Self {
            fault: self.fault + other.fault,
            clean: self.clean + other.clean,
            surprise: self.surprise + other.surprise,
        }
    }

    /// The entropy in bits that is left after the run, on average.
    fn expected_entropy(self) -> f64 {
        v_log2_v(self.fault) + v_log2_v(self.clean) - self.surprise
    }
}

impl Posterior {
    /// The posterior from `prior` (which sums to 1) and the runs at each position.
    pub fn of(order: &Order, prior: &[f64], counts: &[Counts], rates: &Rates) -> Self {
        let total = counts.iter().copied().fold(Counts::default(), add);
        let mut posterior = Self { weights: Vec::new(), bad_means: Vec::new(), good_means: Vec::new() };
        let mut good = Counts::default();
        for (hypothesis, prior) in prior.iter().enumerate() {
            if let Order::Graph(_) = order {
                let at_good = (0..counts.len()).filter(|&position| !order.is_bad(position, hypothesis));
                good = at_good.map(|position| counts[position]).fold(Counts::default(), add);
            }
            let bad = Counts { faults: total.faults - good.faults, clean: total.clean - good.clean };
            let (bad_mean, good_mean) = rates.means(bad, good);
            posterior.weights.push(prior.ln() + rates.ln_evidence(bad, good));
            posterior.bad_means.push(bad_mean);
            posterior.good_means.push(good_mean);
            if let Order::Line { .. } = order {
                good = add(good, counts[hypothesis]);
            }
        }
        normalise(&mut posterior.weights);
        posterior
    }

    /// What is not known yet, in bits.
    pub fn entropy(&self) -> f64 {
        -self.weights.iter().copied().map(v_log2_v).sum::<f64>()
    }

    /// For each position the bits that are left, on average, after one run there.
    pub fn expected_entropy(&self, order: &Order) -> Vec<f64> {
        let hypotheses = self.weights.iter().enumerate();
        let bad: Vec<Share> = hypotheses.clone().map(|(t, &w)| Share::new(w, self.bad_means[t])).collect();
        let good: Vec<Share> = hypotheses.map(|(t, &w)| Share::new(w, self.good_means[t])).collect();
        match order {
            Order::Line { .. } => {
                // Under t > i position i is good: sums from the end, so that nothing is subtracted.
                let mut after = vec![Share::default(); good.len() + 1];
                for t in (0..good.len()).rev() {
                    after[t] = after[t + 1].and(good[t]);
                }
                let mut until = Share::default();
                let entropy = |(i, share): (usize, &Share)| {
                    until = until.and(*share);
                    until.and(after[i + 1]).expected_entropy()
                };
                bad.iter().enumerate().map(entropy).collect()
            }
            Order::Graph(is_bad) => {
                let at = |position: usize| {
                    let shares = is_bad.iter().zip(bad.iter().zip(&good));
                    shares
                        .map(|(set, (bad, good))| if set.contains(position) { *bad } else { *good })
                        .fold(Share::default(), Share::and)
                };
                (0..is_bad.len()).map(|position| at(position).expected_entropy()).collect()
            }
        }
    }

    /// The first position at which half of the weight is reached.
    pub fn median(&self) -> usize {
        let mut sum = 0.0;
        let reached = self.weights.iter().position(|weight| {
            sum += weight;
            sum >= 0.5
        });
        reached.unwrap_or(self.weights.len() - 1)
    }

    /// The shortest range of hypotheses that follow each other and hold at least `share` of the weight.
    pub fn range(&self, share: f64) -> (usize, usize) {
        let mut best = (0, self.weights.len() - 1);
        let mut from = 0;
        let mut sum = 0.0;
        for (to, weight) in self.weights.iter().enumerate() {
            sum += weight;
            while sum - self.weights[from] >= share {
                sum -= self.weights[from];
                from += 1;
            }
            if sum >= share && to - from < best.1 - best.0 {
                best = (from, to);
            }
        }
        best
    }
}

/// Both counts together.
pub fn add(one: Counts, other: Counts) -> Counts {
    Counts { faults: one.faults + other.faults, clean: one.clean + other.clean }
}

/// The place whose run gains most, as `gain` says; equal gains go to the one nearest to `centre`, then to the lowest.
pub fn best_gain(places: impl Iterator<Item = usize>, gain: impl Fn(usize) -> f64, centre: usize) -> Option<usize> {
    /// Gains that differ by less are equal: rounding must not choose.
    const SAME: f64 = 1e-12;
    let gains: Vec<(usize, f64)> = places.map(|place| (place, gain(place))).collect();
    let most = gains.iter().map(|(_, gain)| *gain).fold(f64::NEG_INFINITY, f64::max);
    let best = gains.iter().filter(|(_, gain)| *gain >= most - SAME).map(|(place, _)| *place);
    best.min_by_key(|place| (place.abs_diff(centre), *place))
}
