//! Every effect that the runner may have on the world, as one small trait.
//!
//! Two implementations exist: `perform::linux::Linux` and the simulated machine of the tests. Each method is
//! a point at which the machine may die; append and sync are apart so that the simulator can lose what was not synced.

use std::io::{self, BufRead};
use std::time::Duration;

use crate::decide::prepare::{Look, Survey};
use crate::model::evidence::{Evidence, EvidenceSummary};
use crate::model::ids::{BootId, TrialId};
use crate::model::journal::{Hooked, RebootAsked, SetChanged, Started};
use crate::model::machine_setting::MachineSetting;
use crate::model::observed::Observed;
use crate::model::outcome::{EndedBy, Outcome};
use crate::model::units::Now;
use crate::model::verdict::StageName;
use crate::perform::journal::Durable;

/// An effect that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct MachineError {
    /// What was attempted, with the place.
    pub what: String,
    /// The system's words.
    #[source]
    pub source: io::Error,
}

impl MachineError {
    /// An attempt at `what` that failed with `source`.
    pub fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self { what: what.into(), source }
    }

    /// Whether it did not come in time, rather than being refused.
    pub fn is_late(&self) -> bool {
        self.source.kind() == io::ErrorKind::TimedOut
    }
}

/// What happened to the child since the last question.
#[derive(Debug, Clone, PartialEq)]
pub enum ChildEvent {
    /// Its first word came, before any GPU library was loaded.
    Running {
        /// Its process id.
        pid: u32,
    },
    /// It entered a stage.
    Stage {
        /// The stage.
        stage: StageName,
        /// Milliseconds since it was started.
        at_ms: u64,
    },
    /// Nothing within the given time.
    Quiet,
    /// It ended, its output is written, and its settling time is over.
    Ended(Box<Outcome>),
}

/// Somebody asked the harness to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopRequest {
    /// End the trial at once: a signal. The number is the exit code's business.
    Now {
        /// Signal number.
        signal: i32,
    },
    /// Finish the trial, then stop: `jetfault stop` or a STOP file.
    AfterTrial {
        /// In words.
        why: String,
    },
}

/// The world, as the runner sees it.
pub trait Machine {
    /// Both clocks.
    fn now(&mut self) -> Now;

    /// The journal from its beginning.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open_journal(&mut self) -> Result<Box<dyn BufRead + '_>, MachineError>;

    /// Keeps `torn` as evidence, durably, then cuts the journal to its first `keep` bytes, durably.
    ///
    /// # Errors
    /// If a write, a cut or a sync fails; the journal is then as it was, or cut.
    fn cut_journal(&mut self, keep: u64, torn: &[u8]) -> Result<(), MachineError>;

    /// Adds `line` at the journal's end. It is not durable before the next [`Machine::sync`].
    ///
    /// # Errors
    /// If the write fails; a part of the line may have been written.
    fn append(&mut self, line: &[u8]) -> Result<(), MachineError>;

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// If the sync fails: then nothing is known about what is on the disk, and the run must stop.
    fn sync(&mut self) -> Result<(), MachineError>;

    /// Reads what the machine says about the end of the boot before.
    ///
    /// # Errors
    /// Only if nothing at all could be read; what is merely missing is an item of the evidence.
    fn capture(&mut self) -> Result<Evidence, MachineError>;

    /// Writes the evidence under the run's `evidence/`, durably; writing it again changes nothing.
    ///
    /// # Errors
    /// If a write or a sync fails.
    fn save_evidence(&mut self, evidence: &Evidence) -> Result<EvidenceSummary, MachineError>;

    /// Writes a trial's `result.json`, not durably: it is a fold of the journal and can be made again.
    ///
    /// # Errors
    /// If the write fails.
    fn write_result(&mut self, trial: &TrialId, json: &[u8]) -> Result<(), MachineError>;

    /// Makes every result written so far durable.
    ///
    /// # Errors
    /// If the sync fails.
    fn sync_results(&mut self) -> Result<(), MachineError>;

    /// Whether a trial's `result.json` has exactly these bytes.
    fn has_result(&mut self, trial: &TrialId, json: &[u8]) -> bool;

    /// Ends processes that an earlier, dead harness left behind; returns how many.
    ///
    /// # Errors
    /// If one of them survives SIGKILL: nothing may be started beside it.
    fn end_orphans(&mut self) -> Result<u32, MachineError>;

    /// Looks at the machine as it is right now, without waking its GPU. What cannot be read is a part of the answer.
    fn survey(&mut self, look: &Look) -> Survey;

    /// Changes a setting of the machine. The token proves that the change is on the disk.
    ///
    /// # Errors
    /// In words, if the machine refuses; the setting is then as it was, or has to be read.
    fn set(&mut self, change: &Durable<SetChanged>) -> Result<(), String>;

    /// Puts a setting of the machine back to `value`; one that is so already stays untouched.
    ///
    /// # Errors
    /// In words, if the machine refuses.
    fn restore(&mut self, setting: MachineSetting, value: &str) -> Result<(), String>;

    /// Kilobytes of page cache, in words.
    fn page_cache(&mut self) -> String;

    /// Drops the clean part of the page cache. The token proves that this is on the disk.
    ///
    /// # Errors
    /// In words, if the machine refuses.
    fn drop_caches(&mut self, change: &Durable<SetChanged>) -> Result<(), String>;

    /// Starts the child of a trial. The token proves that its start is on the disk.
    ///
    /// # Errors
    /// If the child cannot be made to run; the trial is then void.
    fn start_child(&mut self, started: &Durable<Started>, cell: usize) -> Result<(), MachineError>;

    /// What the child did, waiting `wait` at the most: without a wait only what can be heard already.
    ///
    /// # Errors
    /// If the child can no longer be watched.
    fn child_event(&mut self, wait: Duration) -> Result<ChildEvent, MachineError>;

    /// Tells a child that waits for it that its last stage is durable.
    fn acknowledge_stage(&mut self);

    /// Begins to end the child: TERM, grace, KILL. [`ChildEvent::Ended`] follows in any case.
    fn end_child(&mut self, why: EndedBy);

    /// Makes the child's output and telemetry so far durable.
    ///
    /// # Errors
    /// If a sync fails.
    fn sync_output(&mut self) -> Result<(), MachineError>;

    /// Asks for the reboot that the token proves to be declared for this boot. It may return before the machine goes
    /// down: the caller has nothing left to do.
    ///
    /// # Errors
    /// If the reboot cannot be asked for.
    fn reboot(&mut self, asked: &Durable<RebootAsked>, here: &BootId) -> Result<(), MachineError>;

    /// Whether a hook can cut the power of this board, for a reboot that does not come.
    fn can_cut_power(&self) -> bool;

    /// Cuts the power of a machine that stays up, as the token proves to be written down.
    ///
    /// # Errors
    /// If the hook fails, or the machine is still up in the end.
    fn cut_power(&mut self, noted: &Durable<Hooked>, here: &BootId) -> Result<(), MachineError>;

    /// Waits until a trial, or a reboot for one, may follow: for a person who is logged in, and for the board. Tells if
    /// the run is to stop instead.
    fn clearance(&mut self) -> Option<StopRequest>;

    /// What desks saw of this machine and left for the journal.
    ///
    /// # Errors
    /// If it cannot be looked for.
    fn observations(&mut self) -> Result<Vec<Observed>, MachineError>;

    /// `observed` is in the journal, durably: it need not be kept elsewhere.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn observation_taken(&mut self, observed: &Observed) -> Result<(), MachineError>;

    /// Waits for what a desk has to say that watched `boot` end: not for ever, and not at all if none did.
    fn await_witness(&mut self, boot: &BootId);

    /// Whether somebody asked the harness to stop.
    fn stop_requested(&mut self) -> Option<StopRequest>;
}
