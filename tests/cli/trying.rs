//! `jetfault try`: what a newcomer types first.

use std::fs;

use crate::bench::{Bench, Said};

fn attempt(bench: &Bench, args: &[&str]) -> Said {
    bench.run(&[&["try", "--allow-root-workload"], args].concat())
}

#[test]
fn a_command_is_repeated_counted_and_leaves_a_matrix_that_runs_again() {
    let bench = Bench::new();
    let said = attempt(&bench, &["--vary", "--code=7", "--", "sh", "-c", "exit $1", "sh", "--code=0"]);
    // `$1` is `--code=0`, which is no number: dash says so with exit 2.
    said.ends(1);
    let file = bench.path("jetfault-sh.toml");
    assert!(said.err.contains("2 cells of 3 trials each") && said.err.contains(file.to_str().unwrap()), "{}", said.err);
    let again = bench.run(&["run", file.to_str().unwrap(), "--allow-root-workload"]);
    again.ends(1);
    assert!(again.out.contains("sh-001"), "the same run, and nothing is repeated: {}", again.out);
    let other = attempt(&bench, &["--", "sh", "-c", "exit 0"]);
    other.ends(0);
    assert!(bench.path("jetfault-sh-2.toml").exists(), "what is there is never written over");
    assert!(other.err.contains("no fault in 3 trials") && other.err.contains("--trials 20"), "{}", other.err);
}

#[test]
fn what_varies_makes_cells_and_the_next_command_is_said() {
    let bench = Bench::new();
    let said = attempt(
        &bench,
        &["--trials", "1", "--vary", "env:FAIL=1", "--vary", "cpus=0", "--", "sh", "-c", "exit ${FAIL-0}"],
    );
    said.ends(1);
    for label in ["baseline", "env.FAIL=1", "cpus=0"] {
        assert!(said.out.contains(label), "{label}: {}", said.out);
    }
    assert!(
        said.err.contains("jetfault compare --axis") && said.err.contains("jetfault explain baseline"),
        "{}",
        said.err
    );
}

#[test]
fn a_program_that_is_not_there_is_said_before_anything_is_made() {
    let bench = Bench::new();
    fs::write(bench.path("tool"), "#!/bin/sh\n").unwrap();
    for (command, words) in [
        (&["sha256sun", "x"][..], &["no program `sha256sun` in PATH", "did you mean sha256sum?"][..]),
        (&["./tool"], &["./tool is not executable", "chmod +x ./tool"]),
        (&["./none"], &["./none is not there"]),
        (&["echo hello"], &["no program `echo hello`", "not as one word"]),
    ] {
        attempt(&bench, &[&["--"], command].concat()).fails(2, words);
    }
    attempt(&bench, &["--vary", "cpu=0", "--", "true"]).fails(2, &["--vary cpu=0", "did you mean `cpus`?"]);
    attempt(&bench, &["--timeout", "soon", "--", "true"]).fails(2, &["soon"]);
    attempt(&bench, &["--cold", "--", "true"]).fails(2, &["--allow-reboot"]);
    let made: Vec<_> = fs::read_dir(bench.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!made.iter().any(|name| name.to_string_lossy().starts_with("jetfault-true")), "{made:?}");
    assert!(!bench.results().exists());
}
