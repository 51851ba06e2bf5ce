//! `fleet`: the same over many boards, from a desk.
//!
//! Owns which boards are meant, and what is said of each; a board that fails says so and the others go on. The desk
//! keeps nothing that a board does not know: whatever is asked here can be asked again.

mod attach;
mod block;
mod campaigns;
mod collect;
mod power;
mod pull;
mod push;
mod report;
mod run;
mod shares;
mod spread;
mod status;
mod submit;
mod witness;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::cli::args::{FleetArgs, FleetCommand, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::{output, render};
use crate::decide::fleet::Trouble;
use crate::model::inventory::{BoardEntry, INVENTORY_BYTES_MAX, Inventory, parse_inventory};
use crate::model::matrix::did_you_mean;
use crate::perform::ssh::{Ssh, SshError};
use crate::perform::store::read_limited;

pub use self::pull::send;
pub(super) use self::shares::to_json as shares_json;

/// How long a board may take for a command that does little.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many boards are asked at a time.
const AT_A_TIME: usize = 32;

/// What the thread of a board needs; the default of the system times a thousand boards is much address space.
const STACK_BYTES: usize = 512 * 1024;

/// The environment variable that names a program in the place of `ssh`.
const SSH_VARIABLE: &str = "JETFAULT_SSH";

/// `jetfault fleet …`.
///
/// # Errors
/// See [`Failure`].
pub fn fleet(args: &FleetArgs, global: &Global) -> Outcome {
    // The engine knows its nodes: these need no inventory.
    match &args.command {
        FleetCommand::Submit(submitted) => return submit::submit(args, submitted, global),
        FleetCommand::Block(block) => return no_boards(args).and_then(|()| block::block(block, global)),
        FleetCommand::Collect { dirs, format } => {
            return no_boards(args).and_then(|()| collect::collect(dirs, *format, global));
        }
        _ => {}
    }
    let desk = Desk::open(args)?;
    match &args.command {
        FleetCommand::Push { files } => push::push(&desk, files),
        FleetCommand::Run(args) if args.spread => spread::spread(&desk, args, global),
        FleetCommand::Run(args) => run::run(&desk, args),
        FleetCommand::Nightly(args) => campaigns::nightly(&desk, args, global),
        FleetCommand::Bisect(args) => campaigns::bisect(&desk, args, global),
        FleetCommand::Status { run, format } => status::status(&desk, run.as_deref(), *format, global),
        FleetCommand::Attach { run, allow_power_cycle } => attach::attach(&desk, run.as_deref(), *allow_power_cycle),
        FleetCommand::Pull { runs, file_max } => pull::pull(&desk, runs, *file_max),
        FleetCommand::Report(args) => report::report(&desk, args, global),
        FleetCommand::Stop { run } => run::stop(&desk, run.as_deref()),
        FleetCommand::PowerCycle { patience } => power::cycle(&desk, Duration::from_secs(*patience)),
        FleetCommand::Submit(_) | FleetCommand::Block(_) | FleetCommand::Collect { .. } => unreachable!("done above"),
    }
}

/// Refuses boards of an inventory where none is read.
fn no_boards(args: &FleetArgs) -> Result<(), Failure> {
    match (&args.board[..], &args.tag[..]) {
        ([], []) => Ok(()),
        _ => Err(Failure::words(Exit::Usage, "--board and --tag choose boards of an inventory, and this reads none")
            .hint("the engine chooses its nodes: see `jetfault fleet submit --help`")),
    }
}

/// The inventory, and which of its boards are meant.
struct Desk {
    inventory: Inventory,
    /// The directory of the inventory, to which its paths are relative.
    base: PathBuf,
    /// The boards that are meant, in its order.
    boards: Vec<BoardEntry>,
    ssh: OsString,
}

impl Desk {
    fn open(args: &FleetArgs) -> Result<Self, Failure> {
        let path = &args.inventory;
        let bytes = read_limited(path, INVENTORY_BYTES_MAX).map_err(|error| {
            Failure::words(Exit::Usage, format!("cannot read the inventory {}: {error}", path.display()))
                .hint("name it with --inventory; docs/fleet.md shows one")
        })?;
        let text = String::from_utf8(bytes).or_fail(Exit::Usage)?;
        let inventory =
            parse_inventory(&text).map_err(|why| Failure::words(Exit::Usage, format!("{}: {why}", path.display())))?;
        let boards = chosen(&inventory, args)?;
        let base = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let ssh = env::var_os(SSH_VARIABLE).or_else(|| inventory.fleet.ssh.as_ref().map(OsString::from));
        Ok(Self { inventory, base, boards, ssh: ssh.unwrap_or_else(|| "ssh".into()) })
    }

    fn ssh(&self, board: &BoardEntry) -> Ssh {
        Ssh::new(self.ssh.clone(), board)
    }

    /// Where runs of `board` are on the desk.
    fn results_of(&self, board: &BoardEntry) -> PathBuf {
        self.base.join(&self.inventory.fleet.results).join(board.name.as_str())
    }

    /// Has `each` speak with every board, several at a time, says what came of each as it comes, and what that is in
    /// all as an exit code.
    fn each(&self, each: impl Fn(&BoardEntry) -> BoardOutcome + Sync) -> Exit {
        let exits = self.ask_all(AT_A_TIME, |board| {
            let outcome = each(board);
            tell(board, &outcome);
            outcome.map_or_else(|failure| failure.exit, |done| done.exit)
        });
        exits.into_iter().fold(Exit::Done, worse)
    }

    /// What `each` makes of every board, in the order of the inventory.
    fn ask_all<T: Send>(&self, at_a_time: usize, each: impl Fn(&BoardEntry) -> T + Sync) -> Vec<T> {
        self.ask_each(&self.boards, at_a_time, each)
    }

    /// What `each` makes of each of `boards`, in their order.
    fn ask_each<T: Send>(
        &self,
        boards: &[BoardEntry],
        at_a_time: usize,
        each: impl Fn(&BoardEntry) -> T + Sync,
    ) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let made: Mutex<Vec<Option<T>>> = Mutex::new(boards.iter().map(|_| None).collect());
        let work = || {
            while let Some((index, board)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, boards.get(index)?)))
            {
                let result = each(board);
                made.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
            }
        };
        thread::scope(|scope| {
            for _ in 0..boards.len().min(at_a_time) {
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                builder.spawn_scoped(scope, work).expect("a thread can be started");
            }
        });
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        made.into_iter().map(|result| result.expect("each board was asked")).collect()
    }
}

/// The boards that are named, or have all the tags that are named.
fn chosen(inventory: &Inventory, args: &FleetArgs) -> Result<Vec<BoardEntry>, Failure> {
    let names = || inventory.boards.iter().map(|board| board.name.as_str());
    if let Some(unknown) = args.board.iter().find(|name| names().all(|known| known != name.as_str())) {
        let near = did_you_mean(unknown, names()).map(|near| format!("did you mean {near}? "));
        let hint = format!("{}boards are {}", near.unwrap_or_default(), names().collect::<Vec<_>>().join(", "));
        return Err(Failure::words(Exit::Usage, format!("no board {unknown} in the inventory")).hint(hint));
    }
    let is_meant = |board: &&BoardEntry| {
        (args.board.is_empty() || args.board.iter().any(|name| name == board.name.as_str()))
            && args.tag.iter().all(|tag| board.tags.contains(tag))
    };
    let boards: Vec<BoardEntry> = inventory.boards.iter().filter(is_meant).cloned().collect();
    if boards.is_empty() {
        return Err(Failure::words(Exit::Usage, "no board has all these tags"));
    }
    Ok(boards)
}

/// The program on `board`.
fn program(board: &BoardEntry) -> String {
    format!("{}/bin/jetfault", board.dir)
}

/// The beginning of every command line for the program on `board`.
fn harness(board: &BoardEntry) -> Vec<String> {
    vec![program(board), "--results".to_owned(), board.results.clone()]
}

fn words(argv: &[String]) -> Vec<&str> {
    argv.iter().map(String::as_str).collect()
}

/// What was done with a board.
struct BoardDone {
    exit: Exit,
    words: String,
}

/// What was not.
struct BoardFailure {
    exit: Exit,
    words: String,
    hint: Option<String>,
}

type BoardOutcome = Result<BoardDone, BoardFailure>;

impl BoardFailure {
    fn of(board: &BoardEntry, error: &SshError) -> Self {
        match error {
            SshError::Trouble(trouble) => Self::of_trouble(board, trouble),
            SshError::Late(_) => {
                let hint = Trouble::Silent.hint(&board.host);
                Self { exit: Exit::Unfit, words: error.to_string(), hint }
            }
            SshError::Start { .. } => {
                let hint = Some(format!("is it installed? {SSH_VARIABLE} or [fleet] ssh names another program"));
                Self { exit: Exit::Unfit, words: error.to_string(), hint }
            }
            SshError::Nul(_) => Self { exit: Exit::Usage, words: error.to_string(), hint: None },
            SshError::Exchange(_) | SshError::Io(_) => Self { exit: Exit::Unfit, words: error.to_string(), hint: None },
        }
    }

    fn of_trouble(board: &BoardEntry, trouble: &Trouble) -> Self {
        let exit = match trouble {
            Trouble::Held(_) => Exit::Held,
            Trouble::Refused { code: 2, .. } => Exit::Usage,
            Trouble::Refused { code: 6, .. } => Exit::JournalDamaged,
            Trouble::Refused { code: 70, .. } => Exit::Bug,
            Trouble::Unreachable(_)
            | Trouble::Silent
            | Trouble::HostKeyChanged
            | Trouble::HostKeyUnknown
            | Trouble::NotLetIn(_)
            | Trouble::SudoAsks
            | Trouble::NoProgram(_)
            | Trouble::OtherArchitecture
            | Trouble::DiskFull
            | Trouble::Refused { .. } => Exit::Unfit,
        };
        Self { exit, words: trouble.to_string(), hint: trouble.hint(&board.host) }
    }

    fn words(exit: Exit, words: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit, words: words.into(), hint: Some(hint.into()) }
    }
}

fn tell(board: &BoardEntry, outcome: &BoardOutcome) {
    match outcome {
        Ok(done) => say(board, &done.words),
        Err(failure) => {
            output::say(render::one_line(&format!("{}: error: {}", board.name, failure.words)));
            if let Some(hint) = &failure.hint {
                output::say(render::one_line(&format!("{}: hint: {hint}", board.name)));
            }
        }
    }
}

/// Says a line about `board` on standard output. What a board says is not trusted with the terminal.
fn say(board: &BoardEntry, words: &str) {
    // A reader that is gone is told nothing more.
    let _ = output::print(format!("{}: {}\n", board.name, render::one_line(words)).as_bytes());
}

/// Of two exit codes the one that is told.
fn worse(one: Exit, other: Exit) -> Exit {
    let rank = |exit: Exit| match exit {
        Exit::Bug => 8,
        Exit::JournalDamaged => 7,
        Exit::Held => 6,
        Exit::Unfit | Exit::GitAbort => 5,
        Exit::Usage => 4,
        Exit::Signal(_) => 3,
        Exit::FaultFound => 2,
        Exit::Undecided | Exit::GitSkip => 1,
        Exit::Done => 0,
    };
    if rank(other) > rank(one) { other } else { one }
}
