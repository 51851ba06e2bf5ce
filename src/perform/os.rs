//! The system calls of the parent that no safe wrapper offers: `wait4`, which tells how a child ended together with the
//! memory it took; `ptrace`; `personality`; `sched_setscheduler`; `adjtimex`, which tells whether the clock is right; and a drive's own command
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

/// The highest resident memory of this process so far, in bytes, that of what it was before an `exec` included.
pub(super) fn peak_memory() -> u64 {
    // SAFETY: all-zero bytes are a valid `rusage`, a plain C struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, writable value of the type that the call fills, and outlives it.
    match unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } {
        0 => u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        _ => 0,
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

/// What a traced thread did.
#[derive(Debug)]
pub(super) enum Waited {
    /// Nothing that was not told yet.
    Nothing,
    /// It stopped, and waits to be let go on.
    Stopped(Event),
    /// It ended.
    Ended(Reaped),
}

/// Why a traced thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A signal is about to be delivered to it.
    Signal(i32),
    /// It started this thread, which is traced too.
    Started(Option<Pid>),
    /// A signal stopped the whole process.
    Group,
    /// Anything else: it began, it became another program, it was asked to stop.
    Other,
}

/// What a traced thread did, without waiting.
///
/// # Errors
/// If it is gone.
pub(super) fn try_wait(thread: Pid) -> io::Result<Waited> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`, a plain C struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let options = libc::WNOHANG | libc::__WALL;
    // SAFETY: both pointers are to live, writable values of the types that `wait4` fills, and outlive the call.
    match unsafe { libc::wait4(thread.as_raw_nonzero().get(), &mut status, options, &mut usage) } {
        0 => Ok(Waited::Nothing),
        -1 => Err(io::Error::last_os_error()),
        _ if libc::WIFSTOPPED(status) => Ok(Waited::Stopped(event(thread, status))),
        _ => Ok(Waited::Ended(Reaped {
            status: ExitStatus::from_raw(status),
            peak_host: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        })),
    }
}

/// A `PTRACE_EVENT` stands above the signal in the status; without one the stop is of a signal (ptrace(2)).
fn event(thread: Pid, status: i32) -> Event {
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => Event::Signal(signal),
        libc::PTRACE_EVENT_CLONE => Event::Started(event_message(thread)),
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => Event::Group,
        _ => Event::Other,
    }
}

/// The id of the thread that a thread started.
fn event_message(thread: Pid) -> Option<Pid> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the address is of a live, writable `unsigned long`, which the request fills; the third argument is unused.
    let got =
        unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, thread.as_raw_nonzero().get(), 0_usize, &raw mut message) };
    (got == 0).then(|| i32::try_from(message).ok().and_then(Pid::from_raw)).flatten()
}

/// Becomes the tracer of `process` and of every thread that it starts, without stopping it.
///
/// # Errors
/// What the kernel answers: `EPERM` where tracing is forbidden or another traces it.
pub(super) fn trace(process: Pid) -> io::Result<()> {
    let options = (libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC) as usize;
    request(libc::PTRACE_SEIZE, process, options)
}

/// Lets a stopped thread go on, with `signal` delivered unless it is 0.
///
/// # Errors
/// If it is gone.
pub(super) fn go_on(thread: Pid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, thread, usize::try_from(signal).unwrap_or(0))
}

/// Leaves a thread of a stopped process stopped, until the process is continued.
///
/// # Errors
/// If it is gone.
pub(super) fn listen(thread: Pid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, thread, 0)
}

/// Asks a running thread to stop.
///
/// # Errors
/// If it is gone.
pub(super) fn interrupt(thread: Pid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0)
}

fn request(request: libc::c_uint, thread: Pid, data: usize) -> io::Result<()> {
    // SAFETY: none of these requests reads or writes memory of this process: their data is a number.
    match unsafe { libc::ptrace(request as _, thread.as_raw_nonzero().get(), 0_usize, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A signal that a traced thread is about to meet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signalled {
    /// Its number.
    pub(super) signal: i32,
    /// Where it comes from: `si_code`.
    pub(super) code: i32,
    /// The address that an exception is about.
    pub(super) address: Option<u64>,
}

impl Signalled {
    /// Whether a process sent it, and no exception.
    pub(super) fn is_sent(&self) -> bool {
        self.code <= 0
    }
}

/// The signal at which `thread` is stopped.
///
/// # Errors
/// If it is not stopped at one.
pub(super) fn signal_of(thread: Pid) -> io::Result<Signalled> {
    // SAFETY: all-zero bytes are a valid `siginfo_t`, a plain C struct.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the address is of a live, writable `siginfo_t`, which the request fills; the third argument is unused.
    match unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, thread.as_raw_nonzero().get(), 0_usize, &raw mut info) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Signalled {
            signal: info.si_signo,
            code: info.si_code,
            // SAFETY: for a code above 0 the kernel filled in the fault's address (sigaction(2)).
            address: (info.si_code > 0).then(|| unsafe { info.si_addr() } as u64),
        }),
    }
}

/// The general registers of a stopped thread.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    /// As the kernel lays them out for `NT_PRSTATUS`.
    pub(super) raw: Vec<u8>,
    /// The address of the next instruction.
    pub(super) instruction: u64,
    /// The stack pointer.
    pub(super) stack_pointer: u64,
    /// Where the running function returns to, if that is in a register.
    pub(super) link: Option<u64>,
}

/// The names of the registers in their order (sys/user.h).
#[cfg(target_arch = "x86_64")]
const REGISTERS: [&str; 27] = [
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax",
    "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
];
#[cfg(not(target_arch = "x86_64"))]
const REGISTERS: [&str; 34] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc", "pstate",
];

impl Registers {
    /// Names and values.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
        REGISTERS.into_iter().zip(self.raw.chunks_exact(8).map(word))
    }

    /// How many bytes they are.
    pub(super) const BYTES: usize = REGISTERS.len() * 8;

    /// From the bytes of `NT_PRSTATUS`, [`Registers::BYTES`] of them.
    pub(super) fn of(raw: Vec<u8>) -> Self {
        let mut registers = Self { raw, instruction: 0, stack_pointer: 0, link: None };
        let find = |name| registers.named().find(|(known, _)| *known == name).map(|(_, value)| value);
        let (instruction, stack_pointer, link) = (find("rip").or(find("pc")), find("rsp").or(find("sp")), find("x30"));
        (registers.instruction, registers.stack_pointer) = (instruction.unwrap_or(0), stack_pointer.unwrap_or(0));
        registers.link = link;
        registers
    }
}

/// The registers of a stopped thread.
///
/// # Errors
/// If it is not stopped.
pub(super) fn registers(thread: Pid) -> io::Result<Registers> {
    let mut raw = vec![0_u8; Registers::BYTES];
    let mut part = libc::iovec { iov_base: raw.as_mut_ptr().cast(), iov_len: raw.len() };
    let pid = thread.as_raw_nonzero().get();
    // SAFETY: the vector is of a live, writable buffer of the length that it states, and both outlive the call.
    match unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid, NT_PRSTATUS, &raw mut part) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Registers::of(raw)),
    }
}

/// The set of general registers (linux/elf.h).
const NT_PRSTATUS: usize = 1;

/// Has the kernel place the memory of this process, and of the programs that it becomes, at the same addresses as always
/// (personality(2)).
///
/// # Errors
/// If the kernel refuses, as some containers have it do.
pub(super) fn place_memory_as_always() -> io::Result<()> {
    /// The personality that asks and changes nothing.
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: the call takes a number and touches no memory of this process.
    let now = unsafe { libc::personality(ASK) };
    let wanted = now | libc::ADDR_NO_RANDOMIZE;
    // SAFETY: as above.
    match (now, unsafe { libc::personality(wanted as libc::c_ulong) }) {
        (-1, _) | (_, -1) => Err(io::Error::last_os_error()),
        _ => Ok(()),
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
