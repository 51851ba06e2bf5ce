//! What a child leaves behind, and who goes with the harness.
//!
//! A program of its own, whose tests run one after the other: a supervisor takes every orphan of its process that
//! left the session for the trial's, and a process has one trial at a time.
#![cfg(debug_assertions)]

#[path = "supervise/bench.rs"]
mod bench;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bench::*;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_grandchild_that_holds_the_pipes_is_killed_and_counted() {
    let _alone = alone();
    let mut bench = Bench::new();
    let pidfile = bench.path("grandchild");
    let script = format!("fork sleep 60000\nfork pidfile {}\nsleep 100\ndone", pidfile.display());
    let begin = Instant::now();
    let outcome = bench.play(&script);
    assert_eq!((outcome.leaked, outcome.exit), (1, Exit::Code(0)));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_daemon_in_its_own_session_is_killed_and_counted() {
    let _alone = alone();
    let mut bench = Bench::new();
    let (one, two) = (bench.path("one"), bench.path("two"));
    let daemon = |path: &Path| {
        format!("exec setsid sh -c 'setsid sh -c \"echo \\$\\$ > {}; exec sleep 60\" & exit' ", path.display())
    };
    let script = format!(
        "({}) & ({}) & while [ ! -s {} ] || [ ! -s {} ]; do sleep 0.01; done",
        daemon(&one),
        daemon(&two),
        one.display(),
        two.display()
    );
    let outcome = bench.run(Program::Command(shell(&script))).1;
    assert_eq!(outcome.exit, Exit::Code(0));
    assert!(is_gone(pid_in(&one)) && is_gone(pid_in(&two)));
    assert_eq!(outcome.leaked, 2, "{outcome:?}");
}

#[test]
fn a_daemon_without_a_mark_does_not_escape_either() {
    let _alone = alone();
    let mut bench = Bench::new();
    let path = bench.path("pid");
    let script = format!(
        "setsid env -i /bin/sh -c 'echo $$ > {0}; exec /bin/sleep 60' >/dev/null 2>&1 & while [ ! -s {0} ]; do sleep 0.01; done",
        path.display()
    );
    let outcome = bench.run(Program::Command(shell(&script))).1;
    assert!(is_gone(pid_in(&path)));
    assert_eq!(outcome.leaked, 1, "{outcome:?}");
}

#[test]
fn the_fake_workers_daemon_is_a_daemon() {
    let _alone = alone();
    let mut bench = Bench::new();
    let outcome = bench.play("daemon sleep 60000\ndone");
    assert_eq!((outcome.leaked, outcome.last_reply), (1, Some(LastReply::Done)));
}

#[test]
fn a_grandchild_that_finishes_in_time_is_no_leak() {
    let _alone = alone();
    let mut bench = Bench::new();
    let outcome = bench.play("fork sleep 20\ndone");
    assert_eq!(outcome.leaked, 0, "{outcome:?}");
}

#[test]
fn what_orphans_carry_the_mark_of_a_dead_run_is_ended() {
    let _alone = alone();
    let mut bench = Bench::new();
    let (ours, other) = (bench.run.clone(), RunMark::new(&RunId::new("other", 1).unwrap(), bench.dir.path()));
    let mark = |run: &RunMark| format!("{run}/{TRIAL}");
    let start = |run| std::process::Command::new("sleep").arg("60").env("JETFAULT_TRIAL", mark(run)).spawn().unwrap();
    let (mut marked, mut unmarked) = (start(&ours), start(&other));
    let reaper = std::thread::spawn(move || marked.wait().unwrap());
    let orphans = jetfault::perform::orphans::end_orphans(&ours);
    assert_eq!((orphans.found, orphans.surviving), (1, 0));
    assert!(!reaper.join().unwrap().success());
    assert!(unmarked.try_wait().unwrap().is_none());
    unmarked.kill().unwrap();
    unmarked.wait().unwrap();
    bench.environment.clear();
}

/// Plays the harness that is killed: it runs only in a process of its own.
#[test]
#[ignore = "started by when_the_harness_is_killed_its_child_dies"]
fn a_harness_to_be_killed() {
    let mut bench = Bench::new();
    let script = format!("pidfile {}\nhang", std::env::var(PIDFILE_VARIABLE).unwrap());
    let program = match std::env::var(KIND_VARIABLE).unwrap().as_str() {
        "worker" => worker(&script),
        _ => Program::Command(shell(&format!("echo $$ > {}; exec sleep 60", std::env::var(PIDFILE_VARIABLE).unwrap()))),
    };
    bench.run(program);
}

const PIDFILE_VARIABLE: &str = "SUPERVISE_TEST_PIDFILE";
const KIND_VARIABLE: &str = "SUPERVISE_TEST_KIND";

#[test]
fn when_the_harness_is_killed_its_child_dies() {
    let _alone = alone();
    for kind in ["worker", "command"] {
        let dir = tempfile::tempdir().unwrap();
        let pidfile = dir.path().join("pid");
        let mut harness = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "a_harness_to_be_killed"])
            .env(PIDFILE_VARIABLE, &pidfile)
            .env(KIND_VARIABLE, kind)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let child = pid_in(&pidfile);
        assert!(!is_gone(child));
        harness.kill().unwrap();
        harness.wait().unwrap();
        assert!(becomes_gone(child), "{kind}");
    }
}
