//! What the kernel and the child's output say of a trial in its own boot.
//!
//! Interprets lines; what they mean for the verdict is [`crate::decide::classify`]'s.

use crate::decide::kernel_log::classify;
use crate::model::kernel_log::KernelFinding;
use crate::model::outcome::{KnownText, TrialFinding, Whose};

/// The most findings of one trial.
const FINDINGS_MAX: usize = 64;

/// The most bytes of a line of output in which a text is looked for.
const TEXT_BYTES_MAX: usize = 4096;

/// What the kernel's `lines` of a trial's window say. `whose` tells whether a process id is the trial's.
pub fn kernel_findings<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    whose: impl Fn(u32) -> Whose,
) -> Vec<TrialFinding> {
    let whose_of = |finding: &KernelFinding| finding.detail.pid.map_or(Whose::Unnamed, &whose);
    let findings = classify(lines).findings.into_iter().take(FINDINGS_MAX);
    findings.map(|finding| TrialFinding { whose: whose_of(&finding), finding }).collect()
}

/// Whether the GPU did not start at all, which is no fault of what ran on it.
pub fn is_start_failure(finding: &KernelFinding) -> bool {
    matches!(finding.rule.as_str(), "nvgpu-start" | "nvrm-start")
}

/// Texts whose meaning is known, in lower case. The first that a line holds gives its meaning.
///
/// Numbers are those of the CUDA runtime (`cudaError_t`); the texts are its own (`cudaGetErrorString`), and PyTorch's
/// and ggml's around them.
const TEXTS: &[(&str, KnownText)] = &[
    ("nvrmmeminitnvmap failed with permission denied", KnownText::GpuPermission),
    // An assertion in PyTorch's allocator, met when the driver has no memory and NVML no counters to print.
    ("nvml_success == r internal assert failed", KnownText::MaskedOutOfMemory),
    ("cuda error: out of memory", KnownText::CudaOutOfMemory),
    ("cuda out of memory", KnownText::CudaOutOfMemory),
    ("cudaerrormemoryallocation", KnownText::CudaOutOfMemory),
    ("cuda_error_out_of_memory", KnownText::CudaOutOfMemory),
    ("no kernel image is available for execution on the device", KnownText::NoKernelImage),
    ("named symbol not found", KnownText::NoKernelImage),
    ("an illegal memory access was encountered", KnownText::CudaError(700)),
    ("cudaerrorillegaladdress", KnownText::CudaError(700)),
    ("cuda_error_illegal_address", KnownText::CudaError(700)),
    ("the launch timed out and was terminated", KnownText::CudaError(702)),
    ("misaligned address", KnownText::CudaError(716)),
    ("unspecified launch failure", KnownText::CudaError(719)),
];

/// One of these stands in every line whose meaning is known, in whatever case: whoever sees many lines asks for these
/// first.
pub const HINTS: [&str; 8] =
    ["cuda", "nvmap", "nvml", "named symbol", "kernel image", "memory access", "launch", "misaligned"];

/// What comes before a bare number of an error.
const NUMBERED: [&str; 3] = ["cuda error ", "cuda error: ", "cudaerror "];

/// The meaning of one line of the child's output, if it is a known one.
pub fn known_text(line: &[u8]) -> Option<KnownText> {
    let line = String::from_utf8_lossy(&line[..line.len().min(TEXT_BYTES_MAX)]).to_ascii_lowercase();
    nvmap_no_memory(&line).or_else(|| {
        let known = TEXTS.iter().find(|(text, _)| line.contains(text)).map(|(_, meaning)| *meaning);
        known.or_else(|| numbered(&line))
    })
}

/// `NvMapMemAllocInternalTagged: 1075072515 error 12`: the first number is that of the ioctl, whatever was asked for;
/// 12 is ENOMEM. `error 0` follows and adds nothing.
fn nvmap_no_memory(line: &str) -> Option<KnownText> {
    let (_, rest) = line.split_once("nvmapmem")?;
    rest.trim_end().ends_with(" error 12").then_some(KnownText::NvmapNoMemory)
}

/// `CUDA error 700 …`: 2 is out of memory, 209 a missing kernel image.
fn numbered(line: &str) -> Option<KnownText> {
    let digits = NUMBERED.iter().find_map(|before| {
        let (_, rest) = line.split_once(before)?;
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        (1..=4).contains(&digits.len()).then_some(digits)
    })?;
    match digits.parse().ok()? {
        0 => None,
        2 => Some(KnownText::CudaOutOfMemory),
        209 => Some(KnownText::NoKernelImage),
        code => Some(KnownText::CudaError(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kernel_log::KernelFault;

    #[test]
    fn a_text_is_known_by_what_it_says_and_not_by_what_it_names() {
        for (line, want) in [
            ("NvMapMemAllocInternalTagged: 1075072515 error 12", Some(KnownText::NvmapNoMemory)),
            ("NvMapMemHandleAlloc: error 0", None),
            ("NvRmMemInitNvmap failed with Permission denied", Some(KnownText::GpuPermission)),
            ("CUDA error: an illegal memory access was encountered", Some(KnownText::CudaError(700))),
            ("CUDA Error 700 (Illegal Memory Access) in a helper", Some(KnownText::CudaError(700))),
            ("RuntimeError: CUDA error: unspecified launch failure", Some(KnownText::CudaError(719))),
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
                Some(KnownText::CudaOutOfMemory),
            ),
            ("NVML_SUCCESS == r INTERNAL ASSERT FAILED at x.cpp:995", Some(KnownText::MaskedOutOfMemory)),
            ("Error named symbol not found at line 233 in file /src/csrc/ops.cu", Some(KnownText::NoKernelImage)),
            ("CUDA error 209", Some(KnownText::NoKernelImage)),
            ("cuda error 0", None),
            ("Bus error (core dumped)", None),
            ("out of memory budget: none", None),
            ("CUDA error handling is on", None),
        ] {
            assert_eq!(known_text(line.as_bytes()), want, "{line}");
        }
    }

    #[test]
    fn every_known_text_holds_a_hint() {
        let texts = TEXTS.iter().map(|(text, _)| *text).chain(NUMBERED).chain(["nvmapmem"]);
        for text in texts {
            assert!(HINTS.iter().any(|hint| text.contains(hint)), "{text}");
        }
    }

    #[test]
    fn a_kill_is_told_by_whose_process_it_was() {
        let lines = [
            "[  121.020000] Out of memory: Killed process 1851 (python3) total-vm:18446208kB, anon-rss:2210044kB, UID:1000",
            "[  121.030000] NVRM: Xid (PCI:0000:01:00): 31, pid=99, name=other, Ch 00000010",
            "[  121.040000] nvgpu: 17000000.gpu nvgpu_tsg_set_ctx_mmu_error:1069 [ERR]  TSG 8 generated a mmu fault",
        ];
        let whose = |pid| if pid == 1851 { Whose::Trial } else { Whose::Other };
        let found: Vec<_> =
            kernel_findings(lines, whose).into_iter().map(|found| (found.finding.fault, found.whose)).collect();
        let want = [
            (KernelFault::OomKill, Whose::Trial),
            (KernelFault::GpuFault, Whose::Other),
            (KernelFault::GpuFault, Whose::Unnamed),
        ];
        assert_eq!(found, want);
    }
}
