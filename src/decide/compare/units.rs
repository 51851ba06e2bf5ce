//! What a sample is: a trial where trials are independent, a boot where they are not.
//!
//! A cold trial is one boot. Trials that were not cold share the luck of their boot: if the levels that are compared ran
//! in different boots, each boot is one sample, which faults if any of its trials did. Where a boot holds both levels in
//! an order drawn from the seed, its luck meets both, and the trial stays the sample. Whether a trial is warm can not be
//! drawn within a boot, since a cold one must come first: for the start state boots are always the samples.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::observation::{Counting, Factors, Observation, STATE};
use super::{Question, Side, Unit, counts, of_side};
use crate::decide::stats::{Arms, Counts, fisher};
use crate::model::settings::Start;

/// Numbers of boots for which a p is given where the boots of warm trials were not recorded.
const SUPPOSED_BOOTS: [u64; 3] = [2, 3, 5];

/// How the trials that were not cold cluster in boots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clustering {
    /// The level whose trials cluster.
    pub level: String,
    /// Its trials that were not cold.
    pub trials: u64,
    /// In how many boots they ran, if that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boots: Option<u64>,
    /// If not, and none of its trials was cold: what the one-sided p of all trials would be if they came from so many
    /// boots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub p_by_boots: Vec<(u64, f64)>,
}

/// The samples of a comparison.
pub(super) struct Units<'o> {
    /// One for each sample.
    pub(super) units: Vec<Unit<'o>>,
    /// How they cluster, where that matters.
    pub(super) clustering: Option<Clustering>,
}

/// Makes samples of `trials`.
pub(super) fn units<'o>(trials: &[Unit<'o>], question: &Question) -> Units<'o> {
    let mut sides_of_boot: BTreeMap<u32, BTreeSet<Side>> = BTreeMap::new();
    for trial in trials {
        if let Some(boot) = trial.trial.boot {
            sides_of_boot.entry(boot).or_default().insert(trial.side);
        }
    }
    let is_drawn = |boot: u32| question.factor != STATE && sides_of_boot[&boot].len() == 2;
    let mut units: Vec<Unit<'o>> = Vec::new();
    let mut of_boot: BTreeMap<(u32, &Factors), usize> = BTreeMap::new();
    for unit in trials {
        let clusters = unit.counting.is_counted() && !is_cold(unit.trial);
        let Some(boot) = unit.trial.boot.filter(|boot| clusters && !is_drawn(*boot)) else {
            units.push(*unit);
            continue;
        };
        match of_boot.get(&(boot, &unit.trial.factors)) {
            Some(at) if unit.counting == Counting::Fault => units[*at].counting = Counting::Fault,
            Some(_) => {}
            None => {
                of_boot.insert((boot, &unit.trial.factors), units.len());
                units.push(*unit);
            }
        }
    }
    Units { units, clustering: clustering(trials, question) }
}

fn is_cold(trial: &Observation) -> bool {
    trial.has(STATE, Start::Cold.as_str())
}

/// How the warm trials of the level that has most of them cluster; nothing where no level has more than one.
fn clustering(trials: &[Unit<'_>], question: &Question) -> Option<Clustering> {
    let warm = |side: Side| -> Vec<&Unit<'_>> {
        let of_side = of_side(trials, side);
        of_side.filter(|unit| unit.counting.is_counted() && is_known_not_cold(unit.trial)).collect()
    };
    let side = if warm(Side::A).len() > warm(Side::B).len() { Side::A } else { Side::B };
    let clustered = warm(side);
    if clustered.len() < 2 {
        return None;
    }
    let boots: Option<BTreeSet<u32>> = clustered.iter().map(|unit| unit.trial.boot).collect();
    let all = counts(trials, side).counted();
    let p_by_boots = match boots {
        Some(_) => Vec::new(),
        None if all > clustered.len() as u64 => Vec::new(),
        None => SUPPOSED_BOOTS
            .iter()
            .filter(|supposed| **supposed < clustered.len() as u64)
            .map(|supposed| (*supposed, p_of_boots(trials, side, *supposed)))
            .collect(),
    };
    Some(Clustering {
        level: question.label(side).to_owned(),
        trials: clustered.len() as u64,
        boots: boots.map(|boots| boots.len() as u64),
        p_by_boots,
    })
}

fn is_known_not_cold(trial: &Observation) -> bool {
    trial.factors.level(STATE).is_some() && !is_cold(trial)
}

/// The one-sided p of all trials in one table if those of `side` came from `boots` boots, each of which faults if any of its trials
/// does: at best the faults fall into as few boots as there are faults.
fn p_of_boots(trials: &[Unit<'_>], side: Side, boots: u64) -> f64 {
    let as_boots = |counts: Counts| {
        let faults = counts.faults.min(boots);
        Counts { faults, clean: boots - faults }
    };
    let mut arms = Arms { a: counts(trials, Side::A), b: counts(trials, Side::B) };
    match side {
        Side::A => arms.a = as_boots(arms.a),
        Side::B => arms.b = as_boots(arms.b),
    }
    let tails = fisher(arms);
    tails.greater.min(tails.less)
}
