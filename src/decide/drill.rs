//! What a drill shows: whether each fault that was committed on purpose got its name, by which evidence, and what mends
//! the machine where one did not.
//!
//! Pure: it is made of the verdicts of a run and of the machine's checks, and judges nothing anew.

use serde::{Deserialize, Serialize};

use crate::decide::explain::{RuleApplied, rule_applied};
use crate::decide::plan::{Cell, Plan};
use crate::decide::result::TrialResult;
use crate::model::fitness::{Check, CheckState};
use crate::model::ids::{RunId, TrialId};
use crate::model::matrix::FaultName;
use crate::model::verdict::{Judgement, RebootCause, Verdict};
use crate::model::words::words;

/// Name and version of the JSON of `doctor --drill`.
pub const DRILL_SCHEMA: &str = "jetfault.drill/1";

words! {
    /// What became of one fault.
    Told {
        /// It was called what it was.
        Named = "named",
        /// The evidence does not say what it was.
        Unnamed = "unnamed",
        /// It was taken for something else.
        Mistaken = "mistaken",
        /// It was not committed.
        Untried = "untried",
        /// Its trial has no verdict yet.
        Pending = "pending",
    }
}

/// One fault, and what this machine made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillRow {
    /// The fault; absent for the trial without one, which has to pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultName>,
    /// Verdict and cause that are its name.
    pub expected: String,
    /// What became of it.
    pub told: Told,
    /// The trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialId>,
    /// What it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// What refines that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleApplied>,
    /// Evidence that was missing, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Checks of this machine that bear on the fault and are not as they should be, each with what mends it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mending: Vec<Check>,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    /// [`DRILL_SCHEMA`].
    pub schema: String,
    /// The run that committed the faults.
    pub run: RunId,
    /// The faults, in the order of the matrix.
    pub rows: Vec<DrillRow>,
}

impl Drill {
    /// The table of a run of `plan` with these results and of a machine with these checks.
    pub fn of(run: RunId, plan: &Plan, results: &[TrialResult], checks: &[Check]) -> Self {
        // The last trial of a cell counts: those before it were excluded and repeated.
        let row = |cell: &Cell| row(cell, results.iter().rev().find(|result| result.trial.cell == cell.id), checks);
        Self { schema: DRILL_SCHEMA.to_owned(), run, rows: plan.cells.iter().map(row).collect() }
    }

    /// Whether some fault waits for its verdict or was not committed.
    pub fn is_unfinished(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.told, Told::Pending | Told::Untried))
    }

    /// Whether every fault got its name.
    pub fn is_proven(&self) -> bool {
        self.rows.iter().all(|row| row.told == Told::Named)
    }

    /// The table as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a drill has no maps");
        json.push(b'\n');
        json
    }
}

/// Verdict and cause that are the name of `fault`; without one a trial passes.
fn name_of(fault: Option<FaultName>) -> (Verdict, Option<RebootCause>) {
    match fault {
        None | Some(FaultName::Slow) => (Verdict::Pass, None),
        Some(FaultName::Reset) => (Verdict::Reboot, Some(RebootCause::SoftwareReset)),
        Some(FaultName::Panic) => (Verdict::Reboot, Some(RebootCause::Panic)),
        Some(FaultName::Poweroff) => (Verdict::Reboot, Some(RebootCause::Power)),
        Some(FaultName::Freeze) => (Verdict::Reboot, Some(RebootCause::Watchdog)),
        Some(FaultName::Hang | FaultName::Spin) => (Verdict::Hang, None),
        Some(FaultName::Segv | FaultName::Abort) => (Verdict::Crash, None),
        Some(FaultName::Oom) => (Verdict::OomKill, None),
        Some(FaultName::Exit) => (Verdict::Error, None),
        Some(FaultName::Wrong) => (Verdict::WrongResult, None),
        Some(FaultName::CudaError) => (Verdict::CudaError, None),
    }
}

/// The checks of `doctor` that bear on `fault`, by name.
fn checks_of(fault: Option<FaultName>) -> &'static [&'static str] {
    match fault {
        Some(FaultName::Reset | FaultName::Poweroff) => {
            &["journal", "list-of-boots", "crash-records", "drive-counters"]
        }
        Some(FaultName::Panic) => &["journal", "list-of-boots", "crash-records", "panic-settings"],
        Some(FaultName::Freeze) => &["journal", "list-of-boots", "watchdog"],
        Some(FaultName::Oom) => &["kernel-log-marks", "oom-protection"],
        Some(FaultName::Segv | FaultName::Abort) => &["core-pattern"],
        Some(FaultName::Hang | FaultName::Spin | FaultName::Exit | FaultName::Wrong)
        | Some(FaultName::CudaError | FaultName::Slow)
        | None => &[],
    }
}

fn row(cell: &Cell, result: Option<&TrialResult>, checks: &[Check]) -> DrillRow {
    let fault = cell.inject.first().map(|inject| inject.fault);
    let name = name_of(fault);
    let judgement = result.map(|result| &result.judgement);
    let told = judgement.map_or(Told::Pending, |judgement| told(name, judgement));
    let bears = |check: &&Check| check.state != CheckState::Ok && checks_of(fault).contains(&check.name.as_str());
    DrillRow {
        fault,
        expected: words_of(name),
        told,
        trial: result.map(|result| result.trial.clone()),
        named: judgement.map(|judgement| words_of((judgement.verdict, judgement.cause))),
        detail: judgement.and_then(|judgement| judgement.detail.clone()),
        rule: result.map(|result| rule_applied(&result.rule)),
        missing: judgement.map(|judgement| judgement.missing.clone()).unwrap_or_default(),
        mending: match told {
            Told::Named => Vec::new(),
            Told::Unnamed | Told::Mistaken | Told::Untried | Told::Pending => {
                checks.iter().filter(bears).cloned().collect()
            }
        },
    }
}

fn told(name: (Verdict, Option<RebootCause>), judgement: &Judgement) -> Told {
    match (judgement.verdict, judgement.cause) {
        found if found == name => Told::Named,
        (Verdict::Void, _) => Told::Untried,
        (Verdict::Reboot, Some(RebootCause::Undetermined)) if name.0 == Verdict::Reboot => Told::Unnamed,
        (Verdict::Killed, _) if name.0 == Verdict::OomKill => Told::Unnamed,
        _ => Told::Mistaken,
    }
}

fn words_of((verdict, cause): (Verdict, Option<RebootCause>)) -> String {
    match cause {
        Some(cause) => format!("{} {}", verdict.as_str(), cause.as_str()),
        None => verdict.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::plan::{PlanOptions, expand};
    use crate::decide::result::RESULT_SCHEMA;
    use crate::model::matrix::parse;

    fn judged(verdict: Verdict, cause: Option<RebootCause>) -> Judgement {
        Judgement { cause, ..Judgement::of(verdict) }
    }

    #[test]
    fn a_fault_is_named_or_not_or_taken_for_another() {
        use RebootCause::{Panic, SoftwareReset, Undetermined};
        for (fault, found, expected) in [
            (None, judged(Verdict::Pass, None), Told::Named),
            (None, judged(Verdict::Reboot, Some(Undetermined)), Told::Mistaken),
            (Some(FaultName::Reset), judged(Verdict::Reboot, Some(SoftwareReset)), Told::Named),
            (Some(FaultName::Reset), judged(Verdict::Reboot, Some(Undetermined)), Told::Unnamed),
            (Some(FaultName::Freeze), judged(Verdict::Reboot, Some(Panic)), Told::Mistaken),
            (Some(FaultName::Panic), judged(Verdict::Void, None), Told::Untried),
            (Some(FaultName::Oom), judged(Verdict::OomKill, None), Told::Named),
            (Some(FaultName::Oom), judged(Verdict::Killed, None), Told::Unnamed),
            (Some(FaultName::Oom), judged(Verdict::Reboot, Some(Undetermined)), Told::Mistaken),
        ] {
            assert_eq!(told(name_of(fault), &found), expected, "{fault:?} as {found:?}");
        }
    }

    fn drill_plan() -> Plan {
        let text = include_str!("../../matrices/drill.toml");
        expand(&parse(text, "drill", &[]).unwrap(), &PlanOptions::default()).unwrap()
    }

    fn result(plan: &Plan, fault: FaultName, judgement: Judgement) -> TrialResult {
        let cell = plan.cells.iter().find(|cell| cell.inject.first().is_some_and(|inject| inject.fault == fault));
        TrialResult {
            schema: RESULT_SCHEMA.to_owned(),
            trial: TrialId { cell: cell.unwrap().id.clone(), round: 1, attempt: 1 },
            started: None,
            running: true,
            stages: Vec::new(),
            stages_more: 0,
            outcome: None,
            judgement,
            rule: "panic-record".to_owned(),
            corrects: None,
            judged_in: "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap(),
            judged_wall: serde_json::from_str("\"2026-11-30T09:43:12.101Z\"").unwrap(),
        }
    }

    #[test]
    fn what_bears_on_a_fault_without_a_name_is_to_be_mended() {
        let plan = drill_plan();
        let results = [
            result(&plan, FaultName::Reset, judged(Verdict::Reboot, Some(RebootCause::SoftwareReset))),
            result(&plan, FaultName::Panic, judged(Verdict::Reboot, Some(RebootCause::Undetermined))),
        ];
        let bad = |name| Check::bad(name, CheckState::Warning, "not as it should be", "mend it");
        let checks = [bad("crash-records"), bad("watchdog"), bad("clock"), Check::ok("journal", "on the disk")];
        let drill = Drill::of("drill-001".parse().unwrap(), &plan, &results, &checks);
        let of = |fault| drill.rows.iter().find(|row| row.fault == fault).unwrap();
        let mending = |fault| Vec::from_iter(of(fault).mending.iter().map(|check| check.name.as_str()));
        assert_eq!((of(Some(FaultName::Reset)).told, mending(Some(FaultName::Reset)).len()), (Told::Named, 0));
        assert_eq!(of(Some(FaultName::Panic)).told, Told::Unnamed);
        assert_eq!(mending(Some(FaultName::Panic)), ["crash-records"]);
        assert_eq!((of(Some(FaultName::Freeze)).told, of(None).told), (Told::Pending, Told::Pending));
        assert_eq!(mending(Some(FaultName::Freeze)), ["watchdog"]);
        assert!(drill.is_unfinished() && !drill.is_proven());
    }
}
