//! Before the first trial: the directories that the trials' commands work with.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use crate::cli::args::Global;
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::run::is_closed;
use crate::decide::plan::Plan;
use crate::model::journal::Opened;
use crate::perform::prepare::{Made, Prepared, Workshop, asks};
use crate::perform::processes::RunMark;
use crate::perform::store::{ResultsDir, RunDir};
use crate::perform::supervise::Supervisor;

/// Makes what `plan` asks for and is not there yet, as the user and before any reboot, and says what it does.
///
/// # Errors
/// If nothing can be started at all; a command that fails makes its trials void instead.
pub fn prepare(
    results: &ResultsDir,
    run: &RunDir,
    plan: &Plan,
    (opened, harness, signal): (&Opened, &Path, &AtomicUsize),
    global: &Global,
) -> Result<(Prepared, Vec<Made>), Failure> {
    if !plan.all_cells().any(|cell| asks(&cell.settings)) || is_closed(run)? {
        return Ok(Default::default());
    }
    let mut supervisor = Supervisor::new(harness.to_owned()).or_fail(Exit::Unfit)?;
    let workshop = Workshop {
        results: results.path(),
        matrix_dir: &opened.matrix_dir,
        invoker: &opened.invoker,
        run: &RunMark::new(&run.id, &run.path),
        signal,
    };
    Ok(workshop.prepare(plan, &mut supervisor, |argv| {
        if !global.quiet {
            output::say(format_args!("preparing: {}", argv.join(" ")));
        }
    }))
}
