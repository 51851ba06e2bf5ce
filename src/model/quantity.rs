//! Durations and sizes as people write them in a matrix: `"10m"`, `"off"`, `"512MiB"`.
//!
//! Owns the spellings and the newtypes. It measures nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A quantity that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: expected {expected}")]
pub struct QuantityError {
    /// Which quantity was expected.
    pub what: &'static str,
    /// How it is spelled.
    pub expected: &'static str,
    /// What was given, cut to a readable length.
    pub text: String,
}

/// The longest duration a matrix may ask for: 30 days, so that sums of trials cannot overflow.
pub const DURATION_MS_MAX: u64 = 30 * 24 * 3_600_000;

/// The largest size a matrix may ask for: 16 TiB, more than any machine this runs on.
pub const SIZE_BYTES_MAX: u64 = 16 << 40;

/// A duration in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Millis(u64);

impl Millis {
    /// `ms` milliseconds.
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }
    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1000)
    }
    /// The number of milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }
    /// The same as a standard duration.
    pub const fn to_duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

const UNITS_MS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl fmt::Display for Millis {
    /// The largest unit that divides the value: `600000` is written `10m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) =
            UNITS_MS.iter().rev().find(|(_, size)| self.0.is_multiple_of(*size) && self.0 > 0).unwrap_or(&("s", 1000));
        f.pad(&format!("{}{unit}", self.0 / size))
    }
}

impl FromStr for Millis {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError {
            what: "duration",
            expected: "a number and a unit (ms, s, m, h, d), such as \"10m\", of at most 30 days",
            text: text.chars().take(64).collect(),
        };
        let (number, unit) = split_number(text).ok_or_else(error)?;
        let (_, size) = UNITS_MS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        let ms = scale(number, *size).filter(|ms| *ms <= DURATION_MS_MAX).ok_or_else(error)?;
        Ok(Self(ms))
    }
}

impl From<Millis> for String {
    fn from(value: Millis) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for Millis {
    type Error = QuantityError;
    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse()
    }
}

/// A deadline that may be switched off: `"2m"` or `"off"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Limit {
    /// No deadline.
    #[default]
    Off,
    /// Expires after this long.
    After(Millis),
}

impl Limit {
    /// The deadline, if there is one.
    pub const fn millis(self) -> Option<Millis> {
        match self {
            Self::Off => None,
            Self::After(millis) => Some(millis),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::After(millis) => millis.fmt(f),
        }
    }
}

impl FromStr for Limit {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::After).map_err(|error: QuantityError| QuantityError {
                expected: "\"off\", or a number and a unit (ms, s, m, h, d), such as \"10m\", of at most 30 days",
                ..error
            }),
        }
    }
}

impl From<Limit> for String {
    fn from(value: Limit) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for Limit {
    type Error = QuantityError;
    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse()
    }
}

/// A size in bytes. `K`, `M`, `G` and `KiB`, `MiB`, `GiB` are powers of 1024, as `memory.max` reads them;
/// `KB`, `MB`, `GB` are powers of 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

const UNITS_BYTES: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match binary.iter().find(|(_, size)| self.0 > 0 && self.0.is_multiple_of(*size)) {
            Some((unit, size)) => f.pad(&format!("{}{unit}", self.0 / size)),
            None => f.pad(&format!("{}B", self.0)),
        }
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError {
            what: "size",
            expected: "a number and a unit (B, K, M, G, KiB, MiB, GiB, KB, MB, GB), such as \"512MiB\", of at most 16 TiB",
            text: text.chars().take(64).collect(),
        };
        let (number, unit) = split_number(text).ok_or_else(error)?;
        let (_, size) = UNITS_BYTES.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        let bytes = scale(number, *size).filter(|bytes| *bytes <= SIZE_BYTES_MAX).ok_or_else(error)?;
        Ok(Self(bytes))
    }
}

/// The digits (with at most one point) and what follows them, with spaces between them dropped.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then_some((number, unit.trim_start()))
}

/// `number * size` where `number` is decimal with at most six places; `None` if it overflows or is not whole.
fn scale(number: &str, size: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let malformed = whole.is_empty() || fraction.len() > 6 || fraction.contains('.') || number.ends_with('.');
    if malformed {
        return None;
    }
    let mut total = whole.parse::<u64>().ok()?.checked_mul(size)?;
    if !fraction.is_empty() {
        let scaled = fraction.parse::<u64>().ok()?.checked_mul(size)?;
        let places = 10u64.pow(u32::try_from(fraction.len()).ok()?);
        if scaled % places != 0 {
            return None;
        }
        total = total.checked_add(scaled / places)?;
    }
    Some(total)
}

/// A number that is neither infinite nor NaN, so that it equals itself and has a form in JSON.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Finite(f64);

impl Finite {
    /// `number`, if it is finite.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self(number))
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

// NaN, the only number that differs from itself, is none of these.
impl Eq for Finite {}

impl TryFrom<f64> for Finite {
    type Error = QuantityError;
    fn try_from(number: f64) -> Result<Self, Self::Error> {
        let error = || QuantityError { what: "number", expected: "a finite one", text: number.to_string() };
        Self::new(number).ok_or_else(error)
    }
}

impl From<Finite> for f64 {
    fn from(value: Finite) -> f64 {
        value.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_in_its_largest_whole_unit() {
        for (text, ms, shown) in [
            ("10m", 600_000, "10m"),
            ("90s", 90_000, "90s"),
            ("1.5s", 1500, "1500ms"),
            ("60m", 3_600_000, "1h"),
            ("0s", 0, "0s"),
        ] {
            let millis: Millis = text.parse().unwrap();
            assert_eq!((millis.ms(), millis.to_string().as_str()), (ms, shown), "{text}");
            assert_eq!(shown.parse::<Millis>().unwrap(), millis, "{shown}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_or_beyond_thirty_days_is_refused() {
        for bad in
            ["10", "", "m", "-1s", "1.s", "1.2.3s", "1.0000001s", "31d", "99999999999999999999s", "1 year", "0.0001ms"]
        {
            assert!(bad.parse::<Millis>().is_err(), "{bad:?}");
        }
        assert_eq!("off".parse::<Limit>().unwrap(), Limit::Off);
    }

    #[test]
    fn binary_and_decimal_sizes_are_told_apart() {
        for (text, bytes) in
            [("1K", 1024), ("1KB", 1000), ("0.5 GiB", 1 << 29), ("4096", 4096), ("2GB", 2_000_000_000), ("0B", 0)]
        {
            assert_eq!(text.parse::<Bytes>().unwrap().get(), bytes, "{text}");
        }
        assert_eq!(Bytes::new(1 << 29).to_string(), "512MiB");
        assert!("17000G".parse::<Bytes>().is_err() && "5 parsecs".parse::<Bytes>().is_err());
    }
}
