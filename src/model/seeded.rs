//! Deliberate bugs, one at a time, which the crash simulator must find. Compiled into tests only.

use std::cell::Cell;

/// A deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A start is not synced before its child runs.
    MissingSync,
    /// The boot before this one is taken for the boot of the trial, whatever came between.
    BootGap,
    /// Crash records are taken for new without a look at those known before.
    StaleRecord,
}

thread_local! {
    static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Switches a bug on for this thread, or all off.
pub(crate) fn switch(bug: Option<Bug>) {
    BUG.set(bug);
}

/// Whether `bug` is on in this thread.
pub(crate) fn is_on(bug: Bug) -> bool {
    BUG.get() == Some(bug)
}
