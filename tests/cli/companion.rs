//! Companions: another program before, beside or after the trial's own.

use serde_json::Value;

use crate::bench::{Bench, matrix};

/// The one trial of a matrix with this companion, run with `--script` and ended with `code`.
fn trial(companion: &str, script: &str, code: i32) -> (Bench, Value) {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, &format!("companion = {companion}\n")));
    bench.run(&["run", &file, "--allow-root-workload", "--script", script]).ends(code);
    let result = serde_json::from_str(&bench.results_of("one-001")[0].1).unwrap();
    (bench, result)
}

fn verdict(result: &Value) -> &str {
    result["judgement"]["verdict"].as_str().unwrap()
}

fn note(result: &Value) -> &str {
    result["outcome"]["notes"]["companion"].as_str().unwrap_or_default()
}

/// Says when it began, and lives until it is ended.
const PATIENT: &str = r#"["sh", "-c", "echo begun; trap 'echo ended; exit 0' TERM; while :; do sleep 0.05; done"]"#;

#[test]
fn a_companion_lives_as_long_as_the_trial_and_is_recorded_with_it() {
    for when in ["before", "beside", "after"] {
        let companion = format!("{{ argv = {PATIENT}, when = \"{when}\" }}");
        let (bench, result) = trial(&companion, "stage A.copy; sleep 300; done", 0);
        assert_eq!(verdict(&result), "pass", "{when}: {result}");
        assert!(note(&result).starts_with("sh: ended after "), "{when}: {}", note(&result));
        let trials = bench.results().join("one-001/trials");
        let dir = std::fs::read_dir(trials).unwrap().next().unwrap().unwrap().path();
        let said = std::fs::read_to_string(dir.join("companion/stdout.log")).unwrap();
        assert_eq!(said, "begun\nended\n", "{when}");
        assert_eq!(result["outcome"]["leaked"], Value::Null, "{when}: it is no leftover of the trial");
    }
}

#[test]
fn a_companion_that_fails_makes_the_trial_void_with_the_reason() {
    for (companion, reason) in [
        (r#"["no-such-program"]"#, "cannot execute \"no-such-program\""),
        (r#"["sh", "-c", "sleep 0.2; echo out of luck >&2; exit 7"]"#, "exit 7: out of luck"),
        (r#"{ argv = ["sh", "-c", "kill -SEGV $$"], when = "after" }"#, "SIGSEGV"),
    ] {
        let (_, result) = trial(companion, "stage A.copy; sleep 10000; done", 3);
        assert_eq!(verdict(&result), "void", "{companion}: {result}");
        let detail = result["judgement"]["detail"].as_str().unwrap();
        assert!(detail.contains(reason), "{companion}: {detail}");
    }
}

#[test]
fn a_companion_that_is_done_early_is_no_failure_and_hides_no_fault() {
    let (_, result) = trial(r#"["true"]"#, "stage A.copy; sleep 300; done", 0);
    assert_eq!((verdict(&result), note(&result).starts_with("true: ended after ")), ("pass", true), "{result}");
    let (_, result) = trial(PATIENT, "stage A.copy; segv", 1);
    assert_eq!((verdict(&result), note(&result).is_empty()), ("crash", false), "{result}");
}

#[test]
fn a_companion_that_waits_for_a_stage_that_never_comes_is_missing() {
    let companion = format!("{{ argv = {PATIENT}, when = \"after\" }}");
    let (_, result) = trial(&companion, "done", 3);
    assert_eq!(verdict(&result), "void");
    assert!(result["judgement"]["detail"].as_str().unwrap().contains("never started"), "{result}");
}

#[test]
fn a_load_without_a_gpu_is_void_with_the_reason() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, "companion = { load = \"gpu-load\", when = \"before\" }\n"));
    // An empty list hides every device, on a machine with a GPU too.
    let output = bench.command(&["run", &file]).env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
    crate::bench::Said::of(&output).ends(3);
    let result: Value = serde_json::from_str(&bench.results_of("one-001")[0].1).unwrap();
    let detail = result["judgement"]["detail"].as_str().unwrap();
    assert!(detail.contains("its companion gpu-load failed after"), "{detail}");
}

#[test]
fn a_command_beside_the_trial_needs_the_permission_of_a_command_as_root() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, "companion = [\"true\"]\n"));
    let said = bench.run(&["run", &file]);
    if rustix::process::getuid().is_root() {
        said.fails(2, &["--allow-root-workload"]);
    } else {
        said.ends(0);
    }
}
