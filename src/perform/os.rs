//! The two system calls of the parent that no safe wrapper offers: `wait4`, which tells how a child ended together with
//! the memory it took, and `sched_setscheduler`. It owns nothing else; what rustix wraps safely is called there.

#![expect(
    unsafe_code,
    reason = "no safe wrapper offers wait4, which alone tells a dead child's peak memory, or the real-time class"
)]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Pid;

/// A child that ended and was reaped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaped {
    /// How it ended.
    pub(super) status: ExitStatus,
    /// Its highest resident memory in bytes, or that of a descendant it waited for if that was higher.
    ///
    /// The kernel carries the peak across `exec`, so a tiny child shows at least what the harness itself had.
    pub(super) peak_host: u64,
}

/// Reaps the child `pid` if it ended; `None` while it runs. Never waits.
///
/// # Errors
/// `ECHILD` if somebody else reaped it.
pub(super) fn try_reap(pid: Pid) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`, a plain C struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values of the types that `wait4` fills, and outlive the call.
    let reaped = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, libc::WNOHANG, &mut usage) };
    match reaped {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        // `ru_maxrss` is in KiB on Linux (getrusage(2)).
        _ => Ok(Some(Reaped {
            status: ExitStatus::from_raw(status),
            peak_host: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        })),
    }
}

/// Gives the calling thread, and those that it starts, the highest real-time priority: nothing but the kernel's own stop
/// tasks and deadline tasks runs before it (sched(7)).
///
/// # Errors
/// Without `CAP_SYS_NICE`.
pub(super) fn become_most_urgent() -> io::Result<()> {
    // SAFETY: the call has no preconditions.
    let sched_priority = unsafe { libc::sched_get_priority_max(libc::SCHED_FIFO) };
    let param = libc::sched_param { sched_priority };
    // SAFETY: 0 is the calling thread, and the pointer is to a live value that the call only reads.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
