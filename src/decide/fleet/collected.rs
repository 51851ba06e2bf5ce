//! What the elements of an array left, joined: each block counts once.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::decide::plan::CellRole;
use crate::decide::report::Report;
use crate::model::ids::CellId;
use crate::model::verdict::Provenance;

/// Name and version of the format.
const SCHEMA: &str = "jetfault.blocks/1";

/// A run that was found in the directory of a block.
#[derive(Debug, Clone)]
pub struct BlockRun {
    /// Which block.
    pub block: u32,
    /// Its place among the nodes that began the block.
    pub begun: u32,
    /// The node in whose directory it is.
    pub node: String,
    /// Its own directory.
    pub path: String,
    /// What it found, or why that cannot be read.
    pub report: Result<Report, String>,
}

/// Where a block, or another run of it, stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockStanding {
    /// It is over, and counts.
    Done,
    /// It was begun, and is not over: at work, or cut off.
    Open,
    /// It is over on another node, and this is what it began here.
    Elsewhere,
    /// It is over on another node too, which counts.
    Again,
    /// Nothing of it is there.
    Missing,
    /// What is there cannot be read.
    Unreadable,
}

/// One run of a block, or a block without one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockRow {
    /// Which block.
    pub block: u32,
    /// The machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Where it stands.
    pub standing: BlockStanding,
    /// Counted trials.
    pub counted: u64,
    /// Those that are asked for.
    pub wanted: u64,
    /// Those with a fault.
    pub faults: u64,
    /// Its directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The trials of one cell on one machine, over all blocks that count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceCell {
    /// The cell.
    pub cell: String,
    /// The machine.
    pub device: String,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Counted trials.
    pub counted: u64,
    /// Those with a fault.
    pub faults: u64,
}

/// All blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Collected {
    schema: &'static str,
    /// How many blocks were submitted, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted: Option<u32>,
    /// The blocks in their order, each with what else was begun of it.
    pub blocks: Vec<BlockRow>,
    /// What those that count found, by cell and machine.
    pub cells: Vec<DeviceCell>,
}

/// Two runs whose cells are not the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} are of different matrices: they do not have the same cells")]
pub struct TwoMatrices {
    /// The directory of one.
    pub first: String,
    /// The directory of the other.
    pub second: String,
}

impl Collected {
    /// Joins `runs` of `submitted` blocks, if that number is known.
    ///
    /// Of several runs of a block that are over, the one that was begun first counts, as it would have if its node had not
    /// been lost: a block that was repeated because it takes nodes down must not hide that.
    ///
    /// # Errors
    /// If the runs are of more than one matrix.
    pub fn of(mut runs: Vec<BlockRun>, submitted: Option<u32>) -> Result<Self, TwoMatrices> {
        runs.sort_by(|a, b| (a.block, a.begun, &a.node, &a.path).cmp(&(b.block, b.begun, &b.node, &b.path)));
        check_cells(&runs)?;
        let last = runs.last().map_or(0, |run| run.block).max(submitted.unwrap_or(0));
        let mut blocks = Vec::new();
        let mut cells: BTreeMap<(usize, String, Provenance), DeviceCell> = BTreeMap::new();
        for block in 1..=last {
            let of_block: Vec<&BlockRun> = runs.iter().filter(|run| run.block == block).collect();
            let counts = of_block.iter().position(|run| is_over(run));
            if of_block.is_empty() {
                blocks.push(missing(block));
            }
            for (place, run) in of_block.iter().enumerate() {
                let standing = standing(run, counts.map(|counts| counts == place));
                blocks.push(row(run, standing));
                if let (BlockStanding::Done, Ok(report)) = (standing, &run.report) {
                    add(&mut cells, report, &run.node);
                }
            }
        }
        Ok(Self { schema: SCHEMA, submitted, blocks, cells: cells.into_values().collect() })
    }

    /// How many runs ended with their node, and nobody judged.
    pub fn cut_off(&self) -> usize {
        self.blocks.iter().filter(|row| row.standing == BlockStanding::Elsewhere).count()
    }

    /// How many blocks are done.
    pub fn done(&self) -> usize {
        self.blocks.iter().filter(|row| row.standing == BlockStanding::Done).count()
    }

    /// How many blocks there are.
    pub fn wanted(&self) -> usize {
        self.blocks.iter().map(|row| row.block).collect::<BTreeSet<_>>().len()
    }

    /// The document, with its line end.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("blocks have string keys and finite numbers");
        json.push(b'\n');
        json
    }
}

fn check_cells(runs: &[BlockRun]) -> Result<(), TwoMatrices> {
    let cells = |run: &BlockRun| -> Option<Vec<CellId>> {
        Some(run.report.as_ref().ok()?.cells.iter().map(|cell| cell.id.clone()).collect())
    };
    let mut readable = runs.iter().filter_map(|run| Some((run, cells(run)?)));
    let Some((first, of_first)) = readable.next() else { return Ok(()) };
    match readable.find(|(_, cells)| *cells != of_first) {
        None => Ok(()),
        Some((second, _)) => Err(TwoMatrices { first: first.path.clone(), second: second.path.clone() }),
    }
}

fn is_over(run: &BlockRun) -> bool {
    run.report.as_ref().is_ok_and(|report| report.run.standing.is_final())
}

/// Where `run` stands if it counts, if another run of its block does, or if none does.
fn standing(run: &BlockRun, counts: Option<bool>) -> BlockStanding {
    match (&run.report, is_over(run), counts) {
        (Err(_), _, _) => BlockStanding::Unreadable,
        (Ok(_), true, Some(true)) => BlockStanding::Done,
        (Ok(_), true, _) => BlockStanding::Again,
        (Ok(_), false, Some(_)) => BlockStanding::Elsewhere,
        (Ok(_), false, None) => BlockStanding::Open,
    }
}

fn missing(block: u32) -> BlockRow {
    let standing = BlockStanding::Missing;
    BlockRow { block, device: None, standing, counted: 0, wanted: 0, faults: 0, run: None, why: None }
}

fn row(run: &BlockRun, standing: BlockStanding) -> BlockRow {
    let samples = || run.report.iter().flat_map(|report| &report.cells).filter(|cell| cell.role == CellRole::Sample);
    BlockRow {
        block: run.block,
        device: Some(run.report.as_ref().map_or_else(|_| run.node.clone(), |report| device(report, &run.node))),
        standing,
        counted: samples().map(|cell| cell.counted()).sum(),
        wanted: samples().map(|cell| u64::from(cell.wanted)).sum(),
        faults: samples().flat_map(|cell| &cell.samples).map(|sampled| sampled.rate.faults).sum(),
        run: Some(run.path.clone()),
        why: run.report.as_ref().err().cloned(),
    }
}

fn device(report: &Report, node: &str) -> String {
    report.run.device.as_ref().map_or_else(|| node.to_owned(), ToString::to_string)
}

fn add(cells: &mut BTreeMap<(usize, String, Provenance), DeviceCell>, report: &Report, node: &str) {
    let device = device(report, node);
    for (place, cell) in report.cells.iter().enumerate().filter(|(_, cell)| cell.role == CellRole::Sample) {
        for sampled in &cell.samples {
            let joined = cells.entry((place, device.clone(), sampled.provenance)).or_insert_with(|| DeviceCell {
                cell: cell.label.clone(),
                device: device.clone(),
                provenance: sampled.provenance,
                counted: 0,
                faults: 0,
            });
            joined.counted += sampled.rate.counted;
            joined.faults += sampled.rate.faults;
        }
    }
}
