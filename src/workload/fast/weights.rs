//! Weights from the counter generator, many counters side by side: the bits of the twin `philox_init`.
//!
//! The ten rounds of one counter depend on each other; those of different counters do not, and they vectorise.

use crate::workload::reference::philox_init::{MULTIPLIERS, ROUNDS, Stream, WEYL};

/// Counters that advance together: enough for the compiler to vectorise over them, few enough for its registers.
const COUNTERS: usize = 16;
/// Elements that one call makes.
pub(crate) const PIECE: usize = 256;

/// Elements `piece * PIECE` to `(piece + 1) * PIECE - 1` of a weight, row-major.
pub(crate) fn weight_piece(stream: Stream, piece: u64, scale: f32) -> [f32; PIECE] {
    let mut weights = [0f32; PIECE];
    let mut first = piece * (PIECE as u64 / 4);
    for group in weights.chunks_exact_mut(4 * COUNTERS) {
        let words = philox_words(stream, first);
        for (c, quad) in group.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            for (weight, words) in quad.iter_mut().zip(&words) {
                // (w >> 7) | 1 is 2 (w >> 8) + 1.
                *weight = ((words[c] as u32 >> 7 | 1) as i32 - 16_777_216) as f32 * scale;
            }
        }
        first += COUNTERS as u64;
    }
    weights
}

/// The four words of each of the counters from `first` on, word as the outer index; each is the low half of its place.
///
/// Places of 64 bits make every multiplication one instruction on pairs of lanes, on x86-64 (`pmuludq`) as on arm64
/// (`umull`): both multiply low halves into a whole place. What a round leaves in the high half, the next one ignores.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "four arrays are walked over at once")]
fn philox_words(stream: Stream, first: u64) -> [[u64; COUNTERS]; 4] {
    const LOW: u64 = u32::MAX as u64;
    let counters: [[u32; 4]; COUNTERS] = std::array::from_fn(|c| stream.counter(first + c as u64));
    let mut w: [[u64; COUNTERS]; 4] = std::array::from_fn(|word| counters.map(|counter| u64::from(counter[word])));
    let mut key = stream.key();
    for _ in 0..ROUNDS {
        for c in 0..COUNTERS {
            let even = u64::from(MULTIPLIERS[0]) * (w[0][c] & LOW);
            let odd = u64::from(MULTIPLIERS[1]) * (w[2][c] & LOW);
            w[0][c] = odd >> 32 ^ w[1][c] ^ u64::from(key[0]);
            w[1][c] = odd;
            w[2][c] = even >> 32 ^ w[3][c] ^ u64::from(key[1]);
            w[3][c] = even;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    w
}
