//! Where a run is, and what keeps others out of it.

use std::env;
use std::fs::File;
use std::path::PathBuf;

use super::failures::store_failure;
use super::is_closed;
use crate::cli::args::Global;
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::{locate, output, read};
use crate::decide::plan::Plan;
use crate::model::journal::Persistence;
use crate::perform::persistence::persistence;
use crate::perform::store::{ResultsDir, RunDir, lock_machine};

/// What `run` finds of a matrix in the results directory.
pub(super) enum Found {
    Same(RunDir),
    None,
}

/// The run of the same matrix, newest first; an unfinished one of the same name and other content is in the way.
pub(super) fn find(results: &ResultsDir, plan: &Plan) -> Result<Found, Failure> {
    let runs = results.runs().or_fail(Exit::Unfit)?;
    for run in runs.into_iter().rev().filter(|run| run.id.parts().0 == plan.matrix_name) {
        let stored = read::plan(&run)?;
        if stored.matrix_digest == plan.matrix_digest && stored.only == plan.only && stored.asks_as(plan) {
            return Ok(Found::Same(run));
        }
        if !is_closed(&run)? {
            return Err(Failure::words(
                Exit::Usage,
                format!("{} is unfinished, and its matrix has other content than this one", run.id),
            )
            .hint(format!("`jetfault resume {}` finishes it; `jetfault run --new` opens another run", run.id)));
        }
    }
    Ok(Found::None)
}

pub(super) fn open_results(global: &Global, allow_volatile: bool) -> Result<(ResultsDir, Persistence), Failure> {
    let path = locate::results_path(global.results.as_deref());
    let results = ResultsDir::make(&path).map_err(store_failure)?;
    let persistence = persistence(results.path());
    match persistence {
        Persistence::Volatile if !allow_volatile => Err(Failure::words(
            Exit::Unfit,
            format!("{} is in memory and does not survive a reboot", results.path().display()),
        )
        .hint("choose a directory on a disk with --results, or allow it with --allow-volatile")),
        Persistence::Unproven => {
            if !global.quiet {
                let path = results.path().display();
                output::say(format_args!(
                    "warning: {path} is on an overlay: whether it survives a reboot is not proven"
                ));
            }
            Ok((results, persistence))
        }
        Persistence::Volatile | Persistence::Persistent => Ok((results, persistence)),
    }
}

/// What keeps other instances out, for as long as it lives.
pub(super) struct Locks {
    _results: File,
    _machine: File,
}

impl Locks {
    pub(super) fn take(results: &ResultsDir) -> Result<Self, Failure> {
        let _results = results.lock().map_err(store_failure)?;
        Ok(Self { _results, _machine: lock_machine(&machine_dirs(), results.path()).map_err(store_failure)? })
    }
}

/// Where what concerns the machine as a whole is kept for as long as it is up.
pub fn machine_dirs() -> Vec<PathBuf> {
    match env::var_os("JETFAULT_LOCK_DIR") {
        Some(dir) => vec![PathBuf::from(dir)],
        None => ["/run/lock", "/run", "/tmp"].map(PathBuf::from).to_vec(),
    }
}
