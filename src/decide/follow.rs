//! What a follower of a run is told about each record: the words of a line, or none.
//!
//! A pure fold; it never asks whether a harness is alive. The caller knows whether the machine is.

use std::collections::BTreeMap;

use crate::decide::plan::Plan;
use crate::model::frame::FollowEnd;
use crate::model::ids::{CellId, TrialId};
use crate::model::journal::{Event, Judged, Record};
use crate::model::verdict::{Counted, StageName, Verdict};

/// Reads a journal for whoever follows it.
#[derive(Debug)]
pub struct FollowFold {
    labels: BTreeMap<CellId, String>,
    /// How many counted trials the plan asks for.
    wanted: u64,
    counted: u64,
    boots: u32,
    open: Option<(TrialId, Option<StageName>)>,
    end: Option<FollowEnd>,
}

impl FollowFold {
    /// Before the first record of a run of `plan`.
    pub fn new(plan: &Plan) -> Self {
        Self {
            labels: plan.cells.iter().map(|cell| (cell.id.clone(), cell.label.clone())).collect(),
            wanted: plan.cells.iter().map(|cell| u64::from(plan.rounds(cell))).sum(),
            counted: 0,
            boots: 0,
            open: None,
            end: None,
        }
    }

    /// Takes note of `record`; returns what is to be said of it.
    pub fn apply(&mut self, record: &Record) -> Option<String> {
        self.end = None;
        match &record.event {
            Event::Opened(opened) => Some(format!("{} begins on {}", opened.run, opened.device)),
            Event::Booted(_) => {
                self.boots += 1;
                Some(format!("boot {} of the run ({})", self.boots, record.boot))
            }
            Event::Extended(extended) => Some(format!("further trials: {}", extended.why)),
            Event::Started(started) => {
                self.open = Some((started.trial.clone(), None));
                None
            }
            Event::Stage(reached) => {
                self.open = Some((reached.trial.clone(), Some(reached.stage.clone())));
                None
            }
            Event::Judged(judged) => {
                self.open = None;
                Some(self.judged(judged))
            }
            Event::RebootAsked(asked) => Some(format!("reboot: {}", asked.why)),
            Event::Hooked(hooked) => Some(format!("{}: {}", hooked.hook, hooked.ended)),
            Event::Observed(observed) => Some(format!("{} saw: {}", observed.witness, observed.what)),
            Event::Quarantined(quarantined) => {
                Some(format!("{} is not started again: {}", self.label(&quarantined.cell), quarantined.why))
            }
            Event::Paused(paused) => {
                self.end = Some(FollowEnd::Paused);
                Some(format!("paused: {}", paused.why))
            }
            Event::Closed(closed) => {
                self.end = Some(FollowEnd::Closed);
                Some(format!("closed: {}", closed.why))
            }
            Event::Running(_) | Event::Alive(_) | Event::Finished(_) | Event::Set(_) | Event::Restored(_) => None,
        }
    }

    /// The open trial, with the last stage that is known of it.
    pub fn open(&self) -> Option<String> {
        let (trial, stage) = self.open.as_ref()?;
        let stage = stage.as_ref().map(|stage| format!(" at {stage}")).unwrap_or_default();
        Some(format!("{} of {}{stage}", trial, self.label(&trial.cell)))
    }

    /// Whether the last record is one after which nothing comes by itself.
    pub fn end(&self) -> Option<FollowEnd> {
        self.end
    }

    fn label<'a>(&'a self, cell: &'a CellId) -> &'a str {
        self.labels.get(cell).map_or(cell.as_str(), String::as_str)
    }

    fn judged(&mut self, judged: &Judged) -> String {
        let judgement = &judged.judgement;
        match judgement.verdict.counted() {
            Counted::Clean | Counted::Fault => self.counted += 1,
            Counted::Excluded => {}
        }
        // A campaign does not know how many it will want.
        let of = if self.wanted == 0 { String::new() } else { format!("/{}", self.wanted) };
        let label = self.label(&judged.trial.cell);
        let mut line = format!("[{}{of}] {label} r{:03}: {}", self.counted, judged.trial.round, judgement.verdict);
        if let Some(stage) = judgement.stage.as_ref().filter(|_| judgement.verdict != Verdict::Pass) {
            line.push_str(&format!(" at {stage}"));
        }
        if let Some(detail) = &judgement.detail {
            line.push_str(&format!(" ({detail})"));
        }
        line
    }
}
