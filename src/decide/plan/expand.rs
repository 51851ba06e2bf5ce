//! From matrix to cells: the designs, what is excluded, controls, and the `--cell` filter.

use std::collections::{BTreeMap, HashMap};

use super::needs::needs;
use super::{Cell, CellRole, InjectedFault, Needs, PLAN_SCHEMA, PLAN_VERSION, Plan, PlanError, PlanOptions};
use crate::decide::stopping::Stopping;
use crate::model::ids::CellId;
use crate::model::matrix::{
    Decide, Design, Draft, Finding, Level, Matcher, Matrix, PLAN_TRIALS_MAX, Span, TrialsRule, did_you_mean, examine,
};
use crate::model::quantity::{Limit, Millis};
use crate::model::settings::{Layer, Linear4bitSettings, Settings, Shape, Start, Watch, WorkloadSettings};

/// How many different findings are collected; more would not be shown.
const FINDINGS_MAX: usize = 1000;

/// The most combinations that are looked at, most of which must then be excluded.
const COMBINATIONS_MAX: u64 = 4 * PLAN_TRIALS_MAX;

/// Expands a matrix.
///
/// # Errors
/// If cells are impossible, the same or too many, if an id collides, or if `--cell` names what is not there.
pub fn expand(matrix: &Matrix, options: &PlanOptions) -> Result<Plan, PlanError> {
    let mut expansion = Expansion::new(matrix);
    // Moving a hundred thousand cells as their list grows costs as much as making them.
    expansion.cells.reserve(expansion.check_size()?);
    match matrix.design {
        Design::OneOff => expansion.one_off(),
        Design::Full => expansion.full(),
        Design::List => {}
    }
    expansion.list();
    expansion.controls()?;
    let Expansion { mut cells, places, findings, .. } = expansion;
    let warnings = matrix.judge(findings)?;
    check_ids(matrix, &cells, &places)?;
    if !options.only.is_empty() {
        let filters: Vec<Filter> =
            options.only.iter().map(|text| Filter::parse(text, matrix, &cells)).collect::<Result<_, _>>()?;
        let is_meant = |cell: &Cell| filters.iter().any(|filter| filter.matches(cell));
        let needed: Vec<CellId> =
            cells.iter().filter(|cell| is_meant(cell)).filter_map(|cell| cell.settings.needs().cloned()).collect();
        cells.retain(|cell| is_meant(cell) || needed.contains(&cell.id));
    }
    if cells.is_empty() {
        return Err(nothing_left(matrix, options));
    }
    let warming = warming(&cells)?;
    let mut plan = Plan {
        schema: PLAN_SCHEMA.to_owned(),
        version: PLAN_VERSION,
        matrix_name: matrix.name.clone(),
        matrix_digest: matrix.digest.clone(),
        overrides: matrix.overrides.clone(),
        only: options.only.clone(),
        seed: matrix.seed,
        trials: matrix.trials.clone(),
        needs: Needs::default(),
        boots_max: 0,
        unexpected_per_hour_max: matrix.safety.max_unexpected_per_hour,
        expires: matrix.safety.expires,
        warnings,
        factors: matrix.factors.clone(),
        cells,
        warming,
        tools: matrix.tools.clone(),
        stopping: None,
        nightly: None,
        campaign: None,
        share: None,
    };
    if let TrialsRule::UntilDecided(decide) = &matrix.trials {
        plan.stopping = Some(Box::new(Stopping::of(decide, &plan.cells, None)));
    }
    plan.needs = needs(&plan);
    if plan.needs.trials > PLAN_TRIALS_MAX {
        return Err(too_many(matrix, plan.needs.trials).into());
    }
    plan.boots_max = plan.boots_limit(&matrix.safety);
    Ok(plan)
}

/// The cell that makes the machine warm, if any of `cells` asks for that: one layer of 256x256, in a process of its own,
/// which is what closed the window in the report of bitsandbytes issue 1936.
pub(super) fn warming(cells: &[Cell]) -> Result<Option<Box<Cell>>, PlanError> {
    if cells.iter().all(|cell| cell.settings.start != Start::Warm) {
        return Ok(None);
    }
    let layer = Layer { label: "warming".to_owned(), shape: Shape::WARM_UP };
    let watch = Watch {
        timeout: Limit::After(Millis::from_secs(120)),
        stage_timeout: Limit::After(Millis::from_secs(60)),
        ..Watch::default()
    };
    let workload = WorkloadSettings::Linear4bit(Linear4bitSettings::of(vec![layer]));
    let mut settings = Settings { watch, ..Settings::of(workload) };
    let id = settings.identify();
    if let Some(other) = cells.iter().find(|cell| cell.id == id) {
        // Its trials would have the names of that cell's.
        let (first, second) = (other.label.clone(), "warming".to_owned());
        return Err(PlanError::Collision { id, first, second });
    }
    Ok(Some(Box::new(Cell {
        id,
        label: "warming".to_owned(),
        levels: BTreeMap::new(),
        settings,
        role: CellRole::Warming,
        expect: None,
        shows: String::new(),
        rounds: None,
        inject: Vec::new(),
        predicted: None,
    })))
}

fn too_many(matrix: &Matrix, trials: u64) -> crate::model::matrix::MatrixError {
    let hint = "fewer levels, fewer trials, design = \"one-off\", or `[[exclude]]` entries";
    matrix.trials_error(format!("a plan of {trials} trials, more than {PLAN_TRIALS_MAX}"), hint)
}

fn nothing_left(matrix: &Matrix, options: &PlanOptions) -> PlanError {
    match options.only.first() {
        Some(argument) => PlanError::Filter {
            argument: argument.clone(),
            reason: "no cell of the plan matches".to_owned(),
            hint: format!("`jetfault plan {}` lists the cells", matrix.name),
        },
        None => matrix.trials_error("every cell is excluded", "remove an `[[exclude]]` entry").into(),
    }
}

/// Cells that share an id are either the same cell twice, which is the matrix's mistake, or a collision.
fn check_ids(matrix: &Matrix, cells: &[Cell], places: &[Span]) -> Result<(), PlanError> {
    let mut seen: HashMap<&CellId, usize> = HashMap::with_capacity(cells.len());
    for (index, cell) in cells.iter().enumerate() {
        let Some(first) = seen.insert(&cell.id, index) else { continue };
        let other = &cells[first];
        if other.settings.canonical_json() != cell.settings.canonical_json() {
            let (first, second) = (other.label.clone(), cell.label.clone());
            return Err(PlanError::Collision { id: cell.id.clone(), first, second });
        }
        let hint = match cell.role {
            CellRole::Sample => "leave one of them out",
            CellRole::Control | CellRole::Warming => {
                "an `[[expect]]` entry gives an expectation to a cell that is there anyway"
            }
        };
        let message = format!("cell `{}` has the settings of `{}`", cell.label, other.label);
        return Err(matrix.error_at(places[index], message, hint).into());
    }
    Ok(())
}

/// An exclusion over the positions of levels: for each axis that it names, the positions that it means.
type Exclusion = Vec<(usize, Vec<usize>)>;

/// Cells in the making.
pub(super) struct Expansion<'m> {
    matrix: &'m Matrix,
    pub(super) cells: Vec<Cell>,
    /// Where each cell comes from.
    places: Vec<Span>,
    pub(super) findings: Vec<(Finding, Span)>,
}

impl<'m> Expansion<'m> {
    /// Nothing yet.
    pub(super) fn new(matrix: &'m Matrix) -> Self {
        Self { matrix, cells: Vec::new(), places: Vec::new(), findings: Vec::new() }
    }

    /// The number of cells that the design makes, checked before any is made.
    fn check_size(&self) -> Result<usize, PlanError> {
        let axes = self.matrix.axes.iter().map(|axis| axis.levels.len() as u64);
        let combinations = match self.matrix.design {
            Design::OneOff => axes.fold(1, u64::saturating_add),
            Design::Full => axes.fold(1, |product: u64, levels| product.saturating_mul(levels + 1)),
            Design::List => self.matrix.cells.len() as u64,
        };
        let trials = match self.matrix.trials {
            TrialsRule::Fixed(trials) => u64::from(trials),
            TrialsRule::UntilDecided(Decide { max, .. }) => u64::from(max),
        };
        let excluded = match self.matrix.design {
            Design::Full if combinations <= COMBINATIONS_MAX => self.count_excluded(),
            Design::OneOff | Design::Full | Design::List => 0,
        };
        let cells = combinations - excluded;
        let total = cells.saturating_mul(trials);
        if total > PLAN_TRIALS_MAX {
            return Err(too_many(self.matrix, total).into());
        }
        Ok(usize::try_from(cells).unwrap_or_default())
    }

    fn count_excluded(&self) -> u64 {
        let exclusions = self.exclusions();
        if exclusions.is_empty() {
            return 0;
        }
        let mut positions = vec![0; self.matrix.axes.len()];
        let mut excluded = 0;
        loop {
            excluded += u64::from(is_excluded(&exclusions, &positions));
            if !self.advance(&mut positions) {
                return excluded;
            }
        }
    }

    /// The next combination, the last axis fastest; `false` after the last.
    fn advance(&self, positions: &mut [usize]) -> bool {
        for (position, axis) in positions.iter_mut().zip(&self.matrix.axes).rev() {
            if *position < axis.levels.len() {
                *position += 1;
                return true;
            }
            *position = 0;
        }
        false
    }

    fn exclusions(&self) -> Vec<Exclusion> {
        let axes = &self.matrix.axes;
        let resolve = |matcher: &Matcher| -> Option<Exclusion> {
            let mut exclusion = Vec::new();
            for (name, labels) in &matcher.0 {
                match axes.iter().position(|axis| axis.name == *name) {
                    Some(index) => {
                        let found =
                            axes[index].labels().enumerate().filter(|(_, label)| labels.iter().any(|l| l == label));
                        exclusion.push((index, found.map(|(position, _)| position).collect()));
                    }
                    // Not an axis: the level of the baseline either meets the condition in every cell, or in none.
                    None => {
                        let fixed = self.matrix.baseline_label(name)?;
                        labels.iter().any(|label| label == fixed).then_some(())?;
                    }
                }
            }
            Some(exclusion)
        };
        self.matrix.excludes.iter().filter_map(resolve).collect()
    }

    /// The baseline, and each other level alone.
    fn one_off(&mut self) {
        let exclusions = self.exclusions();
        let axes = &self.matrix.axes;
        let mut positions = vec![0; axes.len()];
        if !is_excluded(&exclusions, &positions) {
            self.add_positions(&positions, self.matrix.baseline());
        }
        for (index, axis) in axes.iter().enumerate() {
            for (position, level) in (1..).zip(&axis.levels) {
                positions[index] = position;
                if !is_excluded(&exclusions, &positions) {
                    let mut draft = self.matrix.baseline();
                    draft.apply(&level.changes);
                    self.add_positions(&positions, draft);
                }
            }
            positions[index] = 0;
        }
    }

    /// Every combination.
    fn full(&mut self) {
        let exclusions = self.exclusions();
        let mut positions = vec![0; self.matrix.axes.len()];
        loop {
            if !is_excluded(&exclusions, &positions) {
                let mut draft = self.matrix.baseline();
                for level in self.levels_at(&positions) {
                    draft.apply(&level.changes);
                }
                self.add_positions(&positions, draft);
            }
            if !self.advance(&mut positions) {
                return;
            }
        }
    }

    /// The levels at these positions that are not the baseline's.
    fn levels_at(&self, positions: &[usize]) -> Vec<&'m Level> {
        let at = |(axis, position): (&'m crate::model::matrix::Axis, &usize)| axis.levels.get(position.checked_sub(1)?);
        self.matrix.axes.iter().zip(positions).filter_map(at).collect()
    }

    fn add_positions(&mut self, positions: &[usize], draft: Draft) {
        let mut levels = BTreeMap::new();
        let mut label = String::new();
        for (axis, position) in self.matrix.axes.iter().zip(positions) {
            let level = position.checked_sub(1).and_then(|index| axis.levels.get(index));
            if let Some(level) = level {
                push_label(&mut label, &axis.name, &level.label);
            }
            levels.insert(axis.name.clone(), level.map_or(&axis.baseline, |level| &level.label).clone());
        }
        let chosen = self.levels_at(positions);
        self.add(label, levels, draft, &chosen);
    }

    /// The entries of `[[cell]]`.
    fn list(&mut self) {
        let matrix = self.matrix;
        let mut names: Vec<&String> = matrix.axes.iter().map(|axis| &axis.name).collect();
        names.extend(matrix.cells.iter().flat_map(|cell| cell.labels.keys()));
        names.sort();
        names.dedup();
        for assignment in &matrix.cells {
            let mut levels = BTreeMap::new();
            let mut label = String::new();
            for name in &names {
                let baseline = matrix
                    .axis(name)
                    .map(|axis| axis.baseline.as_str())
                    .or(matrix.baseline_label(name))
                    .unwrap_or("kept");
                let level = assignment.labels.get(*name);
                if let Some(level) = level.filter(|level| *level != baseline) {
                    push_label(&mut label, name, level);
                }
                levels.insert((*name).clone(), level.map_or(baseline, String::as_str).to_owned());
            }
            let mut draft = matrix.baseline();
            draft.apply(&assignment.level.changes);
            self.add(label, levels, draft, &[&assignment.level]);
        }
    }

    fn controls(&mut self) -> Result<(), PlanError> {
        let matrix = self.matrix;
        for control in &matrix.controls {
            let mut draft = control.draft.clone();
            if let Some((label, span)) = &control.needs {
                draft.need(self.needed(label, *span)?);
            }
            let mut levels: BTreeMap<String, String> =
                matrix.axes.iter().map(|axis| (axis.name.clone(), axis.baseline.clone())).collect();
            levels.extend(control.labels.iter().map(|(name, label)| (name.clone(), label.clone())));
            let level = Level { label: String::new(), changes: Vec::new(), span: control.span };
            self.add(format!("control:{}", control.name), levels, draft, &[&level]);
            let Some(cell) = self.cells.last_mut() else { continue };
            cell.role = CellRole::Control;
            cell.expect = Some(control.verdict);
            cell.shows.clone_from(&control.shows);
            cell.rounds = control.trials;
        }
        Ok(())
    }

    /// The cell called `label`, which must come before and promise an artifact.
    fn needed(&self, label: &str, span: Span) -> Result<CellId, PlanError> {
        let error = |message: String, hint: String| self.matrix.error_at(span, message, hint).into();
        let Some(cell) = self.cells.iter().find(|cell| cell.label == label) else {
            let labels: Vec<&str> = self.cells.iter().map(|cell| cell.label.as_str()).collect();
            return Err(error(format!("no cell is called `{label}`"), hint(label, &labels, "the cells before it are")));
        };
        match &cell.settings.workload {
            WorkloadSettings::Command(command) if !command.artifacts.is_empty() => Ok(cell.id.clone()),
            WorkloadSettings::Command(_) | WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => Err(error(
                format!("cell `{label}` promises no artifact that another could work with"),
                "name its files under `artifacts`".to_owned(),
            )),
        }
    }

    pub(super) fn add(&mut self, label: String, levels: BTreeMap<String, String>, draft: Draft, chosen: &[&Level]) {
        let mut settings = draft.finish();
        let id = settings.identify();
        for finding in examine(&settings) {
            let span = self.matrix.place_of(&finding, chosen);
            let found = (finding, span);
            // The same level brings the same finding to many cells.
            if self.findings.len() < FINDINGS_MAX && !self.findings.contains(&found) {
                self.findings.push(found);
            }
        }
        let fixed = |name: &str| self.matrix.baseline_label(name).map(str::to_owned);
        let expected = self.matrix.expects.iter().rev().find(|expect| expect.cell.matches(&levels, fixed));
        let cell = Cell {
            id,
            label: if label.is_empty() { "baseline".to_owned() } else { label },
            role: CellRole::Sample,
            expect: expected.map(|expect| expect.verdict),
            shows: String::new(),
            rounds: None,
            inject: self.inject(&levels, settings.start),
            predicted: None,
            levels,
            settings,
        };
        let span = chosen.last().map_or(Span::default(), |level| level.span);
        self.cells.push(cell);
        self.places.push(span);
    }

    /// The deliberate faults of a cell. A condition on `start` is met by a cell that asks for that state, and stays a
    /// condition for one that takes any.
    fn inject(&self, levels: &BTreeMap<String, String>, start: Start) -> Vec<InjectedFault> {
        let fixed = |name: &str| self.matrix.baseline_label(name).map(str::to_owned);
        let mut faults = Vec::new();
        for inject in &self.matrix.inject {
            let mut condition = inject.condition.clone();
            let states: Vec<Start> =
                condition.0.remove("start").unwrap_or_default().iter().filter_map(|label| label.parse().ok()).collect();
            let possible =
                states.is_empty() || start == Start::Any || states.contains(&start) || states.contains(&Start::Any);
            if !possible || !condition.matches(levels, fixed) {
                continue;
            }
            let start = if states.contains(&Start::Any) { Vec::new() } else { states };
            faults.push(InjectedFault { fault: inject.fault, at: inject.at.clone(), rate: inject.rate, start });
        }
        faults
    }
}

fn is_excluded(exclusions: &[Exclusion], positions: &[usize]) -> bool {
    exclusions.iter().any(|exclusion| exclusion.iter().all(|(axis, meant)| meant.contains(&positions[*axis])))
}

pub(super) fn push_label(label: &mut String, name: &str, level: &str) {
    if !label.is_empty() {
        label.push_str(", ");
    }
    label.push_str(name);
    label.push('=');
    label.push_str(level);
}

/// One `--cell` argument.
enum Filter {
    /// The label of a cell: `baseline` or `control:NAME`.
    Label(String),
    /// Levels that must all match.
    Levels(Vec<(String, String)>),
}

impl Filter {
    fn parse(text: &str, matrix: &Matrix, cells: &[Cell]) -> Result<Self, PlanError> {
        let error = |reason: String, hint: String| PlanError::Filter { argument: text.to_owned(), reason, hint };
        // `batch=2` is a condition even where a cell is called that: a full design has more cells with that level.
        if !text.contains('=') && cells.iter().any(|cell| cell.label == text) {
            return Ok(Self::Label(text.to_owned()));
        }
        let mut levels: Vec<(String, String)> = Vec::new();
        for part in text.split(',') {
            match (part.split_once('='), levels.last_mut()) {
                (Some((name, level)), _) => levels.push((name.trim().to_owned(), level.to_owned())),
                // A comma inside a level, as in `hygiene=after:A,B`.
                (None, Some((_, level))) => {
                    level.push(',');
                    level.push_str(part);
                }
                (None, None) => {
                    let hint = "expected `axis=level,…`, or the label of a cell such as `baseline`".to_owned();
                    return Err(error(format!("`{part}` is neither a level nor a cell"), hint));
                }
            }
        }
        for (name, level) in &levels {
            let samples = cells.iter().filter(|cell| cell.role == CellRole::Sample);
            let known: Vec<&str> = samples.filter_map(|cell| cell.levels.get(name)).map(String::as_str).collect();
            if known.is_empty() {
                let names: Vec<&str> = matrix.axes.iter().map(|axis| axis.name.as_str()).collect();
                let hint = hint(name, &names, "the axes are");
                return Err(error(format!("`{name}` is not an axis of this matrix"), hint));
            }
            if !known.contains(&level.as_str()) {
                let mut labels = known;
                labels.sort_unstable();
                labels.dedup();
                let hint = hint(level, &labels, "its levels are");
                return Err(error(format!("axis `{name}` has no level `{level}`"), hint));
            }
        }
        Ok(Self::Levels(levels))
    }

    fn matches(&self, cell: &Cell) -> bool {
        match self {
            Self::Label(label) => cell.label == *label,
            Self::Levels(levels) => {
                cell.role == CellRole::Sample && levels.iter().all(|(name, level)| cell.levels.get(name) == Some(level))
            }
        }
    }
}

fn hint(text: &str, words: &[&str], otherwise: &str) -> String {
    match did_you_mean(text, words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("{otherwise} {}", words.join(", ")),
    }
}
