//! What is searched by `bisect`, and how.

use clap::{Args, ValueEnum};

/// What is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SearchKind {
    /// Which levels of the baseline are load-bearing; each axis flips to its level in `[bisect.use]`, else its first
    Axes,
    /// The smallest part of the baseline's sequence that fails by itself
    Sequence,
    /// From which level of an ordered axis on; numbers are ordered as numbers
    Levels,
    /// Since which revision of `[revisions]`, or up to which, if the good one is the newer
    Revisions,
}

/// How a search is made.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// For `axes`: only these, may be repeated; for `levels`: the one axis
    #[arg(long, value_name = "AXIS", help_heading = "Search")]
    pub axis: Vec<String>,
    /// For `levels`: the level without the fault
    #[arg(long, value_name = "LEVEL", help_heading = "Search")]
    pub good: Option<String>,
    /// For `levels`: the level with the fault [default: the baseline's]
    #[arg(long, value_name = "LEVEL", help_heading = "Search")]
    pub bad: Option<String>,
    /// For `sequence`: whether other orders of the part that is found fault too
    #[arg(long, help_heading = "Search")]
    pub orders: bool,
    /// Three faults of the bad end and five runs of the good one before the search, instead of one and two
    #[arg(long, help_heading = "Search")]
    pub thorough: bool,
    /// Take one fault for proof: only for a signature that nothing else can leave
    #[arg(long, help_heading = "Search")]
    pub no_false_faults: bool,
    /// For `axes` and `sequence`: leave out the runs that confirm the answer
    #[arg(long, help_heading = "Search")]
    pub no_confirm: bool,
    /// The most runs after the gate
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Search")]
    pub budget: u32,
    /// For `revisions`: what preparing a revision costs, in runs; the search then prepares fewer
    #[arg(long, value_name = "RUNS", value_parser = cost, help_heading = "Search")]
    pub build_cost: Option<f64>,
}

impl SearchArgs {
    /// The same, as words of a command line.
    pub fn spelt(&self) -> Vec<String> {
        let option = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
        let mut words: Vec<String> = self.axis.iter().map(|axis| option("axis", axis)).collect();
        words.extend(self.good.iter().map(|level| option("good", level)));
        words.extend(self.bad.iter().map(|level| option("bad", level)));
        words.push(option("budget", &self.budget));
        words.extend(self.build_cost.iter().map(|runs| option("build-cost", runs)));
        let flags = [
            (self.orders, "--orders"),
            (self.thorough, "--thorough"),
            (self.no_false_faults, "--no-false-faults"),
            (self.no_confirm, "--no-confirm"),
        ];
        words.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned()));
        words
    }
}

fn cost(text: &str) -> Result<f64, String> {
    let cost: f64 = text.parse().map_err(|_| "a number of runs, such as 10".to_owned())?;
    if cost.is_finite() && cost >= 0.0 { Ok(cost) } else { Err("a number of runs, such as 10".to_owned()) }
}
