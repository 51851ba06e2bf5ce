//! What a follower of a run is told, a line at a time: words about it, and proof that its machine is up and which boot it is in.
//!
//! Owns the format that `attach --frames` writes and a desk reads. A frame without words is a beat.

use serde::{Deserialize, Serialize};

use super::ids::{BootId, RunId};
use super::units::WallTime;

/// Name and version of the format.
pub const FRAME_SCHEMA: &str = "jetfault.frame/1";

/// The longest line of it in bytes; what is longer is no frame.
pub const FRAME_BYTES_MAX: usize = 16 * 1024;

/// How a run stands when nothing more is to be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FollowEnd {
    /// The run is over.
    Closed,
    /// The run rests until somebody resumes it.
    Paused,
    /// Nobody works on it, and no boot carries it on.
    Deserted,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// [`FRAME_SCHEMA`].
    pub schema: String,
    /// The run that is followed.
    pub run: RunId,
    /// The boot in which the machine is now.
    pub boot: BootId,
    /// The machine's clock, which may be years off.
    pub wall: WallTime,
    /// The last record of the journal that was read.
    pub seq: u64,
    /// What happened, in words; absent in a beat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    /// The open trial and the last stage that is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
    /// How long the open trial may take by its own timeout, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u64>,
    /// What the kernel said since the last frame while a trial is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
    /// Why nothing of the kernel comes; said once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_trouble: Option<String>,
    /// Why nothing more comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<FollowEnd>,
}

impl Frame {
    /// The line, its newline included.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a frame has string keys");
        line.push(b'\n');
        line
    }

    /// The frame in `line`; nothing if it is none, as the greetings of a login shell are.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        if line.len() > FRAME_BYTES_MAX {
            return None;
        }
        serde_json::from_slice::<Self>(line).ok().filter(|frame| frame.schema == FRAME_SCHEMA)
    }
}
