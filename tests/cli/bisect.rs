//! Searches over real repositories and real children, with a test that fails only sometimes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, PATIENCE, Said};

/// A repository of `count` commits after the first, each with its number in the file `number`; from commit `bug` on,
/// `test.sh` fails in 78 of 100 trials, by the name of the trial. Names and dates are fixed, so every commit has the
/// same id on every machine, every trial the same name, and the whole search takes the same course.
fn repository(bench: &Bench, count: u32, bug: u32) -> Vec<String> {
    let repo = bench.path("repo");
    fs::create_dir_all(&repo).unwrap();
    let git = |args: &[&str], number: u32| git(&repo, args, number);
    git(&["init", "--quiet", "--initial-branch=main"], 0);
    let mut commits = Vec::new();
    for number in 0..=count {
        let rate = if number >= bug { 78 } else { 0 };
        let test = format!(
            "#!/bin/sh\ndraw=$(basename \"$1\" | cksum | cut -d ' ' -f 1)\n[ $((draw % 100)) -ge {rate} ] || exit 3\n"
        );
        fs::write(repo.join("test.sh"), test).unwrap();
        fs::write(repo.join("number"), format!("{number}\n")).unwrap();
        git(&["add", "."], number);
        git(&["commit", "--quiet", "--message", &format!("commit {number}")], number);
        commits.push(git(&["rev-parse", "HEAD"], number).trim().to_owned());
    }
    commits
}

fn git(repo: &Path, args: &[&str], number: u32) -> String {
    let date = format!("2026-01-01T00:00:{number:02}Z");
    let mut command = Command::new("git");
    command.arg("-C").arg(repo).args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    command.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn matrix(good: &str, bad: &str, more: &str) -> String {
    format!(
        "[matrix]\nname = \"since\"\ntrials = 1\nseed = 1\n[workload]\nkind = \"command\"\nargv = [\"sh\", \"{{rev.src}}/test.sh\", \
         \"{{trial.dir}}\"]\nsettle = \"0s\"\n[revisions]\nrepo = \"repo\"\ngood = \"{good}\"\nbad = \"{bad}\"\n\
         first_parent = true\n{more}"
    )
}

const BISECT: [&str; 3] = ["bisect", "revisions", "--allow-root-workload"];

fn bisect(bench: &Bench, file: &str, more: &[&str]) -> Said {
    let args: Vec<&str> = BISECT.iter().chain(&[file]).chain(more).copied().collect();
    bench.run(&args)
}

#[test]
fn the_commit_that_brought_the_fault_is_found_and_the_checkout_is_left_alone() {
    let bench = Bench::new();
    let commits = repository(&bench, 16, 11);
    let file = bench.write("since.toml", &matrix(&commits[0], "main", ""));
    let said = bisect(&bench, &file, &[]);
    said.ends(1);
    assert!(said.says(&format!("FIRST FAULTY REVISION: {} commit 11", &commits[11][..10])), "{}", said.out);
    assert!(said.says("likeliest answers") && said.says("evidence"), "{}", said.out);
    assert!(said.err.contains("left"), "each step says how many runs are left: {}", said.err);
    assert_eq!(fs::read_to_string(bench.path("repo/number")).unwrap(), "16\n");
    assert_eq!(git(&bench.path("repo"), &["status", "--porcelain"], 0), "");
    // Asked again, it answers as before and runs nothing.
    let journal = bench.journal("since-revisions-001");
    let again = bisect(&bench, &file, &["--format", "json"]);
    again.ends(1);
    assert!(again.says("\"finding\": \"found\"") && again.says("jetfault.bisect/1"), "{}", again.out);
    assert_eq!(bench.journal("since-revisions-001"), journal);
}

#[test]
fn a_search_that_is_killed_at_every_step_finds_the_same() {
    let bench = Bench::new();
    let commits = repository(&bench, 16, 11);
    let file = bench.write("since.toml", &matrix(&commits[0], "main", ""));
    let args: Vec<&str> = BISECT.iter().chain(&[file.as_str()]).copied().collect();
    let run = "since-revisions-001";
    let until = Instant::now() + 5 * PATIENCE;
    let mut kills = 0;
    loop {
        assert!(Instant::now() < until, "no end after {kills} kills:\n{}", bench.journal(run));
        let verdicts = |journal: &str| journal.matches("\"judged\"").count() - journal.matches("\"same-boot\"").count();
        let before = verdicts(&bench.journal(run));
        let mut harness = bench.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // After another verdict, since a cell whose starts give nothing three times in a row is set aside; then at
        // another record each time: between two steps, in a preparation, in the middle of a trial.
        let mut at_verdict = None;
        while harness.try_wait().unwrap().is_none() {
            let journal = bench.journal(run);
            let records = journal.lines().count();
            if verdicts(&journal) > before && records >= *at_verdict.get_or_insert(records) + kills % 6 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if harness.try_wait().unwrap().is_some() {
            break;
        }
        harness.kill().unwrap();
        harness.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 10, "{kills}");
    let said = bisect(&bench, &file, &[]);
    said.ends(1);
    assert!(said.says(&format!("FIRST FAULTY REVISION: {} commit 11", &commits[11][..10])), "{}", said.out);
}

#[test]
fn a_commit_that_mended_it_is_found_as_well() {
    let bench = Bench::new();
    let commits = repository(&bench, 8, 0);
    let repo = bench.path("repo");
    for number in 9..=16 {
        fs::write(repo.join("test.sh"), "#!/bin/sh\nexit 0\n").unwrap();
        fs::write(repo.join("number"), format!("{number}\n")).unwrap();
        git(&repo, &["add", "."], number);
        git(&repo, &["commit", "--quiet", "--message", &format!("commit {number}")], number);
    }
    let file = bench.write("since.toml", &matrix("main", &commits[0], ""));
    let said = bisect(&bench, &file, &[]);
    said.ends(1);
    assert!(said.says("FIRST REVISION WITHOUT THE FAULT: ") && said.says("commit 9 ("), "{}", said.out);
}

#[test]
fn what_the_range_does_not_hold_and_what_does_not_reproduce_is_said() {
    let bench = Bench::new();
    let commits = repository(&bench, 6, 0);
    let file = bench.write("since.toml", &matrix(&commits[0], "main", ""));
    let said = bisect(&bench, &file, &[]);
    said.ends(1);
    assert!(said.says("ALREADY FAULTY AT THE GOOD END"), "{}", said.out);

    let bench = Bench::new();
    let commits = repository(&bench, 6, 99);
    let file = bench.write("since.toml", &matrix(&commits[0], "main", ""));
    let said = bisect(&bench, &file, &[]);
    said.ends(3);
    assert!(said.says("NOT REPRODUCED IN THIS STATE: 0/9 at the bad end"), "{}", said.out);
}

#[test]
fn ends_that_make_no_range_are_refused_before_anything_is_made() {
    let bench = Bench::new();
    let commits = repository(&bench, 3, 2);
    let equal = bench.write("equal.toml", &matrix(&commits[3], "main", ""));
    bisect(&bench, &equal, &[]).fails(2, &["the same commit", &commits[3], "hint:"]);
    let unknown = bench.write("unknown.toml", &matrix("nowhere", "main", ""));
    bisect(&bench, &unknown, &[]).fails(2, &["nowhere", "[revisions]"]);
    let none = bench.write("none.toml", &crate::bench::matrix("none", 1, ""));
    bisect(&bench, &none, &[]).fails(2, &["no [revisions]"]);
    assert!(!bench.results().exists(), "nothing was made");
}

#[test]
fn a_revision_that_does_not_build_stays_possible_and_an_end_that_does_not_ends_the_search() {
    let bench = Bench::new();
    let commits = repository(&bench, 8, 5);
    // Commits 4 and 5 do not build: 4, 5 or 6 may have brought it.
    let build = "prepare = [\"sh\", \"-c\", \"! grep -qx '[45]' number\"]\n";
    let file = bench.write("since.toml", &matrix(&commits[0], "main", build));
    let said = bisect(&bench, &file, &[]);
    said.ends(1);
    assert!(said.says("one of") && said.says("commit 4") && said.says("commit 6"), "{}", said.out);
    assert!(said.says("does not build"), "{}", said.out);

    let bench = Bench::new();
    let commits = repository(&bench, 4, 2);
    let file = bench.write("since.toml", &matrix(&commits[0], "main", "prepare = [\"false\"]\n"));
    let said = bisect(&bench, &file, &[]);
    said.ends(3);
    assert!(said.says("UNTESTABLE: the bad end") && said.says("does not build"), "{}", said.out);
}

/// A command that fails, in 9 of 10 trials, if all of `needed` are in its arguments.
fn knobs(needed: &str) -> String {
    format!(
        "[matrix]\nname = \"knobs\"\ntrials = 1\nseed = 1\n[workload]\nkind = \"command\"\nargv = [\"sh\", \"-c\", \
         \"draw=$(basename $4 | cksum | cut -d ' ' -f 1); [ $1$2$3 = {needed} ] && [ $((draw % 10)) -lt 9 ] && exit 3; \
         exit 0\", \"sh\", \"{{one}}\", \"{{two}}\", \"{{three}}\", \"{{trial.dir}}\"]\nsettle = \"0s\"\n[baseline]\n\
         one = \"a\"\ntwo = \"b\"\nthree = \"c\"\n[axes]\none = [\"x\"]\ntwo = [\"y\"]\nthree = [\"z\", \"w\"]\n"
    )
}

#[test]
fn the_levels_that_are_load_bearing_are_told_from_the_others() {
    let bench = Bench::new();
    // `two` does not matter: both of its levels fail.
    let text = knobs("a$2c");
    let file = bench.write("knobs.toml", &text);
    let said = bench.run(&["bisect", "axes", &file, "--allow-root-workload"]);
    said.ends(1);
    assert!(said.says("LOAD-BEARING: one=a, three=c ("), "{}", said.out);
    assert!(said.says("without one=a") && said.says("Holm over 2"), "{}", said.out);
    assert!(bench.results().join("knobs-axes-001").is_dir());
    // The runs that there are answer a narrower question in part.
    let narrower = bench.run(&["bisect", "axes", &file, "--axis", "one", "--new", "--allow-root-workload"]);
    narrower.ends(1);
    assert!(narrower.says("LOAD-BEARING: one=a ("), "{}", narrower.out);
}

#[test]
fn the_level_from_which_on_it_fails_is_found_and_must_be_named_where_the_ends_are_not_clear() {
    let bench = Bench::new();
    let text = "[matrix]\nname = \"levels\"\ntrials = 1\nseed = 1\n[workload]\nkind = \"command\"\nargv = [\"sh\", \"-c\", \
                \"[ $1 -lt 16 ] || exit 3\", \"sh\", \"{size}\"]\nsettle = \"0s\"\n[baseline]\nsize = 8\n[axes]\n\
                size = [64, 2, 16, 4, 32]\n";
    let file = bench.write("levels.toml", text);
    let args = ["bisect", "levels", &file, "--axis", "size", "--allow-root-workload"];
    bench.run(&args).fails(2, &["between the levels of `size`", "--good 2 or --good 64"]);
    let said = bench.run(&[&args[..], &["--bad", "64"]].concat());
    said.ends(1);
    assert!(said.says("FIRST FAULTY LEVEL: size=16"), "{}", said.out);
    bench.run(&[&args[..], &["--good", "8"]].concat()).fails(2, &["the same level"]);
}

#[test]
fn git_bisect_run_hears_its_own_language() {
    let bench = Bench::new();
    let good = bench.write("good.toml", &crate::bench::matrix("good", 1, ""));
    let speak = |file: &str, more: &[&str]| {
        let args: Vec<&str> = ["run", file, "--git-bisect"].iter().chain(more).copied().collect();
        bench.run(&args).code
    };
    assert_eq!(speak(&good, &[]), Some(0));
    assert_eq!(speak(&good, &["--script", "exit 3"]), Some(1));
    // What this build cannot run tells nothing.
    let void = bench.write("void.toml", &crate::bench::matrix("void", 1, "quant = \"mxfp4\"\n"));
    assert_eq!(speak(&void, &[]), Some(125));
    assert_eq!(speak("nowhere.toml", &[]), Some(255));
    assert_eq!(speak(&good, &["--no-such-flag"]), Some(255));
    let cold = bench.write("cold.toml", &crate::bench::matrix("cold", 1, "start = \"cold\"\n"));
    assert_eq!(speak(&cold, &["--allow-reboot"]), Some(255));
}

#[test]
fn the_smallest_failing_part_of_a_sequence_is_found_and_its_other_orders_are_cells_of_their_own() {
    let bench = Bench::new();
    // B does nothing; A fails only with C after it.
    let text = "[matrix]\nname = \"part\"\ntrials = 1\nseed = 1\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\n\
                settle = \"0s\"\n[shapes]\nA = [64, 64]\nB = [64, 128]\nC = [64, 192]\n[baseline]\nsequence = \"ABC\"\n\
                [axes]\nsequence = [\"AC\"]\n[[inject]]\nfault = \"exit\"\nat = \"C.copy\"\nrate = 0.9\n\
                if = { sequence = [\"ABC\", \"AC\"] }\n";
    let file = bench.write("part.toml", text);
    let args = ["bisect", "sequence", &file, "--orders", "--allow-injected-faults"];
    let said = bench.run(&args);
    said.ends(1);
    assert!(said.says("SMALLEST FAILING PART: AC ("), "{}", said.out);
    assert!(said.says("ORDER CA BELOW"), "{}", said.out);
    bench.run(&["bisect", "sequence", &file]).fails(2, &["deliberate faults"]);
}

#[test]
fn a_fault_of_a_side_branch_is_found_among_all_commits_and_paths_make_some_likelier() {
    let bench = Bench::new();
    let commits = repository(&bench, 3, 99);
    let repo = bench.path("repo");
    let faulty = "#!/bin/sh\nexit 3\n";
    git(&repo, &["checkout", "--quiet", "-b", "side", &commits[1]], 10);
    for number in 10..=13 {
        if number == 12 {
            fs::write(repo.join("test.sh"), faulty).unwrap();
        }
        fs::write(repo.join("side"), format!("{number}\n")).unwrap();
        git(&repo, &["add", "."], number);
        git(&repo, &["commit", "--quiet", "--message", &format!("side {number}")], number);
    }
    git(&repo, &["checkout", "--quiet", "main"], 14);
    git(&repo, &["merge", "--quiet", "--no-edit", "side"], 14);
    let text = matrix(&commits[0], "main", "").replace("first_parent = true", "first_parent = false");
    let file = bench.write("since.toml", &text);
    let said = bisect(&bench, &file, &[]);
    said.ends(1);
    assert!(said.says("FIRST FAULTY REVISION: ") && said.says("side 12 ("), "{}", said.out);
    let searched = said.err.lines().filter(|line| line.contains("next: ")).count();

    let weighed = bisect(&bench, &file, &["--path", "test.sh", "--new"]);
    weighed.ends(1);
    let fewer = weighed.err.lines().filter(|line| line.contains("next: ")).count();
    assert!(weighed.says("side 12 ("), "{}", weighed.out);
    assert!(fewer < searched, "{fewer} runs, {searched} without the path:\n{}", weighed.err);
}

#[test]
fn a_stored_matrix_that_was_edited_stops_the_search() {
    let bench = Bench::new();
    let file = bench.write("knobs.toml", &knobs("a$2c"));
    let args = ["bisect", "axes", file.as_str(), "--allow-root-workload"];
    bench.run(&args).ends(1);
    let stored = bench.results().join("knobs-axes-001/matrix.toml");
    let text = fs::read_to_string(&stored).unwrap();
    fs::write(&stored, text.replace("[\"y\"]", "[\"v\"]")).unwrap();
    bench.run(&["resume"]).fails(6, &["matrix.toml was changed after the run began"]);
    fs::write(&stored, text).unwrap();
    bench.run(&["resume"]).ends(1);
}

#[test]
fn a_rehearsal_runs_nothing_and_is_the_same_for_the_same_seed() {
    let bench = Bench::new();
    let board = "[[inject]]\nfault = \"reset\"\nrate = 0.78\nif = { start = \"cold\", sequence = \"ABC\" }\n\
                 [board]\nminutes_per_boot = 3\n";
    let model = bench.write("board.toml", board);
    let args = ["rehearse", "bnb-1936", "--model", &model, "--campaigns", "60", "--bisect", "revisions"];
    let said = bench.run(&args);
    said.ends(0);
    for text in ["one of 32 revisions brought it", "every revision has it", "it does not come in this state", "boots"] {
        assert!(said.says(text), "{text}: {}", said.out);
    }
    assert!(said.says("plain git bisect: right in 55.8 % after 5.0 runs"), "{}", said.out);
    assert_eq!(bench.run(&args).out, said.out);
    assert_ne!(bench.run(&[&args[..], &["--seed", "7"]].concat()).out, said.out);
    let planned = bench.run(&["rehearse", "bnb-1936", "--model", &model, "--campaigns", "60"]);
    planned.ends(0);
    assert!(planned.says("the matrix as planned"), "{}", planned.out);
    assert!(!bench.results().exists(), "nothing was made");
    bench.run(&["rehearse", "bnb-1936"]).fails(2, &["no fault", "[[inject]]"]);
    bench.run(&["rehearse", "bnb-1936", "--model", "nowhere.toml"]).fails(2, &["nowhere.toml"]);
}

#[test]
fn a_signal_ends_a_preparation_and_the_search_goes_on_with_another() {
    let bench = Bench::new();
    let commits = repository(&bench, 4, 2);
    // The first preparation waits for ever; the next finds the mark that it left.
    let mark = bench.path("begun");
    let wait = format!("[ -e '{0}' ] || {{{{ touch '{0}'; sleep 600; }}}}", mark.display());
    let file =
        bench.write("since.toml", &matrix(&commits[0], "main", &format!("prepare = [\"sh\", \"-c\", \"{wait}\"]\n")));
    let args: Vec<&str> = BISECT.iter().chain(&[file.as_str()]).copied().collect();
    let mut harness = bench.spawn(&args);
    let until = Instant::now() + PATIENCE;
    while !mark.exists() {
        assert!(Instant::now() < until && harness.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&harness), Signal::INT).unwrap();
    let said = Said::of(&harness.wait_with_output().unwrap());
    said.fails(130, &["stopped while", "jetfault resume since-revisions-001"]);
    let resumed = bench.run(&["resume"]);
    resumed.ends(1);
    assert!(resumed.says("commit 2 ("), "{}", resumed.out);
}
