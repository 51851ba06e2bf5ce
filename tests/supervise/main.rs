//! Supervision against real processes: the fake worker of the real binary, and programs of the system.
//!
//! Each test is one behaviour of a child, and is bounded by deadlines: a supervisor that hangs fails its test.
#![cfg(debug_assertions)]

mod bench;

mod commands;
mod conversation;
mod crashes;
mod deaths;
mod output;
#[allow(unreachable_pub, reason = "two test programs include this")]
#[path = "../standins/mod.rs"]
mod standins;
