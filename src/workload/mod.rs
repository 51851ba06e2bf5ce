//! What runs in the child: the 4-bit workload and its CPU reference.
//!
//! Uses [`crate::model`] only; it knows neither the journal nor the supervisor.

pub mod worker;

pub mod fake;

mod os;
