//! What things are: ids, units, the matrix, the journal, the protocol, evidence.
//!
//! Data and codecs only. Nothing here reads a file or a clock, and nothing here decides.

pub mod ids;

pub mod matrix;

pub mod quantity;

pub mod settings;

pub mod template;

pub mod words;
