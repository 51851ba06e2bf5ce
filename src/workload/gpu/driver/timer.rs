//! Time on the device, between two events of one stream.

use std::rc::Rc;

use super::{Context, Handle, Stream};
use crate::workload::gpu::error::GpuError;

/// Time on the device between two points of a stream.
#[derive(Debug)]
pub struct Timer {
    context: Rc<Context>,
    stream: Stream,
    start: Handle,
    end: Handle,
}

impl Timer {
    /// Begins to measure on `stream`.
    ///
    /// # Errors
    /// The driver's.
    pub fn start(context: &Rc<Context>, stream: Stream) -> Result<Self, GpuError> {
        let (start, end) = (context.new_event()?, context.new_event()?);
        let timer = Self { context: context.clone(), stream, start, end };
        // SAFETY: the event is ours and alive.
        unsafe { context.functions.event_record(start, stream.0)? };
        Ok(timer)
    }

    /// Ends the measurement without waiting for it.
    ///
    /// # Errors
    /// The driver's.
    pub fn end(&self) -> Result<(), GpuError> {
        // SAFETY: the event is ours and alive.
        unsafe { self.context.functions.event_record(self.end, self.stream.0) }
    }

    /// Ends the measurement, waits for it, and gives the milliseconds.
    ///
    /// # Errors
    /// The driver's, also for what was launched between.
    pub fn stop(self) -> Result<f32, GpuError> {
        self.end()?;
        self.elapsed()
    }

    /// Waits for the end that was recorded, and gives the milliseconds.
    ///
    /// # Errors
    /// The driver's, also for what was launched between.
    pub fn elapsed(self) -> Result<f32, GpuError> {
        let functions = &self.context.functions;
        let mut milliseconds = 0.0;
        // SAFETY: both events are ours and alive, and were recorded on the same stream.
        unsafe {
            functions.event_synchronize(self.end)?;
            functions.event_elapsed(&raw mut milliseconds, self.start, self.end)?;
        }
        Ok(milliseconds)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        for event in [self.start, self.end] {
            // SAFETY: the event is ours and destroyed once. A failure here means that the context is dead, which the
            // next call of anything reports.
            let _ = unsafe { self.context.functions.event_destroy(event) };
        }
    }
}
