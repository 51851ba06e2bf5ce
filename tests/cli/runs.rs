//! Runs that go well, and the faults they find.

use crate::bench::{Bench, matrix};

const TWO_CELLS: &str = "[axes]\nbatch = [2]\n";

#[test]
fn a_complete_run_is_not_repeated() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 2, TWO_CELLS));
    let first = bench.run(&["run", &file]);
    first.ends(0);
    assert!(first.err.contains(bench.results().to_str().unwrap()), "the absolute path is printed: {}", first.err);
    let (journal, results) = (bench.journal("two-001"), bench.results_of("two-001"));
    assert_eq!(results.len(), 4);
    for file in ["matrix.toml", "plan.json", "machine.json"] {
        assert!(bench.results().join("two-001").join(file).is_file(), "{file}");
    }
    let again = bench.run(&["run", &file]);
    again.ends(0);
    assert!(again.err.contains("complete"), "{}", again.err);
    assert_eq!((bench.journal("two-001"), bench.results_of("two-001")), (journal, results));
    bench.run(&["run", "--new", &file]).ends(0);
    assert!(bench.results().join("two-002").is_dir());
}

#[test]
fn comments_and_the_order_of_keys_do_not_make_another_run() {
    let bench = Bench::new();
    let file = bench.write("two.toml", &matrix("two", 1, TWO_CELLS));
    bench.run(&["run", &file]).ends(0);
    let same = matrix("two", 1, TWO_CELLS).replace("trials = 1\nseed = 1\n", "# a comment\nseed = 1\ntrials = 1\n");
    let file = bench.write("same.toml", &same);
    bench.run(&["run", &file]).ends(0);
    assert!(!bench.results().join("two-002").exists());
}

#[test]
fn each_fault_of_a_worker_gets_its_verdict_and_exit_code_1() {
    for (script, verdict) in
        [("exit 3", "error"), ("segv", "crash"), ("abort", "crash"), ("stage A.copy; exit 0", "artifact-missing")]
    {
        let bench = Bench::new();
        let file = bench.write("one.toml", &matrix("one", 1, ""));
        let said = bench.run(&["run", &file, "--script", script]);
        assert_eq!(said.code, Some(1), "{script}: {}{}", said.out, said.err);
        let results = bench.results_of("one-001");
        assert!(results[0].1.contains(&format!("\"verdict\": \"{verdict}\"")), "{script}: {}", results[0].1);
        assert!(results[0].1.contains("\"provenance\": \"simulated\""), "a script is no measurement");
    }
}

#[test]
fn a_hang_ends_at_its_deadline() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 1, "").replace("settle =", "timeout = \"300ms\"\nsettle ="));
    let said = bench.run(&["run", &file, "--script", "stage A.copy; hang"]);
    said.ends(1);
    let result = &bench.results_of("one-001")[0].1;
    assert!(result.contains("\"verdict\": \"hang\"") && result.contains("\"stage\": \"A.copy\""), "{result}");
}

#[test]
fn an_injected_fault_needs_the_flag_and_is_marked_for_ever() {
    let bench = Bench::new();
    let inject = "[[inject]]\nfault = \"exit\"\nat = \"A.copy\"\nrate = 1.0\n";
    let file = bench.write("one.toml", &matrix("one", 1, inject));
    bench.run(&["run", &file]).fails(2, &["deliberate faults", "--allow-injected-faults"]);
    assert!(!bench.results().join("one-001").exists(), "nothing was made");
    // Those of the whole machine are never allowed in a test: where it runs as root they would be committed.
    for fault in ["reset", "panic", "poweroff", "freeze"] {
        let whole = bench.write("whole.toml", &matrix("one", 1, &inject.replace("exit", fault)));
        bench.run(&["run", &whole]).fails(2, &["deliberate faults", "--allow-injected-faults"]);
    }
    assert!(!bench.results().join("one-001").exists(), "nothing was made");
    bench.run(&["run", &file, "--allow-injected-faults"]).ends(1);
    let result = &bench.results_of("one-001")[0].1;
    assert!(result.contains("\"provenance\": \"injected\"") && result.contains("\"stage\": \"A.copy\""), "{result}");
}

#[test]
fn what_this_build_cannot_do_is_void_with_its_reason() {
    let bench = Bench::new();
    let file = bench.write("one.toml", &matrix("one", 3, "quant = \"mxfp4\"\n[axes]\nbatch = [2]\n"));
    let said = bench.run(&["run", &file]);
    said.ends(3);
    assert_eq!(
        said.err.matches("this build cannot quantise to mxfp4").count(),
        1,
        "a reason is said once: {}",
        said.err
    );
    assert!(said.says("2 cells: 1 × void") && said.says("baseline · batch=2"), "{}", said.out);
    let journal = bench.journal("one-001");
    assert!(journal.contains("cannot-run-here") && !journal.contains("\"started\""), "{journal}");
    assert!(said.says("mxfp4"), "the report gives the reason: {}", said.out);
}

#[test]
fn an_empty_string_reaches_the_command_as_one() {
    let bench = Bench::new();
    let text = r#"
[matrix]
name = "empty"
trials = 1
[workload]
kind = "command"
argv = ["sh", "-c", 'test "$#/$1/$2/$X" = 2///', "sh", "", "{word}"]
env = { X = "x" }
settle = "0s"
[baseline]
word = "w"
[axes.both]
levels = [{ word = "", env.X = { set = "" } }]
"#;
    let file = bench.write("empty.toml", text);
    let said = bench.run(&["run", &file, "--allow-root-workload"]);
    said.ends(1);
    let results = bench.results_of("empty-001");
    let passed: Vec<_> = results.iter().filter(|(_, r)| r.contains("\"verdict\": \"pass\"")).collect();
    assert_eq!((results.len(), passed.len()), (2, 1), "only the cell with nothing in it passes: {}", said.out);
}

#[test]
fn a_command_is_run_without_a_shell_and_read_by_its_patterns() {
    let bench = Bench::new();
    let text = r#"
[matrix]
name = "command"
trials = 1
[workload]
kind = "command"
argv = ["sh", "-c", "echo Loading; echo took 1.5 s; echo $GREETING; touch {trial.dir}/made; exit {status}"]
env = { GREETING = "hello $HOME" }
artifacts = ["{trial.dir}/made"]
stages = [{ name = "load", regex = "^Loading" }]
metrics = { took_s = 'took ([\d.]+) s' }
expect_output = { contains = "hello $HOME" }
settle = "0s"
[baseline]
status = "0"
[axes.status]
levels = ["7"]
"#;
    let file = bench.write("command.toml", text);
    let said = bench.run(&["run", &file, "--allow-root-workload"]);
    said.ends(1);
    let results = bench.results_of("command-001");
    let passed = results.iter().find(|(_, r)| r.contains("\"verdict\": \"pass\"")).expect("exit 0 passes");
    assert!(passed.1.contains("\"took_s\": 1.5") && passed.1.contains("\"stage\": \"load\""), "{}", passed.1);
    let failed = results.iter().find(|(_, r)| r.contains("\"verdict\": \"error\"")).expect("exit 7 is an error");
    assert!(failed.1.contains("exit 7"), "{}", failed.1);
}

#[test]
fn artifacts_of_passing_trials_go_unless_they_are_to_be_kept() {
    for (keep, there) in [("on-fault", false), ("always", true), ("never", false)] {
        let bench = Bench::new();
        let elsewhere = bench.path("elsewhere");
        let text = format!(
            "[matrix]\nname = \"c\"\ntrials = 1\n[workload]\nkind = \"command\"\nkeep = \"{keep}\"\n\
             argv = [\"touch\", \"{{trial.dir}}/made\", \"{0}\"]\nartifacts = [\"{{trial.dir}}/made\", \"{0}\"]\nsettle = \"0s\"\n",
            elsewhere.display()
        );
        let file = bench.write("c.toml", &text);
        bench.run(&["run", &file, "--allow-root-workload"]).ends(0);
        let trial = bench.results().join("c-001/trials").join(&bench.results_of("c-001")[0].0);
        assert_eq!(trial.join("made").exists(), there, "{keep}");
        assert!(elsewhere.exists(), "what lies outside the trial's directory is the user's");
    }
}
