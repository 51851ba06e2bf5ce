//! `attach`, and what drives boards from a desk.

use clap::Args;

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
}
