//! The plan: a matrix expanded into cells, the order of their trials, and what carrying it through would take.
//!
//! Pure: the same matrix and options give the same plan, byte for byte. It holds cells and a seed, never a list of
//! trials, so that a plan of a million trials is as small as its cells; the order of a block is computed when it is
//! asked for. It does not know which machine will run it, nor whether this build can perform a cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decide::campaign::Campaign;
use crate::decide::fleet::Share;
use crate::decide::nightly::Nightly;
use crate::decide::stats::Counts;
use crate::decide::stopping::{Expected, Stopping};
use crate::model::ids::{CellId, ContentDigest};
use crate::model::journal::Extended;
use crate::model::matrix::{Decide, FaultName, MatrixError, Safety, Tool, TrialsRule, VerdictName};
use crate::model::quantity::Millis;
use crate::model::settings::{Settings, Start};
use crate::model::words::words;

mod expand;
mod needs;
mod variant;

pub use expand::expand;
pub use needs::{BOOT_SECONDS, COMMAND_SECONDS_ASSUMED, NANOS_PER_WEIGHT, Needs, Permission, trial_ms};
pub use variant::{Variant, campaign_plan};

/// The value of `schema` in plan.json.
pub const PLAN_SCHEMA: &str = "jetfault.plan";

/// The version of plan.json that is written.
pub const PLAN_VERSION: PlanVersion = PlanVersion(1);

/// A version of plan.json.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanVersion(pub u32);

/// A stored plan that this build cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanReadError {
    /// Not JSON, or not of the form of a plan.
    #[error("not a plan: {0}")]
    Malformed(String),
    /// Another kind of file.
    #[error("schema is {0:?}, not {PLAN_SCHEMA:?}")]
    Schema(String),
    /// Written by a later build.
    #[error("plan version {} is later than {}, the last one this build reads", .0.0, PLAN_VERSION.0)]
    Version(PlanVersion),
}

/// A matrix that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Something is wrong with the matrix, and where.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// A `--cell` that names something the matrix does not have.
    #[error("--cell {argument:?}: {reason}")]
    Filter {
        /// The argument.
        argument: String,
        /// What is wrong with it.
        reason: String,
        /// What to do about it.
        hint: String,
    },
    /// Two different cells with the same id.
    #[error("cells {first:?} and {second:?} have the same id {id} and different settings")]
    Collision {
        /// The id.
        id: CellId,
        /// The label of the first.
        first: String,
        /// The label of the second.
        second: String,
    },
}

/// What the command line asks of a plan beyond the matrix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// The arguments of `--cell`: a cell is planned if any of them matches; none plans all.
    ///
    /// An argument is a list of `axis=level` that must all match, or `baseline`, or `control:NAME`;
    /// controls are planned only if they are named, or if there is no argument at all.
    pub only: Vec<String>,
}

words! {
    /// What a cell is for.
    CellRole {
        /// Its trials are counted.
        Sample = "sample",
        /// Its failure makes the rows that lean on it undecided.
        Control = "control",
        /// Its trials make the machine warm and are not counted.
        Warming = "warming",
    }
}

/// One full assignment of levels, to be tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its id, a hash of its settings.
    pub id: CellId,
    /// `baseline`, `axis=level`, several of them, or `control:NAME`.
    pub label: String,
    /// Its level of every axis of the matrix.
    pub levels: BTreeMap<String, String>,
    /// What a trial of it is given.
    pub settings: Settings,
    /// What it is for.
    pub role: CellRole,
    /// The verdict that the matrix expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<VerdictName>,
    /// What a control shows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shows: String,
    /// How many trials, if not as many as the rule of the plan says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Faults that its trials commit on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inject: Vec<InjectedFault>,
    /// The peak memory that its allocation sequence predicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<PredictedPeak>,
}

/// A deliberate fault of a cell's trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectedFault {
    /// Which.
    pub fault: FaultName,
    /// The stage in which it happens; `None` is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// In which part of the trials, 0 to 1.
    pub rate: f64,
    /// The start states in which it happens; empty for all. Judged when a trial starts, since `any` is decided then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<Start>,
}

/// The peaks that an allocation sequence predicts, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictedPeak {
    /// Device memory in use.
    pub allocated_bytes: u64,
    /// Device memory taken from the driver.
    pub reserved_bytes: u64,
    /// Host and reserved device memory together, which share one memory on a Jetson.
    pub host_plus_reserved_bytes: u64,
    /// The stage of that peak.
    pub at: String,
}

/// A matrix expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// The version of the format.
    pub version: PlanVersion,
    /// The name of the matrix.
    pub matrix_name: String,
    /// The digest of its content, with the changes of the command line.
    pub matrix_digest: ContentDigest,
    /// Those changes, as shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// The `--cell` arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// The seed of order and inputs.
    pub seed: u64,
    /// How many trials a cell gets.
    pub trials: TrialsRule,
    /// What carrying it through would take.
    pub needs: Needs,
    /// The most boots that are allowed.
    pub boots_max: u64,
    /// The most boots in an hour that no trial explains.
    #[serde(default = "unexpected_per_hour_max")]
    pub unexpected_per_hour_max: u32,
    /// How long a board may stay armed for it.
    #[serde(default = "expires")]
    pub expires: Millis,
    /// What may not mean what it seems to, as text with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Label-only factors: what is the same in all its trials and may differ from run to run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, String>,
    /// The cells, samples before controls.
    pub cells: Vec<Cell>,
    /// What makes the machine warm where a cell asks for it and nothing of the run did; not one of the cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warming: Option<Box<Cell>>,
    /// Programs that are run instead of the machine's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<Tool, String>,
    /// When enough trials were seen, if their number is not fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Box<Stopping>>,
    /// Where its cells stood before, if it is a night of `nightly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nightly: Option<Box<Nightly>>,
    /// What the run asks, if its trials are chosen as it goes; its cells then have no rounds of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<Box<Campaign>>,
    /// Which part of the matrix it is, if a desk divided it over boards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Box<Share>>,
}

fn unexpected_per_hour_max() -> u32 {
    Safety::default().max_unexpected_per_hour
}

fn expires() -> Millis {
    Safety::default().expires
}

impl Plan {
    /// Reads a stored plan.
    ///
    /// # Errors
    /// If it is not a plan, or of a version later than this build's.
    pub fn from_json(json: &[u8]) -> Result<Self, PlanReadError> {
        /// What every version has; read first, so that a later version is called that and not malformed.
        #[derive(Deserialize)]
        struct Header {
            schema: String,
            version: PlanVersion,
        }
        let malformed = |error: serde_json::Error| PlanReadError::Malformed(error.to_string());
        let header: Header = serde_json::from_slice(json).map_err(malformed)?;
        if header.schema != PLAN_SCHEMA {
            return Err(PlanReadError::Schema(header.schema));
        }
        if header.version > PLAN_VERSION {
            return Err(PlanReadError::Version(header.version));
        }
        serde_json::from_slice(json).map_err(malformed)
    }

    /// The plan as it is stored.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a plan has string keys and finite numbers");
        json.push(b'\n');
        json
    }

    /// The cell with this id.
    pub fn cell(&self, id: &CellId) -> Option<&Cell> {
        self.all_cells().find(|cell| cell.id == *id)
    }

    /// Takes in the cells that a campaign added; the plan in force is the stored one with all of them.
    ///
    /// # Errors
    /// If one is no cell.
    pub fn extend(&mut self, extended: &Extended) -> Result<(), PlanReadError> {
        for json in &extended.new {
            let cell: Cell =
                serde_json::from_value(json.clone()).map_err(|error| PlanReadError::Malformed(error.to_string()))?;
            if self.cell(&cell.id).is_none() {
                self.cells.push(cell);
            }
        }
        Ok(())
    }

    /// Whether both ask the same, if they ask anything.
    pub fn asks_as(&self, other: &Plan) -> bool {
        let is_same_share = match (&self.share, &other.share) {
            (Some(one), Some(other)) => one.is_same(other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        match (&self.campaign, &other.campaign) {
            (Some(one), Some(other)) => one.asks_as(other),
            (None, None) => is_same_share && self.nightly.is_some() == other.nightly.is_some(),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// The cells, and after them the one that makes the machine warm.
    pub fn all_cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().chain(self.warming.as_deref())
    }

    /// The cell at `index` of [`Plan::all_cells`].
    pub fn cell_at(&self, index: usize) -> Option<&Cell> {
        self.cells.get(index).or_else(|| self.warming.as_deref().filter(|_| index == self.cells.len()))
    }

    /// Tests against `baseline`, trials of the first cell that were there before, if the number of trials is not fixed.
    pub fn test_against(&mut self, baseline: Counts) {
        if let TrialsRule::UntilDecided(decide) = &self.trials {
            self.stopping = Some(Box::new(Stopping::of(decide, &self.cells, Some(baseline))));
            self.needs = needs::needs(self);
        }
    }

    /// What it takes on average, if its number of trials is not fixed.
    pub fn expected(&self) -> Option<Expected> {
        self.stopping.as_ref().map(|stopping| stopping.expected(&self.cells))
    }

    /// How many rounds a cell has at most.
    pub fn rounds(&self, cell: &Cell) -> u32 {
        match (&self.trials, cell.rounds) {
            (_, Some(rounds)) => rounds,
            (TrialsRule::Fixed(trials), None) => *trials,
            (TrialsRule::UntilDecided(Decide { max, .. }), None) => {
                self.stopping.as_ref().map_or(*max, |stopping| stopping.rounds(&cell.id))
            }
        }
    }

    /// Seed of the order within blocks and of injected faults: a share has its own.
    pub fn order_seed(&self) -> u64 {
        self.share.as_ref().map_or(self.seed, |share| share.order)
    }

    /// How many blocks there are at most.
    pub fn blocks(&self) -> u32 {
        self.cells.iter().map(|cell| self.rounds(cell)).max().unwrap_or(0)
    }

    /// The indices of the cells that are tried in block `block` (from 0), in the order of their trials.
    ///
    /// A block is one trial of each cell that has a round left. Its order is drawn from the seed and the block alone,
    /// so it is the same after any number of reboots. Trials in one power mode come together, where that spares switches.
    pub fn block_order(&self, block: u32) -> Vec<u32> {
        let mut order: Vec<u32> =
            (0u32..).zip(&self.cells).filter(|(_, cell)| self.rounds(cell) > block).map(|(index, _)| index).collect();
        crate::decide::order::shuffle(&mut order, self.order_seed(), block);
        crate::decide::order::gather(&mut order, |index| {
            let settings = &self.cells[index as usize].settings;
            mode_to_hold(settings.start, settings.power_mode.as_deref())
        });
        crate::decide::order::behind_needs(&mut order, |index| self.needed_by(index as usize));
        order
    }

    /// The index of the cell whose artifacts the cell at `index` works with.
    pub fn needed_by(&self, index: usize) -> Option<u32> {
        let needed = self.cells.get(index)?.settings.needs()?;
        self.cells.iter().position(|cell| cell.id == *needed).and_then(|index| u32::try_from(index).ok())
    }

    /// Whether another cell works with the artifacts of the cell `id`.
    pub fn is_needed(&self, id: &CellId) -> bool {
        self.cells.iter().any(|cell| cell.settings.needs() == Some(id))
    }

    /// Fills in the predicted peaks of the cells.
    pub fn predict_with(&mut self, mut predict: impl FnMut(&Settings) -> Option<PredictedPeak>) {
        for cell in &mut self.cells {
            cell.predicted = predict(&cell.settings);
        }
    }

    /// Reckons anew what the plan takes, after its rounds were changed; a limit of boots that the matrix names stays.
    pub(super) fn reckon(&mut self) {
        let has_default = self.boots_max == self.boots_limit(&Safety::default());
        self.needs = needs::needs(self);
        if has_default {
            self.boots_max = self.boots_limit(&Safety::default());
        }
    }

    /// The most boots allowed: the matrix's word, else twice the plan and ten.
    fn boots_limit(&self, safety: &Safety) -> u64 {
        safety.max_boots.map_or(self.needs.boots * 2 + 10, u64::from)
    }
}

/// By what trials are brought together within a block: the power mode. A cold trial has a boot of its own, which may
/// come up in any mode.
pub(super) fn mode_to_hold(start: Start, power_mode: Option<&str>) -> Option<Option<&str>> {
    match start {
        Start::Cold => None,
        Start::Any | Start::Warm => Some(power_mode),
    }
}

#[cfg(test)]
mod tests;
