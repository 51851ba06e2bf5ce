//! The matrix language from outside: the shipped schema, and how long large matrices take.

use std::time::{Duration, Instant};

use jetfault::decide::plan::{PlanOptions, expand};
use jetfault::model::matrix::{json_schema, parse};

const LAYERS: &str = r#"[matrix]
name = "m"
design = "full"
trials = 3
[workload]
kind = "linear4bit"
[shapes]
A = [128, 256]
B = [64, 512]
[baseline]
sequence = "AB"
[axes]
batch = [2]
"#;

/// Far more than any of this takes, so that only a wrong order of growth fails, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn the_shipped_schema_is_the_one_of_this_build() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/matrix.schema.json");
    let schema = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let shipped = std::fs::read_to_string(path).unwrap();
    assert!(shipped == schema, "matrices/matrix.schema.json is stale: run the tests once with UPDATE=1");
}

#[test]
fn a_large_wrong_file_is_refused_without_delay() {
    let many = |line: &dyn Fn(usize) -> String| (0..40_000).map(line).collect::<String>();
    for text in [
        format!("{LAYERS}{}", many(&|n| format!("a{n} = [1]\n"))),
        format!("{LAYERS}[axes.env]\n{}", many(&|n| format!("A{n} = [1]\n"))),
        LAYERS.replacen("[axes]", &format!("{}[axes]", many(&|n| format!("batsh{n} = 1\n"))), 1),
        format!("{LAYERS}[matrixx]\n{}", many(&|n| format!("a{n} = 1\n"))),
        LAYERS.replacen("[2]", &"[".repeat(500_000), 1),
        LAYERS.replacen("\"AB\"", &format!("\"{}\"", "X".repeat(500_000)), 1),
        many(&|n| format!("[t{n}]\n")),
    ] {
        let started = Instant::now();
        let complaint = parse(&text, "m.toml", &[]).unwrap_err().to_string();
        assert!(complaint.len() < 100_000, "{} bytes are no message", complaint.len());
        assert!(started.elapsed() < PATIENCE, "{:?} for {}", started.elapsed(), &text[..400]);
    }
}

#[test]
fn a_hundred_thousand_cells_are_planned_without_delay() {
    let levels = |from: u32, to: u32| (from..to).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let axes = format!("iterations = [{}]\ninit_threads = [{}]\n", levels(2, 251), levels(1, 200));
    let matrix = parse(&format!("{LAYERS}{axes}"), "m.toml", &[]).unwrap();
    let started = Instant::now();
    let plan = expand(&matrix, &PlanOptions::default()).unwrap();
    println!("{} cells in {:?}", plan.cells.len(), started.elapsed());
    assert_eq!((plan.cells.len(), plan.needs.trials), (100_000, 300_000));
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}
