//! Which trials would say more, and how many of them: the cheapest first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::guard::{Guarded, Stratum};
use super::observation::STATE;
use super::{ALPHA, Conclusion, Question, Side};
use crate::decide::stats::{Arms, Confidence, Counts, RATE_UNKNOWN, Sprt, clean_trials_for, smallest_p};
use crate::model::settings::Start;
use crate::model::units::counted;

/// The most trials that are looked ahead for one need.
const AHEAD_MAX: u64 = 300;

/// The most needs that are listed.
const NEEDS_MAX: usize = 3;

/// Trials that would say more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Need {
    /// The level of the compared factor that they must have.
    pub level: String,
    /// The levels of other factors that they must have, as far as those vary.
    pub levels: BTreeMap<String, String>,
    /// How many.
    pub trials: u64,
    /// How many boots that takes: one for each cold trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boots: Option<u64>,
    /// Whether as many of the other level must run between them, in an order drawn from the seed.
    pub in_pairs: bool,
    /// The smallest p that can be reached with them; absent where that is not what they are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_p: Option<f64>,
}

impl Need {
    fn new(level: &str, levels: &BTreeMap<String, String>, trials: u64, question: &Question) -> Self {
        let is_cold = levels.get(STATE).map(String::as_str) == Some(Start::Cold.as_str())
            || (question.factor == STATE && level == Start::Cold.as_str());
        Self {
            level: level.to_owned(),
            levels: levels.clone(),
            trials,
            boots: is_cold.then_some(trials),
            in_pairs: false,
            reaches_p: None,
        }
    }

    /// The cell in words: `0.49.2 × state=cold`.
    pub fn cell(&self) -> String {
        let others = self.levels.iter().map(|(name, level)| format!(" × {name}={level}"));
        std::iter::once(self.level.clone()).chain(others).collect()
    }

    /// `0.49.2 × state=cold, 6 trials (6 boots)`.
    pub fn in_words(&self) -> String {
        let pairs = if self.in_pairs { "pair" } else { "trial" };
        let boots = self.boots.map(|boots| format!(" ({})", counted(boots, "boot"))).unwrap_or_default();
        format!("{}, {}{boots}", self.cell(), counted(self.trials, pairs))
    }
}

/// The needs of a comparison that ended so.
pub(super) fn needs(guarded: &Guarded, conclusion: Conclusion, question: &Question) -> Vec<Need> {
    let mut needs = match conclusion {
        Conclusion::Established | Conclusion::NoData => Vec::new(),
        Conclusion::Confounded | Conclusion::UnknownFactor => counterparts(guarded, question),
        Conclusion::Underpowered => more_of_the_same(guarded, question).into_iter().collect(),
        Conclusion::OrderConfounded | Conclusion::Suggestive | Conclusion::NotShown | Conclusion::Uninformative => {
            pairs(guarded, question).into_iter().collect()
        }
    };
    needs.sort_by_key(|need: &Need| (need.boots.unwrap_or(need.trials), need.trials));
    needs.truncate(NEEDS_MAX);
    needs
}

/// For each stratum with one level only: the trials of the other level that it needs.
fn counterparts(guarded: &Guarded, question: &Question) -> Vec<Need> {
    let counterpart = |stratum: &Stratum| {
        let (there, missing) = if stratum.a.1 > 0 { (stratum.a, Side::B) } else { (stratum.b, Side::A) };
        let there = Counts::of(there.0, there.1)?;
        let powered = (1..=AHEAD_MAX).find(|trials| {
            let new = Counts { faults: 0, clean: *trials };
            smallest_p(&[Arms { a: there, b: new }]) <= ALPHA
        })?;
        let trials = powered.max(clean_trials_to_tell(there));
        Some(Need::new(question.label(missing), &stratum.levels, trials, question))
    };
    guarded.lonely.iter().filter_map(counterpart).collect()
}

/// The clean trials after which a rate is below that of a level with these counts; of the default rate where it has no
/// fault.
fn clean_trials_to_tell(there: Counts) -> u64 {
    let rate = if there.faults > 0 { Sprt::rate_against(there) } else { RATE_UNKNOWN };
    clean_trials_for(rate, Confidence::P95)
}

/// The fewest trials more in the largest stratum with which a difference could be shown at all.
fn more_of_the_same(guarded: &Guarded, question: &Question) -> Option<Need> {
    let tables: Vec<Arms> = guarded.strata.iter().map(Stratum::arms).collect();
    let largest = (0..tables.len()).max_by_key(|at| tables[*at].counted())?;
    let with = |a: u64, b: u64| {
        let mut tables = tables.clone();
        tables[largest] =
            tables[largest].plus(Arms { a: Counts { faults: 0, clean: a }, b: Counts { faults: 0, clean: b } });
        smallest_p(&tables)
    };
    let added = |total: u64| (0..=total).map(move |a| (a, total - a));
    let (a, b) = (1..=AHEAD_MAX.min(60)).flat_map(added).find(|(a, b)| with(*a, *b) <= ALPHA)?;
    let levels = &guarded.strata[largest].levels;
    let reaches_p = Some(with(a, b));
    if a > 0 && b > 0 {
        return Some(Need { reaches_p, ..in_pairs(question, levels, a.max(b)) });
    }
    let (side, trials) = if a > 0 { (Side::A, a) } else { (Side::B, b) };
    Some(Need { reaches_p, ..Need::new(question.label(side), levels, trials, question) })
}

/// Interleaved pairs in the stratum with the most faults: as many as clean trials tell its clean level from its faulty
/// one.
fn pairs(guarded: &Guarded, question: &Question) -> Option<Need> {
    let most = guarded.strata.iter().max_by_key(|stratum| (stratum.a.0 + stratum.b.0, stratum.a.1 + stratum.b.1))?;
    let Arms { a, b } = most.arms();
    let needed = [a, b].map(clean_trials_to_tell);
    Some(in_pairs(question, &most.levels, needed[0].min(needed[1])))
}

fn in_pairs(question: &Question, levels: &BTreeMap<String, String>, pairs: u64) -> Need {
    let level = format!("{} and {}", question.a, question.b);
    let need = Need::new(&level, levels, pairs, question);
    Need { in_pairs: true, boots: need.boots.map(|boots| 2 * boots), ..need }
}
