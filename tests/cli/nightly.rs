//! One night after the other: a program that is well, breaks, and is mended.

use std::fs;

use crate::bench::{Bench, Said};

/// A matrix whose one cell ends with the code that stands in a file.
fn nightly(bench: &Bench) -> String {
    let code = bench.write("code", "0");
    bench.write(
        "night.toml",
        &format!(
            "[matrix]\nname = \"night\"\ntrials = 3\n[workload]\nkind = \"command\"\n\
             argv = [\"sh\", \"-c\", \"exit $(cat {code})\"]\nsettle = \"0s\"\n[baseline]\n"
        ),
    )
}

#[test]
fn a_fault_after_clean_nights_is_new_and_fixed_only_after_as_many_clean_trials_as_its_rate_asks_for() {
    let bench = Bench::new();
    let file = nightly(&bench);
    let night = |more: &[&str]| -> Said {
        bench.run(&[&["nightly", file.as_str(), "-q", "--allow-root-workload"], more].concat())
    };
    let says = |said: &Said, state: &str| assert!(said.says(state), "{state} is not in\n{}", said.out);
    for state in ["UNKNOWN", "UNKNOWN", "STABLE_CLEAN"] {
        says(night(&[]).ends(0), state);
    }

    bench.write("code", "5");
    let junit = bench.path("night.xml");
    let broken = night(&["--junit", junit.to_str().unwrap()]);
    says(broken.ends(1), "NEW_FAULT baseline (3/3 tonight after 0/9, and 1/1 on new trials)");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("<failure message=\"NEW_FAULT: 3/3 tonight after 0/9"), "{xml}");
    assert_eq!(night(&["--last"]).ends(1).out, broken.out, "the last night again");

    bench.write("code", "0");
    says(night(&[]).ends(0), "3/5 clean trials toward FIXED (rate now at most 63.2 %, needs less than 47.3 %");
    says(night(&[]).ends(0), "FIXED");
    bench.write("code", "5");
    says(night(&[]).ends(1), "FAULTING");
}

#[test]
fn a_history_that_was_edited_ends_the_night_before_anything_runs() {
    let bench = Bench::new();
    let file = nightly(&bench);
    let args = ["nightly", file.as_str(), "-q", "--allow-root-workload"];
    bench.run(&args).ends(0);
    let journal = bench.journal("night-001").replacen("\"pass\"", "\"hang\"", 1);
    bench.write("results/night-001/journal.jsonl", &journal);
    bench.run(&args).fails(6, &["night-001"]);
    assert!(!bench.results().join("night-002").exists(), "nothing ran");
}
