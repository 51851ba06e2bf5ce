//! Crash records of the kernel: pstore's own directory, and where systemd-pstore moves what it finds there.

use std::collections::HashSet;

use super::{kernel_end, lines, raw_item, raw_items};
use crate::model::evidence::{CrashKind, CrashRecord, EndWord, Fact, RawEvidence, names};
use crate::model::ids::ContentDigest;

/// Records that are kept; a storage of 2 MiB holds about thirty.
const RECORDS_MAX: usize = 256;

/// Lines at the end of a record that are looked at.
const LINES_MAX: usize = 4096;

/// The records, each once wherever it lies; known and empty only where they could be looked at.
///
/// A storage that is there and in which nothing could have been written, because no backend was loaded, proves nothing:
/// it is absent.
pub(super) fn crash_records(raw: &RawEvidence) -> Fact<Vec<CrashRecord>> {
    let mut records: Vec<CrashRecord> = Vec::new();
    let mut seen = HashSet::new();
    for (name, item) in raw_items(raw, names::PSTORE) {
        let name = name.rsplit('/').next().unwrap_or(name);
        match item {
            Fact::Known(bytes) => {
                if let Some(record) = record(name, bytes)
                    && seen.insert(record.digest.clone())
                    && records.len() < RECORDS_MAX
                {
                    records.push(record);
                }
            }
            Fact::Absent => {}
            Fact::Denied(why) => return Fact::Denied(why.clone()),
            Fact::Garbled(raw) => return Fact::Garbled(raw.clone()),
        }
    }
    if !records.is_empty() {
        return Fact::Known(records);
    }
    match raw_item(raw, names::PSTORE) {
        Fact::Known(_) if has_no_backend(raw) => Fact::Absent,
        Fact::Known(_) => Fact::Known(records),
        Fact::Absent => Fact::Absent,
        Fact::Denied(why) => Fact::Denied(why),
        Fact::Garbled(raw) => Fact::Garbled(raw),
    }
}

/// Whether pstore itself says that nothing is behind it.
fn has_no_backend(raw: &RawEvidence) -> bool {
    let backend = raw_item(raw, names::PSTORE_BACKEND);
    backend.known().is_some_and(|bytes| matches!(bytes.trim_ascii(), b"" | b"(null)" | b"none"))
}

/// One file. What is no record of a crash is none: `dmesg.txt` is what systemd-pstore puts together from records that
/// lie beside it, and would be taken for news.
fn record(name: &str, bytes: &[u8]) -> Option<CrashRecord> {
    let is_record = ["dmesg-", "console-", "pmsg-", "ftrace-", "mce-"].iter().any(|prefix| name.starts_with(prefix));
    if !is_record {
        return None;
    }
    let digest = ContentDigest::of(without_ecc(bytes));
    // What pstore could not decompress keeps this ending.
    if name.ends_with(".enc.z") || !is_text(bytes) {
        return Some(CrashRecord { garbled: true, ..CrashRecord::of(digest, CrashKind::Other) });
    }
    let lines: Vec<String> = lines::last_lines(bytes, LINES_MAX).into_iter().map(lossy).collect();
    let mut kind = kind(name, bytes);
    let signs = match kind {
        CrashKind::Other => Vec::new(),
        _ => kernel_end::signs(lines.iter().map(String::as_str)),
    };
    // A panic that restarts the machine dumps once more as it does; the record of that one tells of the panic.
    if kind == CrashKind::Emergency && signs.iter().any(|sign| sign.word == EndWord::Panic) {
        kind = CrashKind::Panic;
    }
    Some(CrashRecord { signs, ..CrashRecord::of(digest, kind) })
}

/// Without the line in which ramoops says how many bytes it corrected this time: the record is the same.
fn without_ecc(bytes: &[u8]) -> &[u8] {
    let end = bytes.trim_ascii_end();
    let last = end.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    if last.starts_with(b"ECC: ") { &end[..end.len() - last.len()] } else { bytes }
}

fn lossy(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

/// A record whose memory decayed is corrected or cut by ramoops, and mostly text; compressed bytes are not.
fn is_text(bytes: &[u8]) -> bool {
    let odd = bytes.iter().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
    !bytes.is_empty() && odd * 20 <= bytes.len()
}

/// By the first line, `Panic#1 Part1`, else by the name. The words are `kmsg_dump_reason_str`'s (kernel/printk/printk.c)
/// and, before 5.8, those of three kinds of shutdown.
fn kind(name: &str, bytes: &[u8]) -> CrashKind {
    let header = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let reason = header.split(|byte| *byte == b'#').next().filter(|reason| reason.len() < header.len());
    match reason {
        Some(b"Panic") => CrashKind::Panic,
        Some(b"Oops") => CrashKind::Oops,
        Some(b"Emergency") => CrashKind::Emergency,
        Some(b"Shutdown" | b"Restart" | b"Halt" | b"Poweroff") => CrashKind::Shutdown,
        Some(_) | None if name.starts_with("console-") => CrashKind::Console,
        Some(_) | None => CrashKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::BootId;

    fn records(items: &[(&str, &[u8])]) -> Fact<Vec<CrashRecord>> {
        let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        let items = items.iter().map(|(name, bytes)| ((*name).to_owned(), Fact::Known(bytes.to_vec())));
        crash_records(&RawEvidence { boot, items: items.collect() })
    }

    fn one(name: &str, text: &str) -> (CrashKind, Vec<EndWord>) {
        let records = records(&[(name, text.as_bytes())]);
        let record = &records.known().unwrap()[0];
        (record.kind, record.signs.iter().map(|sign| sign.word).collect())
    }

    #[test]
    fn a_record_is_what_its_first_line_and_its_messages_say() {
        use EndWord::*;
        let panic =
            "Panic#1 Part1\n<4>[  122.431880] pc : f+0x44/0x180\n<0>[  122.431880] Kernel panic - not syncing: x\n";
        assert_eq!(one("pstore/dmesg-ramoops-0", panic), (CrashKind::Panic, vec![Panic]));
        assert_eq!(one("pstore/systemd/1778/dmesg-efi-177805518201001", panic).0, CrashKind::Panic);
        let sysrq = "Emergency#1 Part1\n<6>[    4.450946] sysrq: Resetting\n\nECC: No errors detected\n";
        assert_eq!(one("pstore/dmesg-ramoops-0", sysrq), (CrashKind::Emergency, vec![Reset]));
        let countdown = "Emergency#2 Part1\n<0>[    4.233568] Rebooting in 1 seconds..\n";
        assert_eq!(one("pstore/dmesg-ramoops-1", countdown), (CrashKind::Panic, vec![Panic]));
        let softdog = "Emergency#1 Part1\n<2>[   60.100000] softdog: Initiating system reboot\n";
        assert_eq!(one("pstore/dmesg-ramoops-0", softdog), (CrashKind::Emergency, vec![Watchdog]));
        let restart = "[  601.010772] reboot: Restarting system\n";
        assert_eq!(one("pstore/console-ramoops-0", restart), (CrashKind::Console, vec![Restart]));
        assert_eq!(one("pstore/console-ramoops-0", "[  109.220014] stage\n"), (CrashKind::Console, vec![]));
        assert_eq!(one("pstore/dmesg-ramoops-0", "Poweroff#1 Part1\n").0, CrashKind::Shutdown);
        assert_eq!(
            one("pstore/pmsg-ramoops-0", "Kernel panic - not syncing: a process wrote it\n").0,
            CrashKind::Other
        );
    }

    #[test]
    fn a_record_that_cannot_be_read_is_known_to_be_one() {
        for (name, bytes) in
            [("pstore/dmesg-ramoops-0.enc.z", &b"Panic#1"[..]), ("pstore/dmesg-efi-1", &[0x78, 1, 2, 3])]
        {
            let records = records(&[(name, bytes)]);
            assert!(records.known().unwrap()[0].garbled, "{name}");
        }
    }

    #[test]
    fn no_record_is_told_from_no_access() {
        assert_eq!(records(&[("pstore/", b"")]), Fact::Known(vec![]));
        assert_eq!(records(&[]), Fact::Absent);
        assert_eq!(records(&[("pstore/", b""), ("kernel/pstore-backend", b"(null)\n")]), Fact::Absent);
        assert_eq!(records(&[("pstore/", b""), ("kernel/pstore-backend", b"ramoops\n")]), Fact::Known(vec![]));
    }

    #[test]
    fn a_record_that_was_moved_is_the_same_and_a_summary_is_none() {
        let panic = b"Panic#1 Part1\n<0>[    1.000000] Kernel panic - not syncing: x\n";
        let both = records(&[
            ("pstore/dmesg-ramoops-0", panic),
            ("pstore/systemd/1778/dmesg-ramoops-0", panic),
            ("pstore/systemd/1778/dmesg.txt", b"<0>[    1.000000] Kernel panic - not syncing: x\n"),
        ]);
        assert_eq!(both.known().map(Vec::len), Some(1));
        let corrected =
            |ecc: &str| records(&[("pstore/dmesg-ramoops-0", format!("Panic#1 Part1\n\nECC: {ecc}\n").as_bytes())]);
        assert_eq!(corrected("No errors detected"), corrected("3 Corrected bytes, 0 unrecoverable blocks"));
    }
}
