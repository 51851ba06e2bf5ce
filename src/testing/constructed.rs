//! Runs constructed for tests of everything that reads a run: journals as the runner would write them, without a world.
//!
//! Which trial comes next, and what it is called, is asked of the same pure functions that the runner asks; only what
//! happens to each trial is scripted.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::decide::agenda::{Agenda, CellHere};
use crate::decide::plan::{Plan, PlanOptions, PredictedPeak, expand};
use crate::decide::result::{ResultFold, TrialResult};
use crate::decide::run::RunState;
use crate::decide::step::{Step, decide};
use crate::model::evidence::{CrashKind, CrashRecord, EvidenceSummary, Fact, Findings};
use crate::model::ids::{BootId, ContentDigest, DeviceId, TrialId};
use crate::model::journal::{
    Alive, Allowed, Booted, Conditions, Event, Finished, Invoker, Launcher, Opened, Paused, Persistence, RebootAsked,
    Record, Running, StageReached, Started, VERSION,
};
use crate::model::matrix::parse;
use crate::model::observed::Observed;
use crate::model::outcome::{Exit, LastReply, Outcome, PeakMemory};
use crate::model::protocol::{Failure, FailureKind};
use crate::model::start_state::{ColdProof, StartState};
use crate::model::units::{UptimeMs, WallTime};
use crate::model::verdict::{Provenance, Role, StageName};

/// The plan of a matrix, with a predicted peak for every cell.
pub(crate) fn plan_of(matrix: &str) -> Plan {
    let matrix = parse(matrix, "constructed.toml", &[]).unwrap_or_else(|error| panic!("{error}"));
    let mut plan = expand(&matrix, &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    plan.predict_with(|_| {
        Some(PredictedPeak {
            allocated_bytes: 6_817_000_000,
            reserved_bytes: 6_884_000_000,
            host_plus_reserved_bytes: 7_089_400_000,
            at: "C.quantize".into(),
        })
    });
    plan
}

/// The agenda of `plan`. Cells whose label is in `cannot` cannot run here.
pub(crate) fn agenda_of(plan: &Plan, cannot: &[(&str, &str)]) -> Agenda {
    Agenda::of(plan, true, |index| {
        let label = plan.cell_at(index).map(|cell| cell.label.as_str());
        let why = cannot.iter().find(|(cannot, _)| Some(*cannot) == label);
        let cannot = why.map(|(_, why)| (*why).to_owned());
        CellHere { may_taint: true, warms: true, cannot, unrecorded_ms: 100, ..CellHere::default() }
    })
}

/// What happens to a trial.
pub(crate) enum Fate {
    /// It ends while the machine stays up.
    Ends(Box<Outcome>),
    /// The machine reboots under it; this is what the next boot says.
    Reboots {
        /// The last stage before.
        at: &'static str,
        /// Whether the list of boots and the crash records can be read afterwards.
        readable: bool,
        /// Whether a new crash record tells of a panic.
        panic: bool,
    },
    /// Reading stops here: it is open, at this stage.
    StaysOpen(&'static str),
}

/// A pass that took `ms` milliseconds.
pub(crate) fn passes(ms: u64) -> Fate {
    let peak_memory = PeakMemory {
        host: 2_180_000_000,
        device_allocated: 6_817_000_000,
        device_reserved: 6_884_000_000,
        host_plus_reserved: 7_089_449_984,
    };
    ended(Outcome { last_reply: Some(LastReply::Done), duration_ms: ms, peak_memory, ..Outcome::of(Exit::Code(0)) })
}

/// An illegal memory access in `stage`.
pub(crate) fn cuda_error(stage: &str) -> Fate {
    let failure = Failure {
        kind: FailureKind::Cuda,
        call: Some("cuLaunchKernel".into()),
        code: Some(700),
        memory: None,
        text: "an illegal memory access was encountered".into(),
    };
    ended(Outcome {
        last_reply: Some(LastReply::Failed),
        failure: Some(failure),
        stage: Some(stage.parse().unwrap()),
        duration_ms: 4_200,
        ..Outcome::of(Exit::Code(1))
    })
}

/// A SIGKILL that nobody owns up to.
pub(crate) fn killed(stage: &str) -> Fate {
    ended(Outcome {
        last_reply: Some(LastReply::Running),
        stage: Some(stage.parse().unwrap()),
        duration_ms: 9_000,
        ..Outcome::of(Exit::Signal { number: 9, core: false })
    })
}

/// A worker that never says a word.
pub(crate) fn silent() -> Fate {
    ended(Outcome { last_reply: Some(LastReply::Silence), duration_ms: 12, ..Outcome::of(Exit::Code(127)) })
}

fn ended(outcome: Outcome) -> Fate {
    Fate::Ends(Box::new(outcome))
}

/// A reboot of which nothing is known but that it happened.
pub(crate) fn reboots(at: &'static str) -> Fate {
    Fate::Reboots { at, readable: true, panic: false }
}

/// The journal of a run in the making.
pub(crate) struct Journal<'p> {
    plan: &'p Plan,
    agenda: &'p Agenda,
    state: RunState,
    boots: Vec<BootId>,
    crashes: Vec<CrashRecord>,
    readable: bool,
    uptime_ms: u64,
    wall: DateTime<Utc>,
    provenance: fn(&str) -> Provenance,
    /// What was written.
    pub(crate) records: Vec<Record>,
}

impl<'p> Journal<'p> {
    /// A run of `plan` that was just opened. `provenance` tells it for each label.
    pub(crate) fn open(plan: &'p Plan, agenda: &'p Agenda, provenance: fn(&str) -> Provenance) -> Self {
        let mut journal = Self {
            plan,
            agenda,
            state: RunState::new(agenda),
            boots: Vec::new(),
            crashes: Vec::new(),
            readable: true,
            uptime_ms: 0,
            wall: DateTime::from_timestamp(1_778_000_000, 0).unwrap(),
            provenance,
            records: Vec::new(),
        };
        journal.next_boot();
        journal.write(Event::Opened(Box::new(Opened {
            run: format!("{}-001", plan.matrix_name).parse().unwrap(),
            matrix: plan.matrix_digest.clone(),
            plan: ContentDigest::of(b"plan"),
            binary: ContentDigest::of(b"binary"),
            tool: "0.1.0".into(),
            device: device(),
            invoker: Invoker::default(),
            matrix_dir: String::new(),
            script: None,
            allowed: Allowed { reboot: true, ..Allowed::default() },
            persistence: Persistence::Persistent,
        })));
        journal
    }

    fn here(&self) -> BootId {
        self.boots.last().unwrap().clone()
    }

    fn next_boot(&mut self) {
        self.boots.push(format!("{:08x}-9e6f-4d8e-b4cd-0d9449a8b993", self.boots.len() + 1).parse().unwrap());
        self.uptime_ms = 60_000;
    }

    fn write(&mut self, event: Event) {
        let record = Record {
            version: VERSION,
            seq: self.records.len() as u64 + 1,
            boot: self.here(),
            uptime_ms: UptimeMs(self.uptime_ms),
            wall: WallTime(self.wall),
            event,
        };
        self.state.apply(self.agenda, &record).unwrap_or_else(|error| panic!("{error}"));
        self.records.push(record);
    }

    fn pass_time(&mut self, ms: u64) {
        self.uptime_ms += ms;
        self.wall += TimeDelta::milliseconds(ms.try_into().unwrap());
    }

    /// Carries the run on by `script` until it is over, `starts` more trials have started and were judged, or a trial
    /// stays open.
    pub(crate) fn carry_on(&mut self, starts: usize, mut script: impl FnMut(&str, &TrialId) -> Fate) {
        let mut left = starts;
        loop {
            match decide(&self.state, self.agenda, &self.here()) {
                Step::Capture => {
                    let evidence = self.evidence();
                    self.write(Event::Booted(Booted { evidence }));
                }
                Step::Judge(judged) => self.write(Event::Judged(judged)),
                Step::Quarantine(quarantined) => self.write(Event::Quarantined(quarantined)),
                Step::Start { .. } if left == 0 => return,
                Step::Start { cell, trial, role } => {
                    left -= 1;
                    let label = self.plan.cell_at(cell).map(|cell| cell.label.clone()).unwrap_or_default();
                    let fate = script(&label, &trial);
                    if self.trial(trial, role, &label, fate) {
                        return;
                    }
                }
                Step::Reboot { why, .. } => {
                    let boot = self.here();
                    self.write(Event::RebootAsked(RebootAsked { boot, why, power_mode: None }));
                    self.next_boot();
                }
                Step::PutBack => unreachable!("nothing was changed"),
                Step::Close(closed) => self.write(Event::Closed(closed)),
                Step::Ask | Step::Over => return,
            }
        }
    }

    /// Another boot comes, and nothing says why.
    pub(crate) fn reboot(&mut self) {
        self.next_boot();
    }

    /// Takes in what was seen from outside.
    pub(crate) fn observe(&mut self, observed: Observed) {
        self.write(Event::Observed(Box::new(observed)));
    }

    /// Rests, for `why`.
    pub(crate) fn pause(&mut self, why: &str) {
        self.write(Event::Paused(Paused { why: why.into() }));
    }

    /// Runs one trial; tells whether it stays open.
    fn trial(&mut self, trial: TrialId, role: Role, label: &str, fate: Fate) -> bool {
        let started = Started {
            trial: trial.clone(),
            role,
            device: device(),
            position: self.state.position,
            provenance: (self.provenance)(label),
            launcher: Launcher::Service,
            conditions: self.conditions(),
        };
        self.write(Event::Started(started));
        self.pass_time(250);
        let reached = |at: &str| StageReached { trial: trial.clone(), stage: stage(at), at_ms: 13_000 };
        match fate {
            Fate::Ends(outcome) => {
                if outcome.last_reply != Some(LastReply::Silence) {
                    self.write(Event::Running(Running { trial: trial.clone(), pid: 4242 }));
                }
                self.pass_time(outcome.duration_ms);
                self.write(Event::Finished(Finished { trial, outcome }));
                false
            }
            Fate::Reboots { at, readable, panic } => {
                self.write(Event::Running(Running { trial: trial.clone(), pid: 4242 }));
                self.write(Event::Stage(reached(at)));
                self.pass_time(14_000);
                self.readable = readable;
                if panic {
                    let digest = ContentDigest::of(self.uptime_ms.to_string().as_bytes());
                    self.crashes.push(CrashRecord::of(digest, CrashKind::Panic));
                }
                self.next_boot();
                false
            }
            Fate::StaysOpen(at) => {
                self.write(Event::Running(Running { trial: trial.clone(), pid: 4242 }));
                self.write(Event::Stage(reached(at)));
                self.pass_time(14_000);
                self.write(Event::Alive(Alive { trial }));
                true
            }
        }
    }

    /// The first trial of a boot is cold, the others come after it.
    fn conditions(&self) -> Conditions {
        let (cold, rule) = match self.state.position {
            0 => (ColdProof::Consistent, "no-trace"),
            _ => (ColdProof::Not, "ours-before"),
        };
        let start = StartState {
            cold,
            rule: rule.into(),
            because: Vec::new(),
            warmed_by: self.state.warmth.by.clone(),
            gpu_active_ms: None,
            services: Vec::new(),
        };
        Conditions { start: Some(start), ..Conditions::default() }
    }

    fn evidence(&mut self) -> EvidenceSummary {
        let is_readable = std::mem::replace(&mut self.readable, true);
        let file = ContentDigest::of(b"evidence");
        if !is_readable {
            let crash_records = Fact::Denied("permission denied".into());
            return EvidenceSummary { file, findings: Findings { crash_records, ..Findings::default() } };
        }
        let findings = Findings {
            boots: Fact::Known(self.boots.clone()),
            crash_records: Fact::Known(self.crashes.clone()),
            ..Findings::default()
        };
        EvidenceSummary { file, findings }
    }

    /// The results of everything judged so far.
    pub(crate) fn results(&self) -> Vec<TrialResult> {
        let mut fold = ResultFold::default();
        self.records.iter().filter_map(|record| fold.apply(record)).collect()
    }

    /// Where it stands.
    pub(crate) fn state(&self) -> &RunState {
        &self.state
    }

    /// The boot it is in.
    pub(crate) fn boot(&self) -> BootId {
        self.here()
    }
}

fn stage(name: &str) -> StageName {
    name.parse().unwrap()
}

fn device() -> DeviceId {
    "orin-a".parse().unwrap()
}

/// What the constructed machine says about itself.
pub(crate) fn machine() -> BTreeMap<String, String> {
    [("l4t", "R36.4"), ("kernel", "5.15.148-tegra"), ("power mode", "MAXN_SUPER")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Three layers that reboot a board, the settings that may matter, a control, and what is expected.
pub(crate) const BOARD: &str = r#"
[matrix]
name = "bnb-1936"
trials = 9
seed = 1936
[workload]
kind = "linear4bit"
timeout = "10m"
[shapes]
A = [4096, 32768]
B = [4096, 128256]
C = [3584, 152064]
[baseline]
sequence = "ABC"
start = "cold"
power_mode = "MAXN_SUPER"
[axes]
sequence = ["CBA"]
warmup = ["256x256"]
start = ["warm"]
batch = [8]
power_mode = ["15W"]
[[expect]]
cell = { sequence = "ABC", warmup = "none", start = "cold" }
verdict = "reboot"
[[expect]]
cell = { warmup = "256x256" }
verdict = "pass"
[controls.alone]
cell = { sequence = "C" }
verdict = "pass"
shows = "the largest layer alone is no fault"
trials = 9
"#;

/// The provenance of [`BOARD`]: all measured, but the smaller power mode, which only a simulated board had.
pub(crate) fn board_provenance(label: &str) -> Provenance {
    match label {
        "power_mode=15W" => Provenance::Simulated,
        _ => Provenance::Measured,
    }
}

/// What happens on the board of issue 1936: the baseline reboots in 7 of 9, one of them with a panic record and one
/// with unreadable evidence; batch 8 meets another fault and an unexplained kill.
pub(crate) fn board_script(label: &str, trial: &TrialId) -> Fate {
    let round = trial.round;
    match (label, round) {
        ("baseline", 4 | 8) => passes(13_900),
        ("baseline", 1) => Fate::Reboots { at: "C.quantize", readable: false, panic: false },
        ("baseline", 2) => Fate::Reboots { at: "C.forward", readable: true, panic: true },
        ("baseline", _) => reboots("C.forward"),
        ("warmup=256x256", 5) => reboots("C.forward"),
        ("batch=8", 1) => cuda_error("C.forward"),
        ("batch=8", _) => killed("C.construct"),
        ("start=warm", _) => silent(),
        (_, _) => passes(13_200 + u64::from(round) * 10),
    }
}
