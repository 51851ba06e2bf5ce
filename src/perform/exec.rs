//! The trampoline: what a child does to itself between its birth and the program it is to become.
//!
//! The hidden subcommand `__exec` reads one `ExecRequest` from the conversation socket, gives up the harness's
//! privileges, makes sure that it dies with its parent, and becomes the program. It runs in the child, alone and
//! single-threaded; it must not read the matrix, the journal or the environment of the harness.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Gid, Pid, Resource, Rlimit, Signal, Uid, getppid, setrlimit};
use serde::{Deserialize, Serialize};

use crate::model::journal::Invoker;
use crate::model::settings::{Aslr, Cpus, ResourceLimits};
use crate::perform::{affinity, invoker, os};

/// Name of the hidden subcommand.
pub const SUBCOMMAND: &str = "__exec";

/// How the line begins that is said right before the program is executed; the end of the conversation after it means that it
/// runs. The highest memory of the trampoline in bytes follows: the kernel counts it as the program's.
pub(super) const EXEC_READY: &str = "exec ready ";

/// How the line begins that says why the program could not be executed.
pub(super) const EXEC_FAILED: &str = "exec failed: ";

/// The longest request in bytes: arguments and environment of one program are limited to about this by the kernel.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Exit code of a trampoline that could not become the program, as shells use it; the reason is in the conversation.
const EXIT_NOT_STARTED: u8 = 127;

/// What the program finds on its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExecStdin {
    /// Nothing: `/dev/null`.
    Null,
    /// The conversation: the program is a worker.
    Conversation,
}

/// What to become, and as whom. Parent and trampoline are the same binary, so it carries no version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ExecRequest {
    /// Program and arguments.
    pub(super) argv: Vec<String>,
    /// The whole environment of the program. The trampoline itself runs without it: it may still be root, and
    /// the user's loader variables must not act on it.
    pub(super) env: Vec<(String, String)>,
    /// Working directory, entered as the user.
    pub(super) cwd: String,
    /// Whose user, groups, mask and limits to take; absent: the harness's own.
    pub(super) identity: Option<Invoker>,
    /// The score to return to when the harness protected itself from the out-of-memory killer.
    pub(super) oom_score_adj: Option<i32>,
    /// What the program finds on its standard input.
    pub(super) stdin: ExecStdin,
    /// The CPUs that the program may use; a worker confines itself.
    pub(super) cpus: Cpus,
    /// Limits that differ from the identity's.
    pub(super) limits: ResourceLimits,
    /// Where the kernel places the program's memory.
    pub(super) aslr: Aslr,
}

impl ExecRequest {
    /// The request as it is written: its length in bytes, little-endian in four, then JSON.
    ///
    /// # Errors
    /// If it is too long for the kernel, too.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        Ok([&length.to_le_bytes()[..], &json].concat())
    }

    /// Reads exactly the request: what follows it belongs to the program.
    fn read(conversation: &mut impl Read) -> io::Result<Self> {
        let mut length = [0; 4];
        conversation.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > REQUEST_BYTES_MAX {
            return Err(io::Error::other(format!("{length} bytes are beyond the limit of {REQUEST_BYTES_MAX}")));
        }
        let mut json = vec![0; length];
        conversation.read_exact(&mut json)?;
        serde_json::from_slice(&json).map_err(io::Error::from)
    }
}

/// The flags that bind a re-entered binary to the parent that started it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParentFlags {
    /// `--parent PID`: die with this process; absent when a person runs the subcommand by hand.
    pub parent: Option<i32>,
    /// `--oom-score-adj N`: the score to return to.
    pub oom_score_adj: Option<i32>,
}

impl ParentFlags {
    /// Takes the known flags from the front of `args` and returns what is left of them.
    pub fn take(mut args: &[OsString]) -> (Self, &[OsString]) {
        let mut flags = Self::default();
        while let [name, value, rest @ ..] = args {
            let value = value.to_str().unwrap_or_default();
            match name.to_str() {
                Some("--parent") => flags.parent = value.parse().ok(),
                Some("--oom-score-adj") => flags.oom_score_adj = value.parse().ok(),
                Some(_) | None => break,
            }
            args = rest;
        }
        (flags, args)
    }

    /// Returns the out-of-memory score to the user's, and arranges that this process dies with its parent.
    ///
    /// Must come after any change of credentials: the kernel forgets the arrangement with them.
    ///
    /// # Errors
    /// If the parent is gone already, or the kernel refuses.
    pub fn bind(self) -> io::Result<()> {
        self.oom_score_adj.map_or(Ok(()), return_score)?;
        let Some(parent) = self.parent else { return Ok(()) };
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the arrangement stood; then an adopter is the parent now.
        if getppid().map(Pid::as_raw_nonzero).map(i32::from) != Some(parent) {
            return Err(io::Error::other(format!("the harness (pid {parent}) is gone")));
        }
        Ok(())
    }
}

/// Returns the out-of-memory score to `score`.
///
/// Must come before any change of credentials: after it the files of `/proc/self` are root's, until another program is
/// executed (prctl(2), `PR_SET_DUMPABLE`).
fn return_score(score: i32) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score.to_string())
}

/// Runs the trampoline; returns only if the program could not be executed.
pub fn main(args: &[OsString]) -> ExitCode {
    let (flags, _) = ParentFlags::take(args);
    let mut conversation = match take_conversation() {
        Ok(conversation) => conversation,
        Err(error) => {
            eprintln!("error: {SUBCOMMAND} is internal and needs a conversation on standard input: {error}");
            return ExitCode::from(EXIT_NOT_STARTED);
        }
    };
    let reason = match become_program(flags, &mut conversation) {
        Err(reason) => reason.replace('\n', " "),
        Ok(never) => match never {},
    };
    // Nobody is left to tell if the parent does not listen.
    let _ = conversation.write_all(format!("{EXEC_FAILED}{reason}\n").as_bytes());
    ExitCode::from(EXIT_NOT_STARTED)
}

/// The conversation as a descriptor that no program inherits.
fn take_conversation() -> io::Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?))
}

fn become_program(flags: ParentFlags, conversation: &mut File) -> Result<std::convert::Infallible, String> {
    let request = ExecRequest::read(conversation).map_err(|error| format!("no request: {error}"))?;
    let [program, args @ ..] = &request.argv[..] else { return Err("no program to run".into()) };
    request.identity.iter().try_for_each(take_limits)?;
    raise(&request.limits)?;
    if let Some(score) = request.oom_score_adj {
        return_score(score).map_err(|error| format!("cannot return the out-of-memory score to {score}: {error}"))?;
    }
    request.identity.iter().try_for_each(take_identity)?;
    affinity::confine(&request.cpus).map_err(|error| error.to_string())?;
    match request.aslr {
        Aslr::Kept => {}
        Aslr::Off => os::place_memory_as_always().map_err(|error| format!("cannot turn ASLR off: {error}"))?,
    }
    std::env::set_current_dir(&request.cwd).map_err(|error| format!("cannot enter {:?}: {error}", request.cwd))?;
    flags.bind().map_err(|error| error.to_string())?;
    match request.stdin {
        ExecStdin::Null => {
            let null = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
            rustix::stdio::dup2_stdin(null).map_err(|error| format!("/dev/null: {error}"))?;
            let ready = conversation.write_all(format!("{EXEC_READY}{}\n", os::peak_memory()).as_bytes());
            ready.map_err(|error| format!("the harness does not listen: {error}"))?;
        }
        // A worker says `Hello` itself.
        ExecStdin::Conversation => {}
    }
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(request.env.iter().map(|(name, value)| (name, value)));
    // The last thing: a limit of the address space may be less than this process has.
    limit(&request.limits)?;
    let error = command.exec();
    Err(format!("cannot execute {program:?}: {error}"))
}

/// The limits of the user's session. They come before the user: raising one may need root.
fn take_limits(identity: &Invoker) -> Result<(), String> {
    for (name, current, maximum) in &identity.limits {
        // A limit that a newer build recorded is kept as inherited.
        if let Some(resource) = invoker::resource(name) {
            set_limit(resource, Rlimit { current: *current, maximum: *maximum })
                .map_err(|error| format!("cannot set {name}: {error}"))?;
        }
    }
    Ok(())
}

/// Makes room for the cell's limits beneath hard limits, while there is the right to.
fn raise(limits: &ResourceLimits) -> Result<(), String> {
    each(limits, |resource, most| {
        let have = rustix::process::getrlimit(resource);
        match (have.maximum, most) {
            (Some(have_most), Some(most)) if most <= have_most => Ok(()),
            (None, _) => Ok(()),
            (Some(_), most) => setrlimit(resource, Rlimit { current: have.current, maximum: most }),
        }
    })
}

/// Sets the cell's limits.
fn limit(limits: &ResourceLimits) -> Result<(), String> {
    /// What becoming the program still allocates: its arguments and environment, once more.
    const ROOM_BYTES: usize = 64 * 1024;
    if !limits.0.is_empty() {
        // What was allocated once is there again, whatever the limit of the address space.
        drop(std::hint::black_box(vec![1_u8; ROOM_BYTES]));
    }
    each(limits, |resource, most| setrlimit(resource, Rlimit { current: most, maximum: most }))
}

fn each(limits: &ResourceLimits, set: impl Fn(Resource, Option<u64>) -> rustix::io::Result<()>) -> Result<(), String> {
    limits.0.iter().try_for_each(|(resource, most)| {
        let name = resource.rlimit_name();
        let resource = invoker::resource(&name).ok_or_else(|| format!("{name} is not known here"))?;
        let most_words = most.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
        set(resource, *most).map_err(|error| format!("cannot set {name} to {most_words} (limits): {error}"))
    })
}

/// Groups before the user, which ends the right to change groups.
fn take_identity(identity: &Invoker) -> Result<(), String> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(identity.umask));
    if invoker::has_user(identity) {
        // In a container even root may lack the right to change groups, and nothing has to change.
        return Ok(());
    }
    if [identity.uid, identity.gid].contains(&u32::MAX) {
        return Err("no user or group has the id -1".into());
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let groups: Vec<Gid> = identity.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let words = |what: &'static str| move |error| format!("cannot take {what} of user {}: {error}", identity.uid);
    rustix::thread::set_thread_groups(&groups).map_err(words("the groups"))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(words("the group"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(words("the rights"))
}

/// A hard limit that is lower here than it was there cannot be raised without root; the soft one is still set.
fn set_limit(resource: Resource, wanted: Rlimit) -> rustix::io::Result<()> {
    match setrlimit(resource, wanted) {
        Err(rustix::io::Errno::PERM) => {
            let have = rustix::process::getrlimit(resource);
            let current = match (wanted.current, have.maximum) {
                (Some(wanted), Some(most)) => Some(wanted.min(most)),
                (wanted, most) => wanted.or(most),
            };
            setrlimit(resource, Rlimit { current, maximum: have.maximum })
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_taken_from_the_front_only() {
        let args: Vec<OsString> =
            ["--parent", "12", "--oom-score-adj", "34", "--script", "--parent"].map(OsString::from).into();
        let (flags, rest) = ParentFlags::take(&args);
        assert_eq!(flags, ParentFlags { parent: Some(12), oom_score_adj: Some(34) });
        assert_eq!(rest, &args[4..]);
    }

    #[test]
    fn a_child_whose_parent_is_another_refuses_to_live() {
        let flags = ParentFlags { parent: Some(1 << 22), ..ParentFlags::default() };
        assert!(flags.bind().unwrap_err().to_string().contains("is gone"));
        rustix::process::set_parent_process_death_signal(None).unwrap();
    }
}
