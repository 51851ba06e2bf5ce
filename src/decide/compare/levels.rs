//! Which levels are compared with which, and several comparisons as one answer.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::observation::{Observation, STATE};
use super::{Comparison, Conclusion, Question, compare, second};
use crate::decide::stats::{Counts, freeman_halton, holm};
use crate::model::ids::RunId;
use crate::model::verdict::Provenance;

/// Name and version of the format of what `compare` prints.
pub const COMPARISONS_SCHEMA: &str = "jetfault.compare/1";

/// The most different tables that the test of all levels at once keeps.
const TABLES_MAX: usize = 100_000;

/// What `compare` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparisons {
    /// [`COMPARISONS_SCHEMA`].
    pub schema: String,
    /// The runs, in the order in which they count as having run.
    pub runs: Vec<RunId>,
    /// The factor.
    pub factor: String,
    /// One for each provenance and pair of levels.
    pub comparisons: Vec<Comparison>,
    /// With more than two levels: the exact p of all of them having one rate, whatever else differs (Freeman-Halton).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_levels_p: Option<f64>,
}

impl Comparisons {
    /// The answer as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("comparisons have string keys and finite numbers");
        json.push(b'\n');
        json
    }

    /// Whether every question is answered.
    pub fn are_decided(&self) -> bool {
        self.comparisons.iter().all(|comparison| comparison.conclusion.is_decided())
    }

    /// Whether there is anything to compare.
    pub fn are_empty(&self) -> bool {
        self.comparisons.iter().all(|comparison| comparison.conclusion == Conclusion::NoData)
    }
}

/// Levels that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// No trial has the factor.
    #[error("no trial has a factor {factor:?}")]
    NoSuchFactor {
        /// What was asked for.
        factor: String,
        /// What there is.
        there: Vec<String>,
    },
    /// The factor was not recorded in any trial.
    #[error("{0} was not recorded in any of these trials")]
    Unrecorded(String),
    /// No trial has the level.
    #[error("no trial has {factor} = {level:?}")]
    NoSuchLevel {
        /// The factor.
        factor: String,
        /// What was asked for.
        level: String,
        /// What there is.
        there: Vec<String>,
    },
    /// Not two levels.
    #[error("{text:?} are not two levels of {factor}")]
    NotTwo {
        /// The factor.
        factor: String,
        /// What was given.
        text: String,
        /// What there is.
        there: Vec<String>,
    },
    /// Fewer than two levels.
    #[error("all trials have {factor} = {level:?}: there is nothing to compare it with")]
    OneOnly {
        /// The factor.
        factor: String,
        /// Its only level.
        level: String,
    },
}

/// The factor that is meant by `asked`: the start state by the axis that asks for it.
pub fn factor_of(asked: &str) -> &str {
    if asked == crate::model::matrix::Knob::Start.as_str() { STATE } else { asked }
}

/// The levels of `factor`, in the order in which they came first.
///
/// # Errors
/// If no trial has the factor, or it was not recorded.
pub fn levels_of(observations: &[Observation], factor: &str) -> Result<Vec<String>, LevelError> {
    let is_there = observations.iter().any(|observation| observation.factors.contains_key(factor));
    if !is_there {
        let mut there: Vec<String> =
            observations.iter().flat_map(|observation| observation.factors.keys().cloned()).collect();
        there.sort();
        there.dedup();
        return Err(LevelError::NoSuchFactor { factor: factor.to_owned(), there });
    }
    let mut levels: Vec<String> = Vec::new();
    for level in observations.iter().filter_map(|observation| observation.factors.get(factor)?.as_ref()) {
        if !levels.contains(level) {
            levels.push(level.clone());
        }
    }
    if levels.is_empty() { Err(LevelError::Unrecorded(factor.to_owned())) } else { Ok(levels) }
}

/// The pairs of levels to compare: the two that `asked` names, separated by a comma, which may itself be part of a
/// level; without a word the first with each other one, `baseline` being the first where it is there.
///
/// # Errors
/// If a level is not there, or there is only one.
pub fn pairs(
    levels: &[String],
    factor: &str,
    asked: Option<&str>,
    baseline: Option<&str>,
) -> Result<Vec<(String, String)>, LevelError> {
    let Some(asked) = asked else {
        let first = levels.iter().find(|level| baseline == Some(level)).or(levels.first());
        let others = |first: &String| levels.iter().filter(|level| *level != first).cloned().collect::<Vec<_>>();
        return match first.map(|first| (first, others(first))) {
            Some((first, others)) if !others.is_empty() => {
                Ok(others.into_iter().map(|other| (first.clone(), other)).collect())
            }
            Some((first, _)) => Err(LevelError::OneOnly { factor: factor.to_owned(), level: first.clone() }),
            None => Err(LevelError::Unrecorded(factor.to_owned())),
        };
    };
    let splits: Vec<(&str, &str)> = asked.match_indices(',').map(|(at, _)| (&asked[..at], &asked[at + 1..])).collect();
    let is_level = |text: &str| levels.iter().any(|level| level == text);
    let found = splits.iter().find(|(a, b)| is_level(a) && is_level(b) && a != b);
    match (found, &splits[..]) {
        (Some((a, b)), _) => Ok(vec![((*a).to_owned(), (*b).to_owned())]),
        (None, [(a, b)]) if a != b => {
            let missing = if is_level(a) { b } else { a };
            Err(LevelError::NoSuchLevel {
                factor: factor.to_owned(),
                level: (*missing).to_owned(),
                there: levels.to_vec(),
            })
        }
        (None, _) => {
            Err(LevelError::NotTwo { factor: factor.to_owned(), text: asked.to_owned(), there: levels.to_vec() })
        }
    }
}

/// How the trials came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    /// See [`Question::axes`].
    pub axes: BTreeSet<String>,
    /// See [`Question::peeked`].
    pub peeked: bool,
}

/// Compares every pair within every provenance. With several pairs the p are adjusted by Holm; beside them, where there
/// is one provenance, the p of all levels having one rate, and the second figures of each.
pub fn compare_pairs(
    observations: &[Observation],
    factor: &str,
    pairs: &[(String, String)],
    design: &Design,
) -> (Vec<Comparison>, Option<f64>) {
    let all_levels_p = match (&provenances(observations)[..], pairs.len()) {
        ([provenance], 2..) => all_levels_p(observations, factor, *provenance),
        _ => None,
    };
    let mut comparisons = compare_each(observations, factor, pairs, design);
    comparisons.iter_mut().for_each(|comparison| comparison.second = second(&comparison.strata));
    (comparisons, all_levels_p)
}

fn provenances(observations: &[Observation]) -> Vec<Provenance> {
    let mut provenances: Vec<Provenance> = observations.iter().map(|observation| observation.provenance).collect();
    provenances.sort();
    provenances.dedup();
    provenances
}

/// The pairs alone, without second figures: those and the test of all levels take longer than all of them.
pub fn compare_each(
    observations: &[Observation],
    factor: &str,
    pairs: &[(String, String)],
    design: &Design,
) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for provenance in &provenances(observations) {
        let question = |(a, b): &(String, String)| Question {
            factor: factor.to_owned(),
            a: a.clone(),
            b: b.clone(),
            axes: design.axes.clone(),
            peeked: design.peeked,
        };
        let mut of_provenance: Vec<Comparison> =
            pairs.iter().map(|pair| compare(observations, &question(pair), *provenance)).collect();
        of_provenance.retain(|comparison| comparison.a.rate.counted + comparison.b.rate.counted > 0);
        adjust(&mut of_provenance);
        comparisons.extend(of_provenance);
    }
    comparisons
}

fn adjust(comparisons: &mut [Comparison]) {
    if comparisons.len() < 2 {
        return;
    }
    let ps: Vec<f64> = comparisons.iter().map(|comparison| comparison.tests.p.unwrap_or(1.0)).collect();
    for (comparison, adjusted) in comparisons.iter_mut().zip(holm(&ps)) {
        comparison.tests.holm_p = comparison.tests.p.map(|_| adjusted);
    }
}

fn all_levels_p(observations: &[Observation], factor: &str, provenance: Provenance) -> Option<f64> {
    let mut groups: BTreeMap<&String, Counts> = BTreeMap::new();
    for observation in observations.iter().filter(|observation| observation.provenance == provenance) {
        let Some(level) = observation.factors.get(factor)?.as_ref() else { continue };
        let counts = groups.entry(level).or_default();
        *counts = observation.counting.added_to(*counts);
    }
    freeman_halton(&groups.into_values().collect::<Vec<_>>(), TABLES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> Vec<String> {
        ["none", "after:A", "after:A,B"].map(str::to_owned).into()
    }

    #[test]
    fn a_comma_may_be_part_of_a_level() {
        let pairs = |asked| pairs(&levels(), "hygiene", Some(asked), None);
        let pair = |a: &str, b: &str| Ok(vec![(a.to_owned(), b.to_owned())]);
        assert_eq!(pairs("none,after:A"), pair("none", "after:A"));
        assert_eq!(pairs("none,after:A,B"), pair("none", "after:A,B"));
        assert_eq!(pairs("after:A,B,none"), pair("after:A,B", "none"));
        assert!(matches!(pairs("none"), Err(LevelError::NotTwo { .. })));
        assert!(matches!(pairs("none,none"), Err(LevelError::NotTwo { .. })));
        assert!(matches!(pairs("none,each"), Err(LevelError::NoSuchLevel { level, .. }) if level == "each"));
    }

    #[test]
    fn without_a_word_the_baseline_is_compared_with_every_other_level() {
        let found = pairs(&levels(), "hygiene", None, Some("after:A")).unwrap();
        assert_eq!(found, [("after:A".into(), "none".into()), ("after:A".into(), "after:A,B".into())]);
        let one = ["none".to_owned()];
        assert!(matches!(pairs(&one, "hygiene", None, None), Err(LevelError::OneOnly { .. })));
    }
}
