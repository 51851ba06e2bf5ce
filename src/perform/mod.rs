//! How the parent touches the world: store, host, supervision.
//!
//! The process that runs this code writes the journal and never loads a GPU library.

pub mod machine;

pub mod journal;

pub mod revisions;

pub mod runner;

pub mod supervise;

pub mod exec;

pub mod invoker;

pub mod environment;

pub mod affinity;

pub mod orphans;

pub mod processes;

mod os;

pub mod files;

pub mod persistence;

pub mod store;

pub mod host;

pub mod evidence;

pub mod redact;

pub mod veil;

pub mod bundle;

pub mod series;

pub mod exhibits;

pub mod launching;

pub mod settings;

pub mod start_state;

mod elf;

mod core_file;

mod places;

mod system_core;

mod post_mortem;

mod debugger;

mod gdb_observer;

pub mod programs;

mod artifacts;

mod aside;

pub mod prepare;

pub mod client;

pub mod companion;

mod repetition;

pub mod injector;
pub mod telemetry;

pub mod gpu_health;

pub mod survey;

pub mod boot;

mod kmsg;

pub mod kernel_stream;

pub mod spool;

mod memory_events;

mod memory_group;

pub mod witness;

pub mod doctor;

pub mod capture;

pub mod follow;

pub mod ssh;

pub mod serial;

pub mod reach;

pub mod witness_file;

pub mod transfer;

pub mod checkpoint;

pub mod linux;
