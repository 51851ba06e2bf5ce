//! Progress for people, on standard error: a bar with the time left on a terminal, a line a trial elsewhere.

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::output::say;
use crate::decide::plan::Plan;
use crate::decide::run::{CANNOT_RUN_HERE, RunState};
use crate::model::ids::CellId;
use crate::model::journal::{Event, Judged, Record};
use crate::model::verdict::{Counted, Verdict};
use crate::perform::runner::Watch;

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// Nothing but errors.
    Quiet,
    /// What one wants to know.
    Normal,
    /// Everything.
    Verbose,
}

/// Shows how a run goes.
pub struct Progress<'a> {
    labels: HashMap<&'a CellId, &'a str>,
    loudness: Loudness,
    bar: Option<ProgressBar>,
    wanted: u64,
    counted: u64,
    faults: u64,
    excluded: u64,
    trial: String,
    /// What was said that this build cannot do.
    lacking: HashSet<String>,
}

impl<'a> Progress<'a> {
    /// For a run of `plan`.
    pub fn new(plan: &'a Plan, loudness: Loudness) -> Self {
        let wanted = plan.cells.iter().map(|cell| u64::from(plan.rounds(cell))).sum();
        let bar = (loudness != Loudness::Quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(wanted), ProgressDrawTarget::stderr_with_hz(4));
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} trials, {eta} left · {wide_msg}");
            bar.set_style(style.expect("the template is well-formed"));
            bar
        });
        let labels = plan.cells.iter().map(|cell| (&cell.id, cell.label.as_str())).collect();
        Self {
            labels,
            loudness,
            bar,
            wanted,
            counted: 0,
            faults: 0,
            excluded: 0,
            trial: String::new(),
            lacking: HashSet::new(),
        }
    }

    fn label(&self, cell: &CellId) -> &str {
        self.labels.get(cell).copied().unwrap_or("?")
    }

    fn judged(&mut self, judged: &Judged) {
        let judgement = &judged.judgement;
        match judgement.verdict.counted() {
            Counted::Clean => self.counted += 1,
            Counted::Fault => {
                self.counted += 1;
                self.faults += 1;
            }
            Counted::Excluded => self.excluded += 1,
        }
        // A campaign does not know how many it will want.
        let of = if self.wanted == 0 { String::new() } else { format!("/{}", self.wanted) };
        let mut line = format!("[{}{of}] {}", self.counted, self.label(&judged.trial.cell));
        line.push_str(&format!(" r{:03}: {}", judged.trial.round, judgement.verdict));
        if let Some(stage) = judgement.stage.as_ref().filter(|_| judgement.verdict != Verdict::Pass) {
            line.push_str(&format!(" at {stage}"));
        }
        if let Some(detail) = &judgement.detail {
            // What this build cannot do is often the same for every cell; nobody reads it twenty times.
            let is_said = judged.rule == CANNOT_RUN_HERE && !self.lacking.insert(detail.clone());
            line.push_str(&if is_said { " (as above)".to_owned() } else { format!(" ({detail})") });
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.counted);
                if judgement.verdict != Verdict::Pass {
                    bar.println(line);
                }
            }
            None if self.loudness != Loudness::Quiet => say(line),
            None => {}
        }
    }

    fn show(&self, stage: &str) {
        if let Some(bar) = &self.bar {
            let tally = format!("{} faults, {} excluded", self.faults, self.excluded);
            bar.set_message(format!("{tally} · {} {stage}", self.trial));
        }
    }
}

impl Watch for Progress<'_> {
    fn read_back(&mut self, state: &RunState) {
        self.counted = state.progress.cells().iter().map(|cell| u64::from(cell.counted)).sum();
        if let Some(bar) = &self.bar {
            bar.set_position(self.counted);
            bar.reset_eta();
        }
    }

    fn recorded(&mut self, record: &Record, _state: &RunState) {
        match &record.event {
            Event::Judged(judged) => self.judged(judged),
            Event::Started(started) => {
                self.trial = format!("{} r{:03}", self.label(&started.trial.cell), started.trial.round);
                self.show("");
            }
            Event::Stage(reached) => self.show(reached.stage.as_str()),
            Event::Quarantined(quarantined) if self.loudness != Loudness::Quiet => {
                say(format_args!("{} is not started again: {}", self.label(&quarantined.cell), quarantined.why));
            }
            Event::Alive(_) => {
                if let Some(bar) = &self.bar {
                    bar.tick();
                }
            }
            Event::Closed(_) | Event::Paused(_) => {
                if let Some(bar) = &self.bar {
                    bar.finish_and_clear();
                }
            }
            Event::Opened(_)
            | Event::Booted(_)
            | Event::Extended(_)
            | Event::Running(_)
            | Event::Finished(_)
            | Event::RebootAsked(_)
            | Event::Set(_)
            | Event::Restored(_)
            | Event::Hooked(_)
            | Event::Observed(_)
            | Event::Quarantined(_) => {}
        }
    }
}
