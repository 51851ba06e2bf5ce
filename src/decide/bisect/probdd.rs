//! Which elements are load-bearing, where there are too many for [`super::trigger`]: probabilistic delta debugging with
//! an oracle that fails only sometimes.
//!
//! Each element has its own chance θ to be needed. A prefix of the least likely ones is left out, as large as gains most.
//! A fault drops it for good; a clean run makes its elements likelier, the less so the lower the fault rate is:
//! θ ← θ / (1 - p̂ Π(1 - θ)). With p̂ = 1 that is the update of ProbDD (Wang et al., "Probabilistic Delta Debugging", 2021).

use super::Seen;
use super::trigger::{Kept, all, members};
use crate::decide::stats::Counts;

/// The chance of an element to be needed before anything was seen, at most; 1/√K for many elements.
const NEEDED_AT_FIRST: f64 = 0.3;

/// The chance of a wrong element among those that are kept, all together.
const ERROR: f64 = 0.05;

/// The elements with their chances.
#[derive(Debug, Clone)]
pub struct ProbDd {
    needed: Vec<f64>,
    /// Elements that a fault did without.
    dropped: Kept,
    faults: f64,
    /// Clean runs, each as far as it was likely to have been armed.
    armed_clean: f64,
}

impl ProbDd {
    /// Before anything was seen of `elements` elements.
    pub fn new(elements: u32) -> Self {
        let first = NEEDED_AT_FIRST.min(1.0 / f64::from(elements.max(1)).sqrt());
        Self { needed: vec![first; elements as usize], dropped: 0, faults: 0.0, armed_clean: 0.0 }
    }

    /// The chance of each element to be load-bearing.
    pub fn marginals(&self) -> Vec<f64> {
        let chance = |(element, needed): (usize, &f64)| if self.dropped >> element & 1 == 1 { 0.0 } else { *needed };
        self.needed.iter().enumerate().map(chance).collect()
    }

    /// The fault rate of an armed run: the mean of Beta(1, 1) after what was seen.
    fn rate(&self) -> f64 {
        (1.0 + self.faults) / (2.0 + self.faults + self.armed_clean)
    }

    /// The chance that none of `left_out` is needed.
    fn chance_without(&self, left_out: Kept) -> f64 {
        members(left_out & !self.dropped).map(|element| 1.0 - self.needed[element as usize]).product()
    }

    /// Takes note of a run that kept `kept`.
    pub fn observe(&mut self, kept: Kept, seen: Seen) {
        let left_out = all(self.needed.len() as u32) & !kept;
        match seen {
            Seen::Fault => {
                self.faults += 1.0;
                self.dropped |= left_out;
            }
            Seen::Clean => {
                let (armed, rate) = (self.chance_without(left_out), self.rate());
                let clean = 1.0 - rate * armed;
                for element in members(left_out & !self.dropped) {
                    let needed = &mut self.needed[element as usize];
                    *needed = (*needed / clean).min(1.0);
                }
                self.armed_clean += armed * (1.0 - rate) / clean;
            }
        }
    }

    /// Takes note of several runs of one kind, faults first.
    pub fn load(&mut self, kept: Kept, counts: Counts) {
        (0..counts.faults).for_each(|_| self.observe(kept, Seen::Fault));
        (0..counts.clean).for_each(|_| self.observe(kept, Seen::Clean));
    }

    fn is_settled(&self, element: u32) -> bool {
        self.needed[element as usize] >= 1.0 - ERROR / self.needed.len() as f64
    }

    /// The set of all elements that were not done without.
    pub fn kept(&self) -> Kept {
        all(self.needed.len() as u32) & !self.dropped
    }

    /// The next run: what it keeps. None if every element is decided, or no run that `is_legal` decides one.
    pub fn choose(&self, is_legal: impl Fn(Kept) -> bool) -> Option<Kept> {
        let mut open: Vec<u32> = members(self.kept()).filter(|&element| !self.is_settled(element)).collect();
        open.sort_by(|&a, &b| self.needed[a as usize].total_cmp(&self.needed[b as usize]).then(a.cmp(&b)));
        let mut left_out = 0;
        let prefixes: Vec<Kept> = open
            .iter()
            .map(|element| {
                left_out |= 1 << element;
                left_out
            })
            .collect();
        let singles = open.iter().map(|element| 1 << element);
        let best = |sets: &mut dyn Iterator<Item = Kept>| {
            let legal = sets.filter(|left_out| is_legal(self.kept() & !left_out));
            let gain = |left_out: &Kept| f64::from(left_out.count_ones()) * self.chance_without(*left_out);
            // Of equal gains the first, which is the smallest.
            legal.fold(None, |best: Option<(f64, Kept)>, set| match (best, gain(&set)) {
                (Some((most, _)), gain) if gain <= most => best,
                (_, gain) => Some((gain, set)),
            })
        };
        let chosen = best(&mut prefixes.into_iter()).or_else(|| best(&mut singles.into_iter()));
        chosen.map(|(_, left_out)| self.kept() & !left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_test_that_always_fails_it_finds_the_set_in_a_few_runs() {
        let trigger: Kept = 1 << 3 | 1 << 17;
        let mut search = ProbDd::new(20);
        search.load(all(20), Counts { faults: 9, clean: 0 });
        let mut runs = 0;
        while let Some(kept) = search.choose(|_| true) {
            search.observe(kept, Seen::fault_if(trigger & kept == trigger));
            runs += 1;
            assert!(runs < 100, "it ends");
        }
        assert_eq!(search.kept(), trigger);
        assert!(runs < 30, "{runs}");
    }

    #[test]
    fn an_element_that_may_not_be_left_out_is_kept() {
        let mut search = ProbDd::new(20);
        search.load(all(20), Counts { faults: 9, clean: 0 });
        while let Some(kept) = search.choose(|kept| kept & 2 != 0) {
            assert!(kept & 2 != 0);
            search.observe(kept, Seen::Fault);
        }
        assert_eq!(search.kept(), 2);
    }
}
