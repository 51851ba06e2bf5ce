//! Programs of the user's: how they start, what their output means, as whom they run.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use jetfault::model::settings::{Aslr, Cpus, ResourceLimits};

use crate::bench::*;

fn bytes_regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

#[test]
fn a_program_that_cannot_be_executed_never_started() {
    for (program, reason) in [
        ("/nonexistent/program", "No such file"),
        ("/etc/passwd", "Permission denied"),
        ("no-such-name", "No such file"),
    ] {
        let (events, outcome) = Bench::new().run(Program::Command(argv(&[program])));
        assert!(
            matches!(&outcome.exit, Exit::NotStarted(why) if why.contains(reason) && why.contains(program)),
            "{outcome:?}"
        );
        assert!(events.is_empty(), "{events:?}");
    }
}

#[test]
fn a_working_directory_that_is_not_there_is_named() {
    let command = CommandLine { cwd: Some("/nonexistent/dir".into()), ..argv(&["true"]) };
    let outcome = Bench::new().run(Program::Command(command)).1;
    assert!(matches!(&outcome.exit, Exit::NotStarted(why) if why.contains("/nonexistent/dir")), "{outcome:?}");
}

#[test]
fn a_program_runs_once_it_is_executed_and_has_no_conversation() {
    let script = "[ \"$(readlink /proc/self/fd/0)\" = /dev/null ] && cat";
    let (events, outcome) = Bench::new().run(Program::Command(shell(script)));
    // `Running` comes when the last holder of the conversation is gone: the program has none of it.
    assert!(matches!(events[..], [ChildEvent::Running { .. }]), "{events:?}");
    assert_eq!((outcome.exit, outcome.last_reply, outcome.protocol_error), (Exit::Code(0), None, None));
}

#[test]
fn arguments_pass_through_no_shell() {
    let mut bench = Bench::new();
    bench.run(Program::Command(argv(&["printf", "%s|", "a b", "$HOME", "*", ""])));
    assert_eq!(bench.read("stdout.log"), "a b|$HOME|*||");
}

#[test]
fn the_environment_is_set_unset_and_marked() {
    let mut bench = Bench::new();
    bench.environment = vec![
        EnvChange::Set("FLAGS".into(), "-a=1 -b".into()),
        EnvChange::Unset("HOME".into()),
        EnvChange::Unset("JETFAULT_TRIAL".into()),
    ];
    bench.run(Program::Command(shell("echo \"$FLAGS,${HOME-none},$JETFAULT_TRIAL\"")));
    assert_eq!(bench.read("stdout.log"), format!("-a=1 -b,none,{}/{TRIAL}\n", bench.run));
    let path = bench.path("flags");
    bench.play(&format!("env FLAGS {}", path.display()));
    assert_eq!(bench.read("flags"), "-a=1 -b");
}

#[test]
fn stages_are_read_from_both_streams_in_their_order() {
    let stage = |name: &str, pattern: &str| (name.parse().unwrap(), bytes_regex(pattern));
    let command = CommandLine {
        stages: vec![
            stage("A.construct", "Constructing .*32768"),
            stage("B.construct", "Constructing"),
            stage("never", "^never$"),
            stage("end", "^complete"),
        ],
        metrics: vec![("build_s".into(), bytes_regex(r"completed in ([\d.]+) s"))],
        expect_output: vec![
            Expectation::Contains("Sequence complete".into()),
            Expectation::Contains("checksum".into()),
        ],
        ..shell(
            "echo 'Constructing 4096, 32768' >&2; sleep 0.05; echo 'Constructing 2'; sleep 0.05; echo 'Constructing 3'; printf 'complete in\\rcompleted in 212.5 s\\nSequence complete'",
        )
    };
    let mut bench = Bench::new();
    let (events, outcome) = bench.run(Program::Command(command));
    assert!(matches!(events[0], ChildEvent::Running { .. }), "{events:?}");
    assert_eq!(stages(&events), ["A.construct", "B.construct", "end"]);
    assert_eq!(outcome.metrics["build_s"], 212.5);
    assert_eq!(outcome.unmet, ["no line of output contains \"checksum\""]);
    assert_eq!(outcome.stage.unwrap().as_str(), "end");
}

#[test]
fn a_stage_in_the_last_unfinished_line_before_a_death_counts() {
    let command = CommandLine {
        stages: vec![("late".parse().unwrap(), bytes_regex("late"))],
        ..shell("printf late; kill -SEGV $$")
    };
    let (events, outcome) = Bench::new().run(Program::Command(command));
    assert_eq!(stages(&events), ["late"]);
    assert!(matches!(outcome.exit, Exit::Signal { number: 11, .. }), "{outcome:?}");
}

#[test]
fn exit_zero_without_the_promised_artifact_is_noted() {
    let mut bench = Bench::new();
    let command = |script: &str, bench: &Bench| CommandLine {
        cwd: Some(bench.dir.path().to_str().unwrap().into()),
        artifacts: vec!["engine/llm.engine".into()],
        ..shell(script)
    };
    let without = command("mkdir engine", &bench);
    assert_eq!(bench.run(Program::Command(without)).1.artifacts_missing, ["engine/llm.engine"]);
    let with = command("echo x > engine/llm.engine", &bench);
    assert!(bench.run(Program::Command(with)).1.artifacts_missing.is_empty());
    let failing = command("rm -r engine; exit 1", &bench);
    assert!(bench.run(Program::Command(failing)).1.artifacts_missing.is_empty());
}

#[test]
fn the_words_of_an_error_are_kept() {
    let outcome = Bench::new()
        .run(Program::Command(shell("echo loading >&2; echo 'RuntimeError: CUDA error: at 0x7f12' >&2; exit 1")))
        .1;
    assert_eq!(outcome.error_text.as_deref(), Some("RuntimeError: CUDA error: at <addr>"));
    assert_eq!(outcome.exit, Exit::Code(1));
    assert_eq!(Bench::new().run(Program::Command(shell("echo fine >&2"))).1.error_text, None);
}

#[test]
fn silence_is_not_a_hang_for_a_command_without_a_stage_deadline() {
    let mut bench = Bench::new();
    let outcome = bench.run(Program::Command(shell("sleep 0.3"))).1;
    assert_eq!((outcome.exit, outcome.ended_by), (Exit::Code(0), None));
    bench.deadlines.timeout = Duration::from_millis(300);
    let chatty = bench.run(Program::Command(shell("while :; do echo alive; sleep 0.02; done"))).1;
    assert_eq!(chatty.ended_by, Some(EndedBy::Timeout));
}

#[test]
fn a_shell_that_ignores_sigterm_is_killed_with_its_children() {
    let mut bench = Bench::new();
    bench.deadlines.timeout = Duration::from_millis(300);
    let outcome = bench.run(Program::Command(shell("trap '' TERM; sleep 60; sleep 60"))).1;
    assert_eq!(outcome.exit, Exit::Signal { number: 9, core: false });
}

#[test]
fn every_child_runs_as_the_invoker() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become somebody else.
        return;
    }
    let ours = jetfault::perform::invoker::collect().unwrap();
    let limit = |(name, current, maximum): (String, Option<u64>, Option<u64>)| match name.as_str() {
        "RLIMIT_NOFILE" => (name, Some(77), maximum),
        _ => (name, current, maximum),
    };
    let invoker = Invoker {
        uid: 4242,
        gid: 4343,
        groups: vec![4343, 4444],
        cwd: "/".into(),
        umask: 0o027,
        env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("ONLY".into(), "this".into())],
        limits: ours.limits.into_iter().map(limit).collect(),
    };
    let mut bench = Bench::new();
    let script = "id -u; id -g; id -G; pwd; umask; ulimit -n; cat /proc/self/oom_score_adj; env | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^OLDPWD | sort";
    let mut child = bench.start_as(Program::Command(shell(script)), Some(&invoker));
    let (_, outcome) = bench.finish(&mut child);
    assert_eq!(outcome.exit, Exit::Code(0), "{}", bench.read("stderr.log"));
    let mark = format!("{}/{TRIAL}", bench.run);
    let expected =
        format!("4242\n4343\n4343 4444\n/\n0027\n77\n0\nJETFAULT_TRIAL={mark}\nONLY=this\nPATH=/usr/bin:/bin\n");
    assert_eq!(bench.read("stdout.log"), expected);
    // The worker goes the same way; the binary may be where that user cannot reach it, which is told.
    let mut child = bench.start_as(worker("stage a\ndone"), Some(&invoker));
    let (_, outcome) = bench.finish(&mut child);
    assert!(
        looks_like_a_pass(&outcome) || matches!(&outcome.exit, Exit::NotStarted(why) if why.contains("denied")),
        "{outcome:?}"
    );
}

#[test]
fn a_user_gets_back_the_score_from_which_the_harness_protected_itself() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become somebody else.
        return;
    }
    let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let invoker = Invoker { uid: 4242, gid: 4343, cwd: "/".into(), env: env.clone(), ..Invoker::default() };
    // A protected harness needs a right that a container may lack, and a higher score needs none.
    let request = serde_json::json!({
        "argv": ["cat", "/proc/self/oom_score_adj"], "env": env, "cwd": "/", "identity": invoker, "oom_score_adj": 300,
        "stdin": "null", "cpus": Cpus::All, "limits": ResourceLimits::default(), "aslr": Aslr::Kept,
    });
    let request = request.to_string();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(&u32::try_from(request.len()).unwrap().to_le_bytes()).unwrap();
    ours.write_all(request.as_bytes()).unwrap();
    let mut trampoline = Command::new(HARNESS);
    trampoline.arg("__exec").stdin(OwnedFd::from(theirs));
    let output = trampoline.output().unwrap();
    drop(trampoline);
    let mut said = String::new();
    ours.read_to_string(&mut said).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "300\n", "{said}");
}

#[test]
fn a_program_runs_on_the_cpus_it_is_given_and_not_at_all_without_them() {
    let mut bench = Bench::new();
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let list = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().to_owned()
    };
    let first = list(&own).split([',', '-']).next().unwrap().to_owned();
    let command = CommandLine { cpus: first.parse().unwrap(), ..argv(&["/bin/cat", "/proc/self/status"]) };
    let outcome = bench.run(Program::Command(command)).1;
    assert_eq!((outcome.exit, list(&bench.read("stdout.log"))), (Exit::Code(0), first));

    let command = CommandLine { cpus: "1023".parse().unwrap(), ..argv(&["/bin/true"]) };
    let Exit::NotStarted(reason) = bench.run(Program::Command(command)).1.exit else { panic!("it was started") };
    assert!(reason.contains("cannot run on cpus 1023"), "{reason}");
}

#[test]
fn a_program_on_a_terminal_writes_its_lines_at_once_and_loses_none_when_it_dies() {
    // What a C library keeps for a pipe dies with the process; a terminal gets each line.
    let script = "import os, sys\nprint('is a terminal' if sys.stdout.isatty() else 'is a pipe')\nsys.stderr.write('RuntimeError: x\\n')\nos.kill(os.getpid(), 11)";
    for (output, said) in [(OutputKind::Pipe, ""), (OutputKind::Pty, "is a terminal\nRuntimeError: x\n")] {
        let mut bench = Bench::new();
        let outcome = bench.run(Program::Command(CommandLine { output, ..argv(&["python3", "-E", "-c", script]) })).1;
        assert!(matches!(outcome.exit, Exit::Signal { number: 11, .. }), "{outcome:?}");
        assert_eq!(bench.read("stdout.log"), said, "{output}");
        assert_eq!(outcome.error_text.as_deref(), Some("RuntimeError: x"), "{output}");
    }
}

#[test]
fn a_terminal_is_closed_when_the_last_process_that_has_it_ends() {
    let mut bench = Bench::new();
    let command = |script: &str| CommandLine { output: OutputKind::Pty, ..shell(script) };
    let outcome = bench.run(Program::Command(command("tput cols 2>&1; echo a; echo b >&2; (sleep 0.05; echo c) &"))).1;
    assert_eq!((outcome.exit, outcome.ended_by, outcome.leaked), (Exit::Code(0), None, 0));
    assert!(bench.read("stdout.log").ends_with("a\nb\nc\n"), "{}", bench.read("stdout.log"));
}

#[test]
fn only_the_exit_codes_that_a_matrix_names_are_a_success() {
    let run = |codes: &[i32], script: &str| {
        let command = CommandLine { exit_codes: codes.to_vec(), artifacts: vec!["none".into()], ..shell(script) };
        Bench::new().run(Program::Command(command)).1
    };
    let three = run(&[0, 3], "exit 3");
    assert_eq!((three.exit_expected, three.artifacts_missing.len()), (Some(true), 1));
    let zero = run(&[3], "exit 0");
    assert_eq!((zero.exit_expected, zero.artifacts_missing.len()), (Some(false), 0));
    assert_eq!(run(&[], "exit 0").exit_expected, None);
}

#[test]
fn silence_and_the_whole_time_have_deadlines_of_their_own() {
    let mut bench = Bench::new();
    bench.deadlines.silence_timeout = Some(Duration::from_millis(400));
    bench.deadlines.timeout = Duration::from_millis(1200);
    let chatty = bench.run(Program::Command(shell("while :; do echo still running >&2; sleep 0.1; done"))).1;
    assert_eq!(chatty.ended_by, Some(EndedBy::Timeout));
    let silent = bench.run(Program::Command(shell("echo begun; exec sleep 30"))).1;
    assert_eq!(silent.ended_by, Some(EndedBy::SilenceTimeout));
    assert_eq!(silent.hang.unwrap().kind, HangKind::Blocked);
    assert!(silent.duration_ms < 1200, "{} ms", silent.duration_ms);
}
