//! `fleet power-cycle`: the hook of each board, and proof that another boot answers.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::witness::{desk_name, hand_over};
use super::{BoardDone, BoardFailure, BoardOutcome, Desk};
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::model::ids::BootId;
use crate::model::inventory::BoardEntry;
use crate::model::observed::{CutStage, Cutter, Observed, PowerCut};
use crate::model::units::WallTime;
use crate::perform::host::{self, Command, Keep, Limit, TEXT_BYTES_MAX, ask};
use crate::perform::ssh::{Ssh, SshError};
use crate::perform::witness_file::WitnessFile;

/// How long a board may take to say in which boot it is.
const ASK_PATIENCE: Duration = Duration::from_secs(15);

/// Between two questions.
const PAUSE: Duration = Duration::from_secs(2);

/// `fleet power-cycle`.
pub(super) fn cycle(desk: &Desk, patience: Duration) -> Outcome {
    Ok(desk.each(|board| cycle_board(desk, &desk.ssh(board), board, patience)))
}

fn cycle_board(desk: &Desk, ssh: &Ssh, board: &BoardEntry, patience: Duration) -> BoardOutcome {
    if board.power_cycle.is_empty() {
        let hint = format!("power_cycle = [\"PROGRAM\", …] of board {} in the inventory", board.name);
        return Err(BoardFailure::words(Exit::Usage, "nothing here cuts its power", hint));
    }
    let before = boot_of(ssh);
    // One that cannot be cycled for its key is told before its power is cut.
    if let Err(error @ SshError::Trouble(trouble)) = &before
        && !trouble.is_passing()
    {
        return Err(BoardFailure::of(board, error));
    }
    let before = before.ok();
    let cut = Cut::by_hand(desk, board, before.clone());
    if before.is_some() {
        // Said while somebody is there to write it down: the next boot knows why this one ended.
        cut.tell(ssh, CutStage::Announced);
    }
    if let Err(failure) = cut_power(board) {
        cut.tell(ssh, CutStage::Failed);
        return Err(failure);
    }
    let began = Instant::now();
    let mut last = None;
    while began.elapsed() < patience {
        match (boot_of(ssh), &before) {
            // The old boot may answer for a while: nothing is proven by an answer.
            (Ok(boot), Some(before)) if boot == *before => last = Some(format!("it still is in boot {boot}")),
            (Ok(boot), Some(before)) => {
                cut.tell(ssh, CutStage::Done);
                let words = format!(
                    "power cycled: boot {before} is over, {boot} answers after {} s",
                    began.elapsed().as_secs()
                );
                return Ok(BoardDone { exit: Exit::Done, words });
            }
            (Ok(boot), None) => {
                cut.tell(ssh, CutStage::Done);
                let words = format!(
                    "power cycled: boot {boot} answers; that it is a new one is not proven, since the board was \
                     unreachable before"
                );
                return Ok(BoardDone { exit: Exit::Done, words });
            }
            (Err(error), _) => last = Some(error.to_string()),
        }
        thread::sleep(PAUSE);
    }
    let last = last.unwrap_or_else(|| "it was not asked".to_owned());
    let words = format!("no new boot within {} s of its hook: {last}", patience.as_secs());
    Err(BoardFailure::words(Exit::Unfit, words, "does the hook cut the power of this board?"))
}

pub(super) fn cut_power(board: &BoardEntry) -> Result<(), BoardFailure> {
    let argv: Vec<&str> = board.power_cycle.iter().map(String::as_str).collect();
    let limit = Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start };
    let patience = Duration::from_millis(board.power_timeout.ms());
    let what = format!("the hook `{}`", argv.join(" "));
    let hint = "nothing is known of its power";
    match ask(&Command { file: "power-cycle", argv: &argv, patience, limit }) {
        Ok(answer) if answer.status.success() => Ok(()),
        Ok(answer) => {
            let said = answer.complaint.lines().next().unwrap_or("it said nothing").to_owned();
            Err(BoardFailure::words(Exit::Unfit, format!("{what} failed: {said} ({})", answer.status), hint))
        }
        Err(error) => Err(BoardFailure::words(Exit::Unfit, format!("{what} failed: {error}"), hint)),
    }
}

/// A power cycle that a person asked for: what it ended is no fault of the board.
struct Cut<'a> {
    board: &'a BoardEntry,
    witness: String,
    wall: WallTime,
    /// The boot that it ends: the one that answered, else the one that was last followed from here.
    boot: Option<BootId>,
    /// Whether that answered.
    was_up: bool,
}

impl<'a> Cut<'a> {
    fn by_hand(desk: &Desk, board: &'a BoardEntry, before: Option<BootId>) -> Self {
        let (witness, wall, was_up) = (desk_name(), host::now().wall, before.is_some());
        let boot = before.or_else(|| WitnessFile::last_boot(&desk.results_of(board)));
        Self { board, witness, wall, boot, was_up }
    }

    /// Has the board keep it. One without runs has nothing to keep it for, and whoever cut the power has to know of
    /// neither.
    fn tell(&self, ssh: &Ssh, stage: CutStage) {
        let what = if self.was_up { "it answered before" } else { "it did not answer before" };
        let power = Some(PowerCut { by: Cutter::Person, stage, wall: self.wall });
        let observed = Observed { boot: self.boot.clone(), power, ..Observed::new(self.witness.clone(), what) };
        if let Err(error) = hand_over(ssh, self.board, None, &observed) {
            tracing::info!("{}: it does not keep who cut its power: {error}", self.board.name);
        }
    }
}

/// The boot in which the board is.
fn boot_of(ssh: &Ssh) -> Result<BootId, SshError> {
    let said = ssh.ask(&["cat", "/proc/sys/kernel/random/boot_id"], io::empty(), ASK_PATIENCE)?.ended_with(&[0])?;
    let text = String::from_utf8_lossy(&said.out).into_owned();
    let boot = text.lines().last().unwrap_or_default().parse::<BootId>();
    boot.map_err(|error| SshError::Exchange(error.to_string()))
}
