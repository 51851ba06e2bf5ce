//! Runs copied from a board to a desk: only what the desk does not have, each file verified by its digest.
//!
//! The desk sends what it has, a JSON object a line; the board answers with what differs, a header a file and its bytes.
//! Neither trusts the other: paths stay within the results directory, links are not followed, sizes have limits. The
//! board changes nothing; the desk deletes nothing.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use rustix::fs::syncfs;
use serde::{Deserialize, Serialize};

use crate::model::ids::{ContentDigest, RunId};
use crate::perform::files::{create_anew, open_file};
use crate::perform::store::names;

/// The name under which the binary sends runs.
pub const SEND_SUBCOMMAND: &str = "__send";

/// The deepest directory below a run that is looked at.
const DEPTH_MAX: u32 = 16;

/// The longest path below the results directory, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// The longest line of either side, in bytes.
const LINE_BYTES_MAX: u64 = 8 * 1024;

/// The most files of all runs of a board.
const FILES_MAX: usize = 4_000_000;

/// What a file that is not whole yet is called.
const UNFINISHED_SUFFIX: &str = ".unfinished";

/// A transfer that ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The system's words, with the place.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's words.
        source: io::Error,
    },
    /// The other side said something else than agreed on.
    #[error("the other side does not speak as it should: {0}")]
    Speech(String),
    /// Bytes that are not those that were announced.
    #[error("{0} did not arrive as it was sent: its digest differs")]
    Digest(String),
    /// The connection ended.
    #[error("the connection ended in the middle")]
    CutOff,
}

fn at<T>(what: impl FnOnce() -> String, result: io::Result<T>) -> Result<T, TransferError> {
    result.map_err(|source| TransferError::Io { what: what(), source })
}

/// A line of the desk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Have {
    /// A file that it has.
    File { path: String, digest: ContentDigest },
    /// How the journal of a run begins that it has.
    Opened { run: RunId, digest: ContentDigest },
}

/// A line of the board.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Header {
    /// A file; its bytes follow the line.
    File { path: String, bytes: u64, digest: ContentDigest },
    /// A file that is not sent.
    Left { path: String, why: String },
    /// A run that is another one than the desk has under the same id; none of its files is sent.
    Other { run: RunId },
    /// Nothing more comes.
    Done { runs: u64 },
}

/// What came of a transfer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Received {
    /// Runs that the board has.
    pub runs: u64,
    /// Files that came.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were left on the board, and why.
    pub left: Vec<(String, String)>,
    /// Runs of the same id that are others.
    pub others: Vec<RunId>,
}

/// The most left files that are told one by one.
const LEFT_MAX: usize = 100;

/// Writes what the desk has under `into` to `to`.
///
/// # Errors
/// If something cannot be read, or nobody reads it.
pub fn tell(into: &Path, mut to: impl Write) -> Result<(), TransferError> {
    let mut say = |have: &Have| write_line(&mut to, have);
    for run in runs_in(into)? {
        if let Some(digest) = beginning(&into.join(run.as_str()).join(names::JOURNAL)) {
            say(&Have::Opened { run: run.clone(), digest })?;
        }
        for path in files_of(into, &run)?.0 {
            let file = into.join(&path);
            let digest = File::open(&file).and_then(|mut file| ContentDigest::of_reader(&mut file));
            say(&Have::File { digest: at(|| format!("read {}", file.display()), digest)?, path })?;
        }
    }
    Ok(())
}

/// Sends what differs of the runs in `results` (of all, if `only` is empty) from what is told by `from`.
///
/// # Errors
/// If the results cannot be listed, the other side makes no sense, or nobody reads.
pub fn send(
    results: &Path,
    only: &[RunId],
    file_max: u64,
    from: impl Read,
    mut to: impl Write,
) -> Result<(), TransferError> {
    let (mut files, mut opened) = (HashMap::new(), HashMap::new());
    let mut from = BufReader::new(from);
    while let Some(line) = read_line(&mut from)? {
        match parse::<Have>(&line)? {
            Have::File { path, digest } => drop(files.insert(path, digest)),
            Have::Opened { run, digest } => drop(opened.insert(run, digest)),
        }
        if files.len() > FILES_MAX {
            return Err(TransferError::Speech(format!("more than {FILES_MAX} files")));
        }
    }
    let mut runs = 0;
    for run in runs_in(results)?.into_iter().filter(|run| only.is_empty() || only.contains(run)) {
        runs += 1;
        let here = beginning(&results.join(run.as_str()).join(names::JOURNAL));
        if opened.get(&run).is_some_and(|there| Some(there) != here.as_ref()) {
            write_line(&mut to, &Header::Other { run })?;
            continue;
        }
        let (paths, left) = files_of(results, &run)?;
        for (path, why) in left {
            write_line(&mut to, &Header::Left { path, why })?;
        }
        for path in paths {
            send_file(results, path, file_max, &files, &mut to)?;
        }
    }
    write_line(&mut to, &Header::Done { runs })?;
    at(|| "send".into(), to.flush())
}

fn send_file(
    results: &Path,
    path: String,
    file_max: u64,
    have: &HashMap<String, ContentDigest>,
    to: &mut impl Write,
) -> Result<(), TransferError> {
    let mut left = |path: String, why: String| write_line(to, &Header::Left { path, why });
    // A trial's directory belongs to the workload's user, who may have put a link there.
    let mut file = match open_file(&results.join(&path)) {
        Ok(file) => file,
        // It may be gone: a workload's own files come and go.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return left(path, error.to_string()),
    };
    let bytes = at(|| format!("look at {path}"), file.metadata())?.len();
    if bytes > file_max {
        return left(path, format!("{bytes} bytes; at most {file_max} are sent (--file-max)"));
    }
    // What is appended meanwhile comes with the next pull.
    let digest = match ContentDigest::of_reader(&mut (&file).take(bytes)) {
        Ok(digest) => digest,
        Err(error) => return left(path, error.to_string()),
    };
    if have.get(&path) == Some(&digest) {
        return Ok(());
    }
    let what = format!("send {path}");
    write_line(to, &Header::File { path, bytes, digest })?;
    at(|| what.clone(), file.seek(SeekFrom::Start(0)))?;
    let sent = at(|| what.clone(), io::copy(&mut file.take(bytes), to))?;
    match sent == bytes {
        true => Ok(()),
        // The header is out; only an end in the middle tells the other side.
        false => at(|| what, Err(io::Error::other("it became shorter"))),
    }
}

/// Takes what a board sends into the directory `into`; each file appears whole or not at all.
///
/// # Errors
/// If the board says something else, the connection ends, or a file cannot be written; what came before is kept.
pub fn receive(into: &Path, file_max: u64, from: &mut dyn BufRead) -> Result<Received, TransferError> {
    let mut received = Received::default();
    loop {
        match parse::<Header>(&read_line(from)?.ok_or(TransferError::CutOff)?)? {
            Header::File { path, bytes, digest } => {
                let to = into.join(checked(&path)?);
                if bytes > file_max {
                    return Err(TransferError::Speech(format!("{path} has {bytes} bytes")));
                }
                receive_file(&to, bytes, &digest, from, &path)?;
                received.files += 1;
                received.bytes += bytes;
            }
            Header::Left { path, why } if received.left.len() < LEFT_MAX => received.left.push((path, why)),
            Header::Left { .. } => {}
            Header::Other { run } => received.others.push(run),
            Header::Done { runs } => {
                received.runs = runs;
                break;
            }
        }
    }
    if received.files > 0 {
        // One sync for all of them: 10,000 trials are tens of thousands of files.
        let synced = File::open(into).and_then(|dir| Ok(syncfs(dir)?));
        at(|| format!("sync {}", into.display()), synced)?;
    }
    Ok(received)
}

fn receive_file(
    to: &Path,
    bytes: u64,
    digest: &ContentDigest,
    from: &mut dyn BufRead,
    path: &str,
) -> Result<(), TransferError> {
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(UNFINISHED_SUFFIX);
    let unfinished = PathBuf::from(unfinished);
    let what = || format!("write {}", to.display());
    at(what, fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))))?;
    let file = at(what, create_anew(&unfinished))?;
    let mut copied = Copied { from: from.take(bytes), to: io::BufWriter::new(file), bytes: 0 };
    let found = at(what, ContentDigest::of_reader(&mut copied))?;
    at(what, copied.to.flush())?;
    if copied.bytes < bytes {
        return Err(TransferError::CutOff);
    }
    if found != *digest {
        return Err(TransferError::Digest(path.to_owned()));
    }
    at(what, fs::rename(&unfinished, to))
}

/// Bytes that are written down as they are read.
struct Copied<R, W> {
    from: R,
    to: W,
    bytes: u64,
}

impl<R: Read, W: Write> Read for Copied<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.to.write_all(&buffer[..count])?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// `path` if it is that of a file within a run and cannot lead anywhere else.
fn checked(path: &str) -> Result<&Path, TransferError> {
    let parts: Vec<Component<'_>> = Path::new(path).components().collect();
    let is_within = parts.iter().all(|part| matches!(part, Component::Normal(_)));
    let run = parts.first().and_then(|part| part.as_os_str().to_str()).map(str::parse::<RunId>);
    let is_plain = path.len() <= PATH_BYTES_MAX && !path.contains(char::is_control) && !path.ends_with('/');
    match is_within && is_plain && parts.len() >= 2 && matches!(run, Some(Ok(_))) {
        true => Ok(Path::new(path)),
        false => Err(TransferError::Speech(format!("{path:?} is not a file of a run"))),
    }
}

/// The ids of the runs in `results`, in their order; none if the directory is not there.
fn runs_in(results: &Path) -> Result<Vec<RunId>, TransferError> {
    let what = || format!("read the directory {}", results.display());
    let entries = match fs::read_dir(results) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => at(what, entries)?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        let entry = at(what, entry)?;
        let is_dir = at(what, entry.file_type())?.is_dir();
        runs.extend(entry.file_name().to_str().and_then(|name| name.parse::<RunId>().ok()).filter(|_| is_dir));
    }
    runs.sort();
    Ok(runs)
}

/// Paths below the results directory.
type Paths = Vec<String>;

/// The files of `run`, the journal first, so that what it tells of is there when it is; and what is left out, and why.
fn files_of(results: &Path, run: &RunId) -> Result<(Paths, Vec<(String, String)>), TransferError> {
    let (mut files, mut left) = (Vec::new(), Vec::new());
    let mut dirs = vec![(run.as_str().to_owned(), 0)];
    while let Some((dir, depth)) = dirs.pop() {
        let entries = match fs::read_dir(results.join(&dir)) {
            Ok(entries) => entries,
            Err(error) => {
                left.push((dir, error.to_string()));
                continue;
            }
        };
        for entry in entries {
            let entry = at(|| format!("read the directory {dir}"), entry)?;
            let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
            // Links, sockets and the like are nothing that a trial promised.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => dirs.push((path, depth + 1)),
                Ok(kind) if !kind.is_file() || path.ends_with(UNFINISHED_SUFFIX) => {}
                Ok(_) if checked(&path).is_err() || entry.file_name().to_str().is_none() => {
                    left.push((path.escape_debug().to_string(), "its name cannot be sent".to_owned()));
                }
                Ok(_) => files.push(path),
                Err(error) => left.push((path, error.to_string())),
            }
        }
    }
    let journal = format!("{run}/{}", names::JOURNAL);
    files.sort_by_key(|path| (*path != journal, path.clone()));
    Ok((files, left))
}

/// The digest of the first line of a journal; none if there is none yet.
fn beginning(journal: &Path) -> Option<ContentDigest> {
    let mut line = Vec::new();
    let limit = crate::model::journal::LINE_BYTES_MAX as u64;
    BufReader::new(open_file(journal).ok()?).take(limit).read_until(b'\n', &mut line).ok()?;
    line.ends_with(b"\n").then(|| ContentDigest::of(&line))
}

fn write_line(to: &mut impl Write, line: &impl Serialize) -> Result<(), TransferError> {
    let mut bytes = serde_json::to_vec(line).expect("lines have string keys");
    bytes.push(b'\n');
    at(|| "send".into(), to.write_all(&bytes))
}

/// The next line; nothing at the end.
fn read_line(from: &mut (impl BufRead + ?Sized)) -> Result<Option<Vec<u8>>, TransferError> {
    let mut line = Vec::new();
    at(|| "receive".into(), from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line))?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 == LINE_BYTES_MAX => Err(TransferError::Speech("a line without end".into())),
        Some(_) => Err(TransferError::CutOff),
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, TransferError> {
    serde_json::from_slice(line).map_err(|error| {
        let begin: String = String::from_utf8_lossy(line).trim_end().chars().take(80).collect();
        TransferError::Speech(format!("{begin:?}: {error}"))
    })
}

#[cfg(test)]
mod tests;
