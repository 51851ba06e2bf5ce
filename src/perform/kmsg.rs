//! `/dev/kmsg`: a trial's own markers, and what the kernel says between them.
//!
//! The device gives one record a read, from a position that each open file has for itself: what was said before the
//! trial is passed over by position, whether or not the markers may be written. They are for whoever reads the log
//! after a reset. Format: Documentation/ABI/testing/dev-kmsg.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::decide::kernel_log::{begin_marker, end_marker};
use crate::model::evidence::Fact;
use crate::model::ids::TrialId;

/// The most bytes of one record; a shorter buffer is refused (`PRINTK_MESSAGE_MAX`, formerly `CONSOLE_EXT_LOG_MAX`).
const RECORD_BYTES_MAX: usize = 8192;

/// The most records that are taken at once, so that a kernel that never stops talking cannot hold us.
const RECORDS_AT_ONCE_MAX: u32 = 4096;

/// The most lines that are kept of the beginning of a trial, and as many of its end.
const LINES_KEPT_MAX: usize = 1024;

/// Debug level: kept in the log and by the journal, and printed on no console by default, which on a board is a slow
/// serial line.
const MARKER_LEVEL: u32 = 7;

/// The device under the root of the machine.
pub(super) const DEVICE: &str = "dev/kmsg";

/// Listens to the kernel while one trial runs.
#[derive(Debug)]
pub(super) struct Listener {
    device: Fact<File>,
    /// The same open file where it may be read and written: opening it costs more than a trial's other files. Two markers
    /// are far from the rate that the kernel allows each open file, 10 lines in 5 s.
    writer: Fact<File>,
    /// Whether the marker came back: a rate limit drops lines and says nothing (`printk.devkmsg`).
    marker: Fact<bool>,
    trial: TrialId,
    kept: Kept,
}

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Messages of the kernel after the trial's beginning, in their order.
    pub(super) lines: Fact<Vec<String>>,
    /// Whether the trial's marker stands in the kernel's log.
    pub(super) marker: Fact<bool>,
    /// Messages that were lost or dropped between the first and the last that were kept.
    pub(super) lost: u64,
}

impl Listener {
    /// Begins to listen at `path`, and marks the beginning of `trial`.
    pub(super) fn begin(path: &Path, trial: &TrialId) -> Self {
        let (device, writer) = match open_at_end(path, true) {
            Ok(device) => {
                let writer = fact(device.try_clone());
                (Fact::Known(device), writer)
            }
            Err(_) => (fact(open_at_end(path, false)), fact(OpenOptions::new().write(true).open(path))),
        };
        let marker = match &writer {
            Fact::Known(writer) => fact(write_marker(writer, &begin_marker(trial))).and_then(|()| Fact::Known(false)),
            Fact::Absent => Fact::Absent,
            Fact::Denied(why) | Fact::Garbled(why) => Fact::Denied(why.clone()),
        };
        Self { device, writer, marker, trial: trial.clone(), kept: Kept::default() }
    }

    /// Takes what the kernel said meanwhile, before its buffer overruns.
    pub(super) fn listen(&mut self) {
        let Fact::Known(device) = &mut self.device else { return };
        let begin = begin_marker(&self.trial);
        let (kept, marker) = (&mut self.kept, &mut self.marker);
        let heard = drain(device, kept, |own| {
            if own == begin {
                *marker = Fact::Known(true);
            }
        });
        if let Err(error) = heard {
            self.device = Fact::Denied(error.to_string());
        }
    }

    /// Ends the trial: hears the rest, and marks its end.
    pub(super) fn finish(mut self) -> Heard {
        self.listen();
        if let Fact::Known(writer) = &self.writer {
            // The next trial's marker ends this one as well.
            let _ = write_marker(writer, &end_marker(&self.trial));
        }
        let lost = self.kept.lost;
        let lines = self.device.and_then(|_| Fact::Known(self.kept.into_lines()));
        Heard { lines, marker: self.marker, lost }
    }
}

fn fact<T>(result: io::Result<T>) -> Fact<T> {
    match result {
        Ok(value) => Fact::Known(value),
        Err(error) if error.kind() == ErrorKind::NotFound => Fact::Absent,
        Err(error) => Fact::Denied(error.to_string()),
    }
}

pub(super) fn open_at_end(path: &Path, write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut device = options.read(true).write(write).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    device.seek(SeekFrom::End(0))?;
    Ok(device)
}

fn write_marker(mut device: &File, marker: &str) -> io::Result<()> {
    device.write_all(format!("<{MARKER_LEVEL}>{marker}\n").as_bytes())
}

/// Everything that the kernel said in this boot, as far as its buffer holds it, for a look back before the first trial.
///
/// # Errors
/// If the device cannot be opened or read.
pub(super) fn all_lines(path: &Path) -> io::Result<Vec<String>> {
    let mut device = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let mut kept = Kept::default();
    drain(&mut device, &mut kept, |_| {})?;
    Ok(kept.into_lines())
}

/// Reads records until there is none. `own` is told our own markers.
pub(super) fn drain(device: &mut impl Read, kept: &mut Kept, mut own: impl FnMut(&str)) -> io::Result<()> {
    let mut buffer = [0; RECORD_BYTES_MAX];
    for _ in 0..RECORDS_AT_ONCE_MAX {
        match device.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => match message(&String::from_utf8_lossy(&buffer[..count])) {
                Some(Message { facility: 0, text }) => text.lines().for_each(|line| kept.push(line)),
                Some(Message { text, .. }) => own(&text),
                None => kept.lost += 1,
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The buffer overran; the next read is of the oldest record that is left.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => kept.lost += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What one record says, and who says it: facility 0 is the kernel, everything else a process.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    facility: u32,
    text: String,
}

/// The message of `6,339,5140900,-;text`, without the lines of its dictionary, which begin with a space.
fn message(record: &str) -> Option<Message> {
    let (prefix, rest) = record.split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    Some(Message { facility: priority >> 3, text: unescape(rest.split('\n').next()?) })
}

/// Undoes the device's `\x0a` for bytes that are not printable ASCII, a line break within a message among them.
fn unescape(text: &str) -> String {
    let Some((first, rest)) = text.split_once("\\x") else { return text.to_owned() };
    let mut bytes = first.as_bytes().to_vec();
    for part in rest.split("\\x") {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first lines and the last ones.
#[derive(Debug, Default)]
pub(super) struct Kept {
    first: Vec<String>,
    last: std::collections::VecDeque<String>,
    pub(super) lost: u64,
}

impl Kept {
    fn push(&mut self, line: &str) {
        if self.first.len() < LINES_KEPT_MAX {
            return self.first.push(line.to_owned());
        }
        if self.last.len() == LINES_KEPT_MAX {
            self.last.pop_front();
            self.lost += 1;
        }
        self.last.push_back(line.to_owned());
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.first.into_iter().chain(self.last).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A device that gives what it is made of, then nothing for now.
    struct Device(VecDeque<io::Result<&'static str>>);

    impl Read for Device {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let record = self.0.pop_front().unwrap_or(Err(ErrorKind::WouldBlock.into()))?;
            buffer[..record.len()].copy_from_slice(record.as_bytes());
            Ok(record.len())
        }
    }

    fn heard(records: Vec<io::Result<&'static str>>) -> (io::Result<()>, Kept, Vec<String>) {
        let (mut kept, mut own) = (Kept::default(), Vec::new());
        let result = drain(&mut Device(records.into()), &mut kept, |text| own.push(text.to_owned()));
        (result, kept, own)
    }

    #[test]
    fn the_kernels_messages_are_told_from_those_of_processes() {
        let (result, kept, own) = heard(vec![
            Ok("3,1201,81234567,-;Out of memory: Killed process 1851 (python3)\n"),
            Ok("15,1202,81234568,-;jetfault trial=c-0123456789abcdef-r001-a1 begin\n"),
            Ok("6,1203,81234569,-,caller=T1;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=+usb:1-1\n"),
            Ok("30,1204,81234570,-;systemd[1]: python3: segfault at 0\n"),
        ]);
        assert!(result.is_ok());
        assert_eq!(kept.into_lines(), ["Out of memory: Killed process 1851 (python3)", "usb 1-1: new device"]);
        assert_eq!(own, ["jetfault trial=c-0123456789abcdef-r001-a1 begin", "systemd[1]: python3: segfault at 0"]);
    }

    #[test]
    fn what_overran_is_counted_and_what_follows_is_heard() {
        let overrun = || Err(io::Error::from(Errno::PIPE));
        let (result, kept, _) = heard(vec![overrun(), Ok("6,9,1,-;after\n"), Ok("no record"), overrun()]);
        assert!(result.is_ok());
        assert_eq!((kept.lost, kept.into_lines()), (3, vec!["after".to_owned()]));
    }

    #[test]
    fn a_device_that_fails_is_an_error_and_one_that_never_stops_is_left() {
        assert!(heard(vec![Err(Errno::IO.into())]).0.is_err());
        let endless = (0..=RECORDS_AT_ONCE_MAX).map(|_| Ok("6,1,1,-;again\n")).collect();
        let (result, kept, _) = heard(endless);
        assert!(result.is_ok());
        assert_eq!(kept.lost, u64::from(RECORDS_AT_ONCE_MAX) - 2 * LINES_KEPT_MAX as u64);
        assert_eq!(kept.into_lines().len(), 2 * LINES_KEPT_MAX);
    }

    #[test]
    fn bytes_that_were_escaped_are_themselves_again() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a\\x0ab", "a\nb"),
            ("gr\\xc3\\xbcn \\x5cx41", "gr\u{fc}n \\x41"),
            ("torn \\x4", "torn \\x4"),
        ] {
            assert_eq!(unescape(text), expected);
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_absent_and_one_that_may_not_be_read_is_denied() {
        let trial: TrialId = "c-0123456789abcdef-r001-a1".parse().unwrap();
        let heard = Listener::begin(Path::new("/nonexistent/kmsg"), &trial).finish();
        assert_eq!(heard, Heard { lines: Fact::Absent, marker: Fact::Absent, lost: 0 });
        // A directory can be opened neither for writing nor read as a device.
        let heard = Listener::begin(Path::new("/proc"), &trial).finish();
        assert!(matches!(heard, Heard { lines: Fact::Denied(_), marker: Fact::Denied(_), .. }), "{heard:?}");
    }

    #[test]
    fn a_marker_that_was_written_is_heard() {
        let trial: TrialId = "c-0123456789abcdef-r001-a1".parse().unwrap();
        let listener = Listener::begin(&Path::new("/").join(DEVICE), &trial);
        let may = (listener.device.known().is_some(), listener.marker.known().is_some());
        let heard = listener.finish();
        match may {
            // Root outside a container.
            (true, true) => assert_eq!(heard.marker, Fact::Known(true)),
            (_, false) => assert!(matches!(heard.marker, Fact::Denied(_) | Fact::Absent), "{heard:?}"),
            (false, true) => assert_eq!(heard.marker, Fact::Known(false)),
        }
        assert_eq!(heard.lines.known().is_some(), may.0);
    }
}
