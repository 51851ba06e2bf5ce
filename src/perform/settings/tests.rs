//! A board whose programs note how they were called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::model::settings::Swap as SwapLevel;
use crate::model::settings::{Clocks as ClocksLevel, GpuPm as GpuPmLevel, Linear4bitSettings, WorkloadSettings};
use crate::testing::boards::assemble;

const GPU: &str = "sys/devices/platform/bus@0/17000000.gpu";

/// The tree of an Orin Nano with programs of its own, each of which notes how it was called.
struct Board {
    tree: TempDir,
    sysroot: Sysroot,
    tools: Tools,
    keep: PathBuf,
    boot: BootId,
}

impl Board {
    fn new() -> Self {
        let tree = assemble("orin-nano-super-jp62", None);
        let root = tree.path().to_str().unwrap().to_owned();
        fs::create_dir_all(tree.path().join("bin")).unwrap();
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0\tpartition\t9\t0\t5\n/swapfile\tfile\t9\t0\t-2\n";
        fs::write(tree.path().join("proc/swaps"), swaps).unwrap();
        let scripts = [
            (
                Tool::Nvpmodel,
                format!(
                    "case $1 in -q) cat {root}/mode;; -m) case $2 in 0) printf 'NV Power Mode: 15W\\n0\\n' > {root}/mode;; \
                 3) echo 'NVPM WARN: Reboot required for changing to this power mode: 3' >&2; exit 1;; \
                 *) echo 'NVPM ERROR: request for bad power mode' $2 >&2; exit 255;; esac;; esac"
                ),
            ),
            (
                Tool::JetsonClocks,
                format!(
                    "d={root}/{GPU}/devfreq/17000000.gpu; case $1 in --store) test -e $2 && exit 1; cat $d/min_freq > $2;; \
                 --restore) cat $2 > $d/min_freq;; '') cat $d/max_freq > $d/min_freq;; *) exit 1;; esac"
                ),
            ),
            (Tool::Swapoff, format!("sed -i \"\\\\#^$1\\\\b#d\" {root}/proc/swaps")),
            (
                Tool::Swapon,
                format!(
                    "if [ $1 = -p ]; then p=$2; shift 2; else p=-3; fi; printf '%s\\tx\\t9\\t0\\t%s\\n' $1 $p >> {root}/proc/swaps"
                ),
            ),
        ];
        let mut replaced = std::collections::BTreeMap::new();
        for (tool, script) in scripts {
            let path = tree.path().join("bin").join(tool.as_str());
            script_at(&path, &format!("#!/bin/sh\necho {tool} \"$@\" >> {root}/calls\n{script}\n"));
            replaced.insert(tool, path.to_str().unwrap().to_owned());
        }
        fs::write(tree.path().join("mode"), "NVPM WARN: fan mode is not set!\nNV Power Mode: MAXN_SUPER\n2\n").unwrap();
        let sysroot = Sysroot::new(tree.path().into());
        let tools = Tools::new(&replaced, "", &sysroot);
        let boot = sysroot.boot_id().unwrap();
        let keep = tree.path().join("keep");
        Self { tree, sysroot, tools, keep, boot }
    }

    fn reach(&self) -> Reach<'_> {
        Reach { sysroot: &self.sysroot, tools: &self.tools, keep: &self.keep, boot: &self.boot }
    }

    fn read(&self, setting: MachineSetting) -> String {
        self.reach().read(setting).known().unwrap_or_else(|| panic!("{setting} cannot be read")).clone()
    }

    /// How programs were called since the last question.
    fn calls(&self) -> Vec<String> {
        let path = self.tree.path().join("calls");
        let calls = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        calls.lines().map(str::to_owned).collect()
    }

    fn asked(&self, change: impl Fn(&mut Settings)) -> Result<Asked, String> {
        let mut settings = Settings::of(WorkloadSettings::Linear4bit(Linear4bitSettings::of(Vec::new())));
        change(&mut settings);
        self.reach().asked(&settings, &power_modes(&self.sysroot))
    }
}

/// A script is written by another process: one that this process has open for writing could not be executed while
/// another thread forks.
fn script_at(path: &Path, text: &str) {
    let status = Command::new("sh").args(["-c", "printf %s \"$1\" > \"$0\""]).arg(path).arg(text).status().unwrap();
    assert!(status.success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_power_mode_is_switched_read_back_and_never_set_twice() {
    let board = Board::new();
    let mode = MachineSetting::PowerMode;
    assert_eq!(board.read(mode), "MAXN_SUPER (2)");
    board.reach().set(mode, "15W (0)").unwrap();
    board.calls();
    board.reach().set(mode, "15W (0)").unwrap();
    board.reach().put_back(mode, "15W (0)").unwrap();
    assert!(board.calls().iter().all(|call| call == "nvpmodel -q"), "the mode that is active is not set");
    let refused = |level: &str| board.reach().set(mode, level).unwrap_err().to_string();
    assert_eq!(refused("9W (9)"), "nvpmodel: NVPM ERROR: request for bad power mode 9");
    assert!(refused("7W (3)").contains("needs a reboot"), "{}", refused("7W (3)"));
    assert_eq!(board.read(mode), "15W (0)");
}

#[test]
fn clocks_are_pinned_with_a_fresh_store_each_time_and_put_back_from_it() {
    let board = Board::new();
    let clocks = MachineSetting::Clocks;
    let found = board.read(clocks);
    assert_eq!(found, "306000000-1020000000 Hz");
    for number in 1..=2 {
        board.reach().set(clocks, "max").unwrap();
        assert_eq!(board.read(clocks), "1020000000-1020000000 Hz");
        board.reach().put_back(clocks, &found).unwrap();
        assert_eq!(board.read(clocks), found);
        let calls = board.calls();
        assert!(
            calls[0].starts_with("jetson_clocks --store") && calls[0].ends_with(&format!("-{number}")),
            "{calls:?}"
        );
        assert!(
            calls[2].starts_with("jetson_clocks --restore") && calls[2].ends_with(&format!("-{number}")),
            "{calls:?}"
        );
    }
    board.reach().set(clocks, "gpu:700MHz").unwrap();
    assert_eq!(board.read(clocks), "306000000-612000000 Hz", "the next clock below");
    board.reach().put_back(clocks, &found).unwrap();
    assert_eq!(board.read(clocks), found);
    assert!(board.asked(|settings| settings.clocks = ClocksLevel::GpuMhz(200)).unwrap_err().contains("no clock of"));
}

#[test]
fn pinning_that_has_no_effect_is_noticed() {
    let board = Board::new();
    script_at(&board.tree.path().join("bin/jetson_clocks"), "#!/bin/sh\nexit 0\n");
    let error = board.reach().set(MachineSetting::Clocks, "max").unwrap_err().to_string();
    assert_eq!(error, "clocks was set to max and is 306000000-1020000000 Hz");
}

#[test]
fn runtime_power_management_is_an_attribute() {
    let board = Board::new();
    let pm = MachineSetting::GpuPm;
    assert_eq!(board.read(pm), "auto");
    board.reach().set(pm, "on").unwrap();
    assert_eq!(fs::read_to_string(board.tree.path().join(GPU).join("power/control")).unwrap(), "on");
    board.reach().put_back(pm, "auto").unwrap();
    assert_eq!(board.read(pm), "auto");
    assert!(board.calls().is_empty());
}

#[test]
fn swap_goes_and_comes_back_on_the_same_devices() {
    let board = Board::new();
    let swap = MachineSetting::Swap;
    let found = board.read(swap);
    assert_eq!(found, "/dev/zram0:5 /swapfile:-2");
    for (level, left) in [("off", "none"), ("zram", "/dev/zram0:5"), ("disk", "/swapfile:-2")] {
        board.reach().set(swap, level).unwrap();
        assert_eq!(board.read(swap).replace("-3", "-2"), left);
        board.reach().put_back(swap, &found).unwrap();
    }
    assert!(board.calls().contains(&"swapon -p 5 /dev/zram0".to_owned()));
    board.reach().set(swap, "zram").unwrap();
    let none = board.asked(|settings| settings.swap = SwapLevel::Disk).unwrap_err();
    assert!(none.contains("none of the devices that it swaps to is such: /dev/zram0:5"), "{none}");
}

#[test]
fn what_a_machine_does_not_have_is_said_before_anything_runs() {
    let board = Board::new();
    let asked = board.asked(|settings| settings.power_mode = Some("1".into())).unwrap();
    assert_eq!(asked[&MachineSetting::PowerMode], "25W (1)");
    let unknown = board.asked(|settings| settings.power_mode = Some("MAXN".into())).unwrap_err();
    assert_eq!(unknown, "power mode \"MAXN\" is none of this board's: 15W (0), 25W (1), MAXN_SUPER (2), 7W (3)");
    let bare = Board { tools: Tools::new(&Default::default(), "", &board.sysroot), ..Board::new() };
    let why = bare.asked(|settings| settings.power_mode = Some("25W".into())).unwrap_err();
    assert!(why.contains("[tools] nvpmodel = \"PATH\""), "{why}");

    let pc = assemble("x86-pc", None);
    let pc = Board { sysroot: Sysroot::new(pc.path().into()), ..bare };
    let cannot = |change: fn(&mut Settings)| pc.asked(change).unwrap_err();
    assert!(cannot(|settings| settings.power_mode = Some("0".into())).contains("this machine has no power modes"));
    assert!(cannot(|settings| settings.gpu_pm = GpuPmLevel::On).contains("no integrated GPU"));
    assert!(cannot(|settings| settings.clocks = ClocksLevel::Max).contains("no GPU whose clock is scaled"));
    assert!(cannot(|settings| settings.swap = SwapLevel::Off).contains("does not tell what it swaps to"));
    assert!(cannot(|settings| settings.drop_caches = true).contains("drop_caches"));
    assert!(pc.asked(|_| {}).is_ok());
    let two = cannot(|settings| {
        settings.gpu_pm = GpuPmLevel::On;
        settings.drop_caches = true;
    });
    assert!(two.contains("gpu_pm") && two.contains("; drop_caches"), "every reason is said: {two}");
}

#[test]
fn a_program_of_tools_that_is_not_there_is_named() {
    let board = Board::new();
    let replaced = [(Tool::Nvpmodel, "tools/nvpmodel".to_owned())].into();
    let tools = Tools::new(&replaced, "/nowhere", &board.sysroot);
    let error = tools.find(Tool::Nvpmodel).unwrap_err().to_string();
    assert_eq!(error, "[tools] nvpmodel is /nowhere/tools/nvpmodel, and there is no such file");
}

#[test]
fn the_page_cache_is_dropped_and_nothing_else() {
    let board = Board::new();
    let path = board.tree.path().join("proc/sys/vm/drop_caches");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "0").unwrap();
    drop_page_cache(board.reach()).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "1");
    assert!(page_cache(&board.sysroot).ends_with("kB"), "{}", page_cache(&board.sysroot));
}
