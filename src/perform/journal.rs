//! The journal as it is written and read back: sequence numbers, durability tokens, torn ends, damage.

use std::io::{self, BufRead, BufReader, Read, Seek};

use regex::bytes::Regex;

use crate::decide::outside::Hindsight;
use crate::model::ids::BootId;
use crate::model::journal::{Event, LINE_BYTES_MAX, LineError, Record, VERSION, decode, encode};
use crate::perform::machine::{Machine, MachineError};

/// How much of a journal is read at once by those who only read.
const READ_BYTES: usize = 256 * 1024;

/// A value whose record is on the disk. Only the journal can make one, after the sync returned.
#[derive(Debug)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// Pretends that `value` is durable, for tests that start children without a journal. It is not compiled into
    /// optimised builds: there the journal is the only way to a token.
    #[cfg(any(test, debug_assertions))]
    #[doc(hidden)]
    pub fn pretended_for_tests(value: T) -> Self {
        Self(value)
    }

    /// What is durable.
    pub fn get(&self) -> &T {
        &self.0
    }
}

/// Writes records of one boot.
#[derive(Debug)]
pub struct Writer {
    seq: u64,
    here: BootId,
}

impl Writer {
    /// A writer that goes on after record `seq`, in boot `here`.
    pub fn new(seq: u64, here: BootId) -> Self {
        Self { seq, here }
    }

    /// The boot in which it writes.
    pub fn here(&self) -> &BootId {
        &self.here
    }

    /// Appends `event`. It may be lost until the next sync.
    ///
    /// # Errors
    /// If the write fails: the run must stop.
    pub fn append(&mut self, machine: &mut dyn Machine, event: Event) -> Result<Record, MachineError> {
        let now = machine.now();
        let record = Record {
            version: VERSION,
            seq: self.seq + 1,
            boot: self.here.clone(),
            uptime_ms: now.uptime_ms,
            wall: now.wall,
            event,
        };
        let line = encode(&record);
        if line.len() > LINE_BYTES_MAX {
            let what = format!("write a record of {} bytes ({})", line.len(), record.event.name());
            return Err(MachineError::new(what, io::ErrorKind::FileTooLarge.into()));
        }
        machine.append(&line)?;
        self.seq += 1;
        Ok(record)
    }

    /// Makes everything appended durable, and with it `value`, whose record was appended before.
    ///
    /// # Errors
    /// If the sync fails: the run must stop.
    pub fn commit<T>(&mut self, machine: &mut dyn Machine, value: T) -> Result<Durable<T>, MachineError> {
        #[cfg(test)]
        if crate::model::seeded::is_on(crate::model::seeded::Bug::MissingSync) {
            return Ok(Durable(value));
        }
        machine.sync()?;
        Ok(Durable(value))
    }
}

/// Why a journal cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system's words.
    #[error("cannot read the journal: {0}")]
    Io(#[from] io::Error),
    /// A line that is not the last one is bad.
    #[error("journal damaged at line {line} (byte {offset}): {error}")]
    Damaged {
        /// Line number, from 1.
        line: u64,
        /// Byte at which it begins.
        offset: u64,
        /// What is wrong with it.
        error: LineError,
    },
}

/// What follows the last good record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// Bytes of good records.
    pub good: u64,
    /// Bytes of a record that was never finished, to be kept as evidence and cut off.
    pub torn: Vec<u8>,
}

/// Reads every record in order, one at a time, and gives it to `each`.
///
/// # Errors
/// If the bytes cannot be read, or a line that is not the last one is bad. What `each` refuses ends the reading.
pub fn read_records<E: From<ReadError>>(
    mut journal: impl BufRead,
    mut each: impl FnMut(Record) -> Result<(), E>,
) -> Result<Tail, E> {
    let mut tail = Tail { good: 0, torn: Vec::new() };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        journal.by_ref().take(limit).read_until(b'\n', &mut line).map_err(ReadError::Io)?;
        if line.is_empty() {
            break;
        }
        let decoded = match line.strip_suffix(b"\n") {
            Some(text) => decode(text, number),
            None => Err(LineError::NoChecksum),
        };
        match decoded {
            Ok(record) => each(record)?,
            Err(error) => {
                tail.torn = torn_end(line, &mut journal, &error).map_err(|source| match source {
                    TornError::Io(source) => ReadError::Io(source),
                    TornError::NotTheEnd => ReadError::Damaged { line: number, offset: tail.good, error },
                })?;
                break;
            }
        }
        tail.good += line.len() as u64;
    }
    Ok(tail)
}

/// Reads every record, each where it belongs: what was seen from outside stands before the verdict that it is about, and
/// a verdict that was corrected is the corrected one (see [`Hindsight`]). The journal is read once more only if anything
/// of the kind is in it.
///
/// # Errors
/// As [`read_records`].
pub fn read_in_hindsight<R: Read, O, E>(
    open: impl Fn() -> Result<R, O>,
    mut each: impl FnMut(Record) -> Result<(), E>,
) -> Result<(), E>
where
    E: From<ReadError> + From<O>,
{
    let mut hindsight = Hindsight::default();
    if has_mark(open()?).map_err(ReadError::Io)? {
        read_records(BufReader::new(open()?), |record| {
            hindsight.note(&record);
            Ok::<(), E>(())
        })?;
    }
    let journal = BufReader::with_capacity(READ_BYTES, open()?);
    read_records(journal, |record| hindsight.tell(record, &mut each)).map(drop)
}

/// Whether a line of `journal` may hold what was seen from outside.
fn has_mark(mut journal: impl Read) -> io::Result<bool> {
    let mark = Regex::new(&regex::escape(Hindsight::MARK)).expect("an escaped text is a pattern");
    let mut bytes = vec![0; READ_BYTES];
    let mut kept = 0;
    loop {
        let filled = match journal.read(&mut bytes[kept..]) {
            Ok(0) => return Ok(false),
            Ok(read) => kept + read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if mark.is_match(&bytes[..filled]) {
            return Ok(true);
        }
        // It may begin here and end in what is read next.
        kept = filled.min(Hindsight::MARK.len() - 1);
        bytes.copy_within(filled - kept..filled, 0);
    }
}

/// The first record, if there is one.
///
/// # Errors
/// If the bytes cannot be read, or the first line is bad and not the last.
pub fn first_record(journal: impl BufRead) -> Result<Option<Record>, ReadError> {
    /// Ends the reading.
    enum Stop {
        Found(Box<Record>),
        Error(ReadError),
    }
    impl From<ReadError> for Stop {
        fn from(error: ReadError) -> Self {
            Stop::Error(error)
        }
    }
    match read_records(journal, |record| Err::<(), _>(Stop::Found(Box::new(record)))) {
        Ok(_) => Ok(None),
        Err(Stop::Found(record)) => Ok(Some(*record)),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// The last whole record, if there is one, read from the end: what is before it is not looked at.
///
/// # Errors
/// If the bytes cannot be read.
pub fn last_record(mut journal: impl Read + Seek) -> io::Result<Option<Record>> {
    let end = journal.seek(io::SeekFrom::End(0))?;
    // The last whole line may be followed by a torn one of any length up to the same limit.
    let from = end.saturating_sub(2 * LINE_BYTES_MAX as u64);
    journal.seek(io::SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    journal.take(end - from).read_to_end(&mut bytes)?;
    let mut lines = bytes.split_inclusive(|b| *b == b'\n').rev().filter_map(|line| line.strip_suffix(b"\n"));
    Ok(lines.find_map(|line| match decode(line, 0) {
        Err(LineError::Sequence { found, .. }) => decode(line, found).ok(),
        Ok(_) | Err(_) => None,
    }))
}

enum TornError {
    Io(io::Error),
    NotTheEnd,
}

/// Everything from a bad line to the end, if it is a torn end: bytes among which no further record begins.
///
/// One group commit may hold several lines, so a torn end may be several bad lines; but a checksum that fits,
/// there or later, means that something else than a lost write happened.
fn torn_end(bad: Vec<u8>, journal: &mut impl BufRead, error: &LineError) -> Result<Vec<u8>, TornError> {
    let fits = |error: &LineError| match error {
        LineError::NoChecksum | LineError::Checksum { .. } => false,
        LineError::Version(_) | LineError::Content(_) | LineError::Sequence { .. } => true,
    };
    if fits(error) {
        return Err(TornError::NotTheEnd);
    }
    let mut torn = bad;
    loop {
        let from = torn.len();
        let limit = LINE_BYTES_MAX as u64 + 1;
        journal.by_ref().take(limit).read_until(b'\n', &mut torn).map_err(TornError::Io)?;
        let line = &torn[from..];
        if line.is_empty() {
            return Ok(torn);
        }
        let is_record = line.strip_suffix(b"\n").is_some_and(|line| match decode(line, 0) {
            Ok(_) => true,
            Err(error) => fits(&error),
        });
        if is_record {
            return Err(TornError::NotTheEnd);
        }
    }
}
