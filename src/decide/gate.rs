//! Whether a machine is fit for a trial: read right before it starts, decided here.
//!
//! A trial on a dead GPU is neither a pass nor a fault, a cold trial in a boot in which somebody used the GPU is no cold
//! one, and a boot slot that has lost tries may not survive the next fault.

use std::fmt;

use crate::decide::evidence::kernel_messages;
use crate::decide::kernel_log::classify;
use crate::decide::signs::is_start_failure;
use crate::model::evidence::{Fact, RawEvidence, names};

/// What a trial needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing of the GPU.
    NoGpu,
    /// A GPU that works.
    Gpu,
    /// A GPU that works and that nobody has used in this boot.
    ColdGpu,
}

/// Whether the GPU was used in this boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cold {
    /// It was not even initialised.
    Proven,
    /// Nothing holds memory of it now; a client that has gone left no trace.
    Consistent,
    /// Somebody uses it: who.
    Not(String),
    /// Nothing could be read that tells.
    Unknown,
}

/// Why a machine is not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// The GPU did not start in this boot: the kernel's words.
    GpuDead(String),
    /// A boot slot has lost tries.
    RetryCounter {
        /// The slot, `A` or `B`.
        slot: &'static str,
        /// Tries left.
        left: u32,
        /// Tries that it had.
        most: u32,
    },
    /// The GPU was used: by whom.
    NotCold(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::GpuDead(line) if line.to_ascii_lowercase().contains("acr") => write!(f, "acr: {line}"),
            Unfit::GpuDead(line) => write!(f, "gpu-dead: {line}"),
            Unfit::RetryCounter { slot, left, most } => {
                write!(f, "retry-counter: slot {slot} has {left} of {most} tries left, and a fault may use one up")
            }
            Unfit::NotCold(who) => write!(f, "not-cold: {who}"),
        }
    }
}

/// What makes the machine unfit for a trial with that need; the most dangerous first.
pub fn gate(raw: &RawEvidence, need: Need) -> Option<Unfit> {
    let dead = || gpu_dead(raw).filter(|_| need != Need::NoGpu);
    let used = || match (need, cold(raw)) {
        (Need::ColdGpu, Cold::Not(who)) => Some(Unfit::NotCold(who)),
        (Need::ColdGpu, Cold::Unknown) => {
            Some(Unfit::NotCold("nothing tells whether the GPU was used in this boot".to_owned()))
        }
        (Need::ColdGpu, Cold::Proven | Cold::Consistent) | (Need::NoGpu | Need::Gpu, _) => None,
    };
    retry_counter(raw).or_else(dead).or_else(used)
}

/// Whether the GPU was used in this boot, as far as the machine tells.
///
/// `golden_img_status` of nvgpu is set when the GPU is initialised for the first time since its driver was loaded: 0
/// proves that nobody used it; 1 is usual, since a power-mode service may have powered it on.
pub fn cold(raw: &RawEvidence) -> Cold {
    let clients = item(raw, names::NVMAP_CLIENTS).map(clients);
    let is_untouched = item(raw, names::GOLDEN_IMAGE).is_some_and(|bytes| bytes.trim_ascii() == b"0");
    match clients {
        Some(clients) if !clients.is_empty() => Cold::Not(format!("{} uses the GPU's memory", clients.join(", "))),
        Some(_) | None if is_untouched => Cold::Proven,
        Some(_) => Cold::Consistent,
        None => Cold::Unknown,
    }
}

fn item<'a>(raw: &'a RawEvidence, name: &str) -> Option<&'a [u8]> {
    raw.items.get(name).and_then(Fact::known).map(Vec::as_slice)
}

/// Clients that are named; more are counted.
const CLIENTS_MAX: usize = 4;

/// The processes in a table of NvMap's clients: `CLIENT PROCESS PID SIZE`, a row each, and a total.
fn clients(table: &[u8]) -> Vec<String> {
    let table = String::from_utf8_lossy(table);
    let process = |line: &str| {
        let mut words = line.split_whitespace();
        let (_, process, pid) = (words.next()?, words.next()?, words.next()?);
        pid.bytes().all(|byte| byte.is_ascii_digit()).then(|| process.to_owned())
    };
    let mut processes: Vec<String> = table.lines().filter_map(process).collect();
    if processes.len() > CLIENTS_MAX {
        let more = processes.split_off(CLIENTS_MAX).len();
        processes.push(format!("{more} more"));
    }
    processes
}

fn gpu_dead(raw: &RawEvidence) -> Option<Unfit> {
    let messages = kernel_messages(item(raw, names::KERNEL)?);
    let log = classify(messages.iter().map(String::as_str));
    log.findings.iter().find(|finding| is_start_failure(finding)).map(|finding| Unfit::GpuDead(finding.text.clone()))
}

/// The UEFI of a Jetson counts down at each boot and up again once the boot is verified; a slot without tries does not
/// boot any more.
fn retry_counter(raw: &RawEvidence) -> Option<Unfit> {
    let count = |name: &str| {
        let bytes = item(raw, &format!("{}{name}", names::EFI))?;
        // Four bytes of attributes stand before the value (efivarfs).
        Some(u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?))
    };
    let most = count("RootfsRetryCountMax")?;
    let slots = [("A", count("RootfsRetryCountA")), ("B", count("RootfsRetryCountB"))];
    let low = slots.into_iter().find_map(|(slot, left)| Some((slot, left.filter(|left| *left < most)?)));
    low.map(|(slot, left)| Unfit::RetryCounter { slot, left, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(items: &[(&str, &[u8])]) -> RawEvidence {
        let items = items.iter().map(|(name, bytes)| ((*name).to_owned(), Fact::Known(bytes.to_vec())));
        RawEvidence { boot: "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap(), items: items.collect() }
    }

    #[test]
    fn cold_is_proved_by_a_gpu_that_was_never_started_and_refuted_by_a_client() {
        const NONE: &[u8] = b"CLIENT  PROCESS  PID  SIZE\ntotal             0K\n";
        const ONE: &[u8] = b"CLIENT  PROCESS  PID  SIZE\nuser  ollama  1602  2097152K\ntotal  2097152K\n";
        let proof = |golden: Option<&[u8]>, clients: Option<&[u8]>| {
            let golden = golden.map(|bytes| (names::GOLDEN_IMAGE, bytes));
            let clients = clients.map(|bytes| (names::NVMAP_CLIENTS, bytes));
            cold(&raw(&golden.into_iter().chain(clients).collect::<Vec<_>>()))
        };
        assert_eq!(proof(Some(b"0\n"), None), Cold::Proven);
        assert_eq!(proof(Some(b"1\n"), Some(NONE)), Cold::Consistent);
        assert_eq!(proof(Some(b"1\n"), None), Cold::Unknown);
        assert_eq!(proof(None, None), Cold::Unknown);
        assert_eq!(proof(Some(b"0\n"), Some(ONE)), Cold::Not("ollama uses the GPU's memory".into()));
    }

    #[test]
    fn a_need_is_met_or_the_reason_is_named() {
        let dead = raw(&[(
            names::KERNEL,
            b"[   30.000000] nvgpu: 17000000.gpu gk20a_acr_bootstrap:104  [ERR]  ACR bootstrap failed\n",
        )]);
        assert_eq!(gate(&dead, Need::NoGpu), None);
        assert!(gate(&dead, Need::Gpu).unwrap().to_string().starts_with("acr: "));
        let low = raw(&[
            ("efi/RootfsRetryCountA", &[6, 0, 0, 0, 1, 0, 0, 0]),
            ("efi/RootfsRetryCountMax", &[6, 0, 0, 0, 3, 0, 0, 0]),
        ]);
        assert_eq!(gate(&low, Need::NoGpu), Some(Unfit::RetryCounter { slot: "A", left: 1, most: 3 }));
        let short = raw(&[("efi/RootfsRetryCountA", &[6, 0]), ("efi/RootfsRetryCountMax", b"")]);
        assert_eq!(gate(&short, Need::Gpu), None);
        assert!(matches!(gate(&short, Need::ColdGpu), Some(Unfit::NotCold(_))));
    }
}
