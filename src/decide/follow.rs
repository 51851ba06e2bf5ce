//! What a follower of a run must know besides the words of each record: what is open, and whether anything more comes.
//!
//! A pure fold; it never asks whether a harness is alive. The caller knows whether the machine is.

use crate::decide::plan::Plan;
use crate::model::frame::FollowEnd;
use crate::model::ids::TrialId;
use crate::model::journal::{Event, Record};
use crate::model::verdict::StageName;

/// Reads a journal for whoever follows it.
#[derive(Debug)]
pub struct FollowFold<'a> {
    plan: &'a Plan,
    open: Option<(TrialId, Option<StageName>)>,
    end: Option<FollowEnd>,
}

impl<'a> FollowFold<'a> {
    /// Before the first record of a run of `plan`.
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, open: None, end: None }
    }

    /// Takes note of `record`.
    pub fn apply(&mut self, record: &Record) {
        self.end = None;
        match &record.event {
            Event::Started(started) => self.open = Some((started.trial.clone(), None)),
            Event::Stage(reached) => self.open = Some((reached.trial.clone(), Some(reached.stage.clone()))),
            Event::Judged(judged) => {
                self.open.take_if(|(trial, _)| *trial == judged.trial);
            }
            Event::Paused(_) => self.end = Some(FollowEnd::Paused),
            Event::Closed(_) => self.end = Some(FollowEnd::Closed),
            Event::Opened(_)
            | Event::Booted(_)
            | Event::Extended(_)
            | Event::Running(_)
            | Event::Alive(_)
            | Event::Finished(_)
            | Event::RebootAsked(_)
            | Event::Set(_)
            | Event::Restored(_)
            | Event::Hooked(_)
            | Event::Observed(_)
            | Event::Quarantined(_) => {}
        }
    }

    /// The open trial, with the last stage that is known of it.
    pub fn open(&self) -> Option<String> {
        let (trial, stage) = self.open.as_ref()?;
        let stage = stage.as_ref().map(|stage| format!(" at {stage}")).unwrap_or_default();
        let label = self.plan.cell(&trial.cell).map_or(trial.cell.as_str(), |cell| cell.label.as_str());
        Some(format!("{trial} of {label}{stage}"))
    }

    /// How long the open trial may take by its own timeout, in milliseconds.
    pub fn limit_ms(&self) -> Option<u64> {
        let (trial, _) = self.open.as_ref()?;
        let timeout = self.plan.cell(&trial.cell)?.settings.watch.timeout.millis()?;
        Some(timeout.ms())
    }

    /// Whether the last record is one after which nothing comes by itself.
    pub fn end(&self) -> Option<FollowEnd> {
        self.end
    }
}
