//! Settings and state of the running kernel: what it does at a panic, how long it is up, whether its clock is right.

use super::Collector;
use crate::model::evidence::Fact;
use crate::perform::host::{Keep, Limit, Sysroot};
use crate::perform::os::clock_is_synchronised;

/// Settings that decide what a fault looks like from outside (Documentation/admin-guide/sysctl).
const SYSCTLS: [&str; 15] = [
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/panic_on_warn",
    "kernel/panic_on_rcu_stall",
    "kernel/softlockup_panic",
    "kernel/hardlockup_panic",
    "kernel/hung_task_panic",
    "kernel/hung_task_timeout_secs",
    "kernel/watchdog_thresh",
    "kernel/oops_limit",
    "kernel/sysrq",
    "kernel/printk",
    "kernel/dmesg_restrict",
    "kernel/core_pattern",
    "vm/panic_on_oom",
];

pub(super) fn read(collector: &mut Collector<'_>) {
    for sysctl in SYSCTLS {
        collector.attribute(format!("sysctl/{}", sysctl.replace('/', ".")), &format!("proc/sys/{sysctl}"));
    }
    for (name, path) in [
        ("kernel/release", "proc/sys/kernel/osrelease"),
        ("kernel/cmdline", "proc/cmdline"),
        ("kernel/tainted", "proc/sys/kernel/tainted"),
        ("kernel/uptime", "proc/uptime"),
        ("kernel/pstore-backend", "sys/module/pstore/parameters/backend"),
        ("clock/rtc", "sys/class/rtc/rtc0/since_epoch"),
        ("clock/rtc-set-system", "sys/class/rtc/rtc0/hctosys"),
    ] {
        collector.attribute(name, path);
    }
    collector.put("clock/synchronised", clock(collector.sysroot));
}

/// Whether the system clock is kept right: `yes` or `no`.
pub fn clock(sysroot: &Sysroot) -> Fact<Vec<u8>> {
    sysroot.answer("clock-synchronised.txt", Limit { bytes: 16, keep: Keep::Start }, || match clock_is_synchronised() {
        Ok(true) => Fact::Known(b"yes\n".to_vec()),
        Ok(false) => Fact::Known(b"no\n".to_vec()),
        Err(error) => Fact::Denied(error.to_string()),
    })
}
