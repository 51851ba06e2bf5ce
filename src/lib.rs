//! jetfault: reproduces, explains and bisects faults on NVIDIA Jetson boards.

pub mod model;

pub mod decide;

pub mod perform;

pub mod workload;

pub mod cli;

#[cfg(test)]
mod testing;
