//! `fleet status`: where the run of each board stands.

use std::io;

use serde::Serialize;

use super::{BoardFailure, Desk, PATIENCE, harness, tell, words, worse};
use crate::cli::args::{DataFormat, Global};
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::cli::{output, render};
use crate::decide::status::Status;
use crate::model::ids::DeviceId;
use crate::model::inventory::BoardEntry;

/// Name and version of the format.
const FLEET_STATUS_SCHEMA: &str = "jetfault.fleet-status/1";

/// How many boards are asked at a time: the answers are small.
const AT_A_TIME: usize = 32;

/// Where the boards stand, as `--format json` prints it.
#[derive(Serialize)]
struct FleetStatus<'a> {
    schema: &'static str,
    boards: Vec<BoardStatus<'a>>,
}

/// Where one board stands.
#[derive(Serialize)]
struct BoardStatus<'a> {
    board: &'a DeviceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// `fleet status [RUN]`.
pub(super) fn status(desk: &Desk, run: Option<&str>, format: DataFormat, global: &Global) -> Outcome {
    let asked = desk.ask_all(AT_A_TIME, |board| ask(desk, board, run));
    let exit =
        asked.iter().fold(Exit::Done, |exit, answer| worse(exit, answer.as_ref().err().map_or(Exit::Done, |f| f.exit)));
    match format {
        DataFormat::Text => {
            let rows: Vec<(&str, &Status)> = (desk.boards.iter().zip(&asked))
                .filter_map(|(board, answer)| Some((board.name.as_str(), answer.as_ref().ok()?)))
                .collect();
            if !rows.is_empty() {
                output::print(render::fleet(&rows, &output::style(global)).as_bytes())?;
            }
            for (board, answer) in desk.boards.iter().zip(asked) {
                if let Err(failure) = answer {
                    tell(board, &Err(failure));
                }
            }
        }
        DataFormat::Json => {
            let boards = desk.boards.iter().zip(asked).map(|(board, answer)| {
                let (status, trouble) = match answer {
                    Ok(status) => (Some(status), None),
                    Err(failure) => (None, Some(failure.words)),
                };
                BoardStatus { board: &board.name, status, trouble }
            });
            let all = FleetStatus { schema: FLEET_STATUS_SCHEMA, boards: boards.collect() };
            let mut json = serde_json::to_vec_pretty(&all).expect("a status has string keys and finite numbers");
            json.push(b'\n');
            output::print(&json)?;
        }
    }
    Ok(exit)
}

fn ask(desk: &Desk, board: &BoardEntry, run: Option<&str>) -> Result<Status, BoardFailure> {
    let mut argv = harness(board);
    argv.extend(["status", "--format", "json"].map(str::to_owned));
    argv.extend(run.map(str::to_owned));
    let failure = |error| BoardFailure::of(board, &error);
    let said = desk.ssh(board).ask(&words(&argv), io::empty(), PATIENCE).map_err(failure)?;
    let said = said.ended_with(&[0]).map_err(failure)?;
    // A login shell may greet before it obeys.
    let from = said.out.iter().position(|byte| *byte == b'{').unwrap_or(0);
    serde_json::from_slice(&said.out[from..]).map_err(|error| {
        let words = format!("its status makes no sense here: {error}");
        BoardFailure::words(Exit::Unfit, words, "`jetfault fleet push` puts the jetfault of this desk there")
    })
}
