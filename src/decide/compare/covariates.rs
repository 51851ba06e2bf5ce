//! Which numbers of the trials separate faults from clean trials: an exact rank test of each, adjusted by Holm.
//!
//! A search for hints, not a proof: what separates may be a cause, a consequence, or a stand-in for what the cells were
//! set to. So it stands behind the same guard: a start state that is unknown, or the same as the answer, is said.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::guard::{Standing, guard};
use super::{ByFactors, Counting, FactorCheck, Observation, Question};
use crate::decide::stats::{holm, mann_whitney};
use crate::model::ids::RunId;
use crate::model::verdict::Provenance;

/// Name and version of the format of a ranking of covariates.
pub const COVARIATES_SCHEMA: &str = "jetfault.covariates/1";

/// The factor that stands for whether a trial faulted.
const OUTCOME: &str = "outcome";

/// A number and how well it separates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Covariate {
    /// Its name, with the unit last.
    pub name: String,
    /// The chance that it is higher in a fault than in a clean trial; 0.5 tells nothing.
    pub auc: f64,
    /// Two-sided p of the rank test.
    pub p: f64,
    /// The same, adjusted for the other numbers.
    pub holm_p: f64,
    /// Its median in faults.
    pub in_faults: f64,
    /// Its median in clean trials.
    pub in_clean: f64,
    /// How many faults and clean trials have it.
    pub trials: (u64, u64),
}

/// The ranking for one provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Covariates {
    /// [`COVARIATES_SCHEMA`].
    pub schema: String,
    /// The runs.
    pub runs: Vec<RunId>,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// The numbers, the one that separates best first.
    pub ranked: Vec<Covariate>,
    /// Factors that the answer cannot be told from: aliased with it, or not recorded.
    pub guarded: Vec<FactorCheck>,
    /// What must be known to read it rightly.
    pub notes: Vec<String>,
}

impl Covariates {
    /// The ranking as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a ranking has string keys and finite numbers");
        json.push(b'\n');
        json
    }
}

/// Ranks the numbers of `observations` of one provenance.
pub fn covariates(observations: &[Observation], runs: Vec<RunId>, provenance: Provenance) -> Covariates {
    let counted: Vec<&Observation> = observations
        .iter()
        .filter(|observation| observation.provenance == provenance && observation.counting.is_counted())
        .collect();
    let names: BTreeSet<&'static str> =
        counted.iter().flat_map(|observation| observation.figures.keys().copied()).collect();
    let mut ranked: Vec<Covariate> = names.into_iter().filter_map(|name| rank(name, &counted)).collect();
    let adjusted = holm(&ranked.iter().map(|covariate| covariate.p).collect::<Vec<_>>());
    ranked.iter_mut().zip(adjusted).for_each(|(covariate, p)| covariate.holm_p = p);
    let distance = |covariate: &Covariate| (covariate.auc - 0.5).abs();
    ranked.sort_by(|a, b| a.p.total_cmp(&b.p).then(distance(b).total_cmp(&distance(a))));
    let guarded = guarded(&counted);
    let notes = notes(&guarded);
    Covariates { schema: COVARIATES_SCHEMA.to_owned(), runs, provenance, ranked, guarded, notes }
}

fn rank(name: &str, counted: &[&Observation]) -> Option<Covariate> {
    let values = |wanted: Counting| -> Vec<f64> {
        let of_kind = counted.iter().filter(|observation| observation.counting == wanted);
        of_kind.filter_map(|observation| observation.figures.get(name).copied()).collect()
    };
    let (faults, clean) = (values(Counting::Fault), values(Counting::Clean));
    let test = mann_whitney(&faults, &clean)?;
    Some(Covariate {
        name: name.to_owned(),
        auc: test.auc,
        p: test.p,
        holm_p: test.p,
        trials: (faults.len() as u64, clean.len() as u64),
        in_faults: median(faults),
        in_clean: median(clean),
    })
}

/// The middle value, or the mean of the two in the middle; the caller has at least one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The factors that are aliased with the outcome, or were not recorded in some trial: the guard of a comparison whose two
/// levels are "fault" and "clean".
fn guarded<'o>(counted: &[&'o Observation]) -> Vec<FactorCheck> {
    let (mut faulty, mut clean) = (ByFactors::new(), ByFactors::new());
    let with_outcome = |&observation: &&'o Observation| {
        let is_fault = observation.counting == Counting::Fault;
        let (shared, outcome) = if is_fault { (&mut faulty, "fault") } else { (&mut clean, "clean") };
        let factors = shared.of(&observation.factors, |factors| factors.with(OUTCOME, outcome));
        Observation { factors, ..observation.clone() }
    };
    let with_outcome: Vec<Observation> = counted.iter().map(with_outcome).collect();
    let question = Question {
        factor: OUTCOME.to_owned(),
        a: "fault".to_owned(),
        b: "clean".to_owned(),
        axes: BTreeSet::new(),
        peeked: false,
    };
    let mut factors = guard(&question.units(&with_outcome), &question).factors;
    factors.retain(|factor| factor.unknown > 0 || factor.standing == Standing::Aliased);
    factors
}

fn notes(guarded: &[FactorCheck]) -> Vec<String> {
    let note = |factor: &FactorCheck| match (factor.standing, factor.unknown) {
        (Standing::Aliased, _) => format!(
            "{} separates faults from clean trials completely: what is ranked below it may only follow from it",
            factor.name
        ),
        (_, unknown) => {
            format!("{} was not recorded in {unknown} trials: it may be behind what is ranked", factor.name)
        }
    };
    guarded.iter().map(note).collect()
}
