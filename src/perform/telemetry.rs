//! What the machine does while a trial runs, sampled by a thread of its own.
//!
//! A read of a sensor may wait for firmware or a hung driver, and the thread that keeps the journal must not: so it
//! only hands out trials, syncs the file, and takes the summary, with a limit on its patience. One thread samples all
//! trials of a start, with its files kept open.

mod attribute;
mod log;
mod sampler;
mod sensors;
mod tegrastats;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::model::telemetry::TelemetrySummary;
use crate::perform::host::Sysroot;
use log::Log;
use sampler::Task;

pub use log::{BYTES_MAX, EARLIER, NEWEST};
pub use sampler::measure;

/// How long the summary of a trial is waited for: longer than any sensor that answers takes.
const SUMMARY_WAIT: Duration = Duration::from_secs(2);

/// Enough for the thread, and too little for the kernel to back it with a huge page.
const STACK_BYTES: usize = 512 * 1024;

/// Whether the GPU's `load` is read. The read keeps the GPU awake (nvgpu takes a reference for it), which cells that
/// leave it idle on purpose must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuLoad {
    /// It is.
    Read,
    /// It is not.
    LeftAlone,
}

/// The sampler of one start of the harness.
#[derive(Debug)]
pub struct Telemetry {
    sysroot: Sysroot,
    thread: Option<Thread>,
    log: Option<Arc<Log>>,
    /// Set when a read did not come back: the thread is given up, and no other is started into the same trap.
    is_stuck: bool,
}

#[derive(Debug)]
struct Thread {
    tasks: Sender<Task>,
    summaries: Receiver<TelemetrySummary>,
}

impl Telemetry {
    /// A sampler of the machine under `sysroot`, idle until its first trial.
    pub fn new(sysroot: Sysroot) -> Self {
        Self { sysroot, thread: None, log: None, is_stuck: false }
    }

    /// Begins to sample for the trial in `trial_dir`.
    ///
    /// # Errors
    /// If the file or the thread cannot be made.
    pub fn begin(&mut self, trial_dir: &Path, gpu_load: GpuLoad) -> io::Result<()> {
        if self.is_stuck {
            return Ok(());
        }
        let log = Arc::new(Log::create(trial_dir, BYTES_MAX)?);
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => start(self.sysroot.clone())?,
        };
        let task = Task::Begin { log: Arc::clone(&log), gpu_load };
        thread.tasks.send(task).map_err(|_| io::Error::other("the telemetry thread ended"))?;
        (self.thread, self.log) = (Some(thread), Some(log));
        Ok(())
    }

    /// Makes the samples so far durable.
    ///
    /// # Errors
    /// The first error of any write or sync since the last call.
    pub fn sync(&self) -> io::Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| log.sync())
    }

    /// Ends the sampling of a trial; `None` if nothing was sampled. A sampler that hangs in a read is left behind, and
    /// the summary tells that nothing is known.
    pub fn finish(&mut self) -> Option<TelemetrySummary> {
        if self.is_stuck {
            return Some(TelemetrySummary { missed: 1, ..TelemetrySummary::default() });
        }
        self.log.take()?;
        let thread = self.thread.as_ref()?;
        let asked = thread.tasks.send(Task::End);
        let summary = asked.ok().and_then(|()| thread.summaries.recv_timeout(SUMMARY_WAIT).ok());
        if summary.is_none() {
            (self.is_stuck, self.thread) = (true, None);
        }
        Some(summary.unwrap_or(TelemetrySummary { missed: 1, ..TelemetrySummary::default() }))
    }
}

fn start(sysroot: Sysroot) -> io::Result<Thread> {
    let (tasks, their_tasks) = channel();
    let (their_summaries, summaries) = channel();
    thread::Builder::new()
        .name("telemetry".into())
        .stack_size(STACK_BYTES)
        .spawn(move || sampler::run(&sysroot, &their_tasks, &their_summaries))?;
    Ok(Thread { tasks, summaries })
}

#[cfg(test)]
mod tests;
