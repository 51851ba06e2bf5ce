//! How people speak to it: arguments, rendering, exit codes.

pub mod args;

pub mod exit;

pub mod errors;

pub mod locate;

pub mod output;

pub mod progress;

pub mod keys;

pub mod plan;

pub mod prepare;

pub mod trying;

pub mod bisect;

pub mod campaign;

pub mod search;

pub mod rehearse;

pub mod run;

pub mod boots;

pub mod read;

pub mod issue;

pub mod follow;

pub mod home;

pub mod attach;

pub mod fleet;

pub mod compare;

pub mod nightly;

pub mod joined;

pub mod junit;

mod csv_rows;

mod dossier;

pub mod doctor;

pub mod drill;

pub mod capture;

pub mod inspect;

pub mod observe;

pub mod man;

pub mod render;

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::args::{Cli, Command, Global, SchemaOf};
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::cli::render::{COLUMNS_DEFAULT, Style};
use crate::decide::joined::joined_schema;
use crate::decide::report::report_schema;
use crate::model::matrix::json_schema;
use crate::model::outcome::PeakMemory;
use crate::model::settings::Settings;
use crate::perform::affinity;
use crate::perform::boot::{self, DETACH_SUBCOMMAND};
use crate::perform::doctor::GPU_CHECK_SUBCOMMAND;
use crate::perform::exec::{self, ParentFlags};
use crate::perform::supervise::WORKER_SUBCOMMAND;
use crate::perform::transfer::SEND_SUBCOMMAND;
use crate::workload::worker::{Reporter, WorkError};
use crate::workload::{fake, linear4bit, worker};

/// Runs the command line `args`, the program's name first.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    match args.get(1..).and_then(<[OsString]>::split_first) {
        Some((name, rest)) if name == WORKER_SUBCOMMAND => worker_main(rest),
        Some((name, rest)) if name == exec::SUBCOMMAND => exec::main(rest),
        Some((name, _)) if name == GPU_CHECK_SUBCOMMAND => answer_with(doctor::gpu_check()),
        Some((name, rest)) if name == DETACH_SUBCOMMAND => detach_main(rest),
        Some((name, rest)) if name == SEND_SUBCOMMAND => answer_with(fleet::send(rest)),
        Some(_) | None => people_main(&args),
    }
}

/// How a process that nobody typed ended.
fn answer_with(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(&Style::default());
            failure.exit.into()
        }
    }
}

/// The process in the middle of `run --detach`.
fn detach_main(arguments: &[OsString]) -> ExitCode {
    match std::env::current_exe().and_then(|harness| boot::leave(&harness, arguments)) {
        Ok(()) => Exit::Done.into(),
        Err(error) => {
            output::say(format_args!("error: cannot leave this session: {error}"));
            Exit::Unfit.into()
        }
    }
}

/// What a person typed, or `git bisect run`.
fn people_main(args: &[OsString]) -> ExitCode {
    let exit = answer(args);
    // Looked for in what was typed, since even a wrong command line must not make a revision bad.
    let is_git = args.iter().any(|argument| argument == "--git-bisect");
    if is_git { exit.to_git().into() } else { exit.into() }
}

fn answer(args: &[OsString]) -> Exit {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // Nobody may be reading; then there is nothing to tell.
            let _ = error.print();
            return exit;
        }
    };
    start_tracing(&cli.global);
    let bug = std::panic::catch_unwind(|| perform(&cli));
    match bug {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            let style = if output::colours(&cli.global, &io::stderr()) {
                Style::coloured(COLUMNS_DEFAULT)
            } else {
                Style::default()
            };
            failure.print(&style);
            failure.exit
        }
        Err(_) => {
            output::say(
                "hint: this is a bug of jetfault; everything recorded so far is safe, `jetfault resume` goes on",
            );
            Exit::Bug
        }
    }
}

fn perform(cli: &Cli) -> Outcome {
    let global = &cli.global;
    let Some(command) = &cli.command else { return home::home(global) };
    match command {
        Command::Try(args) => trying::trying(args, global),
        Command::Run(args) => run::run(args, global),
        Command::Plan(args) => plan::plan(args, global),
        Command::Resume(args) => run::resume(args, global),
        Command::Status(args) => read::status(args, global),
        Command::Arm(args) => boots::arm(args, global),
        Command::Disarm(args) => boots::disarm(args, global),
        Command::Attach(args) => attach::attach(args, global),
        Command::Observe(args) => observe::observe(args, global),
        Command::Stop(args) => run::stop(args, global),
        Command::Explain(args) => read::explain(args, global),
        Command::Report(args) => read::report(args, global),
        Command::Compare(args) => compare::compare(args, global),
        Command::Nightly(args) => nightly::nightly(args, global),
        Command::Bisect(args) => bisect::bisect(args, global),
        Command::Rehearse(args) => rehearse::rehearse(args, global),
        Command::Doctor(args) if args.drill => drill::drill(args, global),
        Command::Doctor(args) => doctor::doctor(args, global),
        Command::Capture(args) => capture::capture(args, global),
        Command::Inspect(args) => inspect::inspect(args, global),
        Command::Fleet(args) => fleet::fleet(args, global),
        Command::Schema { of } => output::print(schema(*of).as_bytes()).map(|()| Exit::Done),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "jetfault", &mut script);
            output::print(&script).map(|()| Exit::Done)
        }
        Command::Man(args) => man::man(args),
    }
}

fn schema(of: SchemaOf) -> String {
    let schema = match of {
        SchemaOf::Matrix => json_schema(),
        SchemaOf::Report => report_schema(),
        SchemaOf::Joined => joined_schema(),
    };
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema has string keys");
    text.push('\n');
    text
}

fn start_tracing(global: &Global) {
    let level = match global.verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(output::colours(global, &io::stderr()))
        .with_max_level(level)
        .without_time()
        // Its own words about a line that could not be written would go to the same lost terminal, and panic there.
        .log_internal_errors(false)
        .init();
}

/// `__worker [--parent PID] [--oom-score-adj N] [--script FILE]`: the child of a trial; with a script, a process that
/// the fake worker left behind, which has no conversation.
fn worker_main(args: &[OsString]) -> ExitCode {
    let (flags, rest) = ParentFlags::take(args);
    if let Err(error) = flags.bind() {
        output::say(format_args!("error: {error}"));
        return ExitCode::from(worker::EXIT_NO_CONVERSATION);
    }
    match rest {
        [] => worker::main(work_on_cell),
        [flag, file] if flag == "--script" => match read_script(file).and_then(|script| fake::play(&script, None)) {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                output::say(format_args!("error: {error}"));
                Exit::Usage.into()
            }
        },
        _ => Exit::Usage.into(),
    }
}

/// The work on a cell, on the CPUs that its settings name: the worker is still alone with its first thread here.
fn work_on_cell(settings: &Settings, seed: u64, reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
    affinity::confine(&settings.cpus).map_err(|error| WorkError::unsupported(error.to_string()))?;
    linear4bit::work(settings, seed, reporter)
}

fn read_script(file: &OsString) -> io::Result<String> {
    if file == "-" {
        let mut script = String::new();
        return io::stdin().read_to_string(&mut script).map(|_| script);
    }
    std::fs::read_to_string(file)
}
