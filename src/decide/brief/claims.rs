//! What may not be concluded from these trials, and what may: guarded comparisons along every axis, bounds of clean cells,
//! causes that nobody saw.

use std::collections::{BTreeMap, BTreeSet};

use super::{BinaryRow, Pool};
use crate::decide::compare::{
    Collector, Comparison, Conclusion, Design, Observation, RunUnderComparison, STATE, Standing, compare_each,
    levels_of, pairs,
};
use crate::decide::report::percent;
use crate::model::matrix::TrialsRule;
use crate::model::verdict::{Provenance, RebootCause};

/// The most pairs of levels that are compared: each takes exact tests.
const PAIRS_MAX: usize = 60;

/// So few clean trials of a setting tempt to more than they say.
const FEW: u64 = 5;

/// What was found before anything is compared.
pub(super) struct Found<'a> {
    /// See [`super::Brief::focus`].
    pub(super) focus: &'a [Pool],
    /// See [`super::Brief::binaries`].
    pub(super) binaries: &'a [BinaryRow],
    /// See [`super::Brief::works`].
    pub(super) works: &'a [Pool],
    /// Whether each trial is of the recipe that the report is about, in the order in which they were collected.
    pub(super) is_focus: &'a [bool],
}

/// What is said of it.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// See [`super::Brief::not_shown`].
    pub(super) not_shown: Vec<String>,
    /// See [`super::Brief::shown`].
    pub(super) shown: Vec<String>,
}

/// What may and may not be said.
pub(super) fn claims(collector: Collector<'_>, runs: &[RunUnderComparison], found: &Found<'_>) -> Claims {
    let Some(first) = found.focus.first() else { return Claims::default() };
    let peeked = runs.iter().any(|run| matches!(run.plan.trials, TrialsRule::UntilDecided(_)));
    let design = Design { axes: collector.axes(), peeked };
    // The fault that the report is about; others are in no rate.
    let kind = found.focus.iter().flat_map(|pool| &pool.verdicts).max_by_key(|(_, n)| **n).map(|(verdict, _)| *verdict);
    let kind = kind.map(|verdict| verdict.to_string());
    let observations = collector.finish(|_| true, kind.as_deref()).unwrap_or_default();
    let mut claims = Claims::default();
    claims.not_shown.extend(immune_binaries(found));
    claims.not_shown.extend(single_passes(found));
    // Recipes differ in more than the state: it is compared within the one that the report is about.
    let in_focus: Vec<Observation> = observations
        .iter()
        .zip(found.is_focus)
        .filter(|(_, is_focus)| **is_focus)
        .map(|(observation, _)| observation.clone())
        .collect();
    let baseline = runs.first().and_then(|run| run.plan.cells.first());
    let level = |factor: &str| baseline.and_then(|cell| cell.levels.get(factor)).cloned();
    let mut budget = PAIRS_MAX;
    let mut compare = |factors: &[String], observations: &[Observation]| {
        compare_factors(
            &mut claims,
            factors,
            observations,
            &mut Manner { design: &design, provenance: first.provenance, level: &level, budget: &mut budget },
        );
    };
    compare(&[STATE.to_owned()], &in_focus);
    compare(&design.axes.iter().cloned().collect::<Vec<_>>(), &observations);
    claims.not_shown.extend(unseen_causes(found.focus));
    claims
}

/// A binary without a fault where others have one, after few trials.
fn immune_binaries(found: &Found<'_>) -> Option<String> {
    let faulty: BTreeSet<_> = found.focus.iter().filter(|pool| pool.rate.faults > 0).map(|pool| pool.state).collect();
    let clean = found.binaries.iter().filter(|row| faulty.contains(&row.state) && row.rate.faults == 0);
    let words: Vec<String> = clean
        .filter_map(|row| {
            let most = percent(row.rate.at_most?);
            let starts = row.state.starts(row.rate.counted);
            Some(format!("{} ({} {starts}: a rate of up to {most} % stays possible)", row.binary, row.rate.fraction()))
        })
        .collect();
    (!words.is_empty()).then(|| format!("That it does not happen with {}.", words.join(", ")))
}

/// Settings without a fault that were tried a few times: what a single pass is worth.
fn single_passes(found: &Found<'_>) -> Option<String> {
    let focus = found.focus.iter().max_by(|a, b| a.rate.low.total_cmp(&b.rate.low))?;
    let few: Vec<&Pool> = found
        .works
        .iter()
        .filter(|pool| pool.provenance == focus.provenance && pool.label != focus.label && pool.rate.counted < FEW)
        .collect();
    let least = few.iter().map(|pool| pool.rate.counted).min()?;
    let of_least = few.iter().filter(|pool| pool.rate.counted == least).count();
    let bound = few.iter().filter_map(|pool| pool.rate.at_most).max_by(f64::total_cmp)?;
    let trials = match least {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    let bound = percent(bound);
    let mut text = match &few[..] {
        [only] => format!(
            "That {} prevents it: it passed {trials}, which leaves a rate of up to {bound} % possible",
            only.label
        ),
        _ => format!(
            "That any of the {} settings tried fewer than {FEW} times prevents it: {of_least} of them passed {trials}, \
             which leaves a rate of up to {bound} % possible",
            few.len()
        ),
    };
    if let Some(observed) = focus.rate.observed().filter(|rate| *rate > 0.0 && *rate < 1.0) {
        let by_chance: f64 = few.iter().map(|pool| (1.0 - observed).powi(pool.rate.counted as i32)).sum();
        if by_chance >= 1.0 {
            text += &format!(
                ". At {} % a fault, about {:.0} of them would have passed if none of them changed anything",
                percent(observed),
                by_chance
            );
        }
    }
    Some(text + ".")
}

/// Reboots of which nobody saw why.
fn unseen_causes(focus: &[Pool]) -> Option<String> {
    let of = |wanted: Option<RebootCause>| -> u64 {
        let causes = focus.iter().flat_map(|pool| &pool.causes);
        causes.filter(|(cause, _)| wanted.is_none_or(|wanted| **cause == wanted)).map(|(_, n)| n).sum()
    };
    let (unseen, all) = (of(Some(RebootCause::Undetermined)), of(None));
    (unseen > 0).then(|| format!("What reset the machine: the cause of {unseen} of {all} reboots is undetermined."))
}

/// How factors are compared.
struct Manner<'a> {
    design: &'a Design,
    provenance: Provenance,
    /// The baseline's level of a factor.
    level: &'a dyn Fn(&str) -> Option<String>,
    /// How many pairs more may be compared.
    budget: &'a mut usize,
}

/// Compares the baseline's level of each factor with each other level.
fn compare_factors(claims: &mut Claims, factors: &[String], observations: &[Observation], manner: &mut Manner<'_>) {
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut too_few: Vec<String> = Vec::new();
    for factor in factors {
        let Ok(levels) = levels_of(observations, factor) else { continue };
        let baseline = (manner.level)(factor);
        let Ok(mut pairs) = pairs(&levels, factor, None, baseline.as_deref()) else { continue };
        pairs.truncate(*manner.budget);
        *manner.budget -= pairs.len();
        let comparisons = compare_each(observations, factor, &pairs, manner.design);
        for comparison in comparisons.iter().filter(|comparison| comparison.provenance == manner.provenance) {
            let pair = format!("{factor} ({} against {})", comparison.a.label, comparison.b.label);
            match comparison.conclusion {
                // Where neither level faults there is nothing that tempts.
                _ if comparison.a.rate.faults + comparison.b.rate.faults == 0 => {}
                Conclusion::NoData => {}
                Conclusion::Established => {
                    let notes: String = comparison.notes.iter().map(|note| format!(". Note: {note}")).collect();
                    claims.shown.push(format!("{pair}: {}{notes}", comparison.headline));
                }
                Conclusion::UnknownFactor => {
                    let levels = unknown.entry(not_recorded(comparison)).or_default();
                    if levels.last() != Some(factor) {
                        levels.push(factor.clone());
                    }
                }
                Conclusion::Underpowered => too_few.push(pair),
                Conclusion::Confounded
                | Conclusion::OrderConfounded
                | Conclusion::Uninformative
                | Conclusion::Suggestive
                | Conclusion::NotShown => {
                    claims.not_shown.push(format!("Whether {pair} matters: {}.", comparison.headline));
                }
            }
        }
    }
    for (why, factors) in unknown {
        claims.not_shown.push(format!(
            "Whether {} {}: {why} was not recorded in those trials (UNKNOWN_FACTOR), and a difference in it would look \
             the same.",
            list(&factors),
            matter(&factors)
        ));
    }
    if !too_few.is_empty() {
        claims.not_shown.push(format!(
            "Whether {} {}: with so few like trials no result could have shown it (UNDERPOWERED).",
            list(&too_few),
            matter(&too_few)
        ));
    }
}

/// The factors of which some trials have no level.
fn not_recorded(comparison: &Comparison) -> String {
    let unknown = comparison.factors.iter().filter(|factor| factor.standing == Standing::Unknown || factor.unknown > 0);
    unknown.map(|factor| factor.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The verb for so many.
fn matter(words: &[String]) -> &'static str {
    if words.len() == 1 { "matters" } else { "matter" }
}

/// `a`, `a and b`, `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
