//! The identity of a machine: what a comparison of two runs must hold against each other.
//!
//! Nothing here wakes a GPU: its name comes from the device tree or from what the driver keeps in `/proc`, its clocks from
//! the limits of their governors. `nvpmodel` is asked only where its files do not say the mode, and `jetson_clocks` never.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sysinfo::System;

use super::clocks::Clocks;
use super::command::Command;
use super::sysroot::{Keep, Limit, Sysroot, TEXT_BYTES_MAX};
use crate::model::evidence::Fact;
use crate::model::ids::{ContentDigest, DeviceId};
use crate::model::jetson::{L4t, board, chip, release_stamp};
use crate::model::power_mode::PowerMode;

/// Device nodes whose presence means that a GPU may be used: Jetson's nvgpu and nvmap, and the desktop driver's.
const GPU_NODES: [&str; 4] = ["dev/nvhost-gpu", "dev/nvgpu/igpu0", "dev/nvmap", "dev/nvidiactl"];

/// Name and version of the format of `machine.json`.
pub const MACHINE_SCHEMA: &str = "jetfault.machine/1";

/// How long a tool may take.
const PATIENCE: Duration = Duration::from_secs(5);

const SHORT: Limit = Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start };

/// The machine at the beginning of a run. No serial number, address, host or user name is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// [`MACHINE_SCHEMA`].
    pub schema: String,
    /// The machine's name here.
    pub device: DeviceId,
    /// The model that the device tree or the firmware tells.
    pub model: Fact<String>,
    /// A Jetson by its module, such as `Jetson Orin Nano 8GB Super`; another machine by vendor and product.
    #[serde(default)]
    pub board: Fact<String>,
    /// What the device tree is compatible with.
    #[serde(default)]
    pub compatible: Fact<Vec<String>>,
    /// Number of the Tegra chip.
    #[serde(default)]
    pub chip_id: Fact<String>,
    /// Kernel release.
    pub kernel: Fact<String>,
    /// Distribution.
    pub os: Fact<String>,
    /// Jetson Linux release, such as `36.4.3`.
    pub l4t: Fact<String>,
    /// First line of `/etc/nv_tegra_release`.
    #[serde(default)]
    pub l4t_release: Fact<String>,
    /// JetPack, if the release is a known one.
    #[serde(default)]
    pub jetpack: Fact<String>,
    /// Releases and build stamps of the packages `nvidia-l4t-*`; more than one is a mixture.
    #[serde(default)]
    pub l4t_packages: Fact<Vec<String>>,
    /// Version of NVIDIA's driver.
    #[serde(default)]
    pub driver: Fact<String>,
    /// Version of the CUDA toolkit in `/usr/local/cuda`.
    #[serde(default)]
    pub cuda: Fact<String>,
    /// Name of the GPU.
    #[serde(default)]
    pub gpu: Fact<String>,
    /// Compute capability of the GPU.
    #[serde(default)]
    pub compute_capability: Fact<String>,
    /// Power mode.
    #[serde(default)]
    pub power_mode: Fact<PowerMode>,
    /// Limits of clocks; equal ones are what `jetson_clocks` sets.
    #[serde(default)]
    pub clocks: Clocks,
    /// Processor architecture of the harness.
    pub architecture: String,
    /// Number of CPUs; 0 if a captured tree does not say.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// Whether a GPU's device nodes are there.
    pub gpu_nodes: bool,
    /// Version of the harness.
    pub tool: String,
    /// Digest of the harness binary.
    pub binary: ContentDigest,
}

impl MachineFacts {
    /// The versions on which results depend, by name, in the order of [`Sysroot::versions`].
    pub fn versions(&self) -> [(&'static str, Fact<String>); 3] {
        [
            ("kernel", self.kernel.clone()),
            ("release of Jetson Linux", self.l4t_release.clone()),
            ("NVIDIA driver", self.driver.clone()),
        ]
    }
}

impl Sysroot {
    /// The versions on which results depend, as they are now; no program is asked.
    pub fn versions(&self) -> [(&'static str, Fact<String>); 3] {
        let release = self.text("etc/nv_tegra_release");
        [
            ("kernel", self.text("proc/sys/kernel/osrelease")),
            (
                "release of Jetson Linux",
                release.and_then(|text| Fact::Known(text.lines().next().unwrap_or_default().to_owned())),
            ),
            ("NVIDIA driver", self.driver()),
        ]
    }

    /// Whether a GPU may be used on this machine.
    pub fn has_gpu_nodes(&self) -> bool {
        GPU_NODES.iter().any(|node| self.exists(node))
    }

    /// The machine's id: `name` if one was given, else that of a captured tree, else derived from `/etc/machine-id`.
    pub fn device(&self, name: Option<&DeviceId>) -> DeviceId {
        let captured = self.captured().device.as_ref().and_then(|device| device.parse().ok());
        name.cloned().or(captured).unwrap_or_else(|| match self.text("etc/machine-id") {
            Fact::Known(id) => DeviceId::of_machine(&id),
            Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => DeviceId::of_machine(""),
        })
    }

    /// What machine this is in a few words, the most telling first; from files alone, so that it takes no time.
    pub fn in_words(&self) -> Vec<String> {
        let compatible = self.compatible();
        let model = || match self.text("proc/device-tree/model") {
            Fact::Absent => self.text("sys/class/dmi/id/product_name"),
            model => model,
        };
        let board = self.board(&compatible).known().cloned().or_else(|| model().known().cloned());
        let l4t = self.text("etc/nv_tegra_release");
        let l4t = l4t.known().and_then(|text| L4t::from_release_file(text.lines().next()?));
        let mode = match (self.text("var/lib/nvpmodel/status").known(), self.text("etc/nvpmodel.conf").known()) {
            (Some(status), Some(conf)) => PowerMode::from_status(status, conf),
            (_, _) => None,
        };
        let gpu = self.discrete_gpu();
        let said = |fact: Fact<String>, before: &str| fact.known().map(|text| format!("{before}{text}"));
        [
            board,
            said(self.os_name(), ""),
            l4t.map(|release| format!("L4T {release}")),
            mode.map(|mode| mode.name),
            said(gpu, ""),
            said(self.driver(), "driver "),
            said(self.text("proc/sys/kernel/osrelease"), "kernel "),
            Some(self.cpus()).filter(|cpus| *cpus > 0).map(|cpus| format!("{cpus} CPUs")),
            Some(format!("{:.1} GB", self.memory()[0] as f64 / 1e9)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What machine this is.
    pub fn facts(&self, device: DeviceId, binary: ContentDigest) -> MachineFacts {
        let compatible = self.compatible();
        let tree = compatible.known().map_or(&[][..], Vec::as_slice);
        let (l4t_release, l4t, l4t_packages) = self.l4t();
        let gpu = match chip(tree) {
            Some(chip) => (Fact::Known(chip.gpu.to_owned()), Fact::Known(chip.compute_capability.to_owned())),
            None => (self.discrete_gpu(), Fact::Absent),
        };
        let [memory_bytes, swap_bytes] = self.memory();
        MachineFacts {
            schema: MACHINE_SCHEMA.to_owned(),
            device,
            model: match self.text("proc/device-tree/model") {
                Fact::Absent => self.text("sys/class/dmi/id/product_name"),
                model => model,
            },
            board: self.board(&compatible),
            chip_id: self.text("sys/module/tegra_fuse/parameters/tegra_chip_id"),
            kernel: self.text("proc/sys/kernel/osrelease"),
            os: self.os_name(),
            jetpack: l4t
                .clone()
                .and_then(|l4t| l4t.jetpack().map_or(Fact::Absent, |name| Fact::Known(name.to_owned()))),
            l4t: l4t.and_then(|l4t| Fact::Known(l4t.to_string())),
            l4t_release,
            l4t_packages,
            driver: self.driver(),
            cuda: self.cuda(),
            gpu: gpu.0,
            compute_capability: gpu.1,
            power_mode: self.power_mode(),
            clocks: Clocks::read(self),
            architecture: self.architecture(tree),
            cpus: self.cpus(),
            memory_bytes,
            swap_bytes,
            gpu_nodes: self.has_gpu_nodes(),
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            binary,
            compatible,
        }
    }

    /// The strings of the device tree's `compatible`, which end in NUL each.
    fn compatible(&self) -> Fact<Vec<String>> {
        self.text("proc/device-tree/compatible")
            .and_then(|text| Fact::Known(text.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()))
    }

    fn board(&self, compatible: &Fact<Vec<String>>) -> Fact<String> {
        let Some(compatible) = compatible.known() else {
            let dmi = |name: &str| self.text(&format!("sys/class/dmi/id/{name}"));
            return dmi("sys_vendor")
                .and_then(|vendor| dmi("product_name").and_then(|product| Fact::Known(format!("{vendor} {product}"))));
        };
        let spec = self.text("etc/nv_boot_control.conf");
        board(compatible, spec.known().map_or("", String::as_str)).map_or(Fact::Absent, Fact::Known)
    }

    /// The first line of the release file, the release by it or else by the packages, and the packages' stamps.
    fn l4t(&self) -> (Fact<String>, Fact<L4t>, Fact<Vec<String>>) {
        let file = self.text("etc/nv_tegra_release");
        let line = file.and_then(|text| Fact::Known(text.lines().next().unwrap_or_default().to_owned()));
        let packages = self.l4t_packages();
        let release =
            line.clone().and_then(|line| L4t::from_release_file(&line).map_or(Fact::Garbled(line), Fact::Known));
        let release = match (release, packages.known().map(Vec::as_slice)) {
            (Fact::Absent, Some([only])) => L4t::from_package_version(only).map_or(Fact::Absent, Fact::Known),
            (release, _) => release,
        };
        (line, release, packages)
    }

    /// Releases and build stamps of the installed packages of Jetson Linux, each once.
    pub fn l4t_packages(&self) -> Fact<Vec<String>> {
        // dpkg reads its whole database to answer, and only a Tegra has them.
        let is_tegra = |names: &Vec<String>| names.iter().any(|name| name.starts_with("nvidia,tegra"));
        if self.is_live() && !self.compatible().known().is_some_and(is_tegra) {
            return Fact::Absent;
        }
        let argv = ["dpkg-query", "--showformat=${db:Status-Status} ${Version}\\n", "--show", "nvidia-l4t-*"];
        let all = Command { file: "dpkg-query-nvidia-l4t.txt", argv: &argv, patience: PATIENCE, limit: SHORT };
        let core = ["dpkg-query", "--showformat=installed ${Version}\\n", "--show", "nvidia-l4t-core"];
        let core = Command { file: "dpkg-query-nvidia-l4t-core.txt", argv: &core, patience: PATIENCE, limit: SHORT };
        let output = match self.output(&all) {
            Fact::Known(output) => output,
            // One that was taken by hand names only the core; dpkg fails where no package has such a name.
            _ => match self.output(&core) {
                Fact::Known(output) => output,
                _ => return Fact::Absent,
            },
        };
        let text = String::from_utf8_lossy(&output);
        let versions =
            text.lines().filter(|line| !line.starts_with("not-installed") && !line.starts_with("config-files"));
        let mut stamps: Vec<String> = versions.filter_map(release_stamp).map(last_word).collect();
        stamps.sort();
        stamps.dedup();
        if stamps.is_empty() { Fact::Absent } else { Fact::Known(stamps) }
    }

    /// Version of NVIDIA's kernel module. On Orin the display driver has one; its compute driver goes with L4T.
    fn driver(&self) -> Fact<String> {
        self.text("proc/driver/nvidia/version").and_then(|text| {
            let is_version = |word: &&str| {
                word.contains('.')
                    && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
            };
            let line = text.lines().next().unwrap_or_default();
            line.split_whitespace()
                .find(is_version)
                .map_or(Fact::Garbled(line.to_owned()), |word| Fact::Known(word.to_owned()))
        })
    }

    fn cuda(&self) -> Fact<String> {
        let json = self.text("usr/local/cuda/version.json").and_then(|text| {
            let version = serde_json::from_str::<serde_json::Value>(&text).ok();
            let version = version.and_then(|json| json["cuda"]["version"].as_str().map(str::to_owned));
            version.map_or(Fact::Garbled(text.chars().take(200).collect()), Fact::Known)
        });
        match json {
            // Toolkits before 11.1.
            Fact::Absent => self.text("usr/local/cuda/version.txt").and_then(|text| Fact::Known(last_word(&text))),
            json => json,
        }
    }

    /// The name that the driver keeps for its first GPU; reading it does not initialise the device.
    fn discrete_gpu(&self) -> Fact<String> {
        const GPUS: &str = "proc/driver/nvidia/gpus";
        self.entries(GPUS).and_then(|gpus| {
            let Some(gpu) = gpus.first() else { return Fact::Absent };
            self.text(&format!("{GPUS}/{gpu}/information")).and_then(|text| {
                let model = text.lines().find_map(|line| line.strip_prefix("Model:"));
                model.map_or(Fact::Absent, |model| Fact::Known(model.trim().to_owned()))
            })
        })
    }

    /// The mode by nvpmodel's own files; where they do not say it, by the tool, which must not run beside a trial.
    fn power_mode(&self) -> Fact<PowerMode> {
        let status = self.text("var/lib/nvpmodel/status");
        let conf = self.text("etc/nvpmodel.conf");
        if let (Some(status), Some(conf)) = (status.known(), conf.known())
            && let Some(mode) = PowerMode::from_status(status, conf)
        {
            return Fact::Known(mode);
        }
        let query = Command { file: "nvpmodel-q.txt", argv: &["nvpmodel", "-q"], patience: PATIENCE, limit: SHORT };
        self.output(&query).and_then(|output| {
            let output = String::from_utf8_lossy(&output);
            let garbled = || Fact::Garbled(output.lines().next().unwrap_or_default().to_owned());
            PowerMode::from_query(&output).map_or_else(garbled, Fact::Known)
        })
    }

    fn os_name(&self) -> Fact<String> {
        self.text("etc/os-release").and_then(|text| {
            let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
            name.map_or(Fact::Absent, |name| Fact::Known(name.trim_matches('"').to_owned()))
        })
    }

    fn architecture(&self, compatible: &[String]) -> String {
        let here = || Fact::Known(std::env::consts::ARCH.as_bytes().to_vec());
        match self.answer("uname-m.txt", SHORT, here) {
            Fact::Known(name) => String::from_utf8_lossy(&name).trim().to_owned(),
            // Every Tegra since 2015.
            _ if chip(compatible).is_some() => "aarch64".to_owned(),
            _ => "unknown".to_owned(),
        }
    }

    fn cpus(&self) -> usize {
        let here = || Fact::Known(std::thread::available_parallelism().map_or(1, usize::from).to_string().into_bytes());
        let cpus = self.answer("nproc.txt", SHORT, here);
        cpus.known().and_then(|text| String::from_utf8_lossy(text).trim().parse().ok()).unwrap_or(0)
    }

    /// Bytes of memory and of swap.
    fn memory(&self) -> [u64; 2] {
        let text = self.text("proc/meminfo");
        if self.is_live() {
            let mut system = System::new();
            system.refresh_memory();
            return [system.total_memory(), system.total_swap()];
        }
        let text = text.known().map_or("", String::as_str);
        ["MemTotal:", "SwapTotal:"].map(|name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        })
    }
}

fn last_word(text: &str) -> String {
    text.split_whitespace().next_back().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::boards::assemble;

    fn facts(board: &str) -> MachineFacts {
        let tree = assemble(board, None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        sysroot.facts(sysroot.device(None), ContentDigest::of(b"harness"))
    }

    fn known(text: &str) -> Fact<String> {
        Fact::Known(text.to_owned())
    }

    #[test]
    fn each_board_is_known_by_its_own_words() {
        let orin_nano = facts("orin-nano-super-jp62");
        assert_eq!(orin_nano.board, known("Jetson Orin Nano 8GB Super"));
        assert_eq!((orin_nano.l4t, orin_nano.jetpack), (known("36.4.3"), known("6.2")));
        assert_eq!(orin_nano.l4t_packages, Fact::Known(vec!["36.4.3-20250107174145".to_owned()]));
        assert_eq!((orin_nano.gpu, orin_nano.compute_capability), (known("Orin"), known("8.7")));
        assert_eq!(orin_nano.power_mode, Fact::Known(PowerMode { name: "MAXN_SUPER".into(), id: 2 }));
        assert_eq!((orin_nano.memory_bytes, orin_nano.chip_id), (7_802_880 * 1024, known("35")));
        assert_eq!(orin_nano.architecture, "aarch64");

        let agx = facts("agx-orin-jp5");
        assert_eq!((agx.board, agx.jetpack), (known("Jetson AGX Orin"), known("5.1.1")));
        assert_eq!(agx.power_mode, Fact::Known(PowerMode { name: "MODE_30W".into(), id: 2 }));

        let thor = facts("thor-jp7");
        assert_eq!((thor.board, thor.jetpack), (known("Jetson AGX Thor T5000"), known("7.1")));
        assert_eq!((thor.driver, thor.compute_capability), (known("580.00"), known("11.0")));

        let pc = facts("x86-pc");
        assert_eq!((pc.board, pc.model), (known("Example Systems Tower 1"), known("Tower 1")));
        assert_eq!((pc.l4t, pc.jetpack, pc.l4t_packages), (Fact::Absent, Fact::Absent, Fact::Absent));
        assert_eq!(pc.driver, known("580.95.05"));
        assert!(matches!(pc.power_mode, Fact::Garbled(_)), "{:?}", pc.power_mode);
    }

    #[test]
    fn the_facts_of_an_older_version_are_read() {
        let stored = include_str!("../../../tests/formats/v1.0/format-001/machine.json");
        let facts: MachineFacts = serde_json::from_str(stored).unwrap();
        assert!(facts.kernel.known().is_some());
        assert_eq!((facts.board, facts.clocks.are_pinned()), (Fact::Absent, None));
    }

    #[test]
    fn nothing_that_names_one_machine_or_person_is_in_it() {
        let tree = assemble("orin-nano-super-jp62", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        std::fs::write(tree.path().join("proc/device-tree/serial-number"), "1424525012345\0").unwrap();
        let facts = sysroot.facts(sysroot.device(None), ContentDigest::of(b"harness"));
        let text = serde_json::to_string(&facts).unwrap();
        let machine_id = sysroot.text("etc/machine-id").known().unwrap().clone();
        for secret in ["1424525012345", machine_id.as_str()] {
            assert!(!text.contains(secret), "{text}");
        }
    }

    #[test]
    fn a_mixture_of_releases_is_seen_and_the_package_stands_in_for_the_file() {
        let tree = assemble("orin-nano-super-jp62", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let listing = tree.path().join("cmd/dpkg-query-nvidia-l4t.txt");
        let one = "installed 36.4.3-20250107174145\ninstalled 5.15.148-tegra-36.4.3-20250107174145\n";
        std::fs::write(&listing, format!("{one}not-installed 35.1.0-20220824211714\n")).unwrap();
        std::fs::remove_file(tree.path().join("etc/nv_tegra_release")).unwrap();
        let (_, release, packages) = sysroot.l4t();
        assert_eq!(packages.known().map(Vec::len), Some(1));
        assert_eq!(release.known().map(ToString::to_string).as_deref(), Some("36.4.3"));
        std::fs::write(&listing, format!("{one}installed 36.4.4-20250616085344\n")).unwrap();
        let (_, release, packages) = sysroot.l4t();
        assert_eq!(packages.known().map(Vec::len), Some(2));
        assert_eq!(release, Fact::Absent, "of a mixture no release is claimed");
    }

    #[test]
    fn what_the_toolkit_and_the_driver_print_is_read() {
        let tree = tempfile::tempdir().unwrap();
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(sysroot.cuda(), Fact::Absent);
        write("usr/local/cuda/version.txt", "CUDA Version 10.2.300\n");
        assert_eq!(sysroot.cuda(), known("10.2.300"));
        write("usr/local/cuda/version.json", r#"{"cuda":{"name":"CUDA SDK","version":"12.6.11"}}"#);
        assert_eq!(sysroot.cuda(), known("12.6.11"));
        write("usr/local/cuda/version.json", "{");
        assert_eq!(sysroot.cuda(), Fact::Garbled("{".to_owned()));
        write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 42\n");
        assert_eq!(sysroot.discrete_gpu(), known("NVIDIA H200"));
    }
}
