//! `run` and `resume`: find or open the run, carry it on, say how it stands.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::cli::args::{AllowArgs, Global, ResumeArgs, RunArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate;
use crate::cli::output;
use crate::cli::plan::make_plan;
use crate::cli::progress::{Loudness, Progress};
use crate::cli::read;
use crate::decide::agenda::{Agenda, CellHere, cannot_run, faults_the_machine};
use crate::decide::classify::signal_name;
use crate::decide::plan::{Cell, Permission, Plan};
use crate::decide::run::Phase;
use crate::decide::start_state::{Known, obstacles, start_state};
use crate::model::capability::BuildCapabilities;
use crate::model::ids::{BootId, ContentDigest};
use crate::model::journal::{Allowed, Event, Launcher, Opened, Persistence, SetChanged};
use crate::model::settings::{Breadcrumbs, CompanionProgram, Start, WorkloadSettings};
use crate::model::start_state::TraceSources;
use crate::model::verdict::Provenance;
use crate::perform::host::Sysroot;
use crate::perform::injector;
use crate::perform::invoker;
use crate::perform::journal::last_record;
use crate::perform::linux::{Linux, Setting, may_use_gpu, warms};
use crate::perform::machine::StopRequest;
use crate::perform::persistence::persistence;
use crate::perform::prepare::{Made, Prepared, Workshop};
use crate::perform::processes::RunMark;
use crate::perform::runner::{COMMIT_PERIOD_MS, Circumstances, Ended, RunError, Runner};
use crate::perform::settings::{Reach, Tools, power_modes};
use crate::perform::start_state::{UsedMark, traces};
use crate::perform::store::{FirstFiles, ResultsDir, RunDir, StoreError, disk_trouble, lock_machine, names};
use crate::perform::supervise::Supervisor;

/// `jetfault run MATRIX`.
///
/// # Errors
/// See [`Failure`].
pub fn run(args: &RunArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    let plan = make_plan(&source, &args.matrix)?;
    let sysroot = Sysroot::new(global.sysroot.clone());
    check_permissions(&plan, allowed(&args.allow), &sysroot)?;
    let (results, persistence) = open_results(global, args.allow.allow_volatile)?;
    let _locks = Locks::take(&results)?;
    if !global.quiet {
        output::say(format_args!("results in {}", results.path().display()));
    }
    for warning in plan.warnings.iter().filter(|_| !global.quiet) {
        output::say(warning);
    }
    let here = may_start(&results, &sysroot)?;
    let found = if args.new { Found::None } else { find(&results, &plan)? };
    let harness = Harness::find()?;
    let (run, plan) = match found {
        Found::Same(run) => {
            let plan = read::plan(&run)?;
            (run, plan)
        }
        Found::None => {
            let machine = sysroot.facts(sysroot.device(args.device.as_ref()), harness.digest.clone());
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
        device: sysroot.device(args.device.as_ref()),
        invoker: invoker::collect().or_fail(Exit::Unfit)?,
        matrix_dir: source.dir.to_string_lossy().into_owned(),
        allowed: allowed(&args.allow),
        persistence,
        script: args.script.as_ref().map(|script| script.replace("; ", "\n")),
    };
    let carried = Carried { results: &results, run: &run, plan: &plan, sysroot, here, harness };
    carry_on(carried, Some(first), args.accept_binary, global)
}

/// `jetfault resume [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn resume(args: &ResumeArgs, global: &Global) -> Outcome {
    let (results, run) = locate::run(global, args.run.as_deref())?;
    let _locks = Locks::take(&results)?;
    let sysroot = Sysroot::new(global.sysroot.clone());
    let here = may_start(&results, &sysroot)?;
    let plan = read::plan(&run)?;
    let carried = Carried { results: &results, run: &run, plan: &plan, sysroot, here, harness: Harness::find()? };
    carry_on(carried, None, args.accept_binary, global)
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
    plan: &'a Plan,
    sysroot: Sysroot,
    here: BootId,
    harness: Harness,
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

fn carry_on(carried: Carried<'_>, first: Option<Opened>, accept_binary: bool, global: &Global) -> Outcome {
    let Carried { results, run, plan, sysroot, here, harness } = carried;
    let opened = match read::opening(run)? {
        Some(opened) => opened,
        None => first.clone().ok_or_else(|| {
            Failure::words(Exit::Usage, format!("{} was never begun", run.id))
                .hint("`jetfault run` of its matrix begins it; nothing ran yet, so nothing is lost")
        })?,
    };
    let changed_binary = opened.binary != harness.digest;
    if changed_binary && !accept_binary && !is_closed(run)? {
        return Err(Failure::words(Exit::Usage, format!("{} began with another jetfault binary", run.id))
            .hint("use that one, or allow the change with --accept-binary; it is written down"));
    }
    let tools = Tools::new(&plan.tools, &opened.matrix_dir, &sysroot);
    let keep = run.file(names::SETTINGS);
    let agenda = agenda(plan, &opened, Reach { sysroot: &sysroot, tools: &tools, keep: &keep, boot: &here });
    let used = UsedMark::new(&machine_dirs(), &sysroot);
    if !global.quiet && !is_closed(run)? && plan.cells.iter().any(|cell| cell.settings.start == Start::Cold) {
        say_what_is_against_cold(&sysroot, &used, &here);
    }
    let circumstances = Circumstances {
        here: here.clone(),
        device: opened.device.clone(),
        launcher: launcher(),
        provenance: plan.all_cells().map(|cell| provenance(cell, &opened)).collect(),
    };
    let signal = stop_signal().or_fail(Exit::Unfit)?;
    let (prepared, made) = match is_closed(run)? {
        true => Default::default(),
        false => prepare(results, run, plan, (&opened, &harness.path, &signal), global)?,
    };
    let setting = Setting {
        sysroot,
        here,
        tools,
        used,
        prepared,
        invoker: opened.invoker.clone(),
        matrix_dir: opened.matrix_dir.clone(),
        script: opened.script.clone(),
        harness: harness.path,
        signal,
    };
    let loudness = loudness(global);
    let mut progress = Progress::new(plan, loudness);
    let mut machine = Linux::new(run, results, plan, setting).or_fail(Exit::Unfit)?;
    let mut runner =
        Runner::open(&mut machine, &agenda, circumstances, &mut progress).map_err(|error| run_failure(run, error))?;
    if let (Phase::Closed(_), false) = (&runner.state().phase, global.quiet) {
        output::say(format_args!(
            "{} is complete: nothing is repeated (`jetfault run --new` opens another run)",
            run.id
        ));
    }
    if runner.state().opened.is_none() {
        runner.begin(first.unwrap_or(opened)).map_err(|error| run_failure(run, error))?;
    } else if changed_binary && !matches!(runner.state().phase, Phase::Closed(_)) {
        let (old, new) = (opened.binary.to_string(), harness.digest.to_string());
        runner.note(Event::Set(SetChanged { what: "binary".into(), old, new })).map_err(|e| run_failure(run, e))?;
    }
    for Made { key, words } in made {
        let change = SetChanged { what: format!("prepared {key}"), old: String::new(), new: words };
        runner.note(Event::Set(change)).map_err(|error| run_failure(run, error))?;
    }
    let ended = runner.run().map_err(|error| run_failure(run, error))?;
    conclude(run, ended, global)
}

/// Makes the directories that the trials' commands work with, before the first trial and before any reboot.
fn prepare(
    results: &ResultsDir,
    run: &RunDir,
    plan: &Plan,
    (opened, harness, signal): (&Opened, &Path, &AtomicUsize),
    global: &Global,
) -> Result<(Prepared, Vec<Made>), Failure> {
    let mut supervisor = Supervisor::new(harness.to_owned()).or_fail(Exit::Unfit)?;
    let mark = RunMark::new(&run.id, &run.path);
    let workshop = Workshop {
        results: results.path(),
        matrix_dir: &opened.matrix_dir,
        invoker: &opened.invoker,
        run: &mark,
        signal,
    };
    Ok(workshop.prepare(plan, &mut supervisor, |argv| {
        if !global.quiet {
            output::say(format_args!("preparing: {}", argv.join(" ")));
        }
    }))
}

/// Says how the run stands and gives its exit code.
fn conclude(run: &RunDir, ended: Ended, global: &Global) -> Outcome {
    let report = read::print_report_text(run, global)?;
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
        Ended::Rebooting(asked) => {
            let how = match &asked.power_mode {
                Some(mode) => format!("switch the power mode to {mode} (nvpmodel asks, and reboots)"),
                None => "reboot this machine".to_owned(),
            };
            output::say(format_args!("{how}, then `jetfault resume {}`: {}", run.id, asked.why));
            Ok(if report == Exit::FaultFound { Exit::FaultFound } else { Exit::Undecided })
        }
    }
}

fn is_closed(run: &RunDir) -> Result<bool, Failure> {
    let last = last_record(run.open_journal().or_fail(Exit::Unfit)?).or_fail(Exit::Unfit)?;
    Ok(last.is_some_and(|record| matches!(record.event, Event::Closed(_))))
}

/// What `run` finds of a matrix in the results directory.
enum Found {
    Same(RunDir),
    None,
}

/// The run of the same matrix, newest first; an unfinished one of the same name and other content is in the way.
fn find(results: &ResultsDir, plan: &Plan) -> Result<Found, Failure> {
    let runs = results.runs().or_fail(Exit::Unfit)?;
    for run in runs.into_iter().rev().filter(|run| run.id.parts().0 == plan.matrix_name) {
        let stored = read::plan(&run)?;
        if stored.matrix_digest == plan.matrix_digest && stored.only == plan.only {
            return Ok(Found::Same(run));
        }
        if !is_closed(&run)? {
            return Err(Failure::words(
                Exit::Usage,
                format!("{} is unfinished, and its matrix has other content than this one", run.id),
            )
            .hint(format!("`jetfault resume {}` finishes it; `jetfault run --new` opens another run", run.id)));
        }
    }
    Ok(Found::None)
}

fn open_results(global: &Global, allow_volatile: bool) -> Result<(ResultsDir, Persistence), Failure> {
    let path = locate::results_path(global.results.as_deref());
    let results = ResultsDir::make(&path).map_err(store_failure)?;
    let persistence = persistence(results.path());
    match persistence {
        Persistence::Volatile if !allow_volatile => Err(Failure::words(
            Exit::Unfit,
            format!("{} is in memory and does not survive a reboot", results.path().display()),
        )
        .hint("choose a directory on a disk with --results, or allow it with --allow-volatile")),
        Persistence::Unproven => {
            if !global.quiet {
                let path = results.path().display();
                output::say(format_args!(
                    "warning: {path} is on an overlay: whether it survives a reboot is not proven"
                ));
            }
            Ok((results, persistence))
        }
        Persistence::Volatile | Persistence::Persistent => Ok((results, persistence)),
    }
}

/// What keeps other instances out, for as long as it lives.
struct Locks {
    _results: File,
    _machine: File,
}

impl Locks {
    fn take(results: &ResultsDir) -> Result<Self, Failure> {
        let _results = results.lock().map_err(store_failure)?;
        Ok(Self { _results, _machine: lock_machine(&machine_dirs()).map_err(store_failure)? })
    }
}

/// Where what concerns the machine as a whole is kept for as long as it is up.
fn machine_dirs() -> Vec<PathBuf> {
    match env::var_os("JETFAULT_LOCK_DIR") {
        Some(dir) => vec![PathBuf::from(dir)],
        None => ["/run/lock", "/run", "/tmp"].map(PathBuf::from).to_vec(),
    }
}

/// Nothing runs, and nothing is made, before all that the plan needs is allowed. What this machine cannot do needs no
/// permission: its cells are void, with the reason.
fn check_permissions(plan: &Plan, allowed: Allowed, sysroot: &Sysroot) -> Result<(), Failure> {
    let is_possible = |permission| permission != Permission::PowerMode || power_modes(sysroot).is_ok();
    let needed = plan.needs.permissions.iter().copied();
    let missing: Vec<Permission> =
        needed.filter(|permission| !is_allowed(*permission, allowed) && is_possible(*permission)).collect();
    if !missing.is_empty() {
        let deeds: Vec<&str> = missing.iter().map(|permission| deed(*permission)).collect();
        let flags: Vec<&str> = missing.iter().map(|permission| permission.as_str()).collect();
        return Err(Failure::words(Exit::Usage, format!("this matrix {}", deeds.join(", ")))
            .hint(format!("allow it with {}", flags.join(" "))));
    }
    let commands = plan.cells.iter().any(|Cell { settings, .. }| {
        let beside = settings.companion.as_ref().map(|companion| &companion.program);
        matches!(settings.workload, WorkloadSettings::Command(_))
            || matches!(beside, Some(CompanionProgram::Command(_)))
    });
    let invoker = invoker::collect().or_fail(Exit::Unfit)?;
    if commands && invoker.uid == 0 && !allowed.root_workload {
        return Err(Failure::words(Exit::Usage, "this matrix runs commands, and they would run as root")
            .hint("run it as a user (sudo keeps the user), or allow it with --allow-root-workload"));
    }
    Ok(())
}

fn is_allowed(permission: Permission, allowed: Allowed) -> bool {
    match permission {
        Permission::Reboot => allowed.reboot,
        Permission::PowerMode => allowed.power_mode,
        Permission::DropCaches => allowed.drop_caches,
        Permission::InjectedFaults => allowed.injected_faults,
    }
}

/// What a plan does that needs the permission.
fn deed(permission: Permission) -> &'static str {
    match permission {
        Permission::Reboot => "reboots this machine",
        Permission::PowerMode => "switches its power mode",
        Permission::DropCaches => "drops its page cache",
        Permission::InjectedFaults => "commits deliberate faults (the results are marked as injected for ever)",
    }
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

fn allowed(allow: &AllowArgs) -> Allowed {
    Allowed {
        reboot: allow.allow_reboot,
        power_mode: allow.allow_power_mode,
        drop_caches: allow.allow_drop_caches,
        injected_faults: allow.allow_injected_faults,
        root_workload: allow.allow_root_workload,
    }
}

/// What this machine and this build make of each cell.
fn agenda(plan: &Plan, opened: &Opened, reach: Reach<'_>) -> Agenda {
    let build = BuildCapabilities::THIS;
    let gpu = reach.sysroot.has_gpu_nodes();
    let modes = power_modes(reach.sysroot);
    let no_machine_faults = match opened.allowed.injected_faults {
        true => injector::obstacle(),
        false => Some("deliberate faults were not allowed when the run began ([[inject]])".to_owned()),
    };
    let agenda = Agenda::of(plan, opened.allowed.reboot, |index| {
        let Some(cell) = plan.cell_at(index) else { return CellHere::default() };
        let asked = reach.asked(&cell.settings, &modes);
        let cannot = cannot_run(plan, cell, build)
            .or_else(|| no_machine_faults.clone().filter(|_| faults_the_machine(cell)))
            .or_else(|| asked.as_ref().err().cloned())
            .or_else(|| not_allowed(cell, opened.allowed));
        CellHere {
            uses_gpu: may_use_gpu(&cell.settings, true),
            may_taint: gpu && may_use_gpu(&cell.settings, gpu),
            warms: warms(&cell.settings, gpu),
            cannot,
            asked: asked.unwrap_or_default(),
            unrecorded_ms: match cell.settings.breadcrumbs {
                Breadcrumbs::Sync => 0,
                Breadcrumbs::Async | Breadcrumbs::Off => COMMIT_PERIOD_MS,
            },
        }
    });
    Agenda { power_modes: modes.unwrap_or_default(), ..agenda }
}

/// A run does what it was opened with the permission for, whatever a later build could do.
fn not_allowed(cell: &Cell, allowed: Allowed) -> Option<String> {
    let settings = &cell.settings;
    let needs =
        [(settings.power_mode.is_some(), Permission::PowerMode), (settings.drop_caches, Permission::DropCaches)];
    let missing = needs.into_iter().find(|(needed, permission)| *needed && !is_allowed(*permission, allowed));
    missing.map(|(_, permission)| format!("the run was opened without {permission}"))
}

fn provenance(cell: &Cell, opened: &Opened) -> Provenance {
    match (&opened.script, cell.inject.is_empty()) {
        (Some(_), _) => Provenance::Simulated,
        (None, false) => Provenance::Injected,
        (None, true) => Provenance::Measured,
    }
}

fn launcher() -> Launcher {
    match (env::var_os("CI"), env::var_os("SSH_CONNECTION")) {
        (Some(_), _) => Launcher::Ci,
        (None, Some(_)) => Launcher::Ssh,
        (None, None) => Launcher::Shell,
    }
}

fn loudness(global: &Global) -> Loudness {
    match (global.quiet, global.verbose) {
        (true, _) => Loudness::Quiet,
        (false, 0) => Loudness::Normal,
        (false, _) => Loudness::Verbose,
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

/// The exit code and advice of an error of the store.
fn store_failure(error: StoreError) -> Failure {
    match error {
        StoreError::NotADirectory(_) => {
            Failure::new(Exit::Usage, error).hint("give a directory with --results, or move the file away")
        }
        StoreError::Held { .. } => Failure::new(Exit::Held, error)
            .hint("two runs would spoil each other; `jetfault status` shows the other one"),
        StoreError::Machine(error) => {
            let hint = disk_trouble(&error.source);
            let failure = Failure::new(Exit::Unfit, error);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
    }
}

/// The exit code and advice of an error in the course of a run.
pub fn run_failure(run: &RunDir, error: RunError) -> Failure {
    match error {
        RunError::Read(_) | RunError::Illegal(_) => Failure::new(Exit::JournalDamaged, error).hint(format!(
            "nothing was changed; keep {} as it is, and begin anew with `jetfault run --new`",
            run.file(names::JOURNAL).display()
        )),
        RunError::NotRestored(_) => Failure::new(Exit::Unfit, error)
            .hint(format!("put it back by hand, then `jetfault resume {}`: it looks again and ends the run", run.id)),
        RunError::Machine(error) => {
            let trouble = disk_trouble(&error.source).map(|trouble| format!("{trouble}; then "));
            let resume = format!("`jetfault resume {}` goes on: everything recorded so far is safe", run.id);
            Failure::new(Exit::Unfit, error).hint(format!("{}{resume}", trouble.unwrap_or_default()))
        }
    }
}

/// `jetfault stop [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn stop(which: Option<&str>, global: &Global) -> Outcome {
    let (results, run) = locate::run(global, which)?;
    if is_closed(&run)? {
        output::say(format_args!("{} is over", run.id));
        return Ok(Exit::Done);
    }
    if results.is_held() == Some(false) {
        output::say(format_args!("nobody works on {}: there is nothing to stop", run.id));
        return Ok(Exit::Done);
    }
    let stop: &Path = &run.stop_file();
    File::create(stop)
        .and_then(|file| file.sync_all())
        .map_err(|error| Failure::words(Exit::Unfit, format!("cannot write {}: {error}", stop.display())))?;
    output::say(format_args!("{} stops after its current trial; `jetfault resume {}` goes on", run.id, run.id));
    Ok(Exit::Done)
}
