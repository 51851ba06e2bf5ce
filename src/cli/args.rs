//! The command line as it is typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::model::ids::DeviceId;

/// Reproduces, explains and bisects faults on NVIDIA Jetson boards, and says no more than the data supports.
#[derive(Debug, Parser)]
#[command(name = "jetfault", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(
    after_help = "Begin with:\n  jetfault run quickstart        a tour without a GPU, in seconds\n  jetfault report                what it found\n  jetfault explain baseline      why a trial got its verdict\n\nExit codes: 0 no fault · 1 fault found · 2 usage or matrix · 3 undecided ·\n4 machine unfit · 5 held by another jetfault · 6 journal damaged · 70 bug ·\n128+n signal"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What every command understands.
    #[command(flatten)]
    pub global: Global,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Global {
    /// Directory that holds the runs [default: results/ beside a Cargo.toml or matrices/, else /var/lib/jetfault (root) or
    /// ~/.local/share/jetfault]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "JETFAULT_RESULTS",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    pub results: Option<PathBuf>,
    /// Read the machine under this directory: a captured tree, or / for this machine
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true,
        help_heading = "Global options"
    )]
    pub sysroot: PathBuf,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto, value_name = "WHEN", help_heading = "Global options")]
    pub color: ColorWhen,
    /// Say more on standard error; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub verbose: u8,
    /// Say nothing on standard error but errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub quiet: bool,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a matrix; finished trials are never repeated, an unfinished run of the same matrix is resumed
    #[command(
        after_help = "Examples:\n  jetfault run quickstart\n  jetfault run matrices/bnb-1936.toml --cell sequence=CBA --trials 1\n  jetfault run my.toml --set baseline.start=any --set workload.settle=1s"
    )]
    Run(RunArgs),
    /// Show what `run` would do: cells, order, boots, permissions, predicted peak memory, time
    #[command(after_help = "Examples:\n  jetfault plan matrices/bnb-1936.toml\n  jetfault plan bnb-1936 --format json")]
    Plan(PlanArgs),
    /// Judge what was open and go on with a run
    #[command(after_help = "Examples:\n  jetfault resume              the latest run\n  jetfault resume bnb-1936-002")]
    Resume(ResumeArgs),
    /// Where a run stands, what comes next, and why it waits
    #[command(after_help = "Example:\n  jetfault status --format json")]
    Status(ReadArgs),
    /// Finish the current trial, then stop
    #[command(after_help = "Example:\n  jetfault stop")]
    Stop(StopArgs),
    /// Why a trial got its verdict: facts, rule, what was missing
    #[command(
        after_help = "Examples:\n  jetfault explain c-0123456789abcdef-r001-a1\n  jetfault explain quickstart-001 c-0123\n  jetfault explain sequence=CBA                lists the trials of a cell that has several"
    )]
    Explain(ExplainArgs),
    /// Tallies and rates with their intervals
    #[command(after_help = "Examples:\n  jetfault report\n  jetfault report bnb-1936-001 --format md > issue.md")]
    Report(ReportArgs),
    /// Whether this machine is fit for runs, and what mends it; with --gpu every kernel is launched once
    #[command(after_help = "Examples:\n  jetfault doctor\n  jetfault doctor --gpu --format json")]
    Doctor(DoctorArgs),
    /// Write what this machine says about itself as a directory that `--sysroot` reads
    #[command(after_help = "Examples:\n  sudo jetfault capture --to board-7\n  jetfault doctor --sysroot board-7")]
    Capture(CaptureArgs),
    /// Print the JSON Schema of matrices, for editors
    #[command(after_help = "Example:\n  jetfault schema > matrix.schema.json")]
    Schema,
    /// Print shell completions
    #[command(after_help = "Example:\n  jetfault completions bash > /etc/bash_completion.d/jetfault")]
    Completions {
        /// For which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Which matrix, and what is changed in it.
#[derive(Debug, Args)]
pub struct MatrixArgs {
    /// Path of a matrix file, or the name of a shipped one: quickstart, command, bnb-1936, bnb-1936-small,
    /// cold-start, power-modes
    pub matrix: String,
    /// Only cells with these levels: axis=level,…, or a label such as baseline; may be repeated
    #[arg(long, value_name = "AXIS=LEVEL,…")]
    pub cell: Vec<String>,
    /// Trials per cell, whatever the matrix says
    #[arg(long, value_name = "N")]
    pub trials: Option<u32>,
    /// Change a value of the matrix, such as workload.settle=1s; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

/// What only the command line may allow.
#[derive(Debug, Clone, Copy, Args)]
pub struct AllowArgs {
    /// Allow reboots of this machine
    #[arg(long, help_heading = "Permissions")]
    pub allow_reboot: bool,
    /// Allow switching the power mode
    #[arg(long, help_heading = "Permissions")]
    pub allow_power_mode: bool,
    /// Allow dropping the page cache
    #[arg(long, help_heading = "Permissions")]
    pub allow_drop_caches: bool,
    /// Allow deliberate faults (`[[inject]]`)
    #[arg(long, help_heading = "Permissions")]
    pub allow_injected_faults: bool,
    /// Allow workloads to run as root
    #[arg(long, help_heading = "Permissions")]
    pub allow_root_workload: bool,
    /// Allow a results directory that does not survive a reboot; the report says so
    #[arg(long, help_heading = "Permissions")]
    pub allow_volatile: bool,
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Open a new run even if one of the same matrix is there
    #[arg(long)]
    pub new: bool,
    /// What this machine is called in results, instead of an id derived from /etc/machine-id
    #[arg(long, value_name = "NAME")]
    pub device: Option<DeviceId>,
    /// Go on although the jetfault binary is another one than the run began with
    #[arg(long)]
    pub accept_binary: bool,
    /// What every worker plays instead of its cell, to test the harness itself; the trials are marked as simulated
    #[arg(long, value_name = "SCRIPT", hide = true)]
    pub script: Option<String>,
    /// What is allowed.
    #[command(flatten)]
    pub allow: AllowArgs,
}

/// `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// Go on although the jetfault binary is another one than the run began with
    #[arg(long)]
    pub accept_binary: bool,
}

/// Commands that read one run.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
}

/// `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The trial: its id, a unique beginning of it, or the label of its cell; before it the run, if that is not the
    /// latest
    #[arg(required = true, num_args = 1..=2, value_name = "[RUN] TRIAL")]
    pub which: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Launch every kernel once in a child process and compare it with the CPU
    #[arg(long)]
    pub gpu: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Directory to write; it must be empty or not there yet
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Keep serial numbers, addresses, host and user names instead of replacing them
    #[arg(long)]
    pub no_redact: bool,
}

/// Formats of most commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    /// For people; not stable.
    Text,
    /// For programs; stable, with a schema and a version.
    Json,
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
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_is_explained_and_every_command_has_an_example() {
        let command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            let examples = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains("Example"), "{}: no example", sub.get_name());
            for argument in sub.get_arguments().filter(|a| a.get_id() != "help") {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.len() > 10, "{} {}: no help", sub.get_name(), argument.get_id());
            }
        }
    }
}
