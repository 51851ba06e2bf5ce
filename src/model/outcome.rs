//! What the parent observed of a trial in the same boot: exit, signal, deadline, last reply.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::evidence::Fact;
use crate::model::kernel_log::KernelFinding;

use crate::model::crash::Crash;
use crate::model::hang::Hang;
use crate::model::protocol::{Failure, Mismatch};
use crate::model::telemetry::TelemetrySummary;
use crate::model::verdict::StageName;

/// How the child process ended, as the operating system tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it; `core` tells whether the kernel says it dumped.
    Signal {
        /// The signal's number.
        number: i32,
        /// Whether a core was dumped.
        core: bool,
    },
    /// It survived SIGKILL past the second deadline and was left behind.
    Unkillable,
    /// It never ran: the reason.
    NotStarted(String),
}

/// Why the harness ended a child that had not ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The whole trial took longer than `timeout`.
    Timeout,
    /// No change of stage for `stage_timeout`.
    StageTimeout,
    /// No output for `silence_timeout`.
    SilenceTimeout,
    /// It served all that was asked of it, or failed to.
    Served,
    /// A person asked the harness to stop (Ctrl-C, SIGTERM, SIGHUP, `jetfault stop`).
    Stop,
    /// The child broke the protocol, and what follows cannot be trusted.
    Protocol,
    /// Its companion failed: what ran from then on was not what the cell asks for.
    Companion,
    /// It loaded another library than the cell asks for, or never did; it ended by itself.
    Library,
}

/// How far the conversation with a worker went; commands have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastReply {
    /// Not a word: the child died before the workload.
    #[default]
    Silence,
    /// It ran, and said neither `Done` nor `Failed`.
    Running,
    /// It said `Done`.
    Done,
    /// It said `Failed`.
    Failed,
}

/// Peaks of memory over the trial, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PeakMemory {
    /// Resident memory of the child process.
    pub host: u64,
    /// Device memory handed out by the allocator (block sizes).
    pub device_allocated: u64,
    /// Device memory the allocator holds.
    pub device_reserved: u64,
    /// Highest sum over time of host weights and reserved device memory.
    pub host_plus_reserved: u64,
}

/// One of the child's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputBytes {
    /// Bytes kept in the trial's file.
    pub kept: u64,
    /// Bytes beyond the limit, dropped.
    pub dropped: u64,
}

/// Whether a process that the kernel names belongs to the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// The child, or one of its descendants.
    Trial,
    /// Somebody else's: a bystander.
    Other,
    /// The line names no process.
    Unnamed,
}

/// One thing that the kernel said while a trial ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFinding {
    /// What it said.
    pub finding: KernelFinding,
    /// Whether the process it names is the trial's.
    pub whose: Whose,
}

/// By how much the counters of the trial's own control group grew (`memory.events`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryEvents {
    /// Times the group reached its own limit and nothing could be reclaimed.
    pub oom: u64,
    /// Processes of the group that an out-of-memory killer took, whatever ran out of memory.
    pub oom_kill: u64,
}

/// A text in the child's output whose meaning is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnownText {
    /// NvMap had no memory to give: `NvMapMemAllocInternalTagged: … error 12`.
    NvmapNoMemory,
    /// The user may not open the GPU's devices.
    GpuPermission,
    /// The library holds no code for this GPU.
    NoKernelImage,
    /// A CUDA call ran out of memory and said so.
    CudaOutOfMemory,
    /// An assertion that is known to hide an out-of-memory error on Tegra.
    MaskedOutOfMemory,
    /// A CUDA error of this number.
    CudaError(u32),
}

/// Everything the parent observed of one trial in the boot in which it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the process ended.
    pub exit: Exit,
    /// Whether a command's exit code is one of those that its matrix calls a success; absent where that is 0 alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_expected: Option<bool>,
    /// Why the harness ended it, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndedBy>,
    /// How far a worker's conversation went; absent for a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reply: Option<LastReply>,
    /// The last stage reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// What a worker said about its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The first result that differs from the oracle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<Mismatch>,
    /// Promised artifacts that are not there (commands).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts_missing: Vec<String>,
    /// Output expectations that were not met (commands), in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
    /// The first line of error output, for the signature of a plain error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
    /// How the child broke the protocol, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_error: Option<String>,
    /// Milliseconds from spawn to the end of the child.
    pub duration_ms: u64,
    /// Milliseconds spent in each stage, in the order they were first reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stage_ms: Vec<(StageName, u64)>,
    /// Named numbers that the workload reported.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Facts that the workload reported in words (backend that ran, kernel code used …).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
    /// Peaks of memory.
    #[serde(default)]
    pub peak_memory: PeakMemory,
    /// Bytes of standard output.
    #[serde(default)]
    pub stdout: OutputBytes,
    /// Bytes of standard error.
    #[serde(default)]
    pub stderr: OutputBytes,
    /// Processes of the trial that were still there after its end and were killed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub leaked: u32,
    /// What the machine's sensors said meanwhile; absent if nothing was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<TelemetrySummary>,
    /// What the kernel said between the trial's start and the end of its settling time; absent where nobody listened.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub kernel: Fact<Vec<TrialFinding>>,
    /// What the trial's control group counted; absent where it had none.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub memory_events: Fact<MemoryEvents>,
    /// How many processes of the whole machine an out-of-memory killer took meanwhile (`oom_kill` of `/proc/vmstat`).
    #[serde(default, skip_serializing_if = "is_absent")]
    pub oom_kills: Fact<u64>,
    /// Whether the trial's marker stands in the kernel's log: only then can what is read after a reset be tied to it.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub kernel_marker: Fact<bool>,
    /// Messages of the kernel that were lost or dropped while the trial ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kernel_lost: u64,
    /// What the child was doing when a deadline ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<Hang>,
    /// Where the child was when a fatal signal met it, if somebody looked (`observer = "core"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Box<Crash>>,
    /// Whether the kernel tells of processes that die of a fault of their own (`debug.exception-trace`); asked only of
    /// such a trial. Where it does not, its silence says nothing.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub exception_trace: Fact<bool>,
    /// Known texts in the child's output, in the order in which each came first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_texts: Vec<KnownText>,
    /// How long the machine slept meanwhile: by how much `CLOCK_BOOTTIME` outran `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspended_ms: u64,
}

fn is_absent<T>(fact: &Fact<T>) -> bool {
    matches!(fact, Fact::Absent)
}

fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}

/// The note of an outcome that says which libraries were loaded, and from where.
pub const LIBRARIES_NOTE: &str = "loads";

/// The note of an outcome that says which program a command was.
pub const PROGRAM_NOTE: &str = "program";

/// The note of an outcome that says what became of the kernel's own core.
pub const CORE_NOTE: &str = "core";

impl Outcome {
    /// Whether the child ended as its matrix calls a success.
    pub fn has_succeeded(&self) -> bool {
        self.exit_expected.unwrap_or(self.exit == Exit::Code(0))
    }

    /// An outcome of which only the exit is known.
    pub fn of(exit: Exit) -> Self {
        Self {
            exit,
            exit_expected: None,
            ended_by: None,
            last_reply: None,
            stage: None,
            failure: None,
            mismatch: None,
            artifacts_missing: Vec::new(),
            unmet: Vec::new(),
            error_text: None,
            protocol_error: None,
            duration_ms: 0,
            stage_ms: Vec::new(),
            metrics: BTreeMap::new(),
            notes: BTreeMap::new(),
            peak_memory: PeakMemory::default(),
            stdout: OutputBytes::default(),
            stderr: OutputBytes::default(),
            leaked: 0,
            telemetry: None,
            kernel: Fact::Absent,
            memory_events: Fact::Absent,
            oom_kills: Fact::Absent,
            kernel_marker: Fact::Absent,
            kernel_lost: 0,
            hang: None,
            crash: None,
            exception_trace: Fact::Absent,
            known_texts: Vec::new(),
            suspended_ms: 0,
        }
    }
}
