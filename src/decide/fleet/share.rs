//! The share of a board: which trials of a matrix are its own, when a desk divides them over boards.
//!
//! A share is a run of the matrix with its own number of trials for each cell and its own order. The run's plan holds it,
//! so that whoever asks a board learns what the board has of the whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decide::plan::{CellRole, Plan};
use crate::model::ids::{CellId, ContentDigest, DeviceId};
use crate::model::matrix::TrialsRule;

/// The share of a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// What is divided: the digest of the matrix but for its number of trials, which may be raised later.
    pub of: ContentDigest,
    /// How often it is divided anew, from 1.
    pub generation: u32,
    /// Which share of its board this is, from 1.
    pub part: u32,
    /// Seed of the order within blocks and of injected faults; inputs are made from the seed of the matrix everywhere.
    pub order: u64,
    /// How many counted trials each cell is to have.
    pub rounds: BTreeMap<CellId, u32>,
}

/// A share of a matrix that has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the share names cell {0}, which this matrix does not have")]
pub struct ForeignCell(pub CellId);

impl Share {
    /// Whether both are the same share of the same board.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.of, self.generation, self.part) == (&other.of, other.generation, other.part)
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u32 {
        self.rounds.values().copied().max().unwrap_or(0)
    }
}

/// The seed of the order of share `part` of `device`: orders that were the same on all boards would give every board the
/// same chance imbalance.
pub fn order_seed(seed: u64, device: &DeviceId, generation: u32, part: u32) -> u64 {
    let digest = ContentDigest::of(format!("{seed} {device} {generation} {part}").as_bytes());
    u64::from_str_radix(&digest.as_str()[..16], 16).expect("a digest is in hexadecimal")
}

impl Plan {
    /// Leaves of the plan what is in `share`: its cells with their rounds, the controls, and what those work with.
    ///
    /// # Errors
    /// If the share names a cell that the plan does not have.
    pub fn take(&mut self, share: Share) -> Result<(), ForeignCell> {
        if let Some(foreign) = share.rounds.keys().find(|id| self.cells.iter().all(|cell| cell.id != **id)) {
            return Err(ForeignCell(foreign.clone()));
        }
        let mut rounds = share.rounds.clone();
        // A cell comes before those that work with its artifacts, in the plan too.
        for cell in self.cells.iter().rev() {
            if let (Some(needed), Some(&own)) = (cell.settings.needs(), rounds.get(&cell.id)) {
                let needed = rounds.entry(needed.clone()).or_insert(own);
                *needed = own.max(*needed);
            }
        }
        self.cells.retain(|cell| cell.role != CellRole::Sample || rounds.contains_key(&cell.id));
        for cell in self.cells.iter_mut().filter(|cell| cell.role == CellRole::Sample) {
            cell.rounds = Some(rounds[&cell.id]);
        }
        self.trials = TrialsRule::Fixed(share.blocks());
        self.stopping = None;
        self.share = Some(Box::new(share));
        self.reckon();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::plan::{PlanOptions, expand};
    use crate::model::matrix::parse;

    fn plan() -> Plan {
        let text = "[matrix]\nname = \"x\"\ntrials = 4\nseed = 7\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\n\
                    [shapes]\nA = [64, 64]\n[baseline]\nsequence = \"A\"\n[axes]\nbatch = [2, 4]\n";
        expand(&parse(text, "x.toml", &[]).unwrap(), &PlanOptions::default()).unwrap()
    }

    fn share(device: &str, rounds: BTreeMap<CellId, u32>) -> Share {
        let order = order_seed(7, &device.parse().unwrap(), 1, 1);
        Share { of: ContentDigest::of(b"x"), generation: 1, part: 1, order, rounds }
    }

    #[test]
    fn a_share_has_its_cells_alone_each_with_its_own_number_of_trials() {
        let whole = plan();
        let ids: Vec<CellId> = whole.cells.iter().map(|cell| cell.id.clone()).collect();
        let mut own = whole.clone();
        own.take(share("orin-1", BTreeMap::from([(ids[0].clone(), 3), (ids[2].clone(), 1)]))).unwrap();
        let rounds: Vec<(&CellId, u32)> = own.cells.iter().map(|cell| (&cell.id, own.rounds(cell))).collect();
        assert_eq!(rounds, [(&ids[0], 3), (&ids[2], 1)]);
        assert_eq!((own.needs.trials, own.blocks(), own.seed), (4, 3, whole.seed));
        assert_eq!(Plan::from_json(&own.to_json()).unwrap(), own);
        let foreign = share("orin-1", BTreeMap::from([(CellId::of(b"another"), 1)]));
        assert!(whole.clone().take(foreign).is_err());
    }

    #[test]
    fn boards_have_orders_of_their_own_and_a_share_is_never_taken_for_the_whole() {
        let whole = plan();
        let all: BTreeMap<CellId, u32> = whole.cells.iter().map(|cell| (cell.id.clone(), 20)).collect();
        let of = |device: &str| {
            let mut plan = whole.clone();
            plan.take(share(device, all.clone())).unwrap();
            plan
        };
        let (one, other) = (of("orin-1"), of("orin-2"));
        let orders = |plan: &Plan| (0..20).map(|block| plan.block_order(block)).collect::<Vec<_>>();
        assert_ne!(orders(&one), orders(&other));
        assert_eq!(orders(&one), orders(&of("orin-1")));
        assert!(one.asks_as(&of("orin-1")) && !one.asks_as(&whole) && !whole.asks_as(&one));
    }
}
