//! The unit on a directory of its own, and what a boot shows in a tree.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::decide::clearance::Clearance;
use crate::model::board::RebootBy;
use crate::model::ids::{BootId, RunId};

const BOOT: &str = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993";

/// A tree with these files.
fn tree(files: &[(&str, &str)]) -> (TempDir, Sysroot) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let sysroot = Sysroot::new(dir.path().to_owned());
    (dir, sysroot)
}

fn unit<'a>(run: &'a RunId, run_dir: &'a Path, sysroot: &'a Sysroot) -> Unit<'a> {
    Unit { harness: Path::new("/usr/local/bin/jetfault"), run, run_dir, sysroot, delay_s: 30, unit_dir: None }
}

#[test]
fn the_unit_is_as_it_is_written_here() {
    let (run, live): (RunId, _) = ("cold-start-001".parse().unwrap(), Sysroot::new("/".into()));
    let text = unit(&run, Path::new("/var/lib/jetfault/cold-start-001"), &live).text();
    insta::assert_snapshot!(text);
    let odd = Unit { harness: Path::new("/opt/my tools/100%/jetfault"), ..unit(&run, Path::new("/d/$x"), &live) };
    assert!(
        odd.text().contains("ExecStart=\"/opt/my tools/100%%/jetfault\" resume \"/d/$$x\" --at-boot"),
        "{}",
        odd.text()
    );
}

#[test]
fn a_machine_is_armed_for_one_run_and_disarmed_without_a_trace() {
    let (dir, sysroot) = tree(&[("etc/motd.d/10-help", ""), ("etc/systemd/system/other.service", "")]);
    let (run, other): (RunId, RunId) = ("x-001".parse().unwrap(), "x-002".parse().unwrap());
    let units = UnitDir::new(&sysroot, None);
    let at = |path: &str| dir.path().join(path);
    assert_eq!(units.armed_for().unwrap(), None);
    units.arm(&unit(&run, Path::new("/r/x-001"), &sysroot)).unwrap();
    units.arm(&unit(&run, Path::new("/r/x-001"), &sysroot)).unwrap();
    assert!(units.is_armed_for(Path::new("/r/x-001")) && !units.is_armed_for(Path::new("/r/x-002")));
    let wanted = at("etc/systemd/system/multi-user.target.wants/jetfault.service");
    assert!(fs::read_to_string(wanted).unwrap().contains("--at-boot --boot-delay 30\n"));
    assert!(fs::read_to_string(at("etc/motd.d/50-jetfault")).unwrap().contains("x-001"));
    let refused = units.arm(&unit(&other, Path::new("/r/x-002"), &sysroot)).unwrap_err();
    assert!(matches!(refused, UnitError::Other(path) if path == Path::new("/r/x-001")));
    assert!(units.disarm().unwrap() && !units.disarm().unwrap());
    let left = |path: &str| fs::read_dir(at(path)).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(left("etc/motd.d"), ["10-help"]);
    assert!(left("etc/systemd/system/multi-user.target.wants").is_empty());
}

#[test]
fn what_is_in_the_way_of_arming_is_told_by_its_kind() {
    let (dir, sysroot) = tree(&[("etc/systemd/system/jetfault.service", "[Service]\nExecStart=/bin/true\n")]);
    assert!(matches!(UnitDir::new(&sysroot, None).check(None), Err(UnitError::NotOurs(_))));
    assert!(matches!(UnitDir::new(&sysroot, None).disarm(), Err(UnitError::NotOurs(_))));
    let nowhere = dir.path().join("nowhere");
    assert!(
        matches!(UnitDir::new(&sysroot, Some(&nowhere)).check(None), Err(UnitError::NoDir(path)) if path == nowhere)
    );
}

#[test]
fn what_is_kept_for_those_who_ask_is_about_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let trouble = Trouble::new(&[dir.path().join("absent"), dir.path().to_owned()]);
    trouble.keep(Path::new("/r/x-001"), "the disk is full");
    assert_eq!(trouble.of(Path::new("/r/x-001")).as_deref(), Some("the disk is full"));
    assert_eq!(trouble.of(Path::new("/r/x-002")), None);
    trouble.clear();
    assert_eq!(trouble.of(Path::new("/r/x-001")), None);
}

fn at_boot(tree: &TempDir, sysroot: Sysroot) -> AtBoot {
    AtBoot::new(sysroot, tree.path().to_owned(), Duration::ZERO)
}

#[test]
fn whoever_has_a_terminal_holds_the_next_trial_and_says_when_it_goes_on() {
    const SESSION: &str = "UID=1000\nUSER=operator\nACTIVE=1\nSTATE=active\nTTY=pts/0\nCLASS=user\n";
    let (dir, sysroot) = tree(&[
        ("run/systemd/sessions/1", SESSION),
        ("run/systemd/sessions/2", "USER=batch\nSTATE=active\nCLASS=user\n"),
        ("dev/pts/0", ""),
    ]);
    let mut boot = at_boot(&dir, sysroot);
    let Clearance::Wait(why) = boot.clearance() else { panic!() };
    assert!(why.contains("operator is logged in at pts/0"), "{why}");
    assert_eq!(hold_of(dir.path()), Some(why));
    release(dir.path()).unwrap();
    assert_eq!(boot.clearance(), Clearance::Go);
    assert_eq!(hold_of(dir.path()), None);
    fs::write(dir.path().join("run/systemd/sessions/1"), SESSION.replace("active", "closing")).unwrap();
    let mut next = at_boot(&dir, Sysroot::new(dir.path().to_owned()));
    assert_eq!(next.clearance(), Clearance::Go, "the session ends, and the word of an earlier boot is forgotten");
}

#[test]
fn sshd_is_waited_for_where_it_is_installed() {
    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue\n   0: 00000000:0016 00000000:0000 0A 00000000:00000000\n";
    let (dir, sysroot) = tree(&[("usr/sbin/sshd", ""), ("proc/net/tcp", &TABLE.replace("0A", "01"))]);
    let delay = Duration::from_millis(1);
    let waits = |sysroot: Sysroot| AtBoot::new(sysroot, dir.path().to_owned(), delay).clearance();
    assert!(matches!(waits(sysroot), Clearance::Wait(why) if why.contains("sshd")));
    fs::write(dir.path().join("proc/net/tcp"), TABLE).unwrap();
    assert!(matches!(waits(Sysroot::new(dir.path().to_owned())), Clearance::Wait(why) if why.contains("delay")));
}

#[test]
fn the_word_on_the_kernels_command_line_is_a_word_of_its_own() {
    for (line, off) in [("root=/dev/nvme0n1 jetfault.off quiet", true), ("quiet xjetfault.off", false)] {
        let (_dir, sysroot) = tree(&[("proc/cmdline", line)]);
        assert_eq!(is_switched_off(&sysroot), off, "{line}");
    }
}

/// A board that a script reboots, on a tree in which the script can make the next boot.
fn rebooted(script: &str, more: &str) -> (TempDir, Result<(), String>) {
    let (dir, sysroot) =
        tree(&[("proc/sys/kernel/random/boot_id", BOOT), ("reboot", &format!("#!/bin/sh\n{script}\n"))]);
    let program = dir.path().join("reboot");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "[reboot]\nby = \"command\"\ncommand = [\"sh\", \"{}\"]\npatience = \"300ms\"\n{more}",
        program.display()
    );
    let board = parse_board(&text.replace("ROOT", dir.path().to_str().unwrap())).unwrap();
    let here: BootId = BOOT.parse().unwrap();
    let ended = Rebooter::new(board, RebootBy::Command).end(&sysroot, &here, || false);
    (dir, ended.map_err(|error| format!("{error}")))
}

#[test]
fn a_reboot_that_comes_is_noticed_and_one_that_fails_or_hangs_is_told() {
    const NEXT: &str = "echo 2f06b739-9e6f-4d8e-b4cd-0d9449a8b993 > $(dirname $0)/proc/sys/kernel/random/boot_id";
    assert_eq!(rebooted(NEXT, "").1, Ok(()));
    let why = rebooted("echo no rights >&2; exit 1", "").1.unwrap_err();
    assert!(why.contains("cannot reboot by `sh ") && why.contains("no rights"), "{why}");
    let why = rebooted("true", "").1.unwrap_err();
    assert!(why.contains("the machine is still up 300ms after it was asked to"), "{why}");
}

#[test]
fn a_power_hook_that_hangs_is_told_and_one_is_no_help_to_itself_or_to_a_person() {
    let board = parse_board("[power]\ncycle = [\"sleep\", \"9\"]\ntimeout = \"100ms\"\n").unwrap();
    let rebooter = |by| Rebooter::new(board.clone(), by);
    let why = rebooter(RebootBy::Command).cut_power().unwrap_err().to_string();
    assert!(why.contains("reboot by `sleep 9`: no answer within 0.1 s"), "{why}");
    for (by, can) in [(RebootBy::Command, true), (RebootBy::Hook, false), (RebootBy::Person, false)] {
        assert_eq!(rebooter(by).can_cut_power(), can, "{by}");
    }
    assert!(!Rebooter::new(parse_board("").unwrap(), RebootBy::Command).can_cut_power());
}

#[test]
fn a_board_that_nothing_would_wake_is_not_switched_off() {
    let board = parse_board("[reboot]\nby = \"power-off\"\n").unwrap();
    let here: BootId = BOOT.parse().unwrap();
    let (_dir, sysroot) = tree(&[("proc/uptime", "1 1")]);
    let why = Rebooter::new(board, RebootBy::PowerOff).end(&sysroot, &here, || false).unwrap_err().to_string();
    assert!(why.contains("wakealarm"), "{why}");
}

#[test]
fn what_is_said_of_a_board_is_read_or_refused_with_its_place() {
    let (_dir, sysroot) = tree(&[(BOARD_FILE, "[reboot]\nby = \"person\"\n")]);
    assert_eq!(board(&sysroot).unwrap().reboot.by, RebootBy::Person);
    let (_dir, sysroot) = tree(&[(BOARD_FILE, "[rebot]\n")]);
    let why = board(&sysroot).unwrap_err();
    assert!(why.contains("etc/jetfault/board.toml") && why.contains("rebot"), "{why}");
}
