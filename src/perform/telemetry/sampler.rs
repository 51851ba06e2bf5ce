//! The thread: a sample at each beat of a fixed clock while a trial runs, and its summary at the end.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::decide::{tegrastats::fill, telemetry::summarise};
use crate::model::telemetry::{PERIOD_MS, Sample, TelemetrySummary};
use crate::perform::host::{self, Sysroot};
use crate::perform::telemetry::GpuLoad;
use crate::perform::telemetry::log::{BYTES_MAX, Log};
use crate::perform::telemetry::sensors::Sensors;
use crate::perform::telemetry::tegrastats::Tegrastats;

const PERIOD: Duration = Duration::from_millis(PERIOD_MS);

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Sample for a trial.
    Begin { log: Arc<Log>, gpu_load: GpuLoad },
    /// Stop, and tell the summary.
    End,
}

/// Samples trials until nobody asks any more.
pub(super) fn run(sysroot: &Sysroot, tasks: &Receiver<Task>, summaries: &Sender<TelemetrySummary>) {
    let mut sampler = Sampler::new(sysroot);
    while let Ok(task) = tasks.recv() {
        let Task::Begin { log, gpu_load } = task else { continue };
        let summary = sampler.trial(&log, gpu_load, tasks);
        if summaries.send(summary).is_err() {
            return;
        }
    }
}

/// What `count` samples cost on the machine under `sysroot`: their summary, with the processor time in it. The samples
/// are written to `dir` as those of a trial are, without a pause between.
///
/// # Errors
/// If the file cannot be made in `dir`.
pub fn measure(sysroot: &Sysroot, dir: &Path, count: u32) -> std::io::Result<TelemetrySummary> {
    let log = Log::create(dir, BYTES_MAX)?;
    let mut sampler = Sampler::new(sysroot);
    let mut summary = TelemetrySummary::default();
    (0..count).for_each(|_| sampler.sample(&log, GpuLoad::Read, &mut summary));
    Ok(summary)
}

struct Sampler {
    sensors: Sensors,
    /// tegrastats reads what sysfs tells, costs a process, and needs root for half of it: it is a last resort.
    needs_tegrastats: bool,
    tegrastats: Option<Tegrastats>,
    line: Vec<u8>,
}

impl Sampler {
    fn new(sysroot: &Sysroot) -> Self {
        let sensors = Sensors::discover(sysroot);
        let needs_tegrastats = sysroot.is_live() && sensors.knows_no_heat_and_power();
        Self { sensors, needs_tegrastats, tegrastats: None, line: Vec::new() }
    }

    fn trial(&mut self, log: &Log, gpu_load: GpuLoad, tasks: &Receiver<Task>) -> TelemetrySummary {
        match gpu_load {
            GpuLoad::Read if self.needs_tegrastats && self.tegrastats.is_none() => {
                self.tegrastats = Tegrastats::start();
                // One that cannot be started now is not asked for again at every trial.
                self.needs_tegrastats = self.tegrastats.is_some();
            }
            GpuLoad::Read => {}
            // It reads the load by itself.
            GpuLoad::LeftAlone => self.tegrastats = None,
        }
        let mut summary = TelemetrySummary::default();
        let mut due = Instant::now();
        loop {
            self.sample(log, gpu_load, &mut summary);
            let next = next_beat(due, Instant::now());
            summary.missed += next.missed;
            due = next.due;
            match tasks.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                // A trial that begins before the last was ended is a mistake of ours; its samples must not be lost.
                Ok(Task::End | Task::Begin { .. }) | Err(RecvTimeoutError::Disconnected) => return summary,
            }
        }
    }

    fn sample(&mut self, log: &Log, gpu_load: GpuLoad, summary: &mut TelemetrySummary) {
        let before = thread_cpu();
        let mut sample: Sample = self.sensors.read(host::now().uptime_ms, gpu_load);
        if let Some(stats) = self.tegrastats.as_mut().and_then(Tegrastats::newest) {
            fill(&mut sample, stats);
        }
        self.line.clear();
        serde_json::to_writer(&mut self.line, &sample).expect("a sample holds only maps with string keys");
        self.line.push(b'\n');
        log.append(&self.line);
        summarise(summary, &sample);
        let spent = thread_cpu().saturating_sub(before);
        summary.cpu_us += u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
    }
}

/// When the next sample is due, and how many were missed before it.
#[derive(Debug, PartialEq, Eq)]
struct Beat {
    due: Instant,
    missed: u64,
}

/// The first beat after `now` of the clock that beat at `due`: a slow sample does not shift those after it.
fn next_beat(due: Instant, now: Instant) -> Beat {
    let late = now.saturating_duration_since(due);
    let missed = u64::try_from(late.as_millis()).unwrap_or(u64::MAX) / PERIOD_MS;
    Beat { due: due + PERIOD * u32::try_from(missed + 1).unwrap_or(u32::MAX), missed }
}

/// Processor time of this thread so far.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_sample_does_not_shift_the_clock() {
        let due = Instant::now();
        for (late_ms, missed, next_ms) in [(0, 0, 250), (249, 0, 250), (250, 1, 500), (900, 3, 1000)] {
            let beat = next_beat(due, due + Duration::from_millis(late_ms));
            assert_eq!(beat, Beat { due: due + Duration::from_millis(next_ms), missed }, "{late_ms} ms late");
        }
    }
}
