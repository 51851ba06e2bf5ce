//! Commands as workloads: what they promise, what they work with, what is asked of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::bench::{Bench, Said};

/// A matrix of a command named `m`, with these keys in `[workload]` and these sections.
pub(super) fn matrix(workload: &str, sections: &str) -> String {
    format!(
        "[matrix]\nname = \"m\"\ntrials = 1\nseed = 1\n[workload]\nkind = \"command\"\nsettle = \"0s\"\n\
         cwd = \"{{trial.dir}}\"\n{workload}\n{sections}"
    )
}

pub(super) fn run(bench: &Bench, text: &str, more: &[&str]) -> Said {
    let file = bench.write("m.toml", text);
    bench.run(&[&["run", &file, "--allow-root-workload"], more].concat())
}

/// Verdict, detail and the whole result of each trial, by the label of its cell.
pub(super) fn judged(bench: &Bench) -> Vec<(String, String, Value)> {
    let report = bench.run(&["report", "m-001", "--format", "json"]);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let label = |cell: &str| {
        let cells = report["cells"].as_array().unwrap();
        cells.iter().find(|c| c["id"] == *cell).map(|c| c["label"].as_str().unwrap().to_owned()).unwrap()
    };
    let results = bench.results_of("m-001").into_iter().map(|(trial, json)| {
        let result: Value = serde_json::from_str(&json).unwrap();
        let verdict = result["judgement"]["verdict"].as_str().unwrap().to_owned();
        (label(&trial[..18]), verdict, result)
    });
    results.collect()
}

#[track_caller]
pub(super) fn only(bench: &Bench) -> (String, Value) {
    let [(_, verdict, result)] = <[_; 1]>::try_from(judged(bench)).unwrap();
    (verdict, result)
}

pub(super) fn detail(result: &Value) -> &str {
    result["judgement"]["detail"].as_str().unwrap_or_default()
}

#[test]
fn output_is_checked_by_what_it_says_and_by_its_numbers() {
    let metrics = "metrics = { err = 'max_abs_err=(\\S+)', cos = 'cos=(\\S+)' }\n";
    for (expected, script, verdict, words) in [
        ("{ lacks = \"CUDA error\" }", "echo 'CUDA error: x' >&2", "wrong-result", "contains \"CUDA error\""),
        ("{ regex = '^sum=[0-9a-f]{8}$' }", "echo sum=9f3c11d2", "pass", ""),
        ("{ regex = '^sum=[0-9a-f]{8}$' }", "echo sum=GGGG", "wrong-result", "no line of output matches"),
        ("{ numbers = { err = { max = 0.01 }, cos = { min = 0.99 } } }", "echo max_abs_err=1e-3 cos=0.999", "pass", ""),
        (
            "{ numbers = { err = { max = 0.01 } } }",
            "echo max_abs_err=nan",
            "wrong-result",
            "err is NaN, not at most 0.01",
        ),
        (
            "{ numbers = { err = { is = 2, within = 0.5 } } }",
            "echo max_abs_err=17.3",
            "wrong-result",
            "17.3, not 1.5 to 2.5",
        ),
        ("{ numbers = { cos = { min = 0.99 } } }", "true", "wrong-result", "no line of output gives the number cos"),
    ] {
        let bench = Bench::new();
        let text = matrix(&format!("argv = [\"sh\", \"-c\", \"{script}\"]\n{metrics}expect_output = {expected}"), "");
        run(&bench, &text, &[]).ends(if verdict == "pass" { 0 } else { 1 });
        let (found, result) = only(&bench);
        assert_eq!(found, verdict, "{expected} {script}");
        assert!(detail(&result).contains(words), "{expected} {script}: {}", detail(&result));
    }
}

#[test]
fn a_matrix_may_call_another_exit_code_a_success() {
    let bench = Bench::new();
    let codes = "argv = [\"sh\", \"-c\", \"exit {status}\"]\nexit_codes = [0, 3]";
    run(&bench, &matrix(codes, "[baseline]\nstatus = 3\n[axes]\nstatus = [0, 4]\n"), &[]).ends(1);
    let verdicts: Vec<(String, String)> =
        judged(&bench).into_iter().map(|(label, verdict, _)| (label, verdict)).collect();
    for (label, verdict) in [("baseline", "pass"), ("status=0", "pass"), ("status=4", "error")] {
        assert!(verdicts.contains(&(label.to_owned(), verdict.to_owned())), "{verdicts:?}");
    }
}

#[test]
fn a_control_works_with_the_artifact_of_a_cell_that_passed() {
    let bench = Bench::new();
    let builds = "argv = [\"sh\", \"-c\", \"echo engine-{dense} > llm.engine; exit {status}\"]\nartifacts = [\"llm.engine\"]\nkeep = \"never\"\n";
    let sections = |code: u8| {
        format!(
            "[baseline]\ndense = \"nvfp4\"\n[axes.dense]\nlevels = [\"fp16\"]\n[vars]\nstatus = {code}\n[controls.infer]\n\
             needs = \"dense=fp16\"\nargv = [\"cat\", \"{{needs.dir}}/llm.engine\"]\nartifacts = []\n\
             expect_output = {{ contains = \"engine-fp16\" }}\nshows = \"the checkpoint is sound\"\n"
        )
    };
    run(&bench, &matrix(builds, &sections(0)), &[]).ends(0);
    let judged_now = judged(&bench);
    assert!(judged_now.iter().all(|(_, verdict, _)| verdict == "pass"), "{judged_now:?}");
    let kept: Vec<_> = fs::read_dir(bench.results().join("m-001/trials"))
        .unwrap()
        .filter(|trial| trial.as_ref().unwrap().path().join("llm.engine").exists())
        .collect();
    assert_eq!(kept.len(), 1, "the artifact that is needed stays, and no other");

    // If that cell fails, there is nothing to work with: no fault of the control's.
    let bench = Bench::new();
    run(&bench, &matrix(builds, &sections(1)), &[]).ends(1);
    let (_, verdict, result) = judged(&bench).into_iter().find(|(label, ..)| label == "control:infer").unwrap();
    assert_eq!(verdict, "void");
    assert!(detail(&result).contains("has passed yet"), "{}", detail(&result));
}

#[test]
fn a_cell_that_nothing_can_come_before_is_refused_with_the_place() {
    let bench = Bench::new();
    for (sections, words) in [
        ("[controls.x]\nneeds = \"dense=fp16\"\nargv = [\"true\"]\n", "no cell is called `dense=fp16`"),
        ("[controls.x]\nneeds = \"baseline\"\nargv = [\"true\"]\n", "cell `baseline` promises no artifact"),
        ("[controls.x]\nargv = [\"cat\", \"{needs.dir}/x\"]\n", "is the directory of a trial of no cell"),
        ("[controls.x]\nargv = [\"cat\", \"{prepared.dir}/x\"]\n", "is a directory that nothing makes"),
    ] {
        run(&bench, &matrix("argv = [\"true\"]", sections), &[]).fails(2, &["m.toml", words]);
    }
    let numbers = "argv = [\"true\"]\nexpect_output = { numbers = { cos = { min = 1 } } }";
    run(&bench, &matrix(numbers, ""), &[]).fails(2, &["no metric is called `cos`"]);
}

#[test]
fn what_is_prepared_is_made_once_for_all_trials_that_ask_for_the_same() {
    let bench = Bench::new();
    let count = bench.path("count");
    let workload = format!(
        "argv = [\"sh\", \"-c\", \"grep -q -e {{flags}} {{prepared.dir}}/built; exit $?\", \"{{n}}\"]\n\
         prepare = [\"sh\", \"-c\", \"echo {{flags}} > {{prepared.dir}}/built; echo x >> {}\"]",
        count.display()
    );
    let text = matrix(&workload, "[baseline]\nflags = \"-O2\"\nn = 1\n[axes]\nflags = [\"-O0\"]\nn = [2, 3]\n");
    run(&bench, &text, &[]).ends(0);
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 2);
    assert_eq!(bench.journal("m-001").matches("\"prepared ").count(), 2);
    run(&bench, &text, &["--new"]).ends(0);
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 2, "another run finds them");
}

#[test]
fn what_cannot_be_prepared_makes_its_trials_void_and_no_others() {
    let bench = Bench::new();
    let workload = "argv = [\"test\", \"-d\", \"{prepared.dir}\"]\n\
                    prepare = [\"sh\", \"-c\", \"echo no such option {flags} >&2; exit {flags}\"]";
    run(&bench, &matrix(workload, "[baseline]\nflags = \"0\"\n[axes]\nflags = [\"2\"]\n"), &[]).ends(3);
    for (label, verdict, result) in judged(&bench) {
        match label.as_str() {
            "baseline" => assert_eq!(verdict, "pass"),
            _ => {
                assert_eq!(verdict, "void");
                assert!(detail(&result).contains("failed: exit 2: no such option 2"), "{}", detail(&result));
            }
        }
    }
}

/// A server of one file: it counts the requests that come as files, and is told by the fifth how to misbehave.
fn server(bench: &Bench, on_fifth: &str, on_term: &str) -> String {
    let path = bench.write(
        "server",
        &format!(
            "#!/bin/sh\ntrap '{on_term}' TERM\nn=0\nsleep 0.1\necho listening\nwhile :; do\n  if [ -e ask ]; then\n    n=$((n+1))\n    \
             if [ $n = 5 ]; then {on_fifth}; fi\n    mv ask answer.$n\n  fi\n  sleep 0.01\ndone\n"
        ),
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn serve(bench: &Bench, program: &str, ready: &str, more: &str) -> Said {
    let ask = "[\"sh\", \"-c\", \"touch ask; while [ -e ask ]; do sleep 0.01; done\"]";
    let requests = [ask; 6].join(", ");
    let workload = format!("argv = [\"{program}\"]\n{more}\nserver = {{ ready = {ready}, requests = [{requests}] }}");
    run(bench, &matrix(&workload, ""), &[])
}

#[test]
fn a_server_is_awaited_asked_in_order_and_asked_to_end() {
    let bench = Bench::new();
    let program = server(&bench, ":", "exit 0");
    serve(&bench, &program, "{ regex = '^listening' }", "").ends(0);
    let (verdict, result) = only(&bench);
    assert_eq!((verdict.as_str(), result["outcome"]["metrics"]["requests"].as_f64()), ("pass", Some(6.0)), "{result}");
    assert_eq!(result["outcome"]["stage"], "shutdown");
}

#[test]
fn a_fault_of_a_server_stands_at_the_request_that_met_it() {
    for (on_fifth, on_term, verdict, stage, words) in [
        ("kill -SEGV $$", "exit 0", "crash", "request.5", "SIGSEGV"),
        ("exit 0", "exit 0", "wrong-result", "request.5", "the server ended after 4 of 6 requests"),
        ("sleep 30", "exit 0", "hang", "request.5", "no change of stage"),
        (":", "exit 7", "error", "shutdown", "exit 7"),
        (":", ":", "hang", "shutdown", "it did not end when it was asked to"),
    ] {
        let bench = Bench::new();
        let program = server(&bench, on_fifth, on_term);
        serve(&bench, &program, "{ regex = '^listening' }", "request_timeout = \"1500ms\"").ends(1);
        let (found, result) = only(&bench);
        assert_eq!((found.as_str(), result["outcome"]["stage"].as_str()), (verdict, Some(stage)), "{result}");
        assert!(detail(&result).contains(words), "{on_fifth}: {}", detail(&result));
    }
}

#[test]
fn a_server_that_is_never_ready_hangs_and_one_on_a_port_is_found_by_it() {
    let bench = Bench::new();
    let program = server(&bench, ":", "exit 0");
    serve(&bench, &program, "{ regex = '^at your service' }", "ready_timeout = \"300ms\"").ends(1);
    assert_eq!(only(&bench).0, "hang");

    let bench = Bench::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = format!(
        "import http.server, time\\ntime.sleep(0.2)\\nhttp.server.HTTPServer(('127.0.0.1', {free}), http.server.SimpleHTTPRequestHandler).serve_forever()"
    );
    let get =
        format!("[\"python3\", \"-c\", \"import urllib.request as r; r.urlopen('http://127.0.0.1:{free}/{{}}')\"]");
    let requests = [get.replace("{}", ""), get.replace("{}", "none")].join(", ");
    let workload = format!(
        "argv = [\"python3\", \"-u\", \"-c\", \"{script}\"]\nserver = {{ ready = {{ port = {free} }}, requests = [{requests}] }}"
    );
    run(&bench, &matrix(&workload, ""), &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "wrong-result", "{result}");
    assert!(detail(&result).contains("request 2 of 2 failed: exit 1: "), "{}", detail(&result));
}
