//! `capture`: what this machine says, as a directory that `--sysroot` reads.

use crate::cli::args::{CaptureArgs, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::model::units::counted;
use crate::perform::capture::{CaptureError, Redaction, capture as write_capture};

/// `jetfault capture --to DIR`.
///
/// # Errors
/// See [`Failure`].
pub fn capture(args: &CaptureArgs, global: &Global) -> Outcome {
    let redaction = if args.no_redact { Redaction::Verbatim } else { Redaction::Redacted };
    let written = match write_capture(&global.sysroot, &args.to, redaction) {
        Err(error @ CaptureError::NotEmpty(_)) => {
            return Err(Failure::words(Exit::Usage, error.to_string())
                .hint("name a directory that is empty or not there yet; nothing was changed"));
        }
        written => written.or_fail(Exit::Unfit)?,
    };
    let dir = args.to.display();
    output::print(format!("{dir}\n").as_bytes())?;
    if !global.quiet {
        let (files, kilobytes) = (written.files, written.bytes.div_ceil(1000));
        output::say(format_args!("{files} files, {kilobytes} kB; try: jetfault doctor --sysroot {dir}"));
        if written.denied > 0 {
            output::say(format_args!(
                "{} may not be read by this user; with sudo more is seen",
                counted(written.denied as u64, "thing")
            ));
        }
        if redaction == Redaction::Redacted {
            output::say(
                "serial numbers, addresses, host and user names were replaced; look it over before you publish it",
            );
        }
    }
    Ok(Exit::Done)
}
