//! What one trial costs beside its own work, against spawning and syncing alone and against cargo-nextest, in one run.
//!
//! These machines are noisy: read the ratios. `cargo bench --bench trial`; `JETFAULT_BENCH_DIR` names a directory on the
//! disk to be measured. Not criterion: each sample is a whole run of the binary with its files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jetfault::perform::host::Sysroot;
use jetfault::perform::telemetry::measure;

const HARNESS: &str = env!("CARGO_BIN_EXE_jetfault");
const ROUNDS: usize = 5;

/// A matrix of one cell with `trials` trials that are watched no longer than they run.
fn matrix(trials: u32) -> String {
    format!(
        "[matrix]\nname = \"noop\"\ntrials = {trials}\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\nsettle = \"0s\"\n\
         [shapes]\nA = [64, 64]\n[baseline]\nsequence = \"A\"\n"
    )
}

/// A run of `trials`. Its results stay until the bench ends: ext4 is slow to make files for some seconds after it removed
/// many, and the next run would pay for that.
fn jetfault(dir: &Path, trials: u32) -> Duration {
    let file = dir.join(format!("noop-{trials}.toml"));
    fs::write(&file, matrix(trials)).unwrap();
    let begin = Instant::now();
    let status = Command::new(HARNESS)
        .args(["run", "-q", "--new", "--script", "done", "--results"])
        .args([&dir.join("results"), &file])
        .env("JETFAULT_LOCK_DIR", dir)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "jetfault: {status}");
    begin.elapsed()
}

/// Spawns the same binary and writes three synced lines, `trials` times.
fn floor(dir: &Path, trials: u32) -> Duration {
    let path = dir.join("floor.jsonl");
    let mut journal = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let line = format!("{{\"line\":\"{}\"}}\n", "x".repeat(300));
    let begin = Instant::now();
    for _ in 0..trials {
        for _ in 0..3 {
            journal.write_all(line.as_bytes()).unwrap();
            journal.sync_data().unwrap();
        }
        let status = Command::new(HARNESS).arg("--version").stdout(Stdio::null()).status().unwrap();
        assert!(status.success());
    }
    let took = begin.elapsed();
    fs::remove_file(path).unwrap();
    took
}

/// The archive of a crate of `tests` empty tests, if cargo-nextest is there.
fn nextest_archive(dir: &Path, tests: u32) -> Option<PathBuf> {
    Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?
        .success()
        .then_some(())?;
    let krate = dir.join("empty");
    fs::create_dir_all(krate.join("src")).unwrap();
    fs::write(
        krate.join("Cargo.toml"),
        "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n",
    )
    .unwrap();
    let body: String = (0..tests).map(|n| format!("#[test] fn t{n:03}() {{}}\n")).collect();
    fs::write(krate.join("src/lib.rs"), body).unwrap();
    let archive = krate.join("tests.tar.zst");
    let made = Command::new("cargo")
        .args(["nextest", "archive", "--archive-file"])
        .arg(&archive)
        .current_dir(&krate)
        .env("CARGO_TARGET_DIR", krate.join("target"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    made.success().then_some(archive)
}

fn nextest(archive: &Path) -> Duration {
    let begin = Instant::now();
    let status = Command::new("cargo")
        .args(["nextest", "run", "-j1", "--archive-file"])
        .arg(archive)
        .arg("--workspace-remap")
        .arg(archive.parent().unwrap())
        .current_dir(archive.parent().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "cargo-nextest: {status}");
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn sample(mut run: impl FnMut() -> Duration) -> f64 {
    median((0..ROUNDS).map(|_| run()).collect())
}

/// The peak of the harness's proportional share of memory over a run of `trials`, in MiB.
fn peak_pss(dir: &Path, trials: u32) -> f64 {
    let file = dir.join(format!("noop-{trials}.toml"));
    fs::write(&file, matrix(trials)).unwrap();
    peak_of(Command::new(HARNESS).args(["run", "-q", "--new", "--script", "done"]).arg(&file), dir)
}

/// The peak of the proportional share of memory of `harness`, which is run to its end, in MiB.
fn peak_of(harness: &mut Command, dir: &Path) -> f64 {
    let results = dir.join("results");
    let mut child =
        harness.arg("--results").arg(&results).env("JETFAULT_LOCK_DIR", dir).stdout(Stdio::null()).spawn().unwrap();
    let rollup = format!("/proc/{}/smaps_rollup", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&rollup).unwrap_or_default();
        let pss = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        peak = peak.max(pss.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    f64::from(peak) / 1024.0
}

/// Output of so many bytes, in lines and as one endless line.
const FLOOD_BYTES: u64 = 1_000_000_000;

/// What a command costs that floods the harness: seconds, peak of memory in MiB, and MiB that are kept.
fn flood(dir: &Path, source: &str) -> (f64, f64, f64) {
    let dir = dir.join("flood");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("flood.toml");
    let script = format!("{source} | head -c {FLOOD_BYTES}");
    let text = format!(
        "[matrix]\nname = \"flood\"\ntrials = 1\n[workload]\nkind = \"command\"\nsettle = \"0s\"\n\
         argv = [\"sh\", \"-c\", {script:?}]\nmetrics = {{ n = 'n=(\\d+)' }}\n"
    );
    fs::write(&file, text).unwrap();
    let begin = Instant::now();
    let peak = peak_of(Command::new(HARNESS).args(["run", "-q", "--allow-root-workload"]).arg(&file), &dir);
    let took = begin.elapsed().as_secs_f64();
    let trials = fs::read_dir(dir.join("results/flood-001/trials")).unwrap();
    let kept: u64 = trials.map(|trial| fs::metadata(trial.unwrap().path().join("stdout.log")).unwrap().len()).sum();
    (took, peak, kept as f64 / f64::from(1 << 20))
}

/// Files in the number and form of a Jetson AGX Orin's, with made-up values.
fn board(root: &Path) -> PathBuf {
    let write = |path: String, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for zone in 0..11 {
        write(format!("sys/class/thermal/thermal_zone{zone}/type"), &format!("zone{zone}-thermal"));
        write(format!("sys/class/thermal/thermal_zone{zone}/temp"), "48468");
        write(format!("sys/class/thermal/cooling_device{zone}/type"), &format!("throttle{zone}"));
        write(format!("sys/class/thermal/cooling_device{zone}/cur_state"), "0");
    }
    for channel in 1..=3 {
        for monitor in 1..=2 {
            write(format!("sys/class/hwmon/hwmon{monitor}/name"), "ina3221");
            write(format!("sys/class/hwmon/hwmon{monitor}/in{channel}_label"), &format!("VDD_{monitor}_{channel}"));
            write(format!("sys/class/hwmon/hwmon{monitor}/in{channel}_input"), "5032");
            write(format!("sys/class/hwmon/hwmon{monitor}/curr{channel}_input"), "946");
        }
        write("sys/class/hwmon/hwmon3/name".into(), "soctherm_oc");
        write(format!("sys/class/hwmon/hwmon3/oc{channel}_event_cnt"), "12");
        write(format!("sys/class/hwmon/hwmon3/oc{channel}_throt_en"), "1");
        write(format!("sys/devices/system/cpu/cpufreq/policy{channel}/scaling_cur_freq"), "729600");
    }
    write("sys/class/devfreq/17000000.gpu/cur_freq".into(), "621000000");
    write("sys/devices/platform/bus@0/17000000.gpu/load".into(), "635");
    write("sys/kernel/debug/bpmp/debug/clk/emc/rate".into(), "2133000000");
    for file in ["meminfo", "buddyinfo", "pressure/memory", "pressure/cpu", "pressure/io"] {
        write(format!("proc/{file}"), &fs::read_to_string(format!("/proc/{file}")).unwrap_or_default());
    }
    root.to_owned()
}

/// Processor time of one sample of the machine under `root`, in microseconds.
fn telemetry(dir: &Path, root: PathBuf) -> f64 {
    const SAMPLES: u32 = 1000;
    let summary = measure(&Sysroot::new(root), dir, SAMPLES).unwrap();
    summary.cpu_us as f64 / f64::from(SAMPLES)
}

fn main() {
    let dir = std::env::var_os("JETFAULT_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = dir.join(format!("bench-trial-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let archive = nextest_archive(&dir, 200);
    let version = sample(|| {
        let begin = Instant::now();
        Command::new(HARNESS).arg("--version").stdout(Stdio::null()).status().unwrap();
        begin.elapsed()
    });
    let one = sample(|| jetfault(&dir, 1));
    // Interleaved, so that a noisy minute hits all.
    let (mut floors, mut ours, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(floor(&dir, 200));
        ours.push(jetfault(&dir, 200));
        peers.extend(archive.as_deref().map(nextest));
    }
    let (floor_200, ours_200) = (median(floors) / 200.0, median(ours) / 200.0);
    let next = archive.map(|_| median(peers) / 200.0);
    let (small, large): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let ten = (0..10).map(|_| jetfault(&dir, 200)).sum::<Duration>() / 10;
            (ten, jetfault(&dir, 2000))
        })
        .unzip();
    let (beside_2000, ours_2000) = (median(small) / 200.0, median(large) / 2000.0);
    println!("| what | figure | wanted |");
    println!("|---|---|---|");
    println!("| `jetfault --version` | {version:.1} ms | under 10 ms |");
    println!("| a run of one trial | {one:.1} ms | fixed cost under 50 ms |");
    println!("| spawn of the same binary + 3 synced lines, a trial of 200 | {floor_200:.2} ms | |");
    println!("| jetfault, a trial of 200 | {ours_200:.2} ms | {:.2}x of the floor, at most 2x |", ours_200 / floor_200);
    match next {
        Some(next) => println!(
            "| cargo-nextest, a test of 200 | {next:.2} ms | jetfault takes {:.2} of it, under 0.5 |",
            ours_200 / next
        ),
        None => println!("| cargo-nextest | not installed | |"),
    }
    println!(
        "| jetfault, a trial of 2,000 | {ours_2000:.2} ms | {:.2}x of 200, at most 1.2x |",
        ours_2000 / beside_2000
    );
    println!("| peak PSS of the harness, 200 trials | {:.1} MiB | under 10 MiB |", peak_pss(&dir, 200));
    println!("| peak PSS of the harness, 10,000 trials | {:.1} MiB | under 10 MiB |", peak_pss(&dir, 10_000));
    for (what, root) in [("this machine", PathBuf::from("/")), ("a board's number of files", board(&dir.join("board")))]
    {
        let us = telemetry(&dir, root);
        // Four samples a second.
        println!("| telemetry, a sample of {what} | {us:.0} us | {:.2} % of one core, under 1 % |", us * 4.0 / 1e4);
    }
    for (what, source) in [("lines", "yes n=1"), ("one line", "tr '\\0' x < /dev/zero")] {
        let (took, peak, kept) = flood(&dir, source);
        println!(
            "| 1 GB of output in {what} | {took:.1} s, peak PSS {peak:.1} MiB, {kept:.1} MiB kept | under 32 MB |"
        );
    }
    fs::remove_dir_all(&dir).unwrap();
}
