//! Whether other orders of a failing sequence fault too: each order is a cell of its own, decided by itself.

use serde::{Deserialize, Serialize};

use super::{Purpose, Search, Seen, Step};
use crate::decide::stats::{Confidence, Counts, clean_trials_for};

/// The most items whose orders are all tried: 23 other orders.
pub const ITEMS_MAX: usize = 4;

/// The chance of a wrong "clean" among all orders together.
const ERROR: f64 = 0.05;

/// Every other order of `items`, each once, in lexical order; none for more than [`ITEMS_MAX`].
pub fn other_orders(items: &[u8]) -> Vec<Vec<u8>> {
    if items.len() > ITEMS_MAX {
        return Vec::new();
    }
    let mut orders = vec![Vec::new()];
    for _ in items {
        let longer = orders.iter().flat_map(|order: &Vec<u8>| {
            let left = |item: &u8| {
                let used = order.iter().filter(|other| *other == item).count();
                used < items.iter().filter(|other| *other == item).count()
            };
            items.iter().filter(|item| left(item)).map(|item| [order.as_slice(), &[*item]].concat()).collect::<Vec<_>>()
        });
        orders = longer.collect();
        orders.sort();
        orders.dedup();
    }
    orders.retain(|order| order != items);
    orders
}

/// What the runs of one order say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decided {
    /// It faults too: one matching fault shows that.
    Faults,
    /// Its rate is below what the failing order's is at least.
    Below,
}

/// The orders, one after the other.
#[derive(Debug, Clone)]
pub struct Orders {
    counts: Vec<Counts>,
    clean: u64,
}

impl Orders {
    /// So many orders, whose rate is compared with `rate`, the least that the failing order has (0 to 1, excluded).
    pub fn new(orders: usize, rate: f64) -> Self {
        let confidence = Confidence::new(1.0 - ERROR / orders.max(1) as f64).unwrap_or(Confidence::P95);
        Self { counts: vec![Counts::default(); orders], clean: clean_trials_for(rate, confidence) }
    }

    /// How many clean runs say that an order is below the rate.
    pub fn clean_needed(&self) -> u64 {
        self.clean
    }

    /// The runs of each order.
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }

    /// What `counts` of an order say, if they say enough.
    pub fn decided(&self, counts: Counts) -> Option<Decided> {
        match counts.faults {
            0 if counts.clean >= self.clean => Some(Decided::Below),
            0 => None,
            1.. => Some(Decided::Faults),
        }
    }
}

impl Search for Orders {
    type Place = usize;
    type Answer = Vec<Decided>;

    fn observe(&mut self, &at: &usize, seen: Seen) {
        seen.count(&mut self.counts[at]);
    }

    fn next(&self) -> Step<usize, Vec<Decided>> {
        match self.counts.iter().position(|counts| self.decided(*counts).is_none()) {
            Some(at) => Step::Test { at, purpose: Purpose::Confirm },
            None => Step::Done(self.counts.iter().filter_map(|counts| self.decided(*counts)).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_order_comes_once() {
        assert_eq!(other_orders(b"ABC").len(), 5);
        assert_eq!(other_orders(b"AAB"), [b"ABA", b"BAA"]);
        assert_eq!(other_orders(b"ABCD").len(), 23);
        assert!(other_orders(b"ABCDE").is_empty());
    }

    #[test]
    fn an_order_needs_as_many_clean_runs_as_the_rate_asks() {
        assert_eq!(Orders::new(5, 0.78).clean_needed(), 4);
        assert_eq!(Orders::new(5, 0.45).clean_needed(), 8);
        let mut orders = Orders::new(2, 0.78);
        while let Step::Test { at, .. } = orders.next() {
            orders.observe(&at, Seen::fault_if(at == 1));
        }
        assert_eq!(orders.next(), Step::Done(vec![Decided::Below, Decided::Faults]));
    }
}
