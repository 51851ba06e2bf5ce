//! `run --detach`: a run that another process goes on with, and the words about it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::is_closed;
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::perform::boot::Detached;
use crate::perform::host::Sysroot;
use crate::perform::store::{ResultsDir, RunDir};

/// How long the process may take until it holds the results directory.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is looked for.
const PERIOD: Duration = Duration::from_millis(20);

/// Leaves `run`, which nobody holds any more, to a process that outlives this session; returns once that works on it.
pub(super) fn hand_over(results: &ResultsDir, run: &RunDir, harness: &Path, sysroot: &Sysroot) -> Result<(), Failure> {
    let id = &run.id;
    let detached = Detached { harness, run: id, run_dir: &run.path, sysroot };
    let says = detached.start().or_fail(Exit::Unfit).map_err(|failure| {
        failure.hint(format!("nothing was started and nothing is lost: `jetfault resume {id}` goes on"))
    })?;
    let until = Instant::now() + PATIENCE;
    // A short run may be over before it was ever seen to be held.
    while results.is_held() == Some(false) && !is_closed(run)? {
        if Instant::now() > until {
            return Err(Failure::words(Exit::Unfit, format!("the process that was to go on with {id} did not"))
                .hint(format!("what it said: {says}")));
        }
        thread::sleep(PERIOD);
    }
    output::say(format_args!(
        "{id} goes on without this session: `jetfault attach {id}` follows it, `jetfault stop {id}` ends it; what it \
         says: {says}"
    ));
    Ok(())
}
