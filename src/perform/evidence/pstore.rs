//! Crash records in persistent storage: where the kernel leaves them, and where systemd-pstore(8) moves them.
//!
//! All of them are read, old ones too: which are new is decided by their digests. Nothing is removed.

use super::{Collector, component};
use crate::model::evidence::{Fact, names};
use crate::perform::host::{Keep, Limit};

/// Where the kernel shows them.
const LIVE: &str = "sys/fs/pstore";

/// Where systemd-pstore moves them: `RECORD-ID/NAME` or `RECORD-ID/NUMBER/NAME`.
const ARCHIVE: &str = "var/lib/systemd/pstore";

/// Of one record its beginning is kept, with the reason and the call trace. A ramoops record of Jetson Linux has 64 KiB, its console 512 KiB.
const RECORD: Limit = Limit { bytes: 512 << 10, keep: Keep::Start };

/// The most records from each place.
const RECORDS_MAX: usize = 16;

pub(super) fn read(collector: &mut Collector<'_>) {
    match collector.sysroot.entries(LIVE) {
        Fact::Known(records) => {
            for record in records.iter().take(RECORDS_MAX) {
                read_record(collector, component(record), &format!("{LIVE}/{record}"));
            }
            collector.put(names::PSTORE, Fact::Known(listing(&records)));
        }
        unread => collector.put(names::PSTORE, unread.and_then(|_| Fact::Absent)),
    }
    match archived(collector) {
        Fact::Known(records) => {
            for record in records.iter().take(RECORDS_MAX) {
                let name: Vec<String> = record.split('/').map(component).collect();
                read_record(collector, format!("systemd/{}", name.join("/")), &format!("{ARCHIVE}/{record}"));
            }
            collector.put("pstore/systemd/", Fact::Known(listing(&records)));
        }
        unread => collector.put("pstore/systemd/", unread.and_then(|_| Fact::Absent)),
    }
}

fn read_record(collector: &mut Collector<'_>, name: String, path: &str) {
    let record = collector.sysroot.bytes(path, RECORD);
    collector.put(format!("{}{name}", names::PSTORE), record);
}

fn listing(records: &[String]) -> Vec<u8> {
    records.iter().flat_map(|record| format!("{record}\n").into_bytes()).collect()
}

/// The paths of archived records below the archive, the newest first: directories are named by time.
fn archived(collector: &Collector<'_>) -> Fact<Vec<String>> {
    let list = |path: &str| collector.sysroot.entries(&format!("{ARCHIVE}{path}"));
    list("").and_then(|mut ids| {
        ids.sort_by_key(|id| std::cmp::Reverse((id.len(), id.clone())));
        let mut records = Vec::new();
        for id in ids {
            let Fact::Known(names) = list(&format!("/{id}")) else {
                records.push(id);
                continue;
            };
            let mut below = Vec::new();
            for name in names {
                match list(&format!("/{id}/{name}")) {
                    Fact::Known(inner) => below.extend(inner.iter().map(|inner| format!("{id}/{name}/{inner}"))),
                    Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => below.push(format!("{id}/{name}")),
                }
            }
            // `dmesg.txt` is put together from the others, and would be the same crash again.
            let has_parts = below.iter().any(|path| file_name(path).starts_with("dmesg-"));
            records.extend(below.into_iter().filter(|path| !(has_parts && file_name(path) == "dmesg.txt")));
            if records.len() >= RECORDS_MAX {
                break;
            }
        }
        Fact::Known(records)
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}
