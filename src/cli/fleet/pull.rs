//! `fleet pull`: runs copied to the desk; and the side of it that speaks on a board.

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::{BoardDone, BoardFailure, BoardOutcome, Desk, program, words};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::model::ids::RunId;
use crate::model::inventory::BoardEntry;
use crate::perform::store::ResultsDir;
use crate::perform::transfer::{self, Received, SEND_SUBCOMMAND};

/// How long a board may send nothing: it reads and compares everything that it has.
const SILENCE: Duration = Duration::from_secs(120);

/// `fleet pull [RUNS]`.
pub(super) fn pull(desk: &Desk, runs: &[RunId], file_max: u64) -> Outcome {
    Ok(desk.each(|board| {
        let into = desk.results_of(board);
        // Two pulls at a time would write the same files.
        let local = |error: String| BoardFailure { exit: Exit::Unfit, words: error, hint: None };
        let results = ResultsDir::make(&into).map_err(|error| local(error.to_string()))?;
        let _lock = results.lock().map_err(|error| BoardFailure {
            exit: Exit::Held,
            words: format!("another pull goes on: {error}"),
            hint: None,
        })?;
        let received = pull_board(desk, board, results.path(), runs, file_max)?;
        tell_left(board, &received);
        conclude(&received, &into)
    }))
}

fn pull_board(
    desk: &Desk,
    board: &BoardEntry,
    into: &Path,
    runs: &[RunId],
    file_max: u64,
) -> Result<Received, BoardFailure> {
    let mut argv = vec![program(board), SEND_SUBCOMMAND.to_owned(), board.results.clone(), file_max.to_string()];
    argv.extend(runs.iter().map(ToString::to_string));
    let (reader, writer) = io::pipe().map_err(|error| BoardFailure {
        exit: Exit::Unfit,
        words: format!("cannot make a pipe: {error}"),
        hint: None,
    })?;
    let from = into.to_path_buf();
    // It ends when nobody reads any more; a file that it cannot read comes anew.
    let teller =
        thread::spawn(move || transfer::tell(&from, BufWriter::new(writer)).map_err(|error| error.to_string()));
    let received = desk
        .ssh(board)
        .exchange(&words(&argv), reader, SILENCE, |from| transfer::receive(into, file_max, from))
        .map_err(|error| BoardFailure::of(board, &error))?;
    match teller.join() {
        Ok(Ok(())) => Ok(received),
        Ok(Err(words)) => Err(BoardFailure { exit: Exit::Unfit, words, hint: None }),
        Err(_) => {
            Err(BoardFailure { exit: Exit::Bug, words: "the list of what is here was not made".into(), hint: None })
        }
    }
}

fn tell_left(board: &BoardEntry, received: &Received) {
    for (path, why) in &received.left {
        output::say(crate::cli::render::one_line(&format!("{}: left there: {path}: {why}", board.name)));
    }
}

fn conclude(received: &Received, into: &Path) -> BoardOutcome {
    let Received { runs, files, bytes, others, .. } = received;
    if !others.is_empty() {
        let ids: Vec<&str> = others.iter().map(RunId::as_str).collect();
        let words = format!(
            "{} there is another run than the one that was pulled before under this id: was the board reflashed? Nothing \
             of it was copied; the rest came: {files} files",
            ids.join(", ")
        );
        let hint = format!("move {} away, then pull again", into.join(ids[0]).display());
        return Err(BoardFailure::words(Exit::Unfit, words, hint));
    }
    let (whole, tenths) = (bytes / 1_000_000, bytes / 100_000 % 10);
    let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let words = match files {
        0 => format!("nothing new in {runs}"),
        _ => format!("{files} files, {whole}.{tenths} MB, of {runs} in {}", into.display()),
    };
    Ok(BoardDone { exit: Exit::Done, words })
}

/// `__send RESULTS FILE_MAX [RUN…]`: what a board does when a desk pulls.
///
/// # Errors
/// If the arguments make no sense, or something cannot be sent.
pub fn send(arguments: &[OsString]) -> Outcome {
    let usage = || Failure::words(Exit::Usage, "__send RESULTS FILE_MAX [RUN…]");
    let [results, file_max, runs @ ..] = arguments else { return Err(usage()) };
    let file_max = file_max.to_str().and_then(|text| text.parse().ok()).ok_or_else(usage)?;
    let runs: Option<Vec<RunId>> = runs.iter().map(|run| run.to_str()?.parse().ok()).collect();
    let stdout = BufWriter::with_capacity(128 * 1024, io::stdout().lock());
    transfer::send(&PathBuf::from(results), &runs.ok_or_else(usage)?, file_max, io::stdin().lock(), stdout)
        .or_fail(Exit::Unfit)?;
    Ok(Exit::Done)
}
