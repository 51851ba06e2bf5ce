//! Bad input: each a clear error with a hint and the documented exit code, and nothing lost or half-written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::bench::{Bench, HARNESS, Said, matrix};

#[test]
fn mistakes_in_a_matrix_are_shown_where_they_are_and_leave_nothing_behind() {
    for (wrong, texts) in [
        ("batchs = 2\n", vec!["one.toml:", "batchs", "^", "batch"]),
        ("quant = \"nf5\"\n", vec!["nf5", "nf4"]),
        ("[axes]\nsequence = [\"AZ\"]\n", vec!["Z"]),
        ("[axes]\nbatch = []\n", vec!["batch"]),
        ("blocksize = 65\n", vec!["65"]),
    ] {
        let bench = Bench::new();
        let file = bench.write("one.toml", &matrix("one", 1, wrong));
        let said = bench.run(&["run", &file]);
        said.fails(2, &texts);
        assert!(said.err.starts_with("error: ") && !said.err.contains("error: error"), "{}", said.err);
        assert!(!bench.results().exists(), "nothing is created for {wrong}");
    }
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 0, ""));
    let said = bench.run(&["run", &file]);
    said.fails(2, &["trials"]);
    assert!(said.err.starts_with("error: zero trials"), "the word error stands once: {}", said.err);
}

#[test]
fn files_that_are_no_matrices_are_told_apart() {
    let bench = Bench::new();
    bench.run(&["run", "quickstrat"]).fails(2, &["no matrix quickstrat", "did you mean quickstart?"]);
    let path = bench.path("huge.toml");
    fs::File::create(&path).unwrap().set_len(10 << 30).unwrap();
    bench.run(&["run", path.to_str().unwrap()]).fails(2, &["larger than", "hint"]);
    let path = bench.path("latin1.toml");
    fs::write(&path, b"[matrix]\nname = \"caf\xe9\"\n").unwrap();
    bench.run(&["run", path.to_str().unwrap()]).fails(2, &["UTF-8"]);
}

#[test]
fn a_matrix_that_changed_under_an_unfinished_run_is_refused() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 2, ""));
    fs::create_dir_all(bench.results()).unwrap();
    let mut harness = bench.spawn(&["run", &file, "--script", "hang"]);
    bench.await_journal("one-001", |journal| journal.contains("\"running\""));
    harness.kill().unwrap();
    harness.wait().unwrap();
    let changed = bench.write("one.toml", &matrix("one", 3, ""));
    bench.run(&["run", &changed]).fails(2, &["one-001 is unfinished", "jetfault resume one-001", "--new"]);
}

#[test]
fn a_results_path_that_cannot_hold_results_is_refused() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    let taken = bench.write("taken", "a file\n");
    bench.run(&["run", &file, "--results", &taken]).fails(2, &["not a directory", "hint"]);
    assert_eq!(fs::read_to_string(taken).unwrap(), "a file\n");
    if fs::metadata("/dev/shm").is_ok_and(|m| m.is_dir()) {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let results = memory.path().join("results");
        let results = results.to_str().unwrap();
        bench.run(&["run", &file, "--results", results]).fails(4, &["does not survive a reboot", "--allow-volatile"]);
        let said = bench.run(&["run", &file, "--results", results, "--allow-volatile"]);
        said.ends(0);
        assert!(said.says("volatile storage"), "the report says so: {}", said.out);
    }
}

/// Runs the harness in a user and mount namespace with a small file system of its own at `full`.
pub(crate) fn on_a_small_disk(bench: &Bench, bytes: u32, script: &str) -> Option<Said> {
    let full = bench.path("full");
    fs::create_dir_all(&full).unwrap();
    let text = format!(
        "mount -t tmpfs -o size={bytes} none {0} || exit 125\n{script}\ncp -r {0} {0}.kept 2>/dev/null\nexit $code\n",
        full.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &text]).env("JETFAULT_LOCK_DIR", bench.dir.path()).env("HARNESS", HARNESS);
    command.env("HOME", bench.dir.path()).env("XDG_STATE_HOME", bench.path("state")).current_dir(bench.dir.path());
    let output = command.output().ok()?;
    (output.status.code() != Some(125)).then(|| Said::of(&output))
}

#[test]
fn a_full_disk_stops_the_run_and_a_resume_goes_on_when_there_is_space() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 400, ""));
    let script = format!(
        "$HARNESS run -q --allow-volatile --results full/results {file} --script 'done' 2>err; code=$?\n\
         cat err >&2; [ $code = 4 ] || exit $code\n\
         mount -o remount,size=64m none full\n\
         $HARNESS resume -q --results full/results >/dev/null; code=$?"
    );
    let said = on_a_small_disk(&bench, 600 * 1024, &script).expect("unshare and tmpfs are there");
    said.fails(0, &["disk is full", "jetfault resume one-001"]);
    let journal = fs::read_to_string(bench.path("full.kept/results/one-001/journal.jsonl")).unwrap();
    assert_eq!(journal.matches("\"rule\":\"pass\"").count(), 400);
    assert!(journal.matches("\"rule\":\"same-boot\"").count() <= 1, "at most the trial that met the full disk");
}

#[test]
fn a_disk_that_became_read_only_is_named_and_nothing_is_lost() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 200, ""));
    let script = format!(
        "$HARNESS run -q --allow-volatile --results full/results {file} --script 'done' & harness=$!\n\
         until grep -qs judged full/results/one-001/journal.jsonl; do sleep 0.01; done\n\
         kill -KILL $harness; wait $harness\n\
         n=0; until mount -o remount,ro none full 2>/dev/null; do n=$((n+1)); [ $n -lt 200 ] || exit 9; sleep 0.05; done\n\
         $HARNESS report -q --results full/results >/dev/null; [ $? = 3 ] || exit 8\n\
         $HARNESS resume -q --results full/results 2>err; code=$?; cat err >&2; [ $code = 4 ] || exit 7\n\
         mount -o remount,rw none full\n\
         $HARNESS resume -q --results full/results >/dev/null; code=$?"
    );
    let said = on_a_small_disk(&bench, 64 << 20, &script).expect("unshare and tmpfs are there");
    said.fails(0, &["read-only"]);
    let journal = fs::read_to_string(bench.path("full.kept/results/one-001/journal.jsonl")).unwrap();
    assert_eq!(journal.matches("\"rule\":\"pass\"").count(), 200);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    bench.run(&["run", &file, "--results", "/proc/nowhere"]).fails(4, &["/proc/nowhere"]);
}

#[test]
fn a_damaged_journal_stops_everything_and_stays_as_it_is() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 2, ""));
    bench.run(&["run", &file]).ends(0);
    let path = bench.results().join("one-001/journal.jsonl");
    let damaged = fs::read_to_string(&path).unwrap().replacen("\"pass\"", "\"Pass\"", 1);
    fs::write(&path, &damaged).unwrap();
    for command in [vec!["run", &file], vec!["resume"], vec!["report"], vec!["status"]] {
        bench.run(&command).fails(6, &["journal damaged at line", "checksum", "nothing was changed"]);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
}

#[test]
fn a_plan_that_was_changed_under_its_run_is_refused() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 2, ""));
    bench.run(&["run", &file]).ends(0);
    let path = bench.results().join("one-001/plan.json");
    let plan = fs::read_to_string(&path).unwrap();
    fs::write(&path, plan.replacen("\"trials\": 2", "\"trials\": 5", 1)).unwrap();
    for command in [vec!["run", &file], vec!["resume"], vec!["report"], vec!["status"]] {
        bench.run(&command).fails(6, &["plan.json was changed after the run began", "--new"]);
    }
    fs::write(&path, plan).unwrap();
    bench.run(&["resume"]).ends(0);
}

#[test]
fn what_is_missing_in_a_run_is_named_and_takes_nothing_else_along() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    bench.run(&["run", &file]).ends(0);
    let run = bench.results().join("one-001");
    let before = bench.results_of("one-001");
    fs::remove_dir_all(run.join("trials")).unwrap();
    bench.run(&["resume"]).ends(0);
    assert_eq!(bench.results_of("one-001"), before, "results are a fold of the journal");
    fs::rename(run.join("journal.jsonl"), run.join("elsewhere")).unwrap();
    bench.run(&["report"]).fails(4, &["one-001/journal.jsonl: No such file"]);
    fs::rename(run.join("elsewhere"), run.join("journal.jsonl")).unwrap();
    fs::remove_file(run.join("plan.json")).unwrap();
    bench.run(&["run", &file]).ends(0);
    assert!(bench.results().join("one-002/plan.json").is_file(), "its number is not given away twice");
}

#[test]
fn an_id_that_means_nobody_does_not_mean_root() {
    if !rustix::process::geteuid().is_root() {
        return; // Nobody else is told by sudo who called.
    }
    let bench = Bench::new();
    let text = "[matrix]\nname = \"c\"\ntrials = 1\n[workload]\nkind = \"command\"\nargv = [\"true\"]\n";
    let file = bench.write("c.toml", text);
    let mut command = bench.command(&["run", &file]);
    command.env("SUDO_UID", "4294967295").env("SUDO_GID", "5");
    Said::of(&command.output().unwrap()).fails(2, &["as root", "--allow-root-workload"]);
}

#[test]
fn a_journal_of_a_later_version_is_called_that() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    bench.run(&["run", &file]).ends(0);
    let path = bench.results().join("one-001/journal.jsonl");
    let journal = fs::read_to_string(&path).unwrap();
    let first = journal.lines().next().unwrap().replace("\"v\":\"1.0\"", "\"v\":\"1.7\"");
    let head = &first[..first.rfind(",\"crc\"").unwrap()];
    let crc = crc32fast::hash(head.as_bytes());
    let rest: String = journal.lines().skip(1).map(|line| format!("{line}\n")).collect();
    fs::write(&path, format!("{head},\"crc\":\"{crc:08x}\"}}\n{rest}")).unwrap();
    bench.run(&["report"]).fails(6, &["version 1.7 cannot be read"]);
}

#[test]
fn without_a_boot_id_nothing_is_started() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    fs::create_dir_all(bench.path("empty")).unwrap();
    let root = bench.path("empty");
    bench.run(&["run", &file, "--sysroot", root.to_str().unwrap()]).fails(4, &["boot id", "hint"]);
    bench.write("empty/proc/sys/kernel/random/boot_id", "");
    bench.run(&["run", &file, "--sysroot", root.to_str().unwrap()]).fails(4, &["boot id"]);
    assert!(!bench.results().join("one-001").exists(), "no run is opened that nothing can begin");
}

#[test]
fn commands_as_root_need_the_flag() {
    let bench = Bench::new();
    let text =
        "[matrix]\nname = \"c\"\ntrials = 1\n[workload]\nkind = \"command\"\nargv = [\"true\"]\nsettle = \"0s\"\n";
    let file = bench.write("c.toml", text);
    if rustix::process::geteuid().is_root() {
        bench.run(&["run", &file]).fails(2, &["as root", "--allow-root-workload"]);
    }
    bench.run(&["run", &file, "--allow-root-workload"]).ends(0);
}

#[test]
fn a_program_that_cannot_run_is_void_with_the_reason() {
    let bench = Bench::new();
    let not_executable = bench.write("plain", "no program\n");
    fs::set_permissions(&not_executable, fs::Permissions::from_mode(0o644)).unwrap();
    for (program, reason) in [("/nowhere/at-all", "No such file"), (&not_executable, "ermission denied")] {
        let text = format!(
            "[matrix]\nname = \"c\"\ntrials = 1\n[workload]\nkind = \"command\"\nargv = [\"{program}\"]\nsettle = \"0s\"\n"
        );
        let file = bench.write("c.toml", &text);
        let said = bench.run(&["run", &file, "--new", "--allow-root-workload"]);
        said.ends(3);
        assert!(said.says(reason) || said.err.contains(reason), "{program}: {}{}", said.out, said.err);
    }
}

#[test]
fn a_changed_binary_is_refused_unless_accepted() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    let mut harness = bench.spawn(&["run", &file, "--script", "hang"]);
    bench.await_journal("one-001", |journal| journal.contains("\"running\""));
    harness.kill().unwrap();
    harness.wait().unwrap();
    let other = bench.path("other-jetfault");
    // Written by another process: a file that this one has open for writing could not be executed as long as a child
    // of a test beside this one has the descriptor too.
    let script = format!("cp {HARNESS} {0} && printf x >> {0}", other.display());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let run = |args: &[&str]| {
        let mut command = Command::new(&other);
        command.args(args).env("JETFAULT_RESULTS", bench.results()).env("JETFAULT_LOCK_DIR", bench.dir.path());
        Said::of(&command.env("HOME", bench.dir.path()).output().unwrap())
    };
    run(&["resume"]).fails(2, &["another jetfault binary", "--accept-binary"]);
    assert!(!bench.journal("one-001").contains("\"what\":\"binary\""));
    let mut resumed = Command::new(&other);
    resumed.args(["resume", "--accept-binary"]).env("JETFAULT_RESULTS", bench.results());
    resumed.env("JETFAULT_LOCK_DIR", bench.dir.path()).env("HOME", bench.dir.path());
    let mut resumed = resumed.spawn().unwrap();
    bench.await_journal("one-001", |journal| journal.contains("\"what\":\"binary\""));
    resumed.kill().unwrap();
    resumed.wait().unwrap();
}
