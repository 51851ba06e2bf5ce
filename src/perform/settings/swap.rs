//! Swap: which of the devices that the machine swaps to are in use.

use std::time::Duration;

use super::{Reach, Setting, SettingError};
use crate::decide::arrange::{is_zram, swap_devices};
use crate::model::evidence::Fact;
use crate::model::matrix::Tool;

/// How long it may take to read back in what a device holds.
const PATIENCE: Duration = Duration::from_secs(300);

const SWAPS: &str = "proc/swaps";

pub(super) struct Swap<'a>(pub(super) Reach<'a>);

/// The devices of `/proc/swaps` (proc_swaps(5)) as a reading. A name with spaces stays escaped, and cannot be handled.
fn parse(text: &str) -> String {
    let devices: Vec<String> = text
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some(format!("{}:{}", words.first()?, words.last()?))
        })
        .collect();
    if devices.is_empty() { "none".to_owned() } else { devices.join(" ") }
}

/// Whether a device stays in use at `level`.
fn stays(level: &str, device: &str) -> bool {
    match level {
        "zram" => is_zram(device),
        "disk" => !is_zram(device),
        _ => false,
    }
}

impl Setting for Swap<'_> {
    fn read(&self) -> Fact<String> {
        self.0.sysroot.text(SWAPS).and_then(|text| Fact::Known(parse(&text)))
    }

    fn set(&self, level: &str) -> Result<(), SettingError> {
        let reading = self.read().known().cloned().unwrap_or_default();
        for (device, _) in swap_devices(&reading).filter(|(device, _)| !stays(level, device)) {
            self.0.tools.must(Tool::Swapoff, &[device], PATIENCE)?;
        }
        Ok(())
    }

    /// A priority below 0 is one that the kernel chose itself, and cannot be asked for (swapon(8)).
    fn put_back(&self, value: &str) -> Result<(), SettingError> {
        let reading = self.read().known().cloned().unwrap_or_default();
        for (device, priority) in swap_devices(value) {
            if swap_devices(&reading).any(|(known, _)| known == device) {
                continue;
            }
            match priority {
                0.. => self.0.tools.must(Tool::Swapon, &["-p", &priority.to_string(), device], PATIENCE)?,
                _ => self.0.tools.must(Tool::Swapon, &[device], PATIENCE)?,
            }
        }
        Ok(())
    }

    fn cannot(&self, level: &str) -> Option<String> {
        let reading = match self.read() {
            Fact::Known(reading) => reading,
            Fact::Absent => return Some("this machine does not tell what it swaps to".into()),
            Fact::Denied(why) | Fact::Garbled(why) => return Some(format!("cannot read /{SWAPS}: {why}")),
        };
        if level != "off" && !swap_devices(&reading).any(|(device, _)| stays(level, device)) {
            return Some(format!("none of the devices that it swaps to is such: {reading}"));
        }
        let tools = self.0.tools;
        let missing = [Tool::Swapoff, Tool::Swapon].into_iter().find_map(|tool| tools.find(tool).err());
        missing.map(|error| error.to_string()).or_else(|| {
            let replaced = tools.is_replaced(Tool::Swapoff) && tools.is_replaced(Tool::Swapon);
            if replaced { None } else { self.0.lacks_root() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_read_in_their_order() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition\t330000\t0\t5\n/swapfile file 8 0 -2\n";
        assert_eq!(parse(text), "/dev/zram0:5 /swapfile:-2");
        assert_eq!(parse("Filename Type Size Used Priority\n"), "none");
        assert_eq!(parse(""), "none");
    }
}
