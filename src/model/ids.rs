//! Identifiers: what a boot, a run, a cell, a trial and a device are called.
//!
//! Every id is a newtype that can only hold a well-formed value, so that a path, a journal
//! line or a command-line argument is checked once, where it enters.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// An identifier that is not well-formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: expected {expected}")]
pub struct IdError {
    /// Which identifier was expected.
    pub what: &'static str,
    /// The shape that was expected.
    pub expected: &'static str,
    /// What was given, cut to a readable length.
    pub text: String,
}

impl IdError {
    fn new(what: &'static str, expected: &'static str, text: &str) -> Self {
        let text = text.chars().take(64).collect();
        Self { what, expected, text }
    }
}

/// Implements the string conversions that all identifiers share.
macro_rules! string_id {
    ($name:ident) => {
        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
    };
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn first_hex(bytes: &[u8], digits: usize) -> String {
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .take(digits)
        .map(|n| char::from(b"0123456789abcdef"[n as usize]))
        .collect()
}

/// One boot of the kernel, as `/proc/sys/kernel/random/boot_id` gives it (a lower-case UUID).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(String);
string_id!(BootId);

impl FromStr for BootId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let text = text.trim_end_matches('\n');
        let groups = || text.split('-');
        let well_formed = groups().map(str::len).eq([8, 4, 4, 4, 12]) && groups().all(is_lower_hex);
        // An all-zero id is what an uninitialised kernel variable reads as; it would make two boots look alike.
        if !well_formed || text.bytes().all(|b| b == b'0' || b == b'-') {
            return Err(IdError::new("boot id", "a lower-case UUID that is not all zero", text));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A cell: `c-` and 16 hex digits of a hash of its resolved settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellId(String);
string_id!(CellId);

impl CellId {
    /// The id of the cell whose canonical settings are `canonical` (JSON, sorted keys, tool defaults left out).
    pub fn of(canonical: &[u8]) -> Self {
        Self(format!("c-{}", first_hex(&Sha256::digest(canonical), 16)))
    }
}

impl FromStr for CellId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.strip_prefix("c-") {
            Some(hex) if hex.len() == 16 && is_lower_hex(hex) => Ok(Self(text.to_owned())),
            _ => Err(IdError::new("cell id", "`c-` and 16 hex digits", text)),
        }
    }
}

/// One execution of a cell: `CELL-r003-a1` (round and attempt, both counted from 1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrialId {
    /// The cell that is executed.
    pub cell: CellId,
    /// Which of the cell's trials this is, from 1.
    pub round: u32,
    /// Which try at that round this is, from 1; a later one repeats an excluded trial.
    pub attempt: u32,
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-r{:03}-a{}", self.cell, self.round, self.attempt))
    }
}

impl From<TrialId> for String {
    fn from(id: TrialId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for TrialId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl FromStr for TrialId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new("trial id", "`CELL-r003-a1`", text);
        let (rest, attempt) = text.rsplit_once("-a").ok_or_else(bad)?;
        let (cell, round) = rest.rsplit_once("-r").ok_or_else(bad)?;
        Ok(Self {
            cell: cell.parse()?,
            round: number_of(round, 3).ok_or_else(bad)?,
            attempt: number_of(attempt, 1).ok_or_else(bad)?,
        })
    }
}

/// The number that `text` spells with at least `digits` digits, from 1. There is one spelling for each: ids are also names of
/// directories.
fn number_of(text: &str, digits: usize) -> Option<u32> {
    let is_padded = text.len() > digits && text.starts_with('0');
    let is_spelled_so = text.len() >= digits && !is_padded && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| is_spelled_so && *number > 0)
}

/// A run: `NAME-001`, also the name of its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);
string_id!(RunId);

impl RunId {
    /// The run number `number` (from 1) of the matrix called `name`.
    ///
    /// # Errors
    /// If `name` cannot be part of a directory name.
    pub fn new(name: &str, number: u32) -> Result<Self, IdError> {
        format!("{name}-{number:03}").parse()
    }

    /// The matrix name and the number.
    pub fn parts(&self) -> (&str, u32) {
        let (name, number) = self.0.rsplit_once('-').expect("checked when it was made");
        (name, number.parse().expect("checked when it was made"))
    }
}

impl FromStr for RunId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new("run id", "`NAME-001`", text);
        let (name, number) = text.rsplit_once('-').ok_or_else(bad)?;
        if !is_name(name) || number.len() < 3 || number.parse::<u32>().map_or(true, |n| n == 0) {
            return Err(bad());
        }
        Ok(Self(text.to_owned()))
    }
}

/// Whether `name` may name a matrix: 1 to 64 of `a-z A-Z 0-9 _ . -`, beginning with a letter or digit.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// The machine a trial ran on: a name given with `--device`, or `d-` and 8 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceId(String);
string_id!(DeviceId);

impl DeviceId {
    /// The id derived from `/etc/machine-id`, which it does not reveal.
    pub fn of_machine(machine_id: &str) -> Self {
        let digest = Sha256::digest(format!("jetfault{}", machine_id.trim()).as_bytes());
        Self(format!("d-{}", first_hex(&digest, 8)))
    }
}

impl FromStr for DeviceId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new("device name", "1 to 64 of `a-z A-Z 0-9 _ . -`", text))
        }
    }
}

/// A content digest: sha256 as 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentDigest(String);
string_id!(ContentDigest);

impl ContentDigest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(first_hex(&Sha256::digest(bytes), 64))
    }

    /// The digest of all that `source` gives, which is never held whole.
    ///
    /// # Errors
    /// If a read fails.
    pub fn of_reader(source: &mut impl Read) -> io::Result<Self> {
        let (mut hasher, mut chunk) = (Sha256::new(), vec![0; 64 * 1024]);
        loop {
            match source.read(&mut chunk) {
                Ok(0) => return Ok(Self(first_hex(&hasher.finalize(), 64))),
                Ok(count) => hasher.update(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl FromStr for ContentDigest {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.len() == 64 && is_lower_hex(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new("digest", "64 hex digits of a sha256", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_id_has_one_spelling() {
        let id: TrialId = "c-0123456789abcdef-r003-a1".parse().unwrap();
        assert_eq!((id.round, id.attempt), (3, 1));
        for bad in [
            "c-0123456789abcdef-r3-a1",
            "c-0123456789abcdef-r000-a1",
            "c-0123-r003-a1",
            "x",
            "c-0123456789abcdef-r003-a01",
        ] {
            assert!(bad.parse::<TrialId>().is_err(), "{bad}");
        }
        assert_eq!(TrialId { round: 1234, ..id }.to_string(), "c-0123456789abcdef-r1234-a1");
    }

    #[test]
    fn an_unreadable_boot_id_is_no_boot_id() {
        for bad in ["", "\n", "00000000-0000-0000-0000-000000000000", "1f06b739-9e6f-4d8e-b4cd-0d9449a8b99", "nonsense"]
        {
            assert!(bad.parse::<BootId>().is_err(), "{bad:?}");
        }
        assert!("1f06b739-9e6f-4d8e-b4cd-0d9449a8b993\n".parse::<BootId>().is_ok());
    }

    #[test]
    fn a_run_id_gives_its_parts_back() {
        assert_eq!(RunId::new("bnb-1936", 2).unwrap().parts(), ("bnb-1936", 2));
        assert!("../x-001".parse::<RunId>().is_err());
    }
}
