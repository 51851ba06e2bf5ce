//! Commands that read a run: `report`, `status`, `explain`. They take no lock and write nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::slice;

use crate::cli::args::{
    BundleArgs, DataFormat, ExplainArgs, Global, ReportArgs, ReportCommand, ReportFormat, StatusArgs,
};
use crate::cli::dossier::Dossier;
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::joined::How;
use crate::cli::render::Written;
use crate::cli::run::{machine_dirs, run_failure};
use crate::cli::{campaign, csv_rows, fleet, follow, issue, joined, junit, locate, output, render};
use crate::decide::agenda::{Agenda, CellHere};
use crate::decide::explain::{ExplainFold, Explanation};
use crate::decide::plan::Plan;
use crate::decide::report::{Report, Standing};
use crate::decide::result::{ResultFold, TrialResult};
use crate::decide::run::IllegalEvent;
use crate::decide::stats::Method;
use crate::decide::status::{Harness, Status, StatusFold};
use crate::decide::stopping::End;
use crate::model::evidence::Fact;
use crate::model::ids::{ContentDigest, RunId, TrialId};
use crate::model::journal::{Event, Opened, Record};
use crate::model::observed::Observed;
use crate::model::settings::Breadcrumbs;
use crate::model::verdict::{Provenance, Verdict};
use crate::perform::boot::{Trouble, UnitDir, hold_of};
use crate::perform::bundle::pack;
use crate::perform::host::{MachineFacts, Sysroot};
use crate::perform::journal::{first_record, read_in_hindsight};
use crate::perform::runner::{COMMIT_PERIOD_MS, RunError};
use crate::perform::spool::Spool;
use crate::perform::store::{ResultsDir, RunDir, names};
use crate::perform::veil::Veil;

/// Makes a file of every trial of a run; what names somebody is taken out.
type PrintTrials<'a> = &'a dyn Fn(&Dossier, &mut Veil) -> Result<Vec<u8>, Failure>;

/// `jetfault report [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn report(args: &ReportArgs, global: &Global) -> Outcome {
    if let Some(ReportCommand::Bundle(args)) = &args.command {
        return bundle(args, global);
    }
    let runs = match &args.runs[..] {
        [] => vec![locate::run_or_bundle(global, None)?.1],
        named => named
            .iter()
            .map(|run| Ok(locate::run_or_bundle(global, Some(run))?.1))
            .collect::<Result<Vec<_>, Failure>>()?,
    };
    if args.joined {
        let how = How { format: args.format, interval: args.interval, no_redact: args.no_redact };
        return joined::print(&runs, &how, global);
    }
    if args.format == ReportFormat::Md {
        let (text, reports) = issue::make(&runs, args, global)?;
        output::print(text.as_bytes())?;
        return Ok(worst(reports.iter().map(exit_of)));
    }
    let [run] = &runs[..] else {
        return Err(Failure::words(Exit::Usage, format!("{} runs, and this format is of one", runs.len()))
            .hint("--joined puts several together, device by device, in every format but html; --format md makes one bug report of them"));
    };
    let corrections = issue::corrected_by(run)?;
    if !global.quiet && !corrections.ids.is_empty() {
        let ids: Vec<&str> = corrections.ids.iter().map(RunId::as_str).collect();
        output::say(format_args!("warning: what {} tells was corrected later, by {}", run.id, ids.join(", ")));
    }
    let tallies = |print: &dyn Fn(&Report) -> Vec<u8>| {
        let report = make_report(run, args.interval)?;
        output::print(&print(&report))?;
        Ok(exit_of(&report))
    };
    let trials = |print: PrintTrials<'_>| {
        let dossier = Dossier::of(run, args.interval)?;
        output::print(&print(&dossier, &mut dossier.veil(args.no_redact, global))?)?;
        Ok(exit_of(&dossier.report))
    };
    match args.format {
        // What a search found is no tally.
        ReportFormat::Text if campaign::standing(run)?.is_some() => {
            campaign::print_standing(run, DataFormat::Text, global)
        }
        ReportFormat::Text => tallies(&|report| render::report(report, &output::style(global)).into_bytes()),
        ReportFormat::Md => unreachable!("handled above"),
        ReportFormat::Json => tallies(&Report::to_json),
        ReportFormat::Csv => {
            trials(&|dossier, veil| csv_rows::trials(slice::from_ref(dossier), veil).or_fail(Exit::Bug))
        }
        ReportFormat::Junit => trials(&|dossier, veil| {
            let outputs = [dossier.outputs(run)];
            junit::trials(slice::from_ref(dossier), &outputs, veil).map(String::into_bytes).or_fail(Exit::Bug)
        }),
        ReportFormat::Html => trials(&|dossier, veil| {
            render::html(dossier, &dossier.material(run), veil).map(String::into_bytes).or_fail(Exit::Bug)
        }),
    }
}

/// `jetfault report bundle [RUN] -o FILE.zip`.
fn bundle(args: &BundleArgs, global: &Global) -> Outcome {
    let (_, run) = locate::run_or_bundle(global, args.run.as_deref())?;
    // As it is stored: what a campaign added is in the journal.
    let stored = run.read(names::PLAN).or_fail(Exit::Unfit)?;
    plan(&run)?;
    let stored = Plan::from_json(&stored).or_fail(Exit::JournalDamaged)?;
    let invoker = opening(&run)?.map(|opened| opened.invoker);
    let mut veil = match args.no_redact {
        true => Veil::transparent(),
        false => Veil::new(&Sysroot::new(global.sysroot.clone()), invoker.as_ref()),
    };
    let packed = pack(&run, &stored, &args.output, &mut veil).map_err(|error| {
        Failure::new(Exit::Unfit, error).hint("-o names another file; nothing of the run was changed")
    })?;
    if !global.quiet {
        let contents = &packed.contents;
        let megabytes = packed.bytes as f64 / 1e6;
        output::say(format_args!(
            "{}: {} files, {megabytes:.1} MB; {} stayed behind, bundle.json says which and why",
            args.output.display(),
            contents.files.len(),
            contents.left_out.len() + contents.left_out_more
        ));
    }
    Ok(Exit::Done)
}

/// `jetfault status [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn status(args: &StatusArgs, global: &Global) -> Outcome {
    if let Some(name) = &args.shares {
        let results = ResultsDir::at(locate::results_path(global.results.as_deref()));
        output::print(&fleet::shares_json(&results, name, global)?)?;
        return Ok(Exit::Done);
    }
    let (results, run) = locate::run_or_bundle(global, args.run.as_deref())?;
    if args.standing {
        return campaign::print_standing(&run, DataFormat::Json, global);
    }
    // Nothing happens any more to a bundle.
    if args.follow && !run.is_unpacked() {
        return follow::follow(&results, &run, args, global);
    }
    let status = make_status(&results, &run, args, global, |_, _| {})?;
    match args.format {
        DataFormat::Text => {
            let style = output::style(global);
            let search = campaign::standing(&run)?.map(|standing| format!("\n{}", render::standing(&standing, &style)));
            let text = render::status(&status, &style) + &search.unwrap_or_default();
            output::print(text.as_bytes())?;
        }
        DataFormat::Json => output::print(&status.to_json())?,
    }
    Ok(Exit::Done)
}

/// Where `run` stands; each record is shown to `each` on the way.
///
/// # Errors
/// If it cannot be read.
pub(super) fn make_status(
    results: &ResultsDir,
    run: &RunDir,
    args: &StatusArgs,
    global: &Global,
    mut each: impl FnMut(&Plan, &Record),
) -> Result<Status, Failure> {
    let read = Read::open(run)?;
    let mut fold = StatusFold::new(&read.plan, &read.agenda).by(args.interval);
    read.records(run, |record| {
        each(&read.plan, &record);
        fold.apply(&record)
    })?;
    // Of a bundle nobody knows here whether somebody is at work on the run.
    let is_here = !run.is_unpacked();
    let here = Sysroot::new(global.sysroot.clone()).boot_id().ok().filter(|_| is_here);
    let mut status = fold.finish(here.as_ref(), if is_here { harness(results) } else { Harness::Unknown });
    if !status.standing.is_final() && is_here {
        let units = UnitDir::new(&Sysroot::new(global.sysroot.clone()), args.unit_dir.as_deref());
        let armed =
            "each boot carries it on; a STOP file or jetfault.off on the kernel's command line keeps it from that";
        status.armed = units.is_armed_for(&run.path).then(|| armed.to_owned());
        status.trouble = Trouble::new(&machine_dirs()).of(&run.path);
        status.waits = hold_of(&run.path).filter(|_| status.harness != Harness::Absent).or(status.waits);
    }
    Ok(status)
}

/// `jetfault explain [RUN] TRIAL`.
///
/// # Errors
/// See [`Failure`].
pub fn explain(args: &ExplainArgs, global: &Global) -> Outcome {
    let (which, trial) = match &args.which[..] {
        [trial] => (None, trial),
        [run, trial, ..] => (Some(run.as_str()), trial),
        [] => return Err(Failure::words(Exit::Usage, "no trial named")),
    };
    let (_, run) = locate::run_or_bundle(global, which)?;
    let read = Read::open(&run)?;
    let trial = find_trial(&run, &read, trial)?;
    let mut fold = ExplainFold::new(&read.plan, &read.agenda, trial);
    let mut explanation = None;
    read.records(&run, |record| {
        explanation = fold.apply(&record)?.or(explanation.take());
        Ok(())
    })?;
    let mut explanation = explanation.ok_or_else(|| {
        Failure::words(Exit::Undecided, "this trial has no verdict yet").hint("`jetfault resume` judges what is open")
    })?;
    for seen in late_observations(&run, &explanation) {
        explanation.add_late(&seen);
    }
    match args.format {
        DataFormat::Text => {
            let style = output::style(global);
            let trial = explanation.trial.to_string();
            let written = ["stdout", "stderr"].map(|stream| Written {
                stream,
                path: issue::output_file(&run, &trial, stream).display().to_string(),
                end: issue::output_end(&run, &trial, stream),
            });
            let text = render::explain(&explanation, &style) + &render::written(&written, &style);
            output::print(text.as_bytes())?;
        }
        DataFormat::Json => output::print(&explanation.to_json())?,
    }
    Ok(Exit::Done)
}

/// What was seen from outside of the end of the trial's boot, and has not been taken into the journal.
fn late_observations(run: &RunDir, explanation: &Explanation) -> Vec<Observed> {
    // A run that cannot be looked at is explained as its journal tells it.
    let mut waiting = Spool::of(run).waiting().unwrap_or_default();
    waiting.retain(|seen| seen.boot.is_some() && seen.boot == explanation.boot);
    waiting
}

/// Prints the report of a run that was just carried on; returns the exit code that its results have.
///
/// # Errors
/// If the run cannot be read back or the report not be printed.
pub fn print_report_text(run: &RunDir, global: &Global) -> Outcome {
    let report = make_report(run, None)?;
    output::print(render::report(&report, &output::style(global)).as_bytes())?;
    Ok(exit_of(&report))
}

/// What the journal of a run begins with; nothing if the run was never begun.
///
/// # Errors
/// If it cannot be read.
pub fn opening(run: &RunDir) -> Result<Option<Opened>, Failure> {
    let journal = run.open_journal().or_fail(Exit::Unfit)?;
    let first = first_record(BufReader::new(journal)).map_err(|error| run_failure(run, RunError::Read(error)))?;
    Ok(first.and_then(|record| match record.event {
        Event::Opened(opened) => Some(*opened),
        _ => None,
    }))
}

/// The plan of a run: the stored one, with what a campaign added since.
///
/// # Errors
/// If it cannot be read, or is another than the run began with.
pub fn plan(run: &RunDir) -> Result<Plan, Failure> {
    let json = run.read(names::PLAN).or_fail(Exit::Unfit)?;
    if opening(run)?.is_some_and(|opened| opened.plan != ContentDigest::of(&json)) {
        let plan = run.file(names::PLAN);
        return Err(Failure::words(
            Exit::JournalDamaged,
            format!("{} was changed after the run began", plan.display()),
        )
        .hint("put the file back as it was, or begin anew with `jetfault run --new`"));
    }
    let plan = Plan::from_json(&json).map_err(|error| {
        Failure::words(Exit::JournalDamaged, format!("cannot read {}: {error}", run.file(names::PLAN).display()))
    })?;
    campaign::in_force(run, plan)
}

/// Whether nothing is left to do in a run.
///
/// # Errors
/// If it cannot be read.
pub fn is_complete(run: &RunDir) -> Result<bool, Failure> {
    Ok(matches!(make_report(run, None)?.run.standing, Standing::Complete))
}

/// Every result of a run, in the order of the verdicts.
///
/// # Errors
/// If its plan or its journal cannot be read.
pub fn results(run: &RunDir) -> Result<Vec<TrialResult>, Failure> {
    let (mut fold, mut results) = (ResultFold::default(), Vec::new());
    Read::open(run)?.records(run, |record| {
        results.extend(fold.apply(&record));
        Ok(())
    })?;
    Ok(results)
}

/// A run opened for reading.
pub(super) struct Read {
    /// Its plan.
    pub(super) plan: Plan,
    /// The agenda of that plan.
    pub(super) agenda: Agenda,
}

impl Read {
    /// Opens `run`.
    pub(super) fn open(run: &RunDir) -> Result<Self, Failure> {
        let plan = plan(run)?;
        // What this machine makes of the cells does not matter to a reader: the journal says what was made of them.
        let agenda = Agenda::of(&plan, false, |index| CellHere {
            unrecorded_ms: match plan.cell_at(index).map(|cell| cell.settings.breadcrumbs) {
                Some(Breadcrumbs::Sync) => 0,
                Some(Breadcrumbs::Async | Breadcrumbs::Off) | None => COMMIT_PERIOD_MS,
            },
            ..CellHere::default()
        });
        Ok(Self { plan, agenda })
    }

    /// Hands each record of the journal of `run` to `each`, in order; what was seen from outside stands where it belongs.
    pub(super) fn records(
        &self,
        run: &RunDir,
        mut each: impl FnMut(Record) -> Result<(), IllegalEvent>,
    ) -> Result<(), Failure> {
        let open = || run.open_journal();
        read_in_hindsight(open, |record| each(record).map_err(RunError::Illegal))
            .map_err(|error| run_failure(run, error))
    }
}

/// The report of `run`.
pub(super) fn make_report(run: &RunDir, interval: Option<Method>) -> Result<Report, Failure> {
    let read = Read::open(run)?;
    let mut fold = StatusFold::new(&read.plan, &read.agenda).by(interval);
    read.records(run, |record| fold.apply(&record))?;
    fold.into_report(run.id.clone(), machine_words(run)).or_fail(Exit::JournalDamaged)
}

/// What `machine.json` says, in words; a run whose file is gone is reported without.
pub(super) fn machine_words(run: &RunDir) -> BTreeMap<String, String> {
    let facts =
        fs::read(run.file(names::MACHINE)).ok().and_then(|json| serde_json::from_slice::<MachineFacts>(&json).ok());
    facts.map(words_of).unwrap_or_default()
}

/// What a machine is, in words.
pub(super) fn words_of(facts: MachineFacts) -> BTreeMap<String, String> {
    let power_mode = facts.power_mode.and_then(|mode| Fact::Known(format!("{} (id {})", mode.name, mode.id)));
    let known = [
        ("model", facts.model),
        ("board", facts.board),
        ("kernel", facts.kernel),
        ("os", facts.os),
        ("l4t", facts.l4t),
        ("jetpack", facts.jetpack),
        ("driver", facts.driver),
        ("cuda", facts.cuda),
        ("gpu", facts.gpu),
        ("power mode", power_mode),
    ];
    let known = known.into_iter().filter_map(|(name, fact)| match fact {
        Fact::Known(text) => Some((name.to_owned(), text)),
        Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => None,
    });
    let memory = format!("{:.1} GB", facts.memory_bytes as f64 / 1e9);
    // A captured tree does not tell how many there are.
    let cpus = (facts.cpus > 0).then(|| ("cpus".to_owned(), facts.cpus.to_string()));
    known.chain([("memory".to_owned(), memory)]).chain(cpus).collect()
}

/// What the results of a run are as an exit code: a measured or injected fault outranks what is undecided.
pub(super) fn exit_of(report: &Report) -> Exit {
    let counted = |cell: &crate::decide::report::CellReport| {
        [Provenance::Measured, Provenance::Injected, Provenance::Simulated, Provenance::Transcribed]
            .into_iter()
            .filter_map(|provenance| cell.of_provenance(provenance))
            .any(|sampled| sampled.faults.values().any(|faults| *faults > 0))
    };
    if report.cells.iter().any(counted) {
        return Exit::FaultFound;
    }
    let complete = matches!(report.run.standing, Standing::Complete);
    let is_open = |end: Option<End>| matches!(end, None | Some(End::Inconclusive));
    let undecided = report.decisions.iter().any(|decision| is_open(decision.end));
    if !complete || undecided || report.cells.iter().any(|cell| cell.short.is_some()) {
        Exit::Undecided
    } else {
        Exit::Done
    }
}

/// The exit code of several runs together: a fault in any, else undecided if one is.
pub(super) fn worst(exits: impl Iterator<Item = Exit>) -> Exit {
    let rank = |exit: &Exit| match exit {
        Exit::FaultFound => 2,
        Exit::Undecided => 1,
        _ => 0,
    };
    exits.max_by_key(rank).unwrap_or(Exit::Done)
}

/// Whether somebody works on a run of `results`: whoever does holds its lock.
pub(super) fn harness(results: &ResultsDir) -> Harness {
    match results.is_held() {
        Some(true) => Harness::Working,
        Some(false) => Harness::Absent,
        None => Harness::Unknown,
    }
}

/// The most trials that are listed where several fit.
const FITTING_MAX: usize = 12;

/// How a trial is called by what was typed, the most precise first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// Its id begins so.
    Id,
    /// Its cell is called so.
    Label,
    /// One of the levels of its cell is called so.
    PartOfLabel,
}

/// The trial called `which`: its id, a unique beginning of one, or the label of a cell with one trial.
fn find_trial(run: &RunDir, read: &Read, which: &str) -> Result<TrialId, Failure> {
    let labels: BTreeMap<_, _> = read.plan.cells.iter().map(|cell| (&cell.id, cell.label.as_str())).collect();
    let label = |trial: &TrialId| labels.get(&trial.cell).copied().unwrap_or_default();
    let mut found: BTreeMap<String, (TrialId, String, Fit)> = BTreeMap::new();
    read.records(run, |record| {
        let (trial, word) = match record.event {
            Event::Started(started) => (started.trial, "open".to_owned()),
            Event::Judged(judged) => (judged.trial, judged.judgement.verdict.to_string()),
            _ => return Ok(()),
        };
        let id = trial.to_string();
        let fit = match label(&trial) {
            _ if id.starts_with(which) => Fit::Id,
            whole if whole == which => Fit::Label,
            whole if whole.split(", ").any(|part| part == which) => Fit::PartOfLabel,
            _ => return Ok(()),
        };
        found.insert(id, (trial, word, fit));
        Ok(())
    })?;
    if let Some((trial, ..)) = found.get(which) {
        return Ok(trial.clone());
    }
    let best = found.values().map(|(.., fit)| *fit).min();
    let fitting: Vec<&(TrialId, String, Fit)> = found.values().filter(|(.., fit)| Some(*fit) == best).collect();
    let is_one_cell = fitting.iter().all(|(trial, ..)| trial.cell == fitting[0].0.cell);
    let line = |(trial, word, _): &&(TrialId, String, Fit)| format!("\n  {trial}  {}: {word}", label(trial));
    let list = || {
        let mut list: String = fitting.iter().take(FITTING_MAX).map(line).collect();
        if let more @ 1.. = fitting.len().saturating_sub(FITTING_MAX) {
            list.push_str(&format!("\n  and {more} more"));
        }
        list
    };
    match &fitting[..] {
        [(trial, ..)] => Ok(trial.clone()),
        [] => Err(Failure::words(Exit::Usage, format!("no trial {which} in {}", run.id)).hint(format!(
            "name a cell, as `jetfault report {}` does, and its trials are listed; or give [RUN] TRIAL",
            run.id
        ))),
        // A cell was named: its first trial that did not pass tells most.
        many if best != Some(Fit::Id) && is_one_cell => {
            let (trial, ..) = many.iter().find(|(_, word, _)| word != Verdict::Pass.as_str()).unwrap_or(&many[0]);
            output::say(format_args!("{which} has {} trials in {}:{}\nthis is {trial}\n", many.len(), run.id, list()));
            Ok(trial.clone())
        }
        many => Err(Failure::words(Exit::Usage, format!("{which} may be any of {} trials of {}", many.len(), run.id))
            .hint(format!("write out the one you mean:{}", list()))),
    }
}
