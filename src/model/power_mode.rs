//! Power modes of nvpmodel: which a board has, which is active, and whether a switch needs a reboot.
//!
//! Owns the meaning of nvpmodel's files and answers. It runs nothing: text comes in, values go out.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod conf;

pub use conf::{ConfError, parse_conf};

/// A power mode of nvpmodel. The same id is another mode on another board, so modes are compared by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerMode {
    /// Such as `MAXN_SUPER`.
    pub name: String,
    /// Such as 2.
    pub id: u32,
}

impl PowerMode {
    /// From the output of `nvpmodel -q`: a line with the name, then one with the id alone; complaints (`NVPM …`) stand
    /// before, after or between, and the exit code says nothing.
    pub fn from_query(output: &str) -> Option<Self> {
        let mut lines = output.lines();
        let name = lines.find_map(|line| line.trim().strip_prefix("NV Power Mode:"))?.trim();
        let id = lines.find_map(|line| line.trim().parse().ok())?;
        Some(Self { name: name.to_owned(), id })
    }

    /// From `/var/lib/nvpmodel/status`, such as `pmode:0002 fmode:quiet`, and `/etc/nvpmodel.conf`, which names the ids:
    /// the mode in which the next boot comes up.
    pub fn from_status(status: &str, conf: &str) -> Option<Self> {
        let id: u32 = status.split_whitespace().find_map(|word| word.strip_prefix("pmode:"))?.parse().ok()?;
        parse_conf(conf).ok()?.iter().find(|mode| mode.id == id).cloned()
    }
}

/// What came of `nvpmodel -m ID` with nobody to answer its question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchAnswer {
    /// Nothing was said against it.
    Accepted,
    /// It would have to reboot the board, and did nothing.
    NeedsReboot,
    /// It failed; the tool's last words.
    Refused(String),
}

impl SwitchAnswer {
    /// From both streams of the tool together, and whether its exit status was 0.
    pub fn of(output: &str, succeeded: bool) -> Self {
        if output.contains("Reboot required for changing to this power mode") {
            return Self::NeedsReboot;
        }
        if succeeded {
            return Self::Accepted;
        }
        let words = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Self::Refused(words.trim().chars().take(200).collect())
    }
}

impl fmt::Display for PowerMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

/// A text that is no `NAME (ID)`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form NAME (ID)")]
pub struct NotAMode(pub String);

impl FromStr for PowerMode {
    type Err = NotAMode;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
        let mode = parts.and_then(|(name, id)| Some(Self { name: name.to_owned(), id: id.parse().ok()? }));
        mode.ok_or_else(|| NotAMode(text.to_owned()))
    }
}

/// A mode that a board does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("power mode {asked:?} is none of this board's: {}", known.join(", "))]
pub struct UnknownMode {
    /// What was asked for.
    pub asked: String,
    /// Every mode of the board, as `NAME (ID)`.
    pub known: Vec<String>,
}

/// The power modes of a board: its `/etc/nvpmodel.conf`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PowerModes {
    modes: Vec<Defined>,
    default: Option<u32>,
}

/// A mode and the part of its definition that decides how it can be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Defined {
    mode: PowerMode,
    /// The masks that switch units of the GPU off, by parameter and argument.
    masks: BTreeMap<String, String>,
}

impl PowerModes {
    /// The modes, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &PowerMode> {
        self.modes.iter().map(|defined| &defined.mode)
    }

    /// The mode of a board on which nobody chose one.
    pub fn default_mode(&self) -> Option<&PowerMode> {
        self.iter().find(|mode| Some(mode.id) == self.default)
    }

    /// The mode that a matrix means by `asked`: a name, else an id.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, asked: &str) -> Result<&PowerMode, UnknownMode> {
        let by_name = self.iter().find(|mode| mode.name == asked);
        let by_id = || asked.parse().ok().and_then(|id: u32| self.iter().find(|mode| mode.id == id));
        by_name.or_else(by_id).ok_or_else(|| UnknownMode {
            asked: asked.to_owned(),
            known: self.iter().map(PowerMode::to_string).collect(),
        })
    }

    /// Whether the board must be rebooted to get from mode `from` into mode `to`.
    ///
    /// It must if a mask of units that are switched off differs: once the GPU was initialised in a boot, nvgpu refuses
    /// another mask with `EBUSY` and accepts an equal one (`tpc_pg_mask_store` in its sysfs code); the module of Thor
    /// reads its mask when it is loaded. A mask that `to` does not name stays as it is. One that only `to` names may
    /// differ from what is in force, and so may everything about a mode that the file does not define.
    pub fn needs_reboot(&self, from: &PowerMode, to: &PowerMode) -> bool {
        if from.name == to.name {
            return false;
        }
        match (self.defined(from), self.defined(to)) {
            (Some(from), Some(to)) => {
                to.masks.iter().any(|(name, mask)| from.masks.get(name).is_none_or(|other| !same_number(mask, other)))
            }
            (None, _) | (_, None) => true,
        }
    }

    fn defined(&self, mode: &PowerMode) -> Option<&Defined> {
        self.modes.iter().find(|defined| defined.mode.name == mode.name)
    }
}

/// Whether two masks are equal, however they are written: decimal or hexadecimal.
fn same_number(one: &str, other: &str) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => one == other,
    }
}

#[cfg(test)]
mod tests;
