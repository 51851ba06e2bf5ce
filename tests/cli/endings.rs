//! Every way in which a program may end has its class.

use serde_json::Value;

use crate::bench::Bench;
use crate::memory::Group;
use crate::standins::standin;

/// The judgement of the first trial of a matrix whose program ends as `kind` does.
fn judgement(kind: &str, workload: &str, sections: &str) -> Value {
    let bench = Bench::new();
    let text = format!(
        "[matrix]\nname = \"m\"\ntrials = 1\n[workload]\nkind = \"command\"\nsettle = \"0s\"\nargv = [{:?}, {kind:?}]\n\
         {workload}{sections}",
        standin("endings")
    );
    let file = bench.write("m.toml", &text);
    bench.run(&["run", &file, "--allow-root-workload"]);
    // A trial that is excluded is repeated.
    let (_, json) = &bench.results_of("m-001")[0];
    serde_json::from_str::<Value>(json).unwrap()["judgement"].clone()
}

#[test]
fn a_program_that_goes_on_talking_hangs_by_the_clock_and_one_that_is_silent_by_its_silence() {
    let limits = "timeout = \"2s\"\nsilence_timeout = \"1s\"\n";
    for (kind, words) in
        [("chatty", "the whole trial took longer than its timeout"), ("silent", "no output within the silence timeout")]
    {
        let judgement = judgement(kind, limits, "");
        assert_eq!(judgement["verdict"], "hang", "{kind}: {judgement}");
        assert!(judgement["detail"].as_str().unwrap().contains(words), "{kind}: {judgement}");
    }
}

#[test]
fn memory_that_a_group_takes_back_is_told_from_a_kill_and_from_a_refusal() {
    if Group::needed("probe").is_none() {
        return;
    }
    let limit = "[baseline]\nmemory_max = \"64MiB\"\n";
    let taken = judgement("memory", "", limit);
    assert_eq!(taken["verdict"], "oom-kill", "{taken}");
    assert!(taken["detail"].as_str().unwrap().contains("cgroup"), "{taken}");
    let killed = judgement("kill", "", limit);
    assert_eq!(killed["verdict"], "killed", "{killed}");
    let refused = judgement("refused", "", limit);
    assert_eq!(refused["verdict"], "cuda-oom", "{refused}");
}

#[test]
fn every_ending_has_its_class() {
    let bench = Bench::new();
    let kinds = [
        ("good", "pass", ""),
        ("wrong", "wrong-result", "err is 17.31"),
        ("nan", "wrong-result", "err is NaN"),
        ("error-but-zero", "wrong-result", "contains \"CUDA error\""),
        ("masked", "cuda-oom", "masked"),
        ("illegal-access", "cuda-error", "cuda 700"),
        ("no-kernel", "error", "no-kernel-image"),
        ("bus", "crash", "SIGBUS"),
        ("kill", "killed", "SIGKILL"),
        ("terminated", "void", "SIGTERM"),
        ("free-twice", "crash", "SIGABRT"),
    ];
    let names: Vec<String> = kinds[1..].iter().map(|(kind, ..)| format!("{kind:?}")).collect();
    let text = format!(
        "[matrix]\nname = \"m\"\ntrials = 1\n[workload]\nkind = \"command\"\nsettle = \"0s\"\ncwd = \"{{trial.dir}}\"\n\
         argv = [{:?}, \"{{kind}}\"]\nmetrics = {{ err = 'max_abs_err=(\\S+)' }}\n\
         expect_output = {{ lacks = \"CUDA error\", numbers = {{ err = {{ max = 1 }} }} }}\n\
         [baseline]\nkind = \"good\"\n[axes]\nkind = [{}]\n",
        standin("endings"),
        names.join(", ")
    );
    let file = bench.write("m.toml", &text);
    bench.run(&["run", &file, "--allow-root-workload"]).ends(1);
    let report: Value = serde_json::from_str(&bench.run(&["report", "--format", "json"]).out).unwrap();
    let results = bench.results_of("m-001");
    for (kind, verdict, words) in kinds {
        let label = if kind == "good" { "baseline".to_owned() } else { format!("kind={kind}") };
        let cell = report["cells"].as_array().unwrap().iter().find(|cell| cell["label"] == *label).unwrap();
        let id = cell["id"].as_str().unwrap();
        let (_, json) = results.iter().find(|(trial, _)| trial.starts_with(id)).unwrap();
        let judgement = serde_json::from_str::<Value>(json).unwrap()["judgement"].clone();
        assert_eq!(judgement["verdict"], verdict, "{kind}: {judgement}");
        assert!(judgement["detail"].as_str().unwrap_or_default().contains(words), "{kind}: {judgement}");
    }
}
