//! Commands that read: plan, report, status, explain; formats, pipes, colours.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use crate::bench::{Bench, matrix};

#[test]
fn the_plan_of_the_seed_has_its_cells_and_their_memory() {
    let bench = Bench::new();
    let said = bench.run(&["plan", "bnb-1936", "--format", "json"]);
    said.ends(0);
    let plan: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let peak = |label: &str| {
        let cells = plan["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["label"] == label).unwrap_or_else(|| panic!("no cell {label}"));
        cell["predicted"]["host_plus_reserved_bytes"].as_u64().unwrap()
    };
    assert_eq!(peak("baseline"), 7_089_422_336);
    assert_eq!(peak("hygiene=after:A"), 6_883_901_440);
    assert_eq!(peak("sequence=BAC"), 6_816_792_576);
    assert_eq!(peak("sequence=CBA"), 4_913_627_136);
    assert_eq!(peak("batch=2"), 8_408_530_944);
    let text = bench.run(&["plan", "bnb-1936"]);
    text.ends(0);
    for megabytes in ["7089.4", "6883.9", "6816.8", "4913.6", "8408.5"] {
        assert!(text.says(megabytes), "{megabytes} is not in\n{}", text.out);
    }
    assert!(!bench.results().exists(), "plan writes nothing");
}

#[test]
fn every_format_of_every_reader_works_on_one_run() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 2, "[axes]\nbatch = [2]\n"));
    bench.run(&["run", &file]).ends(0);
    let report = bench.run(&["report"]);
    report.ends(0);
    assert!(report.says("0/2") && report.out.contains('%'), "a rate with its interval: {}", report.out);
    assert!(report.out.is_ascii() || !report.out.contains('\u{1b}'), "no colours into a pipe");
    assert!(bench.run(&["report", "--color", "always"]).out.contains('\u{1b}'));
    let markdown = bench.run(&["report", "two", "--format", "md"]);
    assert!(markdown.ends(0).says("| "), "{}", markdown.out);
    for command in [&["report"][..], &["status"][..]] {
        let said = bench.run(&[command, &["--format", "json"]].concat());
        let json: serde_json::Value = serde_json::from_str(&said.ends(0).out).unwrap();
        assert!(json["schema"].as_str().unwrap().starts_with("jetfault."), "{json}");
    }
    let trial = &bench.results_of("two-001")[0].0;
    let explained = bench.run(&["explain", trial]);
    assert!(explained.ends(0).says("pass"), "{}", explained.out);
    bench.run(&["explain", "two-001", "c-nothing"]).fails(2, &["no trial"]);
    bench.run(&["report", "three"]).fails(2, &["no run three", "hint"]);
}

#[test]
fn a_run_is_found_from_another_directory_by_the_index() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 1, ""));
    bench.run(&["run", &file]).ends(0);
    let mut command = bench.command(&["report", "two-001"]);
    command.env_remove("JETFAULT_RESULTS").current_dir("/");
    assert!(command.status().unwrap().success());
}

#[test]
fn a_person_who_names_a_results_directory_never_gets_a_run_of_another() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 1, ""));
    bench.run(&["run", &file]).ends(0);
    let other = bench.path("other");
    let other = other.to_str().unwrap();
    for command in [&["status"][..], &["report", "two"], &["resume"], &["stop", "two-001"]] {
        bench.run(&[command, &["--results", other]].concat()).fails(2, &["error: no run", other, "hint"]);
    }
}

#[test]
fn trials_are_found_by_the_label_of_their_cell() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 2, "[axes]\nbatch = [2]\n"));
    bench.run(&["run", &file]).ends(0);
    let several = bench.run(&["explain", "batch=2"]);
    several.ends(0);
    for words in ["2 trials in two-001", "-r001-a1  batch=2: pass", "-r002-a1  batch=2: pass"] {
        assert!(several.err.contains(words), "{words:?} is not in\n{}", several.err);
    }
    assert!(several.says("batch=2, round 1"), "{}", several.out);
    bench.run(&["explain", "c-"]).fails(2, &["any of 4 trials of two-001"]);
    bench.run(&["run", &file, "--trials", "1"]).ends(0);
    assert!(bench.run(&["explain", "baseline"]).ends(0).says("baseline, round 1"));
}

#[test]
fn a_plan_says_beforehand_what_will_be_void() {
    let bench = Bench::new();
    let file = bench.write("after.toml", &matrix("after", 1, "quant = \"mxfp4\"\n"));
    let said = bench.run(&["plan", &file]);
    let said = said.ends(0);
    assert!(said.says("void here") && said.says("mxfp4"), "{}", said.out);
}

#[test]
fn without_a_word_it_says_where_one_is_and_what_comes_next() {
    let bench = Bench::new();
    let fresh = bench.run(&[]);
    fresh.ends(0);
    assert!(fresh.out.starts_with("jetfault ") && fresh.says("jetfault --help"), "{}", fresh.out);
    assert!(!bench.results().exists(), "it makes nothing");
    let file = bench.write("two.toml", &matrix("two", 2, "[axes]\nbatch = [2]\n"));
    bench.run(&["run", &file, "--script", "exit 3"]).ends(1);
    let after = bench.run(&[]);
    after.ends(0);
    assert!(after.says("two-001: complete") && after.says("jetfault explain two-001 c-"), "{}", after.out);
    assert!(after.says("simulated: ") && after.out.lines().count() <= 10, "{}", after.out);
    // Whatever is wrong, it says so and ends well.
    let damaged = bench.journal("two-001").replacen("\"seq\":2", "\"seq\":3", 1);
    std::fs::write(bench.results().join("two-001/journal.jsonl"), damaged).unwrap();
    let damaged = bench.run(&[]);
    damaged.ends(0);
    assert!(damaged.says("`jetfault report` says why"), "{}", damaged.out);
    let nowhere = bench.run(&["--results", "/dev/null/x", "--sysroot", "/nowhere"]);
    assert!(nowhere.ends(0).out.lines().count() <= 10, "{}", nowhere.out);
}

#[test]
fn a_followed_run_is_told_line_by_line_into_a_pipe() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 3, ""));
    bench.run(&["run", &file, "--script", "sleep 1500; exit 3", "--trials", "1"]).ends(1);
    let over = bench.run(&["status", "--follow"]);
    assert_eq!(over.ends(0).out.trim(), "two-001: complete, 1 of 1 counted");
    let mut run = bench.spawn(&["run", &file, "--new", "--script", "sleep 1500; exit 3"]);
    bench.await_journal("two-002", |journal| journal.contains("started"));
    let followed = bench.run(&["status", "two-002", "--follow"]);
    run.wait().unwrap();
    let lines: Vec<&str> = followed.ends(0).out.lines().collect();
    assert!(lines[0].starts_with("two-002: open"), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.contains("baseline r003: error") && line.contains("3 of 3 counted, 3 faults")),
        "{lines:#?}"
    );
    assert_eq!(*lines.last().unwrap(), "two-002: complete, 3 of 3 counted", "{lines:#?}");
    let json = bench.run(&["status", "two-002", "--follow", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_str(json.ends(0).out.trim()).unwrap();
    assert_eq!(status["schema"], "jetfault.status/1");
}

#[test]
fn a_bug_report_hides_names_unless_it_is_told_not_to() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 2, ""));
    bench.run(&["run", &file, "--script", "exit 3", "--device", "neils-orin"]).ends(1);
    let hidden = bench.run(&["report", "--format", "md"]);
    assert!(!hidden.ends(1).out.contains("neils-orin") && hidden.out.contains("`board-"), "{}", hidden.out);
    assert!(hidden.out.lines().next().unwrap().contains("2/2 trials failed"), "{}", hidden.out);
    let shown = bench.run(&["report", "--format", "md", "--no-redact"]);
    assert!(shown.ends(1).out.contains("`neils-orin`"), "{}", shown.out);
    bench.run(&["run", &file, "--new", "--script", "exit 3"]).ends(1);
    let both = bench.run(&["report", "two-001", "two-002", "--format", "md"]);
    assert!(both.ends(1).out.lines().next().unwrap().contains("4/4 trials failed"), "{}", both.out);
    bench.run(&["report", "two-001", "two-002"]).fails(2, &["2 runs", "--format md"]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let bench = Bench::new();
    let mut child = bench.command(&["schema"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_lost_standard_error_changes_no_exit_code() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, ""));
    let lost = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        bench.command(args).stderr(writer).status().unwrap().code()
    };
    assert_eq!(lost(&["-vvv", "run", &file, "--script", "exit 3"]), Some(1), "the fault is found");
    assert_eq!(lost(&["resume"]), Some(1));
    assert_eq!(lost(&["report", "none-such"]), Some(2));
    assert_eq!(lost(&["stop"]), Some(0));
}

#[test]
fn every_command_has_a_manual_page() {
    let bench = Bench::new();
    let page = bench.run(&["man"]);
    assert!(page.ends(0).out.contains(".TH jetfault 1"), "{}", page.out);
    let dir = bench.path("man/man1");
    bench.run(&["man", "--to", dir.to_str().unwrap()]).ends(0);
    for command in ["run", "resume", "report", "try", "bisect", "man"] {
        let text = fs::read_to_string(dir.join(format!("jetfault-{command}.1"))).unwrap();
        assert!(text.contains(".SH OPTIONS"), "{command}:\n{text}");
    }
    bench.write("file", "");
    let below = bench.path("file/man1");
    bench.run(&["man", "--to", below.to_str().unwrap()]).fails(2, &["write manual pages to", "file/man1"]);
}

#[test]
fn completions_and_help_are_there() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(bench.run(&["completions", shell]).ends(0).says("jetfault"));
    }
    let help = bench.run(&["run", "--help"]);
    assert!(help.ends(0).says("Examples:"), "{}", help.out);
    bench.run(&["reprot"]).fails(2, &["'report'"]);
}
