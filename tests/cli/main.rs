//! The command line as people and scripts meet it: whole runs of the real binary, killed, resumed, refused.

#[allow(unreachable_pub, reason = "one test program, several modules")]
mod bench;

mod bisect;
#[allow(unreachable_pub, reason = "two test programs include this")]
#[path = "../standins/mod.rs"]
mod standins;

#[path = "../../src/testing/boards.rs"]
mod boards;
#[path = "../../src/testing/needs.rs"]
mod needs;

mod axes;
mod bad_input;
mod boots;
mod commands;
mod companion;
mod deaths;
mod detach;
mod documents;
mod edge_llm;
mod endings;
mod fleet;
mod fleet_campaigns;
mod forensics;
mod hostile;
mod inspect;
mod machines;
mod memory;
mod nightly;
mod readers;
mod runs;
mod settings;
mod slurm;
mod spread;
mod stack;
mod trying;
mod witness;
