//! Packing: the journal and the plan always, then what is wanted most, until the bundle is full.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::Value;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::inventory::{Candidate, inventory, python_packages};
use super::{BUNDLE_SCHEMA, BundleError, Contents, Kept, LeftOut};
use crate::decide::plan::Plan;
use crate::model::ids::{BootId, ContentDigest, TrialId};
use crate::model::journal::{Event, Opened, Record, encode};
use crate::model::outcome::LIBRARIES_NOTE;
use crate::model::verdict::Counted;
use crate::perform::files::{at, open_file, write_durably};
use crate::perform::host::MachineFacts;
use crate::perform::journal::{read_in_hindsight, read_records};
use crate::perform::store::{RunDir, names};
use crate::perform::veil::Veil;

/// The largest bundle, in bytes: what an issue on GitHub takes.
pub const BYTES_MAX: u64 = 25_000_000;

/// What the directory of an archive and `bundle.json` may take.
const RESERVED_BYTES: u64 = 2_000_000;

/// Of a larger file only so many bytes at its end are packed.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most files, and the most that are listed as left out.
const FILES_MAX: usize = 20_000;
const LEFT_OUT_MAX: usize = 500;

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The size of the bundle.
    pub bytes: u64,
    /// What is in it.
    pub contents: Contents,
}

/// Packs `run`, whose plan as stored is `plan`, into the file `to`; names are taken out by `veil`.
///
/// # Errors
/// If something that every bundle has cannot be read, or the bundle not be written.
pub fn pack(run: &RunDir, plan: &Plan, to: &Path, veil: &mut Veil) -> Result<Packed, BundleError> {
    let story = Story::of(run)?;
    let mut packer = Packer::new(run, to, veil);
    let plan_json = packer.json(&plan.to_json());
    let matrix = run.read(names::MATRIX)?;
    let matrix = packer.veil.file(names::MATRIX, matrix);
    let journal = packer.journal(run, &ContentDigest::of(&plan_json))?;
    let required = [(names::JOURNAL, journal), (names::PLAN, plan_json), (names::MATRIX, matrix)];
    for (name, bytes) in required {
        if !packer.add(name, &bytes, 0)? {
            return Err(BundleError::TooLarge { bytes: bytes.len() as u64 });
        }
    }
    let machine = run.read(names::MACHINE).ok();
    let facts: Option<MachineFacts> = machine.as_deref().and_then(|json| serde_json::from_slice(json).ok());
    if let Some(json) = machine {
        let json = packer.json(&json);
        packer.add(names::MACHINE, &json, 0)?;
    }
    for (number, (python, packages)) in python_packages(plan).into_iter().enumerate() {
        let text = packer.veil.text(&format!("# {python}\n{packages}"));
        packer.add(&format!("python/{}.txt", number + 1), text.as_bytes(), 0)?;
    }
    let (candidates, left_out) = inventory(run, plan, story.opened.as_deref(), &story.trials, &story.boots);
    candidates.iter().try_for_each(|candidate| packer.add_file(candidate))?;
    left_out.into_iter().for_each(|left_out| packer.leave_out(left_out));
    packer.finish(facts.map(|facts| facts.architecture), story.libraries)
}

/// What of a journal decides what is packed.
#[derive(Default)]
struct Story {
    opened: Option<Box<Opened>>,
    /// The trials, those with a fault first, each from the newest.
    trials: Vec<TrialId>,
    boots: Vec<BootId>,
    libraries: Vec<String>,
}

impl Story {
    fn of(run: &RunDir) -> Result<Self, BundleError> {
        let (mut story, mut faults, mut others) = (Self::default(), Vec::new(), Vec::new());
        let mut libraries = BTreeSet::new();
        read_in_hindsight(
            || run.open_journal(),
            |record| {
                if story.boots.last() != Some(&record.boot) {
                    story.boots.push(record.boot.clone());
                }
                match record.event {
                    Event::Opened(opened) => story.opened = Some(opened),
                    Event::Judged(judged) => match judged.judgement.verdict.counted() {
                        Counted::Fault => faults.push(judged.trial),
                        Counted::Clean | Counted::Excluded => others.push(judged.trial),
                    },
                    Event::Finished(finished) => {
                        libraries.extend(finished.outcome.notes.get(LIBRARIES_NOTE).cloned());
                    }
                    _ => {}
                }
                Ok::<(), BundleError>(())
            },
        )?;
        story.trials = faults.into_iter().rev().chain(others.into_iter().rev()).collect();
        story.libraries = libraries.into_iter().take(LEFT_OUT_MAX).collect();
        Ok(story)
    }
}

/// A bundle in the making.
struct Packer<'a> {
    run: &'a RunDir,
    to: &'a Path,
    veil: &'a mut Veil,
    zip: ZipWriter<Cursor<Vec<u8>>>,
    /// Bytes that are left.
    left: u64,
    contents: Contents,
}

impl<'a> Packer<'a> {
    fn new(run: &'a RunDir, to: &'a Path, veil: &'a mut Veil) -> Self {
        let contents = Contents {
            schema: BUNDLE_SCHEMA.to_owned(),
            run: run.id.clone(),
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            redacted: veil.is_opaque(),
            architecture: None,
            libraries: Vec::new(),
            files: Vec::new(),
            left_out: Vec::new(),
            left_out_more: 0,
        };
        let zip = ZipWriter::new(Cursor::new(Vec::new()));
        Self { run, to, veil, zip, left: BYTES_MAX - RESERVED_BYTES, contents }
    }

    fn zip<T>(&self, result: zip::result::ZipResult<T>) -> Result<T, BundleError> {
        result.map_err(|source| BundleError::Zip { path: self.to.to_path_buf(), source })
    }

    /// Adds a file of which `cut` bytes at the beginning stay behind; tells whether it found room.
    fn add(&mut self, name: &str, bytes: &[u8], cut: u64) -> Result<bool, BundleError> {
        // By itself first: only then is it known how small it becomes.
        let alone = compressed(&format!("{}/{name}", self.run.id), bytes);
        let mut alone = self.zip(alone)?;
        let file = alone.by_index(0);
        let file = self.zip(file)?;
        let size = file.compressed_size();
        if size > self.left || self.contents.files.len() >= FILES_MAX {
            drop(file);
            self.leave_out(LeftOut { name: name.to_owned(), bytes: bytes.len() as u64, why: "no room".to_owned() });
            return Ok(false);
        }
        let copied = self.zip.raw_copy_file(file);
        self.zip(copied)?;
        self.left -= size;
        let sha256 = ContentDigest::of(bytes);
        self.contents.files.push(Kept { name: name.to_owned(), bytes: bytes.len() as u64, sha256, cut });
        Ok(true)
    }

    fn add_file(&mut self, candidate: &Candidate) -> Result<(), BundleError> {
        let read = || -> std::io::Result<(Vec<u8>, u64)> {
            let mut file = open_file(&candidate.path)?;
            let cut = file.metadata()?.len().saturating_sub(FILE_BYTES_MAX);
            file.seek(SeekFrom::Start(cut))?;
            let mut bytes = Vec::new();
            file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok((bytes, cut))
        };
        let (bytes, cut) = match read() {
            Ok(read) => read,
            // A trial that did not come so far has no such file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.leave_out(LeftOut { name: candidate.name.clone(), bytes: 0, why: error.to_string() });
                return Ok(());
            }
        };
        if bytes.contains(&0) && !candidate.name.ends_with(".log") {
            let why = "not text: names in it could not be replaced".to_owned();
            self.leave_out(LeftOut { name: candidate.name.clone(), bytes: bytes.len() as u64, why });
            return Ok(());
        }
        let bytes = match candidate.name.ends_with(".json") && cut == 0 {
            true => self.json(&bytes),
            false => self.veil.file(&candidate.name, bytes),
        };
        self.add(&candidate.name, &bytes, cut).map(drop)
    }

    fn leave_out(&mut self, left_out: LeftOut) {
        match self.contents.left_out.len() < LEFT_OUT_MAX {
            true => self.contents.left_out.push(left_out),
            false => self.contents.left_out_more += 1,
        }
    }

    /// JSON with every text in it redacted as it reads; what is no JSON is redacted as text.
    fn json(&mut self, bytes: &[u8]) -> Vec<u8> {
        if !self.veil.is_opaque() {
            return bytes.to_vec();
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else { return self.veil.file("", bytes.to_vec()) };
        redact(&mut value, self.veil);
        let mut json = serde_json::to_vec_pretty(&value).expect("it was JSON");
        json.push(b'\n');
        json
    }

    /// The journal with every text in it redacted, each line with a checksum of its own, of the plan with this digest.
    fn journal(&mut self, run: &RunDir, plan: &ContentDigest) -> Result<Vec<u8>, BundleError> {
        let mut journal = Vec::new();
        let veil = &mut *self.veil;
        read_records(BufReader::new(run.open_journal()?), |record| {
            let seq = record.seq;
            let redacted = |error| BundleError::Redaction { seq, error };
            let mut event = serde_json::to_value(&record.event).map_err(redacted)?;
            redact(&mut event, veil);
            let mut event: Event = serde_json::from_value(event).map_err(redacted)?;
            if let Event::Opened(opened) = &mut event {
                opened.plan = plan.clone();
            }
            journal.extend(encode(&Record { event, ..record }));
            Ok::<(), BundleError>(())
        })?;
        Ok(journal)
    }

    fn finish(mut self, architecture: Option<String>, libraries: Vec<String>) -> Result<Packed, BundleError> {
        self.contents.architecture = architecture;
        self.contents.libraries = libraries.iter().map(|words| self.veil.text(words)).collect();
        let mut json = serde_json::to_vec_pretty(&self.contents).expect("it has string keys");
        json.push(b'\n');
        let name = format!("{}/bundle.json", self.run.id);
        let written = self.zip.start_file(name, SimpleFileOptions::default());
        self.zip(written)?;
        let written = self.zip.write_all(&json);
        at("pack", self.to, written)?;
        let Self { zip, to, contents, .. } = self;
        let finished = zip.finish().map_err(|source| BundleError::Zip { path: to.to_path_buf(), source })?;
        let bytes = finished.into_inner();
        if let Some(dir) = to.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            at("find the directory", dir, fs::metadata(dir))?;
        }
        write_durably(to, &bytes)?;
        Ok(Packed { bytes: bytes.len() as u64, contents })
    }
}

/// An archive of one file.
fn compressed(name: &str, bytes: &[u8]) -> zip::result::ZipResult<ZipArchive<Cursor<Vec<u8>>>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file(name, SimpleFileOptions::default())?;
    zip.write_all(bytes)?;
    ZipArchive::new(zip.finish()?)
}

/// Redacts every text in `value`, but no key: those are ours.
fn redact(value: &mut Value, veil: &mut Veil) {
    match value {
        Value::String(text) => {
            let redacted = veil.text(text);
            if redacted != *text {
                *text = redacted;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, veil)),
        Value::Object(members) => members.values_mut().for_each(|member| redact(member, veil)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
