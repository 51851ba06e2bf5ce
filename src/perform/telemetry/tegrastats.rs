//! NVIDIA's own sampler as a source, for a kernel whose sysfs tells neither temperatures nor power.

use std::io::{ErrorKind, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::decide::tegrastats;
use crate::model::telemetry::PERIOD_MS;
use crate::perform::host::find_program;

/// The longest line that is waited for, in bytes; real ones are below 1 KB.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// How long a line counts as the present.
const FRESH: Duration = Duration::from_secs(2);

/// A running tegrastats. It ends with us: its next line meets a closed pipe.
#[derive(Debug)]
pub(super) struct Tegrastats {
    child: Child,
    stdout: ChildStdout,
    unfinished: Vec<u8>,
    newest: Option<(Instant, tegrastats::Tegrastats)>,
}

impl Tegrastats {
    /// Starts it at our own period; `None` if it is not there.
    pub(super) fn start() -> Option<Self> {
        Self::start_as("tegrastats", &["--interval", &PERIOD_MS.to_string()])
    }

    fn start_as(program: &str, args: &[&str]) -> Option<Self> {
        let mut command = Command::new(find_program(program)?);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let stdout = child.stdout.take()?;
        let flags = rustix::fs::fcntl_getfl(&stdout).ok()?;
        rustix::fs::fcntl_setfl(&stdout, flags | rustix::fs::OFlags::NONBLOCK).ok()?;
        Some(Self { child, stdout, unfinished: Vec::new(), newest: None })
    }

    /// The last whole line, if it is fresh.
    pub(super) fn newest(&mut self) -> Option<&tegrastats::Tegrastats> {
        let mut bytes = [0; 4096];
        loop {
            match self.stdout.read(&mut bytes) {
                Ok(0) => {
                    self.newest = None;
                    break;
                }
                Ok(count) => self.take(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.newest.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, stats)| stats)
    }

    fn take(&mut self, bytes: &[u8]) {
        self.unfinished.extend_from_slice(bytes);
        if let Some(end) = self.unfinished.iter().rposition(|byte| *byte == b'\n') {
            let whole: Vec<u8> = self.unfinished.drain(..=end).collect();
            let last = whole.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let stats = tegrastats::parse(&String::from_utf8_lossy(last));
            self.newest = stats.map(|stats| (Instant::now(), stats)).or(self.newest.take());
        }
        if self.unfinished.len() > LINE_BYTES_MAX {
            self.unfinished.clear();
        }
    }
}

impl Drop for Tegrastats {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for, so that it leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_counts_and_an_end_leaves_nothing() {
        let script = "printf 'tj@40C\\ntj@41.5C\\ntj@4'; sleep 0.2; printf '2C\\n'; sleep 0.2";
        let mut stats = Tegrastats::start_as("/bin/sh", &["-c", script]).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let mut seen = vec![None];
        while Instant::now() < until {
            let now = stats.newest().map(|stats| stats.temp_c["tj"]);
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            if seen.len() > 1 && now.is_none() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(seen, [None, Some(Some(41.5)), Some(Some(42.0)), None]);
    }

    #[test]
    fn one_that_is_not_there_is_no_source() {
        assert!(Tegrastats::start_as("/nonexistent/tegrastats", &[]).is_none());
    }
}
