//! What a command promised to make in its trial's directory: whether it stays there, and which trial another cell finds
//! it in.

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::ids::{CellId, TrialId};
use crate::model::settings::Keep;
use crate::perform::files::{make_dir_durably, write_durably};
use crate::perform::machine::MachineError;
use crate::perform::supervise::Program;

/// The directory of a run in which a file for each needed cell names its last trial that passed.
const NEEDED: &str = "needed";

/// The artifacts of one trial.
#[derive(Debug, Default)]
pub(super) struct Artifacts {
    keep: Keep,
    paths: Vec<PathBuf>,
}

impl Artifacts {
    /// The artifacts of `program` inside `trial_dir`. What it makes elsewhere is the user's and is never removed.
    pub(super) fn of(program: &Program, keep: Keep, trial_dir: &Path) -> Self {
        let paths = match program {
            Program::Worker(_) => Vec::new(),
            Program::Command(command) => {
                let cwd = command.cwd.as_deref().map_or(Path::new("/"), Path::new);
                let inside = |path: &PathBuf| path.starts_with(trial_dir) && !path.iter().any(|part| part == "..");
                command.artifacts.iter().map(|artifact| cwd.join(artifact)).filter(inside).collect()
            }
        };
        Self { keep, paths }
    }

    /// Removes what the matrix does not keep of a trial that passed or did not.
    pub(super) fn clear(self, passed: bool) {
        let goes = match self.keep {
            Keep::Always => false,
            Keep::OnFault => passed,
            Keep::Never => true,
        };
        for path in self.paths.iter().filter(|_| goes) {
            // One that is not there was never made; the verdict says so.
            let _ = fs::remove_file(path);
        }
    }
}

/// Notes, durably, that other cells of the run in `run_dir` find the artifacts of its cell in `trial`.
///
/// # Errors
/// If it cannot be written.
pub(super) fn offer(run_dir: &Path, trial: &TrialId) -> Result<(), MachineError> {
    let dir = run_dir.join(NEEDED);
    make_dir_durably(&dir)?;
    let path = dir.join(trial.cell.to_string());
    // Removed first: it is a file that is made, never one that is changed.
    let _ = fs::remove_file(&path);
    write_durably(&path, trial.to_string().as_bytes())
}

/// The trial in which the artifacts of `cell` are found.
///
/// # Errors
/// In words, if no trial of it has passed yet.
pub(super) fn offered(run_dir: &Path, cell: &CellId) -> Result<TrialId, String> {
    let none = || format!("no trial of {cell}, whose artifacts it works with, has passed yet");
    let text = fs::read_to_string(run_dir.join(NEEDED).join(cell.to_string())).map_err(|_| none())?;
    text.parse().map_err(|_| none())
}
