//! How a boot ended, by the last entries of its system journal: the words of systemd 245 to 257.

use serde_json::Value;

use super::lines::{cut, last_lines};
use crate::model::evidence::Shutdown;

/// Bytes of a message that are looked at.
const MESSAGE_BYTES_MAX: usize = 4096;

/// What systemd reaches only when it stops the machine. Version 249 put `System ` before some of them, version 255 the
/// name of the unit and ` - ` before all.
const LAST_TARGETS: [&str; 8] = [
    "Reboot",
    "Power-Off",
    "Power Off",
    "Halt",
    "Shutdown",
    "Unmount All Filesystems",
    "Final Step",
    "Late Shutdown Services",
];

/// What logind says when it has told systemd to stop the machine.
const LOGIND_STOPS: [&str; 6] = [
    "System is rebooting",
    "System is powering down",
    "System is halting",
    "The system will reboot now",
    "The system will power off now",
    "The system will halt now",
];

/// Programs that end a boot when a person runs them.
const ENDING_PROGRAMS: [&str; 6] = ["reboot", "poweroff", "halt", "shutdown", "init", "telinit"];

/// Verbs of `systemctl` that end a boot.
const ENDING_VERBS: [&str; 4] = ["reboot", "poweroff", "halt", "kexec"];

/// One entry of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Entry {
    /// Who says it: `systemd`, `sudo`, `kernel`.
    pub(super) identifier: String,
    /// Process id of who says it, where the entry has it.
    pub(super) pid: Option<u32>,
    /// Whether it came from the kernel itself.
    pub(super) is_kernel: bool,
    /// What it says.
    pub(super) message: String,
}

/// The last `max` entries of a journal, in JSON (`-o json`) or in any of the short forms.
///
/// What journalctl says instead of entries (`-- No entries --`, a boot that is not there) is none.
pub(super) fn entries(bytes: &[u8], max: usize) -> Vec<Entry> {
    let lines = last_lines(bytes, max);
    lines
        .into_iter()
        .filter_map(|line| if line.starts_with(b"{") { json_entry(line) } else { text_entry(line) })
        .collect()
}

/// Numbers are strings in this form, and a message that is no text is an array of bytes, or null where it is too long.
fn json_entry(line: &[u8]) -> Option<Entry> {
    serde_json::from_slice(line).ok().map(|entry| entry_of(&entry))
}

fn entry_of(entry: &Value) -> Entry {
    let field = |name: &str| entry.get(name).and_then(Value::as_str);
    let identifier = field("SYSLOG_IDENTIFIER").or_else(|| field("_COMM")).unwrap_or_default().to_owned();
    let pid = field("_PID").or_else(|| field("SYSLOG_PID")).and_then(|pid| pid.parse().ok());
    let message = match entry.get("MESSAGE") {
        Some(Value::String(text)) => cut(text, MESSAGE_BYTES_MAX).to_owned(),
        Some(Value::Array(bytes)) => {
            let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Vec<u8> = bytes.iter().take(MESSAGE_BYTES_MAX).map_while(byte).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Some(_) | None => String::new(),
    };
    // Entries of the kernel carry its transport; a process that writes to /dev/kmsg has an identifier of its own.
    let is_kernel = match field("_TRANSPORT") {
        Some(transport) => transport == "kernel" && identifier == "kernel",
        None => identifier == "kernel",
    };
    Entry { identifier, pid, is_kernel, message }
}

/// A journal in JSON as a person reads it, `[   12.345678] systemd[1]: Shutting down.`, with the seconds since that boot;
/// further lines of a message are indented. What is no JSON stays as it is.
pub fn journal_text(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in last_lines(bytes, usize::MAX) {
        match serde_json::from_slice::<Value>(line) {
            Ok(entry) if entry.is_object() => text.extend_from_slice(text_of(&entry).as_bytes()),
            Ok(_) | Err(_) => text.extend_from_slice(line),
        }
        text.push(b'\n');
    }
    text
}

fn text_of(entry: &Value) -> String {
    let uptime_us = entry.get("__MONOTONIC_TIMESTAMP").and_then(Value::as_str).and_then(|us| us.parse::<u64>().ok());
    let when = uptime_us
        .map_or_else(|| format!("[{:>12}]", "?"), |us| format!("[{:>5}.{:06}]", us / 1_000_000, us % 1_000_000));
    let Entry { identifier, pid, message, .. } = entry_of(entry);
    let pid = pid.map(|pid| format!("[{pid}]")).unwrap_or_default();
    format!("{when} {identifier}{pid}: {}", message.trim_end().replace('\n', "\n    "))
}

/// `May 06 08:13:03.180000 jetson systemd[1]: Shutting down.`
fn text_entry(line: &[u8]) -> Option<Entry> {
    let line = String::from_utf8_lossy(&line[..line.len().min(MESSAGE_BYTES_MAX)]).into_owned();
    let (head, message) = line.split_once(": ")?;
    let (when, who) = head.rsplit_once(' ')?;
    // A sentence with a colon in it has no time and no host before it.
    if !when.contains(' ') || !when.contains(':') {
        return None;
    }
    let (identifier, pid) = match who.split_once('[') {
        Some((identifier, pid)) => (identifier, pid.strip_suffix(']').and_then(|pid| pid.parse().ok())),
        None => (who, None),
    };
    let is_kernel = identifier == "kernel";
    Some(Entry { identifier: identifier.to_owned(), pid, is_kernel, message: message.to_owned() })
}

/// Whether the init system stopped what ran. What began anew after a teardown was not torn down.
pub(super) fn shutdown(entries: &[Entry]) -> Shutdown {
    let is_clean = entries.iter().fold(false, |clean, entry| (clean || is_teardown(entry)) && !is_beginning(entry));
    if is_clean { Shutdown::Clean } else { Shutdown::Unclean }
}

/// The user managers speak like the system's, at every logout; only the system's has process id 1.
fn is_system_manager(entry: &Entry) -> bool {
    entry.identifier == "systemd" && entry.pid.is_none_or(|pid| pid == 1)
}

fn is_teardown(entry: &Entry) -> bool {
    match entry.identifier.as_str() {
        "systemd" if is_system_manager(entry) => {
            let reached = entry.message.strip_prefix("Reached target ").map(description);
            let stopped = entry.message.strip_prefix("Stopped target ").map(description);
            reached.is_some_and(|target| LAST_TARGETS.iter().any(|last| target.starts_with(last)))
                || stopped.is_some_and(|target| target.starts_with("Multi-User System"))
                || entry.message == "Shutting down."
        }
        "systemd-shutdown" => true,
        "systemd-journald" => entry.message == "Journal stopped",
        "systemd-logind" => LOGIND_STOPS.iter().any(|stops| entry.message.starts_with(stops)),
        _ => false,
    }
}

fn is_beginning(entry: &Entry) -> bool {
    match entry.identifier.as_str() {
        "systemd" if is_system_manager(entry) => {
            let reached = entry.message.strip_prefix("Reached target ").map(description);
            reached.is_some_and(|target| target.starts_with("Multi-User System"))
        }
        "systemd-journald" => entry.message == "Journal started",
        _ => false,
    }
}

/// `reboot.target - System Reboot.` and `System Reboot.` are `Reboot.`
fn description(target: &str) -> &str {
    let described = target.split_once(" - ").filter(|(unit, _)| unit.ends_with(".target")).map_or(target, |(_, d)| d);
    match described.strip_prefix("System ") {
        Some(rest) => rest,
        None => described,
    }
}

/// Who ordered the end, in words: the last command that a person ran as root to end the boot, else logind.
///
/// No user name and no argument beyond the verb is taken.
pub(super) fn ordered_by(entries: &[Entry]) -> Option<String> {
    let command = entries.iter().rev().find_map(|entry| match entry.identifier.as_str() {
        "sudo" | "pkexec" => ending_command(&entry.message).map(|command| format!("{} {command}", entry.identifier)),
        _ => None,
    });
    let by_logind = || {
        let stops = |entry: &Entry| entry.identifier == "systemd-logind" && is_teardown(entry);
        entries.iter().any(stops).then(|| "systemd-logind".to_owned())
    };
    command.or_else(by_logind)
}

/// The command in `operator : TTY=… ; USER=root ; COMMAND=/usr/sbin/reboot`, if it ends a boot.
fn ending_command(message: &str) -> Option<String> {
    let (_, command) = message.split_once("COMMAND=")?;
    let mut words = command.split_whitespace();
    let program = words.next()?.rsplit('/').next()?;
    if ENDING_PROGRAMS.contains(&program) {
        return Some(program.to_owned());
    }
    let verb = words.find(|word| ENDING_VERBS.contains(word)).filter(|_| program == "systemctl")?;
    Some(format!("{program} {verb}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shutdown_of(text: &str) -> Shutdown {
        shutdown(&entries(text.as_bytes(), 200))
    }

    #[test]
    fn a_journal_in_json_reads_as_text() {
        let json = concat!(
            r#"{"__MONOTONIC_TIMESTAMP":"12345678","SYSLOG_IDENTIFIER":"systemd","_PID":"1","MESSAGE":"Shutting down."}"#,
            "\n",
            r#"{"SYSLOG_IDENTIFIER":"kernel","MESSAGE":[79,111,112,115,10,66,85,71]}"#,
            "\n-- No entries --\n",
        );
        let text =
            "[   12.345678] systemd[1]: Shutting down.\n[           ?] kernel: Oops\n    BUG\n-- No entries --\n";
        assert_eq!(String::from_utf8(journal_text(json.as_bytes())).unwrap(), text);
    }

    #[test]
    fn every_version_of_systemd_says_that_it_stops_the_machine() {
        for said in [
            // 245
            "systemd[1]: Reached target Shutdown.",
            "systemd[1]: Reached target Final Step.",
            "systemd[1]: Reached target Reboot.",
            "systemd[1]: Reached target Power-Off.",
            // 249
            "systemd[1]: Reached target System Shutdown.",
            "systemd[1]: Reached target Late Shutdown Services.",
            "systemd[1]: Reached target System Power Off.",
            "systemd[1]: Reached target Unmount All Filesystems.",
            // 255 and 257
            "systemd[1]: Reached target reboot.target - System Reboot.",
            "systemd[1]: Reached target umount.target - Unmount All Filesystems.",
            "systemd[1]: Stopped target multi-user.target - Multi-User System.",
            // all
            "systemd[1]: Stopped target Multi-User System.",
            "systemd[1]: Shutting down.",
            "systemd-shutdown[1]: Syncing filesystems and block devices.",
            "systemd-journald[304]: Journal stopped",
            "systemd-logind[701]: System is rebooting.",
            "systemd-logind[701]: The system will reboot now!",
        ] {
            let line = format!("May 06 08:13:03.180000 board {said}\n");
            assert_eq!(shutdown_of(&line), Shutdown::Clean, "{said}");
            let (identifier, message) = said.split_once(": ").unwrap();
            let (identifier, pid) = identifier.trim_end_matches(']').split_once('[').unwrap();
            let json = serde_json::json!({"SYSLOG_IDENTIFIER": identifier, "_PID": pid, "MESSAGE": message});
            assert_eq!(shutdown_of(&json.to_string()), Shutdown::Clean, "{json}");
            let bytes = serde_json::json!({"SYSLOG_IDENTIFIER": identifier, "MESSAGE": message.as_bytes()});
            assert_eq!(shutdown_of(&bytes.to_string()), Shutdown::Clean, "{bytes}");
        }
    }

    #[test]
    fn what_others_say_and_what_began_anew_is_no_shutdown() {
        for said in [
            // A user's manager, at logout.
            "systemd[1021]: Reached target Shutdown.",
            "systemd[1021]: Stopped target Main User Target.",
            // A program.
            "python3[1834]: Shutting down.",
            "myservice[9]: Reached target Reboot.",
            "systemd[1]: Reached target Multi-User System.",
            "systemd[1]: Reached target sleep.target - Sleep.",
            "systemd[1]: Stopped target Graphical Interface.",
            "systemd-logind[701]: New session 3 of user operator.",
        ] {
            assert_eq!(shutdown_of(&format!("May 06 08:13:03 board {said}\n")), Shutdown::Unclean, "{said}");
        }
        let restarted = "May 06 08:13:03 board systemd-journald[304]: Journal stopped\n\
                         May 06 08:13:04 board systemd-journald[305]: Journal started\n";
        assert_eq!(shutdown_of(restarted), Shutdown::Unclean, "journald was restarted, not the machine");
    }

    #[test]
    fn what_is_no_entry_is_none() {
        for none in [
            "",
            "-- No entries --\n",
            "-- Boot 2a7d9f30c4e84d1f8a55c0b1e2f3a402 --\n",
            "Data from the specified boot (-1) is not available: No such boot ID in journal\n",
            "{\"MESSAGE\"\n",
        ] {
            assert_eq!(entries(none.as_bytes(), 200), [], "{none}");
        }
        let null = r#"{"SYSLOG_IDENTIFIER":"kernel","_TRANSPORT":"kernel","MESSAGE":null}"#;
        assert_eq!(entries(null.as_bytes(), 200)[0].message, "", "a message that is too long is null");
    }

    #[test]
    fn who_ordered_it_is_told_without_a_name() {
        for (message, want) in [
            ("operator : TTY=pts/0 ; PWD=/home/operator ; USER=root ; COMMAND=/usr/sbin/reboot", Some("sudo reboot")),
            (
                "operator : TTY=pts/0 ; USER=root ; COMMAND=/bin/systemctl --no-wall reboot",
                Some("sudo systemctl reboot"),
            ),
            ("operator : TTY=pts/0 ; USER=root ; COMMAND=/sbin/shutdown -r now", Some("sudo shutdown")),
            ("operator : TTY=pts/0 ; USER=root ; COMMAND=/usr/bin/systemctl status reboot.target", None),
            ("operator : TTY=pts/0 ; USER=root ; COMMAND=/usr/bin/cat reboot", None),
        ] {
            let entry = Entry { identifier: "sudo".into(), message: message.into(), ..Entry::default() };
            assert_eq!(ordered_by(&[entry]).as_deref(), want, "{message}");
        }
        let logind = "May 06 08:13:03 board systemd-logind[701]: System is powering down.\n";
        assert_eq!(ordered_by(&entries(logind.as_bytes(), 200)).as_deref(), Some("systemd-logind"));
    }
}
