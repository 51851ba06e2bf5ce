//! A campaign: a search of [`crate::decide::bisect`] whose runs are trials of a matrix.
//!
//! What is asked is fixed in the plan before the first trial ([`Question`]); where it stands is a fold of the journal
//! ([`Course`]); what it means in words is [`Standing`]. Places of a search and cells of the matrix are translated
//! here, both ways: a reader finds the place of a cell in its levels, whatever build made it.

mod course;
mod history;
mod question;
mod standing;

pub use course::{Answer, Course, OtherOrder, Seeing, is_preparation, is_same_fault};
pub use history::{Direction, History, Revision};
pub use question::{Flip, QuestionError, QuestionKind, axes, levels, revisions, sequence};
pub use standing::{Evidence, FindingKind, STANDING_SCHEMA, Standing};

use serde::{Deserialize, Serialize};

use crate::decide::bisect::trigger::Kept;
use crate::decide::bisect::{knobs, revisions as since};
use crate::decide::stats::Counts;
use crate::model::ids::CellId;
use crate::model::verdict::Signature;

/// A campaign as the plan holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// What is asked.
    pub question: Question,
    /// Trials of its cells that other runs on this device had made before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
    /// Trials of controls that other runs on this device had made before: how often faults come where there is none.
    #[serde(default)]
    pub controls: Counts,
    /// The fault that is searched; without it the first one at the bad end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// Trials of a cell that were there before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The cell.
    pub cell: CellId,
    /// Its trials.
    pub counts: Counts,
}

/// What a campaign asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Which levels of the baseline are load-bearing.
    Axes {
        /// The knobs, each with the level that it may be flipped to.
        flips: Vec<Flip>,
        /// The rules of the search.
        rules: knobs::Rules,
    },
    /// Which part of the baseline's sequence fails by itself.
    Sequence {
        /// The labels of its layers, in order.
        layers: Vec<String>,
        /// Whether other orders of that part are tried as well.
        orders: bool,
        /// The rules of the search.
        rules: knobs::Rules,
    },
    /// From which level of an ordered axis on.
    Levels {
        /// The axis.
        axis: String,
        /// Its levels, from the good end to the bad one.
        labels: Vec<String>,
        /// The rules of the search.
        rules: since::Rules,
    },
    /// Since which revision.
    Revisions {
        /// The revisions and how they follow each other.
        history: History,
        /// The rules of the search.
        rules: since::Rules,
    },
}

/// Where one run of a campaign is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// With these elements in their dangerous setting.
    Set(Kept),
    /// With this other order of the part that was found.
    Order(usize),
    /// At this position, 0 being the good end.
    At(usize),
}
