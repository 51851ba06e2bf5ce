//! Fatal signals as the tracer sees them: where, in which thread, the same wherever the program is loaded.

use std::collections::BTreeSet;

use jetfault::decide::crash::telling_frame;
use jetfault::model::crash::Crash;

use crate::bench::*;
use crate::standins::standin;

fn traced(command: CommandLine) -> (Bench, Outcome) {
    let mut bench = Bench::new();
    bench.observer = Observer::Core;
    let outcome = bench.run(Program::Command(command)).1;
    (bench, outcome)
}

fn build(bench_env: &[(&str, &str)]) -> (Bench, Outcome) {
    let mut bench = Bench::new();
    bench.observer = Observer::Core;
    bench.environment = bench_env.iter().map(|(name, value)| EnvChange::Set((*name).into(), (*value).into())).collect();
    let out = bench.path("engine").to_str().unwrap().to_owned();
    let command = argv(&[&standin("builder"), "--model-dir", "/", "--engine-dir", &out, "--dense", "nvfp4-qdq"]);
    let outcome = bench.run(Program::Command(command)).1;
    (bench, outcome)
}

fn crash(outcome: &Outcome) -> &Crash {
    outcome.crash.as_deref().unwrap_or_else(|| panic!("nobody looked: {outcome:?}"))
}

#[test]
fn a_crash_in_a_thread_of_a_library_has_the_same_place_in_every_process() {
    let mut places = BTreeSet::new();
    for _ in 0..3 {
        let (bench, outcome) = build(&[]);
        assert!(matches!(outcome.exit, Exit::Signal { number: 11, .. }), "{outcome:?}");
        let crash = crash(&outcome);
        assert_eq!((crash.signal, crash.address.map(|address| address.0)), (11, Some(0x10 + 40)));
        let frame = telling_frame(crash).unwrap();
        assert_eq!((frame.module.as_str(), frame.build_id.as_ref().map(String::len)), ("libcompiler.so", Some(40)));
        assert_eq!(crash.others.iter().map(|other| other.count).sum::<u32>(), 7, "{crash:?}");
        assert!(bench.read("maps.txt").contains("libcompiler.so"));
        places.insert(frame.to_string());
    }
    assert_eq!(places.len(), 1, "{places:?}");
    let (_, elsewhere) = build(&[("STANDIN_ELSEWHERE", "1")]);
    let other = telling_frame(crash(&elsewhere)).unwrap();
    assert_eq!(other.module, "builder");
    assert!(!places.contains(&other.to_string()));
}

#[test]
fn a_process_that_is_traced_ends_as_it_would() {
    let end = |script: &str| traced(shell(script)).1;
    assert_eq!(end("exit 3").exit, Exit::Code(3));
    assert_eq!(end("sleep 0.05; (sleep 0.05; echo a) & wait; exit 0").exit, Exit::Code(0));
    assert!(matches!(end("kill -TERM $$").exit, Exit::Signal { number: 15, .. }));
    let (_, stopped) = traced(shell("(sleep 0.2; kill -CONT $$) & kill -STOP $$; exit 4"));
    assert_eq!(stopped.exit, Exit::Code(4));
    let (_, cured) = build(&[("STANDIN_CURE", "fp4=off"), ("__LUNOWUD", "-mlir:collective:fp4=off")]);
    assert_eq!((cured.exit, cured.crash), (Exit::Code(0), None));
}

#[test]
fn a_handler_that_raises_the_signal_again_hides_nothing() {
    let (bench, outcome) = traced(argv(&[&standin("endings"), "handler"]));
    assert!(matches!(outcome.exit, Exit::Signal { number: 11, .. }), "{outcome:?}");
    let crash = crash(&outcome);
    assert_eq!(
        (crash.address.map(|address| address.0), crash.thread.frames[0].module.as_str()),
        (Some(0x30), "endings")
    );
    assert!(bench.read("stderr.log").starts_with("Fatal Python error"));
}

#[test]
fn a_fault_that_the_c_library_notices_is_its_callers() {
    let (_, outcome) = traced(argv(&[&standin("endings"), "free-twice"]));
    assert!(matches!(outcome.exit, Exit::Signal { number: 6, .. }), "{outcome:?}");
    let crash = crash(&outcome);
    assert!(crash.thread.frames[0].module.starts_with("libc"), "{crash:?}");
    assert_eq!(telling_frame(crash).unwrap().module, "endings", "{crash:?}");
}

#[test]
fn a_jump_to_nowhere_is_known_by_who_jumped() {
    let (_, outcome) = traced(argv(&[&standin("endings"), "jump"]));
    let crash = crash(&outcome);
    assert_eq!(crash.thread.frames[0].module, "");
    assert_eq!(telling_frame(crash).unwrap().module, "endings", "{crash:?}");
}

#[test]
fn the_small_core_is_a_core_file_of_bounded_size() {
    let (bench, _) = build(&[]);
    let core = bench.path("core.small");
    assert!(fs::metadata(&core).unwrap().len() < 17 << 20);
    let head = fs::read(&core).unwrap();
    assert_eq!((&head[..4], head[16]), (&b"\x7fELF"[..], 4));
}

#[test]
fn a_child_that_is_killed_or_out_of_time_under_the_tracer_holds_nobody() {
    let mut bench = Bench::new();
    bench.observer = Observer::Core;
    bench.deadlines.timeout = Duration::from_millis(300);
    let stubborn = bench.run(Program::Command(shell("trap '' TERM; while :; do sleep 0.05; done"))).1;
    assert_eq!(stubborn.ended_by, Some(EndedBy::Timeout));
    assert!(matches!(stubborn.exit, Exit::Signal { number: 9, .. }), "{stubborn:?}");
    let threads = "import threading, time\nfor _ in range(50): threading.Thread(target=time.sleep, args=(60,)).start()";
    let many = bench.run(Program::Command(argv(&["python3", "-c", threads]))).1;
    assert_eq!(many.ended_by, Some(EndedBy::Timeout));
    assert!(matches!(many.exit, Exit::Signal { number: 15, .. }), "{many:?}");
}
