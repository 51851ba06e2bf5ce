//! What a machine says about itself and about the boot before: captured once per boot, before anything else.
//!
//! An item that cannot be read is itself evidence: it is written down as absent, denied or garbled, never skipped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::ids::{BootId, ContentDigest};

/// One item of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fact<T> {
    /// It was read.
    Known(T),
    /// It is not there.
    Absent,
    /// It is there and may not be read: the system's words.
    Denied(String),
    /// It was read and makes no sense: the raw text, cut.
    Garbled(String),
}

impl<T> Fact<T> {
    /// The value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => None,
        }
    }
}

/// A crash record that the kernel left in persistent storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashRecord {
    /// Digest of its content: the same record seen again is no news.
    pub digest: ContentDigest,
    /// Whether it tells of a kernel panic.
    pub panic: bool,
}

/// The evidence of one boot about the end of the boot before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The boot in which it was captured.
    pub boot: BootId,
    /// The boots the machine remembers, oldest first, this one last.
    pub boots: Fact<Vec<BootId>>,
    /// Crash records present now, whether new or old.
    pub crash_records: Fact<Vec<CrashRecord>>,
    /// Further items in words, by name, such as `kernel` or `uptime_ms`.
    #[serde(default)]
    pub items: BTreeMap<String, Fact<String>>,
}

/// The part of the evidence that verdicts need, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceSummary {
    /// Digest of the file under `evidence/BOOT/` that holds all of it.
    pub file: ContentDigest,
    /// As in [`Evidence::boots`].
    pub boots: Fact<Vec<BootId>>,
    /// As in [`Evidence::crash_records`].
    pub crash_records: Fact<Vec<CrashRecord>>,
}
