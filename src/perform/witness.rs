//! What the machine itself says while a trial runs: its sensors, its kernel, its counters of killed processes.
//!
//! Owns the gathering; what it means is decided from the outcome. Nothing here can keep a trial from ending.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::decide::signs::kernel_findings;
use crate::model::evidence::Fact;
use crate::model::ids::TrialId;
use crate::model::outcome::{Exit, Outcome, Whose};
use crate::perform::gpu_health::GpuHealth;
use crate::perform::host::Sysroot;
use crate::perform::kmsg::{self, Heard, Listener};
use crate::perform::memory_events::MemoryCounters;
use crate::perform::telemetry::{GpuLoad, Telemetry};

/// Which samples a trial gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// None.
    Off,
    /// All of them, with the GPU's load or without.
    On(GpuLoad),
}

/// Whether the kernel tells of processes that die of an exception: 0 by default on arm64 (since Linux 4.16), 1 on x86.
const EXCEPTION_TRACE: &str = "proc/sys/debug/exception-trace";

/// What the out-of-memory killer sends, which is no exception.
const SIGKILL: i32 = 9;

/// The number of the initial process namespace (`PROC_PID_INIT_INO` in include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The machine as a witness of one trial after the other.
#[derive(Debug)]
pub struct Witness {
    sysroot: Sysroot,
    telemetry: Telemetry,
    gpu: GpuHealth,
    trial: Option<Heeded>,
}

/// What is gathered for one trial.
#[derive(Debug)]
struct Heeded {
    kernel: Option<Listener>,
    counters: MemoryCounters,
    asleep: Duration,
}

impl Witness {
    /// The witness of what happens on the machine under `sysroot`.
    pub fn new(sysroot: Sysroot) -> Self {
        Self { telemetry: Telemetry::new(sysroot.clone()), sysroot, gpu: GpuHealth::default(), trial: None }
    }

    /// The GPU's health, of which the kernel's words during a trial are a part.
    pub fn gpu(&mut self) -> &mut GpuHealth {
        &mut self.gpu
    }

    /// Begins to heed a trial, right before its child exists. `counters` is the file that counts the kills of a control
    /// group of its own, relative to the root of the machine.
    ///
    /// # Errors
    /// If samples could not be written down.
    pub fn begin(
        &mut self,
        trial: &TrialId,
        trial_dir: &Path,
        sampling: Sampling,
        counters: Option<&str>,
    ) -> io::Result<()> {
        if let Sampling::On(gpu_load) = sampling {
            self.telemetry.begin(trial_dir, gpu_load)?;
        }
        // The kernel of a captured tree says nothing any more.
        let kernel = self.sysroot.is_live().then(|| Listener::begin(&self.sysroot.place(kmsg::DEVICE), trial));
        let counters = match counters {
            Some(file) => MemoryCounters::begin_in(&self.sysroot, file),
            None => MemoryCounters::begin(&self.sysroot),
        };
        self.trial = Some(Heeded { kernel, counters, asleep: asleep() });
        Ok(())
    }

    /// Makes the samples so far durable, and hears what the kernel said meanwhile.
    ///
    /// # Errors
    /// If samples could not be written or synced.
    pub fn keep_up(&mut self) -> io::Result<()> {
        if let Some(Heeded { kernel: Some(kernel), .. }) = &mut self.trial {
            kernel.listen();
        }
        self.telemetry.sync()
    }

    /// Ends the trial and puts into `outcome` what was witnessed. `pids` are the processes that were seen in the trial.
    pub fn finish(&mut self, outcome: &mut Outcome, pids: &BTreeSet<u32>) {
        outcome.telemetry = self.telemetry.finish();
        if let Exit::Signal { number, .. } = outcome.exit
            && number != SIGKILL
        {
            outcome.exception_trace =
                self.sysroot.text(EXCEPTION_TRACE).and_then(|text| Fact::Known(text.trim() != "0"));
        }
        let Some(Heeded { kernel, counters, asleep: before }) = self.trial.take() else { return };
        outcome.suspended_ms = u64::try_from(asleep().saturating_sub(before).as_millis()).unwrap_or(u64::MAX);
        outcome.memory_events = counters.group_growth(&self.sysroot);
        outcome.oom_kills = counters.machine_growth(&self.sysroot);
        let Some(Heard { lines, marker, lost }) = kernel.map(Listener::finish) else { return };
        outcome.kernel_marker = marker;
        outcome.kernel_lost = lost;
        let knows_pids = knows_pids(&self.sysroot);
        let whose = |pid: u32| match knows_pids {
            true if pids.contains(&pid) => Whose::Trial,
            true => Whose::Other,
            false => Whose::Unnamed,
        };
        outcome.kernel = lines.and_then(|lines| Fact::Known(kernel_findings(lines.iter().map(String::as_str), whose)));
        self.gpu.note(outcome, &self.sysroot);
    }

    /// Lets go of a trial whose child never came to be.
    pub fn abandon(&mut self) {
        self.telemetry.finish();
        self.trial = None;
    }
}

/// How long the machine slept since it booted: what `CLOCK_BOOTTIME` counts and `CLOCK_MONOTONIC` does not.
fn asleep() -> Duration {
    let since_boot = |clock| {
        let time = clock_gettime(clock);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    // In this order the difference is never too large: what passes between the calls is taken off.
    let with_sleep = since_boot(ClockId::Boottime);
    with_sleep.saturating_sub(since_boot(ClockId::Monotonic))
}

/// Whether the kernel means by a number the same process as we do: not in a container with process ids of its own.
fn knows_pids(sysroot: &Sysroot) -> bool {
    let namespace = std::fs::read_link(sysroot.place("proc/self/ns/pid"));
    namespace.is_ok_and(|namespace| namespace == Path::new(INITIAL_PID_NAMESPACE))
}
