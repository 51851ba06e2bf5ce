//! What a machine says and the verdict that follows: every scenario of the constructed boards, every public report.

#[path = "../src/testing/boards.rs"]
mod boards;

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use jetfault::decide::classify::classify;
use jetfault::decide::evidence::findings;
use jetfault::decide::gate::{Need, gate};
use jetfault::decide::infer::{Baseline, Intent, OpenEnd, infer};
use jetfault::decide::prepare::Look;
use jetfault::decide::signs::{kernel_findings, known_text};
use jetfault::decide::start_state::{Known, start_state};
use jetfault::model::evidence::{DriveCounters, EvidenceSummary, Fact, Findings, RawEvidence, Shutdown, names};
use jetfault::model::ids::{BootId, ContentDigest};
use jetfault::model::outcome::{EndedBy, Exit, MemoryEvents, Outcome, Whose};
use jetfault::model::start_state::TraceSources;
use jetfault::model::verdict::{Judgement, RebootCause, Verdict};
use jetfault::perform::evidence::read;
use jetfault::perform::gpu_health::GpuHealth;
use jetfault::perform::host::Sysroot;
use jetfault::perform::survey::survey;

/// At least so many of the scenarios must be told by their cause.
const NAMED_MIN: usize = 22;

/// A board after something happened, with what is expected of it.
struct Scenario {
    board: String,
    name: String,
    tree: tempfile::TempDir,
    expect: Value,
}

fn scenarios() -> Vec<Scenario> {
    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/boards");
    let names = |dir: &Path| -> Vec<String> {
        let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let mut scenarios = Vec::new();
    for board in names(&boards) {
        for name in names(&boards.join(&board).join("scenarios")) {
            let overlay = boards.join(&board).join("scenarios").join(&name);
            let expect = serde_json::from_slice(&fs::read(overlay.join("expect.json")).unwrap()).unwrap();
            let tree = boards::assemble(&board, Some(&name));
            // No tree can hold an empty directory; a machine with pstore always has this one.
            fs::create_dir_all(tree.path().join("sys/fs/pstore")).unwrap();
            scenarios.push(Scenario { board: board.clone(), name, tree, expect });
        }
    }
    assert_eq!(scenarios.len(), 27);
    scenarios
}

impl Scenario {
    fn harness(&self, field: &str) -> &Value {
        &self.expect["harness"][field]
    }

    fn boot(&self, field: &str) -> BootId {
        self.harness(field).as_str().unwrap().parse().unwrap()
    }

    fn has_rebooted(&self) -> bool {
        self.boot("boot_id_before") != self.boot("boot_id_now")
    }

    /// What was found at the start of the trial's boot, as far as the scenario tells it.
    fn baseline(&self, after: &Findings) -> Baseline {
        let record = |known: &Value| {
            let bytes = fs::read(self.tree.path().join("sys/fs/pstore").join(known["name"].as_str().unwrap())).unwrap();
            let digest = ContentDigest::of(&bytes);
            assert_eq!(digest.as_str(), known["sha256"].as_str().unwrap());
            digest
        };
        let digests = self.harness("pstore_baseline").as_array().unwrap().iter().map(record).collect();
        let mut boots = after.boots.known().cloned().unwrap_or_default();
        if let Some(own) = boots.iter().position(|boot| *boot == self.boot("boot_id_before")) {
            boots.truncate(own + 1);
        }
        Baseline { digests, boots, drives: self.drives_before(), incomplete: false }
    }

    /// Takes the tree's earlier SMART log away, so that it is not read as another drive's.
    fn drives_before(&self) -> Vec<DriveCounters> {
        let commands = self.tree.path().join("cmd");
        let (log, before) = (commands.join("nvme-smart-log.json"), commands.join("nvme-smart-log-before.json"));
        if !before.exists() {
            return Vec::new();
        }
        let after = fs::read(&log).unwrap();
        fs::rename(&before, &log).unwrap();
        let drives = self.findings().drives.known().cloned().unwrap();
        fs::write(&log, after).unwrap();
        drives
    }

    fn findings(&self) -> Findings {
        findings(&read(&Sysroot::new(self.tree.path().to_owned())).unwrap())
    }

    fn judge_across_boots(&self) -> Judgement {
        let baseline = self.baseline(&self.findings());
        let findings = self.findings();
        self.check_findings(&findings);
        let intent = match self.harness("intent").as_str() {
            None => Intent::Nothing,
            Some("reboot") => Intent::Reboot,
            Some("power-cycle") => Intent::PowerCycle,
            Some(other) => panic!("{other}"),
        };
        let boot = self.boot("boot_id_before");
        let end = OpenEnd { boot, stage: None, unrecorded_ms: 0, running: true, intent, outside: None };
        let evidence = EvidenceSummary { file: ContentDigest::of(b"evidence"), findings };
        infer(&end, &evidence, &self.boot("boot_id_now"), &baseline).0
    }

    /// What the scenario says of single facts.
    fn check_findings(&self, findings: &Findings) {
        let at = format!("{}/{}", self.board, self.name);
        let shutdown = match findings.shutdown {
            Fact::Known(Shutdown::Clean) => "clean",
            Fact::Known(Shutdown::Unclean) => "unclean",
            _ => "unknown",
        };
        if let Some(want) = self.expect["expect"]["shutdown"].as_str() {
            assert_eq!(shutdown, want, "{at}");
        }
        let reset = findings.reset.known().map(|reset| reset.reason.as_str());
        assert_eq!(reset, self.expect["expect"]["reset_reason"].as_str(), "{at}");
    }

    /// The machine is looked at before a trial; a trial that may start is judged by its end and by what was said
    /// meanwhile.
    fn judge_in_its_boot(&self) -> Judgement {
        let look = Look { traces: Some(TraceSources::FilesAndPrograms), gpu: true, slots: true, ..Look::default() };
        let sysroot = Sysroot::new(self.tree.path().to_owned());
        let survey = survey(&sysroot, &look, &mut GpuHealth::default(), || None);
        let start = start_state(&survey.traces.unwrap(), Known::default());
        let need = Need { gpu: true, cold: self.board != "x86-pc" };
        if let Some(unfit) = gate(need, &survey.slots, &survey.gpu, &start) {
            return Judgement::void(unfit.to_string());
        }
        let output = fs::read_to_string(self.tree.path().join("cmd/cell-stderr.txt")).unwrap_or_default();
        let lines = self.kernel_lines_of_the_trial();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let output: Vec<&str> = output.lines().collect();
        classify(&outcome(self.harness("child").as_str().unwrap(), &lines, &output, None)).0
    }

    /// The trial began 95 seconds after the boot.
    fn kernel_lines_of_the_trial(&self) -> Vec<String> {
        let log = fs::read_to_string(self.tree.path().join("cmd/journalctl-k-b-0.jsonl")).unwrap();
        let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_later =
            |entry: &Value| entry["__MONOTONIC_TIMESTAMP"].as_str().unwrap().parse::<u64>().unwrap() > 95_000_000;
        entries.filter(is_later).map(|entry| entry["MESSAGE"].as_str().unwrap().to_owned()).collect()
    }

    fn judge(&self) -> Judgement {
        let is_seen = self.harness("child").is_string() || !self.has_rebooted() && self.name != "sc7-resume";
        if is_seen { self.judge_in_its_boot() } else { self.judge_across_boots() }
    }

    fn labels(&self, field: &str) -> Vec<&str> {
        match &self.expect["expect"][field] {
            Value::String(label) => vec![label],
            Value::Array(labels) => labels.iter().map(|label| label.as_str().unwrap()).collect(),
            other => panic!("{other}"),
        }
    }
}

/// The processes of every trial here.
const TRIAL_PIDS: [u32; 2] = [1834, 1851];

/// What a harness would have observed of a child that ended in the trial's boot.
fn outcome(child: &str, kernel: &[&str], output: &[&str], oom_kill: Option<u64>) -> Outcome {
    let number = || child.split_once(' ').unwrap().1.parse().unwrap();
    let exit = match child.split(' ').next().unwrap() {
        "exit" => Exit::Code(number()),
        "signal" => Exit::Signal { number: number(), core: false },
        "deadline" => Exit::Signal { number: 9, core: false },
        other => panic!("{other}"),
    };
    let whose = |pid| if TRIAL_PIDS.contains(&pid) { Whose::Trial } else { Whose::Other };
    Outcome {
        ended_by: (child == "deadline").then_some(EndedBy::Timeout),
        kernel: Fact::Known(kernel_findings(kernel.iter().copied(), whose)),
        memory_events: oom_kill.map_or(Fact::Absent, |oom_kill| Fact::Known(MemoryEvents { oom: 0, oom_kill })),
        known_texts: output.iter().filter_map(|line| known_text(line.as_bytes())).collect(),
        ..Outcome::of(exit)
    }
}

/// Whether a verdict is what a scenario's or a case's label means.
fn means(label: &str, judgement: &Judgement) -> bool {
    let is = |verdict| judgement.verdict == verdict;
    let because_of = |cause| is(Verdict::Reboot) && judgement.cause == Some(cause);
    let detailed = |words: &str| judgement.detail.as_ref().is_some_and(|detail| detail.contains(words));
    match label {
        "reboot/panic" => because_of(RebootCause::Panic),
        "reboot/watchdog" => because_of(RebootCause::Watchdog),
        "reboot/power-loss" => because_of(RebootCause::Power),
        "reboot/thermal-hw" | "shutdown/thermal" => because_of(RebootCause::Thermal),
        "reboot/undetermined" => because_of(RebootCause::Undetermined),
        "reboot/silent" => because_of(RebootCause::Undetermined) && detailed("silent"),
        "reboot/power-or-reset-line" => because_of(RebootCause::Undetermined) && detailed("power or reset line"),
        "reboot/planned" => is(Verdict::Planned),
        "operator/reboot" | "reboot/clean-unplanned" => is(Verdict::Operator),
        "hang/needs-power-cycle" => is(Verdict::Hang) && detailed("needs-power-cycle"),
        "env/suspended" => is(Verdict::Void) && detailed("suspended"),
        "pass" => is(Verdict::Pass),
        "oom-kill" => is(Verdict::OomKill),
        "gpu-unavailable/acr" | "env/gpu-dead" => is(Verdict::Void) && detailed("acr"),
        "env/not-cold" => is(Verdict::Void) && detailed("not-cold"),
        "env/retry-counter" => is(Verdict::Void) && detailed("retry-counter"),
        "env/permission" => is(Verdict::Void) && detailed("permission"),
        "throttled/undervoltage" => is(Verdict::Void) && detailed("throttled"),
        "gpu-fault/mmu" => is(Verdict::CudaError) && detailed("mmu"),
        "gpu-fault/xid31" => is(Verdict::CudaError) && detailed("xid31"),
        "gpu-fault/xid62" => is(Verdict::CudaError) && detailed("xid62"),
        "cuda-error/700" => is(Verdict::CudaError) && detailed("700"),
        "alloc-fail/nvmap-enomem" => is(Verdict::CudaOom) && detailed("nvmap-enomem"),
        "process-signal/SIGKILL" => is(Verdict::Killed),
        "process-signal/SIGBUS" => is(Verdict::Crash) && detailed("SIGBUS"),
        "kernel-fault/serror+rcu-stall" => is(Verdict::Hang) && detailed("serror") && detailed("rcu-stall"),
        other => panic!("a label without a meaning: {other}"),
    }
}

#[test]
fn every_scenario_gives_what_is_expected_and_nothing_that_must_not_be() {
    let mut wrong = Vec::new();
    let mut named = 0;
    let scenarios = scenarios();
    for scenario in &scenarios {
        let judgement = scenario.judge();
        let right = [scenario.labels("verdict"), scenario.labels("acceptable")].concat();
        let forbidden = scenario.labels("must_not");
        let is_right = right.iter().any(|label| means(label, &judgement));
        if !is_right || forbidden.iter().any(|label| means(label, &judgement)) {
            wrong.push(format!("{}/{}: {right:?}, got {judgement:?}", scenario.board, scenario.name));
        }
        named += usize::from(judgement.cause != Some(RebootCause::Undetermined));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("evidence: {} scenarios as expected, {named} told by their cause", scenarios.len());
    assert!(named >= NAMED_MIN, "{named}");
}

/// A public report.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    source: String,
    variant: Vec<Variant>,
}

/// What a harness there would have had.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    label: String,
    because: String,
    exit: Option<String>,
    #[serde(default)]
    kernel: Vec<String>,
    oom_kill: Option<u64>,
    #[serde(default)]
    output: Vec<String>,
    #[serde(default)]
    previous_kernel: Vec<String>,
    #[serde(default)]
    previous: Vec<String>,
    reset: Option<String>,
    intent: Option<String>,
}

impl Variant {
    fn judge(&self) -> Judgement {
        fn lines(texts: &[String]) -> Vec<&str> {
            texts.iter().map(String::as_str).collect()
        }
        match &self.exit {
            Some(child) => classify(&outcome(child, &lines(&self.kernel), &lines(&self.output), self.oom_kill)).0,
            None => self.judge_across_boots(),
        }
    }

    /// The next boot, of a machine that remembers its boots and keeps crash records, none of which is there.
    fn judge_across_boots(&self) -> Judgement {
        let [before, now] = ["1", "2"].map(|n| format!("{n}f06b739-9e6f-4d8e-b4cd-0d9449a8b993"));
        let mut items = vec![(names::BOOTS_LEDGER, format!("{before}\n{now}\n")), (names::PSTORE, String::new())];
        for (name, lines) in [(names::PREVIOUS, &self.previous), (names::PREVIOUS_KERNEL, &self.previous_kernel)] {
            if !lines.is_empty() {
                items.push((name, lines.join("\n")));
            }
        }
        items.extend(self.reset.clone().map(|word| (names::RESET_REASON, word)));
        let items = items.into_iter().map(|(name, text)| (name.to_owned(), Fact::Known(text.into_bytes()))).collect();
        let now: BootId = now.parse().unwrap();
        let findings = findings(&RawEvidence { boot: now.clone(), items });
        let intent = match self.intent.as_deref() {
            None => Intent::Nothing,
            Some("power-cycle") => Intent::PowerCycle,
            Some(other) => panic!("{other}"),
        };
        let end = OpenEnd {
            boot: before.parse().unwrap(),
            stage: None,
            unrecorded_ms: 0,
            running: true,
            intent,
            outside: None,
        };
        let evidence = EvidenceSummary { file: ContentDigest::of(b"evidence"), findings };
        infer(&end, &evidence, &now, &Baseline::default()).0
    }
}

#[test]
fn every_public_report_gives_its_verdict_and_no_more_than_it_shows() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert_eq!(files.len(), 12);
    for path in files {
        let case: Case = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(case.source.starts_with("https://"), "{}", path.display());
        for variant in case.variant {
            let judgement = variant.judge();
            let at = path.display();
            assert!(
                means(&variant.label, &judgement),
                "{at}: {}, {}: got {judgement:?}",
                variant.label,
                variant.because
            );
        }
    }
}
