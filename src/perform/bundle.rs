//! A run as one ZIP file, to be attached to a report: packed without names of people, and unpacked without trust.
//!
//! Owns the package `zip`. What is packed is what a maintainer asks for; what had to stay behind is listed in
//! `bundle.json`. What is unpacked may come from anybody: see [`open`].

mod inventory;
mod pack;
mod unpack;

pub use pack::{BYTES_MAX, Packed, pack};
pub use unpack::{Unpacked, open};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::model::ids::{ContentDigest, RunId};
use crate::model::journal::LineError;
use crate::perform::journal::ReadError;
use crate::perform::machine::MachineError;

/// Name and version of the format of `bundle.json`.
pub const BUNDLE_SCHEMA: &str = "jetfault.bundle/1";

/// What is in a bundle and what is not: its file `bundle.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// [`BUNDLE_SCHEMA`].
    pub schema: String,
    /// The run.
    pub run: RunId,
    /// Version of the harness that packed it.
    pub tool: String,
    /// Whether names of people and machines were replaced. Lines of the journal then have checksums of their own.
    pub redacted: bool,
    /// The processor architecture of the machine, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The libraries that trials mapped, as the harness saw them: path, build id, SHA-256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// The files.
    pub files: Vec<Kept>,
    /// What stayed behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// How many more stayed behind that are not listed.
    #[serde(default)]
    pub left_out_more: usize,
}

/// A file in a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its name below the run's directory.
    pub name: String,
    /// Its bytes as packed.
    pub bytes: u64,
    /// Their digest.
    pub sha256: ContentDigest,
    /// How many bytes at its beginning stayed behind.
    #[serde(default)]
    pub cut: u64,
}

/// A file that stayed behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name below the run's directory.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Why.
    pub why: String,
}

/// A bundle that cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// An effect failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The archive cannot be written or is none.
    #[error("{}: {source}", path.display())]
    Zip {
        /// Which file.
        path: PathBuf,
        /// In the library's words.
        source: zip::result::ZipError,
    },
    /// It is an archive, and not one that this program packs.
    #[error("{}: not a bundle of a run: {why}", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] ReadError),
    /// A line of the journal cannot be read back after names were replaced in it.
    #[error("record {seq} of the journal does not survive redaction: {error}")]
    Redaction {
        /// The record.
        seq: u64,
        /// Why.
        error: serde_json::Error,
    },
    /// A record of the journal cannot be read.
    #[error(transparent)]
    Line(#[from] LineError),
    /// What must be in every bundle is larger than one may be.
    #[error("journal, plan and matrix take {bytes} bytes when packed, more than the {BYTES_MAX} of a bundle")]
    TooLarge {
        /// How many bytes.
        bytes: u64,
    },
}
