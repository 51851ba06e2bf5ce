//! One full assignment of levels.
use serde::{Deserialize, Serialize};
/// One full assignment of levels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Settings {}
