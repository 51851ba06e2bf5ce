//! Where a process was when a fatal signal met it.
//!
//! Data only; how it is found is the supervisor's, what it means is decided in [`crate::decide::crash`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// An address or an offset, written in hexadecimal: JSON's numbers are too small for some readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl From<Address> for String {
    fn from(value: Address) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = String;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.map(Self).ok_or_else(|| format!("{text:?} is not a hexadecimal number"))
    }
}

/// The most threads beside the one that met the signal that are told apart.
pub const THREADS_MAX: usize = 64;

/// The most frames that are kept of one thread.
pub const FRAMES_MAX: usize = 16;

/// A process that met a fatal signal, as it was at that moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// The signal's number.
    pub signal: i32,
    /// Its `si_code`: 0 and less are sent by a process, more come of an exception (sigaction(2)).
    pub code: i32,
    /// The address of the access or of the instruction, for an exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The program that ran.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// The thread that met it.
    pub thread: CrashedThread,
    /// The others, alike ones counted together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<CrashedThread>,
    /// Its registers by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registers: BTreeMap<String, Address>,
}

/// Threads that were at the same place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashedThread {
    /// What they are called.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Where, innermost first. The first is certain; the others are what the stack holds of return addresses.
    pub frames: Vec<Frame>,
}

/// A place in a program that is the same wherever the program is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The name of the file, without directories; empty for memory that is no file's.
    pub module: String,
    /// What the linker called this build of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The offset in the file; the address itself for memory that is no file's.
    pub offset: Address,
}

/// How many digits of a build id tell builds apart in what people read.
const BUILD_ID_DIGITS: usize = 8;

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.module.as_str(), &self.build_id) {
            // Its address changes from process to process.
            ("", _) => f.write_str("memory of no file"),
            (module, None) => write!(f, "{module}+{}", self.offset),
            (module, Some(id)) => {
                let id = id.get(..BUILD_ID_DIGITS).unwrap_or(id);
                write!(f, "{module}@{id}+{}", self.offset)
            }
        }
    }
}
