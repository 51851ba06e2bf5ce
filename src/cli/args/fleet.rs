//! `attach`, and what drives boards from a desk.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::{AllowArgs, DataFormat, MatrixArgs, ReportFormat, SearchArgs, SearchKind};
use crate::decide::stats::Method;
use crate::model::ids::{ContentDigest, DeviceId, RunId};

/// `attach`.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
    /// Only what came after this record of the journal, for a follower that lost its connection
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    pub after: u64,
    /// Write a JSON object a line, with a beat every few seconds, as `fleet attach` reads it
    #[arg(long)]
    pub frames: bool,
    /// Who follows: after a boot that nobody declared, the next start waits a while for what they saw of its end
    #[arg(long, value_name = "NAME", requires = "frames")]
    pub witness: Option<String>,
}

/// `observe`.
#[derive(Debug, Args)]
pub struct ObserveArgs {
    /// The run: an id, a unique beginning of one, or a path [default: the latest]
    pub run: Option<String>,
}

/// `fleet`.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// The file that says which boards there are
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "JETFAULT_INVENTORY",
        hide_env_values = true,
        default_value = "fleet.toml"
    )]
    pub inventory: PathBuf,
    /// Only the board of this name; may be repeated
    #[arg(long, global = true, value_name = "NAME")]
    pub board: Vec<String>,
    /// Only boards that have this tag; may be repeated, and then they have all of them
    #[arg(long, global = true, value_name = "TAG")]
    pub tag: Vec<String>,
    /// What is done with them.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// What is done with boards.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Put jetfault, for the architecture of each board, and files on the boards
    Push {
        /// Matrices and whatever stands beside them
        files: Vec<PathBuf>,
    },
    /// Begin a run of a matrix on each board, or go on with it; it goes on there without this desk
    Run(FleetRunArgs),
    /// Tonight's run of a matrix on each board against its own nights before: states, one exit code, JUnit
    Nightly(FleetNightlyArgs),
    /// The same search on each board, which passes a gate of its own: the same answer everywhere, another by device, or none
    Bisect(FleetBisectArgs),
    /// Where the run of each board stands
    Status {
        /// The run: an id, or a unique beginning of one [default: the latest of each board]
        run: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t = DataFormat::Text)]
        format: DataFormat,
    },
    /// Follow the runs of all boards, over reboots and lost connections, until they end; Ctrl-C ends the following alone
    Attach {
        /// The run: an id, or a unique beginning of one [default: the latest of each board]
        run: Option<String>,
        /// Cut the power of a board, by its hook, that says nothing for longer than its open trial may take, and the margin
        /// `hang_after` of the inventory
        #[arg(long)]
        allow_power_cycle: bool,
    },
    /// Copy runs to this desk: only what is new, verified by its digest
    Pull {
        /// Only these runs [default: all]
        runs: Vec<RunId>,
        /// The largest file that is copied, in bytes; larger ones are named and stay on the board
        #[arg(long, value_name = "BYTES", default_value_t = 256 * 1024 * 1024)]
        file_max: u64,
    },
    /// The runs that were pulled as one report: each board for itself, and together only where no test tells them apart
    Report(FleetReportArgs),
    /// Stop the run of each board after its current trial
    Stop {
        /// The run: an id, or a unique beginning of one [default: the latest of each board]
        run: Option<String>,
    },
    /// Cut the power of boards by their hooks, and wait until each answers in another boot
    PowerCycle {
        /// How long a board may take, in seconds
        #[arg(long, value_name = "S", default_value_t = 600)]
        patience: u64,
    },
    /// Have a lab's own engine run a matrix: a job array, an element for each block; it takes no inventory, and --tag is a
    /// feature that a node must have
    #[command(
        after_help = "Examples:\n  jetfault fleet submit my.toml --results /shared/lab --dry-run\n  jetfault fleet submit my.toml --results /shared/lab --tag orin-nano -- --partition=boards\n  jetfault fleet collect /shared/lab/my-blocks-*"
    )]
    Submit(FleetSubmitArgs),
    /// Run one block of a matrix in a directory of its own, or go on with it, as an element of a submitted array does; 0
    /// says that it is done, whatever it found
    Block(FleetBlockArgs),
    /// Join what the elements of a submitted array left: which blocks are done, on which device, and what they found
    #[command(
        after_help = "Examples:\n  jetfault fleet collect /shared/lab/my-blocks-*\n  jetfault report --joined $(jetfault fleet collect DIR --format paths)\n\nExit codes: 0 every block is done, no fault · 1 a fault was found · 3 blocks are open or missing"
    )]
    Collect {
        /// Directories of blocks, or copies of them from several nodes
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// Output format
        #[arg(long, value_enum, default_value_t = CollectFormat::Text)]
        format: CollectFormat,
    },
}

/// An engine that hands jobs to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Slurm, by its `sbatch`.
    Slurm,
}

/// Formats of `fleet collect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CollectFormat {
    /// For a terminal; not stable.
    Text,
    /// For programs.
    Json,
    /// The directory of each run that is done, a line each, for `report` and `compare`.
    Paths,
}

/// `fleet report`.
#[derive(Debug, Args)]
pub struct FleetReportArgs {
    /// A run by its id, or a matrix by its name, whose latest run of each board is meant [default: the latest run of each
    /// board; with all shares of its division, if it is one]
    #[arg(value_name = "RUN|NAME")]
    pub which: Option<String>,
    /// How intervals are made: clopper-pearson, confidence-sequence, wilson or jeffreys
    #[arg(long, value_name = "METHOD")]
    pub interval: Option<Method>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
    /// In files to pass on (md, csv, junit): keep names of boards, users and hosts, serial numbers and addresses
    #[arg(long)]
    pub no_redact: bool,
}

/// What is carried through on every board, and how.
#[derive(Debug, Args)]
pub struct FleetCarryArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Go on although the jetfault binary is another one than the run began with
    #[arg(long)]
    pub accept_binary: bool,
    /// Seconds from the moment when a login is possible to the first trial of a boot
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub boot_delay: u64,
    /// What every worker plays instead of its cell, to test the harness itself; the trials are marked as simulated
    #[arg(long, value_name = "SCRIPT", hide = true)]
    pub script: Option<String>,
    /// What is allowed.
    #[command(flatten)]
    pub allow: AllowArgs,
    /// While boards are followed: cut the power of one, by its hook, that says nothing for longer than its open trial may take,
    /// and the margin `hang_after` of the inventory
    #[arg(long)]
    pub allow_power_cycle: bool,
}

impl FleetCarryArgs {
    /// The matrix, if it is a file.
    pub fn file(&self) -> &Path {
        Path::new(&self.matrix.matrix)
    }

    /// Whether it is a file of this desk, and not the name of a shipped one.
    pub fn is_file(&self) -> bool {
        self.file().is_file()
    }
}

/// `fleet run`.
#[derive(Debug, Args)]
pub struct FleetRunArgs {
    /// What is carried through.
    #[command(flatten)]
    pub carry: FleetCarryArgs,
    /// Divide the trials over the boards instead, each of which runs its share in an order of its own; again, it sets right
    /// what is missing
    #[arg(long)]
    pub spread: bool,
    /// Follow the runs until they end; with --spread, what a lost board had not done is given to the others meanwhile
    #[arg(long)]
    pub follow: bool,
    /// Open new runs even if some of the same matrix are there
    #[arg(long)]
    pub new: bool,
}

/// `fleet nightly`.
#[derive(Debug, Args)]
pub struct FleetNightlyArgs {
    /// What is carried through.
    #[command(flatten)]
    pub carry: FleetCarryArgs,
    /// Write the nights as JUnit XML as well, a suite for each board
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `fleet bisect`.
#[derive(Debug, Args)]
pub struct FleetBisectArgs {
    /// What is searched
    #[arg(value_enum)]
    pub kind: SearchKind,
    /// What is carried through.
    #[command(flatten)]
    pub carry: FleetCarryArgs,
    /// How it is searched.
    #[command(flatten)]
    pub search: SearchArgs,
    /// For `revisions`: a path whose changes make a commit ten times as likely; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Search")]
    pub path: Vec<String>,
    /// Open new runs even if some of the same question are there
    #[arg(long)]
    pub new: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = DataFormat::Text)]
    pub format: DataFormat,
}

/// `fleet submit`.
#[derive(Debug, Args)]
pub struct FleetSubmitArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Whose jobs they become
    #[arg(long, value_enum, default_value_t = Engine::Slurm)]
    pub engine: Engine,
    /// Print the job script and the command that would submit it, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How many elements may run at a time [default: as many as there are nodes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub at_a_time: Option<u32>,
    /// jetfault on the nodes
    #[arg(long, value_name = "PROGRAM", default_value = "jetfault")]
    pub program: String,
    /// How each block is run.
    #[command(flatten)]
    pub how: BlockArgs,
    /// What the engine is told besides, such as --partition=boards
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<String>,
}

/// `fleet block`.
#[derive(Debug, Args)]
pub struct FleetBlockArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Which block, from 1; its directory is block-NUMBER in the results directory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub number: u32,
    /// What this machine is called in results
    #[arg(long, value_name = "NAME")]
    pub device: DeviceId,
    /// The digest of what was submitted: a matrix that was changed since is refused
    #[arg(long, value_name = "DIGEST")]
    pub submitted: Option<ContentDigest>,
    /// How it is run.
    #[command(flatten)]
    pub how: BlockArgs,
}

/// How a block is run.
#[derive(Debug, Args)]
pub struct BlockArgs {
    /// Go on although the jetfault binary is another one than the block began with
    #[arg(long)]
    pub accept_binary: bool,
    /// What every worker plays instead of its cell, to test the harness itself; the trials are marked as simulated
    #[arg(long, value_name = "SCRIPT", hide = true)]
    pub script: Option<String>,
    /// What is allowed.
    #[command(flatten)]
    pub allow: AllowArgs,
}
