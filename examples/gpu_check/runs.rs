//! The seed's cells through the real matrix runner: the binary, its child, the journal, and what they say of each.
//!
//! The binary is `JETFAULT`, or the one that lies beside this program or a directory above it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Verdict;

/// The cells.
const MATRIX: &str = include_str!("seed.toml");
/// The run that the matrix makes in a new directory.
const RUN: &str = "gpu-check-001";

/// Runs all cells and prints one row each; every one must be a pass on CUDA.
pub(crate) fn check(verdict: &mut Verdict) {
    println!("\n## Cells through the matrix runner\n");
    if let Err(error) = run(verdict) {
        verdict.expect(false, || format!("the matrix runner: {error}"));
    }
}

fn run(verdict: &mut Verdict) -> Result<(), String> {
    let binary = binary()?;
    let directory = std::env::temp_dir().join(format!("gpu_check-{}", std::process::id()));
    fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let outcome = run_in(&binary, &directory, verdict);
    // It holds nothing that the table does not; what cannot be removed is in the directory for temporary files.
    let _ = fs::remove_dir_all(&directory);
    outcome
}

fn run_in(binary: &Path, directory: &Path, verdict: &mut Verdict) -> Result<(), String> {
    let matrix = directory.join("seed.toml");
    fs::write(&matrix, MATRIX).map_err(|error| error.to_string())?;
    let mut command = Command::new(binary);
    command.arg("run").arg(&matrix).args(["--allow-volatile", "--results"]).arg(directory.join("results"));
    command.env("JETFAULT_LOCK_DIR", directory);
    let output = command.output().map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
    let run = directory.join("results").join(RUN);
    let cells = cells(&run).map_err(|error| {
        format!("{error}; it ended with {} and said {}", output.status, String::from_utf8_lossy(&output.stderr))
    })?;
    println!("Peaks in MB. The child compared every result with the oracle; times are of the layer that came last.\n");
    println!(
        "| cell | verdict | code | allocated | reserved | forward, device ms | quantize, device ms | outputs | context, first kernel, ms | s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (label, result) in cells {
        row(&label, &result, verdict);
    }
    println!("\n`jetfault run` ended with {}.", output.status);
    Ok(())
}

fn binary() -> Result<PathBuf, String> {
    if let Some(binary) = std::env::var_os("JETFAULT") {
        return Ok(binary.into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let near = own.ancestors().skip(1).take(2).map(|directory| directory.join("jetfault"));
    near.into_iter().find(|binary| binary.is_file()).ok_or_else(|| {
        "no jetfault beside this program: run `cargo build --release`, or set JETFAULT to its path".to_owned()
    })
}

/// The first result of every cell, in the order of the plan.
fn cells(run: &Path) -> Result<Vec<(String, Value)>, String> {
    let plan = read(&run.join("plan.json"))?;
    let trials = fs::read_dir(run.join("trials")).map_err(|error| error.to_string())?;
    let mut results = BTreeMap::new();
    for trial in trials.filter_map(Result::ok) {
        let name = trial.file_name().to_string_lossy().into_owned();
        let cell = name.rsplitn(3, '-').last().unwrap_or_default().to_owned();
        results.insert(cell, read(&trial.path().join("result.json"))?);
    }
    let cells = plan["cells"].as_array().into_iter().flatten();
    Ok(cells
        .map(|cell| {
            let id = cell["id"].as_str().unwrap_or_default();
            (cell["label"].as_str().unwrap_or(id).to_owned(), results.remove(id).unwrap_or_default())
        })
        .collect())
}

fn read(path: &Path) -> Result<Value, String> {
    let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn metric_ms(outcome: &Value, name: &str) -> String {
    outcome["metrics"][name].as_f64().map_or("none".to_owned(), |ms| format!("{ms:.0}"))
}

fn row(label: &str, result: &Value, verdict: &mut Verdict) {
    let (judgement, outcome) = (&result["judgement"], &result["outcome"]);
    let word = judgement["verdict"].as_str().unwrap_or("no result");
    let note = |name: &str| outcome["notes"][name].as_str().unwrap_or_default();
    let is_right = word == "pass" && note("backend") == "cuda";
    verdict.expect(is_right, || {
        format!("{label}: {word} on {:?} at {}: {}", note("backend"), judgement["stage"], judgement["detail"])
    });
    let megabytes =
        |name: &str| outcome["peak_memory"][name].as_f64().map_or(String::new(), |b| format!("{:.1}", b / 1e6));
    // The last layer by the order of its stages.
    let stages = outcome["stage_ms"].as_array().into_iter().flatten().filter_map(|stage| stage[0].as_str());
    let last = stages.filter_map(|stage| stage.strip_suffix(".forward")).next_back().unwrap_or_default();
    let device_ms = |stage: &str| {
        let ms = outcome["metrics"][format!("{last}.{stage}_device_ms")].as_f64();
        ms.map_or(String::new(), |ms| format!("{last} {ms:.3}"))
    };
    println!(
        "| {label} | {word} | {} | {} | {} | {} | {} | {} | {} | {:.1} |",
        note("code"),
        megabytes("device_allocated"),
        megabytes("device_reserved"),
        device_ms("forward"),
        device_ms("quantize"),
        outcome["metrics"]["checked_outputs"].as_f64().unwrap_or_default(),
        ["context_ms", "first_kernel_ms"].map(|name| metric_ms(outcome, name)).join(", "),
        outcome["duration_ms"].as_f64().unwrap_or_default() / 1000.0,
    );
}
