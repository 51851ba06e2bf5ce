//! A run or a night as JUnit XML, for schedulers that read nothing else. Owns the only use of `quick_junit`.
//!
//! Nothing is written that the schema of Jenkins' JUnit plugin does not have.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use crate::cli::dossier::Dossier;
use crate::decide::nightly::{Alarm, CellNight, CellState};
use crate::decide::report::trials::{Close, TrialRow};
use crate::model::verdict::{Counted, Judgement};
use crate::perform::exhibits::Exhibit;
use crate::perform::veil::Veil;

/// The trials of `dossiers`: a suite for each cell, of several runs for each run and cell, a test case for each trial. A
/// fault fails, what is in no rate is skipped. `outputs` are, for each run, the ends of the output of the trials that are
/// looked at closely.
///
/// # Errors
/// If a text cannot be part of XML.
pub(super) fn trials(
    dossiers: &[Dossier],
    outputs: &[Vec<Vec<Exhibit>>],
    veil: &mut Veil,
) -> Result<String, SerializeError> {
    let runs: Vec<String> = dossiers.iter().map(|dossier| veil.text(dossier.report.run.id.as_str())).collect();
    let mut report = Report::new(format!("jetfault {}", runs.join(" ")));
    for (dossier, outputs) in dossiers.iter().zip(outputs) {
        let device = dossier.report.run.device.as_ref().map_or("", |device| device.as_str());
        let before = if dossiers.len() > 1 {
            format!("{} {}: ", veil.text(device), dossier.report.run.id)
        } else {
            String::new()
        };
        report.add_test_suites(suites(dossier, &before, outputs, veil));
    }
    written(&report)
}

/// The suites of `dossier`, `before` at the beginning of their names.
fn suites(dossier: &Dossier, before: &str, outputs: &[Vec<Exhibit>], veil: &mut Veil) -> Vec<TestSuite> {
    let mut close: Vec<Option<(&Close, &[Exhibit])>> = vec![None; dossier.rows.len()];
    for (number, look) in dossier.close.iter().enumerate() {
        close[look.row] = Some((look, outputs.get(number).map_or(&[], Vec::as_slice)));
    }
    let run = veil.text(dossier.report.run.id.as_str());
    let mut suites: Vec<Suite> =
        dossier.plan.cells.iter().map(|cell| Suite::new(&format!("{before}{}", veil.text(&cell.label)))).collect();
    suites.push(Suite::new(&format!("{before}warming")));
    for (row, close) in dossier.rows.iter().zip(close) {
        let suite = &mut suites[row.cell.unwrap_or(dossier.plan.cells.len())];
        suite.add(row, trial(&run, &suite.label, row, close, veil));
    }
    suites.into_iter().filter(|suite| !suite.cases.test_cases.is_empty()).map(Suite::finish).collect()
}

/// `report` as XML. Of a whole report, Jenkins' schema counts what failed and not what was skipped.
fn written(report: &Report) -> Result<String, SerializeError> {
    let xml = report.to_string()?;
    let root = xml.find("<testsuites").unwrap_or(0);
    let end = xml[root..].find('>').map_or(xml.len(), |end| root + end);
    let attribute = |at: usize| xml[root + at + 1..end].find("\" ").map(|to| root + at + 1 + to + 1);
    Ok(match xml[root..end].find(" skipped=\"") {
        Some(at) => format!("{}{}", &xml[..root + at], &xml[attribute(at + " skipped=".len()).unwrap_or(end)..]),
        None => xml,
    })
}

/// The trials of one cell.
struct Suite {
    label: String,
    ms: u64,
    cases: TestSuite,
}

impl Suite {
    fn new(label: &str) -> Self {
        Self { label: label.to_owned(), ms: 0, cases: TestSuite::new(label) }
    }

    fn add(&mut self, row: &TrialRow, case: TestCase) {
        self.ms += row.outcome.as_ref().map_or(0, |outcome| outcome.duration_ms);
        if let Some(start) = row.start.as_ref().filter(|_| self.cases.timestamp.is_none()) {
            self.cases.set_timestamp(start.wall.0);
        }
        self.cases.add_test_case(case);
    }

    fn finish(mut self) -> TestSuite {
        self.cases.set_time(Duration::from_millis(self.ms));
        self.cases
    }
}

fn trial(run: &str, label: &str, row: &TrialRow, close: Option<(&Close, &[Exhibit])>, veil: &mut Veil) -> TestCase {
    let judgement = &row.judgement;
    let mut status = match row.counted {
        Counted::Clean => TestCaseStatus::success(),
        Counted::Fault => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Counted::Excluded => TestCaseStatus::skipped(),
    };
    if row.counted != Counted::Clean {
        status.set_message(veil.text(&message(judgement)));
        status.set_type(judgement.verdict.as_str());
        status.set_description(veil.text(&description(run, row, close.map(|(close, _)| close))));
    }
    let mut case = TestCase::new(row.trial.to_string(), status);
    case.set_classname(format!("{run}.{label}"));
    if let Some(outcome) = &row.outcome {
        case.set_time(Duration::from_millis(outcome.duration_ms));
    }
    if row.counted == Counted::Fault {
        for exhibit in close.map_or(&[][..], |(_, exhibits)| exhibits) {
            let text = veil.file(&exhibit.name, exhibit.bytes.clone());
            match exhibit.name.as_str() {
                "stdout.log" => case.set_system_out_lossy(text),
                _ => case.set_system_err_lossy(text),
            };
        }
    }
    case
}

/// The verdict in one line: `reboot (panic) at C.forward or later`.
fn message(judgement: &Judgement) -> String {
    let cause = judgement.cause.map(|cause| format!(" ({})", cause.as_str())).unwrap_or_default();
    let stage = judgement.stage.as_ref().map(|stage| format!(" at {stage} or later")).unwrap_or_default();
    let detail = judgement.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{}{cause}{stage}{detail}", judgement.verdict)
}

/// What the verdict rests on, a line each.
fn description(run: &str, row: &TrialRow, close: Option<&Close>) -> String {
    let judgement = &row.judgement;
    let mut lines = vec![format!("meaning: {}", judgement.verdict.meaning())];
    lines.extend(judgement.signature.as_ref().map(|signature| format!("signature: {signature}")));
    match close {
        Some(close) => {
            let why = &close.explanation;
            lines.push(format!("rule: {}, because {}", why.rule.label, why.rule.because));
            lines.extend(why.observed.iter().map(|seen| format!("{}: {}", seen.what, seen.how)));
            lines.extend(why.missing.iter().map(|missing| format!("missing: {missing}")));
        }
        None => {
            lines.push(format!("rule: {}", row.rule));
            lines.extend(row.start.as_ref().map(|start| format!("started in boot: {}", start.boot)));
            let outcome = row.outcome.as_ref();
            lines.extend(outcome.map(|outcome| format!("exit: {}", outcome.exit)));
            let text = outcome.and_then(|outcome| outcome.error_text.as_ref());
            lines.extend(text.map(|text| format!("first error text: {text}")));
        }
    }
    lines.push(format!("`jetfault explain {run} {}` says more", row.trial));
    lines.join("\n")
}

/// The night of `run`: a test case for each cell. A cell fails if it wakes somebody; one that says nothing is skipped.
///
/// # Errors
/// If a label cannot be part of XML.
pub fn night(run: &str, cells: &[CellNight]) -> Result<String, SerializeError> {
    let mut suite = TestSuite::new(run);
    suite.add_test_cases(cells.iter().map(case));
    let mut report = Report::new("jetfault nightly");
    report.add_test_suite(suite);
    written(&report)
}

/// The nights of several boards, a suite for each, by its name; one that has no night says why, and is skipped.
///
/// # Errors
/// If a label cannot be part of XML.
pub fn nights(boards: &[(String, Result<&[CellNight], &str>)]) -> Result<String, SerializeError> {
    let mut report = Report::new("jetfault fleet nightly");
    for (name, night) in boards {
        let mut suite = TestSuite::new(name);
        match night {
            Ok(cells) => {
                suite.add_test_cases(cells.iter().map(case));
            }
            Err(why) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(*why);
                suite.add_test_case(TestCase::new("night", status));
            }
        }
        report.add_test_suite(suite);
    }
    written(&report)
}

fn case(cell: &CellNight) -> TestCase {
    let mut status = match (cell.alarm, cell.state) {
        (Alarm::Fault, _) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        (Alarm::Undecided, _)
        | (Alarm::None, CellState::Unknown | CellState::Confirming | CellState::Quarantined | CellState::Faulting) => {
            TestCaseStatus::skipped()
        }
        (Alarm::None, CellState::StableClean | CellState::SuspectedFixed | CellState::Fixed | CellState::NewFault) => {
            TestCaseStatus::success()
        }
    };
    status.set_message(format!("{}: {}", cell.state, cell.says));
    let mut case = TestCase::new(cell.label.clone(), status);
    case.set_classname(cell.cell.as_str());
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::stats::Counts;
    use crate::model::ids::CellId;

    fn cell(label: &str, state: CellState, alarm: Alarm) -> CellNight {
        CellNight {
            cell: CellId::of(label.as_bytes()),
            label: label.into(),
            before: CellState::StableClean,
            state,
            since: None,
            tonight: Counts { faults: 1, clean: 2 },
            confirming: Counts { faults: 1, clean: 0 },
            history: Counts { faults: 0, clean: 30 },
            chance: 0.05,
            adjusted: 0.1,
            alarm,
            says: "1/3 tonight after 0/30 & more".into(),
        }
    }

    #[test]
    fn a_new_fault_fails_and_what_is_not_known_is_skipped() {
        let cells = [
            cell("a<b", CellState::NewFault, Alarm::Fault),
            cell("c", CellState::StableClean, Alarm::None),
            cell("d", CellState::Unknown, Alarm::None),
        ];
        let xml = night("nightly-001", &cells).unwrap();
        assert!(["tests=\"3\"", "failures=\"1\""].iter().all(|words| xml.contains(words)), "{xml}");
        assert!(xml.contains("name=\"a&lt;b\"") && xml.contains("<failure message=\"NEW_FAULT: 1/3"), "{xml}");
        assert_eq!(xml.matches("<skipped").count(), 1, "{xml}");
    }
}
