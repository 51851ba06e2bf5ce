//! Checks of what happens at a fault: whether a hang ends, what a panic does, where cores go, who may interfere.

use std::time::Duration;

use super::{Check, CheckState, Fact, Sysroot};
use crate::perform::host::{Command, Keep, Limit};

const WATCHDOGS: &str = "sys/class/watchdog";

/// Arms the watchdog by systemd (systemd-system.conf(5)).
const ARM: &str = "sudo mkdir -p /etc/systemd/system.conf.d && printf '[Manager]\\nRuntimeWatchdogSec=2min\\n' | sudo tee /etc/systemd/system.conf.d/watchdog.conf && sudo systemctl daemon-reexec";

pub(super) fn checks(sysroot: &Sysroot) -> Vec<Check> {
    let watchdog = Watchdog::read(sysroot);
    let mut checks = vec![watchdog.check(), panic_check(sysroot, &watchdog)];
    checks.extend([core_check(sysroot), upgrades_check(sysroot)].into_iter().flatten());
    checks
}

/// What ends a hang.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Watchdog {
    /// It is armed: by whom, in words.
    Armed(String),
    /// It is there and not armed.
    Idle(String),
    /// The kernel does not say whether it is.
    Unknown(String),
    /// There is none.
    None,
}

impl Watchdog {
    fn read(sysroot: &Sysroot) -> Self {
        let devices = match sysroot.devices(WATCHDOGS) {
            Fact::Known(devices) => devices,
            Fact::Absent => return Self::None,
            Fact::Denied(why) | Fact::Garbled(why) => return Self::Unknown(why),
        };
        let of = |device: &str, name: &str| sysroot.text(&format!("{WATCHDOGS}/{device}/{name}")).known().cloned();
        let mut idle = Self::None;
        for device in devices {
            let identity = of(&device, "identity").unwrap_or_else(|| device.clone());
            match of(&device, "state").as_deref() {
                Some("active") => {
                    let timeout = of(&device, "timeout").map_or_else(String::new, |seconds| format!(", {seconds} s"));
                    return Self::Armed(format!("{identity}{timeout}, {}", keeper(sysroot)));
                }
                Some(_) => idle = Self::Idle(identity),
                // A kernel without CONFIG_WATCHDOG_SYSFS.
                None => match keeper(sysroot) {
                    keeper if keeper == BY_SYSTEMD => return Self::Armed(format!("{identity}, {keeper}")),
                    _ => idle = Self::Unknown(format!("{identity} has no state in sysfs")),
                },
            }
        }
        idle
    }

    fn check(&self) -> Check {
        const NAME: &str = "watchdog";
        match self {
            Self::Armed(who) => Check::ok(NAME, format!("armed: {who}")),
            Self::Idle(identity) => {
                let finding =
                    format!("{identity} is not armed: a hang of the machine lasts until somebody cuts the power");
                Check::bad(NAME, CheckState::Warning, finding, ARM)
            }
            Self::Unknown(why) => {
                Check::bad(NAME, CheckState::Warning, format!("cannot tell whether it is armed: {why}"), ARM)
            }
            Self::None => {
                let finding = "there is none: a hang of the machine lasts until somebody cuts the power";
                Check::bad(NAME, CheckState::Warning, finding, format!("sudo modprobe softdog && {ARM}"))
            }
        }
    }
}

const BY_SYSTEMD: &str = "kept by systemd";

/// Who keeps the watchdog quiet.
fn keeper(sysroot: &Sysroot) -> &'static str {
    let argv = ["systemctl", "show", "--property=RuntimeWatchdogUSec", "--value"];
    let limit = Limit { bytes: 64, keep: Keep::Start };
    let command = Command { file: "systemctl-watchdog.txt", argv: &argv, patience: Duration::from_secs(3), limit };
    match sysroot.output(&command) {
        Fact::Known(answer) => match String::from_utf8_lossy(&answer).trim() {
            "" | "0" | "infinity" => "kept by the kernel or a service of its own",
            _ => BY_SYSTEMD,
        },
        Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => "keeper unknown",
    }
}

fn panic_check(sysroot: &Sysroot, watchdog: &Watchdog) -> Check {
    const NAME: &str = "panic-settings";
    let settings = ["panic", "panic_on_oops", "softlockup_panic", "hung_task_panic"];
    let known: Vec<String> = settings
        .iter()
        .filter_map(|name| Some(format!("{name}={}", sysroot.text(&format!("proc/sys/kernel/{name}")).known()?)))
        .collect();
    let known = known.join(", ");
    match (sysroot.text("proc/sys/kernel/panic"), watchdog) {
        (Fact::Known(seconds), Watchdog::None | Watchdog::Idle(_)) if seconds == "0" => {
            let finding = format!("{known}: a panic stops the machine until somebody cuts the power");
            let mending = "echo kernel.panic=10 | sudo tee /etc/sysctl.d/90-panic.conf && sudo sysctl --system";
            Check::bad(NAME, CheckState::Warning, finding, mending)
        }
        (Fact::Known(seconds), _) if seconds == "0" => Check::ok(
            NAME,
            format!(
                "{known}: after a panic the watchdog resets the machine, so both look alike to the reset controller"
            ),
        ),
        (Fact::Known(_), _) => Check::ok(NAME, format!("{known}: the machine restarts by itself after a panic")),
        (Fact::Absent, _) => Check::bad(NAME, CheckState::Warning, "no kernel.panic", "mount -t proc proc /proc"),
        (Fact::Denied(why) | Fact::Garbled(why), _) => {
            Check::bad(NAME, CheckState::Warning, format!("cannot read kernel.panic: {why}"), "sysctl kernel.panic")
        }
    }
}

/// Where cores go (core(5)). A handler that compresses the core of a large process outlives the trial's deadline.
fn core_check(sysroot: &Sysroot) -> Option<Check> {
    const NAME: &str = "core-pattern";
    let pattern = sysroot.text("proc/sys/kernel/core_pattern").known()?.clone();
    Some(match pattern.strip_prefix('|') {
        Some(handler) if handler.contains("apport") => {
            let finding = format!("crashes go to {handler}, which may hold a crashed trial for minutes");
            let mending =
                "sudo systemctl disable --now apport.service && echo core | sudo tee /proc/sys/kernel/core_pattern";
            Check::bad(NAME, CheckState::Warning, finding, mending)
        }
        Some(handler) => Check::ok(NAME, format!("crashes go to {handler}")),
        None => Check::ok(NAME, format!("crashes leave {pattern}, if their limit allows it")),
    })
}

/// Whether packages are replaced without being asked: a new driver in the middle of a run makes it two runs.
fn upgrades_check(sysroot: &Sysroot) -> Option<Check> {
    const NAME: &str = "auto-upgrades";
    let conf = sysroot.text("etc/apt/apt.conf.d/20auto-upgrades").known()?.clone();
    let enabled = conf
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .any(|line| line.contains("APT::Periodic::Unattended-Upgrade") && !line.contains("\"0\""));
    Some(if enabled {
        let finding = "packages are upgraded unattended: a driver may change in the middle of a run";
        let mending = "sudo systemctl disable --now unattended-upgrades.service apt-daily-upgrade.timer";
        Check::bad(NAME, CheckState::Warning, finding, mending)
    } else {
        Check::ok(NAME, "no package is upgraded unattended")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::testing::boards::assemble;

    fn write(tree: &Path, path: &str, text: &str) {
        fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
        fs::write(tree.join(path), text).unwrap();
    }

    #[test]
    fn a_watchdog_is_armed_by_somebody_or_idle_or_not_there() {
        let tree = assemble("thor-jp7", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let state = sysroot.text("sys/class/watchdog/watchdog0/state");
        assert_eq!(state, Fact::Known("active".to_owned()), "as the fixture has it");
        write(tree.path(), "cmd/systemctl-watchdog.txt", "2min\n");
        let Watchdog::Armed(who) = Watchdog::read(&sysroot) else { panic!() };
        assert!(who.ends_with("s, kept by systemd"), "{who}");
        write(tree.path(), "sys/class/watchdog/watchdog0/state", "inactive\n");
        assert!(matches!(Watchdog::read(&sysroot), Watchdog::Idle(_)));
        fs::remove_file(tree.path().join("sys/class/watchdog/watchdog0/state")).unwrap();
        assert!(matches!(Watchdog::read(&sysroot), Watchdog::Armed(_)), "systemd would not keep one that is not armed");
        write(tree.path(), "cmd/systemctl-watchdog.txt", "0\n");
        assert!(matches!(Watchdog::read(&sysroot), Watchdog::Unknown(_)));
        let pc = assemble("x86-pc", None);
        assert_eq!(Watchdog::read(&Sysroot::new(pc.path().to_path_buf())), Watchdog::None);
    }

    #[test]
    fn a_panic_that_stops_the_machine_is_warned_of_unless_a_watchdog_ends_it() {
        let tree = assemble("x86-pc", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let armed = Watchdog::Armed("x".into());
        for (seconds, watchdog, expected) in [
            ("0\n", Watchdog::None, CheckState::Warning),
            ("0\n", armed.clone(), CheckState::Ok),
            ("10\n", Watchdog::None, CheckState::Ok),
        ] {
            write(tree.path(), "proc/sys/kernel/panic", seconds);
            assert_eq!(panic_check(&sysroot, &watchdog).state, expected, "{seconds} {watchdog:?}");
        }
    }

    #[test]
    fn who_may_hold_a_crash_or_change_a_driver_is_named() {
        let tree = assemble("x86-pc", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        assert_eq!((core_check(&sysroot), upgrades_check(&sysroot)), (None, None));
        for (pattern, expected) in [
            ("core\n", CheckState::Ok),
            ("|/usr/lib/systemd/systemd-coredump %P\n", CheckState::Ok),
            ("|/usr/share/apport/apport -p%p\n", CheckState::Warning),
        ] {
            write(tree.path(), "proc/sys/kernel/core_pattern", pattern);
            assert_eq!(core_check(&sysroot).unwrap().state, expected, "{pattern}");
        }
        for (conf, expected) in [
            ("APT::Periodic::Unattended-Upgrade \"1\";\n", CheckState::Warning),
            ("APT::Periodic::Unattended-Upgrade \"0\";\n", CheckState::Ok),
            ("// APT::Periodic::Unattended-Upgrade \"1\";\n", CheckState::Ok),
        ] {
            write(tree.path(), "etc/apt/apt.conf.d/20auto-upgrades", conf);
            assert_eq!(upgrades_check(&sysroot).unwrap().state, expected, "{conf}");
        }
    }
}
