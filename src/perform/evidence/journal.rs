//! The system journal: the boots it remembers, how the one before ended, and what this one says so far.
//!
//! The boot before is asked for by its id and never by offset: offsets follow clocks, which jump on boards without a
//! battery. Every option used is known to systemd 245 (2020) and later.

use std::thread;
use std::time::Duration;

use super::Collector;
use crate::decide::evidence::read_boots as read_list;
use crate::model::evidence::{Fact, names};
use crate::model::ids::BootId;
use crate::perform::host::{Command, Keep, Limit, Sysroot};

/// How long each question may take. A journal of 100 MB answers within tenths of a second; a machine that has just booted
/// may be busy with everything else, and what is not answered is lost to the verdict.
const PATIENCE: Duration = Duration::from_secs(30);

/// Of a journal its last lines are kept; how a boot ended is in the last 200.
const LOG: Limit = Limit { bytes: 2 << 20, keep: Keep::End };

/// Of lists, which are short, the end too.
const LIST: Limit = Limit { bytes: 256 << 10, keep: Keep::End };

/// The fields that are asked for. Those that name the machine or a user are left out: host, machine id, command line.
const FIELDS: &str = "--output-fields=MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,SYSLOG_FACILITY,_TRANSPORT,_PID,_COMM,_SYSTEMD_UNIT,UNIT,_SOURCE_MONOTONIC_TIMESTAMP";

/// The list of boots: the question to journalctl.
const BOOTS_COMMAND: Command<'static> = Command {
    file: "journalctl-list-boots.txt",
    argv: &["journalctl", "--list-boots", "--no-pager"],
    patience: PATIENCE,
    limit: LIST,
};

/// The boots that the system journal remembers, oldest first.
pub fn read_boots(sysroot: &Sysroot) -> Fact<Vec<BootId>> {
    journalctl(sysroot, &BOOTS_COMMAND).and_then(|text| read_list(&text))
}

/// What journalctl prints. Without a file of a journal it has nothing to say, and need not be started to say so.
fn journalctl(sysroot: &Sysroot, command: &Command<'_>) -> Fact<Vec<u8>> {
    match storage_by_files(sysroot) {
        Fact::Absent if sysroot.is_live() => Fact::Absent,
        _ => sysroot.output(command),
    }
}

pub(super) fn read(collector: &mut Collector<'_>, boot: &BootId) {
    let sysroot = collector.sysroot;
    let storage = journal_storage(sysroot);
    let text = journalctl(sysroot, &BOOTS_COMMAND);
    let boots = text.clone().and_then(|text| read_list(&text));
    let before = boots.and_then(|boots| {
        let here = boots.iter().position(|listed| listed == boot);
        here.and_then(|here| here.checked_sub(1)).map_or(Fact::Absent, |before| Fact::Known(boots[before].clone()))
    });
    collector.put(names::BOOTS, text);
    collector.put("journal/storage", storage);
    // Each question is a process of its own that mostly seeks, so they are asked at once.
    let (previous, previous_kernel, current, kernel, last) = thread::scope(|scope| {
        let ask = |question: fn(&Sysroot, &BootId) -> Fact<Vec<u8>>, of: Fact<BootId>| {
            scope.spawn(move || of.and_then(|of| question(sysroot, &of)))
        };
        let asked = [
            ask(previous, before.clone()),
            ask(previous_kernel, before.clone()),
            ask(current, Fact::Known(boot.clone())),
            ask(kernel_log, Fact::Known(boot.clone())),
            ask(|sysroot, _| sysroot.output(&LAST_COMMAND), Fact::Known(boot.clone())),
        ];
        asked.map(|thread| thread.join().expect("asking does not panic")).into()
    });
    collector.put(names::PREVIOUS, previous);
    collector.put(names::PREVIOUS_KERNEL, previous_kernel);
    collector.put("journal/current.jsonl", current);
    collector.put(names::KERNEL, kernel);
    collector.put(names::LAST, last);
}

/// Logins and reboots, last(1): a `shutdown` between two reboots is the sign of a clean stop.
const LAST_COMMAND: Command<'static> =
    Command { file: "last-x-F.txt", argv: &["last", "-x", "-F", "-n", "500"], patience: PATIENCE, limit: LIST };

fn previous(sysroot: &Sysroot, boot: &BootId) -> Fact<Vec<u8>> {
    log(sysroot, boot, "journalctl-b--1.jsonl", &["-n", "2000"])
}

fn previous_kernel(sysroot: &Sysroot, boot: &BootId) -> Fact<Vec<u8>> {
    log(sysroot, boot, "journalctl-k-b--1.jsonl", &["-k", "-n", "2000"])
}

/// What services say of this boot that tells about the one before: file system checks, an unclean journal, the watchdog.
fn current(sysroot: &Sysroot, boot: &BootId) -> Fact<Vec<u8>> {
    let services = ["-t", "systemd-fsck", "-t", "systemd-journald", "-t", "systemd", "-t", "systemd-pstore"];
    let args: Vec<&str> = ["-n", "2000"].into_iter().chain(services).collect();
    log(sysroot, boot, "journalctl-b-0.jsonl", &args)
}

/// The kernel's messages of this boot; without a journal those that its own buffer still holds.
pub fn kernel_log(sysroot: &Sysroot, boot: &BootId) -> Fact<Vec<u8>> {
    let dmesg = Command { file: "dmesg.txt", argv: &["dmesg"], patience: PATIENCE, limit: LOG };
    match log(sysroot, boot, "journalctl-k-b-0.jsonl", &["-k", "-n", "2000"]) {
        Fact::Known(log) if !log.is_empty() => Fact::Known(log),
        unknown => match (sysroot.output(&dmesg), unknown) {
            (Fact::Known(log), _) => Fact::Known(log),
            (refused, Fact::Absent) => refused,
            (_, unknown) => unknown,
        },
    }
}

/// The end of the journal of `boot`, of those entries that `args` choose, one JSON object a line.
fn log(sysroot: &Sysroot, boot: &BootId, file: &str, args: &[&str]) -> Fact<Vec<u8>> {
    let id = boot.as_str().replace('-', "");
    let mut argv = vec!["journalctl", "--no-pager", "-o", "json", FIELDS, "-b", &id];
    argv.extend(args);
    let log = journalctl(sysroot, &Command { file, argv: &argv, patience: PATIENCE, limit: LOG });
    log.and_then(|log| of_boot(log, &id))
}

/// The lines that name the boot `id`. A tree that was put together may hold the journal of another boot.
fn of_boot(log: Vec<u8>, id: &str) -> Fact<Vec<u8>> {
    let names_it = |line: &&[u8]| line.windows(id.len()).any(|window| window == id.as_bytes());
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    let own: Vec<u8> = lines.iter().copied().filter(|line| names_it(line)).flatten().copied().collect();
    if own.is_empty() && !lines.is_empty() { Fact::Absent } else { Fact::Known(own) }
}

/// Whether the journal survives a reboot, by where its files are (journald.conf(5), `Storage=`).
pub fn journal_storage(sysroot: &Sysroot) -> Fact<Vec<u8>> {
    match sysroot.answer("journal-storage.txt", LIST, || storage_by_files(sysroot)) {
        // The disk of a board has files and no answers.
        Fact::Absent => storage_by_files(sysroot),
        answer => answer,
    }
}

fn storage_by_files(sysroot: &Sysroot) -> Fact<Vec<u8>> {
    let has_files = |dir: &str| sysroot.entries(dir).and_then(|ids| Fact::Known(!ids.is_empty()));
    match (has_files("var/log/journal"), has_files("run/log/journal")) {
        (Fact::Known(true), _) => Fact::Known(b"persistent\n".to_vec()),
        (_, Fact::Known(true)) => Fact::Known(b"volatile\n".to_vec()),
        (Fact::Denied(why), _) | (_, Fact::Denied(why)) => Fact::Denied(why),
        _ => Fact::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_another_boot_are_not_taken_for_those_of_this_one() {
        let id = "1f06b7399e6f4d8eb4cd0d9449a8b993";
        let own = format!("{{\"_BOOT_ID\":\"{id}\"}}\n").into_bytes();
        let other = b"{\"_BOOT_ID\":\"2f06b7399e6f4d8eb4cd0d9449a8b993\"}\n".to_vec();
        assert_eq!(of_boot([other.clone(), own.clone()].concat(), id), Fact::Known(own));
        assert_eq!(of_boot(other, id), Fact::Absent);
        assert_eq!(of_boot(Vec::new(), id), Fact::Known(Vec::new()));
    }
}
