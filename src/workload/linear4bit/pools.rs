//! The threads that compute, while the first thread says that the work goes on.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::model::protocol::FailureKind;
use crate::workload::worker::{Reporter, WorkError};

/// How often a long computation says that it goes on.
pub(super) const BEAT_PERIOD: Duration = Duration::from_secs(1);

/// The pools of a worker. They are made when the process is already confined to its CPUs.
#[derive(Debug)]
pub(super) struct Pools {
    all: ThreadPool,
    /// For weights, when the cell gives their number of threads.
    init: Option<ThreadPool>,
}

impl Pools {
    /// One thread per CPU, and `init_threads` for weights if that is not 0.
    pub(super) fn new(init_threads: u32) -> Result<Self, WorkError> {
        let pool = |threads: u32| {
            let built = ThreadPoolBuilder::new().num_threads(threads as usize).build();
            built.map_err(|error| WorkError::of(FailureKind::Other, format!("cannot start threads: {error}")))
        };
        Ok(Self { all: pool(0)?, init: if init_threads == 0 { None } else { Some(pool(init_threads)?) } })
    }

    /// Computes on all threads.
    pub(super) fn compute<R: Send>(
        &self,
        reporter: &mut Reporter,
        work: impl FnOnce() -> R + Send,
    ) -> Result<R, WorkError> {
        compute_on(&self.all, BEAT_PERIOD, reporter, work)
    }

    /// Makes weights, on as many threads as the cell asks for.
    pub(super) fn initialise<R: Send>(
        &self,
        reporter: &mut Reporter,
        work: impl FnOnce() -> R + Send,
    ) -> Result<R, WorkError> {
        compute_on(self.init.as_ref().unwrap_or(&self.all), BEAT_PERIOD, reporter, work)
    }
}

fn compute_on<R: Send>(
    pool: &ThreadPool,
    beat_period: Duration,
    reporter: &mut Reporter,
    work: impl FnOnce() -> R + Send,
) -> Result<R, WorkError> {
    let (sender, receiver) = channel();
    pool.in_place_scope(|scope| {
        scope.spawn(move |_| {
            // The receiver is gone only if the parent is, and then nobody wants the result.
            let _ = sender.send(work());
        });
        loop {
            match receiver.recv_timeout(beat_period) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => reporter.beat()?,
                // The computation panicked; the scope passes the panic on when it ends, before this is seen.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(WorkError::of(FailureKind::Other, "a computation ended without a result"));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn conversation() -> (Reporter, BufReader<UnixStream>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Reporter::speaking_into(File::from(OwnedFd::from(ours))), BufReader::new(theirs))
    }

    #[test]
    fn a_computation_that_takes_long_is_accompanied_by_beats() {
        let (mut reporter, mut parent) = conversation();
        let pools = Pools::new(1).unwrap();
        // A third beat may be said before the result is taken, and finds the conversation open.
        let _open = parent.get_ref().try_clone().unwrap();
        // It ends only when the parent has heard two beats.
        let listen = move || {
            let mut line = || {
                let mut line = String::new();
                parent.read_line(&mut line).unwrap();
                line
            };
            [line(), line()]
        };
        let heard = compute_on(&pools.all, Duration::from_millis(1), &mut reporter, listen).unwrap();
        assert_eq!(heard, ["\"beat\"\n", "\"beat\"\n"]);
    }

    #[test]
    fn weights_are_made_by_as_many_threads_as_asked_for() {
        let (mut reporter, _parent) = conversation();
        let threads =
            |pools: &Pools, reporter: &mut Reporter| pools.initialise(reporter, rayon::current_num_threads).unwrap();
        assert_eq!(threads(&Pools::new(3).unwrap(), &mut reporter), 3);
        let default = Pools::new(0).unwrap();
        assert_eq!(
            threads(&default, &mut reporter),
            default.compute(&mut reporter, rayon::current_num_threads).unwrap()
        );
    }

    #[test]
    fn a_parent_that_does_not_listen_ends_the_work() {
        let (mut reporter, parent) = conversation();
        drop(parent);
        let (sender, receiver) = channel::<()>();
        let pools = Pools::new(0).unwrap();
        let patient = move || receiver.recv_timeout(Duration::from_millis(50)).is_err();
        let result = compute_on(&pools.all, Duration::from_millis(1), &mut reporter, patient);
        assert!(matches!(result, Err(WorkError::Conversation(_))), "{result:?}");
        drop(sender);
    }
}
