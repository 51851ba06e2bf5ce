//! `observe`: what a desk saw of this machine, taken from standard input and kept for the journal of a run.

use std::io::{self, Read};

use crate::cli::args::{Global, ObserveArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::{locate, output, read, render};
use crate::model::observed::OBSERVED_BYTES_MAX;
use crate::perform::spool::{self, Spool};

/// `jetfault observe [RUN]`. The journal has one writer, who may be at work: it is kept beside it, durably, and whoever
/// holds the journal next takes it in.
///
/// # Errors
/// If what comes is no observation, or cannot be kept.
pub fn observe(args: &ObserveArgs, global: &Global) -> Outcome {
    let mut json = Vec::new();
    io::stdin().take(OBSERVED_BYTES_MAX + 1).read_to_end(&mut json).or_fail(Exit::Unfit)?;
    let observed = spool::parse(&json).map_err(|why| {
        Failure::words(Exit::Usage, format!("standard input is no observation: {why}"))
            .hint("`jetfault fleet attach` on a desk writes one after each boot that it watched end")
    })?;
    let (_, run) = locate::run(global, args.run.as_deref())?;
    if read::is_complete(&run)? {
        output::say(format_args!("{} is over: what was seen is kept beside it, and changes no verdict", run.id));
    }
    Spool::of(&run).deposit(&observed).or_fail(Exit::Unfit)?;
    output::print(format!("{}: kept: {}\n", run.id, render::one_line(&observed.in_words())).as_bytes())?;
    Ok(Exit::Done)
}
