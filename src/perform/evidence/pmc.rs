//! The power management controller: why the system on chip was last reset.
//!
//! Its address and its parent differ between chips and releases (`/sys/devices/platform/c360000.pmc` under JetPack 5,
//! `…/bus@0/c360000.pmc` since 6, `…/c800000.pmc` on Thor), so it is looked for by name.

use super::Collector;
use crate::model::evidence::{Fact, names};

/// Where platform devices are.
const PLATFORM: &str = "sys/devices/platform";

/// How deep below it the controller may be.
const DEPTH_MAX: u32 = 3;

pub(super) fn read(collector: &mut Collector<'_>) {
    let found = collector.sysroot.directories(PLATFORM, ".pmc", DEPTH_MAX);
    let by_address = |path: &&String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with(|c: char| c.is_ascii_hexdigit())
    };
    let Some(pmc) = found.iter().find(by_address) else {
        collector.put(names::RESET_REASON, Fact::Absent);
        collector.put(names::RESET_LEVEL, Fact::Absent);
        return;
    };
    collector.attribute(names::RESET_REASON, &format!("{pmc}/reset_reason"));
    collector.attribute(names::RESET_LEVEL, &format!("{pmc}/reset_level"));
    for slot in ["rootfs_retry_count_a", "rootfs_retry_count_b"] {
        collector.attribute(format!("pmc/{slot}"), &format!("{pmc}/{slot}"));
    }
}
