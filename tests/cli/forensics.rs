//! What is found out about programs that crash and hang: by the kernel's core, under gdb, where tracing is forbidden, and
//! which program it really was.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::bad_input::on_a_small_disk;
use crate::bench::{Bench, HARNESS, Said};
use crate::commands::{detail, judged, matrix, only, run};
use crate::needs;
use crate::standins::standin;

fn ending(kind: &str, sections: &str) -> String {
    matrix(&format!("argv = [{:?}, {kind:?}]\ntimeout = \"30s\"", standin("endings")), sections)
}

fn note<'r>(result: &'r Value, name: &str) -> &'r str {
    result["outcome"]["notes"][name].as_str().unwrap_or_else(|| panic!("no note {name}: {result}"))
}

fn place(result: &Value) -> String {
    result["judgement"]["signature"]["place"].as_str().unwrap_or_else(|| panic!("no place: {result}")).to_owned()
}

/// Whether there is a gdb; without one `test` shows nothing of it and says so.
fn has_gdb(test: &str) -> bool {
    let gdb = Command::new("gdb").arg("--version").output();
    if let Err(error) = &gdb {
        needs::is_missing("gdb", test, &format!("gdb cannot be started ({error}); apt-get install gdb"));
    }
    gdb.is_ok()
}

/// Whether this system's kernel writes cores into files; another hands them to a program of its own.
fn writes_files() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    !pattern.starts_with('|') && !pattern.trim().is_empty()
}

/// The bytes on the disk of everything below `dir`.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata().unwrap() {
            meta if meta.is_dir() => disk_bytes(&entry.path()),
            meta => meta.blocks() * 512,
        })
        .sum()
}

#[test]
fn the_kernels_own_core_tells_the_same_place_as_a_tracer_and_needs_none() {
    for kind in ["free-twice", "handler", "jump"] {
        let bench = Bench::new();
        let sections = "[baseline]\nlimits = \"core=unlimited\"\n[axes]\nobserver = [\"core\"]\n";
        run(&bench, &ending(kind, sections), &[]).ends(1);
        let judged = judged(&bench);
        let of = |label: &str| &judged.iter().find(|(known, ..)| known == label).unwrap().2;
        let (untraced, traced) = (of("baseline"), of("observer=core"));
        assert!(traced["outcome"]["crash"].is_object(), "{traced}");
        let words = note(untraced, "core");
        if !writes_files() {
            assert!(words.contains("by "), "{words}");
            continue;
        }
        assert!(words.contains("bytes of") && words.contains("the pattern "), "{words}");
        match kind {
            // The handler raised it again: the core is of that moment, and the stack behind it is the C library's.
            "handler" => assert_eq!(untraced["outcome"]["crash"]["signal"], 11, "{untraced}"),
            _ => assert_eq!(place(untraced), place(traced), "{kind}"),
        }
        assert!(note(untraced, "backtrace").ends_with("gdb/stdout.log") || note(untraced, "backtrace").contains("gdb"));
    }
}

#[test]
fn a_limit_that_keeps_the_kernel_from_a_core_is_named() {
    let bench = Bench::new();
    run(&bench, &ending("jump", "[baseline]\nlimits = \"core=0\"\n"), &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "crash");
    if writes_files() {
        assert!(note(&result, "core").contains("limits = \"core=unlimited\" lifts it"), "{result}");
    }
}

#[test]
fn a_process_of_a_hundred_gigabytes_leaves_little_on_the_disk() {
    let bench = Bench::new();
    let sections = "[baseline]\nobserver = \"core\"\nlimits = \"core=unlimited\"\n";
    run(&bench, &ending("sparse", sections), &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "crash", "{result}");
    assert_eq!(result["outcome"]["crash"]["address"], "0x30");
    let trial = fs::read_dir(bench.results().join("m-001/trials")).unwrap().next().unwrap().unwrap().path();
    let bytes = disk_bytes(&trial);
    assert!(bytes < 64 << 20, "{} MiB: {}", bytes >> 20, note(&result, "core"));
}

#[test]
fn no_core_is_written_into_memory_while_the_harness_watches() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("not run here: no /dev/shm") };
    let bench = Bench::new();
    let argv = format!("argv = [{:?}, \"jump\"]", standin("endings"));
    let text = matrix(&argv, "[baseline]\nobserver = \"core\"\nlimits = \"core=unlimited\"\n");
    let text = text.replace("cwd = \"{trial.dir}\"", &format!("cwd = {:?}", memory.path()));
    run(&bench, &text, &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "crash", "{result}");
    if writes_files() && !fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap().starts_with('/') {
        assert!(note(&result, "core").contains("into memory, so the kernel was kept from it"), "{result}");
    }
    assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0);
}

/// Runs the harness where nobody may trace anybody.
fn run_untraceable(bench: &Bench, text: &str) -> Said {
    let file = bench.write("m.toml", text);
    let harness = bench.command(&["run", &file, "--allow-root-workload"]);
    let mut command = Command::new(standin("forbid"));
    command.arg(harness.get_program()).args(harness.get_args()).current_dir(bench.dir.path());
    for (name, value) in harness.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Said::of(&command.output().unwrap())
}

#[test]
fn where_tracing_is_forbidden_a_trial_is_void_with_the_reason_and_the_kernels_core_still_tells() {
    for (observer, words) in [
        ("core", "the child may not be traced (observer = \"core\"): Operation not permitted"),
        ("gdb", "gdb could not run it"),
    ] {
        if observer == "gdb" && !has_gdb("where_tracing_is_forbidden") {
            continue;
        }
        let bench = Bench::new();
        run_untraceable(&bench, &ending("jump", &format!("[baseline]\nobserver = {observer:?}\n"))).ends(3);
        let (_, verdict, result) = judged(&bench).remove(0);
        assert_eq!(verdict, "void", "{observer}: {result}");
        assert!(detail(&result).contains(words), "{observer}: {}", detail(&result));
    }
    let bench = Bench::new();
    run_untraceable(&bench, &ending("free-twice", "[baseline]\nlimits = \"core=unlimited\"\n")).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "crash", "{result}");
    if writes_files() {
        assert!(place(&result).starts_with("endings@"), "{result}");
    }
}

#[test]
fn a_program_that_takes_another_user_crashes_as_any_other_whoever_watches() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("not run here: only root may make such a program");
    }
    for observer in ["none", "core", "gdb"] {
        if observer == "gdb" && !has_gdb("a_program_that_takes_another_user") {
            continue;
        }
        let bench = Bench::new();
        let program = bench.path("taking");
        fs::copy(standin("endings"), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let text =
            matrix(&format!("argv = [{:?}, \"jump\"]", program), &format!("[baseline]\nobserver = {observer:?}\n"));
        run(&bench, &text, &[]).ends(1);
        let (verdict, result) = only(&bench);
        assert_eq!(verdict, "crash", "{observer}: {result}");
        assert!(observer == "none" || result["outcome"]["crash"].is_object(), "{observer}: {result}");
    }
}

#[test]
fn a_tracer_without_the_right_to_it_says_that_a_program_kept_its_user() {
    let bench = Bench::new();
    let program = bench.path("taking");
    fs::copy(standin("endings"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file =
        bench.write("m.toml", &matrix(&format!("argv = [{program:?}, \"good\"]"), "[baseline]\nobserver = \"core\"\n"));
    let harness = bench.command(&["run", &file]);
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.arg(HARNESS).args(harness.get_args()).current_dir(bench.dir.path());
    command.envs(harness.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Said::of(&command.output().unwrap()).ends(0);
    let (_, result) = only(&bench);
    assert!(note(&result, "observer").contains("set-user-ID"), "{result}");
}

#[test]
fn a_program_that_fills_the_disk_stops_the_run_which_goes_on_when_there_is_space() {
    let bench = Bench::new();
    let script = "[ -e ../../../../room ] || head -c 100000000 /dev/zero > big; echo done";
    let file = bench.write("m.toml", &matrix(&format!("argv = [\"sh\", \"-c\", {script:?}]"), ""));
    let script = format!(
        "$HARNESS run -q --allow-volatile --allow-root-workload --results full/results {file} 2>err; code=$?\n\
         cat err >&2; [ $code = 4 ] || exit $code\n\
         rm full/results/m-001/trials/*/big; touch full/room\n\
         $HARNESS resume -q --results full/results >/dev/null; code=$?"
    );
    let said = on_a_small_disk(&bench, 4 << 20, &script).expect("unshare and tmpfs are there");
    said.fails(0, &["disk is full", "jetfault resume m-001"]);
}

#[test]
fn a_command_runs_under_gdb_as_without_it() {
    if !has_gdb("a_command_runs_under_gdb_as_without_it") {
        return;
    }
    let bench = Bench::new();
    let echo = r#"echo "it's $0 $1 $#"; echo aside >&2; env | grep -c -e '^LINES=' -e '^COLUMNS='; exit 3"#;
    let argv = format!("argv = [\"sh\", \"-c\", {echo:?}, \"a  b\", \"$HOME;*\"]\nexit_codes = [3]");
    run(&bench, &matrix(&argv, "[baseline]\nobserver = \"gdb\"\n"), &[]).ends(0);
    let (verdict, result) = only(&bench);
    assert_eq!((verdict.as_str(), &result["outcome"]["exit"]["code"]), ("pass", &3.into()), "{result}");
    let trial = fs::read_dir(bench.results().join("m-001/trials")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(trial.join("stdout.log")).unwrap(), "it's a  b $HOME;* 1\n0\n");
    assert_eq!(fs::read_to_string(trial.join("stderr.log")).unwrap(), "aside\n");
    assert!(note(&result, "observer").contains("gdb"), "{result}");
}

#[test]
fn a_crash_under_gdb_has_the_place_that_a_tracer_sees() {
    if !has_gdb("a_crash_under_gdb_has_the_place_that_a_tracer_sees") {
        return;
    }
    for kind in ["free-twice", "handler", "jump"] {
        let bench = Bench::new();
        run(&bench, &ending(kind, "[baseline]\nobserver = \"core\"\n[axes]\nobserver = [\"gdb\"]\n"), &[]).ends(1);
        let judged = judged(&bench);
        let places: Vec<String> =
            judged.iter().map(|(_, verdict, result)| format!("{verdict} {}", place(result))).collect();
        assert_eq!(places[0], places[1], "{kind}");
        let trial = judged.iter().find(|(label, ..)| label == "observer=gdb").unwrap();
        assert!(matches!(trial.2["outcome"]["exit"]["signal"]["number"].as_i64(), Some(6 | 11)), "{}", trial.2);
        assert!(note(&trial.2, "program").starts_with(&standin("endings")), "{}", trial.2);
    }
}

#[test]
fn a_hang_under_gdb_is_looked_at_and_ended() {
    if !has_gdb("a_hang_under_gdb_is_looked_at_and_ended") {
        return;
    }
    let bench = Bench::new();
    let text = ending("silent", "[baseline]\nobserver = \"gdb\"\n").replace("30s", "6s");
    run(&bench, &text, &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "hang", "{result}");
    let trial = fs::read_dir(bench.results().join("m-001/trials")).unwrap().next().unwrap().unwrap().path();
    let words = fs::read_to_string(trial.join("gdb/session.log")).unwrap();
    assert!(words.contains("SIGINT") && words.contains("pause"), "{words}");
}

#[test]
fn without_gdb_such_a_trial_is_void_and_a_plan_says_so() {
    let bench = Bench::new();
    let text = ending("good", "[baseline]\nobserver = \"gdb\"\n[tools]\ngdb = \"/nowhere/gdb\"\n");
    let file = bench.write("m.toml", &text);
    let said = bench.run(&["plan", &file]);
    assert!(said.err.contains("/nowhere/gdb, and there is no such file; such trials are void here"), "{said:?}");
    run(&bench, &text, &[]).ends(3);
    let (_, verdict, result) = judged(&bench).remove(0);
    assert_eq!(verdict, "void", "{result}");
    assert!(detail(&result).contains("no debugger (observer = \"gdb\")"), "{}", detail(&result));
}

#[test]
fn a_program_that_is_not_there_is_told_as_such_under_gdb_too() {
    if !has_gdb("a_program_that_is_not_there_is_told_as_such_under_gdb_too") {
        return;
    }
    let bench = Bench::new();
    run(&bench, &matrix("argv = [\"no-such-program\"]", "[baseline]\nobserver = \"gdb\"\n"), &[]).ends(3);
    let (_, verdict, result) = judged(&bench).remove(0);
    assert_eq!(verdict, "void", "{result}");
    assert!(detail(&result).contains("no-such-program"), "{}", detail(&result));
}

#[test]
fn the_kernel_stack_of_a_hang_is_kept_or_said_to_be_hidden() {
    let bench = Bench::new();
    run(&bench, &matrix("argv = [\"sleep\", \"60\"]\ntimeout = \"2s\"", ""), &[]).ends(1);
    let (verdict, result) = only(&bench);
    assert_eq!(verdict, "hang");
    let hang = &result["outcome"]["hang"];
    let stack = hang["threads"][0]["kernel_stack"].as_array();
    let is_denied = hang["kernel_stacks_denied"].is_string();
    assert!(
        is_denied || stack.is_some_and(|stack| stack.iter().any(|name| name.as_str().unwrap().contains("nanosleep"))),
        "{hang}"
    );
    let trial = bench.results_of("m-001")[0].0.clone();
    let explained = bench.run(&["explain", "m-001", &trial]);
    assert!(explained.says("in the kernel"), "{}", explained.out);
}

#[test]
fn the_interpreter_that_really_ran_and_what_it_loaded_are_proved() {
    let bench = Bench::new();
    let site = bench.path("venv/site-packages");
    fs::create_dir_all(site.join("bitsandbytes")).unwrap();
    fs::create_dir(site.join("bitsandbytes-0.49.2.dist-info")).unwrap();
    let library = site.join("bitsandbytes/libbitsandbytes_cuda126.so");
    fs::copy(standin("libcompiler.so"), &library).unwrap();
    let script = bench.write(
        "repro.py",
        &format!("#!/usr/bin/env python3\nimport ctypes, sys, time\nctypes.CDLL({library:?})\nprint(sys.executable)\ntime.sleep(0.5)\n"),
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    run(&bench, &matrix(&format!("argv = [{script:?}]"), ""), &[]).ends(0);
    let (_, result) = only(&bench);
    let words = note(&result, "program");
    let trial = fs::read_dir(bench.results().join("m-001/trials")).unwrap().next().unwrap().unwrap().path();
    let said = fs::read_to_string(trial.join("stdout.log")).unwrap();
    let interpreter = fs::canonicalize(said.trim()).unwrap();
    assert!(words.starts_with(&format!("{}, ", interpreter.display())), "{words}");
    for part in ["sha256 ", "by its first line `#!/usr/bin/env python3`", "bitsandbytes 0.49.2 in "] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let bench = Bench::new();
    run(&bench, &matrix("argv = [\"true\"]", ""), &[]).ends(0);
    let (_, result) = only(&bench);
    assert!(note(&result, "program").contains("/true"), "{result}");
}

#[test]
fn the_machine_is_watched_after_a_repetition_that_fails_whichever_it_is() {
    let count = "echo x >> count; [ $(wc -l < count) -lt 2 ]";
    let bench = Bench::new();
    let text = matrix(&format!("argv = [\"sh\", \"-c\", {count:?}]"), "[baseline]\niterations = 9\n");
    run(&bench, &text.replace("settle = \"0s\"", "settle = \"700ms\""), &[]).ends(1);
    let (verdict, result) = only(&bench);
    let outcome = &result["outcome"];
    assert_eq!((verdict.as_str(), &outcome["metrics"]["iterations"]), ("error", &1.0.into()), "{result}");
    let settled = outcome["stage_ms"].as_array().unwrap().iter().find(|stage| stage[0] == "settle").unwrap();
    assert_eq!(settled[1], 700, "{outcome}");
    assert!(outcome["duration_ms"].as_u64().unwrap() < 700, "the watch is no part of the trial's time: {outcome}");
}

#[test]
fn a_server_is_not_repeated() {
    let bench = Bench::new();
    let server = "argv = [\"true\"]\nserver = { ready = { port = 8000 }, requests = [[\"true\"]] }";
    run(&bench, &matrix(server, "[axes]\niterations = [2]\n"), &[])
        .fails(2, &["2 iterations of a server, which is started once for all its requests", "repeat the requests"]);
    assert!(!bench.results().exists(), "{HARNESS} left something");
}

#[test]
fn whether_a_fault_is_that_of_another_run_is_said_with_what_differs() {
    let bench = Bench::new();
    let program = standin("endings");
    let named = |name: &str, kind: &str, observer: &str| {
        let text = matrix(
            &format!("argv = [{program:?}, {kind:?}]"),
            &format!("[baseline]\nobserver = {observer:?}\nlimits = \"core=0\"\n"),
        );
        let file = bench.write(&format!("{name}.toml"), &text.replace("name = \"m\"", &format!("name = {name:?}")));
        bench.run(&["run", &file, "--allow-root-workload"]);
    };
    named("seed", "jump", "core");
    named("again", "jump", "core");
    named("twice", "free-twice", "core");
    named("unseen", "jump", "none");
    named("good", "good", "none");
    let compare = |other: &str| bench.run(&["compare", "seed-001", other, "--faults"]);
    assert!(compare("again-001").ends(0).says("a duplicate: every fault of seed-001 is one of again-001"));
    let said = compare("twice-001");
    assert!(said.ends(0).says("not a duplicate: no fault of seed-001 is one of twice-001"), "{}", said.out);
    assert!(said.says("signal or code: SIGSEGV, SIGABRT") && said.says("place in endings: 0x"), "{}", said.out);
    let said = compare("unseen-001");
    assert!(said.ends(3).says("undecided: 1 of 1 kinds") && said.says("nobody saw where"), "{}", said.out);
    compare("good-001").fails(2, &["good-001 has no counted fault"]);
    bench.run(&["compare", "seed-001", "--faults"]).fails(2, &["--faults compares two runs", "RUN OTHER"]);
    let json = bench.run(&["compare", "seed-001", "again-001", "--faults", "--format", "json"]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (&json["schema"], &json["pairs"][0]["likeness"]),
        (&"jetfault.likeness/1".into(), &"the same fault".into())
    );
    assert!(
        bench.run(&["compare", "seed-001", "twice-001", "--faults", "--format", "md"]).says("| a different fault |")
    );
}
