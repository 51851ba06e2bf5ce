//! The real machine: store, host and supervisor behind the one trait that the runner knows.

mod ending;
mod trial;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::syncfs;

use crate::decide::classify::classify;
use crate::decide::clearance::Clearance;
use crate::decide::plan::Plan;
use crate::decide::prepare::{Look, Survey};
use crate::model::board::RebootBy;
use crate::model::evidence::{Evidence, EvidenceSummary, Fact};
use crate::model::ids::{BootId, ContentDigest, TrialId};
use crate::model::journal::{Hooked, Invoker, RebootAsked, SetChanged, Started};
use crate::model::machine_setting::MachineSetting;
use crate::model::observed::Observed;
use crate::model::outcome::EndedBy;
use crate::model::settings::{Backend, Settings};
use crate::model::units::Now;
use crate::model::verdict::Verdict;
use crate::perform::artifacts::{Artifacts, offer};
use crate::perform::boot::{AtBoot, Rebooter};
use crate::perform::client::{Client, PERIOD};
use crate::perform::companion::Companion;
use crate::perform::evidence;
use crate::perform::files::{at, make_dir_durably, write_durably, write_replaceably};
use crate::perform::gdb_observer::Session;
use crate::perform::host::{self, Sysroot};
use crate::perform::injector::{Injector, Moment};
use crate::perform::journal::Durable;
use crate::perform::machine::{ChildEvent, Machine, MachineError, StopRequest};
use crate::perform::memory_group::MemoryGroup;
use crate::perform::orphans::end_orphans;
use crate::perform::prepare::Prepared;
use crate::perform::processes::RunMark;
use crate::perform::repetition::Repetition;
use crate::perform::revisions::{RevisionCache, RevisionDirs};
use crate::perform::settings::{FilledCache, Reach, Switched, Tools, drop_page_cache, page_cache};
use crate::perform::spool::Spool;
use crate::perform::start_state::UsedMark;
use crate::perform::store::{ResultsDir, RunDir, names};
use crate::perform::supervise::{Child, EnvChange, Identities, Supervisor};
use crate::perform::survey::survey;
use crate::perform::witness::Witness;

/// What a machine carries a run through with.
pub struct Linux<'a> {
    run: &'a RunDir,
    results: &'a ResultsDir,
    plan: &'a Plan,
    sysroot: Sysroot,
    invoker: Invoker,
    matrix_dir: String,
    script: Option<String>,
    journal: File,
    /// What was read raw and not yet written; evidence is captured once a boot.
    raw_evidence: BTreeMap<String, Fact<Vec<u8>>>,
    supervisor: Supervisor,
    child: Option<Child>,
    witness: Witness,
    /// What runs beside the trial: its ballast, its companion.
    companions: Vec<Companion>,
    client: Option<Client>,
    /// What is repeated inside the trial.
    repetition: Option<Repetition>,
    /// The debugger that the trial's command runs under.
    session: Option<Session>,
    /// Whether a program that takes another user keeps its own, because it is traced.
    keeps_user: bool,
    /// When the trial was launched.
    launched: Instant,
    /// What the libraries are that trials loaded.
    identities: Identities,
    /// The signals and places of crashes that a debugger looked at.
    crashes_seen: BTreeSet<(i32, String)>,
    prepared: Prepared,
    /// The page cache that was filled for the trial.
    filled: Option<FilledCache>,
    /// The control group of the trial, if it has one of its own.
    group: Option<MemoryGroup>,
    /// Whether another cell works with the artifacts of the trial's.
    is_needed: bool,
    /// The trial whose child was started last.
    trial: Option<TrialId>,
    /// The changes that the cell of the trial makes to the environment.
    environment: Vec<EnvChange>,
    artifacts: Artifacts,
    injector: Injector,
    mark: RunMark,
    here: BootId,
    tools: Tools,
    keep: PathBuf,
    used: UsedMark,
    at_boot: Option<Rc<RefCell<AtBoot>>>,
    rebooter: Rebooter,
    revisions: Option<RevisionCache>,
    signal: Arc<AtomicUsize>,
}

/// How often those for whom a trial waits are looked for.
/// The note of an outcome that says how the page cache was filled.
const PREFILL_NOTE: &str = "prefill_cache";

const CLEARANCE_PERIOD: Duration = Duration::from_millis(250);

/// How long a verdict across a boot waits for a desk that watched: it calls every two seconds, and is let in once the
/// network and sshd are up.
const WITNESS_PATIENCE: Duration = Duration::from_secs(90);

/// What [`Linux::new`] needs beside the run.
pub struct Setting {
    /// The root under which the machine is read.
    pub sysroot: Sysroot,
    /// As whom children run.
    pub invoker: Invoker,
    /// The directory of the matrix file.
    pub matrix_dir: String,
    /// What every worker plays instead of its cell.
    pub script: Option<String>,
    /// The boot that is up.
    pub here: BootId,
    /// The programs that change the machine.
    pub tools: Tools,
    /// What commands prepared for the trials.
    pub prepared: Prepared,
    /// The mark that a trial used the GPU.
    pub used: UsedMark,
    /// The boot, if the boot service started the harness: then a trial may have to wait.
    pub at_boot: Option<Rc<RefCell<AtBoot>>>,
    /// What reboots this machine.
    pub rebooter: Rebooter,
    /// Where prepared revisions are, if the run searches some.
    pub revisions: Option<RevisionCache>,
    /// The binary that is re-entered for children.
    pub harness: PathBuf,
    /// The number of the signal that asked the harness to stop; 0 for none.
    pub signal: Arc<AtomicUsize>,
}

impl<'a> Linux<'a> {
    /// The machine for `run` of `plan`.
    ///
    /// # Errors
    /// If the journal cannot be opened for writing, or children could not be watched.
    pub fn new(
        run: &'a RunDir,
        results: &'a ResultsDir,
        plan: &'a Plan,
        setting: Setting,
    ) -> Result<Self, MachineError> {
        let path = run.file(names::JOURNAL);
        let journal = at("open", &path, OpenOptions::new().read(true).append(true).open(&path))?;
        let mut supervisor =
            Supervisor::new(setting.harness).map_err(|source| MachineError::new("watch children", source))?;
        // Without the right to it the harness is an ordinary victim of the out-of-memory killer: the journal survives.
        let _ = supervisor.protect();
        Ok(Self {
            run,
            results,
            plan,
            witness: Witness::new(setting.sysroot.clone()),
            sysroot: setting.sysroot,
            invoker: setting.invoker,
            matrix_dir: setting.matrix_dir,
            script: setting.script,
            journal,
            raw_evidence: BTreeMap::new(),
            supervisor,
            child: None,
            companions: Vec::new(),
            client: None,
            repetition: None,
            session: None,
            keeps_user: false,
            launched: Instant::now(),
            identities: Identities::default(),
            crashes_seen: BTreeSet::new(),
            prepared: setting.prepared,
            filled: None,
            group: None,
            is_needed: false,
            trial: None,
            environment: Vec::new(),
            artifacts: Artifacts::default(),
            injector: Injector::new(run.file(names::INJECTED)),
            mark: RunMark::new(&run.id, &run.path),
            here: setting.here,
            tools: setting.tools,
            keep: run.file(names::SETTINGS),
            used: setting.used,
            at_boot: setting.at_boot,
            rebooter: setting.rebooter,
            revisions: setting.revisions,
            signal: setting.signal,
        })
    }

    fn trial_dir(&self, trial: &TrialId) -> PathBuf {
        self.run.file(names::TRIALS).join(trial.to_string())
    }

    /// Where the revision `identity` is prepared; nothing if the run searches none.
    fn revision(&self, identity: &str) -> io::Result<Option<RevisionDirs>> {
        let Some(cache) = &self.revisions else { return Ok(None) };
        let missing = || io::Error::other(format!("revision {identity} is not prepared any more"));
        cache.find(identity).map(Some).ok_or_else(missing)
    }

    fn reach(&self) -> Reach<'_> {
        Reach { sysroot: &self.sysroot, tools: &self.tools, keep: &self.keep, boot: &self.here }
    }
}

impl Linux<'_> {
    /// Commits the fault of the whole machine that is due, if one is.
    fn commit_due_fault(&mut self) -> Result<(), MachineError> {
        if !self.injector.is_due() {
            return Ok(());
        }
        let boot = self.sysroot.boot_id()?;
        self.injector.commit(&boot, host::now())
    }
}

/// Whether a trial of `settings` that passes has computed on the GPU. Of a command nobody knows.
pub fn warms(settings: &Settings, gpu: bool) -> bool {
    !gpu || settings.linear4bit().is_some_and(|linear4bit| linear4bit.backend != Backend::Cpu)
}

/// Whether a trial of `settings` may use the GPU. Where there is none (`gpu` is false), every trial stands in for one
/// that does, so that start states mean something there too.
pub fn may_use_gpu(settings: &Settings, gpu: bool) -> bool {
    let backend = settings.linear4bit().map(|linear4bit| linear4bit.backend);
    !gpu || backend != Some(Backend::Cpu)
}

/// The trial's directory, which belongs to the one whose program runs in it.
pub(super) fn make_trial_dir(path: &Path, invoker: &Invoker) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    if rustix::process::geteuid().is_root() {
        chown(path, Some(invoker.uid), Some(invoker.gid))?;
    }
    Ok(())
}

impl Machine for Linux<'_> {
    fn now(&mut self) -> Now {
        host::now()
    }

    fn open_journal(&mut self) -> Result<Box<dyn BufRead + '_>, MachineError> {
        let path = self.run.file(names::JOURNAL);
        Ok(Box::new(BufReader::with_capacity(1 << 16, at("open", &path, File::open(&path))?)))
    }

    fn cut_journal(&mut self, keep: u64, torn: &[u8]) -> Result<(), MachineError> {
        let evidence = self.run.file(names::EVIDENCE);
        make_dir_durably(&evidence)?;
        // Named by content: keeping the same end twice, after a death in between, changes nothing.
        let digest = ContentDigest::of(torn);
        write_durably(&evidence.join(format!("torn-at-{keep}-{}", &digest.as_str()[..8])), torn)?;
        let path = self.run.file(names::JOURNAL);
        at("cut", &path, self.journal.set_len(keep).and_then(|()| self.journal.sync_all()))
    }

    fn append(&mut self, line: &[u8]) -> Result<(), MachineError> {
        at("append to", &self.run.file(names::JOURNAL), self.journal.write_all(line))
    }

    fn sync(&mut self) -> Result<(), MachineError> {
        at("sync", &self.run.file(names::JOURNAL), self.journal.sync_data())
    }

    fn capture(&mut self) -> Result<Evidence, MachineError> {
        let (evidence, raw) = evidence::capture(&self.sysroot)?;
        self.raw_evidence = raw.items;
        Ok(evidence)
    }

    fn save_evidence(&mut self, evidence: &Evidence) -> Result<EvidenceSummary, MachineError> {
        let dir = self.run.file(names::EVIDENCE).join(evidence.boot.as_str());
        evidence::save(&dir, evidence, &std::mem::take(&mut self.raw_evidence))
    }

    fn write_result(&mut self, trial: &TrialId, json: &[u8]) -> Result<(), MachineError> {
        let dir = self.trial_dir(trial);
        if !dir.is_dir() {
            make_dir_durably(&self.run.file(names::TRIALS))?;
            at("make the directory", &dir, make_trial_dir(&dir, &self.invoker))?;
        }
        write_replaceably(&dir.join(names::RESULT), json)
    }

    fn sync_results(&mut self) -> Result<(), MachineError> {
        at("sync", &self.run.path, syncfs(&self.journal).map_err(io::Error::from))
    }

    fn has_result(&mut self, trial: &TrialId, json: &[u8]) -> bool {
        let path = self.trial_dir(trial).join(names::RESULT);
        // The length first: it tells most losses without a read.
        fs::metadata(&path).is_ok_and(|meta| meta.len() == json.len() as u64)
            && fs::read(&path).is_ok_and(|bytes| bytes == json)
    }

    fn end_orphans(&mut self) -> Result<u32, MachineError> {
        let orphans = end_orphans(&self.mark);
        if orphans.surviving > 0 {
            let what = format!("end {} processes that an earlier start left behind", orphans.surviving);
            return Err(MachineError::new(what, io::ErrorKind::ResourceBusy.into()));
        }
        Ok(orphans.found as u32)
    }

    fn survey(&mut self, look: &Look) -> Survey {
        let readings = look.settings.iter().map(|setting| (*setting, self.reach().read(*setting))).collect();
        Survey { readings, ..survey(&self.sysroot, look, self.witness.gpu(), || self.used.read(&self.here)) }
    }

    fn set(&mut self, change: &Durable<SetChanged>) -> Result<(), String> {
        let SetChanged { what, new, .. } = change.get();
        let setting: MachineSetting = what.parse().map_err(|error| format!("{what} is not a setting: {error}"))?;
        self.reach().set(setting, new).map_err(|error| error.to_string())
    }

    fn restore(&mut self, setting: MachineSetting, value: &str) -> Result<(), String> {
        self.reach().put_back(setting, value).map_err(|error| error.to_string())
    }

    fn page_cache(&mut self) -> String {
        page_cache(&self.sysroot)
    }

    fn drop_caches(&mut self, _change: &Durable<SetChanged>) -> Result<(), String> {
        drop_page_cache(self.reach()).map_err(|error| error.to_string())
    }

    fn start_child(&mut self, started: &Durable<Started>, cell: usize) -> Result<(), MachineError> {
        let trial = started.get().trial.clone();
        self.launch(started, cell).map_err(|source| {
            self.witness.abandon();
            MachineError::new(format!("start {trial}"), source)
        })
    }

    fn child_event(&mut self, wait: Duration) -> Result<ChildEvent, MachineError> {
        if self.injector.is_due() && wait.is_zero() {
            // Nothing more is heard before the fault, so that what was heard up to it is made durable now.
            return Ok(ChildEvent::Quiet);
        }
        self.commit_due_fault()?;
        let mut event = self.next_event(if self.client.is_some() { wait.min(PERIOD) } else { wait })?;
        match &event {
            ChildEvent::Running { .. } => self.injector.notice(Moment::Running),
            ChildEvent::Stage { stage, .. } => self.injector.notice(Moment::Stage(stage)),
            ChildEvent::Quiet | ChildEvent::Ended(_) => {}
        }
        self.mind_client(&mut event);
        self.mind_companions(&mut event);
        if let ChildEvent::Ended(outcome) = &mut event {
            if let Some(child) = self.child.take() {
                if child.ran().is_some() {
                    // The next trial is likely to be of a command too.
                    self.supervisor.expect_child();
                }
                let repetition = self.repetition.take();
                self.witness.finish(outcome, repetition.as_ref().map_or(child.members(), Repetition::members));
                self.look_back(&child, outcome);
            }
            self.group = None;
            if let Some(filled) = self.filled.take() {
                outcome.notes.insert(PREFILL_NOTE.to_owned(), filled.words.clone());
            }
            let passed = classify(outcome).0.verdict == Verdict::Pass;
            std::mem::take(&mut self.artifacts).clear(passed);
            if let (true, true, Some(trial)) = (passed, self.is_needed, &self.trial) {
                offer(&self.run.path, trial)?;
            }
        }
        Ok(event)
    }

    fn acknowledge_stage(&mut self) {
        if let Some(child) = &mut self.child {
            self.supervisor.acknowledge(child);
        }
    }

    fn end_child(&mut self, why: EndedBy) {
        if let Some(repetition) = &mut self.repetition {
            repetition.end(why);
        }
        if let Some(child) = &mut self.child {
            self.supervisor.end(child, why);
        }
    }

    fn sync_output(&mut self) -> Result<(), MachineError> {
        let failed = |what: &'static str| move |source| MachineError::new(format!("make {what} durable"), source);
        if let Some(child) = &mut self.child {
            self.supervisor.sync_output(child).map_err(failed("the child's output"))?;
        }
        self.witness.keep_up().map_err(failed("the telemetry"))
    }

    fn reboot(&mut self, asked: &Durable<RebootAsked>, here: &BootId) -> Result<(), MachineError> {
        let RebootAsked { boot, power_mode, .. } = asked.get();
        if boot != here {
            return Err(MachineError::new(format!("reboot: boot {boot} is over"), io::ErrorKind::InvalidInput.into()));
        }
        let is_asked_to_end = || self.signal.load(Ordering::Relaxed) != 0;
        // A person makes it, and is told so when the run ends here.
        let Some(mode) = power_mode.as_ref().filter(|_| self.rebooter.by() != RebootBy::Person) else {
            return self.rebooter.end(&self.sysroot, here, is_asked_to_end);
        };
        rustix::fs::sync();
        let switched = self.reach().switch_by_reboot(mode);
        match switched.map_err(|error| MachineError::new("reboot by nvpmodel", io::Error::other(error)))? {
            Switched::Rebooting => self.rebooter.await_end(&self.sysroot, here, is_asked_to_end),
            Switched::AtOnce => self.rebooter.end(&self.sysroot, here, is_asked_to_end),
        }
    }

    fn can_cut_power(&self) -> bool {
        self.rebooter.can_cut_power()
    }

    fn cut_power(&mut self, _: &Durable<Hooked>, here: &BootId) -> Result<(), MachineError> {
        rustix::fs::sync();
        self.rebooter.cut_power()?;
        self.rebooter.await_end(&self.sysroot, here, || self.signal.load(Ordering::Relaxed) != 0)
    }

    fn clearance(&mut self) -> Option<StopRequest> {
        loop {
            if let Some(stop) = self.stop_requested() {
                return Some(stop);
            }
            match self.at_boot.as_ref()?.borrow_mut().clearance() {
                Clearance::Go => return None,
                Clearance::Wait(_) => std::thread::sleep(CLEARANCE_PERIOD),
                Clearance::Stop(why) => return Some(StopRequest::AfterTrial { why }),
            }
        }
    }

    fn observations(&mut self) -> Result<Vec<Observed>, MachineError> {
        Spool::of(self.run).waiting()
    }

    fn observation_taken(&mut self, observed: &Observed) -> Result<(), MachineError> {
        Spool::of(self.run).taken(observed)
    }

    fn await_witness(&mut self, boot: &BootId) {
        let spool = Spool::of(self.run);
        let Some(witness) = spool.watcher_of(boot) else { return };
        tracing::warn!("waiting for what {witness} saw of boot {boot}, {} s at most", WITNESS_PATIENCE.as_secs());
        let until = Instant::now() + WITNESS_PATIENCE;
        let is_told = |seen: Vec<Observed>| seen.iter().any(|seen| seen.boot.as_ref() == Some(boot));
        while Instant::now() < until && self.stop_requested().is_none() && !spool.waiting().is_ok_and(is_told) {
            std::thread::sleep(CLEARANCE_PERIOD);
        }
    }

    fn stop_requested(&mut self) -> Option<StopRequest> {
        let signal = self.signal.load(Ordering::Relaxed);
        if signal != 0 {
            return Some(StopRequest::Now { signal: signal as i32 });
        }
        let here = self.run.stop_file();
        if here.exists() {
            return Some(StopRequest::AfterTrial { why: format!("{} asks for it", here.display()) });
        }
        self.results
            .is_stopped()
            .then(|| StopRequest::AfterTrial { why: format!("{}/STOP asks for it", self.results.path().display()) })
    }
}
