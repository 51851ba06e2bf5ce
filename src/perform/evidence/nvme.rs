//! Power counters of NVMe drives: they tell a loss of power from a reset, which leaves drives powered.
//!
//! nvme-cli is asked if it is installed; otherwise the drive itself, by the same command of the NVMe specification.

use std::fs::OpenOptions;
use std::time::Duration;

use super::{Collector, component};
use crate::model::evidence::{Fact, names};
use crate::perform::host::{COMMANDS, Command, Keep, Limit, Sysroot};
use crate::perform::os::nvme_smart_log;

/// How long a drive may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

const SMART_LOG: Limit = Limit { bytes: 64 << 10, keep: Keep::Start };

/// The most drives.
const DRIVES_MAX: usize = 8;

/// What the output of a command in a captured tree is called, before and after the drive.
const FILE: (&str, &str) = ("nvme-smart-log", ".json");

/// The first drive, where a tree does not name it.
const FIRST: &str = "nvme0";

pub(super) fn read(collector: &mut Collector<'_>) {
    let drives = drives(collector.sysroot);
    if drives.is_empty() {
        collector.put(names::NVME, Fact::Absent);
    }
    for (drive, log) in drives {
        collector.put(format!("{}{}.json", names::NVME, component(&drive)), log);
    }
}

/// The drives, with what each says of itself.
pub fn drives(sysroot: &Sysroot) -> Vec<(String, Fact<Vec<u8>>)> {
    if sysroot.is_live() {
        let drives = sysroot.entries("sys/class/nvme").known().cloned().unwrap_or_default();
        let log = |drive: String| {
            let log = smart_log(sysroot, &drive);
            (drive, log)
        };
        return drives.into_iter().take(DRIVES_MAX).map(log).collect();
    }
    let files = sysroot.entries(COMMANDS).known().cloned().unwrap_or_default();
    let log = |file: &String| {
        let drive = drive_of(file)?.to_owned();
        Some((drive, sysroot.bytes(&format!("{COMMANDS}/{file}"), SMART_LOG)))
    };
    files.iter().filter_map(log).take(DRIVES_MAX).collect()
}

/// The drive whose log is in `file` of a captured tree.
fn drive_of(file: &str) -> Option<&str> {
    let name = file.strip_prefix(FILE.0)?.strip_suffix(FILE.1)?;
    match name.strip_prefix('-') {
        Some(drive) => {
            let number = drive.strip_prefix("nvme")?;
            (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(drive)
        }
        None => name.is_empty().then_some(FIRST),
    }
}

fn smart_log(sysroot: &Sysroot, drive: &str) -> Fact<Vec<u8>> {
    let device = format!("/dev/{drive}");
    let file = format!("{}-{drive}{}", FILE.0, FILE.1);
    let argv = ["nvme", "smart-log", &device, "-o", "json"];
    let command = Command { file: &file, argv: &argv, patience: PATIENCE, limit: SMART_LOG };
    sysroot.output_or(&command, || {
        match OpenOptions::new().read(true).open(&device).and_then(|drive| nvme_smart_log(&drive)) {
            Ok(log) => Fact::Known(to_json(&log)),
            Err(error) => Fact::Denied(format!("ask {device} for its SMART log: {error}")),
        }
    })
}

/// The counters of interest in a SMART / Health Information log page, under the names that nvme-cli gives them.
///
/// NVMe Base Specification 2.0, figure 207: power cycles in bytes 112 to 127, power-on hours in 128 to 143, unsafe
/// shutdowns in 144 to 159, little-endian.
fn to_json(log: &[u8; 512]) -> Vec<u8> {
    let counter =
        |at: usize| u128::from_le_bytes(log[at..at + 16].try_into().expect("16 bytes")).min(u64::MAX.into()) as u64;
    let counters = serde_json::json!({
        "power_cycles": counter(112),
        "power_on_hours": counter(128),
        "unsafe_shutdowns": counter(144),
    });
    serde_json::to_vec(&counters).expect("names of fields are text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_told_by_the_names_of_files() {
        assert_eq!(drive_of("nvme-smart-log.json"), Some("nvme0"));
        assert_eq!(drive_of("nvme-smart-log-nvme12.json"), Some("nvme12"));
        for other in
            ["nvme-smart-log-before.json", "nvme-smart-log-nvme.json", "nvme-smart-log-nvme1x.json", "last-x-F.txt"]
        {
            assert_eq!(drive_of(other), None, "{other}");
        }
    }

    #[test]
    fn counters_are_read_where_the_specification_puts_them() {
        let mut log = [0xff; 512];
        for (at, value) in [(112, 38_u128), (128, 70_000), (144, 13)] {
            log[at..at + 16].copy_from_slice(&value.to_le_bytes());
        }
        let json: serde_json::Value = serde_json::from_slice(&to_json(&log)).unwrap();
        assert_eq!(json, serde_json::json!({"power_cycles": 38, "power_on_hours": 70_000, "unsafe_shutdowns": 13}));
    }
}
