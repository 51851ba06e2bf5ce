//! A run as one file: what is in it, what is not, and that every command that reads takes it for the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::constructed::{self, Shape, USER};
use crate::{RUN, jetfault, report};

/// A directory of its own with the bundle of [`RUN`] in it.
fn bundled(more: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("run.zip");
    let arguments = [&["report", "bundle", RUN.1.to_str().unwrap(), "-o", file.to_str().unwrap()], more].concat();
    let output = jetfault(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (dir, file)
}

/// The files of a bundle by name.
fn files(bundle: &Path) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(fs::File::open(bundle).unwrap()).unwrap();
    let names: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
    let mut files = Vec::new();
    for name in names {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut archive.by_name(&name).unwrap(), &mut bytes).unwrap();
        files.push((name, bytes));
    }
    files
}

/// What a command says of the bundle, with a directory for temporary files that must be empty afterwards.
fn says(bundle: &Path, arguments: &[&str]) -> Output {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_jetfault"))
        .args(arguments.iter().map(|argument| if *argument == "BUNDLE" { bundle.to_str().unwrap() } else { argument }))
        .env("TMPDIR", scratch.path())
        .current_dir(scratch.path())
        .output()
        .unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "{arguments:?} left something behind");
    output
}

#[test]
fn it_has_what_a_maintainer_asks_for_and_no_names() {
    let (_dir, bundle) = bundled(&[]);
    let files = files(&bundle);
    for wanted in ["journal.jsonl", "plan.json", "matrix.toml", "machine.json", "bundle.json", "/result.json"] {
        // A constructed run has no result files; a real one does.
        let is_there = files.iter().any(|(name, _)| name.ends_with(wanted));
        assert!(is_there || wanted == "/result.json", "{wanted}");
    }
    let ends = |ending: &str| files.iter().filter(|(name, _)| name.ends_with(ending)).count();
    assert!(ends("/stdout.log") > 50 && ends("/telemetry.jsonl") > 50 && ends("raw/journal/previous.txt") > 0);
    for (name, bytes) in &files {
        assert!(name.starts_with("board-001/"), "{name}");
        assert!(!String::from_utf8_lossy(bytes).contains(USER), "{name} names a person");
    }
    let (_dir, verbatim) = bundled(&["--no-redact"]);
    assert!(self::files(&verbatim).iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains(USER)));
}

#[test]
fn every_command_that_reads_takes_it_for_the_run() {
    let (_dir, bundle) = bundled(&[]);
    let csv = says(&bundle, &["report", "BUNDLE", "--format", "csv"]);
    assert_eq!(csv.status.code(), Some(1));
    assert_eq!(String::from_utf8(csv.stdout).unwrap(), report("csv", &[]), "the same trials, verdicts and figures");
    for format in ["text", "md", "json", "html", "junit"] {
        let output = says(&bundle, &["report", "BUNDLE", "--format", format]);
        assert_eq!(output.status.code(), Some(1), "{format}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("board-001"), "{format}");
        assert!(format != "html" || text.contains("aria-label=\"Telemetry of "), "the telemetry came along");
    }
    let status = says(&bundle, &["status", "BUNDLE"]);
    assert!(status.status.success() && String::from_utf8_lossy(&status.stdout).contains("board-001"));
    let explained = says(&bundle, &["explain", "BUNDLE", &first_fault()]);
    assert!(explained.status.success(), "{}", String::from_utf8_lossy(&explained.stderr));
    let compared =
        says(&bundle, &["compare", "BUNDLE", "--axis", "batch", "--levels", "1,8", "--signature", "cuda-error"]);
    assert!(matches!(compared.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&compared.stderr));
    let again = says(&bundle, &["report", "bundle", "BUNDLE", "-o", "/dev/null/x.zip"]);
    assert_eq!(again.status.code(), Some(4), "it can be packed again, but not there");
}

fn first_fault() -> String {
    let text = report("csv", &[]);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.records().map(Result::unwrap).find(|row| row.iter().any(|field| field == "fault")).unwrap()[1].to_owned()
}

#[test]
fn no_command_that_writes_takes_it() {
    let (_dir, bundle) = bundled(&[]);
    for command in ["resume", "stop"] {
        let output = says(&bundle, &[command, "BUNDLE"]);
        assert_eq!(output.status.code(), Some(2), "{command}");
    }
}

#[test]
fn what_is_no_bundle_is_refused_with_words() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("notes.txt");
    fs::write(&file, "not an archive").unwrap();
    let output = says(&file, &["report", "BUNDLE"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("notes.txt") && words.contains("hint: a bundle is what"), "{words}");
}

#[test]
fn a_full_bundle_keeps_the_journal_and_says_what_stayed_behind() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run =
        constructed::make(dir.path(), "large", &Shape { trials: 2, files: 30, warmed_faults: 0, max_boots: None });
    // What cannot be made smaller: sixteen pseudo-random letters a byte of room.
    let mut noise = 88_172_645_463_325_252_u64;
    let mut line = || {
        // Marsaglia's xorshift with the triple 13, 7, 17.
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise.to_be_bytes().map(|byte| byte % 95 + 32)
    };
    let trials: Vec<PathBuf> = fs::read_dir(run.join("trials")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for trial in trials.iter().take(10) {
        let log: Vec<u8> = (0..700_000).flat_map(|_| line()).collect();
        fs::write(trial.join("stdout.log"), log).unwrap();
    }
    fs::write(trials[0].join("engine.plan"), b"\0\0").unwrap();
    let file = dir.path().join("large.zip");
    let output = jetfault(&["report", "bundle", run.to_str().unwrap(), "-o", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::metadata(&file).unwrap().len() <= 25_000_000);
    let files = files(&file);
    let contents = files.iter().find(|(name, _)| name.ends_with("/bundle.json")).unwrap();
    let contents: serde_json::Value = serde_json::from_slice(&contents.1).unwrap();
    let left_out = contents["left_out"].as_array().unwrap();
    let why = |words: &str| left_out.iter().any(|file| file["why"].as_str().unwrap().contains(words));
    assert!(why("no room") && why("workload's own"), "{left_out:?}");
    assert!(contents["files"].as_array().unwrap().iter().any(|file| file["cut"].as_u64().unwrap() > 0));
    assert!(files.iter().any(|(name, _)| name == "large-001/journal.jsonl"));
}
