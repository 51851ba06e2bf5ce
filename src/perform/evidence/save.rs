//! From raw evidence to what is kept: interpreted, put into words, and written under the run.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::syncfs;

use crate::decide::evidence::{findings, journal_text};
use crate::model::evidence::{Evidence, EvidenceSummary, Fact, RawEvidence, names};
use crate::model::ids::ContentDigest;
use crate::perform::evidence::read;
use crate::perform::files::{at, make_dir_durably, write_durably, write_replaceably};
use crate::perform::host::Sysroot;
use crate::perform::machine::MachineError;
use crate::perform::redact::{Redactor, Secrets};

/// Raw items by name.
type Items = BTreeMap<String, Fact<Vec<u8>>>;

/// Items of at most so many bytes stand in `evidence.json` itself.
const IN_WORDS_BYTES_MAX: usize = 256;

/// Directory of raw items.
const RAW: &str = "raw";

/// Reads what the machine says, and makes of it what verdicts need; the items come back redacted.
///
/// # Errors
/// If the boot id cannot be read.
pub fn capture(sysroot: &Sysroot) -> Result<(Evidence, RawEvidence), MachineError> {
    let mut raw = read(sysroot)?;
    let findings = findings(&raw);
    // Only now: a digest of a crash record must not depend on what was taken out of it.
    let mut redactor = Redactor::new(&Secrets::of(sysroot));
    raw.items = raw.items.into_iter().map(|(name, item)| (name.clone(), redactor.redact_fact(&name, item))).collect();
    // Made here and not asked for: a second question to journalctl would cost as much as the first.
    if let Some(Fact::Known(previous)) = raw.items.get(names::PREVIOUS) {
        raw.items.insert(names::PREVIOUS_TEXT.to_owned(), Fact::Known(journal_text(previous)));
    }
    let items = raw.items.iter().map(|(name, item)| (name.clone(), in_words(name, item))).collect();
    Ok((Evidence { boot: raw.boot.clone(), findings, items }, raw))
}

/// An item in words: itself if it is short or a listing, which has no file, else where it is.
fn in_words(name: &str, item: &Fact<Vec<u8>>) -> Fact<String> {
    item.clone().and_then(|bytes| match String::from_utf8(bytes) {
        Ok(text) if text.len() <= IN_WORDS_BYTES_MAX || name.ends_with('/') => Fact::Known(text.trim_end().to_owned()),
        Ok(text) => Fact::Known(format!("{} bytes in {RAW}/{name}", text.len())),
        Err(binary) => Fact::Known(format!("{} bytes in {RAW}/{name}", binary.as_bytes().len())),
    })
}

/// Writes `evidence` and the raw items it was made of under `dir`, all durable when it returns.
///
/// # Errors
/// If a write or a sync fails.
pub fn save(dir: &Path, evidence: &Evidence, items: &Items) -> Result<EvidenceSummary, MachineError> {
    make_dir_durably(dir)?;
    for (name, item) in items {
        if let (Fact::Known(bytes), false) = (item, name.ends_with('/')) {
            let path = dir.join(RAW).join(name);
            let parent = path.parent().unwrap_or(dir);
            at("make the directory", parent, std::fs::create_dir_all(parent))?;
            write_replaceably(&path, bytes)?;
        }
    }
    // One sync of the file system instead of one a file: there may be a hundred of them.
    at("sync", dir, std::fs::File::open(dir).and_then(|dir| syncfs(&dir).map_err(std::io::Error::from)))?;
    let mut json = serde_json::to_vec_pretty(evidence).expect("evidence holds only maps with string keys");
    json.push(b'\n');
    write_durably(&dir.join("evidence.json"), &json)?;
    Ok(EvidenceSummary { file: ContentDigest::of(&json), findings: evidence.findings.clone() })
}
