//! From a cell to the child that runs it: program, environment, deadlines, the injected fault and who commits it.

use std::path::Path;
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};
use sha2::{Digest, Sha256};

use crate::decide::plan::{Cell, InjectedFault as PlannedFault};
use crate::model::ids::TrialId;
use crate::model::injection::MachineFault;
use crate::model::journal::Invoker;
use crate::model::protocol::{InjectedFault, PROTOCOL_VERSION, Request, Work, WorkerFault};
use crate::model::quantity::Limit;
use crate::model::settings::{
    Backend, Breadcrumbs, CommandSettings, Companion, CompanionProgram, CompanionWhen, Layer, Linear4bitSettings,
    OutputOracle, Prelude, Ready, Server, Settings, WorkloadSettings,
};
use crate::model::template::{RunTimeHole, Template};
use crate::model::verdict::StageName;
use crate::perform::client::ClientPlan;
use crate::perform::companion::{self, CompanionPlan};
use crate::perform::environment::changes;
use crate::perform::revisions::RevisionDirs;
use crate::perform::supervise::{CommandLine, Deadlines, EnvChange, Expectation, GRACE, KILL_WAIT, Program};

/// The most memory that one compiled pattern may take, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// What a trial is made of beside its cell.
#[derive(Debug, Clone, Copy)]
pub struct TrialContext<'a> {
    /// The trial.
    pub trial: &'a TrialId,
    /// Seed of the plan, of which inputs are made.
    pub seed: u64,
    /// Seed of injected faults.
    pub order_seed: u64,
    /// Its own directory.
    pub trial_dir: &'a Path,
    /// The directory of the matrix file.
    pub matrix_dir: &'a str,
    /// The directory of the trial whose artifacts it works with; empty if there is none.
    pub needs_dir: &'a Path,
    /// The directory that its `prepare` made; empty if there is none.
    pub prepared_dir: &'a str,
    /// As whom it runs.
    pub invoker: &'a Invoker,
    /// Whether a GPU may be used on this machine.
    pub gpu: bool,
    /// What the worker plays instead of its cell.
    pub script: Option<&'a str>,
    /// Where the revision under test is, if the cell has one.
    pub revision: Option<(&'a str, &'a RevisionDirs)>,
}

/// The program of a trial.
///
/// # Errors
/// In words, if something that only the machine knows cannot be filled in.
pub fn program(cell: &Cell, context: TrialContext<'_>) -> Result<Program, String> {
    let settings = &cell.settings;
    match &settings.workload {
        WorkloadSettings::Command(command) => command_line(settings, command, context).map(Program::Command),
        WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => Ok(Program::Worker(Request {
            protocol: PROTOCOL_VERSION,
            trial: context.trial.clone(),
            seed: context.seed,
            work: match context.script {
                Some(script) => Work::Script(script.to_owned()),
                None => Work::Cell(Box::new(settings.clone())),
            },
            breadcrumbs: settings.breadcrumbs,
            inject: worker_fault(cell, context),
        })),
    }
}

/// What runs beside a trial: the ballast, which is there before everything else, and the companion.
///
/// # Errors
/// In words, if something that only the machine knows cannot be filled in.
pub fn companions(cell: &Cell, context: TrialContext<'_>) -> Result<Vec<CompanionPlan>, String> {
    Ok(ballast(cell, context).into_iter().chain(companion(cell, context)?).collect())
}

fn ballast(cell: &Cell, context: TrialContext<'_>) -> Option<CompanionPlan> {
    let bytes = cell.settings.ballast;
    (bytes.get() > 0).then(|| CompanionPlan {
        role: companion::BALLAST,
        name: format!("ballast of {bytes}"),
        program: Program::Worker(side_request(Work::Ballast(bytes), context)),
        when: CompanionWhen::Before,
        tells_stages: false,
    })
}

/// What runs before a trial, in a process of its own, if its cell has it.
///
/// # Errors
/// In words, if something that only the machine knows cannot be filled in.
pub fn prelude(cell: &Cell, context: TrialContext<'_>) -> Result<Option<Program>, String> {
    Ok(Some(match &cell.settings.prelude {
        None => return Ok(None),
        Some(Prelude::Command(argv)) => {
            let argv = argv.iter().map(|word| resolve(word, context)).collect::<Result<_, _>>()?;
            Program::Command(CommandLine { argv, ..CommandLine::default() })
        }
        Some(Prelude::Forward(shape)) => {
            let layer = Layer { label: "prelude".to_owned(), shape: shape.shape() };
            let backend = cell.settings.linear4bit().map(|linear4bit| linear4bit.backend).unwrap_or_default();
            let one = Linear4bitSettings { backend, ..Linear4bitSettings::of(vec![layer]) };
            let settings = Settings::of(WorkloadSettings::Linear4bit(one));
            Program::Worker(side_request(Work::Cell(Box::new(settings)), context))
        }
    }))
}

/// What a worker beside the trial is asked for.
fn side_request(work: Work, context: TrialContext<'_>) -> Request {
    Request {
        protocol: PROTOCOL_VERSION,
        trial: context.trial.clone(),
        seed: context.seed,
        work,
        breadcrumbs: Breadcrumbs::Async,
        inject: None,
    }
}

fn companion(cell: &Cell, context: TrialContext<'_>) -> Result<Option<CompanionPlan>, String> {
    let Some(Companion { program, when }) = &cell.settings.companion else { return Ok(None) };
    let (name, program) = match program {
        CompanionProgram::Command(argv) => {
            let argv: Vec<String> = argv.iter().map(|word| resolve(word, context)).collect::<Result<_, _>>()?;
            let name = argv.first().cloned().unwrap_or_default();
            (name, Program::Command(CommandLine { argv, ..CommandLine::default() }))
        }
        CompanionProgram::Load(load) => (load.to_string(), Program::Worker(side_request(Work::Load(*load), context))),
    };
    let tells_stages = match &cell.settings.workload {
        WorkloadSettings::Command(_) => !cell.settings.watch.stages.is_empty(),
        WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => cell.settings.breadcrumbs != Breadcrumbs::Off,
    };
    Ok(Some(CompanionPlan { role: companion::COMPANION, name, program, when: *when, tells_stages }))
}

/// What is asked of the program of a trial, if it is a server.
///
/// # Errors
/// In words, if something that only the machine knows cannot be filled in.
pub fn client(cell: &Cell, context: TrialContext<'_>) -> Result<Option<ClientPlan>, String> {
    let WorkloadSettings::Command(CommandSettings { server: Some(Server { ready, requests }), cwd, .. }) =
        &cell.settings.workload
    else {
        return Ok(None);
    };
    let cwd = cwd.as_ref().map(|cwd| resolve(cwd, context)).transpose()?;
    let request = |request: &Vec<Template>| -> Result<Program, String> {
        let argv = request.iter().map(|word| resolve(word, context)).collect::<Result<_, _>>()?;
        Ok(Program::Command(CommandLine { argv, cwd: cwd.clone(), ..CommandLine::default() }))
    };
    let patience = |limit: Limit| limit.millis().map(|millis| millis.to_duration());
    Ok(Some(ClientPlan {
        port: match ready {
            Ready::Port(port) => Some(*port),
            Ready::Regex(_) => None,
        },
        requests: requests.iter().map(request).collect::<Result<_, _>>()?,
        ready_timeout: patience(cell.settings.watch.ready_timeout),
        request_timeout: patience(cell.settings.watch.request_timeout),
    }))
}

fn command_line(
    settings: &Settings,
    command: &CommandSettings,
    context: TrialContext<'_>,
) -> Result<CommandLine, String> {
    let fill = |template: &Template| resolve(template, context);
    let all = |templates: &[Template]| templates.iter().map(fill).collect::<Result<Vec<_>, _>>();
    let watch = &settings.watch;
    let stage = |pattern: &crate::model::settings::StagePattern| {
        let name: StageName = pattern.name.parse().map_err(|error: crate::model::ids::IdError| error.to_string())?;
        Ok::<_, String>((name, regex(&pattern.regex)?))
    };
    let metric =
        |metric: &crate::model::settings::Metric| Ok::<_, String>((metric.name.clone(), regex(&metric.regex)?));
    Ok(CommandLine {
        argv: all(&command.argv)?,
        cpus: settings.cpus.clone(),
        cwd: command.cwd.as_ref().map(fill).transpose()?,
        stages: watch.stages.iter().map(stage).collect::<Result<_, _>>()?,
        metrics: watch.metrics.iter().map(metric).collect::<Result<_, _>>()?,
        artifacts: all(&command.artifacts)?,
        loads: all(&command.loads)?,
        exit_codes: command.exit_codes.clone(),
        expect_output: expectations(&command.expect_output)?,
        output: command.output,
        ready: match &command.server {
            Some(Server { ready: Ready::Regex(pattern), .. }) => Some(regex(pattern)?),
            Some(Server { ready: Ready::Port(_), .. }) | None => None,
        },
    })
}

fn expectations(oracle: &OutputOracle) -> Result<Vec<Expectation>, String> {
    let OutputOracle { contains, lacks, numbers, regex: pattern } = oracle;
    let mut expectations: Vec<Expectation> = Vec::new();
    expectations.extend(contains.iter().cloned().map(Expectation::Contains));
    expectations.extend(lacks.iter().cloned().map(Expectation::Lacks));
    if let Some(pattern) = pattern {
        expectations.push(Expectation::Matches(regex(pattern)?));
    }
    expectations.extend(numbers.iter().map(|(name, range)| Expectation::Number(name.clone(), *range)));
    Ok(expectations)
}

fn regex(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build().map_err(|error| error.to_string())
}

fn resolve(template: &Template, context: TrialContext<'_>) -> Result<String, String> {
    let filled = template.resolve(|hole| fill(hole, context));
    filled.map_err(|name| format!("the placeholder {{{name}}} was never filled"))
}

fn fill(hole: RunTimeHole, context: TrialContext<'_>) -> String {
    match hole {
        RunTimeHole::MatrixDir => context.matrix_dir.to_owned(),
        RunTimeHole::NeedsDir => context.needs_dir.display().to_string(),
        RunTimeHole::PreparedDir => context.prepared_dir.to_owned(),
        RunTimeHole::TrialDir => context.trial_dir.display().to_string(),
        // Cells without a prepared revision are set aside before they get here.
        RunTimeHole::RevSrc => context.revision.map(|(_, at)| at.src.display().to_string()).unwrap_or_default(),
        RunTimeHole::RevDir => context.revision.map(|(_, at)| at.dir.display().to_string()).unwrap_or_default(),
        RunTimeHole::RevId => context.revision.map(|(id, _)| id.to_owned()).unwrap_or_default(),
    }
}

/// The changes of the environment, from the invoker's values.
///
/// # Errors
/// In words, if a placeholder cannot be filled in.
pub fn environment(settings: &Settings, context: TrialContext<'_>) -> Result<Vec<EnvChange>, String> {
    let before = context.invoker.env.iter().cloned().collect();
    changes(settings, &before, |hole| fill(hole, context)).map_err(|error| error.to_string())
}

/// When patience with a trial of `settings` ends.
pub fn deadlines(settings: &Settings, gpu: bool) -> Deadlines {
    /// Longer than any lab waits; a matrix with `timeout = "off"` means it.
    const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    let watch = &settings.watch;
    let device = match settings.linear4bit().map(|linear4bit| linear4bit.backend) {
        Some(Backend::Cpu) => Backend::Cpu,
        Some(backend @ (Backend::Auto | Backend::Cuda)) if gpu => backend,
        Some(Backend::Auto | Backend::Cuda) | None if !gpu => Backend::Cpu,
        Some(Backend::Auto | Backend::Cuda) | None => Backend::Auto,
    };
    Deadlines {
        timeout: watch.timeout.millis().map_or(FOR_EVER, |timeout| timeout.to_duration()),
        stage_timeout: watch.stage_timeout.millis().map(|timeout| timeout.to_duration()),
        silence_timeout: watch.silence_timeout.millis().map(|timeout| timeout.to_duration()),
        grace: GRACE,
        kill_wait: KILL_WAIT,
        settle: watch.settle_on(device).to_duration(),
    }
}

/// The fault that this trial commits, drawn from the seed and the trial so that a repetition draws the same.
fn drawn<'c>(cell: &'c Cell, context: TrialContext<'_>) -> Option<&'c PlannedFault> {
    let is_drawn = |number, planned: &PlannedFault| draw(context.order_seed, context.trial, number) < planned.rate;
    cell.inject.iter().enumerate().find(|(number, planned)| is_drawn(*number, planned)).map(|(_, planned)| planned)
}

fn stage_of(planned: &PlannedFault) -> Option<StageName> {
    planned.at.as_ref().and_then(|stage| stage.parse().ok())
}

/// The fault that this trial's worker commits in its own process.
fn worker_fault(cell: &Cell, context: TrialContext<'_>) -> Option<InjectedFault> {
    let planned = drawn(cell, context)?;
    Some(InjectedFault { fault: WorkerFault::of(planned.fault)?, at: stage_of(planned) })
}

/// The fault of the whole machine that this trial commits, and the stage in which.
pub fn machine_fault(cell: &Cell, context: TrialContext<'_>) -> Option<(MachineFault, Option<StageName>)> {
    let planned = drawn(cell, context)?;
    Some((MachineFault::of(planned.fault)?, stage_of(planned)))
}

/// A number in 0..1: the first 53 bits of a sha256.
fn draw(seed: u64, trial: &TrialId, number: usize) -> f64 {
    let digest = Sha256::digest(format!("{seed} {trial} {number}").as_bytes());
    let word = u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"));
    (word >> 11) as f64 / (1u64 << 53) as f64
}
