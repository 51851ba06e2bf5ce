//! What is found out about a trial whose processes have ended: its program, its libraries, its core, the place of a crash.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::Linux;
use crate::decide::classify::signal_name;
use crate::decide::core_pattern::{CorePattern, Dead, unpacked};
use crate::decide::crash::telling_frame;
use crate::model::evidence::Fact;
use crate::model::matrix::Tool;
use crate::model::outcome::{CORE_NOTE, Exit, Outcome, PROGRAM_NOTE};
use crate::perform::supervise::{Child, SMALL_CORE, SideMark};
use crate::perform::{debugger, gdb_observer, post_mortem, system_core};

/// How long a program that the kernel handed a core to may take to put it down.
const HANDLER_WAIT: Duration = Duration::from_secs(2);

/// How often it is looked whether it did.
const HANDLER_PERIOD: Duration = Duration::from_millis(50);

/// Times of files are those of the last tick, and so may lie before what came before them.
const TICK: Duration = Duration::from_secs(1);

impl Linux<'_> {
    /// Takes note of everything that the trial's `child` left.
    pub(super) fn look_back(&mut self, child: &Child, outcome: &mut Outcome) {
        child.libraries().tell(outcome, &mut self.identities);
        if self.keeps_user {
            let note = outcome.notes.entry(gdb_observer::NOTE.to_owned()).or_default();
            note.push_str("the program's set-user-ID or set-group-ID bit has no effect: its tracer is not root");
        }
        match (&self.session, child.ran()) {
            // The child is the debugger.
            (Some(session), _) => {
                let program = session.program().map(|program| self.identities.of(program));
                outcome.notes.extend(program.map(|words| (PROGRAM_NOTE.to_owned(), words)));
                return self.look_at_crash(outcome, None);
            }
            (None, Some(ran)) => ran.tell(outcome, &mut self.identities),
            (None, None) => {}
        }
        let core = self.look_for_core(child, outcome);
        self.look_at_crash(outcome, core);
    }

    /// Looks what became of the kernel's core of a child that died of a fault of its own, and where it was, if nobody saw
    /// that. It gives the core that was found.
    fn look_for_core(&self, child: &Child, outcome: &mut Outcome) -> Option<PathBuf> {
        let Exit::Signal { number, core } = outcome.exit else { return None };
        if !matches!(signal_name(number), "SIGSEGV" | "SIGBUS" | "SIGILL" | "SIGFPE" | "SIGABRT" | "SIGSYS") {
            return None;
        }
        let program = child.ran().and_then(|ran| ran.program()).unwrap_or_default();
        let dead =
            Dead { pid: child.pid(), signal: number, uid: self.invoker.uid, gid: self.invoker.gid, program: &program };
        let (words, found) = match (system_core::pattern(&self.sysroot), core) {
            (Fact::Known(CorePattern::Nowhere), _) => {
                ("the system keeps none (core_pattern is empty)".to_owned(), None)
            }
            (Fact::Known(pattern), true) => self.find_core(&pattern, &dead, child.cwd()),
            (Fact::Known(_), false) => {
                let why =
                    "the kernel wrote none: a limit (limits = \"core=unlimited\" lifts it), or it may not write there";
                (outcome.notes.remove(CORE_NOTE).unwrap_or_else(|| why.to_owned()), None)
            }
            (Fact::Absent | Fact::Denied(_) | Fact::Garbled(_), _) => {
                ("core_pattern could not be read".to_owned(), None)
            }
        };
        outcome.notes.insert(CORE_NOTE.to_owned(), words);
        let found = found?;
        if outcome.crash.is_none() {
            let read = match found.to_str().and_then(unpacked) {
                Some(_) => Err(io::Error::other(format!(
                    "it is packed, and not unpacked here: `coredumpctl info COREDUMP_PID={}` shows where it was",
                    dead.pid
                ))),
                None => post_mortem::crash_of(&found, &program),
            };
            match read {
                Ok(crash) => outcome.crash = Some(Box::new(crash)),
                Err(error) => {
                    drop(outcome.notes.insert("post-mortem".to_owned(), format!("{}: {error}", found.display())))
                }
            }
        }
        Some(found)
    }

    fn find_core(&self, pattern: &CorePattern, dead: &Dead<'_>, cwd: &Path) -> (String, Option<PathBuf>) {
        let since = SystemTime::now() - self.launched.elapsed() - TICK;
        // The kernel itself is done when the process is; a program may still be writing.
        let until =
            Instant::now() + if matches!(pattern, CorePattern::Program(_)) { HANDLER_WAIT } else { Duration::ZERO };
        let how = pattern.to_string();
        loop {
            if let Some(core) = system_core::find(&self.sysroot, pattern, (dead, cwd), since) {
                return (format!("{}, by {how}", core.words()), Some(core.path));
            }
            if Instant::now() >= until {
                return (
                    format!("not found, though one was made, by {how}: {}", system_core::elsewhere(pattern, dead.pid)),
                    None,
                );
            }
            std::thread::sleep(HANDLER_PERIOD);
        }
    }

    /// Has a debugger look at a crash, once for each place at which trials crash.
    fn look_at_crash(&mut self, outcome: &mut Outcome, core: Option<PathBuf>) {
        let (Some(crash), Some(trial)) = (outcome.crash.take(), self.trial.clone()) else { return };
        let place = telling_frame(&crash).map(ToString::to_string).unwrap_or_default();
        // A session of gdb has said it already.
        let is_new = self.session.is_none() && self.crashes_seen.insert((crash.signal, place));
        if is_new {
            let small = self.trial_dir(&trial).join(SMALL_CORE);
            let core = if small.is_file() { small } else { core.unwrap_or(small) };
            let mark = SideMark::of_debugger(&self.mark, &trial);
            let said = match self.tools.find(Tool::Gdb) {
                Ok(gdb) => debugger::trace(
                    &gdb.display().to_string(),
                    (&crash, &core, &self.trial_dir(&trial)),
                    (&self.mark, &self.invoker, &mark),
                    &mut self.supervisor,
                    &self.signal,
                ),
                Err(error) => error.to_string(),
            };
            outcome.notes.insert(debugger::NOTE.to_owned(), said);
        }
        outcome.crash = Some(crash);
    }
}
