//! What stands before a message: what `dmesg`, the journal, syslog and consoles put there is taken off.
//!
//! Owns the prefixes alone; what a message means is none of its business.

use std::sync::LazyLock;

use regex::Regex;

/// The longest line that is looked at, in bytes; the kernel's own limit is 1024 (`PRINTKRB_RECORD_MAX`).
const LINE_BYTES_MAX: usize = 4096;

/// How many prefixes may stand before one another, as in `host login: [  36.8][ T3615] …`.
const PREFIXES_MAX: usize = 6;

/// Who speaks in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The kernel, or nothing says otherwise.
    Kernel,
    /// A process, by the name or the facility that stands before the message.
    Process,
}

/// A line without what stands before its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The message.
    pub text: &'a str,
    /// Who speaks.
    pub speaker: Speaker,
    /// Time since boot in microseconds, where a prefix states it.
    pub uptime_us: Option<u64>,
}

/// `12,339,5140900,-;` of `/dev/kmsg`: facility and level, number, microseconds (Documentation/ABI/testing/dev-kmsg).
static KMSG: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?P<level>[0-9]{1,4}),[0-9]+,(?P<us>[0-9]+),[^;]{1,80};"));
/// `<6>` of pstore and of syslog.
static LEVEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"^<(?P<level>[0-9]{1,3})>"));
/// `kern  :err   : ` of `dmesg -x`.
static DECODED: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?P<facility>[a-z0-9]{3,8}) *:[a-z]{3,6} *: "));
/// `[   12.345678][    T1] ` of the console, `[   12.345678@3] ` of some vendors.
static PRINTK: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\[ *(?P<s>[0-9]{1,9})\.(?P<us>[0-9]{6})(?:@[0-9]+)?\](?: ?\[ *[TC][0-9]+\])? ?"));
/// The same, within a line: two messages that the console ran together.
static EMBEDDED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\[ *[0-9]{1,9}\.[0-9]{6}(?:@[0-9]+)?\](?: ?\[ *[TC][0-9]+\])? ?"));
/// `[Wed May  6 08:11:09 2026] ` and `2026-05-06T08:11:09,123456+00:00 ` of `dmesg`.
static DMESG_WALL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}\]|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8},[0-9]{6}[+-][0-9:]{5}) ",
    )
});
/// Wall time, host and identifier of syslog and of every short form of `journalctl`.
static SYSLOG: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}(?:\.[0-9]+)?",
        r"|(?:[A-Z][a-z]{2} )?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]+)?(?:Z|[+-][0-9:]{4,5}| [A-Z]{3,5})?",
        r"|[0-9]{9,11}\.[0-9]{6}) [^ ]+ (?:[a-z0-9]+\.[a-z]+ )?(?P<name>[^ \[:]+)(?:\[[0-9]+\])?: "
    ))
});
/// `[   12.345678] host kernel: ` of `journalctl -o short-monotonic`. Of a process it cannot be told from the kernel's own
/// `[   12.345678] Web Content[77]: segfault at …`, and stays.
static MONOTONIC: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\[ *(?P<s>[0-9]{1,9})\.(?P<us>[0-9]{6})\] [^ ]+ kernel: "));
/// The identifier alone, and the prompt of a console.
static BARE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:kernel|[^ :\[]+ login): "));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this file compile")
}

/// Takes off everything that stands before the message of `line`.
pub fn message(line: &str) -> Message<'_> {
    let mut message = Message { text: cut(line), speaker: Speaker::Kernel, uptime_us: None };
    for _ in 0..PREFIXES_MAX {
        if !take_prefix(&mut message) {
            break;
        }
    }
    message.text = message.text.trim();
    message
}

/// What stands behind each time stamp within `text`: messages that the console ran together.
pub fn embedded(text: &str) -> impl Iterator<Item = &str> {
    EMBEDDED.find_iter(text).map(|stamp| text[stamp.end()..].trim())
}

fn cut(line: &str) -> &str {
    let line = line.trim_matches(|c| c == '\r' || c == '\n' || c == '\0');
    &line[..line.floor_char_boundary(LINE_BYTES_MAX)]
}

/// Takes one prefix off; whether there was one. A process that quotes a line of the kernel is still a process.
fn take_prefix(message: &mut Message<'_>) -> bool {
    let text = message.text;
    let (length, by_kernel) = if let Some(found) = KMSG.captures(text) {
        message.uptime_us = found["us"].parse().ok();
        (found[0].len(), is_kernel(&found["level"]))
    } else if let Some(found) = LEVEL.captures(text) {
        (found[0].len(), is_kernel(&found["level"]))
    } else if let Some(found) = MONOTONIC.captures(text) {
        message.uptime_us = microseconds(&found["s"], &found["us"]);
        (found[0].len(), true)
    } else if let Some(found) = PRINTK.captures(text) {
        message.uptime_us = microseconds(&found["s"], &found["us"]);
        (found[0].len(), true)
    } else if let Some(found) = SYSLOG.captures(text) {
        (found[0].len(), &found["name"] == "kernel")
    } else if let Some(found) = DECODED.captures(text).filter(|found| FACILITIES.contains(&&found["facility"])) {
        (found[0].len(), &found["facility"] == "kern")
    } else if let Some(found) = DMESG_WALL.find(text).or_else(|| BARE.find(text)) {
        (found.len(), true)
    } else {
        return false;
    };
    message.text = text[length..].trim_start();
    if !by_kernel {
        message.speaker = Speaker::Process;
    }
    true
}

/// Facilities as `dmesg -x` names them.
const FACILITIES: [&str; 12] =
    ["kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"];

/// A priority is facility times 8 plus level; facility 0 is the kernel, all others wrote to `/dev/kmsg`.
fn is_kernel(level: &str) -> bool {
    level.parse::<u32>().is_ok_and(|level| level < 8)
}

fn microseconds(seconds: &str, micros: &str) -> Option<u64> {
    Some(seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, text: &str, speaker: Speaker, uptime_us: Option<u64>) {
        assert_eq!(message(line), Message { text, speaker, uptime_us }, "{line}");
    }

    #[test]
    fn what_stands_before_a_message_is_taken_off() {
        let said = "Kernel panic - not syncing: Fatal exception";
        for (prefix, uptime_us) in [
            ("", None),
            ("<0>", None),
            ("[  382.131942] ", Some(382_131_942)),
            ("<6>[  382.131942] ", Some(382_131_942)),
            ("[  382.131942][    T1] ", Some(382_131_942)),
            ("[  382.131942] [    C3] ", Some(382_131_942)),
            ("[  382.131942@1] ", Some(382_131_942)),
            ("3,339,5140900,-;", Some(5_140_900)),
            ("3,339,5140900,-,caller=T1;", Some(5_140_900)),
            ("kern  :emerg : [  382.131942] ", Some(382_131_942)),
            ("[Wed May  6 08:11:09 2026] ", None),
            ("2026-05-06T08:11:09,123456+00:00 ", None),
            ("May 06 08:11:09 board kernel: ", None),
            ("May  6 08:11:09 board kernel: [  382.131942] ", Some(382_131_942)),
            ("May 06 08:11:09.123456 board kernel: ", None),
            ("May  6 08:11:09 board kern.warn kernel: [  382.131942][ T12] ", Some(382_131_942)),
            ("2026-05-06T08:11:09+0000 board kernel: ", None),
            ("2026-05-06T08:11:09.123456+02:00 board kernel: ", None),
            ("Wed 2026-05-06 08:11:09 UTC board kernel: ", None),
            ("1778054400.000000 board kernel: ", None),
            ("[  382.131942] board kernel: ", Some(382_131_942)),
            ("kernel: ", None),
            ("board login: [  382.131942][ T3615] ", Some(382_131_942)),
        ] {
            check(&format!("{prefix}{said}\r\n"), said, Speaker::Kernel, uptime_us);
        }
    }

    #[test]
    fn a_process_is_told_from_the_kernel() {
        let said = "Kernel panic - not syncing: Fatal exception";
        for (prefix, uptime_us) in [
            ("May 06 08:11:09 board python3[1834]: ", None),
            ("May 06 08:11:09 board jetfault: ", None),
            ("12,339,5140900,-;", Some(5_140_900)),
            ("<14>[  382.131942] ", Some(382_131_942)),
            ("user  :notice: [  382.131942] ", Some(382_131_942)),
            ("May 06 08:11:09 board uploader[9]: May 06 08:11:09 board kernel: ", None),
        ] {
            check(&format!("{prefix}{said}"), said, Speaker::Process, uptime_us);
        }
    }

    #[test]
    fn what_looks_like_a_prefix_and_is_the_message_stays() {
        for said in [
            "usb 1-1: new high-speed USB device number 2 using tegra-xusb",
            "thermal thermal_zone0: gpu-thermal: critical temperature reached, shutting down",
            "[ BUG: Invalid wait context ]",
            "python3[1834]: segfault at 0 ip 0000000000000000 sp 0000000000000000 error 14",
            "Web Content[1834]: segfault at 0 ip 0000000000000000 sp 0000000000000000 error 14",
            "CPU:0, Error: cbb-fabric@0x13a00000, irq=22",
            "mce: [Hardware Error]: Machine check events logged",
        ] {
            check(said, said, Speaker::Kernel, None);
            check(&format!("[   12.345678] {said}"), said, Speaker::Kernel, Some(12_345_678));
        }
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let line = "é".repeat(LINE_BYTES_MAX);
        assert_eq!(message(&line).text.len(), LINE_BYTES_MAX);
    }

    #[test]
    fn messages_that_were_run_together_are_found() {
        let line = "usb 1-1: new device[  382.131942][    T1] Kernel panic - not syncing: x";
        assert_eq!(embedded(line).collect::<Vec<_>>(), ["Kernel panic - not syncing: x"]);
    }
}
