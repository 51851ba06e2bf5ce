//! What each format says of the constructed run, and what none of them may.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::constructed::{self, HOSTILE, Shape, USER};
use crate::{RUN, jenkins, jetfault, report};

/// The trials of the run with their verdicts, from the report's own journal.
fn verdicts() -> BTreeMap<String, String> {
    let journal = fs::read_to_string(RUN.1.join("journal.jsonl")).unwrap();
    let judged = journal.lines().filter_map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let judged = record["event"].get("judged")?;
        let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        Some((word(&judged["trial"]), word(&judged["judgement"]["verdict"])))
    });
    judged.collect()
}

#[test]
fn the_run_has_what_the_tests_are_about() {
    let words: BTreeSet<String> = verdicts().into_values().collect();
    for verdict in ["pass", "reboot", "crash", "cuda-error", "killed"] {
        assert!(words.contains(verdict), "{words:?}");
    }
}

#[test]
fn csv_has_a_row_for_each_trial_and_a_column_for_each_fact() {
    let text = report("csv", &[]);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    for column in ["trial", "verdict", "counted", "stage", "duration_ms", "axis.batch", "metric.forward_ms"] {
        assert!(header.contains(&column.to_owned()), "{column}");
    }
    let at = |name: &str| header.iter().position(|column| column == name).unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let found: BTreeMap<String, String> =
        rows.iter().map(|row| (row[at("trial")].to_owned(), row[at("verdict")].to_owned())).collect();
    assert_eq!(found, verdicts());
    assert_eq!(rows.len(), found.len());
    for row in &rows {
        let expected = match &row[at("verdict")] {
            "pass" => "clean",
            "killed" => "excluded",
            _ => "fault",
        };
        assert_eq!(&row[at("counted")], expected);
        // What was not observed is empty, never 0.
        assert_eq!(row[at("duration_ms")].is_empty(), &row[at("verdict")] == "reboot", "{row:?}");
    }
}

#[test]
fn junit_is_what_jenkins_reads_and_counts_what_happened() {
    let xml = report("junit", &[]);
    let count = jenkins::check(&xml);
    let verdicts = verdicts();
    let of = |wanted: &dyn Fn(&str) -> bool| verdicts.values().filter(|verdict| wanted(verdict)).count();
    assert_eq!(count.cases, verdicts.len());
    assert_eq!(count.skipped, of(&|verdict| verdict == "killed"));
    assert_eq!(count.failures, of(&|verdict| !matches!(verdict, "pass" | "killed")));
    // Verdict, cause, stage and evidence are in the text.
    for words in ["<failure message=\"reboot (panic) at ", "crash records: ", "SIGSEGV", "rule: ", "<system-err>"] {
        assert!(xml.contains(words), "{words}");
    }
}

#[test]
fn junit_of_a_night_is_what_jenkins_reads_too() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let matrix = dir.path().join("night.toml");
    fs::write(
        &matrix,
        "[matrix]\nname = \"night\"\ntrials = 1\n[workload]\nkind = \"command\"\nargv = [\"true\"]\n\
         [baseline]\nstart = \"any\"\n",
    )
    .unwrap();
    let (results, file) = (dir.path().join("results"), dir.path().join("night.xml"));
    let arguments = ["nightly", matrix.to_str().unwrap(), "--results", results.to_str().unwrap()];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_jetfault"))
        .args(arguments)
        .args(["--junit", file.to_str().unwrap(), "--allow-root-workload"])
        .env("JETFAULT_LOCK_DIR", dir.path())
        .env("XDG_STATE_HOME", dir.path())
        .output()
        .unwrap();
    let xml = fs::read_to_string(&file).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(jenkins::check(&xml).cases, 1);
}

#[test]
fn html_needs_nothing_else_and_shows_every_trial() {
    let html = report("html", &[]);
    assert!(
        html.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"),
        "nothing before it, or browsers take it for an old page"
    );
    for loads in ["http://", "https://", "<link", "src=\"", "@import", "url("] {
        assert!(!html.contains(loads), "{loads}");
    }
    for (trial, _) in verdicts() {
        assert!(html.contains(&trial), "{trial}");
    }
    for section in ["levels", "rates", "boots", "signatures", "stages", "memory", "close", "evidence", "trials"] {
        assert!(html.contains(&format!("<section id=\"{section}\"")), "{section}");
        assert!(html.contains(&format!("href=\"#{section}\"")), "{section}");
    }
    assert!(html.contains("aria-label=\"Telemetry of ") && html.contains("the last second on record"));
    assert!(html.contains("class=\"band even\"") && html.contains("C.forward from"));
}

#[test]
fn what_programs_print_stays_text() {
    let html = report("html", &[]);
    assert!(html.contains("alert(&#39;owned&#39;)") || html.contains("alert(&#x27;owned&#x27;)"), "it is shown");
    assert!(!html.contains("<script>alert") && !html.contains("<img"), "and no mark-up");
    assert!(html.contains("&lt;b&gt;layer&lt;/b&gt;") || !html.contains("<b>layer</b>"));
    assert_eq!(html.matches("<script>").count(), 1, "the only script is ours");
    assert!(!html.contains('\u{1b}'));
    assert!(HOSTILE.contains("<script>"));
}

#[test]
fn names_are_replaced_unless_somebody_wants_them() {
    for format in ["html", "csv", "junit"] {
        let text = report(format, &[]);
        assert!(!text.contains(USER), "{format}");
        assert!(text.contains("user-1"), "{format}: something was replaced");
        assert!(report(format, &["--no-redact"]).contains(USER), "{format}");
    }
}

#[test]
fn an_open_run_and_one_without_a_trial_have_reports() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = constructed::make(dir.path(), "small", &Shape { trials: 1, files: 0, warmed_faults: 0, max_boots: None });
    let journal = fs::read_to_string(run.join("journal.jsonl")).unwrap();
    for lines in [0, 1, 2, 12] {
        let part: String = journal.split_inclusive('\n').take(lines).collect();
        fs::write(run.join("journal.jsonl"), part).unwrap();
        for format in ["html", "csv", "junit"] {
            let output = jetfault(&["report", run.to_str().unwrap(), "--format", format]);
            let code = output.status.code().unwrap();
            assert!(matches!(code, 1 | 3), "{lines} {format}: {}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            match format {
                "junit" => drop(jenkins::check(&text)),
                "csv" => assert!(text.starts_with("run,trial,")),
                _ => assert!(text.contains("</html>")),
            }
        }
    }
}

#[test]
fn two_runs_of_the_same_cells_are_compared_side_by_side() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let after =
        constructed::make(dir.path(), "after", &Shape { trials: 9, files: 0, warmed_faults: 60, max_boots: None });
    let arguments = ["compare", RUN.1.to_str().unwrap(), after.to_str().unwrap(), "--axis", "run"];
    let output = jetfault(&[&arguments[..], &["--signature", "reboot", "--format", "html"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let html = String::from_utf8(output.stdout).unwrap();
    assert!(html.contains("board-001 and after-001"));
    // One ran after the other: whatever else changed in between may be the reason, and the page says so.
    assert!(html.contains("ORDER_CONFOUNDED") || html.contains("NOT_SHOWN"), "the guard has the word");
    assert!(html.contains("warmup=256x256") && html.contains("Like beside like"));
    let json = jetfault(&[&arguments[..], &["--signature", "reboot", "--format", "json"]].concat());
    assert!(String::from_utf8(json.stdout).unwrap().contains("\"factor\": \"run\""));
}

/// Pages for a browser to look at: `tests/browser/run`.
#[test]
fn pages_for_the_browser_are_made() {
    let pages = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&pages).unwrap();
    let seed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results/bnb-1936");
    let later = seed.with_file_name("bnb-1936-correction-001");
    let (seed, later) = (seed.to_str().unwrap(), later.to_str().unwrap());
    for (name, arguments) in [
        ("board", &["report", RUN.1.to_str().unwrap(), "--format", "html"][..]),
        ("seed", &["report", seed, "--format", "html"]),
        ("compare", &["compare", later, "--axis", "version", "--format", "html"]),
    ] {
        let output = jetfault(arguments);
        assert!(output.stdout.ends_with(b"</html>"), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(pages.join(format!("{name}.html")), output.stdout).unwrap();
    }
    assert!(jetfault(&["compare", seed, later, "--axis", "run", "--format", "html"]).stdout.ends_with(b"</html>"));
}
