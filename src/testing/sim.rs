//! A machine that dies: every effect of the parent is a point at which it may, and bytes that were not synced may be
//! lost, kept or torn.
//!
//! A death is an unwinding panic, not an error value: code under test cannot catch, log or handle it.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufRead};
use std::panic::resume_unwind;
use std::time::Duration;

use chrono::DateTime;

use crate::decide::agenda::Agenda;
use crate::decide::arrange::{Readings, fulfils};
use crate::decide::prepare::{Look, Survey};
use crate::model::evidence::{
    CrashKind, CrashRecord, DriveCounters, Evidence, EvidenceSummary, Fact, Findings, Reset, Shutdown,
};
use crate::model::ids::{BootId, ContentDigest, TrialId};
use crate::model::journal::{Hooked, RebootAsked, SetChanged, Started};
use crate::model::machine_setting::MachineSetting;
use crate::model::observed::Observed;
use crate::model::outcome::{EndedBy, Exit, LastReply, Outcome};
use crate::model::settings::Start;
use crate::model::start_state::{GpuDriver, GpuTraces};
use crate::model::units::{Now, UptimeMs, WallTime};
use crate::perform::journal::Durable;
use crate::perform::machine::{ChildEvent, Machine, MachineError, StopRequest};
use crate::testing::odometer::Odometer;

/// Why a boot, or only the harness in it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// SIGKILL of the harness: the machine stays up, and the page cache with it.
    HarnessKilled,
    /// A kernel panic that leaves a record.
    Panic,
    /// A watchdog reset: older records stay, none is added.
    Watchdog,
    /// Power loss: records in memory are gone.
    PowerLoss,
    /// A reboot that the harness asked for.
    Planned,
}

/// What a machine says of how the boot before ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// A Jetson whose kernel stays after a panic until the watchdog comes: one reset word for both.
    Jetson,
    /// A PC: no reset word, a watchdog that owns up to what it did.
    Pc,
}

/// The crash records of boots whose number has this remainder by three cannot be read.
const UNREADABLE_BOOT: usize = 0;

/// What becomes of bytes that were not synced when the machine dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    WrittenBack,
    Torn,
}

/// The ways to die at one point: one of the harness alone, three of the machine with three fates each. The first four
/// are all there is when nothing is unsynced.
const DEATHS: [(Death, Fate); 10] = [
    (Death::HarnessKilled, Fate::WrittenBack),
    (Death::Panic, Fate::Lost),
    (Death::Watchdog, Fate::Lost),
    (Death::PowerLoss, Fate::Lost),
    (Death::Panic, Fate::WrittenBack),
    (Death::Panic, Fate::Torn),
    (Death::Watchdog, Fate::WrittenBack),
    (Death::Watchdog, Fate::Torn),
    (Death::PowerLoss, Fate::WrittenBack),
    (Death::PowerLoss, Fate::Torn),
];

/// What the unwinding panic carries.
pub(crate) struct Died;

/// One start of a child, as it really was.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) trial: TrialId,
    pub(crate) boot: usize,
    /// What the parent could observe, once the child ended.
    pub(crate) ended: Option<Outcome>,
}

#[derive(Debug, Clone, Default)]
struct ResultFile {
    bytes: Vec<u8>,
    synced: bool,
}

/// What the child of a trial does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Passes through three stages and ends well.
    Pass,
    /// Passes through three stages and exits with code 3.
    Fail,
    /// Takes the machine down at its first instruction, each time.
    Poison,
}

/// The world: what survives the harness, and what survives the machine.
pub(crate) struct SimMachine<'a> {
    pub(crate) odometer: &'a mut Odometer,
    pub(crate) deaths_left: u32,
    pub(crate) behaviours: Vec<Behaviour>,
    pub(crate) agenda: &'a Agenda,
    pub(crate) durable: Vec<u8>,
    unsynced: Vec<u8>,
    evidence: BTreeMap<BootId, Evidence>,
    results: BTreeMap<TrialId, ResultFile>,
    torn_kept: Vec<Vec<u8>>,
    tells: Tells,
    crash_records: Vec<CrashRecord>,
    drive: DriveCounters,
    /// How each boot so far ended; the last entry is the boot that is up.
    pub(crate) boots: Vec<Option<Death>>,
    pub(crate) ran: Vec<Ran>,
    clock: u64,
    child: Option<ChildScript>,
    /// The settings of the machine as they are.
    pub(crate) settings: BTreeMap<MachineSetting, String>,
    /// Which cells computed on the GPU in the boot that is up, and whether they passed.
    used: Vec<(usize, bool)>,
    /// Trials whose `Started` is on the disk, as far as already looked for.
    started_on_disk: HashSet<TrialId>,
    scanned: usize,
}

/// The settings of the machine as it is found and as it boots.
pub(crate) fn settings_found() -> BTreeMap<MachineSetting, String> {
    [(MachineSetting::PowerMode, "15W (0)"), (MachineSetting::GpuPm, "auto")]
        .map(|(setting, value)| (setting, value.to_owned()))
        .into()
}

struct ChildScript {
    behaviour: Behaviour,
    next: u32,
    stopping: bool,
}

impl<'a> SimMachine<'a> {
    pub(crate) fn new(odometer: &'a mut Odometer, deaths: u32, agenda: &'a Agenda, tells: Tells) -> Self {
        Self {
            odometer,
            deaths_left: deaths,
            behaviours: Vec::new(),
            agenda,
            tells,
            drive: DriveCounters { drive: "nvme0".into(), power_cycles: 37, unsafe_shutdowns: 12 },
            durable: Vec::new(),
            unsynced: Vec::new(),
            evidence: BTreeMap::new(),
            results: BTreeMap::new(),
            torn_kept: Vec::new(),
            // A record of some panic long before the run: whoever takes it for news is wrong.
            crash_records: vec![CrashRecord::of(ContentDigest::of(b"long ago"), CrashKind::Panic)],
            boots: vec![None],
            ran: Vec::new(),
            clock: 0,
            child: None,
            settings: settings_found(),
            used: Vec::new(),
            started_on_disk: HashSet::new(),
            scanned: 0,
        }
    }

    /// The id of boot number `number`.
    pub(crate) fn boot_id(number: usize) -> BootId {
        format!("00000000-0000-4000-8000-{:012x}", number + 1).parse().expect("a well-formed id")
    }

    /// The boot that is up.
    pub(crate) fn here(&self) -> BootId {
        Self::boot_id(self.boots.len() - 1)
    }

    /// The journal as a reader in this boot would see it.
    pub(crate) fn journal(&self) -> Vec<u8> {
        [&self.durable[..], &self.unsynced[..]].concat()
    }

    pub(crate) fn result(&self, trial: &TrialId) -> Option<&[u8]> {
        self.results.get(trial).map(|file| &file.bytes[..])
    }

    pub(crate) fn torn_kept(&self) -> usize {
        self.torn_kept.len()
    }

    /// A point at which the machine may die.
    fn crash_point(&mut self) {
        if self.deaths_left == 0 {
            return;
        }
        // With nothing unsynced the three fates are one.
        let at_stake = !self.unsynced.is_empty() || self.results.values().any(|file| !file.synced);
        let ways = if at_stake { &DEATHS[..] } else { &DEATHS[..4] };
        if let Some(way) = self.odometer.choose(1 + ways.len() as u32).checked_sub(1) {
            self.deaths_left -= 1;
            let (death, fate) = ways[way as usize];
            self.die(death, fate);
        }
    }

    /// Whether an effect fails here, as on a full or broken disk; that uses up a death too.
    fn fails(&mut self) -> bool {
        let fails = self.deaths_left > 0 && self.odometer.choose(2) == 1;
        self.deaths_left -= u32::from(fails);
        fails
    }

    fn die(&mut self, death: Death, fate: Fate) -> ! {
        self.child = None;
        if death == Death::HarnessKilled {
            resume_unwind(Box::new(Died));
        }
        let kept = match fate {
            Fate::Lost => 0,
            Fate::WrittenBack => self.unsynced.len(),
            Fate::Torn => self.unsynced.len() / 2,
        };
        self.durable.extend_from_slice(&self.unsynced[..kept]);
        self.unsynced.clear();
        for file in self.results.values_mut().filter(|file| !file.synced) {
            match fate {
                Fate::Lost | Fate::Torn => file.bytes.clear(),
                Fate::WrittenBack => file.synced = true,
            }
        }
        match death {
            Death::Panic => {
                let digest = ContentDigest::of(format!("panic in boot {}", self.boots.len()).as_bytes());
                self.crash_records.push(CrashRecord::of(digest, CrashKind::Panic));
            }
            Death::PowerLoss => {
                self.crash_records.clear();
                self.drive.power_cycles += 1;
                self.drive.unsafe_shutdowns += 1;
            }
            Death::Watchdog | Death::Planned | Death::HarnessKilled => {}
        }
        for (setting, found) in settings_found().into_iter().filter(|(setting, _)| !setting.survives_reboot()) {
            self.settings.insert(setting, found);
        }
        self.used.clear();
        *self.boots.last_mut().expect("one is up") = Some(death);
        self.boots.push(None);
        self.clock = 0;
        resume_unwind(Box::new(Died));
    }

    /// (j) a trial starts in the state and under the settings that its cell asks for, and under no others.
    fn audit_start(&self, cell: usize) {
        let cell = &self.agenda.cells[cell];
        match cell.start {
            Start::Cold => assert!(self.used.is_empty(), "auditor (j): a cold trial is not the first of its boot"),
            Start::Warm => {
                let warm = self.used.iter().any(|(cell, passed)| *passed && self.agenda.cells[*cell].warms);
                assert!(warm, "auditor (j): a warm trial starts and nothing warmed the machine");
            }
            Start::Any => {}
        }
        if self.agenda.warming().is_some_and(|warming| self.agenda.cells[warming].id == cell.id) {
            return;
        }
        for (setting, found) in settings_found() {
            let now = &self.settings[&setting];
            match cell.asked.get(&setting) {
                Some(level) => assert!(fulfils(setting, level, now), "auditor (j): {setting} is {now}, not {level}"),
                None => assert_eq!(*now, found, "auditor (j): {setting} is not as it was found"),
            }
        }
    }

    fn findings(&self) -> Findings {
        let before = self.boots.len().checked_sub(2).and_then(|before| self.boots[before]);
        let shutdown = |death| if death == Death::Planned { Shutdown::Clean } else { Shutdown::Unclean };
        let word = |death| match death {
            Death::Panic | Death::Watchdog => "BCCPLEXWDT",
            Death::PowerLoss => "SYS_RESET_N",
            Death::Planned | Death::HarnessKilled => "MAINSWRST",
        };
        let reset = |death| Reset { reason: word(death).into(), level: None };
        let fact = |is_told: bool, value| if is_told { value } else { None };
        Findings {
            boots: Fact::Known((0..self.boots.len()).map(Self::boot_id).collect()),
            crash_records: match self.boots.len() % 3 {
                UNREADABLE_BOOT => Fact::Denied("permission denied".into()),
                _ => Fact::Known(self.crash_records.clone()),
            },
            shutdown: before.map_or(Fact::Absent, |death| Fact::Known(shutdown(death))),
            reset: fact(self.tells == Tells::Jetson, before).map_or(Fact::Absent, |death| Fact::Known(reset(death))),
            watchdog_fired: fact(self.tells == Tells::Pc, before)
                .map_or(Fact::Absent, |death| Fact::Known(death == Death::Watchdog)),
            drives: Fact::Known(vec![self.drive.clone()]),
            ..Findings::default()
        }
    }

    fn is_started_on_disk(&mut self, trial: &TrialId) -> bool {
        let fresh = &self.durable[self.scanned..];
        for line in fresh.split_inclusive(|b| *b == b'\n') {
            if let Ok(text) = std::str::from_utf8(line)
                && let Some(at) = text.find("\"started\":{\"trial\":\"")
            {
                let rest = &text[at + 20..];
                self.started_on_disk.extend(rest.split('"').next().and_then(|id| id.parse().ok()));
            }
        }
        self.scanned = self.durable.len();
        self.started_on_disk.contains(trial)
    }
}

fn broken(what: &str) -> MachineError {
    MachineError::new(what, io::ErrorKind::StorageFull.into())
}

impl Machine for SimMachine<'_> {
    fn now(&mut self) -> Now {
        self.clock += 30;
        let wall = WallTime(DateTime::from_timestamp_millis(self.clock as i64).expect("in range"));
        Now { uptime_ms: UptimeMs(self.clock), wall }
    }

    fn open_journal(&mut self) -> Result<Box<dyn BufRead + '_>, MachineError> {
        self.crash_point();
        Ok(Box::new(io::Cursor::new(self.journal())))
    }

    fn cut_journal(&mut self, keep: u64, torn: &[u8]) -> Result<(), MachineError> {
        self.crash_point();
        self.torn_kept.push(torn.to_vec());
        self.crash_point();
        let mut journal = self.journal();
        journal.truncate(keep as usize);
        self.durable = journal;
        self.scanned = self.scanned.min(self.durable.len());
        self.unsynced.clear();
        Ok(())
    }

    fn append(&mut self, line: &[u8]) -> Result<(), MachineError> {
        self.crash_point();
        if self.fails() {
            self.unsynced.extend_from_slice(&line[..line.len() / 2]);
            return Err(broken("append"));
        }
        self.unsynced.extend_from_slice(line);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), MachineError> {
        self.crash_point();
        if self.fails() {
            return Err(broken("sync"));
        }
        self.durable.append(&mut self.unsynced);
        Ok(())
    }

    fn capture(&mut self) -> Result<Evidence, MachineError> {
        self.crash_point();
        Ok(Evidence { boot: self.here(), findings: self.findings(), items: BTreeMap::new() })
    }

    fn save_evidence(&mut self, evidence: &Evidence) -> Result<EvidenceSummary, MachineError> {
        self.crash_point();
        self.evidence.insert(evidence.boot.clone(), evidence.clone());
        Ok(EvidenceSummary {
            file: ContentDigest::of(&serde_json::to_vec(evidence).expect("plain data")),
            findings: evidence.findings.clone(),
        })
    }

    fn write_result(&mut self, trial: &TrialId, json: &[u8]) -> Result<(), MachineError> {
        self.crash_point();
        self.results.insert(trial.clone(), ResultFile { bytes: json.to_vec(), synced: false });
        Ok(())
    }

    fn sync_results(&mut self) -> Result<(), MachineError> {
        self.crash_point();
        self.results.values_mut().for_each(|file| file.synced = true);
        Ok(())
    }

    fn has_result(&mut self, trial: &TrialId, json: &[u8]) -> bool {
        self.result(trial) == Some(json)
    }

    fn end_orphans(&mut self) -> Result<u32, MachineError> {
        self.crash_point();
        self.child = None;
        Ok(0)
    }

    fn survey(&mut self, look: &Look) -> Survey {
        let read = |setting: &MachineSetting| (*setting, Fact::Known(self.settings[setting].clone()));
        let readings: Readings = look.settings.iter().map(read).collect();
        let traces = GpuTraces {
            driver: GpuDriver::Nvgpu,
            marked_by: None,
            golden_image: Fact::Known(true),
            all_nodes: Fact::Known(true),
            active_ms: Fact::Known(if self.used.is_empty() { 5_000 } else { 50_000 }),
            kept_powered: false,
            uvm: Fact::Absent,
            accounted: Fact::Absent,
            holders: Fact::Known(Vec::new()),
            clients: Fact::Known(Vec::new()),
            users: Vec::new(),
            bystanders: Vec::new(),
            uptime_ms: Some(self.clock),
        };
        Survey { readings, traces: look.traces.map(|_| traces), uptime_ms: Some(self.clock), ..Survey::default() }
    }

    fn set(&mut self, change: &Durable<SetChanged>) -> Result<(), String> {
        self.crash_point();
        if self.fails() {
            return Err("the machine refuses".into());
        }
        let change = change.get();
        self.settings.insert(change.what.parse().expect("a setting of the machine"), change.new.clone());
        self.crash_point();
        Ok(())
    }

    fn restore(&mut self, setting: MachineSetting, value: &str) -> Result<(), String> {
        self.crash_point();
        if self.fails() {
            return Err("the machine refuses".into());
        }
        self.settings.insert(setting, value.to_owned());
        self.crash_point();
        Ok(())
    }

    fn page_cache(&mut self) -> String {
        "0 kB".into()
    }

    fn drop_caches(&mut self, _change: &Durable<SetChanged>) -> Result<(), String> {
        self.crash_point();
        Ok(())
    }

    fn start_child(&mut self, started: &Durable<Started>, cell: usize) -> Result<(), MachineError> {
        let trial = started.get().trial.clone();
        assert!(self.is_started_on_disk(&trial), "auditor (a): {trial} runs and its start is not on the disk");
        assert!(self.child.is_none(), "two children at once");
        self.crash_point();
        self.audit_start(cell);
        self.used.push((cell, false));
        self.ran.push(Ran { trial, boot: self.boots.len() - 1, ended: None });
        let behaviour = self.behaviours[cell];
        if behaviour == Behaviour::Poison {
            self.die(Death::Watchdog, Fate::Lost);
        }
        self.child = Some(ChildScript { behaviour, next: 0, stopping: false });
        Ok(())
    }

    fn child_event(&mut self, wait: Duration) -> Result<ChildEvent, MachineError> {
        self.crash_point();
        let child = self.child.as_mut().expect("a child runs");
        let step = child.next;
        child.next += 1;
        let stage = |name: &str| name.parse().expect("a stage name");
        Ok(match (child.stopping, step) {
            (false, 0) => ChildEvent::Running { pid: 42 },
            (false, 1) => ChildEvent::Stage { stage: stage("A.copy"), at_ms: 10 },
            (false, 2) => ChildEvent::Stage { stage: stage("A.quantize"), at_ms: 20 },
            (false, 3) => {
                self.clock += wait.as_millis() as u64;
                // Who does not wait hears nothing, and the child is where it was.
                child.next -= u32::from(wait.is_zero());
                ChildEvent::Quiet
            }
            (false, 4) => ChildEvent::Stage { stage: stage("A.forward"), at_ms: 1200 },
            (stopping, _) => {
                let failing = child.behaviour == Behaviour::Fail;
                let mut outcome = Outcome::of(Exit::Code(if failing { 3 } else { 0 }));
                outcome.last_reply = Some(if failing { LastReply::Running } else { LastReply::Done });
                outcome.stage = Some(stage("A.forward"));
                outcome.ended_by = stopping.then_some(EndedBy::Stop);
                self.ran.last_mut().expect("it runs").ended = Some(outcome.clone());
                self.used.last_mut().expect("it runs").1 = !failing && !stopping;
                self.child = None;
                ChildEvent::Ended(Box::new(outcome))
            }
        })
    }

    fn acknowledge_stage(&mut self) {
        self.crash_point();
    }

    fn end_child(&mut self, _why: EndedBy) {
        if let Some(child) = &mut self.child {
            child.stopping = true;
        }
    }

    fn sync_output(&mut self) -> Result<(), MachineError> {
        self.crash_point();
        Ok(())
    }

    fn reboot(&mut self, asked: &Durable<RebootAsked>, here: &BootId) -> Result<(), MachineError> {
        self.crash_point();
        assert_eq!(
            (&asked.get().boot, here),
            (&self.here(), &self.here()),
            "a reboot is declared for the boot it ends"
        );
        if self.fails() {
            return Err(broken("reboot"));
        }
        if let Some(mode) = &asked.get().power_mode {
            self.settings.insert(MachineSetting::PowerMode, mode.clone());
        }
        self.die(Death::Planned, Fate::WrittenBack)
    }

    fn can_cut_power(&self) -> bool {
        false
    }

    fn cut_power(&mut self, _: &Durable<Hooked>, _: &BootId) -> Result<(), MachineError> {
        Err(broken("cut the power"))
    }

    fn observations(&mut self) -> Result<Vec<Observed>, MachineError> {
        Ok(Vec::new())
    }

    fn observation_taken(&mut self, _observed: &Observed) -> Result<(), MachineError> {
        Ok(())
    }

    fn await_witness(&mut self, _boot: &BootId) {}

    fn clearance(&mut self) -> Option<StopRequest> {
        self.stop_requested()
    }

    fn stop_requested(&mut self) -> Option<StopRequest> {
        let stops = self.fails();
        stops.then_some(StopRequest::Now { signal: 2 })
    }
}
