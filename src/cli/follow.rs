//! `jetfault status --follow`: where a run stands, shown anew as it changes.
//!
//! On a terminal one screen is drawn over itself; elsewhere each change is a line. A boot in between ends nothing: the
//! journal is read again as long as it is there, from whichever machine it is seen.

use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use rustix::termios::tcgetwinsize;

use crate::cli::args::{DataFormat, Global, StatusArgs};
use crate::cli::errors::{Failure, Outcome};
use crate::cli::exit::Exit;
use crate::cli::read::{harness, make_status};
use crate::cli::render::{self, Screen};
use crate::cli::{output, render::COLUMNS_DEFAULT};
use crate::decide::status::{Harness, Status};
use crate::perform::store::{ResultsDir, RunDir, names};

/// How often the size of the terminal is looked at: a frame of the old size is soon gone.
const GLANCE: Duration = Duration::from_millis(250);

/// How often it is asked whether the journal grew.
const PERIOD: Duration = Duration::from_secs(1);

/// Reading takes at most one part in so many of the time: a run must not be disturbed by who looks at it.
const IDLE_SHARE: u32 = 20;

/// Lines of a terminal that does not tell how many it has.
const ROWS_DEFAULT: usize = 24;

/// Clears a terminal and goes to its first cell (ECMA-48: ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Goes to the first cell.
const HOME: &str = "\x1b[H";

/// Clears to the end of the line, and from there to the end of the screen (EL, ED).
const CLEAR_LINE: &str = "\x1b[K";

/// See [`CLEAR_LINE`].
const CLEAR_REST: &str = "\x1b[J";

/// What would have to change before the journal is read again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Signs {
    journal: Option<(u64, SystemTime)>,
    harness: Harness,
}

impl Signs {
    fn of(results: &ResultsDir, run: &RunDir) -> Self {
        let meta = fs::metadata(run.file(names::JOURNAL)).ok();
        let journal = meta.and_then(|meta| Some((meta.len(), meta.modified().ok()?)));
        Self { journal, harness: harness(results) }
    }
}

/// Follows `run` until it is over, nobody reads any more, or a signal ends it.
///
/// # Errors
/// If the run cannot be read in the first place; later on that is waited out.
pub fn follow(results: &ResultsDir, run: &RunDir, args: &StatusArgs, global: &Global) -> Outcome {
    let mut view = View::new(args, global);
    let mut seen = Signs::of(results, run);
    let mut status = view.read(results, run, args, global)?;
    let mut next = Instant::now();
    loop {
        if !view.show(&status, None) || status.standing.is_final() {
            return Ok(Exit::Done);
        }
        loop {
            sleep(GLANCE);
            if view.is_resized() {
                break;
            }
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + PERIOD;
            let signs = Signs::of(results, run);
            if signs == seen {
                continue;
            }
            let begun = Instant::now();
            match view.read(results, run, args, global) {
                Ok(new) => (status, seen) = (new, signs),
                // The machine may be going down, or the network between it and this one.
                Err(failure) if !view.show(&status, Some(&failure)) => return Ok(Exit::Done),
                Err(_) => {}
            }
            next += begun.elapsed() * IDLE_SHARE;
            break;
        }
    }
}

/// How it is shown.
enum View {
    /// One screen that is drawn over itself.
    Screen { colour: bool, size: Screen, drawn: String },
    /// A line for each change.
    Lines { pending: Vec<String>, tally: render::Tally, seq: u64, json: bool, last: String },
}

impl View {
    fn new(args: &StatusArgs, global: &Global) -> Self {
        let json = args.format == DataFormat::Json;
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if io::stdout().is_terminal() && !is_dumb && !json {
            let colour = output::colours(global, &io::stdout());
            return Self::Screen { colour, size: size(), drawn: String::new() };
        }
        Self::Lines { pending: Vec::new(), tally: render::Tally::default(), seq: 0, json, last: String::new() }
    }

    /// Reads where the run stands, and what changed since.
    fn read(
        &mut self,
        results: &ResultsDir,
        run: &RunDir,
        args: &StatusArgs,
        global: &Global,
    ) -> Result<Status, Failure> {
        let Self::Lines { pending, tally, seq, .. } = self else {
            return make_status(results, run, args, global, |_, _| {});
        };
        let (from, is_first) = (*seq, *seq == 0);
        *tally = render::Tally::default();
        make_status(results, run, args, global, |plan, record| {
            tally.note(record);
            *seq = record.seq;
            if record.seq > from && !is_first {
                pending.extend(render::change(plan, record, tally));
            }
        })
    }

    /// Shows `status`, and why it could not be read again; tells whether somebody still reads.
    fn show(&mut self, status: &Status, failure: Option<&Failure>) -> bool {
        match self {
            Self::Screen { colour, size, drawn } => {
                let trouble = failure.map(Failure::in_words);
                let frame = render::follow(status, trouble.as_deref(), *size, *colour);
                if frame == *drawn {
                    return true;
                }
                let start = if drawn.is_empty() { CLEAR } else { HOME };
                let lines: String = frame.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
                *drawn = frame;
                put(&format!("{start}{lines}{CLEAR_REST}"))
            }
            Self::Lines { pending, json: true, last, .. } => {
                pending.clear();
                let line = serde_json::to_string(status).expect("a status has string keys and finite numbers");
                if line == *last {
                    return true;
                }
                last.clone_from(&line);
                put(&format!("{line}\n"))
            }
            Self::Lines { pending, last, .. } => {
                let mut lines = std::mem::take(pending);
                let standing = match failure {
                    None => render::standing_line(status),
                    Some(failure) => failure.in_words(),
                };
                if standing != *last {
                    last.clone_from(&standing);
                    lines.push(standing);
                }
                lines.is_empty() || put(&(lines.join("\n") + "\n"))
            }
        }
    }

    /// Whether the terminal has another size than when it was drawn on.
    fn is_resized(&mut self) -> bool {
        let Self::Screen { size: known, drawn, .. } = self else { return false };
        let now = size();
        if now == *known {
            return false;
        }
        *known = now;
        // What was drawn may be broken over other lines by now.
        drawn.clear();
        true
    }
}

fn size() -> Screen {
    let told = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
    Screen {
        columns: told.map_or(COLUMNS_DEFAULT, |size| usize::from(size.ws_col)),
        rows: told.map_or(ROWS_DEFAULT, |size| usize::from(size.ws_row)),
    }
}

/// Writes `text` at once; tells whether it could be written.
fn put(text: &str) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}
