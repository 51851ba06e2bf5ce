//! `fleet run` and `fleet stop`: a run of a matrix on each board, detached there.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::push::{matrices, push_matrix};
use super::{BoardDone, BoardFailure, BoardOutcome, Desk, PATIENCE, harness, words};
use crate::cli::args::{AllowArgs, FleetRunArgs};
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::cli::locate;
use crate::cli::plan::make_plan;
use crate::model::ids::RunId;
use crate::model::inventory::BoardEntry;

/// How long a board may take to open a run: plans of large matrices, preparations, the boot service.
const OPEN_PATIENCE: Duration = Duration::from_secs(300);

/// `fleet run MATRIX`.
pub(super) fn run(desk: &Desk, args: &FleetRunArgs) -> Outcome {
    // A mistake in the matrix is told once, with its place, before any board is asked.
    let source = locate::matrix(&args.matrix.matrix)?;
    make_plan(&source, &args.matrix)?;
    let file = Path::new(&args.matrix.matrix);
    Ok(desk.each(|board| {
        if file.is_file() {
            push_matrix(board, &desk.ssh(board), file)?;
        }
        begin(desk, board, &command_line(board, args, file.is_file()))
    }))
}

/// The command line of the run on `board`.
fn command_line(board: &BoardEntry, args: &FleetRunArgs, is_file: bool) -> Vec<String> {
    let matrix = &args.matrix;
    let name = Path::new(&matrix.matrix).file_name().unwrap_or_default().to_string_lossy();
    let which = if is_file { format!("{}/{name}", matrices(board)) } else { matrix.matrix.clone() };
    let mut argv = harness(board);
    let device = board.name.to_string();
    argv.extend(["run", "--detach", "--device", &device].map(str::to_owned));
    let mut option = |name: &str, value: String| argv.push(format!("{name}={value}"));
    matrix.cell.iter().for_each(|cell| option("--cell", cell.clone()));
    matrix.trials.iter().for_each(|trials| option("--trials", trials.to_string()));
    matrix.set.iter().for_each(|set| option("--set", set.clone()));
    board.max_boots.iter().for_each(|boots| option("--set", format!("safety.max_boots={boots}")));
    args.script.iter().for_each(|script| option("--script", script.clone()));
    option("--boot-delay", args.boot_delay.to_string());
    let flags = [(args.new, "--new"), (args.accept_binary, "--accept-binary")];
    argv.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned()));
    argv.extend(permissions(&args.allow));
    argv.extend(["--".to_owned(), which]);
    argv
}

/// What is allowed, as options of a command line.
pub(super) fn permissions(allow: &AllowArgs) -> impl Iterator<Item = String> {
    let flags = [
        (allow.allow_reboot, "--allow-reboot"),
        (allow.allow_power_mode, "--allow-power-mode"),
        (allow.allow_drop_caches, "--allow-drop-caches"),
        (allow.allow_injected_faults, "--allow-injected-faults"),
        (allow.allow_root_workload, "--allow-root-workload"),
        (allow.allow_volatile, "--allow-volatile"),
    ];
    flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned())
}

fn begin(desk: &Desk, board: &BoardEntry, argv: &[String]) -> BoardOutcome {
    let failure = |error| BoardFailure::of(board, &error);
    let said = desk.ssh(board).ask(&words(argv), io::empty(), OPEN_PATIENCE).map_err(failure)?;
    let said = said.ended_with(&[0, 1, 3]).map_err(failure)?;
    let out = String::from_utf8_lossy(&said.out).into_owned();
    // The id alone is the answer of one that goes on; one that is complete answers with its report.
    let run = out.lines().last().and_then(|line| line.trim().parse::<RunId>().ok());
    let exit = exit_of(said.code);
    Ok(match run {
        Some(run) => BoardDone { exit, words: format!("{run} goes on there without this desk") },
        None => BoardDone { exit, words: "the run of this matrix is complete there; --new opens another".to_owned() },
    })
}

/// What a command on a board ended with, if it is a result.
pub(super) fn exit_of(code: Option<i32>) -> Exit {
    match code {
        Some(0) => Exit::Done,
        Some(1) => Exit::FaultFound,
        Some(3) => Exit::Undecided,
        Some(6) => Exit::JournalDamaged,
        _ => Exit::Unfit,
    }
}

/// `fleet stop [RUN]`.
pub(super) fn stop(desk: &Desk, run: Option<&str>) -> Outcome {
    Ok(desk.each(|board| {
        let mut argv = harness(board);
        argv.push("stop".to_owned());
        argv.extend(run.map(str::to_owned));
        let failure = |error| BoardFailure::of(board, &error);
        let said = desk.ssh(board).ask(&words(&argv), io::empty(), PATIENCE).map_err(failure)?;
        let said = said.ended_with(&[0]).map_err(failure)?;
        let words = said.err.lines().last().unwrap_or("stopped").to_owned();
        Ok(BoardDone { exit: Exit::Done, words })
    }))
}
