//! `run`, `resume` and `stop`: find or open the run, carry it on, say how it stands.

mod agenda;

mod detach;

mod failures;

mod part;

mod permissions;

mod place;

mod stop;

use std::cell::RefCell;
use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::cli::args::{AllowArgs, BootArgs, DataFormat, Global, ResumeArgs, RunArgs};
use crate::cli::boots::Boots;
use crate::cli::campaign;
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::{self, MatrixSource};
use crate::cli::nightly;
use crate::cli::output;
use crate::cli::plan::make_plan;
use crate::cli::read;
use crate::decide::classify::signal_name;
use crate::decide::plan::Plan;
use crate::decide::start_state::{Known, obstacles, start_state};
use crate::model::board::RebootBy;
use crate::model::evidence::Fact;
use crate::model::ids::{BootId, ContentDigest, DeviceId};
use crate::model::journal::{Event, Opened, Persistence};
use crate::model::settings::Start;
use crate::model::start_state::TraceSources;
use crate::perform::boot::{AtBoot, KERNEL_WORD, Trouble, hold_of, is_switched_off, release};
use crate::perform::host::{MachineFacts, Sysroot};
use crate::perform::invoker;
use crate::perform::journal::last_record;
use crate::perform::machine::StopRequest;
use crate::perform::runner::Ended;
use crate::perform::start_state::{UsedMark, traces};
use crate::perform::store::{FirstFiles, ResultsDir, RunDir, names};

use self::failures::store_failure;
use self::part::{Carriage, Part};
use self::place::{Found, Locks, find, open_results};

pub use self::failures::run_failure;
pub(super) use self::permissions::{allowed, check_permissions};
pub use self::place::machine_dirs;
pub use self::stop::stop;

/// `jetfault run MATRIX`.
///
/// # Errors
/// See [`Failure`].
pub fn run(args: &RunArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    let mut plan = make_plan(&source, &args.matrix)?;
    if let Some(share) = &args.share {
        plan.take(share.clone()).or_fail(Exit::Usage)?;
    }
    let how = Begin {
        new: args.new || args.git_bisect,
        device: args.session.device.as_ref(),
        accept_binary: args.session.accept_binary,
        script: args.script.as_ref(),
        // git waits for the exit code.
        allow: AllowArgs { allow_reboot: args.session.allow.allow_reboot && !args.git_bisect, ..args.session.allow },
        boot: &args.session.boot,
        format: DataFormat::Text,
        detach: args.detach,
    };
    if args.git_bisect && plan.needs.boots > 0 {
        return Err(Failure::words(Exit::Usage, "git bisect run cannot wait for the boots that this matrix needs")
            .hint("`jetfault bisect revisions` goes on over boots; or allow any state with --set baseline.start=any"));
    }
    begin(&source, plan, &how, global)
}

/// How a run is begun, or gone on with.
#[derive(Debug, Clone, Copy)]
pub struct Begin<'a> {
    /// Whether a run that is there is left alone.
    pub new: bool,
    /// What the machine is called.
    pub device: Option<&'a DeviceId>,
    /// Whether the binary may be another one.
    pub accept_binary: bool,
    /// What every worker plays.
    pub script: Option<&'a String>,
    /// What is allowed.
    pub allow: AllowArgs,
    /// How the boot service behaves.
    pub boot: &'a BootArgs,
    /// How a campaign says where it stands.
    pub format: DataFormat,
    /// Whether the run is left to a process that outlives this one.
    pub detach: bool,
}

/// Carries `plan` through: in the run of the same plan if there is one, else in a new one.
///
/// # Errors
/// See [`Failure`].
pub fn begin(source: &MatrixSource, mut plan: Plan, how: &Begin<'_>, global: &Global) -> Outcome {
    let sysroot = Sysroot::new(global.sysroot.clone());
    let allowed = allowed(&how.allow);
    check_permissions(&plan, allowed, &sysroot)?;
    let boots = Boots::of(&plan, allowed, &sysroot, how.boot.unit_dir.as_deref())?;
    boots.check(None)?;
    let (results, persistence) = open_results(global, how.allow.allow_volatile)?;
    if boots.by() != RebootBy::Person && sysroot.is_live() && persistence == Persistence::Unproven {
        let words = format!("whether {} survives a reboot is not proven", results.path().display());
        return Err(Failure::words(Exit::Unfit, words).hint("choose a directory on a disk with --results"));
    }
    let locks = Locks::take(&results)?;
    if !global.quiet {
        output::say(format_args!("results in {}", results.path().display()));
    }
    for warning in plan.warnings.iter().filter(|_| !global.quiet) {
        output::say(warning);
    }
    let here = may_start(&results, &sysroot)?;
    let found = if how.new { Found::None } else { find(&results, &plan)? };
    let harness = Harness::find()?;
    let (run, plan) = match found {
        Found::Same(run) => {
            let plan = read::plan(&run)?;
            (run, plan)
        }
        Found::None => {
            campaign::learn(&results, &mut plan, &sysroot.device(how.device))?;
            let machine = sysroot.facts(sysroot.device(how.device), harness.digest.clone());
            let mut machine = serde_json::to_vec_pretty(&machine).expect("facts hold only maps with string keys");
            machine.push(b'\n');
            let json = plan.to_json();
            let files = FirstFiles { matrix: &source.bytes, plan: &json, machine: &machine };
            (results.create_run(&plan.matrix_name, &files).map_err(store_failure)?, plan)
        }
    };
    locate::remember(&results);
    let first = Opened {
        run: run.id.clone(),
        matrix: plan.matrix_digest.clone(),
        plan: ContentDigest::of(&run.read(names::PLAN).or_fail(Exit::Unfit)?),
        binary: harness.digest.clone(),
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        device: sysroot.device(how.device),
        invoker: invoker::collect().or_fail(Exit::Unfit)?,
        matrix_dir: source.dir.to_string_lossy().into_owned(),
        allowed,
        persistence,
        script: how.script.map(|script| script.replace("; ", "\n")),
    };
    let carried = Carried { results: &results, run: &run, plan, here, harness, format: how.format, locks };
    let start = if how.detach { StartedBy::PersonWhoLeaves } else { StartedBy::Person };
    let manner = Manner { boot: how.boot, accept_binary: how.accept_binary, start };
    carry_on(carried, Some(first), manner, global)
}

/// `jetfault resume [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn resume(args: &ResumeArgs, global: &Global) -> Outcome {
    let (results, run) = locate::run(global, args.run.as_deref())?;
    let start = match (args.at_boot, args.in_unit) {
        (true, _) => StartedBy::Boot,
        (false, true) => StartedBy::Unit,
        (false, false) => StartedBy::Person,
    };
    let manner = Manner { boot: &args.boot, accept_binary: args.accept_binary, start };
    if !args.at_boot {
        return resume_here(&results, &run, manner, global);
    }
    let trouble = Trouble::new(&machine_dirs());
    if is_switched_off(&Sysroot::new(global.sysroot.clone())) {
        let words = format!("{KERNEL_WORD} is on the kernel's command line: nothing is started in this boot");
        output::say(&words);
        trouble.keep(&run.path, &words);
        return Ok(Exit::Done);
    }
    let id = &run.id;
    output::say(format_args!("{id} goes on after a boot and may reboot this machine: `jetfault stop {id}` ends that"));
    let outcome = resume_here(&results, &run, manner, global);
    match &outcome {
        Ok(_) => trouble.clear(),
        // Nobody may be there to read it, and the disk may be the trouble.
        Err(failure) => trouble.keep(&run.path, &failure.in_words()),
    }
    outcome
}

fn resume_here(results: &ResultsDir, run: &RunDir, manner: Manner<'_>, global: &Global) -> Outcome {
    let locks = match (Locks::take(results), manner.start) {
        (Err(failure), StartedBy::Person) if failure.exit == Exit::Held && hold_of(&run.path).is_some() => {
            release(&run.path).or_fail(Exit::Unfit)?;
            output::say(format_args!("{} goes on: it waited for whoever is logged in", run.id));
            return Ok(Exit::Done);
        }
        (locks, _) => locks?,
    };
    let sysroot = Sysroot::new(global.sysroot.clone());
    let here = may_start(results, &sysroot)?;
    let plan = read::plan(run)?;
    let harness = Harness::find()?;
    let carried = Carried { results, run, plan, here, harness, format: DataFormat::Text, locks };
    carry_on(carried, None, manner, global)
}

/// Who started the harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartedBy {
    /// Somebody who typed a command.
    Person,
    /// Somebody who typed a command, and leaves the run to another process.
    PersonWhoLeaves,
    /// The unit to which it was left.
    Unit,
    /// What starts it at a boot.
    Boot,
    /// `stop`: only to put back what was changed.
    Stop,
}

/// How a run is carried on.
#[derive(Debug, Clone, Copy)]
struct Manner<'a> {
    boot: &'a BootArgs,
    accept_binary: bool,
    start: StartedBy,
}

/// The binary that children are started from.
struct Harness {
    path: PathBuf,
    digest: ContentDigest,
}

impl Harness {
    fn find() -> Result<Self, Failure> {
        let path = env::current_exe().or_fail(Exit::Unfit)?;
        let digest = File::open(&path).and_then(|mut file| ContentDigest::of_reader(&mut file)).or_fail(Exit::Unfit)?;
        Ok(Self { path, digest })
    }
}

/// Everything a run is carried on with.
struct Carried<'a> {
    results: &'a ResultsDir,
    run: &'a RunDir,
    plan: Plan,
    here: BootId,
    harness: Harness,
    format: DataFormat,
    locks: Locks,
}

/// The boot that is up, if anything may be started in it: asked before anything is made on the disk.
fn may_start(results: &ResultsDir, sysroot: &Sysroot) -> Result<BootId, Failure> {
    if results.is_stopped() {
        let stop = results.path().join(names::STOP);
        return Err(Failure::words(Exit::Unfit, format!("{} forbids to start anything", stop.display()))
            .hint(format!("remove it: rm {}", stop.display())));
    }
    sysroot.boot_id().map_err(|error| {
        Failure::new(Exit::Unfit, error).hint("without a boot id a reboot cannot be told from a restart of jetfault")
    })
}

fn carry_on(carried: Carried<'_>, first: Option<Opened>, manner: Manner<'_>, global: &Global) -> Outcome {
    let Carried { results, run, mut plan, here, harness, format, locks } = carried;
    let opened = match read::opening(run)? {
        Some(opened) => opened,
        None => first.clone().ok_or_else(|| {
            Failure::words(Exit::Usage, format!("{} was never begun", run.id))
                .hint("`jetfault run` of its matrix begins it; nothing ran yet, so nothing is lost")
        })?,
    };
    let changed_binary = opened.binary != harness.digest;
    let was_closed = is_closed(run)?;
    if changed_binary && !manner.accept_binary && !was_closed {
        return Err(Failure::words(Exit::Usage, format!("{} began with another jetfault binary", run.id))
            .hint("use that one, or allow the change with --accept-binary; it is written down"));
    }
    let sysroot = Sysroot::new(global.sysroot.clone());
    if !was_closed {
        check_software(run, &sysroot)?;
    }
    let boots = Boots::of(&plan, opened.allowed, &sysroot, manner.boot.unit_dir.as_deref())?;
    let used = UsedMark::new(&machine_dirs(), &sysroot);
    if !global.quiet && !was_closed && plan.cells.iter().any(|cell| cell.settings.start == Start::Cold) {
        say_what_is_against_cold(&sysroot, &used, &here);
    }
    let signal = stop_signal().or_fail(Exit::Unfit)?;
    let delay = Duration::from_secs(manner.boot.boot_delay);
    let at_boot = (manner.start == StartedBy::Boot)
        .then(|| Rc::new(RefCell::new(AtBoot::new(sysroot.clone(), run.path.clone(), delay))));
    let mut part = Part {
        results,
        run,
        opened,
        here,
        harness,
        used,
        boots: boots.clone(),
        start: manner.start,
        at_boot,
        signal,
        is_asked_for: false,
        is_over: false,
    };
    let ended = loop {
        // A part of a campaign ends where it has a cell that the plan in hand does not have.
        match part.carry(&plan, global)? {
            Carriage::Ended(ended) => break ended,
            Carriage::Asked => plan = read::plan(run)?,
            Carriage::Served => {
                drop(locks);
                match boots.are_served() {
                    true => boots.hand_over(run, &sysroot, manner.boot)?,
                    false => detach::hand_over(results, run, &part.harness.path, &sysroot)?,
                }
                if manner.start == StartedBy::PersonWhoLeaves {
                    output::print(format!("{}\n", run.id).as_bytes())?;
                }
                return Ok(Exit::Undecided);
            }
        }
    };
    match &ended {
        Ended::Closed(_) | Ended::Stopped(StopRequest::AfterTrial { .. }) => boots.disarm(run)?,
        // A shutdown, or a reboot of ours: the next boot goes on.
        Ended::Stopped(StopRequest::Now { .. }) | Ended::Rebooting(_) | Ended::Asking => {}
    }
    conclude(run, ended, &boots, format, global)
}

/// The versions on which results depend are those with which the run began: other ones are another board.
fn check_software(run: &RunDir, sysroot: &Sysroot) -> Result<(), Failure> {
    let began = run.read(names::MACHINE).ok().and_then(|json| serde_json::from_slice::<MachineFacts>(&json).ok());
    let Some(began) = began else { return Ok(()) };
    let changed = sysroot.versions().into_iter().zip(began.versions()).find_map(|((what, now), (_, then))| {
        let (Fact::Known(now), Fact::Known(then)) = (now, then) else { return None };
        (now != then).then(|| format!("the {what} was {then} when {} began, and is {now}", run.id))
    });
    match changed {
        None => Ok(()),
        Some(words) => Err(Failure::words(Exit::Usage, words)
            .hint("put the old one back, or measure the new one in a run of its own: `jetfault run --new`")),
    }
}

/// Prints what a run found; returns the exit code that its results have.
///
/// # Errors
/// If the run cannot be read back, or nothing be printed.
pub fn print_result(run: &RunDir, format: DataFormat, global: &Global) -> Outcome {
    match read::plan(run)?.nightly {
        Some(_) => nightly::print(run, format, None, global),
        None => campaign::print_standing(run, format, global),
    }
}

/// Says how the run stands and gives its exit code.
fn conclude(run: &RunDir, ended: Ended, boots: &Boots, format: DataFormat, global: &Global) -> Outcome {
    let report = print_result(run, format, global)?;
    match ended {
        Ended::Closed(_) => Ok(report),
        Ended::Stopped(StopRequest::Now { signal }) => {
            if !global.quiet {
                output::say(format_args!("stopped by {}; `jetfault resume {}` goes on", signal_name(signal), run.id));
            }
            Ok(Exit::Signal(u8::try_from(signal).unwrap_or(0)))
        }
        Ended::Stopped(StopRequest::AfterTrial { why }) => {
            if !global.quiet {
                output::say(format_args!("stopped: {why}; `jetfault resume {}` goes on", run.id));
            }
            // The run's own STOP asked once and is used up; the one of the results directory stands until a person
            // removes it.
            if run.stop_file().exists() {
                fs::remove_file(run.stop_file()).or_fail(Exit::Unfit)?;
            }
            Ok(if report == Exit::FaultFound { Exit::FaultFound } else { Exit::Undecided })
        }
        Ended::Asking => unreachable!("only a campaign is asked, and it answers"),
        Ended::Rebooting(asked) => {
            let how = match &asked.power_mode {
                Some(mode) => format!("switch the power mode to {mode} (nvpmodel asks, and reboots)"),
                None => "reboot this machine".to_owned(),
            };
            match boots.by() {
                RebootBy::Person => {
                    output::say(format_args!("{how}, then `jetfault resume {}`: {}", run.id, asked.why));
                }
                by => output::say(format_args!("rebooting ({by}): {}", asked.why)),
            }
            Ok(if report == Exit::FaultFound { Exit::FaultFound } else { Exit::Undecided })
        }
    }
}

/// Whether the run is over.
///
/// # Errors
/// If its journal cannot be read.
pub fn is_closed(run: &RunDir) -> Result<bool, Failure> {
    let last = last_record(run.open_journal().or_fail(Exit::Unfit)?).or_fail(Exit::Unfit)?;
    Ok(last.is_some_and(|record| matches!(record.event, Event::Closed(_))))
}

/// A person learns before the first trial, and not from a night of void ones, what makes cold starts impossible here.
fn say_what_is_against_cold(sysroot: &Sysroot, used: &UsedMark, here: &BootId) {
    let traces = traces(sysroot, used.read(here), TraceSources::FilesAndPrograms);
    for obstacle in obstacles(&traces) {
        output::say(format_args!("warning: cold starts: {obstacle}"));
    }
    let start = start_state(&traces, Known::default());
    if !start.is_cold() {
        let words = start.because.join("; ");
        output::say(format_args!("warning: this boot does not pass for cold ({}): {words}", start.cold));
    }
}

/// Notes the first signal that asks to stop; a second one of the same kind ends the harness at once, and with it, since
/// it dies with its parent, the child. Under `nohup` a hangup stays ignored.
fn stop_signal() -> std::io::Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    let hangup = (!invoker::ignores_hangup()).then_some(SIGHUP);
    for number in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        let once = Arc::new(AtomicBool::new(false));
        flag::register_conditional_shutdown(number, 128 + number, once.clone())?;
        flag::register(number, once)?;
        flag::register_usize(number, signal.clone(), number as usize)?;
    }
    Ok(signal)
}
