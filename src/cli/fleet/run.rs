//! `fleet run` and `fleet stop`: a run of a matrix on each board, detached there.

use std::io;
use std::time::Duration;

use super::push::{matrices, push_matrix};
use super::{BoardDone, BoardFailure, BoardOutcome, Desk, PATIENCE, attach, harness, words, worse};
use crate::cli::args::{AllowArgs, FleetCarryArgs, FleetRunArgs};
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::cli::locate;
use crate::cli::plan::make_plan;
use crate::model::ids::RunId;
use crate::model::inventory::BoardEntry;
use crate::perform::ssh::SshError;

/// How long a board may take to open a run: plans of large matrices, preparations, the boot service.
pub(super) const OPEN_PATIENCE: Duration = Duration::from_secs(300);

/// `fleet run MATRIX`.
pub(super) fn run(desk: &Desk, args: &FleetRunArgs) -> Outcome {
    // A mistake in the matrix is told once, with its place, before any board is asked.
    let source = locate::matrix(&args.carry.matrix.matrix)?;
    make_plan(&source, &args.carry.matrix)?;
    let begun = desk.each(|board| {
        if args.carry.is_file() {
            push_matrix(board, &desk.ssh(board), args.carry.file())?;
        }
        begin(desk, board, &command_line(board, args, None))
    });
    match (args.follow, begun) {
        (false, begun) => Ok(begun),
        (true, Exit::Undecided) => attach::attach(desk, None, args.carry.allow_power_cycle),
        (true, begun) => Ok(worse(begun, attach::attach(desk, None, args.carry.allow_power_cycle)?)),
    }
}

/// Begins the share that `share` spells, of so many blocks, on `board`, or goes on with it; the id of its run, if it is not complete already.
pub(super) fn begin_share(
    desk: &Desk,
    args: &FleetRunArgs,
    board: &BoardEntry,
    share: (u32, &str),
) -> Result<Option<RunId>, SshError> {
    let argv = command_line(board, args, Some(share));
    let said = desk.ssh(board).ask(&words(&argv), io::empty(), OPEN_PATIENCE)?.ended_with(&[0, 1, 3])?;
    let out = String::from_utf8_lossy(&said.out).into_owned();
    Ok(run_of(&out))
}

/// The command line of the run on `board`, or of its share: how many blocks it has, and its JSON.
fn command_line(board: &BoardEntry, args: &FleetRunArgs, share: Option<(u32, &str)>) -> Vec<String> {
    let mut line = CommandLine::new(board, &["run", "--detach"], &args.carry);
    if let Some((blocks, json)) = share {
        line.option("--trials", &blocks.to_string());
        line.option("--share", json);
    } else if args.new {
        // Of a share there is one run, whatever else is there.
        line.push("--new".to_owned());
    }
    line.words(&args.carry)
}

/// A command line for the program on a board that carries a matrix through there.
pub(super) struct CommandLine {
    argv: Vec<String>,
    matrix: String,
}

impl CommandLine {
    /// `command`, with what `args` say of the matrix and of what is allowed.
    pub(super) fn new(board: &BoardEntry, command: &[&str], args: &FleetCarryArgs) -> Self {
        let name = args.file().file_name().unwrap_or_default().to_string_lossy();
        let matrix = if args.is_file() { format!("{}/{name}", matrices(board)) } else { args.matrix.matrix.clone() };
        let mut line = Self { argv: harness(board), matrix };
        line.argv.extend(command.iter().map(|word| (*word).to_owned()));
        line.option("--device", board.name.as_str());
        args.matrix.cell.iter().for_each(|cell| line.option("--cell", cell));
        args.matrix.set.iter().for_each(|set| line.option("--set", set));
        board.max_boots.iter().for_each(|boots| line.option("--set", &format!("safety.max_boots={boots}")));
        args.script.iter().for_each(|script| line.option("--script", script));
        line.option("--boot-delay", &args.boot_delay.to_string());
        line.argv.extend(args.accept_binary.then(|| "--accept-binary".to_owned()));
        line.argv.extend(permissions(&args.allow));
        line
    }

    /// Adds an option with its value.
    pub(super) fn option(&mut self, name: &str, value: &str) {
        self.argv.push(format!("{name}={value}"));
    }

    /// Adds a word.
    pub(super) fn push(&mut self, word: String) {
        self.argv.push(word);
    }

    /// With these words.
    pub(super) fn flags(mut self, words: &[&str]) -> Self {
        self.argv.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// All of it: the number of trials that `args` ask for, unless another one was given, and the matrix last.
    pub(super) fn words(mut self, args: &FleetCarryArgs) -> Vec<String> {
        let is_given = self.argv.iter().any(|word| word.starts_with("--trials="));
        args.matrix.trials.filter(|_| !is_given).iter().for_each(|trials| self.option("--trials", &trials.to_string()));
        self.argv.extend(["--".to_owned(), self.matrix]);
        self.argv
    }
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
    let run = run_of(&out);
    let exit = exit_of(said.code);
    Ok(match run {
        Some(run) => BoardDone { exit, words: format!("{run} goes on there without this desk") },
        None => BoardDone { exit, words: "the run of this matrix is complete there; --new opens another".to_owned() },
    })
}

/// The run that a command left to another process there: its id alone is the answer of one that goes on, and one that is
/// complete answers with what it found.
pub(super) fn run_of(out: &str) -> Option<RunId> {
    out.lines().last().and_then(|line| line.trim().parse().ok())
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
