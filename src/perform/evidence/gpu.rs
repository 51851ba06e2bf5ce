//! The GPU of a Jetson, without waking it: whether it was ever initialised, and who holds memory of it.

use super::Collector;
use crate::model::evidence::names;
use crate::perform::gpu_health::NVGPU_DEVICES;

/// Clients of NvMap, for root alone.
const CLIENTS: &str = "sys/kernel/debug/nvmap/iovmm/clients";

pub(super) fn read(collector: &mut Collector<'_>) {
    let is_there = |device: &&&str| collector.sysroot.entries(device).known().is_some();
    if let Some(device) = NVGPU_DEVICES.iter().find(is_there) {
        collector.attribute(names::GOLDEN_IMAGE, &format!("{device}/golden_img_status"));
    }
    collector.attribute(names::NVMAP_CLIENTS, CLIENTS);
}
