//! Runs that change their machine and put it back, and start states: on the tree of an Orin Nano with programs of its
//! own in the place of the board's.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::bench::{Bench, matrix};
use crate::boards::assemble;

/// A board whose nvpmodel answers, notes every switch, and breaks the run if it is asked for the active mode.
struct Board {
    tree: TempDir,
}

impl Board {
    fn new(scenario: Option<&str>) -> Self {
        let tree = assemble("orin-nano-super-jp62", scenario);
        let root = tree.path().to_str().unwrap();
        let script = format!(
            "#!/bin/sh\n\
             name() {{ case $1 in 0) echo 15W;; 1) echo 25W;; 2) echo MAXN_SUPER;; esac; }}\n\
             case $1 in\n\
             -q) echo 'NVPM WARN: fan mode is not set!'; echo \"NV Power Mode: $(name $(cat {root}/id))\"; cat {root}/id;;\n\
             -m) echo $2 >> {root}/switches\n\
                 [ $2 = $(cat {root}/id) ] && echo active >> {root}/switches\n\
                 [ $2 = 3 ] && {{ echo 'NVPM WARN: Reboot required for changing to this power mode: 3'; exit 1; }}\n\
                 echo $2 > {root}/id;;\n\
             esac\n"
        );
        let path = tree.path().join("nvpmodel");
        // Written by another process: one that this process has open could not be executed while a thread forks.
        let write = "printf %s \"$1\" > \"$0\" && chmod +x \"$0\" && echo 2 > \"$(dirname \"$0\")/id\"";
        assert!(Command::new("sh").args(["-c", write]).arg(&path).arg(script).status().unwrap().success());
        Self { tree }
    }

    fn tools(&self) -> String {
        format!("[tools]\nnvpmodel = \"{}/nvpmodel\"\n", self.tree.path().display())
    }

    /// Boots the board: another boot id, and everything else as it is in the tree.
    fn boot(&self, number: u32) {
        let id = format!("{number:08x}-9e6f-4d8e-b4cd-0d9449a8b993\n");
        fs::write(self.tree.path().join("proc/sys/kernel/random/boot_id"), id).unwrap();
    }

    fn root(&self) -> &str {
        self.tree.path().to_str().unwrap()
    }

    fn id(&self) -> String {
        fs::read_to_string(self.tree.path().join("id")).unwrap().trim().to_owned()
    }

    /// The ids of all switches so far.
    fn switches(&self) -> Vec<String> {
        let text = fs::read_to_string(self.tree.path().join("switches")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A matrix of cold trials on whatever computes here: a trial that says it leaves the GPU alone spoils nothing.
fn cold(name: &str, trials: u32, more: &str) -> String {
    matrix(name, trials, &format!("start = \"cold\"\n{more}")).replace("\"cpu\"", "\"auto\"")
}

/// Trials of a run in the order of their starts, each with the power mode that was read back.
fn started(journal: &str) -> Vec<(String, String)> {
    let events = journal.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    events
        .filter(|record| record["event"]["started"].is_object())
        .map(|record| record["event"]["started"].clone())
        .map(|started| (word(&started["trial"]), word(&started["conditions"]["settings"]["power_mode"])))
        .collect()
}

#[test]
fn three_power_modes_are_switched_read_back_and_the_first_is_put_back() {
    let (bench, board) = (Bench::new(), Board::new(None));
    let modes =
        format!("power_mode = \"MAXN_SUPER\"\n[axes]\npower_mode = [\"25W\", \"15W\"]\nbatch = [2]\n{}", board.tools());
    let file = bench.write("modes.toml", &matrix("modes", 3, &modes));
    let arguments = ["run", &file, "--sysroot", board.root()];
    bench.run(&arguments).fails(2, &["switches its power mode", "--allow-power-mode"]);
    assert!(!bench.results().exists() && board.switches().is_empty(), "nothing was made and nothing changed");

    bench.run(&[&arguments[..], &["--allow-power-mode"]].concat()).ends(0);
    let journal = bench.journal("modes-001");
    let started = started(&journal);
    assert_eq!(started.len(), 12);
    let plan = fs::read_to_string(bench.results().join("modes-001/plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    for (trial, mode) in &started {
        let cells = plan["cells"].as_array().unwrap().iter();
        let cell = cells.clone().find(|cell| trial.starts_with(cell["id"].as_str().unwrap())).unwrap();
        assert_eq!(mode.split(' ').next(), cell["settings"]["power_mode"].as_str(), "{trial} ran in {mode}");
    }
    let switches = board.switches();
    assert!(!switches.contains(&"active".to_owned()), "the active mode is never set: {switches:?}");
    // Two cells share a mode and come together: at most one switch for each mode of a block, and one to go back.
    assert!(switches.len() <= 10, "{switches:?}");
    let sets = journal.matches("\"set\":{\"what\":\"power_mode\"").count();
    assert!((sets..=sets + 1).contains(&switches.len()), "{sets} records for {switches:?}");
    assert_eq!(journal.matches("\"restored\":{\"what\":\"power_mode\",\"value\":\"MAXN_SUPER (2)\"}").count(), 1);
    assert_eq!(board.id(), "2");
    let last = journal.lines().last().unwrap();
    assert!(last.contains("\"closed\""), "{last}");
}

#[test]
fn a_mode_is_put_back_after_the_harness_was_killed() {
    let (bench, board) = (Bench::new(), Board::new(None));
    let text = format!("power_mode = \"15W\"\n{}", board.tools());
    let file = bench.write("modes.toml", &matrix("modes", 1, &text));
    fs::create_dir_all(bench.path("tokens")).unwrap();
    let script = format!("stage A.copy; take {}; done", bench.path("tokens").display());
    let arguments = ["run", &file, "--sysroot", board.root(), "--allow-power-mode", "--script", &script];
    let mut harness = bench.spawn(&arguments);
    bench.await_journal("modes-001", |journal| journal.contains("\"stage\":\"A.copy\""));
    kill_process(Pid::from_child(&harness), Signal::KILL).unwrap();
    harness.wait().unwrap();
    assert_eq!(board.id(), "0", "nobody could put it back");
    bench.write("tokens/1", "");
    bench.run(&["resume", "--sysroot", board.root()]).ends(0);
    assert_eq!(board.id(), "2");
    let journal = bench.journal("modes-001");
    assert!(journal.contains("\"restored\":{\"what\":\"power_mode\",\"value\":\"MAXN_SUPER (2)\"}"), "{journal}");
    assert_eq!(board.switches(), ["0", "2"]);
}

#[test]
fn a_run_that_rests_leaves_the_machine_as_it_found_it() {
    let (bench, board) = (Bench::new(), Board::new(None));
    let text = format!("power_mode = \"15W\"\n{}", board.tools());
    let file = bench.write("modes.toml", &matrix("modes", 2, &text));
    fs::create_dir_all(bench.path("tokens")).unwrap();
    let script = format!("stage A.copy; take {}; done", bench.path("tokens").display());
    let arguments = ["run", &file, "--sysroot", board.root(), "--allow-power-mode", "--script", &script];
    let mut harness = bench.spawn(&arguments);
    bench.await_journal("modes-001", |journal| journal.contains("\"stage\":\"A.copy\""));
    bench.run(&["stop"]).ends(0);
    bench.write("tokens/1", "");
    harness.wait().unwrap();
    assert_eq!(board.id(), "2");
    bench.write("tokens/2", "");
    bench.run(&["resume", "--sysroot", board.root()]).ends(0);
    assert_eq!(board.switches(), ["0", "2", "0", "2"]);
}

#[test]
fn what_the_board_cannot_do_is_void_with_the_reason_before_anything_changes() {
    let (bench, board) = (Bench::new(), Board::new(None));
    let text = format!("[axes]\npower_mode = [\"7W\", \"MAXN\"]\n{}", board.tools());
    let file = bench.write("modes.toml", &matrix("modes", 1, &text));
    bench.run(&["run", &file, "--sysroot", board.root(), "--allow-power-mode"]).ends(3);
    let unknown = "power mode \"MAXN\" is none of this board's: 15W (0), 25W (1), MAXN_SUPER (2), 7W (3)";
    let journal = bench.journal("modes-001");
    assert!(journal.contains(&unknown.replace('"', "\\\"")), "{journal}");
    assert!(journal.contains("from MAXN_SUPER (2) to 7W (3) by a reboot, and this run may not reboot"), "{journal}");
    assert!(board.switches().is_empty());

    // Without a program in its place, the tree of another machine has no nvpmodel.
    let file = bench.write("bare.toml", &matrix("bare", 1, "power_mode = \"15W\"\n"));
    bench.run(&["run", &file, "--sysroot", board.root(), "--allow-power-mode"]).ends(3);
    assert!(bench.journal("bare-001").contains("nvpmodel is not run for the tree of another machine"));
}

#[test]
fn a_cold_trial_runs_in_a_cold_boot_with_its_proof_and_the_next_in_another() {
    let (bench, board) = (Bench::new(), Board::new(None));
    let file = bench.write("cold.toml", &cold("cold", 1, "[axes]\nbatch = [2]\n"));
    let arguments = ["run", &file, "--sysroot", board.root()];
    bench.run(&arguments).fails(2, &["reboots this machine", "--allow-reboot"]);
    assert!(!bench.results().exists(), "nothing was made");
    let said = bench.run(&[&arguments[..], &["--allow-reboot"]].concat());
    said.fails(3, &["reboot this machine, then `jetfault resume cold-001`"]);
    let journal = bench.journal("cold-001");
    assert_eq!(journal.matches("\"started\"").count(), 1, "one boot has one first use: {journal}");
    assert!(journal.contains("\"cold\":\"consistent\",\"rule\":\"no-trace\""), "{journal}");
    assert!(journal.lines().last().unwrap().contains("\"reboot_asked\""), "{journal}");
    // Another run in the same boot finds the mark.
    let other = bench.write("other.toml", &cold("other", 1, ""));
    let said = bench.run(&["run", &other, "--sysroot", board.root(), "--allow-reboot"]);
    said.fails(3, &["this boot does not pass for cold", "cold-001", "rule ours-before"]);
    assert!(!bench.journal("other-001").contains("\"started\""));

    board.boot(2);
    bench.run(&["resume", "cold-001", "--sysroot", board.root()]).ends(0);
    let journal = bench.journal("cold-001");
    assert_eq!(journal.matches("\"cold\":\"consistent\"").count(), 2, "{journal}");
    assert!(journal.contains("\"prior_end\":\"planned\""), "{journal}");
}

#[test]
fn a_trial_that_the_machine_is_not_fit_for_never_starts() {
    for (scenario, words) in [
        ("gpu-acr-dead", "\"rule\":\"gpu-dead\""),
        ("retry-counter-low", "retry-counter: slot A has 1 of 3 tries left"),
    ] {
        let (bench, board) = (Bench::new(), Board::new(Some(scenario)));
        let file = bench.write("any.toml", &matrix("any", 1, "").replace("\"cpu\"", "\"auto\""));
        bench.run(&["run", &file, "--sysroot", board.root()]).ends(3);
        let journal = bench.journal("any-001");
        assert!(journal.contains(words) && !journal.contains("\"started\""), "{scenario}: {journal}");
    }
}

#[test]
fn two_boots_in_a_row_that_are_not_cold_stop_the_run() {
    let (bench, board) = (Bench::new(), Board::new(Some("dirty-gpu-before-cold-cell")));
    let file = bench.write("cold.toml", &cold("cold", 9, ""));
    let said = bench.run(&["run", &file, "--sysroot", board.root(), "--allow-reboot"]);
    said.fails(3, &["this boot does not pass for cold", "ollama (1602)", "reboot this machine"]);
    for boot in 2..=3 {
        assert!(!bench.journal("cold-001").contains("\"closed\""));
        board.boot(boot);
        bench.run(&["resume", "--sysroot", board.root()]).ends(3);
    }
    let journal = bench.journal("cold-001");
    assert_eq!(journal.matches("\"rule\":\"not-cold\"").count(), 2, "{journal}");
    let last = journal.lines().last().unwrap();
    assert!(last.contains("\"stopped\"") && last.contains("2 boots in a row were not cold"), "{last}");
    assert!(!journal.contains("\"started\""), "{journal}");
}

#[test]
fn a_warm_trial_is_warmed_by_a_trial_that_is_not_counted() {
    let (bench, board) = (Bench::new(), Board::new(None));
    let file = bench.write("warm.toml", &matrix("warm", 2, "start = \"warm\"\n"));
    let said = bench.run(&["run", &file, "--sysroot", board.root(), "--script", "done"]);
    said.ends(0);
    assert!(said.says("0/2"), "{}", said.out);
    let journal = bench.journal("warm-001");
    let roles: Vec<&str> = journal
        .lines()
        .filter(|line| line.contains("\"started\""))
        .map(|line| match line.contains("\"role\":\"warming\"") {
            true => "warming",
            false => "sample",
        })
        .collect();
    // The cell computes on the CPU: on a board with a GPU its trials warm nothing, and do not have to.
    assert_eq!(roles, ["warming", "sample", "sample"]);
    assert_eq!(journal.matches("\"warmed_by\"").count(), 2, "{journal}");
    assert_eq!(bench.results_of("warm-001").len(), 3);
    let plan = bench.run(&["plan", &file]);
    assert!(plan.says("warming") && plan.says("256x256"), "{}", plan.out);
}

#[test]
fn the_matrices_of_cold_starts_say_what_they_take_and_run_only_with_it() {
    let bench = Bench::new();
    let board = Board::new(None);
    let on_board = ["--sysroot", board.root()];
    for (matrix, boots) in [("cold-start", "24"), ("power-modes", "27")] {
        let plan = bench.run(&["plan", matrix]);
        plan.ends(0);
        for words in [boots, "--allow-reboot --allow-power-mode", "one for each cold trial"] {
            assert!(plan.says(words), "{words:?} is not in\n{}", plan.out);
        }
        let run = |allow: &[&str]| bench.run(&[&["run", matrix][..], &on_board, allow].concat());
        run(&["--allow-reboot"]).fails(2, &["switches its power mode", "--allow-power-mode"]);
        run(&[]).fails(2, &["--allow-reboot --allow-power-mode"]);
        bench.run(&["run", matrix]).fails(2, &["reboots this machine", "--allow-reboot"]);
    }
    assert!(!bench.results().exists(), "nothing was made");
}
