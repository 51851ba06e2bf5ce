//! `attach`, and what drives boards from a desk.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AllowArgs, DataFormat, MatrixArgs};
use crate::model::ids::RunId;

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
}

/// `fleet run`.
#[derive(Debug, Args)]
pub struct FleetRunArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Open new runs even if some of the same matrix are there
    #[arg(long)]
    pub new: bool,
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
}
