//! Weights from the counter generator, many counters side by side: the bits of the twin `philox_init`.
//!
//! The ten rounds of one counter depend on each other; those of different counters do not, and they vectorise.

use crate::workload::reference::philox_init::{MULTIPLIERS, ROUNDS, Stream, WEYL};

/// Counters that advance together; with a handful the compiler unrolls their loop instead of vectorising it.
const COUNTERS: usize = 64;
/// Elements that one call makes.
pub(crate) const PIECE: usize = 4 * COUNTERS;

/// Elements `piece * PIECE` to `(piece + 1) * PIECE - 1` of a weight, row-major.
pub(crate) fn weight_piece(stream: Stream, piece: u64, scale: f32) -> [f32; PIECE] {
    let words = philox_words(stream, piece * COUNTERS as u64);
    let mut weights = [0f32; PIECE];
    for (c, quad) in weights.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        for (weight, words) in quad.iter_mut().zip(&words) {
            *weight = ((2 * (words[c] >> 8) + 1) as i32 - 16_777_216) as f32 * scale;
        }
    }
    weights
}

/// The four words of each of the counters from `first` on, word as the outer index.
fn philox_words(stream: Stream, first: u64) -> [[u32; COUNTERS]; 4] {
    let counters: [[u32; 4]; COUNTERS] = std::array::from_fn(|c| stream.counter(first + c as u64));
    let mut w: [[u32; COUNTERS]; 4] = std::array::from_fn(|word| counters.map(|counter| counter[word]));
    let mut key = stream.key();
    for _ in 0..ROUNDS {
        let mut next = [[0; COUNTERS]; 4];
        for c in 0..COUNTERS {
            let even = u64::from(MULTIPLIERS[0]) * u64::from(w[0][c]);
            let odd = u64::from(MULTIPLIERS[1]) * u64::from(w[2][c]);
            next[0][c] = (odd >> 32) as u32 ^ w[1][c] ^ key[0];
            next[1][c] = odd as u32;
            next[2][c] = (even >> 32) as u32 ^ w[3][c] ^ key[1];
            next[3][c] = even as u32;
        }
        w = next;
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    w
}
