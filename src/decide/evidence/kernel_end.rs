//! What kernel messages tell of the end of the boot that wrote them.
//!
//! The faults are the classifier's ([`crate::decide::kernel_log`]); the orderly ends, which are no faults, are read here.

use super::lines::cut;
use crate::decide::kernel_log::classify;
use crate::decide::kernel_log::line::message;
use crate::model::evidence::{END_LINE_BYTES_MAX, EndSign, EndWord};
use crate::model::kernel_log::{KernelFault, KernelFinding};

/// What `lines` tell of the end, each word once, in the order in which it came first.
pub(super) fn signs<'a>(lines: impl Iterator<Item = &'a str> + Clone) -> Vec<EndSign> {
    let log = classify(lines.clone());
    let faults =
        log.findings.iter().filter_map(|finding| Some((finding.line, word_of(finding)?, finding.text.as_str())));
    let orderly = (1..).zip(lines).filter_map(|(number, line)| {
        let text = message(line).text;
        Some((number, orderly_word(text)?, text))
    });
    let mut found: Vec<(u64, EndWord, &str)> = faults.chain(orderly).collect();
    found.sort_by_key(|(number, ..)| *number);
    let mut signs: Vec<EndSign> = Vec::new();
    for (_, word, text) in found {
        if signs.iter().all(|sign| sign.word != word) {
            signs.push(EndSign { word, line: cut(text, END_LINE_BYTES_MAX).to_owned() });
        }
    }
    signs
}

/// What a fault tells of the end of the boot; most tell nothing of it.
fn word_of(finding: &KernelFinding) -> Option<EndWord> {
    match finding.fault {
        KernelFault::Panic => Some(EndWord::Panic),
        KernelFault::Watchdog => Some(EndWord::Watchdog),
        KernelFault::SoftwareReset => Some(EndWord::Reset),
        KernelFault::Thermal => Some(EndWord::Thermal),
        KernelFault::Oops
        | KernelFault::Bug
        | KernelFault::Serror
        | KernelFault::MachineCheck
        | KernelFault::BusError
        | KernelFault::HungTask
        | KernelFault::SoftLockup
        | KernelFault::HardLockup
        | KernelFault::RcuStall
        | KernelFault::WorkqueueLockup => Some(EndWord::Trouble),
        KernelFault::OomKill
        | KernelFault::AllocFailure
        | KernelFault::Segfault
        | KernelFault::GpuFault
        | KernelFault::GpuDead
        | KernelFault::NvmapFailure
        | KernelFault::NvmapDenied
        | KernelFault::OverCurrent
        | KernelFault::UnderVoltage
        | KernelFault::Warning
        | KernelFault::Lockdep
        | KernelFault::Leak => None,
    }
}

/// `kernel_restart`, `kernel_halt` and `kernel_power_off` (kernel/reboot.c) say so; `panic` (kernel/panic.c) counts down
/// before it restarts, which nothing else does; and systemd's last process speaks on the console.
fn orderly_word(text: &str) -> Option<EndWord> {
    if text.starts_with("Rebooting in ") && text.ends_with(" seconds..") {
        return Some(EndWord::Panic);
    }
    let said = text.strip_prefix("reboot: ").unwrap_or(text);
    if ["Restarting system", "Power down", "System halted"].iter().any(|end| said.starts_with(end)) {
        return Some(EndWord::Restart);
    }
    text.starts_with("systemd-shutdown[1]: ").then_some(EndWord::Teardown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<EndWord> {
        signs(text.lines()).into_iter().map(|sign| sign.word).collect()
    }

    #[test]
    fn each_way_to_end_is_told_by_the_kernel_s_own_words() {
        use EndWord::*;
        for (text, want) in [
            ("<6>[    4.450946] sysrq: Resetting\n\nECC: No errors detected", vec![Reset]),
            ("<0>[    4.233568] Rebooting in 1 seconds..", vec![Panic]),
            ("[  122.431880] Kernel panic - not syncing: Oops: Fatal exception", vec![Panic]),
            ("[  122.431880] softdog: Initiating system reboot", vec![Watchdog]),
            ("[  601.010772] reboot: Restarting system", vec![Restart]),
            ("[  601.010772] reboot: Restarting system with command 'x'", vec![Restart]),
            ("[  601.010772] reboot: Power down", vec![Restart]),
            (
                "[  600.113204] systemd-shutdown[1]: Syncing filesystems\n[  601.010772] reboot: Restarting system",
                vec![Teardown, Restart],
            ),
            ("thermal thermal_zone8: critical temperature reached (105 C), shutting down", vec![Thermal]),
            ("reboot: HARDWARE PROTECTION shutdown (Temperature too high)", vec![Thermal]),
            ("INFO: task python3:1834 blocked for more than 120 seconds.", vec![Trouble]),
            ("[    9.000000] watchdog: watchdog0: watchdog did not stop!", vec![]),
            ("[    9.000000] softdog: initialized. soft_noboot=0 soft_margin=60 sec", vec![]),
            ("[   22.118203] systemd[1]: Startup finished in 8.9s (kernel) + 13.0s (userspace) = 22.0s.", vec![]),
        ] {
            assert_eq!(words(text), want, "{text}");
        }
    }
}
