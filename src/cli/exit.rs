//! Exit codes: the one place where results and errors become numbers.

use std::process::ExitCode;

/// How a command ended, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, and no fault.
    Done,
    /// A fault was found, whether or not other cells are undecided.
    FaultFound,
    /// The command line or the matrix makes no sense.
    Usage,
    /// No fault, but cells are void or short, or campaigns inconclusive.
    Undecided,
    /// The machine is unfit.
    Unfit,
    /// Another jetfault holds the results or the machine.
    Held,
    /// The journal is damaged.
    JournalDamaged,
    /// A bug of jetfault.
    Bug,
    /// A signal asked it to stop: 128 and its number.
    Signal(u8),
    /// To `git bisect run`: this revision tells nothing.
    GitSkip,
    /// To `git bisect run`: something is wrong that no revision is to blame for.
    GitAbort,
}

impl Exit {
    /// Every code with a fixed number, in the order of the table in `docs/exit-codes.md`.
    pub const FIXED: [Exit; 8] = [
        Exit::Done,
        Exit::FaultFound,
        Exit::Usage,
        Exit::Undecided,
        Exit::Unfit,
        Exit::Held,
        Exit::JournalDamaged,
        Exit::Bug,
    ];

    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::FaultFound => 1,
            Exit::Usage => 2,
            Exit::Undecided => 3,
            Exit::Unfit => 4,
            Exit::Held => 5,
            Exit::JournalDamaged => 6,
            Exit::Bug => 70,
            Exit::Signal(number) => 128 + number,
            Exit::GitSkip => 125,
            Exit::GitAbort => 255,
        }
    }

    /// The same to `git bisect run`, which takes every number from 1 to 127 but 125 for a bad revision.
    pub fn to_git(self) -> Self {
        match self {
            Exit::Done | Exit::FaultFound | Exit::GitSkip | Exit::GitAbort => self,
            Exit::Undecided => Exit::GitSkip,
            Exit::Usage | Exit::Unfit | Exit::Held | Exit::JournalDamaged | Exit::Bug | Exit::Signal(_) => {
                Exit::GitAbort
            }
        }
    }

    /// What it means, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done, and no fault",
            Exit::FaultFound => "a fault was found (also when other cells are undecided)",
            Exit::Usage => "the command line or the matrix makes no sense",
            Exit::Undecided => "no fault, but cells are void or short, or the run is not finished",
            Exit::Unfit => "this machine is unfit: the message says for what, and what mends it",
            Exit::Held => "another jetfault holds the results directory or the machine",
            Exit::JournalDamaged => "the journal is damaged; nothing was changed",
            Exit::Bug => "a bug of jetfault; please report it",
            Exit::Signal(_) => "a signal asked it to stop; `resume` goes on",
            Exit::GitSkip => "to `git bisect run`: this revision tells nothing",
            Exit::GitAbort => "to `git bisect run`: stop, no revision is to blame",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
