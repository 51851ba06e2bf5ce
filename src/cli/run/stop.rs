//! `stop`: asks whoever works on a run to end it after the trial, or puts back what it changed where nobody does.

use std::fs::File;
use std::path::Path;

use super::{Manner, StartedBy, is_closed, resume_here};
use crate::cli::args::{BootArgs, Global, StopArgs};
use crate::cli::errors::{Failure, Outcome};
use crate::cli::exit::Exit;
use crate::cli::{locate, output};
use crate::perform::boot::UnitDir;
use crate::perform::host::Sysroot;

/// `jetfault stop [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn stop(args: &StopArgs, global: &Global) -> Outcome {
    let (results, run) = locate::run(global, args.run.as_deref())?;
    let sysroot = Sysroot::new(global.sysroot.clone());
    let units = UnitDir::new(&sysroot, args.unit_dir.as_deref());
    let is_armed = units.is_armed_for(&run.path);
    if is_closed(&run)? {
        output::say(format_args!("{} is over", run.id));
        return Ok(Exit::Done);
    }
    let is_idle = results.is_held() == Some(false);
    if is_idle && !is_armed {
        output::say(format_args!("nobody works on {}: there is nothing to stop", run.id));
        return Ok(Exit::Done);
    }
    let stop: &Path = &run.stop_file();
    File::create(stop)
        .and_then(|file| file.sync_all())
        .map_err(|error| Failure::words(Exit::Unfit, format!("cannot write {}: {error}", stop.display())))?;
    if is_idle {
        // It rests between two boots: what it changed is put back now.
        let boot = BootArgs { boot_delay: 0, unit_dir: args.unit_dir.clone() };
        let manner = Manner { boot: &boot, accept_binary: false, start: StartedBy::Stop };
        return resume_here(&results, &run, manner, global).map(|_| Exit::Done);
    }
    output::say(format_args!("{} stops after its current trial; `jetfault resume {}` goes on", run.id, run.id));
    Ok(Exit::Done)
}
