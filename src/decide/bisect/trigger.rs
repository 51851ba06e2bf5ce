//! Which elements are load-bearing: exact Bayes over all sets of up to [`ELEMENTS_MAX`] elements.
//!
//! A run keeps a set C of elements in their dangerous setting. Hypothesis S, a set too, says that faults come at the bad
//! rate exactly if S ⊆ C: the run is then *armed*. One fault clears every element that was not kept; a clean run proves
//! nothing by itself. Elements may be knobs of a machine or items of a sequence; S is then the set of knobs that must
//! all be dangerous, each of which is a mitigation if it is flipped, or the smallest failing subsequence.

use super::Seen;
use super::posterior::Rates;
use super::rate::{normalise, v_log2_v};
use crate::decide::stats::{Counts, ln_gamma};

/// The most elements whose 2^K sets are enumerated: 65,536 hypotheses and as many tests.
pub const ELEMENTS_MAX: u32 = 16;

/// Gains below this many bits are none.
pub const GAIN_MIN: f64 = 1e-9;

/// The elements that a run keeps in their dangerous setting, or that a hypothesis holds: bit i is element i.
pub type Kept = u64;

/// The set of all `elements` elements.
pub fn all(elements: u32) -> Kept {
    match elements {
        64.. => Kept::MAX,
        _ => (1 << elements) - 1,
    }
}

/// The elements of `kept`, in order.
pub fn members(kept: Kept) -> impl Iterator<Item = u32> {
    (0..64).filter(move |element| kept >> element & 1 == 1)
}

/// The sets as hypotheses, with what was seen.
#[derive(Debug, Clone)]
pub struct Triggers {
    elements: u32,
    ln_prior: Vec<f64>,
    /// For each hypothesis the runs that were armed under it.
    armed: Vec<Counts>,
    total: Counts,
    rates: Rates,
    /// What each element is, where several are the same.
    items: Option<Vec<u8>>,
}

impl Triggers {
    /// The sets of `elements` elements, all different.
    pub fn new(elements: u32, rates: Rates) -> Self {
        assert!(elements <= ELEMENTS_MAX, "{elements} elements have too many sets");
        let sets = 1usize << elements;
        let ln_choose = |n: u32, k: u32| {
            ln_gamma(f64::from(n) + 1.0) - ln_gamma(f64::from(k) + 1.0) - ln_gamma(f64::from(n - k) + 1.0)
        };
        // Every size is as likely as another, and within a size every set.
        let of_size: Vec<f64> =
            (0..=elements).map(|size| -f64::from(elements + 1).ln() - ln_choose(elements, size)).collect();
        Self {
            elements,
            ln_prior: (0..sets).map(|set| of_size[set.count_ones() as usize]).collect(),
            armed: vec![Counts::default(); sets],
            total: Counts::default(),
            rates,
            items: None,
        }
    }

    /// The subsequences of a sequence whose items may repeat: sets that spell the same are one hypothesis, and a run is
    /// armed if the hypothesis is a subsequence of what it keeps.
    pub fn of_items(items: Vec<u8>, rates: Rates) -> Self {
        let mut triggers = Self::new(items.len() as u32, rates);
        let mut distinct = items.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < items.len() {
            for set in 0..triggers.ln_prior.len() {
                if leftmost(&items, set as Kept) != set as Kept {
                    triggers.ln_prior[set] = f64::NEG_INFINITY;
                }
            }
            triggers.items = Some(items);
        }
        triggers
    }

    /// How many elements there are.
    pub fn elements(&self) -> u32 {
        self.elements
    }

    /// Takes note of a run that kept `kept`.
    pub fn observe(&mut self, kept: Kept, seen: Seen) {
        let mut counts = Counts::default();
        seen.count(&mut counts);
        self.load(kept, counts);
    }

    /// Takes note of several runs that kept `kept`.
    pub fn load(&mut self, kept: Kept, counts: Counts) {
        self.total = super::posterior::add(self.total, counts);
        for set in 0..self.armed.len() {
            if self.is_armed(set as Kept, kept) {
                self.armed[set] = super::posterior::add(self.armed[set], counts);
            }
        }
    }

    /// Whether a run that keeps `kept` is armed under the hypothesis `set`.
    pub fn is_armed(&self, set: Kept, kept: Kept) -> bool {
        match &self.items {
            None => set & kept == set,
            Some(items) => is_subsequence(items, set, kept),
        }
    }

    /// How much more likely `counts` are in an armed run than in another (ln of the Bayes factor).
    pub fn ln_armed_against_idle(&self, counts: Counts) -> f64 {
        self.rates.ln_bad_against_good(counts)
    }

    /// The runs that were armed under the hypothesis `set`.
    pub fn armed(&self, set: Kept) -> Counts {
        self.armed[set as usize]
    }

    /// The weight of each set; they sum to 1.
    pub fn weights(&self) -> Vec<f64> {
        let ln_weight =
            |(ln_prior, armed): (&f64, &Counts)| ln_prior + self.rates.ln_evidence(*armed, self.idle(*armed));
        let mut weights: Vec<f64> = self.ln_prior.iter().zip(&self.armed).map(ln_weight).collect();
        normalise(&mut weights);
        weights
    }

    /// The runs that were not armed, where `armed` were.
    fn idle(&self, armed: Counts) -> Counts {
        Counts { faults: self.total.faults - armed.faults, clean: self.total.clean - armed.clean }
    }

    /// The chance of each element to be load-bearing.
    pub fn marginals(&self, weights: &[f64]) -> Vec<f64> {
        let marginal = |element: u32| {
            weights.iter().enumerate().filter(|(set, _)| set >> element & 1 == 1).map(|(_, weight)| weight).sum()
        };
        (0..self.elements).map(marginal).collect()
    }

    /// The bits that are left, on average, after one run that keeps each set.
    ///
    /// For all 2^K runs at once, by sums over subsets: a hypothesis that is part of what is kept adds what it adds to
    /// every run, and the difference that being armed makes.
    pub fn expected_entropy(&self, weights: &[f64]) -> Vec<f64> {
        let surprise = |fault: f64, clean: f64| v_log2_v(fault) + v_log2_v(clean);
        let mut fault_sums = Vec::with_capacity(weights.len());
        let mut surprise_sums = Vec::with_capacity(weights.len());
        let (mut idle_fault, mut idle_surprise) = (0.0, 0.0);
        for (weight, armed) in weights.iter().zip(&self.armed) {
            let (bad, good) = self.rates.means(*armed, self.idle(*armed));
            let idle = surprise(weight * good, weight * (1.0 - good));
            idle_fault += weight * good;
            idle_surprise += idle;
            fault_sums.push(weight * (bad - good));
            surprise_sums.push(surprise(weight * bad, weight * (1.0 - bad)) - idle);
        }
        sum_over_subsets(&mut fault_sums);
        sum_over_subsets(&mut surprise_sums);
        let left = fault_sums.iter().zip(&surprise_sums).map(|(fault, surprise)| {
            let fault = (idle_fault + fault).clamp(0.0, 1.0);
            v_log2_v(fault) + v_log2_v(1.0 - fault) - (idle_surprise + surprise)
        });
        left.collect()
    }

    /// What is not known yet, in bits.
    pub fn entropy(weights: &[f64]) -> f64 {
        -weights.iter().copied().map(v_log2_v).sum::<f64>()
    }
}

/// Replaces each value by the sum over all subsets of its index: the zeta transform.
fn sum_over_subsets(values: &mut [f64]) {
    let mut half = 1;
    while half < values.len() {
        for block in values.chunks_exact_mut(2 * half) {
            let (without, with) = block.split_at_mut(half);
            with.iter_mut().zip(without).for_each(|(with, without)| *with += *without);
        }
        half *= 2;
    }
}

/// The set that spells what `set` does with the earliest items.
pub fn leftmost(items: &[u8], set: Kept) -> Kept {
    let mut at = 0;
    let mut found = 0;
    for element in members(set) {
        let wanted = items[element as usize];
        while items[at] != wanted {
            at += 1;
        }
        found |= 1 << at;
        at += 1;
    }
    found
}

/// Whether what `inner` spells is a subsequence of what `outer` spells.
fn is_subsequence(items: &[u8], inner: Kept, outer: Kept) -> bool {
    let mut outer = members(outer);
    members(inner).all(|element| outer.any(|other| items[other as usize] == items[element as usize]))
}

#[cfg(test)]
mod tests {
    use super::super::posterior::FalseFaults;
    use super::*;
    use crate::decide::order::Draws;

    fn rates() -> Rates {
        Rates::new(FalseFaults::Possible, Counts::default())
    }

    /// The entropy that is left after one run that keeps `kept`, by enumerating both results.
    fn slowly(triggers: &Triggers, kept: Kept) -> f64 {
        let weights = triggers.weights();
        let chance = |set: usize, weight: f64| {
            let armed = triggers.armed[set];
            let (bad, good) = triggers.rates.means(armed, triggers.idle(armed));
            weight * if set as Kept & kept == set as Kept { bad } else { good }
        };
        let fault: f64 = weights.iter().enumerate().map(|(set, &weight)| chance(set, weight)).sum();
        [(Seen::Fault, fault), (Seen::Clean, 1.0 - fault)]
            .into_iter()
            .map(|(seen, chance)| {
                let mut after = triggers.clone();
                after.observe(kept, seen);
                chance * Triggers::entropy(&after.weights())
            })
            .sum()
    }

    #[test]
    fn the_fast_entropy_is_the_slow_one() {
        let mut draws = Draws::new(1936, 0);
        for _ in 0..20 {
            let mut triggers = Triggers::new(5, rates());
            triggers.load(31, Counts { faults: 3, clean: 1 });
            for _ in 0..draws.below(12) {
                triggers.observe(draws.below(32), Seen::fault_if(draws.happens(0.4)));
            }
            let weights = triggers.weights();
            assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let fast = triggers.expected_entropy(&weights);
            for kept in 0..32 {
                let slow = slowly(&triggers, kept);
                assert!((fast[kept as usize] - slow).abs() < 1e-10, "{kept}: {} {slow}", fast[kept as usize]);
            }
        }
    }

    #[test]
    fn sets_that_spell_the_same_are_one_hypothesis() {
        // ABAB: the run that keeps "BA" is armed for the hypothesis "A", whose earliest spelling is the first item.
        let items = vec![0, 1, 0, 1];
        assert_eq!(leftmost(&items, 0b1100), 0b0011);
        assert!(is_subsequence(&items, 0b0001, 0b0110));
        assert!(!is_subsequence(&items, 0b0101, 0b0110));
        let mut triggers = Triggers::of_items(items, rates());
        for _ in 0..4 {
            triggers.observe(0b0110, Seen::Fault);
            triggers.observe(0b0010, Seen::Clean);
        }
        let weights = triggers.weights();
        assert_eq!(weights[0b0100], 0.0, "spelt by the first item");
        assert!(weights[0b0001] > weights[0b0010]);
    }
}
