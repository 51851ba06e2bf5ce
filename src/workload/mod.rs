//! What runs in the child: the 4-bit workload and its CPU reference.
//!
//! Uses [`crate::model`] only; it knows neither the journal nor the supervisor.

pub mod reference;

pub mod spec;

pub mod rows;

pub mod host_weight;

pub mod fast;

pub mod layer;

pub mod kept;

pub mod oracle;

pub mod forensic;

pub mod gpu;

pub mod worker;

pub mod linear4bit;

pub mod load;

mod ballast;

pub mod fake;

mod os;
