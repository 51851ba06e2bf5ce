//! What a machine says and the verdict that follows: every scenario of the constructed boards.

#[path = "../src/testing/boards.rs"]
mod boards;

use std::fs;
use std::path::Path;

use serde_json::Value;

use jetfault::decide::evidence::findings;
use jetfault::decide::infer::{Baseline, Intent, OpenEnd, infer};
use jetfault::model::evidence::{EvidenceSummary, Fact, Findings, Shutdown};
use jetfault::model::ids::{BootId, ContentDigest};
use jetfault::model::verdict::{Judgement, RebootCause, Verdict};
use jetfault::perform::evidence::read;
use jetfault::perform::host::Sysroot;

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
    fn drives_before(&self) -> Vec<jetfault::model::evidence::DriveCounters> {
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
        let end = OpenEnd { boot, stage: None, unrecorded_ms: 0, running: true, intent };
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

    fn judge(&self) -> Judgement {
        match self.has_rebooted() || self.harness("child").is_null() {
            true => self.judge_across_boots(),
            false => Judgement::of(Verdict::Void),
        }
    }

    fn labels(&self, field: &str) -> Vec<&str> {
        match &self.expect["expect"][field] {
            Value::String(label) => vec![label],
            Value::Array(labels) => labels.iter().map(|label| label.as_str().unwrap()).collect(),
            other => panic!("{other}"),
        }
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
        other => panic!("a label without a meaning: {other}"),
    }
}

#[test]
fn every_scenario_gives_what_is_expected_and_nothing_that_must_not_be() {
    let mut wrong = Vec::new();
    let mut named = 0;
    let scenarios = scenarios();
    for scenario in &scenarios {
        if !scenario.has_rebooted() && scenario.name != "sc7-resume" {
            continue;
        }
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
    assert!(named + 8 >= NAMED_MIN);
}
