//! One file of sysfs or procfs, kept open and read again and again.
//!
//! A read at offset 0 makes the kernel produce the value anew (kernfs, seq_file and simple attributes alike), so neither
//! an open nor a seek is paid for at each sample.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The most of one file that is looked at, in bytes; NvMap lists each client, the others fit in a page.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The most of a file that holds one value, in bytes.
const VALUE_BYTES_MAX: usize = 64;

/// A file that is opened when it is first there and stays open as long as it can be read.
#[derive(Debug)]
pub(super) struct Attribute {
    path: PathBuf,
    file: Option<File>,
}

impl Attribute {
    /// The file at `path`, whether it is there or not.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// The number in the file; `None` if it is not there, cannot be read now, or holds something else.
    pub(super) fn number<T: FromStr>(&mut self) -> Option<T> {
        let mut bytes = [0; VALUE_BYTES_MAX];
        let count = self.read(&mut bytes).ok()?;
        std::str::from_utf8(&bytes[..count]).ok()?.trim().parse().ok()
    }

    /// The text of the file, in `buffer`; `None` if it is not there or cannot be read now.
    pub(super) fn text<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a str> {
        let mut length = 0;
        // A sequence file gives no more than its own buffer at once.
        while length < buffer.len() {
            match self.read_at(&mut buffer[length..], length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(_) => return None,
            }
        }
        std::str::from_utf8(&buffer[..length]).ok()
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_at(bytes, 0)
    }

    /// A file whose device went away never reads again, so one that fails is closed and opened anew the next time.
    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.file.is_none() {
            self.file = Some(File::open(&self.path)?);
        }
        let Some(file) = &self.file else { return Err(ErrorKind::NotFound.into()) };
        let read = file.read_at(bytes, offset);
        if read.is_err() {
            self.file = None;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_read_anew_each_time_and_may_appear_and_vanish() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cur_freq");
        let mut attribute = Attribute::new(path.clone());
        assert_eq!(attribute.number::<u64>(), None);
        fs::write(&path, "306000000\n").unwrap();
        assert_eq!(attribute.number(), Some(306_000_000_u64));
        fs::write(&path, "1020000000\n").unwrap();
        assert_eq!(attribute.number(), Some(1_020_000_000_u64));
        fs::write(&path, "off\n").unwrap();
        assert_eq!(attribute.number::<u64>(), None);
    }

    #[test]
    fn a_file_that_fails_to_read_is_a_gap() {
        // A directory opens and does not read, as a gated thermal zone does.
        let dir = tempfile::tempdir().unwrap();
        let mut attribute = Attribute::new(dir.path().to_owned());
        assert_eq!(attribute.number::<i64>(), None);
        assert_eq!(attribute.text(&mut [0; 16]), None);
    }

    #[test]
    fn a_text_is_read_whole_up_to_the_buffer() {
        let mut buffer = vec![0; TEXT_BYTES_MAX];
        let mut meminfo = Attribute::new("/proc/meminfo".into());
        for _ in 0..2 {
            let text = meminfo.text(&mut buffer).unwrap();
            assert!(text.starts_with("MemTotal:") && text.ends_with("kB\n"), "{text}");
        }
        assert_eq!(meminfo.text(&mut [0; 8]), Some("MemTotal"));
    }
}
