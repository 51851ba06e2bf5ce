//! What the desk keeps of a board that it follows, and what it does about it: written beside the pulled runs, handed to
//! the board after each boot, and, where the command line allows it, a board that hangs is power-cycled.

use std::env;
use std::fs;
use std::io::Cursor;
use std::time::{Duration, Instant};

use super::power::cut_power;
use super::{BoardFailure, Desk, harness, say, tell, words};
use crate::decide::fleet::{Contact, Entry, Saw, Trouble, Witness};
use crate::model::frame::Frame;
use crate::model::inventory::BoardEntry;
use crate::model::observed::{CutStage, Cutter, Observed, PowerCut, Reach, bounded_line};
use crate::perform::host;
use crate::perform::reach::Pinger;
use crate::perform::serial::Serial;
use crate::perform::ssh::{Ssh, SshError};
use crate::perform::witness_file::WitnessFile;

/// How long a board may take to keep an observation.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(20);

/// Between two attempts at that.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(15);

/// How often it is written that a board which goes on speaking was heard.
const HEARD_PERIOD: Duration = Duration::from_secs(60);

/// Lines of the console that are kept before it is known which run is followed.
const EARLY_LINES_MAX: usize = 200;

/// Who sees: the user and the machine.
pub(super) fn desk_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "a desk",
        host => host,
    };
    let user = env::var("USER").ok().filter(|user| !user.is_empty());
    bounded_line(&user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}")))
}

/// Has the board keep `observed` for the journal of `run`, or of its latest.
pub(super) fn hand_over(ssh: &Ssh, board: &BoardEntry, run: Option<&str>, observed: &Observed) -> Result<(), SshError> {
    let mut argv = harness(board);
    argv.push("observe".to_owned());
    argv.extend(run.map(str::to_owned));
    let json = serde_json::to_vec(observed).expect("an observation has string keys");
    ssh.ask(&words(&argv), Cursor::new(json), HAND_OVER_PATIENCE)?.ended_with(&[0]).map(drop)
}

/// The witness of one board.
pub(super) struct Keeper<'a> {
    desk: &'a Desk,
    board: &'a BoardEntry,
    name: String,
    run: Option<String>,
    file: Option<WitnessFile>,
    seen: Witness,
    serial: Option<Serial>,
    /// What the console said before it was known which run is followed.
    early: Vec<Entry>,
    pinger: Pinger,
    may_cut: bool,
    /// When it was last written that the board was heard, and with what open.
    noted: Option<(Instant, Option<String>)>,
    /// When an observation was last offered to the board in vain.
    offered: Option<Instant>,
    /// Whether it was said that nothing can be written.
    is_mute: bool,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(desk: &'a Desk, board: &'a BoardEntry, run: Option<&str>, may_cut: bool) -> Self {
        let name = desk_name();
        let serial = (!board.serial.is_empty()).then(|| Serial::new(&board.serial));
        let mut keeper = Self {
            desk,
            board,
            seen: Witness::new(name.clone()),
            name,
            run: None,
            file: None,
            serial,
            early: Vec::new(),
            pinger: Pinger::new(desk.ssh.clone(), board),
            may_cut,
            noted: None,
            offered: None,
            is_mute: false,
        };
        // A desk that is begun again while the board is silent goes on with what it knew.
        let last = run.map(str::to_owned).or_else(|| WitnessFile::last_run(&desk.results_of(board)));
        if let Some(run) = last.filter(|run| run.parse::<crate::model::ids::RunId>().is_ok()) {
            keeper.open(&run);
        }
        keeper
    }

    /// What the desk is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The board spoke.
    pub(super) fn heard(&mut self, frame: &Frame) {
        if self.run.as_deref() != Some(frame.run.as_str()) {
            self.open(frame.run.as_str());
        }
        let is_new = self.seen.boot() != Some(&frame.boot);
        let is_due = |(noted, open): &(Instant, Option<String>)| noted.elapsed() > HEARD_PERIOD || *open != frame.open;
        if is_new || self.noted.as_ref().is_none_or(is_due) {
            self.noted = Some((Instant::now(), frame.open.clone()));
            let (boot, open, limit_ms) = (frame.boot.clone(), frame.open.clone(), frame.limit_ms);
            self.note(Saw::Heard { boot, open, limit_ms });
        }
        self.seen.beat(host::now().wall);
        if !frame.kernel.is_empty() {
            self.note(Saw::Kernel { lines: frame.kernel.iter().map(|line| bounded_line(line)).collect() });
        }
        if let Some(why) = &frame.kernel_trouble {
            say(self.board, &format!("lines of its kernel do not come: {why}"));
            self.note(Saw::NoKernel { why: bounded_line(why) });
        }
        self.hand_over();
    }

    /// Nothing is heard any more.
    pub(super) fn lost(&mut self, why: &Trouble) {
        if let Some(heard) = self.seen.heard() {
            self.note(Saw::Lost { heard, why: bounded_line(&why.to_string()) });
        }
        self.noted = None;
    }

    /// A call failed, which tells what the board does about the network.
    pub(super) fn refused(&mut self, why: &Trouble) {
        let Trouble::Unreachable(words) = why else { return };
        let reach = if words.contains("refused") { Reach::RefusesSsh } else { Reach::Silent };
        // Ping tells more than silence does.
        let is_better = !matches!(self.seen.reach(), Some(Reach::AnswersPing | Reach::NoPing));
        if is_better || reach == Reach::RefusesSsh {
            self.reached(reach);
        }
    }

    /// Time passes: what the console printed is kept, and a board that is lost is looked after.
    pub(super) fn tick(&mut self, contact: &mut Contact) {
        self.listen_to_serial();
        if contact.is_up() {
            self.hand_over();
            return;
        }
        self.pinger.ask();
        if let Some(reach) = self.pinger.poll() {
            self.reached(reach);
        }
        self.look_for_a_hang(contact);
    }

    fn reached(&mut self, reach: Reach) {
        if self.seen.reach() != Some(reach) {
            self.note(Saw::Reached { reach });
        }
    }

    fn listen_to_serial(&mut self) {
        let Some(serial) = &mut self.serial else { return };
        let printed = serial.poll();
        for line in printed.lines {
            self.note(Saw::Serial { line });
        }
        if let Some(how) = printed.ended {
            self.note(Saw::SerialEnded { how: bounded_line(&how) });
        }
    }

    /// Cuts the power of a board that hangs, if that is allowed.
    fn look_for_a_hang(&mut self, contact: &mut Contact) {
        if !self.may_cut || self.board.power_cycle.is_empty() {
            return;
        }
        let margin_ms = self.board.hang_after.ms();
        if let Some(limit_ms) = self.seen.hang_limit_ms(margin_ms) {
            // It is waited for until it hangs, and then until it is up again.
            contact.have_patience(limit_ms.saturating_add(self.desk.inventory.fleet.patience.ms()));
        }
        let now = host::now().wall;
        let Some(silent_ms) = self.seen.hung_ms(now, margin_ms) else { return };
        let open = self.seen.open().unwrap_or("a trial").to_owned();
        say(self.board, &format!("hangs: silent for {} s with {open} open; its power is cycled", silent_ms / 1000));
        let stage = match cut_power(self.board) {
            Ok(()) => CutStage::Done,
            Err(failure) => {
                tell(self.board, &Err(failure));
                CutStage::Failed
            }
        };
        self.note(Saw::Cut { power: PowerCut { by: Cutter::Hang, stage, wall: now } });
    }

    /// Gives the board what it does not know yet.
    fn hand_over(&mut self) {
        if self.offered.is_some_and(|offered| offered.elapsed() < HAND_OVER_PAUSE) {
            return;
        }
        let ssh = self.desk.ssh(self.board);
        for observed in self.seen.pending().to_vec() {
            match hand_over(&ssh, self.board, self.run.as_deref(), &observed) {
                Ok(()) => {
                    self.offered = None;
                    say(self.board, &format!("it was told what was seen: {}", observed.in_words()));
                    self.note(Saw::HandedOver { id: observed.id() });
                }
                Err(error) => {
                    self.offered = Some(Instant::now());
                    let failure = BoardFailure::of(self.board, &error);
                    say(self.board, &format!("what was seen of it is kept here: {}", failure.words));
                    return;
                }
            }
        }
    }

    fn open(&mut self, run: &str) {
        self.file = None;
        self.seen = Witness::new(self.name.clone());
        self.run = Some(run.to_owned());
        match WitnessFile::open(&self.desk.results_of(self.board), run, &mut self.seen) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.cannot_write(&error.to_string()),
        }
        for entry in std::mem::take(&mut self.early) {
            self.put(&entry);
        }
    }

    fn note(&mut self, saw: Saw) {
        let entry = Entry { wall: host::now().wall, saw };
        if self.run.is_some() {
            self.put(&entry);
        } else if self.early.len() < EARLY_LINES_MAX {
            self.early.push(entry);
        }
    }

    fn put(&mut self, entry: &Entry) {
        self.seen.apply(entry);
        if let Some(Err(error)) = self.file.as_mut().map(|file| file.add(entry)) {
            self.cannot_write(&error.to_string());
        }
    }

    fn cannot_write(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_mute, true) {
            say(self.board, &format!("what is seen of it is not kept on this desk: {why}"));
        }
    }
}
