//! The header of a safetensors file, and what `hf_quant_config.json` beside it says.
//!
//! Owns the two formats and their bounds. It judges nothing: whether the tensors make sense together is decided in
//! [`crate::decide::checkpoint`].
//!
//! A safetensors file is an 8-byte little-endian length, a JSON object of that many bytes, and the data; offsets count
//! from the end of the header (the format's description in the safetensors repository).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Bytes of the length that a file begins with.
pub const LENGTH_BYTES: u64 = 8;

/// The longest header, in bytes: the limit of the reference implementation. The largest public models have a hundredth.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The longest `hf_quant_config.json`, in bytes; one line for every layer of the largest public models is less.
pub const CONFIG_BYTES_MAX: u64 = 16_000_000;

/// The most dimensions of a tensor.
const DIMENSIONS_MAX: usize = 16;

/// Bits of one element, by the names that the format knows.
const DTYPE_BITS: [(&str, u64); 20] = [
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
];

/// Why a header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// There is no length.
    #[error("the file has {0} bytes, and a safetensors file begins with the 8 bytes of its header's length")]
    Short(u64),
    /// The length cannot be one.
    #[error("the header claims {claimed} bytes, more than the {HEADER_BYTES_MAX} that a header may have")]
    TooLong {
        /// The length.
        claimed: u64,
    },
    /// The file ends within its header.
    #[error("the header claims {claimed} bytes and the file has {got} after the length: it was cut, or is none")]
    Cut {
        /// The length.
        claimed: u64,
        /// What is there.
        got: u64,
    },
    /// The header is not what the format says.
    #[error("the header is not one of safetensors: {0}")]
    Form(String),
}

/// How long the header is that begins with `length`, in a file of `file_bytes`; checked before anything is allocated.
///
/// # Errors
/// [`HeaderError::Short`], [`HeaderError::TooLong`] or [`HeaderError::Cut`].
pub fn header_bytes(length: [u8; LENGTH_BYTES as usize], file_bytes: u64) -> Result<usize, HeaderError> {
    let claimed = u64::from_le_bytes(length);
    let got = file_bytes.checked_sub(LENGTH_BYTES).ok_or(HeaderError::Short(file_bytes))?;
    if claimed > HEADER_BYTES_MAX {
        return Err(HeaderError::TooLong { claimed });
    }
    if claimed > got {
        return Err(HeaderError::Cut { claimed, got });
    }
    usize::try_from(claimed).map_err(|_| HeaderError::TooLong { claimed })
}

/// A header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The tensors by their names.
    pub tensors: BTreeMap<String, Tensor>,
    /// Bytes of the data that follows the header.
    pub data_bytes: u64,
}

/// A tensor as the header describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// The type of its elements, in the format's own word.
    pub dtype: String,
    /// Its dimensions; none is a scalar.
    pub shape: Vec<u64>,
    /// Where its bytes begin and end, counted from the end of the header.
    pub data_offsets: [u64; 2],
}

impl Tensor {
    /// Elements, if their number fits.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |product, side| product.checked_mul(*side))
    }

    /// Bytes that dtype and shape demand; `None` for an unknown dtype, and where the number fits nothing.
    pub fn bytes(&self) -> Option<u64> {
        let (_, bits) = DTYPE_BITS.iter().find(|(name, _)| *name == self.dtype)?;
        Some(self.elements()?.checked_mul(*bits)?.div_ceil(8))
    }

    /// Whether the dtype is one of the format's.
    pub fn has_known_dtype(&self) -> bool {
        DTYPE_BITS.iter().any(|(name, _)| *name == self.dtype)
    }
}

impl Header {
    /// Reads the JSON of a header of a file whose data has `data_bytes`.
    ///
    /// # Errors
    /// [`HeaderError::Form`].
    pub fn parse(json: &[u8], data_bytes: u64) -> Result<Self, HeaderError> {
        let Entries(tensors) = serde_json::from_slice(json).map_err(|error| HeaderError::Form(error.to_string()))?;
        Ok(Self { tensors, data_bytes })
    }
}

/// The object of a header: tensors under names that come once, and `__metadata__`, which says nothing that is checked.
struct Entries(BTreeMap<String, Tensor>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        use serde::de::Error;
        let mut tensors = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                let _: BTreeMap<String, String> = map.next_value()?;
                continue;
            }
            let tensor: Tensor = map.next_value()?;
            if tensor.shape.len() > DIMENSIONS_MAX {
                return Err(A::Error::custom(format!("`{name}` has {} dimensions", tensor.shape.len())));
            }
            if tensors.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is there twice")));
            }
            tensors.insert(name, tensor);
        }
        Ok(Entries(tensors))
    }
}

/// What `hf_quant_config.json` says, as far as it is checked. Other keys are the producer's own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QuantConfig {
    /// Who wrote it.
    #[serde(default)]
    pub producer: Producer,
    /// What was quantised.
    pub quantization: Quantization,
}

/// Who wrote a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Producer {
    /// Its name, such as `modelopt`.
    #[serde(default)]
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// What was quantised, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quantization {
    /// The algorithm of all layers, or `MIXED_PRECISION`.
    #[serde(default)]
    pub quant_algo: Option<String>,
    /// Weights that share a scale.
    #[serde(default)]
    pub group_size: Option<u64>,
    /// The algorithm of the key-value cache.
    #[serde(default)]
    pub kv_cache_quant_algo: Option<String>,
    /// Modules that are left as they were; `*` stands for anything.
    #[serde(default)]
    pub exclude_modules: Vec<String>,
    /// The algorithm of each layer, of mixed precision.
    #[serde(default)]
    pub quantized_layers: BTreeMap<String, LayerQuantization>,
}

/// How one layer was quantised.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LayerQuantization {
    /// The algorithm.
    pub quant_algo: String,
    /// Weights that share a scale.
    #[serde(default)]
    pub group_size: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(json: &str) -> String {
        Header::parse(json.as_bytes(), 100).unwrap_err().to_string()
    }

    #[test]
    fn a_header_is_measured_before_it_is_read() {
        assert_eq!(header_bytes(16u64.to_le_bytes(), 24), Ok(16));
        assert_eq!(header_bytes(16u64.to_le_bytes(), 7), Err(HeaderError::Short(7)));
        assert_eq!(header_bytes(17u64.to_le_bytes(), 24), Err(HeaderError::Cut { claimed: 17, got: 16 }));
        let claimed = 100_000_000_000u64;
        assert_eq!(header_bytes(claimed.to_le_bytes(), u64::MAX), Err(HeaderError::TooLong { claimed }));
        let claimed = u64::MAX;
        assert_eq!(header_bytes(claimed.to_le_bytes(), u64::MAX), Err(HeaderError::TooLong { claimed }));
    }

    #[test]
    fn a_header_is_read_with_its_scalars_and_its_metadata() {
        let json = r#"{"__metadata__":{"format":"pt"},
            "a.weight":{"dtype":"U8","shape":[4,8],"data_offsets":[0,32]},
            "a.weight_scale_2":{"dtype":"F32","shape":[],"data_offsets":[32,36]}}"#;
        let header = Header::parse(json.as_bytes(), 36).unwrap();
        let bytes: Vec<_> = header.tensors.values().map(Tensor::bytes).collect();
        assert_eq!(bytes, [Some(32), Some(4)]);
    }

    #[test]
    fn what_is_no_header_is_refused_in_words() {
        assert!(form("[]").contains("an object of tensors"));
        assert!(form(r#"{"a":{"dtype":"U8","shape":[1]}}"#).contains("data_offsets"));
        assert!(form(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#).contains("-1"));
        let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        assert!(form(twice).contains("`a` is there twice"));
        let deep = format!(r#"{{"a":{{"dtype":"U8","shape":[{}1],"data_offsets":[0,1]}}}}"#, "1,".repeat(16));
        assert!(form(&deep).contains("17 dimensions"));
        assert!(form(&"[".repeat(100_000)).contains("an object of tensors"));
        assert!(form("{").contains("EOF"));
    }

    #[test]
    fn a_size_that_overflows_is_no_size() {
        let tensor = Tensor { dtype: "F32".into(), shape: vec![u64::MAX, 2], data_offsets: [0, 0] };
        assert_eq!((tensor.elements(), tensor.bytes()), (None, None));
        let odd = Tensor { dtype: "F4".into(), shape: vec![3], data_offsets: [0, 2] };
        assert_eq!(odd.bytes(), Some(2));
    }
}
