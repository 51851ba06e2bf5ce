//! `jetfault compare`: two levels of a factor over the trials of runs that are there. It takes no lock and writes nothing.

use crate::cli::args::{CompareArgs, CompareFormat, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::read::{Read, machine_words, make_report};
use crate::cli::{locate, output, render};
use crate::decide::compare::{
    COMPARISONS_SCHEMA, CollectError, Collector, Comparisons, Design, LevelError, Observation, RUN, RunUnderComparison,
    compare_pairs, covariates, factor_of, levels_of, pairs,
};
use crate::decide::likeness::FaultPairs;
use crate::decide::result::ResultFold;
use crate::decide::run::RunState;
use crate::model::matrix::{TrialsRule, did_you_mean};
use crate::model::verdict::Provenance;
use crate::perform::host::Sysroot;
use crate::perform::store::RunDir;
use crate::perform::veil::Veil;

/// `jetfault compare [RUN…] --axis NAME [--levels A,B]`.
///
/// # Errors
/// See [`Failure`].
pub fn compare(args: &CompareArgs, global: &Global) -> Outcome {
    let dirs = run_dirs(args, global)?;
    if args.faults {
        return faults(&dirs, args.format, global);
    }
    let runs = dirs.iter().map(under_comparison).collect::<Result<Vec<_>, _>>()?;
    let cells = args.cell.iter().map(|text| conditions(text)).collect::<Result<Vec<_>, _>>()?;
    let keep = |observation: &Observation| {
        let meets = |conditions: &Conditions| {
            conditions.iter().all(|(factor, level)| observation.has(factor_of(factor), level))
        };
        cells.is_empty() || cells.iter().any(meets)
    };
    let by_run = args.axis.as_deref() == Some(RUN);
    let same = runs.iter().enumerate().find(|(index, run)| runs[..*index].iter().any(|other| other.id == run.id));
    if let (true, Some((_, run))) = (by_run, same) {
        return Err(Failure::words(Exit::Usage, format!("two of these runs are called {}", run.id))
            .hint("runs of several devices: --axis device"));
    }
    let mut collector = Collector::new(&runs);
    if by_run {
        collector = collector.by_run();
    }
    for (index, dir) in dirs.iter().enumerate() {
        collect(&mut collector, index, dir)?;
    }
    let peeked = runs.iter().any(|run| matches!(run.plan.trials, TrialsRule::UntilDecided(_)));
    let design = Design { axes: collector.axes(), peeked };
    let observations = collector.finish(keep, args.signature.as_deref()).map_err(|error| refused(&error))?;
    if observations.is_empty() {
        return Err(Failure::words(Exit::Usage, "no trial is left to compare")
            .hint("the runs have no finished trial of a sample cell, or --cell leaves none"));
    }
    let Some(axis) = &args.axis else { return rank(&observations, &runs, args.format, global) };
    let factor = factor_of(axis);
    let levels = levels_of(&observations, factor).map_err(|error| no_levels(&error))?;
    let baseline = match by_run {
        true => runs.first().map(|run| run.id.as_str()),
        false => runs.first().and_then(|run| run.plan.cells.first()?.levels.get(factor)).map(String::as_str),
    };
    let pairs = pairs(&levels, factor, args.levels.as_deref(), baseline).map_err(|error| no_levels(&error))?;
    let (comparisons, all_levels_p) = compare_pairs(&observations, factor, &pairs, &design);
    let comparisons = Comparisons {
        schema: COMPARISONS_SCHEMA.to_owned(),
        runs: runs.iter().map(|run| run.id.clone()).collect(),
        factor: factor.to_owned(),
        comparisons,
        all_levels_p,
    };
    match args.format {
        CompareFormat::Text => output::print(render::comparisons(&comparisons, &output::style(global)).as_bytes())?,
        CompareFormat::Md => output::print(render::comparisons_markdown(&comparisons).as_bytes())?,
        CompareFormat::Json => output::print(&comparisons.to_json())?,
        CompareFormat::Html => {
            let mut veil = Veil::new(&Sysroot::new(global.sysroot.clone()), None);
            let page = render::comparisons_html(&comparisons, &mut veil).or_fail(Exit::Bug)?;
            output::print(page.as_bytes())?;
        }
    }
    Ok(if comparisons.are_decided() { Exit::Done } else { Exit::Undecided })
}

/// `jetfault compare RUN OTHER --faults`.
fn faults(dirs: &[RunDir], format: CompareFormat, global: &Global) -> Outcome {
    let [run, other] = dirs else {
        return Err(Failure::words(Exit::Usage, "--faults compares two runs")
            .hint("name both: jetfault compare RUN OTHER --faults"));
    };
    let pairs = FaultPairs::of(&make_report(run, None)?, &make_report(other, None)?).or_fail(Exit::Usage)?;
    match format {
        CompareFormat::Text => output::print(render::fault_pairs(&pairs, &output::style(global)).as_bytes())?,
        CompareFormat::Md => output::print(render::fault_pairs_markdown(&pairs).as_bytes())?,
        CompareFormat::Json => output::print(&pairs.to_json())?,
        CompareFormat::Html => return Err(no_page("a comparison of faults")),
    }
    Ok(if pairs.are_decided() { Exit::Done } else { Exit::Undecided })
}

/// The error for what is not shown as a page.
fn no_page(what: &str) -> Failure {
    Failure::words(Exit::Usage, format!("{what} has no page"))
        .hint("--format text, md or json; or --axis NAME for a comparison that has one")
}

/// `jetfault compare --covariates`: a ranking for each provenance. It is a hint and decides nothing.
fn rank(observations: &[Observation], runs: &[RunUnderComparison], format: CompareFormat, global: &Global) -> Outcome {
    let mut provenances: Vec<Provenance> = observations.iter().map(|observation| observation.provenance).collect();
    provenances.sort();
    provenances.dedup();
    let ids = || runs.iter().map(|run| run.id.clone()).collect();
    for provenance in provenances {
        let ranking = covariates(observations, ids(), provenance);
        match format {
            CompareFormat::Text => output::print(render::covariates(&ranking, &output::style(global)).as_bytes())?,
            CompareFormat::Md => output::print(render::covariates_markdown(&ranking).as_bytes())?,
            CompareFormat::Json => output::print(&ranking.to_json())?,
            CompareFormat::Html => return Err(no_page("a ranking of numbers")),
        }
    }
    Ok(Exit::Done)
}

/// `factor=level` pairs that must all hold.
type Conditions = Vec<(String, String)>;

fn conditions(text: &str) -> Result<Conditions, Failure> {
    let condition = |part: &str| part.split_once('=').map(|(factor, level)| (factor.to_owned(), level.to_owned()));
    // A level may have commas of its own: a part without `=` belongs to the level before it.
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(',') {
        match parts.last_mut() {
            Some(last) if !part.contains('=') => *last = format!("{last},{part}"),
            Some(_) | None => parts.push(part.to_owned()),
        }
    }
    parts.iter().map(|part| condition(part)).collect::<Option<Vec<_>>>().ok_or_else(|| {
        Failure::words(Exit::Usage, format!("--cell {text:?} is not a list of factor=level"))
            .hint("for example --cell state=cold,version=0.46.1")
    })
}

fn run_dirs(args: &CompareArgs, global: &Global) -> Result<Vec<RunDir>, Failure> {
    if args.runs.is_empty() {
        return Ok(vec![locate::run_or_bundle(global, None)?.1]);
    }
    let dirs: Vec<RunDir> =
        args.runs.iter().map(|run| Ok(locate::run_or_bundle(global, Some(run))?.1)).collect::<Result<_, Failure>>()?;
    let twice = dirs.iter().enumerate().find(|(index, dir)| dirs[..*index].iter().any(|other| other.path == dir.path));
    match twice {
        Some((_, dir)) => Err(Failure::words(Exit::Usage, format!("run {} is named twice", dir.id))
            .hint("its trials would be counted twice")),
        None => Ok(dirs),
    }
}

fn under_comparison(dir: &RunDir) -> Result<RunUnderComparison, Failure> {
    Ok(RunUnderComparison { id: dir.id.clone(), plan: Read::open(dir)?.plan, machine: machine_words(dir) })
}

fn collect(collector: &mut Collector<'_>, index: usize, dir: &RunDir) -> Result<(), Failure> {
    let read = Read::open(dir)?;
    let mut state = RunState::new(&read.agenda);
    let mut fold = ResultFold::default();
    let mut stray = None;
    read.records(dir, |record| {
        state.apply(&read.agenda, &record)?;
        if let Some(result) = fold.apply(&record)
            && let Err(error) = collector.add(index, &result)
        {
            stray.get_or_insert(error);
        }
        Ok(())
    })?;
    stray.map_or(Ok(()), Err).or_fail(Exit::JournalDamaged)
}

fn refused(error: &CollectError) -> Failure {
    let exit = match error {
        CollectError::Stray(_) => Exit::JournalDamaged,
        CollectError::MixedSignatures(_) | CollectError::NoSuchSignature { .. } => Exit::Usage,
    };
    let failure = Failure::new(exit, error.clone());
    match error {
        CollectError::MixedSignatures(_) => failure.hint(
            "a comparison is of one kind of fault: --signature WORDS names it by how it begins, such as \
             --signature reboot; the others are then in no rate",
        ),
        CollectError::Stray(_) | CollectError::NoSuchSignature { .. } => failure,
    }
}

fn no_levels(error: &LevelError) -> Failure {
    let failure = Failure::new(Exit::Usage, error.clone());
    let hint = match error {
        LevelError::NoSuchFactor { factor, there } => suggestion(factor, there),
        LevelError::NoSuchLevel { level, there, .. } => suggestion(level, there),
        LevelError::NotTwo { there, .. } => format!("--levels A,B: there are {}", there.join(" · ")),
        LevelError::Unrecorded(_) => "trials of this build record it; those of older builds did not".to_owned(),
        LevelError::OneOnly { .. } => "name further runs, or take --cell off".to_owned(),
    };
    failure.hint(hint)
}

fn suggestion(word: &str, there: &[String]) -> String {
    let near = did_you_mean(word, there.iter().map(String::as_str)).map(|near| format!("did you mean {near}? "));
    format!("{}there are {}", near.unwrap_or_default(), there.join(" · "))
}
