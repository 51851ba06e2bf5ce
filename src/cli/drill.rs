//! `doctor --drill`: deliberate faults of this machine, committed by an ordinary run of the shipped matrix `drill`, and the
//! table of what its evidence called them.

use std::path::Path;

use crate::cli::args::{AllowArgs, BootArgs, DataFormat, DoctorArgs, Global, MatrixArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::MatrixSource;
use crate::cli::plan::make_plan;
use crate::cli::run::{Begin, begin};
use crate::cli::{locate, output, read, render};
use crate::decide::drill::Drill;
use crate::decide::plan::Plan;
use crate::model::fitness::{Check, CheckState};
use crate::perform::doctor::checks;
use crate::perform::host::Sysroot;
use crate::perform::injector;
use crate::perform::store::{ResultsDir, RunDir};

/// The shipped matrix.
const MATRIX: &str = "drill";

/// What must be as it should be, or a fault of the drill stops the machine until a person comes.
const COMES_BACK: [&str; 2] = ["watchdog", "panic-settings"];

/// `jetfault doctor --drill`: begins the drill, goes on with it after a boot, or shows its table.
///
/// # Errors
/// See [`Failure`].
pub fn drill(args: &DoctorArgs, global: &Global) -> Outcome {
    let sysroot = Sysroot::new(global.sysroot.clone());
    if !sysroot.is_live() {
        return Err(Failure::words(Exit::Usage, "a captured machine cannot be drilled").hint("leave out --sysroot"));
    }
    let results = locate::results_path(global.results.as_deref());
    if let Some(run) = last_drill(&results)?
        && read::is_complete(&run)?
    {
        return show(&run, args.format, global);
    }
    may_drill(args, &checks(&sysroot, &results))?;
    let how = Begin {
        new: false,
        device: None,
        accept_binary: false,
        script: None,
        allow: AllowArgs { allow_injected_faults: true, ..AllowArgs::default() },
        // It arms nothing: a person says when each fault may come.
        boot: &BootArgs { boot_delay: 0, unit_dir: None },
        format: args.format,
        detach: false,
    };
    let (source, plan) = shipped()?;
    begin(&source, plan, &how, global)
}

/// The shipped matrix and its plan.
fn shipped() -> Result<(MatrixSource, Plan), Failure> {
    let source = locate::matrix(MATRIX)?;
    let plan = make_plan(&source, &MatrixArgs { matrix: MATRIX.to_owned(), ..MatrixArgs::default() })?;
    Ok((source, plan))
}

/// Whether `plan` is that of the shipped matrix, with nothing changed in it.
///
/// # Errors
/// Never, unless this build's own matrix is wrong.
pub fn is_drill(plan: &Plan) -> Result<bool, Failure> {
    Ok(plan.matrix_name == MATRIX && plan.matrix_digest == shipped()?.1.matrix_digest)
}

/// The newest run of the drill in `results`, if there is one.
fn last_drill(results: &Path) -> Result<Option<RunDir>, Failure> {
    if !results.is_dir() {
        return Ok(None);
    }
    for run in ResultsDir::at(results.to_path_buf()).runs().or_fail(Exit::Unfit)?.into_iter().rev() {
        if run.id.parts().0 == MATRIX && is_drill(&read::plan(&run)?)? {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// Whether faults may be committed here, and the machine comes back from each by itself.
fn may_drill(args: &DoctorArgs, checks: &[Check]) -> Result<(), Failure> {
    if !args.allow_injected_faults {
        return Err(Failure::words(Exit::Usage, "a drill resets, panics and freezes this machine")
            .hint("allow it with --allow-injected-faults, when nothing that matters runs here"));
    }
    if let Some(obstacle) = injector::obstacle() {
        return Err(Failure::words(Exit::Unfit, obstacle).hint("run it with sudo, outside of a container"));
    }
    let stays_down =
        checks.iter().find(|check| check.state != CheckState::Ok && COMES_BACK.contains(&check.name.as_str()));
    match stays_down {
        None => Ok(()),
        Some(check) => Err(Failure::words(Exit::Unfit, format!("{}: {}", check.name, check.finding)).hint(format!(
            "mend it: {}; or commit the faults with somebody at the power switch: jetfault run {MATRIX} --allow-injected-faults",
            check.mending.as_deref().unwrap_or("jetfault doctor")
        ))),
    }
}

/// Prints the table; the exit code says whether every fault got its name.
///
/// # Errors
/// If the run cannot be read, or nothing be printed.
pub fn show(run: &RunDir, format: DataFormat, global: &Global) -> Outcome {
    let plan = read::plan(run)?;
    let checks = checks(&Sysroot::new(global.sysroot.clone()), &locate::results_path(global.results.as_deref()));
    let drill = Drill::of(run.id.clone(), &plan, &read::results(run)?, &checks);
    match format {
        DataFormat::Json => output::print(&drill.to_json())?,
        DataFormat::Text => output::print(render::drill(&drill, &output::style(global)).as_bytes())?,
    }
    Ok(match (drill.is_proven(), drill.is_unfinished()) {
        (true, _) => Exit::Done,
        (false, true) => Exit::Undecided,
        (false, false) => Exit::Unfit,
    })
}
