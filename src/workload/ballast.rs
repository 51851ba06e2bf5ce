//! The ballast: host memory that a process of its own holds while a trial runs (`ballast`), so that the trial finds less.
//!
//! It is a companion like the load: it enters its stage once every page is there, and goes on until SIGTERM.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::model::outcome::PeakMemory;
use crate::model::protocol::FailureKind;
use crate::model::quantity::Bytes;
use crate::workload::load::told_to_end;
use crate::workload::os;
use crate::workload::worker::{Reporter, WorkError};

/// The stage in which all of the memory is held.
const HELD_STAGE: &str = "held";

/// How often the ballast says that it goes on, and looks whether it is to end.
const BEAT_PERIOD: Duration = Duration::from_millis(200);

/// Holds `bytes` until SIGTERM. Where it may (`RLIMIT_MEMLOCK`, or root), it keeps them from being swapped, and says so in
/// the metric `locked`.
///
/// # Errors
/// If the memory cannot be had, or the parent does not listen.
pub(super) fn work(bytes: Bytes, reporter: &mut Reporter) -> Result<PeakMemory, WorkError> {
    let stop = told_to_end()?;
    let refused =
        |error| WorkError::of(FailureKind::HostOom, format!("cannot hold {bytes} of memory (ballast): {error}"));
    let held = hold(bytes).map_err(refused)?;
    let is_locked = os::lock_memory();
    reporter.metric("locked", f64::from(u8::from(is_locked)))?;
    reporter.stage(&HELD_STAGE.parse().expect("a constant stage name"))?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(BEAT_PERIOD);
        reporter.beat()?;
    }
    drop(std::hint::black_box(held));
    Ok(PeakMemory::default())
}

/// Memory in which every page is written, with bytes that do not compress to nothing in zram.
fn hold(bytes: Bytes) -> io::Result<Vec<u64>> {
    let words = usize::try_from(bytes.get() / 8).map_err(io::Error::other)?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(words).map_err(io::Error::other)?;
    // The generator of Marsaglia's "Xorshift RNGs" (2003) with the triple 13, 7, 17.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    memory.extend(
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        })
        .take(words),
    );
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_has_its_size_and_no_two_words_alike() {
        let held = hold(Bytes::new(1 << 16)).unwrap();
        assert_eq!(held.len() * 8, 1 << 16);
        let mut words = held.clone();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), held.len());
        assert!(hold(Bytes::new(u64::MAX)).is_err());
    }
}
