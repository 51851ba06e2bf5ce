//! Standard output: data, whole, and a closed pipe is no error.

use std::env;
use std::io::{self, IsTerminal, Write};

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
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.or_fail(Exit::Unfit),
    }
}

/// Whether colours are wanted on standard output.
pub fn style(global: &Global) -> Style {
    let colours = match global.color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && io::stdout().is_terminal(),
    };
    let columns = tcgetwinsize(io::stdout()).map_or(COLUMNS_DEFAULT, |size| usize::from(size.ws_col));
    if colours { Style::coloured(columns) } else { Style::plain(columns) }
}
