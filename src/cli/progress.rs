//! Progress for people, on standard error: two lines that are drawn anew on a terminal, a line a trial elsewhere.

use std::collections::{HashMap, HashSet};
use std::io::{IsTerminal, stderr};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use rustix::termios::tcgetwinsize;

use crate::cli::keys::UnshownKeys;
use crate::cli::output::say;
use crate::cli::render::{COLUMNS_DEFAULT, counted, cut, duration};
use crate::decide::plan::Plan;
use crate::decide::run::{CANNOT_RUN_HERE, RunState};
use crate::model::ids::CellId;
use crate::model::journal::{Event, Judged, Record};
use crate::model::settings::WorkloadSettings;
use crate::model::verdict::{Counted, Verdict};
use crate::perform::runner::Watch;

/// After so many trials of this start their own pace is a better guess than the plan's.
const PACE_TRIALS_MIN: u64 = 3;

/// How often the lines are drawn at most, in a second.
const DRAWS_HZ: u8 = 4;

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// Nothing but errors.
    Quiet,
    /// What one wants to know.
    Normal,
    /// Everything: starts and stages too.
    Verbose,
}

/// Shows how a run goes.
pub struct Progress<'a> {
    labels: HashMap<&'a CellId, &'a str>,
    loudness: Loudness,
    bar: Option<ProgressBar>,
    tally: Tally,
    pace: Pace,
    /// Boots that the plan wants; 0 if it needs none.
    boots_wanted: u64,
    boots_max: u64,
    boots: u64,
    trial: String,
    stage: String,
    /// When the trial, or its stage, began, in milliseconds of its boot; and when it was last heard of.
    since_ms: (u64, u64),
    /// What was said that this build cannot do.
    lacking: HashSet<String>,
    /// The bar ends at the right edge: what a Ctrl-C shows would break its line.
    _keys: Option<UnshownKeys>,
}

/// What was judged so far.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    wanted: u64,
    counted: u64,
    faults: u64,
    excluded: u64,
}

/// How fast it goes.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// What the plan takes a trial for, boots included, in milliseconds; nothing where it can only assume it, as for
    /// commands.
    planned_ms: Option<u64>,
    began: Instant,
    /// Trials judged since.
    judged: u64,
}

impl Pace {
    /// How long `trials` more may take, in milliseconds: by what was seen, else by the plan, if it can tell.
    fn left_ms(&self, trials: u64) -> Option<u64> {
        let seen = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).checked_div(self.judged);
        let is_enough = self.judged >= PACE_TRIALS_MIN || self.planned_ms.is_none();
        let each = seen.filter(|_| is_enough).or(self.planned_ms)?;
        Some(each.saturating_mul(trials))
    }
}

impl<'a> Progress<'a> {
    /// For a run of `plan`.
    pub fn new(plan: &'a Plan, loudness: Loudness) -> Self {
        let wanted = plan.cells.iter().map(|cell| u64::from(plan.rounds(cell))).sum();
        let bar = (loudness != Loudness::Quiet && stderr().is_terminal()).then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(DRAWS_HZ);
            let bar = ProgressBar::with_draw_target((wanted > 0).then_some(wanted), target)
                .with_finish(ProgressFinish::AndClear);
            // A campaign does not know how many it will want: a bar would never fill.
            let template = if wanted > 0 { "{bar:14} {wide_msg}\n{prefix}" } else { "{wide_msg}\n{prefix}" };
            bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
            bar
        });
        let keys = bar.as_ref().and_then(|_| UnshownKeys::new());
        let labels = plan.cells.iter().map(|cell| (&cell.id, cell.label.as_str())).collect();
        let is_assumed = plan.cells.iter().any(|cell| matches!(cell.settings.workload, WorkloadSettings::Command(_)));
        let planned_ms = (plan.needs.seconds * 1000).checked_div(plan.needs.trials).filter(|_| !is_assumed);
        Self {
            labels,
            loudness,
            bar,
            tally: Tally { wanted, ..Tally::default() },
            pace: Pace { planned_ms, began: Instant::now(), judged: 0 },
            boots_wanted: plan.needs.boots,
            boots_max: plan.boots_max,
            boots: 0,
            trial: String::new(),
            stage: String::new(),
            since_ms: (0, 0),
            lacking: HashSet::new(),
            _keys: keys,
        }
    }

    fn label(&self, cell: &CellId) -> &str {
        self.labels.get(cell).copied().unwrap_or("?")
    }

    fn judged(&mut self, judged: &Judged) {
        let judgement = &judged.judgement;
        match judged.corrects.map(Verdict::counted) {
            Some(Counted::Clean) => self.tally.counted = self.tally.counted.saturating_sub(1),
            Some(Counted::Fault) => {
                self.tally.counted = self.tally.counted.saturating_sub(1);
                self.tally.faults = self.tally.faults.saturating_sub(1);
            }
            Some(Counted::Excluded) => self.tally.excluded = self.tally.excluded.saturating_sub(1),
            None => {}
        }
        match judgement.verdict.counted() {
            Counted::Clean => self.tally.counted += 1,
            Counted::Fault => {
                self.tally.counted += 1;
                self.tally.faults += 1;
            }
            Counted::Excluded => self.tally.excluded += 1,
        }
        self.pace.judged += 1;
        let of = if self.tally.wanted == 0 { String::new() } else { format!("/{}", self.tally.wanted) };
        let mut line = format!("[{}{of}] {}", self.tally.counted, self.label(&judged.trial.cell));
        line.push_str(&format!(" r{:03}: {}", judged.trial.round, judgement.verdict));
        if let Some(stage) = judgement.stage.as_ref().filter(|_| judgement.verdict != Verdict::Pass) {
            line.push_str(&format!(" at {stage}"));
        }
        if let Some(cause) = judgement.cause {
            line.push_str(&format!(", cause {}", cause.as_str()));
        }
        if let Some(detail) = &judgement.detail {
            // What this build cannot do is often the same for every cell; nobody reads it twenty times.
            let is_said = judged.rule == CANNOT_RUN_HERE && !self.lacking.insert(detail.clone());
            line.push_str(&if is_said { " (as above)".to_owned() } else { format!(" ({detail})") });
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.tally.counted);
                if judgement.verdict != Verdict::Pass || self.loudness == Loudness::Verbose {
                    bar.println(line);
                }
            }
            None if self.loudness != Loudness::Quiet => say(line),
            None => {}
        }
    }

    /// How far it is: `12/63 counted, about 41.2 min left · boots 14 used, 104 left`.
    fn how_far(&self) -> String {
        let Tally { wanted, counted, .. } = self.tally;
        let mut text = match wanted {
            0 => format!("{counted} counted"),
            _ => format!("{counted}/{wanted} counted"),
        };
        let left = Some(wanted.saturating_sub(counted)).filter(|left| *left > 0);
        if let Some(ms) = left.and_then(|left| self.pace.left_ms(left)) {
            text.push_str(&format!(", about {} left", duration(ms)));
        }
        if self.boots_wanted > 0 || self.boots > 1 {
            let left = self.boots_max.saturating_sub(self.boots);
            text.push_str(&format!(" · boots {} used, {left} left", self.boots));
        }
        text
    }

    /// What it is at: `2 faults, 1 excluded · baseline r003: C.forward for 12.0 s`.
    fn what(&self) -> String {
        let Tally { faults, excluded, .. } = self.tally;
        let mut text = format!("{}, {excluded} excluded", counted(faults, "fault"));
        if !self.trial.is_empty() {
            text.push_str(&format!(" · {}", self.trial));
        }
        if !self.stage.is_empty() {
            text.push_str(&format!(": {}", self.stage));
        }
        if let ms @ 1_000.. = self.since_ms.1.saturating_sub(self.since_ms.0) {
            text.push_str(&format!(" for {}", duration(ms)));
        }
        text
    }

    fn show(&self) {
        let Some(bar) = &self.bar else { return };
        let columns = tcgetwinsize(stderr()).map_or(COLUMNS_DEFAULT, |size| usize::from(size.ws_col));
        bar.set_message(self.how_far());
        // A line that is broken by the terminal would not be drawn over.
        bar.set_prefix(cut(&self.what(), columns.saturating_sub(1)));
    }

    /// Says a line above the bar, if there is one.
    fn tell(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => say(line),
        }
    }
}

impl Watch for Progress<'_> {
    fn read_back(&mut self, state: &RunState) {
        self.tally.counted = state.progress.cells().iter().map(|cell| u64::from(cell.counted)).sum();
        self.boots = u64::from(state.boots);
        if let Some(bar) = &self.bar {
            bar.set_position(self.tally.counted);
        } else if self.loudness != Loudness::Quiet && self.tally.wanted > self.tally.counted {
            say(self.how_far());
        }
        self.show();
    }

    fn recorded(&mut self, record: &Record, state: &RunState) {
        let now = record.uptime_ms.0;
        self.boots = u64::from(state.boots);
        let is_verbose = self.loudness == Loudness::Verbose;
        match &record.event {
            Event::Judged(judged) => {
                self.judged(judged);
                (self.trial, self.stage, self.since_ms) = (String::new(), String::new(), (now, now));
                self.show();
            }
            Event::Started(started) => {
                self.trial = format!("{} r{:03}", self.label(&started.trial.cell), started.trial.round);
                (self.stage, self.since_ms) = (String::new(), (now, now));
                if is_verbose {
                    self.tell(&format!("{} starts ({})", self.trial, started.trial));
                }
                self.show();
            }
            Event::Stage(reached) => {
                (self.stage, self.since_ms) = (reached.stage.to_string(), (now, now));
                if is_verbose {
                    self.tell(&format!("{}: {} after {}", self.trial, reached.stage, duration(reached.at_ms)));
                }
                self.show();
            }
            Event::Alive(_) => {
                self.since_ms.1 = now;
                self.show();
            }
            Event::Quarantined(quarantined) if self.loudness != Loudness::Quiet => {
                self.tell(&format!("{} is not started again: {}", self.label(&quarantined.cell), quarantined.why));
            }
            Event::Set(set) if is_verbose => self.tell(&format!("{}: {} → {}", set.what, set.old, set.new)),
            Event::Restored(restored) if is_verbose => {
                self.tell(&format!("{} is {} again", restored.what, restored.value));
            }
            Event::Closed(_) | Event::Paused(_) | Event::RebootAsked(_) => {
                if let Some(bar) = &self.bar {
                    bar.finish_and_clear();
                }
            }
            Event::Opened(_)
            | Event::Booted(_)
            | Event::Extended(_)
            | Event::Running(_)
            | Event::Finished(_)
            | Event::Set(_)
            | Event::Restored(_)
            | Event::Hooked(_)
            | Event::Observed(_)
            | Event::Quarantined(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::constructed::{BOARD, plan_of};

    #[test]
    fn the_lines_say_how_far_it_is_and_what_it_is_at() {
        let plan = plan_of(BOARD);
        let mut progress = Progress::new(&plan, Loudness::Quiet);
        progress.boots = 14;
        progress.tally = Tally { counted: 12, faults: 2, excluded: 1, ..progress.tally };
        progress.trial = "baseline r003".into();
        progress.stage = "C.forward".into();
        progress.since_ms = (60_000, 72_000);
        let far = progress.how_far();
        assert!(far.starts_with("12/63 counted, about ") && far.ends_with("· boots 14 used, 104 left"), "{far}");
        assert_eq!(progress.what(), "2 faults, 1 excluded · baseline r003: C.forward for 12.0 s");
        assert!(far.chars().count() + 15 <= 80, "{far}");
    }

    #[test]
    fn the_pace_is_the_plans_until_enough_was_seen() {
        let began = Instant::now() - std::time::Duration::from_secs(6);
        let pace = Pace { planned_ms: Some(60_000), began, judged: 2 };
        assert_eq!(pace.left_ms(10), Some(600_000));
        let seen = Pace { judged: 3, ..pace }.left_ms(10).unwrap();
        assert!((20_000..30_000).contains(&seen), "{seen}");
        // What a command takes nobody knows before the first.
        assert_eq!(Pace { planned_ms: None, judged: 0, ..pace }.left_ms(10), None);
        assert!(Pace { planned_ms: None, judged: 1, ..pace }.left_ms(10) < Some(70_000));
    }
}
