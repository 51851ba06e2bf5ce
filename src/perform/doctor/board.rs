//! Checks of the board: whether its GPU is alive after what came before, how many tries its boot slots have left,
//! whether its packages belong together.

use super::{Check, CheckState, Fact, Sysroot};
use crate::decide::gate::BootSlots;
use crate::perform::evidence::{boot_slots, kernel_log};

/// Device nodes of nvgpu, and one that is there only once the GPU was powered on.
const NVGPU: &str = "dev/nvgpu/igpu0";
const CONTROL: &str = "ctrl";

/// Lines of a kernel log that say that a GPU does not work until power was cut.
const DEAD: [&str; 3] = ["ACR bootstrap failed", "GPU has fallen off the bus", "Failed initialization for: g->ops.acr"];

pub(super) fn checks(sysroot: &Sysroot) -> Vec<Check> {
    let mut checks = vec![nodes_check(sysroot)];
    checks.extend([health_check(sysroot), slots_check(sysroot), packages_check(sysroot)].into_iter().flatten());
    checks
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

/// Whether the GPU came up in this boot; nothing where there is none. A reset does not always revive one, cutting the
/// power does.
fn health_check(sysroot: &Sysroot) -> Option<Check> {
    const NAME: &str = "gpu-health";
    if !sysroot.has_gpu_nodes() {
        return None;
    }
    let log = sysroot.boot_id().ok().map_or(Fact::Absent, |boot| kernel_log(sysroot, &boot));
    let log = log.known().map(|log| String::from_utf8_lossy(log).into_owned()).unwrap_or_default();
    let dead = log.lines().filter(|line| DEAD.iter().any(|words| line.contains(words))).count();
    if dead > 0 {
        let finding = format!("the GPU failed to start or was lost in this boot: {dead} lines of the kernel say so");
        return Some(Check::bad(
            NAME,
            CheckState::Failure,
            finding,
            "sudo poweroff, then cut the power for ten seconds",
        ));
    }
    if sysroot.exists(NVGPU) && !sysroot.exists(&format!("{NVGPU}/{CONTROL}")) {
        let finding = "the GPU was not powered on yet in this boot, or failed to";
        return Some(Check::bad(
            NAME,
            CheckState::Warning,
            finding,
            "jetfault doctor --gpu    (it uses the GPU, so no cold trial comes after it in this boot)",
        ));
    }
    Some(Check::ok(NAME, "nothing in this boot says that the GPU failed"))
}

/// Tries that the A/B slots have left; nothing where no UEFI of NVIDIA counts them. A slot without tries does not boot,
/// and some boards then need to be flashed.
fn slots_check(sysroot: &Sysroot) -> Option<Check> {
    const NAME: &str = "boot-slots";
    const MENDING: &str = "sudo systemctl restart nv-l4t-bootloader-config.service, then look again";
    let slots = boot_slots(sysroot);
    if let Some((slot, left, most)) = slots.low() {
        let finding = format!(
            "slot {slot} has {left} of {most} tries left: every reset may use one up, and a slot without tries does not boot"
        );
        return Some(Check::bad(NAME, CheckState::Failure, finding, MENDING));
    }
    let BootSlots { most, a, b } = slots;
    match (most, a, b) {
        (Fact::Known(most), Fact::Known(_), Fact::Known(_)) => {
            Some(Check::ok(NAME, format!("both boot slots have {most} of {most} tries left")))
        }
        (Fact::Absent, _, _) => None,
        (max, a, b) => {
            let why = [max, a, b].into_iter().find_map(|count| match count {
                Fact::Denied(why) | Fact::Garbled(why) => Some(why),
                Fact::Known(_) | Fact::Absent => None,
            });
            let finding =
                format!("cannot tell the tries of the boot slots: {}", why.as_deref().unwrap_or("one is not there"));
            Some(Check::bad(NAME, CheckState::Warning, finding, "sudo nvbootctrl dump-slots-info"))
        }
    }
}

/// Whether all packages of Jetson Linux are of one release; nothing where there are none.
fn packages_check(sysroot: &Sysroot) -> Option<Check> {
    const NAME: &str = "l4t-packages";
    let stamps = sysroot.l4t_packages().known()?.clone();
    Some(match &stamps[..] {
        [one] => Check::ok(NAME, format!("all packages nvidia-l4t-* are of {one}")),
        several => {
            let finding = format!("packages nvidia-l4t-* are of several releases: {}", several.join(", "));
            Check::bad(
                NAME,
                CheckState::Warning,
                finding,
                "sudo apt update && sudo apt install --only-upgrade 'nvidia-l4t-*'",
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::boards::assemble;

    fn check(board: &str, scenario: Option<&str>, check: fn(&Sysroot) -> Option<Check>) -> Option<CheckState> {
        let tree = assemble(board, scenario);
        check(&Sysroot::new(tree.path().to_path_buf())).map(|check| check.state)
    }

    #[test]
    fn a_gpu_that_did_not_come_up_makes_a_machine_unfit() {
        assert_eq!(check("orin-nano-super-jp62", None, health_check), Some(CheckState::Ok));
        assert_eq!(check("orin-nano-super-jp62", Some("gpu-acr-dead"), health_check), Some(CheckState::Failure));
        assert_eq!(check("x86-pc", None, health_check), Some(CheckState::Ok));
    }

    #[test]
    fn a_slot_that_lost_a_try_makes_a_machine_unfit() {
        assert_eq!(check("orin-nano-super-jp62", None, slots_check), Some(CheckState::Ok));
        assert_eq!(check("orin-nano-super-jp62", Some("retry-counter-low"), slots_check), Some(CheckState::Failure));
        assert_eq!(check("x86-pc", None, slots_check), None);
    }

    #[test]
    fn a_mixture_of_packages_is_warned_of() {
        let tree = assemble("thor-jp7", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        assert_eq!(packages_check(&sysroot).map(|check| check.state), Some(CheckState::Ok));
        let listing = "installed 38.4.0-20251230160601\ninstalled 38.2.0-20250821174705\n";
        std::fs::write(tree.path().join("cmd/dpkg-query-nvidia-l4t.txt"), listing).unwrap();
        assert_eq!(packages_check(&sysroot).map(|check| check.state), Some(CheckState::Warning));
    }
}
