//! The closed vocabulary of results: verdicts, causes, signatures.
//!
//! An *outcome* is observed in the same boot ([`crate::model::outcome`]); a *verdict* is what is concluded
//! from it or, across a boot, from evidence. The two words are never mixed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::ids::IdError;

/// The class of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every stage done, results right.
    Pass,
    /// Numbers or output differ from the oracle.
    WrongResult,
    /// The driver or runtime reported an error.
    CudaError,
    /// A clean allocation failure.
    CudaOom,
    /// SIGKILL with kernel or cgroup evidence of the out-of-memory killer.
    OomKill,
    /// SIGKILL without evidence of who sent it.
    Killed,
    /// SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT.
    Crash,
    /// No progress within the deadline.
    Hang,
    /// A hang that survives SIGKILL.
    Unkillable,
    /// A non-zero exit of another kind.
    Error,
    /// Exit 0 without what it promised.
    ArtifactMissing,
    /// The boot id changed while the trial was open.
    Reboot,
    /// A reboot that the harness declared before it happened.
    Planned,
    /// A person rebooted the machine: a clean shutdown without our intent.
    Operator,
    /// Never ran, unfit machine, harness error, interrupted.
    Void,
}

/// How a verdict enters a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// A sample without a fault.
    Clean,
    /// A sample with a fault.
    Fault,
    /// No sample: shown beside the rate, never in it.
    Excluded,
}

impl Verdict {
    /// Every verdict, in the order of the table in `docs/verdicts.md`.
    pub const ALL: [Verdict; 15] = [
        Verdict::Pass,
        Verdict::WrongResult,
        Verdict::CudaError,
        Verdict::CudaOom,
        Verdict::OomKill,
        Verdict::Killed,
        Verdict::Crash,
        Verdict::Hang,
        Verdict::Unkillable,
        Verdict::Error,
        Verdict::ArtifactMissing,
        Verdict::Reboot,
        Verdict::Planned,
        Verdict::Operator,
        Verdict::Void,
    ];

    /// The word used in TOML, JSON, reports and docs.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::WrongResult => "wrong-result",
            Verdict::CudaError => "cuda-error",
            Verdict::CudaOom => "cuda-oom",
            Verdict::OomKill => "oom-kill",
            Verdict::Killed => "killed",
            Verdict::Crash => "crash",
            Verdict::Hang => "hang",
            Verdict::Unkillable => "unkillable",
            Verdict::Error => "error",
            Verdict::ArtifactMissing => "artifact-missing",
            Verdict::Reboot => "reboot",
            Verdict::Planned => "planned",
            Verdict::Operator => "operator",
            Verdict::Void => "void",
        }
    }

    /// What the verdict means, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Verdict::Pass => "every stage done, results right",
            Verdict::WrongResult => "numbers or output differ from the oracle",
            Verdict::CudaError => "the driver or runtime reported an error",
            Verdict::CudaOom => "a clean allocation failure",
            Verdict::OomKill => "SIGKILL with kernel or cgroup evidence of the out-of-memory killer",
            Verdict::Killed => "SIGKILL without evidence of who sent it",
            Verdict::Crash => "SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT",
            Verdict::Hang => "no progress within the deadline",
            Verdict::Unkillable => "a hang that survives SIGKILL",
            Verdict::Error => "a non-zero exit of another kind",
            Verdict::ArtifactMissing => "exit 0 without what it promised",
            Verdict::Reboot => "the boot id changed while the trial was open",
            Verdict::Planned => "the harness declared this reboot before it happened",
            Verdict::Operator => "a person rebooted: a clean shutdown without our intent",
            Verdict::Void => "never ran, unfit machine, harness error, or interrupted",
        }
    }

    /// Whether it is a sample, and of which kind.
    pub fn counted(self) -> Counted {
        match self {
            Verdict::Pass => Counted::Clean,
            Verdict::WrongResult
            | Verdict::CudaError
            | Verdict::CudaOom
            | Verdict::OomKill
            | Verdict::Crash
            | Verdict::Hang
            | Verdict::Unkillable
            | Verdict::Error
            | Verdict::ArtifactMissing
            | Verdict::Reboot => Counted::Fault,
            Verdict::Killed | Verdict::Planned | Verdict::Operator | Verdict::Void => Counted::Excluded,
        }
    }

    /// Whether the boot may be spoiled for the next trial: a hang, an unkillable child or a GPU error.
    pub fn taints_boot(self) -> bool {
        matches!(self, Verdict::Hang | Verdict::Unkillable | Verdict::CudaError)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a board rebooted, as far as the evidence says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebootCause {
    /// A kernel panic left a record.
    Panic,
    /// A watchdog reset a machine that no longer ran.
    Watchdog,
    /// A thermal trip.
    Thermal,
    /// Power was lost.
    Power,
    /// A reset ordered by software without a clean shutdown.
    SoftwareReset,
    /// The evidence does not say, or contradicts itself.
    Undetermined,
}

impl RebootCause {
    /// The word used in JSON and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            RebootCause::Panic => "panic",
            RebootCause::Watchdog => "watchdog",
            RebootCause::Thermal => "thermal",
            RebootCause::Power => "power",
            RebootCause::SoftwareReset => "software-reset",
            RebootCause::Undetermined => "undetermined",
        }
    }
}

/// The longest stage name, in bytes: it is repeated in every record of a stage.
pub const STAGE_BYTES_MAX: usize = 64;

/// The most distinct stages of one trial, which all stand in one record; a result keeps as many changes of stage.
pub const STAGES_MAX: usize = 4096;

/// A named step inside a trial, such as `C.copy` or a name given by a command's matrix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StageName(String);

impl StageName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<StageName> for String {
    fn from(stage: StageName) -> String {
        stage.0
    }
}

impl TryFrom<String> for StageName {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        let printable = text.chars().all(|c| !c.is_control());
        if text.is_empty() || text.len() > STAGE_BYTES_MAX || !printable {
            let text = text.chars().take(STAGE_BYTES_MAX).collect();
            return Err(IdError { what: "stage name", expected: "1 to 64 printable bytes", text });
        }
        Ok(Self(text))
    }
}

impl std::str::FromStr for StageName {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.to_owned().try_into()
    }
}

/// What makes two faults the same: verdict, signal or code, place, stage.
///
/// `place` is a module build id and file offset for a crash, the normalised first error text for an error,
/// and the call and code for a CUDA error; it is absent where nothing was seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Signature {
    /// The class of the fault.
    pub verdict: Verdict,
    /// Signal name or exit code, such as `SIGSEGV` or `exit 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Where or with which words it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The last stage reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        let parts = [self.status.as_deref(), self.place.as_deref(), self.stage.as_ref().map(StageName::as_str)];
        parts.into_iter().flatten().try_for_each(|part| write!(f, "/{part}"))
    }
}

/// A verdict with what stands beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The class.
    pub verdict: Verdict,
    /// For `reboot`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RebootCause>,
    /// What refines the verdict, such as `refused` beside `cuda-oom` or the reason of a `void`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The last stage reached: the fault happened there or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Milliseconds after that stage of which nothing was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded_ms: Option<u64>,
    /// For a fault: what makes it the same as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Evidence that was missing and would have said more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Judgement {
    /// A bare verdict with nothing beside it.
    pub fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            cause: None,
            detail: None,
            stage: None,
            unrecorded_ms: None,
            signature: None,
            missing: Vec::new(),
        }
    }

    /// What makes this fault the same as another; the class alone where nothing else was seen.
    pub fn fault_signature(&self) -> Signature {
        let bare = || Signature { verdict: self.verdict, status: None, place: None, stage: None };
        self.signature.clone().unwrap_or_else(bare)
    }

    /// A void with its reason.
    pub fn void(reason: impl Into<String>) -> Self {
        Self { detail: Some(reason.into()), ..Self::of(Verdict::Void) }
    }
}

/// Where a number comes from; numbers of different provenance are never mixed in one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// A real trial on a real machine.
    #[default]
    Measured,
    /// A real trial with a deliberate fault.
    Injected,
    /// A trial that ran only in a simulated machine.
    Simulated,
    /// Copied from a published report.
    Transcribed,
}

impl Provenance {
    /// The word used in JSON and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Measured => "measured",
            Provenance::Injected => "injected",
            Provenance::Simulated => "simulated",
            Provenance::Transcribed => "transcribed",
        }
    }
}

/// What a trial is for; only samples are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Counted in its cell's rate.
    #[default]
    Sample,
    /// Run to make the machine warm; a fault in it is its own.
    Warming,
    /// A cell with an expectation that other rows lean on.
    Control,
    /// A deliberate fault that proves the chain of evidence.
    Drill,
}
