//! The child's output on disk: bounded files that keep the beginning and the end.
//!
//! The first half of the limit goes to `stdout.log` as it comes. What follows goes to two segments of a quarter
//! each, the older of which is dropped when a third begins: the last lines before a death are always in a file
//! and reach the disk with the next sync, not only when the child ends. At the end the segments are put behind the
//! first half with a line between that counts what is missing. After a reset [`assemble_output`] does the same.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::model::outcome::OutputBytes;
use crate::perform::files::{create_anew, open_file};

/// The two streams, as their files are called.
pub(super) const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// One output stream of one trial.
#[derive(Debug)]
pub(super) struct OutputLog {
    dir: PathBuf,
    stream: &'static str,
    head_bytes_max: u64,
    segment_bytes_max: u64,
    head: Option<File>,
    segment: Option<File>,
    /// Stream offsets at which the kept segments begin, oldest first; at most two.
    segment_offsets: Vec<u64>,
    /// Bytes of the stream so far.
    total: u64,
    /// Bytes that a failing disk did not take.
    lost: u64,
    is_dirty: bool,
    has_new_file: bool,
    error: Option<io::Error>,
}

impl OutputLog {
    /// A stream whose file appears with its first byte.
    pub(super) fn new(dir: &Path, stream: &'static str, bytes_max: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            stream,
            head_bytes_max: (bytes_max / 2).max(1),
            segment_bytes_max: (bytes_max / 4).max(1),
            head: None,
            segment: None,
            segment_offsets: Vec::new(),
            total: 0,
            lost: 0,
            is_dirty: false,
            has_new_file: false,
            error: None,
        }
    }

    /// Takes what the child wrote. A failing disk is remembered for [`OutputLog::sync`], and the child goes on.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(self.room().min(bytes.len() as u64) as usize);
            if let Err(error) = self.append(now) {
                self.lost += now.len() as u64;
                self.error.get_or_insert(error);
            }
            self.total += now.len() as u64;
            bytes = later;
        }
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// The first error of any write or sync since the last call.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if std::mem::take(&mut self.is_dirty) {
            for file in [&self.head, &self.segment].into_iter().flatten() {
                file.sync_data()?;
            }
        }
        if std::mem::take(&mut self.has_new_file) {
            File::open(&self.dir)?.sync_all()?;
        }
        Ok(())
    }

    /// Puts the pieces together and tells how much was kept.
    pub(super) fn finish(&mut self) -> OutputBytes {
        if !self.segment_offsets.is_empty() {
            (self.head, self.segment) = (None, None);
            if let Err(error) = assemble(&self.dir, self.stream) {
                self.error.get_or_insert(error);
            }
        }
        let tail_begin = self.segment_offsets.first().copied().unwrap_or(self.total);
        let dropped = tail_begin.saturating_sub(self.head_bytes_max) + self.lost;
        OutputBytes { kept: self.total.saturating_sub(dropped), dropped }
    }

    /// Bytes until the current file is full.
    fn room(&self) -> u64 {
        match self.segment_offsets.last() {
            _ if self.total < self.head_bytes_max => self.head_bytes_max - self.total,
            Some(begin) if self.total - begin < self.segment_bytes_max => self.segment_bytes_max - (self.total - begin),
            Some(_) | None => self.segment_bytes_max,
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.is_dirty = true;
        let file = if self.total < self.head_bytes_max { self.current_head()? } else { self.current_segment()? };
        file.write_all(bytes)
    }

    fn current_head(&mut self) -> io::Result<&mut File> {
        if self.head.is_none() {
            let path = self.dir.join(format!("{}.log", self.stream));
            self.head = Some(create_anew(&path)?);
            self.has_new_file = true;
        }
        self.head.as_mut().ok_or_else(|| io::Error::other("the file was just opened"))
    }

    /// The segment that has room, a new one if the last is full; the one before the last is then dropped.
    fn current_segment(&mut self) -> io::Result<&mut File> {
        let is_full = self.segment_offsets.last().is_none_or(|begin| self.total - begin >= self.segment_bytes_max);
        if is_full {
            if self.segment_offsets.len() == 2 {
                fs::remove_file(segment_path(&self.dir, self.stream, self.segment_offsets.remove(0)))?;
            }
            self.segment = Some(create_anew(&segment_path(&self.dir, self.stream, self.total))?);
            self.segment_offsets.push(self.total);
            self.has_new_file = true;
        }
        self.segment.as_mut().ok_or_else(|| io::Error::other("the segment was just opened"))
    }
}

/// Puts the pieces of a trial's output together that a reset left apart; nothing to do is not an error.
///
/// May be repeated, and may be interrupted at any point.
///
/// # Errors
/// If a file cannot be read or written.
pub fn assemble_output(trial_dir: &Path) -> io::Result<()> {
    STREAMS.into_iter().try_for_each(|stream| assemble(trial_dir, stream))
}

/// A whole new file is made and synced before the segments go, and replaces the first half after they went:
/// whatever is found after an interruption tells which step was the last.
fn assemble(dir: &Path, stream: &str) -> io::Result<()> {
    let (log, whole) = (dir.join(format!("{stream}.log")), dir.join(format!("{stream}.whole")));
    let offsets = segment_offsets(dir, stream)?;
    if let Some(first) = offsets.first() {
        let mut head = open_file(&log)?;
        let head_bytes = head.metadata()?.len();
        let mut file = create_anew(&whole)?;
        io::copy(&mut head, &mut file)?;
        match first.saturating_sub(head_bytes) {
            0 => {}
            dropped => write!(file, "\n[jetfault: {dropped} bytes left out here]\n")?,
        }
        for offset in &offsets {
            io::copy(&mut open_file(&segment_path(dir, stream, *offset))?, &mut file)?;
        }
        file.sync_all()?;
        for offset in &offsets {
            fs::remove_file(segment_path(dir, stream, *offset))?;
        }
    }
    match fs::rename(&whole, &log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The offset is in the name, so that order and loss are known after a reset.
fn segment_path(dir: &Path, stream: &str, offset: u64) -> PathBuf {
    dir.join(format!("{stream}.from-{offset:020}"))
}

fn segment_offsets(dir: &Path, stream: &str) -> io::Result<Vec<u64>> {
    let mut offsets = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let offset: Option<u64> =
            name.to_str().and_then(|name| name.strip_prefix(stream)?.strip_prefix(".from-")?.parse().ok());
        offsets.extend(offset);
    }
    offsets.sort_unstable();
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(limit: u64, chunks: &[&[u8]]) -> (tempfile::TempDir, OutputLog) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = OutputLog::new(dir.path(), "stdout", limit);
        chunks.iter().for_each(|chunk| log.write(chunk));
        (dir, log)
    }

    fn read(dir: &Path) -> String {
        fs::read_to_string(dir.join("stdout.log")).unwrap()
    }

    #[test]
    fn short_output_is_kept_whole() {
        let (dir, mut log) = log_of(16, &[b"abc", b"defgh"]);
        assert_eq!(log.finish(), OutputBytes { kept: 8, dropped: 0 });
        assert_eq!(read(dir.path()), "abcdefgh");
    }

    #[test]
    fn output_just_over_the_first_half_loses_nothing() {
        let (dir, mut log) = log_of(16, &[b"abcdefghijklmnop"]);
        assert_eq!(log.finish(), OutputBytes { kept: 16, dropped: 0 });
        assert_eq!(read(dir.path()), "abcdefghijklmnop");
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let (dir, mut log) = log_of(16, &[b"01234567", b"middle-middle-middle-", b"end"]);
        let bytes = log.finish();
        assert_eq!(bytes.kept + bytes.dropped, 32);
        let text = read(dir.path());
        assert!(text.starts_with("01234567\n[jetfault: 16 bytes left out here]\n") && text.ends_with("end"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_that_the_child_leaves_in_the_way_is_neither_written_through_nor_read() {
        let (dir, mut log) = log_of(16, &[]);
        let other = dir.path().join("other");
        fs::write(&other, "not the child's").unwrap();
        let link = dir.path().join("stdout.log");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        log.write(b"01234567");
        log.write(b"middle-middle-middle-");
        assert_eq!(fs::read_to_string(&other).unwrap(), "not the child's");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        log.finish();
        assert!(log.sync().is_err());
        let copied = fs::read_to_string(dir.path().join("stdout.whole")).unwrap_or_default();
        assert!(!copied.contains("not the child's"), "{copied}");
    }

    #[test]
    fn the_end_is_in_files_before_the_stream_ends() {
        let (dir, mut log) = log_of(16, &[b"01234567", b"middle-middle-middle-", b"end"]);
        log.sync().unwrap();
        drop(log);
        assemble_output(dir.path()).unwrap();
        assert!(read(dir.path()).ends_with("end"));
        let once = read(dir.path());
        assemble_output(dir.path()).unwrap();
        assert_eq!(read(dir.path()), once);
    }

    #[test]
    fn an_assembly_interrupted_at_any_step_is_completed() {
        let (dir, log) = log_of(16, &[b"01234567", b"middle-middle-middle-", b"end"]);
        drop(log);
        // Interrupted while the whole file was written: a torn one stands beside the segments.
        fs::write(dir.path().join("stdout.whole"), "torn").unwrap();
        assemble_output(dir.path()).unwrap();
        let complete = read(dir.path());
        assert!(complete.ends_with("end"));
        // Interrupted after the segments went: only the whole file is new.
        fs::rename(dir.path().join("stdout.log"), dir.path().join("stdout.whole")).unwrap();
        fs::write(dir.path().join("stdout.log"), "01234567").unwrap();
        assemble_output(dir.path()).unwrap();
        assert_eq!(read(dir.path()), complete);
    }

    #[test]
    fn a_disk_that_takes_nothing_is_reported_at_the_next_sync() {
        let mut log = OutputLog::new(Path::new("/nonexistent"), "stdout", 16);
        log.write(b"abc");
        assert!(log.sync().is_err());
        assert_eq!(log.finish(), OutputBytes { kept: 0, dropped: 3 });
    }
}
