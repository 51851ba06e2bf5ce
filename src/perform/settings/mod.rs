//! Settings of the machine that a run changes: each is read, set, read back, and put back.
//!
//! Owns how a setting is reached: by nvpmodel, jetson_clocks, swapon and swapoff, or an attribute of the kernel. What is
//! changed when is decided in [`crate::decide::arrange`], and the journal knows of every change before it is made.

mod clocks;
mod gpu_pm;
mod page_cache;
mod power_mode;
mod swap;
mod tools;

use std::io;
use std::path::Path;

use crate::decide::arrange::{Asked, asked, fulfils, is_original};
use crate::model::evidence::Fact;
use crate::model::ids::BootId;
use crate::model::machine_setting::MachineSetting;
use crate::model::matrix::Tool;
use crate::model::power_mode::{PowerModes, parse_conf};
use crate::model::settings::Settings;
use crate::perform::gpu_health::NVGPU_DEVICES;
use crate::perform::host::Sysroot;

pub use page_cache::{FilledCache, drop_page_cache, fill_page_cache, page_cache};
pub use power_mode::Switched;
pub use tools::Tools;

use self::clocks::Clocks;
use self::gpu_pm::GpuPm;
use self::power_mode::PowerMode;
use self::swap::Swap;

/// Where nvpmodel's modes are defined.
const NVPMODEL_CONF: &str = "etc/nvpmodel.conf";

/// A setting that could not be made as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A program of the machine is not there, or may not be used.
    #[error("{0}")]
    NoTool(String),
    /// A program of the machine failed, or said no.
    #[error("{tool}: {words}")]
    Refused {
        /// The program.
        tool: Tool,
        /// Its words.
        words: String,
    },
    /// An attribute cannot be written.
    #[error("cannot write {text:?} to {path}: {source}")]
    Write {
        /// Its path under the root.
        path: String,
        /// What was written.
        text: String,
        /// The system's words.
        source: io::Error,
    },
    /// It was set, and reads otherwise.
    #[error("{setting} was set to {wanted} and is {reading}")]
    NotInForce {
        /// Which.
        setting: MachineSetting,
        /// What was asked for.
        wanted: String,
        /// What it is.
        reading: String,
    },
    /// It cannot be as asked on this machine.
    #[error("{0}")]
    Impossible(String),
}

/// One setting of a machine.
trait Setting {
    /// What it is.
    fn read(&self) -> Fact<String>;

    /// Makes it as `level` asks; what came of it is read back.
    fn set(&self, level: &str) -> Result<(), SettingError>;

    /// Makes it as it was when it read `value`.
    fn put_back(&self, value: &str) -> Result<(), SettingError>;

    /// Why it cannot be set to `level` on this machine, as far as that is known before anything is tried.
    fn cannot(&self, level: &str) -> Option<String>;
}

/// What settings are reached with.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// The machine.
    pub sysroot: &'a Sysroot,
    /// Its programs.
    pub tools: &'a Tools,
    /// A directory for what must be kept to put a setting back.
    pub keep: &'a Path,
    /// The boot that is up.
    pub boot: &'a BootId,
}

impl<'a> Reach<'a> {
    fn setting(self, setting: MachineSetting) -> Box<dyn Setting + 'a> {
        match setting {
            MachineSetting::PowerMode => Box::new(PowerMode(self)),
            MachineSetting::Swap => Box::new(Swap(self)),
            MachineSetting::GpuPm => Box::new(GpuPm(self)),
            MachineSetting::Clocks => Box::new(Clocks(self)),
        }
    }

    /// What `setting` is.
    pub fn read(self, setting: MachineSetting) -> Fact<String> {
        self.setting(setting).read()
    }

    /// Makes `setting` as `level` asks, and reads it back.
    ///
    /// # Errors
    /// If it cannot be set, or reads otherwise afterwards.
    pub fn set(self, setting: MachineSetting, level: &str) -> Result<(), SettingError> {
        self.setting(setting).set(level)?;
        self.check(setting, level, |reading| fulfils(setting, level, reading))
    }

    /// Makes `setting` as it was when it read `value`, unless it is so already, and reads it back.
    ///
    /// # Errors
    /// If it cannot be set, or reads otherwise afterwards.
    pub fn put_back(self, setting: MachineSetting, value: &str) -> Result<(), SettingError> {
        let control = self.setting(setting);
        if control.read().known().is_some_and(|reading| is_original(setting, value, reading)) {
            return Ok(());
        }
        control.put_back(value)?;
        self.check(setting, value, |reading| is_original(setting, value, reading))
    }

    /// Switches the power mode to `level` by a reboot of nvpmodel's own.
    ///
    /// # Errors
    /// If nvpmodel refuses.
    pub fn switch_by_reboot(self, level: &str) -> Result<Switched, SettingError> {
        power_mode::switch_by_reboot(self, level)
    }

    fn check(self, setting: MachineSetting, wanted: &str, good: impl Fn(&str) -> bool) -> Result<(), SettingError> {
        let reading = match self.read(setting) {
            Fact::Known(reading) if good(&reading) => return Ok(()),
            Fact::Known(reading) => reading,
            Fact::Absent => "not there any more".to_owned(),
            Fact::Denied(why) | Fact::Garbled(why) => format!("unreadable ({why})"),
        };
        Err(SettingError::NotInForce { setting, wanted: wanted.to_owned(), reading })
    }

    /// What `settings` ask of this machine, or every reason why it cannot be had here.
    ///
    /// # Errors
    /// In words: a mode that the board does not have, a tool that is not there, a right that is missing.
    pub fn asked(self, settings: &Settings, modes: &Result<PowerModes, String>) -> Result<Asked, String> {
        let none = PowerModes::default();
        let modes = match (modes, &settings.power_mode) {
            (Ok(modes), _) => modes,
            (Err(_), None) => &none,
            (Err(why), Some(mode)) => return Err(format!("power_mode {mode:?} cannot be set: {why}")),
        };
        let asked = asked(settings, modes).map_err(|error| error.to_string())?;
        let refused = |(setting, level): (&MachineSetting, &String)| {
            let why = self.setting(*setting).cannot(level)?;
            Some(format!("{setting} = {level:?} cannot be set here: {why}"))
        };
        let mut reasons: Vec<String> = asked.iter().filter_map(refused).collect();
        if settings.drop_caches {
            reasons.extend(page_cache::cannot(self).map(|why| format!("drop_caches is not possible here: {why}")));
        }
        if reasons.is_empty() { Ok(asked) } else { Err(reasons.join("; ")) }
    }

    /// Why the machine's own settings may not be changed by this process.
    fn lacks_root(self) -> Option<String> {
        let may = !self.sysroot.is_live() || rustix::process::geteuid().is_root();
        (!may).then(|| "it takes root (run it with sudo; trials keep the user who typed the command)".to_owned())
    }

    fn write(self, path: &str, text: &str) -> Result<(), SettingError> {
        let failed = |source| SettingError::Write { path: path.to_owned(), text: text.to_owned(), source };
        self.sysroot.write_attribute(path, text).map_err(failed)
    }
}

/// The power modes of the machine.
///
/// # Errors
/// In words, if it has no configuration of nvpmodel, or one that cannot be understood.
pub fn power_modes(sysroot: &Sysroot) -> Result<PowerModes, String> {
    let place = sysroot.place(NVPMODEL_CONF);
    match sysroot.text(NVPMODEL_CONF) {
        Fact::Known(text) => parse_conf(&text).map_err(|error| format!("{}: {error}", place.display())),
        Fact::Absent => Err(format!("this machine has no power modes: there is no {}", place.display())),
        Fact::Denied(why) | Fact::Garbled(why) => Err(format!("cannot read {}: {why}", place.display())),
    }
}

/// The directory of the integrated GPU that has `attribute`.
pub(super) fn gpu_device(sysroot: &Sysroot, attribute: &str) -> Option<&'static str> {
    NVGPU_DEVICES.into_iter().find(|device| sysroot.exists(&format!("{device}/{attribute}")))
}

#[cfg(test)]
mod tests;
