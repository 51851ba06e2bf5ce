//! Sensors and watchdogs in sysfs: thermal zones by type, over-current and under-voltage counters by the name of their
//! chip, watchdogs.
//!
//! Numbers of zones and chips differ from boot to boot and are never used as names.

use std::collections::BTreeMap;

use super::{Collector, component};
use crate::model::evidence::{Fact, names};

/// Directories of sysfs, and the attribute that says what a device in them is.
const THERMAL: &str = "sys/class/thermal";
const HWMON: &str = "sys/class/hwmon";
const WATCHDOG: &str = "sys/class/watchdog";

/// The most devices of one class.
const DEVICES_MAX: usize = 64;

/// Attributes of a watchdog (Documentation/ABI/testing/sysfs-class-watchdog).
const WATCHDOG_ATTRIBUTES: [&str; 8] =
    ["bootstatus", "identity", "nowayout", "pretimeout", "state", "status", "timeleft", "timeout"];

pub(super) fn read(collector: &mut Collector<'_>) {
    let zone = |name: &str| name == "temp" || name == "mode" || name.starts_with("trip_point_");
    class(collector, "thermal", THERMAL, "type", &|kind| kind.starts_with("thermal_zone"), &|_, name| zone(name));
    class(collector, "over-current", HWMON, "name", &|_| true, &is_about_current);
    watchdogs(collector);
}

/// Whether an attribute of a chip says that power was short. `soctherm_oc` counts under-voltage and over-current events
/// (drivers/thermal/tegra234-oc-event.c of NVIDIA), `ina3221` compares the power rails with limits.
fn is_about_current(chip: &str, name: &str) -> bool {
    match chip {
        "soctherm_oc" => name.ends_with("_event_cnt") || name.ends_with("_throt_en"),
        "ina3221" => {
            let limit = ["_crit", "_crit_alarm", "_max", "_max_alarm"].iter().any(|suffix| name.ends_with(suffix));
            limit || name.ends_with("_label")
        }
        _ => false,
    }
}

/// Reads the wanted attributes of each device of a class as `NAME/KIND/ATTRIBUTE`; a second device of a kind is `KIND-2`.
fn class(
    collector: &mut Collector<'_>,
    name: &str,
    dir: &str,
    kind_attribute: &str,
    is_device: &dyn Fn(&str) -> bool,
    wanted: &dyn Fn(&str, &str) -> bool,
) {
    let devices = match collector.sysroot.devices(dir) {
        Fact::Known(devices) => devices,
        unread => return collector.put(format!("{name}/"), unread.and_then(|_| Fact::Absent)),
    };
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for device in devices.iter().filter(|device| is_device(device)).take(DEVICES_MAX) {
        let path = format!("{dir}/{device}");
        let Fact::Known(kind) = collector.sysroot.text(&format!("{path}/{kind_attribute}")) else { continue };
        let Fact::Known(attributes) = collector.sysroot.entries(&path) else { continue };
        let attributes: Vec<&String> = attributes.iter().filter(|attribute| wanted(&kind, attribute)).collect();
        if attributes.is_empty() {
            continue;
        }
        let number = seen.entry(kind.clone()).and_modify(|number| *number += 1).or_insert(1);
        let suffix = if *number > 1 { format!("-{number}") } else { String::new() };
        for attribute in attributes {
            let item = format!("{name}/{}{suffix}/{}", component(&kind), component(attribute));
            collector.attribute(item, &format!("{path}/{attribute}"));
        }
    }
}

fn watchdogs(collector: &mut Collector<'_>) {
    match collector.sysroot.devices(WATCHDOG) {
        Fact::Known(devices) => {
            for device in devices.iter().take(DEVICES_MAX) {
                let item = format!("{}{}", names::WATCHDOG, component(device));
                let wanted = |name: &str| WATCHDOG_ATTRIBUTES.contains(&name);
                collector.attributes(&item, &format!("{WATCHDOG}/{device}"), wanted);
            }
            // Kernels without CONFIG_WATCHDOG_SYSFS show devices and nothing in them.
            collector.put(names::WATCHDOG, Fact::Known(devices.join("\n").into_bytes()));
        }
        unread => collector.put(names::WATCHDOG, unread.and_then(|_| Fact::Absent)),
    }
}
