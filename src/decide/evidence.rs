//! What raw evidence means: one small reader per source, no judgement.
//!
//! Everything read here was written by a machine that may have been dying: readers take any bytes, look at a bounded
//! part of them, and say absent or garbled rather than guess. What the findings amount to is [`crate::decide::infer`]'s.

mod boots;

mod crash;

mod counters;

mod journal_end;

mod kernel_end;

mod lines;

pub use boots::read_boots;
pub use journal_end::journal_text;

use crate::model::evidence::{EndSign, Fact, Findings, RawEvidence, Reset, names};

use journal_end::{Entry, entries, ordered_by, shutdown};

/// Entries at the end of the journal of the boot before that are looked at.
///
/// A persistent journal often closes before its last line: any line of the teardown among the last ones will do.
const TAIL_ENTRIES_MAX: usize = 200;

/// Kernel messages at the end of the boot before that are looked at.
const KERNEL_ENTRIES_MAX: usize = 2000;

/// Bytes of a reset reason or level that are kept.
const WORD_BYTES_MAX: usize = 64;

/// What verdicts need of `raw`.
pub fn findings(raw: &RawEvidence) -> Findings {
    let tail = raw_item(raw, names::PREVIOUS).and_then(|bytes| known_entries(&bytes, TAIL_ENTRIES_MAX));
    Findings {
        boots: boots::boots(raw),
        crash_records: crash::crash_records(raw),
        shutdown: tail.clone().and_then(|entries| Fact::Known(shutdown(&entries))),
        reset: reset(raw),
        drives: counters::drives(raw),
        watchdog_fired: counters::watchdog_fired(raw),
        kernel_end: kernel_end(raw, &tail),
        ordered_by: tail.and_then(|entries| ordered_by(&entries).map_or(Fact::Absent, Fact::Known)),
    }
}

/// The kernel's messages in a log, JSON or text, the last of them if there are many.
pub fn kernel_messages(bytes: &[u8]) -> Vec<String> {
    let lines = entries(bytes, KERNEL_ENTRIES_MAX);
    if lines.is_empty() {
        // The kernel's own buffer has no host and no identifier before its messages.
        return lines::last_lines(bytes, KERNEL_ENTRIES_MAX)
            .into_iter()
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
    }
    lines.into_iter().filter(|entry| entry.is_kernel).map(|entry| entry.message).collect()
}

/// The item of that name; one that nobody looked for is absent.
fn raw_item(raw: &RawEvidence, name: &str) -> Fact<Vec<u8>> {
    raw.items.get(name).cloned().unwrap_or_default()
}

/// The items in the directory `prefix`, with their names within it.
fn raw_items<'a>(raw: &'a RawEvidence, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Fact<Vec<u8>>)> {
    let within = raw
        .items
        .range(prefix.to_owned()..)
        .map_while(move |(name, item)| name.strip_prefix(prefix).map(|rest| (rest, item)));
    within.filter(|(name, _)| !name.is_empty())
}

/// The last `max` entries of a journal; absent if it holds none.
fn known_entries(bytes: &[u8], max: usize) -> Fact<Vec<Entry>> {
    let entries = entries(bytes, max);
    if entries.is_empty() { Fact::Absent } else { Fact::Known(entries) }
}

/// What the kernel of the boot before told of its end, by its own log, else by its lines in the journal's tail.
fn kernel_end(raw: &RawEvidence, tail: &Fact<Vec<Entry>>) -> Fact<Vec<EndSign>> {
    let own = raw_item(raw, names::PREVIOUS_KERNEL).and_then(|bytes| known_entries(&bytes, KERNEL_ENTRIES_MAX));
    let entries = match (&own, tail) {
        (Fact::Known(entries), _) | (_, Fact::Known(entries)) => entries,
        _ => return own.and_then(|_| Fact::Absent),
    };
    Fact::Known(kernel_end::signs(entries.iter().filter(|entry| entry.is_kernel).map(|entry| entry.message.as_str())))
}

/// The word and the level of the power management controller, verbatim.
fn reset(raw: &RawEvidence) -> Fact<Reset> {
    let level = raw_item(raw, names::RESET_LEVEL).known().and_then(|bytes| word(bytes));
    raw_item(raw, names::RESET_REASON).and_then(|bytes| match word(&bytes) {
        Some(reason) => Fact::Known(Reset { reason, level }),
        None => Fact::Garbled(lines::cut(&String::from_utf8_lossy(&bytes), WORD_BYTES_MAX).to_owned()),
    })
}

/// One printable word.
fn word(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim_matches(['\n', '\r', '\0', ' ']);
    let is_word = !text.is_empty() && text.len() <= WORD_BYTES_MAX && text.chars().all(|c| c.is_ascii_graphic());
    is_word.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::evidence::{CrashRecord, END_LINE_BYTES_MAX};
    use crate::model::ids::BootId;

    /// Every item that is interpreted.
    const NAMES: [&str; 13] = [
        names::BOOTS,
        names::BOOTS_LEDGER,
        names::PREVIOUS,
        names::PREVIOUS_KERNEL,
        names::RESET_REASON,
        names::RESET_LEVEL,
        names::PSTORE,
        names::PSTORE_BACKEND,
        "pstore/dmesg-ramoops-0",
        "pstore/console-ramoops-0",
        "pstore/systemd/1778/dmesg-efi-1.enc.z",
        "nvme/nvme0.json",
        "watchdog/watchdog0/bootstatus",
    ];

    /// What such an item may begin with when the machine died while it was written.
    const BEGINNINGS: [&str; 12] = [
        "",
        "Panic#1 Part1\n",
        "Emergency#2 Part1\n<6>[    4.450946] sysrq: Resetting\n",
        "-1 1f06b7399e6f4d8eb4cd0d9449a8b993 ",
        "[{\"boot_id\":\"1f06b7399e6f4d8eb4cd0d9449a8b993\"},",
        "{\"SYSLOG_IDENTIFIER\":\"systemd\",\"MESSAGE\":[82,101,",
        "{\"MESSAGE\":null,\"_TRANSPORT\":\"kernel\"}\n",
        "May 06 08:13:03.180000 board kernel: Kernel panic - not syncing: ",
        "{\"power_cycles\":\"37\",\"unsafe_shutdowns\":",
        "MAINSWRST",
        "0x",
        "<0>[  122.431880] Kernel panic - not syncing: ",
    ];

    fn any_item() -> impl Strategy<Value = Fact<Vec<u8>>> {
        let bytes = (prop::sample::select(&BEGINNINGS[..]), prop::collection::vec(any::<u8>(), 0..400));
        prop_oneof![
            4 => bytes.prop_map(|(begin, rest)| Fact::Known([begin.as_bytes(), &rest].concat())),
            1 => Just(Fact::Denied("permission denied".to_owned())),
            1 => Just(Fact::Absent),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_fail_or_a_finding_without_bounds(
            items in prop::collection::vec(any_item(), NAMES.len())
        ) {
            let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
            let items = NAMES.iter().map(|name| (*name).to_owned()).zip(items).collect();
            let findings = findings(&RawEvidence { boot, items });
            let records: Vec<&CrashRecord> = findings.crash_records.known().into_iter().flatten().collect();
            let signs = records.iter().flat_map(|record| &record.signs).chain(findings.kernel_end.known().into_iter().flatten());
            for sign in signs {
                prop_assert!(sign.line.len() <= END_LINE_BYTES_MAX);
            }
            prop_assert!(records.len() <= 3);
            if let Fact::Known(reset) = &findings.reset {
                prop_assert!(reset.reason.len() <= WORD_BYTES_MAX && !reset.reason.contains(char::is_whitespace));
            }
            // What is stored can be read back.
            let stored = serde_json::to_string(&findings).unwrap();
            prop_assert_eq!(serde_json::from_str::<Findings>(&stored).unwrap(), findings);
        }
    }

    #[test]
    fn the_end_of_a_long_journal_is_what_counts() {
        let entry = "May 06 08:13:03 board app[1834]: working\n";
        let teardown = "May 06 08:13:03 board systemd[1]: Shutting down.\n";
        let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        let shutdown = |text: String| {
            let items = [(names::PREVIOUS.to_owned(), Fact::Known(text.into_bytes()))].into();
            findings(&RawEvidence { boot: boot.clone(), items }).shutdown
        };
        use crate::model::evidence::Shutdown::{Clean, Unclean};
        assert_eq!(shutdown(entry.repeat(100_000) + teardown), Fact::Known(Clean));
        assert_eq!(shutdown(teardown.to_owned() + &entry.repeat(TAIL_ENTRIES_MAX)), Fact::Known(Unclean));
        assert_eq!(shutdown(String::new()), Fact::Absent);
    }
}
