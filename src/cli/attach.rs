//! `attach`: follows a run as it goes, and ends as it does; for people, or as frames for a desk.

use std::thread;
use std::time::{Duration, Instant};

use crate::cli::args::{AttachArgs, DataFormat, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::render::Tally;
use crate::cli::run::{machine_dirs, print_result, run_failure};
use crate::cli::{locate, output, read, render};
use crate::decide::follow::FollowFold;
use crate::model::frame::{FRAME_SCHEMA, FollowEnd, Frame};
use crate::model::ids::BootId;
use crate::model::observed::bounded_line;
use crate::perform::boot::{Trouble, UnitDir, last_words};
use crate::perform::follow::Follower;
use crate::perform::host::{self, Sysroot};
use crate::perform::kernel_stream::KernelStream;
use crate::perform::runner::RunError;
use crate::perform::spool::Spool;
use crate::perform::store::{ResultsDir, RunDir};

/// How often the journal is looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// How often whoever reads frames is told that the machine is up.
const BEAT: Duration = Duration::from_secs(4);

/// How often at most they are told of another open trial or stage.
const NEWS: Duration = Duration::from_millis(500);

/// How long a run may be without anybody who works on it before it is said so: one harness may just take over from
/// another.
const DESERTED_AFTER: Duration = Duration::from_secs(5);

/// How long a bad line may stand at the end of a journal that somebody writes.
const BAD_LINE_PATIENCE: Duration = Duration::from_secs(10);

/// `jetfault attach [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn attach(args: &AttachArgs, global: &Global) -> Outcome {
    let (results, run) = locate::run(global, args.run.as_deref())?;
    let sysroot = Sysroot::new(global.sysroot.clone());
    let Some(end) = follow(&results, &run, args, &sysroot)? else { return Ok(Exit::Done) };
    // The report is for people.
    let exit = print_result(&run, DataFormat::Text, global)?;
    match end {
        FollowEnd::Closed => {}
        FollowEnd::Paused => output::say(format_args!("{0} rests: `jetfault resume {0}` goes on", run.id)),
        FollowEnd::Deserted => {
            output::say(format_args!("{}: `jetfault resume {}` goes on", deserted_words(&run), run.id));
        }
    }
    Ok(exit)
}

/// That nobody works on `run`, and why as far as that is told.
fn deserted_words(run: &RunDir) -> String {
    let why = Trouble::new(&machine_dirs()).of(&run.path).or_else(|| last_words(&run.path));
    let why = why.map(|words| format!(" ({})", render::one_line(&words))).unwrap_or_default();
    format!("nobody works on {}{why}", run.id)
}

/// Follows `run` until nothing more comes by itself; nothing if nobody listens any more.
fn follow(
    results: &ResultsDir,
    run: &RunDir,
    args: &AttachArgs,
    sysroot: &Sysroot,
) -> Result<Option<FollowEnd>, Failure> {
    let plan = read::plan(run)?;
    let (mut fold, mut tally) = (FollowFold::new(&plan), Tally::default());
    let mut follower = Follower::new(run.open_journal().or_fail(Exit::Unfit)?);
    let mut teller = Teller { run, sysroot, frames: args.frames, beaten: Instant::now(), open: None, is_heard: true };
    let mut kernel = args.frames.then(|| KernelStream::at(&sysroot.place("dev/kmsg")));
    let _watching = args.witness.as_deref().map(|witness| Watching::begin(run, witness, sysroot)).transpose()?;
    let units = UnitDir::new(sysroot, None);
    let (mut worked_on, mut good, mut told) = (Instant::now(), Instant::now(), Instant::now());
    teller.beat(&follower, &fold)?;
    loop {
        let mut lines = Vec::new();
        let stuck = follower
            .poll(|record| {
                fold.apply(&record);
                told = Instant::now();
                tally.note(&record);
                if record.seq > args.after {
                    lines.extend(render::change(&plan, &record, &tally).map(|line| (record.seq, line)));
                }
            })
            .map_err(|error| run_failure(run, RunError::Read(error)))?;
        for (seq, line) in lines {
            teller.say(seq, line, &fold)?;
        }
        if !teller.is_heard {
            return Ok(None);
        }
        match stuck {
            Some(error) if good.elapsed() > BAD_LINE_PATIENCE => return Err(run_failure(run, RunError::Read(error))),
            Some(_) => {}
            None => good = Instant::now(),
        }
        if results.is_held() != Some(false) || units.is_armed_for(&run.path) {
            worked_on = Instant::now();
        }
        // Somebody who takes a paused run up again holds the results before the first record of that.
        let is_taken_up = |end: &FollowEnd| {
            *end == FollowEnd::Paused && results.is_held() == Some(true) && told.elapsed() < DESERTED_AFTER
        };
        let end = fold
            .end()
            .filter(|end| !is_taken_up(end))
            .or((worked_on.elapsed() > DESERTED_AFTER).then_some(FollowEnd::Deserted));
        if let Some(end) = end {
            teller.end(&follower, &fold, end)?;
            return Ok(Some(end));
        }
        if let Some(kernel) = &mut kernel {
            teller.kernel(kernel, &follower, &fold)?;
        }
        let is_news = fold.open() != teller.open && teller.beaten.elapsed() > NEWS;
        if is_news || teller.beaten.elapsed() > BEAT {
            teller.beat(&follower, &fold)?;
        }
        thread::sleep(PERIOD);
    }
}

/// A desk watches this boot as long as this lives: the next start waits for what it has to say.
struct Watching(Spool);

impl Watching {
    fn begin(run: &RunDir, witness: &str, sysroot: &Sysroot) -> Result<Self, Failure> {
        let spool = Spool::of(run);
        spool.watch(&bounded_line(witness), &sysroot.boot_id().or_fail(Exit::Unfit)?).or_fail(Exit::Unfit)?;
        Ok(Self(spool))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.unwatch();
    }
}

/// Tells whoever follows.
struct Teller<'a> {
    run: &'a RunDir,
    sysroot: &'a Sysroot,
    frames: bool,
    /// When a frame was last written.
    beaten: Instant,
    /// What that said to be open.
    open: Option<String>,
    /// Whether anybody reads it still: a desk that lost its connection does not.
    is_heard: bool,
}

impl Teller<'_> {
    fn say(&mut self, seq: u64, line: String, fold: &FollowFold<'_>) -> Result<(), Failure> {
        if self.frames {
            return self.write(Frame { say: Some(line), ..self.frame(seq, fold)? });
        }
        self.is_heard &= output::offer(format!("{line}\n").as_bytes())?;
        Ok(())
    }

    fn beat(&mut self, follower: &Follower, fold: &FollowFold<'_>) -> Result<(), Failure> {
        if self.frames { self.write(self.frame(follower.seq(), fold)?) } else { Ok(()) }
    }

    /// Passes on what the kernel said, while a trial is open.
    fn kernel(&mut self, kernel: &mut KernelStream, follower: &Follower, fold: &FollowFold<'_>) -> Result<(), Failure> {
        let (lines, trouble) = (kernel.poll(), kernel.trouble());
        let lines = if fold.open().is_some() { lines } else { Vec::new() };
        if lines.is_empty() && trouble.is_none() {
            return Ok(());
        }
        self.write(Frame { kernel: lines, kernel_trouble: trouble, ..self.frame(follower.seq(), fold)? })
    }

    fn end(&mut self, follower: &Follower, fold: &FollowFold<'_>, end: FollowEnd) -> Result<(), Failure> {
        match self.frames {
            true => {
                let say = (end == FollowEnd::Deserted).then(|| deserted_words(self.run));
                self.write(Frame { say, end: Some(end), ..self.frame(follower.seq(), fold)? })
            }
            false => Ok(()),
        }
    }

    fn frame(&self, seq: u64, fold: &FollowFold<'_>) -> Result<Frame, Failure> {
        let boot: BootId = self.sysroot.boot_id().or_fail(Exit::Unfit)?;
        Ok(Frame {
            schema: FRAME_SCHEMA.to_owned(),
            run: self.run.id.clone(),
            boot,
            wall: host::now().wall,
            seq,
            say: None,
            open: fold.open(),
            limit_ms: fold.limit_ms(),
            kernel: Vec::new(),
            kernel_trouble: None,
            end: None,
        })
    }

    fn write(&mut self, frame: Frame) -> Result<(), Failure> {
        (self.beaten, self.open) = (Instant::now(), frame.open.clone());
        self.is_heard &= output::offer(&frame.to_line())?;
        Ok(())
    }
}
