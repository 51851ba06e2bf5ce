//! The conversation between parent and worker.
//!
//! Both speak over a socket pair of their own, which the worker finds as its standard input: it reads one
//! [`Request`] line and writes [`Reply`] lines. Standard output belongs to CUDA and to whatever a kernel prints.
//! With `breadcrumbs = "sync"` the parent answers each `Stage` with one line once the stage is durable.

use serde::{Deserialize, Serialize};

use crate::model::ids::TrialId;
use crate::model::matrix::FaultName;
use crate::model::outcome::PeakMemory;
use crate::model::quantity::Bytes;
use crate::model::settings::{Breadcrumbs, CompanionLoad, Settings};
use crate::model::verdict::StageName;

/// Version of the conversation. Parent and worker are the same binary; it guards a changed binary in mid-run.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest reply line in bytes, its newline included; a longer one breaks the protocol.
pub const REPLY_BYTES_MAX: usize = 16 * 1024;

/// The most replies of one trial; more break the protocol, so that a child cannot fill the disk through the journal.
pub const REPLIES_MAX: u64 = 1_000_000;

/// The line that tells a worker that its last stage is durable.
pub const STAGE_ACKNOWLEDGED: &str = "durable";

/// What a worker is asked to do: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Must equal [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// The trial, for messages.
    pub trial: TrialId,
    /// Seed of weights and inputs.
    pub seed: u64,
    /// What to do.
    pub work: Work,
    /// How stages are told.
    #[serde(default)]
    pub breadcrumbs: Breadcrumbs,
    /// A fault to commit on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject: Option<InjectedFault>,
}

/// The work of one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A cell of a matrix.
    Cell(Box<Settings>),
    /// A load beside a trial, until SIGTERM: the worker is the companion of another one.
    Load(CompanionLoad),
    /// Memory that is held beside a trial, until SIGTERM.
    Ballast(Bytes),
    /// A script of the fake worker that supervision is tested with, one action a line (see `workload::fake`).
    Script(String),
}

/// A fault that the worker commits itself; those of the whole machine are its parent's, see [`super::injection`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InjectedFault {
    /// Which fault.
    pub fault: WorkerFault,
    /// The stage at whose beginning it is committed, or [`super::injection::START`]; absent: right after `Hello`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<StageName>,
}

/// The faults a worker can commit in its own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerFault {
    /// Exits with code 3 without a word.
    Exit,
    /// Reads address zero.
    Segv,
    /// Calls `abort`.
    Abort,
    /// Waits for ever.
    Hang,
    /// Computes for ever.
    Spin,
    /// Takes memory until the kernel kills it; without overcommitment it aborts when there is no more.
    Oom,
    /// Spoils one result.
    Wrong,
    /// Takes one second longer in the stage.
    Slow,
}

impl WorkerFault {
    /// The worker's own fault of that name; those of the whole machine and of the driver are not the worker's to commit.
    pub fn of(fault: FaultName) -> Option<Self> {
        match fault {
            FaultName::Exit => Some(Self::Exit),
            FaultName::Segv => Some(Self::Segv),
            FaultName::Abort => Some(Self::Abort),
            FaultName::Hang => Some(Self::Hang),
            FaultName::Spin => Some(Self::Spin),
            FaultName::Wrong => Some(Self::Wrong),
            FaultName::Slow => Some(Self::Slow),
            FaultName::Oom => Some(Self::Oom),
            FaultName::Reset | FaultName::Panic | FaultName::Poweroff | FaultName::Freeze => None,
            FaultName::CudaError => None,
        }
    }
}

/// What a worker says, one JSON object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// First, before any GPU library is loaded.
    Hello {
        /// [`PROTOCOL_VERSION`] of the worker.
        protocol: u32,
    },
    /// It is alive; sent between stages of long computations.
    Beat,
    /// It enters this stage.
    Stage {
        /// The stage.
        stage: StageName,
    },
    /// A named number.
    Metric {
        /// Its name, unit last.
        name: String,
        /// Its value.
        value: f64,
    },
    /// A named fact in words, such as which backend ran and why.
    Note {
        /// Its name.
        name: String,
        /// The words.
        text: String,
    },
    /// A result differs from the oracle.
    Mismatch(Mismatch),
    /// All stages done, all results checked.
    Done {
        /// Peaks of memory as the worker knows them.
        peak_memory: PeakMemory,
    },
    /// The workload could not go on.
    Failed(Failure),
}

/// A result that differs from what the oracle allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Which result, such as `C.forward`.
    pub what: String,
    /// Index of the first differing element.
    pub index: u64,
    /// What was expected, as printed for people.
    pub expected: String,
    /// What was found.
    pub got: String,
    /// How many elements of those checked differ.
    pub count: u64,
}

/// Why a workload could not go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The library call that failed, such as `cuMemAlloc_v2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// What was refused, of a failure to get device memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRefused>,
    /// In words.
    pub text: String,
}

/// A request for device memory that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRefused {
    /// Bytes that the driver was asked for.
    pub asked: u64,
    /// Bytes that it called free right after, as `cudaMemGetInfo` does.
    pub free: u64,
}

/// The kinds of failure a worker tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The driver or runtime reported an error.
    Cuda,
    /// Device memory could not be had.
    CudaOom,
    /// Host memory could not be had.
    HostOom,
    /// The request asks for what this machine or build cannot do: the trial is void.
    Unsupported,
    /// Anything else.
    Other,
}

/// Where a conversation stands; a closed machine, so that a lying child is caught at the first illegal word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation {
    /// Nothing was said.
    Silent,
    /// `Hello` was said.
    Running,
    /// A result was reported wrong; only `Done` and further mismatches may follow.
    Mismatched,
    /// `Done` was said: the end.
    Done,
    /// `Failed` was said: the end.
    Failed,
}

/// A reply that may not come where it came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("worker said {reply} when the conversation was {state:?}")]
pub struct IllegalReply {
    /// Where the conversation stood.
    pub state: Conversation,
    /// The reply's name.
    pub reply: &'static str,
}

impl Conversation {
    /// Where the conversation stands after `reply`.
    ///
    /// # Errors
    /// If `reply` may not come here, or speaks another version.
    pub fn next(self, reply: &Reply) -> Result<Self, IllegalReply> {
        let illegal = |name| Err(IllegalReply { state: self, reply: name });
        match (self, reply) {
            (Conversation::Silent, Reply::Hello { protocol }) if *protocol == PROTOCOL_VERSION => {
                Ok(Conversation::Running)
            }
            (_, Reply::Hello { .. }) => illegal("Hello"),
            (Conversation::Running, Reply::Beat | Reply::Metric { .. } | Reply::Note { .. }) => {
                Ok(Conversation::Running)
            }
            (Conversation::Mismatched, Reply::Beat | Reply::Metric { .. } | Reply::Note { .. }) => {
                Ok(Conversation::Mismatched)
            }
            (_, Reply::Beat) => illegal("Beat"),
            (_, Reply::Metric { .. }) => illegal("Metric"),
            (_, Reply::Note { .. }) => illegal("Note"),
            (Conversation::Running, Reply::Stage { .. }) => Ok(Conversation::Running),
            (Conversation::Mismatched, Reply::Stage { .. }) => Ok(Conversation::Mismatched),
            (_, Reply::Stage { .. }) => illegal("Stage"),
            (Conversation::Running | Conversation::Mismatched, Reply::Mismatch(_)) => Ok(Conversation::Mismatched),
            (_, Reply::Mismatch(_)) => illegal("Mismatch"),
            (Conversation::Running | Conversation::Mismatched, Reply::Done { .. }) => Ok(Conversation::Done),
            (_, Reply::Done { .. }) => illegal("Done"),
            (Conversation::Running | Conversation::Mismatched, Reply::Failed(_)) => Ok(Conversation::Failed),
            (_, Reply::Failed(_)) => illegal("Failed"),
        }
    }
}
