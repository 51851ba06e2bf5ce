//! Standard output: data, whole, and a closed pipe is no error. Standard error: talk, and nobody need listen.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;

use crate::cli::args::{ColorWhen, Global};
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::render::{COLUMNS_DEFAULT, Style};

/// Prints `bytes`.
///
/// # Errors
/// If they cannot be written, unless nobody reads them any more.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    offer(bytes).map(drop)
}

/// Prints `bytes`; returns whether anybody reads them still.
///
/// # Errors
/// If they cannot be written for another reason.
pub fn offer(bytes: &[u8]) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe || is_hung_up(&error, &stdout) => Ok(false),
        written => written.map(|()| true).or_fail(Exit::Unfit),
    }
}

/// Whether `error` says that the terminal is gone, as after a lost ssh session, and not that a disk fails: the words of
/// the system are the same.
fn is_hung_up(error: &io::Error, stdout: impl AsFd) -> bool {
    let is_device =
        || fstat(stdout).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice);
    error.raw_os_error() == Some(Errno::IO.raw_os_error()) && is_device()
}

/// Says one line on standard error, which may be a closed pipe or a lost terminal: nothing ends for that. `eprintln!`
/// panics there, and would turn a fault that was found into a bug of ours.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Whether colours are wanted on `stream`.
pub fn colours(global: &Global, stream: &impl IsTerminal) -> bool {
    match global.color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => {
            let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
            env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && !is_dumb && stream.is_terminal()
        }
    }
}

/// How standard output is written.
pub fn style(global: &Global) -> Style {
    let colours = colours(global, &io::stdout());
    let columns = tcgetwinsize(io::stdout()).map_or(COLUMNS_DEFAULT, |size| usize::from(size.ws_col));
    if colours { Style::coloured(columns) } else { Style::plain(columns) }
}
