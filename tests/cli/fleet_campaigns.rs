//! Nights and searches on many boards.

use std::fs;

use serde_json::Value;

use crate::fleet::Lab;

/// A matrix whose one cell ends with the code that stands in the file `code` of its board.
fn night(lab: &Lab) -> String {
    lab.bench.write(
        "night.toml",
        "[matrix]\nname = \"night\"\ntrials = 9\n[workload]\nkind = \"command\"\n\
         argv = [\"sh\", \"-c\", \"exit $(cat $HOME/code)\"]\nsettle = \"0s\"\n[baseline]\n",
    )
}

#[test]
fn each_board_has_its_own_nights_and_the_gravest_exit_code_is_told() {
    let lab = Lab::new(&["orin-1", "orin-2", "off"], "");
    let file = night(&lab);
    lab.fault("off", "refused");
    for board in ["orin-1", "orin-2"] {
        lab.bench.write(&format!("{board}/code"), "0");
    }
    let chosen = ["--board", "orin-1", "--board", "orin-2", "--allow-root-workload"];
    let said = lab.fleet(&[&["nightly", &file], &chosen[..]].concat());
    said.ends(0);
    for board in ["orin-1", "orin-2"] {
        assert!(said.says(&format!("{board}: night-001: 1 STABLE_CLEAN")), "{}", said.out);
    }
    lab.bench.write("orin-2/code", "5");
    let junit = lab.bench.path("night.xml");
    let args = ["nightly", &file, "--allow-root-workload", "--junit", junit.to_str().unwrap()];
    let said = lab.fleet(&args);
    // A board without a night is graver than a fault of another.
    said.fails(4, &["off: error: unreachable"]);
    assert!(said.says("orin-1: night-002: 1 STABLE_CLEAN"), "{}", said.out);
    assert!(said.says("orin-2: night-002: NEW_FAULT baseline (9/9 tonight after 0/9"), "{}", said.out);
    let xml = fs::read_to_string(junit).unwrap();
    for words in ["name=\"orin-1 night-002\"", "name=\"orin-2 night-002\" tests=\"1\"", "<testsuite name=\"off\""] {
        assert!(xml.contains(words), "{words} is not in\n{xml}");
    }
    assert_eq!(xml.matches("<failure").count(), 1, "{xml}");
}

/// A search of which level breaks a program; the level `bad` of `which` does.
fn search(lab: &Lab, boards: &[(&str, &str)]) -> String {
    for (board, which) in boards {
        lab.bench.write(&format!("{board}/which"), which);
    }
    lab.bench.write(
        "search.toml",
        "[matrix]\nname = \"search\"\ntrials = 1\n[workload]\nkind = \"command\"\nsettle = \"0s\"\n\
         argv = [\"sh\", \"-c\", \"case $(cat $HOME/which) in {one}|{two}) exit 7;; esac\"]\n\
         [baseline]\none = \"a\"\ntwo = \"b\"\n[axes]\none = [\"x\"]\ntwo = [\"y\"]\n",
    )
}

#[test]
fn a_search_has_one_answer_only_where_every_board_passed_its_gate_and_says_the_same() {
    // A search knows what earlier ones of its device found, so each has boards of its own.
    let searched = |second: &str| {
        let lab = Lab::new(&["orin-1", "orin-2"], "");
        let file = search(&lab, &[("orin-1", "a"), ("orin-2", second)]);
        let args = ["bisect", "axes", &file, "--allow-root-workload"];
        let said = lab.fleet(&args);
        (lab, file, said)
    };
    let (lab, file, said) = searched("a");
    assert!(said.ends(1).says("the same on all 2 devices, each after its own gate: one=a"), "{}", said.out);
    // A complete search answers as it did, and the desk may ask again.
    let again = lab.fleet(&["bisect", "axes", &file, "--allow-root-workload", "--format", "json"]);
    let again: Value = serde_json::from_str(&again.ends(1).out).unwrap();
    assert_eq!(
        (&again["joint"]["agreement"], &again["boards"][1]["came"]["finding"]),
        (&"same".into(), &"found".into())
    );
    assert_eq!(again["boards"][1]["came"]["question"], "axes");

    let (_lab, _, said) = searched("b");
    let differs = "differs between devices: orin-1: one=a (error/exit 7); orin-2: two=b (error/exit 7)";
    assert!(said.ends(1).says(differs), "{}", said.out);
    let (_lab, _, said) = searched("none");
    assert!(said.ends(3).says("undecided: one=a on 1 of 2 devices, not on orin-2"), "{}", said.out);
}
