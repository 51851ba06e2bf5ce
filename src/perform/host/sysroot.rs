//! The root under which a machine is read: `/`, or a captured tree that stands in for a machine.
//!
//! Everything that is known of a machine is read here, by path or by command, so that a captured tree gives the same
//! answers. Only attributes that are there are written, where a run changes settings. In a captured tree a path never leads out of it: links are followed within the tree, and the
//! output of a command is the file of its name under `cmd/`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::command::{self, Command};
use crate::model::evidence::Fact;

/// The most bytes of one small file, such as an attribute in sysfs.
pub const TEXT_BYTES_MAX: u64 = 64 * 1024;

/// The most entries of one directory that are looked at.
const ENTRIES_MAX: usize = 4096;

/// The file of a captured tree that says which items may not be read, and how it came about.
pub const CAPTURE_FILE: &str = "capture.json";

/// Directory of a captured tree with the output of commands.
pub const COMMANDS: &str = "cmd";

/// Which end of a text that is too long is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Its beginning, as of a crash record.
    Start,
    /// Its end, as of a log.
    End,
}

/// How much of an item is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The most bytes.
    pub bytes: u64,
    /// Which of them.
    pub keep: Keep,
}

/// The root under which the machine is read.
#[derive(Debug)]
pub struct Sysroot {
    root: PathBuf,
    captured: Captured,
    recording: Option<Mutex<Recording>>,
}

/// What a captured tree says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Captured {
    /// Name and version of the format.
    pub schema: String,
    /// The machine's id there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Version of the harness that captured it.
    #[serde(default)]
    pub tool: String,
    /// Paths and commands that were there and could not be read: the system's words.
    #[serde(default)]
    pub denied: BTreeMap<String, String>,
}

/// What was read under a root, by path, to be written as a captured tree.
#[derive(Debug, Default)]
pub struct Recording {
    /// Content of files; commands are under [`COMMANDS`].
    pub files: BTreeMap<String, Vec<u8>>,
    /// Directories, which may be empty.
    pub dirs: Vec<String>,
    /// What could not be read.
    pub denied: BTreeMap<String, String>,
}

/// The same root; what is read there is not remembered.
impl Clone for Sysroot {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), captured: self.captured.clone(), recording: None }
    }
}

impl Sysroot {
    /// The machine under `root`; `/` for this one.
    pub fn new(root: PathBuf) -> Self {
        let captured = std::fs::read(root.join(CAPTURE_FILE)).unwrap_or_default();
        Self { root, captured: serde_json::from_slice(&captured).unwrap_or_default(), recording: None }
    }

    /// The same machine, remembering everything that is read.
    pub fn recording(self) -> Self {
        Self { recording: Some(Mutex::default()), ..self }
    }

    /// What was read since [`Sysroot::recording`].
    pub fn into_recording(self) -> Recording {
        self.recording
            .map(|recording| recording.into_inner().unwrap_or_else(PoisonError::into_inner))
            .unwrap_or_default()
    }

    /// Whether it is this machine and not a captured one.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// What the tree says about itself; nothing of this machine.
    pub fn captured(&self) -> &Captured {
        &self.captured
    }

    /// Where `path` is looked for, in words.
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The bytes of a file, as far as `limit` goes.
    pub fn bytes(&self, path: &str, limit: Limit) -> Fact<Vec<u8>> {
        let read = self.open(path, OFlags::RDONLY).and_then(|mut file| read_within(&mut file, limit));
        let fact = self.fact(path, read);
        self.record(|recording| recording.note(path, &fact));
        fact
    }

    /// The text of a small file, trimmed of white space and of the NUL that ends a string in a device tree.
    pub fn text(&self, path: &str) -> Fact<String> {
        self.bytes(path, Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start }).and_then(|bytes| {
            match String::from_utf8(bytes) {
                Ok(text) => Fact::Known(text.trim_matches(['\n', '\0', ' ']).to_owned()),
                Err(error) => Fact::Garbled(error.to_string()),
            }
        })
    }

    /// Writes `text` to an attribute that is there, in one write, as drivers want it.
    ///
    /// # Errors
    /// If it is not there, may not be written, or its driver refuses.
    pub fn write_attribute(&self, path: &str, text: &str) -> io::Result<()> {
        self.open(path, OFlags::WRONLY | OFlags::TRUNC)?.write_all(text.as_bytes())
    }

    /// The names in a directory, sorted.
    pub fn entries(&self, path: &str) -> Fact<Vec<String>> {
        let names = self.list(path);
        let fact = self.fact(path, names.map(|names| names.into_iter().map(|(name, _)| name).collect()));
        self.record(|recording| match &fact {
            Fact::Known(_) => recording.dirs.push(path.to_owned()),
            unread => recording.note_denied(path, unread),
        });
        fact
    }

    /// The devices in a directory of a class, sorted: each is a directory of its own, even if nothing in it can be read.
    pub fn devices(&self, class: &str) -> Fact<Vec<String>> {
        let devices = self.entries(class);
        self.record(|recording| {
            let names = devices.known().into_iter().flatten();
            recording.dirs.extend(names.map(|name| format!("{class}/{name}")));
        });
        devices
    }

    /// The directories at most `depth` levels below `path` whose name has `suffix`, sorted. Links are not followed.
    pub fn directories(&self, path: &str, suffix: &str, depth: u32) -> Vec<String> {
        let mut found = Vec::new();
        for (name, kind) in self.list(path).unwrap_or_default() {
            if kind != FileType::Directory {
                continue;
            }
            let below = format!("{path}/{name}");
            if name.ends_with(suffix) {
                found.push(below);
            } else if depth > 1 {
                found.extend(self.directories(&below, suffix, depth - 1));
            }
        }
        found
    }

    /// Whether something is at `path`.
    pub fn exists(&self, path: &str) -> bool {
        let Ok(found) = self.open(path, OFlags::PATH) else { return false };
        let is_dir = found.metadata().is_ok_and(|meta| meta.is_dir());
        self.record(|recording| {
            if is_dir {
                recording.dirs.push(path.to_owned());
            } else {
                recording.files.entry(path.to_owned()).or_default();
            }
        });
        true
    }

    /// What a command prints.
    pub fn output(&self, command: &Command<'_>) -> Fact<Vec<u8>> {
        self.output_or(command, || Fact::Absent)
    }

    /// What a command prints; where it is not installed, what `instead` finds out on this machine.
    pub fn output_or(&self, command: &Command<'_>, instead: impl FnOnce() -> Fact<Vec<u8>>) -> Fact<Vec<u8>> {
        self.answer(command.file, command.limit, || match command::run(command) {
            Fact::Absent => instead(),
            answer => answer,
        })
    }

    /// What only this machine itself can answer, kept in a captured tree as if a command had printed it to `file`.
    pub fn answer(&self, file: &str, limit: Limit, ask: impl FnOnce() -> Fact<Vec<u8>>) -> Fact<Vec<u8>> {
        let place = format!("{COMMANDS}/{file}");
        if !self.is_live() {
            return self.bytes(&place, limit);
        }
        let fact = ask();
        self.record(|recording| recording.note(&place, &fact));
        fact
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<File> {
        // A FIFO or a terminal in a captured tree must not keep the reader waiting; openat2(2) refuses both with O_PATH.
        let waits_for_nobody = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags =
            flags | if flags.contains(OFlags::PATH) { OFlags::CLOEXEC } else { OFlags::CLOEXEC | waits_for_nobody };
        if self.is_live() {
            return Ok(open(self.root.join(path), flags, Mode::empty())?.into());
        }
        let root = open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        match openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // Before Linux 5.6, and in sandboxes.
            Err(Errno::NOSYS) => Ok(rustix::fs::openat(CWD, self.root.join(path), flags, Mode::empty())?.into()),
            opened => Ok(opened?.into()),
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<(String, FileType)>> {
        let dir = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(dir)?.take(ENTRIES_MAX) {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push((name, entry.file_type()));
            }
        }
        // What could not be read when the tree was captured was there all the same.
        let below = |denied: &String| Some(denied.strip_prefix(path)?.strip_prefix('/')?.to_owned());
        let denied = self.captured.denied.keys().filter_map(below).filter(|name| !name.contains('/'));
        names.extend(denied.map(|name| (name, FileType::RegularFile)));
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names.dedup_by(|a, b| a.0 == b.0);
        Ok(names)
    }

    fn fact<T>(&self, path: &str, read: io::Result<T>) -> Fact<T> {
        if let Some(why) = self.captured.denied.get(path) {
            return Fact::Denied(why.clone());
        }
        match read {
            Ok(value) => Fact::Known(value),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Fact::Absent,
            // A driver's node without its device.
            Err(error)
                if matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::NODEV | Errno::NXIO)) =>
            {
                Fact::Absent
            }
            Err(error) => Fact::Denied(error.to_string()),
        }
    }

    fn record(&self, note: impl FnOnce(&mut Recording)) {
        if let Some(recording) = &self.recording {
            note(&mut recording.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Recording {
    fn note(&mut self, path: &str, fact: &Fact<Vec<u8>>) {
        match fact {
            // Somebody may have looked at less of it.
            Fact::Known(bytes) if self.files.get(path).is_some_and(|longer| longer.len() > bytes.len()) => {}
            Fact::Known(bytes) => drop(self.files.insert(path.to_owned(), bytes.clone())),
            unread => self.note_denied(path, unread),
        }
    }

    fn note_denied<T>(&mut self, path: &str, fact: &Fact<T>) {
        if let Fact::Denied(why) | Fact::Garbled(why) = fact {
            self.denied.insert(path.to_owned(), why.clone());
        }
    }
}

/// Reads to the end, keeping what `limit` says.
pub(super) fn read_within(source: &mut impl Read, limit: Limit) -> io::Result<Vec<u8>> {
    /// A page or two hold almost everything that the kernel tells. It tells it anew at each read, so that one is enough.
    const ROOM_BYTES: usize = 8 * 1024;
    let most = limit.bytes as usize;
    let mut bytes = Vec::with_capacity(most.min(ROOM_BYTES));
    match limit.keep {
        Keep::Start => drop(source.take(limit.bytes).read_to_end(&mut bytes)?),
        Keep::End => {
            let mut chunk = vec![0; 64 * 1024];
            let mut cut = false;
            loop {
                match source.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(length) => bytes.extend_from_slice(&chunk[..length]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                if bytes.len() > 2 * most {
                    bytes.drain(..bytes.len() - most);
                    cut = true;
                }
            }
            if cut || bytes.len() > most {
                // The line that was cut says less than none.
                let from = bytes.len().saturating_sub(most);
                let whole = bytes[from..].iter().position(|byte| *byte == b'\n').map_or(from, |at| from + at + 1);
                bytes.drain(..whole);
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_end_of_a_log_and_the_beginning_of_a_record_are_kept() {
        let log: String = (0..50_000).map(|number| format!("line {number}\n")).collect();
        let end = read_within(&mut log.as_bytes(), Limit { bytes: 1000, keep: Keep::End }).unwrap();
        assert!(end.len() <= 1000 && end.len() > 980);
        assert!(end.starts_with(b"line ") && end.ends_with(b"line 49999\n"), "whole lines");
        let start = read_within(&mut log.as_bytes(), Limit { bytes: 13, keep: Keep::Start }).unwrap();
        assert_eq!(start, b"line 0\nline 1");
        let all = Limit { bytes: log.len() as u64, keep: Keep::End };
        assert_eq!(read_within(&mut log.as_bytes(), all).unwrap(), log.as_bytes());
    }

    #[test]
    fn a_link_in_a_captured_tree_leads_nowhere_else() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("etc")).unwrap();
        fs::write(tree.path().join("etc/real"), "of the board\n").unwrap();
        symlink("/etc/real", tree.path().join("etc/conf")).unwrap();
        symlink("../../../../../../../../etc/passwd", tree.path().join("etc/out")).unwrap();
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        assert_eq!(sysroot.text("etc/conf"), Fact::Known("of the board".to_owned()));
        assert_eq!(sysroot.text("etc/out"), Fact::Absent);
        assert!(sysroot.exists("etc/conf") && sysroot.exists("etc") && !sysroot.exists("etc/out"));
    }

    #[test]
    fn what_a_tree_says_was_denied_is_denied() {
        let tree = tempfile::tempdir().unwrap();
        let captured =
            r#"{"schema":"jetfault.capture/1","denied":{"sys/fs/pstore":"Permission denied (os error 13)"}}"#;
        fs::write(tree.path().join(CAPTURE_FILE), captured).unwrap();
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        assert_eq!(sysroot.entries("sys/fs/pstore"), Fact::Denied("Permission denied (os error 13)".to_owned()));
        assert_eq!(sysroot.entries("sys/fs"), Fact::Absent);
    }

    #[test]
    fn directories_are_found_below_a_place_that_differs_between_releases() {
        let tree = tempfile::tempdir().unwrap();
        for path in ["sys/devices/platform/bus@0/c360000.pmc", "sys/devices/platform/other/deep/x/c1.pmc"] {
            fs::create_dir_all(tree.path().join(path)).unwrap();
        }
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let found = sysroot.directories("sys/devices/platform", ".pmc", 3);
        assert_eq!(found, ["sys/devices/platform/bus@0/c360000.pmc"]);
    }
}
