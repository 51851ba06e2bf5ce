//! The shipped matrix of TensorRT-Edge-LLM issue 216 against a stand-in: the tables of the report, computed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::bench::Bench;
use crate::standins::standin;

/// The report of the matrix with these variables for the stand-in.
fn report(switches: &[(&str, &str)], more: &[&str]) -> Value {
    report_in(&Bench::new(), switches, more)
}

fn report_in(bench: &Bench, switches: &[(&str, &str)], more: &[&str]) -> Value {
    let builder = format!("vars.builder={:?}", standin("builder"));
    let mut args: Vec<String> = ["run", "edge-llm-nvfp4", "--allow-root-workload", "--set"].map(str::to_owned).into();
    args.extend([builder, "--set".into(), "vars.model=\"/\"".into(), "--set".into(), "workload.settle=\"0s\"".into()]);
    for (name, value) in switches {
        args.extend(["--set".to_owned(), format!("workload.env.{name}={value:?}")]);
    }
    args.extend(more.iter().map(|word| (*word).to_owned()));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    bench.run(&args).ends(1);
    let said = bench.run(&["report", "--format", "json"]);
    serde_json::from_str(&said.out).unwrap()
}

fn faults_of(report: &Value, label: &str) -> (u64, u64, BTreeSet<String>) {
    let cells = report["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["label"] == label).unwrap_or_else(|| panic!("no cell {label}"));
    let sampled = &cell["samples"][0];
    let places = sampled["signatures"].as_array().into_iter().flatten().map(|known| {
        let signature = &known["signature"];
        let word = |key: &str| signature[key].as_str().unwrap_or_default().to_owned();
        [word("verdict"), word("status"), word("place"), word("stage")].join("/")
    });
    (sampled["rate"]["faults"].as_u64().unwrap(), sampled["rate"]["counted"].as_u64().unwrap(), places.collect())
}

fn row<'r>(report: &'r Value, what: &str) -> (&'r str, &'r str) {
    let rows = report["hypotheses"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["what"].as_str().unwrap().contains(what))
        .unwrap_or_else(|| panic!("no row {what}: {rows:?}"));
    (row["status"].as_str().unwrap(), row["evidence"].as_str().unwrap())
}

#[test]
fn the_tables_of_the_report_come_out_of_the_run() {
    let report = report(&[], &[]);
    let (faults, counted, places) = faults_of(&report, "baseline");
    assert_eq!((faults, counted, places.len()), (4, 4, 1), "{places:?}");
    let place = places.first().unwrap();
    assert!(place.starts_with("crash/SIGSEGV/libcompiler.so@") && place.ends_with("/compiler-backend"), "{place}");
    for label in ["size=512/1024", "ext=--externalize-weights nvfp4_tp", "heap=perturbed", "cpus=0"] {
        assert_eq!(faults_of(&report, label), (4, 4, places.clone()), "{label}");
    }
    for label in ["dense=fp16", "components=visual", "control:visual"] {
        assert_eq!(faults_of(&report, label).0, 0, "{label}");
    }
    assert_eq!(row(&report, "it depends on size").0, "ruled out");
    assert_eq!(row(&report, "it depends on heap").0, "ruled out");
    assert_eq!(row(&report, "a race between threads").0, "ruled out");
    assert_eq!(row(&report, "it depends on lunowud").0, "ruled out");
    assert_eq!(row(&report, "it depends on dense").0, "supported");
    assert_eq!(row(&report, "the checkpoint is sound").0, "supported");
    assert_eq!(row(&report, "the harness").0, "not tested");
    let (status, evidence) = row(&report, "the machine's memory ran out");
    assert!(
        status == "ruled out" && evidence.contains("MiB were available during every one of"),
        "{status}: {evidence}"
    );
    assert_eq!(row(&report, "the address varies").0, "undecided");
}

#[test]
fn threads_are_supported_only_if_the_stand_in_is_cured_by_one() {
    let report = report(
        &[("STANDIN_CURE", "num_threads=1")],
        &["--cell", "baseline", "--cell", "lunowud=+-mlir:autotune:num_threads=1"],
    );
    let (status, evidence) = row(&report, "it depends on lunowud");
    assert_eq!(status, "supported", "{evidence}");
    assert!(evidence.contains("0 of 4 at") && evidence.contains("4 of 4 in the baseline, p = 0.029"), "{evidence}");
}

#[test]
fn another_place_is_another_fault_and_a_clean_error_is_none_of_them() {
    let here = report(&[], &["--cell", "baseline"]);
    let elsewhere = report(&[("STANDIN_ELSEWHERE", "1")], &["--cell", "baseline"]);
    let offset = report(&[("STANDIN_OFFSET", "1")], &["--cell", "baseline"]);
    let clean = report(&[("STANDIN_CLEAN", "1")], &["--cell", "baseline"]);
    let places: Vec<BTreeSet<String>> =
        [&here, &elsewhere, &clean, &offset].map(|report| faults_of(report, "baseline").2).into();
    assert!(places[1].first().unwrap().starts_with("crash/SIGSEGV/builder@"), "{places:?}");
    assert!(places[2].first().unwrap().starts_with("error/exit 1/"), "{places:?}");
    assert_ne!(places[0], places[1]);
    let of_library = places[3].first().unwrap();
    assert!(of_library.starts_with("crash/SIGSEGV/libcompiler.so@"), "{places:?}");
    assert_ne!(places[0], places[3], "one library, two places");
    let nothing = report(&[("STANDIN_NO_ENGINE", "1")], &["--cell", "dense=fp16"]);
    assert!(faults_of(&nothing, "dense=fp16").2.first().unwrap().starts_with("artifact-missing/"));
}

#[test]
fn a_fault_that_does_not_always_come_is_a_rate_with_an_interval() {
    let bench = Bench::new();
    let count = bench.path("starts");
    let report =
        report_in(&bench, &[("STANDIN_COUNT", count.to_str().unwrap())], &["--cell", "baseline", "--trials", "8"]);
    let cell = &report["cells"][0];
    let rate = &cell["samples"][0]["rate"];
    assert_eq!((&rate["faults"], &rate["counted"]), (&6.into(), &8.into()), "{rate}");
    let (low, high) = (rate["low"].as_f64().unwrap(), rate["high"].as_f64().unwrap());
    assert!(0.3 < low && low < 0.75 && 0.75 < high && high < 1.0, "{rate}");
}

#[test]
fn what_a_build_says_of_itself_is_measured() {
    let bench = Bench::new();
    let args = ["run", "edge-llm-nvfp4", "--allow-root-workload", "--cell", "dense=fp16", "--trials", "1"];
    let builder = format!("vars.builder={:?}", standin("builder"));
    let set = ["--set", &builder, "--set", "vars.model=\"/\"", "--set", "workload.settle=\"0s\""];
    bench.run(&[&args[..], &set].concat()).ends(0);
    let (_, json) = &bench.results_of("edge-llm-nvfp4-001")[0];
    let metrics = &serde_json::from_str::<Value>(json).unwrap()["outcome"]["metrics"];
    for (name, value) in [("bindings", 114.0), ("engine_bytes", 346.0), ("build_s", 212.4)] {
        assert_eq!(metrics[name].as_f64(), Some(value), "{metrics}");
    }
}
