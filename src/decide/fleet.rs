//! Boards driven from a desk: how a command is spelled for the far side, what a failed connection means, and how the
//! contact with one board goes on.
//!
//! Pure: which words ssh said, which frames came and when it is, come in as values. Nothing here is remembered beyond
//! one following: all truth is on the boards.

mod contact;
mod shell;
mod trouble;
mod witness;

pub use contact::{Contact, Link, Note, SILENCE_MS, Sign, Turn};
pub use shell::{NulInWord, shell_line};
pub use trouble::Trouble;
pub use witness::{Entry, LINES_KEPT, Saw, Witness};
