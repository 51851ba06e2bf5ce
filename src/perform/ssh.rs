//! One board as the system's own `ssh` reaches it: commands with deadlines, and a connection that is listened to.
//!
//! Everything that `ssh` is told elsewhere (keys, jumps, agents, known hosts) holds; host keys are never bypassed, and
//! nothing is ever asked for. It decides nothing: what a failure means is [`crate::decide::fleet::Trouble`]'s.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::decide::fleet::{NulInWord, Trouble, shell_line};
use crate::model::inventory::BoardEntry;

/// Nobody is there to answer, and an answer is not waited for longer than a board takes to be found missing: a lost
/// connection is noticed after four beats of five seconds (ssh_config(5)).
const OPTIONS: [&str; 10] = [
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=4",
    "-oTCPKeepAlive=yes",
    "-oClearAllForwardings=yes",
    "-oForwardX11=no",
    "-oPermitLocalCommand=no",
    "-oLogLevel=INFO",
];

/// A connection that others share notices its loss when they do, and one that is listened to for hours must by itself.
const OWN_CONNECTION: &str = "-oControlPath=none";

/// The most bytes of complaints that are kept.
const COMPLAINT_BYTES_MAX: u64 = 16 * 1024;

/// The most bytes of an answer that is kept whole.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The longest line that is listened to, in bytes; the rest of a longer one is thrown away.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// How much is read at once where many bytes come.
const READ_BYTES: usize = 128 * 1024;

/// How often a command is looked at.
const PERIOD: Duration = Duration::from_millis(20);

/// How long the pipes of a command that ended may stay open: a connection shared by ControlPersist keeps standard error.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// A command that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// ssh itself could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's words.
        source: io::Error,
    },
    /// An argument that no shell can be given.
    #[error(transparent)]
    Nul(#[from] NulInWord),
    /// It was not done in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The board, or the way to it.
    #[error("{0}")]
    Trouble(Trouble),
    /// What came is not what was agreed on, or could not be kept.
    #[error("{0}")]
    Exchange(String),
    /// The system's words about the process of ssh.
    #[error("cannot wait for ssh: {0}")]
    Io(#[from] io::Error),
}

/// What a command on the board said, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code; absent if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: Vec<u8>,
    /// The beginning of its standard error.
    pub err: String,
}

impl Said {
    /// The standard output, if it ended with one of `codes`.
    ///
    /// # Errors
    /// What it means that it did not.
    pub fn ended_with(self, codes: &[i32]) -> Result<Self, SshError> {
        match self.code.is_some_and(|code| codes.contains(&code)) {
            true => Ok(self),
            false => Err(SshError::Trouble(Trouble::of(self.code, &self.err))),
        }
    }
}

/// The way to one board.
#[derive(Debug, Clone)]
pub struct Ssh {
    program: OsString,
    host: String,
    sudo: bool,
}

impl Ssh {
    /// To `board`, by `program`.
    pub fn new(program: OsString, board: &BoardEntry) -> Self {
        Self { program, host: board.host.clone(), sudo: board.sudo }
    }

    /// Runs `argv` there, with `stdin`, to its end.
    ///
    /// # Errors
    /// If it cannot be started, or is not done within `patience`; how it ended is in what it said.
    pub fn ask(&self, argv: &[&str], stdin: impl Read + Send + 'static, patience: Duration) -> Result<Said, SshError> {
        let (mut child, input) = self.start(argv, &[])?;
        // It ends with the pipe, at the latest when the command does.
        thread::spawn(move || feed(stdin, input));
        let out = drain(child.stdout.take().expect("it is piped"), ANSWER_BYTES_MAX);
        let err = drain(child.stderr.take().expect("it is piped"), COMPLAINT_BYTES_MAX);
        let code = wait(&mut child, patience)?;
        let received = |pipe: Receiver<Vec<u8>>| pipe.recv_timeout(DRAIN_PATIENCE).unwrap_or_default();
        let (out, err) = (received(out), received(err));
        Ok(Said { code, out, err: String::from_utf8_lossy(&err).into_owned() })
    }

    /// Runs `argv` there with `stdin`, and has `each` read what it prints.
    ///
    /// # Errors
    /// If it cannot be started, says nothing for `patience`, or fails; or what `each` returns, in words.
    pub fn exchange<T, E: fmt::Display>(
        &self,
        argv: &[&str],
        stdin: impl Read + Send + 'static,
        patience: Duration,
        each: impl FnOnce(&mut dyn BufRead) -> Result<T, E>,
    ) -> Result<T, SshError> {
        let (mut child, input) = self.start(argv, &[])?;
        thread::spawn(move || feed(stdin, input));
        let err = drain(child.stderr.take().expect("it is piped"), COMPLAINT_BYTES_MAX);
        let stdout = child.stdout.take().expect("it is piped");
        let (guard, fed) = Guard::over(child, patience);
        let taken = each(&mut BufReader::with_capacity(READ_BYTES, Counted { from: stdout, fed }));
        let code = guard.end(if taken.is_ok() { patience } else { DRAIN_PATIENCE });
        let err = err.recv_timeout(DRAIN_PATIENCE).unwrap_or_default();
        match (taken, code) {
            (Ok(taken), Ok(Some(0))) => Ok(taken),
            (_, Err(SshError::Late(_))) => Err(SshError::Late(patience)),
            // What came made no sense because the command failed: it says why.
            (_, Ok(code)) if code != Some(0) => {
                Err(SshError::Trouble(Trouble::of(code, &String::from_utf8_lossy(&err))))
            }
            (Err(error), _) => Err(SshError::Exchange(error.to_string())),
            (Ok(_), Ok(_)) => unreachable!("the other codes are above"),
            (Ok(_), Err(error)) => Err(error),
        }
    }

    /// Runs `argv` there on a connection of its own, and listens.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn listen(&self, argv: &[&str]) -> Result<Listening, SshError> {
        let (mut child, input) = self.start(argv, &[OWN_CONNECTION])?;
        drop(input);
        let (sender, heard) = mpsc::channel();
        let stdout = child.stdout.take().expect("it is piped");
        let err = drain(child.stderr.take().expect("it is piped"), COMPLAINT_BYTES_MAX);
        let reader = thread::spawn(move || read_lines(stdout, &sender));
        Ok(Listening { child, heard, err, reader: Some(reader) })
    }

    fn start(&self, argv: &[&str], more: &[&str]) -> Result<(Child, ChildStdin), SshError> {
        let sudo: &[&str] = if self.sudo { &["sudo", "-n", "--"] } else { &[] };
        let line = shell_line(sudo.iter().chain(argv).copied())?;
        let mut command = Command::new(&self.program);
        // `--` ends the options, so that no host is ever one.
        command.args(OPTIONS).args(more).args(["--", &self.host]).arg(line).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |source| SshError::Start { program: self.program.to_string_lossy().into_owned(), source };
        let mut child = command.spawn().map_err(start)?;
        let input = child.stdin.take().expect("it is piped");
        Ok((child, input))
    }
}

/// Bytes that are counted, so that silence is noticed.
struct Counted<R> {
    from: R,
    fed: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.fed.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A command that is killed if nothing comes of it for too long.
struct Guard {
    child: Arc<Mutex<Child>>,
    is_late: Arc<AtomicBool>,
    done: Sender<()>,
}

impl Guard {
    fn over(child: Child, patience: Duration) -> (Self, Arc<AtomicU64>) {
        let (done, is_done) = mpsc::channel();
        let guard = Self { child: Arc::new(Mutex::new(child)), is_late: Arc::default(), done };
        let fed = Arc::new(AtomicU64::new(0));
        let (child, is_late, counted) = (guard.child.clone(), guard.is_late.clone(), fed.clone());
        thread::spawn(move || {
            let mut before = u64::MAX;
            // Between two looks nothing came: killing the command ends its pipe, and with it the reading.
            while is_done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                let now = counted.load(Ordering::Relaxed);
                if now == before {
                    is_late.store(true, Ordering::Relaxed);
                    let _ = lock(&child).kill();
                    return;
                }
                before = now;
            }
        });
        (guard, fed)
    }

    fn end(self, patience: Duration) -> Result<Option<i32>, SshError> {
        let _ = self.done.send(());
        let code = wait(&mut lock(&self.child), patience);
        if self.is_late.load(Ordering::Relaxed) { Err(SshError::Late(patience)) } else { code }
    }
}

/// A process is as it is, whatever happened to whoever looked at it last.
fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives `from` to a command. One that ends before it read everything is no error here: it says why itself.
fn feed(mut from: impl Read, mut input: ChildStdin) {
    let _ = io::copy(&mut from, &mut input).and_then(|_| input.flush());
}

fn drain(pipe: impl Read + Send + 'static, limit: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe;
        // What was read before an error is kept; the asker may have given up.
        let _ = pipe.by_ref().take(limit).read_to_end(&mut bytes);
        let _ = io::copy(&mut pipe, &mut io::sink());
        let _ = sender.send(bytes);
    });
    receiver
}

/// Waits for the end of `child`, which is killed if it is late.
fn wait(child: &mut Child, patience: Duration) -> Result<Option<i32>, SshError> {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(SshError::Late(patience));
        }
        thread::sleep(PERIOD);
    }
}

fn read_lines(stdout: ChildStdout, sender: &Sender<Vec<u8>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        match stdout.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            // The end of a line that was too long begins a line that is nothing known either.
            Ok(1..) if sender.send(line).is_ok() => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// What a listener perceives.
#[derive(Debug)]
pub enum Heard {
    /// A line, its newline included.
    Line(Vec<u8>),
    /// Nothing within the given time.
    Nothing,
    /// The command ended.
    Ended {
        /// Its exit code; absent if a signal ended it.
        code: Option<i32>,
        /// The beginning of its complaints.
        err: String,
    },
}

/// A connection that is listened to; it ends when this is dropped.
#[derive(Debug)]
pub struct Listening {
    child: Child,
    heard: Receiver<Vec<u8>>,
    err: Receiver<Vec<u8>>,
    reader: Option<JoinHandle<()>>,
}

impl Listening {
    /// The next thing that is heard within `patience`.
    pub fn next(&mut self, patience: Duration) -> Heard {
        match self.heard.recv_timeout(patience) {
            Ok(line) => Heard::Line(line),
            // What it started may hold its pipe and go on; the connection is over all the same.
            Err(RecvTimeoutError::Timeout) if !matches!(self.child.try_wait(), Ok(None)) => self.ended(),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => self.ended(),
        }
    }

    fn ended(&mut self) -> Heard {
        let code = wait(&mut self.child, DRAIN_PATIENCE).unwrap_or(None);
        let err = self.err.recv_timeout(DRAIN_PATIENCE).unwrap_or_default();
        Heard::Ended { code, err: String::from_utf8_lossy(&err).into_owned() }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take().filter(JoinHandle::is_finished) {
            let _ = reader.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::model::inventory::parse_inventory;

    /// A program in the place of ssh that has the machine's own shell do what it is asked, after `before`.
    fn ssh(dir: &tempfile::TempDir, before: &str) -> Ssh {
        let program = dir.path().join("ssh");
        let script = format!("#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n{before}\nexec sh -c \"$3\"\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let inventory = parse_inventory("[[board]]\nname = \"a\"\nhost = \"user@a\"\n").unwrap();
        Ssh::new(program.into(), &inventory.boards[0])
    }

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn a_command_gets_its_words_and_its_input_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let ssh = ssh(&dir, "[ \"$2\" = user@a ] || exit 9");
        let said = ssh.ask(&["sh", "-c", "cat; printf '%s' \"$1\"", "sh", "$(id) 'it'"], &b"in;"[..], LONG).unwrap();
        assert_eq!((said.code, &said.out[..]), (Some(0), &b"in;$(id) 'it'"[..]));
    }

    #[test]
    fn a_board_that_says_nothing_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let ssh = ssh(&dir, "exec sleep 60");
        let began = Instant::now();
        assert!(matches!(ssh.ask(&["true"], io::empty(), SHORT), Err(SshError::Late(_))));
        let read = |from: &mut dyn BufRead| from.read_to_end(&mut Vec::new());
        assert!(matches!(ssh.exchange(&["true"], io::empty(), SHORT, read), Err(SshError::Late(_))));
        let mut listening = ssh.listen(&["true"]).unwrap();
        assert!(matches!(listening.next(SHORT), Heard::Nothing));
        drop(listening);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn what_failed_there_is_told_and_not_what_it_made_of_the_exchange() {
        let dir = tempfile::tempdir().unwrap();
        let read = |from: &mut dyn BufRead| match from.read_to_end(&mut Vec::new()) {
            Ok(0) => Err("nothing came".to_owned()),
            _ => Ok(()),
        };
        let full = ssh(&dir, "echo 'x: No space left on device' >&2; exit 1");
        let error = full.exchange(&["true"], io::empty(), LONG, read).unwrap_err();
        assert!(matches!(error, SshError::Trouble(Trouble::DiskFull)), "{error}");
        let error = ssh(&dir, "").exchange(&["true"], io::empty(), LONG, read).unwrap_err();
        assert!(matches!(&error, SshError::Exchange(words) if words == "nothing came"), "{error}");
    }

    #[test]
    fn lines_are_heard_as_they_come_and_then_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut listening = ssh(&dir, "").listen(&["sh", "-c", "echo a; echo b; echo why >&2; exit 3"]).unwrap();
        let mut lines = Vec::new();
        let end = loop {
            match listening.next(LONG) {
                Heard::Line(line) => lines.push(line),
                Heard::Nothing => panic!("nothing came"),
                Heard::Ended { code, err } => break (code, err),
            }
        };
        assert_eq!(lines, [b"a\n", b"b\n"]);
        assert_eq!(end, (Some(3), "why\n".to_owned()));
    }
}
