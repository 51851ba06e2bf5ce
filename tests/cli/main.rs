//! The command line as people and scripts meet it: whole runs of the real binary, killed, resumed, refused.

#[allow(unreachable_pub, reason = "one test program, several modules")]
mod bench;

mod bad_input;
mod deaths;
mod memory;
mod readers;
mod runs;
