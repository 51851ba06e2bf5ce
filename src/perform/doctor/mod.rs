//! The checks that `doctor` makes of a machine without touching a GPU, and the child that touches it.
//!
//! Owns what is looked at and what mends it. Reads only; the processes that it starts end with it.

mod here;

mod logs;

mod faults;

mod board;

use std::path::Path;
use std::time::Duration;

use crate::model::evidence::Fact;
use crate::model::fitness::{Check, CheckState, GpuFailure, GpuReport};
use crate::perform::host::{Sysroot, run_briefly};

/// Name of the hidden subcommand that examines the GPU.
pub const GPU_CHECK_SUBCOMMAND: &str = "__gpu_check";

/// How long the examination of a GPU may take; compiling all PTX takes some seconds on an Orin.
const GPU_PATIENCE: Duration = Duration::from_secs(120);

/// Looks at the machine under `sysroot` and at the directory `results`, which need not be there yet.
pub fn checks(sysroot: &Sysroot, results: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    if sysroot.is_live() {
        checks.extend(here::checks(results));
    }
    checks.push(boot_id_check(sysroot));
    checks.extend(logs::checks(sysroot));
    checks.extend(faults::checks(sysroot));
    checks.extend(board::checks(sysroot));
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

#[cfg(test)]
mod tests {
    use super::*;

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
