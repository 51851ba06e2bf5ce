//! What things are: ids, units, the matrix, the journal, the protocol, evidence.
//!
//! Data and codecs only. Nothing here reads a file or a clock, and nothing here decides.

pub mod ids;

pub mod units;

pub mod quantity;

pub mod words;

pub mod template;

pub mod settings;

pub mod board;

pub mod machine_setting;

pub mod power_mode;

pub mod start_state;

pub mod matrix;

pub mod verdict;

pub mod crash;

pub mod outcome;

pub mod hang;

pub mod telemetry;

pub mod evidence;

pub mod kernel_log;

pub mod jetson;

pub mod protocol;

pub mod injection;

pub mod fitness;

pub mod observed;

pub mod journal;

pub mod frame;

pub mod inventory;

pub mod allocator;

pub mod linear4bit_program;

pub mod capability;

pub mod checkpoint;

#[cfg(test)]
pub(crate) mod seeded;
