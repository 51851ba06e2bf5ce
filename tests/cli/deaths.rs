//! Runs that are killed, interrupted, rebooted, and go on.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, HARNESS, PATIENCE, Said, matrix};

fn kill(child: &std::process::Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A run of three trials whose second one waits in a stage; returns the harness.
fn stuck(bench: &Bench) -> std::process::Child {
    let file = bench.write("one.toml", &matrix("one", 3, ""));
    let script = format!("stage A.copy; stage A.quantize; take {}; done", bench.path("tokens").display());
    allow(bench, 1);
    let harness = bench.spawn(&["run", &file, "--script", &script]);
    bench.await_journal("one-001", |journal| {
        let second = journal.match_indices("\"started\"").nth(1);
        second.is_some_and(|(at, _)| journal[at..].contains("A.quantize"))
    });
    harness
}

/// The same run, its harness killed in that stage, and what follows free to go on; returns the results there were.
fn killed(bench: &Bench) -> Vec<(String, String)> {
    let mut harness = stuck(bench);
    let results = bench.results_of("one-001");
    kill(&harness, Signal::KILL);
    harness.wait().unwrap();
    allow(bench, 3);
    results
}

/// Lets that many trials go on.
fn allow(bench: &Bench, trials: u32) {
    for token in 0..trials {
        bench.write(&format!("tokens/{token}"), "");
    }
}

#[test]
fn a_killed_harness_loses_nothing_and_repeats_only_what_was_open() {
    let bench = Bench::new();
    let before = killed(&bench);
    bench.run(&["resume"]).ends(0);
    let after = bench.results_of("one-001");
    for (trial, result) in &before {
        assert!(after.iter().any(|(t, r)| t == trial && r == result), "{trial} changed");
    }
    let journal = bench.journal("one-001");
    assert_eq!(journal.matches("\"rule\":\"same-boot\"").count(), 1, "{journal}");
    assert_eq!(journal.matches("\"rule\":\"pass\"").count(), 3, "{journal}");
}

#[test]
fn another_boot_makes_the_open_trial_a_reboot_at_its_stage() {
    let bench = Bench::new();
    let before = killed(&bench);
    bench.write("sysroot/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-00000000beef\n");
    let said = bench.run(&["resume", "--sysroot", bench.path("sysroot").to_str().unwrap()]);
    said.ends(1);
    let after = bench.results_of("one-001");
    for (trial, result) in &before {
        assert!(after.iter().any(|(t, r)| t == trial && r == result), "{trial} changed");
    }
    let reboot = after.iter().find(|(_, r)| r.contains("\"verdict\": \"reboot\"")).expect("one is a reboot");
    assert!(reboot.1.contains("\"cause\": \"undetermined\""), "{}", reboot.1);
    assert!(reboot.1.contains("\"stage\": \"A.quantize\""), "{}", reboot.1);
    assert!(said.says("reboot"), "{}", said.out);
}

#[test]
fn boots_in_between_are_counted_and_lower_the_claim() {
    let bench = Bench::new();
    killed(&bench);
    let journal = bench.journal("one-001");
    let here = journal.split("\"boot\":\"").nth(1).unwrap()[..36].to_owned();
    let listed = |id: &str| format!("{} Sat 2026-05-02 10:00:00 UTC", id.replace('-', ""));
    let (between, now) = ("00000000-0000-4000-8000-00000000aaaa", "00000000-0000-4000-8000-00000000beef");
    bench.write("sysroot/proc/sys/kernel/random/boot_id", now);
    let list = format!("-2 {}\n-1 {}\n 0 {}\n", listed(&here), listed(between), listed(now));
    bench.write("sysroot/cmd/journalctl-list-boots.txt", &list);
    bench.run(&["resume", "--sysroot", bench.path("sysroot").to_str().unwrap()]).ends(1);
    assert!(bench.journal("one-001").contains("\"rule\":\"boots-between\""));
}

#[test]
fn a_signal_ends_the_trial_and_the_run_goes_on_later() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let bench = Bench::new();
        let harness = stuck(&bench);
        kill(&harness, signal);
        let said = Said::of(&harness.wait_with_output().unwrap());
        said.fails(code, &["jetfault resume one-001"]);
        let journal = bench.journal("one-001");
        assert!(journal.contains("\"paused\"") && journal.contains("\"rule\":\"interrupted\""), "{journal}");
        allow(&bench, 3);
        let file = bench.path("one.toml");
        let said = bench.run(&["run", file.to_str().unwrap()]);
        said.ends(0);
        assert!(said.err.contains("[3/3]") && !said.err.contains("[1/3]"), "what was there counts: {}", said.err);
        assert_eq!(bench.journal("one-001").matches("\"rule\":\"pass\"").count(), 3);
    }
}

#[test]
fn a_lost_terminal_ends_the_run_as_its_signal_does() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    // The kernel tells the leader of the session, which tells its jobs, and here outlives them to say how they ended.
    let line = format!(
        "trap 'kill -HUP $job' HUP; {HARNESS} run {file} --script hang & job=$!; wait $job; wait $job; echo $? >code"
    );
    let mut terminal = Command::new("script");
    terminal.args(["-qfc", &line, "/dev/null"]).current_dir(bench.dir.path()).stdin(Stdio::piped());
    terminal.env("JETFAULT_RESULTS", bench.results()).env("JETFAULT_LOCK_DIR", bench.dir.path());
    terminal.env("HOME", bench.dir.path()).stdout(Stdio::null());
    let mut terminal = terminal.spawn().unwrap();
    bench.await_journal("one-001", |journal| journal.contains("\"running\""));
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    bench.await_journal("one-001", |journal| journal.contains("\"paused\""));
    let until = Instant::now() + PATIENCE;
    let code = || fs::read_to_string(bench.path("code")).unwrap_or_default();
    while !code().ends_with('\n') && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(code(), "129\n");
}

#[test]
fn a_hangup_that_was_ignored_from_the_start_stays_so() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    let script = format!("take {}; done", bench.path("tokens").display());
    let mut command = Command::new("nohup");
    command.args([HARNESS, "run", &file, "--script", &script]).current_dir(bench.dir.path()).stdin(Stdio::null());
    command.env("JETFAULT_RESULTS", bench.results()).env("JETFAULT_LOCK_DIR", bench.dir.path());
    command.env("HOME", bench.dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let harness = command.spawn().unwrap();
    bench.await_journal("one-001", |journal| journal.contains("\"running\""));
    kill(&harness, Signal::HUP);
    allow(&bench, 1);
    Said::of(&harness.wait_with_output().unwrap()).ends(0);
}

#[test]
fn stop_lets_the_trial_end() {
    let bench = Bench::new();
    let harness = stuck(&bench);
    bench.run(&["stop"]).ends(0);
    allow(&bench, 3);
    let said = Said::of(&harness.wait_with_output().unwrap());
    said.ends(3);
    let journal = bench.journal("one-001");
    assert!(journal.contains("\"paused\"") && !journal.contains("interrupted"), "{journal}");
    assert!(!bench.results().join("one-001/STOP").exists(), "the request is used up");
    bench.run(&["resume"]).ends(0);
}

#[test]
fn a_stop_file_forbids_everything_until_it_is_removed() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    fs::create_dir_all(bench.results()).unwrap();
    let stop = bench.write("results/STOP", "");
    bench.run(&["run", &file]).fails(4, &["STOP", "hint: remove it"]);
    fs::remove_file(stop).unwrap();
    bench.run(&["run", &file]).ends(0);
}

#[test]
fn the_children_of_a_dead_harness_are_ended_before_anything_else_starts() {
    let bench = Bench::new();
    let mut harness = stuck(&bench);
    kill(&harness, Signal::KILL);
    harness.wait().unwrap();
    // What carries the mark of the run and was left behind by another way, such as a daemon of the workload's.
    let path = bench.results().canonicalize().unwrap().join("one-001");
    let mark = jetfault::perform::processes::RunMark::new(&"one-001".parse().unwrap(), &path);
    let mut left = Command::new("sleep").arg("600").env("JETFAULT_TRIAL", format!("{mark}/x")).spawn().unwrap();
    allow(&bench, 3);
    bench.run(&["resume"]).ends(0);
    assert!(left.wait().unwrap().code().is_none(), "it was ended by a signal");
}

#[test]
fn a_torn_last_line_never_happened_and_is_kept() {
    let bench = Bench::new();
    killed(&bench);
    let path = bench.results().join("one-001/journal.jsonl");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"v\":\"1.0\",\"seq\":99,\"boo");
    fs::write(&path, &bytes).unwrap();
    bench.run(&["resume"]).ends(0);
    let kept = fs::read_dir(bench.results().join("one-001/evidence")).unwrap();
    let names: Vec<String> = kept.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("torn-at-")), "{names:?}");
}

#[test]
fn a_result_that_a_reset_emptied_is_made_again_to_the_same_bytes() {
    let bench = Bench::new();
    let before = killed(&bench);
    let emptied = bench.results().join("one-001/trials").join(&before[0].0).join("result.json");
    fs::write(&emptied, "").unwrap();
    bench.run(&["resume"]).ends(0);
    assert_eq!(fs::read_to_string(emptied).unwrap(), before[0].1);
}

#[test]
fn a_second_instance_is_told_to_wait() {
    let bench = Bench::new();
    let mut harness = stuck(&bench);
    bench.run(&["resume"]).fails(5, &["another jetfault"]);
    let status = bench.run(&["status"]);
    status.ends(0);
    kill(&harness, Signal::KILL);
    harness.wait().unwrap();
}

#[test]
fn stop_without_anybody_at_work_leaves_no_request_for_later() {
    let bench = Bench::new();
    killed(&bench);
    let said = bench.run(&["stop"]);
    assert!(said.ends(0).err.contains("nothing to stop"), "{}", said.err);
    bench.run(&["resume"]).ends(0);
}
