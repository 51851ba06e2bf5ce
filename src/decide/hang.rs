//! What a child that ran out of time was doing, from two looks at every thread of the trial.
//!
//! A labelled table like those of verdicts: exactly one row matches every combination of facts.

use std::collections::BTreeMap;

use crate::model::hang::{Hang, HangKind, HungThreads, KERNEL_FRAMES_MAX, THREAD_KINDS_MAX};

/// One thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadLook {
    /// Its id, which is unique on the machine.
    pub tid: u32,
    /// Its name, which the kernel cuts to 15 bytes.
    pub name: String,
    /// One letter of `/proc/PID/stat`: `R`, `S`, `D` and so on.
    pub state: char,
    /// The kernel function in which it waits; empty where it does not wait, or nobody may know.
    pub wchan: String,
    /// Processor time so far, in milliseconds.
    pub cpu_ms: u64,
    /// The kernel functions in which it is, innermost first; why they could not be read.
    pub kernel_stack: Result<Vec<String>, String>,
}

/// Both looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looks {
    /// The first.
    pub before: Vec<ThreadLook>,
    /// The second.
    pub after: Vec<ThreadLook>,
    /// Milliseconds between them.
    pub apart_ms: u64,
    /// Whether a stage was reached between them.
    pub stages: Stages,
}

/// Whether the trial's stages moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stages {
    /// Another stage was reached.
    Moved,
    /// The same stage lasted.
    Still,
}

/// What one thread did between the looks, the most telling of all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// One was in uninterruptible sleep both times and used no processor.
    Uninterruptible,
    /// One was running both times and used the processor.
    Running,
    /// Neither.
    Neither,
}

/// How much processor time all threads together used between the looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpu {
    /// Enough for something to go on: at least one part in [`WORKING_PART`] of one core.
    Working,
    /// Less: what watching the clock takes.
    Idle,
}

/// The part of one core that a child uses at least while something goes on in it.
pub const WORKING_PART: u64 = 20;

/// One row: the facts it matches and the kind it gives.
#[derive(Debug)]
pub struct HangRule {
    /// Matching values of the stages.
    pub stages: &'static [Stages],
    /// Matching values of the most telling thread.
    pub thread: &'static [Thread],
    /// Matching values of the processor time.
    pub cpu: &'static [Cpu],
    /// The kind.
    pub kind: HangKind,
    /// Why, in one line.
    pub because: &'static str,
}

const ANY_THREAD: &[Thread] = &[Thread::Uninterruptible, Thread::Running, Thread::Neither];
const ANY_CPU: &[Cpu] = &[Cpu::Working, Cpu::Idle];

const fn row(
    columns: (&'static [Stages], &'static [Thread], &'static [Cpu]),
    kind: HangKind,
    because: &'static str,
) -> HangRule {
    HangRule { stages: columns.0, thread: columns.1, cpu: columns.2, kind, because }
}

/// The table.
#[rustfmt::skip]
pub const HANG_RULES: &[HangRule] = &[
    row((&[Stages::Moved], ANY_THREAD, ANY_CPU), HangKind::AliveOverTime, "it still went from stage to stage"),
    row((&[Stages::Still], &[Thread::Uninterruptible], ANY_CPU), HangKind::DState, "a thread waits in the kernel and cannot be interrupted"),
    row((&[Stages::Still], &[Thread::Running], ANY_CPU), HangKind::Spinning, "a thread runs without reaching another stage"),
    row((&[Stages::Still], &[Thread::Neither], &[Cpu::Working]), HangKind::AliveOverTime, "it works now and then"),
    row((&[Stages::Still], &[Thread::Neither], &[Cpu::Idle]), HangKind::Blocked, "every thread waits"),
];

impl HangRule {
    fn matches(&self, (stages, thread, cpu): (Stages, Thread, Cpu)) -> bool {
        self.stages.contains(&stages) && self.thread.contains(&thread) && self.cpu.contains(&cpu)
    }
}

/// What the child did.
pub fn hang_of(looks: &Looks) -> Hang {
    let before: BTreeMap<u32, &ThreadLook> = looks.before.iter().map(|look| (look.tid, look)).collect();
    let mut thread = Thread::Neither;
    let mut cpu_ms = 0;
    for after in &looks.after {
        let first = before.get(&after.tid);
        let used = after.cpu_ms.saturating_sub(first.map_or(0, |first| first.cpu_ms));
        cpu_ms += used;
        thread = match (first.map(|first| first.state), after.state, used) {
            (Some('D'), 'D', 0) => Thread::Uninterruptible,
            (Some('R'), 'R', 1..) if thread == Thread::Neither => Thread::Running,
            _ => thread,
        };
    }
    let cpu = if cpu_ms.saturating_mul(WORKING_PART) >= looks.apart_ms.max(1) { Cpu::Working } else { Cpu::Idle };
    let facts = (looks.stages, thread, cpu);
    let rule = HANG_RULES.iter().find(|rule| rule.matches(facts)).expect("a test shows that one row matches");
    let denied = looks.after.iter().find_map(|look| look.kernel_stack.as_ref().err());
    Hang {
        kind: rule.kind,
        cpu_ms,
        apart_ms: looks.apart_ms,
        kernel_stacks_denied: denied.cloned(),
        threads: alike(&looks.after),
    }
}

/// The functions in the text of `/proc/PID/task/TID/stack`, innermost first: `[<0>] futex_wait_queue+0x5d/0x90`.
pub fn kernel_stack(text: &str) -> Vec<String> {
    let function = |line: &str| {
        let symbol = line.split(']').nth(1)?.trim();
        let name = symbol.split(['+', ' ']).next().filter(|name| !name.is_empty())?;
        Some(name.to_owned())
    };
    text.lines().filter_map(function).take(KERNEL_FRAMES_MAX).collect()
}

/// Threads in the same state at the same place, the most telling kind first.
fn alike(threads: &[ThreadLook]) -> Vec<HungThreads> {
    let mut kinds: Vec<HungThreads> = Vec::new();
    for thread in threads {
        let same = |kind: &&mut HungThreads| {
            kind.state == thread.state && kind.wchan == thread.wchan && kind.name == thread.name
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.count += 1,
            None => kinds.push(HungThreads {
                state: thread.state,
                wchan: thread.wchan.clone(),
                name: thread.name.clone(),
                kernel_stack: thread.kernel_stack.clone().unwrap_or_default(),
                count: 1,
            }),
        }
    }
    let telling = |state: char| "DRS".find(state).unwrap_or(usize::MAX);
    kinds.sort_by_key(|kind| (telling(kind.state), std::cmp::Reverse(kind.count)));
    kinds.truncate(THREAD_KINDS_MAX);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_row_matches_every_combination_of_facts() {
        for stages in [Stages::Moved, Stages::Still] {
            for &thread in ANY_THREAD {
                for &cpu in ANY_CPU {
                    let rows = HANG_RULES.iter().filter(|rule| rule.matches((stages, thread, cpu))).count();
                    assert_eq!(rows, 1, "{stages:?} {thread:?} {cpu:?}");
                }
            }
        }
    }

    fn look(tid: u32, state: char, cpu_ms: u64) -> ThreadLook {
        let wchan = match state {
            'S' => "futex_wait_queue",
            'D' => "nvgpu_channel_close",
            _ => "",
        };
        let kernel_stack = Ok(vec![wchan.to_owned()]);
        ThreadLook { tid, name: "python3".into(), state, wchan: wchan.into(), cpu_ms, kernel_stack }
    }

    #[track_caller]
    fn check(before: &[ThreadLook], after: &[ThreadLook], expected: HangKind) {
        let looks = Looks { before: before.to_vec(), after: after.to_vec(), apart_ms: 1000, stages: Stages::Still };
        assert_eq!(hang_of(&looks).kind, expected, "{looks:?}");
        let moved = Looks { stages: Stages::Moved, ..looks };
        assert_eq!(hang_of(&moved).kind, HangKind::AliveOverTime, "{moved:?}");
    }

    #[test]
    fn kinds_are_told_by_what_threads_did_between_two_looks() {
        let beat = |at| look(2, 'S', at);
        check(&[look(1, 'S', 700), beat(10)], &[look(1, 'S', 700), beat(20)], HangKind::Blocked);
        check(&[look(1, 'R', 700), beat(10)], &[look(1, 'R', 1690), beat(20)], HangKind::Spinning);
        // On a busy machine a spinning thread gets little.
        check(&[look(1, 'R', 700)], &[look(1, 'R', 740)], HangKind::Spinning);
        check(&[look(1, 'D', 700)], &[look(1, 'D', 700)], HangKind::DState);
        // The one that waits in the kernel is the cause, whoever polls for it.
        check(&[look(1, 'R', 0), look(2, 'D', 5)], &[look(1, 'R', 900), look(2, 'D', 5)], HangKind::DState);
        check(&[look(2, 'D', 5), look(3, 'R', 0)], &[look(2, 'D', 5), look(3, 'R', 900)], HangKind::DState);
        // Reading from a disk is uninterruptible too, and goes on.
        check(&[look(1, 'D', 700)], &[look(1, 'D', 780)], HangKind::AliveOverTime);
        check(&[look(1, 'R', 700)], &[look(1, 'S', 1100)], HangKind::AliveOverTime);
        check(&[look(1, 'S', 700)], &[look(1, 'S', 750)], HangKind::AliveOverTime);
        // A thread that came in between is work.
        check(&[look(1, 'S', 700)], &[look(1, 'S', 700), look(9, 'R', 400)], HangKind::AliveOverTime);
    }

    #[test]
    fn nothing_to_look_at_is_no_progress() {
        check(&[], &[], HangKind::Blocked);
    }

    #[test]
    fn threads_that_do_the_same_are_counted_and_the_most_telling_come_first() {
        let after = [look(1, 'S', 0), look(2, 'S', 0), look(3, 'R', 5), look(4, 'D', 0), look(5, 'Z', 0)];
        let looks = Looks { before: Vec::new(), after: after.to_vec(), apart_ms: 1000, stages: Stages::Still };
        let hang = hang_of(&looks);
        let kinds: Vec<_> = hang.threads.iter().map(|kind| (kind.state, kind.count, kind.wchan.as_str())).collect();
        assert_eq!(kinds, [('D', 1, "nvgpu_channel_close"), ('R', 1, ""), ('S', 2, "futex_wait_queue"), ('Z', 1, "")]);
    }
    #[test]
    fn a_kernel_stack_is_its_functions_and_one_that_may_not_be_read_says_so() {
        // Constructed, in the form of Linux 5.15.
        let text = "[<0>] nvgpu_cond_wait+0x12c/0x1d0 [nvgpu]\n[<0>] gk20a_channel_ioctl+0x8/0x20\n\n";
        assert_eq!(kernel_stack(text), ["nvgpu_cond_wait", "gk20a_channel_ioctl"]);
        assert_eq!(kernel_stack("x\n[<0>] \n"), Vec::<String>::new());
        let denied = ThreadLook { kernel_stack: Err("Permission denied".into()), ..look(1, 'S', 0) };
        let looks = Looks { before: Vec::new(), after: vec![denied], apart_ms: 1000, stages: Stages::Still };
        assert_eq!(hang_of(&looks).kernel_stacks_denied.as_deref(), Some("Permission denied"));
    }
}
