//! Counters and flags that outlive a boot: a drive's power counters, a watchdog's boot status.

use serde_json::Value;

use super::raw_items;
use crate::model::evidence::{DriveCounters, Fact, RawEvidence, names};

/// `WDIOF_CARDRESET`: the watchdog reset the machine (include/uapi/linux/watchdog.h).
const CARD_RESET: u64 = 0x20;

/// The power counters of every drive that tells some; absent if none does.
pub(super) fn drives(raw: &RawEvidence) -> Fact<Vec<DriveCounters>> {
    let mut drives = Vec::new();
    let mut unread = Fact::Absent;
    for (name, item) in raw_items(raw, names::NVME) {
        let drive = name.strip_suffix(".json").unwrap_or(name);
        match item.clone().and_then(|bytes| drive_counters(drive, &bytes)) {
            Fact::Known(counters) => drives.push(counters),
            Fact::Absent => {}
            Fact::Denied(why) => unread = Fact::Denied(why),
            Fact::Garbled(raw) => unread = Fact::Garbled(raw),
        }
    }
    if drives.is_empty() { unread } else { Fact::Known(drives) }
}

/// The counters in a SMART log as `nvme smart-log -o json` prints it: numbers, or strings of digits with separators.
fn drive_counters(drive: &str, bytes: &[u8]) -> Fact<DriveCounters> {
    let log = match serde_json::from_slice::<Value>(bytes) {
        Ok(log) => log,
        Err(error) => return Fact::Garbled(error.to_string()),
    };
    let counter = |name: &str| match log.get(name) {
        Some(Value::Number(number)) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Some(Value::String(text)) => text.replace([',', '_'], "").trim().parse().ok(),
        Some(_) | None => None,
    };
    match (counter("power_cycles"), counter("unsafe_shutdowns")) {
        (Some(power_cycles), Some(unsafe_shutdowns)) => {
            Fact::Known(DriveCounters { drive: drive.to_owned(), power_cycles, unsafe_shutdowns })
        }
        _ => Fact::Garbled(format!("the SMART log of {drive} has no power counters")),
    }
}

/// A counter that was printed as a floating-point number, as 128-bit fields are by some versions.
fn whole(number: f64) -> Option<u64> {
    // Beyond 2^53 neighbouring counts are one number.
    let is_exact = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
    is_exact.then_some(number as u64)
}

/// Whether any watchdog says that it reset the machine; absent if none has a boot status.
///
/// A driver that does not know always says 0 (softdog, the Tegra drivers): a 0 is no proof.
pub(super) fn watchdog_fired(raw: &RawEvidence) -> Fact<bool> {
    let statuses = raw_items(raw, names::WATCHDOG).filter(|(name, _)| name.ends_with("/bootstatus"));
    let mut fired = Fact::Absent;
    for (_, item) in statuses {
        match (item.clone().and_then(|bytes| boot_status(&bytes)), &fired) {
            (Fact::Known(status), _) if status & CARD_RESET != 0 => return Fact::Known(true),
            (Fact::Known(_), _) => fired = Fact::Known(false),
            (_, Fact::Known(_)) | (Fact::Absent, _) => {}
            (unread, _) => fired = unread.and_then(|_| Fact::Absent),
        }
    }
    fired
}

/// The kernel prints it in decimal, `/dev/watchdog` users and older drivers in hexadecimal.
fn boot_status(bytes: &[u8]) -> Fact<u64> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let status = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    status.map_or_else(|_| Fact::Garbled(super::lines::cut(text, 64).to_owned()), Fact::Known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::BootId;

    fn raw(items: &[(&str, &str)]) -> RawEvidence {
        let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        let items = items.iter().map(|(name, text)| ((*name).to_owned(), Fact::Known(text.as_bytes().to_vec())));
        RawEvidence { boot, items: items.collect() }
    }

    #[test]
    fn counters_are_read_as_numbers_and_as_strings() {
        for log in [
            r#"{"power_cycles": 38, "unsafe_shutdowns": 13}"#,
            r#"{"critical_warning":0,"power_cycles":"38","unsafe_shutdowns":"13"}"#,
            r#"{"power_cycles":38.0,"unsafe_shutdowns":1.3e1}"#,
        ] {
            let want = DriveCounters { drive: "nvme0".into(), power_cycles: 38, unsafe_shutdowns: 13 };
            assert_eq!(drives(&raw(&[("nvme/nvme0.json", log)])), Fact::Known(vec![want]), "{log}");
        }
        assert_eq!(drives(&raw(&[])), Fact::Absent);
        for log in ["", "{}", r#"{"power_cycles": -1, "unsafe_shutdowns": 13}"#, "[]"] {
            assert!(matches!(drives(&raw(&[("nvme/nvme0.json", log)])), Fact::Garbled(_)), "{log}");
        }
    }

    #[test]
    fn a_watchdog_that_fired_is_told_from_one_that_did_not() {
        for (status, fired) in [("32\n", true), ("0x20", true), ("33", true), ("0\n", false), ("1", false)] {
            let raw = raw(&[("watchdog/watchdog0/bootstatus", status), ("watchdog/watchdog0/identity", "32")]);
            assert_eq!(watchdog_fired(&raw), Fact::Known(fired), "{status}");
        }
        let two = raw(&[("watchdog/watchdog0/bootstatus", "0"), ("watchdog/watchdog1/bootstatus", "32")]);
        assert_eq!(watchdog_fired(&two), Fact::Known(true));
        assert_eq!(watchdog_fired(&raw(&[])), Fact::Absent);
        assert!(matches!(watchdog_fired(&raw(&[("watchdog/watchdog0/bootstatus", "?")])), Fact::Garbled(_)));
    }
}
