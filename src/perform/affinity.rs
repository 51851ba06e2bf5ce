//! The CPUs that a process may use: the axis `cpus`.
//!
//! Applies to the calling thread and to all that it starts, so it comes before any thread is started.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::model::settings::Cpus;

/// The first of `cpus` that this machine does not give to this process.
pub fn missing(cpus: &Cpus) -> Option<usize> {
    let Cpus::Only(ranges) = cpus else { return None };
    let given = sched_getaffinity(None).ok()?;
    let mut wanted = ranges.iter().flat_map(|&(first, last)| first..=last).map(|cpu| cpu as usize);
    wanted.find(|&cpu| cpu >= CpuSet::MAX_CPU || !given.is_set(cpu))
}

/// Confines this thread, and what it will start, to `cpus`.
///
/// # Errors
/// If the machine does not give one of them: the kernel would leave it out without a word, and the trial would be one
/// of another cell.
pub fn confine(cpus: &Cpus) -> io::Result<()> {
    let ranges = match cpus {
        Cpus::All => return Ok(()),
        Cpus::Only(ranges) => ranges,
    };
    let mut wanted = CpuSet::new();
    // A range may be written up to the highest number that a matrix may name, which is the size of the set.
    ranges.iter().flat_map(|&(first, last)| first..=last).for_each(|cpu| wanted.set(cpu as usize));
    let refused = |why: String| io::Error::other(format!("cannot run on cpus {cpus}: {why}"));
    sched_setaffinity(None, &wanted).map_err(|error| refused(error.to_string()))?;
    let given = sched_getaffinity(None)?;
    match (0..CpuSet::MAX_CPU).find(|&cpu| wanted.is_set(cpu) && !given.is_set(cpu)) {
        Some(missing) => Err(refused(format!("this machine does not give CPU {missing}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, because the change lasts.
    fn on_a_thread(cpus: &str) -> Result<u32, String> {
        let cpus: Cpus = cpus.parse().unwrap();
        let confined = move || {
            confine(&cpus).map_err(|error| error.to_string())?;
            Ok(sched_getaffinity(None).unwrap().count())
        };
        std::thread::spawn(confined).join().unwrap()
    }

    #[test]
    fn a_thread_is_confined_to_the_cpus_named_and_to_no_others() {
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| sched_getaffinity(None).unwrap().is_set(cpu)).unwrap();
        assert_eq!(on_a_thread(&first.to_string()), Ok(1));
        assert_eq!(on_a_thread("all"), Ok(sched_getaffinity(None).unwrap().count()));
        let missing = on_a_thread(&format!("{first},1023")).unwrap_err();
        assert!(missing.contains("does not give CPU 1023"), "{missing}");
        let of = |cpus: &str| super::missing(&cpus.parse().unwrap());
        assert_eq!((of("all"), of(&first.to_string()), of("1023")), (None, None, Some(1023)));
        assert!(on_a_thread("1023").unwrap_err().contains("cannot run on cpus 1023"));
    }
}
