//! What a worker says, and what it says wrongly.

use jetfault::model::settings::{Linear4bitSettings, QuantType, Settings, WorkloadSettings};

use crate::bench::*;

#[test]
fn an_honest_worker_is_reported_as_it_spoke() {
    let mut bench = Bench::new();
    let script = "stage A.copy\nbeat\nmetric x_ms 1.5\nnote backend cpu\nalloc 64\nstage check\ndone";
    let (events, outcome) = bench.run(worker(script));
    assert!(matches!(events[0], ChildEvent::Running { pid } if pid > 1), "{events:?}");
    assert_eq!(stages(&events), ["A.copy", "check"]);
    assert!(looks_like_a_pass(&outcome), "{outcome:?}");
    assert_eq!((outcome.metrics["x_ms"], outcome.notes["backend"].as_str()), (1.5, "cpu"));
    assert_eq!(outcome.stage.as_ref().map(ToString::to_string).as_deref(), Some("check"));
    assert_eq!(outcome.stage_ms.len(), 2);
    assert!(outcome.peak_memory.host > 64 << 20, "{:?}", outcome.peak_memory);
    assert_eq!((outcome.leaked, outcome.stdout.kept), (0, 0));
}

#[test]
fn a_result_that_differs_is_kept() {
    let outcome = Bench::new().play("mismatch\nmismatch\ndone");
    assert_eq!(outcome.exit, Exit::Code(0));
    assert_eq!(outcome.mismatch.unwrap().index, 7);
}

#[test]
fn silence_or_a_lie_never_looks_like_a_pass() {
    let lies = [
        ("", Exit::Code(0)),
        ("stage A.copy\nexit 0", Exit::Code(0)),
        ("done\nexit 3", Exit::Code(3)),
        ("failed no\nexit 0", Exit::Code(0)),
        ("failed no\nexit 1", Exit::Code(1)),
        ("say {\"done\":{\"peak_memory\":", Exit::Code(0)),
        ("close replies\ndone", Exit::Code(0)),
        ("done\nsegv", Exit::Signal { number: 11, core: false }),
    ];
    for (script, exit) in lies {
        let outcome = Bench::new().play(script);
        assert!(!looks_like_a_pass(&outcome), "{script}: {outcome:?}");
        let is_as_told = match (&outcome.exit, &exit) {
            (Exit::Signal { number, .. }, Exit::Signal { number: expected, .. }) => number == expected,
            (found, expected) => found == expected || outcome.ended_by == Some(EndedBy::Protocol),
        };
        assert!(is_as_told, "{script}: {outcome:?}");
    }
    assert_eq!(Bench::new().play("done\nexit 3").protocol_error.unwrap(), "worker said Done and exited with code 3");
}

#[test]
fn words_that_break_the_protocol_end_the_child() {
    let begin = Instant::now();
    for script in
        ["garbage\nhang", "unending 20000\nhang", "done\nbeat\nhang", "say {\"hello\":{\"protocol\":1}}\nhang"]
    {
        let outcome = Bench::new().play(script);
        assert_eq!(outcome.ended_by, Some(EndedBy::Protocol), "{script}: {outcome:?}");
        assert!(outcome.protocol_error.is_some() && !looks_like_a_pass(&outcome), "{script}: {outcome:?}");
    }
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn a_word_that_death_cut_off_is_no_lie() {
    let outcome = Bench::new().play("unending 100\nkill");
    assert_eq!((outcome.exit, outcome.protocol_error), (Exit::Signal { number: 9, core: false }, None));
    let outcome = Bench::new().play("unending 100\nexit 0");
    assert!(outcome.protocol_error.unwrap().contains("cut off"));
}

#[test]
fn a_flood_of_replies_does_not_stop_the_callers_clock() {
    let mut bench = Bench::new();
    let mut child = bench.start(worker("replies 200000\ndone"));
    let (begin, mut quiet) = (Instant::now(), 0);
    let outcome = loop {
        let asked = Instant::now();
        let event = bench.supervisor.next_event(&mut child, Duration::from_millis(5));
        assert!(asked.elapsed() < Duration::from_secs(2) && begin.elapsed() < PATIENCE);
        match event {
            ChildEvent::Ended(outcome) => break outcome,
            ChildEvent::Quiet => quiet += 1,
            ChildEvent::Running { .. } | ChildEvent::Stage { .. } => {}
        }
    };
    assert!(looks_like_a_pass(&outcome) && quiet > 0, "{outcome:?}");
}

#[test]
fn with_synchronous_breadcrumbs_the_worker_waits_for_each_stage() {
    let mut bench = Bench::new();
    let program = Request { breadcrumbs: Breadcrumbs::Sync, ..request("stage one\nstage two\ndone") };
    let mut child = bench.start(Program::Worker(program));
    let mut reached = Vec::new();
    loop {
        match bench.supervisor.next_event(&mut child, Duration::from_millis(50)) {
            ChildEvent::Stage { stage, .. } => reached.push(stage.to_string()),
            // It waits: nothing more comes until it is told.
            ChildEvent::Quiet if !reached.is_empty() => bench.supervisor.acknowledge(&mut child),
            ChildEvent::Quiet | ChildEvent::Running { .. } => {}
            ChildEvent::Ended(outcome) => break assert!(looks_like_a_pass(&outcome), "{outcome:?}"),
        }
        assert!(reached.len() <= 2);
    }
    assert_eq!(reached, ["one", "two"]);
}

#[test]
fn breadcrumbs_that_are_off_tell_no_stage() {
    let request = Request { breadcrumbs: Breadcrumbs::Off, ..request("stage one\ndone") };
    let (events, outcome) = Bench::new().run(Program::Worker(request));
    assert!(stages(&events).is_empty() && looks_like_a_pass(&outcome), "{outcome:?}");
}

#[test]
fn a_model_of_thirty_two_layers_may_tell_each_of_its_stages() {
    let script: String = (0..1600).map(|n| format!("stage L{:02}.up_proj.s{n}\n", n / 50)).collect();
    let (events, outcome) = Bench::new().run(Program::Worker(request(&format!("{script}done"))));
    assert!(stages(&events).len() == 1600 && looks_like_a_pass(&outcome), "{outcome:?}");
}

#[test]
fn a_worker_that_cannot_do_the_work_says_so() {
    let unknown = Linear4bitSettings { quant: QuantType::Mxfp4, ..Linear4bitSettings::of(Vec::new()) };
    let settings = Settings::of(WorkloadSettings::Linear4bit(unknown));
    let request = Request { work: Work::Cell(Box::new(settings)), ..request("") };
    let outcome = Bench::new().run(Program::Worker(request)).1;
    assert_eq!(outcome.last_reply, Some(LastReply::Failed));
    assert_eq!((outcome.exit, outcome.protocol_error), (Exit::Code(1), None));
}

#[test]
fn the_durable_trial_and_the_requested_one_must_be_the_same() {
    let mut bench = Bench::new();
    let other = Request { trial: "c-0123456789abcdef-r002-a1".parse().unwrap(), ..request("") };
    let launch = Launch::new(Program::Worker(other), &bench.run, bench.dir.path(), bench.deadlines);
    assert!(matches!(bench.supervisor.start(&started(), launch), Err(StartError::OtherTrial { .. })));
}
