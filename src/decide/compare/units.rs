//! What a sample is: a trial where trials are independent, a boot where they are not.
//!
//! A cold trial is one boot. Trials that were not cold share the luck of their boot: if the levels that are compared ran
//! in different boots, each boot is one sample, which faults if any of its trials did. Where a boot holds both levels in
//! an order drawn from the seed, its luck meets both, and the trial stays the sample. Whether a trial is warm can not be
//! drawn within a boot, since a cold one must come first: for the start state boots are always the samples.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::observation::{Counting, Observation, STATE};
use super::{Question, Side, counts};
use crate::decide::stats::{Arms, Counts, fisher};
use crate::model::ids::BootId;
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
pub(super) struct Units {
    /// One for each sample.
    pub(super) observations: Vec<Observation>,
    /// How they cluster, where that matters.
    pub(super) clustering: Option<Clustering>,
}

/// Makes samples of `trials`.
pub(super) fn units(trials: &[&Observation], question: &Question) -> Units {
    let mut sides_of_boot: BTreeMap<&BootId, BTreeSet<Side>> = BTreeMap::new();
    for trial in trials {
        if let (Some(boot), Some(side)) = (&trial.boot, question.side(trial)) {
            sides_of_boot.entry(boot).or_default().insert(side);
        }
    }
    let is_drawn = |boot: &BootId| question.factor != STATE && sides_of_boot[boot].len() == 2;
    let mut units: Vec<Observation> = Vec::new();
    let mut of_boot: BTreeMap<(&BootId, &BTreeMap<String, Option<String>>), usize> = BTreeMap::new();
    for trial in trials {
        let clusters = trial.counting.is_counted() && !is_cold(trial);
        let Some(boot) = trial.boot.as_ref().filter(|boot| clusters && !is_drawn(boot)) else {
            units.push((*trial).clone());
            continue;
        };
        match of_boot.get(&(boot, &trial.factors)) {
            Some(at) if trial.counting == Counting::Fault => units[*at].counting = Counting::Fault,
            Some(_) => {}
            None => {
                of_boot.insert((boot, &trial.factors), units.len());
                units.push((*trial).clone());
            }
        }
    }
    Units { observations: units, clustering: clustering(trials, question) }
}

fn is_cold(trial: &Observation) -> bool {
    trial.has(STATE, Start::Cold.as_str())
}

/// How the warm trials of the level that has most of them cluster; nothing where no level has more than one.
fn clustering(trials: &[&Observation], question: &Question) -> Option<Clustering> {
    let warm = |side: Side| -> Vec<&&Observation> {
        let of_side = trials.iter().filter(|trial| question.side(trial) == Some(side));
        of_side.filter(|trial| trial.counting.is_counted() && is_known_not_cold(trial)).collect()
    };
    let side = if warm(Side::A).len() > warm(Side::B).len() { Side::A } else { Side::B };
    let clustered = warm(side);
    if clustered.len() < 2 {
        return None;
    }
    let boots: Option<BTreeSet<&BootId>> = clustered.iter().map(|trial| trial.boot.as_ref()).collect();
    let all = counts(trials, question, side).counted();
    let p_by_boots = match boots {
        Some(_) => Vec::new(),
        None if all > clustered.len() as u64 => Vec::new(),
        None => SUPPOSED_BOOTS
            .iter()
            .filter(|supposed| **supposed < clustered.len() as u64)
            .map(|supposed| (*supposed, p_of_boots(trials, question, side, *supposed)))
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
    trial.factors.get(STATE).is_some_and(Option::is_some) && !is_cold(trial)
}

/// The one-sided p of all trials in one table if those of `side` came from `boots` boots, each of which faults if any of its trials
/// does: at best the faults fall into as few boots as there are faults.
fn p_of_boots(trials: &[&Observation], question: &Question, side: Side, boots: u64) -> f64 {
    let as_boots = |counts: Counts| {
        let faults = counts.faults.min(boots);
        Counts { faults, clean: boots - faults }
    };
    let mut arms = Arms { a: counts(trials, question, Side::A), b: counts(trials, question, Side::B) };
    match side {
        Side::A => arms.a = as_boots(arms.a),
        Side::B => arms.b = as_boots(arms.b),
    }
    let tails = fisher(arms);
    tails.greater.min(tails.less)
}
