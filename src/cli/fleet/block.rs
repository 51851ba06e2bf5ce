//! `fleet block`: one block of a matrix on the node of an element, in a directory of its own.
//!
//! `RESULTS/block-0003/1-NODE` is a results directory: an element that was cut off goes on there if it gets the same node
//! again. On another node it begins anew beside it, in `2-NODE`, since trials of two devices are no run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::args::{BootArgs, FleetBlockArgs, Global, MatrixArgs, RunArgs, SessionArgs};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::plan::read_matrix;
use crate::cli::run::{is_closed, run};
use crate::cli::{locate, output};
use crate::decide::fleet::block_name;
use crate::model::ids::{ContentDigest, DeviceId};
use crate::model::matrix::Matrix;
use crate::perform::files::at;
use crate::perform::store::{ResultsDir, RunDir};

/// The greatest seed of a matrix.
const SEED_MAX: u64 = i64::MAX as u64;

/// `fleet block MATRIX`.
pub(super) fn block(args: &FleetBlockArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    let matrix = read_matrix(&source, &one_trial(&args.matrix))?;
    let found = digest_of(&matrix, &args.matrix);
    if let Some(submitted) = args.submitted.as_ref().filter(|submitted| **submitted != found) {
        let words = format!("{} is not what was submitted: its digest is {found}, and was {submitted}", source.name);
        return Err(Failure::words(Exit::Usage, words)
            .hint("blocks of two matrices are no sample: put it back as it was, or submit it anew"));
    }
    let block = locate::results_path(global.results.as_deref()).join(block_name(args.number));
    if let Some(done) = done(&block)? {
        output::say(format_args!("block {} is done: {}", args.number, done.path.display()));
        return Ok(Exit::Done);
    }
    let run_args = RunArgs {
        share: None,
        matrix: MatrixArgs {
            set: [args.matrix.set.clone(), vec![format!("matrix.seed={}", seed(matrix.seed, args.number))]].concat(),
            ..one_trial(&args.matrix)
        },
        new: false,
        detach: false,
        git_bisect: false,
        script: args.how.script.clone(),
        session: SessionArgs {
            device: Some(args.device.clone()),
            accept_binary: args.how.accept_binary,
            boot: BootArgs { boot_delay: 0, unit_dir: None },
            allow: args.how.allow,
        },
    };
    let results = results_on(&args.device, &block)?;
    let here = Global { results: Some(results.clone()), sysroot: global.sysroot.clone(), ..*global };
    let exit = run(&run_args, &here)?;
    // What was found is in the journal. To the engine a block that is done has succeeded.
    Ok(if done(&block)?.is_some() { Exit::Done } else { exit })
}

/// `args` for one block.
pub(super) fn one_trial(args: &MatrixArgs) -> MatrixArgs {
    MatrixArgs { matrix: args.matrix.clone(), cell: args.cell.clone(), trials: Some(1), set: args.set.clone() }
}

/// What a block is one of: the matrix with its changes, and the cells that are meant.
pub(super) fn digest_of(matrix: &Matrix, args: &MatrixArgs) -> ContentDigest {
    ContentDigest::of([&[matrix.digest.to_string()], &args.cell[..]].concat().join("\n").as_bytes())
}

/// The seed of block `number`, so that each has an order, inputs and draws of its own.
fn seed(seed: u64, number: u32) -> u64 {
    (seed + u64::from(number)) & SEED_MAX
}

/// The results directory of a block on a node.
pub(super) struct OnNode {
    /// How many nodes had begun the block when this one did, itself included.
    pub(super) begun: u32,
    /// What the node is called.
    pub(super) node: String,
    /// The directory.
    pub(super) results: ResultsDir,
}

impl OnNode {
    fn of(path: PathBuf) -> Option<Self> {
        let (begun, node) = path.file_name()?.to_str()?.split_once('-')?;
        let (begun, node) = (begun.parse().ok()?, node.to_owned());
        Some(Self { begun, node, results: ResultsDir::at(path) })
    }
}

/// The results directories of a block, in the order in which they were begun.
pub(super) fn nodes(block: &Path) -> Result<Vec<OnNode>, Failure> {
    if !block.is_dir() {
        return Ok(Vec::new());
    }
    let entries = at("read the directory", block, fs::read_dir(block)).or_fail(Exit::Unfit)?;
    let mut nodes: Vec<OnNode> = entries.flatten().filter_map(|entry| OnNode::of(entry.path())).collect();
    nodes.sort_by(|a, b| (a.begun, &a.node).cmp(&(b.begun, &b.node)));
    Ok(nodes)
}

/// Where `device` works on `block`: where it did before, else in a directory of its own.
fn results_on(device: &DeviceId, block: &Path) -> Result<PathBuf, Failure> {
    let nodes = nodes(block)?;
    if let Some(here) = nodes.iter().find(|node| node.node == device.as_str()) {
        return Ok(here.results.path().to_owned());
    }
    let begun = nodes.last().map_or(0, |node| node.begun) + 1;
    Ok(block.join(format!("{begun}-{device}")))
}

/// The first run of a block that is over.
fn done(block: &Path) -> Result<Option<RunDir>, Failure> {
    for node in nodes(block)? {
        for run in node.results.runs().or_fail(Exit::Unfit)? {
            if is_closed(&run)? {
                return Ok(Some(run));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_blocks_differ_and_stay_seeds_of_matrices() {
        assert_eq!(seed(1936, 1), 1937);
        assert_eq!(seed(SEED_MAX, 1), 0);
        assert_eq!(seed(SEED_MAX, u32::MAX), u64::from(u32::MAX) - 1);
    }
}
