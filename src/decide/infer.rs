//! From evidence to a verdict: what an open trial was, when the harness comes back.
//!
//! The boot id alone proves a reboot. The rest is a labelled table over facts; exactly one row matches every
//! combination, and a test tries them all. Missing evidence lowers the claim and is named; evidence that contradicts
//! itself names no cause, and what was seen is listed.

pub mod facts;

pub mod table;

mod judge;

pub use facts::{
    Baseline, BootFacts, Distance, DrivePower, Ending, Intent, News, OpenEnd, ResetClass, ThermalLine, WatchdogFlag,
    facts_of,
};
pub use judge::{infer, missing, no_evidence, seen};
pub use table::{BOOT_RULES, BootRule, boot_rule};
