//! What a report of 10,000 trials costs: time, size and peak memory of each format, of the program as it is used.
//!
//! The run is constructed: a third of its cells fault, the last 600 trials left telemetry and output, and every trial that
//! took the board down began a new boot.

#[path = "../tests/reports/constructed.rs"]
mod constructed;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use constructed::{HOSTILE, Shape, USER};

/// Trials of each of the twelve cells.
const TRIALS: u32 = 840;

/// How often each report is made; the fastest counts, because another program may have had the processor.
const TURNS: u32 = 5;

/// What a report took.
struct Cost {
    time: Duration,
    bytes: usize,
    peak_bytes: u64,
}

fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = constructed::make(
        dir.path(),
        "large",
        &Shape { trials: TRIALS, files: 600, warmed_faults: 5, max_boots: Some(1_000_000) },
    );
    let trials = fs::read_to_string(run.join("journal.jsonl")).unwrap().matches("\"judged\"").count();
    assert!(trials >= 10_000, "the constructed run ended after {trials} trials: a limit of its board");
    println!("{trials} trials; {USER} prints {} bytes of {HOSTILE:.9}", HOSTILE.len());
    println!("{:<8} {:>9} {:>10} {:>12}", "format", "time", "size", "peak memory");
    for (format, limit) in [("text", 1000), ("md", 200), ("json", 1000), ("csv", 1000), ("junit", 1000), ("html", 1000)]
    {
        let cost = (0..TURNS).map(|_| measure(&run, format)).min_by_key(|cost| cost.time).unwrap();
        let (time, megabytes) = (cost.time.as_millis(), cost.bytes as f64 / 1e6);
        println!("{format:<8} {time:>6} ms {megabytes:>7.2} MB {:>9.1} MB", cost.peak_bytes as f64 / 1e6);
        assert!(time < limit, "{format} takes longer than {limit} ms");
        assert!(format != "html" || megabytes < 5.0, "the page is larger than 5 MB");
        assert!(cost.peak_bytes < 100_000_000, "{format} takes more than 100 MB of memory");
    }
}

/// One report. Its first byte comes when all of it is made: memory is then at its peak, and the program waits for a reader.
fn measure(run: &Path, format: &str) -> Cost {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_jetfault"))
        .args(["report", run.to_str().unwrap(), "--format", format])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut output = vec![0; 1];
    stdout.read_exact(&mut output).unwrap();
    let peak_bytes = peak(child.id());
    stdout.read_to_end(&mut output).unwrap();
    child.wait().unwrap();
    Cost { time: begun.elapsed(), bytes: output.len(), peak_bytes }
}

/// The most resident memory that a process has had (`VmHWM` of proc_pid_status(5)); 0 if it is gone.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kb| kb * 1024)
}
