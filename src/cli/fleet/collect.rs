//! `fleet collect`: what the elements of a submitted array left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::block::{OnNode, nodes};
use super::submit::{SUBMISSION, Submission};
use super::worse;
use crate::cli::args::{CollectFormat, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::read::{exit_of, make_report};
use crate::cli::{output, render};
use crate::decide::fleet::{BlockRun, BlockStanding, Collected, block_number};
use crate::perform::files::at;
use crate::perform::store::read_limited;

/// The largest record of a submission that is read, in bytes.
const SUBMISSION_BYTES_MAX: u64 = 64 * 1024;

/// `fleet collect DIR…`.
pub(super) fn collect(dirs: &[PathBuf], format: CollectFormat, global: &Global) -> Outcome {
    let mut runs = Vec::new();
    let mut submitted = None;
    for dir in distinct(dirs)? {
        submitted = submitted.max(submission(&dir)?.map(|submission| submission.blocks));
        runs.extend(runs_in(&dir)?);
    }
    if runs.is_empty() && submitted.is_none() {
        return Err(Failure::words(Exit::Usage, format!("no block is in {}", dirs[0].display()))
            .hint("name the directory that `jetfault fleet submit` said: its blocks are block-0001 and so on"));
    }
    let exits: Vec<(String, Exit)> = runs.iter().map(|run| (run.path.clone(), found(run))).collect();
    let collected = Collected::of(runs, submitted).or_fail(Exit::Usage)?;
    match format {
        CollectFormat::Text => output::print(render::blocks(&collected, &output::style(global)).as_bytes())?,
        CollectFormat::Json => output::print(&collected.to_json())?,
        CollectFormat::Paths => {
            let done = collected.blocks.iter().filter(|row| row.standing == BlockStanding::Done);
            let lines: String = done.filter_map(|row| Some(format!("{}\n", row.run.as_ref()?))).collect();
            output::print(lines.as_bytes())?;
        }
    }
    let counts = |path: &String| {
        let is_meant = |standing| matches!(standing, BlockStanding::Done | BlockStanding::Unreadable);
        collected.blocks.iter().any(|row| row.run.as_ref() == Some(path) && is_meant(row.standing))
    };
    let are_all = if collected.done() == collected.wanted() { Exit::Done } else { Exit::Undecided };
    Ok(exits.into_iter().filter(|(path, _)| counts(path)).map(|(_, exit)| exit).fold(are_all, worse))
}

/// The directories, each once: a block that is read twice would seem to have run twice.
fn distinct(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let paths: Result<BTreeSet<PathBuf>, _> =
        dirs.iter().map(|dir| at("find", dir, dir.canonicalize()).or_fail(Exit::Usage)).collect();
    Ok(paths?.into_iter().collect())
}

fn submission(dir: &Path) -> Result<Option<Submission>, Failure> {
    let path = dir.join(SUBMISSION);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = at("read", &path, read_limited(&path, SUBMISSION_BYTES_MAX)).or_fail(Exit::Unfit)?;
    let submission = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::words(Exit::JournalDamaged, format!("{} makes no sense: {error}", path.display()))
            .hint("without it the blocks are read all the same; only how many there should be is then not known")
    })?;
    Ok(Some(submission))
}

/// The runs of all blocks in `dir`.
fn runs_in(dir: &Path) -> Result<Vec<BlockRun>, Failure> {
    let entries = at("read the directory", dir, fs::read_dir(dir)).or_fail(Exit::Usage)?;
    let mut runs = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(block) = path.file_name().and_then(|name| name.to_str()).and_then(block_number) else { continue };
        for OnNode { begun, node, results } in nodes(&path)? {
            for run in results.runs().or_fail(Exit::Unfit)? {
                let report = make_report(&run, None).map_err(|failure| failure.in_words());
                let path = run.path.display().to_string();
                runs.push(BlockRun { block, begun, node: node.clone(), path, report });
            }
        }
    }
    Ok(runs)
}

/// What `run` found, as the exit code of its report.
fn found(run: &BlockRun) -> Exit {
    run.report.as_ref().map_or(Exit::JournalDamaged, exit_of)
}
