//! Power modes of nvpmodel: which a board has, which is active, and whether a switch needs a reboot.
//!
//! Owns the meaning of nvpmodel's files and answers. It runs nothing: text comes in, values go out.
//!
//! A mode is known by its name. An id alone says little: 0 is `15W` on an Orin Nano and `MAXN` on an AGX Orin.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

mod answer;
mod conf;

pub use answer::{SwitchAnswer, parse_query, parse_status, parse_switch};
pub use conf::{ConfError, parse_conf};

/// A power mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerMode {
    /// The name that nvpmodel prints.
    pub name: String,
    /// The number that `nvpmodel -m` takes.
    pub id: u32,
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
