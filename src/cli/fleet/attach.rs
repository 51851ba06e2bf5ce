//! `fleet attach`: follows the runs of all boards, over reboots and lost connections.
//!
//! Everything that is told comes from the boards, or is what the desk perceives of them now: it may be ended and begun
//! again at any time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::run::exit_of;
use super::witness::Keeper;
use super::{BoardFailure, Desk, harness, say, tell, words, worse};
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::decide::fleet::{Contact, Note, Sign, Trouble, Turn};
use crate::model::frame::{FollowEnd, Frame};
use crate::model::inventory::BoardEntry;
use crate::perform::ssh::{Heard, Listening, SshError};

/// How often the desk looks at the time.
const TICK: Duration = Duration::from_millis(500);

/// How long a board may take to end a following that is over.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// `fleet attach [RUN]`.
pub(super) fn attach(desk: &Desk, run: Option<&str>, may_cut: bool) -> Outcome {
    let exits = desk.ask_all(desk.boards.len(), |board| follow(desk, board, run, may_cut));
    Ok(exits.into_iter().fold(Exit::Done, worse))
}

/// Follows the run of `board` until it ends or rests, or the board is set aside. If `may_cut`, the power of a board that
/// hangs is cut.
pub(super) fn follow(desk: &Desk, board: &BoardEntry, run: Option<&str>, may_cut: bool) -> Exit {
    let keeper = Keeper::new(desk, board, run, may_cut);
    Follow { desk, board, began: Instant::now(), keeper }.follow(run)
}

/// The following of one board.
struct Follow<'a> {
    desk: &'a Desk,
    board: &'a BoardEntry,
    began: Instant,
    keeper: Keeper<'a>,
}

impl Follow<'_> {
    fn follow(mut self, run: Option<&str>) -> Exit {
        let mut run = run.map(str::to_owned);
        let mut contact = Contact::new(0, self.desk.inventory.fleet.patience.ms());
        loop {
            let turn = match self.call(run.as_deref(), contact.seq()) {
                Ok(mut listening) => match self.listen(&mut listening, &mut contact, &mut run) {
                    Ok(exit) => return exit,
                    Err(turn) => turn,
                },
                Err(error) => {
                    tell(self.board, &Err(BoardFailure::of(self.board, &error)));
                    return Exit::Unfit;
                }
            };
            match turn {
                Turn::Call { pause_ms } => self.pause(Duration::from_millis(pause_ms), &mut contact),
                Turn::Listen => {}
                Turn::End => return Exit::Unfit,
            }
        }
    }

    /// Waits, and looks after the board meanwhile.
    fn pause(&mut self, pause: Duration, contact: &mut Contact) {
        let until = Instant::now() + pause;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.keeper.tick(contact);
            std::thread::sleep(left.min(TICK));
        }
    }

    fn call(&self, run: Option<&str>, after: u64) -> Result<Listening, SshError> {
        let mut argv = harness(self.board);
        argv.extend(
            ["attach", "--frames", "--witness", self.keeper.name(), "--after", &after.to_string()].map(str::to_owned),
        );
        argv.extend(run.map(str::to_owned));
        self.desk.ssh(self.board).listen(&words(&argv))
    }

    /// Listens until the connection ends; the exit code of the run if it ended with it, else what is to be done.
    fn listen(
        &mut self,
        listening: &mut Listening,
        contact: &mut Contact,
        run: &mut Option<String>,
    ) -> Result<Exit, Turn> {
        loop {
            self.keeper.tick(contact);
            let sign = match listening.next(TICK) {
                Heard::Nothing => Sign::Tick,
                Heard::Ended { code, err } => Sign::Ended(Trouble::of(code, &err)),
                Heard::Line(line) => {
                    let Some(frame) = Frame::of_line(&line) else { continue };
                    let end = frame.end;
                    // After a lost connection it is this run that is followed, whatever began meanwhile.
                    *run = Some(frame.run.to_string());
                    let heard = frame.clone();
                    let desk_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                    let sign = Sign::Frame(Box::new(frame), i64::try_from(desk_s).unwrap_or(i64::MAX));
                    self.perceive(contact, sign);
                    self.keeper.heard(&heard);
                    if let Some(end) = end {
                        return Ok(self.end(listening, end));
                    }
                    continue;
                }
            };
            match self.perceive(contact, sign) {
                Turn::Listen => {}
                turn => return Err(turn),
            }
        }
    }

    /// Takes note of `sign`, and tells what is to be told.
    fn perceive(&mut self, contact: &mut Contact, sign: Sign) -> Turn {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Sign::Ended(why) = &sign
            && !contact.is_up()
        {
            self.keeper.refused(why);
        }
        let (notes, turn) = contact.next(sign, now_ms);
        for note in &notes {
            self.tell(note);
            if let Note::Lost { why, .. } = note {
                self.keeper.lost(why);
            }
        }
        turn
    }

    /// The run is followed to its end; the code comes with the end of the command.
    fn end(&self, listening: &mut Listening, end: FollowEnd) -> Exit {
        let until = Instant::now() + END_PATIENCE;
        let code = loop {
            match listening.next(TICK) {
                Heard::Ended { code, .. } => break code,
                Heard::Line(_) | Heard::Nothing if Instant::now() < until => {}
                Heard::Line(_) | Heard::Nothing => break None,
            }
        };
        let hint = "`jetfault fleet run` of its matrix goes on";
        match end {
            FollowEnd::Closed => {}
            FollowEnd::Paused => say(self.board, &format!("its run rests; {hint}")),
            // Why, it said itself.
            FollowEnd::Deserted => say(self.board, hint),
        }
        exit_of(code)
    }

    fn tell(&self, note: &Note) {
        let seconds = |ms: &u64| ms / 1000;
        let words = match note {
            Note::Reached { boot } => format!("connected, in boot {boot}"),
            Note::Lost { why, open } => {
                let open = open.as_ref().map(|open| format!("; open was {open}")).unwrap_or_default();
                format!("connection lost: {why}{open}")
            }
            Note::Back { unreachable_ms } => {
                format!("connected again after {} s, in the same boot: no reboot", seconds(unreachable_ms))
            }
            Note::Rebooted { from, to, unreachable_ms } => {
                format!("rebooted: boot {from} is over, {to} answers; unreachable for {} s", seconds(unreachable_ms))
            }
            Note::Said(words) => words.clone(),
            Note::Clock { ahead_s } => {
                let days = ahead_s.unsigned_abs() / (24 * 3600);
                let which = if *ahead_s < 0 { "behind" } else { "ahead of" };
                format!(
                    "its clock is {days} days {which} this one: dates are wrong there, and nothing else rests on them"
                )
            }
            Note::AnotherRun => {
                "its journal is shorter than it was: another run under the same id; was the board reflashed?".to_owned()
            }
            Note::SetAside(trouble) => {
                tell(self.board, &Err(BoardFailure::of_trouble(self.board, trouble)));
                return;
            }
        };
        say(self.board, &words);
    }
}
