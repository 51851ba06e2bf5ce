//! What reports and comparisons are printed as.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What `report` does instead of printing.
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// Pack a run into one file to attach: journal, trials, evidence, scripts, packages of its Pythons; redacted, and at most
    /// 25 MB. `report`, `explain`, `compare` and `status` take the file for the run
    #[command(
        after_help = "Example:\n  jetfault report bundle bnb-1936-001 -o bnb-1936.zip\n  jetfault report bnb-1936.zip --format html > report.html"
    )]
    Bundle(BundleArgs),
}

/// `report bundle`.
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// The file to write; one of that name is replaced
    #[arg(short, long, value_name = "FILE.zip")]
    pub output: PathBuf,
    /// Keep names of people and machines, and serial numbers, instead of replacing them
    #[arg(long)]
    pub no_redact: bool,
}

/// What has a published schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// A matrix, for editors.
    Matrix,
    /// What `report --format json` prints.
    Report,
    /// What `report --joined --format json` prints.
    Joined,
}

/// Formats of `report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For a terminal; not stable.
    Text,
    /// To paste into an issue.
    Md,
    /// For programs; stable, with a schema and a version.
    Json,
    /// For a browser: one file that needs nothing else.
    Html,
    /// For a spreadsheet or a data frame: one row a trial.
    Csv,
    /// For a scheduler: one test case a trial.
    Junit,
}

/// Formats of `compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For a terminal; not stable.
    Text,
    /// To paste into an issue.
    Md,
    /// For programs; stable, with a schema and a version.
    Json,
    /// For a browser: both levels, cell by cell, with the verdict of the guard.
    Html,
}
