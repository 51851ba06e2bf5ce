//! Settings of a command workload: the user's program, what it promises, and how its output is read.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::model::template::Template;
use crate::model::words::words;

/// The user's program with every level filled in; directories that only the machine knows are still holes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSettings {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<Template>,
    /// Files that must exist after exit 0, else the verdict is `artifact-missing`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Template>,
    /// Where it runs; `None` is the directory of the invoking user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Template>,
    /// What the output must say, else the verdict is `wrong-result`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub expect_output: OutputOracle,
    /// Libraries that must have been mapped from these paths, else the trial is void.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Template>,
}

/// What the output of a program (stdout and stderr together) must and must not say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputOracle {
    /// This text occurs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// This text does not occur.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// This pattern matches some line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// A stage of a command: reached when a line of its output matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagePattern {
    /// The name of the stage.
    pub name: String,
    /// The pattern, checked to compile.
    pub regex: String,
}

/// A figure read from a line of the output: the first group of the last match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The name of the figure, with its unit last.
    pub name: String,
    /// The pattern, checked to compile and to have a group.
    pub regex: String,
}

words! {
    /// Which artifacts are kept after the trial.
    #[derive(Default)]
    Keep {
        /// Those of trials with a fault.
        #[default]
        OnFault = "on-fault",
        /// All.
        Always = "always",
        /// None.
        Never = "never",
    }
}
