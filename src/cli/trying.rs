//! `try`: a command as a workload, without a matrix. It writes the matrix it runs, so that it can be edited.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::cli::args::{DataFormat, Global, MatrixArgs, TryArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::MatrixSource;
use crate::cli::output;
use crate::cli::plan::{make_plan, no_cpu};
use crate::cli::run::{Begin, allowed, begin, check_permissions};
use crate::decide::attempt::{Attempt, Written, matrix_of};
use crate::model::matrix::did_you_mean;
use crate::model::units::counted;
use crate::perform::files::write_durably;
use crate::perform::host::Sysroot;

/// The seed of every attempt: the same command in the same order each time. Its value has no meaning.
const SEED: u64 = 1;

/// How long the machine is watched after each trial where no GPU can fail late.
const SETTLE_WITHOUT_GPU: &str = "200ms";

/// The most matrices of one name that are written beside each other.
const FILES_MAX: u32 = 1000;

/// `jetfault try -- COMMAND…`.
///
/// # Errors
/// See [`Failure`].
pub fn trying(args: &TryArgs, global: &Global) -> Outcome {
    let cwd = env::current_dir().or_fail(Exit::Usage)?;
    check_program(&args.command[0], &cwd)?;
    let sysroot = Sysroot::new(global.sysroot.clone());
    let has_gpu = sysroot.has_gpu_nodes();
    let attempt = Attempt {
        command: args.command.clone(),
        vary: args.vary.clone(),
        cwd: cwd.to_string_lossy().into_owned(),
        name: args.name.clone().unwrap_or_default(),
        trials: args.trials,
        cold: args.cold,
        timeout: args.timeout.clone(),
        settle: (!has_gpu).then(|| SETTLE_WITHOUT_GPU.to_owned()),
        seed: SEED,
    };
    let written = matrix_of(&attempt).map_err(|error| {
        let hint = error.hint.clone();
        Failure::new(Exit::Usage, error).hint(hint)
    })?;
    let source =
        MatrixSource { name: "the matrix of `jetfault try`".into(), bytes: written.text.clone().into(), dir: cwd };
    let unchanged = MatrixArgs { matrix: String::new(), cell: Vec::new(), trials: None, set: Vec::new() };
    // Read before it is written: what is wrong with it leaves no file behind.
    let plan = make_plan(&source, &unchanged)?;
    check_permissions(&plan, allowed(&args.allow), &sysroot)?;
    if let Some(why) = plan.cells.iter().find_map(|cell| no_cpu(&cell.settings)) {
        return Err(Failure::words(Exit::Usage, why).hint("`nproc` counts the CPUs, and they are numbered from 0"));
    }
    let file = write(&written, args.write.as_deref(), &source.dir)?;
    if !global.quiet {
        let cells = plan.cells.len();
        output::say(format_args!(
            "{} of {} trial{} each; the matrix is {}",
            counted(cells as u64, "cell"),
            args.trials,
            if args.trials == 1 { "" } else { "s" },
            file.display()
        ));
    }
    let source = MatrixSource { name: file.display().to_string(), ..source };
    let how = Begin {
        new: true,
        device: None,
        accept_binary: false,
        script: None,
        allow: args.allow,
        boot: &args.boot,
        format: DataFormat::Text,
        detach: false,
    };
    let exit = begin(&source, plan, &how, global).inspect_err(|failure| {
        if failure.exit == Exit::Held {
            // Nothing was run, and another try would write one more beside it.
            let _ = fs::remove_file(&file);
        }
    })?;
    if !global.quiet {
        say_what_next(exit, args, &file);
    }
    Ok(exit)
}

/// A program that is not there is said before anything is made, and not by a night of void trials.
fn check_program(program: &str, cwd: &Path) -> Result<(), Failure> {
    let is_executable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        let path = cwd.join(program);
        let why = match (path.is_file(), is_executable(&path)) {
            (true, true) => return Ok(()),
            (true, false) => "is not executable",
            (false, _) => "is not there",
        };
        let hint = if path.is_file() {
            format!("chmod +x {program}, or name its interpreter before it")
        } else {
            "check the path".into()
        };
        return Err(Failure::words(Exit::Usage, format!("{program} {why}")).hint(hint));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = env::split_paths(&path).collect();
    if dirs.iter().any(|dir| is_executable(&dir.join(program))) {
        return Ok(());
    }
    let failure = Failure::words(Exit::Usage, format!("no program `{program}` in PATH"));
    if is_executable(&cwd.join(program)) {
        return Err(failure.hint(format!("did you mean ./{program}? a command without a slash is looked up in PATH")));
    }
    let names = dirs
        .iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.collect();
    Err(match did_you_mean(program, names.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None if program.contains(' ') => {
            failure.hint("write the command and its arguments after --, not as one word; a shell is `sh -c '…'`")
        }
        None => failure.hint("give its path"),
    })
}

/// Writes the matrix where it is asked for, else beside the person: a name that is taken by another content gets a number.
fn write(written: &Written, asked: Option<&Path>, cwd: &Path) -> Result<PathBuf, Failure> {
    let unwritable = |path: &Path, why: &dyn std::fmt::Display| {
        Failure::words(Exit::Usage, format!("cannot write the matrix {}: {why}", path.display()))
            .hint("say where with --write FILE")
    };
    let free = |path: &Path| match fs::read(path) {
        Ok(there) if there == written.text.as_bytes() => Some(false),
        Ok(_) => None,
        Err(_) => Some(true),
    };
    let numbered = |number: u32| match number {
        1 => cwd.join(format!("jetfault-{}.toml", written.name)),
        number => cwd.join(format!("jetfault-{}-{number}.toml", written.name)),
    };
    let (path, is_new) = match asked {
        Some(path) => {
            let path = cwd.join(path);
            let is_new = free(&path).ok_or_else(|| unwritable(&path, &"it holds something else"))?;
            (path, is_new)
        }
        None => (1..=FILES_MAX)
            .find_map(|number| free(&numbered(number)).map(|is_new| (numbered(number), is_new)))
            .ok_or_else(|| unwritable(&numbered(1), &"too many are there"))?,
    };
    if is_new {
        write_durably(&path, written.text.as_bytes()).map_err(|error| unwritable(&path, &error))?;
    }
    Ok(path)
}

/// The commands that a person is likely to want next.
fn say_what_next(exit: Exit, args: &TryArgs, file: &Path) {
    let file = file.display();
    let cold = if args.cold { String::new() } else { "; or from a cold boot: --cold --allow-reboot".to_owned() };
    match exit {
        Exit::Done => {
            let more = args.trials.saturating_mul(5).max(20);
            output::say(format_args!(
                "hint: no fault in {}: a rare one may still be there. More trials: --trials {more}{cold}",
                counted(args.trials.into(), "trial")
            ));
        }
        Exit::FaultFound => {
            output::say("hint: `jetfault explain baseline` shows why a trial got its verdict, and what it wrote");
            match args.vary.is_empty() {
                true => output::say("hint: what does it depend on? --vary cpus=0 --vary env:MALLOC_PERTURB_=165 …"),
                false => output::say("hint: `jetfault compare --axis NAME` says whether a difference is one"),
            }
        }
        Exit::Undecided => output::say("hint: `jetfault report` says which trials were void, and why"),
        _ => return,
    }
    output::say(format_args!("hint: edit {file} for stages, promises and deadlines; then `jetfault run {file}`"));
}
