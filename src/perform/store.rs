//! The results directory: where it is, whether it lasts, who holds it, which runs are in it.
//!
//! A run's directory appears with everything but its journal's first record already durable in it, by one rename.
//! Nothing here deletes anything.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::ids::RunId;
use crate::perform::bundle::Unpacked;
use crate::perform::files::{at, make_dir_durably, sync_dir, write_durably};
use crate::perform::machine::MachineError;

/// The file whose lock a writer of a results directory holds.
const LOCK: &str = ".lock";

/// Names of the files of a run.
pub mod names {
    /// The matrix as it was given.
    pub const MATRIX: &str = "matrix.toml";
    /// The plan.
    pub const PLAN: &str = "plan.json";
    /// The machine at the beginning.
    pub const MACHINE: &str = "machine.json";
    /// The journal.
    pub const JOURNAL: &str = "journal.jsonl";
    /// A directory a trial.
    pub const TRIALS: &str = "trials";
    /// A directory a boot.
    pub const EVIDENCE: &str = "evidence";
    /// What must be kept to put settings of the machine back.
    pub const SETTINGS: &str = "settings";
    /// A trial's result.
    pub const RESULT: &str = "result.json";
    /// What was done to the machine on purpose, a line before each deed.
    pub const INJECTED: &str = "injected.jsonl";
    /// The output of what ran before a trial, in the trial's directory.
    pub const PRELUDE: &str = "prelude";
    /// The file that fills the page cache while a trial runs.
    pub const PREFILL: &str = "prefill";
    /// The output of what was asked of a trial's server, in the trial's directory.
    pub const REQUESTS: &str = "requests";
    /// Which runs correct this one, one id a line; a person writes it, reports read it.
    pub const CORRECTED_BY: &str = "corrected-by";
    /// A file that stops everything while it is there (results directory) or once (run directory).
    pub const STOP: &str = "STOP";
}

/// A results directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The results path is something else than a directory.
    #[error("results directory {}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// Another process holds a lock.
    #[error("{what} is held by another jetfault ({}{holder})", path.display())]
    Held {
        /// What it holds.
        what: &'static str,
        /// The lock file.
        path: PathBuf,
        /// Who holds it, after a semicolon; empty if nobody knows.
        holder: String,
    },
    /// An effect failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// Whether `error` comes from a full disk, a quota or a read-only file system, in words for a hint.
pub fn disk_trouble(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull => Some("the disk is full: free some space"),
        io::ErrorKind::QuotaExceeded => Some("the disk quota is used up: free some space"),
        io::ErrorKind::ReadOnlyFilesystem => Some("the file system is mounted read-only: the disk may be failing"),
        io::ErrorKind::PermissionDenied => Some("the directory may not be written by this user"),
        _ => None,
    }
}

/// A directory that holds runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultsDir {
    path: PathBuf,
}

impl ResultsDir {
    /// The directory at `path` as it is, for readers.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The directory at `path`, made if it is not there, as an absolute path.
    ///
    /// # Errors
    /// If it is something else, or cannot be made.
    pub fn make(path: &Path) -> Result<Self, StoreError> {
        if path.exists() && !path.is_dir() {
            return Err(StoreError::NotADirectory(path.to_path_buf()));
        }
        let absolute = at("find", path, std::path::absolute(path))?;
        make_dir_durably(&absolute)?;
        Ok(Self { path: at("resolve", &absolute, absolute.canonicalize())? })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a file `STOP` forbids everything here.
    pub fn is_stopped(&self) -> bool {
        self.path.join(names::STOP).exists()
    }

    /// Holds the directory for one writer.
    ///
    /// # Errors
    /// If another process holds it, or the lock file cannot be made.
    pub fn lock(&self) -> Result<File, StoreError> {
        lock("the results directory", &self.path.join(LOCK), &self.path)
    }

    /// Whether a writer holds it, as far as `/proc/locks` tells. Trying the lock would tell too, and could make a writer
    /// that starts at that moment give up.
    pub fn is_held(&self) -> Option<bool> {
        let meta = match fs::metadata(self.path.join(LOCK)) {
            Ok(meta) => meta,
            Err(error) => return (error.kind() == io::ErrorKind::NotFound).then_some(false),
        };
        let locks = fs::read_to_string("/proc/locks").ok()?;
        Some(holds_flock(&locks, meta.dev(), meta.ino()))
    }

    /// The runs in it, by name and number.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn runs(&self) -> Result<Vec<RunDir>, MachineError> {
        let mut runs = Vec::new();
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(runs),
            entries => at("read the directory", &self.path, entries)?,
        };
        for entry in entries {
            let entry = at("read the directory", &self.path, entry)?;
            let id = entry.file_name().to_str().and_then(|name| name.parse::<RunId>().ok());
            if let Some(id) = id
                && entry.path().join(names::PLAN).is_file()
            {
                runs.push(RunDir { id, path: entry.path(), unpacked: None });
            }
        }
        runs.sort_by(|a, b| a.id.parts().cmp(&b.id.parts()));
        Ok(runs)
    }

    /// The highest number of `name` that is taken, 0 if none is: also by what is no run, or no longer one.
    fn last_number(&self, name: &str) -> Result<u32, MachineError> {
        let mut last = 0;
        for entry in at("read the directory", &self.path, fs::read_dir(&self.path))? {
            let entry = at("read the directory", &self.path, entry)?;
            let id = entry.file_name().to_str().and_then(|name| name.parse::<RunId>().ok());
            if let Some(id) = id.filter(|id| id.parts().0 == name) {
                last = last.max(id.parts().1);
            }
        }
        Ok(last)
    }

    /// Makes the directory of a new run with its first files, all durable, under the next free number of `name`.
    ///
    /// # Errors
    /// If anything cannot be written; the run is then not there.
    pub fn create_run(&self, name: &str, files: &FirstFiles<'_>) -> Result<RunDir, StoreError> {
        let id = RunId::new(name, self.last_number(name)? + 1)
            .map_err(|error| MachineError::new(format!("name a run: {error}"), io::ErrorKind::InvalidInput.into()))?;
        let path = self.path.join(id.as_str());
        let unfinished = self.path.join(format!(".{id}.unfinished"));
        make_dir_durably(&unfinished)?;
        for (file, bytes) in [
            (names::MATRIX, files.matrix),
            (names::PLAN, files.plan),
            (names::MACHINE, files.machine),
            (names::JOURNAL, b""),
        ] {
            write_durably(&unfinished.join(file), bytes)?;
        }
        for dir in [names::TRIALS, names::EVIDENCE] {
            make_dir_durably(&unfinished.join(dir))?;
        }
        at("rename a directory to", &path, fs::rename(&unfinished, &path))?;
        sync_dir(&self.path)?;
        Ok(RunDir { id, path, unpacked: None })
    }
}

/// What a run's directory holds before its first record.
#[derive(Debug, Clone, Copy)]
pub struct FirstFiles<'a> {
    /// `matrix.toml`.
    pub matrix: &'a [u8],
    /// `plan.json`.
    pub plan: &'a [u8],
    /// `machine.json`.
    pub machine: &'a [u8],
}

/// The directory of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    /// The run.
    pub id: RunId,
    /// Its directory.
    pub path: PathBuf,
    /// What holds the directory, if it was unpacked for reading.
    unpacked: Option<Arc<Unpacked>>,
}

impl RunDir {
    /// The same run, whose directory is there as long as somebody holds `unpacked`.
    pub fn unpacked_in(self, unpacked: Arc<Unpacked>) -> Self {
        Self { unpacked: Some(unpacked), ..self }
    }

    /// Whether it was unpacked from a bundle: nothing may be written to it.
    pub fn is_unpacked(&self) -> bool {
        self.unpacked.is_some()
    }

    /// The run in directory `path`, which is named after it.
    ///
    /// # Errors
    /// If the name is no run id, or no plan is in it.
    pub fn open(path: &Path) -> Result<Self, MachineError> {
        let path = at("open", path, path.canonicalize())?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let id = name.parse().map_err(|error: crate::model::ids::IdError| {
            MachineError::new(format!("open {} as a run", path.display()), io::Error::other(error.to_string()))
        })?;
        let run = Self { id, path, unpacked: None };
        at("open the plan", &run.path.join(names::PLAN), fs::metadata(run.path.join(names::PLAN)))?;
        Ok(run)
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The bytes of one of its files.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, MachineError> {
        at("read", &self.file(name), fs::read(self.file(name)))
    }

    /// The journal, to be read from its beginning.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_journal(&self) -> Result<File, MachineError> {
        let path = self.file(names::JOURNAL);
        at("open the journal", &path, File::open(&path))
    }

    /// Whether a file `STOP` in it asks for a stop after the trial.
    pub fn stop_file(&self) -> PathBuf {
        self.path.join(names::STOP)
    }
}

/// Holds the machine for one run in `results`: two would spoil each other's position in boot.
///
/// # Errors
/// If another process holds it, or no lock file can be made anywhere.
pub fn lock_machine(dirs: &[PathBuf], results: &Path) -> Result<File, StoreError> {
    let mut last = None;
    for dir in dirs {
        match lock("this machine", &dir.join("jetfault.lock"), results) {
            Err(StoreError::Machine(error)) => last = Some(error),
            held_or_ours => return held_or_ours,
        }
    }
    Err(last.unwrap_or_else(|| MachineError::new("lock this machine", io::ErrorKind::NotFound.into())).into())
}

/// The longest text of a lock file that is read.
const HOLDER_BYTES_MAX: u64 = 8 * 1024;

/// Who holds a lock, by what they wrote into its file; nothing if that is not there any more.
fn holder(file: &File) -> String {
    let mut text = String::new();
    if file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).is_err() {
        return String::new();
    }
    let pid = text.strip_prefix("pid ").and_then(|text| text.split(' ').next()?.parse::<u32>().ok());
    match pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
        // Whoever wrote it may be another user, and it goes to a terminal.
        true => format!("; {}", text.trim_end().replace(char::is_control, "?")),
        false => String::new(),
    }
}

fn lock(what: &'static str, path: &Path, results: &Path) -> Result<File, StoreError> {
    // Readable by all, so that another user's run can find it held; the lock is on the file, not on its presence.
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o666).open(path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.exists() => File::open(path),
        file => file,
    };
    let file = at("open the lock", path, file)?;
    match file.try_lock() {
        Ok(()) => {
            // For whoever finds it held; the lock is as good without. The file of another user may not be written.
            let (pid, user) = (std::process::id(), rustix::process::getuid());
            let words = format!("pid {pid} of user {}, results in {}\n", user.as_raw(), results.display());
            let _ = file.set_len(0).and_then(|()| (&file).write_all(words.as_bytes()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            Err(StoreError::Held { what, path: path.to_path_buf(), holder: holder(&file) })
        }
        Err(TryLockError::Error(error)) => Ok(at("lock", path, Err(error))?),
    }
}

/// Whether the lines of `/proc/locks` have a flock on the file `inode` of `device`.
fn holds_flock(locks: &str, device: u64, inode: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    // `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; those who wait have an arrow after the number.
    locks
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .any(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&file.as_str()))
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// If it cannot be read, or is larger: `FileTooLarge`.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_directory_is_seen_without_touching_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let results = ResultsDir::make(dir.path()).unwrap();
        assert_eq!(results.is_held(), Some(false));
        let lock = results.lock().unwrap();
        assert_eq!(results.is_held(), Some(true));
        assert!(matches!(results.lock(), Err(StoreError::Held { .. })));
        drop(lock);
        assert_eq!(results.is_held(), Some(false));
    }

    #[test]
    fn a_run_gets_the_next_number_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let results = ResultsDir::make(&dir.path().join("a/b")).unwrap();
        let files = FirstFiles { matrix: b"m", plan: b"p", machine: b"{}" };
        let ids: Vec<String> =
            ["x", "y", "x"].iter().map(|name| results.create_run(name, &files).unwrap().id.to_string()).collect();
        assert_eq!(ids, ["x-001", "y-001", "x-002"]);
        assert_eq!(results.runs().unwrap().len(), 3);
    }
}
