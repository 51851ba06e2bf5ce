//! The journal of a run that goes on, read as it grows.
//!
//! Takes no lock and changes nothing. A line that is not finished, or was torn by a death and will be cut off by the
//! next start, is looked at again later.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use crate::model::journal::{LINE_BYTES_MAX, LineError, Record, decode};
use crate::perform::journal::ReadError;

/// A reader that remembers how far it came.
#[derive(Debug)]
pub struct Follower {
    journal: BufReader<File>,
    /// Bytes of good records.
    good: u64,
    seq: u64,
}

impl Follower {
    /// Before the first record of `journal`.
    pub fn new(journal: File) -> Self {
        Self { journal: BufReader::new(journal), good: 0, seq: 0 }
    }

    /// The last record that was read.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Gives every record that came since to `each`. Returns what is wrong with the line at which it stands, if that is
    /// whole and no record: the journal is damaged if that stays so while the run goes on.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    pub fn poll(&mut self, mut each: impl FnMut(Record)) -> Result<Option<ReadError>, ReadError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            self.journal.seek(SeekFrom::Start(self.good))?;
            let from = self.good;
            while self.read_line(&mut line)? {
                let text = &line[..line.len() - 1];
                match decode(text, self.seq + 1) {
                    Ok(record) => each(record),
                    Err(error) => return Ok(Some(self.damaged(error))),
                }
                self.good += line.len() as u64;
                self.seq += 1;
                line.clear();
            }
            if line.len() > LINE_BYTES_MAX {
                return Ok(Some(self.damaged(LineError::NoChecksum)));
            }
            // What was appended while the last line was read comes with the next turn.
            if self.good == from {
                return Ok(None);
            }
        }
    }

    /// Reads to the end of a line; whether there is one.
    fn read_line(&mut self, line: &mut Vec<u8>) -> Result<bool, ReadError> {
        let limit = LINE_BYTES_MAX as u64 + 1;
        self.journal.by_ref().take(limit).read_until(b'\n', line)?;
        Ok(line.ends_with(b"\n"))
    }

    fn damaged(&self, error: LineError) -> ReadError {
        ReadError::Damaged { line: self.seq + 1, offset: self.good, error }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;
    use crate::model::ids::BootId;
    use crate::model::journal::{Event, Paused, VERSION, encode};
    use crate::model::units::UptimeMs;
    use crate::perform::host;

    fn line(seq: u64) -> Vec<u8> {
        let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        let event = Event::Paused(Paused { why: "a test".into() });
        encode(&Record { version: VERSION, seq, boot, uptime_ms: UptimeMs(seq), wall: host::now().wall, event })
    }

    fn seqs(follower: &mut Follower) -> Vec<u64> {
        let mut seqs = Vec::new();
        assert!(follower.poll(|record| seqs.push(record.seq)).unwrap().is_none());
        seqs
    }

    #[test]
    fn records_come_once_and_an_unfinished_one_when_it_is_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = OpenOptions::new().append(true).open(file.path()).unwrap();
        let mut follower = Follower::new(File::open(file.path()).unwrap());
        assert!(seqs(&mut follower).is_empty());
        writer.write_all(&line(1)).unwrap();
        let second = line(2);
        writer.write_all(&second[..20]).unwrap();
        assert_eq!(seqs(&mut follower), [1]);
        assert!(seqs(&mut follower).is_empty());
        writer.write_all(&second[20..]).unwrap();
        writer.write_all(&line(3)).unwrap();
        assert_eq!(seqs(&mut follower), [2, 3]);
    }

    #[test]
    fn a_torn_end_that_is_cut_off_is_no_damage() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = OpenOptions::new().append(true).open(file.path()).unwrap();
        let mut follower = Follower::new(File::open(file.path()).unwrap());
        let first = line(1);
        writer.write_all(&first).unwrap();
        writer.write_all(b"\0\0\0\0\n").unwrap();
        let mut count = 0;
        let stuck = follower.poll(|_| count += 1).unwrap();
        assert!(count == 1 && matches!(stuck, Some(ReadError::Damaged { line: 2, .. })), "{stuck:?}");
        writer.set_len(first.len() as u64).unwrap();
        writer.write_all(&line(2)).unwrap();
        assert_eq!(seqs(&mut follower), [2]);
    }
}
