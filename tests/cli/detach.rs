//! Runs that outlive the session of whoever started them, and those who follow them.

use std::io::{BufRead, BufReader, Read};
use std::process::Command;
use std::time::Instant;

use crate::bench::{Bench, PATIENCE, matrix};

/// Ends a process by its id.
fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// Runs a matrix of `trials`, each of which takes `ms`, without waiting for it.
fn detach(bench: &Bench, trials: u32, ms: u32) -> String {
    let file = bench.write("away.toml", &matrix("away", trials, ""));
    let script = format!("sleep {ms}; done");
    let said = bench.run(&["run", &file, "--detach", "--script", &script]);
    said.fails(3, &["goes on without this session", "`jetfault attach away-001` follows it"]);
    said.out
}

#[test]
fn a_detached_run_goes_on_after_its_session_and_is_followed_to_its_exit_code() {
    let bench = Bench::new();
    // The id is the only data, for scripts.
    assert_eq!(detach(&bench, 3, 300), "away-001\n");
    let said = bench.run(&["attach", "away"]);
    said.ends(0);
    let lines: Vec<&str> = said.out.lines().collect();
    for words in ["baseline r001: pass", "baseline r003: pass; so far 3 of 3 counted", "over: "] {
        assert!(lines.iter().any(|line| line.contains(words)), "{words}: {}", said.out);
    }
    assert!(said.says("away-001"), "it ends with the report, as run does: {}", said.out);
    assert!(bench.journal("away-001").contains("\"closed\""));
    // It is in a session of its own, without a terminal, and writes to a file.
    assert!(bench.results().join("away-001/detached.log").is_file());
    // A complete run answers as it did before.
    bench.run(&["run", &bench.path("away.toml").display().to_string(), "--detach"]).ends(0);
}

#[test]
fn a_detached_run_survives_the_end_of_its_process_group() {
    let bench = Bench::new();
    let file = bench.write("away.toml", &matrix("away", 2, ""));
    // What an ssh session is to its server: a session of its own, ended as a whole.
    let line = format!("{} run {file} --detach --script 'sleep 500; done' && :; kill -HUP 0", crate::bench::HARNESS);
    let mut shell = Command::new("setsid");
    bench.at_home(shell.args(["-w", "sh", "-c", &line]).current_dir(bench.dir.path()));
    let ended = shell.output().unwrap();
    assert!(!ended.status.success(), "it was hung up");
    let journal = bench.await_journal("away-001", |journal| journal.contains("\"closed\""));
    assert_eq!(journal.matches("\"judged\"").count(), 2);
}

#[test]
fn the_end_of_the_following_is_not_the_end_of_the_run() {
    let bench = Bench::new();
    detach(&bench, 3, 400);
    let mut follower = bench.spawn(&["attach"]);
    let mut first = String::new();
    BufReader::new(follower.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    kill("-INT", follower.id());
    assert!(!follower.wait().unwrap().success());
    let journal = bench.await_journal("away-001", |journal| journal.contains("\"closed\""));
    assert_eq!(journal.matches("\"judged\"").count(), 3, "{journal}");
}

#[test]
fn a_follower_that_comes_back_gets_only_what_is_new_and_frames_say_which_boot() {
    let bench = Bench::new();
    detach(&bench, 2, 100);
    bench.await_journal("away-001", |journal| journal.contains("\"closed\""));
    let frames = |after: &str| -> Vec<serde_json::Value> {
        let said = bench.run(&["attach", "--frames", "--after", after]);
        said.ends(0);
        said.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let all = frames("0");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(all.iter().all(|frame| frame["boot"] == boot.trim()), "{all:?}");
    let is_said = |frame: &serde_json::Value, text: &str| frame["say"].as_str().is_some_and(|say| say.contains(text));
    let says = |frames: &[serde_json::Value], text: &str| frames.iter().any(|frame| is_said(frame, text));
    assert!(says(&all, "baseline r001: pass") && says(&all, "baseline r002: pass"), "{all:?}");
    assert_eq!(all.last().unwrap()["end"], "closed");
    let first = all.iter().find(|frame| is_said(frame, "baseline r001: pass")).unwrap();
    let rest = frames(&first["seq"].to_string());
    assert!(!says(&rest, "baseline r001: pass") && says(&rest, "baseline r002: pass"), "{rest:?}");
}

#[test]
fn a_run_that_nobody_works_on_is_not_followed_for_ever() {
    let bench = Bench::new();
    let file = bench.write("away.toml", &matrix("away", 3, ""));
    let mut run = bench.spawn(&["run", &file, "--script", "sleep 60000; done"]);
    bench.await_journal("away-001", |journal| journal.contains("\"running\""));
    run.kill().unwrap();
    run.wait().unwrap();
    let began = Instant::now();
    bench.run(&["attach"]).fails(3, &["nobody works on away-001", "`jetfault resume away-001` goes on"]);
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn a_follower_is_told_why_a_detached_run_ended() {
    let bench = Bench::new();
    // Something else stands where trials are kept: what cannot be recorded is not run.
    detach(&bench, 30, 300);
    bench.await_journal("away-001", |journal| journal.contains("\"judged\""));
    let holder = bench.results().join("away-001/trials");
    std::fs::rename(&holder, bench.path("trials-elsewhere")).unwrap();
    std::fs::write(&holder, "in the way").unwrap();
    bench.run(&["attach"]).fails(3, &["nobody works on away-001 (cannot ", "`jetfault resume away-001` goes on"]);
}

#[test]
fn a_follower_whose_reader_is_gone_ends() {
    let bench = Bench::new();
    detach(&bench, 30, 300);
    let mut follower = bench.spawn(&["attach", "--frames"]);
    let mut stdout = follower.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    drop(stdout);
    let began = Instant::now();
    while follower.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "it goes on for nobody");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    bench.run(&["stop"]).ends(0);
    bench.await_journal("away-001", |journal| journal.contains("\"paused\""));
}
