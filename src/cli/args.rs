//! The command line as it is typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::decide::fleet::Share;
use crate::decide::stats::Method;
use crate::model::ids::DeviceId;

mod fleet;
mod report;
mod search;
mod trying;

pub use fleet::{
    AttachArgs, BlockArgs, CollectFormat, Engine, FleetArgs, FleetBisectArgs, FleetBlockArgs, FleetCarryArgs,
    FleetCommand, FleetNightlyArgs, FleetReportArgs, FleetRunArgs, FleetSubmitArgs, ObserveArgs,
};
pub use report::{BundleArgs, CompareFormat, ReportCommand, ReportFormat, SchemaOf};
pub use search::{SearchArgs, SearchKind};
pub use trying::TryArgs;

/// Reproduces, explains and bisects faults on NVIDIA Jetson boards, and says no more than the data supports.
#[derive(Debug, Parser)]
#[command(name = "jetfault", version, max_term_width = 100)]
#[command(
    after_help = "Begin with:\n  jetfault                       this machine, its last run, what may come next\n  jetfault try -- COMMAND ARGS   your own program, as often as you like\n  jetfault run quickstart        a tour without a GPU, in seconds\n  jetfault report                what it found\n  jetfault explain baseline      why a trial got its verdict\n\nExit codes: 0 no fault · 1 fault found · 2 usage or matrix · 3 undecided ·\n4 machine unfit · 5 held by another jetfault · 6 journal damaged · 70 bug ·\n128+n signal"
)]
pub struct Cli {
    /// What to do; without a word it says what this machine is, what ran last and what may come next.
    #[command(subcommand)]
    pub command: Option<Command>,
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
    /// Try a command: repeat it, vary one thing at a time, and say how often it fails and how; no matrix needed
    #[command(
        after_help = "Examples:\n  jetfault try -- ./build-engine --dense nvfp4\n  jetfault try --trials 10 --vary cpus=0 --vary env:MALLOC_PERTURB_=165 -- ./build-engine\n  jetfault try --vary --dense=fp16,auto -- ./build-engine --dense nvfp4\n  jetfault try --cold --allow-reboot -- python3 -u load.py"
    )]
    Try(TryArgs),
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
    #[command(
        after_help = "Examples:\n  jetfault status\n  jetfault status --follow      a table that is drawn anew; Ctrl-C ends it\n  jetfault status --format json"
    )]
    Status(StatusArgs),
    /// Follow a run as it goes, until it ends; Ctrl-C ends the following and not the run
    #[command(after_help = "Examples:\n  jetfault attach              the latest run\n  jetfault attach bnb-1936-002")]
    Attach(AttachArgs),
    /// Keep what was seen of this machine from outside, a JSON object on standard input, for the verdict of a run
    #[command(
        hide = true,
        after_help = "Example:\n  jetfault observe bnb-1936-001 < seen.json      as `jetfault fleet attach` does over ssh"
    )]
    Observe(ObserveArgs),
    /// Finish the current trial, put back what was changed, remove the boot service, then stop
    #[command(after_help = "Example:\n  jetfault stop")]
    Stop(StopArgs),
    /// Install the boot service, which carries a run on after each boot; `run` does so itself where it needs boots
    #[command(
        after_help = "Examples:\n  sudo jetfault arm                      the latest run\n  jetfault arm --unit-dir /tmp/units     look at the unit first"
    )]
    Arm(ArmArgs),
    /// Remove the boot service
    #[command(after_help = "Example:\n  sudo jetfault disarm")]
    Disarm(DisarmArgs),
    /// Why a trial got its verdict: facts, rule, what was missing
    #[command(
        after_help = "Examples:\n  jetfault explain c-0123456789abcdef-r001-a1\n  jetfault explain quickstart-001 c-0123\n  jetfault explain sequence=CBA            its first fault; lists its other trials"
    )]
    Explain(ExplainArgs),
    /// What a run found: tallies, rates with their intervals, faults; with --format md a bug report to paste
    #[command(
        after_help = "Examples:\n  jetfault report\n  jetfault report bnb-1936-001 --format md > issue.md\n  jetfault report bnb-1936-001 bnb-1936-002 --format md    both together\n  jetfault report --joined fleet-results/orin-1/x-001 fleet-results/orin-2/x-001\n  jetfault report --format html > report.html"
    )]
    Report(ReportArgs),
    /// Whether a level of a factor makes a difference, with a guard against whatever else differs
    #[command(
        after_help = "Examples:\n  jetfault compare --axis warmup\n  jetfault compare results/bnb-1936 --axis version --levels 0.46.1,0.49.2\n  jetfault compare bnb-1936-001 bnb-1936-002 --axis state --levels cold,warm --cell sequence=ABC\n  jetfault compare edge-llm-nvfp4-001 other-002 --faults      is it a duplicate?\n\nExit codes: 0 a difference is established · 3 undecided · 2 nothing to compare"
    )]
    Compare(CompareArgs),
    /// Search, with a test that fails only sometimes: which levels are load-bearing, which part of a sequence, from which
    /// level on, since which revision
    #[command(
        after_help = "Examples:\n  jetfault bisect axes bnb-1936 --allow-reboot\n  jetfault bisect sequence bnb-1936 --set baseline.start=any\n  jetfault bisect levels my.toml --axis batch --good 1 --bad 8\n  jetfault bisect revisions my.toml\nIt goes on after any number of reboots: the same command, or `jetfault resume`."
    )]
    Bisect(BisectArgs),
    /// Carry a campaign through on a simulated board: boots and hours it takes, chance of a right answer; nothing runs
    #[command(
        after_help = "Examples:\n  jetfault rehearse bnb-1936 --model board.toml\n  jetfault rehearse bnb-1936 --model board.toml --bisect axes\n  jetfault rehearse bnb-1936 --model board.toml --bisect revisions --revisions 32 --campaigns 10000"
    )]
    Rehearse(RehearseArgs),
    /// Tonight's run of a matrix against the nights before: states, an exit code for a scheduler, JUnit
    #[command(
        after_help = "Examples:\n  jetfault nightly my.toml --allow-reboot --junit night.xml\n  jetfault nightly my.toml --last --format json\n\nExit codes: 0 nothing new · 1 a new fault, or one that came back · 3 not decided yet"
    )]
    Nightly(NightlyArgs),
    /// Whether this machine is fit for runs, and what mends it; with --gpu every kernel is launched once, with --drill the
    /// machine is reset, panicked and frozen to see whether its evidence tells
    #[command(
        after_help = "Examples:\n  jetfault doctor\n  jetfault doctor --gpu --format json\n  sudo jetfault doctor --drill --allow-injected-faults    again after each boot"
    )]
    Doctor(DoctorArgs),
    /// Write what this machine says about itself as a directory that `--sysroot` reads
    #[command(after_help = "Examples:\n  sudo jetfault capture --to board-7\n  jetfault doctor --sysroot board-7")]
    Capture(CaptureArgs),
    /// What a checkpoint's header says: dtypes, which layers are quantised how, and what does not fit
    #[command(
        after_help = "Examples:\n  jetfault inspect model.safetensors\n  jetfault inspect model-00001-of-00002.safetensors --format json\n\nhf_quant_config.json beside the file is compared with it. Exit code 1: something does not fit."
    )]
    Inspect(InspectArgs),
    /// The same over many boards, from a desk, by ssh
    #[command(
        after_help = "Examples:\n  jetfault fleet push my.toml\n  jetfault fleet run my.toml --allow-reboot\n  jetfault fleet run my.toml --spread --follow    divided over the boards\n  jetfault fleet attach\n  jetfault fleet pull\n  jetfault fleet report"
    )]
    Fleet(FleetArgs),
    /// Print the JSON Schema of matrices, for editors, or of reports, for programs
    #[command(
        after_help = "Examples:\n  jetfault schema > matrix.schema.json\n  jetfault schema report > report.schema.json"
    )]
    Schema {
        /// Of matrices or of reports
        #[arg(value_enum, default_value_t = SchemaOf::Matrix)]
        of: SchemaOf,
    },
    /// Print shell completions
    #[command(after_help = "Example:\n  jetfault completions bash > /etc/bash_completion.d/jetfault")]
    Completions {
        /// For which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write a page for every command
    #[command(after_help = "Examples:\n  jetfault man | man -l -\n  jetfault man --to /usr/local/share/man/man1")]
    Man(ManArgs),
}

/// Which matrix, and what is changed in it.
#[derive(Debug, Default, Args)]
pub struct MatrixArgs {
    /// Path of a matrix file, or the name of a shipped one such as quickstart, command, bnb-1936 or edge-llm-nvfp4; an
    /// unknown name lists them
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
#[derive(Debug, Clone, Copy, Default, Args)]
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

/// What commands that carry trials through have in common.
#[derive(Debug, Clone, Args)]
pub struct SessionArgs {
    /// What this machine is called in results, instead of an id derived from /etc/machine-id
    #[arg(long, value_name = "NAME")]
    pub device: Option<DeviceId>,
    /// Go on although the jetfault binary is another one than the run began with
    #[arg(long)]
    pub accept_binary: bool,
    /// How the boot service behaves, where the run needs boots.
    #[command(flatten)]
    pub boot: BootArgs,
    /// What is allowed.
    #[command(flatten)]
    pub allow: AllowArgs,
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
    /// Open the run, leave it to a process that outlives this session, print its id and end; `jetfault attach` follows it
    #[arg(long, conflicts_with = "git_bisect")]
    pub detach: bool,
    /// Speak to `git bisect run`: exit 0 good, 1 bad, 125 void, undecided or unfit to tell, 255 everything else. Opens a
    /// new run each time, and refuses matrices that need boots
    #[arg(long)]
    pub git_bisect: bool,
    /// What every worker plays instead of its cell, to test the harness itself; the trials are marked as simulated
    #[arg(long, value_name = "SCRIPT", hide = true)]
    pub script: Option<String>,
    /// The part of the matrix that this board has of a division, as `fleet run --spread` spells it
    #[arg(long, value_name = "JSON", hide = true, value_parser = share)]
    pub share: Option<Share>,
    /// How its trials are carried through.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Boots and the service that carries a run on after them.
#[derive(Debug, Clone, Args)]
pub struct BootArgs {
    /// Seconds from the moment when a login is possible to the first trial of a boot, so that a person can step in
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub boot_delay: u64,
    /// Directory of systemd's units, in which the boot service is installed [default: /etc/systemd/system]
    #[arg(long, value_name = "DIR")]
    pub unit_dir: Option<PathBuf>,
}

/// `bisect`.
#[derive(Debug, Args)]
pub struct BisectArgs {
    /// What is searched
    #[arg(value_enum)]
    pub kind: SearchKind,
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// How it is searched.
    #[command(flatten)]
    pub search: SearchArgs,
    /// For `revisions`: a path whose changes make a commit ten times as likely; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Search")]
    pub path: Vec<String>,
    /// Open a new run even if one of the same question is there
    #[arg(long)]
    pub new: bool,
    /// Open the run, leave it to a process that outlives this session, print its id and end; `jetfault attach` follows it
    #[arg(long)]
    pub detach: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
    /// How its trials are carried through.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// `nightly`.
#[derive(Debug, Args)]
pub struct NightlyArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Run nothing: judge the last night again and print it
    #[arg(long)]
    pub last: bool,
    /// Open the run, leave it to a process that outlives this session, print its id and end; --last judges it later
    #[arg(long, conflicts_with = "last")]
    pub detach: bool,
    /// Write the night as JUnit XML as well
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// What every worker plays instead of its cell, to test the harness itself; such a night enters no history
    #[arg(long, value_name = "SCRIPT", hide = true)]
    pub script: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
    /// How its trials are carried through.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// `rehearse`.
#[derive(Debug, Args)]
pub struct RehearseArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// A file with `[[inject]]` entries and a `[board]` that take the place of the matrix's own
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Rehearse a search instead of the matrix as it stands
    #[arg(long, value_enum, value_name = "KIND")]
    pub bisect: Option<SearchKind>,
    /// For `--bisect revisions`: how many revisions there are after the good one
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub revisions: u32,
    /// How many campaigns
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub campaigns: u32,
    /// Seed of the simulated boards [default: the matrix's]
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// How it is searched.
    #[command(flatten)]
    pub search: SearchArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
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
    /// As the boot service does: wait for a chance to log in, for whoever is logged in, and for the boot's verification
    #[arg(long)]
    pub at_boot: bool,
    /// In the transient unit that `run --detach` made
    #[arg(long, hide = true, conflicts_with = "at_boot")]
    pub in_unit: bool,
    /// How the boot service behaves, where the run needs boots.
    #[command(flatten)]
    pub boot: BootArgs,
}

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// Show it anew whenever it changes, until the run is over or Ctrl-C; into a pipe, a line for each change
    #[arg(short, long)]
    pub follow: bool,
    /// Directory of systemd's units in which the boot service may be [default: /etc/systemd/system]
    #[arg(long, value_name = "DIR")]
    pub unit_dir: Option<PathBuf>,
    /// How intervals are made: clopper-pearson, confidence-sequence, wilson or jeffreys [default: confidence-sequence while
    /// the run goes on]
    #[arg(long, value_name = "METHOD")]
    pub interval: Option<Method>,
    /// What is here of divisions of the matrix of this name, as JSON, for `fleet run --spread`
    #[arg(long, value_name = "NAME", hide = true)]
    pub shares: Option<String>,
    /// Where the search of the run stands, as JSON, for `fleet bisect`
    #[arg(long, hide = true)]
    pub standing: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `arm`.
#[derive(Debug, Args)]
pub struct ArmArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// How the boot service behaves.
    #[command(flatten)]
    pub boot: BootArgs,
}

/// `disarm`.
#[derive(Debug, Args)]
pub struct DisarmArgs {
    /// Directory of systemd's units, in which the boot service is installed [default: /etc/systemd/system]
    #[arg(long, value_name = "DIR")]
    pub unit_dir: Option<PathBuf>,
}

/// `stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// Directory of systemd's units, in which the boot service is installed [default: /etc/systemd/system]
    #[arg(long, value_name = "DIR")]
    pub unit_dir: Option<PathBuf>,
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
#[command(args_conflicts_with_subcommands = true)]
pub struct ReportArgs {
    /// What it does instead of printing.
    #[command(subcommand)]
    pub command: Option<ReportCommand>,
    /// The run: an id, a unique beginning of one, a path, or a bundle; several with --joined or --format md [default: the
    /// latest]
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    /// Several runs as one report: each device for itself, and together only where no test tells the devices apart
    #[arg(long)]
    pub joined: bool,
    /// How intervals are made: clopper-pearson, confidence-sequence, wilson or jeffreys [default: clopper-pearson where
    /// the number of trials was fixed in advance and is reached, else confidence-sequence, which may be looked at often]
    #[arg(long, value_name = "METHOD")]
    pub interval: Option<Method>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
    /// In files to pass on (md, html, csv, junit): keep names of boards, users and hosts, serial numbers and addresses
    #[arg(long)]
    pub no_redact: bool,
}

/// `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The runs: ids, unique beginnings of them, or paths, in the order in which they ran [default: the latest]
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    /// The factor whose levels are compared: an axis, `state`, `device`, `run` for runs before and after a change, or
    /// another that the trials differ in
    #[arg(long, value_name = "NAME", required_unless_present_any = ["covariates", "faults"])]
    pub axis: Option<String>,
    /// Rank the numbers of the trials (memory, temperature, power, time, position in boot) by how well they separate faults
    /// from clean trials, instead
    #[arg(long, conflicts_with_all = ["axis", "levels"])]
    pub covariates: bool,
    /// Whether the faults of the first of two runs are those of the second: the same, different ones with what differs,
    /// or not comparable with the reason
    #[arg(long, conflicts_with_all = ["axis", "levels", "covariates", "cell", "signature"])]
    pub faults: bool,
    /// Two levels, the one that should fault first [default: the baseline's with each other one]
    #[arg(long, value_name = "A,B")]
    pub levels: Option<String>,
    /// Only trials with these levels of any factors; may be repeated for further ones
    #[arg(long, value_name = "FACTOR=LEVEL,…")]
    pub cell: Vec<String>,
    /// Only faults whose signature begins so, such as reboot or crash/SIGSEGV; others are in no rate
    #[arg(long, value_name = "WORDS")]
    pub signature: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub format: CompareFormat,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Launch every kernel once in a child process and compare it with the CPU
    #[arg(long)]
    pub gpu: bool,
    /// Commit a reset, a panic, a freeze and an OOM kill for real, one boot each, and show what this machine's evidence
    /// called them; again after each boot to go on, and at the end to see the table
    #[arg(long, conflicts_with = "gpu")]
    pub drill: bool,
    /// Allow the deliberate faults of --drill
    #[arg(long, requires = "drill", help_heading = "Permissions")]
    pub allow_injected_faults: bool,
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

/// `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A safetensors file; only its header is read
    pub file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write the pages of all commands into this directory, which is made where it is not there
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
}

/// Formats of most commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    /// For people; not stable.
    Text,
    /// For programs; stable, with a schema and a version.
    Json,
}

fn share(text: &str) -> Result<Share, String> {
    serde_json::from_str(text).map_err(|error| format!("not a share: {error}"))
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
