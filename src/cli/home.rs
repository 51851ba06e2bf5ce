//! `jetfault` without a word: what this machine is, what ran last, and what may come next. It never fails and never waits.

use std::fs;
use std::time::SystemTime;

use crate::cli::args::Global;
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::cli::render::{self, Home, LastRun};
use crate::cli::{campaign, issue, locate, output, read};
use crate::decide::report::Report;
use crate::model::journal::{Event, Record};
use crate::perform::host::Sysroot;
use crate::perform::journal::last_record;
use crate::perform::store::{ResultsDir, RunDir, names};

/// A journal longer than this is not read for its headline: nobody waits for an overview.
const JOURNAL_BYTES_MAX: u64 = 1 << 20;

/// Says it.
///
/// # Errors
/// If standard output cannot be written.
pub fn home(global: &Global) -> Outcome {
    let sysroot = Sysroot::new(global.sysroot.clone());
    let quiet = Global { quiet: true, sysroot: global.sysroot.clone(), results: global.results.clone(), ..*global };
    let found = locate::run(&quiet, None).ok();
    let here = locate::results_path(global.results.as_deref());
    let results = match &found {
        Some((results, _)) => results.clone(),
        None => ResultsDir::at(here.canonicalize().unwrap_or(here)),
    };
    let home = Home {
        machine: sysroot.in_words(),
        gpu: sysroot.has_gpu_nodes(),
        jetson: sysroot.exists("etc/nv_tegra_release") || sysroot.exists("proc/device-tree/model"),
        results: results.path().display().to_string(),
        runs: results.runs().map_or(0, |runs| runs.len()),
        stopped: results.is_stopped().then(|| results.path().join(names::STOP).display().to_string()),
        last: found.map(|(results, run)| last_run(&results, &run)),
    };
    output::print(render::home(&home, &output::style(global)).as_bytes())?;
    Ok(Exit::Done)
}

fn last_run(results: &ResultsDir, run: &RunDir) -> LastRun {
    let last = run.open_journal().ok().and_then(|journal| last_record(journal).ok().flatten());
    let bytes = fs::metadata(run.file(names::JOURNAL)).map_or(0, |meta| meta.len());
    let report = (bytes <= JOURNAL_BYTES_MAX).then(|| read::make_report(run, None).ok()).flatten();
    let search = report.as_ref().and_then(|_| campaign::standing(run).ok().flatten());
    LastRun {
        id: run.id.clone(),
        at: last.as_ref().map(|record| record.wall),
        ago_s: ago(last.as_ref()),
        standing: last.as_ref().map_or("it was never begun", standing),
        working: results.is_held() == Some(true),
        is_short: bytes <= JOURNAL_BYTES_MAX,
        corrected_by: issue::corrected_by(run).unwrap_or_default().ids,
        headlines: match search {
            Some(standing) => standing.sentences,
            None => report.iter().flat_map(|report: &Report| &report.headlines).map(|line| line.text.clone()).collect(),
        },
        fault: report.and_then(|report| report.faults.into_iter().next()).map(|fault| fault.trial.to_string()),
    }
}

/// How many seconds ago its last record was written; nothing where the clock says that it was not yet.
fn ago(last: Option<&Record>) -> Option<u64> {
    SystemTime::now().duration_since(SystemTime::from(last?.wall.0)).ok().map(|ago| ago.as_secs())
}

/// Where a run stands by its last record.
fn standing(last: &Record) -> &'static str {
    use crate::model::journal::Closing;
    match &last.event {
        Event::Closed(closed) if closed.how == Closing::Complete => "complete",
        Event::Closed(_) => "stopped by a limit",
        Event::Paused(_) => "paused",
        Event::RebootAsked(_) => "waiting for a reboot",
        _ => "open",
    }
}
