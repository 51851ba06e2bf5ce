//! A matrix divided over boards that are played by a program in the place of ssh.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::bench::{PATIENCE, Said, matrix};
use crate::fleet::Lab;

const TWO_CELLS: &str = "[axes]\nbatch = [2]\n";

/// Boards that are given up after three seconds.
fn lab(names: &[&str], more: &str) -> Lab {
    let lab = Lab::new(names, more);
    say_of_all(&lab, "[fleet]\npatience = \"3s\"\n");
    lab
}

/// Puts `text` at the beginning of the inventory.
fn say_of_all(lab: &Lab, text: &str) {
    let inventory = fs::read_to_string(lab.bench.path("fleet.toml")).unwrap();
    lab.bench.write("fleet.toml", &format!("{text}{inventory}"));
}

/// The command that divides `trials` trials of each of two cells, each played by `script`.
fn spread<'a>(file: &'a str, script: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", file, "--spread", "--script", script], more].concat()
}

/// The journals of the runs of board `name`, by their ids.
fn journals(lab: &Lab, name: &str) -> BTreeMap<String, String> {
    let results = lab.bench.path(name).join(".jetfault/results");
    let Ok(entries) = fs::read_dir(results) else { return BTreeMap::new() };
    let runs = entries.map(|entry| entry.unwrap().path());
    let journal = |path: &std::path::PathBuf| fs::read_to_string(path.join("journal.jsonl")).ok();
    runs.filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), journal(&path)?))).collect()
}

/// Passes in the runs of board `name`, a number for each cell.
fn judged(lab: &Lab, name: &str) -> BTreeMap<String, u32> {
    let mut judged = BTreeMap::new();
    for line in journals(lab, name).values().flat_map(|journal| journal.lines()) {
        // The last line may be half written.
        let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
        let judged_now = &record["event"]["judged"];
        if let (Some(trial), "pass") =
            (judged_now["trial"].as_str(), judged_now["judgement"]["verdict"].as_str().unwrap_or(""))
        {
            *judged.entry(trial[..18].to_owned()).or_default() += 1;
        }
    }
    judged
}

fn total(lab: &Lab, name: &str) -> u32 {
    judged(lab, name).values().sum()
}

#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never came");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Ends everything that runs on board `name`, as a power cut does, and lets nobody reach it any more.
fn die(lab: &Lab, name: &str) {
    lab.fault(name, "refused");
    let home = format!("HOME={}", lab.bench.path(name).display());
    let is_there = |environ: &[u8]| environ.split(|byte| *byte == 0).any(|word| word == home.as_bytes());
    // A process may be started by one that is about to be ended.
    for _ in 0..3 {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let is_process = entry.file_name().as_bytes().iter().all(u8::is_ascii_digit);
            if is_process && fs::read(entry.path().join("environ")).is_ok_and(|environ| is_there(&environ)) {
                let _ = Command::new("kill").arg("-KILL").arg(entry.file_name()).status();
            }
        }
    }
}

fn follow(lab: &Lab, args: &[&str]) -> Child {
    lab.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> Said {
    Said::of(&child.wait_with_output().unwrap())
}

#[test]
fn blocks_are_divided_called_again_nothing_is_doubled_and_a_larger_number_adds_the_difference() {
    let lab = lab(&["orin-1", "orin-2"], "");
    let file = lab.bench.write("away.toml", &matrix("away", 5, TWO_CELLS));
    // The desk is gone after every order, and comes again in the middle.
    let begun = lab.fleet(&spread(&file, "sleep 300; done", &[]));
    begun.ends(3);
    assert!(
        begun.out.contains("in all: 0 of 10 trials counted; 10 expected of boards that have them"),
        "{}",
        begun.out
    );
    lab.fleet(&spread(&file, "sleep 300; done", &[])).ends(3);
    let mut killed = follow(&lab, &spread(&file, "sleep 300; done", &["--follow"]));
    wait_until(|| total(&lab, "orin-1") > 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let done = lab.fleet(&spread(&file, "sleep 300; done", &["--follow"]));
    assert!(done.ends(0).out.contains("in all: 10 of 10 trials counted\n"), "{}", done.out);
    let blocks = |name: &str| judged(&lab, name).into_values().collect::<Vec<_>>();
    assert_eq!((blocks("orin-1"), blocks("orin-2")), (vec![3, 3], vec![2, 2]));
    for name in ["orin-1", "orin-2"] {
        assert_eq!(journals(&lab, name).len(), 1, "{name}");
    }
    let again = lab.fleet(&spread(&file, "done", &[]));
    assert!(again.ends(0).out.contains("in all: 10 of 10 trials counted\n"), "{}", again.out);
    // Two blocks more than there were: one for each.
    let more = lab.fleet(&spread(&file, "done", &["--trials", "7", "--follow"]));
    assert!(more.ends(0).out.contains("in all: 14 of 14 trials counted\n"), "{}", more.out);
    assert_eq!((blocks("orin-1"), blocks("orin-2")), (vec![4, 4], vec![3, 3]));
    // The same division anew.
    let anew = lab.fleet(&spread(&file, "done", &["--new", "--follow"]));
    assert!(anew.ends(0).out.contains("in all: 10 of 10 trials counted\n"), "{}", anew.out);
    assert_eq!((blocks("orin-1"), blocks("orin-2")), (vec![7, 7], vec![5, 5]));
}

#[test]
fn the_blocks_of_a_board_that_dies_end_elsewhere_and_what_was_pulled_of_it_counts() {
    let lab = lab(&["orin-1", "orin-2"], "");
    let file = lab.bench.write("away.toml", &matrix("away", 6, TWO_CELLS));
    let desk = follow(&lab, &spread(&file, "sleep 400; done", &["--follow"]));
    wait_until(|| total(&lab, "orin-2") > 1);
    lab.fleet(&["pull", "--board", "orin-2"]).ends(0);
    let copy = lab.bench.path("fleet-results/orin-2/away-001/journal.jsonl");
    die(&lab, "orin-2");
    let said = end(desk);
    assert!(said.ends(0).out.contains("in all: 12 of 12 trials counted\n"), "{}\n{}", said.out, said.err);
    assert!(said.err.contains("orin-2: error: unreachable"), "{}", said.err);
    // What the desk has of the dead board, and all of the other: exactly what was asked for.
    let pulled = fs::read_to_string(copy).unwrap().matches("\"verdict\":\"pass\"").count();
    assert!(pulled > 0 && total(&lab, "orin-1") as usize + pulled == 12, "{pulled} and {:?}", judged(&lab, "orin-1"));
    assert_eq!(journals(&lab, "orin-1").len(), 2, "its own share, and one of what was left");
    // It comes back late: what it has is more than was asked for, and is kept.
    lab.fault("orin-2", "");
    let late = lab.fleet(&spread(&file, "sleep 1; done", &["--follow"]));
    assert!(late.ends(0).out.contains("in all: 12 of 12 trials counted\n"), "{}", late.out);
    assert_eq!(total(&lab, "orin-2"), 6, "it finishes its share");
    lab.fleet(&["pull"]).ends(0);
    let joined = lab.fleet(&["report", "away", "--format", "json"]);
    let joined: Value = serde_json::from_str(&joined.ends(0).out).unwrap();
    let counted: u64 = joined["runs"].as_array().unwrap().iter().map(|run| run["counted"].as_u64().unwrap()).sum();
    assert_eq!(counted, u64::from(total(&lab, "orin-1") + total(&lab, "orin-2")), "0 lost");
    assert_eq!(joined["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn an_unfit_board_is_set_aside_and_a_person_who_stops_is_not_overruled() {
    let lab = lab(&["orin-1", "orin-2"], "");
    let file = lab.bench.write("away.toml", &matrix("away", 4, ""));
    lab.bench.write("orin-2/.jetfault/results/STOP", "");
    let said = lab.fleet(&spread(&file, "done", &["--follow"]));
    assert!(said.ends(0).out.contains("in all: 4 of 4 trials counted\n"), "{}", said.out);
    assert!(said.err.contains("orin-2: error: ") && said.err.contains("forbids to start anything"), "{}", said.err);
    assert_eq!((total(&lab, "orin-1"), total(&lab, "orin-2")), (4, 0));
    fs::remove_file(lab.bench.path("orin-2/.jetfault/results/STOP")).unwrap();

    let slow = lab.bench.write("slow.toml", &matrix("slow", 8, ""));
    let desk = follow(&lab, &spread(&slow, "sleep 500; done", &["--follow"]));
    wait_until(|| total(&lab, "orin-2") > 0);
    lab.fleet(&["stop", "--board", "orin-2"]).ends(0);
    let said = end(desk);
    assert!(said.ends(3).out.contains("orin-2: its share rests"), "{}", said.out);
    assert_eq!(total(&lab, "orin-1"), 4 + 4, "nobody else got it");
    let said = lab.fleet(&spread(&slow, "sleep 500; done", &["--follow"]));
    assert!(said.ends(0).out.contains("in all: 8 of 8 trials counted\n"), "{}", said.out);
    assert_eq!((total(&lab, "orin-1"), total(&lab, "orin-2")), (8, 4));
}

#[test]
fn cells_stay_where_their_tag_is_and_what_cannot_be_divided_is_refused() {
    let lab = Lab::new(&["orin-1", "orin-2"], "");
    let text = fs::read_to_string(lab.bench.path("fleet.toml")).unwrap();
    let text = text.replace("host = \"orin-2\"", "host = \"orin-2\"\ntags = [\"jp62\"]");
    lab.bench.write("fleet.toml", &format!("{text}[[cells]]\ncell = \"batch=2\"\ntag = \"jp62\"\n"));
    let file = lab.bench.write("away.toml", &matrix("away", 4, TWO_CELLS));
    lab.fleet(&spread(&file, "done", &["--follow"])).ends(0);
    let blocks = |name: &str| judged(&lab, name).into_values().collect::<Vec<_>>();
    let mut second = blocks("orin-2");
    second.sort_unstable();
    assert_eq!((blocks("orin-1"), second), (vec![2], vec![2, 4]));

    let undecided = matrix("open", 4, "").replace("trials = 4", "trials = \"until-decided\"");
    let undecided = lab.bench.write("open.toml", &undecided);
    lab.fleet(&spread(&undecided, "done", &[])).fails(2, &["they cannot be divided", "hint: --trials N divides"]);
    // No board is left that has the tag.
    let only = lab.fleet(&spread(&file, "done", &["--new", "--board", "orin-1", "--follow"]));
    only.fails(3, &["4 trials of 1 cell stay without a board"]);
}

#[test]
fn a_joined_report_has_each_device_for_itself_and_together_only_where_no_test_tells_them_apart() {
    let lab = Lab::new(&["orin-1", "orin-2"], "");
    let file = lab.bench.write("away.toml", &matrix("away", 8, ""));
    // Counted by hand: eight faults of eight on the one, none of eight on the other.
    lab.fleet(&["run", &file, "--follow", "--board", "orin-1", "--script", "exit 3"]).ends(1);
    lab.fleet(&["run", &file, "--follow", "--board", "orin-2", "--script", "done"]).ends(0);
    lab.fleet(&["pull"]).ends(0);
    let said = lab.fleet(&["report"]);
    said.ends(1);
    for words in [
        "2 runs on 2 devices, 16 counted trials",
        "orin-1 8/8 63.1–100 %",
        "orin-2 0/8 at most 31.2 %",
        "together – – simulated, devices differ, p = 1.6e-4",
        "baseline: differs between devices (exact p = 1.6e-4): no rate in common",
    ] {
        assert!(said.says(words), "{words:?} is not in\n{}", said.out);
    }
    assert!(!said.out.contains("8/16"), "{}", said.out);
    let runs = ["orin-1", "orin-2"].map(|name| lab.bench.path(&format!("fleet-results/{name}/away-001")));
    let [one, other] = runs.each_ref().map(|path| path.to_str().unwrap());
    let joined = |more: &[&str]| lab.bench.run(&[&["report", "--joined", one, other], more].concat());
    let json: Value = serde_json::from_str(&joined(&["--format", "json"]).out).unwrap();
    assert_eq!(json["cells"][0]["together"][0]["finding"], "differs");
    assert!(json["cells"][0]["together"][0].get("rate").is_none());
    let csv = joined(&["--format", "csv"]).out;
    assert_eq!(csv.lines().count(), 1 + 16);
    assert_eq!((csv.matches(",orin-1,").count(), csv.matches(",orin-2,").count()), (8, 8));
    let xml = joined(&["--format", "junit"]).out;
    assert!(xml.contains("name=\"orin-1 away-001: baseline\""), "{xml}");
    let md = joined(&["--format", "md"]).out;
    assert!(md.contains("| `baseline` | `orin-1` | 8/8 |"), "{md}");
    lab.bench.run(&["report", "--joined", one, one]).fails(2, &["is there twice", "counted twice"]);

    // A device is a factor: the blocks of two devices are no blocks of one, and it is guarded against.
    let compared = lab.bench.run(&["compare", one, other, "--axis", "device", "--format", "json"]);
    let compared: Value = serde_json::from_str(&compared.out).unwrap();
    assert_eq!(compared["comparisons"][0]["tests"]["blocks"], 0, "{compared}");
    lab.bench.run(&["compare", one, other, "--axis", "run"]).fails(2, &["away-001", "--axis device"]);
}

#[test]
fn a_level_that_only_one_device_tried_is_confounded_and_levels_that_both_tried_are_compared_within_each() {
    let lab = Lab::new(&["orin-1", "orin-2"], "");
    let file = lab.bench.write("away.toml", &matrix("away", 6, TWO_CELLS));
    let run = |board: &str, script: &str, cell: &[&str]| {
        let args = [&["run", &file, "--new", "--follow", "--board", board, "--script", script], cell].concat();
        lab.fleet(&args);
    };
    run("orin-1", "exit 3", &["--cell", "baseline"]);
    run("orin-2", "done", &["--cell", "batch=2"]);
    run("orin-1", "done", &[]);
    run("orin-2", "done", &[]);
    lab.fleet(&["pull"]).ends(0);
    let path = |board: &str, n: u32| lab.bench.path(&format!("fleet-results/{board}/away-00{n}")).display().to_string();
    let compare = |one: &str, other: &str| {
        let said = lab.bench.run(&["compare", one, other, "--axis", "batch", "--format", "json"]);
        serde_json::from_str::<Value>(&said.out).unwrap_or_else(|_| panic!("{}", said.err))["comparisons"][0].clone()
    };
    let apart = compare(&path("orin-1", 1), &path("orin-2", 1));
    assert_eq!(apart["conclusion"], "CONFOUNDED", "{apart}");
    assert!(apart["headline"].as_str().unwrap().contains("device"), "{}", apart["headline"]);
    let within = compare(&path("orin-1", 2), &path("orin-2", 2));
    assert_ne!(within["conclusion"], "CONFOUNDED");
    assert_eq!(within["strata"].as_array().unwrap().len(), 2, "{within}");
    // Blocks are those of one device: together they are as many as in each by itself.
    let alone = |board: &str| {
        let said = lab.bench.run(&["compare", &path(board, 2), "--axis", "batch", "--format", "json"]);
        serde_json::from_str::<Value>(&said.out).unwrap()["comparisons"][0]["tests"]["blocks"].as_u64().unwrap()
    };
    let blocks = within["tests"]["blocks"].as_u64().unwrap();
    assert!(blocks > 0 && blocks == alone("orin-1") + alone("orin-2"), "{within}");
}
