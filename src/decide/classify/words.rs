//! What stands beside the verdict on an outcome, in words, and what makes two faults the same.

use super::facts::{Fitness, GpuSign, Oom, OutcomeFacts, own_findings, signal_name};
use crate::decide::crash::telling_frame;
use crate::decide::signs::is_start_failure;
use crate::model::evidence::Fact;
use crate::model::hang::Hang;
use crate::model::kernel_log::{FaultPlace, KernelFault, KernelFinding, LogClass, OomScope, Weight};
use crate::model::outcome::{EndedBy, Exit, KnownText, LIBRARIES_NOTE, Outcome, TrialFinding, Whose};
use crate::model::protocol::MemoryRefused;
use crate::model::verdict::{Signature, Verdict};

/// The note of an outcome that says why what ran beside the trial made it another trial than its cell asks for.
pub const COMPANION_FAILURE: &str = "companion.failure";

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

/// What refines the verdict: what was said beside the outcome first, then how the child ended.
pub(super) fn detail_of(outcome: &Outcome, facts: &OutcomeFacts, verdict: Verdict) -> Option<String> {
    let parts = [sign(outcome, facts, verdict), base_detail(outcome, verdict), kernel_note(outcome, verdict)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

/// The word for what decided between this verdict and a plainer one.
fn sign(outcome: &Outcome, facts: &OutcomeFacts, verdict: Verdict) -> Option<String> {
    let has_text = |text| outcome.known_texts.contains(&text);
    let word = match verdict {
        Verdict::Void if facts.fitness == Fitness::Suspended => "suspended",
        Verdict::Void if facts.gpu == GpuSign::Dead => return Some(dead_word(outcome).to_owned()),
        Verdict::Void if facts.gpu == GpuSign::Denied => "permission",
        Verdict::Void if facts.fitness == Fitness::Undervolted => "throttled by under-voltage",
        Verdict::CudaError => return gpu_word(outcome),
        Verdict::CudaOom if has_text(KnownText::NvmapNoMemory) || said(outcome, KernelFault::NvmapFailure) => {
            "nvmap-enomem"
        }
        Verdict::CudaOom if has_text(KnownText::MaskedOutOfMemory) => "masked",
        Verdict::CudaOom => match outcome.failure.as_ref()?.memory? {
            MemoryRefused { asked, free } if free >= asked => "refused",
            MemoryRefused { .. } => "real",
        },
        Verdict::OomKill => return Some(oom_words(outcome)),
        Verdict::Killed if facts.oom == Oom::Bystander => "the out-of-memory killer took another process",
        Verdict::Killed if outcome.oom_kills.known().is_some_and(|kills| *kills > 0) => {
            "the out-of-memory killer took a process of the machine meanwhile, and nothing says which"
        }
        Verdict::Hang | Verdict::Unkillable => return outcome.hang.as_ref().map(hang_words),
        Verdict::Crash => return crash_words(outcome),
        Verdict::Error if has_text(KnownText::NoKernelImage) => "no-kernel-image",
        _ => return None,
    };
    Some(word.to_owned())
}

/// How it hung, with where its first threads waited: those that say most stand first.
fn hang_words(hang: &Hang) -> String {
    match hang.threads.iter().find(|threads| !threads.wchan.is_empty()) {
        Some(threads) => format!("{} in {}", hang.kind, threads.wchan),
        None => hang.kind.to_string(),
    }
}

fn said(outcome: &Outcome, fault: KernelFault) -> bool {
    own_findings(outcome).any(|found| found.finding.fault == fault)
}

fn dead_word(outcome: &Outcome) -> &'static str {
    let by_acr = |text: &str| text.to_ascii_lowercase().contains("acr");
    let mut starts = own_findings(outcome).filter(|found| is_start_failure(&found.finding));
    if starts.any(|found| by_acr(&found.finding.text)) { "acr" } else { "gpu-dead" }
}

/// The first fault of the GPU by the kernel's word, else by the output's. What came after it is its consequence.
fn gpu_word(outcome: &Outcome) -> Option<String> {
    let of_kernel = own_findings(outcome).find_map(|found| gpu_fault_word(&found.finding));
    let of_text = || {
        outcome.known_texts.iter().find_map(|text| match text {
            KnownText::CudaError(code) => Some(format!("cuda {code}")),
            _ => None,
        })
    };
    of_kernel.or_else(of_text)
}

/// `mmu`, `xid31`, or what the rule is called. nvgpu's notifiers have the numbers of Xids, and 31 is an MMU fault.
fn gpu_fault_word(finding: &KernelFinding) -> Option<String> {
    if finding.class != LogClass::Gpu {
        return None;
    }
    Some(match (finding.rule.as_str(), finding.detail.code) {
        ("nvgpu-mmu", _) | ("nvgpu-notifier", Some(31)) => "mmu".to_owned(),
        (_, Some(code)) => format!("xid{code}"),
        (rule, None) => rule.to_owned(),
    })
}

/// Whose memory ran out, and how many others died over it.
fn oom_words(outcome: &Outcome) -> String {
    let kills = outcome.kernel.known().into_iter().flatten().filter(|f| f.finding.fault == KernelFault::OomKill);
    let bystanders = kills.filter(|found| found.whose == Whose::Other).count();
    let scope = oom_scope(outcome);
    if bystanders > 0 { format!("{scope}, and {bystanders} bystander(s)") } else { scope.to_owned() }
}

fn oom_scope(outcome: &Outcome) -> &'static str {
    let kills = outcome.kernel.known().into_iter().flatten().filter(|f| f.finding.fault == KernelFault::OomKill);
    let mut own = kills.filter(|found| found.whose == Whose::Trial).filter_map(|found| found.finding.detail.scope);
    let counted = outcome.memory_events.known().map(|events| events.oom > 0);
    match (own.next(), counted) {
        (Some(OomScope::Cgroup), _) | (None | Some(OomScope::Unknown), Some(true)) => "cgroup",
        (Some(OomScope::Global), _) | (None | Some(OomScope::Unknown), Some(false)) => "global",
        (None | Some(OomScope::Unknown), None) => "of some scope",
    }
}

/// What else the kernel said of itself or the hardware, beside a fault of the trial's that it may explain.
fn kernel_note(outcome: &Outcome, verdict: Verdict) -> Option<String> {
    let is_open = matches!(verdict, Verdict::Hang | Verdict::Unkillable | Verdict::Error | Verdict::Crash);
    let mut words: Vec<&str> = Vec::new();
    for found in own_findings(outcome).filter(|found| is_open && found.finding.weight == Weight::Fault) {
        let word = found.finding.fault.as_str();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    (!words.is_empty()).then(|| format!("the kernel tells of {}", words.join(", ")))
}

/// Evidence that was missing and would have said more.
pub(super) fn missing(outcome: &Outcome, verdict: Verdict) -> Vec<String> {
    let is_counted = outcome.memory_events.known().is_some();
    let missing = match verdict {
        Verdict::Killed if is_counted => return Vec::new(),
        Verdict::Killed if outcome.kernel.known().is_none() => {
            "the kernel's log or a control group of the trial's own: whether the out-of-memory killer sent it"
                .to_owned()
        }
        Verdict::Killed if outcome.kernel_lost > 0 => {
            format!("{} lost messages of the kernel: whether the out-of-memory killer sent it", outcome.kernel_lost)
        }
        Verdict::Crash if crash_place(outcome).is_some() => return Vec::new(),
        Verdict::Crash if outcome.exception_trace == Fact::Known(false) => {
            "where it crashed: the kernel tells nobody (debug.exception-trace = 0), and nobody else looked \
             (observer = \"core\" does)"
                .to_owned()
        }
        Verdict::Crash => "where it crashed: observer = \"core\" looks".to_owned(),
        _ => return Vec::new(),
    };
    vec![missing]
}

/// What the child itself and the harness say of its end.
fn base_detail(outcome: &Outcome, verdict: Verdict) -> Option<String> {
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
        EndedBy::SilenceTimeout => Some("no output within the silence timeout"),
        EndedBy::Served if verdict == Verdict::Hang => Some("it did not end when it was asked to"),
        EndedBy::Served => None,
        EndedBy::Stop => Some("interrupted"),
        EndedBy::Protocol => None,
        EndedBy::Companion => {
            outcome.notes.get(COMPANION_FAILURE).or(outcome.notes.get("companion")).map(String::as_str)
        }
        EndedBy::Library => outcome.notes.get(LIBRARIES_NOTE).map(String::as_str),
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
    let unkept = || {
        let missing = outcome.artifacts_missing.first().map(|path| format!("{path} is missing"));
        missing.or_else(|| outcome.unmet.first().cloned())
    };
    // How it ended comes before what it therefore did not do.
    matches!(verdict, Verdict::WrongResult | Verdict::ArtifactMissing).then(unkept).flatten().or_else(
        || match verdict {
            Verdict::Pass => None,
            _ => match (status_of(outcome), &outcome.error_text) {
                (Some(status), Some(text)) => Some(format!("{status}: {text}")),
                (status, _) => status,
            },
        },
    )
}

/// The place of a crash: by who looked, else by the kernel's line, whose offset is the file's on newer kernels only.
fn crash_place(outcome: &Outcome) -> Option<String> {
    let seen = outcome.crash.as_deref().and_then(telling_frame).map(ToString::to_string);
    seen.or_else(|| {
        let place = kernel_place(outcome)?;
        Some(format!("{}+{:#x}", place.module, place.file_offset?))
    })
}

fn kernel_place(outcome: &Outcome) -> Option<&FaultPlace> {
    let segfault = |found: &&TrialFinding| found.finding.fault == KernelFault::Segfault && found.whose == Whose::Trial;
    outcome.kernel.known()?.iter().find(segfault)?.finding.detail.place.as_ref()
}

/// `SIGSEGV at 0x28 in libx.so@1a2b3c4d+0x1183, thread worker, with 6 others`.
fn crash_words(outcome: &Outcome) -> Option<String> {
    let status = status_of(outcome)?;
    let Some(crash) = outcome.crash.as_deref() else {
        return Some(format!("{status} in {}", crash_place(outcome)?));
    };
    let at = crash.address.map(|address| format!(" at {address}")).unwrap_or_default();
    let place = telling_frame(crash).map(|frame| format!(" in {frame}")).unwrap_or_default();
    let others: u32 = crash.others.iter().map(|other| other.count).sum();
    let beside = if others > 0 { format!(", beside {others} others") } else { String::new() };
    Some(format!("{status}{at}{place}, thread {}{beside}", crash.thread.name))
}

/// What makes the fault the same as another.
pub(super) fn signature_of(outcome: &Outcome, facts: &OutcomeFacts, verdict: Verdict) -> Signature {
    let place = match verdict {
        Verdict::CudaError | Verdict::CudaOom => {
            let call = outcome.failure.as_ref().and_then(|failure| {
                failure.call.as_ref().map(|call| match failure.code {
                    Some(code) => format!("{call}={code}"),
                    None => call.clone(),
                })
            });
            call.or_else(|| sign(outcome, facts, verdict))
        }
        Verdict::OomKill => Some(oom_scope(outcome).to_owned()),
        Verdict::Hang | Verdict::Unkillable => outcome.hang.as_ref().map(hang_words).or(outcome.error_text.clone()),
        Verdict::WrongResult => outcome.mismatch.as_ref().map(|m| m.what.clone()).or(outcome.unmet.first().cloned()),
        Verdict::ArtifactMissing => outcome.artifacts_missing.first().cloned(),
        Verdict::Crash => crash_place(outcome).or(outcome.error_text.clone()),
        _ => outcome.error_text.clone(),
    };
    // How the harness ended a hanging child says nothing about the hang.
    let status = match verdict {
        Verdict::Hang | Verdict::Unkillable => None,
        _ => status_of(outcome),
    };
    Signature { verdict, status, place, stage: outcome.stage.clone() }
}
