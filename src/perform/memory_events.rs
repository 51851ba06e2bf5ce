//! Counters of the out-of-memory killer: of our own control group, and of the whole machine.
//!
//! They tell that somebody was killed, and not who: evidence beside the kernel's line, or in its place.

use crate::model::evidence::Fact;
use crate::model::outcome::MemoryEvents;
use crate::perform::host::Sysroot;

/// The counters when a trial began.
#[derive(Debug)]
pub(super) struct MemoryCounters {
    group: Fact<Group>,
    /// Whether the group was made for the trial, so that all that it counts is the trial's.
    is_own: bool,
    before: Fact<MemoryEvents>,
    machine_before: Fact<u64>,
}

/// The file of our control group that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    /// Relative to the root of the machine.
    file: String,
}

impl MemoryCounters {
    /// Reads the counters. The children are in our own control group, and so are counted in it.
    pub(super) fn begin(sysroot: &Sysroot) -> Self {
        let group = sysroot.text("proc/self/cgroup").and_then(|groups| group_of(sysroot, &groups));
        let before = group_events(sysroot, &group);
        Self { group, is_own: false, before, machine_before: machine_kills(sysroot) }
    }

    /// Reads the counters of a trial whose processes have a group of their own, with the counting file `file`.
    pub(super) fn begin_in(sysroot: &Sysroot, file: &str) -> Self {
        let group = Fact::Known(Group { file: file.to_owned() });
        let before = group_events(sysroot, &group);
        Self { group, is_own: true, before, machine_before: machine_kills(sysroot) }
    }

    /// By how much our control group's counters grew since.
    pub(super) fn group_growth(&self, sysroot: &Sysroot) -> Fact<MemoryEvents> {
        let after = group_events(sysroot, &self.group);
        self.before.clone().and_then(|before| {
            after.and_then(|after| {
                let oom_kill = after.oom_kill.saturating_sub(before.oom_kill);
                let oom = match after.oom.saturating_sub(before.oom) {
                    0 if self.is_own && oom_kill > 0 => self.limits_reached(sysroot),
                    oom => oom,
                };
                Fact::Known(MemoryEvents { oom, oom_kill })
            })
        })
    }

    /// How often a group of version 1 reached its limit since it was made.
    fn limits_reached(&self, sysroot: &Sysroot) -> u64 {
        let Some(group) = self.group.known() else { return 0 };
        let file = group.file.replace("memory.oom_control", "memory.failcnt");
        sysroot.text(&file).known().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// How many processes of the whole machine were killed since.
    pub(super) fn machine_growth(&self, sysroot: &Sysroot) -> Fact<u64> {
        let after = machine_kills(sysroot);
        self.machine_before.clone().and_then(|before| after.and_then(|after| Fact::Known(after.saturating_sub(before))))
    }
}

/// The counting file of the group that `/proc/self/cgroup` names, cgroups(7): of version 2 where it controls memory,
/// else of version 1, which JetPack 5 still mounts.
fn group_of(sysroot: &Sysroot, groups: &str) -> Fact<Group> {
    let path_of = |controller: &str| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|known| known == controller).then_some(path)
        })
    };
    let unified = path_of("").map(|path| format!("sys/fs/cgroup{path}/memory.events"));
    let legacy = path_of("memory").map(|path| format!("sys/fs/cgroup/memory{path}/memory.oom_control"));
    let there = |file: &String| sysroot.text(file) != Fact::Absent;
    let file = [unified, legacy].into_iter().flatten().map(|file| file.replace("//", "/")).find(there);
    file.map_or(Fact::Absent, |file| Fact::Known(Group { file }))
}

fn group_events(sysroot: &Sysroot, group: &Fact<Group>) -> Fact<MemoryEvents> {
    group.clone().and_then(|group| {
        sysroot.text(&group.file).and_then(|text| match counter(&text, "oom_kill") {
            // Version 1 counts limits that were reached in a file of its own.
            Some(oom_kill) => Fact::Known(MemoryEvents { oom: counter(&text, "oom").unwrap_or(0), oom_kill }),
            // A kernel before 4.13.
            None => Fact::Absent,
        })
    })
}

/// `oom_kill` of `/proc/vmstat`, which kernels before 4.13 do not have.
fn machine_kills(sysroot: &Sysroot) -> Fact<u64> {
    sysroot.text("proc/vmstat").and_then(|text| counter(&text, "oom_kill").map_or(Fact::Absent, Fact::Known))
}

fn counter(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(cgroup: &str) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            tree.write("proc/self/cgroup", cgroup);
            tree
        }

        fn write(&self, relative: &str, text: &str) {
            let path = self.0.path().join(relative);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn sysroot(&self) -> Sysroot {
            Sysroot::new(self.0.path().to_owned())
        }
    }

    const USER: &str = "/user.slice/user-1000.slice/session-2.scope";

    #[test]
    fn growth_of_a_group_of_version_2_is_told_with_its_limit() {
        let tree = Tree::new(&format!("0::{USER}\n"));
        let events = format!("sys/fs/cgroup{USER}/memory.events");
        tree.write(&events, "low 0\nhigh 7\nmax 12\noom 1\noom_kill 3\noom_group_kill 0\n");
        let counters = MemoryCounters::begin(&tree.sysroot());
        assert_eq!(counters.group_growth(&tree.sysroot()), Fact::Known(MemoryEvents::default()));
        tree.write(&events, "low 0\nhigh 7\nmax 99\noom 2\noom_kill 5\noom_group_kill 0\n");
        assert_eq!(counters.group_growth(&tree.sysroot()), Fact::Known(MemoryEvents { oom: 1, oom_kill: 2 }));
    }

    #[test]
    fn a_machine_with_both_versions_counts_where_memory_is_controlled() {
        let tree = Tree::new(&format!("9:name=systemd:{USER}\n4:cpuset,memory:{USER}\n0::{USER}\n"));
        let control = format!("sys/fs/cgroup/memory{USER}/memory.oom_control");
        tree.write(&control, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        let counters = MemoryCounters::begin(&tree.sysroot());
        tree.write(&control, "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
        assert_eq!(counters.group_growth(&tree.sysroot()), Fact::Known(MemoryEvents { oom: 0, oom_kill: 1 }));
    }

    #[test]
    fn the_root_group_of_version_2_counts_nothing_and_the_machine_does() {
        let tree = Tree::new("0::/\n");
        tree.write("proc/vmstat", "nr_free_pages 7\noom_kill 3\n");
        let counters = MemoryCounters::begin(&tree.sysroot());
        tree.write("proc/vmstat", "nr_free_pages 9\noom_kill 4\n");
        assert_eq!(counters.group_growth(&tree.sysroot()), Fact::Absent);
        assert_eq!(counters.machine_growth(&tree.sysroot()), Fact::Known(1));
    }

    #[test]
    fn a_kernel_that_counts_no_kills_says_nothing() {
        let tree = Tree::new("4:memory:/\n");
        tree.write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
        tree.write("proc/vmstat", "nr_free_pages 7\n");
        let counters = MemoryCounters::begin(&tree.sysroot());
        assert_eq!(counters.group_growth(&tree.sysroot()), Fact::Absent);
        assert_eq!(counters.machine_growth(&tree.sysroot()), Fact::Absent);
        let nothing = tempfile::tempdir().unwrap();
        let counters = MemoryCounters::begin(&Sysroot::new(nothing.path().to_owned()));
        assert_eq!(counters.group_growth(&Sysroot::new(nothing.path().to_owned())), Fact::Absent);
    }
}
