//! What desks saw of this machine, on its way into a run's journal.
//!
//! The journal has one writer. Whoever else has something to say puts it here, whole and durable or not at all, named
//! by its content; whoever holds the journal next takes it in and then removes it. A death in between leaves it here,
//! and the same thing said twice is one file and one record.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::ids::BootId;
use crate::model::observed::{OBSERVED_BYTES_MAX, Observed};
use crate::perform::files::{at, make_dir_durably, open_file, sync_dir, write_durably};
use crate::perform::machine::MachineError;
use crate::perform::store::RunDir;

/// Its directory in the run's.
const DIR: &str = "observed";

/// The file in it that says which boot is being watched.
const WATCHED: &str = "watched.json";

/// What the others are called, after their digest.
const SUFFIX: &str = ".json";

/// The most that waits: nobody has that much to say before a journal is held again.
const WAITING_MAX: usize = 256;

/// Who follows this machine, and in which boot of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Watched {
    witness: String,
    boot: BootId,
}

/// The spool of one run.
#[derive(Debug, Clone)]
pub struct Spool {
    dir: PathBuf,
}

impl Spool {
    /// That of `run`.
    pub fn of(run: &RunDir) -> Self {
        Self { dir: run.file(DIR) }
    }

    /// Keeps `observed`, durably, until somebody takes it in.
    ///
    /// # Errors
    /// If it cannot be written, or too much waits already.
    pub fn deposit(&self, observed: &Observed) -> Result<(), MachineError> {
        make_dir_durably(&self.dir)?;
        let path = self.path_of(observed);
        if !path.exists() && self.names()?.len() >= WAITING_MAX {
            let what = format!("keep what was seen in {}: {WAITING_MAX} files wait there", self.dir.display());
            return Err(MachineError::new(what, io::ErrorKind::QuotaExceeded.into()));
        }
        let json = serde_json::to_vec(observed).expect("an observation has string keys");
        write_durably(&path, &json)
    }

    /// What waits, in the order of its names; what is no observation is left where it is, and named.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn waiting(&self) -> Result<Vec<Observed>, MachineError> {
        let mut waiting = Vec::new();
        for name in self.names()?.into_iter().take(WAITING_MAX) {
            let path = self.dir.join(name);
            match read(&path) {
                Ok(observed) => waiting.push(observed),
                Err(error) => tracing::warn!("{} is left out: {error}", path.display()),
            }
        }
        Ok(waiting)
    }

    /// `observed` is in the journal, durably.
    ///
    /// # Errors
    /// If its file cannot be removed.
    pub fn taken(&self, observed: &Observed) -> Result<(), MachineError> {
        let path = self.path_of(observed);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => at("remove", &path, Err(error)),
            _ => sync_dir(&self.dir),
        }
    }

    /// `witness` follows this machine in `boot`, and will have something to say if that ends.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn watch(&self, witness: &str, boot: &BootId) -> Result<(), MachineError> {
        make_dir_durably(&self.dir)?;
        let watched = Watched { witness: witness.to_owned(), boot: boot.clone() };
        let json = serde_json::to_vec(&watched).expect("it has string keys");
        write_durably(&self.dir.join(WATCHED), &json)
    }

    /// Nobody follows any more.
    pub fn unwatch(&self) {
        // It may be gone; one that stays costs the next start a short wait.
        let _ = fs::remove_file(self.dir.join(WATCHED));
    }

    /// Who watched when `boot` ended, if somebody did.
    pub fn watcher_of(&self, boot: &BootId) -> Option<String> {
        let mut json = Vec::new();
        open_file(&self.dir.join(WATCHED)).ok()?.take(OBSERVED_BYTES_MAX).read_to_end(&mut json).ok()?;
        let watched: Watched = serde_json::from_slice(&json).ok()?;
        (watched.boot == *boot).then_some(watched.witness)
    }

    fn path_of(&self, observed: &Observed) -> PathBuf {
        self.dir.join(format!("{}{SUFFIX}", observed.id().as_str()))
    }

    fn names(&self) -> Result<Vec<String>, MachineError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => at("read the directory", &self.dir, entries)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = at("read the directory", &self.dir, entry)?.file_name();
            names.extend(name.into_string().ok().filter(|name| name.ends_with(SUFFIX) && name != WATCHED));
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// The observation in the file at `path`; it is what its name says, or it is none.
fn read(path: &Path) -> io::Result<Observed> {
    let mut json = Vec::new();
    open_file(path)?.take(OBSERVED_BYTES_MAX + 1).read_to_end(&mut json)?;
    let observed = parse(&json).map_err(io::Error::other)?;
    let is_named = path.file_stem().is_some_and(|stem| stem == observed.id().as_str());
    if is_named { Ok(observed) } else { Err(io::Error::other("its name is not its digest")) }
}

/// The observation that `json` holds, bounded.
///
/// # Errors
/// In words, if it is none.
pub fn parse(json: &[u8]) -> Result<Observed, String> {
    if json.len() as u64 > OBSERVED_BYTES_MAX {
        return Err(format!("more than {OBSERVED_BYTES_MAX} bytes"));
    }
    let observed: Observed = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    Ok(observed.bounded())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool { dir: dir.path().join(DIR) };
        (dir, spool)
    }

    #[test]
    fn what_is_said_twice_waits_once_and_goes_when_it_was_taken() {
        let (_dir, spool) = spool();
        let (one, other) = (Observed::new("desk", "one"), Observed::new("desk", "other"));
        assert!(spool.waiting().unwrap().is_empty());
        for observed in [&one, &other, &one] {
            spool.deposit(observed).unwrap();
        }
        assert_eq!(spool.waiting().unwrap().len(), 2);
        spool.taken(&one).unwrap();
        spool.taken(&one).unwrap();
        assert_eq!(spool.waiting().unwrap(), [other]);
    }

    #[test]
    fn what_is_no_observation_is_left_out_and_too_much_is_refused() {
        let (dir, spool) = spool();
        spool.deposit(&Observed::new("desk", "seen")).unwrap();
        let place = dir.path().join(DIR);
        fs::write(place.join("garbage.json"), b"{").unwrap();
        fs::write(place.join("another.json"), br#"{"witness":"w","what":"x"}"#).unwrap();
        fs::write(place.join("huge.json"), vec![b' '; OBSERVED_BYTES_MAX as usize + 10]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place.join("link.json")).unwrap();
        assert_eq!(spool.waiting().unwrap(), [Observed::new("desk", "seen")]);
        for n in 0..WAITING_MAX {
            let _ = spool.deposit(&Observed::new("desk", n.to_string()));
        }
        let error = spool.deposit(&Observed::new("desk", "one more")).unwrap_err();
        assert!(error.to_string().contains("files wait there"), "{error}");
        spool.deposit(&Observed::new("desk", "seen")).unwrap();
    }

    #[test]
    fn a_boot_is_watched_until_it_is_not() {
        let (_dir, spool) = spool();
        let boot: BootId = "00000001-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        let next: BootId = "00000002-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        assert_eq!(spool.watcher_of(&boot), None);
        spool.watch("desk", &boot).unwrap();
        assert_eq!(spool.watcher_of(&boot).as_deref(), Some("desk"));
        assert_eq!(spool.watcher_of(&next), None);
        assert!(spool.waiting().unwrap().is_empty());
        spool.unwatch();
        assert_eq!(spool.watcher_of(&boot), None);
    }
}
