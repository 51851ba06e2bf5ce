//! `fleet run --spread`: the trials of a matrix divided over boards.
//!
//! Who runs what is [`deal`]'s to say; here boards are asked, told and followed. Nothing is kept on the desk: the same
//! command, from any desk, comes to the same orders, and an order that went out twice is one run on its board.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::push::push_matrix;
use super::shares::{self, ShareStatus};
use super::{BoardFailure, Desk, STACK_BYTES, attach, run, say, tell, worse};
use crate::cli::args::{FleetRunArgs, Global, MatrixArgs};
use crate::cli::errors::{Failure, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::{self, MatrixSource};
use crate::cli::output;
use crate::cli::plan::{make_plan, read_matrix};
use crate::decide::fleet::{
    BoardSaid, CellSaid, Course, Deal, Order, Role, Share, ShareSaid, Trouble, WantedCell, Whole, deal,
};
use crate::decide::plan::{CellRole, Plan};
use crate::model::ids::{ContentDigest, RunId};
use crate::model::inventory::BoardEntry;
use crate::model::matrix::TrialsRule;
use crate::model::units::counted;
use crate::perform::ssh::SshError;
use crate::perform::store::ResultsDir;

/// Pause between calls to a board that does not answer.
const PAUSE: Duration = Duration::from_secs(2);

/// How long a board may be held by the process that has just ended its run.
const HELD_PATIENCE: Duration = Duration::from_secs(20);

/// How often a share may be found unfinished after it was followed, before its board is set aside.
const FUTILE_MAX: u32 = 5;

/// The longest share that is spelt on a command line, in bytes: Linux takes words of up to 128 KiB.
const SHARE_BYTES_MAX: usize = 100_000;

/// `fleet run MATRIX --spread`.
pub(super) fn spread(desk: &Desk, args: &FleetRunArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.carry.matrix.matrix)?;
    let plan = make_plan(&source, &args.carry.matrix)?;
    let TrialsRule::Fixed(_) = plan.trials else {
        let words = "each board would decide for itself how many trials are enough: they cannot be divided";
        return Err(Failure::words(Exit::Usage, words)
            .hint("--trials N divides so many per cell; without --spread each board runs the matrix by itself"));
    };
    let whole = Whole {
        of: identity(&source, &args.carry.matrix, &plan)?,
        generation: 1,
        seed: plan.seed,
        cells: wanted(desk, &source, args, &plan)?,
    };
    let mut division = Division { desk, args, global, name: plan.matrix_name.clone(), whole };
    let mut boards = division.survey();
    division.choose_generation(&mut boards);
    let deal = division.carry(&mut boards);
    Ok(division.conclude(&boards, &deal))
}

/// What the shares of a matrix have in common: all of it but the number of trials.
fn identity(source: &MatrixSource, args: &MatrixArgs, plan: &Plan) -> Result<ContentDigest, Failure> {
    let of_one = MatrixArgs { matrix: args.matrix.clone(), cell: Vec::new(), trials: Some(1), set: args.set.clone() };
    let digest = read_matrix(source, &of_one)?.digest;
    Ok(ContentDigest::of(format!("{} {:?}", digest.as_str(), plan.only).as_bytes()))
}

/// The cells that are divided, each with the tags that the inventory asks of a board for it.
fn wanted(desk: &Desk, source: &MatrixSource, args: &FleetRunArgs, plan: &Plan) -> Result<Vec<WantedCell>, Failure> {
    let samples = plan.cells.iter().filter(|cell| cell.role == CellRole::Sample);
    let mut cells: Vec<WantedCell> = samples
        .map(|cell| WantedCell { id: cell.id.clone(), trials: plan.rounds(cell), tags: BTreeSet::new() })
        .collect();
    let has_axis = |name: &str| plan.cells.iter().any(|cell| cell.levels.contains_key(name));
    for rule in &desk.inventory.cells {
        // A rule about axes that this matrix does not have is about another one.
        if !rule.cell.split(',').filter_map(|part| part.split_once('=')).all(|(axis, _)| has_axis(axis)) {
            continue;
        }
        let only = MatrixArgs {
            matrix: args.carry.matrix.matrix.clone(),
            cell: vec![rule.cell.clone()],
            trials: args.carry.matrix.trials,
            set: args.carry.matrix.set.clone(),
        };
        let meant: BTreeSet<_> = make_plan(source, &only)?.cells.into_iter().map(|cell| cell.id).collect();
        cells.iter_mut().filter(|cell| meant.contains(&cell.id)).for_each(|cell| {
            cell.tags.insert(rule.tag.clone());
        });
    }
    Ok(cells)
}

/// A board in the course of a division.
struct Board<'a> {
    entry: &'a BoardEntry,
    role: Role,
    /// What it says that it has, or copies on the desk.
    shares: Vec<(ShareStatus, bool)>,
    /// What it was told to do and has not told of yet.
    ordered: Option<Share>,
    /// Whether somebody speaks with it.
    is_busy: bool,
    /// How often its share was still open after it was followed.
    futile: u32,
    /// Why it is left alone.
    failure: Option<Exit>,
}

impl Board<'_> {
    fn said(&self) -> BoardSaid {
        let of = |(status, is_copy): &(ShareStatus, bool)| {
            let said = status.said();
            let course = if *is_copy { Course::Copied } else { said.course };
            ShareSaid { course, ..said }
        };
        let mut shares: Vec<ShareSaid> = self.shares.iter().map(of).collect();
        if let Some(ordered) = &self.ordered {
            match shares.iter_mut().find(|said| said.share.is_same(ordered)) {
                Some(there) => there.course = Course::Working,
                None => shares.push(begun(ordered)),
            }
        }
        BoardSaid { name: self.entry.name.clone(), tags: self.entry.tags.clone(), role: self.role, shares }
    }

    fn is_at_work(&self) -> bool {
        self.said().shares.iter().any(|said| said.course == Course::Working)
    }

    /// The run of the share that it is at work on.
    fn run_at_work(&self) -> Option<RunId> {
        let is_at_work = |(status, is_copy): &&(ShareStatus, bool)| !is_copy && status.said().course == Course::Working;
        self.shares.iter().find(is_at_work).and_then(|(status, _)| status.status.run.clone())
    }

    /// Leaves it alone from now on.
    fn set_aside(&mut self, failure: BoardFailure) {
        (self.role, self.ordered, self.failure) = (Role::Gone, None, Some(failure.exit));
        tell(self.entry, &Err(failure));
    }
}

/// A share that its board has just begun.
fn begun(share: &Share) -> ShareSaid {
    let cells = share
        .rounds
        .iter()
        .map(|(id, rounds)| (id.clone(), CellSaid { wanted: *rounds, counted: 0, set_aside: false }));
    ShareSaid { share: share.clone(), course: Course::Working, cells: cells.collect() }
}

/// What a board is spoken with about.
enum Task {
    /// A share that it is to begin, or to go on with.
    Begin(Share),
    /// A run that it is at work on.
    Follow(Option<RunId>),
}

/// What came of speaking with a board.
enum Answer {
    /// It does what it was told, and is not followed.
    Begun,
    /// What it has, after it was followed.
    Has(Vec<ShareStatus>),
    /// It does not do what it was told.
    Unfit(BoardFailure),
    /// It cannot be asked.
    Lost(BoardFailure),
}

/// A matrix that is divided.
struct Division<'a> {
    desk: &'a Desk,
    args: &'a FleetRunArgs,
    global: &'a Global,
    /// The name of the matrix.
    name: String,
    whole: Whole,
}

impl<'a> Division<'a> {
    /// What every board of the inventory has: also those that were not chosen did their part.
    fn survey(&self) -> Vec<Board<'a>> {
        let is_chosen = |entry: &BoardEntry| self.desk.boards.iter().any(|chosen| chosen.name == entry.name);
        let entries = &self.desk.inventory.boards;
        let asked = self.desk.ask_each(entries, super::AT_A_TIME, |entry| {
            let patience =
                if is_chosen(entry) { self.desk.inventory.fleet.patience.to_duration() } else { Duration::ZERO };
            self.ask_patiently(entry, patience)
        });
        let boards = entries.iter().zip(asked).map(|(entry, asked)| {
            let mut board = Board {
                entry,
                role: if is_chosen(entry) { Role::Ready } else { Role::Resting },
                shares: Vec::new(),
                ordered: None,
                is_busy: false,
                futile: 0,
                failure: None,
            };
            match asked {
                Ok(shares) => self.note_shares(&mut board, shares),
                Err(error) => self.note_lost(&mut board, BoardFailure::of(entry, &error)),
            }
            if !is_chosen(entry) && !board.is_at_work() {
                // What it has not done is nobody's.
                board.role = Role::Gone;
            }
            board
        });
        boards.collect()
    }

    /// What `board` has; one that is just booting is waited for.
    fn ask_patiently(&self, board: &BoardEntry, patience: Duration) -> Result<Vec<ShareStatus>, SshError> {
        let began = Instant::now();
        let mut is_told = false;
        loop {
            let error = match shares::ask(self.desk, board, &self.name) {
                Err(error) if is_passing(&error) && began.elapsed() < patience => error,
                answer => return answer,
            };
            if !is_told {
                is_told = true;
                output::say(format_args!("{}: {error}; it is waited for, up to {} s", board.name, patience.as_secs()));
            }
            thread::sleep(PAUSE);
        }
    }

    fn is_of_this(&self, share: &Share) -> bool {
        share.of == self.whole.of
    }

    /// Copies of its runs on the desk, as far as they can be read.
    fn copies(&self, board: &BoardEntry) -> Vec<ShareStatus> {
        let results = ResultsDir::at(self.desk.results_of(board));
        shares::of(&results, &self.name, self.global).unwrap_or_else(|failure| {
            output::say(format_args!(
                "{}: its copies on this desk count for nothing: {}",
                board.name,
                failure.in_words()
            ));
            Vec::new()
        })
    }

    fn note_shares(&self, board: &mut Board<'_>, shares: Vec<ShareStatus>) {
        // A board that was written anew has lost runs that the desk may still have.
        let lost =
            self.copies(board.entry).into_iter().filter(|copy| shares.iter().all(|there| !there.is_same_run(copy)));
        let lost: Vec<(ShareStatus, bool)> = lost.map(|copy| (copy, true)).collect();
        board.shares = shares.iter().cloned().map(|share| (share, false)).chain(lost).collect();
        board.shares.retain(|(status, _)| self.is_of_this(&status.share));
        board.ordered = None;
    }

    fn note_lost(&self, board: &mut Board<'_>, failure: BoardFailure) {
        board.shares = self.copies(board.entry).into_iter().map(|copy| (copy, true)).collect();
        board.shares.retain(|(status, _)| self.is_of_this(&status.share));
        board.set_aside(failure);
    }

    /// The last generation that any board knows of, or the next one.
    fn choose_generation(&mut self, boards: &mut [Board<'_>]) {
        let known = boards.iter().flat_map(|board| &board.shares).map(|(status, _)| status.share.generation).max();
        self.whole.generation = known.unwrap_or(0) + u32::from(self.args.new || known.is_none());
        let generation = self.whole.generation;
        boards.iter_mut().for_each(|board| board.shares.retain(|(status, _)| status.share.generation == generation));
    }

    /// Gives orders until there is nothing left to order, or to follow; where the whole stands then.
    fn carry(&self, boards: &mut [Board<'a>]) -> Deal {
        thread::scope(|scope| {
            let (sender, answers): (Sender<(usize, Answer)>, Receiver<_>) = channel();
            loop {
                let said: Vec<BoardSaid> = boards.iter().map(Board::said).collect();
                let deal = deal(&self.whole, &said);
                for order in &deal.orders {
                    self.send(scope, &sender, boards, order);
                }
                for (index, board) in boards.iter_mut().enumerate().filter(|_| self.args.follow) {
                    if !board.is_busy && board.role == Role::Ready && board.is_at_work() {
                        board.is_busy = true;
                        self.speak(scope, &sender, index, board.entry, Task::Follow(board.run_at_work()));
                    }
                }
                if boards.iter().all(|board| !board.is_busy) {
                    return deal;
                }
                let (index, answer) = answers.recv().expect("one of those who speak is there");
                boards[index].is_busy = false;
                self.note(&mut boards[index], answer);
            }
        })
    }

    fn send<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        sender: &Sender<(usize, Answer)>,
        boards: &mut [Board<'a>],
        order: &Order,
    ) where
        'a: 'scope,
    {
        let board = &mut boards[order.board];
        if !board.is_busy {
            (board.is_busy, board.ordered) = (true, Some(order.share.clone()));
            self.speak(scope, sender, order.board, board.entry, Task::Begin(order.share.clone()));
        }
    }

    /// Speaks with a board in a thread of its own.
    fn speak<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        sender: &Sender<(usize, Answer)>,
        index: usize,
        entry: &'a BoardEntry,
        task: Task,
    ) where
        'a: 'scope,
    {
        let sender = sender.clone();
        let work = move || {
            let answer = self.converse(entry, &task);
            // The other end outlives everybody who speaks.
            let _ = sender.send((index, answer));
        };
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        builder.spawn_scoped(scope, work).expect("a thread can be started");
    }

    fn converse(&self, board: &BoardEntry, task: &Task) -> Answer {
        let run = match task {
            Task::Follow(run) => run.clone(),
            Task::Begin(share) => match self.begin(board, share) {
                Ok(run) => run,
                Err(failure) => return Answer::Unfit(failure),
            },
        };
        if !self.args.follow {
            return Answer::Begun;
        }
        if let Some(run) = run {
            attach::follow(self.desk, board, Some(run.as_str()), self.args.carry.allow_power_cycle);
        }
        match shares::ask(self.desk, board, &self.name) {
            Ok(shares) => Answer::Has(shares),
            Err(error) => Answer::Lost(BoardFailure::of(board, &error)),
        }
    }

    /// Has `board` begin its share, or go on with it; one that is just booting is waited for. The run, if it goes on.
    fn begin(&self, board: &BoardEntry, share: &Share) -> Result<Option<RunId>, BoardFailure> {
        let json = serde_json::to_string(share).expect("a share has string keys");
        if json.len() > SHARE_BYTES_MAX {
            let words = format!("{} cells are more than one command can name", share.rounds.len());
            return Err(BoardFailure::words(Exit::Usage, words, "--cell divides a part of the matrix"));
        }
        let began = Instant::now();
        let patience = self.desk.inventory.fleet.patience.to_duration();
        let file = self.args.carry.file();
        if self.args.carry.is_file() && push_matrix(board, &self.desk.ssh(board), file).is_err() {
            // It may have gone down meanwhile.
            self.ask_patiently(board, patience).map_err(|error| BoardFailure::of(board, &error))?;
            push_matrix(board, &self.desk.ssh(board), file)?;
        }
        loop {
            let tried = run::begin_share(self.desk, self.args, board, (share.blocks(), &json));
            match tried {
                Ok(run) => {
                    say(board, &told(share, run.as_ref()));
                    return Ok(run);
                }
                Err(SshError::Trouble(Trouble::Held(_))) if began.elapsed() < HELD_PATIENCE => {}
                Err(error) if is_passing(&error) && began.elapsed() < patience => {}
                Err(error) => return Err(BoardFailure::of(board, &error)),
            }
            thread::sleep(PAUSE);
        }
    }

    fn note(&self, board: &mut Board<'_>, answer: Answer) {
        let shares = match answer {
            Answer::Begun => return,
            Answer::Unfit(failure) => return board.set_aside(failure),
            Answer::Lost(failure) => return self.note_lost(board, failure),
            Answer::Has(shares) => shares,
        };
        self.note_shares(board, shares);
        let generation = self.whole.generation;
        board.shares.retain(|(status, _)| status.share.generation == generation);
        let open = board
            .shares
            .iter()
            .find(|(status, is_copy)| !is_copy && matches!(status.said().course, Course::Working | Course::Halted));
        match open {
            None => board.futile = 0,
            Some((status, _)) if status.is_paused() => {
                say(board.entry, "its share rests, and nobody else gets it: the same command again goes on with it");
                board.role = Role::Resting;
            }
            Some((status, _)) => {
                board.futile += 1;
                if board.futile > FUTILE_MAX {
                    let run = status.status.run.as_ref().map(ToString::to_string).unwrap_or_default();
                    let hint = format!("look there: jetfault status {run}, and detached.log of its directory");
                    board.set_aside(BoardFailure::words(Exit::Unfit, "its share does not go on", hint));
                }
            }
        }
    }

    /// Says where the whole stands; the exit code that this has.
    fn conclude(&self, boards: &[Board<'_>], deal: &Deal) -> Exit {
        let mut faults = 0;
        for board in boards.iter().filter(|board| !board.shares.is_empty()) {
            let own: u64 = board.shares.iter().map(|(status, _)| status.faults()).sum();
            let trials: u64 = board.shares.iter().map(|(status, _)| status.said().counted()).sum();
            faults += own;
            say(board.entry, &format!("{} counted, {}", counted(trials, "trial"), counted(own, "fault")));
        }
        let mut words = format!("in all: {} of {} counted", deal.counted, counted(deal.wanted, "trial"));
        if deal.pending > 0 {
            words.push_str(&format!("; {} expected of boards that have them", deal.pending));
        }
        if deal.waiting > 0 {
            words.push_str(&format!("; {} wait for a board that is at work", deal.waiting));
        }
        let _ = output::print(format!("{words}\n").as_bytes());
        let missing: u64 = deal.short.iter().map(|short| u64::from(short.missing)).sum();
        if missing > 0 {
            output::say(format_args!(
                "{} of {} stay without a board: none that is left may have them, or could do them",
                counted(missing, "trial"),
                counted(deal.short.len() as u64, "cell")
            ));
        }
        if !deal.is_complete() && deal.pending + deal.waiting > 0 {
            output::say("the same command again sets right what is missing then; with --follow it does so as it comes");
        }
        let found = if faults > 0 { Exit::FaultFound } else { Exit::Done };
        if deal.is_complete() {
            return found;
        }
        let failed = boards.iter().filter_map(|board| board.failure).fold(Exit::Undecided, worse);
        worse(found, if deal.pending + deal.waiting > 0 { Exit::Undecided } else { failed })
    }
}

/// What is said of a share that a board begins, or goes on with.
fn told(share: &Share, run: Option<&RunId>) -> String {
    let trials = counted(share.rounds.values().map(|rounds| u64::from(*rounds)).sum(), "trial");
    let cells = counted(share.rounds.len() as u64, "cell");
    match run {
        Some(run) => format!("{run} is its share {}: {trials} of {cells}", share.part),
        None => format!("its share {} is complete: {trials} of {cells}", share.part),
    }
}

fn is_passing(error: &SshError) -> bool {
    match error {
        SshError::Trouble(trouble) => trouble.is_passing(),
        SshError::Late(_) => true,
        SshError::Start { .. } | SshError::Nul(_) | SshError::Exchange(_) | SshError::Io(_) => false,
    }
}
