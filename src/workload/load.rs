//! The load `gpu-load`: what keeps a GPU busy beside a trial, in a process and a context of its own.
//!
//! It is a worker like that of a trial: it says `Hello`, enters the stage `load` when it is at work, and goes on until
//! SIGTERM, after which it says what it did. It shares nothing with the trial but the device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::model::outcome::PeakMemory;
use crate::model::protocol::FailureKind;
use crate::model::settings::Code;
use crate::workload::gpu::driver::{Context, Stream};
use crate::workload::gpu::error::GpuError;
use crate::workload::gpu::kernels::Kernels;
use crate::workload::gpu::tensor::Tensor;
use crate::workload::worker::{Reporter, WorkError};

/// The stage in which the load is at work.
pub const LOAD_STAGE: &str = "load";

/// Each of the two buffers, in bytes: beyond the caches, and little of the smallest board.
const BUFFER_BYTES: u64 = 64 << 20;

/// Copies and reads between two looks at the clock: milliseconds of work on a board, tens of microseconds each on the
/// fastest device, so that the queue never runs empty.
const BURST: u64 = 32;

/// How often the load says that it goes on.
const BEAT_PERIOD: Duration = Duration::from_secs(1);

/// Loads the first device until SIGTERM.
///
/// # Errors
/// If there is no device, it fails, or the parent does not listen.
pub(super) fn work(reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
    let stop = told_to_end()?;
    let context = Context::open(0)?;
    let kernels = Kernels::new(&context, Code::Any)?;
    let stream = context.new_stream()?;
    let load = Load::new(kernels, stream)?;
    // The first one loads the kernel and wakes the device.
    load.burst(1)?;
    reporter.stage(&LOAD_STAGE.parse().expect("a constant stage name"))?;
    let since = Instant::now();
    let (mut bursts, mut told) = (0u64, since);
    while !stop.load(Ordering::Relaxed) {
        load.burst(BURST)?;
        bursts += 1;
        if told.elapsed() >= BEAT_PERIOD {
            reporter.beat()?;
            told = Instant::now();
        }
    }
    let moved = bursts * BURST * 3 * BUFFER_BYTES;
    reporter.metric("gb_per_s", moved as f64 / since.elapsed().as_secs_f64() / 1e9)?;
    drop(load);
    context.destroy_stream(stream)?;
    context.close()?;
    Ok(PeakMemory { device_allocated: 2 * BUFFER_BYTES, device_reserved: 2 * BUFFER_BYTES, ..PeakMemory::default() })
}

/// Two buffers and what is done with them.
struct Load {
    kernels: Kernels,
    stream: Stream,
    from: Tensor,
    to: Tensor,
}

impl Load {
    fn new(kernels: Kernels, stream: Stream) -> Result<Self, GpuError> {
        let buffer = || Tensor::new(kernels.context(), BUFFER_BYTES);
        let (from, to) = (buffer()?, buffer()?);
        from.fill(1, stream)?;
        to.fill(0, stream)?;
        Ok(Self { kernels, stream, from, to })
    }

    /// Copies and reads so often in turn, and waits for them.
    fn burst(&self, times: u64) -> Result<(), GpuError> {
        for _ in 0..times {
            self.to.copy_from(&self.from, self.stream)?;
            self.kernels.read(self.from.buffer(), self.to.buffer(), self.stream)?;
        }
        self.kernels.context().synchronize_stream(self.stream)
    }
}

/// A flag that SIGTERM sets from now on.
///
/// # Errors
/// If this process cannot listen for it.
pub(super) fn told_to_end() -> Result<Arc<AtomicBool>, WorkError> {
    let no_signal = |error: io::Error| WorkError::of(FailureKind::Other, format!("cannot listen for SIGTERM: {error}"));
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop)).map_err(no_signal)?;
    Ok(stop)
}
