//! Checks of what will be left to read after a reset: journals, crash records, a clock that orders them, drives that
//! count their power-ons.

use super::{Check, CheckState, Fact, Sysroot};
use crate::perform::evidence::{clock, drives, journal_storage, read_boots};

/// Makes the journal persistent (journald.conf(5), `Storage=auto`).
const PERSIST: &str = "sudo mkdir -p /var/log/journal && sudo systemd-tmpfiles --create --prefix /var/log/journal && sudo systemctl restart systemd-journald && sudo journalctl --flush";

pub(super) fn checks(sysroot: &Sysroot) -> Vec<Check> {
    let mut checks = vec![journal(sysroot), boots(sysroot), crash_records(sysroot), synchronised(sysroot)];
    checks.extend(drive_counters(sysroot));
    checks
}

fn journal(sysroot: &Sysroot) -> Check {
    const NAME: &str = "journal";
    let finding = match journal_storage(sysroot) {
        Fact::Known(storage) if storage.starts_with(b"persistent") => {
            return Check::ok(NAME, "the system journal is on the disk and survives a reboot");
        }
        Fact::Known(_) => "the system journal is in memory, and a reboot takes it".to_owned(),
        Fact::Absent => "no system journal was found".to_owned(),
        Fact::Denied(why) | Fact::Garbled(why) => format!("cannot tell where the system journal is: {why}"),
    };
    Check::bad(NAME, CheckState::Warning, finding, PERSIST)
}

fn boots(sysroot: &Sysroot) -> Check {
    const NAME: &str = "list-of-boots";
    let why = match read_boots(sysroot) {
        Fact::Known(boots) if boots.len() > 1 => {
            return Check::ok(NAME, format!("the system journal has {} boots", boots.len()));
        }
        Fact::Known(_) => "the system journal has one boot: it is new, or it does not survive a reboot".to_owned(),
        Fact::Absent => "journalctl lists no boots".to_owned(),
        Fact::Denied(why) => format!("journalctl cannot list boots: {why}"),
        Fact::Garbled(line) => format!("journalctl lists boots as {line:?}"),
    };
    Check::bad(NAME, CheckState::Warning, why, PERSIST)
}

/// Whether the kernel has a place for its last words (Documentation/admin-guide/pstore-blk.rst, ramoops.rst).
fn crash_records(sysroot: &Sysroot) -> Check {
    const NAME: &str = "crash-records";
    let backend = sysroot.text("sys/module/pstore/parameters/backend");
    let records = sysroot.entries("sys/fs/pstore");
    let finding = match (backend, records) {
        (Fact::Known(backend), _) if !backend.is_empty() && backend != "(null)" => {
            return Check::ok(NAME, format!("the kernel keeps its last words in {backend}"));
        }
        (_, Fact::Known(records)) if !records.is_empty() => {
            return Check::ok(NAME, format!("the kernel keeps its last words: {} records are there", records.len()));
        }
        (Fact::Denied(why), _) | (_, Fact::Denied(why)) => {
            format!("cannot tell whether the kernel keeps its last words: {why}")
        }
        _ => "no storage for the kernel's last words is loaded: a panic leaves nothing".to_owned(),
    };
    let mending = if sysroot.exists("proc/device-tree/compatible") {
        "sudo modprobe ramoops    (Jetson Linux: sudo systemctl start nvramoopsconfig.service)"
    } else if sysroot.exists("sys/firmware/efi") {
        "sudo modprobe efi_pstore pstore_disable=N"
    } else {
        "reserve memory on the kernel command line and load it: memmap=2M$ADDRESS ramoops.mem_address=ADDRESS ramoops.mem_size=0x200000"
    };
    Check::bad(NAME, CheckState::Warning, finding, mending)
}

fn synchronised(sysroot: &Sysroot) -> Check {
    const NAME: &str = "clock";
    const MENDING: &str = "sudo timedatectl set-ntp true";
    match clock(sysroot) {
        Fact::Known(word) if word.starts_with(b"yes") => Check::ok(NAME, "the clock is synchronised"),
        Fact::Known(_) => {
            let finding = "the clock is not synchronised: times of different boots cannot be compared";
            Check::bad(NAME, CheckState::Warning, finding, MENDING)
        }
        Fact::Absent => {
            Check::bad(NAME, CheckState::Warning, "nothing says whether the clock is synchronised", MENDING)
        }
        Fact::Denied(why) | Fact::Garbled(why) => {
            Check::bad(NAME, CheckState::Warning, format!("cannot ask the clock: {why}"), MENDING)
        }
    }
}

/// Whether drives tell how often they lost power; nothing where there are none.
fn drive_counters(sysroot: &Sysroot) -> Option<Check> {
    const NAME: &str = "drive-counters";
    let drives = drives(sysroot);
    let mut unread = drives.iter().filter_map(|(drive, log)| match log {
        Fact::Denied(why) | Fact::Garbled(why) => Some(format!("{drive} does not tell its power counters: {why}")),
        Fact::Known(_) | Fact::Absent => None,
    });
    match unread.next() {
        Some(finding) => {
            Some(Check::bad(NAME, CheckState::Warning, finding, "sudo apt install nvme-cli, and run it with sudo"))
        }
        None => (!drives.is_empty()).then(|| Check::ok(NAME, format!("{} drives count losses of power", drives.len()))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::boards::assemble;

    fn state(check: &Check) -> CheckState {
        check.state
    }

    #[test]
    fn a_journal_in_memory_is_warned_of_and_one_on_disk_is_not() {
        let tree = assemble("orin-nano-super-jp62", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let make = |dir: &str| fs::create_dir_all(tree.path().join(dir).join("aaaa")).unwrap();
        assert!(journal(&sysroot).finding.contains("no system journal"));
        make("run/log/journal");
        assert!(journal(&sysroot).finding.contains("in memory"));
        make("var/log/journal");
        assert_eq!(state(&journal(&sysroot)), CheckState::Ok);
        assert_eq!(state(&boots(&sysroot)), CheckState::Ok);
        let volatile = assemble("orin-nano-super-jp62", Some("volatile-journal"));
        assert!(boots(&Sysroot::new(volatile.path().to_path_buf())).finding.contains("one boot"));
    }

    #[test]
    fn a_kernel_without_a_place_for_its_last_words_is_warned_of() {
        let tree = assemble("agx-orin-jp5", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let check = crash_records(&sysroot);
        assert!(check.mending.unwrap().contains("nvramoopsconfig"));
        fs::create_dir_all(tree.path().join("sys/module/pstore/parameters")).unwrap();
        for (backend, expected) in [("(null)\n", CheckState::Warning), ("ramoops\n", CheckState::Ok)] {
            fs::write(tree.path().join("sys/module/pstore/parameters/backend"), backend).unwrap();
            assert_eq!(state(&crash_records(&sysroot)), expected, "{backend}");
        }
        let crashed = assemble("agx-orin-jp5", Some("kernel-panic"));
        assert_eq!(state(&crash_records(&Sysroot::new(crashed.path().to_path_buf()))), CheckState::Ok);
    }

    #[test]
    fn a_clock_that_nobody_keeps_is_warned_of() {
        let tree = assemble("x86-pc", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        for (answer, expected) in [("yes\n", CheckState::Ok), ("no\n", CheckState::Warning)] {
            fs::write(tree.path().join("cmd/clock-synchronised.txt"), answer).unwrap();
            assert_eq!(state(&synchronised(&sysroot)), expected, "{answer}");
        }
    }

    #[test]
    fn drives_are_mentioned_where_there_are_some() {
        let with = assemble("orin-nano-super-jp62", Some("power-loss"));
        assert_eq!(drive_counters(&Sysroot::new(with.path().to_path_buf())).as_ref().map(state), Some(CheckState::Ok));
        let without = assemble("x86-pc", None);
        assert_eq!(drive_counters(&Sysroot::new(without.path().to_path_buf())), None);
    }
}
