//! What a bug report says of several runs together: how often the fault came in which start state and with which binary,
//! what the machine said of it, how long each stage took, and what may not be concluded.
//!
//! Owns what is pooled with what. Trials are of one *recipe* if everything that they were given is the same but the start
//! state that was asked for and the binary under test; states, provenances and recipes never meet in one rate. A run that
//! others correct keeps its trials of recipes that the others do not have. It must not know how a bug report is laid out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::decide::compare::{CollectError, Collector, RunUnderComparison};
use crate::decide::outside::Outside;
use crate::decide::plan::{Cell, CellRole};
use crate::decide::report::Rate;
use crate::decide::result::TrialResult;
use crate::decide::stats::{Counts, Method};
use crate::model::evidence::Findings;
use crate::model::ids::{CellId, ContentDigest};
use crate::model::journal::{Event, Record};
use crate::model::outcome::{LIBRARIES_NOTE, Outcome};
use crate::model::settings::Start;
use crate::model::start_state::{ColdProof, StartState};
use crate::model::verdict::{Counted, Provenance, RebootCause, Role, StageName, Verdict};
use crate::model::words::words;

mod claims;
mod excerpt;
mod stages;

pub use excerpt::{Excerpt, Line};
pub use stages::StageTimes;

/// The most differently worded remarks that are kept of one row.
const TOLD_MAX: usize = 3;

words! {
    /// In which state a trial started.
    State {
        /// Nothing had used the GPU in its boot.
        Cold = "cold",
        /// A finished trial came before it in its boot.
        Warm = "warm",
        /// Something else had used the GPU.
        Used = "used",
        /// It was not recorded.
        Unknown = "not recorded",
        /// The machine has no GPU that could be cold.
        None = "any",
    }
}

impl State {
    fn of(start: Option<&StartState>, has_gpu: bool) -> Self {
        match start {
            _ if !has_gpu => Self::None,
            None => Self::Unknown,
            Some(start) => match start.cold {
                ColdProof::Proven | ColdProof::Consistent => Self::Cold,
                ColdProof::Not if start.warmed_by.is_some() => Self::Warm,
                ColdProof::Not => Self::Used,
                ColdProof::Unknown => Self::Unknown,
            },
        }
    }

    /// What a trial in this state is called: `7 cold starts`.
    pub fn starts(self, n: u64) -> String {
        let (one, many) = match self {
            Self::Cold => ("cold start", "cold starts"),
            Self::Warm => ("warm start", "warm starts"),
            Self::Used => ("start on a used GPU", "starts on a used GPU"),
            Self::Unknown => ("start in a state that was not recorded", "starts in a state that was not recorded"),
            Self::None => ("trial", "trials"),
        };
        if n == 1 { one.to_owned() } else { many.to_owned() }
    }
}

/// A run that a bug report is about.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Whether later runs correct it: they take its place where they tried the same.
    pub corrected: bool,
    /// Whether its machine has a GPU.
    pub has_gpu: bool,
    /// Digest of the harness binary, which is what runs in a trial that is not a command.
    pub binary: Option<ContentDigest>,
    /// Version of the harness.
    pub tool: String,
}

/// Trials of one recipe, provenance and state: counted together.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// What was tried, as far as it differs from the baseline.
    pub label: String,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// In which state they started.
    pub state: State,
    /// What they say about the rate.
    pub rate: Rate,
    /// Faults by verdict.
    pub verdicts: BTreeMap<Verdict, u64>,
    /// Faults by the last stage reached.
    pub stages: BTreeMap<StageName, u64>,
    /// Whether a fault may have come later than its stage: something after it was not recorded.
    pub or_later: bool,
    /// Reboots by their cause.
    pub causes: BTreeMap<RebootCause, u64>,
}

/// Trials of a pool with one binary of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct BinaryRow {
    /// In which state they started.
    pub state: State,
    /// Which binary or library was under test, as the matrix calls it; else the harness.
    pub binary: String,
    /// Its sha256, if it was taken.
    pub sha256: Option<String>,
    /// The run, as an index.
    pub run: usize,
    /// What they say about the rate.
    pub rate: Rate,
    /// In the words of a transcribed report.
    pub told: Vec<String>,
}

/// What a bug report says of several runs together.
#[derive(Debug, Clone, PartialEq)]
pub struct Brief {
    /// The recipe that the report is about, by state: the one that faults most surely, else the one with most trials.
    pub focus: Vec<Pool>,
    /// A cell of that recipe, with its run as an index: the first that faulted, if one did.
    pub cell: Option<(usize, CellId)>,
    /// The same apart for each run and binary.
    pub binaries: Vec<BinaryRow>,
    /// Everything that faulted, the surest first; the focus too.
    pub fails: Vec<Pool>,
    /// Everything that was tried without a fault, the most often tried first.
    pub works: Vec<Pool>,
    /// What may not be concluded, the most tempting first.
    pub not_shown: Vec<String>,
    /// Differences that are established.
    pub shown: Vec<String>,
    /// How long stages took.
    pub stages: Vec<StageTimes>,
    /// What the machine said of the first fault of each kind.
    pub excerpts: Vec<Excerpt>,
}

/// What was given to trials but for start state and binary.
#[derive(Debug)]
struct Recipe {
    label: String,
    /// The first cell of it that was tried, and the first that faulted; with its run.
    tried: (usize, usize),
    faulted: Option<(usize, usize)>,
    stages: stages::Fold,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct GroupKey {
    recipe: usize,
    provenance: Provenance,
    state: State,
    run: usize,
    binary: String,
    sha256: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct Group {
    counts: Counts,
    verdicts: BTreeMap<Verdict, u64>,
    stages: BTreeMap<StageName, u64>,
    or_later: bool,
    causes: BTreeMap<RebootCause, u64>,
    told: Vec<String>,
}

impl Group {
    fn add(&mut self, result: &TrialResult, provenance: Provenance) {
        let judgement = &result.judgement;
        if judgement.verdict.counted() == Counted::Fault {
            self.counts.faults += 1;
            *self.verdicts.entry(judgement.verdict).or_default() += 1;
            if let Some(stage) = &judgement.stage {
                *self.stages.entry(stage.clone()).or_default() += 1;
                // After a reboot nobody saw how far the trial really came.
                self.or_later |= judgement.verdict == Verdict::Reboot || judgement.unrecorded_ms > Some(0);
            }
            if let Some(cause) = judgement.cause {
                *self.causes.entry(cause).or_default() += 1;
            }
        } else {
            self.counts.clean += 1;
        }
        if provenance == Provenance::Transcribed
            && let Some(detail) = &judgement.detail
            && self.told.len() < TOLD_MAX
            && !self.told.contains(detail)
        {
            self.told.push(detail.clone());
        }
    }

    fn join(&mut self, other: &Self) {
        fn sum<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            from.iter().for_each(|(key, n)| *into.entry(key.clone()).or_default() += n);
        }
        self.counts.faults += other.counts.faults;
        self.counts.clean += other.counts.clean;
        sum(&mut self.verdicts, &other.verdicts);
        sum(&mut self.stages, &other.stages);
        sum(&mut self.causes, &other.causes);
        self.or_later |= other.or_later;
    }
}

/// A brief in the making.
#[derive(Debug)]
pub struct BriefFold<'r> {
    runs: &'r [RunUnderComparison],
    subjects: &'r [Subject],
    collector: Collector<'r>,
    recipes: Vec<Recipe>,
    index_of: HashMap<Vec<u8>, usize>,
    /// The place of each cell in the plan of its run, and the recipe of each that was tried.
    cells: Vec<HashMap<&'r CellId, usize>>,
    of_cell: Vec<HashMap<usize, usize>>,
    /// Recipes of runs that correct another.
    corrected: HashSet<Vec<u8>>,
    groups: BTreeMap<GroupKey, Group>,
    /// The recipe of each trial that the collector took note of, in the same order.
    observed: Vec<usize>,
    /// What the machine said at the beginning of the last boot, by run.
    findings: Vec<Option<Findings>>,
    /// What was seen of each run's machine from outside.
    outside: Vec<Outside>,
    excerpts: excerpt::Fold,
}

/// The recipe of `cell`: what it is given, but for the start state that is asked for and the binary under test.
fn recipe_key(cell: &Cell) -> Vec<u8> {
    let mut settings = cell.settings.clone();
    settings.identity = String::new();
    settings.start = Start::default();
    settings.canonical_json()
}

/// The label of `cell` without its binary.
fn recipe_label(cell: &Cell) -> String {
    let identity = &cell.settings.identity;
    let of_binary: Vec<String> = cell
        .levels
        .iter()
        .filter(|(axis, level)| (!identity.is_empty() && *level == identity) || *axis == "start")
        .map(|(axis, level)| format!("{axis}={level}"))
        .collect();
    let parts: Vec<&str> = cell.label.split(", ").filter(|part| !of_binary.iter().any(|own| own == part)).collect();
    if parts.is_empty() { "baseline".to_owned() } else { parts.join(", ") }
}

impl<'r> BriefFold<'r> {
    /// Before the first record. There is one subject for each run.
    pub fn new(runs: &'r [RunUnderComparison], subjects: &'r [Subject]) -> Self {
        let is_corrected = subjects.iter().any(|subject| subject.corrected);
        let correcting = runs.iter().zip(subjects).filter(|(_, subject)| is_corrected && !subject.corrected);
        let corrected = correcting.flat_map(|(run, _)| run.plan.cells.iter().map(recipe_key)).collect();
        Self {
            runs,
            subjects,
            collector: Collector::new(runs),
            recipes: Vec::new(),
            index_of: HashMap::new(),
            cells: runs.iter().map(|run| run.plan.cells.iter().map(|cell| &cell.id).zip(0..).collect()).collect(),
            of_cell: runs.iter().map(|_| HashMap::new()).collect(),
            corrected,
            groups: BTreeMap::new(),
            observed: Vec::new(),
            findings: runs.iter().map(|_| None).collect(),
            outside: runs.iter().map(|_| Outside::default()).collect(),
            excerpts: excerpt::Fold::default(),
        }
    }

    /// Takes note of a record of run number `run`, and of the result that it completes.
    ///
    /// # Errors
    /// If a result is of a cell that is not in the plan of its run.
    pub fn add(&mut self, run: usize, record: &Record, result: Option<&TrialResult>) -> Result<(), CollectError> {
        if let Event::Booted(booted) = &record.event {
            self.findings[run] = Some(booted.evidence.findings.clone());
        }
        if let Event::Observed(observed) = &record.event {
            self.outside[run].note(observed);
        }
        let Some(result) = result else { return Ok(()) };
        let Some(started) = &result.started else { return Ok(()) };
        if result.judgement.verdict.counted() == Counted::Excluded || started.started.role != Role::Sample {
            return Ok(());
        }
        // Warming trials are in no plan's cells, and serve another end.
        let Some(index) = self.cells[run].get(&result.trial.cell).copied() else { return Ok(()) };
        let cell = &self.runs[run].plan.cells[index];
        if cell.role != CellRole::Sample {
            return Ok(());
        }
        let Some(recipe) = self.recipe(run, index) else { return Ok(()) };
        self.collector.add(run, result)?;
        self.observed.push(recipe);
        let subject = &self.subjects[run];
        let provenance = started.started.provenance;
        let (binary, sha256) = binary_of(cell, subject, result.outcome.as_deref(), provenance);
        let state = State::of(started.started.conditions.start.as_ref(), subject.has_gpu);
        let key = GroupKey { recipe, provenance, state, run, binary, sha256 };
        self.groups.entry(key).or_default().add(result, provenance);
        if let Some(outcome) = &result.outcome {
            self.recipes[recipe].stages.add(outcome, result.judgement.verdict);
        }
        if result.judgement.verdict.counted() == Counted::Fault {
            self.recipes[recipe].faulted.get_or_insert((run, index));
            let findings = self.findings[run].as_ref().filter(|_| result.outcome.is_none());
            let outside = if result.outcome.is_none() { self.outside[run].of(&started.boot) } else { &[] };
            self.excerpts.add(run, &self.recipes[recipe].label, result, findings, outside);
        }
        Ok(())
    }

    /// The recipe of cell number `cell`; none if another run corrects what this one tried of it.
    fn recipe(&mut self, run: usize, cell: usize) -> Option<usize> {
        if let Some(known) = self.of_cell[run].get(&cell) {
            return Some(*known);
        }
        let key = recipe_key(&self.runs[run].plan.cells[cell]);
        if self.subjects[run].corrected && self.corrected.contains(&key) {
            return None;
        }
        let next = self.recipes.len();
        let index = *self.index_of.entry(key).or_insert(next);
        if index == next {
            let label = recipe_label(&self.runs[run].plan.cells[cell]);
            self.recipes.push(Recipe { label, tried: (run, cell), faulted: None, stages: stages::Fold::default() });
        }
        self.of_cell[run].insert(cell, index);
        Some(index)
    }

    /// The brief, its intervals made by `method`.
    pub fn finish(self, method: Method) -> Brief {
        let mut pools: BTreeMap<(usize, Provenance, State), Group> = BTreeMap::new();
        for (key, group) in &self.groups {
            pools.entry((key.recipe, key.provenance, key.state)).or_default().join(group);
        }
        let pool = |((recipe, provenance, state), group): (&(usize, Provenance, State), &Group)| Pool {
            label: self.recipes[*recipe].label.clone(),
            provenance: *provenance,
            state: *state,
            rate: Rate::of(group.counts, method),
            verdicts: group.verdicts.clone(),
            stages: group.stages.clone(),
            or_later: group.or_later,
            causes: group.causes.clone(),
        };
        let focus = focus(&pools, |recipe| self.recipes[recipe].tried, method);
        let is_focus = |recipe: usize, provenance: Provenance| Some((recipe, provenance)) == focus;
        let in_focus = pools.iter().filter(|((recipe, provenance, _), _)| is_focus(*recipe, *provenance)).map(pool);
        let in_focus: Vec<Pool> = in_focus.collect();
        let all: Vec<Pool> = pools.iter().map(pool).collect();
        let (mut fails, mut works): (Vec<Pool>, Vec<Pool>) = all.into_iter().partition(|pool| pool.rate.faults > 0);
        fails.sort_by(|a, b| b.rate.low.total_cmp(&a.rate.low));
        works.sort_by_key(|pool| std::cmp::Reverse(pool.rate.counted));
        let binaries: Vec<BinaryRow> = self
            .groups
            .iter()
            .filter(|(key, _)| is_focus(key.recipe, key.provenance))
            .map(|(key, group)| BinaryRow {
                state: key.state,
                binary: key.binary.clone(),
                sha256: key.sha256.clone(),
                run: key.run,
                rate: Rate::of(group.counts, method),
                told: group.told.clone(),
            })
            .collect();
        let cell = focus.map(|(recipe, _)| {
            let (run, cell) = self.recipes[recipe].faulted.unwrap_or(self.recipes[recipe].tried);
            (run, self.runs[run].plan.cells[cell].id.clone())
        });
        let said = claims::claims(
            self.collector,
            self.runs,
            &claims::Found {
                focus: &in_focus,
                binaries: &binaries,
                works: &works,
                is_focus: &self
                    .observed
                    .iter()
                    .map(|recipe| focus.is_some_and(|(own, _)| own == *recipe))
                    .collect::<Vec<_>>(),
            },
        );
        let mut order: Vec<usize> = (0..self.recipes.len()).collect();
        order.sort_by_key(|recipe| focus.map(|(focus, _)| focus) != Some(*recipe));
        let mut recipes: Vec<Option<Recipe>> = self.recipes.into_iter().map(Some).collect();
        let stages = order.into_iter().filter_map(|index| recipes[index].take());
        Brief {
            focus: in_focus,
            cell,
            binaries,
            fails,
            works,
            not_shown: said.not_shown,
            shown: said.shown,
            stages: stages.flat_map(|recipe| recipe.stages.finish(&recipe.label)).collect(),
            excerpts: self.excerpts.finish(),
        }
    }
}

/// The recipe that the report is about: of the foremost provenance that has a fault the one whose rate is surely highest
/// in one state; without a fault the one that was tried most. Of equals the first by `place` in the plan.
fn focus(
    pools: &BTreeMap<(usize, Provenance, State), Group>,
    place: impl Fn(usize) -> (usize, usize),
    method: Method,
) -> Option<(usize, Provenance)> {
    let has_fault: BTreeSet<Provenance> =
        pools.iter().filter(|(_, group)| group.counts.faults > 0).map(|((_, provenance, _), _)| *provenance).collect();
    let Some(foremost) = has_fault.first() else {
        let tried = |((recipe, provenance, _), group): (&(usize, Provenance, State), &Group)| {
            (std::cmp::Reverse(*provenance), group.counts.counted(), std::cmp::Reverse(place(*recipe)))
        };
        return pools.iter().max_by_key(|pool| tried(*pool)).map(|((recipe, provenance, _), _)| (*recipe, *provenance));
    };
    let of_foremost =
        pools.iter().filter(|((_, provenance, _), group)| provenance == foremost && group.counts.faults > 0);
    let low = |group: &Group| Rate::of(group.counts, method).low;
    of_foremost
        .max_by(|(a, one), (b, other)| low(one).total_cmp(&low(other)).then(place(b.0).cmp(&place(a.0))))
        .map(|((recipe, provenance, _), _)| (*recipe, *provenance))
}

/// What was under test, and its sha256: the library that the trial had to load, else the harness itself.
fn binary_of(
    cell: &Cell,
    subject: &Subject,
    outcome: Option<&Outcome>,
    provenance: Provenance,
) -> (String, Option<String>) {
    use crate::model::settings::WorkloadSettings;
    let identity = &cell.settings.identity;
    let named = |otherwise: String| if identity.is_empty() { otherwise } else { identity.clone() };
    let loads = outcome.and_then(|outcome| outcome.notes.get(LIBRARIES_NOTE));
    let sha256 = loads.and_then(|words| words.split("sha256 ").nth(1)?.split([';', ' ']).next().map(str::to_owned));
    match &cell.settings.workload {
        WorkloadSettings::Command(command) => {
            let program = command.argv.first().map(ToString::to_string).unwrap_or_default();
            let name = program.rsplit('/').next().unwrap_or_default();
            (named(name.to_owned()), sha256)
        }
        WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => {
            let harness = subject.binary.as_ref().filter(|_| provenance != Provenance::Transcribed);
            (named(format!("jetfault {}", subject.tool)), sha256.or_else(|| harness.map(ToString::to_string)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::result::ResultFold;
    use crate::testing::constructed::{BOARD, Journal, agenda_of, board_provenance, board_script, machine, plan_of};

    /// The board's run twice, as one report; the first may be corrected by the second.
    fn twice(corrected: bool, has_gpu: bool) -> Brief {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        let run = |number| {
            let id = format!("bnb-1936-00{number}").parse().unwrap();
            RunUnderComparison { id, plan: plan.clone(), machine: machine() }
        };
        let runs = [run(1), run(2)];
        let subject = |corrected| Subject { corrected, has_gpu, binary: None, tool: "0.1.0".into() };
        let subjects = [subject(corrected), subject(false)];
        let mut fold = BriefFold::new(&runs, &subjects);
        for run in 0..2 {
            let mut journal = Journal::open(&plan, &agenda, board_provenance);
            journal.carry_on(usize::MAX, board_script);
            let mut results = ResultFold::default();
            for record in &journal.records {
                fold.add(run, record, results.apply(record).as_ref()).unwrap();
            }
        }
        fold.finish(Method::ClopperPearson)
    }

    #[test]
    fn runs_of_one_recipe_are_counted_together_and_corrected_ones_are_not_counted() {
        let fraction = |brief: &Brief| brief.focus[0].rate.fraction();
        let both = twice(false, true);
        assert_eq!((both.focus[0].label.as_str(), both.focus[0].state), ("baseline", State::Cold));
        assert_eq!(fraction(&both), "14/18");
        assert_eq!(
            both.binaries.iter().map(|row| (row.run, row.rate.fraction())).collect::<Vec<_>>(),
            [(0, "7/9".to_owned()), (1, "7/9".to_owned())]
        );
        let corrected = twice(true, true);
        assert_eq!(fraction(&corrected), "7/9");
        assert!(corrected.binaries.iter().all(|row| row.run == 1));
    }

    #[test]
    fn numbers_of_different_provenance_never_meet() {
        let both = twice(false, true);
        let simulated: Vec<&Pool> = both.works.iter().filter(|pool| pool.provenance == Provenance::Simulated).collect();
        assert_eq!(simulated.len(), 1);
        assert_eq!((simulated[0].label.as_str(), simulated[0].rate.fraction()), ("power_mode=15W", "0/18".to_owned()));
        assert!(both.fails.iter().all(|pool| pool.provenance == Provenance::Measured));
    }

    #[test]
    fn a_machine_without_a_gpu_has_no_cold_starts() {
        let both = twice(false, false);
        assert!(both.fails.iter().chain(&both.works).all(|pool| pool.state == State::None));
    }

    #[test]
    fn what_nobody_saw_and_what_few_passes_tempt_to_is_said() {
        let both = twice(false, true);
        let says = |words: &str| both.not_shown.iter().any(|sentence| sentence.contains(words));
        assert!(says("the cause of 12 of 14 reboots is undetermined"), "{:#?}", both.not_shown);
        assert!(both.shown.iter().any(|sentence| sentence.starts_with("warmup (none against 256x256): ESTABLISHED")));
        assert!(!both.excerpts.is_empty() && both.excerpts.len() <= 8);
    }
}
