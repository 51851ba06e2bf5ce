//! One cell of a report: its tallies by provenance, and a bounded memory of what its trials were like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RunFacts;
use super::rate::{Rate, Rates};
use crate::decide::plan::{Cell, CellRole, Plan, PredictedPeak};
use crate::decide::result::TrialResult;
use crate::decide::stats::Counts;
use crate::model::ids::{CellId, TrialId};
use crate::model::matrix::VerdictName;
use crate::model::outcome::PeakMemory;
use crate::model::verdict::{Counted, Provenance, RebootCause, Role, Signature, Verdict};

/// The most signatures told apart in one cell and provenance; trials with further ones are only counted.
pub const TALLIED_SIGNATURES_MAX: usize = 16;

/// The most reasons told apart why trials of one cell were excluded.
pub const TALLIED_REASONS_MAX: usize = 8;

/// The most durations of one cell, provenance and kind that a median is taken of.
pub const TALLIED_DURATIONS_MAX: usize = 1000;

/// A cell's part of the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// Its id.
    pub id: CellId,
    /// Its label.
    pub label: String,
    /// Its level of every axis.
    pub levels: BTreeMap<String, String>,
    /// What it is for.
    pub role: CellRole,
    /// What a control shows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shows: String,
    /// How many counted trials were asked for; for `until-decided` the most.
    pub wanted: u32,
    /// The counted trials, apart for each provenance.
    pub samples: Vec<Sampled>,
    /// Trials in no rate, by verdict.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub excluded: BTreeMap<Verdict, u64>,
    /// Why they were excluded, the commonest reason first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_why: Vec<Reason>,
    /// Trials that served another end.
    #[serde(default, skip_serializing_if = "Uncounted::is_empty")]
    pub uncounted: Uncounted,
    /// If the run is over, or the cell was set aside, with fewer counted trials than asked for: how and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<Short>,
    /// What the matrix expects, and whether it came so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Expectation>,
    /// The peak memory that its allocation sequence predicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<PredictedPeak>,
}

impl CellReport {
    /// Counted trials of every provenance: how much was tried, never the denominator of a rate.
    pub fn counted(&self) -> u64 {
        self.samples.iter().map(|sampled| sampled.rate.counted).sum()
    }

    /// Counted trials of this provenance.
    pub fn of_provenance(&self, provenance: Provenance) -> Option<&Sampled> {
        self.samples.iter().find(|sampled| sampled.provenance == provenance)
    }

    /// Trials in no rate.
    pub fn excluded_total(&self) -> u64 {
        self.excluded.values().sum()
    }
}

/// Counted trials of one cell and one provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Where their numbers come from.
    pub provenance: Provenance,
    /// What they say about the rate.
    pub rate: Rate,
    /// Faults by verdict.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub faults: BTreeMap<Verdict, u64>,
    /// Trials without a fault.
    pub clean: u64,
    /// What makes faults the same, the commonest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<SignatureCount>,
    /// Faults whose signatures were too many to be told apart.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub signatures_left_out: u64,
    /// How long clean trials took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean_ms: Option<Durations>,
    /// How long faulty trials took until their end, where it was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_ms: Option<Durations>,
    /// The highest memory peaks of any of these trials, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<PeakMemory>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A signature and how often it was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignatureCount {
    /// The signature, with its stage.
    pub signature: Signature,
    /// How often.
    pub count: u64,
    /// For reboots: how often each cause was found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<RebootCause, u64>,
    /// The longest time after the stage of which nothing was recorded, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded_ms: Option<u64>,
    /// The first trial that had it, for `explain`.
    pub first: TrialId,
}

/// How long trials took, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// How many trials.
    pub trials: u64,
    /// The middle one, or the mean of the two in the middle, of the first [`TALLIED_DURATIONS_MAX`].
    pub median: u64,
    /// The shortest of all.
    pub shortest: u64,
    /// The longest of all.
    pub longest: u64,
}

/// A reason and how often it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The verdict.
    pub verdict: Verdict,
    /// Label of the rule that gave it.
    pub rule: String,
    /// In words, if more was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How often.
    pub count: u64,
}

/// Trials that are in no rate because they served another end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Uncounted {
    /// Trials that made the machine warm, or proved the chain of evidence.
    pub trials: u64,
    /// How many of them had a fault of their own.
    pub faults: u64,
}

impl Uncounted {
    pub(super) fn is_empty(&self) -> bool {
        self.trials == 0
    }

    pub(super) fn add(&mut self, verdict: Verdict) {
        self.trials += 1;
        self.faults += u64::from(verdict.counted() == Counted::Fault);
    }
}

/// Fewer counted trials than asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Short {
    /// Asked for.
    pub wanted: u32,
    /// Counted.
    pub counted: u64,
    /// Whether the cell was given up: it cannot run here, or its last starts gave nothing.
    pub set_aside: bool,
}

/// What the matrix expects of a cell, and whether it came so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The verdict.
    pub verdict: VerdictName,
    /// Whether it came so.
    pub met: Met,
}

/// Whether an expectation was met, judged over the foremost provenance that has trials.
///
/// A fault that is expected is there once one trial has it. A pass that is expected holds as long as no trial faults,
/// which is no more than the bound of the cell's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Met {
    /// As expected.
    Met,
    /// Otherwise.
    NotMet,
    /// No counted trial.
    Untested,
}

impl Met {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Met::Met => "met",
            Met::NotMet => "not met",
            Met::Untested => "untested",
        }
    }
}

/// A cell's part in the making.
#[derive(Debug, Default)]
pub(super) struct CellFold {
    samples: BTreeMap<Provenance, SampledFold>,
    excluded: BTreeMap<Verdict, u64>,
    reasons: Vec<Reason>,
    uncounted: Uncounted,
}

impl CellFold {
    /// Takes note of `result`; gives the provenance under which it was counted, if it was.
    pub(super) fn add(&mut self, role: CellRole, result: &TrialResult) -> Option<Provenance> {
        let verdict = result.judgement.verdict;
        let started = result.started.as_ref().map(|started| &started.started);
        let is_own = match (started.map(|started| started.role), role) {
            (None, _) | (Some(Role::Sample), CellRole::Sample) | (Some(Role::Control), CellRole::Control) => true,
            (Some(Role::Warming | Role::Drill), _)
            | (Some(_), CellRole::Warming)
            | (Some(Role::Control), CellRole::Sample)
            | (Some(Role::Sample), CellRole::Control) => false,
        };
        if !is_own {
            self.uncounted.add(verdict);
            return None;
        }
        match (verdict.counted(), started) {
            (Counted::Clean | Counted::Fault, Some(started)) => {
                self.samples.entry(started.provenance).or_default().add(result);
                Some(started.provenance)
            }
            // A trial that never started has no provenance, and can only be void.
            (Counted::Excluded, _) | (Counted::Clean | Counted::Fault, None) => {
                *self.excluded.entry(verdict).or_default() += 1;
                self.exclude(result);
                None
            }
        }
    }

    fn exclude(&mut self, result: &TrialResult) {
        let (verdict, why) = (result.judgement.verdict, &result.judgement.detail);
        let is_known =
            |reason: &&mut Reason| (reason.verdict, &reason.rule, &reason.why) == (verdict, &result.rule, why);
        if let Some(reason) = self.reasons.iter_mut().find(is_known) {
            reason.count += 1;
        } else if self.reasons.len() < TALLIED_REASONS_MAX {
            self.reasons.push(Reason { verdict, rule: result.rule.clone(), why: why.clone(), count: 1 });
        }
    }

    /// The cell's part, when every result is in.
    pub(super) fn finish(mut self, plan: &Plan, cell: &Cell, run: &RunFacts, rates: &Rates) -> CellReport {
        self.reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        let expectation = cell.expect.map(|verdict| Expectation { verdict, met: self.met(verdict) });
        let samples: Vec<Sampled> =
            self.samples.into_iter().map(|(provenance, fold)| fold.finish(provenance, rates)).collect();
        let wanted = plan.rounds(cell);
        let counted = samples.iter().map(|sampled| sampled.rate.counted).sum();
        let set_aside = run.set_aside.contains(&cell.id);
        let is_over = run.standing.is_final() || set_aside;
        // The number of an `until-decided` plan is a limit and not a wish: only a cell that was given up is short.
        let is_short = is_over && counted < u64::from(wanted) && (!plan.is_bound() || set_aside);
        CellReport {
            id: cell.id.clone(),
            label: cell.label.clone(),
            levels: cell.levels.clone(),
            role: cell.role,
            shows: cell.shows.clone(),
            wanted,
            samples,
            excluded: self.excluded,
            excluded_why: self.reasons,
            uncounted: self.uncounted,
            short: is_short.then_some(Short { wanted, counted, set_aside }),
            expectation,
            predicted: cell.predicted.clone(),
        }
    }

    fn met(&self, expected: VerdictName) -> Met {
        let is_expected = |verdict: &Verdict| verdict.as_str() == expected.as_str();
        if self.excluded.keys().any(is_expected) {
            return Met::Met;
        }
        let Some(fold) = self.samples.values().next() else { return Met::Untested };
        let came = match expected {
            VerdictName::Pass => fold.faults.is_empty(),
            VerdictName::WrongResult
            | VerdictName::CudaError
            | VerdictName::CudaOom
            | VerdictName::OomKill
            | VerdictName::Killed
            | VerdictName::Crash
            | VerdictName::Hang
            | VerdictName::Unkillable
            | VerdictName::Error
            | VerdictName::ArtifactMissing
            | VerdictName::Reboot => fold.faults.keys().any(is_expected),
        };
        if came { Met::Met } else { Met::NotMet }
    }
}

/// Counted trials of one provenance in the making.
#[derive(Debug, Default)]
struct SampledFold {
    faults: BTreeMap<Verdict, u64>,
    clean: u64,
    signatures: Vec<SignatureCount>,
    signatures_left_out: u64,
    clean_ms: DurationsFold,
    fault_ms: DurationsFold,
    peak_memory: Option<PeakMemory>,
}

impl SampledFold {
    fn add(&mut self, result: &TrialResult) {
        let is_fault = result.judgement.verdict.counted() == Counted::Fault;
        if is_fault {
            *self.faults.entry(result.judgement.verdict).or_default() += 1;
            self.sign(result);
        } else {
            self.clean += 1;
        }
        let Some(outcome) = &result.outcome else { return };
        let durations = if is_fault { &mut self.fault_ms } else { &mut self.clean_ms };
        durations.add(outcome.duration_ms);
        if outcome.peak_memory != PeakMemory::default() {
            let so_far = self.peak_memory.unwrap_or_default();
            self.peak_memory = Some(highest(so_far, outcome.peak_memory));
        }
    }

    fn sign(&mut self, result: &TrialResult) {
        let judgement = &result.judgement;
        let signature = judgement.signature.clone().unwrap_or_else(|| Signature {
            verdict: judgement.verdict,
            status: None,
            place: None,
            stage: judgement.stage.clone(),
        });
        let known = self.signatures.iter().position(|known| known.signature == signature);
        let index = match known {
            Some(index) => index,
            None if self.signatures.len() < TALLIED_SIGNATURES_MAX => {
                let first = result.trial.clone();
                let causes = BTreeMap::new();
                self.signatures.push(SignatureCount { signature, count: 0, causes, unrecorded_ms: None, first });
                self.signatures.len() - 1
            }
            None => {
                self.signatures_left_out += 1;
                return;
            }
        };
        let signed = &mut self.signatures[index];
        signed.count += 1;
        signed.unrecorded_ms = signed.unrecorded_ms.max(judgement.unrecorded_ms);
        if let Some(cause) = judgement.cause {
            *signed.causes.entry(cause).or_default() += 1;
        }
    }

    fn finish(mut self, provenance: Provenance, rates: &Rates) -> Sampled {
        self.signatures.sort_by_key(|signed| std::cmp::Reverse(signed.count));
        let counts = Counts { faults: self.faults.values().sum(), clean: self.clean };
        Sampled {
            provenance,
            rate: rates.of(counts),
            faults: self.faults,
            clean: self.clean,
            signatures: self.signatures,
            signatures_left_out: self.signatures_left_out,
            clean_ms: self.clean_ms.finish(),
            fault_ms: self.fault_ms.finish(),
            peak_memory: self.peak_memory,
        }
    }
}

fn highest(a: PeakMemory, b: PeakMemory) -> PeakMemory {
    PeakMemory {
        host: a.host.max(b.host),
        device_allocated: a.device_allocated.max(b.device_allocated),
        device_reserved: a.device_reserved.max(b.device_reserved),
        host_plus_reserved: a.host_plus_reserved.max(b.host_plus_reserved),
    }
}

/// Durations in the making: the first of them for the median, the range of all.
#[derive(Debug, Default)]
struct DurationsFold {
    kept: Vec<u64>,
    trials: u64,
    range: Option<(u64, u64)>,
}

impl DurationsFold {
    fn add(&mut self, ms: u64) {
        self.trials += 1;
        self.range = Some(self.range.map_or((ms, ms), |(low, high)| (low.min(ms), high.max(ms))));
        if self.kept.len() < TALLIED_DURATIONS_MAX {
            self.kept.push(ms);
        }
    }

    fn finish(mut self) -> Option<Durations> {
        let (shortest, longest) = self.range?;
        self.kept.sort_unstable();
        let (low, high) = (self.kept[(self.kept.len() - 1) / 2], self.kept[self.kept.len() / 2]);
        Some(Durations { trials: self.trials, median: low.midpoint(high), shortest, longest })
    }
}
