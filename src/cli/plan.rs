//! `plan`: the same code path as `run`, up to the point where something would be written.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;

use crate::cli::args::{DataFormat, Global, MatrixArgs, PlanArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::{self, MatrixSource};
use crate::cli::{campaign, output, render};
use crate::decide::plan::{Plan, PlanError, PlanOptions, expand};
use crate::decide::predict::Predictor;
use crate::model::matrix::{Matrix, Override, parse_bytes};
use crate::model::settings::{Settings, WorkloadSettings};
use crate::perform::host::Sysroot;
use crate::perform::settings::Tools;
use crate::perform::store::ResultsDir;
use crate::perform::{affinity, programs};

/// `jetfault plan MATRIX`.
///
/// # Errors
/// See [`Failure`].
pub fn plan(args: &PlanArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    let mut plan = make_plan(&source, &args.matrix)?;
    let results = ResultsDir::at(locate::results_path(global.results.as_deref()));
    let sysroot = Sysroot::new(global.sysroot.clone());
    campaign::learn(&results, &mut plan, &sysroot.device(None))?;
    let tools = Tools::new(&plan.tools, &source.dir.to_string_lossy(), &sysroot);
    let path = env::var("PATH").unwrap_or_default();
    let missing: BTreeSet<String> = plan
        .cells
        .iter()
        .flat_map(|cell| {
            let of_machine = sysroot.is_live().then(|| [no_program(&cell.settings, &path), no_cpu(&cell.settings)]);
            of_machine.into_iter().flatten().chain([tools.no_debugger(cell.settings.observer)])
        })
        .flatten()
        .collect();
    plan.warnings.extend(missing.into_iter().map(|why| format!("warning: {why}; such trials are void here")));
    if !global.quiet {
        plan.warnings.iter().for_each(output::say);
    }
    match args.format {
        DataFormat::Json => output::print(&plan.to_json())?,
        DataFormat::Text => output::print(render::plan(&plan, &output::style(global)).as_bytes())?,
    }
    Ok(Exit::Done)
}

/// The program of a command that is not on this machine, as far as that is known before a trial.
fn no_program(settings: &Settings, path: &str) -> Option<String> {
    let WorkloadSettings::Command(command) = &settings.workload else { return None };
    let program = command.argv.first().filter(|program| program.run_time_holes().next().is_none())?;
    let program = program.resolve(|_| String::new()).ok()?;
    // A path that starts nowhere is the working directory's, which may be the trial's own.
    let is_known = program.starts_with('/') || !program.contains('/');
    (is_known && programs::find(&program, path, Path::new("/")).is_none())
        .then(|| format!("there is no program {program} that may be executed"))
}

/// The CPU that a cell wants and this machine does not give.
pub(super) fn no_cpu(settings: &Settings) -> Option<String> {
    affinity::missing(&settings.cpus)
        .map(|cpu| format!("this machine does not give CPU {cpu} (cpus = {})", settings.cpus))
}

/// A matrix with the changes of the command line.
///
/// # Errors
/// Everything that is wrong with it, with its place.
pub fn read_matrix(source: &MatrixSource, args: &MatrixArgs) -> Result<Matrix, Failure> {
    let mut overrides =
        args.set.iter().map(|argument| Override::set(argument)).collect::<Result<Vec<_>, _>>().or_fail(Exit::Usage)?;
    overrides.extend(args.trials.map(Override::trials));
    parse_bytes(&source.bytes, &source.name, &overrides).map_err(|e| matrix_failure(e.into()))
}

/// The plan of a matrix with the changes of the command line.
///
/// # Errors
/// Everything that is wrong with the matrix, with its place.
pub fn make_plan(source: &MatrixSource, args: &MatrixArgs) -> Result<Plan, Failure> {
    let matrix = read_matrix(source, args)?;
    let mut plan = expand(&matrix, &PlanOptions { only: args.cell.clone() }).map_err(matrix_failure)?;
    let mut predictor = Predictor::default();
    plan.predict_with(|settings| predictor.predict(settings));
    Ok(plan)
}

/// The failure of a matrix that cannot be planned.
pub fn matrix_failure(error: PlanError) -> Failure {
    match error {
        PlanError::Filter { ref hint, .. } => {
            let hint = hint.clone();
            Failure::new(Exit::Usage, error).hint(hint)
        }
        PlanError::Matrix(_) | PlanError::Collision { .. } => Failure::new(Exit::Usage, error),
    }
}
