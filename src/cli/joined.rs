//! `report --joined`, `fleet report`: several runs as one report, device by device.

use std::io::BufReader;

use crate::cli::args::{Global, ReportFormat};
use crate::cli::dossier::Dossier;
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::read::{exit_of, make_report, worst};
use crate::cli::render::Safe;
use crate::cli::{csv_rows, junit, output, render};
use crate::decide::joined::join;
use crate::decide::report::Report;
use crate::decide::stats::Method;
use crate::perform::journal::first_record;
use crate::perform::store::RunDir;

/// How it is printed.
pub(super) struct How {
    /// As what.
    pub format: ReportFormat,
    /// How intervals are made.
    pub interval: Option<Method>,
    /// Whether names stay in what is passed on.
    pub no_redact: bool,
}

/// Prints `runs` as one report; the exit code is the gravest of theirs.
///
/// # Errors
/// If one cannot be read, or is there twice.
pub(super) fn print(runs: &[RunDir], how: &How, global: &Global) -> Outcome {
    check_once(runs)?;
    match how.format {
        ReportFormat::Csv | ReportFormat::Junit => return print_trials(runs, how, global),
        ReportFormat::Html => {
            return Err(Failure::words(Exit::Usage, "a page is of one run")
                .hint("name one; --joined has --format text, md, json, csv and junit"));
        }
        ReportFormat::Text | ReportFormat::Md | ReportFormat::Json => {}
    }
    let reports: Vec<Report> = runs.iter().map(|run| make_report(run, how.interval)).collect::<Result<_, _>>()?;
    let joined = join(&reports, how.interval);
    let bytes = match how.format {
        ReportFormat::Json => joined.to_json(),
        ReportFormat::Md => {
            let dossiers = dossiers(&runs[..1], how.interval)?;
            let mut veil = Dossier::veil_of(&dossiers, how.no_redact, global);
            render::joined_markdown(&joined, &mut Safe::new(&mut |text| veil.text(text))).into_bytes()
        }
        _ => render::joined(&joined, &output::style(global)).into_bytes(),
    };
    output::print(&bytes)?;
    Ok(worst(reports.iter().map(exit_of)))
}

/// Every trial of every run: the rows of a spreadsheet, or test cases.
fn print_trials(runs: &[RunDir], how: &How, global: &Global) -> Outcome {
    let dossiers = dossiers(runs, how.interval)?;
    // One for all: a name is replaced by the same word in all of them.
    let mut veil = Dossier::veil_of(&dossiers, how.no_redact, global);
    let bytes = match how.format {
        ReportFormat::Csv => csv_rows::trials(&dossiers, &mut veil).or_fail(Exit::Bug)?,
        _ => {
            let outputs: Vec<_> = dossiers.iter().zip(runs).map(|(dossier, run)| dossier.outputs(run)).collect();
            junit::trials(&dossiers, &outputs, &mut veil).or_fail(Exit::Bug)?.into_bytes()
        }
    };
    output::print(&bytes)?;
    Ok(worst(dossiers.iter().map(|dossier| exit_of(&dossier.report))))
}

fn dossiers(runs: &[RunDir], interval: Option<Method>) -> Result<Vec<Dossier>, Failure> {
    runs.iter().map(|run| Dossier::of(run, interval)).collect()
}

/// A run whose trials would be counted twice is refused, by whatever path it is named again.
fn check_once(runs: &[RunDir]) -> Result<(), Failure> {
    let mut seen = Vec::new();
    for run in runs {
        let journal = BufReader::new(run.open_journal().or_fail(Exit::Unfit)?);
        let Some(first) = first_record(journal).or_fail(Exit::JournalDamaged)? else { continue };
        let is_this = (run.id.clone(), first.boot, first.wall, first.event);
        if seen.contains(&is_this) {
            return Err(Failure::words(Exit::Usage, format!("run {} is there twice: {}", run.id, run.path.display()))
                .hint("its trials would be counted twice"));
        }
        seen.push(is_this);
    }
    Ok(())
}
