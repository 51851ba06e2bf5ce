//! What the machine says at the beginning of a boot, read raw: one file a source, each item known, absent, denied or
//! garbled.
//!
//! Owns which places are looked at and how much of each is kept. It interprets nothing but what it needs to find the
//! next place, and changes nothing: records in persistent storage stay where they are.

mod pmc;

mod pstore;

mod journal;

mod hardware;

mod nvme;

mod firmware;

mod gpu;

mod kernel;

mod save;

use std::collections::BTreeMap;

pub use firmware::boot_slots;
pub use journal::{journal_storage, kernel_log, read_boots};
pub use kernel::clock;
pub use nvme::drives;
pub use save::{capture, save};

use crate::model::evidence::{Fact, RawEvidence};
use crate::perform::host::{Keep, Limit, Sysroot};
use crate::perform::machine::MachineError;

/// The most bytes of evidence of one boot. Logs and records have smaller limits of their own, which together stay below.
pub const EVIDENCE_BYTES_MAX: u64 = 16 << 20;

/// The most bytes of an attribute in sysfs or procfs.
const ATTRIBUTE: Limit = Limit { bytes: 4096, keep: Keep::Start };

/// Reads everything that the machine under `sysroot` says about itself and about the boot before.
///
/// The reset word comes first: nothing else is so easily overwritten.
///
/// # Errors
/// If the boot id cannot be read.
pub fn read(sysroot: &Sysroot) -> Result<RawEvidence, MachineError> {
    let boot = sysroot.boot_id()?;
    let mut collector = Collector { sysroot, items: BTreeMap::new(), bytes_left: EVIDENCE_BYTES_MAX };
    pmc::read(&mut collector);
    pstore::read(&mut collector);
    journal::read(&mut collector, &boot);
    hardware::read(&mut collector);
    nvme::read(&mut collector);
    firmware::read(&mut collector);
    gpu::read(&mut collector);
    kernel::read(&mut collector);
    Ok(RawEvidence { boot, items: collector.items })
}

/// Items as they come in, within the limit for all of them.
struct Collector<'a> {
    sysroot: &'a Sysroot,
    items: BTreeMap<String, Fact<Vec<u8>>>,
    bytes_left: u64,
}

impl Collector<'_> {
    /// Puts down an item. One for which there is no room is denied, and says so.
    fn put(&mut self, name: impl Into<String>, fact: Fact<Vec<u8>>) {
        let fact = match fact {
            Fact::Known(bytes) => match self.bytes_left.checked_sub(bytes.len() as u64) {
                Some(left) => {
                    self.bytes_left = left;
                    Fact::Known(bytes)
                }
                None => Fact::Denied(format!("{} bytes more than the limit for all evidence", bytes.len())),
            },
            unread => unread,
        };
        self.items.insert(name.into(), fact);
    }

    /// Reads the attribute at `path` as item `name`.
    fn attribute(&mut self, name: impl Into<String>, path: &str) {
        self.put(name, self.sysroot.bytes(path, ATTRIBUTE));
    }

    /// Reads those attributes of directory `dir` that `wanted` accepts as items `NAME/ATTRIBUTE`.
    fn attributes(&mut self, name: &str, dir: &str, wanted: impl Fn(&str) -> bool) {
        match self.sysroot.entries(dir) {
            Fact::Known(entries) => {
                for entry in entries.iter().filter(|entry| wanted(entry)) {
                    self.attribute(format!("{name}/{}", component(entry)), &format!("{dir}/{entry}"));
                }
            }
            unread => self.put(format!("{name}/"), unread.and_then(|_| Fact::Absent)),
        }
    }
}

/// `name` as one part of an item's name, which becomes the name of a file.
fn component(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-+@:".contains(c) { c } else { '_' };
    let name: String = name.chars().map(safe).collect();
    if name.is_empty() || name.chars().all(|c| c == '.') { "_".repeat(name.len().max(1)) } else { name }
}

#[cfg(test)]
mod tests;
