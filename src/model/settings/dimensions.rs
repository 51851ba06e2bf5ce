//! Sizes of 4-bit layers and of their inputs. Each is checked where it is made, so that no size computed from them
//! overflows and no index computed from them is out of range.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A dimension out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DimensionError {
    /// A layer without weights, or with more than any board could hold.
    #[error("a layer of {in_features} x {out_features}: each side must be 1 to {max}", max = Shape::FEATURES_MAX)]
    Shape {
        /// Columns of the weight.
        in_features: u32,
        /// Rows of the weight.
        out_features: u32,
    },
    /// No rows, or too many.
    #[error("a batch of {0}: must be 1 to {max}", max = Batch::MAX)]
    Batch(u32),
    /// A block size that no kernel exists for.
    #[error("a blocksize of {0}: must be one of {list:?}", list = Blocksize::ALLOWED)]
    Blocksize(u32),
}

/// The size of a linear layer, whose weight is (out, in).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    in_features: u32,
    out_features: u32,
}

impl Shape {
    /// The longest side. It keeps four bytes a weight far from the end of 64 bits.
    pub const FEATURES_MAX: u32 = 1 << 24;
    /// The warm-up of the report of bitsandbytes issue 1936.
    pub const WARM_UP: Self = Self { in_features: 256, out_features: 256 };

    /// A layer from `in_features` to `out_features`.
    ///
    /// # Errors
    /// When a side is 0 or longer than [`Self::FEATURES_MAX`].
    pub fn new(in_features: u32, out_features: u32) -> Result<Self, DimensionError> {
        let fits = |side| (1..=Self::FEATURES_MAX).contains(&side);
        if fits(in_features) && fits(out_features) {
            Ok(Self { in_features, out_features })
        } else {
            Err(DimensionError::Shape { in_features, out_features })
        }
    }

    /// Columns of the weight, the length of an input row.
    pub fn in_features(self) -> u64 {
        u64::from(self.in_features)
    }

    /// Rows of the weight, the length of a result row.
    pub fn out_features(self) -> u64 {
        u64::from(self.out_features)
    }

    /// All weights.
    pub fn weights(self) -> u64 {
        self.in_features() * self.out_features()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}", self.in_features, self.out_features))
    }
}

impl From<Shape> for (u32, u32) {
    fn from(shape: Shape) -> Self {
        (shape.in_features, shape.out_features)
    }
}

/// Rows of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Batch(u32);

impl Batch {
    /// A single row, for which there is a kernel of its own.
    pub const ONE: Self = Self(1);
    /// The most rows: beyond it the activations are the workload.
    pub const MAX: u32 = 4096;

    /// A batch of `rows`.
    ///
    /// # Errors
    /// When `rows` is 0 or over [`Self::MAX`].
    pub fn new(rows: u32) -> Result<Self, DimensionError> {
        if (1..=Self::MAX).contains(&rows) { Ok(Self(rows)) } else { Err(DimensionError::Batch(rows)) }
    }

    /// The rows.
    pub fn rows(self) -> u64 {
        u64::from(self.0)
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::ONE
    }
}

impl TryFrom<u32> for Batch {
    type Error = DimensionError;
    fn try_from(rows: u32) -> Result<Self, DimensionError> {
        Self::new(rows)
    }
}

impl From<Batch> for u32 {
    fn from(batch: Batch) -> u32 {
        batch.0
    }
}

/// Weights that share one block maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Blocksize(u32);

impl Blocksize {
    /// The library's default.
    pub const DEFAULT: Self = Self(64);
    /// The sizes that kernels exist for; 32 since bitsandbytes 0.49.2, which packed 1024 and above wrongly in 0.46.1.
    pub const ALLOWED: [u32; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

    /// Blocks of `weights`.
    ///
    /// # Errors
    /// When there is no kernel for that size.
    pub fn new(weights: u32) -> Result<Self, DimensionError> {
        if Self::ALLOWED.contains(&weights) { Ok(Self(weights)) } else { Err(DimensionError::Blocksize(weights)) }
    }

    /// Weights in a block.
    pub fn weights(self) -> u64 {
        u64::from(self.0)
    }

    /// Threads that quantise a block: two weights each up to 512, four beyond.
    pub fn quantize_threads(self) -> u32 {
        if self.0 <= 512 { self.0 / 2 } else { self.0 / 4 }
    }
}

impl Default for Blocksize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<u32> for Blocksize {
    type Error = DimensionError;
    fn try_from(weights: u32) -> Result<Self, DimensionError> {
        Self::new(weights)
    }
}

impl From<Blocksize> for u32 {
    fn from(blocksize: Blocksize) -> u32 {
        blocksize.0
    }
}

impl fmt::Display for Blocksize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_out_of_range_are_refused_where_they_are_made() {
        assert!(Shape::new(0, 8).is_err() && Shape::new(8, Shape::FEATURES_MAX + 1).is_err());
        assert!(Batch::new(0).is_err() && Batch::new(Batch::MAX + 1).is_err());
        let built: Vec<u32> = (0..10_000).filter(|&n| Blocksize::new(n).is_ok()).collect();
        assert_eq!(built, Blocksize::ALLOWED);
    }

    #[test]
    fn four_bytes_a_weight_of_the_largest_shape_fit_an_address_space() {
        let largest = Shape::new(Shape::FEATURES_MAX, Shape::FEATURES_MAX).unwrap();
        assert_eq!(largest.weights() * 4, 1 << 50);
        assert_eq!(Shape::new(3584, 152_064).unwrap().weights(), 544_997_376);
    }
}
