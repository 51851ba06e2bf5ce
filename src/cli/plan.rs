//! `plan`: the same code path as `run`, up to the point where something would be written.

use crate::cli::args::{DataFormat, Global, MatrixArgs, PlanArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::{self, MatrixSource};
use crate::cli::{campaign, output, render};
use crate::decide::plan::{Plan, PlanError, PlanOptions, expand};
use crate::decide::predict::Predictor;
use crate::model::matrix::{Matrix, Override, parse_bytes};
use crate::perform::host::Sysroot;
use crate::perform::settings::Tools;
use crate::perform::store::ResultsDir;

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
    let no_debugger = plan.cells.iter().find_map(|cell| tools.no_debugger(cell.settings.observer));
    plan.warnings.extend(no_debugger.map(|why| format!("warning: {why}; such trials are void here")));
    if !global.quiet {
        plan.warnings.iter().for_each(output::say);
    }
    match args.format {
        DataFormat::Json => output::print(&plan.to_json())?,
        DataFormat::Text => output::print(render::plan(&plan, &output::style(global)).as_bytes())?,
    }
    Ok(Exit::Done)
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
