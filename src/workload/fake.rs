//! The fake worker: plays a script of misbehaviour as a real process, so that supervision is tested without a GPU.
//!
//! One action a line, words separated by spaces; empty lines and lines that begin with `#` do nothing. The end of
//! the script is exit 0, without a word.
//!
//! | action | what it does |
//! |---|---|
//! | `stage NAME`, `beat`, `metric NAME VALUE`, `note NAME TEXT`, `mismatch`, `done`, `failed TEXT` | the reply of that name |
//! | `say TEXT`, `garbage`, `unending BYTES`, `replies N` | words on the reply channel that break the protocol, or `N` beats |
//! | `stdout TEXT`, `stderr TEXT`, `flood stdout\|stderr BYTES` | output |
//! | `exit CODE`, `segv`, `abort`, `kill` | an end |
//! | `hang`, `spin`, `sleep MS`, `take DIR`, `ignore-term` | no end, or not yet |
//! | `alloc MIB` | touches so much memory |
//! | `close replies\|output` | closes its pipes |
//! | `fork ACTION` | a child that plays one action, and is left behind |
//! | `daemon ACTION` | the same, doubly forked into a session of its own |
//! | `setsid`, `pidfile PATH`, `env NAME PATH` | becomes a session, writes its process id or a variable to a file |

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process, setsid};

use crate::model::outcome::PeakMemory;
use crate::model::protocol::{Failure, FailureKind, Mismatch};
use crate::workload::os;
use crate::workload::worker::{EXIT_DONE, Reporter, hang, spin};

/// One line of a script.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    Stage(String),
    Beat,
    Metric(String, f64),
    Note(String, String),
    Mismatch,
    Done,
    Failed(String),
    Say(String),
    Garbage,
    Unending(usize),
    Replies(u64),
    Print(Stream, String),
    Flood(Stream, usize),
    Exit(u8),
    Segv,
    Abort,
    Kill,
    Hang,
    Spin,
    Sleep(Duration),
    Take(String),
    IgnoreTerm,
    Alloc(usize),
    CloseReplies,
    CloseOutput,
    Fork(String),
    Daemon(String),
    Setsid,
    PidFile(String),
    Env(String, String),
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stream {
    Stdout,
    Stderr,
}

impl FromStr for Action {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let bad = || io::Error::other(format!("not an action: {line:?}"));
        let number = || rest.parse::<u64>().map_err(|_| bad());
        let size = || rest.parse::<usize>().map_err(|_| bad());
        let pair = || rest.split_once(' ').ok_or_else(bad);
        Ok(match (name, rest) {
            ("stage", name) => Action::Stage(name.into()),
            ("beat", "") => Action::Beat,
            ("metric", _) => Action::Metric(pair()?.0.into(), pair()?.1.parse().map_err(|_| bad())?),
            ("note", _) => Action::Note(pair()?.0.into(), pair()?.1.into()),
            ("mismatch", "") => Action::Mismatch,
            ("done", "") => Action::Done,
            ("failed", text) => Action::Failed(text.into()),
            ("say", text) => Action::Say(text.into()),
            ("garbage", "") => Action::Garbage,
            ("unending", _) => Action::Unending(size()?),
            ("replies", _) => Action::Replies(number()?),
            ("stdout", text) => Action::Print(Stream::Stdout, text.into()),
            ("stderr", text) => Action::Print(Stream::Stderr, text.into()),
            ("flood", _) => {
                let stream = match pair()?.0 {
                    "stdout" => Stream::Stdout,
                    "stderr" => Stream::Stderr,
                    _ => return Err(bad()),
                };
                Action::Flood(stream, pair()?.1.parse().map_err(|_| bad())?)
            }
            ("exit", _) => Action::Exit(rest.parse().map_err(|_| bad())?),
            ("segv", "") => Action::Segv,
            ("abort", "") => Action::Abort,
            ("kill", "") => Action::Kill,
            ("hang", "") => Action::Hang,
            ("spin", "") => Action::Spin,
            ("take", dir) if !dir.is_empty() => Action::Take(dir.to_owned()),
            ("sleep", _) => Action::Sleep(Duration::from_millis(number()?)),
            ("ignore-term", "") => Action::IgnoreTerm,
            ("alloc", _) => Action::Alloc(size()?),
            ("close", "replies") => Action::CloseReplies,
            ("close", "output") => Action::CloseOutput,
            ("fork", action) => Action::Fork(action.into()),
            ("daemon", action) => Action::Daemon(action.into()),
            ("setsid", "") => Action::Setsid,
            ("pidfile", path) => Action::PidFile(path.into()),
            ("env", _) => Action::Env(pair()?.0.into(), pair()?.1.into()),
            _ => return Err(bad()),
        })
    }
}

/// Plays `script` and returns the exit code; replies need a reporter.
///
/// # Errors
/// If a line is no action, or an action fails.
pub fn play(script: &str, mut reporter: Option<&mut Reporter>) -> io::Result<u8> {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let actions = lines.map(str::parse).collect::<io::Result<Vec<Action>>>()?;
    for action in actions {
        if let Some(code) = act(action, reporter.as_deref_mut())? {
            return Ok(code);
        }
    }
    Ok(EXIT_DONE)
}

/// Plays one action; an exit code ends the script.
fn act(action: Action, reporter: Option<&mut Reporter>) -> io::Result<Option<u8>> {
    let speaker = || reporter.ok_or_else(|| io::Error::other("nobody to reply to"));
    match action {
        Action::Stage(name) => speaker()?.stage(&name.parse().map_err(io::Error::other)?)?,
        Action::Beat => speaker()?.beat()?,
        Action::Metric(name, value) => speaker()?.metric(&name, value)?,
        Action::Note(name, text) => speaker()?.note(&name, &text)?,
        Action::Mismatch => speaker()?.mismatch(mismatch())?,
        Action::Done => speaker()?.done(PeakMemory::default())?,
        Action::Failed(text) => {
            speaker()?.failed(Failure { kind: FailureKind::Other, call: None, code: None, memory: None, text })?;
        }
        Action::Say(text) => speaker()?.say_bytes(format!("{text}\n").as_bytes())?,
        Action::Garbage => speaker()?.say_bytes(b"\xff\x00 garbage \x1b[31m\n")?,
        Action::Unending(bytes) => speaker()?.say_bytes(&vec![b'x'; bytes])?,
        Action::Replies(count) => {
            let speaker = speaker()?;
            (0..count).try_for_each(|_| speaker.beat())?;
        }
        Action::Print(Stream::Stdout, text) => writeln!(io::stdout(), "{text}")?,
        Action::Print(Stream::Stderr, text) => writeln!(io::stderr(), "{text}")?,
        Action::Flood(Stream::Stdout, bytes) => flood(&mut io::stdout().lock(), bytes)?,
        Action::Flood(Stream::Stderr, bytes) => flood(&mut io::stderr().lock(), bytes)?,
        Action::Exit(code) => return Ok(Some(code)),
        Action::Segv => drop(std::hint::black_box(os::read_page_zero())),
        Action::Abort => std::process::abort(),
        Action::Kill => kill_process(getpid(), Signal::KILL)?,
        Action::Hang => hang(),
        Action::Spin => spin(),
        Action::Sleep(duration) => std::thread::sleep(duration),
        Action::Take(dir) => take(Path::new(&dir)),
        Action::IgnoreTerm => ignore_term()?,
        Action::Alloc(mib) => drop(std::hint::black_box(vec![1_u8; mib << 20])),
        Action::CloseReplies => speaker()?.close()?,
        Action::CloseOutput => close_output()?,
        Action::Fork(action) => drop(fork(&action)?),
        // The child in between ends at once, which makes its own child an orphan.
        Action::Daemon(action) => drop(fork(&format!("setsid\nfork {action}"))?.wait()?),
        Action::Setsid => drop(setsid()?),
        Action::PidFile(path) => write_whole(&path, getpid().as_raw_nonzero().to_string().as_bytes())?,
        Action::Env(name, path) => write_whole(&path, std::env::var(name).unwrap_or_default().as_bytes())?,
    }
    Ok(None)
}

/// A handler that sets a flag that nobody reads: the signal comes, and nothing happens.
fn ignore_term() -> io::Result<()> {
    let nobody_reads = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::TERM.as_raw(), nobody_reads).map(|_| ())
}

fn mismatch() -> Mismatch {
    Mismatch { what: "C.forward".into(), index: 7, expected: "1.0".into(), got: "2.0".into(), count: 1 }
}

fn flood(out: &mut impl Write, bytes: usize) -> io::Result<()> {
    const LINE: &[u8] = b"0123456789012345678901234567890123456789012345678901234567890123456789012345678\n";
    let block = LINE.repeat(1024);
    let mut left = bytes;
    while left > 0 {
        let now = left.min(block.len());
        out.write_all(&block[..now])?;
        left -= now;
    }
    out.flush()
}

fn close_output() -> io::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// A child in our process group that plays `script` without a conversation.
fn fork(script: &str) -> io::Result<std::process::Child> {
    let mut child =
        Command::new(std::env::current_exe()?).args(["__worker", "--script", "-"]).stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    Ok(child)
}

/// Readers must never see half of it.
fn write_whole(path: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = format!("{path}.draft");
    std::fs::write(&draft, bytes)?;
    std::fs::rename(draft, path)
}

/// Takes one file out of `dir`, and waits for it: so that a test lets one trial at a time go on.
fn take(dir: &Path) {
    loop {
        let token = std::fs::read_dir(dir).ok().and_then(|mut entries| entries.next()?.ok());
        if token.is_some_and(|token| std::fs::remove_file(token.path()).is_ok()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_action_is_refused_before_anything_is_played() {
        for bad in ["exti 3", "exit", "exit x", "flood stdin 3", "close", "done now", "metric a", "sleep -1"] {
            assert!(bad.parse::<Action>().is_err(), "{bad}");
        }
        assert!(play("exit 3\nnonsense", None).is_err());
    }

    #[test]
    fn the_first_exit_ends_the_script() {
        assert_eq!(play("# a comment\n\n  exit 3\nexit 4", None).unwrap(), 3);
        assert_eq!(play("", None).unwrap(), 0);
    }

    #[test]
    fn a_reply_without_a_conversation_is_an_error() {
        assert!(play("done", None).is_err());
    }
}
