//! The GPU of a Jetson, without waking it: whether it was ever initialised, and who holds memory of it.

use super::Collector;
use crate::model::evidence::names;

/// Where nvgpu's attributes are; the first that is there. They differ between releases of Jetson Linux.
const DEVICES: [&str; 5] = [
    "sys/devices/platform/bus@0/17000000.gpu",
    "sys/devices/platform/17000000.gpu",
    "sys/devices/platform/gpu.0",
    "sys/devices/17000000.ga10b",
    "sys/devices/gpu.0",
];

/// Clients of NvMap, for root alone.
const CLIENTS: &str = "sys/kernel/debug/nvmap/iovmm/clients";

pub(super) fn read(collector: &mut Collector<'_>) {
    let is_there = |device: &&&str| collector.sysroot.entries(device).known().is_some();
    if let Some(device) = DEVICES.iter().find(is_there) {
        collector.attribute(names::GOLDEN_IMAGE, &format!("{device}/golden_img_status"));
    }
    collector.attribute(names::NVMAP_CLIENTS, CLIENTS);
}
