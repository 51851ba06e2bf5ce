//! How a child comes into being: which binary with which arguments, its environment, its pipes.
//!
//! The conversation is a socket pair whose other end is the child's standard input: the child is given its request
//! and answers on the same descriptor, so that no descriptor has to be passed by number and none can leak into
//! another child. Standard output and error stay free for whatever a GPU library or a program prints.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::model::protocol::Request;
use crate::model::settings::{Cpus, OutputKind};
use crate::perform::exec::{self, ExecRequest, ExecStdin};
use crate::perform::invoker;
use crate::perform::processes::MARK_VARIABLE;
use crate::perform::supervise::launch::{Bounds, CommandLine, EnvChange, Launch, Program};
use crate::perform::supervise::streams::Source;

/// Name of the worker's hidden subcommand.
pub const WORKER_SUBCOMMAND: &str = "__worker";

/// A process that was just born and waits for what it is told in the conversation.
#[derive(Debug)]
pub(super) struct Newborn {
    /// Its process id, and the id of its process group.
    pub(super) pid: Pid,
    /// Our end of the conversation.
    pub(super) conversation: UnixStream,
    /// Its output.
    pub(super) source: Source,
}

/// What the supervisor knows and a launch does not.
pub(super) struct Origin<'a> {
    /// The binary to re-enter.
    pub(super) harness: &'a Path,
    /// The out-of-memory score that children return to.
    pub(super) oom_score_adj: Option<i32>,
    /// The trial's environment mark.
    pub(super) mark: &'a str,
}

/// A trampoline that was born ahead and knows nothing yet. Dropped it is ended.
#[derive(Debug)]
pub(super) struct Spare(Option<Newborn>);

impl Spare {
    /// A trampoline whose output goes into pipes.
    ///
    /// # Errors
    /// If the harness's own binary cannot be started.
    pub(super) fn new(harness: &Path) -> io::Result<Self> {
        bear(trampoline(harness), OutputKind::Pipe).map(|newborn| Self(Some(newborn)))
    }

    fn take(mut self) -> Option<Newborn> {
        self.0.take()
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(newborn) = self.0.take() {
            // It may have ended by itself; then there is only its end to be taken note of.
            let _ = kill_process(newborn.pid, Signal::KILL);
            let _ = waitpid(Some(newborn.pid), WaitOptions::empty());
        }
    }
}

/// Starts the child, of `spare` where it can become it, and what it is to be told first. A user's program that cannot be
/// executed is told later, in the conversation.
///
/// # Errors
/// If the harness's own binary cannot be started.
pub(super) fn spawn(origin: &Origin<'_>, launch: &Launch<'_>, spare: Option<Spare>) -> io::Result<(Newborn, Vec<u8>)> {
    let env = environment(launch, origin.mark);
    let piped = || match spare.and_then(Spare::take) {
        Some(newborn) => Ok(newborn),
        None => bear(trampoline(origin.harness), OutputKind::Pipe),
    };
    let (newborn, outgoing) = match &launch.program {
        Program::Worker(request)
            if launch.invoker.is_none_or(invoker::is_current) && launch.bounds == Bounds::default() =>
        {
            (bear(worker(origin, launch, env), OutputKind::Pipe)?, request_line(request)?)
        }
        Program::Worker(request) => {
            let argv = vec![text(origin.harness)?, WORKER_SUBCOMMAND.into(), "--parent".into(), our_pid()];
            let exec = ExecRequest { argv, env, ..exec_request(origin, launch, ExecStdin::Conversation) };
            (piped()?, [exec.to_bytes()?, request_line(request)?].concat())
        }
        Program::Command(CommandLine { argv, cpus, output, .. }) => {
            let exec = exec_request(origin, launch, ExecStdin::Null);
            let exec = ExecRequest { argv: argv.clone(), env, cpus: cpus.clone(), ..exec };
            let newborn = match output {
                OutputKind::Pipe => piped()?,
                OutputKind::Pty => bear(trampoline(origin.harness), OutputKind::Pty)?,
            };
            (newborn, exec.to_bytes()?)
        }
    };
    if let Some(entrance) = launch.group
        // Before it is told what to become: everything that it takes counts.
        && let Err(error) = std::fs::write(entrance, newborn.pid.as_raw_nonzero().to_string())
    {
        drop(Spare(Some(newborn)));
        return Err(error);
    }
    Ok((newborn, outgoing))
}

/// Starts `command` with a conversation and with streams of this kind.
fn bear(mut command: Command, output: OutputKind) -> io::Result<Newborn> {
    let (conversation, theirs) = UnixStream::pair()?;
    let terminal = match output {
        OutputKind::Pty => Some(terminal(&mut command)?),
        OutputKind::Pipe => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            None
        }
    };
    let mut child = command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0).spawn()?;
    // The command holds the child's ends of a terminal, which would never be closed.
    drop(command);
    let source = match (terminal, child.stdout.take(), child.stderr.take()) {
        (Some(terminal), ..) => Some(Source::Terminal(terminal)),
        (None, Some(stdout), Some(stderr)) => Some(Source::Pipes { stdout: stdout.into(), stderr: stderr.into() }),
        (None, ..) => None,
    };
    // The standard library's handle is let go: it neither reaps nor kills, and the supervisor waits by itself.
    match (i32::try_from(child.id()).ok().and_then(Pid::from_raw), source) {
        (Some(pid), Some(source)) => Ok(Newborn { pid, conversation, source }),
        _ => Err(io::Error::other("a child without pipes")),
    }
}

/// Gives the child a terminal for both streams; the parent's side of it. It changes no byte of what is written, is not
/// the child's controlling terminal, and so sends it no signal.
fn terminal(command: &mut Command) -> io::Result<OwnedFd> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
    let mut modes = rustix::termios::tcgetattr(&theirs)?;
    modes.make_raw();
    rustix::termios::tcsetattr(&theirs, rustix::termios::OptionalActions::Now, &modes)?;
    command.stdout(Stdio::from(theirs.try_clone()?)).stderr(Stdio::from(theirs));
    Ok(ours)
}

/// The directory in which the child works.
pub(super) fn working_directory(launch: &Launch<'_>) -> String {
    let of_command = match &launch.program {
        Program::Command(command) => command.cwd.clone(),
        Program::Worker(_) => None,
    };
    of_command.or_else(|| launch.invoker.map(|invoker| invoker.cwd.clone())).unwrap_or_else(|| ".".into())
}

/// The hot path: the worker already is who it has to be, and one `exec` is enough.
fn worker(origin: &Origin<'_>, launch: &Launch<'_>, env: Vec<(String, String)>) -> Command {
    let mut command = Command::new(origin.harness);
    command.args([WORKER_SUBCOMMAND, "--parent", &our_pid()]);
    if let Some(score) = origin.oom_score_adj {
        command.args(["--oom-score-adj", &score.to_string()]);
    }
    command.env_clear().envs(env).current_dir(working_directory(launch));
    command
}

fn trampoline(harness: &Path) -> Command {
    let mut command = Command::new(harness);
    command.args([exec::SUBCOMMAND, "--parent", &our_pid()]).env_clear();
    command
}

fn exec_request(origin: &Origin<'_>, launch: &Launch<'_>, stdin: ExecStdin) -> ExecRequest {
    ExecRequest {
        argv: Vec::new(),
        env: Vec::new(),
        cwd: working_directory(launch),
        identity: launch.invoker.cloned(),
        oom_score_adj: origin.oom_score_adj,
        stdin,
        cpus: Cpus::All,
        limits: launch.bounds.limits.clone(),
        aslr: launch.bounds.aslr,
    }
}

/// The invoker's environment, or ours, with the launch's changes; the mark comes last and cannot be removed.
pub(super) fn environment(launch: &Launch<'_>, mark: &str) -> Vec<(String, String)> {
    let mut env: BTreeMap<String, String> = match launch.invoker {
        Some(invoker) => invoker.env.iter().cloned().collect(),
        None => std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
    };
    for change in &launch.environment {
        match change {
            EnvChange::Set(name, value) => {
                env.insert(name.clone(), value.clone());
            }
            EnvChange::Unset(name) => {
                env.remove(name);
            }
        }
    }
    env.insert(MARK_VARIABLE.into(), mark.into());
    env.into_iter().collect()
}

fn request_line(request: &Request) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    Ok(line)
}

fn our_pid() -> String {
    getpid().as_raw_nonzero().to_string()
}

fn text(path: &Path) -> io::Result<String> {
    let words = || io::Error::other(format!("{} is not UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(words)
}
