//! What a machine says about itself and about the boot before: captured once per boot, before anything else.
//!
//! An item that cannot be read is itself evidence: it is written down as absent, denied or garbled, never skipped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::ids::{BootId, ContentDigest};

/// One item of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fact<T> {
    /// It was read.
    Known(T),
    /// It is not there.
    #[default]
    Absent,
    /// It is there and may not be read: the system's words.
    Denied(String),
    /// It was read and makes no sense: the raw text, cut.
    Garbled(String),
}

impl<T> Fact<T> {
    /// The value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => None,
        }
    }

    /// The same item read further: `interpret` makes sense of what is known.
    pub fn and_then<U>(self, interpret: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => interpret(value),
            Fact::Absent => Fact::Absent,
            Fact::Denied(why) => Fact::Denied(why),
            Fact::Garbled(raw) => Fact::Garbled(raw),
        }
    }
}

/// What a record in persistent storage says it is, by its first line (`kmsg_dump_reason_str` in kernel/printk/printk.c)
/// or its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrashKind {
    /// The kernel panicked.
    Panic,
    /// A kernel oops, after which the machine may have gone on.
    Oops,
    /// The kernel restarted itself at once: `emergency_restart`, as by sysrq-b or a software watchdog.
    Emergency,
    /// An orderly restart, halt or power-off.
    Shutdown,
    /// The console of the boot before, whatever ended it.
    Console,
    /// Something else.
    Other,
}

/// What kernel messages tell of the end of the boot that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndWord {
    /// The kernel panicked.
    Panic,
    /// A watchdog that the kernel drives itself said that it resets the machine.
    Watchdog,
    /// Software reset the machine at once, as by sysrq-b.
    Reset,
    /// A critical temperature was reached, and the kernel ordered a shutdown.
    Thermal,
    /// `reboot(2)` was called: the kernel restarts, halts or powers down in order.
    Restart,
    /// The init system stopped what ran.
    Teardown,
    /// The kernel or a CPU was in trouble (oops, lockup, stall), which need not be the end.
    Trouble,
}

/// One such word with the line that says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSign {
    /// What it tells of.
    pub word: EndWord,
    /// The first line that says so, cut to [`END_LINE_BYTES_MAX`].
    pub line: String,
}

/// The most bytes that are kept of the line of an [`EndSign`].
pub const END_LINE_BYTES_MAX: usize = 200;

/// A crash record that the kernel left in persistent storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredCrashRecord")]
pub struct CrashRecord {
    /// Digest of its content: the same record seen again is no news.
    pub digest: ContentDigest,
    /// What it says it is.
    pub kind: CrashKind,
    /// What its messages tell of the end, each word once, in the order in which it came first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signs: Vec<EndSign>,
    /// Whether its content makes no sense, as that of a record which could not be decompressed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub garbled: bool,
}

impl CrashRecord {
    /// A record of which only the kind is known.
    pub fn of(digest: ContentDigest, kind: CrashKind) -> Self {
        Self { digest, kind, signs: Vec::new(), garbled: false }
    }
}

/// A crash record as the journal holds it. Version 1.0 knew only whether it told of a panic.
#[derive(Deserialize)]
struct StoredCrashRecord {
    digest: ContentDigest,
    #[serde(default)]
    panic: bool,
    kind: Option<CrashKind>,
    #[serde(default)]
    signs: Vec<EndSign>,
    #[serde(default)]
    garbled: bool,
}

impl From<StoredCrashRecord> for CrashRecord {
    fn from(stored: StoredCrashRecord) -> Self {
        let kind = stored.kind.unwrap_or(if stored.panic { CrashKind::Panic } else { CrashKind::Other });
        Self { digest: stored.digest, kind, signs: stored.signs, garbled: stored.garbled }
    }
}

/// How a boot ended, by the last lines of its system journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shutdown {
    /// The init system stopped what ran.
    Clean,
    /// Ordinary traffic up to the last line.
    Unclean,
}

/// What the power management controller says of the last reset. It keeps only the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// Its word, verbatim, such as `MAINSWRST`.
    pub reason: String,
    /// Its level, verbatim, such as `L1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// Counters of a drive that grow when its power is lost, from the NVMe SMART log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveCounters {
    /// The device, such as `nvme0`.
    pub drive: String,
    /// Times it was powered on.
    pub power_cycles: u64,
    /// Times it lost power without notice.
    pub unsafe_shutdowns: u64,
}

/// What verdicts need of the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Findings {
    /// The boots the machine remembers, oldest first, this one last.
    pub boots: Fact<Vec<BootId>>,
    /// Crash records present now, whether new or old.
    pub crash_records: Fact<Vec<CrashRecord>>,
    /// How the boot before ended.
    #[serde(default)]
    pub shutdown: Fact<Shutdown>,
    /// The last reset.
    #[serde(default)]
    pub reset: Fact<Reset>,
    /// Power counters of each drive that has some.
    #[serde(default)]
    pub drives: Fact<Vec<DriveCounters>>,
    /// Whether a watchdog says that it reset the machine (`WDIOF_CARDRESET` in its boot status).
    #[serde(default)]
    pub watchdog_fired: Fact<bool>,
    /// What the kernel of the boot before told of its end, each word once.
    #[serde(default)]
    pub kernel_end: Fact<Vec<EndSign>>,
    /// Who ordered the end of the boot before, in words and without names, such as `sudo reboot`.
    #[serde(default)]
    pub ordered_by: Fact<String>,
}

/// Everything a machine says at the beginning of a boot, as it was read: bytes by name, before any interpretation.
///
/// A name is the path under `evidence/BOOT/raw/`, such as `pmc/reset_reason`, `pstore/dmesg-ramoops-0` or
/// `journal/previous.jsonl`; [`names`] has those that verdicts are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvidence {
    /// The boot in which it was read.
    pub boot: BootId,
    /// What was read, or why not.
    pub items: BTreeMap<String, Fact<Vec<u8>>>,
}

/// Names of items in [`RawEvidence`] that are interpreted.
pub mod names {
    /// Output of `journalctl --list-boots`, as text or JSON.
    pub const BOOTS: &str = "journal/boots.txt";
    /// A list of boots that the machine keeps itself, one id a line, oldest first: for machines without a journal.
    pub const BOOTS_LEDGER: &str = "journal/boots-ledger.txt";
    /// The end of the journal of the boot before, one JSON object a line (`journalctl -b ID -o json`).
    pub const PREVIOUS: &str = "journal/previous.jsonl";
    /// The same for people: made of it, and not interpreted.
    pub const PREVIOUS_TEXT: &str = "journal/previous.txt";
    /// The end of the kernel's messages of the boot before, in the same form as [`PREVIOUS`].
    pub const PREVIOUS_KERNEL: &str = "journal/previous-kernel.jsonl";
    /// The kernel's messages of this boot, in the same form, or as plain text from the kernel's own buffer.
    pub const KERNEL: &str = "journal/kernel.jsonl";
    /// Output of `last -x -F`.
    pub const LAST: &str = "last.txt";
    /// The word of the power management controller, and its level.
    pub const RESET_REASON: &str = "pmc/reset_reason";
    /// See [`RESET_REASON`].
    pub const RESET_LEVEL: &str = "pmc/reset_level";
    /// Directory of crash records, wherever they were found: `pstore/NAME`. The name itself is known and empty if the
    /// directory could be listed: no record is not the same as no access.
    pub const PSTORE: &str = "pstore/";
    /// The backend of that storage, such as `ramoops`; `(null)` where none is loaded.
    pub const PSTORE_BACKEND: &str = "kernel/pstore-backend";
    /// Directory of SMART logs: `nvme/DRIVE.json`.
    pub const NVME: &str = "nvme/";
    /// Directory of UEFI variables about boot slots: `efi/RootfsRetryCountA` and the like.
    pub const EFI: &str = "efi/";
    /// Whether a Jetson's GPU was ever initialised in this boot (`golden_img_status` of nvgpu).
    pub const GOLDEN_IMAGE: &str = "gpu/golden_img_status";
    /// Who holds memory of a Jetson's GPU (NvMap's clients).
    pub const NVMAP_CLIENTS: &str = "gpu/nvmap-clients";
    /// Directory of watchdogs: `watchdog/watchdog0/bootstatus` and the like.
    pub const WATCHDOG: &str = "watchdog/";
}

/// The evidence of one boot about the end of the boot before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The boot in which it was captured.
    pub boot: BootId,
    /// What verdicts need of it.
    #[serde(flatten)]
    pub findings: Findings,
    /// Further items in words, by name, such as `kernel` or `uptime_ms`.
    #[serde(default)]
    pub items: BTreeMap<String, Fact<String>>,
}

/// The part of the evidence that the journal keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceSummary {
    /// Digest of the file under `evidence/BOOT/` that holds all of it.
    pub file: ContentDigest,
    /// What verdicts need of it.
    #[serde(flatten)]
    pub findings: Findings,
}
