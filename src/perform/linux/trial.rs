//! One trial on the real machine: how its processes start and follow each other, and what is minded while they run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use super::{Linux, make_trial_dir, may_use_gpu};
use crate::decide::plan::Cell;
use crate::decide::telemetry::meminfo;
use crate::model::ids::TrialId;
use crate::model::injection::MachineFault;
use crate::model::journal::Started;
use crate::model::matrix::Tool;
use crate::model::outcome::{EndedBy, Exit, Outcome};
use crate::model::quantity::Bytes;
use crate::model::settings::{GpuPm, Keep, Observer, Settings, Telemetry};
use crate::model::verdict::StageName;
use crate::perform::artifacts::{Artifacts, offered};
use crate::perform::aside::Aside;
use crate::perform::client::{Client, ClientPlan};
use crate::perform::companion::{Companion, CompanionPlan, Surroundings};
use crate::perform::gdb_observer::Session;
use crate::perform::injector::Moment;
use crate::perform::journal::Durable;
use crate::perform::launching::{self, TrialContext};
use crate::perform::machine::{ChildEvent, MachineError};
use crate::perform::memory_group::MemoryGroup;
use crate::perform::programs;
use crate::perform::repetition::{Pause, Repeated, Repetition};
use crate::perform::settings::fill_page_cache;
use crate::perform::store::names;
use crate::perform::supervise::{
    Bounds, CommandLine, Deadlines, EnvChange, Launch, OUTPUT_BYTES_MAX, Program, SETTLE_STAGE, SideMark, StartError,
    Supervisor,
};
use crate::perform::system_core;
use crate::perform::telemetry::GpuLoad;
use crate::perform::witness::Sampling;

/// What a trial consists of, with everything filled in that only the machine knows.
struct Made {
    program: Program,
    environment: Vec<EnvChange>,
    companions: Vec<CompanionPlan>,
    client: Option<ClientPlan>,
    prelude: Option<Program>,
    fault: Option<(MachineFault, Option<StageName>)>,
    deadlines: Deadlines,
    bounds: Bounds,
}

impl Linux<'_> {
    /// Starts the trial: first what must be there before its child, then the child.
    pub(super) fn launch(&mut self, started: &Durable<Started>, cell: usize) -> io::Result<()> {
        let (plan, trial) = (self.plan, started.get().trial.clone());
        let cell = plan.cell_at(cell).ok_or_else(|| io::Error::other("the plan has no such cell"))?;
        let trial_dir = self.trial_dir(&trial);
        make_trial_dir(&trial_dir, &self.invoker)?;
        self.check_ballast(cell.settings.ballast).map_err(io::Error::other)?;
        let Made { program, environment, companions, client, prelude, fault, deadlines, bounds } =
            self.make(&trial, cell, &trial_dir)?;
        (self.environment, self.launched) = (environment, Instant::now());
        (self.trial, self.is_needed) = (Some(trial.clone()), plan.is_needed(&cell.id));
        let keep = if self.is_needed { Keep::Always } else { cell.settings.watch.keep };
        self.artifacts = Artifacts::of(&program, keep, &trial_dir);
        let program = self.observed(program, cell, &trial_dir)?;
        if may_use_gpu(&cell.settings, self.sysroot.has_gpu_nodes()) {
            self.used.leave(&self.here, &self.mark, &trial).map_err(io::Error::other)?;
        }
        if let Some(prelude) = prelude {
            self.run_prelude(started, prelude, (&trial_dir, deadlines.timeout))?;
        }
        self.set_the_scene(&trial, &cell.settings, &trial_dir)?;
        self.injector.arm(&trial, fault);
        self.injector.notice(Moment::Start);
        self.commit_due_fault().map_err(io::Error::other)?;
        let observer = cell.settings.observer;
        self.repetition = match (&program, cell.settings.iterations) {
            (Program::Command(command), iterations @ 2..) => Some(Repetition::new(Repeated {
                command: command.clone(),
                deadlines,
                bounds: bounds.clone(),
                observer,
                trial_dir: trial_dir.clone(),
                mark: SideMark::of_trial(started, &self.mark),
                iterations,
                gap: cell.settings.gap.to_duration(),
            })),
            (Program::Command(_) | Program::Worker(_), _) => None,
        };
        let deadlines = self.repetition.as_ref().map_or(deadlines, Repetition::deadlines);
        self.begin_companions(started, companions, &trial_dir)?;
        let requests = trial_dir.join(names::REQUESTS);
        self.client = client.map(|plan| Client::new(plan, SideMark::of_request(started, &self.mark), requests));
        self.start(started, (program, observer), bounds, (&trial_dir, deadlines)).inspect_err(|_| {
            self.client = None;
            conclude(&mut self.companions, &mut self.supervisor);
        })
    }

    /// Fills in what only the machine knows. Nothing is changed by it.
    fn make(&self, trial: &TrialId, cell: &Cell, trial_dir: &Path) -> io::Result<Made> {
        let gpu = self.sysroot.has_gpu_nodes();
        let needs_dir = match cell.settings.needs() {
            Some(needed) => self.trial_dir(&offered(&self.run.path, needed).map_err(io::Error::other)?),
            None => PathBuf::new(),
        };
        let prepared_dir = self.prepared.dir_for(&cell.settings, &self.matrix_dir).map_err(io::Error::other)?;
        let revision = self.revision(&cell.settings.identity)?;
        let context = TrialContext {
            trial,
            seed: self.plan.seed,
            order_seed: self.plan.order_seed(),
            trial_dir,
            matrix_dir: &self.matrix_dir,
            needs_dir: &needs_dir,
            prepared_dir: &prepared_dir,
            invoker: &self.invoker,
            gpu,
            script: self.script.as_deref(),
            revision: revision.as_ref().map(|dirs| (cell.settings.identity.as_str(), dirs)),
        };
        let made = || {
            Ok(Made {
                program: launching::program(cell, context)?,
                environment: launching::environment(&cell.settings, context)?,
                companions: launching::companions(cell, context)?,
                client: launching::client(cell, context)?,
                prelude: launching::prelude(cell, context)?,
                fault: launching::machine_fault(cell, context),
                deadlines: launching::deadlines(&cell.settings, gpu),
                bounds: Bounds { limits: cell.settings.limits.clone(), aslr: cell.settings.aslr },
            })
        };
        made().map_err(|why: String| io::Error::other(why))
    }

    /// The program as it is started: under a debugger, if the cell wants one.
    fn observed(&mut self, program: Program, cell: &Cell, trial_dir: &Path) -> io::Result<Program> {
        (self.session, self.keeps_user) = (None, false);
        let (observer, command) = match (cell.settings.observer, program) {
            (observer @ (Observer::Core | Observer::Gdb), Program::Command(command)) => (observer, command),
            (Observer::Gdb | Observer::Core | Observer::None, program) => return Ok(program),
        };
        let cwd = command.cwd.as_deref().unwrap_or(&self.invoker.cwd);
        let path = self.variable("PATH").unwrap_or_default();
        let found = command.argv.first().and_then(|program| programs::find(program, &path, Path::new(cwd)));
        self.keeps_user = found.as_deref().is_some_and(programs::takes_user) && !geteuid().is_root();
        // One that cannot be executed is told by whoever tries.
        if observer == Observer::Core || found.is_none() {
            return Ok(Program::Command(command));
        }
        let gdb = self.tools.find(Tool::Gdb).map_err(|error| io::Error::other(error.to_string()))?;
        let session = Session::new(gdb, trial_dir, self.variable("SHELL"));
        make_trial_dir(session.dir(), &self.invoker)?;
        let command: CommandLine = session.wrap(command, cell.settings.aslr)?;
        self.session = Some(session);
        Ok(Program::Command(command))
    }

    /// The value that a variable has for the trial's program.
    fn variable(&self, name: &str) -> Option<String> {
        let before = self.invoker.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        self.environment.iter().fold(before, |value, change| match change {
            EnvChange::Set(known, value) if known == name => Some(value.clone()),
            EnvChange::Unset(known) if known == name => None,
            EnvChange::Set(..) | EnvChange::Unset(_) => value,
        })
    }

    fn run_prelude(
        &mut self,
        started: &Durable<Started>,
        program: Program,
        (trial_dir, timeout): (&Path, Duration),
    ) -> io::Result<()> {
        let dir = trial_dir.join(names::PRELUDE);
        make_trial_dir(&dir, &self.invoker)?;
        let aside = Aside {
            program,
            mark: &SideMark::of_prelude(started, &self.mark),
            run: &self.mark,
            dir: &dir,
            environment: &self.environment,
            invoker: &self.invoker,
            timeout,
        };
        let ran = aside.run(&mut self.supervisor, &self.signal);
        ran.map(drop).map_err(|why| io::Error::other(format!("its prelude failed: {why}")))
    }

    /// Fills the page cache, makes the control group, and begins to listen: its marker comes before a fault of the whole
    /// machine.
    fn set_the_scene(&mut self, trial: &TrialId, settings: &Settings, trial_dir: &Path) -> io::Result<()> {
        self.filled = match settings.prefill_cache.get() {
            0 => None,
            bytes => Some(fill_page_cache(&self.sysroot, &self.run.file(names::PREFILL), bytes)?),
        };
        let limited = |limit: Bytes| MemoryGroup::make(&self.sysroot, &format!("jetfault-{trial}"), limit.get());
        self.group = settings.memory_max.map(limited).transpose().map_err(io::Error::other)?;
        self.witness.begin(trial, trial_dir, sampling(settings), self.group.as_ref().map(MemoryGroup::counters))
    }

    fn begin_companions(
        &mut self,
        started: &Durable<Started>,
        plans: Vec<CompanionPlan>,
        trial_dir: &Path,
    ) -> io::Result<()> {
        let surroundings = Surroundings { run: &self.mark, invoker: &self.invoker, environment: &self.environment };
        for plan in plans {
            let mut companion = Companion::new(plan, SideMark::of_companion(started, &self.mark), trial_dir);
            let begun = companion.begin(&mut self.supervisor, surroundings);
            self.companions.push(companion);
            begun.inspect_err(|_| conclude(&mut self.companions, &mut self.supervisor))?;
        }
        Ok(())
    }

    fn start(
        &mut self,
        started: &Durable<Started>,
        (program, observer): (Program, Observer),
        bounds: Bounds,
        (trial_dir, deadlines): (&Path, Deadlines),
    ) -> io::Result<()> {
        let entrance = self.group.as_ref().map(MemoryGroup::entrance);
        let launch = Launch {
            program,
            run: &self.mark,
            trial_dir,
            environment: self.environment.clone(),
            deadlines,
            output_bytes_max: OUTPUT_BYTES_MAX,
            group: entrance.as_deref(),
            bounds,
            observer,
            core_pattern: system_core::pattern(&self.sysroot).known().cloned(),
            invoker: Some(&self.invoker),
        };
        let child = self.supervisor.start(started, launch).map_err(|error| self.not_started(error))?;
        self.child = Some(child);
        Ok(())
    }

    /// Why a child was not started; where tracing is forbidden, by what and what helps.
    fn not_started(&self, error: StartError) -> io::Error {
        let StartError::Trace(source) = error else { return io::Error::other(error) };
        let scope = match self.sysroot.text("proc/sys/kernel/yama/ptrace_scope").known() {
            Some(scope) => format!("kernel.yama.ptrace_scope is {scope}"),
            None => "a container or a seccomp filter may forbid it".to_owned(),
        };
        io::Error::other(format!(
            "the child may not be traced (observer = \"core\"): {source}; {scope}; observer = \"none\" with \
             limits = \"core=unlimited\" has the kernel write a core, which is looked at afterwards"
        ))
    }

    /// More ballast than there is memory for would have the kernel kill whatever is largest.
    fn check_ballast(&self, ballast: Bytes) -> Result<(), String> {
        let available = self.sysroot.text("proc/meminfo").known().and_then(|text| meminfo(text, "MemAvailable"));
        match available {
            Some(available) if ballast.get() >= available => {
                Err(format!("ballast of {ballast} is more than the {} MiB that are available", available >> 20))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Starts the next repetition.
    fn repeat(&mut self) -> io::Result<()> {
        let repetition = self.repetition.as_mut().ok_or_else(|| io::Error::other("nothing is repeated"))?;
        repetition.begin()?;
        let what = &repetition.what;
        let entrance = self.group.as_ref().map(MemoryGroup::entrance);
        let launch = Launch {
            environment: self.environment.clone(),
            group: entrance.as_deref(),
            bounds: what.bounds.clone(),
            observer: what.observer,
            core_pattern: system_core::pattern(&self.sysroot).known().cloned(),
            invoker: Some(&self.invoker),
            ..Launch::new(Program::Command(what.command.clone()), &self.mark, &what.trial_dir, repetition.deadlines())
        };
        self.child = Some(self.supervisor.start_aside(&what.mark, launch).map_err(io::Error::other)?);
        Ok(())
    }

    /// The next event of the trial's child, or of the repetition that follows it.
    pub(super) fn next_event(&mut self, wait: Duration) -> Result<ChildEvent, MachineError> {
        match self.repetition.as_mut().and_then(Repetition::pause) {
            None => {}
            Some(Pause::Rest(left)) => {
                std::thread::sleep(left.min(wait));
                return Ok(ChildEvent::Quiet);
            }
            Some(Pause::Ended(outcome)) => return Ok(ChildEvent::Ended(outcome)),
            Some(Pause::Over) => {
                if let Err(error) = self.repeat() {
                    return Ok(ChildEvent::Ended(Box::new(Outcome::of(Exit::NotStarted(error.to_string())))));
                }
            }
        }
        let child = self.child.as_mut().ok_or_else(|| MachineError::new("watch", io::ErrorKind::NotFound.into()))?;
        let mut event = self.supervisor.next_event(child, wait);
        if let (ChildEvent::Ended(outcome), Some(session)) = (&mut event, &mut self.session) {
            session.tell(outcome);
        }
        Ok(match &mut self.repetition {
            Some(repetition) => repetition.of_trial(event, child.members()),
            None => event,
        })
    }

    /// Asks the child what is to be asked of it, if it is a server.
    pub(super) fn mind_client(&mut self, event: &mut ChildEvent) {
        let (Some(client), Some(server)) = (&mut self.client, &mut self.child) else { return };
        let surroundings = Surroundings { run: &self.mark, invoker: &self.invoker, environment: &self.environment };
        client.mind(event, (&mut self.supervisor, server), surroundings);
        if matches!(event, ChildEvent::Ended(_)) {
            self.client = None;
        }
    }

    /// Starts, watches and ends what runs beside the child as the child's `event` asks for.
    pub(super) fn mind_companions(&mut self, event: &mut ChildEvent) {
        let surroundings = Surroundings { run: &self.mark, invoker: &self.invoker, environment: &self.environment };
        let supervisor = &mut self.supervisor;
        if let ChildEvent::Ended(outcome) = event {
            self.companions.iter_mut().for_each(|companion| companion.conclude(supervisor));
            return self.companions.drain(..).for_each(|companion| companion.tell(outcome));
        }
        for companion in &mut self.companions {
            match &*event {
                // The child ended; what is watched now is what it left.
                ChildEvent::Stage { stage, .. } if stage.as_str() == SETTLE_STAGE => companion.end(supervisor),
                event if companion.is_due(event) => companion.start(supervisor, surroundings),
                ChildEvent::Running { .. } | ChildEvent::Stage { .. } | ChildEvent::Quiet | ChildEvent::Ended(_) => {}
            }
            companion.look(supervisor);
            if let (Some(_), Some(child)) = (companion.failure(), &mut self.child) {
                supervisor.end(child, EndedBy::Companion);
            }
        }
    }
}

/// Ends what runs beside a trial whose child never came.
fn conclude(companions: &mut Vec<Companion>, supervisor: &mut Supervisor) {
    companions.drain(..).for_each(|mut companion| companion.conclude(supervisor));
}

/// Cells that leave the GPU idle, or change how it saves power, must not keep it awake.
fn sampling(settings: &Settings) -> Sampling {
    match (settings.telemetry, settings.gap.ms(), settings.gpu_pm) {
        (Telemetry::Off, ..) => Sampling::Off,
        (Telemetry::On, 0, GpuPm::Kept) => Sampling::On(GpuLoad::Read),
        (Telemetry::On, _, GpuPm::Kept | GpuPm::On | GpuPm::Auto) => Sampling::On(GpuLoad::LeftAlone),
    }
}
