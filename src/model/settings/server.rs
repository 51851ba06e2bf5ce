//! A command that serves: when it is ready, and what is asked of it then.

use serde::{Deserialize, Serialize};

use crate::model::template::Template;

/// A program that does not end by itself: the harness waits until it is ready, makes the requests one after the other,
/// and asks it to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// When requests begin.
    pub ready: Ready,
    /// Programs and their arguments, each of which must succeed.
    pub requests: Vec<Vec<Template>>,
}

/// What tells that a server is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// A connection to this port of the machine itself is accepted.
    Port(u16),
    /// A line of its output matches this pattern, checked to compile.
    Regex(String),
}

/// The most requests of one trial: each is a stage, and the stages of a trial have a limit.
pub const REQUESTS_MAX: usize = 400;
