//! `fleet report`: the runs that were pulled from the boards as one report.

use super::Desk;
use crate::cli::args::{FleetReportArgs, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::joined::{self, How};
use crate::cli::{output, read};
use crate::perform::store::{ResultsDir, RunDir};

/// `fleet report [NAME]`.
pub(super) fn report(desk: &Desk, args: &FleetReportArgs, global: &Global) -> Outcome {
    let mut runs = Vec::new();
    for board in &desk.boards {
        let own = chosen(&ResultsDir::at(desk.results_of(board)), args.which.as_deref())?;
        if own.is_empty() {
            output::say(format_args!("{}: no such run was pulled", board.name));
        }
        runs.extend(own);
    }
    if runs.is_empty() {
        return Err(Failure::words(Exit::Usage, "no run was pulled from these boards")
            .hint("`jetfault fleet pull` copies them; an argument names a run, or a matrix by its name"));
    }
    let how = How { format: args.format, interval: args.interval, no_redact: args.no_redact };
    joined::print(&runs, &how, global)
}

/// Of the runs of a board those that `which` means: the run of that id; else the latest run of the matrix of that name,
/// or of all, and if it is a share, the others of the same division.
fn chosen(results: &ResultsDir, which: Option<&str>) -> Result<Vec<RunDir>, Failure> {
    let runs = results.runs().or_fail(Exit::Unfit)?;
    if let Some(run) = runs.iter().find(|run| Some(run.id.as_str()) == which) {
        return Ok(vec![RunDir::open(&run.path).or_fail(Exit::Unfit)?]);
    }
    let mut last = None;
    let mut named = Vec::new();
    for run in runs.into_iter().filter(|run| which.is_none_or(|name| run.id.parts().0 == name)) {
        let share = read::plan(&run)?.share;
        // Ids count up within a name; between names the one whose journal was written last is meant.
        let written = std::fs::metadata(run.file("journal.jsonl")).and_then(|meta| meta.modified()).ok();
        let key = (which.is_none().then_some(written).flatten(), run.id.parts().1);
        if last.as_ref().is_none_or(|(best, _)| key > *best) {
            last = Some((key, named.len()));
        }
        named.push((run, share));
    }
    let Some((_, last)) = last else { return Ok(Vec::new()) };
    let meant = named[last].1.as_ref().map(|share| (share.of.clone(), share.generation));
    let is_of_it = |index: usize, share: &Option<Box<crate::decide::fleet::Share>>| match (&meant, share) {
        (Some(meant), Some(share)) => *meant == (share.of.clone(), share.generation),
        _ => index == last,
    };
    let runs = named.into_iter().enumerate().filter(|(index, (_, share))| is_of_it(*index, share));
    Ok(runs.map(|(_, (run, _))| run).collect())
}
