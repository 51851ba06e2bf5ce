//! What a machine shows of its GPU's use in this boot, read without waking the GPU, and the mark of our own trials.
//!
//! Reads attributes, lists of processes and their open files; the one program that is asked is nvidia-smi, on machines
//! other than Jetsons whose GPU is initialised already. (On Thor it would initialise the driver.)

use std::fs;
use std::io::ErrorKind;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::evidence::Fact;
use crate::model::ids::{BootId, TrialId};
use crate::model::start_state::{GpuDriver, GpuTraces, Process, TraceSources};
use crate::perform::files::write_replaceably;
use crate::perform::host::{Command, Keep, Limit, Sysroot, TEXT_BYTES_MAX};
use crate::perform::machine::MachineError;
use crate::perform::processes::RunMark;
use crate::perform::settings::gpu_device;

/// How long nvidia-smi may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Programs that use a GPU of their own accord, by the name that the kernel keeps (15 bytes).
const USERS: [&str; 13] = [
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "gdm3",
    "lightdm",
    "sddm",
    "weston",
    "kwin_wayland",
    "ollama",
    "llama-server",
    "tritonserver",
    "jtop",
    "nv-hostengine",
];

/// Programs that may let others use it.
const BYSTANDERS: [&str; 5] = ["dockerd", "containerd", "podman", "k3s-server", "nvargus-daemon"];

/// nvidia-persistenced, as the kernel cuts its name: it keeps the driver loaded and computes nothing.
const HARMLESS: &str = "nvidia-persiste";

/// Inode of the first PID namespace, `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What `sysroot` shows; `marked_by` is the trial of ours that left its mark.
pub fn traces(sysroot: &Sysroot, marked_by: Option<String>, sources: TraceSources) -> GpuTraces {
    let driver = driver(sysroot);
    let processes = if driver == GpuDriver::None { Vec::new() } else { processes(sysroot) };
    let named = |names: &[&str]| -> Vec<Process> {
        processes.iter().filter(|process| names.contains(&process.name.as_str())).cloned().collect()
    };
    let nvgpu = |attribute: &str| match gpu_device(sysroot, attribute).filter(|_| driver == GpuDriver::Nvgpu) {
        Some(device) => sysroot.text(&format!("{device}/{attribute}")),
        None => Fact::Absent,
    };
    GpuTraces {
        driver,
        marked_by,
        golden_image: nvgpu("golden_img_status").and_then(|text| flag(&text)),
        all_nodes: match driver {
            GpuDriver::Nvgpu => sysroot
                .entries("dev/nvgpu/igpu0")
                .and_then(|names| Fact::Known(names.iter().any(|name| name != "power"))),
            GpuDriver::None | GpuDriver::NvidiaTegra | GpuDriver::Nvidia => Fact::Absent,
        },
        active_ms: nvgpu("power/runtime_active_time").and_then(|text| match text.parse() {
            Ok(ms) => Fact::Known(ms),
            Err(_) => Fact::Garbled(text),
        }),
        kept_powered: nvgpu("power/control").known().is_some_and(|control| control == "on"),
        uvm: match driver {
            GpuDriver::Nvidia => Fact::Known(sysroot.exists("sys/module/nvidia_uvm")),
            GpuDriver::None | GpuDriver::Nvgpu | GpuDriver::NvidiaTegra => Fact::Absent,
        },
        accounted: match (driver, sources) {
            (GpuDriver::Nvidia, TraceSources::FilesAndPrograms) => accounted(sysroot),
            (_, TraceSources::Files | TraceSources::FilesAndPrograms) => Fact::Absent,
        },
        holders: if driver == GpuDriver::None { Fact::Absent } else { holders(sysroot, &processes) },
        clients: match driver {
            GpuDriver::Nvgpu => {
                sysroot.text("sys/kernel/debug/nvmap/iovmm/clients").and_then(|text| Fact::Known(parse_clients(&text)))
            }
            // There the list is always empty.
            GpuDriver::None | GpuDriver::NvidiaTegra | GpuDriver::Nvidia => Fact::Absent,
        },
        users: named(&USERS),
        bystanders: named(&BYSTANDERS),
        uptime_ms: uptime_ms(sysroot),
    }
}

/// Milliseconds since the machine started, if it says so.
pub fn uptime_ms(sysroot: &Sysroot) -> Option<u64> {
    let uptime = sysroot.text("proc/uptime");
    let seconds = uptime.known().and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    seconds.map(|seconds| (seconds * 1000.0) as u64)
}

/// Orins have files of the desktop driver as well: nvgpu is looked for first.
pub(super) fn driver(sysroot: &Sysroot) -> GpuDriver {
    if sysroot.exists("dev/nvgpu") || sysroot.exists("dev/nvhost-gpu") {
        return GpuDriver::Nvgpu;
    }
    if !sysroot.exists("dev/nvidiactl") {
        return GpuDriver::None;
    }
    let compatible = sysroot.text("proc/device-tree/compatible");
    match compatible.known().is_some_and(|compatible| compatible.contains("nvidia,tegra")) {
        true => GpuDriver::NvidiaTegra,
        false => GpuDriver::Nvidia,
    }
}

fn flag(text: &str) -> Fact<bool> {
    match text {
        "0" => Fact::Known(false),
        "1" => Fact::Known(true),
        other => Fact::Garbled(other.chars().take(64).collect()),
    }
}

/// Every process with its name.
fn processes(sysroot: &Sysroot) -> Vec<Process> {
    let entries = sysroot.entries("proc");
    let pids = entries.known().into_iter().flatten().filter_map(|name| name.parse::<u32>().ok());
    let named = |pid| Some(Process { name: sysroot.text(&format!("proc/{pid}/comm")).known()?.clone(), pid });
    pids.filter_map(named).collect()
}

/// Processes that have a device node of the GPU open, if those of all users can be seen.
fn holders(sysroot: &Sysroot, processes: &[Process]) -> Fact<Vec<Process>> {
    let namespace = fs::metadata(sysroot.place("proc/self/ns/pid")).map(|meta| meta.st_ino());
    if sysroot.is_live() && namespace.is_ok_and(|inode| inode != FIRST_PID_NAMESPACE) {
        return Fact::Denied("a PID namespace hides other processes".into());
    }
    let mut holders = Vec::new();
    let mut denied = None;
    for process in processes.iter().filter(|process| process.pid != std::process::id()) {
        let dir = format!("proc/{}/fd", process.pid);
        match sysroot.entries(&dir) {
            Fact::Known(files) => {
                let target = |file: &String| fs::read_link(sysroot.place(&format!("{dir}/{file}"))).ok();
                let holds = files.iter().filter_map(target).any(|path| is_gpu_node(&path));
                holders.extend((holds && !process.name.starts_with(HARMLESS)).then(|| process.clone()));
            }
            Fact::Denied(why) => denied = Some(why),
            // It ended in between.
            Fact::Absent | Fact::Garbled(_) => {}
        }
    }
    // Where even the first process is hidden, others may be.
    let sees_all = processes.iter().any(|process| process.pid == 1);
    match (holders.is_empty(), denied, sees_all) {
        (false, _, _) | (true, None, true) => Fact::Known(holders),
        (true, Some(why), _) => Fact::Denied(format!("the open files of other users cannot be read: {why}")),
        (true, None, false) if sysroot.is_live() => Fact::Denied("other processes are hidden".into()),
        (true, None, false) => Fact::Absent,
    }
}

/// Nodes through which a process computes or draws; not those for power and for memory alone.
fn is_gpu_node(path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    path.strip_prefix("/dev/nvhost-").is_some_and(|rest| rest.ends_with("gpu"))
        || path.strip_prefix("/dev/nvgpu/").is_some_and(|rest| !rest.ends_with("/power"))
        || path.strip_prefix("/dev/nvidia").is_some_and(|rest| numbered(rest) || rest == "ctl" || rest == "-uvm")
}

/// Rows of nvmap's list of clients: client, process, pid, size. A process's name may have spaces.
fn parse_clients(text: &str) -> Vec<Process> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, name @ .., pid, _] = &words[..] else { return None };
        Some(Process { name: name.join(" "), pid: pid.parse().ok()? })
    };
    text.lines().filter_map(row).collect()
}

/// Compute clients that ended in this boot, where the driver keeps account of them.
fn accounted(sysroot: &Sysroot) -> Fact<u32> {
    if !is_initialised(sysroot) {
        return Fact::Absent;
    }
    let ask = |file, what| {
        let argv = ["nvidia-smi", what, "--format=csv,noheader"];
        let limit = Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start };
        sysroot
            .output(&Command { file, argv: &argv, patience: PATIENCE, limit })
            .and_then(|output| Fact::Known(String::from_utf8_lossy(&output).into_owned()))
    };
    ask("nvidia-smi-accounting-mode.csv", "--query-gpu=accounting.mode").and_then(|modes| {
        if !modes.lines().all(|mode| mode.trim() == "Enabled") {
            return Fact::Absent;
        }
        ask("nvidia-smi-accounted-apps.csv", "--query-accounted-apps=pid")
            .and_then(|apps| Fact::Known(apps.lines().filter(|line| !line.trim().is_empty()).count() as u32))
    })
}

/// Whether every GPU was initialised: before, the driver writes question marks for what it does not know yet.
fn is_initialised(sysroot: &Sysroot) -> bool {
    let gpus = sysroot.entries("proc/driver/nvidia/gpus");
    let gpus = gpus.known().map(Vec::as_slice).unwrap_or_default();
    let known = |gpu: &String| {
        let text = sysroot.text(&format!("proc/driver/nvidia/gpus/{gpu}/information"));
        text.known().is_some_and(|text| !text.contains('?'))
    };
    !gpus.is_empty() && gpus.iter().all(known)
}

/// The mark that a trial of ours used the GPU, for runs of every results directory: a file keyed by the boot id.
#[derive(Debug, Clone)]
pub struct UsedMark {
    places: Vec<PathBuf>,
}

impl UsedMark {
    /// The mark in the first of `dirs` that can be written; on the tree of another machine in its own `run`.
    pub fn new(dirs: &[PathBuf], sysroot: &Sysroot) -> Self {
        const NAME: &str = "jetfault.gpu-used";
        let dirs = if sysroot.is_live() { dirs.to_vec() } else { vec![sysroot.place("run")] };
        Self { places: dirs.into_iter().map(|dir| dir.join(NAME)).collect() }
    }

    /// The trial that left the mark in boot `here`.
    pub fn read(&self, here: &BootId) -> Option<String> {
        let marked = |place: &PathBuf| {
            let text = fs::read_to_string(place).ok()?;
            let (boot, trial) = text.trim_end().split_once('\n')?;
            (boot == here.as_str()).then(|| trial.to_owned())
        };
        self.places.iter().find_map(marked)
    }

    /// Leaves the mark of `trial`, unless an earlier trial of this boot left its own.
    ///
    /// # Errors
    /// If it can be written nowhere.
    pub fn leave(&self, here: &BootId, run: &RunMark, trial: &TrialId) -> Result<(), MachineError> {
        if self.read(here).is_some() {
            return Ok(());
        }
        let text = format!("{here}\n{run}/{trial}\n");
        let mut last = MachineError::new("leave the mark of a trial", ErrorKind::NotFound.into());
        for place in &self.places {
            if let Some(dir) = place.parent() {
                // Writing the file says what is wrong with its directory.
                let _ = fs::create_dir_all(dir);
            }
            match write_replaceably(place, text.as_bytes()) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::start_state::{Known, start_state};
    use crate::model::start_state::ColdProof;
    use crate::testing::boards::assemble;

    /// Rule and proof of a board's tree, and what it rests on.
    fn judged(board: &str, scenario: Option<&str>) -> (String, ColdProof, String) {
        let tree = assemble(board, scenario);
        let state = start_state(
            &traces(&Sysroot::new(tree.path().into()), None, TraceSources::FilesAndPrograms),
            Known::default(),
        );
        (state.rule, state.cold, state.because.join("; "))
    }

    #[test]
    fn an_idle_board_is_consistent_with_cold_and_one_with_a_client_is_not() {
        let (rule, cold, because) = judged("orin-nano-super-jp62", None);
        assert_eq!((rule.as_str(), cold), ("no-trace", ColdProof::Consistent), "{because}");
        assert!(because.contains("golden_img_status is 1") && because.contains("6200 ms"), "{because}");
        let (rule, cold, because) = judged("orin-nano-super-jp62", Some("dirty-gpu-before-cold-cell"));
        assert_eq!((rule.as_str(), cold), ("client-alive", ColdProof::Not));
        assert!(because.contains("gnome-shell (1543), ollama (1602)"), "{because}");
        assert_eq!(judged("agx-orin-jp5", None).1, ColdProof::Consistent);
    }

    #[test]
    fn a_board_without_nvgpu_is_judged_by_what_it_shows() {
        // A tree without processes: nobody can say who has the device nodes open.
        let (rule, cold, because) = judged("thor-jp7", None);
        assert_eq!((rule.as_str(), cold), ("clients-unseen", ColdProof::Unknown), "{because}");
        let (rule, cold, _) = judged("x86-pc", None);
        assert_eq!((rule.as_str(), cold), ("never-initialised", ColdProof::Proven), "its tree has no nvidia_uvm");
    }

    #[test]
    fn processes_are_named_and_their_open_nodes_are_seen() {
        let tree = assemble("thor-jp7", None);
        let process = |pid: u32, comm: &str, open: &[&str]| {
            let dir = tree.path().join(format!("proc/{pid}/fd"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.with_file_name("comm"), format!("{comm}\n")).unwrap();
            for (fd, target) in open.iter().enumerate() {
                std::os::unix::fs::symlink(target, dir.join(fd.to_string())).unwrap();
            }
        };
        let look = || traces(&Sysroot::new(tree.path().into()), None, TraceSources::Files);
        process(1, "systemd", &["/dev/null"]);
        process(40, "nvidia-persiste", &["/dev/nvidia0", "/dev/nvidiactl"]);
        process(41, "dockerd", &["socket:[12]"]);
        process(42, "nvpmodel", &["/dev/nvgpu/igpu0/power", "/dev/nvmap", "/dev/nvidia-modeset"]);
        let quiet = look();
        assert_eq!(quiet.holders, Fact::Known(vec![]));
        assert_eq!(quiet.bystanders, [Process { name: "dockerd".into(), pid: 41 }]);
        for (pid, node) in
            [(50, "/dev/nvidia0"), (51, "/dev/nvidia-uvm"), (52, "/dev/nvhost-as-gpu"), (53, "/dev/nvgpu/igpu0/ctrl")]
        {
            process(pid, "python3", &[node]);
            let held = look().holders;
            let holders = held.known().unwrap();
            assert!(holders.iter().any(|process| process.pid == pid), "{node}: {holders:?}");
        }
        process(60, "Xorg", &[]);
        assert_eq!(look().users, [Process { name: "Xorg".into(), pid: 60 }]);
    }

    #[test]
    fn accounting_is_asked_only_of_a_gpu_that_is_initialised() {
        let tree = assemble("x86-pc", None);
        let sysroot = || Sysroot::new(tree.path().into());
        let information = tree.path().join("proc/driver/nvidia/gpus/0000:01:00.0/information");
        fs::create_dir_all(information.parent().unwrap()).unwrap();
        let answer = |file: &str, text: &str| fs::write(tree.path().join("cmd").join(file), text).unwrap();
        answer("nvidia-smi-accounting-mode.csv", "Enabled\n");
        answer("nvidia-smi-accounted-apps.csv", "4711\n4712\n");
        fs::write(&information, "GPU UUID: GPU-????????-????\n").unwrap();
        assert_eq!(traces(&sysroot(), None, TraceSources::FilesAndPrograms).accounted, Fact::Absent);
        fs::write(&information, "GPU UUID: GPU-01234567-89ab\n").unwrap();
        assert_eq!(traces(&sysroot(), None, TraceSources::FilesAndPrograms).accounted, Fact::Known(2));
        assert_eq!(traces(&sysroot(), None, TraceSources::Files).accounted, Fact::Absent);
        answer("nvidia-smi-accounting-mode.csv", "Enabled\nDisabled\n");
        assert_eq!(traces(&sysroot(), None, TraceSources::FilesAndPrograms).accounted, Fact::Absent);
    }

    #[test]
    fn a_mark_counts_in_its_own_boot() {
        let dir = tempfile::tempdir().unwrap();
        let live = Sysroot::new("/".into());
        let mark = UsedMark::new(&[dir.path().join("file/below"), dir.path().join("run")], &live);
        fs::write(dir.path().join("file"), "in the way").unwrap();
        let boot = |n: u8| format!("{n:08x}-9e6f-4d8e-b4cd-0d9449a8b993").parse::<BootId>().unwrap();
        let run = RunMark::new(&"x-001".parse().unwrap(), dir.path());
        let trial: TrialId = "c-0123456789abcdef-r001-a1".parse().unwrap();
        assert_eq!(mark.read(&boot(1)), None);
        mark.leave(&boot(1), &run, &trial).unwrap();
        assert!(mark.read(&boot(1)).unwrap().ends_with("/c-0123456789abcdef-r001-a1"));
        assert_eq!(mark.read(&boot(2)), None);
    }
}
