//! What a run says about the usual explanations of a fault: which it rules out, which it supports, and which it cannot
//! see.
//!
//! Rows are computed from cells, never typed: each names the cells it rests on and how many trials they had. *Ruled out*
//! is said of the levels that were tested, and only where the evidence could have shown the opposite; where nobody could
//! have seen it, the row says so. One clean trial rules nothing out.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decide::compare::p_words;
use crate::decide::plan::CellRole;
use crate::decide::report::{CellReport, Met};
use crate::decide::result::TrialResult;
use crate::decide::stats::{Arms, Counts, fisher};
use crate::model::evidence::Fact;
use crate::model::ids::CellId;
use crate::model::kernel_log::{KernelFault, LogClass};
use crate::model::outcome::Outcome;
use crate::model::verdict::{Provenance, Signature, Verdict};
use crate::model::words::words;

words! {
    /// What a run says of an explanation.
    Status {
        /// The evidence could have shown it and shows the opposite.
        RuledOut = "ruled out",
        /// The evidence speaks for it.
        Supported = "supported",
        /// The evidence is not enough either way.
        Undecided = "undecided",
        /// No trial bears on it.
        NotTested = "not tested",
        /// Nobody could have seen it.
        NotObservable = "not observable",
    }
}

/// One explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hypothesis {
    /// What would explain the fault.
    pub what: String,
    /// What the run says of it.
    pub status: Status,
    /// Why, with figures.
    pub evidence: String,
    /// The cells that it rests on.
    pub cells: Vec<CellId>,
    /// How many counted trials they had.
    pub trials: u64,
}

/// The level of significance from which a difference between two cells is one (two-sided, Fisher's exact test).
const ALPHA: f64 = 0.05;

/// Memory of which so many bytes are available the whole time has not run out: an 8 GB board keeps less than a tenth of
/// that in reserve (`vm.min_free_kbytes`), and a single allocation of a layer takes about as much.
const AVAILABLE_MIN: u64 = 512 << 20;

/// How many crashes at one place speak for a fault that is not random.
const CRASHES_MIN: usize = 3;

/// What trials with a fault said of memory, GPU, supply and place.
#[derive(Debug, Default)]
pub struct Fold {
    faults: u64,
    cells: BTreeSet<CellId>,
    memory_seen: u64,
    available_min: Option<u64>,
    memory_faults: u64,
    kernel_heard: u64,
    gpu_faults: u64,
    sensors_seen: u64,
    throttled: u64,
    /// Offsets of crashes by cell and module.
    places: BTreeMap<(CellId, String), BTreeSet<String>>,
    crashes: usize,
}

impl Fold {
    /// Takes note of a counted fault.
    pub fn add(&mut self, result: &TrialResult) {
        self.faults += 1;
        self.cells.insert(result.trial.cell.clone());
        if matches!(result.judgement.verdict, Verdict::OomKill | Verdict::CudaOom) {
            self.memory_faults += 1;
        }
        let Some(outcome) = &result.outcome else { return };
        self.add_memory(outcome);
        if let Fact::Known(found) = &outcome.kernel {
            self.kernel_heard += u64::from(outcome.kernel_lost == 0);
            self.gpu_faults += u64::from(found.iter().any(|found| found.finding.class == LogClass::Gpu));
            self.throttled += u64::from(found.iter().any(|found| found.finding.fault == KernelFault::UnderVoltage));
        }
        if let Some(telemetry) = &outcome.telemetry
            && telemetry.samples > 0
            && !telemetry.throttle.is_empty()
        {
            self.sensors_seen += 1;
            self.throttled += u64::from(telemetry.throttle.values().any(|level| level.max > level.first));
        }
        if let Some(signature) = result.judgement.signature.as_ref().filter(|s| s.verdict == Verdict::Crash)
            && let Some((module, offset)) = signature.place.as_ref().and_then(|place| place.rsplit_once('+'))
        {
            self.crashes += 1;
            let place = (result.trial.cell.clone(), module.to_owned());
            self.places.entry(place).or_default().insert(offset.to_owned());
        }
    }

    fn add_memory(&mut self, outcome: &Outcome) {
        let nobody_killed = outcome.oom_kills == Fact::Known(0);
        let available = outcome.telemetry.as_ref().and_then(|telemetry| telemetry.available_min);
        if let (true, Some(available)) = (nobody_killed, available) {
            self.memory_seen += 1;
            self.available_min = Some(self.available_min.map_or(available, |least| least.min(available)));
        }
    }

    /// The rows for these cells; none for a run without a fault.
    pub fn finish(self, cells: &[CellReport]) -> Vec<Hypothesis> {
        if self.faults == 0 {
            return Vec::new();
        }
        let mut rows = axes(cells);
        rows.extend(controls(cells));
        rows.push(self.memory());
        rows.push(self.gpu());
        rows.push(self.supply());
        rows.extend(self.corruption());
        rows.push(Hypothesis {
            what: "the harness".into(),
            status: Status::NotTested,
            evidence: "run the same command once outside of it".into(),
            cells: Vec::new(),
            trials: 0,
        });
        rows
    }

    fn row(&self, what: &str, status: Status, evidence: String) -> Hypothesis {
        let cells = self.cells.iter().cloned().collect();
        Hypothesis { what: what.into(), status, evidence, cells, trials: self.faults }
    }

    fn memory(&self) -> Hypothesis {
        let what = "the machine's memory ran out";
        let least = self.available_min.map(|bytes| format!("at least {} MiB were available", bytes >> 20));
        if self.memory_faults > 0 {
            let evidence = format!("{} of {} faults are a want of memory", self.memory_faults, self.faults);
            return self.row(what, Status::Supported, evidence);
        }
        match (least, self.available_min) {
            (Some(least), Some(available)) if self.memory_seen == self.faults => {
                let status = if available >= AVAILABLE_MIN { Status::RuledOut } else { Status::Undecided };
                let evidence =
                    format!("{least} during every one of {} faulty trials, and nobody was killed", self.faults);
                self.row(what, status, evidence)
            }
            (Some(least), ..) => {
                let evidence = format!("{least}, seen in {} of {} faulty trials only", self.memory_seen, self.faults);
                self.row(what, Status::Undecided, evidence)
            }
            (None, ..) => self.row(what, Status::NotObservable, "no sample of memory during the faulty trials".into()),
        }
    }

    fn gpu(&self) -> Hypothesis {
        let what = "a fault of the GPU";
        if self.gpu_faults > 0 {
            let evidence = format!("the kernel tells of one in {} of {} faulty trials", self.gpu_faults, self.faults);
            return self.row(what, Status::Supported, evidence);
        }
        if self.kernel_heard == self.faults {
            let evidence =
                format!("the kernel said nothing of it in {} faulty trials, and nothing it said was lost", self.faults);
            return self.row(what, Status::Undecided, evidence);
        }
        self.row(what, Status::NotObservable, "the kernel's log could not be read".into())
    }

    fn supply(&self) -> Hypothesis {
        let what = "heat or supply";
        if self.throttled > 0 {
            let evidence = format!("it throttled in {} of {} faulty trials", self.throttled, self.faults);
            return self.row(what, Status::Supported, evidence);
        }
        if self.sensors_seen == self.faults {
            return self.row(what, Status::RuledOut, format!("no throttling in {} faulty trials", self.faults));
        }
        self.row(what, Status::NotObservable, "this machine shows no counters of throttling".into())
    }

    /// One place every time is what a fault that is not random does; places that vary are what corrupted memory does.
    fn corruption(&self) -> Option<Hypothesis> {
        let what = "corrupted memory or a race (the address varies)";
        if self.crashes == 0 {
            return None;
        }
        let varying = self.places.iter().find(|(_, offsets)| offsets.len() > 1);
        Some(match varying {
            Some(((cell, module), offsets)) => Hypothesis {
                cells: vec![cell.clone()],
                ..self.row(what, Status::Supported, format!("{} addresses in {module} in one cell", offsets.len()))
            },
            None if self.crashes >= CRASHES_MIN => {
                let evidence = format!("{} crashes, and one address in each cell", self.crashes);
                self.row(what, Status::Undecided, evidence)
            }
            None => self.row(what, Status::Undecided, format!("{} crashes are too few to vary", self.crashes)),
        })
    }
}

/// What a cell counted, in the foremost provenance that it has.
struct Arm<'c> {
    cell: &'c CellReport,
    provenance: Provenance,
    counts: Counts,
    signature: Option<&'c Signature>,
}

fn arm(cell: &CellReport) -> Option<Arm<'_>> {
    let sampled = cell.samples.iter().min_by_key(|sampled| sampled.provenance)?;
    let counts = Counts::of(sampled.rate.faults, sampled.rate.counted)?;
    let signature = sampled.signatures.first().map(|known| &known.signature);
    Some(Arm { cell, provenance: sampled.provenance, counts, signature })
}

/// For each axis: whether the fault depends on it, from the cells that differ from the baseline in it alone.
fn axes(cells: &[CellReport]) -> Vec<Hypothesis> {
    let Some(base) = cells.iter().find(|cell| cell.role == CellRole::Sample && cell.label == "baseline") else {
        return Vec::new();
    };
    let Some(base_arm) = arm(base).filter(|arm| arm.counts.faults > 0) else { return Vec::new() };
    let differs = |cell: &CellReport| -> Option<String> {
        let mut names = cell.levels.iter().filter(|(name, level)| base.levels.get(*name) != Some(level));
        let (name, _) = names.next()?;
        names.next().is_none().then(|| name.clone())
    };
    let mut by_axis: Vec<(String, Vec<&CellReport>)> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.role == CellRole::Sample) {
        let Some(axis) = differs(cell) else { continue };
        match by_axis.iter_mut().find(|(name, _)| *name == axis) {
            Some((_, known)) => known.push(cell),
            None => by_axis.push((axis, vec![cell])),
        }
    }
    by_axis.into_iter().map(|(axis, levels)| axis_row(&axis, &base_arm, &levels)).collect()
}

/// The meaning of an axis that has one of its own.
fn meaning(axis: &str) -> String {
    match axis {
        "cpus" => "a race between threads that needs several CPUs (cpus)".to_owned(),
        "memory_max" | "ballast" => format!("a want of memory ({axis})"),
        "drop_caches" | "prefill_cache" => format!("the state of the page cache ({axis})"),
        "start" => "the state in which a trial starts (start)".to_owned(),
        _ => format!("it depends on {axis}"),
    }
}

fn axis_row(axis: &str, base: &Arm<'_>, levels: &[&CellReport]) -> Hypothesis {
    let arms: Vec<Arm<'_>> =
        levels.iter().filter_map(|cell| arm(cell)).filter(|arm| arm.provenance == base.provenance).collect();
    let trials = arms.iter().map(|arm| arm.counts.counted()).sum::<u64>() + base.counts.counted();
    let tested =
        std::iter::once(base.cell).chain(arms.iter().map(|arm| arm.cell)).map(|cell| cell.id.clone()).collect();
    let row = |status, evidence| Hypothesis { what: meaning(axis), status, evidence, cells: tested, trials };
    let shown = |counts: Counts| format!("{} of {}", counts.faults, counts.counted());
    if arms.is_empty() {
        return row(Status::NotTested, format!("no counted trial of another level of {axis}"));
    }
    let difference = |arm: &Arm<'_>| fisher(Arms { a: base.counts, b: arm.counts }).two_sided;
    let beside = |arm: &Arm<'_>| {
        let level = arm.cell.levels.get(axis).map(String::as_str).unwrap_or_default();
        let p = p_words(difference(arm));
        format!("{} at {level}, {} in the baseline, p = {p}", shown(arm.counts), shown(base.counts))
    };
    let nearest = |arms: &mut dyn Iterator<Item = &Arm<'_>>| {
        arms.map(|arm| (difference(arm), beside(arm))).min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let status = |p: f64| if p <= ALPHA { Status::Supported } else { Status::Undecided };
    if let Some((p, words)) = nearest(&mut arms.iter().filter(|arm| arm.counts.faults == 0)) {
        return row(status(p), words);
    }
    let is_same = arms.iter().all(|arm| arm.signature.is_some() && arm.signature == base.signature);
    // A level that faults too, but not as often, is no proof of the contrary: the axis may be one cause of several.
    let other_rate = &mut arms.iter().filter(|arm| arm.counts.observed() != base.counts.observed());
    match (is_same, nearest(other_rate)) {
        (true, Some((p, words))) => {
            row(status(p), format!("not solely, since every level tested has the fault: {words}"))
        }
        (false, Some((p, words))) if p <= ALPHA => row(Status::Supported, words),
        (true, None) => row(Status::RuledOut, format!("the same fault at every level tested, {}", least(&arms))),
        (false, _) => {
            row(Status::Undecided, format!("faults at every level tested, {}, not all of them the same", least(&arms)))
        }
    }
}

/// The lowest rate among `arms`, of which there is one at least.
fn least(arms: &[Arm<'_>]) -> String {
    let counts = arms.iter().map(|arm| arm.counts);
    let least = counts
        .min_by(|a, b| a.observed().partial_cmp(&b.observed()).expect("rates are numbers"))
        .expect("there is one");
    format!("at least {} of {}", least.faults, least.counted())
}

/// What each control shows.
fn controls(cells: &[CellReport]) -> Vec<Hypothesis> {
    let controls = cells.iter().filter(|cell| cell.role == CellRole::Control && !cell.shows.is_empty());
    controls
        .map(|cell| {
            let (status, evidence) = match cell.expectation.map(|expectation| expectation.met) {
                Some(Met::Met) => (Status::Supported, format!("{} gave what it must", cell.label)),
                Some(Met::NotMet) => (Status::Undecided, format!("{} did not give what it must", cell.label)),
                Some(Met::Untested) | None => (Status::NotTested, format!("{} has no counted trial", cell.label)),
            };
            let trials = cell.counted();
            Hypothesis { what: cell.shows.clone(), status, evidence, cells: vec![cell.id.clone()], trials }
        })
        .collect()
}
