//! A night as JUnit XML, for schedulers that read nothing else. Owns the only use of `quick_junit`.

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use crate::decide::nightly::{Alarm, CellNight, CellState};

/// The night of `run`: a test case for each cell. A cell fails if it wakes somebody; one that says nothing is skipped.
///
/// # Errors
/// If a label cannot be part of XML.
pub fn night(run: &str, cells: &[CellNight]) -> Result<String, SerializeError> {
    let mut suite = TestSuite::new(run);
    suite.add_test_cases(cells.iter().map(case));
    let mut report = Report::new("jetfault nightly");
    report.add_test_suite(suite);
    report.to_string()
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
