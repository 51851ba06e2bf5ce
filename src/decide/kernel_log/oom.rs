//! One out-of-memory kill, one finding.
//!
//! A kill leaves up to three lines: a summary (since 4.19) or a choice (before 5.0), the kill, and the reaper's. They
//! are joined by pid, except that the choice of an old kernel may fall on a child of the process it names.

use crate::model::kernel_log::KernelFinding;

/// The rule of lines that name the process or the parent of the process that will be killed.
const CHOICE: &str = "oom-chosen";
/// The rule of lines that say which it was.
const BARE_KILL: &str = "oom-killed-bare";

/// Whether `next` only adds to one of `kills`, oldest first, which then holds what it adds.
pub(super) fn absorbed<'a>(
    kills: impl DoubleEndedIterator<Item = &'a mut KernelFinding>,
    next: &KernelFinding,
) -> bool {
    let mut newest = true;
    for kill in kills.rev() {
        let child_of_choice = newest && kill.rule == CHOICE && next.rule == BARE_KILL;
        if child_of_choice || (kill.detail.pid == next.detail.pid && kill.detail.pid.is_some()) {
            add(kill, next);
            return true;
        }
        newest = false;
    }
    false
}

fn add(kill: &mut KernelFinding, next: &KernelFinding) {
    kill.detail.pid = next.detail.pid;
    kill.detail.task = next.detail.task.clone();
    if kill.rule == CHOICE {
        kill.rule = next.rule.clone();
        kill.text = next.text.clone();
    }
    let more = &next.detail;
    kill.detail.scope = more.scope.or(kill.detail.scope);
    kill.detail.cgroup = more.cgroup.clone().or(kill.detail.cgroup.take());
}
