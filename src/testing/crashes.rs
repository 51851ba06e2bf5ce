//! All deaths: every schedule of one and of two deaths at every point of two trials, with auditors over the outcome.
//!
//! `JETFAULT_SIM_DEATHS=3` tries triples as well (minutes); `JETFAULT_SIM_SCHEDULE=NAME:0,0,3,…` replays one schedule.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use crate::decide::agenda::{Agenda, AgendaCell};
use crate::decide::arrange::Asked;
use crate::decide::result::ResultFold;
use crate::decide::run::RunState;
use crate::decide::stopping::{Stopping, Stops};
use crate::model::ids::{CellId, ContentDigest, DeviceId, RunId, TrialId};
use crate::model::journal::{
    Allowed, Closing, Event, Extended, Invoker, Judged, Launcher, Opened, Persistence, Record, decode,
};
use crate::model::machine_setting::MachineSetting;
use crate::model::power_mode::parse_conf;
use crate::model::seeded::{self, Bug};
use crate::model::settings::Start;
use crate::model::verdict::{Counted, Provenance, RebootCause, Role, Verdict};
use crate::perform::runner::{Circumstances, Ended, RunError, Runner};
use crate::testing::odometer::Odometer;
use crate::testing::sim::{Behaviour, Death, Died, Ran, SimMachine, Tells, settings_found};

/// More starts of the harness than any schedule of three deaths can need.
const SESSIONS_MAX: usize = 40;

/// A small run to be killed everywhere.
struct Scenario {
    name: &'static str,
    agenda: Agenda,
    behaviours: Vec<Behaviour>,
    tells: Tells,
    extend: bool,
    /// How many deaths fewer than the others it is tried with: its own logic is one more block.
    fewer_deaths: u32,
}

impl Scenario {
    fn machine<'a>(&'a self, odometer: &'a mut Odometer, deaths: u32) -> SimMachine<'a> {
        let mut machine = SimMachine::new(odometer, deaths, &self.agenda, self.tells);
        machine.behaviours.clone_from(&self.behaviours);
        machine
    }
}

fn cell(name: &str, cold: bool, unrecorded_ms: u64) -> AgendaCell {
    AgendaCell {
        id: CellId::of(name.as_bytes()),
        role: Role::Sample,
        rounds: 1,
        start: if cold { Start::Cold } else { Start::Any },
        from_power: false,
        power_mode: None,
        needs: None,
        asked: Asked::new(),
        drop_caches: false,
        uses_gpu: true,
        may_taint: true,
        warms: true,
        cannot: None,
        unrecorded_ms,
    }
}

/// A cell that asks for a setting of the machine.
fn asking(name: &str, setting: MachineSetting, level: &str) -> AgendaCell {
    AgendaCell { asked: Asked::from([(setting, level.to_owned())]), ..cell(name, false, 100) }
}

fn agenda(cells: Vec<AgendaCell>) -> Agenda {
    let may_reboot = cells.iter().any(|c| c.start == Start::Cold);
    // As a plan has it: each cold trial costs a boot, twice that and ten is the budget.
    let boots_max = 2 * cells.iter().filter(|c| c.start == Start::Cold).map(|c| c.rounds).sum::<u32>() + 10;
    let mode = |id, name, mask| format!("< POWER_MODEL ID={id} NAME={name} >\nTPC_POWER_GATING TPC_PG_MASK {mask}\n");
    let conf = [mode(0, "15W", 240), mode(1, "25W", 240), mode(3, "7W", 252)].concat();
    let power_modes = parse_conf(&conf).expect("three modes");
    Agenda {
        cells,
        power_modes,
        seed: 1,
        boots_max,
        unexpected_per_hour_max: 6,
        expires_ms: 1_000_000,
        may_reboot,
        stops: None,
        open_ended: false,
    }
}

/// The same, each cell until two clean trials or a fault decide it.
fn until_decided(agenda: Agenda) -> Agenda {
    let rule =
        Stopping { p0: 0.01, p1: 0.78, alpha: 0.05, beta: 0.05, cap: 6, max: 6, baseline: None, pairs: Vec::new() };
    let stops = Stops::of(&rule, agenda.cells.iter().map(|cell| &cell.id));
    Agenda { stops: Some(stops), ..agenda }
}

fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "two-trials",
            agenda: agenda(vec![cell("a", false, 100), cell("b", false, 100)]),
            behaviours: vec![Behaviour::Pass, Behaviour::Fail],
            tells: Tells::Jetson,
            extend: false,
            fewer_deaths: 0,
        },
        Scenario {
            name: "planned-reboot",
            agenda: agenda(vec![cell("a", true, 0), cell("b", true, 100)]),
            behaviours: vec![Behaviour::Fail, Behaviour::Pass],
            tells: Tells::Pc,
            extend: false,
            fewer_deaths: 0,
        },
        Scenario {
            name: "settings",
            agenda: agenda(vec![
                asking("a", MachineSetting::PowerMode, "25W (1)"),
                asking("b", MachineSetting::GpuPm, "on"),
            ]),
            behaviours: vec![Behaviour::Pass, Behaviour::Pass],
            tells: Tells::Jetson,
            extend: false,
            fewer_deaths: 1,
        },
        Scenario {
            name: "mode-by-reboot",
            agenda: Agenda {
                may_reboot: true,
                ..agenda(vec![asking("a", MachineSetting::PowerMode, "7W (3)"), cell("b", false, 100)])
            },
            behaviours: vec![Behaviour::Pass, Behaviour::Pass],
            tells: Tells::Jetson,
            extend: false,
            fewer_deaths: 1,
        },
        Scenario {
            name: "warm",
            agenda: agenda(vec![
                AgendaCell { start: Start::Warm, ..cell("a", false, 100) },
                AgendaCell { role: Role::Warming, rounds: 0, ..cell("warming", false, 100) },
            ]),
            behaviours: vec![Behaviour::Fail, Behaviour::Pass],
            tells: Tells::Jetson,
            extend: false,
            fewer_deaths: 1,
        },
        Scenario {
            name: "until-decided",
            agenda: until_decided(agenda(
                ["a", "b"].map(|name| AgendaCell { rounds: 6, ..cell(name, false, 100) }).into(),
            )),
            behaviours: vec![Behaviour::Pass, Behaviour::Fail],
            tells: Tells::Pc,
            extend: false,
            fewer_deaths: 1,
        },
        Scenario {
            name: "extended",
            agenda: agenda(vec![cell("a", false, 100)]),
            behaviours: vec![Behaviour::Pass],
            tells: Tells::Pc,
            extend: true,
            fewer_deaths: 1,
        },
    ]
}

fn circumstances(machine: &SimMachine<'_>) -> Circumstances {
    Circumstances {
        here: machine.here(),
        device: DeviceId::of_machine("simulated"),
        launcher: Launcher::Service,
        provenance: vec![Provenance::Simulated; machine.agenda.cells.len()],
    }
}

fn opened() -> Opened {
    let digest = ContentDigest::of(b"simulated");
    Opened {
        run: RunId::new("sim", 1).expect("a name"),
        matrix: digest.clone(),
        plan: digest.clone(),
        binary: digest,
        tool: "sim".into(),
        device: DeviceId::of_machine("simulated"),
        invoker: Invoker::default(),
        matrix_dir: String::new(),
        allowed: Allowed::default(),
        persistence: Persistence::Persistent,
        script: None,
    }
}

/// One start of the harness; `None` if it died or an effect failed.
fn session(machine: &mut SimMachine<'_>, extend: bool) -> Result<Option<Ended>, String> {
    let circumstances = circumstances(machine);
    let agenda = machine.agenda;
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let mut watch = ();
        let mut runner = Runner::open(machine, agenda, circumstances, &mut watch)?;
        if runner.state().opened.is_none() {
            runner.begin(opened())?;
        }
        if extend && runner.state().progress.extensions() == 0 {
            let cells = agenda.cells.iter().map(|c| c.id.clone()).collect();
            runner.extend(Extended { cells, new: Vec::new(), why: "one more of each".into() })?;
        }
        runner.run()
    }));
    match attempt {
        Ok(Ok(ended)) => Ok(Some(ended)),
        Ok(Err(RunError::Machine(_) | RunError::NotRestored(_))) => Ok(None),
        Ok(Err(error @ (RunError::Read(_) | RunError::Illegal(_)))) => Err(format!("auditor (b): {error}")),
        Err(payload) if payload.is::<Died>() => Ok(None),
        Err(payload) => Err(payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "a panic without words".into())),
    }
}

/// How often each cause was named.
type Causes = BTreeMap<RebootCause, u64>;

/// Carries one schedule through and audits it.
fn check(scenario: &Scenario, deaths: u32, odometer: &mut Odometer) -> Result<Causes, String> {
    let mut machine = scenario.machine(odometer, deaths);
    let mut auditor = Auditor::new(&scenario.agenda);
    for _ in 0..SESSIONS_MAX {
        let ended = session(&mut machine, scenario.extend)?;
        auditor.follow(&scenario.agenda, &machine.durable)?;
        if let Some(Ended::Closed(closed)) = ended {
            return match closed.how {
                Closing::Complete => auditor.end(&machine),
                Closing::Stopped => Err(format!("closed without being complete: {}", closed.why)),
            };
        }
    }
    Err("auditor (f): the run does not end".into())
}

/// Follows what is durable.
struct Auditor {
    state: RunState,
    offset: usize,
    records: Vec<Record>,
    verdicts: BTreeMap<TrialId, Judged>,
}

impl Auditor {
    fn new(agenda: &Agenda) -> Self {
        Self { state: RunState::new(agenda), offset: 0, records: Vec::new(), verdicts: BTreeMap::new() }
    }

    /// (b) what is durable replays legally; (c) a verdict comes once. What was followed before may only grow: the
    /// machine cuts nothing but a torn end, and `offset` never stands behind one.
    fn follow(&mut self, agenda: &Agenda, durable: &[u8]) -> Result<(), String> {
        let fresh = durable.get(self.offset..).ok_or("auditor (c): durable records went away")?;
        for line in fresh.split_inclusive(|b| *b == b'\n') {
            let Some(text) = line.strip_suffix(b"\n") else { break };
            let record = decode(text, self.state.seq + 1).map_err(|error| format!("auditor (b): {error}"))?;
            self.state.apply(agenda, &record).map_err(|error| format!("auditor (b): {error}"))?;
            if let Event::Judged(judged) = &record.event
                && self.verdicts.insert(judged.trial.clone(), judged.clone()).is_some()
            {
                return Err(format!("auditor (c): {} was judged twice", judged.trial));
            }
            self.records.push(record);
            self.offset += line.len();
        }
        Ok(())
    }

    /// (d), (e), (h), (i): the journal against the truth; and every result file against its fold.
    fn end(&self, machine: &SimMachine<'_>) -> Result<Causes, String> {
        if self.offset != machine.durable.len() {
            return Err("the journal of a closed run has an end that is not a record".into());
        }
        if machine.boots.len() as u32 > machine.agenda.boots_max {
            return Err(format!("auditor (l): {} boots are more than the budget", machine.boots.len()));
        }
        if let Some(stops) = &machine.agenda.stops
            && let Some(open) = self.state.progress.decisions().all(stops).find(|decision| decision.end.is_none())
        {
            return Err(format!("auditor (m): the run is complete and cell {} is not decided", open.cell));
        }
        if machine.settings != settings_found() {
            return Err(format!("auditor (k): the machine is left with {:?}", machine.settings));
        }
        for (trial, judged) in &self.verdicts {
            audit_verdict(machine, trial, judged)?;
        }
        if let Some(ran) = machine.ran.iter().find(|ran| !self.verdicts.contains_key(&ran.trial)) {
            return Err(format!("{} ran and has no verdict", ran.trial));
        }
        let mut fold = ResultFold::default();
        for record in &self.records {
            if let Event::Finished(finished) = &record.event {
                let saw = |ran: &Ran| ran.trial == finished.trial && ran.ended.as_ref() == Some(&*finished.outcome);
                if !machine.ran.iter().any(saw) {
                    return Err(format!("auditor (d): an outcome of {} was never observed", finished.trial));
                }
            }
            if let Some(result) = fold.apply(record)
                && machine.result(&result.trial) != Some(&result.to_json()[..])
            {
                return Err(format!("the result of {} is not the fold of the journal", result.trial));
            }
        }
        let mut causes = Causes::new();
        self.verdicts.values().filter_map(|judged| judged.judgement.cause).for_each(|cause| {
            *causes.entry(cause).or_default() += 1;
        });
        Ok(causes)
    }
}

fn audit_verdict(machine: &SimMachine<'_>, trial: &TrialId, judged: &Judged) -> Result<(), String> {
    let judgement = &judged.judgement;
    let starts: Vec<&Ran> = machine.ran.iter().filter(|ran| ran.trial == *trial).collect();
    let [ran] = starts[..] else {
        return match (starts.len(), judgement.verdict) {
            // It was about to start when the machine died: nothing ran, and the boot id did change.
            (0, Verdict::Reboot | Verdict::Void) => Ok(()),
            (n, verdict) => Err(format!("{trial} ran {n} times and is {verdict}")),
        };
    };
    let death = machine.boots[ran.boot];
    let complete = ran.ended.as_ref().filter(|outcome| outcome.ended_by.is_none());
    match judgement.verdict.counted() {
        Counted::Clean if complete.is_none() => Err(format!("auditor (i): {trial} is clean and never ended well")),
        Counted::Fault if judgement.verdict == Verdict::Reboot => match (death, judgement.cause) {
            (None | Some(Death::HarnessKilled), _) => Err(format!("{trial} is a reboot and its boot never ended")),
            (Some(Death::Planned), _) => Err(format!("auditor (h): {trial} is a fault and its boot ended as planned")),
            (Some(_), None) => Err(format!("{trial} is a reboot without a cause")),
            (Some(_), Some(RebootCause::Undetermined))
            | (Some(Death::Panic), Some(RebootCause::Panic))
            | (Some(Death::Watchdog), Some(RebootCause::Watchdog))
            | (Some(Death::PowerLoss), Some(RebootCause::Power)) => Ok(()),
            (Some(death), Some(cause)) => Err(format!("auditor (e): {trial} is blamed on {cause:?} and was {death:?}")),
        },
        Counted::Excluded if judgement.verdict == Verdict::Operator => {
            Err(format!("auditor (e): {trial} is blamed on a person, and was {death:?}"))
        }
        Counted::Fault if complete.is_none() => Err(format!("{trial} is a fault that nobody observed")),
        Counted::Clean | Counted::Fault | Counted::Excluded => Ok(()),
    }
}

/// Tries every schedule of up to `deaths` deaths; returns how many and the causes named, or the first failure with the
/// line that replays it.
fn exhaust(scenario: &Scenario, deaths: u32, bug: Option<Bug>) -> Result<(u64, Causes), String> {
    let schedules = AtomicU64::new(0);
    let causes = Mutex::new(Causes::new());
    let explain = |odometer: &Odometer, why: String| {
        format!("{why}\nreplay: JETFAULT_SIM_SCHEDULE={}:{} cargo test crashes", scenario.name, odometer.line())
    };
    let all = |prefix: &[(u32, u32)], deaths: u32| -> Result<Vec<Vec<(u32, u32)>>, String> {
        seeded::switch(bug);
        let mut odometer = Odometer::after(prefix);
        let mut died = Vec::new();
        loop {
            schedules.fetch_add(1, Ordering::Relaxed);
            let named = check(scenario, deaths, &mut odometer).map_err(|why| explain(&odometer, why))?;
            let mut causes = causes.lock().expect("nobody panics with it");
            named.into_iter().for_each(|(cause, times)| *causes.entry(cause).or_default() += times);
            let digits = odometer.digits();
            if let Some(last) = digits.iter().rposition(|&(choice, _)| choice != 0)
                && last >= prefix.len()
            {
                died.push(digits[..=last].to_vec());
            }
            if !odometer.advance() {
                return Ok(died);
            }
        }
    };
    let mut prefixes = all(&[], 1)?;
    for total in 2..=deaths {
        let further: Result<Vec<_>, String> = prefixes.par_iter().map(|prefix| all(prefix, total)).collect();
        prefixes = further?.into_iter().flatten().collect();
    }
    Ok((schedules.into_inner(), causes.into_inner().expect("nobody panics with it")))
}

#[test]
fn no_schedule_of_two_deaths_loses_or_invents_a_result() {
    if let Ok(schedule) = std::env::var("JETFAULT_SIM_SCHEDULE") {
        let (name, choices) = schedule.split_once(':').expect("NAME:CHOICES");
        let scenario = scenarios().into_iter().find(|s| s.name == name).expect("a scenario of that name");
        let choices: Vec<u32> = choices.split(',').map(|c| c.parse().expect("a number")).collect();
        let deaths = choices.iter().filter(|c| **c != 0).count() as u32;
        check(&scenario, deaths, &mut Odometer::replay(&choices)).unwrap();
        return;
    }
    let deaths = std::env::var("JETFAULT_SIM_DEATHS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let mut total = 0;
    let mut all_causes = Causes::new();
    for scenario in scenarios() {
        let deaths = deaths - scenario.fewer_deaths;
        let (schedules, causes) =
            exhaust(&scenario, deaths, None).unwrap_or_else(|why| panic!("{}: {why}", scenario.name));
        println!("crash simulator: {}: {schedules} schedules of up to {deaths} deaths, 0 violations", scenario.name);
        println!("crash simulator: {}: causes named: {causes:?}, 0 of them wrong", scenario.name);
        assert!(causes.values().any(|times| *times > 0), "{}: no cause was ever told", scenario.name);
        causes.into_iter().for_each(|(cause, times)| *all_causes.entry(cause).or_default() += times);
        total += schedules;
    }
    // In one scenario with few deaths every boot after a panic may be one whose records cannot be read.
    for cause in [RebootCause::Panic, RebootCause::Watchdog, RebootCause::Power] {
        assert!(all_causes.get(&cause).is_some_and(|times| *times > 0), "{cause:?} was never told");
    }
    println!("crash simulator: {total} schedules in all");
}

#[test]
fn the_simulator_finds_each_seeded_bug() {
    let scenarios = scenarios();
    // How many deaths a bug needs is said of the short scenarios; a run until decided takes more boots.
    let short = || scenarios.iter().filter(|scenario| scenario.agenda.stops.is_none());
    let find = |deaths, bug| short().find_map(|s| exhaust(s, deaths, Some(bug)).err());
    let missing_sync = find(1, Bug::MissingSync).expect("a missing sync is found at one death");
    assert!(missing_sync.contains("auditor (a)"), "{missing_sync}");
    let stale = find(1, Bug::StaleRecord).expect("a stale record is found at one death");
    assert!(stale.contains("auditor (e)"), "{stale}");
    assert_eq!(find(1, Bug::BootGap), None, "a boot gap needs two deaths");
    let gap = find(2, Bug::BootGap).expect("a boot gap is found at two deaths");
    assert!(gap.contains("auditor (e)"), "{gap}");
    seeded::switch(None);
}

#[test]
fn a_cell_that_takes_the_machine_down_at_once_is_quarantined_and_the_others_go_on() {
    let scenario = Scenario {
        name: "poison",
        agenda: agenda(["poison", "well"].map(|name| AgendaCell { rounds: 5, ..cell(name, false, 100) }).to_vec()),
        behaviours: vec![Behaviour::Poison, Behaviour::Pass],
        tells: Tells::Jetson,
        extend: false,
        fewer_deaths: 0,
    };
    let mut odometer = Odometer::default();
    let mut machine = scenario.machine(&mut odometer, 0);
    let closed = (0..SESSIONS_MAX).find_map(|_| session(&mut machine, false).unwrap());
    assert!(matches!(closed, Some(Ended::Closed(closed)) if closed.how == Closing::Complete), "auditor (g)");
    let poisoned = machine.ran.iter().filter(|ran| ran.trial.cell == scenario.agenda.cells[0].id).count();
    assert_eq!((poisoned, machine.ran.len()), (3, 3 + 5), "auditor (g): three starts, then quarantine");
    assert_eq!(machine.torn_kept(), 0);
}
