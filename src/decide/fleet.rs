//! Boards driven from a desk: how a command is spelled for the far side, what a failed connection means, and how the
//! contact with one board goes on.
//!
//! Pure: which words ssh said, which frames came and when it is, come in as values. Nothing here is remembered beyond
//! one following: all truth is on the boards.

mod agree;
mod blocks;
mod collected;
mod contact;
mod share;
mod shell;
mod spread;
mod trouble;
mod witness;

pub use agree::{Agreement, Joint, agree};
pub use blocks::{Array, BadFeature, block_name, block_number, job_script};
pub use collected::{BlockRow, BlockRun, BlockStanding, Collected, DeviceCell, TwoMatrices};
pub use contact::{Contact, Link, Note, SILENCE_MS, Sign, Turn};
pub use share::{ForeignCell, Share, order_seed};
pub use shell::{NulInWord, shell_line};
pub use spread::{BoardSaid, CellSaid, Course, Deal, Order, Role, ShareSaid, Short, WantedCell, Whole, deal};
pub use trouble::Trouble;
pub use witness::{Entry, LINES_KEPT, Saw, Witness};
