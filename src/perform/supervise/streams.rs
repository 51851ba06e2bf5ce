//! The output of a child: two pipes or one terminal, kept in bounded files and looked at line by line.
//!
//! It reads what is there and never waits; when to read is the child's business.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use tokio::net::unix::pipe::Receiver;

use crate::model::outcome::{Exit, Outcome};
use crate::model::verdict::StageName;
use crate::perform::supervise::launch::{Launch, Program};
use crate::perform::supervise::lines::{ErrorText, KnownTexts, Lines, Scanner, Succeeded};
use crate::perform::supervise::output::{OutputLog, STREAMS};
use crate::perform::supervise::pipes::{self, Now, readable};

/// How much is read from a pipe at once, in bytes: all that Linux keeps in one by default.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// How often a pipe is read before the others and the clock are looked at again.
pub(super) const READS_MAX: u32 = 8;

/// What the parent reads from.
#[derive(Debug)]
pub(super) enum Source {
    /// A pipe for each stream.
    Pipes {
        /// Of standard output.
        stdout: OwnedFd,
        /// Of standard error.
        stderr: OwnedFd,
    },
    /// The parent's side of a terminal that both streams go to.
    Terminal(OwnedFd),
}

/// Lines to look at.
enum LinesOf<'a> {
    /// Of these bytes.
    Bytes(&'a [u8]),
    /// The unfinished one that is left when the stream ends.
    End,
}

/// One output stream.
#[derive(Debug)]
struct Stream {
    pipe: Option<Receiver>,
    lines: Lines,
    log: OutputLog,
    /// Whether errors are looked for in it: in standard error, and in a terminal, which is both.
    has_errors: bool,
}

/// Both output streams and what their lines mean.
#[derive(Debug)]
pub(super) struct Streams {
    streams: [Stream; 2],
    scanner: Scanner,
    error_text: ErrorText,
    known_texts: KnownTexts,
    last_output: Instant,
    buffer: Box<[u8]>,
}

impl Streams {
    /// The streams of a child that is born now. Must be called in the runtime's context.
    pub(super) fn new(source: Source, launch: &Launch<'_>, born: Instant) -> io::Result<Self> {
        let stream = |pipe: Option<OwnedFd>, name, has_errors| -> io::Result<Stream> {
            let pipe = pipe.map(watched).transpose()?;
            let log = OutputLog::new(launch.trial_dir, name, launch.output_bytes_max);
            Ok(Stream { pipe, lines: Lines::default(), log, has_errors })
        };
        let streams = match source {
            Source::Pipes { stdout, stderr } => {
                [stream(Some(stdout), STREAMS[0], false)?, stream(Some(stderr), STREAMS[1], true)?]
            }
            Source::Terminal(terminal) => [stream(Some(terminal), STREAMS[0], true)?, stream(None, STREAMS[1], true)?],
        };
        let scanner = match &launch.program {
            Program::Worker(_) => Scanner::default(),
            Program::Command(command) => Scanner::new(command),
        };
        Ok(Self {
            streams,
            scanner,
            error_text: ErrorText::default(),
            known_texts: KnownTexts::default(),
            last_output: born,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        })
    }

    /// How many streams there are; each is known by its index.
    pub(super) fn indices(&self) -> std::ops::Range<usize> {
        0..self.streams.len()
    }

    /// When the child last wrote anything, else when it was born.
    pub(super) fn last_output(&self) -> Instant {
        self.last_output
    }

    /// Waits until the stream `index` can be read; for ever if it is closed.
    pub(super) async fn readable(&self, index: usize) {
        readable(self.streams[index].pipe.as_ref()).await;
    }

    /// Whether both are closed.
    pub(super) fn are_closed(&self) -> bool {
        self.streams.iter().all(|stream| stream.pipe.is_none())
    }

    /// Reads no more from the stream `index`.
    pub(super) fn close(&mut self, index: usize) {
        self.streams[index].pipe = None;
    }

    /// Reads what is there of the stream `index`, and gives the stages that its lines show to be reached.
    pub(super) fn read(&mut self, index: usize) -> Vec<StageName> {
        let mut reached = Vec::new();
        for _ in 0..READS_MAX {
            let Some(pipe) = &self.streams[index].pipe else { break };
            match pipes::read_now(pipe, &mut self.buffer) {
                Now::Bytes(count) => {
                    self.last_output = Instant::now();
                    let buffer = std::mem::take(&mut self.buffer);
                    self.streams[index].log.write(&buffer[..count]);
                    self.look_at(index, LinesOf::Bytes(&buffer[..count]), &mut reached);
                    self.buffer = buffer;
                }
                Now::Nothing => break,
                Now::End => self.streams[index].pipe = None,
            }
        }
        reached
    }

    fn look_at(&mut self, index: usize, lines_of: LinesOf<'_>, reached: &mut Vec<StageName>) {
        let Stream { lines, has_errors, .. } = &mut self.streams[index];
        let (scanner, error_text, known_texts) = (&mut self.scanner, &mut self.error_text, &mut self.known_texts);
        let sink = |line: &[u8]| {
            if *has_errors {
                error_text.line(line);
            }
            known_texts.line(line);
            reached.extend(scanner.line(line));
        };
        match lines_of {
            LinesOf::Bytes(bytes) => lines.push(bytes, sink),
            LinesOf::End => lines.finish(sink),
        }
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// The first error of any write or sync since the last call.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.streams.iter_mut().try_for_each(|stream| stream.log.sync())
    }

    /// The last lines, which nothing ended: the stages that they show to be reached.
    pub(super) fn end(&mut self) -> Vec<StageName> {
        let mut reached = Vec::new();
        self.indices().for_each(|index| self.look_at(index, LinesOf::End, &mut reached));
        reached
    }

    /// Writes into `outcome` what the output said, once it ended.
    pub(super) fn tell(&mut self, outcome: &mut Outcome, trial_dir: &str) {
        outcome.stdout = self.streams[0].log.finish();
        outcome.stderr = self.streams[1].log.finish();
        let (metrics, unmet) = self.scanner.finish();
        outcome.metrics.extend(metrics);
        outcome.unmet.extend(unmet);
        outcome.known_texts = self.known_texts.finish();
        let succeeded = if outcome.exit == Exit::Code(0) { Succeeded::Yes } else { Succeeded::No };
        outcome.error_text = self.error_text.finish(succeeded, trial_dir);
    }
}

/// `pipe`, watched by the runtime and never waited for. A terminal is read as a pipe is.
fn watched(pipe: OwnedFd) -> io::Result<Receiver> {
    rustix::io::ioctl_fionbio(&pipe, true)?;
    Receiver::from_owned_fd_unchecked(pipe)
}
