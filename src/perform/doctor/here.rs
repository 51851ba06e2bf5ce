//! Checks of what only this process on this machine can tell: its disk, its rights.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::existing;
use crate::model::fitness::{Check, CheckState};
use crate::model::journal::Persistence;
use crate::perform::persistence::persistence;

/// With less free space than this no run is begun: a journal that cannot grow stops a run.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// With less free space than this a long run may not end.
const FREE_BYTES_FEW: u64 = 1 << 30;

/// `CAP_SYS_RESOURCE` in `linux/capability.h`: lowering one's own `oom_score_adj` needs it.
const CAP_SYS_RESOURCE: u32 = 24;

/// Device nodes that a workload opens; on Jetsons they belong to the group `video`.
const GPU_NODES: [&str; 3] = ["/dev/nvmap", "/dev/nvhost-gpu", "/dev/nvidiactl"];

/// The checks, of the directory `results` among others.
pub(super) fn checks(results: &Path) -> Vec<Check> {
    let mut checks = vec![results_check(results), space_check(results), oom_check(), kernel_log_check()];
    checks.extend(gpu_access_check());
    checks
}

fn results_check(results: &Path) -> Check {
    const NAME: &str = "results-directory";
    let place = results.display();
    match persistence(existing(results)) {
        Persistence::Persistent => Check::ok(NAME, format!("{place} is on a disk")),
        Persistence::Unproven => {
            let finding = format!("{place}: nothing proves that it survives a reboot");
            Check::bad(NAME, CheckState::Warning, finding, "--results DIR with a directory on a disk of this machine")
        }
        Persistence::Volatile => {
            let finding = format!("{place} is in memory, and a reboot takes it");
            Check::bad(NAME, CheckState::Failure, finding, "--results DIR with a directory on a disk")
        }
    }
}

fn space_check(results: &Path) -> Check {
    const NAME: &str = "free-space";
    let free = match statvfs(existing(results)) {
        Ok(status) => status.f_bavail * status.f_frsize,
        Err(error) => {
            let finding = format!("cannot tell the free space of {}: {error}", results.display());
            return Check::bad(NAME, CheckState::Warning, finding, format!("df -h {}", results.display()));
        }
    };
    let finding = format!("{} MB are free in {}", free / 1_000_000, results.display());
    let mending = "free some space, or --results DIR on another disk";
    match free {
        0..FREE_BYTES_MIN => Check::bad(NAME, CheckState::Failure, finding, mending),
        FREE_BYTES_MIN..FREE_BYTES_FEW => Check::bad(NAME, CheckState::Warning, finding, mending),
        _ => Check::ok(NAME, finding),
    }
}

fn oom_check() -> Check {
    const NAME: &str = "oom-protection";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if has_capability(&status, CAP_SYS_RESOURCE) {
        return Check::ok(NAME, "the harness can protect itself when memory runs out");
    }
    let finding = "the kernel may end the harness instead of a trial when memory runs out";
    Check::bad(NAME, CheckState::Warning, finding, "run it with sudo; trials keep the user who typed the command")
}

/// Whether `/proc/PID/status` has a capability among the effective ones, proc_pid_status(5).
fn has_capability(status: &str, capability: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> capability & 1 == 1)
}

/// Whether the kernel's log can be written: each trial leaves its mark there, and only lines after it count.
fn kernel_log_check() -> Check {
    const NAME: &str = "kernel-log-marks";
    match access("/dev/kmsg", Access::WRITE_OK) {
        Ok(()) => Check::ok(NAME, "trials can leave their marks in the kernel's log"),
        Err(error) => {
            let finding = format!("/dev/kmsg cannot be written ({error}): kernel lines are told apart by time alone");
            Check::bad(
                NAME,
                CheckState::Warning,
                finding,
                "run it with sudo; trials keep the user who typed the command",
            )
        }
    }
}

/// Whether this user may use the GPU that is there; nothing where there is none.
fn gpu_access_check() -> Option<Check> {
    const NAME: &str = "gpu-access";
    let nodes: Vec<&str> = GPU_NODES.into_iter().filter(|node| Path::new(node).exists()).collect();
    let refused = nodes.iter().find(|node| access(**node, Access::READ_OK | Access::WRITE_OK).is_err());
    match (nodes.is_empty(), refused) {
        (true, _) => None,
        (false, None) => Some(Check::ok(NAME, "this user may open the GPU's device nodes")),
        (false, Some(node)) => {
            let finding = format!("this user may not open {node}: workloads fail with permission errors");
            let mending = "sudo usermod -aG video $USER && newgrp video";
            Some(Check::bad(NAME, CheckState::Failure, finding, mending))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_read_from_the_effective_ones() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000001000000\n";
        assert!(has_capability(status, CAP_SYS_RESOURCE));
        assert!(!has_capability(status, 23));
        assert!(!has_capability("CapEff:\tx\n", CAP_SYS_RESOURCE));
        assert!(!has_capability("", CAP_SYS_RESOURCE));
    }
}
