//! The checks that `doctor` makes of a machine without touching a GPU, and the child that touches it.
//!
//! Owns what is looked at and what mends it. Reads only; the one process that it starts ends with it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::fs::statvfs;

use crate::model::evidence::Fact;
use crate::model::fitness::{Check, CheckState, GpuFailure, GpuReport};
use crate::model::journal::Persistence;
use crate::perform::evidence::read_boots;
use crate::perform::host::{Sysroot, run_briefly};
use crate::perform::persistence::persistence;

/// Name of the hidden subcommand that examines the GPU.
pub const GPU_CHECK_SUBCOMMAND: &str = "__gpu_check";

/// How long the examination of a GPU may take; compiling all PTX takes some seconds on an Orin.
const GPU_PATIENCE: Duration = Duration::from_secs(120);

/// With less free space than this no run is begun: a journal that cannot grow stops a run.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// With less free space than this a long run may not end.
const FREE_BYTES_FEW: u64 = 1 << 30;

/// `CAP_SYS_RESOURCE` in `linux/capability.h`: lowering one's own `oom_score_adj` needs it.
const CAP_SYS_RESOURCE: u32 = 24;

/// Looks at the machine under `sysroot` and at the directory `results`, which need not be there yet.
pub fn checks(sysroot: &Sysroot, results: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    if sysroot.is_live() {
        checks.extend([results_check(results), space_check(results), oom_check()]);
    }
    checks.extend([boot_id_check(sysroot), boots_check(sysroot), nodes_check(sysroot)]);
    checks
}

/// Has a child of the program `harness` launch every kernel. A child that crashes or hangs is a finding.
pub fn examine_gpu(harness: &Path) -> GpuReport {
    let answer = run_briefly(&harness.to_string_lossy(), &[GPU_CHECK_SUBCOMMAND], GPU_PATIENCE);
    let failed = |text: String| GpuReport::Failed(GpuFailure { detail: None, call: None, code: None, text });
    match answer {
        Fact::Known(text) => serde_json::from_str(&text)
            .unwrap_or_else(|error| failed(format!("the child that examined the GPU made no sense: {error}"))),
        Fact::Absent => failed("the child that examines the GPU cannot be started".into()),
        Fact::Denied(why) | Fact::Garbled(why) => failed(format!("the child that examined the GPU died: {why}")),
    }
}

/// The directory itself, or the nearest one above it that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."))
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

fn boot_id_check(sysroot: &Sysroot) -> Check {
    const NAME: &str = "boot-id";
    match sysroot.boot_id() {
        Ok(boot) => Check::ok(NAME, boot.to_string()),
        Err(error) => {
            let finding = format!("{error}: a reboot could not be told from a restart");
            Check::bad(NAME, CheckState::Failure, finding, "mount -t proc proc /proc")
        }
    }
}

fn boots_check(sysroot: &Sysroot) -> Check {
    const NAME: &str = "list-of-boots";
    const MENDING: &str = "sudo mkdir -p /var/log/journal && sudo systemctl restart systemd-journald";
    let (boots, why) = match read_boots(sysroot) {
        Fact::Known(boots) => (boots.len(), String::new()),
        Fact::Absent => (0, "journalctl lists no boots".to_owned()),
        Fact::Denied(why) => (0, format!("journalctl cannot list boots: {why}")),
        Fact::Garbled(line) => (0, format!("journalctl lists boots as {line:?}")),
    };
    match boots {
        0 => Check::bad(NAME, CheckState::Warning, why, MENDING),
        1 => {
            let finding = "the system journal has one boot: it is new, or it does not survive a reboot";
            Check::bad(NAME, CheckState::Warning, finding, MENDING)
        }
        boots => Check::ok(NAME, format!("the system journal has {boots} boots")),
    }
}

fn nodes_check(sysroot: &Sysroot) -> Check {
    const NAME: &str = "gpu-nodes";
    if sysroot.has_gpu_nodes() {
        Check::ok(NAME, "a GPU's device nodes are there")
    } else {
        let finding = "no GPU's device nodes: backend = \"auto\" computes on the CPU";
        Check::bad(NAME, CheckState::Warning, finding, "install the NVIDIA driver, or give the container the GPU")
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

    #[test]
    fn a_tree_without_a_boot_id_is_unfit_and_says_what_mends_it() {
        let tree = tempfile::tempdir().unwrap();
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let checks = checks(&sysroot, Path::new("/nowhere"));
        let boot = checks.iter().find(|check| check.name == "boot-id").unwrap();
        assert_eq!(boot.state, CheckState::Failure);
        // A captured tree says nothing of the disk and the process that read it.
        assert!(checks.iter().all(|check| check.name != "free-space"), "{checks:?}");
        assert!(checks.iter().filter(|c| c.state != CheckState::Ok).all(|c| c.mending.is_some()), "{checks:?}");
    }

    #[test]
    fn a_child_that_cannot_examine_is_a_finding() {
        for program in ["/nowhere/jetfault", "/bin/false", "/bin/echo"] {
            let GpuReport::Failed(failure) = examine_gpu(Path::new(program)) else { panic!("{program}") };
            assert!(failure.text.starts_with("the child that exami"), "{}", failure.text);
        }
    }
}
