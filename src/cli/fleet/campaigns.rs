//! `fleet nightly` and `fleet bisect`: a campaign of its own on each board, detached there, and one answer on the desk.
//!
//! Every board has its own history and its own gate. The desk follows, asks each board what came of it, and joins.

use std::fs;
use std::io;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::push::push_matrix;
use super::run::{CommandLine, OPEN_PATIENCE, run_of};
use super::{BoardFailure, Desk, attach, harness, say, tell, words, worse};
use crate::cli::args::{DataFormat, FleetBisectArgs, FleetCarryArgs, FleetNightlyArgs, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::nightly::NightReport;
use crate::cli::{junit, locate, output, plan, render};
use crate::decide::campaign::Standing;
use crate::decide::fleet::{Agreement, Joint, agree};
use crate::model::ids::{DeviceId, RunId};
use crate::model::inventory::BoardEntry;

/// Names and versions of the formats.
const NIGHTS_SCHEMA: &str = "jetfault.fleet-nightly/1";
const SEARCHES_SCHEMA: &str = "jetfault.fleet-bisect/1";

/// How long a board may take to read what it has and judge it again.
const JUDGE_PATIENCE: Duration = Duration::from_secs(120);

/// What one board came to.
#[derive(Serialize)]
struct BoardCame<'a, T> {
    board: &'a DeviceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    came: Option<&'a T>,
    /// Why there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'a str>,
}

/// What all boards came to.
#[derive(Serialize)]
struct AllCame<'a, T> {
    schema: &'static str,
    boards: Vec<BoardCame<'a, T>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    joint: Option<&'a Joint>,
}

/// What came of each board, in the order of the inventory.
type Came<T> = Vec<Result<T, BoardFailure>>;

/// `fleet nightly MATRIX`.
pub(super) fn nightly(desk: &Desk, args: &FleetNightlyArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.carry.matrix.matrix)?;
    plan::make_plan(&source, &args.carry.matrix)?;
    let nights: Came<NightReport> = desk.ask_all(desk.boards.len(), |board| {
        let night = |more: &[&str]| CommandLine::new(board, &["nightly"], &args.carry).flags(more).words(&args.carry);
        carry(desk, board, &args.carry, &night(&["--detach"]), |_| night(&["--last", "--format=json"]))
    });
    if let Some(file) = &args.junit {
        let suites = desk.boards.iter().zip(&nights).map(|(board, night)| match night {
            Ok(night) => (format!("{} {}", board.name, night.run), Ok(&night.cells[..])),
            Err(failure) => (board.name.to_string(), Err(failure.words.as_str())),
        });
        let xml = junit::nights(&suites.collect::<Vec<_>>()).or_fail(Exit::Bug)?;
        fs::write(file, xml).map_err(|error| {
            Failure::words(Exit::Unfit, format!("cannot write {}: {error}", file.display()))
                .hint("the nights themselves are kept on the boards: the same command with --last tells them again")
        })?;
    }
    let exit = |night: &NightReport| night.exit();
    match args.format {
        DataFormat::Json => print_json(desk, NIGHTS_SCHEMA, &nights, None)?,
        DataFormat::Text => {
            for (board, night) in desk.boards.iter().zip(&nights) {
                if let Ok(night) = night {
                    let summary = format!("{}: {}", board.name, night.summary);
                    output::print(render::night(&night.cells, &summary, &output::style(global)).as_bytes())?;
                }
            }
        }
    }
    Ok(exit_of_all(desk, nights, exit))
}

/// `fleet bisect KIND MATRIX`.
pub(super) fn bisect(desk: &Desk, args: &FleetBisectArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.carry.matrix.matrix)?;
    plan::read_matrix(&source, &args.carry.matrix)?;
    let kind = args.kind.to_possible_value().expect("every kind can be asked for");
    let searches: Came<Standing> = desk.ask_all(desk.boards.len(), |board| {
        let mut search = CommandLine::new(board, &["bisect", kind.get_name()], &args.carry)
            .flags(&["--detach", "--format=json"])
            .flags(if args.new { &["--new"] } else { &[] });
        args.search.spelt().into_iter().for_each(|word| search.push(word));
        args.path.iter().for_each(|path| search.option("--path", path));
        carry(desk, board, &args.carry, &search.words(&args.carry), |run| {
            let mut standing = harness(board);
            standing.extend(["status", run.as_str(), "--standing"].map(str::to_owned));
            standing
        })
    });
    let standings: Vec<(&str, Option<&Standing>)> = (desk.boards.iter().zip(&searches))
        .map(|(board, search)| (board.name.as_str(), search.as_ref().ok()))
        .collect();
    let joint = agree(&standings);
    match args.format {
        DataFormat::Json => print_json(desk, SEARCHES_SCHEMA, &searches, Some(&joint))?,
        DataFormat::Text => {
            for (name, standing) in &standings {
                let Some(standing) = standing else { continue };
                let text = render::standing(standing, &output::style(global));
                output::print(format!("{name}\n{text}\n").as_bytes())?;
            }
            output::print(format!("{}\n", render::one_line(&joint.says)).as_bytes())?;
        }
    }
    let answered = match joint.agreement {
        Agreement::Same | Agreement::Differs => Exit::FaultFound,
        Agreement::Undecided => Exit::Undecided,
    };
    Ok(exit_of_all(desk, searches, |_| answered))
}

/// Has `board` begin a campaign by `begin`, detached there, follows it to its end, and asks by `judge` what came of it.
fn carry<T: DeserializeOwned>(
    desk: &Desk,
    board: &BoardEntry,
    args: &FleetCarryArgs,
    begin: &[String],
    judge: impl Fn(&RunId) -> Vec<String>,
) -> Result<T, BoardFailure> {
    let ssh = desk.ssh(board);
    if args.is_file() {
        push_matrix(board, &ssh, args.file())?;
    }
    let failure = |error| BoardFailure::of(board, &error);
    let ask = |argv: &[String], patience| {
        let said = ssh.ask(&words(argv), io::empty(), patience).and_then(|said| said.ended_with(&[0, 1, 3]));
        said.map(|said| String::from_utf8_lossy(&said.out).into_owned()).map_err(failure)
    };
    let said = ask(begin, OPEN_PATIENCE)?;
    // One that is complete answers at once.
    let said = match run_of(&said) {
        None => said,
        Some(run) => {
            say(board, &format!("{run} goes on there"));
            attach::follow(desk, board, Some(run.as_str()), args.allow_power_cycle);
            ask(&judge(&run), JUDGE_PATIENCE)?
        }
    };
    // A login shell may greet before it obeys.
    let from = said.find('{').unwrap_or(0);
    serde_json::from_str(&said[from..]).map_err(|error| {
        let words = format!("its answer makes no sense here: {error}");
        BoardFailure::words(Exit::Unfit, words, "`jetfault fleet push` puts the jetfault of this desk there")
    })
}

fn print_json<T: Serialize>(
    desk: &Desk,
    schema: &'static str,
    came: &[Result<T, BoardFailure>],
    joint: Option<&Joint>,
) -> Result<(), Failure> {
    let boards = desk.boards.iter().zip(came).map(|(board, came)| BoardCame {
        board: &board.name,
        came: came.as_ref().ok(),
        trouble: came.as_ref().err().map(|failure| failure.words.as_str()),
    });
    let all = AllCame { schema, boards: boards.collect(), joint };
    let mut json = serde_json::to_vec_pretty(&all).expect("it has string keys and finite numbers");
    json.push(b'\n');
    output::print(&json)
}

/// Names the boards that came to nothing; the gravest exit code of all.
fn exit_of_all<T>(desk: &Desk, came: Came<T>, exit: impl Fn(&T) -> Exit) -> Exit {
    let exits = desk.boards.iter().zip(came).map(|(board, came)| match came {
        Ok(came) => exit(&came),
        Err(failure) => {
            let exit = failure.exit;
            tell(board, &Err(failure));
            exit
        }
    });
    exits.fold(Exit::Done, worse)
}
