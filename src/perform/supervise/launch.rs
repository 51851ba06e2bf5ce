//! What to start and within which limits: the description that the caller hands to the supervisor.

use std::path::Path;
use std::time::Duration;

use regex::bytes::Regex;

use crate::decide::core_pattern::CorePattern;
use crate::model::journal::Invoker;
use crate::model::protocol::Request;
use crate::model::settings::{Aslr, Cpus, NumberRange, Observer, OutputKind, ResourceLimits};
use crate::model::verdict::StageName;
use crate::perform::processes::RunMark;

/// How long a child has to obey SIGTERM before SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);

/// How long a child may survive SIGKILL before it is given up as unkillable.
pub const KILL_WAIT: Duration = Duration::from_secs(10);

/// How long after the child's end the machine is watched, still on the trial's account.
pub const SETTLE: Duration = Duration::from_secs(2);

/// How many bytes of each output stream are kept.
pub const OUTPUT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// One trial's child.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What runs.
    pub program: Program,
    /// The run, for the mark that every process of the trial carries.
    pub run: &'a RunMark,
    /// The trial's directory; `stdout.log` and `stderr.log` are written there. The invoker must be able to enter it.
    pub trial_dir: &'a Path,
    /// Changes of the environment, applied in order.
    pub environment: Vec<EnvChange>,
    /// When patience ends.
    pub deadlines: Deadlines,
    /// How many bytes of each output stream are kept, see [`OUTPUT_BYTES_MAX`].
    pub output_bytes_max: u64,
    /// The file that puts it into a control group of its own; absent: it stays in ours.
    pub group: Option<&'a Path>,
    /// What it is bound by beside its own program.
    pub bounds: Bounds,
    /// What watches it from inside its machine.
    pub observer: Observer,
    /// What the system does with cores, if a tracer is to keep it from too large a one.
    pub core_pattern: Option<CorePattern>,
    /// As whom and with which environment it runs; absent: as the harness itself.
    pub invoker: Option<&'a Invoker>,
}

impl<'a> Launch<'a> {
    /// `program`, watched with `deadlines`, as the harness itself and with nothing changed.
    pub fn new(program: Program, run: &'a RunMark, trial_dir: &'a Path, deadlines: Deadlines) -> Self {
        Self {
            program,
            run,
            trial_dir,
            environment: Vec::new(),
            deadlines,
            output_bytes_max: OUTPUT_BYTES_MAX,
            group: None,
            bounds: Bounds::default(),
            observer: Observer::None,
            core_pattern: None,
            invoker: None,
        }
    }
}

/// What a child is bound by beside its own program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Limits that differ from the invoker's.
    pub limits: ResourceLimits,
    /// Where the kernel places its memory.
    pub aslr: Aslr,
}

/// What runs in the child.
#[derive(Debug)]
pub enum Program {
    /// Our own worker, in conversation with us.
    Worker(Request),
    /// A program of the user's.
    Command(CommandLine),
}

/// A program of the user's and what its output means.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// Program and arguments; no shell touches them.
    pub argv: Vec<String>,
    /// Working directory; absent: the invoker's.
    pub cwd: Option<String>,
    /// The CPUs that it may use.
    pub cpus: Cpus,
    /// Stages in their order. A line is compared with those that were not reached yet, and the first that matches
    /// is reached; stages may be skipped, and never go back.
    pub stages: Vec<(StageName, Regex)>,
    /// Numbers in the output: the first group of the last match counts.
    pub metrics: Vec<(String, Regex)>,
    /// Files that must exist after exit 0, relative to `cwd`.
    pub artifacts: Vec<String>,
    /// Libraries that must be mapped from these paths.
    pub loads: Vec<String>,
    /// Exit codes that are a success; empty for 0 alone.
    pub exit_codes: Vec<i32>,
    /// What the output must say and must not say.
    pub expect_output: Vec<Expectation>,
    /// What it writes to.
    pub output: OutputKind,
    /// The first line that matches shows a server to be ready: a stage beside the ordered ones.
    pub ready: Option<Regex>,
}

/// One thing that the output must or must not say.
#[derive(Debug, Clone)]
pub enum Expectation {
    /// Some line contains this text.
    Contains(String),
    /// No line contains this text.
    Lacks(String),
    /// Some line matches.
    Matches(Regex),
    /// This metric is there, and its last number lies in the range.
    Number(String, NumberRange),
}

/// One change of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvChange {
    /// The variable gets this value.
    Set(String, String),
    /// The variable is removed.
    Unset(String),
}

/// When patience ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// For the whole trial, from its start.
    pub timeout: Duration,
    /// Without a change of stage; absent: silence is not a hang.
    pub stage_timeout: Option<Duration>,
    /// Without a byte of output; absent: silence is not a hang.
    pub silence_timeout: Option<Duration>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Between SIGKILL and giving up.
    pub kill_wait: Duration,
    /// Watched after the child's end.
    pub settle: Duration,
}

impl Deadlines {
    /// The usual patience, with `timeout` for the whole trial and no deadline for a stage.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, stage_timeout: None, silence_timeout: None, grace: GRACE, kill_wait: KILL_WAIT, settle: SETTLE }
    }
}
