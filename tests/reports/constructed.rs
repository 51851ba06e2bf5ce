//! Runs of a board that nobody has: every kind of verdict, telemetry, evidence, and programs that print whatever might be
//! taken for mark-up. Made by the harness's own decisions, so that each journal is one that it could have written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeDelta, Utc};
use jetfault::decide::agenda::{Agenda, CellHere};
use jetfault::decide::plan::{Plan, PlanOptions, expand};
use jetfault::decide::predict::predict;
use jetfault::decide::run::RunState;
use jetfault::decide::step::{Step, decide};
use jetfault::model::evidence::{CrashKind, CrashRecord, Evidence, EvidenceSummary, Fact, Findings, Reset};
use jetfault::model::ids::{BootId, ContentDigest, DeviceId, TrialId};
use jetfault::model::journal::{
    Allowed, Booted, Conditions, Event, Finished, Invoker, Launcher, Opened, Persistence, RebootAsked, Record, Running,
    StageReached, Started, VERSION, encode,
};
use jetfault::model::matrix::parse;
use jetfault::model::outcome::{Exit, LastReply, Outcome, PeakMemory};
use jetfault::model::protocol::{Failure, FailureKind};
use jetfault::model::start_state::{ColdProof, PriorEnd, StartState};
use jetfault::model::telemetry::{Hottest, Memory, Rail, Sample, TelemetrySummary};
use jetfault::model::units::{UptimeMs, WallTime};
use jetfault::model::verdict::{Provenance, Role, StageName};

/// What a hostile program prints, and a machine's owner would rather not have published.
pub(crate) const HOSTILE: &str = "</pre><script>alert('owned')</script><img src=x onerror=alert(1)> \u{1b}[31m]]> & \"quoted\" \
                           /home/mallory/model.py";

/// The user who invoked the run.
pub(crate) const USER: &str = "mallory";

/// Bytes of the board's memory.
const MEMORY_BYTES: u64 = 7_990_000_000;

/// What is made.
pub(crate) struct Shape {
    /// Counted trials of each cell.
    pub(crate) trials: u32,
    /// Trials that leave telemetry and output: the last so many.
    pub(crate) files: usize,
    /// How often the warmed cell faults, in per cent.
    pub(crate) warmed_faults: u32,
    /// The most boots, where the limit of a plan that needs none is too low.
    pub(crate) max_boots: Option<u32>,
}

/// A matrix with every kind of axis; labels and notes hold what might be taken for mark-up.
pub(crate) fn matrix(name: &str, trials: u32, max_boots: Option<u32>) -> String {
    format!(
        "[matrix]\nname = \"{name}\"\ntrials = {trials}\nseed = 1936\n[workload]\nkind = \"linear4bit\"\ntimeout = \"10m\"\n\
         [shapes]\nA = [4096, 32768]\nB = [4096, 128256]\nC = [3584, 152064]\n\
         [baseline]\nsequence = \"ABC\"\nstart = \"any\"\nstorage = \"bf16\"\n\
         [axes]\nsequence = [\"ACB\", \"CBA\", \"AB\"]\nhygiene = [\"each\", \"after:A\"]\nbatch = [2, 8]\nquant = [\"fp4\"]\n\
         storage = [\"uint8\"]\nwarmup = [\"256x256\"]\n\
         [[expect]]\ncell = {{ warmup = \"256x256\" }}\nverdict = \"pass\"\n\
         [controls.alone]\ncell = {{ sequence = \"C\" }}\nverdict = \"pass\"\nshows = \"the largest <b>layer</b> alone\"\n{}",
        max_boots.map(|boots| format!("[safety]\nmax_boots = {boots}\nexpires = \"30d\"\n")).unwrap_or_default()
    )
}

/// Makes the run `name` in `results`; gives its directory.
pub(crate) fn make(results: &Path, name: &str, shape: &Shape) -> PathBuf {
    let text = matrix(name, shape.trials, shape.max_boots);
    let mut plan = expand(&parse(&text, "matrix.toml", &[]).unwrap(), &PlanOptions::default()).unwrap();
    plan.predict_with(predict);
    let dir = results.join(format!("{name}-001"));
    for sub in ["trials", "evidence"] {
        fs::create_dir_all(dir.join(sub)).unwrap();
    }
    fs::write(dir.join("matrix.toml"), &text).unwrap();
    fs::write(dir.join("plan.json"), plan.to_json()).unwrap();
    fs::write(dir.join("machine.json"), machine()).unwrap();
    let journal = Board::carry_through(&plan, &dir, shape);
    fs::write(dir.join("journal.jsonl"), journal).unwrap();
    dir
}

fn machine() -> Vec<u8> {
    let known = |text: &str| serde_json::json!({ "known": text });
    serde_json::to_vec_pretty(&serde_json::json!({
        "schema": "jetfault.machine/1", "device": "orin-a", "model": known("Jetson Orin Nano <Super>"),
        "board": known("Jetson Orin Nano 8GB Super"), "kernel": known("5.15.148-tegra"), "os": known("Ubuntu 22.04"),
        "l4t": known("36.4.3"), "jetpack": known("6.2"), "cuda": known("12.6"), "gpu": known("Orin"),
        "architecture": "aarch64", "cpus": 6, "memory_bytes": MEMORY_BYTES, "swap_bytes": 0, "gpu_nodes": true,
        "tool": "0.1.0", "binary": ContentDigest::of(b"constructed"),
    }))
    .unwrap()
}

/// What happens to a trial.
enum Fate {
    Ends(Box<Outcome>),
    Reboots { panic: bool },
}

/// A board on which a run is carried through.
struct Board<'p> {
    plan: &'p Plan,
    dir: &'p Path,
    agenda: Agenda,
    state: RunState,
    boots: Vec<BootId>,
    crashes: Vec<CrashRecord>,
    uptime_ms: u64,
    wall: DateTime<Utc>,
    prior: PriorEnd,
    journal: Vec<u8>,
    seq: u64,
    dice: u64,
    /// Trials so far, and how many there will be at least.
    trials: usize,
    in_all: usize,
    shape: &'p Shape,
}

impl<'p> Board<'p> {
    fn carry_through(plan: &'p Plan, dir: &'p Path, shape: &'p Shape) -> Vec<u8> {
        let agenda = Agenda::of(plan, true, |_| CellHere { unrecorded_ms: 100, ..CellHere::default() });
        let mut board = Self {
            state: RunState::new(&agenda),
            agenda,
            plan,
            dir,
            boots: Vec::new(),
            crashes: Vec::new(),
            uptime_ms: 0,
            wall: DateTime::from_timestamp(1_778_000_000, 0).unwrap(),
            prior: PriorEnd::Unknown,
            journal: Vec::new(),
            seq: 0,
            dice: 1936,
            trials: 0,
            in_all: plan.cells.len() * shape.trials as usize,
            shape,
        };
        board.next_boot();
        board.open();
        board.carry_on();
        board.journal
    }

    fn open(&mut self) {
        let env = [("HOME", "/home/mallory"), ("USER", USER)].map(|(name, value)| (name.into(), value.into()));
        let invoker =
            Invoker { uid: 1000, gid: 1000, cwd: "/home/mallory".into(), env: env.into(), ..Invoker::default() };
        self.write(Event::Opened(Box::new(Opened {
            run: format!("{}-001", self.plan.matrix_name).parse().unwrap(),
            matrix: self.plan.matrix_digest.clone(),
            plan: ContentDigest::of(&self.plan.to_json()),
            binary: ContentDigest::of(b"constructed"),
            tool: "0.1.0".into(),
            device: device(),
            invoker,
            matrix_dir: "/home/mallory/matrices".into(),
            allowed: Allowed { reboot: true, ..Allowed::default() },
            persistence: Persistence::Persistent,
            script: None,
        })));
    }

    fn carry_on(&mut self) {
        loop {
            let here = self.boots.last().unwrap().clone();
            match decide(&self.state, &self.agenda, &here) {
                Step::Capture => {
                    let evidence = self.evidence(&here);
                    self.write(Event::Booted(Booted { evidence }));
                }
                Step::Judge(judged) => self.write(Event::Judged(judged)),
                Step::Quarantine(quarantined) => self.write(Event::Quarantined(quarantined)),
                Step::Start { cell, trial, role } => self.trial(cell, &trial, role),
                Step::Reboot { why, .. } => {
                    self.write(Event::RebootAsked(RebootAsked { boot: here, why, power_mode: None }));
                    self.prior = PriorEnd::Planned;
                    self.next_boot();
                }
                Step::Close(closed) => self.write(Event::Closed(closed)),
                Step::PutBack | Step::Ask | Step::Over => return,
            }
        }
    }

    fn next_boot(&mut self) {
        self.boots.push(format!("{:08x}-9e6f-4d8e-b4cd-0d9449a8b993", self.boots.len() + 1).parse().unwrap());
        self.uptime_ms = 60_000;
        self.wall += TimeDelta::seconds(75);
    }

    fn write(&mut self, event: Event) {
        self.seq += 1;
        let record = Record {
            version: VERSION,
            seq: self.seq,
            boot: self.boots.last().unwrap().clone(),
            uptime_ms: UptimeMs(self.uptime_ms),
            wall: WallTime(self.wall),
            event,
        };
        self.state.apply(&self.agenda, &record).unwrap_or_else(|error| panic!("{error}"));
        self.journal.extend(encode(&record));
    }

    fn pass_time(&mut self, ms: u64) {
        self.uptime_ms += ms;
        self.wall += TimeDelta::milliseconds(ms.cast_signed());
    }

    /// A number below `sides`, the same in every run of the test.
    fn roll(&mut self, sides: u32) -> u32 {
        // Knuth's multiplier for 64 bits; the upper half is random enough for a picture.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.dice >> 33).unwrap() % sides
    }

    fn trial(&mut self, cell: usize, trial: &TrialId, role: Role) {
        let label = self.plan.cell_at(cell).map(|cell| cell.label.clone()).unwrap_or_default();
        let start = StartState {
            cold: if self.state.position == 0 { ColdProof::Consistent } else { ColdProof::Not },
            rule: "constructed".into(),
            because: Vec::new(),
            warmed_by: None,
            gpu_active_ms: None,
            services: Vec::new(),
        };
        let (prior_end, uptime_ms) = (Some(self.prior), Some(self.uptime_ms));
        self.write(Event::Started(Started {
            trial: trial.clone(),
            role,
            device: device(),
            position: self.state.position,
            provenance: Provenance::Measured,
            launcher: Launcher::Service,
            conditions: Conditions { start: Some(start), prior_end, uptime_ms, ..Conditions::default() },
        }));
        let started_ms = self.uptime_ms;
        self.write(Event::Running(Running { trial: trial.clone(), pid: 4242 }));
        let fate = self.fate(&label);
        let takes = 11_000 + u64::from(self.roll(4000));
        let last = match &fate {
            Fate::Reboots { .. } => takes * 2 / 3,
            Fate::Ends(outcome) => outcome.duration_ms,
        };
        let mut stages: Vec<(StageName, u64)> = Vec::new();
        for (index, stage) in STAGES.iter().enumerate() {
            let at_ms = takes * index as u64 / STAGES.len() as u64;
            if at_ms < last {
                let stage: StageName = stage.parse().unwrap();
                stages.push((stage.clone(), at_ms));
                self.write(Event::Stage(StageReached { trial: trial.clone(), stage, at_ms }));
            }
        }
        self.pass_time(last);
        self.trials += 1;
        if self.trials + self.shape.files > self.in_all {
            self.leave_files(trial, started_ms, last, &fate);
        }
        match fate {
            Fate::Ends(mut outcome) => {
                let ends = stages.iter().skip(1).map(|(_, at)| *at).chain([last]);
                outcome.stage_ms = stages
                    .iter()
                    .zip(ends)
                    .map(|((stage, from), to)| (stage.clone(), to.saturating_sub(*from)))
                    .collect();
                outcome.stage = stages.last().map(|(stage, _)| stage.clone());
                self.write(Event::Finished(Finished { trial: trial.clone(), outcome }));
            }
            Fate::Reboots { panic } => {
                if panic {
                    let digest = ContentDigest::of(self.seq.to_string().as_bytes());
                    self.crashes.push(CrashRecord::of(digest, CrashKind::Panic));
                }
                self.prior = PriorEnd::Fault;
                self.next_boot();
            }
        }
    }

    fn fate(&mut self, label: &str) -> Fate {
        let roll = self.roll(100);
        let mut outcome = passing(13_000 + u64::from(self.roll(900)), u64::from(self.roll(40)) * 1_000_000);
        match label {
            "baseline" if roll < 78 => return Fate::Reboots { panic: roll.is_multiple_of(3) },
            "warmup=256x256" if roll < self.shape.warmed_faults => return Fate::Reboots { panic: false },
            "sequence=ACB" if roll < 30 => {
                (outcome.exit, outcome.last_reply) =
                    (Exit::Signal { number: 11, core: true }, Some(LastReply::Running));
                outcome.duration_ms = 6000;
            }
            "batch=8" if roll < 45 => {
                (outcome.exit, outcome.last_reply) = (Exit::Code(1), Some(LastReply::Failed));
                outcome.failure = Some(Failure {
                    kind: FailureKind::Cuda,
                    call: Some("cuLaunchKernel".into()),
                    code: Some(700),
                    memory: None,
                    text: format!("an illegal memory access was encountered {HOSTILE}"),
                });
                outcome.duration_ms = 4200;
            }
            "batch=2" if roll < 15 => {
                (outcome.exit, outcome.last_reply) =
                    (Exit::Signal { number: 9, core: false }, Some(LastReply::Running));
                outcome.duration_ms = 9000;
            }
            _ => {}
        }
        Fate::Ends(Box::new(outcome))
    }

    /// Telemetry and output of a trial that began at `started_ms` and lasted `ms`.
    fn leave_files(&mut self, trial: &TrialId, started_ms: u64, ms: u64, fate: &Fate) {
        let dir = self.dir.join("trials").join(trial.to_string());
        fs::create_dir_all(&dir).unwrap();
        let mut lines = Vec::new();
        for at in (0..ms).step_by(250) {
            let share = at as f64 / 13_000.0;
            let used = 1.1e9 + share.min(1.0) * 5.6e9 + f64::from(self.roll(200)) * 1e6;
            let mut sample = Sample::empty(UptimeMs(started_ms + at));
            sample.temp_c =
                BTreeMap::from([("cv0-thermal".into(), None), ("tj-thermal".into(), Some(48.0 + 9.0 * share))]);
            let mw = 5000 + i64::from(self.roll(2500)) + if at % 4000 > 2500 { 9000 } else { 0 };
            sample.rails = BTreeMap::from([("VDD_IN".into(), Some(Rail { mv: Some(5000), ma: Some(mw / 5), mw }))]);
            sample.gpu_load_permille = Some(if at % 4000 > 2500 { 980 } else { u64::from(self.roll(150)) });
            sample.memory = Memory { available: Some(MEMORY_BYTES - used as u64), ..Memory::default() };
            lines.extend(serde_json::to_vec(&sample).unwrap());
            lines.push(b'\n');
        }
        fs::write(dir.join("telemetry.jsonl"), lines).unwrap();
        fs::write(dir.join("stdout.log"), format!("Constructing Linear4bit 4096, 32768\n{HOSTILE}\n")).unwrap();
        if let Fate::Ends(outcome) = fate
            && outcome.exit != Exit::Code(0)
        {
            fs::write(dir.join("stderr.log"), format!("Traceback (most recent call last):\n  {HOSTILE}\n")).unwrap();
        }
    }

    fn evidence(&mut self, here: &BootId) -> EvidenceSummary {
        let findings = Findings {
            boots: Fact::Known(self.boots.iter().rev().take(50).rev().cloned().collect()),
            crash_records: Fact::Known(self.crashes.iter().rev().take(3).rev().cloned().collect()),
            reset: Fact::Known(Reset { reason: "TEGRA_POWER_ON_RESET".into(), level: Some("L1".into()) }),
            ..Findings::default()
        };
        let items = BTreeMap::from([
            ("pmc/reset_reason".to_owned(), Fact::Known("TEGRA_POWER_ON_RESET".to_owned())),
            ("kernel/pstore-backend".to_owned(), Fact::Known("ramoops".to_owned())),
            ("nvme/".to_owned(), Fact::Denied("permission denied".to_owned())),
            ("journal/previous.txt".to_owned(), Fact::Known("900 bytes in raw/journal/previous.txt".to_owned())),
        ]);
        let evidence = Evidence { boot: here.clone(), findings: findings.clone(), items };
        let json = serde_json::to_vec_pretty(&evidence).unwrap();
        let dir = self.dir.join("evidence").join(here.as_str());
        if self.trials + self.shape.files + 100 > self.in_all || self.boots.len() < 4 {
            fs::create_dir_all(dir.join("raw/journal")).unwrap();
            fs::write(dir.join("evidence.json"), &json).unwrap();
            let line = |n: u32| format!("May 06 08:{n:02}:00 tegra kernel: nvgpu: 17000000.gpu line {n}\n");
            let log: String = (0..12).map(line).collect();
            fs::write(dir.join("raw/journal/previous.txt"), format!("{log}{HOSTILE}\n")).unwrap();
        }
        EvidenceSummary { file: ContentDigest::of(&json), findings }
    }
}

const STAGES: [&str; 9] = [
    "A.construct",
    "A.quantize",
    "A.forward",
    "B.construct",
    "B.quantize",
    "B.forward",
    "C.construct",
    "C.quantize",
    "C.forward",
];

fn device() -> DeviceId {
    "orin-a".parse().unwrap()
}

fn passing(ms: u64, more: u64) -> Outcome {
    let peak_memory = PeakMemory {
        host: 2_180_000_000,
        device_allocated: 6_817_000_000,
        device_reserved: 6_884_000_000,
        host_plus_reserved: 7_050_000_000 + more,
    };
    let telemetry = TelemetrySummary {
        samples: ms / 250,
        hottest: Some(Hottest { zone: "tj-thermal".into(), temp_c: 57.0 }),
        power_mw_max: BTreeMap::from([("VDD_IN".into(), 16_200)]),
        available_min: Some(610_000_000),
        ..TelemetrySummary::default()
    };
    Outcome {
        last_reply: Some(LastReply::Done),
        duration_ms: ms,
        peak_memory,
        telemetry: Some(telemetry),
        metrics: BTreeMap::from([("forward_ms".into(), 412.5)]),
        ..Outcome::of(Exit::Code(0))
    }
}
