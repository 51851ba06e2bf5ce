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
