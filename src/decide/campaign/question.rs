//! From a matrix to what a campaign asks of it, and from a place of the search to the cell that is run there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Campaign, History, Place, Question};
use crate::decide::bisect::trigger::{ELEMENTS_MAX, Kept, all, leftmost, members};
use crate::decide::bisect::{knobs, revisions as since};
use crate::decide::plan::{Cell, PlanError, Variant};
use crate::model::matrix::{Axis, Level, Matrix};
use crate::model::words::words;

/// The most knobs or items of a campaign.
const ELEMENTS_LIMIT: usize = 64;

words! {
    /// The kinds of questions.
    QuestionKind {
        /// Which levels of the baseline are load-bearing.
        Axes = "axes",
        /// Which part of the sequence fails by itself.
        Sequence = "sequence",
        /// From which level of an ordered axis on.
        Levels = "levels",
        /// Since which revision.
        Revisions = "revisions",
    }
}

/// A knob with the level that it may be flipped to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flip {
    /// The axis.
    pub axis: String,
    /// The baseline's level, which may be load-bearing.
    pub from: String,
    /// The other one.
    pub to: String,
}

/// A question that this matrix cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QuestionError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

fn cannot<T>(message: impl Into<String>, hint: impl Into<String>) -> Result<T, QuestionError> {
    Err(QuestionError { message: message.into(), hint: hint.into() })
}

/// Which of `only` (all axes if it is empty) are load-bearing.
///
/// # Errors
/// If there is no such axis, or too many.
pub fn axes(matrix: &Matrix, only: &[String], rules: knobs::Rules) -> Result<Question, QuestionError> {
    if let Some(name) = only.iter().find(|name| matrix.axis(name).is_none()) {
        return cannot(format!("the matrix has no axis `{name}`"), "`jetfault plan` lists the axes");
    }
    let is_asked = |axis: &&Axis| only.is_empty() || only.contains(&axis.name);
    let flip = |axis: &Axis| {
        let to = matrix.bisect_use.get(&axis.name).or(axis.levels.first().map(|level| &level.label))?;
        Some(Flip { axis: axis.name.clone(), from: axis.baseline.clone(), to: to.clone() })
    };
    let flips: Vec<Flip> = matrix.axes.iter().filter(is_asked).filter_map(flip).collect();
    match flips.len() {
        0 => cannot("the matrix has no axis to flip", "give it `[axes]`: each is a knob that may be load-bearing"),
        1..=ELEMENTS_LIMIT => Ok(Question::Axes { flips, rules }),
        many => cannot(format!("{many} axes are more than {ELEMENTS_LIMIT}"), "name those that matter with --axis"),
    }
}

/// Which part of the baseline's sequence fails by itself.
///
/// # Errors
/// If the workload has no sequence, or one that cannot be made smaller.
pub fn sequence(matrix: &Matrix, orders: bool, rules: knobs::Rules) -> Result<Question, QuestionError> {
    let settings = matrix.baseline().finish();
    let Some(linear4bit) = settings.linear4bit() else {
        return cannot("a command has no sequence of shapes", "make its steps axes, and ask `bisect axes`");
    };
    let layers: Vec<String> = linear4bit.sequence.iter().map(|layer| layer.label.clone()).collect();
    match layers.len() {
        0 | 1 => cannot("a sequence of one layer cannot be made smaller", "give [baseline] a longer sequence"),
        2..=ELEMENTS_LIMIT => Ok(Question::Sequence { layers, orders, rules }),
        many => cannot(format!("{many} layers are more than {ELEMENTS_LIMIT}"), "give [baseline] a shorter sequence"),
    }
}

/// From which level of axis `name` on, between `good` and `bad`: by default the far end and the baseline.
///
/// Levels that are all numbers are ordered by them, others as in the file, the baseline first.
///
/// # Errors
/// If the axis or a level is not there, or the ends are the same or not told.
pub fn levels(
    matrix: &Matrix,
    name: &str,
    (good, bad): (Option<&str>, Option<&str>),
    rules: since::Rules,
) -> Result<Question, QuestionError> {
    let Some(axis) = matrix.axis(name) else {
        return cannot(format!("the matrix has no axis `{name}`"), "name one of its [axes] with --axis");
    };
    let mut labels: Vec<String> = axis.labels().map(str::to_owned).collect();
    let numbers: Option<Vec<f64>> = labels.iter().map(|label| number(label)).collect();
    if let Some(numbers) = numbers {
        let mut numbered: Vec<(f64, String)> = numbers.into_iter().zip(labels).collect();
        numbered.sort_by(|one, other| one.0.total_cmp(&other.0));
        labels = numbered.into_iter().map(|(_, label)| label).collect();
    }
    let position = |label: &str| {
        labels.iter().position(|known| known == label).ok_or_else(|| QuestionError {
            message: format!("axis `{name}` has no level `{label}`"),
            hint: format!("its levels are {}", labels.join(", ")),
        })
    };
    let bad = position(bad.unwrap_or(&axis.baseline))?;
    let good = match good {
        Some(label) => position(label)?,
        None if bad == 0 => labels.len() - 1,
        None if bad + 1 == labels.len() => 0,
        None => {
            let message =
                format!("`{}` lies between the levels of `{name}`, so the good end may be either", labels[bad]);
            return cannot(message, format!("name it: --good {} or --good {}", labels[0], labels[labels.len() - 1]));
        }
    };
    if good == bad {
        return cannot(
            format!("the good end and the bad end of `{name}` are the same level, `{}`", labels[good]),
            "name two levels with --good and --bad",
        );
    }
    let mut labels = labels[good.min(bad)..=good.max(bad)].to_vec();
    if bad < good {
        labels.reverse();
    }
    Ok(Question::Levels { axis: name.to_owned(), labels, rules })
}

/// A level as a number: `8`, `0.5`, `25W`, `4G`. Units must be the same throughout to be comparable, which is the user's.
fn number(label: &str) -> Option<f64> {
    let digits = label.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    digits.parse().ok()
}

/// Since which revision of `history`.
///
/// # Errors
/// If there is nothing between its ends.
pub fn revisions(history: History, rules: since::Rules) -> Result<Question, QuestionError> {
    if history.revisions.len() < 2 {
        return cannot("the good end and the bad end are the same commit", "name two revisions in [revisions]");
    }
    Ok(Question::Revisions { history, rules })
}

impl Question {
    /// Its kind.
    pub fn kind(&self) -> QuestionKind {
        match self {
            Question::Axes { .. } => QuestionKind::Axes,
            Question::Sequence { .. } => QuestionKind::Sequence,
            Question::Levels { .. } => QuestionKind::Levels,
            Question::Revisions { .. } => QuestionKind::Revisions,
        }
    }

    /// The most runs after the gate.
    pub fn runs_max(&self) -> u32 {
        match self {
            Question::Axes { rules, .. } | Question::Sequence { rules, .. } => rules.runs_max,
            Question::Levels { rules, .. } | Question::Revisions { rules, .. } => rules.runs_max,
        }
    }

    /// Where the fault must show itself before anything is searched.
    pub fn bad_end(&self) -> Place {
        match self {
            Question::Axes { flips, .. } => Place::Set(all(flips.len() as u32)),
            Question::Sequence { layers, .. } => Place::Set(all(layers.len() as u32)),
            Question::Levels { labels, .. } => Place::At(labels.len() - 1),
            Question::Revisions { history, .. } => Place::At(history.last()),
        }
    }

    /// The places that are surely run, or are one step from the bad end: what a plan lists before the first trial.
    pub fn first_places(&self) -> Vec<Place> {
        let bad_end = self.bad_end();
        match (self, bad_end) {
            (Question::Axes { .. } | Question::Sequence { .. }, Place::Set(everything)) => std::iter::once(bad_end)
                .chain(members(everything).map(|element| Place::Set(everything & !(1 << element))))
                .collect(),
            (Question::Levels { labels, .. }, _) => (0..labels.len()).rev().map(Place::At).collect(),
            (Question::Revisions { .. }, _) => vec![bad_end, Place::At(0)],
            (_, other) => vec![other],
        }
    }

    /// What the elements of a set are called, and, where they are items of a sequence, which of them are the same.
    pub fn elements(&self) -> (Vec<String>, Option<Vec<u8>>) {
        match self {
            Question::Axes { flips, .. } => {
                (flips.iter().map(|flip| format!("{}={}", flip.axis, flip.from)).collect(), None)
            }
            Question::Sequence { layers, .. } => (layers.clone(), self.items()),
            Question::Levels { .. } | Question::Revisions { .. } => (Vec::new(), None),
        }
    }

    /// Which items of a sequence are the same.
    pub(super) fn items(&self) -> Option<Vec<u8>> {
        let Question::Sequence { layers, .. } = self else { return None };
        let item = |label: &String| layers.iter().position(|other| other == label).unwrap_or_default() as u8;
        Some(layers.iter().map(item).collect())
    }

    /// The combinations of knobs that the matrix excludes, of up to [`ELEMENTS_MAX`] knobs.
    pub fn excluded(&self, matrix: &Matrix) -> Vec<Kept> {
        let Question::Axes { flips, .. } = self else { return Vec::new() };
        if flips.len() as u32 > ELEMENTS_MAX || matrix.excludes.is_empty() {
            return Vec::new();
        }
        let fixed = |name: &str| matrix.baseline_label(name).map(str::to_owned);
        let is_excluded = |kept: &Kept| {
            let levels = levels_of(flips, *kept);
            let with_all = |name: &str| matrix.axis(name).map(|axis| axis.baseline.clone()).or_else(|| fixed(name));
            matrix.excludes.iter().any(|exclude| exclude.matches(&levels, with_all))
        };
        (0..1 << flips.len()).filter(is_excluded).collect()
    }

    /// The cell that is run at `place`; none if the matrix excludes it.
    ///
    /// # Errors
    /// If its settings are impossible.
    pub fn cell(&self, matrix: &Matrix, place: Place) -> Result<Option<Cell>, PlanError> {
        let mut variant = Variant::baseline(matrix);
        match (self, place) {
            (Question::Axes { flips, .. }, Place::Set(kept)) => {
                let flipped = flips.iter().enumerate().filter(|(element, _)| kept >> element & 1 == 0);
                flipped.for_each(|(_, flip)| variant.set(level(matrix, &flip.axis, &flip.to)));
            }
            (Question::Levels { axis, labels, .. }, Place::At(position)) => {
                variant.set(level(matrix, axis, &labels[position]));
            }
            (Question::Sequence { layers, .. }, Place::Set(kept)) => {
                let kept: Vec<usize> = members(kept).map(|element| element as usize).collect();
                variant.take_layers(&kept, layers);
            }
            (Question::Sequence { layers, .. }, Place::Order(_)) => {
                unreachable!("an order of {layers:?} is made by `order_cell`")
            }
            (Question::Revisions { history, .. }, Place::At(position)) => {
                variant.set_identity(&history.revisions[position].id);
            }
            (question, place) => unreachable!("{place:?} is no place of {:?}", question.kind()),
        }
        variant.cell()
    }

    /// The cell that runs the layers at `indices` of the baseline's sequence, in that order.
    ///
    /// # Errors
    /// If its settings are impossible.
    pub fn order_cell(&self, matrix: &Matrix, indices: &[usize]) -> Result<Option<Cell>, PlanError> {
        let mut variant = Variant::baseline(matrix);
        if let Question::Sequence { layers, .. } = self {
            variant.take_layers(indices, layers);
        }
        variant.cell()
    }

    /// The place where `cell` is run, if it is one of this question's.
    pub fn place(&self, cell: &Cell) -> Option<Place> {
        match self {
            Question::Axes { flips, .. } => {
                let mut kept = all(flips.len() as u32);
                for (element, flip) in flips.iter().enumerate() {
                    match cell.levels.get(&flip.axis)? {
                        level if *level == flip.from => {}
                        level if *level == flip.to => kept &= !(1 << element),
                        _ => return None,
                    }
                }
                Some(Place::Set(kept))
            }
            Question::Sequence { layers, .. } => {
                let sequence = &cell.settings.linear4bit()?.sequence;
                let mut kept = 0;
                let mut at = 0;
                for layer in sequence {
                    at += layers[at..].iter().position(|label| *label == layer.label)?;
                    kept |= 1 << at;
                    at += 1;
                }
                let items = self.items()?;
                Some(Place::Set(leftmost(&items, kept)))
            }
            Question::Levels { axis, labels, .. } => {
                let level = cell.levels.get(axis)?;
                labels.iter().position(|label| label == level).map(Place::At)
            }
            Question::Revisions { history, .. } => {
                let identity = &cell.settings.identity;
                history.revisions.iter().position(|revision| revision.id == *identity).map(Place::At)
            }
        }
    }
}

impl Campaign {
    /// Whether `other` asks the same, whatever was known before.
    pub fn asks_as(&self, other: &Campaign) -> bool {
        self.question == other.question
    }
}

fn levels_of(flips: &[Flip], kept: Kept) -> BTreeMap<String, String> {
    let label = |(element, flip): (usize, &Flip)| {
        let label = if kept >> element & 1 == 1 { &flip.from } else { &flip.to };
        (flip.axis.clone(), label.clone())
    };
    flips.iter().enumerate().map(label).collect()
}

/// The axis and the level called `label`; no level if that is the baseline's.
fn level<'m>(matrix: &'m Matrix, axis: &str, label: &str) -> Option<(&'m Axis, &'m Level)> {
    let axis = matrix.axis(axis)?;
    axis.levels.iter().find(|level| level.label == label).map(|level| (axis, level))
}
