//! How a child ends, and how it is ended.

use crate::bench::*;

#[test]
fn real_signals_are_told_from_exits() {
    for (script, number) in [("segv", 11), ("abort", 6), ("kill", 9)] {
        let outcome = Bench::new().play(&format!("stage C.copy\n{script}"));
        assert!(matches!(outcome.exit, Exit::Signal { number: found, .. } if found == number), "{outcome:?}");
        assert_eq!(outcome.stage.unwrap().as_str(), "C.copy");
        assert_eq!(outcome.last_reply, Some(LastReply::Running));
    }
    assert_eq!(Bench::new().play("exit 42").exit, Exit::Code(42));
}

#[test]
fn an_injected_fault_is_committed_at_the_beginning_of_its_stage() {
    let inject = |fault, at: Option<&str>| Request {
        inject: Some(InjectedFault { fault, at: at.map(|stage| stage.parse().unwrap()) }),
        ..request("stage A.copy\nstage B.copy\ndone")
    };
    let segv = Bench::new().run(Program::Worker(inject(WorkerFault::Segv, Some("B.copy")))).1;
    assert!(matches!(segv.exit, Exit::Signal { number: 11, .. }), "{segv:?}");
    assert_eq!(segv.stage.unwrap().as_str(), "B.copy");
    let exit = Bench::new().run(Program::Worker(inject(WorkerFault::Exit, None))).1;
    assert_eq!((exit.exit, exit.stage, exit.last_reply), (Exit::Code(3), None, Some(LastReply::Running)));
    let before = Bench::new().run(Program::Worker(inject(WorkerFault::Exit, Some("start")))).1;
    assert_eq!((before.exit, before.stage, before.last_reply), (Exit::Code(3), None, Some(LastReply::Silence)));
    let elsewhere = Bench::new().run(Program::Worker(inject(WorkerFault::Abort, Some("Z.copy")))).1;
    assert!(looks_like_a_pass(&elsewhere));
}

#[test]
fn a_hang_is_ended_at_the_trials_deadline_and_says_what_it_hung_on() {
    let mut bench = Bench::new();
    bench.deadlines.timeout = Duration::from_millis(200);
    let outcome = bench.play("stage C.forward\nhang");
    assert_eq!(outcome.ended_by, Some(EndedBy::Timeout));
    assert_eq!(outcome.exit, Exit::Signal { number: 15, core: false });
    let hang = outcome.hang.unwrap();
    assert_eq!((hang.kind, hang.threads[0].state, hang.threads[0].count), (HangKind::Blocked, 'S', 1), "{hang:?}");
    assert!(outcome.stage_ms[0].1 >= 100, "{:?}", outcome.stage_ms);
}

#[test]
fn a_spinning_child_is_told_from_a_blocked_one() {
    let mut bench = Bench::new();
    bench.deadlines.timeout = Duration::from_millis(400);
    let outcome = bench.play("spin");
    let hang = outcome.hang.unwrap();
    assert_eq!((hang.kind, hang.threads[0].state), (HangKind::Spinning, 'R'), "{hang:?}");
    assert!(hang.cpu_ms >= 10, "{hang:?}");
}

#[test]
fn a_child_of_a_child_that_spins_is_seen() {
    let mut bench = Bench::new();
    bench.deadlines.timeout = Duration::from_millis(800);
    // The shell waits for another, which counts for ever.
    let outcome = bench.run(Program::Command(shell("sh -c 'while :; do :; done'; true"))).1;
    let hang = outcome.hang.unwrap();
    assert_eq!(hang.kind, HangKind::Spinning, "{hang:?}");
    assert_eq!(hang.threads.iter().map(|threads| threads.count).sum::<u32>(), 2, "{hang:?}");
}

#[test]
fn a_child_that_still_works_when_its_time_is_up_is_told_from_a_hang() {
    let mut bench = Bench::new();
    bench.deadlines.timeout = Duration::from_millis(1500);
    let script: String = (0..100).map(|number| format!("stage s{number}\nsleep 100\n")).collect();
    let hang = bench.play(&script).hang.unwrap();
    assert_eq!(hang.kind, HangKind::AliveOverTime, "{hang:?}");
    // It works a third of the time, in one stage.
    let busy = "i=0; while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1; done";
    let hang = bench.run(Program::Command(shell(busy))).1.hang.unwrap();
    assert!(matches!(hang.kind, HangKind::AliveOverTime | HangKind::Spinning), "{hang:?}");
    assert!(hang.cpu_ms >= 50, "{hang:?}");
}

#[test]
fn a_child_that_is_ended_for_another_reason_hung_on_nothing() {
    let mut bench = Bench::new();
    let mut child = bench.start(worker("stage a\nhang"));
    while !matches!(bench.supervisor.next_event(&mut child, PATIENCE), ChildEvent::Stage { .. }) {}
    bench.supervisor.end(&mut child, EndedBy::Stop);
    assert_eq!(bench.finish(&mut child).1.hang, None);
}

#[test]
fn the_processes_and_threads_of_a_trial_are_remembered() {
    let mut bench = Bench::new();
    bench.deadlines.timeout = Duration::from_millis(1500);
    let pidfile = bench.path("pid");
    let mut child = bench.start(worker(&format!("daemon pidfile {}\nhang", pidfile.display())));
    let pid = child.pid();
    let begin = Instant::now();
    while child.members().len() < 2 && begin.elapsed() < PATIENCE {
        bench.supervisor.next_event(&mut child, Duration::from_millis(50));
    }
    assert!(child.members().contains(&pid));
    bench.finish(&mut child);
}

#[test]
fn no_change_of_stage_is_a_hang_and_a_change_is_not() {
    let mut bench = Bench::new();
    bench.deadlines.stage_timeout = Some(Duration::from_millis(500));
    let lively = bench.play("stage a\nsleep 300\nstage b\nsleep 300\nstage c\ndone");
    assert!(looks_like_a_pass(&lively), "{lively:?}");
    let mut bench = Bench::new();
    bench.deadlines.stage_timeout = Some(Duration::from_millis(200));
    let stuck = bench.play("stage a\nbeat\nhang");
    assert_eq!(stuck.ended_by, Some(EndedBy::StageTimeout));
}

#[test]
fn a_child_that_ignores_sigterm_is_killed() {
    let mut bench = Bench::new();
    let mut child = bench.start(worker("ignore-term\nstage deaf\nhang"));
    while !matches!(bench.supervisor.next_event(&mut child, PATIENCE), ChildEvent::Stage { .. }) {}
    bench.supervisor.end(&mut child, EndedBy::Stop);
    // Asking twice changes nothing.
    bench.supervisor.end(&mut child, EndedBy::Timeout);
    let outcome = bench.finish(&mut child).1;
    assert_eq!(outcome.ended_by, Some(EndedBy::Stop));
    assert_eq!(outcome.exit, Exit::Signal { number: 9, core: false });
}

#[test]
fn a_child_that_closes_everything_is_still_waited_for() {
    let mut bench = Bench::new();
    let outcome = bench.play("close output\nclose replies\nsleep 200\nexit 5");
    assert_eq!(outcome.exit, Exit::Code(5));
    assert!(outcome.duration_ms >= 200);
}

#[test]
fn a_child_that_reads_nothing_does_not_block_us() {
    let mut bench = Bench::new();
    bench.deadlines.timeout = Duration::from_millis(300);
    // The script alone is more than a socket holds, and the trampoline is stopped before it reads.
    let script = format!("#{}\ndone", "x".repeat(3 << 20));
    let outcome = bench.play(&script);
    assert!(looks_like_a_pass(&outcome) || outcome.ended_by == Some(EndedBy::Timeout), "{outcome:?}");
    let begin = Instant::now();
    let mut child = bench.start(worker("stage deaf\nhang"));
    (0..100_000).for_each(|_| bench.supervisor.acknowledge(&mut child));
    assert_eq!(bench.finish(&mut child).1.ended_by, Some(EndedBy::Timeout));
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn the_end_is_told_as_often_as_it_is_asked_for() {
    let mut bench = Bench::new();
    let mut child = bench.start(worker("done"));
    let (_, first) = bench.finish(&mut child);
    assert_eq!(bench.finish(&mut child).1, first);
}

#[test]
fn a_child_that_nobody_wants_any_more_is_killed() {
    let mut bench = Bench::new();
    let child = bench.start(worker("hang"));
    let pid = Pid::from_raw(i32::try_from(child.pid()).unwrap()).unwrap();
    drop(child);
    assert!(becomes_gone(pid));
}
