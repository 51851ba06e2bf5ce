//! `nightly`: tonight's run of a matrix against the nights before, for a scheduler.
//!
//! A night is one run of the ordinary machinery. Its plan holds where each cell stood before, so that tonight's answer
//! rests on what was known when it began; trials that confirm a fault are blocks added to the same run. History is read
//! from the journals of earlier runs of the matrix and kept nowhere else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::args::{DataFormat, Global, NightlyArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::read::{self, Read, machine_words, words_of};
use crate::cli::run::{Begin, begin, is_closed};
use crate::cli::{junit, locate, output, plan, render};
use crate::decide::compare::signature_words;
use crate::decide::nightly::{
    Alarm, CellNight, CellState, History, Night, Nightly, NightlyCell, Trial, cell_night, confirmed, confirming,
};
use crate::decide::plan::{Cell, CellRole, Plan};
use crate::decide::result::{ResultFold, TrialResult};
use crate::decide::run::RunState;
use crate::decide::stats::benjamini_hochberg;
use crate::model::ids::{CellId, ContentDigest, DeviceId, RunId};
use crate::model::journal::Extended;
use crate::model::matrix::{TrialsRule, VerdictName};
use crate::model::verdict::{Counted, Provenance, Role};
use crate::perform::host::Sysroot;
use crate::perform::store::{ResultsDir, RunDir};

/// Name and version of the format of a night.
pub const NIGHT_SCHEMA: &str = "jetfault.nightly/1";

/// Excluded trials of one cell and night after which it is not confirmed further.
const EXCLUDED_MAX: usize = 10;

/// Facts of a machine that are part of a key: another release is another history.
const KEY_FACTS: [&str; 4] = ["l4t", "kernel", "driver", "cuda"];

/// A night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NightReport {
    /// [`NIGHT_SCHEMA`].
    pub schema: String,
    /// Tonight's run.
    pub run: RunId,
    /// Whether every trial of it was made.
    pub complete: bool,
    /// The night on one line, for a chat.
    pub summary: String,
    /// The cells.
    pub cells: Vec<CellNight>,
}

impl NightReport {
    fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a night has string keys and finite numbers");
        json.push(b'\n');
        json
    }

    /// The exit code that it has.
    pub(super) fn exit(&self) -> Exit {
        let any = |alarm| self.cells.iter().any(|cell| cell.alarm == alarm);
        match (any(Alarm::Fault), any(Alarm::Undecided) || !self.complete) {
            (true, _) => Exit::FaultFound,
            (false, true) => Exit::Undecided,
            (false, false) => Exit::Done,
        }
    }
}

/// `jetfault nightly MATRIX`.
///
/// # Errors
/// See [`Failure`].
pub fn nightly(args: &NightlyArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    let matrix = plan::read_matrix(&source, &args.matrix)?;
    let mut tonight = plan::make_plan(&source, &args.matrix)?;
    let TrialsRule::Fixed(trials) = tonight.trials else {
        return Err(Failure::words(
            Exit::Usage,
            "a night has a fixed number of trials, and this matrix decides as it goes",
        )
        .hint("--trials 3; a fault in a cell that was stable is confirmed until decided anyway"));
    };
    let results = ResultsDir::at(locate::results_path(global.results.as_deref()));
    let nights = nights(&results, &tonight)?;
    if args.last {
        let last = nights.iter().rev().find(|run| read::plan(run).is_ok_and(|plan| plan.nightly.is_some()));
        let last = last.ok_or_else(|| Failure::words(Exit::Usage, "there was no night yet"))?;
        return print(last, args.format, args.junit.as_deref(), global);
    }
    let sysroot = Sysroot::new(global.sysroot.clone());
    let device = sysroot.device(args.session.device.as_ref());
    let facts = words_of(sysroot.facts(device.clone(), ContentDigest::of(b"")));
    let mut is_open = false;
    let mut before = Vec::new();
    for run in &nights {
        if is_closed(run)? {
            before.push(run);
        } else {
            is_open = true;
        }
    }
    let subject = matrix.nightly_subject.clone();
    let keys: BTreeMap<CellId, String> =
        samples(&tonight).map(|cell| (cell.id.clone(), key(cell, &subject, &device, &facts))).collect();
    let histories = histories(&before, &subject, trials)?;
    let cells = keys.iter().map(|(cell, key)| NightlyCell {
        cell: cell.clone(),
        key: key.clone(),
        before: histories.get(key).cloned().unwrap_or_default(),
    });
    tonight.nightly = Some(Box::new(Nightly { trials, cells: cells.collect(), subject }));
    let how = Begin {
        new: !is_open,
        device: args.session.device.as_ref(),
        accept_binary: args.session.accept_binary,
        script: args.script.as_ref(),
        allow: args.session.allow,
        boot: &args.session.boot,
        format: args.format,
        detach: args.detach,
    };
    let exit = begin(&source, tonight, &how, global)?;
    if let (Some(file), Some(run)) =
        (&args.junit, self::nights(&results, &plan::make_plan(&source, &args.matrix)?)?.last())
        && is_closed(run)?
    {
        write_junit(file, &night_of(run)?)?;
    }
    Ok(exit)
}

/// The runs of the matrix, in the order in which they were opened.
fn nights(results: &ResultsDir, plan: &Plan) -> Result<Vec<RunDir>, Failure> {
    let runs = results.runs().or_fail(Exit::Unfit)?;
    Ok(runs.into_iter().filter(|run| run.id.parts().0 == plan.matrix_name).collect())
}

fn samples(plan: &Plan) -> impl Iterator<Item = &Cell> {
    plan.cells.iter().filter(|cell| cell.role == CellRole::Sample)
}

/// What must be the same for a history to be carried on: the settings, the device and the software of the machine, less
/// what changes from night to night.
fn key(cell: &Cell, subject: &[String], device: &DeviceId, facts: &BTreeMap<String, String>) -> String {
    let mut settings: Value = serde_json::from_slice(&cell.settings.canonical_json()).expect("written by us");
    let is_setting = |name: &&String| !without(&mut settings, name);
    // An axis of the matrix's own is in no setting by its name: the levels of the others then stand for the settings.
    let own: Vec<&String> = subject.iter().filter(is_setting).filter(|name| cell.levels.contains_key(*name)).collect();
    let levels: BTreeMap<&String, &String> = cell.levels.iter().filter(|(name, _)| !subject.contains(name)).collect();
    let of_cell = match own.is_empty() {
        true => settings.to_string(),
        false => format!("{levels:?}"),
    };
    let is_kept = |name: &str| !subject.iter().any(|subject| subject == name);
    let device = if is_kept("device") { device.to_string() } else { String::new() };
    let facts: Vec<String> = KEY_FACTS
        .iter()
        .filter(|name| is_kept(name))
        .map(|name| format!("{name}={}", facts.get(*name).map_or("", String::as_str)))
        .collect();
    ContentDigest::of(format!("{of_cell} device={device} {}", facts.join(" ")).as_bytes()).to_string()
}

/// Takes members called `name` out of `value`; tells whether there was one.
fn without(value: &mut Value, name: &str) -> bool {
    match value {
        Value::Object(members) => {
            let was_there = members.remove(name).is_some();
            members.values_mut().fold(was_there, |found, member| without(member, name) || found)
        }
        Value::Array(items) => items.iter_mut().map(|item| usize::from(without(item, name))).sum::<usize>() > 0,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Where the cells of earlier runs stand, by their keys.
fn histories(runs: &[&RunDir], subject: &[String], trials: u32) -> Result<BTreeMap<String, History>, Failure> {
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    for run in runs {
        let Some(opened) = read::opening(run)? else { continue };
        if opened.script.is_some() {
            continue;
        }
        let plan = read::plan(run)?;
        let trials = plan.nightly.as_ref().map_or(trials, |nightly| nightly.trials);
        let facts = machine_words(run);
        let keys: BTreeMap<CellId, String> =
            samples(&plan).map(|cell| (cell.id.clone(), key(cell, subject, &opened.device, &facts))).collect();
        let mut nights: BTreeMap<&String, Night> = BTreeMap::new();
        for_each_result(run, |result| {
            if let Some(key) = keys.get(&result.trial.cell) {
                note(nights.entry(key).or_insert_with(|| empty(run)), &result, trials);
            }
        })?;
        for (key, night) in nights {
            let history = histories.entry(key.clone()).or_default();
            *history = history.after(&night);
        }
    }
    Ok(histories)
}

fn empty(run: &RunDir) -> Night {
    Night { run: run.id.clone(), trials: Vec::new(), confirming: Vec::new() }
}

/// Takes a trial into its night: rounds beyond those of every night confirm.
fn note(night: &mut Night, result: &TrialResult, trials: u32) {
    let Some(started) = &result.started else { return };
    if started.started.role != Role::Sample || started.started.provenance == Provenance::Transcribed {
        return;
    }
    let trial = match result.judgement.verdict.counted() {
        Counted::Clean => Trial::Clean,
        Counted::Fault => Trial::Fault(signature_words(&result.judgement)),
        Counted::Excluded => Trial::Excluded,
    };
    if result.trial.round <= trials { night.trials.push(trial) } else { night.confirming.push(trial) }
}

/// Hands every judged trial of `run` to `each`, after its journal was found to be legal.
fn for_each_result(run: &RunDir, mut each: impl FnMut(TrialResult)) -> Result<(), Failure> {
    let read = Read::open(run)?;
    let mut state = RunState::new(&read.agenda);
    let mut fold = ResultFold::default();
    read.records(run, |record| {
        state.apply(&read.agenda, &record)?;
        fold.apply(&record).into_iter().for_each(&mut each);
        Ok(())
    })
}

/// What each cell of a nightly run showed.
fn tonight(run: &RunDir, nightly: &Nightly) -> Result<BTreeMap<CellId, Night>, Failure> {
    let mut nights: BTreeMap<CellId, Night> =
        nightly.cells.iter().map(|cell| (cell.cell.clone(), empty(run))).collect();
    for_each_result(run, |result| {
        if let Some(night) = nights.get_mut(&result.trial.cell) {
            note(night, &result, nightly.trials);
        }
    })?;
    Ok(nights)
}

/// One more trial of each cell whose fault of tonight is to be confirmed; none if there is nothing left to confirm.
///
/// # Errors
/// If the journal cannot be read.
pub fn next(run: &RunDir, nightly: &Nightly, global: &Global) -> Result<Option<Extended>, Failure> {
    let nights = tonight(run, nightly)?;
    let wants = |cell: &&NightlyCell| {
        let night = &nights[&cell.cell];
        let excluded = night.confirming.iter().filter(|trial| **trial == Trial::Excluded).count();
        cell.before.asks_to_confirm(&night.trials)
            && confirmed(night).is_none()
            && excluded < EXCLUDED_MAX
            && (night.confirming.len() as u64) < confirming().cap() + EXCLUDED_MAX as u64
    };
    let cells: Vec<CellId> = nightly.cells.iter().filter(wants).map(|cell| cell.cell.clone()).collect();
    if cells.is_empty() {
        return Ok(None);
    }
    if !global.quiet {
        output::say(format_args!("confirming a fault of tonight in {} cells on new trials", cells.len()));
    }
    Ok(Some(Extended { cells, new: Vec::new(), why: "confirm a fault of tonight".into() }))
}

/// The night of a run.
///
/// # Errors
/// If something stored cannot be read.
fn night_of(run: &RunDir) -> Result<NightReport, Failure> {
    let plan = read::plan(run)?;
    let nightly = plan.nightly.as_deref().ok_or_else(|| {
        Failure::words(Exit::Usage, format!("{} is no night", run.id)).hint("`jetfault nightly MATRIX` makes one")
    })?;
    let nights = tonight(run, nightly)?;
    let mut cells: Vec<CellNight> = samples(&plan)
        .filter_map(|cell| Some((cell, nightly.cell(&cell.id)?)))
        .map(|(cell, nightly)| {
            let expects_fault = cell.expect.is_some_and(|verdict| verdict != VerdictName::Pass);
            cell_night(nightly, &cell.label, &nights[&cell.id], expects_fault)
        })
        .collect();
    let adjusted = benjamini_hochberg(&cells.iter().map(|cell| cell.chance).collect::<Vec<_>>());
    cells.iter_mut().zip(adjusted).for_each(|(cell, chance)| cell.adjusted = chance);
    let complete = is_closed(run)?;
    let summary = summary(&run.id, &cells, complete);
    Ok(NightReport { schema: NIGHT_SCHEMA.to_owned(), run: run.id.clone(), complete, summary, cells })
}

/// `nightly-007: NEW_FAULT batch=8 (…); 1 FAULTING, 47 STABLE_CLEAN`.
fn summary(run: &RunId, cells: &[CellNight], complete: bool) -> String {
    let alarming = cells.iter().filter(|cell| cell.alarm == Alarm::Fault);
    let mut parts: Vec<String> =
        alarming.map(|cell| format!("{} {} ({})", cell.state, cell.label, cell.says)).collect();
    let count = |state: &CellState| cells.iter().filter(|cell| cell.state == *state).count();
    let counts: Vec<String> = CellState::ALL
        .iter()
        .map(|state| (state, count(state)))
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    parts.push(counts.join(", "));
    let open = if complete { "" } else { ", not finished" };
    format!("{run}: {}{open}", parts.join("; "))
}

/// Prints a night; returns its exit code.
///
/// # Errors
/// If something stored cannot be read, or nothing be printed.
pub fn print(run: &RunDir, format: DataFormat, junit: Option<&Path>, global: &Global) -> Outcome {
    let night = night_of(run)?;
    match format {
        DataFormat::Text => {
            output::print(render::night(&night.cells, &night.summary, &output::style(global)).as_bytes())?
        }
        DataFormat::Json => output::print(&night.to_json())?,
    }
    if let Some(file) = junit {
        write_junit(file, &night)?;
    }
    Ok(night.exit())
}

fn write_junit(file: &Path, night: &NightReport) -> Result<(), Failure> {
    let xml = junit::night(night.run.as_str(), &night.cells).or_fail(Exit::Bug)?;
    fs::write(file, xml).map_err(|error| {
        Failure::words(Exit::Unfit, format!("cannot write {}: {error}", file.display()))
            .hint("the night itself is kept: `jetfault nightly MATRIX --last --junit FILE` writes it again")
    })
}
