//! What a child that ran out of time was doing.
//!
//! Data only; the table that tells the kinds apart is in [`crate::decide::hang`].

use serde::{Deserialize, Serialize};

use super::words::words;

words! {
    /// Why a child made no progress.
    HangKind {
        /// Every thread waited.
        Blocked = "blocked",
        /// A thread ran all the time and came to no other stage.
        Spinning = "spinning",
        /// A thread waited in the kernel and could not be interrupted, mostly for a driver.
        DState = "d-state",
        /// Work went on: it was slow, not stuck.
        AliveOverTime = "alive-over-time",
    }
}

/// The most kernel functions that are kept of one thread.
pub const KERNEL_FRAMES_MAX: usize = 16;

/// The most kinds of threads that are kept.
pub const THREAD_KINDS_MAX: usize = 16;

/// What a child was doing when its time was up, from two looks at every thread of the trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hang {
    /// Why it made no progress.
    pub kind: HangKind,
    /// Processor time of all its threads between the looks, in milliseconds.
    pub cpu_ms: u64,
    /// Milliseconds between the looks.
    pub apart_ms: u64,
    /// Why nobody could read the kernel's stacks of its threads, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_stacks_denied: Option<String>,
    /// Its threads at the second look, the most telling first, [`THREAD_KINDS_MAX`] kinds at most.
    pub threads: Vec<HungThreads>,
}

/// Threads in the same state at the same place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HungThreads {
    /// How many.
    pub count: u32,
    /// One letter, as in `/proc/PID/stat`.
    pub state: char,
    /// The kernel function in which they wait; empty where they do not wait, or nobody may know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wchan: String,
    /// What they are called.
    pub name: String,
    /// The kernel functions in which one of them is, innermost first; empty where it is in none, or nobody may know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_stack: Vec<String>,
}
