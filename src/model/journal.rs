//! The journal: one checksummed record a line, append-only, the only truth about a run.
//!
//! A line is `{"v":"1.0","seq":…,"boot":…,"uptime_ms":…,"wall":…,"event":{…},"crc":"xxxxxxxx"}` and a newline.
//! The checksum is the CRC-32 (IEEE) of everything before `,"crc"`. A torn last line never happened; a bad line
//! elsewhere is damage. See `docs/journal.md`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::evidence::EvidenceSummary;
use crate::model::ids::{BootId, CellId, ContentDigest, DeviceId, RunId, TrialId};
use crate::model::observed::Observed;
use crate::model::outcome::Outcome;
use crate::model::start_state::{PriorEnd, StartState};
use crate::model::units::{UptimeMs, WallTime};
use crate::model::verdict::{Judgement, Provenance, Role, StageName, Verdict};

/// The longest line in bytes, its newline included: the outcome of a trial of a whole model has thousands of stages and
/// times.
pub const LINE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The version that this build writes.
pub const VERSION: JournalVersion = JournalVersion { major: 1, minor: 0 };

/// Version of the journal's format. A minor version adds members and events; a major one changes their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalVersion {
    /// Readers of another major version must refuse.
    pub major: u16,
    /// Readers of an older minor version must refuse; older ones stay readable.
    pub minor: u16,
}

impl JournalVersion {
    /// Whether this build can read records of version `self`.
    pub fn is_readable(self) -> bool {
        self.major == VERSION.major && (0..=VERSION.minor).contains(&self.minor)
    }
}

impl fmt::Display for JournalVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for JournalVersion {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self { major: major.parse()?, minor: minor.parse()? })
    }
}

/// What happened. The order of the variants is the order in which a reader meets them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The run began; always the first record.
    Opened(Box<Opened>),
    /// The first start of the harness in a boot: evidence is captured and durable.
    Booted(Booted),
    /// Trials were added to the plan.
    Extended(Extended),
    /// A trial is about to start. Durable before its child exists.
    Started(Started),
    /// The child runs: its first word came, before any GPU library was loaded.
    Running(Running),
    /// The child entered a stage.
    Stage(StageReached),
    /// A trial is still running; written once a second.
    Alive(Alive),
    /// The child ended, or was given up.
    Finished(Finished),
    /// A verdict.
    Judged(Judged),
    /// A reboot is about to be asked for; durable before it is.
    RebootAsked(RebootAsked),
    /// A setting of the machine was changed.
    Set(SetChanged),
    /// A setting of the machine was put back.
    Restored(Restored),
    /// A hook of the user's ran.
    Hooked(Hooked),
    /// Something was seen from outside the machine.
    Observed(Box<Observed>),
    /// A cell is not started again.
    Quarantined(Quarantined),
    /// The run rests until somebody resumes it.
    Paused(Paused),
    /// The run is over; nothing follows.
    Closed(Closed),
}

impl Event {
    /// The event's name as the format spells it.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Opened(_) => "opened",
            Event::Booted(_) => "booted",
            Event::Extended(_) => "extended",
            Event::Started(_) => "started",
            Event::Running(_) => "running",
            Event::Stage(_) => "stage",
            Event::Alive(_) => "alive",
            Event::Finished(_) => "finished",
            Event::Judged(_) => "judged",
            Event::RebootAsked(_) => "reboot_asked",
            Event::Set(_) => "set",
            Event::Restored(_) => "restored",
            Event::Hooked(_) => "hooked",
            Event::Observed(_) => "observed",
            Event::Quarantined(_) => "quarantined",
            Event::Paused(_) => "paused",
            Event::Closed(_) => "closed",
        }
    }
}

/// What started the harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// A person's shell on the machine.
    Shell,
    /// The boot service.
    Service,
    /// A shell over ssh.
    Ssh,
    /// A continuous-integration job.
    Ci,
}

/// Whether the results survive a power cut, as far as the file system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Persistence {
    /// On a disk's own file system.
    Persistent,
    /// On an overlay or a file system whose backing is not visible.
    Unproven,
    /// In memory; allowed by `--allow-volatile`.
    Volatile,
}

/// Who invoked the run: every child, in every boot, runs as this.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Invoker {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Working directory.
    pub cwd: String,
    /// File mode creation mask.
    pub umask: u32,
    /// The allow-listed environment, sorted.
    pub env: Vec<(String, String)>,
    /// `RLIMIT_*` soft and hard limits as numbers; `None` is unlimited.
    #[serde(default)]
    pub limits: Vec<(String, Option<u64>, Option<u64>)>,
}

/// What the command line allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allowed {
    /// `--allow-reboot`.
    #[serde(default)]
    pub reboot: bool,
    /// `--allow-power-mode`.
    #[serde(default)]
    pub power_mode: bool,
    /// `--allow-drop-caches`.
    #[serde(default)]
    pub drop_caches: bool,
    /// `--allow-injected-faults`.
    #[serde(default)]
    pub injected_faults: bool,
    /// `--allow-root-workload`.
    #[serde(default)]
    pub root_workload: bool,
}

/// The beginning of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The run.
    pub run: RunId,
    /// Digest of the matrix's canonical content.
    pub matrix: ContentDigest,
    /// Digest of `plan.json`.
    pub plan: ContentDigest,
    /// Digest of the harness binary.
    pub binary: ContentDigest,
    /// Version of the harness.
    pub tool: String,
    /// The machine.
    pub device: DeviceId,
    /// Who invoked it.
    pub invoker: Invoker,
    /// The directory of the matrix file, for its placeholders.
    pub matrix_dir: String,
    /// What the command line allowed.
    pub allowed: Allowed,
    /// Whether the results survive a power cut.
    pub persistence: Persistence,
    /// What every worker plays instead of its cell, in a run that tests the harness itself; its trials are `simulated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

/// The harness started for the first time in a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booted {
    /// What the machine says about the end of the boot before.
    pub evidence: EvidenceSummary,
}

/// Trials added to the plan by a campaign: one more block over these cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extended {
    /// The cells, in the order in which they are to run.
    pub cells: Vec<CellId>,
    /// Those of them that the plan does not have, as plan.json would hold them: a campaign chooses its cells as it goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new: Vec<serde_json::Value>,
    /// Why.
    pub why: String,
}

/// A trial is about to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The trial.
    pub trial: TrialId,
    /// What it is for.
    pub role: Role,
    /// The machine.
    pub device: DeviceId,
    /// How many trials of ours had started in this boot before it.
    pub position: u32,
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// What started the harness.
    pub launcher: Launcher,
    /// In which conditions it starts.
    #[serde(default, skip_serializing_if = "Conditions::are_unknown")]
    pub conditions: Conditions,
}

/// In which conditions a trial starts. Records of builds that did not look have none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// The start state, with its proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartState>,
    /// How the boot before this one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_end: Option<PriorEnd>,
    /// Milliseconds since the machine started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    /// The settings of the machine that the run changes, as read back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl Conditions {
    fn are_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// The child runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The trial.
    pub trial: TrialId,
    /// Process id of the child, which is also its process group.
    pub pid: u32,
}

/// The child entered a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReached {
    /// The trial.
    pub trial: TrialId,
    /// The stage.
    pub stage: StageName,
    /// Milliseconds since the child was started.
    pub at_ms: u64,
}

/// A trial is still running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// The trial.
    pub trial: TrialId,
}

/// The child ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The trial.
    pub trial: TrialId,
    /// What was observed.
    pub outcome: Box<Outcome>,
}

/// A verdict on a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The trial.
    pub trial: TrialId,
    /// The verdict and what stands beside it.
    pub judgement: Judgement,
    /// Label of the rule that gave it.
    pub rule: String,
    /// The verdict that it takes the place of: what was seen from outside came after that had been given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<Verdict>,
}

/// A reboot of ours, declared before it happens. It is consumed by the next boot: `boot` is the boot to be ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootAsked {
    /// The boot that it ends.
    pub boot: BootId,
    /// Why.
    pub why: String,
    /// The power mode that only a reboot by nvpmodel itself brings about, as `NAME (ID)`; absent for a plain reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mode: Option<String>,
}

/// A setting of the machine was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetChanged {
    /// Which setting.
    pub what: String,
    /// What it was.
    pub old: String,
    /// What it is now.
    pub new: String,
}

/// A setting of the machine was put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Which setting.
    pub what: String,
    /// What it is again.
    pub value: String,
}

/// A hook of the user's ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooked {
    /// Which hook.
    pub hook: String,
    /// How it ended, in words.
    pub ended: String,
    /// The boot that it ended, where it cut the power of a machine that no longer answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<BootId>,
}

/// A cell is not started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// The cell.
    pub cell: CellId,
    /// Why.
    pub why: String,
}

/// The run rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Why.
    pub why: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Closing {
    /// Every cell has its trials, or is short and says so.
    Complete,
    /// A limit of `[safety]` was reached.
    Stopped,
}

/// The run is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// How it ended.
    pub how: Closing,
    /// In words.
    pub why: String,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Version of the format it was written in.
    pub version: JournalVersion,
    /// Position in the journal, from 1; it never restarts, and it is the order.
    pub seq: u64,
    /// The boot in which it was written.
    pub boot: BootId,
    /// When, within that boot.
    pub uptime_ms: UptimeMs,
    /// When, for people.
    pub wall: WallTime,
    /// What happened.
    pub event: Event,
}

/// Why a line is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// No checksum where one must be.
    #[error("no checksum at the end of the line")]
    NoChecksum,
    /// The checksum does not fit the bytes.
    #[error("checksum {found} does not fit the line (computed {computed})")]
    Checksum {
        /// What the line says.
        found: String,
        /// What its bytes give.
        computed: String,
    },
    /// The checksum fits, and the version is one that this build cannot read.
    #[error("journal version {0} cannot be read by this build; it reads {major}.0 to {VERSION}", major = VERSION.major)]
    Version(String),
    /// The checksum fits and the content does not parse: another program wrote it.
    #[error("not a journal record: {0}")]
    Content(String),
    /// The record is good, and not the one expected here.
    #[error("record {found} where {expected} was expected")]
    Sequence {
        /// Its number.
        found: u64,
        /// The number expected.
        expected: u64,
    },
}

const CRC_MEMBER: &[u8] = b",\"crc\":\"";
/// `,"crc":"xxxxxxxx"}`
const CRC_TAIL_BYTES: usize = CRC_MEMBER.len() + 8 + 2;

#[derive(Serialize, Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    v: std::borrow::Cow<'a, str>,
    seq: u64,
    boot: BootId,
    uptime_ms: UptimeMs,
    wall: WallTime,
    event: Event,
}

#[derive(Serialize)]
struct BodyRef<'a> {
    v: &'a str,
    seq: u64,
    boot: &'a BootId,
    uptime_ms: UptimeMs,
    wall: WallTime,
    event: &'a Event,
}

/// The line of `record`, its newline included.
pub fn encode(record: &Record) -> Vec<u8> {
    let version = record.version.to_string();
    let body = BodyRef {
        v: &version,
        seq: record.seq,
        boot: &record.boot,
        uptime_ms: record.uptime_ms,
        wall: record.wall,
        event: &record.event,
    };
    let mut line = serde_json::to_vec(&body).expect("records hold only maps with string keys and finite structure");
    line.pop();
    let crc = crc32fast::hash(&line);
    line.extend_from_slice(CRC_MEMBER);
    line.extend_from_slice(format!("{crc:08x}\"}}\n").as_bytes());
    line
}

/// The record in `line` (without its newline), which must be number `expected`.
///
/// # Errors
/// See [`LineError`].
pub fn decode(line: &[u8], expected: u64) -> Result<Record, LineError> {
    let split = line.len().checked_sub(CRC_TAIL_BYTES).ok_or(LineError::NoChecksum)?;
    let (head, tail) = line.split_at(split);
    let Some([found @ .., b'"', b'}']) = tail.strip_prefix(CRC_MEMBER) else { return Err(LineError::NoChecksum) };
    let mut computed = [0; 8];
    write!(&mut computed[..], "{:08x}", crc32fast::hash(head)).expect("it has eight digits");
    if found != computed {
        let text = |hex: &[u8]| String::from_utf8_lossy(hex).into_owned();
        return Err(LineError::Checksum { found: text(found), computed: text(&computed) });
    }
    check_version(head)?;
    let body: Body<'_> = serde_json::from_slice(line).map_err(|e| LineError::Content(e.to_string()))?;
    let version = body.v.parse().map_err(|_| LineError::Version(body.v.to_string()))?;
    if body.seq != expected {
        return Err(LineError::Sequence { found: body.seq, expected });
    }
    Ok(Record {
        version,
        seq: body.seq,
        boot: body.boot,
        uptime_ms: body.uptime_ms,
        wall: body.wall,
        event: body.event,
    })
}

/// The version stands first, so that a newer record is told apart from a damaged one before its content is parsed.
fn check_version(head: &[u8]) -> Result<(), LineError> {
    let text = head
        .strip_prefix(b"{\"v\":\"")
        .and_then(|rest| rest.split(|b| *b == b'"').next())
        .map(String::from_utf8_lossy)
        .ok_or_else(|| LineError::Content("the version does not stand first".into()))?;
    match text.parse::<JournalVersion>() {
        Ok(version) if version.is_readable() => Ok(()),
        Ok(_) | Err(_) => Err(LineError::Version(text.into_owned())),
    }
}
