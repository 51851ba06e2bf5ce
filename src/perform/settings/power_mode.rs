//! The power mode, by nvpmodel.
//!
//! The tool is asked only between trials: polling it makes a board stutter. It is never asked to set the mode that is
//! active: on JetPack 7.2 it asks for a reboot even then.

use std::time::Duration;

use super::tools::said;
use super::{Reach, Setting, SettingError};
use crate::model::evidence::Fact;
use crate::model::matrix::Tool;
use crate::model::power_mode::{PowerMode as Mode, SwitchAnswer};

/// How long nvpmodel may take; a switch puts CPUs on and off line.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct PowerMode<'a>(pub(super) Reach<'a>);

impl PowerMode<'_> {
    fn active(&self) -> Result<Mode, SettingError> {
        let answer = self.0.tools.run(Tool::Nvpmodel, &["-q"], PATIENCE)?;
        let words = said(&answer);
        Mode::from_query(&words).ok_or_else(|| {
            let words = format!("its answer to -q makes no sense: {:?}", words.chars().take(200).collect::<String>());
            SettingError::Refused { tool: Tool::Nvpmodel, words }
        })
    }
}

/// What came of a switch that takes a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switched {
    /// nvpmodel reboots the machine.
    Rebooting,
    /// It needed no reboot after all.
    AtOnce,
}

/// Has nvpmodel switch to `level` by a reboot that it makes itself: after its question was confirmed, another kind of
/// reboot would not do (JetPack 7.2 on Orin).
pub(super) fn switch_by_reboot(reach: Reach<'_>, level: &str) -> Result<Switched, SettingError> {
    let mode: Mode = level.parse().map_err(|error| SettingError::Impossible(format!("power mode: {error}")))?;
    let answer = reach.tools.run_with(Tool::Nvpmodel, &["-m", &mode.id.to_string()], PATIENCE, "YES\n")?;
    match SwitchAnswer::of(&said(&answer), answer.status.success()) {
        SwitchAnswer::NeedsReboot if answer.status.success() => Ok(Switched::Rebooting),
        SwitchAnswer::Accepted => Ok(Switched::AtOnce),
        SwitchAnswer::NeedsReboot => {
            let words = format!("it was told to reboot for {mode}, and failed ({})", answer.status);
            Err(SettingError::Refused { tool: Tool::Nvpmodel, words })
        }
        SwitchAnswer::Refused(words) => Err(SettingError::Refused { tool: Tool::Nvpmodel, words }),
    }
}

impl Setting for PowerMode<'_> {
    fn read(&self) -> Fact<String> {
        match self.active() {
            Ok(mode) => Fact::Known(mode.to_string()),
            Err(SettingError::NoTool(_)) => Fact::Absent,
            Err(error) => Fact::Denied(error.to_string()),
        }
    }

    fn set(&self, level: &str) -> Result<(), SettingError> {
        let mode: Mode = level.parse().map_err(|error| SettingError::Impossible(format!("power mode: {error}")))?;
        if self.active()?.name == mode.name {
            return Ok(());
        }
        let answer = self.0.tools.run(Tool::Nvpmodel, &["-m", &mode.id.to_string()], PATIENCE)?;
        match SwitchAnswer::of(&said(&answer), answer.status.success()) {
            SwitchAnswer::Accepted => Ok(()),
            SwitchAnswer::NeedsReboot => Err(SettingError::Refused {
                tool: Tool::Nvpmodel,
                words: format!("{mode} needs a reboot, though its masks are those of the active mode"),
            }),
            SwitchAnswer::Refused(words) => Err(SettingError::Refused { tool: Tool::Nvpmodel, words }),
        }
    }

    fn put_back(&self, value: &str) -> Result<(), SettingError> {
        self.set(value)
    }

    fn cannot(&self, _level: &str) -> Option<String> {
        let found = self.0.tools.find(Tool::Nvpmodel).err().map(|error| error.to_string());
        found.or_else(|| if self.0.tools.is_replaced(Tool::Nvpmodel) { None } else { self.0.lacks_root() })
    }
}
