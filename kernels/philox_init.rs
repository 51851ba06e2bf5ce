//! Weights and activations from a counter: every element is a pure integer function of (seed, stream, index).
//!
//! ```text
//! words  = Philox4x32-10( counter = [i / 4 low, i / 4 high, stream, purpose], key = [seed low, seed high] )
//! k      = 2 * (words[i % 4] >> 8) + 1 - 2^24                  odd, |k| < 2^24: exact in f32, never 0
//! weight = f32(k) * f32(2^-24 / sqrt(in_features))             uniform in (-1/sqrt(in), +1/sqrt(in))
//! normal = f32(sum of the 8 half words of counter i - 4 * 65535) * f32(sqrt(3/2) / 65536)
//! ```
//! One rounding per element, no transcendental function and no order: any thread on any device gives the
//! same bits. Philox4x32-10 is the generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".

/// Multipliers of the two halves of a Philox round.
pub const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Key increments: the golden ratio and sqrt(3) - 1 as 32-bit fractions.
pub const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Rounds of Philox4x32-10.
pub const ROUNDS: u32 = 10;

/// What the numbers are for; keeps streams of one seed apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The weight of a layer.
    Weight,
    /// The input of a forward call.
    Activation,
    /// The choice of rows that the oracle checks.
    Sample,
}

impl Purpose {
    const fn word(self) -> u32 {
        match self {
            Self::Weight => 0,
            Self::Activation => 1,
            Self::Sample => 2,
        }
    }
}

/// A sequence of random words: which seed, which layer or call, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The seed of the trial.
    pub seed: u64,
    /// The position of the layer in its sequence.
    pub number: u32,
    /// What the numbers are for.
    pub purpose: Purpose,
}

impl Stream {
    /// The counter with this index.
    pub fn counter(self, index: u64) -> [u32; 4] {
        [index as u32, (index >> 32) as u32, self.number, self.purpose.word()]
    }

    /// The key that all counters of the stream share.
    pub fn key(self) -> [u32; 2] {
        [self.seed as u32, (self.seed >> 32) as u32]
    }

    /// The four random words of the counter with this index.
    pub fn words(self, index: u64) -> [u32; 4] {
        philox4x32_10(self.counter(index), self.key())
    }
}

/// Philox4x32-10: four random words of a counter under a key.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let even = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let odd = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (odd >> 32) as u32 ^ counter[1] ^ key[0],
            odd as u32,
            (even >> 32) as u32 ^ counter[3] ^ key[1],
            even as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The factor of [`weight_quad`] for a layer with `in_features` inputs.
pub fn weight_scale(in_features: usize) -> f32 {
    ((1.0 / 16_777_216.0) / (in_features as f64).sqrt()) as f32
}

/// Elements `4 * quad` to `4 * quad + 3` of a weight, row-major; the caller drops what lies past the end.
pub fn weight_quad(stream: Stream, quad: u64, scale: f32) -> [f32; 4] {
    stream.words(quad).map(|word| ((2 * (word >> 8) + 1) as i32 - 16_777_216) as f32 * scale)
}

/// Element `index` of an activation: nearly normal, mean 0, deviation 1, never beyond 4.9.
///
/// The sum of eight uniform values has a variance of 8/12 of their range squared.
pub fn activation(stream: Stream, index: u64) -> f32 {
    let sum: u32 = stream.words(index).iter().map(|word| (word & 0xffff) + (word >> 16)).sum();
    (sum as i32 - 4 * 65_535) as f32 * (1.5f64.sqrt() / 65_536.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_known_answers() {
        // The kat_vectors of Random123, which come with the paper.
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    fn moments(values: impl Iterator<Item = f32>) -> (f64, f64) {
        let values: Vec<f64> = values.map(f64::from).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn weights_are_uniform_within_their_bound_and_never_zero() {
        let stream = Stream { seed: 1936, number: 0, purpose: Purpose::Weight };
        let weights: Vec<f32> = (0..25_000).flat_map(|quad| weight_quad(stream, quad, weight_scale(4096))).collect();
        assert!(weights.iter().all(|w| w.abs() <= 1.0 / 64.0 && *w != 0.0));
        let (mean, variance) = moments(weights.iter().map(|w| w * 64.0));
        // Standard errors over 100,000 values: 0.0018 and 0.00094.
        assert!(mean.abs() < 0.01 && (variance - 1.0 / 3.0).abs() < 0.005, "{mean} {variance}");
    }

    #[test]
    fn activations_have_mean_zero_and_deviation_one() {
        let stream = Stream { seed: 1936, number: 0, purpose: Purpose::Activation };
        let (mean, variance) = moments((0..50_000).map(|i| activation(stream, i)));
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn seeds_streams_and_purposes_do_not_repeat_each_other() {
        let base = Stream { seed: 1, number: 0, purpose: Purpose::Weight };
        let others = [
            Stream { seed: 1 << 32, ..base },
            Stream { number: 1, ..base },
            Stream { purpose: Purpose::Activation, ..base },
        ];
        for other in others {
            assert_ne!(base.words(0), other.words(0), "{other:?}");
        }
        assert_ne!(base.words(0), base.words(1 << 32));
    }
}
