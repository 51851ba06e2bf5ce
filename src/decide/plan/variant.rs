//! One cell by itself: the baseline with some levels changed, for campaigns that choose their cells as they go.

use std::collections::BTreeMap;

use super::expand::{Expansion, push_label, warming};
use super::needs::needs;
use super::{Cell, Needs, PLAN_SCHEMA, PLAN_VERSION, Plan, PlanError};
use crate::decide::campaign::Campaign;
use crate::model::matrix::{Axis, Draft, Level, Matrix, TrialsRule};
use crate::model::settings::{Start, WorkloadSettings};

/// A cell in the making.
#[derive(Debug)]
pub struct Variant<'m> {
    matrix: &'m Matrix,
    draft: Draft,
    levels: BTreeMap<String, String>,
    label: String,
    chosen: Vec<&'m Level>,
}

impl<'m> Variant<'m> {
    /// The baseline of `matrix`.
    pub fn baseline(matrix: &'m Matrix) -> Self {
        let levels = matrix.axes.iter().map(|axis| (axis.name.clone(), axis.baseline.clone()));
        Self { matrix, draft: matrix.baseline(), levels: levels.collect(), label: String::new(), chosen: Vec::new() }
    }

    /// Takes another level of an axis; none keeps the baseline's.
    pub fn set(&mut self, level: Option<(&'m Axis, &'m Level)>) {
        let Some((axis, level)) = level else { return };
        self.draft.apply(&level.changes);
        self.name(&axis.name, &level.label);
        self.chosen.push(level);
    }

    /// Takes the layers at `indices` of the sequence, whose labels are `labels`, in that order.
    pub fn take_layers(&mut self, indices: &[usize], labels: &[String]) {
        if let WorkloadSettings::Linear4bit(linear4bit) = &mut self.draft.settings_mut().workload {
            linear4bit.sequence = indices.iter().map(|&index| linear4bit.sequence[index].clone()).collect();
        }
        if !indices.iter().copied().eq(0..labels.len()) {
            let spelt: Vec<&str> = indices.iter().map(|&index| labels[index].as_str()).collect();
            let separator = if labels.iter().all(|label| label.len() == 1) { "" } else { " " };
            self.name("sequence", &spelt.join(separator));
        }
    }

    /// Takes another executable or library: a revision.
    pub fn set_identity(&mut self, identity: &str) {
        self.draft.settings_mut().identity = identity.to_owned();
        self.name("identity", identity);
    }

    fn name(&mut self, axis: &str, level: &str) {
        push_label(&mut self.label, axis, level);
        self.levels.insert(axis.to_owned(), level.to_owned());
    }

    /// The cell; none if the matrix excludes it.
    ///
    /// # Errors
    /// If its settings are impossible.
    pub fn cell(self) -> Result<Option<Cell>, PlanError> {
        let Self { matrix, draft, levels, label, chosen } = self;
        let fixed = |name: &str| matrix.baseline_label(name).map(str::to_owned);
        if matrix.excludes.iter().any(|exclude| exclude.matches(&levels, fixed)) {
            return Ok(None);
        }
        let mut expansion = Expansion::new(matrix);
        expansion.add(label, levels, draft, &chosen);
        let Expansion { mut cells, findings, .. } = expansion;
        matrix.judge(findings)?;
        Ok(cells.pop())
    }
}

/// The plan of a campaign: the cells next to its bad end, none of which has rounds of its own, and what the most runs
/// that it may take would need.
///
/// # Errors
/// If the bad end is impossible or excluded.
pub fn campaign_plan(matrix: &Matrix, campaign: Campaign) -> Result<Plan, PlanError> {
    let question = &campaign.question;
    let mut cells: Vec<Cell> = Vec::new();
    for place in question.first_places() {
        match (question.cell(matrix, place), place == question.bad_end()) {
            (Ok(Some(cell)), _) if cells.iter().all(|other| other.id != cell.id) => cells.push(cell),
            (Ok(None), true) => {
                let message = "an `[[exclude]]` entry excludes the bad end of the search";
                return Err(matrix.trials_error(message, "remove it, or search something else").into());
            }
            (Err(error), true) => return Err(error),
            // What is impossible or excluded is set aside when it comes up.
            (Ok(_), _) | (Err(_), false) => {}
        }
    }
    let runs = u64::from(question.runs_max());
    let name = format!("{}-{}", matrix.name, question.kind());
    let warming = warming(&cells)?;
    let mut plan = Plan {
        schema: PLAN_SCHEMA.to_owned(),
        version: PLAN_VERSION,
        matrix_name: name.chars().take(64).collect(),
        matrix_digest: matrix.digest.clone(),
        overrides: matrix.overrides.clone(),
        only: Vec::new(),
        seed: matrix.seed,
        trials: TrialsRule::Fixed(1),
        needs: Needs::default(),
        boots_max: 0,
        unexpected_per_hour_max: matrix.safety.max_unexpected_per_hour,
        expires: matrix.safety.expires,
        warnings: Vec::new(),
        cells,
        warming,
        tools: matrix.tools.clone(),
        factors: matrix.factors.clone(),
        stopping: None,
        nightly: None,
        campaign: Some(Box::new(campaign)),
        share: None,
    };
    // One trial of each, then as many as the search may take of what they are on average.
    let one = needs(&plan);
    let is_cold = plan.cells.iter().any(|cell| cell.settings.start == Start::Cold);
    let seconds = one.seconds.saturating_mul(runs) / one.trials.max(1);
    plan.needs = Needs { trials: runs, boots: if is_cold { runs } else { 0 }, seconds, power_mode_switches: 0, ..one };
    plan.boots_max = plan.boots_limit(&matrix.safety);
    plan.cells.iter_mut().for_each(|cell| cell.rounds = Some(0));
    Ok(plan)
}
