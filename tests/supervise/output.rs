//! What becomes of output, however much it is, and what is watched after the end.

use crate::bench::*;

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_flood_is_cut_in_the_middle_and_costs_little_memory() {
    const FLOOD: u64 = 100_000_000;
    let mut bench = Bench::new();
    bench.output_bytes_max = 1 << 20;
    let before = resident();
    let outcome = bench.play(&format!("stdout first\nflood stdout {FLOOD}\nstdout last\ndone"));
    assert!(looks_like_a_pass(&outcome), "{outcome:?}");
    assert_eq!(outcome.stdout.kept + outcome.stdout.dropped, FLOOD + "first\nlast\n".len() as u64);
    assert!(outcome.stdout.kept <= 1 << 20 && outcome.stdout.kept >= 3 << 18, "{:?}", outcome.stdout);
    let text = bench.read("stdout.log");
    assert!(text.starts_with("first\n") && text.ends_with("last\n"));
    assert!(text.contains(&format!("[jetfault: {} bytes left out here]", outcome.stdout.dropped)));
    // Other tests of this process run at the same time; theirs is included.
    assert!(resident().saturating_sub(before) < 32 << 20);
}

#[test]
fn binary_output_and_endless_lines_harm_nothing() {
    let mut bench = Bench::new();
    let command = CommandLine {
        stages: vec![("after".parse().unwrap(), Regex::new("^after$").unwrap())],
        ..shell("head -c 3000000 /dev/urandom; head -c 3000000 /dev/zero >&2; printf '\\nafter\\n'")
    };
    let (events, outcome) = bench.run(Program::Command(command));
    assert_eq!(stages(&events), ["after"]);
    assert_eq!((outcome.stderr.kept, outcome.stderr.dropped), (3_000_000, 0));
    assert_eq!(fs::metadata(bench.path("stdout.log")).unwrap().len(), outcome.stdout.kept);
}

#[test]
fn both_streams_are_kept_apart() {
    let mut bench = Bench::new();
    bench.play("stdout out\nstderr err\ndone");
    assert_eq!((bench.read("stdout.log").as_str(), bench.read("stderr.log").as_str()), ("out\n", "err\n"));
}

#[test]
fn what_was_written_can_be_made_durable_while_the_child_runs() {
    let mut bench = Bench::new();
    let mut child = bench.start(worker("stdout early\nstage printed\nhang"));
    while bench.read("stdout.log").is_empty() {
        bench.supervisor.next_event(&mut child, Duration::from_millis(20));
    }
    bench.supervisor.sync_output(&mut child).unwrap();
    bench.supervisor.end(&mut child, EndedBy::Stop);
    bench.finish(&mut child);
}

#[test]
fn output_that_cannot_be_kept_stops_nothing_and_is_told() {
    let mut bench = Bench::new();
    fs::create_dir(bench.path("stdout.log")).unwrap();
    let mut child = bench.start(worker("stdout lost\ndone"));
    let outcome = bench.finish(&mut child).1;
    assert_eq!((outcome.stdout.kept, outcome.stdout.dropped), (0, 5));
    assert!(bench.supervisor.sync_output(&mut child).is_err());
}

#[test]
fn the_settle_period_is_a_stage_of_its_own_and_blames_nobody() {
    let mut bench = Bench::new();
    bench.deadlines.settle = Duration::from_millis(200);
    let mut child = bench.start(worker("stage C.copy\nsegv"));
    let (begin, mut names, mut quiet) = (Instant::now(), Vec::new(), 0);
    let outcome = loop {
        match bench.supervisor.next_event(&mut child, Duration::from_millis(20)) {
            ChildEvent::Stage { stage, .. } => names.push(stage.to_string()),
            ChildEvent::Quiet => quiet += 1,
            ChildEvent::Running { .. } => {}
            ChildEvent::Ended(outcome) => break outcome,
        }
    };
    assert!(begin.elapsed() >= Duration::from_millis(200) && quiet >= 5);
    assert_eq!(names, ["C.copy", "settle"]);
    assert_eq!(outcome.stage.unwrap().as_str(), "C.copy");
    assert!(outcome.duration_ms < 200 || begin.elapsed() > Duration::from_millis(400), "{}", outcome.duration_ms);
    assert_eq!(outcome.stage_ms.last().unwrap().0.as_str(), "settle");
}
