//! The limits between which governors choose clocks: where they are equal, the clocks are pinned, which is what
//! `jetson_clocks` does. That tool itself is never asked: its `--show` powers the GPU up.

use serde::{Deserialize, Serialize};

use super::sysroot::Sysroot;
use crate::model::evidence::Fact;
use crate::model::units::ClockRange;

/// The clocks of a machine; more than one range where it has more than one domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clocks {
    /// CPU clusters.
    pub cpu: Fact<Vec<ClockRange>>,
    /// GPU.
    pub gpu: Fact<Vec<ClockRange>>,
    /// Memory controller; only root may see it.
    pub memory: Fact<Vec<ClockRange>>,
}

/// Where the memory controller's clock is (Tegra186 and later).
const MEMORY: &str = "sys/kernel/debug/bpmp/debug/clk/emc";

impl Clocks {
    pub(super) fn read(sysroot: &Sysroot) -> Self {
        Self {
            cpu: cpu(sysroot),
            gpu: domains(sysroot, "sys/class/devfreq", is_gpu, &["min_freq", "max_freq"], 1),
            memory: memory(sysroot),
        }
    }

    /// Whether every clock of CPU and GPU is pinned; nothing if one of them is not known.
    pub fn are_pinned(&self) -> Option<bool> {
        let pinned = |ranges: &Vec<ClockRange>| ranges.iter().all(|range| range.min_hz == range.max_hz);
        Some(pinned(self.cpu.known()?) && pinned(self.gpu.known()?))
    }
}

/// Names of GPUs among frequency-scaled devices: `17000000.gpu` (JetPack 6 and 7), `17000000.ga10b` (5), `gpu-gpc-0`
/// (Thor).
fn is_gpu(name: &str) -> bool {
    [".gpu", ".ga10b", ".gv11b", ".gp10b", ".gm20b"].iter().any(|suffix| name.ends_with(suffix))
        || name.starts_with("gpu-")
}

fn cpu(sysroot: &Sysroot) -> Fact<Vec<ClockRange>> {
    const KHZ: u64 = 1000;
    let is_policy = |name: &str| name.starts_with("policy");
    domains(sysroot, "sys/devices/system/cpu/cpufreq", is_policy, &["scaling_min_freq", "scaling_max_freq"], KHZ)
}

/// The ranges of those devices in `dir` that `wanted` accepts.
fn domains(
    sysroot: &Sysroot,
    dir: &str,
    wanted: impl Fn(&str) -> bool,
    limits: &[&str; 2],
    unit: u64,
) -> Fact<Vec<ClockRange>> {
    sysroot.devices(dir).and_then(|devices| {
        let mut ranges = Vec::new();
        for device in devices.iter().filter(|device| wanted(device)) {
            let [min, max] = limits.map(|limit| hertz(sysroot, &format!("{dir}/{device}/{limit}"), unit));
            match (min, max) {
                (Fact::Known(min_hz), Fact::Known(max_hz)) => ranges.push(ClockRange { min_hz, max_hz }),
                (Fact::Known(_), unread) | (unread, _) => return unread.and_then(|_| Fact::Absent),
            }
        }
        if ranges.is_empty() { Fact::Absent } else { Fact::Known(ranges) }
    })
}

/// A locked memory clock stays where it is, whatever its limits.
fn memory(sysroot: &Sysroot) -> Fact<Vec<ClockRange>> {
    let read = |name: &str| hertz(sysroot, &format!("{MEMORY}/{name}"), 1);
    let (min, max) = match read("mrq_rate_locked") {
        Fact::Known(1) => (read("rate"), read("rate")),
        _ => (read("min_rate"), read("max_rate")),
    };
    min.and_then(|min_hz| max.and_then(|max_hz| Fact::Known(vec![ClockRange { min_hz, max_hz }])))
}

fn hertz(sysroot: &Sysroot, path: &str, unit: u64) -> Fact<u64> {
    sysroot.text(path).and_then(|text| match text.parse::<u64>() {
        Ok(value) => Fact::Known(value * unit),
        Err(_) => Fact::Garbled(text),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::boards::assemble;

    #[test]
    fn clocks_are_pinned_when_their_limits_meet() {
        let tree = assemble("orin-nano-super-jp62", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let clocks = Clocks::read(&sysroot);
        let range = ClockRange { min_hz: 306_000_000, max_hz: 1_020_000_000 };
        assert_eq!(clocks.gpu, Fact::Known(vec![range]));
        assert_eq!(clocks.memory.known().map(|ranges| ranges[0].max_hz), Some(3_199_000_000));
        assert_eq!(clocks.are_pinned(), None, "the tree does not have its CPUs' limits");
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for policy in ["policy0", "policy4"] {
            for limit in ["scaling_min_freq", "scaling_max_freq"] {
                write(&format!("sys/devices/system/cpu/cpufreq/{policy}/{limit}"), "1728000\n");
            }
        }
        assert_eq!(Clocks::read(&sysroot).are_pinned(), Some(false));
        write("sys/class/devfreq/17000000.gpu/min_freq", "1020000000\n");
        write("sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked", "1\n");
        let clocks = Clocks::read(&sysroot);
        assert_eq!(clocks.are_pinned(), Some(true));
        assert_eq!(clocks.memory, Fact::Known(vec![ClockRange { min_hz: 2_133_000_000, max_hz: 2_133_000_000 }]));
    }

    #[test]
    fn thor_has_two_domains() {
        let tree = assemble("thor-jp7", None);
        let clocks = Clocks::read(&Sysroot::new(tree.path().to_path_buf()));
        assert_eq!(clocks.gpu.known().map(Vec::len), Some(2));
    }
}
