//! Chance, made of a seed: the order inside a block, a Fisher-Yates shuffle by ChaCha8 keyed by the seed and the block;
//! and the draws of a simulated board.
//!
//! Owns the only use of `rand_chacha`. The stream of an order is stored nowhere, so its definition must never change: a
//! resumed run relies on drawing the same order again, which a test pins.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Shuffles `order` for block `block` of a plan seeded with `seed`.
///
/// The key is the seed (8 bytes, little-endian), the block (4 bytes) and zeros.
pub fn shuffle(order: &mut [u32], seed: u64, block: u32) {
    let mut random = ChaCha8Rng::from_seed(key(seed, block));
    for last in (1..order.len()).rev() {
        let chosen = below(&mut random, last as u64 + 1);
        order.swap(last, usize::try_from(chosen).expect("below the length of a slice"));
    }
}

fn key(seed: u64, stream: u32) -> [u8; 32] {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..12].copy_from_slice(&stream.to_le_bytes());
    key
}

/// Draws of one simulated campaign: the same for the same seed and number, whatever else is drawn beside it.
#[derive(Debug, Clone)]
pub struct Draws(ChaCha8Rng);

impl Draws {
    /// The draws number `stream` of `seed`.
    pub fn new(seed: u64, stream: u32) -> Self {
        let mut key = key(seed, stream);
        // Apart from the streams of orders, whose key ends in zeros.
        key[31] = 1;
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A number from 0 (included) to 1 (excluded), uniform to 53 bits.
    pub fn uniform(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * UNIT
    }

    /// Whether something of chance `probability` happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A uniform number below `bound` (at least 1).
    pub fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.0, bound)
    }
}

/// Brings together the items with equal keys, in the order in which the keys come first; items without a key stay where
/// they are. What is expensive to change between two items is then changed once for each key.
///
/// Within a shuffled block the order of the keys and of the items of one key stays random.
pub fn gather<K: PartialEq>(order: &mut [u32], key: impl Fn(u32) -> Option<K>) {
    let mut keys: Vec<K> = Vec::new();
    let mut rank = |key: K| match keys.iter().position(|known| *known == key) {
        Some(rank) => rank,
        None => {
            keys.push(key);
            keys.len() - 1
        }
    };
    let keyed: Vec<(usize, usize)> =
        order.iter().enumerate().filter_map(|(place, item)| Some((place, rank(key(*item)?)))).collect();
    let mut items: Vec<(usize, u32)> = keyed.iter().map(|&(place, rank)| (rank, order[place])).collect();
    items.sort_by_key(|(rank, _)| *rank);
    for ((place, _), (_, item)) in keyed.into_iter().zip(items) {
        order[place] = item;
    }
}

/// Moves every item behind the one that it needs, if that is in `order` too; all others keep their order.
///
/// Needs are chains, never circles: an item is named only after the one it needs.
pub fn behind_needs(order: &mut Vec<u32>, needs: impl Fn(u32) -> Option<u32>) {
    if order.iter().all(|&item| needs(item).is_none()) {
        return;
    }
    let (mut placed, mut waiting): (Vec<u32>, Vec<u32>) = (Vec::with_capacity(order.len()), Vec::new());
    for &item in order.iter() {
        let is_free = needs(item).is_none_or(|needed| placed.contains(&needed) || !order.contains(&needed));
        if !is_free {
            waiting.push(item);
            continue;
        }
        placed.push(item);
        while let Some(at) = waiting.iter().position(|&item| needs(item).is_some_and(|needed| placed.contains(&needed)))
        {
            placed.push(waiting.remove(at));
        }
    }
    placed.append(&mut waiting);
    *order = placed;
}

/// A uniform number below `bound` (at least 1), by rejection: a remainder alone would favour small numbers.
fn below(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    let rest = (u64::MAX % bound + 1) % bound;
    loop {
        let draw = random.next_u64();
        if draw <= u64::MAX - rest {
            return draw % bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_another_comes_behind_it_and_nobody_else_moves() {
        let needs = |item: u32| match item {
            5 => Some(2),
            6 => Some(5),
            7 => Some(99),
            _ => None,
        };
        let mut order = vec![6, 7, 1, 5, 3, 2, 4];
        behind_needs(&mut order, needs);
        assert_eq!(order, [7, 1, 3, 2, 5, 6, 4]);
        let mut free = vec![3, 1, 2];
        behind_needs(&mut free, needs);
        assert_eq!(free, [3, 1, 2]);
    }

    #[test]
    fn the_order_of_a_block_never_changes() {
        let mut order: Vec<u32> = (0..10).collect();
        shuffle(&mut order, 1936, 0);
        assert_eq!(order, [3, 8, 4, 6, 9, 7, 1, 5, 2, 0]);
    }

    #[test]
    fn equal_keys_are_brought_together_and_the_rest_stays() {
        let gathered = |order: &[u32]| {
            let mut order = order.to_vec();
            // Tens are the key; items below ten have none.
            gather(&mut order, |item| (item >= 10).then_some(item / 10));
            order
        };
        assert_eq!(gathered(&[21, 1, 11, 22, 2, 12]), [21, 1, 22, 11, 2, 12]);
        assert_eq!(gathered(&[3, 1, 2]), [3, 1, 2]);
        assert_eq!(gathered(&[]), [0u32; 0]);
    }

    #[test]
    fn every_place_is_equally_likely() {
        // 6 cells over 6000 blocks: 1000 times at each place, give or take 5 standard deviations (29 each).
        let mut places = [[0u32; 6]; 6];
        for block in 0..6000 {
            let mut order: Vec<u32> = (0..6).collect();
            shuffle(&mut order, 7, block);
            for (place, cell) in order.iter().enumerate() {
                places[*cell as usize][place] += 1;
            }
        }
        assert!(places.iter().flatten().all(|count| (855..=1145).contains(count)), "{places:?}");
    }
}
