//! A campaign in the course of a run: the plan in force, where it stands, and what comes next.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cli::args::{DataFormat, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::run::run_failure;
use crate::cli::{drill, output, plan, read, render};
use crate::decide::bisect::{Seen, Step};
use crate::decide::campaign::{Campaign, Course, FindingKind, Known, Question, Standing, is_same_fault};
use crate::decide::plan::{Cell, Plan};
use crate::decide::predict::Predictor;
use crate::decide::result::ResultFold;
use crate::decide::stats::Counts;
use crate::model::ids::{CellId, DeviceId};
use crate::model::journal::{Event, Extended, Hooked, Invoker, Opened, Record};
use crate::model::matrix::{Matrix, Override, Tool, VerdictName, parse_bytes};
use crate::model::verdict::{Counted, Provenance, Role, Signature};
use crate::perform::journal::read_in_hindsight;
use crate::perform::revisions::{Repository, RevisionCache};
use crate::perform::runner::RunError;
use crate::perform::store::{ResultsDir, RunDir, names};

/// The stored plan with the cells that its campaign added since.
///
/// # Errors
/// If the journal cannot be read, or holds what is no cell.
pub fn in_force(run: &RunDir, mut plan: Plan) -> Result<Plan, Failure> {
    if plan.campaign.is_some() {
        let mut malformed = None;
        records(run, |record| {
            if let (Event::Extended(extended), None) = (&record.event, &malformed) {
                malformed = plan.extend(extended).err();
            }
        })?;
        if let Some(error) = malformed {
            let journal = run.file(names::JOURNAL);
            return Err(Failure::words(Exit::JournalDamaged, format!("{}: {error}", journal.display())));
        }
    }
    Ok(plan)
}

fn records(run: &RunDir, mut each: impl FnMut(Record)) -> Result<(), Failure> {
    let read = read_in_hindsight(
        || run.open_journal(),
        |record| {
            each(record);
            Ok::<(), RunError>(())
        },
    );
    read.map_err(|error| run_failure(run, error))
}

/// The matrix of a run as it was when the run began.
///
/// # Errors
/// If the stored file is another one by now.
pub fn matrix(run: &RunDir, plan: &Plan) -> Result<Matrix, Failure> {
    let file = run.file(names::MATRIX);
    let changed = || {
        Failure::words(Exit::JournalDamaged, format!("{} was changed after the run began", file.display()))
            .hint("put the file back as it was, or begin anew with --new")
    };
    let overrides: Vec<Override> = plan
        .overrides
        .iter()
        .map(|text| Override::shown(text))
        .collect::<Result<_, _>>()
        .or_fail(Exit::JournalDamaged)?;
    let bytes = run.read(names::MATRIX).or_fail(Exit::Unfit)?;
    let matrix = parse_bytes(&bytes, names::MATRIX, &overrides).map_err(|_| changed())?;
    if matrix.digest == plan.matrix_digest { Ok(matrix) } else { Err(changed()) }
}

/// Where the campaign of a run stands, as its journal tells.
///
/// # Errors
/// If the journal cannot be read.
pub fn course(run: &RunDir, plan: &Plan, campaign: &Campaign, matrix: &Matrix) -> Result<Course, Failure> {
    let mut course = Course::new(campaign, &campaign.question.excluded(matrix));
    for known in &campaign.known {
        if let Some(place) = plan.cell(&known.cell).and_then(|cell| campaign.question.place(cell)) {
            course.load(place, known.counts);
        }
    }
    records(run, |record| course.apply(&record, plan))?;
    Ok(course)
}

/// What a campaign does next.
pub enum Next {
    /// Nothing: it is over.
    Over,
    /// A trial of a cell.
    Extend(Extended),
    /// A revision is prepared; so the journal will say.
    Prepare(String),
}

/// What the campaign of `plan`, none of whose trials is due, does next; said to people as it goes.
///
/// # Errors
/// If something stored cannot be read.
pub fn next(run: &RunDir, plan: &Plan, campaign: &Campaign, global: &Global) -> Result<Next, Failure> {
    let matrix = matrix(run, plan)?;
    let mut course = course(run, plan, campaign, &matrix)?;
    course.give_up_unanswered();
    let (purpose, mut cell) = match course.next_cell(&matrix).map_err(plan::matrix_failure)? {
        Step::Done(_) => return Ok(Next::Over),
        Step::Test { at: cell, purpose } => (purpose, cell),
    };
    if let Question::Revisions { .. } = campaign.question
        && !course.is_prepared(&cell.settings.identity)
    {
        return Ok(Next::Prepare(cell.settings.identity.clone()));
    }
    if !global.quiet {
        output::say(format_args!("{}; next: {} ({purpose})", brief(&course), cell.label));
    }
    let why = format!("{purpose}: {}", cell.label);
    let mut new = Vec::new();
    if plan.cell(&cell.id).is_none() {
        cell.rounds = Some(0);
        cell.predicted = Predictor::default().predict(&cell.settings);
        new.push(serde_json::to_value(&*cell).or_fail(Exit::Bug)?);
    }
    Ok(Next::Extend(Extended { cells: vec![cell.id.clone()], new, why }))
}

/// Where a campaign stands, on one line.
fn brief(course: &Course) -> String {
    let standing = Standing::of(course);
    let likeliest = standing.posterior.first();
    let likeliest =
        likeliest.map_or_else(String::new, |(answer, weight)| format!(", likeliest {answer} {:.0} %", 100.0 * weight));
    let left = standing.runs_left.map_or_else(String::new, |runs| format!(", about {runs} left"));
    format!("runs {}{likeliest}{left}", standing.runs)
}

/// The cache of the revisions that a campaign searches.
pub fn cache(results: &ResultsDir, matrix: &Matrix, campaign: &Campaign) -> Option<RevisionCache> {
    let (Question::Revisions { history, .. }, Some(revisions)) = (&campaign.question, &matrix.revisions) else {
        return None;
    };
    Some(RevisionCache::new(results.path(), revisions, &history.repo))
}

/// The repository of a matrix; a relative path is one from the directory of its file.
pub fn repository<'i>(
    matrix: &Matrix,
    matrix_dir: &str,
    invoker: &'i Invoker,
    signal: &'i AtomicUsize,
) -> Option<Repository<'i>> {
    let revisions = matrix.revisions.as_ref()?;
    let git = matrix.tools.get(&Tool::Git).map_or("git", String::as_str);
    Some(Repository { path: Path::new(matrix_dir).join(&revisions.repo), git: PathBuf::from(git), invoker, signal })
}

/// Where a revision is prepared.
pub struct Workshop<'a> {
    /// For which run.
    pub run: &'a RunDir,
    /// In which results directory.
    pub results: &'a ResultsDir,
    /// How the run began.
    pub opened: &'a Opened,
    /// The number of the signal that asks to stop; 0 for none.
    pub signal: &'a AtomicUsize,
}

/// Prepares a revision and gives what the journal is to say of it.
///
/// # Errors
/// If the cache cannot be written, or a signal asks to stop; the preparation is then begun anew when the run goes on.
pub fn prepare(workshop: &Workshop<'_>, plan: &Plan, revision: &str) -> Result<Hooked, Failure> {
    let Workshop { run, results, opened, signal } = workshop;
    let matrix = matrix(run, plan)?;
    let campaign = plan.campaign.as_deref();
    let parts = campaign.and_then(|campaign| cache(results, &matrix, campaign));
    let (Some(cache), Some(repository), Some(revisions)) =
        (parts, repository(&matrix, &opened.matrix_dir, &opened.invoker, signal), &matrix.revisions)
    else {
        return Err(Failure::words(Exit::Bug, "a revision without [revisions]"));
    };
    output::say(format_args!("preparing {revision}"));
    let prepared = cache.prepare(&repository, revisions, revision).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => {
            let exit = Exit::Signal(u8::try_from(signal.load(Ordering::Relaxed)).unwrap_or(0));
            Failure::words(exit, format!("stopped while {revision} was prepared"))
                .hint(format!("`jetfault resume {}` goes on", run.id))
        }
        _ => Failure::words(Exit::Unfit, format!("cannot prepare {revision} in {}: {error}", cache.path().display())),
    })?;
    Ok(Course::prepared(revision, prepared.err().as_deref()))
}

/// Where the search of a run stands; nothing if it asks nothing.
///
/// # Errors
/// If something stored cannot be read.
pub fn standing(run: &RunDir) -> Result<Option<Standing>, Failure> {
    let plan = read::plan(run)?;
    let Some(campaign) = plan.campaign.as_deref() else { return Ok(None) };
    Ok(Some(Standing::of(&course(run, &plan, campaign, &matrix(run, &plan)?)?)))
}

/// Prints where the campaign of a run stands, or what a drill showed; returns the exit code of what it found.
///
/// # Errors
/// If something stored cannot be read, or nothing be printed.
pub fn print_standing(run: &RunDir, format: DataFormat, global: &Global) -> Outcome {
    let plan = read::plan(run)?;
    let Some(campaign) = plan.campaign.as_deref() else {
        return match drill::is_drill(&plan)? {
            true => drill::show(run, format, global),
            false => read::print_report_text(run, global),
        };
    };
    let course = course(run, &plan, campaign, &matrix(run, &plan)?)?;
    let standing = Standing::of(&course);
    match format {
        DataFormat::Text => output::print(render::standing(&standing, &output::style(global)).as_bytes())?,
        DataFormat::Json => output::print(&standing.to_json())?,
    }
    Ok(match standing.finding {
        FindingKind::Found | FindingKind::AlreadyFaulty | FindingKind::NotMonotone => Exit::FaultFound,
        FindingKind::Open if course.total().faults > 0 => Exit::FaultFound,
        FindingKind::Open
        | FindingKind::NotReproduced
        | FindingKind::Drift
        | FindingKind::Untestable
        | FindingKind::Inconclusive => Exit::Undecided,
    })
}

/// Fills in what other runs of this device in `results` know: trials of the cells of `plan` with the fault that they
/// found at the bad end, and trials of controls; for a run until decided the trials of its baseline.
///
/// # Errors
/// If the results directory cannot be read. A run that cannot be read is left out, and that is said.
pub fn learn(results: &ResultsDir, plan: &mut Plan, device: &DeviceId) -> Result<(), Failure> {
    if plan.campaign.is_none() && plan.stopping.is_none() {
        return Ok(());
    }
    let bad_end = plan.cells.first().map(|cell| cell.id.clone());
    let mut before = Before::default();
    for run in results.runs().or_fail(Exit::Unfit)? {
        if let Err(failure) = before.read(&run, device, &plan.cells) {
            output::say(format_args!("warning: {} is left out: {}", run.id, failure.error));
        }
    }
    let first = before.trials.iter().find(|trial| Some(&trial.cell) == bad_end.as_ref() && trial.fault.is_some());
    let signature = first.and_then(|trial| trial.fault.clone());
    let mut counts: BTreeMap<CellId, Counts> = BTreeMap::new();
    for trial in &before.trials {
        let counts = counts.entry(trial.cell.clone()).or_default();
        match (&trial.fault, &signature) {
            (None, _) => counts.clean += 1,
            (Some(fault), Some(signature)) if is_same_fault(signature, fault) => counts.faults += 1,
            (Some(_), _) => {}
        }
    }
    if let Some(baseline) = bad_end.and_then(|cell| counts.get(&cell).copied()) {
        plan.test_against(baseline);
    }
    let Some(mut campaign) = plan.campaign.take() else { return Ok(()) };
    campaign.signature = signature;
    campaign.known = counts.into_iter().map(|(cell, counts)| Known { cell, counts }).collect();
    campaign.controls = before.controls;
    plan.campaign = Some(campaign);
    Ok(())
}

/// What other runs found.
#[derive(Default)]
struct Before {
    trials: Vec<Trial>,
    controls: Counts,
}

/// A counted trial of another run.
struct Trial {
    cell: CellId,
    fault: Option<Signature>,
}

impl Before {
    /// Takes in the counted trials of a run on `device`: samples of `cells`, of the provenance that they would have now,
    /// and controls that must pass.
    fn read(&mut self, run: &RunDir, device: &DeviceId, cells: &[Cell]) -> Result<(), Failure> {
        let Some(opened) = read::opening(run)? else { return Ok(()) };
        if opened.device != *device || opened.script.is_some() {
            return Ok(());
        }
        let plan = read::plan(run)?;
        let mut fold = ResultFold::default();
        records(run, |record| {
            let Some(result) = fold.apply(&record) else { return };
            let Some(started) = result.started.map(|started| started.started) else { return };
            let fault = match result.judgement.verdict.counted() {
                Counted::Excluded => return,
                Counted::Clean => None,
                Counted::Fault => Some(result.judgement.fault_signature()),
            };
            let cell = result.trial.cell;
            let wanted = |cell: &Cell| if cell.inject.is_empty() { Provenance::Measured } else { Provenance::Injected };
            let must_pass = |cell: &Cell| cell.expect == Some(VerdictName::Pass);
            match started.role {
                Role::Control
                    if plan.cell(&cell).is_some_and(must_pass) && started.provenance == Provenance::Measured =>
                {
                    Seen::fault_if(fault.is_some()).count(&mut self.controls);
                }
                Role::Sample if cells.iter().any(|own| own.id == cell && started.provenance == wanted(own)) => {
                    self.trials.push(Trial { cell, fault });
                }
                Role::Sample | Role::Control | Role::Warming | Role::Drill => {}
            }
        })
    }
}
