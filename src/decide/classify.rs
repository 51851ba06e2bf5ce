//! From an outcome to a verdict: what a trial was, when the machine stayed up.
//!
//! A labelled table; exactly one row matches every combination of facts, and a test tries them all.
//! The operating system's facts outrank the child's words.

use crate::model::outcome::{EndedBy, Exit, LastReply, Outcome};
use crate::model::protocol::FailureKind;
use crate::model::verdict::{Counted, Judgement, Signature, Verdict};

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
}

/// One row: the facts it matches and the verdict it gives.
#[derive(Debug)]
pub struct OutcomeRule {
    /// Its name in the journal and in `explain`.
    pub label: &'static str,
    /// Matching values of [`OutcomeFacts::ended`].
    pub ended: &'static [Ended],
    /// Matching values of [`OutcomeFacts::ending`].
    pub ending: &'static [Ending],
    /// Matching values of [`OutcomeFacts::word`].
    pub word: &'static [Word],
    /// Matching values of [`OutcomeFacts::promise`].
    pub promise: &'static [Promise],
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in one line.
    pub because: &'static str,
}

use Ended::{Companion, Deadline, Itself, Protocol, Stop};
use Ending::{Asked, Fatal, Kill, NonZero, NotStarted, OtherSignal, Unkillable, Zero};
use Promise::{ArtifactMissing, Kept, ResultWrong};
use Word::{Command, Done, FailedCuda, FailedOom, FailedOther, FailedUnsupported, Running, Silence};

const ANY_ENDED: &[Ended] = &[Itself, Deadline, Stop, Protocol, Companion];
const RAN: &[Ending] = &[Zero, NonZero, Fatal, Kill, Asked, OtherSignal];
const ANY_WORD: &[Word] = &[Command, Silence, Running, Done, FailedCuda, FailedOom, FailedUnsupported, FailedOther];
/// The workload had begun: a command's has from its first instruction, a worker's from `Hello`.
const BEGUN: &[Word] = &[Command, Running, Done, FailedCuda, FailedOom, FailedUnsupported, FailedOther];
const ANY_PROMISE: &[Promise] = &[Kept, ArtifactMissing, ResultWrong];

/// Builds a row; the columns stand in the order of [`OutcomeFacts`].
const fn row(
    label: &'static str,
    columns: (&'static [Ended], &'static [Ending], &'static [Word], &'static [Promise]),
    verdict: Verdict,
    because: &'static str,
) -> OutcomeRule {
    OutcomeRule { label, ended: columns.0, ending: columns.1, word: columns.2, promise: columns.3, verdict, because }
}

/// The table.
#[rustfmt::skip]
pub const OUTCOME_RULES: &[OutcomeRule] = &[
    row("not-started", (ANY_ENDED, &[NotStarted], ANY_WORD, ANY_PROMISE), Verdict::Void, "the child never ran"),
    row("unkillable", (ANY_ENDED, &[Unkillable], ANY_WORD, ANY_PROMISE), Verdict::Unkillable, "it survived SIGKILL: it is stuck in the kernel"),
    row("interrupted", (&[Stop], RAN, ANY_WORD, ANY_PROMISE), Verdict::Void, "a person asked the harness to stop"),
    row("protocol", (&[Protocol], RAN, ANY_WORD, ANY_PROMISE), Verdict::Void, "the child broke the protocol and was ended"),
    row("companion", (&[Companion], RAN, ANY_WORD, ANY_PROMISE), Verdict::Void, "its companion failed, so it was not what its cell asks for"),
    row("silent-deadline", (&[Deadline], RAN, &[Silence], ANY_PROMISE), Verdict::Void, "the worker never said that it runs: nothing of the workload began"),
    row("deadline", (&[Deadline], RAN, BEGUN, ANY_PROMISE), Verdict::Hang, "no progress within the deadline"),
    row("before-hello", (&[Itself], RAN, &[Silence], ANY_PROMISE), Verdict::Void, "the worker died before its first word: nothing of the workload began"),
    row("fatal-signal", (&[Itself], &[Fatal], BEGUN, ANY_PROMISE), Verdict::Crash, "a fatal signal of its own ended it"),
    row("sigkill", (&[Itself], &[Kill], BEGUN, ANY_PROMISE), Verdict::Killed, "SIGKILL, and nothing says who sent it"),
    row("asked-to-end", (&[Itself], &[Asked], BEGUN, ANY_PROMISE), Verdict::Void, "somebody else asked it to end"),
    row("other-signal", (&[Itself], &[OtherSignal], BEGUN, ANY_PROMISE), Verdict::Error, "a signal ended it"),
    row("exit-nonzero", (&[Itself], &[NonZero], &[Command, Running, Done, FailedOther], ANY_PROMISE), Verdict::Error, "it exited with a code that is not 0"),
    row("cuda-error", (&[Itself], &[NonZero], &[FailedCuda], ANY_PROMISE), Verdict::CudaError, "the driver or runtime reported an error"),
    row("cuda-oom", (&[Itself], &[NonZero], &[FailedOom], ANY_PROMISE), Verdict::CudaOom, "device memory could not be had, and it said so"),
    row("unsupported", (&[Itself], &[NonZero], &[FailedUnsupported], ANY_PROMISE), Verdict::Void, "the cell asks for what this machine or build cannot do"),
    row("exit-0-not-done", (&[Itself], &[Zero], &[Running, FailedCuda, FailedOom, FailedUnsupported, FailedOther], ANY_PROMISE), Verdict::ArtifactMissing, "exit 0, and it never said that it was done"),
    row("artifact-missing", (&[Itself], &[Zero], &[Command, Done], &[ArtifactMissing]), Verdict::ArtifactMissing, "exit 0 without an artifact that it promised"),
    row("wrong-result", (&[Itself], &[Zero], &[Command, Done], &[ResultWrong]), Verdict::WrongResult, "a result or an output differs from what it must be"),
    row("pass", (&[Itself], &[Zero], &[Command, Done], &[Kept]), Verdict::Pass, "done, exit 0, everything promised is there and right"),
];

impl OutcomeRule {
    fn matches(&self, facts: &OutcomeFacts) -> bool {
        self.ended.contains(&facts.ended)
            && self.ending.contains(&facts.ending)
            && self.word.contains(&facts.word)
            && self.promise.contains(&facts.promise)
    }
}

/// The verdict on `outcome`, and the rule that gave it.
pub fn classify(outcome: &Outcome) -> (Judgement, &'static OutcomeRule) {
    let facts = facts_of(outcome);
    let rule = OUTCOME_RULES.iter().find(|rule| rule.matches(&facts)).expect("a test shows that one row matches");
    let mut judgement = Judgement::of(rule.verdict);
    judgement.detail = detail_of(outcome, rule.verdict);
    judgement.stage = outcome.stage.clone();
    if rule.verdict.counted() == Counted::Fault {
        judgement.signature = Some(signature_of(outcome, rule.verdict));
    }
    (judgement, rule)
}

/// The facts of `outcome`.
pub fn facts_of(outcome: &Outcome) -> OutcomeFacts {
    let ended = match outcome.ended_by {
        None if outcome.protocol_error.is_some() => Ended::Protocol,
        None => Ended::Itself,
        Some(EndedBy::Timeout | EndedBy::StageTimeout) => Ended::Deadline,
        Some(EndedBy::Stop) => Ended::Stop,
        Some(EndedBy::Protocol) => Ended::Protocol,
        Some(EndedBy::Companion) => Ended::Companion,
    };
    let ending = match outcome.exit {
        Exit::Code(0) => Ending::Zero,
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
    OutcomeFacts { ended, ending, word, promise }
}

fn signal_class(number: i32) -> Ending {
    match signal_name(number) {
        "SIGSEGV" | "SIGBUS" | "SIGILL" | "SIGFPE" | "SIGABRT" => Ending::Fatal,
        "SIGKILL" => Ending::Kill,
        "SIGTERM" | "SIGINT" | "SIGHUP" | "SIGQUIT" => Ending::Asked,
        _ => Ending::OtherSignal,
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

fn status_of(outcome: &Outcome) -> Option<String> {
    match &outcome.exit {
        Exit::Code(code) => Some(format!("exit {code}")),
        Exit::Signal { number, .. } => match signal_name(*number) {
            "signal" => Some(format!("signal {number}")),
            name => Some(name.to_owned()),
        },
        Exit::Unkillable | Exit::NotStarted(_) => None,
    }
}

fn detail_of(outcome: &Outcome, verdict: Verdict) -> Option<String> {
    if let Exit::NotStarted(reason) = &outcome.exit {
        return Some(reason.clone());
    }
    if let Some(error) = &outcome.protocol_error
        && verdict == Verdict::Void
    {
        return Some(error.clone());
    }
    let ended = outcome.ended_by.and_then(|ended_by| match ended_by {
        EndedBy::Timeout => Some("the whole trial took longer than its timeout"),
        EndedBy::StageTimeout => Some("no change of stage within the stage timeout"),
        EndedBy::Stop => Some("interrupted"),
        EndedBy::Companion => outcome.notes.get("companion").map(String::as_str),
        EndedBy::Protocol => None,
    });
    if let Some(words) = ended {
        return Some(words.to_owned());
    }
    if let Some(failure) = &outcome.failure {
        let call = failure.call.as_deref().map(|call| format!("{call}: ")).unwrap_or_default();
        return Some(format!("{call}{}", failure.text));
    }
    if let Some(mismatch) = &outcome.mismatch {
        return Some(format!(
            "{}[{}] is {}, expected {} ({} differ)",
            mismatch.what, mismatch.index, mismatch.got, mismatch.expected, mismatch.count
        ));
    }
    let unkept = outcome.artifacts_missing.first().map(|path| format!("{path} is missing"));
    unkept.or_else(|| outcome.unmet.first().cloned()).or_else(|| match verdict {
        Verdict::Pass => None,
        _ => match (status_of(outcome), &outcome.error_text) {
            (Some(status), Some(text)) => Some(format!("{status}: {text}")),
            (status, _) => status,
        },
    })
}

fn signature_of(outcome: &Outcome, verdict: Verdict) -> Signature {
    let place = match verdict {
        Verdict::CudaError | Verdict::CudaOom => outcome.failure.as_ref().and_then(|failure| {
            failure.call.as_ref().map(|call| match failure.code {
                Some(code) => format!("{call}={code}"),
                None => call.clone(),
            })
        }),
        Verdict::WrongResult => outcome.mismatch.as_ref().map(|m| m.what.clone()).or(outcome.unmet.first().cloned()),
        Verdict::ArtifactMissing => outcome.artifacts_missing.first().cloned(),
        _ => outcome.error_text.clone(),
    };
    // How the harness ended a hanging child says nothing about the hang.
    let status = match verdict {
        Verdict::Hang | Verdict::Unkillable => None,
        _ => status_of(outcome),
    };
    Signature { verdict, status, place, stage: outcome.stage.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDINGS: [Ending; 8] = [Zero, NonZero, Fatal, Kill, Asked, OtherSignal, Unkillable, NotStarted];

    #[test]
    fn exactly_one_row_matches_every_combination_of_facts() {
        let mut combinations = 0;
        for &ended in ANY_ENDED {
            for ending in ENDINGS {
                for &word in ANY_WORD {
                    for &promise in ANY_PROMISE {
                        let facts = OutcomeFacts { ended, ending, word, promise };
                        let rows: Vec<_> = OUTCOME_RULES.iter().filter(|r| r.matches(&facts)).collect();
                        assert_eq!(rows.len(), 1, "{facts:?}: {:?}", rows.iter().map(|r| r.label).collect::<Vec<_>>());
                        combinations += 1;
                    }
                }
            }
        }
        assert_eq!(combinations, 5 * 8 * 8 * 3);
    }

    #[test]
    fn a_pass_needs_exit_0_the_word_done_and_every_promise() {
        for rule in OUTCOME_RULES.iter().filter(|r| r.verdict == Verdict::Pass) {
            assert_eq!((rule.ended, rule.ending, rule.promise), (&[Itself][..], &[Zero][..], &[Kept][..]));
            assert_eq!(rule.word, &[Command, Done]);
        }
    }

    #[test]
    fn the_operating_system_outranks_the_words() {
        let lied = Outcome { last_reply: Some(LastReply::Done), ..Outcome::of(Exit::Code(3)) };
        assert_eq!(classify(&lied).0.verdict, Verdict::Error);
        let crashed = Outcome {
            last_reply: Some(LastReply::Running),
            protocol_error: Some("half a line".into()),
            ..Outcome::of(Exit::Signal { number: 11, core: false })
        };
        assert_eq!(classify(&crashed).0.verdict, Verdict::Crash);
        let silent = Outcome { last_reply: Some(LastReply::Silence), ..Outcome::of(Exit::Code(0)) };
        assert_eq!(classify(&silent).0.verdict, Verdict::Void);
    }
}
