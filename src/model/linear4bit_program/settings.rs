//! The values that a program's settings can have. Each is checked where it is made, so that no
//! size computed from them overflows.

use serde::{Deserialize, Serialize};

/// A setting out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A layer without weights, or with more than any board could hold.
    #[error("a layer of {in_features} x {out_features}: each side must be 1 to {max}", max = Shape::MAX_FEATURES)]
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
    pub const MAX_FEATURES: u32 = 1 << 24;
    /// The warm-up of the seed report.
    pub const WARM_UP: Self = Self { in_features: 256, out_features: 256 };

    /// A layer from `in_features` to `out_features`.
    ///
    /// # Errors
    /// When a side is 0 or longer than [`Self::MAX_FEATURES`].
    pub fn new(in_features: u32, out_features: u32) -> Result<Self, SettingError> {
        let fits = |side| (1..=Self::MAX_FEATURES).contains(&side);
        if fits(in_features) && fits(out_features) {
            Ok(Self { in_features, out_features })
        } else {
            Err(SettingError::Shape { in_features, out_features })
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

/// Rows of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Batch(u32);

impl Batch {
    /// A single row, for which there is a kernel of its own.
    pub const ONE: Self = Self(1);
    /// The most rows; a named limit, not one of the library.
    pub const MAX: u32 = 1 << 16;

    /// A batch of `rows`.
    ///
    /// # Errors
    /// When `rows` is 0 or over [`Self::MAX`].
    pub fn new(rows: u32) -> Result<Self, SettingError> {
        if (1..=Self::MAX).contains(&rows) { Ok(Self(rows)) } else { Err(SettingError::Batch(rows)) }
    }

    /// The rows.
    pub fn rows(self) -> u64 {
        u64::from(self.0)
    }
}

/// Weights that share one block maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Blocksize(u32);

impl Blocksize {
    /// The library's default.
    pub const DEFAULT: Self = Self(64);
    /// The sizes that kernels exist for; 32 since bitsandbytes 0.49.2.
    pub const ALLOWED: [u32; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

    /// Blocks of `weights`.
    ///
    /// # Errors
    /// When there is no kernel for that size.
    pub fn new(weights: u32) -> Result<Self, SettingError> {
        if Self::ALLOWED.contains(&weights) { Ok(Self(weights)) } else { Err(SettingError::Blocksize(weights)) }
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

/// The 4-bit code book of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quant {
    /// Quantiles of the normal distribution.
    Nf4,
    /// Sign, exponent and mantissa.
    Fp4,
}

/// The type that the packed weights are kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageDtype {
    /// Bytes, the library's default.
    Uint8,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    Fp16,
    /// IEEE single.
    Fp32,
}

impl StorageDtype {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Uint8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
        }
    }
}

/// A floating-point type to compute in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FloatDtype {
    /// bfloat16.
    Bf16,
    /// IEEE half.
    Fp16,
    /// IEEE single.
    Fp32,
}

impl FloatDtype {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
        }
    }
}

/// At which layers something is done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Occasion {
    /// At none.
    Never,
    /// At each.
    Each,
    /// At every layer with one of these labels.
    After(Vec<String>),
}

impl Occasion {
    /// Whether it names the layer; the warm-up has no label and only `Each` names it.
    pub(super) fn names(&self, label: Option<&str>) -> bool {
        match self {
            Self::Never => false,
            Self::Each => true,
            Self::After(labels) => label.is_some_and(|label| labels.iter().any(|named| named == label)),
        }
    }
}

/// The device, as far as it changes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceModel {
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads that one of them holds at most.
    pub threads_per_multiprocessor: u32,
    /// The workspace that PyTorch gives cuBLAS on this device, in bytes.
    pub blas_workspace_bytes: u64,
}

impl DeviceModel {
    /// Jetson Orin Nano, sm_87: 1024 cores are 8 multiprocessors; workspace `:4096:2:16:8`.
    pub const ORIN: Self =
        Self { multiprocessors: 8, threads_per_multiprocessor: 1536, blas_workspace_bytes: (2 * 4096 + 8 * 16) << 10 };
    /// H200, sm_90, whose default workspace is 32 MiB.
    pub const H200: Self =
        Self { multiprocessors: 132, threads_per_multiprocessor: 2048, blas_workspace_bytes: 32 << 20 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused_where_they_are_made() {
        assert!(Shape::new(0, 8).is_err() && Shape::new(8, Shape::MAX_FEATURES + 1).is_err());
        assert!(Batch::new(0).is_err() && Batch::new(Batch::MAX + 1).is_err());
        assert_eq!(Blocksize::new(96), Err(SettingError::Blocksize(96)));
        let largest = Shape::new(Shape::MAX_FEATURES, Shape::MAX_FEATURES).unwrap();
        assert_eq!(largest.weights() * 4, 1 << 50);
    }

    #[test]
    fn the_workspace_of_an_orin_is_the_documented_8519680_bytes() {
        assert_eq!(DeviceModel::ORIN.blas_workspace_bytes, 8_519_680);
        assert_eq!(DeviceModel::H200.blas_workspace_bytes, 33_554_432);
    }
}
