//! Settings of a command workload: the user's program, what it promises, and how its output is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Server, is_default};
use crate::model::ids::CellId;
use crate::model::quantity::Finite;
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
    /// Exit codes that are a success; empty for 0 alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// What the output must say, else the verdict is `wrong-result`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub expect_output: OutputOracle,
    /// Libraries that must have been mapped from these paths, else the trial is void.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Template>,
    /// The cell whose artifacts it works with: a trial of it must have passed before, in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<CellId>,
    /// What the program writes to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output: OutputKind,
    /// What makes `{prepared.dir}`, once for all trials that ask for the same; empty if nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Template>,
    /// What is asked of it, if it is a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
}

impl CommandSettings {
    /// Every text that may have holes.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let Self { argv, artifacts, cwd, loads, prepare, server, .. } = self;
        let requests = server.iter().flat_map(|server| server.requests.iter().flatten());
        argv.iter().chain(artifacts).chain(cwd).chain(loads).chain(prepare).chain(requests)
    }
}

words! {
    /// What the program finds as its standard output and standard error. It is an axis of its own: a C library keeps what
    /// goes to a pipe until 4 KiB are there, and a process that dies takes them with it.
    #[derive(Default)]
    OutputKind {
        /// A pipe each.
        #[default]
        Pipe = "pipe",
        /// One terminal for both, so that lines come when they are written.
        Pty = "pty",
    }
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
    /// These metrics are found, and lie in their ranges.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, NumberRange>,
    /// This pattern matches some line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// Where a number must lie; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberRange {
    /// The most it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Finite>,
    /// The least it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Finite>,
}

impl NumberRange {
    /// Whether `number` lies in it; a number that is none lies nowhere.
    pub fn contains(self, number: f64) -> bool {
        !number.is_nan()
            && self.min.is_none_or(|min| number >= min.get())
            && self.max.is_none_or(|max| number <= max.get())
    }
}

impl std::fmt::Display for NumberRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{} to {}", min.get(), max.get()),
            (Some(min), None) => write!(f, "at least {}", min.get()),
            (None, Some(max)) => write!(f, "at most {}", max.get()),
            (None, None) => f.write_str("any number"),
        }
    }
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
