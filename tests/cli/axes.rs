//! Axes of a command that change what is around it: each is seen from inside the command.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::bench::Bench;
use crate::commands::{detail, judged, matrix, only, run};
use crate::standins::standin;

fn script(script: &str, more: &str) -> String {
    format!("argv = [\"sh\", \"-c\", {script:?}]\n{more}")
}

/// Verdict and result of the first trial; one that is void is repeated.
fn first(bench: &Bench) -> (String, Value) {
    let (_, verdict, result) = judged(bench).remove(0);
    (verdict, result)
}

/// What each trial of the run wrote.
fn said(bench: &Bench) -> Vec<String> {
    let trials = fs::read_dir(bench.results().join("m-001/trials")).unwrap();
    trials.map(|trial| fs::read_to_string(trial.unwrap().path().join("stdout.log")).unwrap()).collect()
}

#[test]
fn limits_are_the_commands_own() {
    let bench = Bench::new();
    let text = matrix(&script("ulimit -n; ulimit -c; ulimit -Hn", ""), "[baseline]\nlimits = \"nofile=64 core=0\"\n");
    run(&bench, &text, &[]).ends(0);
    assert_eq!(said(&bench), ["64\n0\n64\n"]);
    let unknown = matrix("argv = [\"true\"]", "[axes]\nlimits = [\"files=3\"]\n");
    run(&bench, &unknown, &[]).fails(2, &["files=3", "nofile=64 core=unlimited"]);
}

#[test]
fn without_address_randomisation_two_processes_have_one_layout() {
    let stack = script("grep -F '[stack]' /proc/self/maps", "");
    for (level, layouts) in [("off", 1), ("kept", 3)] {
        let bench = Bench::new();
        run(&bench, &matrix(&stack, &format!("[baseline]\naslr = \"{level}\"\n")), &["--trials", "3"]);
        let (verdict, result) = first(&bench);
        if verdict == "void" {
            return eprintln!("not run here: {}", detail(&result));
        }
        let said: BTreeSet<String> = said(&bench).into_iter().collect();
        assert_eq!(said.len(), layouts, "{level}: {said:?}");
    }
}

#[test]
fn ballast_is_there_before_the_command_and_gone_after_the_run() {
    let bench = Bench::new();
    // The ballast is the other child of the same parent.
    let look = "for status in $(grep -l \"PPid:.$PPID$\" /proc/[0-9]*/status); do \
                grep -q '[_]_worker' $(dirname $status)/cmdline 2>/dev/null && grep VmRSS $status; done; true";
    let metrics =
        "metrics = { held_kb = 'VmRSS:\\s+(\\d+) kB' }\nexpect_output = { numbers = { held_kb = { min = 65536 } } }";
    run(&bench, &matrix(&script(look, metrics), "[baseline]\nballast = \"64MiB\"\n"), &[]).ends(0);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "pass", "{result}");
    let notes = &result["outcome"]["notes"]["ballast"];
    assert!(notes.as_str().unwrap().contains("ballast of 64MiB: at work after"), "{notes}");
    assert!(result["outcome"]["metrics"]["ballast.locked"].is_number(), "{result}");
}

#[test]
fn more_ballast_than_there_is_memory_for_makes_a_trial_void() {
    let bench = Bench::new();
    run(&bench, &matrix("argv = [\"true\"]", "[baseline]\nballast = \"16384GiB\"\n"), &[]).ends(3);
    let (verdict, result) = first(&bench);
    assert_eq!(verdict, "void");
    assert!(detail(&result).contains("ballast of 16384GiB is more than the"), "{}", detail(&result));
}

#[test]
fn a_prelude_runs_to_its_end_before_the_trial_and_its_failure_makes_it_void() {
    let left = script("[ -d prelude ]", "");
    let prelude = |level: &str| matrix(&left, &format!("[baseline]\nprelude = {level}\n"));
    let bench = Bench::new();
    run(&bench, &prelude("[\"sh\", \"-c\", \"sleep 0.2; echo done\"]"), &[]).ends(0);
    let trial = fs::read_dir(bench.results().join("m-001/trials")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(trial.join("prelude/stdout.log")).unwrap(), "done\n");

    let bench = Bench::new();
    run(&bench, &prelude("\"256x256\""), &[]).ends(0);

    let bench = Bench::new();
    run(&bench, &prelude("[\"sh\", \"-c\", \"exit 4\"]"), &[]).ends(3);
    let (verdict, result) = first(&bench);
    assert_eq!(verdict, "void");
    assert!(detail(&result).contains("its prelude failed: exit 4"), "{}", detail(&result));
}

#[test]
fn a_library_from_another_place_makes_a_trial_void_and_the_right_one_is_proved() {
    let library = standin("libcompiler.so");
    let name = library.rsplit('/').next().unwrap();
    let load = format!("import ctypes, time; ctypes.CDLL('{library}'); time.sleep(0.3)");
    let command = format!("argv = [\"python3\", \"-c\", {load:?}]\nloads = [\"{{lib}}\"]");
    for (wanted, verdict, words) in [
        (library.clone(), "pass", "sha256 "),
        (format!("/nowhere/{name}"), "void", "and not from /nowhere/libcompiler.so"),
    ] {
        let bench = Bench::new();
        run(&bench, &matrix(&command, &format!("[vars]\nlib = {wanted:?}\n")), &[]);
        let (found, result) = first(&bench);
        assert_eq!(found, verdict, "{result}");
        let note = result["outcome"]["notes"]["loads"].as_str().unwrap();
        assert!(note.contains(words), "{note}");
    }
}

#[test]
fn the_page_cache_is_filled_first_and_the_file_costs_nothing() {
    let bench = Bench::new();
    let blocks = script("stat -c '%s %b' ../../prefill", "");
    run(&bench, &matrix(&blocks, "[baseline]\nprefill_cache = \"32MiB\"\n"), &[]).ends(0);
    let said = said(&bench).remove(0);
    let (bytes, blocks) = said.trim().split_once(' ').unwrap();
    assert_eq!(bytes, (32 << 20).to_string());
    assert!(blocks.parse::<u64>().unwrap() < 64, "{blocks} blocks on the disk");
    let (_, result) = only(&bench);
    let note = result["outcome"]["notes"]["prefill_cache"].as_str().unwrap();
    assert!(note.contains("33554432 bytes were read") && note.contains("kB after"), "{note}");
    assert!(!bench.results().join("m-001/prefill").exists());
}

#[test]
fn a_command_is_repeated_with_pauses_until_one_repetition_fails() {
    let count = "echo x >> count; wc -l < count; [ $(wc -l < count) -lt 3 ]";
    let bench = Bench::new();
    run(&bench, &matrix(&script(count, ""), "[baseline]\niterations = 2\ngap = \"300ms\"\n"), &[]).ends(0);
    let (verdict, result) = only(&bench);
    let outcome = &result["outcome"];
    assert_eq!((verdict.as_str(), outcome["metrics"]["iterations"].as_f64()), ("pass", Some(2.0)), "{result}");
    assert!(outcome["duration_ms"].as_u64().unwrap() >= 300, "{outcome}");
    assert_eq!(said(&bench), ["2\n"], "the output is the last one's");

    let bench = Bench::new();
    run(&bench, &matrix(&script(count, ""), "[baseline]\niterations = 5\n"), &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!((verdict.as_str(), &result["outcome"]["metrics"]["iterations"]), ("error", &2.0.into()), "{result}");
    assert_eq!(said(&bench), ["3\n"]);
}

#[test]
fn the_patience_with_a_trial_is_that_of_all_repetitions() {
    let bench = Bench::new();
    let text = matrix(&script("sleep 0.3", "timeout = \"1s\""), "[baseline]\niterations = 100\n");
    run(&bench, &text, &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "hang", "{result}");
    assert!(result["outcome"]["duration_ms"].as_u64().unwrap() < 3000, "{result}");
}
