//! What to do: pure functions over [`crate::model`].
//!
//! No file, clock, environment or randomness: everything comes in as a value, so every decision can be
//! replayed and tested exhaustively.

pub mod plan;

pub mod order;

pub mod predict;

pub mod start_state;

pub mod arrange;

pub mod agenda;

pub mod outside;

pub mod attempt;

pub mod classify;

pub mod crash;

pub mod hypotheses;

pub mod evidence;

pub mod gate;

pub mod clearance;

pub mod core_pattern;

pub mod likeness;

pub mod hang;

pub mod gpu_health;

pub mod infer;

pub mod kernel_log;

pub mod signs;

pub mod telemetry;

pub mod tegrastats;

pub mod run;

pub mod step;

pub mod prepare;

pub mod result;

pub mod stats;

pub mod stopping;

pub mod nightly;

pub mod bisect;

pub mod campaign;

pub mod rehearse;

pub mod report;

pub mod explain;

pub mod drill;

pub mod status;

pub mod follow;

pub mod fleet;

pub mod compare;

pub mod brief;

pub mod joined;

pub mod checkpoint;
