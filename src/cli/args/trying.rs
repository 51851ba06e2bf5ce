//! The arguments of `try`.

use std::path::PathBuf;

use clap::Args;

use super::{AllowArgs, BootArgs};

/// `try`.
#[derive(Debug, Args)]
pub struct TryArgs {
    /// What varies, one axis each: env:NAME=a,b (or unset), an axis such as cpus=0, --option=a,b for an option of the
    /// command, or NAME=a,b for {NAME} in it; may be repeated
    #[arg(long, value_name = "KEY=a,b", allow_hyphen_values = true)]
    pub vary: Vec<String>,
    /// Trials of each cell
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub trials: u32,
    /// Start each trial in a boot of its own; needs --allow-reboot
    #[arg(long)]
    pub cold: bool,
    /// Deadline of a trial; one that takes longer hangs
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub timeout: String,
    /// What the runs are called [default: after the program]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where to write the matrix [default: jetfault-NAME.toml here]
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// How the boot service behaves, if one is needed.
    #[command(flatten)]
    pub boot: BootArgs,
    /// What is allowed.
    #[command(flatten)]
    pub allow: AllowArgs,
    /// The command to try, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
