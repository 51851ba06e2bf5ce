//! The system calls of the parent that no safe wrapper offers: `wait4`, which tells how a child ended together with the
//! memory it took; `sched_setscheduler`; `adjtimex`, which tells whether the clock is right; and a drive's own command
//! for its power counters. It owns nothing else; everything that rustix wraps safely is called there.

#![expect(unsafe_code, reason = "none of these calls has a safe wrapper, and no file says the same")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
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

/// Whether the system clock is kept right by somebody, as far as the kernel was told (adjtimex(2)).
///
/// # Errors
/// What the call answers; asking needs no permission.
pub(super) fn clock_is_synchronised() -> io::Result<bool> {
    // SAFETY: all-zero bytes are a valid `timex`, a plain C struct of integers; with `modes` 0 nothing is changed.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, writable value of the type that the call fills, and outlives it.
    match unsafe { libc::adjtimex(&mut clock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(clock.status & libc::STA_UNSYNC == 0),
    }
}

/// `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    command_dwords_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    command_dwords_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// `NVME_IOCTL_ADMIN_CMD`: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_IOCTL_ADMIN_CMD: u32 = 0xc048_4e41;
const _: () = assert!(size_of::<NvmeCommand>() == 0x48, "the size is part of the request's number");

/// How long the drive may take; a healthy one answers within milliseconds.
const NVME_TIMEOUT_MS: u32 = 1000;

/// The SMART / Health Information log page of the NVMe controller whose character device is `drive`.
///
/// # Errors
/// What the call answers; it needs `CAP_SYS_ADMIN` on most kernels. A drive that refuses is `Other`.
pub(super) fn nvme_smart_log(drive: &File) -> io::Result<[u8; 512]> {
    /// Get Log Page, log identifier 2, of the whole controller (NVMe Base Specification 2.0, section 5.16).
    const GET_LOG_PAGE: u8 = 0x02;
    const SMART_LOG: u32 = 0x02;
    const ALL_NAMESPACES: u32 = 0xffff_ffff;
    let mut log = [0_u8; 512];
    let dwords_less_one = log.len() as u32 / 4 - 1;
    let mut command = NvmeCommand {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        address: log.as_mut_ptr() as u64,
        data_bytes: log.len() as u32,
        command_dwords_10_15: [dwords_less_one << 16 | SMART_LOG, 0, 0, 0, 0, 0],
        timeout_ms: NVME_TIMEOUT_MS,
        ..NvmeCommand::default()
    };
    // SAFETY: `command` has the layout that the request is defined with; its address and length are those of `log`,
    // which is live and writable, and both outlive the call, which is synchronous.
    match unsafe { libc::ioctl(drive.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) } {
        0 => Ok(log),
        -1 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!("the drive answers with status {status:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_answers_and_what_is_no_drive_refuses() {
        assert!(clock_is_synchronised().is_ok());
        assert!(nvme_smart_log(&File::open("/dev/null").unwrap()).is_err());
    }
}
