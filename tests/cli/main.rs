//! The command line as people and scripts meet it: whole runs of the real binary, killed, resumed, refused.

mod bench;

mod bad_input;
mod deaths;
mod readers;
mod runs;
