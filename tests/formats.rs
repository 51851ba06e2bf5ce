//! Older versions of every stored format stay readable.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use jetfault::decide::agenda::{Agenda, CellHere};
use jetfault::decide::plan::Plan;
use jetfault::decide::result::{ResultFold, TrialResult};
use jetfault::decide::run::{Phase, RunState};
use jetfault::perform::journal::read_records;
use jetfault::perform::runner::RunError;

/// The stored runs, one for each version.
fn runs() -> Vec<PathBuf> {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let versions = fs::read_dir(formats).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let runs: Vec<PathBuf> = versions.map(|version| version.join("format-001")).collect();
    assert!(!runs.is_empty());
    runs
}

#[test]
fn every_stored_journal_folds_to_its_end_and_gives_its_results_back() {
    for run in runs() {
        let plan = Plan::from_json(&fs::read(run.join("plan.json")).unwrap()).unwrap();
        let agenda = Agenda::of(&plan, false, |_| CellHere { unrecorded_ms: 100, ..CellHere::default() });
        let (mut state, mut fold, mut seen) = (RunState::new(&agenda), ResultFold::default(), 0);
        read_records(BufReader::new(File::open(run.join("journal.jsonl")).unwrap()), |record| {
            state.apply(&agenda, &record)?;
            if let Some(result) = fold.apply(&record) {
                let path = run.join("trials").join(result.trial.to_string()).join("result.json");
                let stored: TrialResult = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                assert_eq!(stored, result);
                seen += 1;
            }
            Ok::<(), RunError>(())
        })
        .unwrap();
        assert!(matches!(state.phase, Phase::Closed(_)), "{}", run.display());
        assert_eq!(seen, 5, "{}", run.display());
    }
}

#[test]
fn every_stored_run_can_be_reported() {
    for run in runs() {
        let report = Command::new(env!("CARGO_BIN_EXE_jetfault")).arg("report").arg(&run).output().unwrap();
        assert_eq!(report.status.code(), Some(1));
        let text = String::from_utf8(report.stdout).unwrap();
        for words in ["2/2", "15.8–100 %", "cannot boot the machine", "B.copy"] {
            assert!(text.contains(words), "{words:?} is not in\n{text}");
        }
    }
}
