//! The worker: reads one request, does its work, and says what it does.
//!
//! It speaks first and last: `Hello` before any GPU library is loaded, then stages, then `Done` or `Failed`, which
//! the exit code repeats. It owns the conversation and the injected faults; the work itself comes from its caller.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::model::injection::START;
use crate::model::outcome::PeakMemory;
use crate::model::protocol::{
    Failure, FailureKind, InjectedFault, Mismatch, PROTOCOL_VERSION, REPLY_BYTES_MAX, Reply, Request,
    STAGE_ACKNOWLEDGED, Work, WorkerFault,
};
use crate::model::settings::{Breadcrumbs, CompanionLoad, Settings};
use crate::model::verdict::StageName;
use crate::workload::{ballast, fake, load, os};

/// Exit code after `Done`.
pub const EXIT_DONE: u8 = 0;

/// Exit code after `Failed`.
pub const EXIT_FAILED: u8 = 1;

/// Exit code of an injected `exit` fault.
pub const EXIT_INJECTED: i32 = 3;

/// Exit code when the conversation cannot be held: no request, another version, nobody listens.
pub const EXIT_NO_CONVERSATION: u8 = 70;

/// How long an injected `slow` fault takes.
pub const INJECTED_SLOWNESS: Duration = Duration::from_secs(1);

/// The longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The longest text of a reply; what is beyond is cut, so that escapes never make a line longer than the protocol
/// allows (six bytes for a control character).
const TEXT_BYTES_MAX: usize = REPLY_BYTES_MAX / 8;

/// Why the work stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The workload could not go on.
    #[error("{}", .0.text)]
    Failed(Failure),
    /// The parent does not listen any more.
    #[error("the conversation broke")]
    Conversation(#[from] io::Error),
}

impl WorkError {
    /// The work asks for what this machine or build cannot do: the trial is void.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self::of(FailureKind::Unsupported, text)
    }

    /// A failure in words alone.
    pub fn of(kind: FailureKind, text: impl Into<String>) -> Self {
        Self::Failed(Failure { kind, call: None, code: None, memory: None, text: text.into() })
    }
}

/// The work on a cell, as the library's caller plugs it in: settings, seed, and the reporter to speak through. It
/// returns the peaks of device memory; the peak of host memory is filled in if it is zero.
pub type CellWork = fn(&Settings, u64, &mut Reporter) -> Result<PeakMemory, WorkError>;

/// Says what the worker does, and commits the injected fault on the way.
///
/// Every method but [`Reporter::spoils`] fails only if the parent does not listen any more; the work then stops.
#[derive(Debug)]
pub struct Reporter {
    conversation: BufReader<File>,
    breadcrumbs: Breadcrumbs,
    inject: Option<InjectedFault>,
    is_spoiling: bool,
    born: Instant,
}

impl Reporter {
    /// Milliseconds from the worker's first statement to `moment`.
    pub fn age_ms(&self, moment: Instant) -> f64 {
        moment.saturating_duration_since(self.born).as_secs_f64() * 1000.0
    }

    /// A reporter that speaks into `conversation`.
    #[cfg(test)]
    pub(super) fn speaking_into(conversation: File) -> Self {
        let conversation = BufReader::new(conversation);
        let born = Instant::now();
        Self { conversation, breadcrumbs: Breadcrumbs::Async, inject: None, is_spoiling: false, born }
    }

    /// Enters a stage. A fault that is injected there is committed now; with breadcrumbs `sync` it waits until the
    /// stage is durable first.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn stage(&mut self, stage: &StageName) -> io::Result<()> {
        match self.breadcrumbs {
            Breadcrumbs::Off => {}
            Breadcrumbs::Async => self.say(&Reply::Stage { stage: stage.clone() })?,
            Breadcrumbs::Sync => {
                self.say(&Reply::Stage { stage: stage.clone() })?;
                self.wait_for_acknowledgement()?;
            }
        }
        let is_due = |inject: &mut InjectedFault| inject.at.as_ref() == Some(stage);
        if let Some(InjectedFault { fault, .. }) = self.inject.take_if(is_due) {
            self.commit(fault);
        }
        Ok(())
    }

    /// Says that the work goes on, between stages of long computations.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn beat(&mut self) -> io::Result<()> {
        self.say(&Reply::Beat)
    }

    /// Reports a number; its unit stands last in its name. Numbers that are not finite have no form in JSON and are
    /// reported as a note.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn metric(&mut self, name: &str, value: f64) -> io::Result<()> {
        if value.is_finite() {
            self.say(&Reply::Metric { name: name.into(), value })
        } else {
            self.note(name, &value.to_string())
        }
    }

    /// Reports a fact in words.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn note(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.say(&Reply::Note { name: name.into(), text: cut(text) })
    }

    /// Reports a result that differs from the oracle; the work goes on to `Done`.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn mismatch(&mut self, mismatch: Mismatch) -> io::Result<()> {
        let Mismatch { what, index, expected, got, count } = mismatch;
        self.say(&Reply::Mismatch(Mismatch {
            what: cut(&what),
            index,
            expected: cut(&expected),
            got: cut(&got),
            count,
        }))
    }

    /// Whether the workload must spoil its next result: the injected `wrong` fault. True once.
    pub fn spoils(&mut self) -> bool {
        std::mem::take(&mut self.is_spoiling)
    }

    /// Says that all is done. The peak of host memory is read from the kernel if `peak_memory` has none.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub(super) fn done(&mut self, mut peak_memory: PeakMemory) -> io::Result<()> {
        if peak_memory.host == 0 {
            peak_memory.host = peak_host().unwrap_or(0);
        }
        self.say(&Reply::Done { peak_memory })
    }

    /// Says that the work cannot go on.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub(super) fn failed(&mut self, failure: Failure) -> io::Result<()> {
        self.say(&Reply::Failed(Failure { text: cut(&failure.text), ..failure }))
    }

    /// Writes bytes that need not be a reply: the fake worker lies with it.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub(super) fn say_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.conversation.get_mut().write_all(bytes)
    }

    /// Closes the conversation; what is said afterwards goes nowhere.
    ///
    /// # Errors
    /// If there is no `/dev/null`.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.conversation = BufReader::new(File::options().read(true).write(true).open("/dev/null")?);
        Ok(())
    }

    fn say(&mut self, reply: &Reply) -> io::Result<()> {
        let mut line = serde_json::to_vec(reply)?;
        line.push(b'\n');
        // One call a line: a process that dies between two replies leaves no half of one.
        self.say_bytes(&line)
    }

    fn wait_for_acknowledgement(&mut self) -> io::Result<()> {
        let mut line = String::new();
        let limit = STAGE_ACKNOWLEDGED.len() as u64 + 1;
        self.conversation.by_ref().take(limit).read_line(&mut line)?;
        if line.trim_end() == STAGE_ACKNOWLEDGED {
            Ok(())
        } else {
            Err(io::Error::other(format!("{line:?} instead of {STAGE_ACKNOWLEDGED:?}")))
        }
    }

    fn commit(&mut self, fault: WorkerFault) {
        match fault {
            WorkerFault::Exit => std::process::exit(EXIT_INJECTED),
            WorkerFault::Segv => drop(std::hint::black_box(os::read_page_zero())),
            WorkerFault::Abort => std::process::abort(),
            WorkerFault::Hang => hang(),
            WorkerFault::Spin => spin(),
            WorkerFault::Oom => take_all_memory(),
            WorkerFault::Wrong => self.is_spoiling = true,
            WorkerFault::Slow => std::thread::sleep(INJECTED_SLOWNESS),
        }
    }
}

/// Waits for ever, without using the processor.
pub(super) fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Computes for ever.
pub(super) fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Takes memory, and touches it, until the kernel kills.
fn take_all_memory() -> ! {
    /// Small beside any machine's memory, so that the end comes in the allocation and not in one huge request.
    const PIECE_BYTES: usize = 16 << 20;
    loop {
        std::mem::forget(std::hint::black_box(vec![1u8; PIECE_BYTES]));
    }
}

/// Holds the conversation on standard input; `work_on_cell` does what a cell asks for.
pub fn main(work_on_cell: CellWork) -> ExitCode {
    match converse(work_on_cell) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: the worker cannot hold its conversation: {error}");
            ExitCode::from(EXIT_NO_CONVERSATION)
        }
    }
}

fn converse(work_on_cell: CellWork) -> io::Result<u8> {
    let born = Instant::now();
    let mut conversation = take_conversation()?;
    let request = read_request(&mut conversation)?;
    let Request { breadcrumbs, inject, .. } = request;
    let mut reporter = Reporter { conversation, breadcrumbs, inject, is_spoiling: false, born };
    let is_before = |inject: &mut InjectedFault| inject.at.as_ref().is_some_and(|at| at.as_str() == START);
    if let Some(InjectedFault { fault, .. }) = reporter.inject.take_if(is_before) {
        reporter.commit(fault);
    }
    reporter.say(&Reply::Hello { protocol: PROTOCOL_VERSION })?;
    if let Some(InjectedFault { fault, .. }) = reporter.inject.take_if(|inject| inject.at.is_none()) {
        reporter.commit(fault);
    }
    let worked = match request.work {
        Work::Cell(settings) => work_on_cell(&settings, request.seed, &mut reporter),
        Work::Load(CompanionLoad::Gpu) => load::work(&mut reporter),
        Work::Ballast(bytes) => ballast::work(bytes, &mut reporter),
        // A script says itself whether it is done, and ends as it likes.
        Work::Script(script) => return fake::play(&script, Some(&mut reporter)),
    };
    match worked {
        Ok(peak_memory) => reporter.done(peak_memory).map(|()| EXIT_DONE),
        Err(WorkError::Failed(failure)) => reporter.failed(failure).map(|()| EXIT_FAILED),
        Err(WorkError::Conversation(error)) => Err(error),
    }
}

/// Moves the conversation away from standard input, to a descriptor that no child inherits: a library that reads
/// standard input finds nothing there, and a process that outlives us does not hold the conversation open.
fn take_conversation() -> io::Result<BufReader<File>> {
    let conversation = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(BufReader::new(File::from(conversation)))
}

fn read_request(conversation: &mut BufReader<File>) -> io::Result<Request> {
    let mut line = Vec::new();
    conversation.by_ref().take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)?;
    let request: Request = serde_json::from_slice(&line)?;
    if request.protocol != PROTOCOL_VERSION {
        let versions = format!("the request speaks version {}, this worker {PROTOCOL_VERSION}", request.protocol);
        return Err(io::Error::other(versions));
    }
    Ok(request)
}

/// `VmHWM` of this process in bytes, proc_pid_status(5).
fn peak_host() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"))?;
    Some(kib.trim().parse::<u64>().ok()? * 1024)
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_makes_a_reply_longer_than_the_protocol_allows() {
        for text in ["\u{1}".repeat(100_000), "é".repeat(100_000), "\"".repeat(100_000)] {
            let reply = Reply::Note { name: "n".repeat(128), text: cut(&text) };
            assert!(serde_json::to_vec(&reply).unwrap().len() < REPLY_BYTES_MAX);
        }
    }

    #[test]
    fn the_kernel_tells_our_peak_memory() {
        assert!(peak_host().unwrap() > 100 * 1024);
    }
}
