//! Deliberate faults of the whole machine, and the record that is made of one before it is committed.
//!
//! Those of one process are the worker's own, see [`super::protocol::WorkerFault`].

use serde::{Deserialize, Serialize};

use super::ids::{BootId, TrialId};
use super::matrix::FaultName;
use super::units::{UptimeMs, WallTime};
use super::verdict::StageName;
use super::words::words;

/// Where a fault is committed that comes before the child's first word: `at = "start"`. No child reports such a stage.
pub const START: &str = "start";

/// Name and version of the format of one line of `injected.jsonl`.
pub const INJECTED_SCHEMA: &str = "jetfault.injected/1";

words! {
    /// A fault that stops or restarts the whole machine. The parent commits it: it needs root, which a child has not.
    MachineFault {
        /// An immediate reset without a sync (sysrq-b).
        Reset = "reset",
        /// A panic of the kernel (sysrq-c); what follows is the machine's setting `kernel.panic`.
        Panic = "panic",
        /// Power off without a sync (sysrq-o).
        Poweroff = "poweroff",
        /// Nothing runs any more, and nothing is said: only a watchdog or a person ends it.
        Freeze = "freeze",
    }
}

impl MachineFault {
    /// The whole machine's fault of that name.
    pub fn of(fault: FaultName) -> Option<Self> {
        match fault {
            FaultName::Reset => Some(Self::Reset),
            FaultName::Panic => Some(Self::Panic),
            FaultName::Poweroff => Some(Self::Poweroff),
            FaultName::Freeze => Some(Self::Freeze),
            FaultName::Hang | FaultName::Spin | FaultName::Segv | FaultName::Abort | FaultName::Oom => None,
            FaultName::Exit | FaultName::Wrong | FaultName::CudaError | FaultName::Slow => None,
        }
    }
}

/// One line of a run's `injected.jsonl`: what is about to be done to the machine, durable before it is done, and beside
/// the journal, so that the truth does not rest on what it tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Injected {
    /// [`INJECTED_SCHEMA`].
    pub schema: String,
    /// The trial that commits it.
    pub trial: TrialId,
    /// The fault.
    pub fault: MachineFault,
    /// The stage that had begun, [`START`], or none: after the child's first word, before its first stage.
    pub stage: Option<StageName>,
    /// The boot that it ends.
    pub boot: BootId,
    /// When, in milliseconds since that boot.
    pub uptime_ms: UptimeMs,
    /// When, for people.
    pub wall: WallTime,
}
