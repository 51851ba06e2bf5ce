//! Runs told record by record, on a machine that shows what it is told to.

use super::*;
use crate::decide::arrange::Asked;
use crate::decide::campaign::Course;
use crate::decide::run::{NOT_COLD_BOOTS_MAX, Warmth};
use crate::decide::step::{Step, decide};
use crate::model::evidence::{EvidenceSummary, Fact, Findings};
use crate::model::ids::{BootId, CellId, ContentDigest, DeviceId};
use crate::model::journal::{
    Allowed, Booted, Event, Finished, Invoker, Launcher, Opened, Persistence, RebootAsked, Record, Started, VERSION,
};
use crate::model::outcome::{Exit, Outcome};
use crate::model::power_mode::parse_conf;
use crate::model::start_state::{GpuDriver, PriorEnd, Process};
use crate::model::units::{UptimeMs, WallTime};
use crate::model::verdict::{Judgement, Provenance, Role, Verdict};

const COLD: usize = 0;
const WARM: usize = 1;
const MODE: usize = 2;
const WARMING: usize = 3;

/// A cold cell, a warm one, one in another power mode, and the warming one.
fn agenda(may_reboot: bool) -> Agenda {
    let cell = |number: usize, start, asked: Asked| AgendaCell {
        id: CellId::of(&[number as u8]),
        role: if number == WARMING { Role::Warming } else { Role::Sample },
        rounds: if number == WARMING { 0 } else { 9 },
        start,
        from_power: false,
        power_mode: None,
        needs: None,
        asked,
        drop_caches: false,
        uses_gpu: true,
        may_taint: true,
        warms: true,
        cannot: None,
        unrecorded_ms: 100,
    };
    let mode = |id, name, mask| format!("< POWER_MODEL ID={id} NAME={name} >\nTPC_POWER_GATING TPC_PG_MASK {mask}\n");
    let cells = vec![
        cell(COLD, Start::Cold, Asked::new()),
        cell(WARM, Start::Warm, Asked::new()),
        cell(MODE, Start::Any, Asked::from([(MachineSetting::PowerMode, "7W (3)".into())])),
        cell(WARMING, Start::Any, Asked::new()),
    ];
    let power_modes = parse_conf(&[mode(0, "15W", 240), mode(3, "7W", 252)].concat()).unwrap();
    Agenda {
        cells,
        power_modes,
        seed: 1,
        boots_max: 20,
        unexpected_per_hour_max: 6,
        expires_ms: 1_000_000,
        may_reboot,
        stops: None,
        open_ended: false,
    }
}

/// A run and its machine, told record by record.
struct Told {
    agenda: Agenda,
    state: RunState,
    boots: u32,
    survey: Survey,
}

impl Told {
    fn new(may_reboot: bool) -> Self {
        let agenda = agenda(may_reboot);
        let state = RunState::new(&agenda);
        let traces = GpuTraces {
            driver: GpuDriver::Nvgpu,
            marked_by: None,
            golden_image: Fact::Known(true),
            all_nodes: Fact::Known(true),
            active_ms: Fact::Known(6_000),
            kept_powered: false,
            uvm: Fact::Absent,
            accounted: Fact::Absent,
            holders: Fact::Known(vec![]),
            clients: Fact::Known(vec![]),
            users: vec![],
            bystanders: vec![],
            uptime_ms: Some(50_000),
        };
        let readings = Readings::from([(MachineSetting::PowerMode, Fact::Known("15W (0)".to_owned()))]);
        let survey = Survey { readings, traces: Some(traces), uptime_ms: Some(50_000), ..Survey::default() };
        let mut told = Self { agenda, state, boots: 0, survey };
        let digest = ContentDigest::of(b"");
        told.tell(Event::Opened(Box::new(Opened {
            run: "x-001".parse().unwrap(),
            matrix: digest.clone(),
            plan: digest.clone(),
            binary: digest,
            tool: "0".into(),
            device: DeviceId::of_machine("x"),
            invoker: Invoker::default(),
            matrix_dir: String::new(),
            allowed: Allowed::default(),
            persistence: Persistence::Persistent,
            script: None,
        })));
        told.boot();
        told
    }

    fn here(&self) -> BootId {
        format!("{:08x}-9e6f-4d8e-b4cd-0d9449a8b993", self.boots).parse().unwrap()
    }

    fn tell(&mut self, event: Event) {
        let wall: WallTime = serde_json::from_str("\"2026-05-02T10:00:00.000Z\"").unwrap();
        let (seq, boot) = (self.state.seq + 1, self.here());
        let record = Record { version: VERSION, seq, boot, uptime_ms: UptimeMs(seq), wall, event };
        self.state.apply(&self.agenda, &record).unwrap();
    }

    fn prepare_a_revision(&mut self) {
        self.tell(Event::Hooked(Course::prepared("4bca844", None)));
    }

    fn boot(&mut self) {
        self.boots += 1;
        let evidence = EvidenceSummary { file: ContentDigest::of(b""), findings: Findings::default() };
        self.tell(Event::Booted(Booted { evidence }));
    }

    fn planned_reboot(&mut self) {
        self.tell(Event::RebootAsked(RebootAsked { boot: self.here(), why: "x".into(), power_mode: None }));
        self.boot();
    }

    fn trial(&self, cell: usize) -> TrialId {
        TrialId { cell: self.agenda.cells[cell].id.clone(), round: 1, attempt: 1 }
    }

    fn prepare(&self, cell: usize) -> Preparation {
        prepare(&self.state, &self.agenda, cell, self.trial(cell), &self.survey)
    }

    fn start(&mut self, cell: usize, trial: TrialId, conditions: Conditions) {
        self.tell(Event::Started(Started {
            trial,
            role: self.agenda.cells[cell].role,
            device: DeviceId::of_machine("x"),
            position: self.state.position,
            provenance: Provenance::Measured,
            launcher: Launcher::Service,
            conditions,
        }));
    }

    fn judge(&mut self, trial: TrialId, verdict: Verdict) {
        self.tell(Event::Judged(Judged { trial, judgement: Judgement::of(verdict), rule: "x".into(), corrects: None }));
    }

    /// Runs the warming trial that `prepare` asks for.
    fn warm_up(&mut self, verdict: Verdict) -> TrialId {
        let Preparation::Warm { cell, trial, conditions } = self.prepare(WARM) else { panic!("no warming trial") };
        self.start(cell, trial.clone(), conditions);
        let outcome = Box::new(Outcome::of(Exit::Code(0)));
        self.tell(Event::Finished(Finished { trial: trial.clone(), outcome }));
        self.judge(trial.clone(), verdict);
        trial
    }

    fn client(&mut self) {
        let holders = Fact::Known(vec![Process { name: "ollama".into(), pid: 9 }]);
        self.survey.traces.as_mut().unwrap().holders = holders;
    }
}

fn reason(preparation: Preparation) -> (String, String) {
    match preparation {
        Preparation::Void(judged) => (judged.rule, judged.judgement.detail.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cold_trial_starts_with_its_proof_written_down() {
    let told = Told::new(true);
    let Preparation::Start(conditions) = told.prepare(COLD) else { panic!() };
    let start = conditions.start.unwrap();
    assert_eq!(
        (start.cold, start.rule.as_str(), start.gpu_active_ms),
        (ColdProof::Consistent, "no-trace", Some(6_000))
    );
    assert_eq!((conditions.prior_end, conditions.uptime_ms), (Some(PriorEnd::Unknown), Some(50_000)));
    assert_eq!(conditions.settings["power_mode"], "15W (0)");
}

#[test]
fn a_boot_that_is_not_cold_is_ended_once_for_a_cold_trial_and_then_the_trial_is_void() {
    let mut told = Told::new(true);
    told.client();
    assert!(matches!(told.prepare(COLD), Preparation::Reboot { power_mode: None, .. }));
    for boot in 1..=NOT_COLD_BOOTS_MAX {
        told.planned_reboot();
        let Preparation::Void(judged) = told.prepare(COLD) else { panic!("boot {boot}") };
        assert!(judged.judgement.detail.as_ref().unwrap().contains("ollama (9)"), "{judged:?}");
        told.tell(Event::Judged(judged));
        let next = decide(&told.state, &told.agenda, &told.here());
        match boot {
            NOT_COLD_BOOTS_MAX => assert!(matches!(next, Step::Close(closed) if closed.why.contains("not cold"))),
            // Whichever trial is due, a cold one is not tried in this boot again.
            _ => assert!(!matches!(next, Step::Start { cell: COLD, .. } | Step::Close(_)), "{next:?}"),
        }
    }
}

#[test]
fn without_the_right_to_reboot_a_cold_trial_is_void_at_once() {
    let mut told = Told::new(false);
    told.client();
    let (rule, why) = reason(told.prepare(COLD));
    assert_eq!(rule, NOT_COLD);
    assert!(why.contains("the boot is not cold (not, rule client-alive)"), "{why}");
}

#[test]
fn a_cold_boot_is_the_measure_of_later_ones_and_ends_a_row_of_spoiled_ones() {
    let mut told = Told::new(true);
    let Preparation::Start(conditions) = told.prepare(COLD) else { panic!() };
    told.state.spoiled.boots = 1;
    told.start(COLD, told.trial(COLD), conditions);
    assert_eq!((told.state.idle_ms, told.state.spoiled.boots), (Some(6_000), 0));
    told.judge(told.trial(COLD), Verdict::Pass);
    told.planned_reboot();
    told.survey.traces.as_mut().unwrap().active_ms = Fact::Known(30_000);
    let (rule, why) = reason(told.prepare(COLD));
    assert!(rule == NOT_COLD && why.contains("30000 ms, and for 6000 ms in an idle boot"), "{why}");
}

#[test]
fn after_a_fault_reset_a_planned_reboot_comes_before_the_next_cold_trial() {
    let mut told = Told::new(true);
    let Preparation::Start(conditions) = told.prepare(COLD) else { panic!() };
    told.start(COLD, told.trial(COLD), conditions);
    told.boot();
    let here = told.here();
    let Step::Judge(judged) = decide(&told.state, &told.agenda, &here) else { panic!() };
    assert_eq!(judged.judgement.verdict, Verdict::Reboot);
    told.tell(Event::Judged(judged));
    assert_eq!((told.state.prior_end, told.state.made), (PriorEnd::Fault, false));
    // Whichever is due next is cold.
    told.agenda.cells.iter_mut().for_each(|cell| cell.start = Start::Cold);
    let next = decide(&told.state, &told.agenda, &here);
    assert!(matches!(&next, Step::Reboot { why, .. } if why.contains("did not begin with a fault")), "{next:?}");
    told.planned_reboot();
    assert_eq!((told.state.prior_end, told.state.made), (PriorEnd::Planned, true));
    assert!(matches!(decide(&told.state, &told.agenda, &told.here()), Step::Start { .. }));
}

#[test]
fn a_trial_that_is_cold_from_power_needs_a_boot_that_was_made_for_it() {
    let mut told = Told::new(true);
    told.agenda.cells.iter_mut().for_each(|cell| (cell.start, cell.from_power) = (Start::Cold, true));
    let next = decide(&told.state, &told.agenda, &told.here());
    assert!(matches!(&next, Step::Reboot { why, .. } if why.contains("power being cut")), "{next:?}");
    told.planned_reboot();
    assert!(matches!(decide(&told.state, &told.agenda, &told.here()), Step::Start { .. }));
}

#[test]
fn boots_that_nothing_explains_stop_the_run_and_so_does_its_age() {
    let stopped = |told: &Told| match decide(&told.state, &told.agenda, &told.here()) {
        Step::Close(closed) => Some(closed.why),
        _ => None,
    };
    let mut told = Told::new(false);
    for _ in 0..told.agenda.unexpected_per_hour_max {
        told.boot();
        assert_eq!(stopped(&told), None);
    }
    told.boot();
    assert!(stopped(&told).unwrap().contains("7 boots in an hour that no trial explains"));

    let mut told = Told::new(true);
    for _ in 0..10 {
        told.planned_reboot();
        assert_eq!(stopped(&told), None, "a reboot of ours is explained");
    }
    told.agenda.expires_ms = 9;
    assert!(stopped(&told).unwrap().contains("[safety] expires"));
}

#[test]
fn no_cold_trial_follows_a_preparation_in_its_boot_and_an_open_ended_run_asks() {
    let mut told = Told::new(true);
    told.agenda.cells.iter_mut().for_each(|cell| (cell.start, cell.rounds) = (Start::Cold, 1));
    told.prepare_a_revision();
    let next = decide(&told.state, &told.agenda, &told.here());
    assert!(matches!(&next, Step::Reboot { why, .. } if why.contains("no revision was prepared")), "{next:?}");
    told.planned_reboot();
    assert!(matches!(decide(&told.state, &told.agenda, &told.here()), Step::Start { .. }));

    let mut told = Told::new(true);
    told.agenda.cells.iter_mut().for_each(|cell| cell.rounds = 0);
    told.agenda.open_ended = true;
    told.state.progress = crate::decide::agenda::Progress::new(&told.agenda);
    assert_eq!(decide(&told.state, &told.agenda, &told.here()), Step::Ask);
    told.agenda.open_ended = false;
    assert!(matches!(decide(&told.state, &told.agenda, &told.here()), Step::Close(_)));
}

#[test]
fn a_warm_trial_is_warmed_once_in_each_boot() {
    let mut told = Told::new(false);
    let warming = told.warm_up(Verdict::Pass);
    assert_eq!(warming.cell, told.agenda.cells[WARMING].id);
    let Preparation::Start(conditions) = told.prepare(WARM) else { panic!() };
    let start = conditions.start.unwrap();
    assert_eq!(
        (start.warmed_by.as_ref(), start.cold, start.rule.as_str()),
        (Some(&warming), ColdProof::Not, "ours-before")
    );
    assert_eq!(start.start(), Start::Warm);
    told.boot();
    assert_eq!(told.warm_up(Verdict::Pass).round, 2, "each warming trial has a name of its own");
}

#[test]
fn a_trial_of_ours_that_passed_on_the_gpu_warms_as_well() {
    let mut told = Told::new(false);
    for verdict in [Verdict::Error, Verdict::Pass] {
        assert!(matches!(told.prepare(WARM), Preparation::Warm { .. }), "a trial that failed may not have come so far");
        told.start(MODE, told.trial(MODE), Conditions::default());
        told.judge(told.trial(MODE), verdict);
    }
    assert!(matches!(told.prepare(WARM), Preparation::Start(_)));
}

#[test]
fn a_fault_of_the_warming_trial_is_its_own_and_no_loop() {
    let mut told = Told::new(false);
    for boot in 0..QUARANTINE_STARTS {
        let before = told.state.progress.clone();
        let failed = told.warm_up(Verdict::Error);
        assert_eq!(told.state.progress.due(&told.agenda), before.due(&told.agenda), "it is in no block");
        let (rule, why) = reason(told.prepare(WARM));
        assert!(rule == NOT_WARM && why.contains(&failed.to_string()), "boot {boot}: {why}");
        told.boot();
    }
    let (rule, why) = reason(told.prepare(WARM));
    assert!(rule == NOT_WARM && why.contains("3 warming trials in a row"), "{why}");
}

#[test]
fn a_harness_that_died_in_the_warming_trial_says_nothing_of_the_machine() {
    let mut told = Told::new(false);
    let Preparation::Warm { cell, trial, conditions } = told.prepare(WARM) else { panic!() };
    told.start(cell, trial, conditions);
    let Step::Judge(judged) = decide(&told.state, &told.agenda, &told.here()) else { panic!() };
    assert_eq!(judged.judgement.verdict, Verdict::Void);
    told.tell(Event::Judged(judged));
    assert!(matches!(told.prepare(WARM), Preparation::Warm { trial, .. } if trial.round == 2));
}

#[test]
fn what_cannot_warm_is_said() {
    let mut told = Told::new(false);
    told.agenda.cells[WARMING].cannot = Some("no GPU".into());
    assert!(reason(told.prepare(WARM)).1.contains("cannot be made warm: no GPU"));
    told.agenda.cells.truncate(WARMING);
    assert!(reason(told.prepare(WARM)).1.contains("no warming trial"));
    told.state.warmth = Warmth { by: Some(told.trial(COLD)), ..Warmth::default() };
    assert!(matches!(told.prepare(WARM), Preparation::Start(_)));
}

#[test]
fn a_mode_that_takes_a_reboot_is_declared_with_it_or_refused() {
    let told = Told::new(true);
    let Preparation::Reboot { why, power_mode } = told.prepare(MODE) else { panic!() };
    assert!(why.contains("from 15W (0) to 7W (3)"), "{why}");
    assert_eq!(power_mode.unwrap().new, "7W (3)");
    let (rule, why) = reason(Told::new(false).prepare(MODE));
    assert!(rule == "needs-a-boot" && why.contains("may not reboot"), "{why}");
}

#[test]
fn a_setting_that_cannot_be_had_voids_the_trial_with_the_reason() {
    let mut told = Told::new(true);
    told.survey.readings.insert(MachineSetting::PowerMode, Fact::Denied("no rights".into()));
    let (rule, why) = reason(told.prepare(MODE));
    assert!(rule == SETTING_FAILED && why.contains("no rights"), "{why}");
}
