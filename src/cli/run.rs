//! `run` and `resume`: find or open the run, carry it on, say how it stands.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::cli::args::{AllowArgs, DataFormat, Global, ResumeArgs, RunArgs};
use crate::cli::campaign::{self, Next};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::{self, MatrixSource};
use crate::cli::output;
use crate::cli::plan::make_plan;
use crate::cli::prepare::prepare;
use crate::cli::progress::{Loudness, Progress};
use crate::cli::read;
use crate::decide::agenda::{Agenda, CellHere, cannot_run, faults_the_machine};
use crate::decide::campaign::QuestionKind;
use crate::decide::classify::signal_name;
use crate::decide::plan::{Cell, Permission, Plan};
use crate::decide::run::Phase;
use crate::decide::start_state::{Known, obstacles, start_state};
use crate::model::capability::BuildCapabilities;
use crate::model::ids::{BootId, ContentDigest, DeviceId};
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
use crate::perform::runner::{COMMIT_PERIOD_MS, Circumstances, Ended, RunError, Runner};
use crate::perform::settings::{Reach, Tools, power_modes};
use crate::perform::start_state::{UsedMark, traces};
use crate::perform::store::{FirstFiles, ResultsDir, RunDir, StoreError, disk_trouble, lock_machine, names};

/// `jetfault run MATRIX`.
///
/// # Errors
/// See [`Failure`].
pub fn run(args: &RunArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    let plan = make_plan(&source, &args.matrix)?;
    let how = Begin {
        new: args.new || args.git_bisect,
        device: args.device.as_ref(),
        accept_binary: args.accept_binary,
        script: args.script.as_ref(),
        allow: args.allow,
        format: DataFormat::Text,
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
    /// How a campaign says where it stands.
    pub format: DataFormat,
}

/// Carries `plan` through: in the run of the same plan if there is one, else in a new one.
///
/// # Errors
/// See [`Failure`].
pub fn begin(source: &MatrixSource, mut plan: Plan, how: &Begin<'_>, global: &Global) -> Outcome {
    let sysroot = Sysroot::new(global.sysroot.clone());
    check_permissions(&plan, allowed(&how.allow), &sysroot)?;
    let (results, persistence) = open_results(global, how.allow.allow_volatile)?;
    let _locks = Locks::take(&results)?;
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
        allowed: allowed(&how.allow),
        persistence,
        script: how.script.map(|script| script.replace("; ", "\n")),
    };
    let carried = Carried { results: &results, run: &run, plan, here, harness, format: how.format };
    carry_on(carried, Some(first), how.accept_binary, global)
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
    let harness = Harness::find()?;
    let carried = Carried { results: &results, run: &run, plan, here, harness, format: DataFormat::Text };
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
    plan: Plan,
    here: BootId,
    harness: Harness,
    format: DataFormat,
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
    let Carried { results, run, mut plan, here, harness, format } = carried;
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
    let sysroot = Sysroot::new(global.sysroot.clone());
    let used = UsedMark::new(&machine_dirs(), &sysroot);
    if !global.quiet && !is_closed(run)? && plan.cells.iter().any(|cell| cell.settings.start == Start::Cold) {
        say_what_is_against_cold(&sysroot, &used, &here);
    }
    let signal = stop_signal().or_fail(Exit::Unfit)?;
    let mut part = Part { results, run, opened, here, harness, used, signal, is_asked_for: false, is_over: false };
    loop {
        // A part of a campaign ends where it has a cell that the plan in hand does not have.
        match part.carry(&plan, global)? {
            Some(ended) => return conclude(run, ended, format, global),
            None => plan = read::plan(run)?,
        }
    }
}

/// What a run is carried on with, as long as its plan stays the same.
struct Part<'a> {
    results: &'a ResultsDir,
    run: &'a RunDir,
    opened: Opened,
    here: BootId,
    harness: Harness,
    used: UsedMark,
    signal: Arc<AtomicUsize>,
    /// Whether this is not the first part.
    is_asked_for: bool,
    /// Whether the campaign has its answer: no further trial is added.
    is_over: bool,
}

impl Part<'_> {
    /// Carries the run on to its end, or until the plan must be read again.
    fn carry(&mut self, plan: &Plan, global: &Global) -> Result<Option<Ended>, Failure> {
        let (run, opened) = (self.run, &self.opened);
        let sysroot = Sysroot::new(global.sysroot.clone());
        let tools = Tools::new(&plan.tools, &opened.matrix_dir, &sysroot);
        let keep = run.file(names::SETTINGS);
        let mut agenda =
            agenda(plan, opened, Reach { sysroot: &sysroot, tools: &tools, keep: &keep, boot: &self.here });
        agenda.open_ended &= !self.is_over;
        let circumstances = Circumstances {
            here: self.here.clone(),
            device: opened.device.clone(),
            launcher: launcher(),
            provenance: plan.all_cells().map(|cell| provenance(cell, opened)).collect(),
        };
        let revisions = match plan.campaign.as_deref() {
            Some(asked) => campaign::cache(self.results, &campaign::matrix(run, plan)?, asked),
            None => None,
        };
        let (prepared, made) = prepare(self.results, run, plan, (opened, &self.harness.path, &self.signal), global)?;
        let setting = Setting {
            sysroot,
            here: self.here.clone(),
            tools,
            prepared,
            used: self.used.clone(),
            revisions,
            invoker: opened.invoker.clone(),
            matrix_dir: opened.matrix_dir.clone(),
            script: opened.script.clone(),
            harness: self.harness.path.clone(),
            signal: self.signal.clone(),
        };
        let failed = |error| run_failure(run, error);
        let mut progress = Progress::new(plan, loudness(global));
        let mut machine = Linux::new(run, self.results, plan, setting).or_fail(Exit::Unfit)?;
        let mut runner = Runner::open(&mut machine, &agenda, circumstances, &mut progress).map_err(failed)?;
        if !self.is_asked_for {
            self.is_asked_for = true;
            greet(&mut runner, run, opened, &self.harness, global).map_err(failed)?;
        }
        made.into_iter().try_for_each(|made| runner.note(Event::Set(made.into()))).map_err(failed)?;
        match (runner.run().map_err(failed)?, plan.campaign.as_deref()) {
            (Ended::Asking, Some(asked)) => {
                match campaign::next(run, plan, asked, global)? {
                    Next::Over => self.is_over = true,
                    Next::Extend(extended) => runner.hand_over(extended).map_err(failed)?,
                    Next::Prepare(revision) => {
                        let prepared = campaign::prepare(run, plan, self.results, &revision, opened)?;
                        runner.note(Event::Hooked(prepared)).map_err(failed)?;
                    }
                }
                Ok(None)
            }
            (ended, _) => Ok(Some(ended)),
        }
    }
}

/// Opens the run, or says how it is found.
fn greet(
    runner: &mut Runner<'_>,
    run: &RunDir,
    opened: &Opened,
    harness: &Harness,
    global: &Global,
) -> Result<(), RunError> {
    let is_closed = matches!(runner.state().phase, Phase::Closed(_));
    if is_closed && !global.quiet {
        output::say(format_args!("{} is complete: nothing is repeated (--new opens another run)", run.id));
    }
    if runner.state().opened.is_none() {
        runner.begin(opened.clone())?;
    } else if opened.binary != harness.digest && !is_closed {
        let (old, new) = (opened.binary.to_string(), harness.digest.to_string());
        runner.note(Event::Set(SetChanged { what: "binary".into(), old, new }))?;
    }
    Ok(())
}

/// Says how the run stands and gives its exit code.
fn conclude(run: &RunDir, ended: Ended, format: DataFormat, global: &Global) -> Outcome {
    let report = campaign::print_standing(run, format, global)?;
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
            output::say(format_args!("{how}, then `jetfault resume {}`: {}", run.id, asked.why));
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
        if stored.matrix_digest == plan.matrix_digest && stored.only == plan.only && stored.asks_as(plan) {
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
///
/// # Errors
/// If something is not allowed, with the flag that allows it.
pub fn check_permissions(plan: &Plan, allowed: Allowed, sysroot: &Sysroot) -> Result<(), Failure> {
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

/// What the command line allows, as the journal keeps it.
pub fn allowed(allow: &AllowArgs) -> Allowed {
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
    let build = match plan.campaign.as_deref().map(|asked| asked.question.kind()) {
        Some(QuestionKind::Revisions) => BuildCapabilities::WITH_REVISIONS,
        Some(QuestionKind::Axes | QuestionKind::Sequence | QuestionKind::Levels) | None => BuildCapabilities::THIS,
    };
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
