//! Stacks of layers through whole runs: the shipped matrix on a small model, and a hang in one layer.

use crate::bench::Bench;

fn stack(more: &str) -> String {
    format!(
        "[matrix]\nname = \"stack\"\ntrials = 1\nseed = 1\n[workload]\nkind = \"stack\"\nbackend = \"cpu\"\nsettle = \"0s\"\n\
         stage_timeout = \"1s\"\n[baseline]\nprofile = \"tiny\"\n{more}"
    )
}

#[test]
fn the_shipped_stack_runs_on_a_small_model_and_its_plan_knows_the_memory() {
    let bench = Bench::new();
    let small = ["--set", "baseline.profile=tiny", "--set", "axes.layers=[1, 2]", "--set", "workload.backend=cpu"];
    let plan = bench.run(&[&["plan", "llama-stack", "--format", "json"], &small[..]].concat());
    plan.ends(0);
    let plan: serde_json::Value = serde_json::from_str(&plan.out).unwrap();
    let cells = plan["cells"].as_array().unwrap();
    assert!(cells.len() >= 5 && cells.iter().all(|cell| cell["predicted"]["at"].is_string()), "{plan}");
    let said = bench.run(&[&["run", "llama-stack"], &small[..]].concat());
    said.ends(0);
    let results = bench.results_of("llama-stack-001");
    assert_eq!(results.len(), cells.len());
    assert!(results.iter().all(|(_, result)| result.contains("\"verdict\": \"pass\"")));
    // At full size it is planned only.
    let plan = bench.run(&["plan", "llama-stack", "--format", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan.out).unwrap();
    let peak = plan["cells"][0]["predicted"]["allocated_bytes"].as_u64().unwrap();
    // 7.5 thousand million weights of four bits and an eighth, and the head before it is quantised.
    assert!((5_900_000_000..6_300_000_000).contains(&peak), "{peak}");
}

#[test]
fn a_hang_in_one_layer_is_attributed_to_that_layer() {
    let bench = Bench::new();
    let inject = "[[inject]]\nfault = \"hang\"\nat = \"L01.up_proj.forward\"\n";
    let file = bench.write("stack.toml", &stack(inject));
    bench.run(&["run", &file, "--allow-injected-faults"]).ends(1);
    let result = &bench.results_of("stack-001")[0].1;
    let is_there = result.contains("\"verdict\": \"hang\"") && result.contains("\"stage\": \"L01.up_proj.forward\"");
    assert!(is_there, "{result}");
}

#[test]
fn a_stack_that_makes_no_sense_is_refused_with_its_place() {
    let bench = Bench::new();
    let refused = |more: &str, words: &[&str]| {
        let file = bench.write("stack.toml", &stack(more));
        bench.run(&["plan", &file]).fails(2, words);
    };
    refused("[axes]\nprofile = [\"llama\"]\n", &["unknown profile `llama`", "llama-3.1-8b"]);
    refused("hygiene = \"each\"\n", &["`hygiene` with a stack"]);
    refused("iterations = 2\n", &["2 iterations of a stack"]);
    refused("[[inject]]\nfault = \"hang\"\nat = \"L03.up_proj.forward\"\n", &["is not a stage of this workload"]);
    refused("[profiles.mine]\nblock = [{ name = \"a\", in = 0, out = 64 }]\n", &["0 is out of range", "expected 1 to"]);
    let odd = "[axes]\nprofile = [\"odd\"]\n[profiles.odd]\nblock = [{ name = \"a\", in = 72, out = 64 }]\n";
    let nvfp4 = format!("quant = \"nvfp4\"\n{odd}");
    refused(&nvfp4, &["in_features 72 of `a` is not a multiple of 16"]);
}
