//! The table: which outcome means what.

use super::facts::{Ended, Ending, Fitness, GpuSign, Oom, OutcomeFacts, Promise, Word};
use crate::model::verdict::Verdict;

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
    /// Matching values of [`OutcomeFacts::oom`].
    pub oom: &'static [Oom],
    /// Matching values of [`OutcomeFacts::gpu`].
    pub gpu: &'static [GpuSign],
    /// Matching values of [`OutcomeFacts::fitness`].
    pub fitness: &'static [Fitness],
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in one line.
    pub because: &'static str,
}

use Ended::{Companion, Deadline, Itself, OtherLibrary, Protocol, Stop};
use Ending::{Asked, Fatal, Kill, NonZero, NotStarted, OtherSignal, Unkillable, Zero};
use Fitness::{Fit, Suspended, Undervolted};
use Promise::{ArtifactMissing, Kept, ResultWrong};
use Word::{Command, Done, FailedCuda, FailedOom, FailedOther, FailedUnsupported, Running, Silence};

const ANY_ENDED: &[Ended] = &[Itself, Deadline, Stop, Protocol, Companion, OtherLibrary];
const RAN: &[Ending] = &[Zero, NonZero, Fatal, Kill, Asked, OtherSignal];
const ANY_WORD: &[Word] = &[Command, Silence, Running, Done, FailedCuda, FailedOom, FailedUnsupported, FailedOther];
/// The workload had begun: a command's has from its first instruction, a worker's from `Hello`.
const BEGUN: &[Word] = &[Command, Running, Done, FailedCuda, FailedOom, FailedUnsupported, FailedOther];
/// It could do what it was asked for.
const ABLE: &[Word] = &[Command, Running, Done, FailedCuda, FailedOom, FailedOther];
/// It says nothing of the driver.
const PLAIN: &[Word] = &[Command, Running, Done, FailedOther];
const ANY_PROMISE: &[Promise] = &[Kept, ArtifactMissing, ResultWrong];
const ANY_OOM: &[Oom] = &[Oom::Trial, Oom::Bystander, Oom::Nobody];
const SPARED: &[Oom] = &[Oom::Bystander, Oom::Nobody];
const ANY_GPU: &[GpuSign] =
    &[GpuSign::Dead, GpuSign::Fault, GpuSign::Denied, GpuSign::NoMemory, GpuSign::Error, GpuSign::Quiet];
const USABLE: &[GpuSign] = &[GpuSign::Fault, GpuSign::NoMemory, GpuSign::Error, GpuSign::Quiet];
const UNUSABLE: &[GpuSign] = &[GpuSign::Dead, GpuSign::Denied];
const ANY_FITNESS: &[Fitness] = &[Fit, Suspended, Undervolted];
const AWAKE: &[Fitness] = &[Fit, Undervolted];

/// A row for any evidence beside the outcome; the columns stand in the order of [`OutcomeFacts`].
const fn row(
    label: &'static str,
    columns: (&'static [Ended], &'static [Ending], &'static [Word], &'static [Promise]),
    verdict: Verdict,
    because: &'static str,
) -> OutcomeRule {
    OutcomeRule {
        label,
        ended: columns.0,
        ending: columns.1,
        word: columns.2,
        promise: columns.3,
        oom: ANY_OOM,
        gpu: ANY_GPU,
        fitness: ANY_FITNESS,
        verdict,
        because,
    }
}

/// A row for a child that ended by itself while the machine was awake.
const fn own(
    label: &'static str,
    columns: (&'static [Ending], &'static [Word], &'static [Promise]),
    verdict: Verdict,
    because: &'static str,
) -> OutcomeRule {
    OutcomeRule { fitness: AWAKE, ..row(label, (&[Itself], columns.0, columns.1, columns.2), verdict, because) }
}

/// The table.
#[rustfmt::skip]
pub const OUTCOME_RULES: &[OutcomeRule] = &[
    row("not-started", (ANY_ENDED, &[NotStarted], ANY_WORD, ANY_PROMISE), Verdict::Void, "the child never ran"),
    row("unkillable", (ANY_ENDED, &[Unkillable], ANY_WORD, ANY_PROMISE), Verdict::Unkillable, "it survived SIGKILL: it is stuck in the kernel"),
    row("interrupted", (&[Stop], RAN, ANY_WORD, ANY_PROMISE), Verdict::Void, "a person asked the harness to stop"),
    row("protocol", (&[Protocol], RAN, ANY_WORD, ANY_PROMISE), Verdict::Void, "the child broke the protocol and was ended"),
    row("companion", (&[Companion], RAN, ANY_WORD, ANY_PROMISE), Verdict::Void, "its companion failed, so it was not what its cell asks for"),
    row("other-library", (&[OtherLibrary], RAN, ANY_WORD, ANY_PROMISE), Verdict::Void, "a library that must be loaded was not, or came from another place"),
    row("silent-deadline", (&[Deadline], RAN, &[Silence], ANY_PROMISE), Verdict::Void, "the worker never said that it runs: nothing of the workload began"),
    row("before-hello", (&[Itself], RAN, &[Silence], ANY_PROMISE), Verdict::Void, "the worker died before its first word: nothing of the workload began"),

    // A deadline.
    OutcomeRule { fitness: &[Suspended], ..row("suspended-deadline", (&[Deadline], RAN, BEGUN, ANY_PROMISE), Verdict::Void, "the machine slept: the deadline says nothing") },
    OutcomeRule { fitness: AWAKE, gpu: UNUSABLE, ..row("gpu-unusable-deadline", (&[Deadline], RAN, BEGUN, ANY_PROMISE), Verdict::Void, "the GPU did not start or may not be used: nothing could come of it") },
    OutcomeRule { fitness: AWAKE, gpu: USABLE, ..row("deadline", (&[Deadline], RAN, BEGUN, ANY_PROMISE), Verdict::Hang, "no progress within the deadline") },

    // A signal.
    row("fatal-signal", (&[Itself], &[Fatal], BEGUN, ANY_PROMISE), Verdict::Crash, "a fatal signal of its own ended it"),
    OutcomeRule { oom: &[Oom::Trial], ..row("oom-kill", (&[Itself], &[Kill], BEGUN, ANY_PROMISE), Verdict::OomKill, "SIGKILL, and the out-of-memory killer says that it took a process of the trial") },
    OutcomeRule { oom: SPARED, ..row("sigkill", (&[Itself], &[Kill], BEGUN, ANY_PROMISE), Verdict::Killed, "SIGKILL, and nothing says who sent it") },
    row("asked-to-end", (&[Itself], &[Asked], BEGUN, ANY_PROMISE), Verdict::Void, "somebody else asked it to end"),

    // Its own end.
    OutcomeRule { fitness: &[Suspended], ..own("suspended", (&[Zero, NonZero, OtherSignal], BEGUN, ANY_PROMISE), Verdict::Void, "the machine slept in between: neither its times nor its end are the workload's alone") },
    own("other-signal", (&[OtherSignal], BEGUN, ANY_PROMISE), Verdict::Error, "a signal ended it"),
    own("unsupported", (&[NonZero], &[FailedUnsupported], ANY_PROMISE), Verdict::Void, "the cell asks for what this machine or build cannot do"),
    OutcomeRule { oom: &[Oom::Trial], ..own("oom-kill-within", (&[NonZero], ABLE, ANY_PROMISE), Verdict::OomKill, "the out-of-memory killer took a process of the trial, and it failed over that") },
    OutcomeRule { oom: SPARED, gpu: UNUSABLE, ..own("gpu-unusable", (&[NonZero], ABLE, ANY_PROMISE), Verdict::Void, "the GPU did not start or may not be used: the workload could not begin") },
    OutcomeRule { oom: SPARED, gpu: &[GpuSign::Fault], ..own("gpu-fault", (&[NonZero], PLAIN, ANY_PROMISE), Verdict::CudaError, "it failed, and the kernel tells of a fault of the GPU meanwhile") },
    OutcomeRule { oom: SPARED, gpu: &[GpuSign::Error], ..own("cuda-error-text", (&[NonZero], PLAIN, ANY_PROMISE), Verdict::CudaError, "it failed, and its output tells of a CUDA error") },
    OutcomeRule { oom: SPARED, gpu: &[GpuSign::NoMemory], ..own("no-gpu-memory", (&[NonZero], &[Command, Running, Done, FailedOther, FailedCuda], ANY_PROMISE), Verdict::CudaOom, "it failed, and the GPU's memory could not be had") },
    OutcomeRule { oom: SPARED, gpu: &[GpuSign::Quiet], ..own("exit-nonzero", (&[NonZero], PLAIN, ANY_PROMISE), Verdict::Error, "it exited with a code that is not 0") },
    OutcomeRule { oom: SPARED, gpu: &[GpuSign::Fault, GpuSign::Error, GpuSign::Quiet], ..own("cuda-error", (&[NonZero], &[FailedCuda], ANY_PROMISE), Verdict::CudaError, "the driver or runtime reported an error") },
    OutcomeRule { oom: SPARED, gpu: USABLE, ..own("cuda-oom", (&[NonZero], &[FailedOom], ANY_PROMISE), Verdict::CudaOom, "device memory could not be had, and it said so") },
    OutcomeRule { gpu: UNUSABLE, ..own("gpu-unusable-exit-0", (&[Zero], BEGUN, ANY_PROMISE), Verdict::Void, "the GPU did not start or may not be used: what it did was not done there") },
    OutcomeRule { gpu: USABLE, ..own("exit-0-not-done", (&[Zero], &[Running, FailedCuda, FailedOom, FailedUnsupported, FailedOther], ANY_PROMISE), Verdict::ArtifactMissing, "exit 0, and it never said that it was done") },
    OutcomeRule { gpu: USABLE, ..own("artifact-missing", (&[Zero], &[Command, Done], &[ArtifactMissing]), Verdict::ArtifactMissing, "exit 0 without an artifact that it promised") },
    OutcomeRule { gpu: USABLE, ..own("wrong-result", (&[Zero], &[Command, Done], &[ResultWrong]), Verdict::WrongResult, "a result or an output differs from what it must be") },
    OutcomeRule { gpu: USABLE, fitness: &[Undervolted], ..own("undervoltage", (&[Zero], &[Command, Done], &[Kept]), Verdict::Void, "the supply sagged meanwhile: a pass at lowered clocks is none") },
    OutcomeRule { gpu: USABLE, fitness: &[Fit], ..own("pass", (&[Zero], &[Command, Done], &[Kept]), Verdict::Pass, "done, exit 0, everything promised is there and right") },
];

impl OutcomeRule {
    /// Whether all of `facts` stand in the row.
    pub fn matches(&self, facts: &OutcomeFacts) -> bool {
        self.ended.contains(&facts.ended)
            && self.ending.contains(&facts.ending)
            && self.word.contains(&facts.word)
            && self.promise.contains(&facts.promise)
            && self.oom.contains(&facts.oom)
            && self.gpu.contains(&facts.gpu)
            && self.fitness.contains(&facts.fitness)
    }
}

/// The row of the table that matches `facts`.
pub fn outcome_rule(facts: &OutcomeFacts) -> &'static OutcomeRule {
    OUTCOME_RULES.iter().find(|rule| rule.matches(facts)).expect("a test shows that one row matches")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDINGS: [Ending; 8] = [Zero, NonZero, Fatal, Kill, Asked, OtherSignal, Unkillable, NotStarted];

    fn all() -> impl Iterator<Item = OutcomeFacts> {
        let said = ANY_OOM.iter().flat_map(|&oom| ANY_GPU.iter().map(move |&gpu| (oom, gpu)));
        let beside = said.flat_map(|(oom, gpu)| ANY_FITNESS.iter().map(move |&fitness| (oom, gpu, fitness)));
        beside.flat_map(|(oom, gpu, fitness)| {
            ANY_ENDED.iter().flat_map(move |&ended| {
                ENDINGS.into_iter().flat_map(move |ending| {
                    ANY_WORD.iter().flat_map(move |&word| {
                        ANY_PROMISE.iter().map(move |&promise| OutcomeFacts {
                            ended,
                            ending,
                            word,
                            promise,
                            oom,
                            gpu,
                            fitness,
                        })
                    })
                })
            })
        })
    }

    #[test]
    fn exactly_one_row_matches_every_combination_of_facts() {
        let mut used = vec![0; OUTCOME_RULES.len()];
        for facts in all() {
            let rows: Vec<usize> = (0..OUTCOME_RULES.len()).filter(|&row| OUTCOME_RULES[row].matches(&facts)).collect();
            let labels: Vec<_> = rows.iter().map(|&row| OUTCOME_RULES[row].label).collect();
            assert_eq!(rows.len(), 1, "{facts:?}: {labels:?}");
            used[rows[0]] += 1;
        }
        assert_eq!(used.iter().sum::<usize>(), 6 * 8 * 8 * 3 * 3 * 6 * 3);
        assert!(used.iter().all(|&times| times > 0), "every row is of use");
    }

    #[test]
    fn a_pass_needs_exit_0_the_word_done_every_promise_and_a_fit_machine() {
        for rule in OUTCOME_RULES.iter().filter(|r| r.verdict == Verdict::Pass) {
            assert_eq!((rule.ended, rule.ending, rule.promise), (&[Itself][..], &[Zero][..], &[Kept][..]));
            assert_eq!((rule.word, rule.fitness), (&[Command, Done][..], &[Fit][..]));
            assert!(rule.gpu.iter().all(|gpu| USABLE.contains(gpu)));
        }
    }

    #[test]
    fn without_evidence_beside_the_outcome_no_row_needs_any() {
        let beside = |facts: &OutcomeFacts| (facts.oom, facts.gpu, facts.fitness);
        for facts in all().filter(|facts| beside(facts) == (Oom::Nobody, GpuSign::Quiet, Fit)) {
            assert_ne!(outcome_rule(&facts).verdict, Verdict::OomKill, "{facts:?}");
        }
    }
}
