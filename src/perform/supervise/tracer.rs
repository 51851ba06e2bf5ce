//! The parent as the tracer of a trial's process: it sees a fatal signal before the process does (`observer = "core"`).
//!
//! Every thread of the process is traced, and none is held for longer than it takes to look at it; what it does is
//! otherwise its own. Processes that it forks are not traced. The kernel tells of stops by SIGCHLD, as of ends, so the
//! caller polls where it would reap (ptrace(2)).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::decide::core_pattern::CorePattern;
use crate::decide::crash::mappings;
use crate::model::crash::{Address, Crash, CrashedThread};
use crate::perform::core_file::{self, Dump};
use crate::perform::os::{self, Event, Reaped, Registers, Signalled, Waited};
use crate::perform::places::{Places, alike};
use crate::perform::system_core;

/// The signals that end a process unless it handles them, and that are faults of its own.
const FATAL: [i32; 6] = [
    libc_numbers::SIGILL,
    libc_numbers::SIGABRT,
    libc_numbers::SIGBUS,
    libc_numbers::SIGFPE,
    libc_numbers::SIGSEGV,
    libc_numbers::SIGSYS,
];

/// Numbers of signals, the same on x86-64 and arm64 (signal(7)).
mod libc_numbers {
    pub(super) const SIGILL: i32 = 4;
    pub(super) const SIGABRT: i32 = 6;
    pub(super) const SIGBUS: i32 = 7;
    pub(super) const SIGFPE: i32 = 8;
    pub(super) const SIGSEGV: i32 = 11;
    pub(super) const SIGSYS: i32 = 31;
}

/// How many signals that the process handles itself are looked at: some runtimes use them all the time.
const HANDLED_MAX: usize = 16;

/// The most threads that are traced; what starts later runs untraced.
const TRACED_MAX: usize = 4096;

/// How long other threads are waited for when one met a fatal signal.
const STOP_WAIT: Duration = Duration::from_millis(200);

/// The longest map of a process that is read.
const MAPS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Names of the files in the trial's directory.
const MAPS: &str = "maps.txt";
/// See [`core_file`].
pub(in crate::perform) const CORE: &str = "core.small";

/// A signal that the process handled itself, with what was seen then: the handler may raise it again.
#[derive(Debug)]
struct Handled {
    thread: Pid,
    crash: Crash,
}

/// The tracer of one process.
#[derive(Debug)]
pub(super) struct Tracer {
    leader: Pid,
    threads: Vec<Pid>,
    dir: PathBuf,
    handled: Vec<Handled>,
    crash: Option<Crash>,
    places: Places,
    /// What the system does with cores; none: not asked.
    pattern: Option<CorePattern>,
    /// Why the kernel must not write a core.
    no_core: Option<String>,
}

impl Tracer {
    /// Becomes the tracer of `leader`, which is not stopped for it; what is found is written into `dir`. A core that the
    /// system's `pattern` asks for is not written if it would take too much.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn seize(leader: Pid, dir: &Path, pattern: Option<CorePattern>) -> io::Result<Self> {
        os::trace(leader)?;
        Ok(Self {
            leader,
            threads: vec![leader],
            dir: dir.to_owned(),
            handled: Vec::new(),
            crash: None,
            places: Places::default(),
            pattern,
            no_core: None,
        })
    }

    /// What was found.
    pub(super) fn take(&mut self) -> Option<Crash> {
        self.crash.take()
    }

    /// Why the kernel was to write no core of it.
    pub(super) fn take_no_core(&mut self) -> Option<String> {
        self.no_core.take()
    }

    /// Lets every thread go on that stopped, and reaps what ended; the end of the process itself is returned.
    ///
    /// # Errors
    /// If somebody else reaped it.
    pub(super) fn poll(&mut self) -> io::Result<Option<Reaped>> {
        loop {
            let mut is_quiet = true;
            for thread in self.threads.clone() {
                match os::try_wait(thread) {
                    Ok(Waited::Nothing) => {}
                    Ok(Waited::Ended(reaped)) if thread == self.leader => return Ok(Some(reaped)),
                    Err(error) if thread == self.leader => return Err(error),
                    Ok(Waited::Ended(_)) | Err(_) => self.threads.retain(|known| *known != thread),
                    Ok(Waited::Stopped(event)) => {
                        is_quiet = false;
                        self.stopped(thread, event);
                    }
                }
            }
            if is_quiet {
                return Ok(None);
            }
        }
    }

    /// Whoever died meanwhile needs no answer: every error here is that.
    fn stopped(&mut self, thread: Pid, event: Event) {
        let _ = match event {
            Event::Group => os::listen(thread),
            Event::Started(new) => {
                if self.threads.len() < TRACED_MAX
                    && let Some(new) = new
                    && !self.threads.contains(&new)
                {
                    self.threads.push(new);
                }
                os::go_on(thread, 0)
            }
            Event::Other => os::go_on(thread, 0),
            Event::Signal(signal) => {
                if FATAL.contains(&signal) {
                    self.met(thread, signal);
                }
                os::go_on(thread, signal)
            }
        };
    }

    /// A thread is about to meet a signal that may end the process.
    fn met(&mut self, thread: Pid, signal: i32) {
        if self.crash.is_some() || ignores(self.leader, signal) {
            return;
        }
        let is_handled = handles(self.leader, signal);
        if is_handled && self.handled.len() >= HANDLED_MAX {
            return;
        }
        let Ok(signalled) = os::signal_of(thread) else { return };
        // A handler that is through restores the default and raises the signal again: what it met first is the cause.
        let first = self.handled.iter().position(|handled| handled.thread == thread && handled.crash.signal == signal);
        match (is_handled, first.filter(|_| signalled.is_sent())) {
            (false, Some(first)) => self.crash = Some(self.handled.remove(first).crash),
            (true, _) => {
                if let Some(crash) = self.look(thread, &signalled) {
                    self.handled.push(Handled { thread, crash });
                }
            }
            (false, None) => self.crash = self.look(thread, &signalled),
        }
        // What the process handles itself may leave no core, and need not end it.
        if !is_handled {
            self.no_core = self.pattern.as_ref().and_then(|pattern| system_core::bound(self.leader, pattern));
        }
    }

    /// Where everything is now.
    fn look(&mut self, thread: Pid, signalled: &Signalled) -> Option<Crash> {
        let own = os::registers(thread).ok()?;
        let maps = read_maps(self.leader)?;
        // Without the map an offset is all that is known; the map is what makes addresses of a later report readable.
        let _ = fs::write(self.dir.join(MAPS), &maps);
        let mappings = mappings(&maps);
        let memory = File::open(format!("/proc/{}/mem", self.leader.as_raw_nonzero())).ok()?;
        let siblings = self.stop_others(thread);
        let read = |address: u64, length: usize| {
            let mut bytes = vec![0; length];
            let count = memory.read_at(&mut bytes, address).ok()?;
            bytes.truncate(count);
            Some(bytes)
        };
        let (leader, places) = (self.leader, &mut self.places);
        let frames = places.frames(&own, &mappings, &read);
        let others = alike(
            siblings
                .iter()
                .map(|(sibling, registers)| (name_of(leader, *sibling), places.frames(registers, &mappings, &read))),
        );
        let dump = Dump {
            leader: self.leader,
            thread,
            signalled,
            own: &own,
            siblings: &siblings,
            mappings: &mappings,
            memory: &memory,
        };
        // The disk may be full; the crash is known all the same.
        let _ = core_file::write(&self.dir.join(CORE), &dump);
        // A stop of the whole group may have come in between: they all go on.
        for (sibling, _) in &siblings {
            let _ = os::go_on(*sibling, 0);
        }
        Some(Crash {
            signal: signalled.signal,
            code: signalled.code,
            address: signalled.address.map(Address),
            program: fs::read_link(format!("/proc/{}/exe", self.leader.as_raw_nonzero()))
                .map(|path| path.to_string_lossy().into_owned())
                .unwrap_or_default(),
            thread: CrashedThread { name: name_of(self.leader, thread), count: 1, frames },
            others,
            registers: own.named().map(|(name, value)| (name.to_owned(), Address(value))).collect(),
        })
    }

    /// Stops the other threads, and tells where they are. A thread that met a signal of its own at that moment keeps it.
    fn stop_others(&mut self, thread: Pid) -> Vec<(Pid, Registers)> {
        let others: Vec<Pid> = self.threads.iter().copied().filter(|other| *other != thread).collect();
        others.iter().for_each(|other| drop(os::interrupt(*other)));
        let (until, mut stopped) = (Instant::now() + STOP_WAIT, Vec::new());
        let mut waiting = others;
        while !waiting.is_empty() && Instant::now() < until {
            waiting.retain(|&other| match os::try_wait(other) {
                Ok(Waited::Nothing) => true,
                Ok(Waited::Stopped(Event::Signal(signal))) => {
                    // It goes on with its signal, which must not be lost, and is not looked at.
                    let _ = os::go_on(other, signal);
                    false
                }
                Ok(Waited::Stopped(event)) => {
                    if let Event::Started(Some(new)) = event {
                        self.threads.push(new);
                    }
                    if let Ok(registers) = os::registers(other) {
                        stopped.push((other, registers));
                    }
                    false
                }
                Ok(Waited::Ended(_)) | Err(_) => false,
            });
            std::thread::sleep(Duration::from_micros(200));
        }
        stopped
    }
}

fn read_maps(leader: Pid) -> Option<String> {
    let maps = fs::read(format!("/proc/{}/maps", leader.as_raw_nonzero())).ok()?;
    let maps = &maps[..maps.len().min(MAPS_BYTES_MAX)];
    Some(String::from_utf8_lossy(maps).into_owned())
}

fn name_of(leader: Pid, thread: Pid) -> String {
    let path = format!("/proc/{}/task/{}/comm", leader.as_raw_nonzero(), thread.as_raw_nonzero());
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

/// Whether the process has a handler of its own for `signal`.
fn handles(leader: Pid, signal: i32) -> bool {
    is_in_mask(leader, "SigCgt:", signal)
}

fn ignores(leader: Pid, signal: i32) -> bool {
    is_in_mask(leader, "SigIgn:", signal)
}

/// Masks of `/proc/PID/status` are hexadecimal, and signal 1 is the lowest bit (proc_pid_status(5)).
fn is_in_mask(leader: Pid, field: &str, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", leader.as_raw_nonzero())).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(field)?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
