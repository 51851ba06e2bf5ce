//! What the harness adds to each boot of a run of cold trials: from the start of its unit to the start of the child, and
//! all its time beside the child's. The board is a constructed tree whose reboots a script makes.
//!
//! `cargo bench --bench boot`; `JETFAULT_BENCH_DIR` names a directory on the disk to be measured.

#[path = "../src/testing/boards.rs"]
mod boards;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const HARNESS: &str = env!("CARGO_BIN_EXE_jetfault");
const BOOTS: u32 = 20;

/// The child tells when it began and ended, in nanoseconds since 1970.
const CHILD: &str = "date +%s%N > DIR/begun; date +%s%N > DIR/ended";

/// Another boot id in the same tree.
const REBOOT: &str = "d=$(dirname $0); n=$(cat $d/boots 2>/dev/null || echo 0); echo $((n + 1)) > $d/boots\n\
                      printf '%08x-9e6f-4d8e-b4cd-0d9449a8b993\\n' $((n + 2)) > $d/proc/sys/kernel/random/boot_id";

fn prepare_board(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("reboot", REBOOT);
    let board = format!(
        "[reboot]\nby = \"command\"\ncommand = [\"sh\", \"{}\"]\npatience = \"5s\"\n",
        root.join("reboot").display()
    );
    write("etc/jetfault/board.toml", &board);
    fs::create_dir_all(root.join("etc/systemd/system")).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
}

fn harness(dir: &Path, args: &[&str]) -> i32 {
    let mut command = Command::new(HARNESS);
    command.args(args).env("JETFAULT_LOCK_DIR", dir).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().code().unwrap_or(-1)
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1e3
}

/// A moment that the child told, in milliseconds since 1970.
fn told_ms(path: &Path) -> f64 {
    fs::read_to_string(path).unwrap().trim().parse::<f64>().unwrap() / 1e6
}

fn main() {
    let dir = std::env::var_os("JETFAULT_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = dir.join(format!("bench-boot-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let tree = boards::assemble("orin-nano-super-jp62", None);
    prepare_board(tree.path());
    let (root, results) = (tree.path().to_str().unwrap(), dir.join("results"));
    let results = results.to_str().unwrap();
    let file = dir.join("cold.toml");
    let child = CHILD.replace("DIR", dir.to_str().unwrap());
    let matrix = format!(
        "[matrix]\nname = \"cold\"\ntrials = {BOOTS}\nseed = 1\n[workload]\nkind = \"command\"\n\
         argv = [\"sh\", \"-c\", \"{child}\"]\nsettle = \"0s\"\n[baseline]\nstart = \"cold\"\n[safety]\nmax_boots = 1000\n"
    );
    fs::write(&file, matrix).unwrap();
    let file = file.to_str().unwrap();
    let begun = "--sysroot ROOT --allow-reboot --allow-root-workload --boot-delay 0".replace("ROOT", root);
    let begun: Vec<&str> = ["run", "-q", file, "--results", results].into_iter().chain(begun.split(' ')).collect();
    assert_eq!(harness(&dir, &begun), 3, "armed");
    let (mut before, mut beside) = (Vec::new(), Vec::new());
    for trial in 1..=BOOTS {
        let unit = fs::read_to_string(tree.path().join("etc/systemd/system/jetfault.service")).unwrap();
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let start = now_ms();
        assert_eq!(harness(&dir, &words), if trial == BOOTS { 0 } else { 3 }, "boot {trial}");
        let end = now_ms();
        let (child_begun, child_ended) = (told_ms(&dir.join("begun")), told_ms(&dir.join("ended")));
        before.push(child_begun - start);
        beside.push(child_begun - start + end - child_ended);
    }
    let show = |what: &str, mut times: Vec<f64>, wanted: &str| {
        times.sort_by(f64::total_cmp);
        println!("| {what} | {:.0} ms, at most {:.0} ms | {wanted} |", times[times.len() / 2], times[times.len() - 1]);
    };
    println!("| over {BOOTS} boots of a constructed board | figure | wanted |");
    println!("|---|---|---|");
    show("from the unit's start to the child's start", before, "under 3 s");
    show("the harness's time in a cold trial's boot, beside the child's", beside, "under 500 ms");
    fs::remove_dir_all(&dir).unwrap();
}
