//! What errors of the lower layers mean to a person: exit code and advice.

use crate::cli::errors::Failure;
use crate::cli::exit::Exit;
use crate::perform::runner::RunError;
use crate::perform::store::{RunDir, StoreError, disk_trouble, names};

/// The exit code and advice of an error of the store.
pub(super) fn store_failure(error: StoreError) -> Failure {
    match error {
        StoreError::NotADirectory(_) => {
            Failure::new(Exit::Usage, error).hint("give a directory with --results, or move the file away")
        }
        StoreError::Held { .. } => Failure::new(Exit::Held, error)
            .hint("two runs would spoil each other; `jetfault status --results DIR` with the results directory of the other shows it"),
        StoreError::Machine(error) => {
            let hint = disk_trouble(&error.source);
            let failure = Failure::new(Exit::Unfit, error);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}

/// The exit code and advice of an error in the course of a run.
pub fn run_failure(run: &RunDir, error: RunError) -> Failure {
    match error {
        RunError::Read(_) | RunError::Illegal(_) => Failure::new(Exit::JournalDamaged, error).hint(format!(
            "nothing was changed; keep {} as it is, and begin anew with `jetfault run --new`",
            run.file(names::JOURNAL).display()
        )),
        RunError::NotRestored(_) => Failure::new(Exit::Unfit, error)
            .hint(format!("put it back by hand, then `jetfault resume {}`: it looks again and ends the run", run.id)),
        RunError::Machine(error) => {
            let trouble = disk_trouble(&error.source).map(|trouble| format!("{trouble}; then "));
            let resume = format!("`jetfault resume {}` goes on: everything recorded so far is safe", run.id);
            Failure::new(Exit::Unfit, error).hint(format!("{}{resume}", trouble.unwrap_or_default()))
        }
    }
}
