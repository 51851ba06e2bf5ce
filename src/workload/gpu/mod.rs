//! The GPU of the workload: driver, kernels, device memory, and layers whose allocations are really made.
//!
//! Owns everything that touches CUDA, and with `os` the only `unsafe` code of the child. Nothing here runs in the
//! process that writes the journal. libcuda and cuBLAS are found at run time, so that one binary serves machines
//! without CUDA, both JetPacks and desktops: what is missing is an error with a name, never a panic. One process opens
//! one context for one trial and closes it with [`driver::Context::close`], because an error that comes late is an
//! error.

pub mod error;

pub mod images;

pub mod driver;

pub mod kernels;

pub mod memory;

pub mod blas;

pub mod tensor;

pub mod executor;

pub mod self_check;

pub mod fitness;
