//! A trial as a comparison sees it: how it is counted, and everything that may have made the difference.
//!
//! Owns what counts as a factor of a stored trial. A factor that no trial has a value of cannot be guarded and is left
//! out, but for the start state, whose absence must be said.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

use crate::decide::plan::{CellRole, Plan};
use crate::decide::result::{StartedAt, TrialResult};
use crate::decide::stats::Counts;
use crate::model::ids::{BootId, CellId, DeviceId, RunId, TrialId};
use crate::model::journal::Launcher;
use crate::model::matrix::Knob;
use crate::model::settings::Start;
use crate::model::start_state::{ColdProof, PriorEnd, StartState};
use crate::model::verdict::{Counted, Judgement, Provenance, Role, Verdict};

/// The factor that says in which state a trial started. It stands for the axis `start`, which says what was asked for.
pub const STATE: &str = "state";

/// The factor that says in which run a trial was. It is one only where runs are compared: it would otherwise stand for
/// everything that two runs differ in.
pub const RUN: &str = "run";

/// The figure that says when a trial ran, as a rank.
pub const ORDER: &str = "order";

/// The figure that says how hot the machine became.
pub const TEMPERATURE: &str = "temp_c_max";

/// Facts of a machine that are factors, by their name in a report.
const MACHINE_FACTORS: [(&str, &str); 5] =
    [("l4t", "l4t"), ("kernel", "kernel"), ("driver", "driver"), ("cuda", "cuda"), ("power mode", "power_mode")];

/// A device that a transcription does not name.
const UNRECORDED: &str = "unrecorded";

/// How a trial is counted in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// It has the fault in question.
    Fault,
    /// It has no fault.
    Clean,
    /// It is in no rate.
    Excluded,
    /// It has another fault.
    OtherFault,
}

impl Counting {
    /// Whether it is in the rate.
    pub fn is_counted(self) -> bool {
        match self {
            Self::Fault | Self::Clean => true,
            Self::Excluded | Self::OtherFault => false,
        }
    }

    /// `counts` with this trial.
    pub fn added_to(self, counts: Counts) -> Counts {
        match self {
            Self::Fault => Counts { faults: counts.faults + 1, ..counts },
            Self::Clean => Counts { clean: counts.clean + 1, ..counts },
            Self::Excluded | Self::OtherFault => counts,
        }
    }
}

/// One round of a run: its trials ran in an order drawn from the seed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// The run, by its place among those compared: runs of several devices may have the same id.
    pub run: usize,
    /// The round.
    pub round: u32,
}

/// The factors of a trial by name; `None` where the level was not recorded. Trials that are alike share theirs, so that what is
/// found out about them is found out once (`ByFactors`).
#[derive(Debug, Clone)]
pub struct Factors(Arc<BTreeMap<String, Option<String>>>);

impl Factors {
    /// The level of factor `name`, if it was recorded.
    pub fn level(&self, name: &str) -> Option<&String> {
        self.get(name)?.as_ref()
    }

    /// The same with another factor, or another level of one.
    pub fn with(&self, name: &str, level: &str) -> Self {
        let mut factors = BTreeMap::clone(&self.0);
        factors.insert(name.to_owned(), Some(level.to_owned()));
        Self(Arc::new(factors))
    }
}

impl Deref for Factors {
    type Target = BTreeMap<String, Option<String>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<(String, Option<String>)> for Factors {
    fn from_iter<I: IntoIterator<Item = (String, Option<String>)>>(factors: I) -> Self {
        Self(Arc::new(factors.into_iter().collect()))
    }
}

impl Ord for Factors {
    fn cmp(&self, other: &Self) -> Ordering {
        // Most are compared with themselves.
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Factors {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Factors {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Factors {}

/// What was found out about factors, once for all trials that share them.
#[derive(Debug)]
pub(super) struct ByFactors<'o, T>(HashMap<*const BTreeMap<String, Option<String>>, T>, PhantomData<&'o Factors>);

impl<'o, T: Clone> ByFactors<'o, T> {
    /// Before anything was asked.
    pub(super) fn new() -> Self {
        Self(HashMap::new(), PhantomData)
    }

    /// What `find` says of `factors`, or said of them before.
    pub(super) fn of(&mut self, factors: &'o Factors, find: impl FnOnce(&'o Factors) -> T) -> T {
        // They are borrowed for longer than this lives: no others can come to be at the same place.
        self.0.entry(Arc::as_ptr(&factors.0)).or_insert_with(|| find(factors)).clone()
    }
}

/// A trial as a comparison sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// How it is counted.
    pub counting: Counting,
    /// Its factors.
    pub factors: Factors,
    /// Its numbers, by name with the unit last.
    pub figures: BTreeMap<&'static str, f64>,
    /// The boot in which it ran, as a number among those of all trials; a transcription has none.
    pub boot: Option<u32>,
    /// How many trials of ours had started in that boot before it.
    pub position: u32,
    /// Its block; a transcription has none.
    pub block: Option<Block>,
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// For a fault: what makes it the same as another, without the stage.
    pub signature: Option<String>,
}

impl Observation {
    /// Whether it is known to have this level of this factor.
    pub fn has(&self, factor: &str, level: &str) -> bool {
        self.factors.level(factor).is_some_and(|own| own == level)
    }
}

/// Trials that cannot be put into one comparison.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// A result that belongs to another plan.
    #[error("trial {0} is of a cell that is not in the plan")]
    Stray(TrialId),
    /// Faults of several kinds.
    #[error("the faults have several signatures: {}", .0.join(", "))]
    MixedSignatures(Vec<String>),
    /// No fault is of the kind asked for.
    #[error("no fault has the signature {asked:?}: {}", if .there.is_empty() { "there are none".into() } else { .there.join(", ") })]
    NoSuchSignature {
        /// What was asked for.
        asked: String,
        /// What there is.
        there: Vec<String>,
    },
}

/// A run whose trials are compared.
#[derive(Debug, Clone)]
pub struct RunUnderComparison {
    /// The run.
    pub id: RunId,
    /// Its plan.
    pub plan: Plan,
    /// What its machine says about itself, by the names that a report uses.
    pub machine: BTreeMap<String, String>,
}

/// What the factors of a trial are made of: trials of the same origin have the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Origin {
    /// The number of the run.
    run: usize,
    cell: CellId,
    settings: BTreeMap<String, String>,
    prior_end: Option<PriorEnd>,
    state: Option<&'static str>,
    device: DeviceId,
    launcher: Option<&'static str>,
}

impl Origin {
    fn of(run: usize, cell: &CellId, started: &StartedAt) -> Self {
        let conditions = &started.started.conditions;
        Self {
            run,
            cell: cell.clone(),
            settings: conditions.settings.clone(),
            prior_end: conditions.prior_end,
            state: conditions.start.as_ref().and_then(state),
            device: started.started.device.clone(),
            launcher: launcher(started),
        }
    }
}

/// Collects the trials of several runs, in the order in which they are named.
#[derive(Debug)]
pub struct Collector<'r> {
    runs: &'r [RunUnderComparison],
    /// Every axis of any run.
    axes: BTreeSet<&'r str>,
    /// Settings that are the same in all cells of a run, by their path, by run.
    settings: Vec<BTreeMap<String, String>>,
    /// Those that are not the same in all runs, by their name.
    fixed: Vec<BTreeMap<String, String>>,
    /// Whether the runs themselves are compared.
    by_run: bool,
    /// The factors of the trials so far.
    known: HashMap<Origin, Factors>,
    /// The numbers of boots.
    boots: HashMap<BootId, u32>,
    observations: Vec<Observation>,
}

impl<'r> Collector<'r> {
    /// Before the first trial.
    pub fn new(runs: &'r [RunUnderComparison]) -> Self {
        let cells = runs.iter().flat_map(|run| &run.plan.cells);
        let axes: BTreeSet<&str> = cells.flat_map(|cell| cell.levels.keys().map(String::as_str)).collect();
        let settings: Vec<_> = runs.iter().map(|run| fixed_settings(&run.plan)).collect();
        Self {
            runs,
            fixed: fixed_differences(&settings, &axes),
            settings,
            axes,
            by_run: false,
            known: HashMap::new(),
            boots: HashMap::new(),
            observations: Vec::new(),
        }
    }

    /// With the run of a trial as a factor, [`RUN`].
    pub fn by_run(self) -> Self {
        Self { by_run: true, ..self }
    }

    /// The axes of all runs.
    pub fn axes(&self) -> BTreeSet<String> {
        self.axes.iter().map(|axis| (*axis).to_owned()).filter(|axis| axis != Knob::Start.as_str()).collect()
    }

    /// Takes note of a trial of run number `run`.
    ///
    /// # Errors
    /// If its cell is not in the plan.
    pub fn add(&mut self, run: usize, result: &TrialResult) -> Result<(), CollectError> {
        let plan = &self.runs[run].plan;
        let cell = plan.cell(&result.trial.cell).ok_or_else(|| CollectError::Stray(result.trial.clone()))?;
        let Some(started) = &result.started else { return Ok(()) };
        if cell.role != CellRole::Sample || started.started.role != Role::Sample {
            return Ok(());
        }
        let provenance = started.started.provenance;
        let is_placed = provenance != Provenance::Transcribed;
        // Of a transcription only the time is told at which it was published; its boots are made up.
        let order = if is_placed { self.observations.len() as f64 } else { started.wall.0.timestamp_millis() as f64 };
        let boots = self.boots.len() as u32;
        let observation = Observation {
            counting: counting(result.judgement.verdict),
            factors: self.factors(Origin::of(run, &result.trial.cell, started)),
            figures: figures(result, started, cell.predicted.as_ref(), order),
            boot: is_placed.then(|| *self.boots.entry(started.boot.clone()).or_insert(boots)),
            position: started.started.position,
            block: is_placed.then_some(Block { run, round: result.trial.round }),
            provenance,
            signature: (result.judgement.verdict.counted() == Counted::Fault)
                .then(|| signature_words(&result.judgement)),
        };
        self.observations.push(observation);
        Ok(())
    }

    /// The factors of a trial, shared with the trials before that are of the same origin.
    fn factors(&mut self, origin: Origin) -> Factors {
        if let Some(factors) = self.known.get(&origin) {
            return factors.clone();
        }
        let factors = Factors(Arc::new(self.factors_of(&origin)));
        self.known.insert(origin, factors.clone());
        factors
    }

    fn factors_of(&self, origin: &Origin) -> BTreeMap<String, Option<String>> {
        let RunUnderComparison { plan, machine, .. } = &self.runs[origin.run];
        let cell = plan.cell(&origin.cell).expect("looked up by the caller");
        let mut factors = BTreeMap::new();
        for (name, factor) in MACHINE_FACTORS {
            factors.insert(factor.to_owned(), machine.get(name).cloned());
        }
        factors.extend(plan.factors.iter().map(|(name, level)| (name.clone(), Some(level.clone()))));
        factors.extend(self.fixed[origin.run].iter().map(|(name, level)| (name.clone(), Some(level.clone()))));
        for axis in &self.axes {
            let without = || level_without_axis(&self.settings[origin.run], axis);
            factors.insert((*axis).to_owned(), cell.levels.get(*axis).cloned().or_else(without));
        }
        factors.extend(origin.settings.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
        let device = Some(origin.device.to_string()).filter(|device| device != UNRECORDED);
        factors.insert("device".into(), device);
        factors.insert("launcher".into(), origin.launcher.map(str::to_owned));
        factors.insert("prior_end".into(), origin.prior_end.and_then(prior_end));
        factors.remove(Knob::Start.as_str());
        if self.by_run {
            factors.insert(RUN.into(), Some(self.runs[origin.run].id.to_string()));
        }
        factors.insert(STATE.into(), origin.state.map(str::to_owned));
        factors
    }

    /// The observations that are to be kept, counted for the fault with the signature that begins with `signature`;
    /// without one, for the only kind of fault that there is among them.
    ///
    /// # Errors
    /// If the faults are of several kinds and none was named, or none is of the kind named.
    pub fn finish(
        mut self,
        keep: impl Fn(&Observation) -> bool,
        signature: Option<&str>,
    ) -> Result<Vec<Observation>, CollectError> {
        self.observations.retain(keep);
        let kinds: BTreeMap<&String, usize> = self
            .observations
            .iter()
            .filter_map(|observation| observation.signature.as_ref())
            .fold(BTreeMap::new(), |mut kinds, kind| {
                *kinds.entry(kind).or_default() += 1;
                kinds
            });
        let listed = || kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        match signature {
            None if kinds.len() > 1 => return Err(CollectError::MixedSignatures(listed())),
            Some(asked) if !kinds.keys().any(|kind| kind.starts_with(asked)) => {
                return Err(CollectError::NoSuchSignature { asked: asked.to_owned(), there: listed() });
            }
            None | Some(_) => {}
        }
        for observation in &mut self.observations {
            let is_other = |kind: &String| signature.is_some_and(|asked| !kind.starts_with(asked));
            if observation.signature.as_ref().is_some_and(is_other) {
                observation.counting = Counting::OtherFault;
            }
        }
        forget_unrecorded(&mut self.observations);
        Ok(self.observations)
    }
}

fn counting(verdict: Verdict) -> Counting {
    match verdict.counted() {
        Counted::Fault => Counting::Fault,
        Counted::Clean => Counting::Clean,
        Counted::Excluded => Counting::Excluded,
    }
}

/// Takes out factors of which no trial has a level, but for the start state.
fn forget_unrecorded(observations: &mut [Observation]) {
    let all: BTreeSet<Factors> = observations.iter().map(|observation| observation.factors.clone()).collect();
    let recorded = all.iter().flat_map(|factors| factors.iter().filter(|(_, level)| level.is_some()));
    let recorded: BTreeSet<&str> = recorded.map(|(name, _)| name.as_str()).chain([STATE]).collect();
    let recorded_of = |factors: &Factors| -> Factors {
        let of_it = factors.iter().filter(|(name, _)| recorded.contains(name.as_str()));
        of_it.map(|(name, level)| (name.clone(), level.clone())).collect()
    };
    let less: BTreeMap<&Factors, Factors> = all.iter().map(|factors| (factors, recorded_of(factors))).collect();
    for observation in observations {
        observation.factors = less[&observation.factors].clone();
    }
}

/// What makes the fault of `judgement` the same as another: its verdict, status and place. Not its stage, which moves by
/// a few milliseconds from trial to trial.
pub fn signature_words(judgement: &Judgement) -> String {
    let mut words = judgement.verdict.to_string();
    if let Some(signature) = &judgement.signature {
        for part in [&signature.status, &signature.place].into_iter().flatten() {
            words.push('/');
            words.push_str(part);
        }
    }
    words
}

/// The state in which a trial started: `cold`, `warm` after a finished trial of ours, `used` by something else.
fn state(start: &StartState) -> Option<&'static str> {
    match start.cold {
        ColdProof::Unknown => None,
        ColdProof::Proven | ColdProof::Consistent => Some(Start::Cold.as_str()),
        ColdProof::Not if start.warmed_by.is_some() => Some(Start::Warm.as_str()),
        ColdProof::Not => Some("used"),
    }
}

fn prior_end(end: PriorEnd) -> Option<String> {
    match end {
        PriorEnd::Unknown => None,
        PriorEnd::Planned | PriorEnd::Fault | PriorEnd::Power => Some(end.to_string()),
    }
}

/// What started the harness; nobody knows it of a transcription.
fn launcher(started: &StartedAt) -> Option<&'static str> {
    let word = match started.started.launcher {
        Launcher::Shell => "shell",
        Launcher::Service => "service",
        Launcher::Ssh => "ssh",
        Launcher::Ci => "ci",
    };
    (started.started.provenance != Provenance::Transcribed).then_some(word)
}

/// The numbers of a trial.
fn figures(
    result: &TrialResult,
    started: &StartedAt,
    predicted: Option<&crate::decide::plan::PredictedPeak>,
    order: f64,
) -> BTreeMap<&'static str, f64> {
    let mut figures = BTreeMap::from([(ORDER, order)]);
    let mut put = |name: &'static str, value: Option<f64>| {
        if let Some(value) = value {
            figures.insert(name, value);
        }
    };
    let positive = |bytes: u64| (bytes > 0).then_some(bytes as f64);
    if started.started.provenance != Provenance::Transcribed {
        put("position", Some(f64::from(started.started.position)));
    }
    put("uptime_ms", started.started.conditions.uptime_ms.map(|ms| ms as f64));
    if let Some(predicted) = predicted {
        put("predicted_allocated_bytes", positive(predicted.allocated_bytes));
        put("predicted_reserved_bytes", positive(predicted.reserved_bytes));
        put("predicted_host_plus_reserved_bytes", positive(predicted.host_plus_reserved_bytes));
    }
    if let Some(outcome) = &result.outcome {
        let peak = outcome.peak_memory;
        put("duration_ms", positive(outcome.duration_ms));
        put("peak_host_bytes", positive(peak.host));
        put("peak_allocated_bytes", positive(peak.device_allocated));
        put("peak_reserved_bytes", positive(peak.device_reserved));
        put("peak_host_plus_reserved_bytes", positive(peak.host_plus_reserved));
        if let Some(telemetry) = &outcome.telemetry {
            put(TEMPERATURE, telemetry.hottest.as_ref().map(|hottest| hottest.temp_c));
            put("power_mw_max", telemetry.power_mw_max.values().max().map(|mw| *mw as f64));
            put("available_bytes_min", telemetry.available_min.map(|bytes| bytes as f64));
        }
    }
    figures
}

/// The level that the cells of a run have of an axis that its matrix does not have: what all its cells are set to, else
/// the tool's default.
fn level_without_axis(settings: &BTreeMap<String, String>, axis: &str) -> Option<String> {
    let set = settings.iter().find(|(path, _)| name_of(path) == axis).map(|(_, value)| value.clone());
    set.or_else(|| axis.parse::<Knob>().ok().map(|knob| knob.default_label().to_owned()))
}

/// Settings that each run fixes and in which the runs differ: factors that no matrix declares.
fn fixed_differences(fixed: &[BTreeMap<String, String>], axes: &BTreeSet<&str>) -> Vec<BTreeMap<String, String>> {
    let Some(first) = fixed.first() else { return Vec::new() };
    let differs = |path: &&String| {
        !axes.contains(name_of(path))
            && fixed.iter().all(|settings| settings.contains_key(*path))
            && fixed.iter().any(|settings| settings[*path] != first[*path])
    };
    let paths: Vec<&String> = first.keys().filter(differs).collect();
    let of = |settings: &BTreeMap<String, String>| {
        paths.iter().map(|path| (name_of(path).to_owned(), settings[*path].clone())).collect()
    };
    fixed.iter().map(of).collect()
}

fn name_of(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The settings that all cells of a plan have in common, by their path.
fn fixed_settings(plan: &Plan) -> BTreeMap<String, String> {
    let of = |cell: &crate::decide::plan::Cell| {
        let settings = serde_json::from_slice(&cell.settings.canonical_json()).expect("written by us");
        let mut leaves = BTreeMap::new();
        flatten("", &settings, &mut leaves);
        leaves
    };
    let mut cells = plan.cells.iter().filter(|cell| cell.role == CellRole::Sample).map(of);
    let Some(mut common) = cells.next() else { return BTreeMap::new() };
    for cell in cells {
        common.retain(|path, value| cell.get(path) == Some(value));
    }
    common
}

fn flatten(path: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            flatten(&path, value, leaves);
        }),
        Value::String(text) => drop(leaves.insert(path.to_owned(), text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            drop(leaves.insert(path.to_owned(), value.to_string()));
        }
    }
}
