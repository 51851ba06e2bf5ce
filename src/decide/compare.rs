//! Comparing two levels of a factor: does it make a difference, and does the data allow the question at all?
//!
//! Owns the course of a comparison: trials become [`Observation`]s, the guard ([`guard`]) looks for whatever else differs
//! between the levels, like is compared with like exactly, and the answer is put into the words of one of nine
//! conclusions, with the cheapest trials that would say more. It must not know where journals are or how text is laid
//! out.
//!
//! Two questions are kept apart. Whether a level faults *at all* is answered by one matching fault, whatever the comparison
//! says; whether it faults *more often* than the other needs all of the above.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decide::report::Rate;
use crate::decide::stats::{
    Arms, Confidence, Counts, E_THRESHOLD, EValue, Method, barnard, boschloo, chance_first_is_larger, fisher_mid,
    mann_whitney, mantel_haenszel, miettinen_nurminen, newcombe,
};
use crate::model::verdict::Provenance;
use crate::model::words::words;

mod covariates;
pub mod guard;
mod levels;
mod needs;
mod observation;
mod units;
mod words;

pub use covariates::{COVARIATES_SCHEMA, Covariate, Covariates, covariates};
pub use guard::{FactorCheck, Guarded, Separation, Standing, Stratum};
pub use levels::{
    COMPARISONS_SCHEMA, Comparisons, Design, LevelError, compare_each, compare_pairs, factor_of, levels_of, pairs,
};
pub use needs::Need;
pub use observation::{
    Block, CollectError, Collector, Counting, Factors, ORDER, Observation, RUN, RunUnderComparison, STATE, TEMPERATURE,
    signature_words,
};
pub use units::Clustering;

use observation::ByFactors;
pub use words::p_words;

/// Name and version of the format of a comparison.
pub const COMPARISON_SCHEMA: &str = "jetfault.comparison/1";

/// The p up to which a difference is called established.
pub const ALPHA: f64 = 0.05;

/// The p up to which a difference is called suggestive.
pub const SUGGESTIVE: f64 = 0.2;

/// The overlap of a factor below which the levels are called imbalanced in it.
pub const BALANCED: f64 = 0.8;

words! {
    /// What a comparison comes to.
    Conclusion {
        /// One of the levels has no counted trial.
        NoData = "NO_DATA",
        /// Another factor has no level in common between the two: the difference may be all its doing.
        Confounded = "CONFOUNDED",
        /// Another factor was not recorded.
        UnknownFactor = "UNKNOWN_FACTOR",
        /// No result of so few trials could have shown a difference.
        Underpowered = "UNDERPOWERED",
        /// Every stratum has only faults or only clean trials.
        Uninformative = "UNINFORMATIVE",
        /// The levels differ.
        Established = "ESTABLISHED",
        /// The levels differ, and one ran after the other.
        OrderConfounded = "ORDER_CONFOUNDED",
        /// There may be a difference.
        Suggestive = "SUGGESTIVE",
        /// No difference is shown, which is not to say that there is none.
        NotShown = "NOT_SHOWN",
    }
}

impl Conclusion {
    /// Whether the question is answered.
    pub fn is_decided(self) -> bool {
        match self {
            Self::Established => true,
            Self::NoData
            | Self::Confounded
            | Self::UnknownFactor
            | Self::Underpowered
            | Self::Uninformative
            | Self::OrderConfounded
            | Self::Suggestive
            | Self::NotShown => false,
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The factor.
    pub factor: String,
    /// One of its levels, as a rule the baseline's.
    pub a: String,
    /// The other.
    pub b: String,
    /// The factors that cells are made of: the axes. The others are conditions.
    pub axes: BTreeSet<String>,
    /// Whether what was seen decided how many trials there are: then only a test that may be looked at often is valid.
    pub peeked: bool,
}

/// One level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Its label.
    pub label: String,
    /// Its counted trials, with what they say about its rate.
    pub rate: Rate,
    /// Trials in no rate.
    pub excluded: u64,
    /// What may be said of it alone.
    pub says: String,
}

/// The tests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tests {
    /// Two-sided p of all trials in one table, whatever else differs between them: not to be relied on.
    pub crude_p: f64,
    /// The smallest two-sided p that so many like trials could have given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_p: Option<f64>,
    /// Two-sided p of the exact stratified test: like compared with like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The same, adjusted by Holm for the other levels compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holm_p: Option<f64>,
    /// Strata with faults and clean trials of both levels together.
    pub informative: usize,
    /// The larger of the e-values of both directions, over interleaved blocks; absent without a complete block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e_value: Option<f64>,
    /// How many complete blocks there are.
    pub blocks: u64,
}

/// Second figures, for those who know what they may be used for; none of them decides. They take longer than everything
/// else, and are there where they are asked for: see [`compare_pairs`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Second {
    /// Two-sided p of Boschloo's test; one table only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boschloo_p: Option<f64>,
    /// Two-sided p of Barnard's test; one table only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barnard_p: Option<f64>,
    /// Two-sided mid-p of Fisher's test; one table only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mid_p: Option<f64>,
    /// Newcombe's 95 % interval of the difference; one table only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newcombe: Option<(f64, f64)>,
    /// Miettinen's and Nurminen's; one table only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miettinen_nurminen: Option<(f64, f64)>,
    /// The chance that the first rate is larger, with Jeffreys priors; one table only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance_first_is_larger: Option<f64>,
    /// χ² of Mantel and Haenszel; several informative strata without an empty cell only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mantel_haenszel_chi_square: Option<f64>,
    /// Their common odds ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mantel_haenszel_odds_ratio: Option<f64>,
}

/// A comparison of two levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`COMPARISON_SCHEMA`].
    pub schema: String,
    /// The factor.
    pub factor: String,
    /// Where the numbers come from; of different provenance there are different comparisons.
    pub provenance: Provenance,
    /// What it comes to.
    pub conclusion: Conclusion,
    /// The conclusion in a sentence that carries its reason.
    pub headline: String,
    /// The first level.
    pub a: Level,
    /// The second level.
    pub b: Level,
    /// The tests.
    pub tests: Tests,
    /// Second figures.
    pub second: Second,
    /// The other factors.
    pub factors: Vec<FactorCheck>,
    /// Numbers that separate the levels, such as the order of the trials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub separated: Vec<Separation>,
    /// Trials of both levels that are alike in every other factor.
    pub strata: Vec<Stratum>,
    /// How warm trials cluster in boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clustering: Option<Clustering>,
    /// What must be known to read it rightly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The cheapest trials that would say more, the cheapest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
}

impl Comparison {
    /// The comparison as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a comparison has string keys and finite numbers");
        json.push(b'\n');
        json
    }
}

/// Compares the levels of `question` over `observations` of one provenance, in the order in which they ran.
pub fn compare(observations: &[Observation], question: &Question, provenance: Provenance) -> Comparison {
    let of_provenance = observations.iter().filter(|observation| observation.provenance == provenance);
    let (of_levels, left_out) = with_counterpart(question.units(of_provenance), question);
    let units = units::units(&of_levels, question);
    let guarded = guard::guard(&units.units, question);
    let e = EValues::of(&of_levels, question);
    let conclusion = e.confirm(guarded.conclusion, question);
    let mut comparison = Comparison {
        schema: COMPARISON_SCHEMA.to_owned(),
        factor: question.factor.clone(),
        provenance,
        conclusion,
        headline: String::new(),
        a: level(&of_levels, question, Side::A),
        b: level(&of_levels, question, Side::B),
        tests: Tests {
            crude_p: guarded.crude_p,
            smallest_p: guarded.smallest_p,
            p: guarded.stratified.map(|stratified| stratified.tails.two_sided),
            holm_p: None,
            informative: guarded.stratified.map_or(0, |stratified| stratified.informative),
            e_value: (e.blocks > 0).then(|| e.larger()),
            blocks: e.blocks,
        },
        second: Second::default(),
        factors: guarded.factors.clone(),
        separated: guarded.separated.clone(),
        strata: guarded.strata.clone(),
        clustering: units.clustering,
        notes: Vec::new(),
        needs: needs::needs(&guarded, conclusion, question),
    };
    words::put(&mut comparison, &Trials { compared: &of_levels, left_out }, &guarded, question);
    comparison
}

/// The trials of a comparison.
struct Trials<'o> {
    /// Those that are compared.
    compared: &'o [Unit<'o>],
    /// How many others have one of the levels, in cells without a counterpart.
    left_out: usize,
}

/// The trials of cells that have a counterpart of the other level, alike in every axis, and how many others there are.
/// Where no cell has one, all: the guard then says what differs. All too where the factor is no axis but a condition,
/// which any cell meets.
fn with_counterpart<'o>(trials: Vec<Unit<'o>>, question: &Question) -> (Vec<Unit<'o>>, usize) {
    if !question.axes.contains(&question.factor) {
        return (trials, 0);
    }
    let mut cells: BTreeMap<Vec<&'o Option<String>>, usize> = BTreeMap::new();
    let mut cell_of = ByFactors::new();
    let mut cell = |trial: &Unit<'o>| {
        cell_of.of(&trial.trial.factors, |factors| {
            let axes = question.axes.iter().filter(|axis| **axis != question.factor);
            let number = cells.len();
            *cells.entry(axes.filter_map(|axis| factors.get(axis)).collect()).or_insert(number)
        })
    };
    let of_cells: Vec<usize> = trials.iter().map(&mut cell).collect();
    let mut sides = vec![BTreeSet::new(); cells.len()];
    for (trial, cell) in trials.iter().zip(&of_cells).filter(|(trial, _)| trial.counting.is_counted()) {
        sides[*cell].insert(trial.side);
    }
    let is_paired = |cell: usize| sides[cell].len() == 2;
    if !of_cells.iter().any(|cell| is_paired(*cell)) {
        return (trials, 0);
    }
    let all = trials.len();
    let paired: Vec<Unit<'o>> =
        trials.into_iter().zip(&of_cells).filter(|(_, cell)| is_paired(**cell)).map(|(trial, _)| trial).collect();
    let left_out = all - paired.len();
    (paired, left_out)
}

/// One of the two levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

/// A trial of one of the two levels, or a boot of such trials.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'o> {
    /// Of which.
    pub side: Side,
    /// How it is counted.
    pub counting: Counting,
    /// The trial; of a boot its first one.
    pub trial: &'o Observation,
}

impl Question {
    /// Which level is that of `factors`, if it is one of the two.
    fn side(&self, factors: &Factors) -> Option<Side> {
        let level = factors.level(&self.factor)?;
        if *level == self.a { Some(Side::A) } else { (*level == self.b).then_some(Side::B) }
    }

    /// The trials that have one of the two levels.
    pub fn units<'o>(&self, observations: impl IntoIterator<Item = &'o Observation>) -> Vec<Unit<'o>> {
        let mut sides = ByFactors::new();
        let unit = |trial: &'o Observation| {
            let side = sides.of(&trial.factors, |factors| self.side(factors))?;
            Some(Unit { side, counting: trial.counting, trial })
        };
        observations.into_iter().filter_map(unit).collect()
    }

    /// How the trials are counted.
    fn method(&self) -> Method {
        if self.peeked { Method::ConfidenceSequence } else { Method::ClopperPearson }
    }

    /// The label of a level.
    fn label(&self, side: Side) -> &str {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

/// The counted trials of a level.
fn counts(units: &[Unit<'_>], side: Side) -> Counts {
    of_side(units, side).fold(Counts::default(), |counts, unit| unit.counting.added_to(counts))
}

fn of_side<'u, 'o>(units: &'u [Unit<'o>], side: Side) -> impl Iterator<Item = &'u Unit<'o>> {
    units.iter().filter(move |unit| unit.side == side)
}

/// How many of a level are in no rate.
fn excluded(units: &[Unit<'_>], side: Side) -> u64 {
    of_side(units, side).filter(|unit| !unit.counting.is_counted()).count() as u64
}

fn level(units: &[Unit<'_>], question: &Question, side: Side) -> Level {
    Level {
        label: question.label(side).to_owned(),
        rate: Rate::of(counts(units, side), question.method()),
        excluded: excluded(units, side),
        says: String::new(),
    }
}

/// The e-values of both directions over the interleaved blocks. Each is a claim of its own: "the first faults more often"
/// is wrong at most 5 % of the time, and so is the contrary.
#[derive(Debug, Default)]
struct EValues {
    first_is_higher: EValue,
    second_is_higher: EValue,
    blocks: u64,
}

impl EValues {
    /// Over the blocks of `units` that hold both levels under like conditions.
    fn of(units: &[Unit<'_>], question: &Question) -> Self {
        // The factors, but for the one compared, that trials have in common, as a number.
        let mut others: BTreeMap<Vec<(&String, &Option<String>)>, usize> = BTreeMap::new();
        let mut others_of = ByFactors::new();
        let mut place_of: BTreeMap<(&Block, usize), usize> = BTreeMap::new();
        let mut blocks: Vec<Arms> = Vec::new();
        for unit in units {
            let Some(block) = &unit.trial.block else { continue };
            let others = others_of.of(&unit.trial.factors, |factors| {
                let number = others.len();
                *others.entry(factors.iter().filter(|(name, _)| **name != question.factor).collect()).or_insert(number)
            });
            let place = *place_of.entry((block, others)).or_insert(blocks.len());
            if place == blocks.len() {
                blocks.push(Arms::default());
            }
            let arms = &mut blocks[place];
            match unit.side {
                Side::A => arms.a = unit.counting.added_to(arms.a),
                Side::B => arms.b = unit.counting.added_to(arms.b),
            }
        }
        let mut e = Self::default();
        for block in blocks {
            if block.a.counted() > 0 && block.b.counted() > 0 {
                e.first_is_higher.add(block);
                e.second_is_higher.add(block.swapped());
                e.blocks += 1;
            }
        }
        e
    }

    fn larger(&self) -> f64 {
        self.first_is_higher.value().max(self.second_is_higher.value())
    }

    /// The conclusion of trials whose number depended on what was seen: the exact test may then not establish anything,
    /// and the e-value may.
    fn confirm(&self, by_exact_test: Conclusion, question: &Question) -> Conclusion {
        let is_shown = self.larger() >= E_THRESHOLD;
        match by_exact_test {
            _ if !question.peeked => by_exact_test,
            Conclusion::Established if !is_shown => Conclusion::Suggestive,
            Conclusion::Underpowered | Conclusion::Suggestive | Conclusion::NotShown if is_shown => {
                Conclusion::Established
            }
            Conclusion::NoData
            | Conclusion::Confounded
            | Conclusion::UnknownFactor
            | Conclusion::Underpowered
            | Conclusion::Uninformative
            | Conclusion::Established
            | Conclusion::OrderConfounded
            | Conclusion::Suggestive
            | Conclusion::NotShown => by_exact_test,
        }
    }
}

fn second(strata: &[Stratum]) -> Second {
    let tables: Vec<Arms> = strata.iter().map(|stratum| stratum.arms()).collect();
    if let [table] = tables[..] {
        let ends = |interval: crate::decide::stats::Interval| (interval.low, interval.high);
        return Second {
            boschloo_p: boschloo(table).map(|tails| tails.two_sided),
            barnard_p: barnard(table).map(|barnard| barnard.two_sided),
            mid_p: Some(fisher_mid(table).two_sided),
            newcombe: Some(ends(newcombe(table, Confidence::P95))),
            miettinen_nurminen: Some(ends(miettinen_nurminen(table, Confidence::P95))),
            chance_first_is_larger: Some(chance_first_is_larger(table)),
            ..Second::default()
        };
    }
    let sum = tables.iter().fold(Arms::default(), |sum, table| sum.plus(*table));
    let has_empty_cell = [sum.a.faults, sum.a.clean, sum.b.faults, sum.b.clean].contains(&0);
    if tables.len() < 2 || has_empty_cell {
        return Second::default();
    }
    let estimate = mantel_haenszel(&tables);
    Second {
        mantel_haenszel_chi_square: Some(estimate.chi_square),
        mantel_haenszel_odds_ratio: estimate.odds_ratio.is_finite().then_some(estimate.odds_ratio),
        ..Second::default()
    }
}

/// Whether the faults of one level came earlier or later than its clean trials: the two-sided p of the order, if there
/// are both.
fn drift(units: &[Unit<'_>], side: Side) -> Option<f64> {
    let order = |wanted: Counting| -> Vec<f64> {
        let of_kind = of_side(units, side).filter(|unit| unit.counting == wanted);
        of_kind.filter_map(|unit| unit.trial.figures.get(ORDER).copied()).collect()
    };
    mann_whitney(&order(Counting::Fault), &order(Counting::Clean)).map(|test| test.p)
}

#[cfg(test)]
mod tests;
