//! What nvgpu and the kernel say of a Jetson's GPU, read before a trial without waking it.

use crate::decide::gpu_health::{self as decide, GpuFacts};
use crate::model::evidence::Fact;
use crate::model::kernel_log::KernelFault;
use crate::model::outcome::Outcome;
use crate::perform::host::Sysroot;
use crate::perform::kmsg;

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
pub(super) struct GpuHealth {
    /// What the kernel said of a start that failed: of what came before the first trial, and of each trial.
    start_failure: Option<String>,
    has_looked_back: bool,
}

impl GpuHealth {
    /// Why the GPU under `sysroot` cannot work, if it cannot. Machines without nvgpu are asked nothing.
    pub(super) fn dead(&mut self, sysroot: &Sysroot) -> Option<String> {
        let nodes = sysroot.entries(NODES);
        nodes.known()?;
        if !std::mem::replace(&mut self.has_looked_back, true) && sysroot.is_live() {
            // A kernel that may not be heard leaves the device's own words.
            let lines = kmsg::all_lines(&sysroot.place(kmsg::DEVICE)).unwrap_or_default();
            self.start_failure = decide::start_failure(lines.iter().map(String::as_str));
        }
        let attribute = |name: &str| {
            let read = NVGPU_DEVICES.iter().map(|device| sysroot.text(&format!("{device}/{name}")));
            read.into_iter().find(|fact| *fact != Fact::Absent).unwrap_or(Fact::Absent)
        };
        let clocks = sysroot.entries("sys/class/devfreq");
        decide::dead(&GpuFacts {
            nodes,
            has_clock: clocks.known().is_some_and(|clocks| clocks.iter().any(|clock| decide::is_gpu_clock(clock))),
            runtime_status: attribute("power/runtime_status"),
            initialised: attribute("golden_img_status").and_then(|status| match status.as_str() {
                "0" => Fact::Known(false),
                "1" => Fact::Known(true),
                _ => Fact::Garbled(status),
            }),
            start_failure: self.start_failure.clone(),
        })
    }

    /// Takes note of what the kernel said during a trial.
    pub(super) fn note(&mut self, outcome: &Outcome) {
        let mut findings = outcome.kernel.known().into_iter().flatten().map(|found| &found.finding);
        let dead = findings.find(|finding| finding.fault == KernelFault::GpuDead);
        self.start_failure = self.start_failure.take().or(dead.map(|finding| finding.text.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
        assert_eq!(GpuHealth::default().dead(&sysroot), None);
        let (_dir, sysroot) = board(&["power"], &[(status.as_str(), "error"), (golden.as_str(), "0")]);
        assert!(GpuHealth::default().dead(&sysroot).unwrap().contains("runtime_status"));
        let (_dir, sysroot) = board(&["power"], &[(status.as_str(), "suspended"), (golden.as_str(), "0")]);
        assert_eq!(GpuHealth::default().dead(&sysroot), None, "it was never powered on");
        let (_dir, sysroot) = board(&["power", "ctrl", "as"], &alive[1..]);
        assert!(GpuHealth::default().dead(&sysroot).unwrap().contains("devfreq"));
        let (_dir, sysroot) = board(&[], &[(status.as_str(), "error")]);
        assert_eq!(GpuHealth::default().dead(&sysroot), None, "no nvgpu");
    }
}
