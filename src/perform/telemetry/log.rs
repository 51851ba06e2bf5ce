//! `telemetry.jsonl`: bounded, and durable as far as the last sync.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::perform::files::create_anew;

/// The newest samples.
pub const NEWEST: &str = "telemetry.jsonl";

/// The samples before them, once the newest fill a file.
pub const EARLIER: &str = "telemetry.earlier.jsonl";

/// The most that a trial's samples take on the disk, in bytes. A line is about 1 KB on an Orin, so at least the last
/// two hours are there; what came before them is in the summary alone.
pub const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The file of one trial. The sampler appends, and the keeper of the journal syncs.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: Arc<File>,
    bytes: u64,
    is_dirty: bool,
    has_new_file: bool,
    error: Option<io::Error>,
}

impl Log {
    /// An empty file in `trial_dir` that takes at most `bytes_max` together with its predecessor.
    pub(super) fn create(trial_dir: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = Arc::new(create_anew(&trial_dir.join(NEWEST))?);
        let state = State { file, bytes: 0, is_dirty: false, has_new_file: true, error: None };
        Ok(Self { dir: trial_dir.to_owned(), bytes_max, state: Mutex::new(state) })
    }

    /// Adds a line. A failing disk is remembered for [`Log::sync`].
    pub(super) fn append(&self, line: &[u8]) {
        let mut state = self.state();
        let written = self.make_room(&mut state, line.len() as u64).and_then(|()| (&*state.file).write_all(line));
        state.bytes += line.len() as u64;
        state.is_dirty = true;
        if let Err(error) = written {
            state.error.get_or_insert(error);
        }
    }

    /// Makes durable what was written, without holding the sampler up meanwhile.
    ///
    /// # Errors
    /// The first error of any write or sync since the last call.
    pub(super) fn sync(&self) -> io::Result<()> {
        let (file, has_new_file) = {
            let mut state = self.state();
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if !std::mem::take(&mut state.is_dirty) {
                return Ok(());
            }
            (Arc::clone(&state.file), std::mem::take(&mut state.has_new_file))
        };
        file.sync_data()?;
        if has_new_file { File::open(&self.dir)?.sync_all() } else { Ok(()) }
    }

    /// Begins a new file if the newest is full: the one before it is then dropped.
    fn make_room(&self, state: &mut State, bytes: u64) -> io::Result<()> {
        if state.bytes + bytes <= self.bytes_max / 2 {
            return Ok(());
        }
        state.file.sync_data()?;
        fs::rename(self.dir.join(NEWEST), self.dir.join(EARLIER))?;
        *state = State {
            file: Arc::new(create_anew(&self.dir.join(NEWEST))?),
            bytes: 0,
            has_new_file: true,
            is_dirty: true,
            error: state.error.take(),
        };
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and a number of bytes is right at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_stay_within_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(dir.path(), 40).unwrap();
        for number in 0..9 {
            log.append(format!("line {number}\n").as_bytes());
            log.sync().unwrap();
        }
        let read = |name| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read(NEWEST), "line 8\n");
        assert_eq!(read(EARLIER), "line 6\nline 7\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_disk_that_takes_nothing_is_reported_at_the_next_sync() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(dir.path(), 8).unwrap();
        drop(dir);
        log.append(b"longer than its half\n");
        assert!(log.sync().is_err());
    }

    #[test]
    fn a_link_that_the_workload_laid_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, dir.path().join(NEWEST)).unwrap();
        let log = Log::create(dir.path(), BYTES_MAX).unwrap();
        log.append(b"{}\n");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }
}
