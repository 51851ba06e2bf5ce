//! Another program in the neighbourhood of a trial: what it is and when it starts.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::model::template::Template;
use crate::model::words::words;

/// Another program in the neighbourhood of the trial. It ends with the trial's own child at the latest; one that fails
/// before makes the trial void.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Companion {
    /// What it is.
    pub program: CompanionProgram,
    /// When it starts.
    pub when: CompanionWhen,
}

/// What a companion is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CompanionProgram {
    /// A program and its arguments.
    Command(Vec<Template>),
    /// A load that the tool brings.
    Load(CompanionLoad),
}

words! {
    /// A load that the tool brings.
    CompanionLoad {
        /// Copies and reads of device memory without a pause, in a process and a context of its own.
        Gpu = "gpu-load",
    }
}

words! {
    /// When a companion starts, seen from the trial.
    #[derive(Default)]
    CompanionWhen {
        /// First, and the trial waits until it is at work.
        Before = "before",
        /// Right before the trial, which does not wait for more than its start.
        #[default]
        Beside = "beside",
        /// Once the trial's first stage is reached; a command without stages: once it runs.
        After = "after",
    }
}

/// How a companion is written down: one of the two, never both.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    argv: Vec<Template>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    load: Option<CompanionLoad>,
    #[serde(default, skip_serializing_if = "is_default")]
    when: CompanionWhen,
}

/// A companion that is nothing, or two things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a companion is either a program (`argv`) or a load of the tool's own (`load`)")]
pub struct NoCompanion;

impl TryFrom<Written> for Companion {
    type Error = NoCompanion;
    fn try_from(Written { argv, load, when }: Written) -> Result<Self, NoCompanion> {
        let program = match (argv.is_empty(), load) {
            (false, None) => CompanionProgram::Command(argv),
            (true, Some(load)) => CompanionProgram::Load(load),
            (true, None) | (false, Some(_)) => return Err(NoCompanion),
        };
        Ok(Self { program, when })
    }
}

impl From<Companion> for Written {
    fn from(Companion { program, when }: Companion) -> Self {
        match program {
            CompanionProgram::Command(argv) => Self { argv, load: None, when },
            CompanionProgram::Load(load) => Self { argv: Vec::new(), load: Some(load), when },
        }
    }
}
