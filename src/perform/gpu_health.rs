//! What nvgpu and the kernel say of a Jetson's GPU, read before a trial without waking it.

use crate::decide::evidence::kernel_messages;
use crate::decide::gpu_health::{GpuFacts, is_about, is_gpu_clock, is_start_failure, start_failure};
use crate::model::evidence::Fact;
use crate::model::outcome::Outcome;
use crate::model::start_state::GpuDriver;
use crate::perform::evidence::kernel_log;
use crate::perform::host::Sysroot;
use crate::perform::kmsg;
use crate::perform::start_state::driver;

/// Where nvgpu's device may be, by kernel: JetPack 6 and 7, then 5, then the links to either.
pub(super) const NVGPU_DEVICES: [&str; 5] = [
    "sys/devices/platform/bus@0/17000000.gpu",
    "sys/devices/platform/17000000.gpu",
    "sys/devices/17000000.ga10b",
    "sys/devices/platform/gpu.0",
    "sys/devices/gpu.0",
];

/// The device nodes of a Jetson's GPU.
const NODES: &str = "dev/nvgpu/igpu0";

/// The GPU's health in this boot, as far as it was looked at.
#[derive(Debug, Default)]
pub struct GpuHealth {
    /// What the kernel said of a start that failed: of what came before the first trial, and of each trial.
    start_failure: Option<String>,
    has_looked_back: bool,
}

impl GpuHealth {
    /// What the GPU under `sysroot` and the kernel say of it. Machines other than Jetsons are asked nothing.
    pub fn facts(&mut self, sysroot: &Sysroot) -> GpuFacts {
        let driver = driver(sysroot);
        match driver {
            GpuDriver::None | GpuDriver::Nvidia => return GpuFacts::default(),
            GpuDriver::Nvgpu | GpuDriver::NvidiaTegra => {}
        }
        if !std::mem::replace(&mut self.has_looked_back, true) {
            // A kernel that may not be heard leaves the device's own words.
            let lines = said_so_far(sysroot);
            self.start_failure = start_failure(driver, lines.iter().map(String::as_str));
        }
        let start_failure = self.start_failure.clone();
        if driver == GpuDriver::NvidiaTegra {
            return GpuFacts { start_failure, ..GpuFacts::default() };
        }
        let attribute = |name: &str| {
            let read = NVGPU_DEVICES.iter().map(|device| sysroot.text(&format!("{device}/{name}")));
            read.into_iter().find(|fact| *fact != Fact::Absent).unwrap_or(Fact::Absent)
        };
        let clocks = sysroot.entries("sys/class/devfreq");
        GpuFacts {
            nodes: sysroot.entries(NODES),
            has_clock: clocks.known().is_some_and(|clocks| clocks.iter().any(|clock| is_gpu_clock(clock))),
            runtime_status: attribute("power/runtime_status"),
            initialised: attribute("golden_img_status").and_then(|status| match status.as_str() {
                "0" => Fact::Known(false),
                "1" => Fact::Known(true),
                _ => Fact::Garbled(status),
            }),
            start_failure,
        }
    }

    /// Takes note of what the kernel said during a trial, and takes out what it said of another driver's device.
    pub(super) fn note(&mut self, outcome: &mut Outcome, sysroot: &Sysroot) {
        let driver = driver(sysroot);
        let Fact::Known(findings) = &mut outcome.kernel else { return };
        findings.retain(|found| is_about(driver, &found.finding.rule));
        let failed = findings.iter().find(|found| is_start_failure(driver, &found.finding.rule));
        self.start_failure = self.start_failure.take().or(failed.map(|found| found.finding.text.clone()));
    }
}

/// What the kernel said in this boot; of a captured tree, what was kept of it.
fn said_so_far(sysroot: &Sysroot) -> Vec<String> {
    if sysroot.is_live() {
        return kmsg::all_lines(&sysroot.place(kmsg::DEVICE)).unwrap_or_default();
    }
    let log = sysroot.boot_id().map(|boot| kernel_log(sysroot, &boot));
    log.ok().and_then(|log| log.known().map(|log| kernel_messages(log))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::decide::gpu_health::dead;

    const DEVICE: &str = NVGPU_DEVICES[0];

    /// A constructed board whose GPU's nodes are `nodes`.
    fn board(nodes: &[&str], attributes: &[(&str, &str)]) -> (tempfile::TempDir, Sysroot) {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        nodes.iter().for_each(|node| write(format!("{NODES}/{node}"), ""));
        attributes.iter().for_each(|(path, value)| write((*path).to_owned(), value));
        let sysroot = Sysroot::new(dir.path().to_owned());
        (dir, sysroot)
    }

    fn attribute(name: &str) -> String {
        format!("{DEVICE}/{name}")
    }

    #[test]
    fn a_board_is_read_where_its_kernel_has_it() {
        let (status, golden) = (attribute("power/runtime_status"), attribute("golden_img_status"));
        let clock = ("sys/class/devfreq/17000000.gpu/cur_freq", "306000000");
        let alive = [clock, (status.as_str(), "suspended"), (golden.as_str(), "1")];
        let (_dir, sysroot) = board(&["power", "ctrl", "as"], &alive);
        assert_eq!(dead(&GpuHealth::default().facts(&sysroot)), None);
        let (_dir, sysroot) = board(&["power"], &[(status.as_str(), "error"), (golden.as_str(), "0")]);
        assert!(dead(&GpuHealth::default().facts(&sysroot)).unwrap().contains("runtime_status"));
        let (_dir, sysroot) = board(&["power"], &[(status.as_str(), "suspended"), (golden.as_str(), "0")]);
        assert_eq!(dead(&GpuHealth::default().facts(&sysroot)), None, "it was never powered on");
        let (_dir, sysroot) = board(&["power", "ctrl", "as"], &alive[1..]);
        assert!(dead(&GpuHealth::default().facts(&sysroot)).unwrap().contains("devfreq"));
        let (_dir, sysroot) = board(&[], &[(status.as_str(), "error")]);
        assert_eq!(dead(&GpuHealth::default().facts(&sysroot)), None, "no nvgpu");
    }
}
