//! The file in which a desk keeps what it saw of one board and one run: a line an entry, only ever added to.
//!
//! What must not be lost is synced; lines of a kernel or a console are not, each for itself, and are left out once the
//! file is large.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::decide::fleet::{Entry, Saw, Witness};
use crate::model::ids::BootId;
use crate::perform::files::{at, make_dir_durably, sync_dir};
use crate::perform::machine::MachineError;

/// The directory of these files, in that of a board.
const DIR: &str = "witness";

/// What follows the run in their names.
const SUFFIX: &str = ".jsonl";

/// From this size on, in bytes, lines of kernel and console are not written any more; they are still kept in memory.
const TALK_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// From this size on nothing is written any more.
const BYTES_MAX: u64 = 2 * TALK_BYTES_MAX;

/// The longest line, in bytes: an entry holds a few lines of a kernel, which may be escaped.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The file, held by one desk process.
#[derive(Debug)]
pub struct WitnessFile {
    file: File,
    path: PathBuf,
    bytes: u64,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// Another process of this desk keeps it.
    #[error("{} is kept by another `fleet attach`", .0.display())]
    Held(PathBuf),
    /// An effect failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl WitnessFile {
    /// The file of `run` under the board's directory `results`, with what is in it told to `witness`.
    ///
    /// # Errors
    /// If another process keeps it, or it cannot be made or read.
    pub fn open(results: &Path, run: &str, witness: &mut Witness) -> Result<Self, WitnessError> {
        let dir = results.join(DIR);
        make_dir_durably(&dir)?;
        let path = dir.join(format!("{run}{SUFFIX}"));
        let file = at("open", &path, OpenOptions::new().read(true).append(true).create(true).open(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(WitnessError::Held(path)),
            Err(TryLockError::Error(error)) => return at("lock", &path, Err(error)).map_err(WitnessError::Machine),
        }
        sync_dir(&dir)?;
        let (bytes, is_torn) = at("read", &path, read_back(&file, witness))?;
        let mut opened = Self { file, path, bytes };
        if is_torn {
            // A line that was cut off by a death must not swallow the next.
            opened.put(b"\n")?;
        }
        Ok(opened)
    }

    /// The run whose file was written last, for a desk that is begun again while the board is silent.
    pub fn last_run(results: &Path) -> Option<String> {
        let entries = fs::read_dir(results.join(DIR)).ok()?.flatten();
        let last =
            entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.file_name()))).max()?;
        last.1.to_str()?.strip_suffix(SUFFIX).map(str::to_owned)
    }

    /// The boot that was last heard by whoever followed the board from here, or follows it now.
    pub fn last_boot(results: &Path) -> Option<BootId> {
        let path = results.join(DIR).join(format!("{}{SUFFIX}", Self::last_run(results)?));
        let mut witness = Witness::default();
        read_back(&File::open(path).ok()?, &mut witness).ok()?;
        witness.boot().cloned()
    }

    /// Adds `entry`.
    ///
    /// # Errors
    /// If it cannot be written or synced.
    pub fn add(&mut self, entry: &Entry) -> Result<(), MachineError> {
        let is_talk = matches!(entry.saw, Saw::Kernel { .. } | Saw::Serial { .. } | Saw::SerialEnded { .. });
        if self.bytes > if is_talk { TALK_BYTES_MAX } else { BYTES_MAX } {
            return Ok(());
        }
        let mut line = serde_json::to_vec(entry).expect("an entry has string keys");
        line.push(b'\n');
        self.put(&line)?;
        if is_talk { Ok(()) } else { at("sync", &self.path, self.file.sync_data()) }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), MachineError> {
        at("write", &self.path, self.file.write_all(bytes))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Tells what is in `file` to `witness`; its size, and whether its last line has no end. A line that is no entry is passed
/// over: what was torn by a death, or written by a later version.
fn read_back(file: &File, witness: &mut Witness) -> io::Result<(u64, bool)> {
    let mut reader = BufReader::new(file).take(BYTES_MAX + LINE_BYTES_MAX);
    let (mut bytes, mut is_torn, mut line) = (0, false, Vec::new());
    loop {
        line.clear();
        let count = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok((bytes, is_torn));
        }
        bytes += count as u64;
        is_torn = !line.ends_with(b"\n");
        if let Ok(entry) = serde_json::from_slice::<Entry>(&line) {
            witness.apply(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perform::host;

    fn entry(saw: Saw) -> Entry {
        Entry { wall: host::now().wall, saw }
    }

    fn heard(n: u32) -> Saw {
        let boot = format!("{n:08x}-9e6f-4d8e-b4cd-0d9449a8b993").parse().unwrap();
        Saw::Heard { boot, open: None, limit_ms: None }
    }

    #[test]
    fn who_begins_again_knows_what_was_written_and_a_torn_line_takes_nothing_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut witness = Witness::new("desk");
        let mut file = WitnessFile::open(dir.path(), "a-001", &mut witness).unwrap();
        assert!(matches!(WitnessFile::open(dir.path(), "a-001", &mut Witness::new("x")), Err(WitnessError::Held(_))));
        file.add(&entry(heard(1))).unwrap();
        drop(file);
        let path = dir.path().join("witness/a-001.jsonl");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"wall\":").unwrap();
        let mut again = Witness::new("desk");
        let mut file = WitnessFile::open(dir.path(), "a-001", &mut again).unwrap();
        file.add(&entry(heard(2))).unwrap();
        drop(file);
        let mut third = Witness::new("desk");
        drop(WitnessFile::open(dir.path(), "a-001", &mut third).unwrap());
        assert_eq!(third.pending().len(), 1, "{third:?}");
        assert_eq!(WitnessFile::last_run(dir.path()).as_deref(), Some("a-001"));
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = WitnessFile::open(dir.path(), "a-001", &mut Witness::new("desk")).unwrap();
        let lines = vec!["x".repeat(400); 100];
        let talk = entry(Saw::Kernel { lines });
        (0..400).for_each(|_| file.add(&talk).unwrap());
        let size = |dir: &Path| fs::metadata(dir.join("witness/a-001.jsonl")).unwrap().len();
        assert!(size(dir.path()) < TALK_BYTES_MAX + LINE_BYTES_MAX);
        let before = size(dir.path());
        file.add(&entry(heard(1))).unwrap();
        assert!(size(dir.path()) > before, "what matters is still written");
    }
}
