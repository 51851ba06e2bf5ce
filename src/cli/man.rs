//! `man`: the manual pages, made from the command line itself.

use std::fs;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::cli::args::{Cli, ManArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::output;

/// `jetfault man`: `jetfault.1` to standard output, or a page for every command into a directory.
///
/// # Errors
/// See [`Failure`].
pub fn man(args: &ManArgs) -> Outcome {
    // Global options stand in the first page; each command's page has its own.
    let command = Cli::command().disable_help_subcommand(true);
    let Some(dir) = &args.to else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).or_fail(Exit::Bug)?;
        return output::print(&page).map(|()| Exit::Done);
    };
    let failed = |error| Failure::words(Exit::Usage, format!("write manual pages to {}: {error}", dir.display()));
    fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(command, dir).map_err(failed)?;
    Ok(Exit::Done)
}
