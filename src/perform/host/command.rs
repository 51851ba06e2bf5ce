//! Running a command for its answer, with a deadline and a limit on what it prints.
//!
//! A command that hangs is killed and given up: a dead drive must not keep the harness from coming back.

use std::env;
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};

use super::sysroot::{Keep, Limit, TEXT_BYTES_MAX, read_within};
use crate::model::evidence::Fact;

/// How long a killed command is waited for; one in the D state does not die.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// The most bytes of a command's complaints.
const COMPLAINT_BYTES_MAX: u64 = 2048;

/// Where programs are looked for when `PATH` is not set, as execvp(3) does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Words of commands that mean that nothing is there rather than that it may not be read.
const ABSENCE: [&str; 5] = [
    "No journal files were found",
    "No such boot ID in journal",
    "No journal boot entry found",
    "No data available",
    "no packages found",
];

/// Words of a command that shows only a part: what the system said is then unknown, though something was printed.
const PARTIAL: &str = "not seeing messages from other users";

/// A command whose output says something about the machine.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// The name of its output in a captured tree, under `cmd/`.
    pub file: &'a str,
    /// The program, then its arguments.
    pub argv: &'a [&'a str],
    /// How long it may take.
    pub patience: Duration,
    /// How much of its output is kept.
    pub limit: Limit,
}

/// What a command said.
#[derive(Debug)]
pub struct Answer {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed, as far as the limit goes.
    pub output: Vec<u8>,
    /// The beginning of its complaints.
    pub complaint: String,
}

/// The output of a command. One that is not installed, or says that there is nothing, is absent; one that fails, or
/// prints nothing but complaints, is denied with its words.
pub(super) fn run(command: &Command<'_>) -> Fact<Vec<u8>> {
    let program = command.argv[0];
    let answer = match ask(command) {
        Ok(answer) => answer,
        Err(error) if error.kind() == ErrorKind::NotFound => return Fact::Absent,
        Err(error) => return Fact::Denied(format!("{program}: {error}")),
    };
    let complaint = answer.complaint.lines().next().unwrap_or_default().trim();
    if answer.complaint.contains(PARTIAL) {
        return Fact::Denied(format!("{program}: only root and the group systemd-journal may read all of it"));
    }
    match (answer.status.success(), answer.output.is_empty(), complaint) {
        (true, false, _) | (true, true, "") => Fact::Known(answer.output),
        _ if ABSENCE.iter().any(|words| answer.complaint.contains(words)) => Fact::Absent,
        (false, _, "") => Fact::Denied(format!("{program}: {}", answer.status)),
        (false, _, complaint) => Fact::Denied(format!("{program}: {complaint} ({})", answer.status)),
        (true, true, complaint) => Fact::Denied(format!("{program}: {complaint}")),
    }
}

/// The standard output of a command that must answer within `patience`, as text.
pub fn run_briefly(program: &str, args: &[&str], patience: Duration) -> Fact<String> {
    let argv: Vec<&str> = [program].into_iter().chain(args.iter().copied()).collect();
    let limit = Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start };
    run(&Command { file: program, argv: &argv, patience, limit })
        .and_then(|output| Fact::Known(String::from_utf8_lossy(&output).into_owned()))
}

/// Runs a command that may fail, for what it says.
///
/// # Errors
/// If it cannot be started, or does not answer in time.
pub fn ask(command: &Command<'_>) -> io::Result<Answer> {
    ask_and_answer(command, "")
}

/// Runs a command that asks for `input`; with none, nobody is there to answer its questions.
///
/// # Errors
/// If it cannot be started, or does not answer in time.
pub fn ask_and_answer(command: &Command<'_>, input: &str) -> io::Result<Answer> {
    let mut process = std::process::Command::new(find_program(command.argv[0]).ok_or(ErrorKind::NotFound)?);
    process.args(&command.argv[1..]).env("LC_ALL", "C").env("SYSTEMD_COLORS", "0");
    process.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    process.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A few bytes fit into the pipe; one that does not want them has closed it.
        let _ = stdin.write_all(input.as_bytes());
    }
    let until = Instant::now() + command.patience;
    let output = drain(child.stdout.take().expect("it is piped"), command.limit);
    let complaint =
        drain(child.stderr.take().expect("it is piped"), Limit { bytes: COMPLAINT_BYTES_MAX, keep: Keep::Start });
    let late = || {
        let words = format!("no answer within {} s", command.patience.as_secs_f32());
        io::Error::new(ErrorKind::TimedOut, words)
    };
    // The ends of its pipes come as it ends, and are waited for without asking again and again. A descendant may hold
    // the pipes; what the command itself said is then not waited for either.
    let said = receive(&output, until).and_then(|output| Some((output, receive(&complaint, until)?)));
    let (Some((output, complaint)), Some(status)) = (said, wait_until(&mut child, until)?) else {
        // It may have ended in between; either way it is waited for a little, so that it leaves nothing behind.
        let _ = child.kill();
        let _ = wait_until(&mut child, Instant::now() + KILL_PATIENCE);
        return Err(late());
    };
    Ok(Answer { status, output: output?, complaint: String::from_utf8_lossy(&complaint?).into_owned() })
}

/// Where the program `name` is: itself if it is a path, else in the first directory of `PATH` that has it. Looking is
/// much cheaper than a process that finds out that there is nothing to become.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| access(path, Access::EXEC_OK).is_ok() && path.is_file();
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(is_program);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    env::split_paths(&path).map(|dir| dir.join(name)).find(is_program)
}

fn wait_until(child: &mut Child, until: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() < until => std::thread::sleep(Duration::from_micros(200)),
            None => return Ok(None),
        }
    }
}

fn drain(mut pipe: impl Read + Send + 'static, limit: Limit) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let read = read_within(&mut pipe, limit);
        // A pipe that is closed early would end the command by SIGPIPE; the rest goes nowhere.
        let _ = io::copy(&mut pipe, &mut io::sink());
        // The asker may have given up.
        let _ = sender.send(read);
    });
    receiver
}

fn receive(pipe: &Receiver<io::Result<Vec<u8>>>, until: Instant) -> Option<io::Result<Vec<u8>>> {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
    pipe.recv_timeout(left).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> Fact<Vec<u8>> {
        let limit = Limit { bytes: 100, keep: Keep::Start };
        run(&Command { file: "x", argv: &["sh", "-c", script], patience, limit })
    }

    #[test]
    fn each_way_to_fail_is_told_from_the_others() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let denied = |words: &str| Fact::Denied(words.to_owned());
        assert_eq!(shell("echo yes", PATIENCE), Fact::Known(b"yes\n".to_vec()));
        assert_eq!(shell("true", PATIENCE), Fact::Known(Vec::new()));
        assert_eq!(shell("echo no >&2; exit 3", PATIENCE), denied("sh: no (exit status: 3)"));
        assert_eq!(shell("exit 3", PATIENCE), denied("sh: exit status: 3"));
        assert_eq!(shell("echo hint >&2", PATIENCE), denied("sh: hint"));
        assert!(matches!(
            shell("echo a; echo Hint: You are currently not seeing messages from other users. >&2", PATIENCE),
            Fact::Denied(_)
        ));
        assert_eq!(shell("echo No journal files were found. >&2", PATIENCE), Fact::Absent);
        let missing = Command {
            file: "x",
            argv: &["/nowhere/command"],
            patience: PATIENCE,
            limit: Limit { bytes: 1, keep: Keep::Start },
        };
        assert_eq!(run(&missing), Fact::Absent);
    }

    #[test]
    fn a_command_that_hangs_or_leaves_its_pipe_to_another_is_given_up() {
        let start = Instant::now();
        let hung = shell("sleep 60", Duration::from_millis(50));
        assert_eq!(hung, Fact::Denied("sh: no answer within 0.05 s".to_owned()));
        assert!(matches!(shell("sleep 5 & echo said", Duration::from_millis(300)), Fact::Denied(_)));
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }

    #[test]
    fn a_command_that_prints_too_much_is_read_to_its_end() {
        let printed = shell("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done", Duration::from_secs(60));
        assert_eq!(printed.known().map(Vec::len), Some(100));
    }
}
