//! How the parent touches the world: store, host, supervision.
//!
//! The process that runs this code writes the journal and never loads a GPU library.

pub mod machine;

pub mod journal;

pub mod runner;

pub mod supervise;

pub mod exec;

pub mod invoker;

pub mod environment;

pub mod affinity;

pub mod orphans;

mod processes;

mod os;
