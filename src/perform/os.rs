//! The one system call of the parent that no safe wrapper offers: `wait4`, which tells how a child ended
//! together with the memory it took. It owns nothing else; everything that rustix wraps safely is called there.

#![expect(unsafe_code, reason = "wait4 has no safe wrapper, and no other call tells a dead child's peak memory")]

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
