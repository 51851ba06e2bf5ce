//! A control group of a trial's own that limits its memory (`memory_max`).
//!
//! It is made below the root group, where root may make groups whoever manages the rest, holds the trial's processes
//! alone, and goes with the trial. Version 2 of control groups where it controls memory, else version 1 (JetPack 5).

use std::fs;
use std::path::{Path, PathBuf};

use crate::perform::host::Sysroot;

/// The group of one trial. Dropped it is removed; the trial's processes are gone by then.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    dir: PathBuf,
    /// The file that counts kills, relative to the root of the machine.
    counters: String,
}

/// Where groups are, which file limits memory there, and which counts.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("sys/fs/cgroup", "memory.max", "memory.events"),
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
];

impl MemoryGroup {
    /// Makes a group called `name` whose processes get `limit` bytes together.
    ///
    /// # Errors
    /// In words, if this machine does not let us.
    pub(super) fn make(sysroot: &Sysroot, name: &str, limit: u64) -> Result<Self, String> {
        let mut refused = String::from("no control groups are mounted");
        for (root, limiting, counting) in VERSIONS {
            let parent = sysroot.place(root);
            if !parent.join("cgroup.procs").exists() {
                continue;
            }
            // Only version 2 has it; without the right to it, the group shows no limit and is refused below.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
            let group = Self { dir: parent.join(name), counters: format!("{root}/{name}/{counting}") };
            match group.limit(limiting, limit) {
                Ok(()) => return Ok(group),
                Err(why) => refused = why,
            }
        }
        Err(format!("the trial's memory cannot be limited (memory_max): {refused}"))
    }

    fn limit(&self, limiting: &str, limit: u64) -> Result<(), String> {
        let words = |path: &Path| {
            let path = path.display().to_string();
            move |error| format!("{path}: {error}")
        };
        if !self.dir.is_dir() {
            fs::create_dir(&self.dir).map_err(words(&self.dir))?;
        }
        let file = self.dir.join(limiting);
        if !file.exists() {
            return Err(format!("{} is not there: memory is not controlled", file.display()));
        }
        fs::write(&file, limit.to_string()).map_err(words(&file))
    }

    /// The file into which a process id is written to put the process into the group.
    pub(super) fn entrance(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The file that counts kills, relative to the root of the machine.
    pub(super) fn counters(&self) -> &str {
        &self.counters
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // One that is not empty holds what survived SIGKILL; it shows that, and limits nobody else.
        let _ = fs::remove_dir(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_controls_no_memory_says_so() {
        let tree = tempfile::tempdir().unwrap();
        let sysroot = Sysroot::new(tree.path().to_owned());
        let why = MemoryGroup::make(&sysroot, "jetfault-x", 1 << 20).unwrap_err();
        assert!(why.contains("no control groups are mounted"), "{why}");
        let root = tree.path().join("sys/fs/cgroup");
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("cgroup.procs"), "").unwrap();
        let why = MemoryGroup::make(&sysroot, "jetfault-x", 1 << 20).unwrap_err();
        assert!(why.contains("memory.max is not there"), "{why}");
    }
}
