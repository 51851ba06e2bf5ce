//! How people speak to it: arguments, rendering, exit codes.

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

use crate::model::outcome::PeakMemory;
use crate::model::settings::Settings;
use crate::perform::affinity;
use crate::perform::exec::{self, ParentFlags};
use crate::perform::supervise::WORKER_SUBCOMMAND;
use crate::workload::worker::{Reporter, WorkError};
use crate::workload::{fake, linear4bit, worker};

/// Exit code of a command line that makes no sense.
const EXIT_USAGE: u8 = 2;

/// Runs the command line `args`, the program's name first.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.skip(1).collect();
    match args.split_first() {
        Some((name, rest)) if name == WORKER_SUBCOMMAND => worker_main(rest),
        Some((name, rest)) if name == exec::SUBCOMMAND => exec::main(rest),
        Some(_) | None => ExitCode::from(EXIT_USAGE),
    }
}

/// `__worker [--parent PID] [--oom-score-adj N] [--script FILE]`: the child of a trial; with a script, a process that
/// the fake worker left behind, which has no conversation.
fn worker_main(args: &[OsString]) -> ExitCode {
    let (flags, rest) = ParentFlags::take(args);
    if let Err(error) = flags.bind() {
        eprintln!("error: {error}");
        return ExitCode::from(worker::EXIT_NO_CONVERSATION);
    }
    match rest {
        [] => worker::main(work_on_cell),
        [flag, file] if flag == "--script" => match read_script(file).and_then(|script| fake::play(&script, None)) {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(EXIT_USAGE)
            }
        },
        _ => ExitCode::from(EXIT_USAGE),
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
