//! The facts of an outcome that decide its verdict.

use crate::decide::signs::is_start_failure;
use crate::model::evidence::Fact;
use crate::model::kernel_log::KernelFault;
use crate::model::outcome::{EndedBy, Exit, KnownText, LastReply, Outcome, TrialFinding, Whose};
use crate::model::protocol::FailureKind;

/// Who ended the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It ended by itself.
    Itself,
    /// The harness, because of a deadline.
    Deadline,
    /// The harness, because a person asked it to stop.
    Stop,
    /// The harness, because the child broke the protocol.
    Protocol,
    /// The harness, because the companion failed.
    Companion,
    /// It ended by itself, having loaded another library than its cell asks for.
    OtherLibrary,
}

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Exit code 0.
    Zero,
    /// Another exit code.
    NonZero,
    /// A signal that a program earns by itself: SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT.
    Fatal,
    /// SIGKILL.
    Kill,
    /// A signal by which others ask: SIGTERM, SIGINT, SIGHUP, SIGQUIT.
    Asked,
    /// Any other signal.
    OtherSignal,
    /// It survived SIGKILL.
    Unkillable,
    /// It never ran.
    NotStarted,
}

/// What the child said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// A command: it has no conversation.
    Command,
    /// A worker that said nothing.
    Silence,
    /// A worker that was at work.
    Running,
    /// A worker that was done.
    Done,
    /// A worker that met a driver error.
    FailedCuda,
    /// A worker that could not get device memory.
    FailedOom,
    /// A worker that was asked for what it cannot do.
    FailedUnsupported,
    /// A worker that failed in another way.
    FailedOther,
}

/// Whether the trial delivered what it promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Everything promised is there and right.
    Kept,
    /// An artifact is missing.
    ArtifactMissing,
    /// A result or an output is wrong.
    ResultWrong,
}

/// Whom an out-of-memory killer took meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oom {
    /// A process of the trial.
    Trial,
    /// Somebody else's process.
    Bystander,
    /// Nobody, as far as is known.
    Nobody,
}

/// What was said of the GPU and its memory, by the kernel or in the child's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuSign {
    /// It did not start.
    Dead,
    /// It met a fault.
    Fault,
    /// The user may not use it.
    Denied,
    /// It had no memory to give.
    NoMemory,
    /// A known text tells of a CUDA error.
    Error,
    /// Nothing.
    Quiet,
}

/// Whether the machine was fit to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// Nothing speaks against it.
    Fit,
    /// It slept in between.
    Suspended,
    /// Its supply sagged, and it lowered its clocks.
    Undervolted,
}

/// The facts of an outcome that decide its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeFacts {
    /// Who ended the child.
    pub ended: Ended,
    /// How it ended.
    pub ending: Ending,
    /// What it said last.
    pub word: Word,
    /// Whether it delivered.
    pub promise: Promise,
    /// Whom an out-of-memory killer took.
    pub oom: Oom,
    /// What was said of the GPU.
    pub gpu: GpuSign,
    /// Whether the machine was fit.
    pub fitness: Fitness,
}

/// How long the machine must have slept to have slept: the two clocks are not read at one moment.
const SUSPENDED_MS_MIN: u64 = 1000;

/// The facts of `outcome`.
pub fn facts_of(outcome: &Outcome) -> OutcomeFacts {
    let ended = match outcome.ended_by {
        None if outcome.protocol_error.is_some() => Ended::Protocol,
        None => Ended::Itself,
        Some(EndedBy::Timeout | EndedBy::StageTimeout | EndedBy::SilenceTimeout) => Ended::Deadline,
        // A server ends when it is asked to, and one that has to be killed hangs.
        Some(EndedBy::Served) => match outcome.exit {
            Exit::Signal { number, .. } if signal_name(number) == "SIGKILL" => Ended::Deadline,
            Exit::Code(_) | Exit::Signal { .. } | Exit::Unkillable | Exit::NotStarted(_) => Ended::Itself,
        },
        Some(EndedBy::Stop) => Ended::Stop,
        Some(EndedBy::Protocol) => Ended::Protocol,
        Some(EndedBy::Companion) => Ended::Companion,
        Some(EndedBy::Library) => Ended::OtherLibrary,
    };
    let ending = match outcome.exit {
        Exit::Code(code) if outcome.exit_expected.unwrap_or(code == 0) => Ending::Zero,
        Exit::Code(143) if outcome.ended_by == Some(EndedBy::Served) => Ending::Zero,
        Exit::Signal { number, .. }
            if outcome.ended_by == Some(EndedBy::Served) && signal_name(number) == "SIGTERM" =>
        {
            Ending::Zero
        }
        Exit::Code(_) => Ending::NonZero,
        Exit::Signal { number, .. } => signal_class(number),
        Exit::Unkillable => Ending::Unkillable,
        Exit::NotStarted(_) => Ending::NotStarted,
    };
    // A fatal signal of its own explains a broken last line: the operating system outranks the words.
    let ended = match (ended, ending, outcome.ended_by) {
        (Ended::Protocol, Ending::Fatal | Ending::Kill, None) => Ended::Itself,
        (ended, _, _) => ended,
    };
    let word = match outcome.last_reply {
        None => Word::Command,
        Some(LastReply::Silence) => Word::Silence,
        Some(LastReply::Running) => Word::Running,
        Some(LastReply::Done) => Word::Done,
        Some(LastReply::Failed) => match outcome.failure.as_ref().map(|f| f.kind) {
            Some(FailureKind::Cuda) => Word::FailedCuda,
            Some(FailureKind::CudaOom) => Word::FailedOom,
            Some(FailureKind::Unsupported) => Word::FailedUnsupported,
            Some(FailureKind::HostOom | FailureKind::Other) | None => Word::FailedOther,
        },
    };
    let promise = if !outcome.artifacts_missing.is_empty() {
        Promise::ArtifactMissing
    } else if outcome.mismatch.is_some() || !outcome.unmet.is_empty() {
        Promise::ResultWrong
    } else {
        Promise::Kept
    };
    OutcomeFacts { ended, ending, word, promise, oom: oom(outcome), gpu: gpu_sign(outcome), fitness: fitness(outcome) }
}

fn signal_class(number: i32) -> Ending {
    match signal_name(number) {
        "SIGSEGV" | "SIGBUS" | "SIGILL" | "SIGFPE" | "SIGABRT" => Ending::Fatal,
        "SIGKILL" => Ending::Kill,
        "SIGTERM" | "SIGINT" | "SIGHUP" | "SIGQUIT" => Ending::Asked,
        _ => Ending::OtherSignal,
    }
}

/// What the kernel said of the trial, or of nobody by name.
pub(super) fn own_findings(outcome: &Outcome) -> impl Iterator<Item = &TrialFinding> {
    outcome.kernel.known().into_iter().flatten().filter(|found| found.whose != Whose::Other)
}

fn oom(outcome: &Outcome) -> Oom {
    let kills = || outcome.kernel.known().into_iter().flatten().filter(|f| f.finding.fault == KernelFault::OomKill);
    let counted = outcome.memory_events.known().is_some_and(|events| events.oom_kill > 0);
    if counted || kills().any(|found| found.whose == Whose::Trial) {
        Oom::Trial
    } else if kills().next().is_some() {
        Oom::Bystander
    } else {
        Oom::Nobody
    }
}

/// The kernel's word stands before the program's. A GPU that fails to start after it met a fault did start.
fn gpu_sign(outcome: &Outcome) -> GpuSign {
    let by_kernel = own_findings(outcome).find_map(|found| match found.finding.fault {
        KernelFault::GpuDead if is_start_failure(&found.finding) => Some(GpuSign::Dead),
        KernelFault::GpuFault | KernelFault::GpuDead => Some(GpuSign::Fault),
        KernelFault::NvmapFailure => Some(GpuSign::NoMemory),
        KernelFault::NvmapDenied => Some(GpuSign::Denied),
        _ => None,
    });
    let by_text = || {
        outcome.known_texts.iter().find_map(|text| match text {
            KnownText::GpuPermission => Some(GpuSign::Denied),
            KnownText::NvmapNoMemory | KnownText::CudaOutOfMemory | KnownText::MaskedOutOfMemory => {
                Some(GpuSign::NoMemory)
            }
            KnownText::CudaError(_) => Some(GpuSign::Error),
            KnownText::NoKernelImage => None,
        })
    };
    by_kernel.or_else(by_text).unwrap_or(GpuSign::Quiet)
}

fn fitness(outcome: &Outcome) -> Fitness {
    let sagged = |found: &TrialFinding| found.finding.fault == KernelFault::UnderVoltage;
    if outcome.suspended_ms >= SUSPENDED_MS_MIN {
        Fitness::Suspended
    } else if matches!(&outcome.kernel, Fact::Known(found) if found.iter().any(sagged)) {
        Fitness::Undervolted
    } else {
        Fitness::Fit
    }
}

/// The name of a signal by its Linux number (the same on x86-64 and arm64), else `signal`.
pub fn signal_name(number: i32) -> &'static str {
    const NAMES: [&str; 32] = [
        "signal",
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    usize::try_from(number).ok().and_then(|n| NAMES.get(n)).copied().unwrap_or("signal")
}
