//! What reports and comparisons are printed as.

use clap::ValueEnum;

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
}
