//! What grows with the size of a matrix, a journal or a log: planning 100,000 cells, folding 100,000 finished trials,
//! reading 100 MB of a kernel log, a bug report of 10,000 trials.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use criterion::{Criterion, criterion_group, criterion_main};
use jetfault::cli::args::{Cli, Command};
use jetfault::cli::issue;
use jetfault::decide::agenda::{Agenda, CellHere};
use jetfault::decide::kernel_log::classify;
use jetfault::decide::plan::{Plan, PlanOptions, expand};
use jetfault::decide::predict::Predictor;
use jetfault::decide::result::ResultFold;
use jetfault::decide::run::RunState;
use jetfault::model::evidence::{EvidenceSummary, Findings};
use jetfault::model::ids::{BootId, ContentDigest, DeviceId, RunId, TrialId};
use jetfault::model::journal::{
    Allowed, Booted, Conditions, Event, Finished, Invoker, Judged, Launcher, Opened, Persistence, Record, Running,
    Started, VERSION, encode,
};
use jetfault::model::matrix::parse;
use jetfault::model::outcome::{Exit, LastReply, Outcome};
use jetfault::model::units::{UptimeMs, WallTime};
use jetfault::model::verdict::{Provenance, Role};
use jetfault::perform::journal::read_records;
use jetfault::perform::runner::RunError;
use jetfault::perform::store::RunDir;

/// 10 sequences, 10 batches, 5 hygienes, 4 storages, 5 block sizes, 2 formats, 5 thread counts: 100,000 cells.
fn large_matrix() -> String {
    "[matrix]\nname = \"large\"\ndesign = \"full\"\ntrials = 1\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\n\
     [shapes]\nA = [4096, 32768]\nB = [4096, 128256]\nC = [3584, 152064]\n\
     [baseline]\nsequence = \"ABC\"\nbatch = 1\nhygiene = \"none\"\nstorage = \"bf16\"\nblocksize = 64\nquant = \"nf4\"\n\
     init_threads = 1\n[axes]\n\
     sequence = [\"ACB\", \"BAC\", \"BCA\", \"CAB\", \"CBA\", \"AB\", \"BA\", \"AAB\", \"ABB\"]\n\
     batch = [2, 3, 4, 5, 6, 7, 8, 9, 10]\nhygiene = [\"each\", \"after:A\", \"after:B\", \"after:A,B\"]\n\
     storage = [\"uint8\", \"fp16\", \"fp32\"]\nblocksize = [128, 256, 512, 1024]\nquant = [\"fp4\"]\n\
     init_threads = [2, 3, 4, 5]\n"
        .to_owned()
}

fn small_plan(trials: u32) -> Plan {
    let matrix = format!(
        "[matrix]\nname = \"small\"\ntrials = {trials}\n[workload]\nkind = \"linear4bit\"\n[shapes]\nA = [64, 64]\n\
         [baseline]\nsequence = \"A\"\n"
    );
    expand(&parse(&matrix, "small", &[]).unwrap(), &PlanOptions::default()).unwrap()
}

fn agenda(plan: &Plan) -> Agenda {
    Agenda::of(plan, false, |_| CellHere { unrecorded_ms: 100, ..CellHere::default() })
}

/// The journal of `trials` trials of each cell that passed, without stages.
fn journal(plan: &Plan, trials: u32) -> Vec<u8> {
    let passes = |_| Outcome { last_reply: Some(LastReply::Done), duration_ms: 3, ..Outcome::of(Exit::Code(0)) };
    journal_of(plan, trials, passes)
}

/// The journal of `trials` trials of each cell, the n-th of which ends as `outcome` says.
fn journal_of(plan: &Plan, trials: u32, outcome: impl Fn(u32) -> Outcome) -> Vec<u8> {
    let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
    let device = DeviceId::of_machine("bench");
    let digest = ContentDigest::of(b"bench");
    let mut bytes = Vec::new();
    let mut seq = 0;
    let mut write = |event: Event| {
        seq += 1;
        let wall = WallTime(chrono::DateTime::from_timestamp_millis(1_777_000_000_000 + seq as i64).unwrap());
        bytes.extend(encode(&Record {
            version: VERSION,
            seq,
            boot: boot.clone(),
            uptime_ms: UptimeMs(seq),
            wall,
            event,
        }));
    };
    write(Event::Opened(Box::new(Opened {
        run: RunId::new("bench", 1).unwrap(),
        matrix: digest.clone(),
        plan: ContentDigest::of(&plan.to_json()),
        binary: digest.clone(),
        tool: "bench".into(),
        device: device.clone(),
        invoker: Invoker::default(),
        matrix_dir: String::new(),
        allowed: Allowed::default(),
        persistence: Persistence::Persistent,
        script: None,
    })));
    let evidence = EvidenceSummary { file: digest, findings: Findings::default() };
    write(Event::Booted(Booted { evidence }));
    let rounds = (1..=trials).flat_map(|round| plan.cells.iter().map(move |cell| (round, cell)));
    for (n, (round, cell)) in (0..).zip(rounds) {
        let trial = TrialId { cell: cell.id.clone(), round, attempt: 1 };
        write(Event::Started(Started {
            trial: trial.clone(),
            role: Role::Sample,
            device: device.clone(),
            position: n,
            provenance: Provenance::Measured,
            launcher: Launcher::Shell,
            conditions: Conditions::default(),
        }));
        write(Event::Running(Running { trial: trial.clone(), pid: 4711 }));
        let outcome = outcome(n);
        let (judgement, rule) = jetfault::decide::classify::classify(&outcome);
        write(Event::Finished(Finished { trial: trial.clone(), outcome: Box::new(outcome) }));
        write(Event::Judged(Judged { trial, judgement, rule: rule.label.into(), corrects: None }));
    }
    bytes
}

/// A run of 100 cells and 10,000 trials in `dir`, every fifth a fault, each with the times of 24 stages.
fn run_of_10_000(dir: &Path) -> RunDir {
    let matrix = "[matrix]\nname = \"bench\"\ntrials = 100\ndesign = \"full\"\n[workload]\nkind = \"linear4bit\"\n\
                  [shapes]\nA = [64, 64]\nB = [64, 64]\nC = [64, 64]\n[baseline]\nsequence = \"ABC\"\nbatch = 1\n\
                  [axes]\nsequence = [\"ACB\", \"BAC\", \"BCA\", \"CAB\", \"CBA\", \"AB\", \"BC\", \"AC\", \"A\"]\n\
                  batch = [2, 3, 4, 5, 6, 7, 8, 9, 10]\n";
    let plan = expand(&parse(matrix, "bench", &[]).unwrap(), &PlanOptions::default()).unwrap();
    assert_eq!(plan.cells.len(), 100);
    let stages = ["construct", "alloc", "copy", "quantize", "free_host", "forward", "sync", "hygiene"];
    let stages: Vec<String> = ["A", "B", "C"].iter().flat_map(|shape| stages.map(|s| format!("{shape}.{s}"))).collect();
    let outcome = |n: u32| {
        let fails = n.is_multiple_of(5);
        Outcome {
            last_reply: Some(if fails { LastReply::Running } else { LastReply::Done }),
            duration_ms: 13_000 + u64::from(n % 97),
            stage: fails.then(|| "C.forward".parse().unwrap()),
            stage_ms: stages.iter().map(|stage| (stage.parse().unwrap(), u64::from(n % 89))).collect(),
            error_text: fails.then(|| "RuntimeError: an illegal memory access was encountered".to_owned()),
            ..Outcome::of(Exit::Code(i32::from(fails)))
        }
    };
    let run = dir.join("bench-001");
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("matrix.toml"), matrix).unwrap();
    fs::write(run.join("plan.json"), plan.to_json()).unwrap();
    fs::write(run.join("journal.jsonl"), journal_of(&plan, 100, outcome)).unwrap();
    RunDir::open(&run).unwrap()
}

/// `text` over and over, with a panic at the end.
fn kernel_log(text: &str) -> String {
    let mut log = text.repeat(KERNEL_LOG_BYTES / text.len());
    log.push_str("[  122.431880] Kernel panic - not syncing: Fatal exception\n");
    log
}

/// As much as the journal of a board is allowed to hold.
const KERNEL_LOG_BYTES: usize = 100_000_000;

fn scale(c: &mut Criterion) {
    let mut group = c.benchmark_group("scale");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    let text = large_matrix();
    group.bench_function("plan of 100,000 cells (under 1 s)", |b| {
        b.iter(|| {
            let mut plan = expand(&parse(&text, "large", &[]).unwrap(), &PlanOptions::default()).unwrap();
            let mut predictor = Predictor::default();
            plan.predict_with(|settings| predictor.predict(settings));
            assert_eq!(plan.cells.len(), 100_000);
            black_box(plan)
        });
    });
    let plan = small_plan(100_000);
    let agenda = agenda(&plan);
    let journal = journal(&plan, 100_000);
    group.bench_function("fold of 100,000 finished trials (under 1 s)", |b| {
        b.iter(|| {
            let (mut state, mut results) = (RunState::new(&agenda), ResultFold::default());
            read_records(&journal[..], |record| {
                state.apply(&agenda, &record)?;
                black_box(results.apply(&record));
                Ok::<(), RunError>(())
            })
            .unwrap();
            assert_eq!(state.progress.cells()[0].counted, 100_000);
        });
    });
    let flood = "[   30.000000] nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 31 \
                 for ch 479 owned by python3\n";
    for (what, text) in [
        ("kernel log of 100 MB (under 2 s)", include_str!("../tests/klog/tegra_boot.log")),
        ("kernel log of 100 MB, a fault in each line", flood),
    ] {
        let log = kernel_log(text);
        group.bench_function(what, |b| {
            b.iter(|| {
                let log = classify(log.lines());
                assert!(log.panicked);
                black_box(log)
            });
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let run = run_of_10_000(dir.path());
    let cli = Cli::try_parse_from(["jetfault", "report", "bench", "--format", "md"]).unwrap();
    let Some(Command::Report(args)) = &cli.command else { unreachable!("it was parsed as that") };
    group.bench_function("bug report of 10,000 trials (under 200 ms)", |b| {
        b.iter(|| {
            let (text, _) = issue::make(std::slice::from_ref(&run), args, &cli.global).unwrap();
            assert!(text.len() < 65_536 && text.contains("20/100"), "{text}");
            black_box(text)
        });
    });
    group.finish();
}

criterion_group!(benches, scale);
criterion_main!(benches);
