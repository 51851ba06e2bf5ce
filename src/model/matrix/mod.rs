//! The matrix: a workload, a baseline and axes, as a person writes them in TOML.
//!
//! Three steps, each with its own type: the text becomes a tree of values that know where they stand, changed by
//! `--set`; the tree becomes a [`Matrix`], in which every key is known and every level has been read; a plan is
//! made of it in [`crate::decide::plan`]. What is wrong is found with its place and reported with as much else
//! that is wrong as possible ([`MatrixError`]). Reading files is not done here.
//!
//! Rules that are easy to miss:
//! - Strings that become part of a command (arguments, paths, values of variables) may have placeholders, and a
//!   literal brace in them is written twice.
//! - A level is known by its label, the value as written: `batch = [2]` is the level `2`.
//! - The baseline is a level of every axis and need not be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::ContentDigest;
use super::settings::Shape;
use super::words::words;

mod axis;
mod check;
mod choices;
mod document;
mod draft;
mod env;
mod faults;
mod levels;
mod parse;
mod problem;
mod profile;
mod reader;
mod schema;
mod sections;
mod workload;

pub use axis::{INIT_THREADS_MAX, ITERATIONS_MAX, Knob, LAYERS_MAX, SEQUENCE_MAX, WorkloadKind};
pub use check::{Finding, examine};
pub use choices::{Assignment, Matcher};
pub use document::{Override, OverrideError};
pub use draft::{Change, Draft};
pub use faults::{Board, FaultName, Inject};
pub use levels::{AXES_MAX, Axis, LEVELS_MAX, Level};
pub use parse::{parse, parse_bytes};
pub use problem::{MatrixError, Problem, Severity, Span, did_you_mean};
pub use profile::{Profile, Profiles};
pub use schema::json_schema;
pub use sections::{Control, Expect, Revisions, Safety, Tool, VerdictName};

/// The largest matrix file that is read: thousands of times what people write.
pub const MATRIX_BYTES_MAX: usize = 1 << 20;

/// The most trials a plan may have.
pub const PLAN_TRIALS_MAX: u64 = 1_000_000;

/// How many trials a cell decided by statistics has at most, if the matrix does not say.
pub const DECIDE_MAX_DEFAULT: u32 = 40;

words! {
    /// How cells are made of axes.
    #[derive(Default)]
    Design {
        /// The baseline, and each other level alone.
        #[default]
        OneOff = "one-off",
        /// Every combination of levels.
        Full = "full",
        /// Only what `[[cell]]` says.
        List = "list",
    }
}

/// How many trials a cell gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialsRule {
    /// So many counted trials.
    Fixed(u32),
    /// As many as a decision needs.
    UntilDecided(Decide),
}

/// What is to be decided, and how many trials it may cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// The axis whose levels are compared by e-value on interleaved blocks; `None` decides each cell by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<String>,
    /// The most trials of one cell.
    pub max: u32,
}

/// A valid matrix.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Its name, which runs are named after.
    pub name: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// How cells are made.
    pub design: Design,
    /// How many trials they get.
    pub trials: TrialsRule,
    /// The seed of order and inputs.
    pub seed: u64,
    /// What kind of workload it has.
    pub kind: WorkloadKind,
    /// Input and output features by name.
    pub shapes: BTreeMap<String, Shape>,
    /// The layers of models by name, the shipped ones and those of the file.
    pub profiles: Profiles,
    /// The axes, in the order of the file.
    pub axes: Vec<Axis>,
    /// Combinations that are never run.
    pub excludes: Vec<Matcher>,
    /// The entries of `[[cell]]`, over the baseline.
    pub cells: Vec<Assignment>,
    /// Cells with an expectation that others lean on.
    pub controls: Vec<Control>,
    /// What is expected of cells; a later entry overrules an earlier one.
    pub expects: Vec<Expect>,
    /// Label-only factors.
    pub factors: BTreeMap<String, String>,
    /// The revisions to bisect.
    pub revisions: Option<Revisions>,
    /// Which level of an axis `bisect` means by a flip; else its first.
    pub bisect_use: BTreeMap<String, String>,
    /// What changes from night to night, left out of the history key.
    pub nightly_subject: Vec<String>,
    /// Limits of what a run may do to a board.
    pub safety: Safety,
    /// Faults that trials commit on purpose.
    pub inject: Vec<Inject>,
    /// The simulated board of `rehearse`.
    pub board: Option<Board>,
    /// Paths that replace the tools found on the machine.
    pub tools: BTreeMap<Tool, String>,
    /// The digest of the content, command-line changes included.
    pub digest: ContentDigest,
    /// The command-line changes, as shown.
    pub overrides: Vec<String>,
    baseline: Draft,
    /// The baseline's level of everything that has one: axes of the tool, variables, environment.
    fixed: BTreeMap<String, String>,
    places: Places,
    sources: Arc<problem::Sources>,
}

/// Where things stand that a plan may complain about.
#[derive(Debug, Clone, Default)]
struct Places {
    design: Span,
    trials: Span,
    baseline: BTreeMap<String, Span>,
    shapes: BTreeMap<String, Span>,
}

impl Matrix {
    /// The baseline, to be changed by levels.
    pub fn baseline(&self) -> Draft {
        self.baseline.clone()
    }

    /// The axis called `name`.
    pub fn axis(&self, name: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.name == name)
    }

    /// The label of the baseline's level of an axis of the tool, a variable or `env.NAME`.
    pub fn baseline_label(&self, name: &str) -> Option<&str> {
        self.fixed.get(name).map(String::as_str)
    }

    /// An error of a plan made of this matrix, shown where its number of trials comes from.
    pub fn trials_error(&self, message: impl Into<String>, hint: impl Into<String>) -> MatrixError {
        let span = if self.places.trials == Span::default() { self.places.design } else { self.places.trials };
        self.error_at(span, message, hint)
    }

    /// An error of a plan made of this matrix, shown at `span`.
    pub fn error_at(&self, span: Span, message: impl Into<String>, hint: impl Into<String>) -> MatrixError {
        let mut problems = problem::Problems::default();
        problems.error(span, message).hint(hint);
        MatrixError::new(problems.into_sorted(), Arc::clone(&self.sources))
    }

    /// Where a finding about a cell is shown: the level that brought it, else the shape, else the baseline.
    pub fn place_of(&self, finding: &Finding, levels: &[&Level]) -> Span {
        let level = |what: &str| {
            let by_name = levels.iter().find(|level| level.changes.iter().any(|change| change.what == what));
            by_name.map(|level| level.span)
        };
        let shape = finding.shape.as_ref().and_then(|shape| self.places.shapes.get(shape).copied());
        let blamed = finding.blame.iter().find_map(|knob| level(knob.as_str()));
        let baseline = finding.blame.iter().find_map(|knob| self.places.baseline.get(knob.as_str()).copied());
        blamed.or(shape).or(baseline).unwrap_or(self.places.design)
    }

    /// Errors, and warnings as text, of everything found in the cells of a plan.
    ///
    /// # Errors
    /// If any finding is an error; then warnings are among them.
    pub fn judge(&self, findings: Vec<(Finding, Span)>) -> Result<Vec<String>, MatrixError> {
        let mut problems = problem::Problems::default();
        for (finding, span) in findings {
            let problem = match finding.severity {
                Severity::Error => problems.error(span, finding.message),
                Severity::Warning => problems.warning(span, finding.message),
            };
            problem.hint(finding.hint);
        }
        let failed = problems.has_errors();
        let problems = problems.into_sorted();
        if failed {
            return Err(MatrixError::new(problems, Arc::clone(&self.sources)));
        }
        Ok(problems.iter().map(|problem| problem::render(std::slice::from_ref(problem), &self.sources)).collect())
    }
}

#[cfg(test)]
mod tests;
