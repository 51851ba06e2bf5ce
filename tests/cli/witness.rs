//! What a desk sees of boards that die, and what becomes of it: files on the desk, records on the board, verdicts.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bench::{PATIENCE, Said, matrix};
use crate::fleet::{Follower, Lab};

const BOOT_1: &str = "00000001-9e6f-4d8e-b4cd-0d9449a8b993";

/// Reads `path` until it is as wanted.
#[track_caller]
fn await_file(path: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if wanted(&text) {
            return text;
        }
        if Instant::now() > until {
            let telling: Vec<&str> = text.lines().filter(|line| !line.contains("\"alive\"")).collect();
            panic!("what was waited for never came to {}:\n{}", path.display(), telling.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn append(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Begins a run of one trial that goes on for ever, limited to `timeout`, and waits until it is open.
fn begin(lab: &Lab, timeout: &str) {
    let text = matrix("away", 1, "").replace("settle", &format!("timeout = \"{timeout}\"\nsettle"));
    let file = lab.bench.write("away.toml", &text);
    lab.fleet(&["run", &file, "--script", "stage A.copy; sleep 600000; done"]).ends(3);
    await_file(&lab.journal("orin-1"), |journal| journal.contains("\"stage\":\"A.copy\""));
}

fn witness_file(lab: &Lab) -> PathBuf {
    lab.bench.path("fleet-results/orin-1/witness/away-001.jsonl")
}

/// What takes a board down: whatever runs there is gone.
const DIE: &str = "kill -KILL $(sed -n 's/^pid \\([0-9]*\\).*/\\1/p' .jetfault/results/.lock)";

/// What the boot service does.
const RESUME: &str = ".jetfault/bin/jetfault --results .jetfault/results resume";

/// The board is gone, and nobody is let in.
fn die(lab: &Lab) {
    assert!(lab.on_board("orin-1", DIE).status().unwrap().success());
    lab.fault("orin-1", "refused");
}

/// It comes up in boot 2, and the boot service goes on with the run.
fn come_back(lab: &Lab) -> std::process::Child {
    lab.boot("orin-1", 2);
    lab.fault("orin-1", "");
    lab.on_board("orin-1", RESUME).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn explain(lab: &Lab) -> Said {
    let run = lab.journal("orin-1").parent().unwrap().display().to_string();
    lab.bench.run(&["explain", &run, "baseline"])
}

/// A console that a test writes to.
const CONSOLE: &str = "serial = [\"tail\", \"-n\", \"+1\", \"-f\", \"console\"]";

#[test]
fn the_last_lines_of_kernel_and_console_join_the_verdict_of_the_boot_that_ended() {
    let lab = Lab::new(&["orin-1"], CONSOLE);
    let (console, kmsg) = (lab.bench.path("console"), lab.tree("orin-1").join("dev/kmsg"));
    append(&console, "");
    append(&kmsg, "6,1,1000,-;before anybody listened\n");
    begin(&lab, "10m");
    let mut follower = Follower::of(&lab);
    follower.hears(&format!("connected, in boot {BOOT_1}"));
    await_file(&witness_file(&lab), |text| text.contains("A.copy"));
    append(&kmsg, "4,2,2000,-;nvgpu: 17000000.gpu: a line of the kernel\n");
    await_file(&witness_file(&lab), |text| text.contains("a line of the kernel"));
    append(&console, "Kernel panic - not syncing: Asynchronous SError Interrupt\n");
    await_file(&witness_file(&lab), |text| text.contains("not syncing"));
    die(&lab);
    lab.cut("orin-1");
    follower.hears("connection lost");
    await_file(&witness_file(&lab), |text| text.contains("refuses-ssh"));
    let mut service = come_back(&lab);
    follower.hears("rebooted: boot 00000001-");
    follower.hears("it was told what was seen: it ended while a trial was open, unreachable for ");
    follower.hears("seen from outside by ");
    follower.hears("baseline r001: reboot");
    follower.hears("over: ");
    service.wait().unwrap();
    let said = explain(&lab);
    for words in [
        "Kernel panic - not syncing: Asynchronous SError Interrupt",
        "a line of the kernel",
        "it refused ssh",
        "A.copy",
        "unreachable for",
    ] {
        assert!(said.says(words), "{words}:\n{}", said.out);
    }
    let witnessed = fs::read_to_string(witness_file(&lab)).unwrap();
    assert!(!witnessed.contains("before anybody listened"), "{witnessed}");
    let journal = fs::read_to_string(lab.journal("orin-1")).unwrap();
    assert_eq!(journal.matches("\"observed\":{").count(), 1, "{journal}");
    // What was seen came in time: one verdict.
    assert_eq!(journal.matches("\"judged\":{").count(), 1, "{journal}");
    let run = lab.journal("orin-1").parent().unwrap().display().to_string();
    let html = lab.bench.run(&["report", &run, "--format", "html"]);
    assert!(html.out.contains("seen from outside") && html.out.contains("SError"), "{}", html.out);
}

#[test]
fn a_board_that_hangs_is_power_cycled_and_its_trial_is_a_hang() {
    let lab = Lab::new(&["orin-1"], "power_cycle = [\"./hook\"]\nhang_after = \"1s\"");
    let tree = lab.tree("orin-1");
    let ssh = lab.bench.path("ssh").display().to_string();
    // The board comes up in another boot, and its boot service goes on.
    lab.program(
        "hook",
        &format!(
            "#!/bin/sh\necho cut >> {0}/cuts\necho 00000002-9e6f-4d8e-b4cd-0d9449a8b993 > {1}/proc/sys/kernel/random/boot_id\n\
             : > {0}/orin-1/fault\nsetsid sh {ssh} -oBatchMode=yes -- orin-1 '{RESUME}' >/dev/null 2>&1 </dev/null &\n",
            lab.bench.dir.path().display(),
            tree.display()
        ),
    );
    begin(&lab, "5s");
    // Without a word on the command line nothing is cut.
    let mut follower = Follower::with(&lab, &["--allow-power-cycle"]);
    follower.hears("connected");
    await_file(&witness_file(&lab), |text| text.contains("A.copy"));
    die(&lab);
    lab.cut("orin-1");
    follower.hears("connection lost");
    follower.hears("hangs: silent for ");
    follower.hears("rebooted: boot 00000001-");
    follower.hears("it was told what was seen: it hung, unreachable for ");
    follower.hears("baseline r001: hang");
    follower.hears("over: ");
    assert_eq!(follower.child.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_to_string(lab.bench.path("cuts")).unwrap(), "cut\n");
    let said = explain(&lab);
    for words in ["hang", "needs-power-cycle", "power cycled by desk ", "because it hung"] {
        assert!(said.says(words), "{words}:\n{}", said.out);
    }
    assert!(!said.says("power loss"), "{}", said.out);
}

#[test]
fn a_desk_that_is_ended_and_begun_again_tells_the_board_what_the_one_before_saw_and_once() {
    let lab = Lab::new(&["orin-1"], CONSOLE);
    let console = lab.bench.path("console");
    append(&console, "");
    begin(&lab, "10m");
    let mut first = Follower::of(&lab);
    first.hears("connected");
    append(&console, "the last words of the board\n");
    await_file(&witness_file(&lab), |text| text.contains("last words") && text.contains("A.copy"));
    die(&lab);
    lab.cut("orin-1");
    first.hears("connection lost");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let mut service = come_back(&lab);
    // Nobody tells it anything, and it waits for who watched.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!fs::read_to_string(lab.journal("orin-1")).unwrap().contains("\"judged\":{"));
    let mut second = Follower::of(&lab);
    second.hears("it was told what was seen");
    second.hears("over: ");
    assert!(service.wait().unwrap().code().is_some());
    let mut third = Follower::of(&lab);
    third.hears("over: ");
    third.child.wait().unwrap();
    assert!(!third.said.contains("it was told"), "{}", third.said);
    let journal = fs::read_to_string(lab.journal("orin-1")).unwrap();
    assert_eq!(journal.matches("\"observed\":{").count(), 1, "{journal}");
    let said = explain(&lab);
    assert!(said.says("the last words of the board"), "{}", said.out);
}

#[test]
fn a_verdict_that_was_given_too_early_is_given_again_and_told_once() {
    let lab = Lab::new(&["orin-1"], "");
    let text = matrix("away", 2, "");
    let file = lab.bench.write("away.toml", &text);
    lab.fleet(&["run", &file, "--script", "stage A.copy; sleep 600000; done"]).ends(3);
    await_file(&lab.journal("orin-1"), |journal| journal.contains("\"stage\":\"A.copy\""));
    die(&lab);
    // Nobody watched: the verdict does not wait, and the next trial begins.
    let mut service = come_back(&lab);
    await_file(&lab.journal("orin-1"), |journal| {
        journal.contains("r002") || journal.matches("\"started\":{").count() == 2
    });
    let cut = |stage: &str| {
        format!(
            "{{\"witness\":\"desk-1\",\"what\":\"it did not answer before\",\"boot\":\"{BOOT_1}\",\
             \"power\":{{\"by\":\"hang\",\"stage\":\"{stage}\",\"wall\":\"2026-05-02T10:00:00.000Z\"}}}}"
        )
    };
    let observe = |json: &str| {
        let path = lab.bench.write("observed", json);
        let mut command = lab.on_board("orin-1", ".jetfault/bin/jetfault --results .jetfault/results observe");
        Said::of(&command.stdin(fs::File::open(path).unwrap()).output().unwrap())
    };
    observe(&cut("done")).ends(0);
    observe(&cut("done")).ends(0);
    observe("{\"witness\":1}").fails(2, &["standard input is no observation"]);
    observe(&format!("{{\"witness\":\"{}\"}}", "x".repeat(200_000))).fails(2, &["more than 131072 bytes"]);
    // The harness takes it in when it is between two trials: this one is ended.
    lab.fleet(&["stop"]).ends(0);
    lab.on_board("orin-1", DIE).status().unwrap();
    service.wait().unwrap();
    lab.boot("orin-1", 3);
    let mut service = lab.on_board("orin-1", RESUME).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = await_file(&lab.journal("orin-1"), |journal| journal.contains("\"corrects\":\"reboot\""));
    assert_eq!(journal.matches("\"observed\":{").count(), 1, "{journal}");
    let path = lab.journal("orin-1");
    let run = path.parent().unwrap();
    let mut result = fs::read_dir(run.join("trials")).unwrap().map(|entry| entry.unwrap().path().join("result.json"));
    let first = result.find(|path| path.display().to_string().contains("r001-a1")).unwrap();
    await_file(&first, |json| json.contains("\"verdict\": \"hang\"") && json.contains("\"corrects\": \"reboot\""));
    let trial = first.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let said = lab.bench.run(&["explain", &run.display().to_string(), &trial]);
    for words in ["hang", "verdict before", "reboot, until it was known", "power cycled by desk desk-1"] {
        assert!(said.says(words), "{words}:\n{}", said.out);
    }
    assert!(!said.says("this build"), "its own table gives the row that was recorded:\n{}", said.out);
    let _ = service.kill();
    let _ = service.wait();
}

#[test]
fn a_person_who_cuts_the_power_makes_no_fault() {
    let lab = Lab::new(&["orin-1"], "power_cycle = [\"./hook\"]");
    let tree = lab.tree("orin-1");
    let dir = lab.bench.dir.path().display().to_string();
    lab.program(
        "hook",
        &format!(
            "#!/bin/sh\n(cd {dir}/orin-1 && {DIE})\n\
             echo 00000002-9e6f-4d8e-b4cd-0d9449a8b993 > {}/proc/sys/kernel/random/boot_id\n",
            tree.display()
        ),
    );
    begin(&lab, "10m");
    let said = lab.fleet(&["power-cycle", "--patience", "20"]);
    assert!(said.ends(0).out.contains("power cycled: boot 00000001-"), "{}", said.out);
    let mut service = come_back(&lab);
    let journal = await_file(&lab.journal("orin-1"), |journal| journal.contains("\"judged\":{"));
    assert!(journal.contains("\"verdict\":\"operator\"") && journal.contains("power cut by a person"), "{journal}");
    let said = explain(&lab);
    assert!(said.says("power cycled by a person at desk"), "{}", said.out);
    let _ = service.kill();
    let _ = service.wait();
}
