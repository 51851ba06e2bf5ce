//! What the kernel says now, for whoever follows a run: a few lines at a time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::kmsg::{Kept, drain, open_at_end};
use crate::model::observed::bounded_line;

/// The most lines that are passed on within a window; of more the last ones are, which are nearer to the end.
const LINES_MAX: usize = 24;

/// Between two looks at the log.
const WINDOW: Duration = Duration::from_millis(500);

/// Listens to the kernel's log from the moment it is made.
#[derive(Debug)]
pub struct KernelStream {
    device: Result<File, String>,
    place: PathBuf,
    looked: Instant,
    is_told: bool,
}

impl KernelStream {
    /// The log at `place`, `/dev/kmsg` under the root of the machine.
    pub fn at(place: &Path) -> Self {
        let device = open_at_end(place, false).map_err(|error| error.to_string());
        Self { device, place: place.to_path_buf(), looked: Instant::now(), is_told: false }
    }

    /// Why it cannot be read: once.
    pub fn trouble(&mut self) -> Option<String> {
        let why = self.device.as_ref().err()?;
        (!std::mem::replace(&mut self.is_told, true))
            .then(|| format!("{} is not readable: {why}", self.place.display()))
    }

    /// What was said since the last look, bounded; nothing between looks.
    pub fn poll(&mut self) -> Vec<String> {
        let Ok(device) = &mut self.device else { return Vec::new() };
        if self.looked.elapsed() < WINDOW {
            return Vec::new();
        }
        self.looked = Instant::now();
        let mut kept = Kept::default();
        if let Err(error) = drain(device, &mut kept, |_| {}) {
            self.device = Err(error.to_string());
        }
        let lost = usize::try_from(kept.lost).unwrap_or(usize::MAX);
        let lines = kept.into_lines();
        let skipped = lines.len().saturating_sub(LINES_MAX);
        let mut passed: Vec<String> = lines.iter().skip(skipped).map(|line| bounded_line(line)).collect();
        if let more @ 1.. = skipped.saturating_add(lost) {
            passed.insert(0, format!("({more} lines of the kernel are not passed on)"));
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn new_lines_come_bounded_and_old_ones_do_not() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "6,1,1,-;old").unwrap();
        let mut stream = KernelStream::at(file.path());
        let mut next = || loop {
            let lines = stream.poll();
            if !lines.is_empty() {
                return lines;
            }
        };
        writeln!(file, "6,2,2,-;{}", "new ".repeat(500)).unwrap();
        let lines = next();
        assert!(lines.len() == 1 && lines[0].starts_with("new new") && lines[0].len() <= 400, "{lines:?}");
    }

    #[test]
    fn a_log_that_may_not_be_read_is_said_once() {
        let mut stream = KernelStream::at(Path::new("/nonexistent/kmsg"));
        assert!(stream.trouble().is_some_and(|why| why.contains("/nonexistent/kmsg")));
        assert_eq!(stream.trouble(), None);
        assert!(stream.poll().is_empty());
    }
}
