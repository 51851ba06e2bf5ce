//! One cell by itself: the baseline with some levels changed, for campaigns that choose their cells as they go.

use std::collections::BTreeMap;

use super::expand::{Expansion, push_label};
use super::{Cell, PlanError};
use crate::model::matrix::{Axis, Draft, Level, Matrix};
use crate::model::settings::WorkloadSettings;

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
        Self {
            matrix,
            draft: matrix.baseline(),
            levels: levels.collect(),
            label: String::new(),
            chosen: Vec::new(),
        }
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
