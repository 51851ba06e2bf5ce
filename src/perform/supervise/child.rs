//! One child: its phases, its pipes, its deadlines, and the outcome that grows from them.
//!
//! The phases are alive, terminating, killing, draining, sweeping, settling, over. Each has one deadline, and every
//! wait ends at the next of them: nothing the child does can hold it longer.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixStream;
use tokio::signal::unix::Signal as SignalStream;
use tokio::time::sleep_until;

use crate::model::outcome::{CORE_NOTE, EndedBy, Exit, LastReply, Outcome};
use crate::model::protocol::STAGE_ACKNOWLEDGED;
use crate::model::settings::Observer;
use crate::model::verdict::{STAGES_MAX, StageName};
use crate::perform::os;
use crate::perform::processes;
use crate::perform::supervise::family::Family;
use crate::perform::supervise::launch::{Deadlines, Launch, Program};
use crate::perform::supervise::libraries::Libraries;
use crate::perform::supervise::looks::FirstLook;
use crate::perform::supervise::pipes::{readable, writable};
use crate::perform::supervise::ran::Ran;
use crate::perform::supervise::replies::Replies;
use crate::perform::supervise::spawn::{Newborn, environment, working_directory};
use crate::perform::supervise::streams::{READ_BYTES, Streams};
use crate::perform::supervise::tracer::Tracer;
use crate::perform::supervise::{ChildEvent, SETTLE_STAGE};

mod talk;

use talk::Talk;

/// How long after its child's end a trial's other processes may finish by themselves and its pipes may stay open.
const LEAK_GRACE: Duration = Duration::from_millis(200);

/// How much longer a debugger may take that is to look at its command first: it reads the symbols of what is loaded.
const DEBUGGER_GRACE: Duration = Duration::from_secs(20);

/// The most processes and threads of one trial that are remembered.
const MEMBERS_MAX: usize = 16 * 1024;

/// Where a child stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It runs.
    Alive,
    /// It was asked to end.
    Terminating { kill_at: Instant },
    /// It was killed, and has not ended.
    Killing { give_up_at: Instant },
    /// It ended; its pipes are emptied, and its descendants may finish.
    Draining { until: Instant },
    /// It ended, and what it left behind was killed.
    Sweeping { until: Instant },
    /// Nothing is left; the machine is watched.
    Settling { until: Instant },
    /// All is known.
    Over,
}

/// What woke us.
enum Wake {
    Time,
    ChildEnded,
    Conversation,
    ConversationWritable,
    Output(usize),
}

/// A child and its descendants at the moment of birth.
pub(super) struct Birth {
    /// When.
    pub(super) born: Instant,
    /// The child.
    pub(super) newborn: Newborn,
    /// What it is told first.
    pub(super) outgoing: Vec<u8>,
    /// It and its descendants.
    pub(super) family: Family,
    /// Its tracer, if it has one.
    pub(super) tracer: Option<Tracer>,
}

/// The child of one trial. Dropped before its end it is killed.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    born: Instant,
    deadlines: Deadlines,
    phase: Phase,
    conversation: Option<UnixStream>,
    outgoing: VecDeque<u8>,
    talk: Talk,
    is_running: bool,
    not_started: Option<String>,
    /// A conversation that closed within a line: natural if a signal ended the child, a lie otherwise.
    torn: Option<String>,
    streams: Streams,
    family: Family,
    /// Sees a fatal signal before the child does.
    tracer: Option<Tracer>,
    /// The processes and threads that were seen in the trial.
    members: BTreeSet<u32>,
    first_look: FirstLook,
    libraries: Libraries,
    /// Which program a command became.
    ran: Option<Ran>,
    /// Whether the child is a debugger that runs the command.
    is_debugger: bool,
    stage_since: Instant,
    settle_since: Option<Instant>,
    /// The codes that are a success; empty for 0 alone.
    exit_codes: Vec<i32>,
    /// The highest memory of what the child was before it became a program of the user's.
    peak_before: Option<u64>,
    artifacts: Vec<String>,
    cwd: PathBuf,
    trial_dir: String,
    outcome: Outcome,
    events: VecDeque<ChildEvent>,
    buffer: Box<[u8]>,
}

impl Child {
    /// Takes charge of a newborn. Must be called in the runtime's context.
    pub(super) fn new(birth: Birth, launch: Launch<'_>) -> io::Result<Self> {
        let Birth { born, newborn, outgoing, family, tracer } = birth;
        newborn.conversation.set_nonblocking(true)?;
        let streams = Streams::new(newborn.source, &launch, born)?;
        let cwd = PathBuf::from(working_directory(&launch));
        let ran = match &launch.program {
            Program::Worker(_) => None,
            Program::Command(command) => command.argv.first().map(|program| {
                let path = environment(&launch, "").into_iter().find(|(name, _)| name == "PATH");
                Ran::new(program, &path.map(|(_, path)| path).unwrap_or_default(), &cwd, born)
            }),
        };
        let mut outcome = Outcome::of(Exit::Unkillable);
        let (talk, exit_codes, artifacts, loads) = match launch.program {
            Program::Worker(_) => {
                outcome.last_reply = Some(LastReply::Silence);
                (Talk::Worker(Replies::new()), Vec::new(), Vec::new(), Vec::new())
            }
            Program::Command(command) => {
                (Talk::Trampoline(Vec::new()), command.exit_codes, command.artifacts, command.loads)
            }
        };
        let mut child = Self {
            pid: newborn.pid,
            born,
            deadlines: launch.deadlines,
            phase: Phase::Alive,
            conversation: Some(UnixStream::from_std(newborn.conversation)?),
            outgoing: outgoing.into(),
            talk,
            is_running: false,
            not_started: None,
            torn: None,
            streams,
            family,
            tracer,
            members: BTreeSet::from([newborn.pid.as_raw_nonzero().get().unsigned_abs()]),
            first_look: FirstLook::default(),
            libraries: Libraries::new(&loads, born),
            ran,
            is_debugger: launch.observer == Observer::Gdb,
            stage_since: born,
            settle_since: None,
            exit_codes,
            peak_before: None,
            artifacts,
            cwd,
            trial_dir: launch.trial_dir.to_string_lossy().into_owned(),
            outcome,
            events: VecDeque::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        };
        child.write_conversation();
        Ok(child)
    }

    /// The child's process id, which is also its process group.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The processes and threads that were seen in the trial, by id; one that lived for less than the caller's patience
    /// between two events may be missing.
    pub fn members(&self) -> &BTreeSet<u32> {
        &self.members
    }

    /// Which libraries the trial's processes mapped.
    pub(in crate::perform) fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// The directory in which it began to work.
    pub(in crate::perform) fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Which program a command became.
    pub(in crate::perform) fn ran(&self) -> Option<&Ran> {
        self.ran.as_ref()
    }

    /// When to look at what the trial's processes are and map, while there are any.
    fn next_look(&self) -> Option<Instant> {
        let ran = self.ran.as_ref().filter(|_| self.is_running).and_then(Ran::due);
        let due = [self.libraries.due(), ran].into_iter().flatten().min();
        due.filter(|_| matches!(self.phase, Phase::Alive | Phase::Terminating { .. }))
    }

    fn look(&mut self, now: Instant) {
        if self.libraries.due().is_some_and(|due| now >= due) {
            self.libraries.look(now, &self.family.members());
        }
        if self.is_running && self.ran.as_ref().and_then(Ran::due).is_some_and(|due| now >= due) {
            self.look_at_program(now);
        }
    }

    fn look_at_program(&mut self, now: Instant) {
        if let Some(ran) = &mut self.ran {
            ran.look(now, self.pid);
        }
    }

    pub(super) fn acknowledge(&mut self) {
        self.outgoing.extend(STAGE_ACKNOWLEDGED.bytes().chain([b'\n']));
        self.write_conversation();
    }

    /// Begins to end the child, unless it just ended by itself.
    pub(super) fn end(&mut self, why: EndedBy) {
        self.reap();
        self.begin_end(why);
    }

    fn begin_end(&mut self, why: EndedBy) {
        if self.phase != Phase::Alive {
            return;
        }
        if matches!(why, EndedBy::Timeout | EndedBy::StageTimeout | EndedBy::SilenceTimeout) {
            self.outcome.hang = self.first_look.compare(self.stage_since, &self.family.members());
        }
        self.outcome.ended_by = Some(why);
        self.ask_to_end(why);
        let looks = if self.is_debugger { DEBUGGER_GRACE } else { Duration::ZERO };
        self.phase = Phase::Terminating { kill_at: Instant::now() + self.deadlines.grace + looks };
    }

    /// A debugger that is interrupted looks at its command and ends it; a server under one is asked like any other.
    fn ask_to_end(&mut self, why: EndedBy) {
        match (self.is_debugger, why) {
            (false, _) => self.family.signal_group(Signal::TERM),
            (true, EndedBy::Served) => {
                for member in self.family.members().into_iter().filter(|member| *member != self.pid) {
                    // One that is gone needs no asking.
                    let _ = kill_process(member, Signal::TERM);
                }
            }
            (true, _) => self.family.signal_group(Signal::INT),
        }
    }

    pub(super) fn sync_output(&mut self) -> io::Result<()> {
        self.streams.sync()
    }

    /// The next event, or `Quiet` at `until`.
    pub(super) async fn next_event(&mut self, child_ended: &mut SignalStream, until: Instant) -> ChildEvent {
        // Whoever waited for another child took the signal that told of this one's end.
        self.reap();
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let now = Instant::now();
            if self.next_look().is_some_and(|due| now >= due) {
                self.look(now);
            }
            self.advance(now);
            if !self.events.is_empty() {
                continue;
            }
            if self.phase == Phase::Over {
                return ChildEvent::Ended(Box::new(self.outcome.clone()));
            }
            if now >= until {
                self.note_members();
                return ChildEvent::Quiet;
            }
            let alarm = [self.deadline(), self.next_look()].into_iter().flatten().fold(until, Instant::min);
            match self.wake(child_ended, alarm).await {
                Wake::Time => {}
                Wake::ChildEnded => self.reap(),
                Wake::Conversation => self.read_conversation(),
                Wake::ConversationWritable => self.write_conversation(),
                Wake::Output(index) => self.read_output(index),
            }
        }
    }

    /// The next event that is there already.
    pub(super) fn glance(&mut self) -> Option<ChildEvent> {
        if self.phase != Phase::Over {
            self.reap();
            self.read_conversation();
            self.streams.indices().for_each(|index| self.read_output(index));
            self.advance(Instant::now());
        }
        self.events.pop_front()
    }

    async fn wake(&self, child_ended: &mut SignalStream, alarm: Instant) -> Wake {
        let is_writing = !self.outgoing.is_empty();
        tokio::select! {
            _ = child_ended.recv() => Wake::ChildEnded,
            () = readable(self.conversation.as_ref()) => Wake::Conversation,
            () = writable(self.conversation.as_ref()), if is_writing => Wake::ConversationWritable,
            () = self.streams.readable(0) => Wake::Output(0),
            () = self.streams.readable(1) => Wake::Output(1),
            () = sleep_until(alarm.into()) => Wake::Time,
        }
    }

    /// When something is due next.
    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Alive => {
                let (began, end, _) = self.patience();
                Some(self.first_look.due(began, end).unwrap_or(end))
            }
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Killing { give_up_at } => Some(give_up_at),
            Phase::Draining { until } | Phase::Sweeping { until } | Phase::Settling { until } => Some(until),
            Phase::Over => None,
        }
    }

    /// The span whose end ends a child that is alive, and what to call that.
    fn patience(&self) -> (Instant, Instant, EndedBy) {
        let Deadlines { timeout, stage_timeout, silence_timeout, .. } = self.deadlines;
        let span = |began: Instant, limit: Duration, why| (began, began + limit, why);
        let spans = [
            stage_timeout.map(|limit| span(self.stage_since, limit, EndedBy::StageTimeout)),
            silence_timeout.map(|limit| span(self.streams.last_output(), limit, EndedBy::SilenceTimeout)),
        ];
        let whole = span(self.born, timeout, EndedBy::Timeout);
        spans.into_iter().flatten().fold(whole, |first, other| if other.1 < first.1 { other } else { first })
    }

    fn advance_alive(&mut self, now: Instant) {
        let (began, end, why) = self.patience();
        if self.first_look.due(began, end).is_some_and(|due| now >= due) {
            self.first_look.take(end, self.stage_since, &self.family.members());
        }
        if now >= end {
            self.end(why);
        }
    }

    /// Takes note of every process and thread of the trial, so that the kernel's lines about one are known as its.
    fn note_members(&mut self) {
        let room = MEMBERS_MAX.saturating_sub(self.members.len());
        self.members.extend(processes::ids(&self.family.members()).take(room));
    }

    /// Goes from phase to phase as far as `now` and what is known allow.
    fn advance(&mut self, now: Instant) {
        match self.phase {
            Phase::Alive => self.advance_alive(now),
            Phase::Terminating { kill_at } if now >= kill_at => {
                self.family.signal_group(Signal::KILL);
                self.phase = Phase::Killing { give_up_at: now + self.deadlines.kill_wait };
            }
            Phase::Killing { give_up_at } if now >= give_up_at => {
                self.outcome.exit = Exit::Unkillable;
                self.close_stage(now);
                self.finish(now);
            }
            Phase::Draining { .. } if self.is_drained() && !self.family.is_left() => self.settle(now),
            Phase::Draining { until } if now >= until => {
                self.family.kill();
                self.phase = Phase::Sweeping { until: now + self.deadlines.kill_wait };
                self.sweep(now);
            }
            Phase::Sweeping { .. } => self.sweep(now),
            Phase::Settling { until } if now >= until => self.finish(now),
            Phase::Terminating { .. } | Phase::Killing { .. } => {}
            Phase::Draining { .. } | Phase::Settling { .. } | Phase::Over => {}
        }
    }

    /// One round of killing what is left; each death may orphan others, whose adoption wakes us again.
    fn sweep(&mut self, now: Instant) {
        let Phase::Sweeping { until } = self.phase else { return };
        if !self.family.is_left() {
            self.settle(now);
        } else if now >= until {
            self.outcome.notes.insert("leftovers".into(), "some processes of the trial survived SIGKILL".into());
            self.settle(now);
        } else {
            self.family.kill();
        }
    }

    fn settle(&mut self, now: Instant) {
        // What is in the pipes was written before the last process ended; whoever else holds them is not ours.
        for index in self.streams.indices() {
            self.read_output(index);
            self.streams.close(index);
        }
        self.conversation = None;
        if self.deadlines.settle.is_zero() {
            return self.finish(now);
        }
        self.settle_since = Some(now);
        self.phase = Phase::Settling { until: now + self.deadlines.settle };
        let stage = SETTLE_STAGE.parse().expect("a constant stage name");
        self.events.push_back(ChildEvent::Stage { stage, at_ms: millis(now - self.born) });
    }

    fn finish(&mut self, now: Instant) {
        self.phase = Phase::Over;
        self.streams.end().into_iter().for_each(|stage| self.reach(stage));
        if let Some(since) = self.settle_since {
            self.outcome.stage_ms.push((SETTLE_STAGE.parse().expect("a constant stage name"), millis(now - since)));
        }
        let outcome = &mut self.outcome;
        outcome.leaked = self.family.leaked();
        self.streams.tell(outcome, &self.trial_dir);
        if let (Exit::Code(code), false) = (&outcome.exit, self.exit_codes.is_empty()) {
            outcome.exit_expected = Some(self.exit_codes.contains(code));
        }
        if outcome.has_succeeded() {
            let is_missing = |artifact: &&String| !self.cwd.join(artifact).exists();
            outcome.artifacts_missing = self.artifacts.iter().filter(is_missing).cloned().collect();
        }
        self.events.push_back(ChildEvent::Ended(Box::new(self.outcome.clone())));
    }

    /// Looks whether the child itself ended; an adopted orphan's end wakes us too.
    fn reap(&mut self) {
        if !matches!(self.phase, Phase::Alive | Phase::Terminating { .. } | Phase::Killing { .. }) {
            return;
        }
        let now = Instant::now();
        let reaped = match &mut self.tracer {
            Some(tracer) => tracer.poll(),
            None => os::try_reap(self.pid),
        };
        match reaped {
            Ok(None) => return,
            Ok(Some(reaped)) => {
                self.outcome.exit = exit(reaped.status);
                self.outcome.peak_memory.host = own_peak(reaped.peak_host, self.peak_before);
            }
            Err(error) => self.not_started = Some(format!("its exit status was lost: {error}")),
        }
        if let Some(tracer) = &mut self.tracer {
            self.outcome.crash = tracer.take().map(Box::new);
            self.outcome.notes.extend(tracer.take_no_core().map(|why| (CORE_NOTE.to_owned(), why)));
        }
        self.outcome.duration_ms = millis(now - self.born);
        self.close_stage(now);
        self.phase = Phase::Draining { until: now + LEAK_GRACE };
        // What was said before the end is waiting already; the usual child is drained without another wake-up.
        self.read_conversation();
        self.streams.indices().for_each(|index| self.read_output(index));
        self.conclude();
    }

    /// Compares the exit with the words. The operating system's facts stand; words can only take trust away.
    fn conclude(&mut self) {
        if let Talk::Trampoline(said) = &self.talk
            && self.not_started.is_none()
            && !self.is_running
        {
            let said = String::from_utf8_lossy(said);
            self.not_started =
                Some(format!("the child ended ({:?}) before the program was executed {said}", self.outcome.exit));
        }
        if let Some(reason) = self.not_started.take() {
            self.outcome.exit = Exit::NotStarted(reason);
        }
        if let (Exit::Code(code), Talk::Worker(replies)) = (&self.outcome.exit, &self.talk) {
            let doubt = replies.contradicts(*code).or(self.torn.take());
            self.outcome.protocol_error = self.outcome.protocol_error.take().or(doubt);
        }
    }

    fn is_drained(&self) -> bool {
        self.conversation.is_none() && self.streams.are_closed()
    }

    fn run(&mut self) {
        self.is_running = true;
        self.look_at_program(Instant::now());
        self.events.push_back(ChildEvent::Running { pid: self.pid() });
    }

    pub(super) fn reach(&mut self, stage: StageName) {
        let now = Instant::now();
        self.close_stage(now);
        if !self.outcome.stage_ms.iter().any(|(known, _)| *known == stage) {
            if self.outcome.stage_ms.len() == STAGES_MAX {
                return self.distrust(format!("more than {STAGES_MAX} distinct stages"));
            }
            self.outcome.stage_ms.push((stage.clone(), 0));
        }
        self.outcome.stage = Some(stage.clone());
        self.events.push_back(ChildEvent::Stage { stage, at_ms: millis(now - self.born) });
    }

    /// Books the time since the last change of stage on the stage that was.
    fn close_stage(&mut self, now: Instant) {
        let spent = millis(now - self.stage_since);
        self.stage_since = now;
        let Some(stage) = &self.outcome.stage else { return };
        if let Some((_, total)) = self.outcome.stage_ms.iter_mut().find(|(known, _)| known == stage) {
            *total += spent;
        }
    }

    fn read_output(&mut self, index: usize) {
        // The program wrote this after it was executed; whoever asks must hear of that first.
        if !self.is_running {
            self.read_conversation();
        }
        self.streams.read(index).into_iter().for_each(|stage| self.reach(stage));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.phase != Phase::Over {
            self.family.signal_group(Signal::KILL);
        }
    }
}

/// The peak of a process, if it is its own: the kernel carries that of the process before an `exec` over, and what is not
/// above it may be that. 0 is not known.
fn own_peak(peak: u64, before: Option<u64>) -> u64 {
    /// What the trampoline still takes after it said how much it had.
    const ROOM: u64 = 1 << 20;
    if before.is_some_and(|before| peak <= before + ROOM) { 0 } else { peak }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(number)) => Exit::Signal { number, core: status.core_dumped() },
        (None, None) => Exit::NotStarted(format!("its exit status makes no sense: {status}")),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
