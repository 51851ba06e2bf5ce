//! The confounding guard: what else differs between the two levels, and what like compared with like says.
//!
//! Rules, in order: count; look at the overlap of every other factor; look whether numbers such as the order separate
//! the levels; keep the strata in which everything else is alike; ask for the smallest p that they could give; test them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::observation::{ByFactors, Factors, ORDER, STATE, TEMPERATURE};
use super::{ALPHA, BALANCED, Conclusion, Question, SUGGESTIVE, Side, Unit, counts, excluded, of_side};
use crate::decide::stats::{Arms, Counts, Stratified, cmh_exact, fisher, mann_whitney, overlap, smallest_p};
use crate::model::words::words;

/// Numbers that must not separate the levels.
const NUMERIC: [&str; 2] = [ORDER, TEMPERATURE];

words! {
    /// How a factor stands between the two levels.
    Standing {
        /// It has the same levels on both sides, in much the same parts.
        Alike = "alike",
        /// It has common levels, in different parts: the test is stratified by it.
        Imbalanced = "imbalanced",
        /// It has no level in common.
        Aliased = "aliased",
        /// It was not recorded in any trial of one side.
        Unknown = "unknown",
    }
}

/// A factor other than the one compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactorCheck {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub standing: Standing,
    /// The overlap of its levels, 0 to 1; absent where one side has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// Trials of the first level by its level.
    pub a: BTreeMap<String, u64>,
    /// Trials of the second.
    pub b: BTreeMap<String, u64>,
    /// Trials of which it was not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A number that separates the levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Separation {
    /// Which.
    pub name: String,
    /// Two-sided p of the exact rank test.
    pub p: f64,
    /// The chance that a value of the first level is above one of the second.
    pub auc: f64,
}

/// Trials of both levels that are alike in every other factor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stratum {
    /// The start state, and the levels of the other factors in which trials differ.
    pub levels: BTreeMap<String, String>,
    /// Faults and counted trials of the first level.
    pub a: (u64, u64),
    /// Of the second.
    pub b: (u64, u64),
}

impl Stratum {
    /// As a table.
    pub fn arms(&self) -> Arms {
        Arms::of(self.a.0, self.a.1, self.b.0, self.b.1).expect("counted so")
    }
}

/// What the guard found.
#[derive(Debug, Clone, PartialEq)]
pub struct Guarded {
    /// All counted units of both levels in one table.
    pub crude: Arms,
    /// Its two-sided p.
    pub crude_p: f64,
    /// Units in no rate, of the first level and of the second.
    pub excluded: (u64, u64),
    /// The other factors.
    pub factors: Vec<FactorCheck>,
    /// Numbers that separate the levels.
    pub separated: Vec<Separation>,
    /// Strata with both levels.
    pub strata: Vec<Stratum>,
    /// Strata with one level only: what a trial of the other would be compared with.
    pub lonely: Vec<Stratum>,
    /// The smallest two-sided p that the strata could give.
    pub smallest_p: Option<f64>,
    /// The exact test over the strata.
    pub stratified: Option<Stratified>,
    /// What it comes to.
    pub conclusion: Conclusion,
    /// Whether all trials in one table look different, and like ones do not.
    pub explained_by_others: bool,
}

impl Guarded {
    /// The factors that stand so.
    pub fn standing(&self, standing: Standing) -> impl Iterator<Item = &FactorCheck> {
        self.factors.iter().filter(move |factor| factor.standing == standing)
    }

    /// The trials of the strata in one table.
    pub fn like_for_like(&self) -> Arms {
        self.strata.iter().fold(Arms::default(), |sum, stratum| sum.plus(stratum.arms()))
    }
}

/// Guards the comparison of `question` over `units`.
pub fn guard(units: &[Unit<'_>], question: &Question) -> Guarded {
    let crude = Arms { a: counts(units, Side::A), b: counts(units, Side::B) };
    let used: Vec<Unit<'_>> = units.iter().filter(|unit| unit.counting.is_counted()).copied().collect();
    let kinds = kinds(&used);
    let names = guarded_names(&kinds, question);
    let mut guarded = Guarded {
        crude,
        crude_p: 1.0,
        excluded: (excluded(units, Side::A), excluded(units, Side::B)),
        factors: Vec::new(),
        separated: Vec::new(),
        strata: Vec::new(),
        lonely: Vec::new(),
        smallest_p: None,
        stratified: None,
        conclusion: Conclusion::NoData,
        explained_by_others: false,
    };
    if crude.a.counted() == 0 || crude.b.counted() == 0 {
        return guarded;
    }
    guarded.crude_p = fisher(crude).two_sided;
    guarded.factors = names.iter().map(|name| check(name, &kinds)).collect();
    guarded.separated = NUMERIC.iter().filter_map(|name| separation(name, &used)).collect();
    (guarded.strata, guarded.lonely) = strata(&names, &kinds);
    guarded.conclude();
    guarded
}

impl Guarded {
    fn conclude(&mut self) {
        if self.strata.is_empty() {
            let is_aliased = self.standing(Standing::Aliased).next().is_some();
            let is_unknown = self.factors.iter().any(|factor| factor.unknown > 0);
            self.conclusion =
                if is_aliased || !is_unknown { Conclusion::Confounded } else { Conclusion::UnknownFactor };
            return;
        }
        let tables: Vec<Arms> = self.strata.iter().map(Stratum::arms).collect();
        let stratified = cmh_exact(&tables);
        let smallest = smallest_p(&tables);
        self.smallest_p = Some(smallest);
        self.stratified = Some(stratified);
        let p = stratified.tails.two_sided;
        let is_ordered = self.separated.iter().any(|separation| separation.name == ORDER);
        self.conclusion = match () {
            () if smallest > ALPHA => Conclusion::Underpowered,
            () if stratified.informative == 0 => Conclusion::Uninformative,
            () if p <= ALPHA && is_ordered => Conclusion::OrderConfounded,
            () if p <= ALPHA => Conclusion::Established,
            () if p <= SUGGESTIVE => Conclusion::Suggestive,
            () => Conclusion::NotShown,
        };
        let is_shown = matches!(self.conclusion, Conclusion::Established | Conclusion::OrderConfounded);
        self.explained_by_others = self.crude_p <= ALPHA && !is_shown;
    }
}

/// Counted units that share their factors, the compared one included.
struct Kind<'o> {
    side: Side,
    factors: &'o Factors,
    counts: Counts,
}

/// The kinds of `used`, in the order in which they came first.
fn kinds<'o>(used: &[Unit<'o>]) -> Vec<Kind<'o>> {
    let mut kinds: Vec<Kind<'o>> = Vec::new();
    let mut places = ByFactors::new();
    for unit in used {
        let factors = &unit.trial.factors;
        let place = places.of(factors, |factors| {
            kinds.push(Kind { side: unit.side, factors, counts: Counts::default() });
            kinds.len() - 1
        });
        kinds[place].counts = unit.counting.added_to(kinds[place].counts);
    }
    kinds
}

/// The factors that any trial has, but for the one compared.
fn guarded_names(kinds: &[Kind<'_>], question: &Question) -> Vec<String> {
    let names: BTreeSet<&String> = kinds.iter().flat_map(|kind| kind.factors.keys()).collect();
    names.into_iter().filter(|name| **name != question.factor).cloned().collect()
}

fn check(name: &str, kinds: &[Kind<'_>]) -> FactorCheck {
    let mut by_side: BTreeMap<Side, BTreeMap<String, u64>> = BTreeMap::new();
    let mut unknown = 0;
    for kind in kinds {
        let units = kind.counts.counted();
        match kind.factors.level(name) {
            Some(level) => *by_side.entry(kind.side).or_default().entry(level.clone()).or_default() += units,
            None => unknown += units,
        }
    }
    let (a, b) = (by_side.remove(&Side::A).unwrap_or_default(), by_side.remove(&Side::B).unwrap_or_default());
    let overlap = overlap(&a, &b);
    let standing = match overlap {
        None => Standing::Unknown,
        Some(0.0) => Standing::Aliased,
        Some(overlap) if overlap < BALANCED => Standing::Imbalanced,
        Some(_) => Standing::Alike,
    };
    FactorCheck { name: name.to_owned(), standing, overlap, a, b, unknown }
}

fn separation(name: &str, used: &[Unit<'_>]) -> Option<Separation> {
    let values = |side: Side| -> Vec<f64> {
        of_side(used, side).filter_map(|unit| unit.trial.figures.get(name).copied()).collect()
    };
    let test = mann_whitney(&values(Side::A), &values(Side::B))?;
    (test.p <= ALPHA).then(|| Separation { name: name.to_owned(), p: test.p, auc: test.auc })
}

/// The strata with both levels, and those with one only. Trials of which a factor is unknown are in none.
fn strata(names: &[String], kinds: &[Kind<'_>]) -> (Vec<Stratum>, Vec<Stratum>) {
    let mut tables: BTreeMap<Vec<&String>, Arms> = BTreeMap::new();
    for kind in kinds {
        let levels = names.iter().map(|name| kind.factors.level(name));
        let Some(key) = levels.collect::<Option<Vec<_>>>() else { continue };
        let arms = tables.entry(key).or_default();
        match kind.side {
            Side::A => arms.a = arms.a.plus(kind.counts),
            Side::B => arms.b = arms.b.plus(kind.counts),
        }
    }
    // A factor that has one level everywhere names nothing; the start state is what a trial costs.
    let first = |name: &String| kinds.first().and_then(|kind| kind.factors.level(name));
    let varies = |name: &String| name == STATE || kinds.iter().any(|kind| kind.factors.level(name) != first(name));
    let varying: Vec<bool> = names.iter().map(varies).collect();
    let stratum = |(key, arms): (&Vec<&String>, &Arms)| Stratum {
        levels: names
            .iter()
            .zip(key)
            .zip(&varying)
            .filter(|(_, varies)| **varies)
            .map(|((name, level), _)| (name.clone(), (*level).clone()))
            .collect(),
        a: (arms.a.faults, arms.a.counted()),
        b: (arms.b.faults, arms.b.counted()),
    };
    tables.iter().map(stratum).partition(|stratum| stratum.a.1 > 0 && stratum.b.1 > 0)
}
