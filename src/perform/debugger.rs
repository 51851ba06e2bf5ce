//! What a debugger makes of the core of a crash: a stack trace with the names that the files have.
//!
//! The core and the libraries are a user's, and a debugger believes them: it runs as the user, without the scripts that
//! files bring, for a limited time. Its words are for people; no verdict rests on them.

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crate::model::crash::Crash;
use crate::model::journal::Invoker;
use crate::perform::aside::Aside;
use crate::perform::linux::make_trial_dir;
use crate::perform::processes::RunMark;
use crate::perform::supervise::{CommandLine, Program, SideMark, Supervisor};

/// The note of an outcome that says where the trace is, or why there is none.
pub(super) const NOTE: &str = "backtrace";

/// How long it may take: a library of a gigabyte is indexed in some ten seconds on a slow card.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most frames of one thread.
const FRAMES: &str = "thread apply all bt 32";

/// Runs `gdb` on `core`, with its output in `trial_dir`, and says where its words are, or why there are none.
pub(super) fn trace(
    gdb: &str,
    (crash, core, trial_dir): (&Crash, &Path, &Path),
    (run, invoker, mark): (&RunMark, &Invoker, &SideMark),
    supervisor: &mut Supervisor,
    signal: &AtomicUsize,
) -> String {
    let dir = trial_dir.join("gdb");
    if !core.is_file() {
        return "no core was written".to_owned();
    }
    if let Err(error) = make_trial_dir(&dir, invoker) {
        return format!("{}: {error}", dir.display());
    }
    let commands =
        ["set pagination off", "info threads", "bt 32", FRAMES, "x/4i $pc", "info registers", "info sharedlibrary"];
    let mut argv: Vec<String> =
        [gdb, "-q", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"]
            .map(str::to_owned)
            .into();
    argv.extend(commands.iter().flat_map(|command| ["-ex".to_owned(), (*command).to_owned()]));
    argv.extend([crash.program.clone(), core.display().to_string()]);
    let aside = Aside {
        program: Program::Command(CommandLine { argv, cwd: Some("/".into()), ..CommandLine::default() }),
        mark,
        run,
        dir: &dir,
        environment: &[],
        invoker,
        timeout: PATIENCE,
    };
    match aside.run(supervisor, signal) {
        Ok(_) => format!("{}/stdout.log", dir.display()),
        Err(why) => format!("{gdb}: {why}"),
    }
}
