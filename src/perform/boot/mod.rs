//! Boots: the unit that carries a run on after one, what a trial waits for in a fresh one, and how one is ended.
//!
//! Owns everything that is installed on a machine, and its removal. That a reboot is declared before it is asked for is
//! the runner's business.

mod conduct;
mod detach;
mod reboot;
mod unit;

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::board::{BOARD_FILE, Board, parse_board};
use crate::model::evidence::Fact;
use crate::perform::files::write_replaceably;
use crate::perform::host::Sysroot;

pub use conduct::{AtBoot, hold_of, is_switched_off, release};
pub use detach::{DETACH_SUBCOMMAND, DetachError, Detached, last_words, leave};
pub use reboot::Rebooter;
pub use unit::{Unit, UnitDir, UnitError};

/// The word on the kernel's command line by which nothing of ours starts in a boot.
pub const KERNEL_WORD: &str = "jetfault.off";

/// What is said of the board under `sysroot`; without a file, what suits a board with systemd.
///
/// # Errors
/// In words, if the file cannot be read or makes no sense.
pub fn board(sysroot: &Sysroot) -> Result<Board, String> {
    let at = |why: String| format!("{}: {why}", sysroot.place(BOARD_FILE).display());
    match sysroot.text(BOARD_FILE) {
        Fact::Known(text) => parse_board(&text).map_err(at),
        Fact::Absent => Ok(Board::default()),
        Fact::Denied(why) | Fact::Garbled(why) => Err(at(why)),
    }
}

/// What the boot service could not do, kept where it outlives neither the boot nor a full disk: in `/run`.
#[derive(Debug, Clone)]
pub struct Trouble {
    places: Vec<PathBuf>,
}

impl Trouble {
    /// In the first of `dirs` that can be written.
    pub fn new(dirs: &[PathBuf]) -> Self {
        Self { places: dirs.iter().map(|dir| dir.join("jetfault.trouble")).collect() }
    }

    /// Keeps `words` about the run in `run`.
    pub fn keep(&self, run: &Path, words: &str) {
        let text = format!("{}\n{words}\n", run.display());
        // The journal of the system has the words as well.
        let _ = self.places.iter().any(|place| write_replaceably(place, text.as_bytes()).is_ok());
    }

    /// What was kept about the run in `run`.
    pub fn of(&self, run: &Path) -> Option<String> {
        let text = self.places.iter().find_map(|place| fs::read_to_string(place).ok())?;
        let (whose, words) = text.split_once('\n')?;
        (Path::new(whose) == run).then(|| words.trim_end().to_owned())
    }

    /// Forgets it.
    pub fn clear(&self) {
        for place in &self.places {
            // One that is not there is as good.
            let _ = fs::remove_file(place);
        }
    }
}

#[cfg(test)]
mod tests;
