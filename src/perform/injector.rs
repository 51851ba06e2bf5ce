//! The injector: commits deliberate faults of the whole machine, and writes down what it is about to do before it does.
//!
//! It sits in the parent, which is root where a child is the invoking user. The worker or command says that a stage
//! began; the parent records that as ever, and the fault follows when it would next listen. `injected.jsonl` is synced
//! before the deed and knows nothing of the journal: whoever tests a verdict compares it with that file.
//!
//! Resets and panics go through the kernel's own keys (`Documentation/admin-guide/sysrq.rst`), which root may use
//! through the trigger whatever `kernel.sysrq` allows at a keyboard. Nothing is synced on the way: a real fault syncs
//! nothing either.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::model::ids::{BootId, TrialId};
use crate::model::injection::{INJECTED_SCHEMA, Injected, MachineFault, START};
use crate::model::settings::Cpus;
use crate::model::units::Now;
use crate::model::verdict::StageName;
use crate::perform::affinity::confine;
use crate::perform::files::{at, directory_of, sync_dir};
use crate::perform::machine::MachineError;
use crate::perform::os;

/// The kernel's trigger of sysrq keys.
const SYSRQ: &str = "/proc/sysrq-trigger";

/// A machine that is still up so long after a fault was committed did not commit it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why this process cannot commit faults of the whole machine, if it cannot.
pub fn obstacle() -> Option<String> {
    if !geteuid().is_root() {
        return Some("faults of the whole machine need root ([[inject]])".to_owned());
    }
    let denied = access(SYSRQ, Access::WRITE_OK).err()?;
    Some(format!("faults of the whole machine need {SYSRQ}, which cannot be written here: {denied} ([[inject]])"))
}

/// A moment of a trial at which a fault may be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment<'a> {
    /// Its start is durable, and its child does not exist yet.
    Start,
    /// The child said its first word.
    Running,
    /// A stage began.
    Stage(&'a StageName),
}

/// The fault that a trial is to commit.
#[derive(Debug)]
struct Armed {
    trial: TrialId,
    fault: MachineFault,
    at: Option<StageName>,
    is_due: bool,
}

/// Commits the faults of one run.
#[derive(Debug)]
pub struct Injector {
    log: PathBuf,
    armed: Option<Armed>,
    /// Does it; what it returns is why the machine is still there. Tests put something harmless in its place.
    deed: fn(MachineFault) -> io::Error,
}

impl Injector {
    /// An injector that writes down its deeds in `log`.
    pub fn new(log: PathBuf) -> Self {
        Self { log, armed: None, deed: do_it }
    }

    /// From now on `trial` runs, and commits `fault`: at the named stage, or right after its child's first word.
    pub fn arm(&mut self, trial: &TrialId, fault: Option<(MachineFault, Option<StageName>)>) {
        self.armed = fault.map(|(fault, at)| Armed { trial: trial.clone(), fault, at, is_due: false });
    }

    /// Takes note of how far the trial came.
    pub fn notice(&mut self, moment: Moment<'_>) {
        let Some(armed) = &mut self.armed else { return };
        armed.is_due |= match (moment, armed.at.as_ref()) {
            (Moment::Start, Some(at)) => at.as_str() == START,
            (Moment::Running, at) => at.is_none(),
            (Moment::Stage(stage), Some(at)) => at == stage,
            (Moment::Start | Moment::Stage(_), None) => false,
        };
    }

    /// Whether [`Injector::commit`] would do something.
    pub fn is_due(&self) -> bool {
        self.armed.as_ref().is_some_and(|armed| armed.is_due)
    }

    /// Writes down the fault that is due, durably, and commits it. Without one it does nothing.
    ///
    /// # Errors
    /// If it cannot be written down, and then it is not committed; or if the machine survived it.
    pub fn commit(&mut self, boot: &BootId, now: Now) -> Result<(), MachineError> {
        let Some(Armed { trial, fault, at, .. }) = self.armed.take_if(|armed| armed.is_due) else { return Ok(()) };
        let injected = Injected {
            schema: INJECTED_SCHEMA.to_owned(),
            trial,
            fault,
            stage: at,
            boot: boot.clone(),
            uptime_ms: now.uptime_ms,
            wall: now.wall,
        };
        append_durably(&self.log, &injected)?;
        Err(MachineError::new(format!("commit the injected fault \"{fault}\""), (self.deed)(fault)))
    }
}

fn append_durably(log: &Path, injected: &Injected) -> Result<(), MachineError> {
    let mut line = serde_json::to_vec(injected).expect("it holds no map");
    line.push(b'\n');
    let append = || {
        let mut file = OpenOptions::new().create(true).append(true).open(log)?;
        file.write_all(&line)?;
        file.sync_all()
    };
    at("append to", log, append())?;
    sync_dir(directory_of(log))
}

/// Does it, and returns only if the machine survives.
fn do_it(fault: MachineFault) -> io::Error {
    if let Some(obstacle) = obstacle() {
        return io::Error::other(obstacle);
    }
    let done = match fault {
        MachineFault::Reset => press("b"),
        MachineFault::Panic => press("c"),
        MachineFault::Poweroff => press("o"),
        MachineFault::Freeze => freeze(),
    };
    match done {
        Err(error) => error,
        Ok(()) => {
            thread::sleep(PATIENCE);
            io::Error::other(format!("the machine is still up {} s later", PATIENCE.as_secs()))
        }
    }
}

fn press(key: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(SYSRQ)?.write_all(key.as_bytes())
}

/// Stops the whole machine: on each processor a thread of the highest real-time priority spins, so that no process and
/// no kernel thread below it runs any more, and nothing is left that would feed a watchdog. Interrupts are served, as
/// in many a real hang: a ping may still be answered.
///
/// The kernel's two protections are off first: the share of time that it keeps from real-time tasks (sched(7)), and
/// the fair server that took its place in Linux 6.12.
fn freeze() -> io::Result<()> {
    const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    const FAIR_SERVERS: &str = "/sys/kernel/debug/sched/fair_server";
    fs::write(RT_RUNTIME, "-1")?;
    for server in fs::read_dir(FAIR_SERVERS).into_iter().flatten().flatten() {
        fs::write(server.path().join("runtime"), "0")?;
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let online: Cpus = online.trim().parse().map_err(|error| io::Error::other(format!("{online:?}: {error}")))?;
    let Cpus::Only(ranges) = online else { return Err(io::Error::other("the kernel lists no processor")) };
    let cpus: Vec<u32> = ranges.iter().flat_map(|&(first, last)| first..=last).collect();
    os::become_most_urgent()?;
    // Nobody spins before all can: a processor that spins alone keeps the others from being brought to it.
    let ready = Arc::new(Barrier::new(cpus.len()));
    for cpu in cpus {
        let ready = ready.clone();
        thread::Builder::new().spawn(move || spin_on(cpu, &ready))?;
    }
    Ok(())
}

fn spin_on(cpu: u32, ready: &Barrier) -> io::Result<()> {
    confine(&cpu.to_string().parse().map_err(io::Error::other)?)?;
    ready.wait();
    loop {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perform::host;

    fn injector(dir: &Path) -> Injector {
        let deed = |fault| io::Error::other(format!("nobody commits {fault} in a test"));
        Injector { deed, ..Injector::new(dir.join("injected.jsonl")) }
    }

    fn trial() -> TrialId {
        "c-27505b8655c07aaa-r001-a1".parse().unwrap()
    }

    fn stage(name: &str) -> StageName {
        name.parse().unwrap()
    }

    #[test]
    fn a_fault_is_due_at_its_moment_and_at_no_other() {
        let (copy, forward) = (stage("A.copy"), stage("A.forward"));
        let moments = [Moment::Start, Moment::Running, Moment::Stage(&copy), Moment::Stage(&forward)];
        for (at, due) in [(Some(stage(START)), 0), (None, 1), (Some(copy.clone()), 2), (Some(forward.clone()), 3)] {
            let mut injector = injector(Path::new("/nowhere"));
            injector.arm(&trial(), Some((MachineFault::Reset, at)));
            for (index, moment) in moments.into_iter().enumerate() {
                injector.notice(moment);
                assert_eq!(injector.is_due(), index >= due, "{moment:?}");
            }
            injector.arm(&trial(), None);
            assert!(!injector.is_due(), "the next trial commits nothing");
        }
    }

    #[test]
    fn what_is_done_is_written_down_before_it_is_done_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        let mut injector = injector(dir.path());
        for fault in [MachineFault::Panic, MachineFault::Freeze] {
            injector.arm(&trial(), Some((fault, Some(stage("A.copy")))));
            injector.notice(Moment::Stage(&stage("A.copy")));
            let error = injector.commit(&boot, host::now()).unwrap_err();
            assert!(error.to_string().contains(&format!("nobody commits {fault}")), "{error}");
            assert!(injector.commit(&boot, host::now()).is_ok(), "nothing is due any more");
        }
        let text = fs::read_to_string(dir.path().join("injected.jsonl")).unwrap();
        let lines: Vec<Injected> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let faults: Vec<MachineFault> = lines.iter().map(|line| line.fault).collect();
        assert_eq!(faults, [MachineFault::Panic, MachineFault::Freeze]);
        assert!(lines.iter().all(|line| line.boot == boot && line.stage == Some(stage("A.copy"))));
    }

    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        let mut injector = injector(Path::new("/nowhere/at/all"));
        injector.arm(&trial(), Some((MachineFault::Reset, None)));
        injector.notice(Moment::Running);
        let boot = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
        let error = injector.commit(&boot, host::now()).unwrap_err().to_string();
        assert!(error.contains("injected.jsonl") && !error.contains("nobody commits"), "{error}");
    }
}
