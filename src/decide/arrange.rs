//! Which setting of the machine is changed next, so that it is as a cell asks, and which is put back.
//!
//! Owns when a reading fulfils what is asked for, the order of changes, and the fold of what was changed. It reads and
//! sets nothing: readings come in, one change goes out, and after it the machine is read again.
//!
//! A setting that a cell does not name is to be as it was found: cells before it may have changed it.

use std::collections::BTreeMap;

use crate::model::evidence::Fact;
use crate::model::journal::{Restored, SetChanged};
use crate::model::machine_setting::MachineSetting;
use crate::model::power_mode::{PowerMode, PowerModes, UnknownMode};
use crate::model::settings::{Clocks, GpuPm, Settings, Swap};
use crate::model::units::ClockRange;

/// How often the same change is tried before it counts as impossible. More than once, because a death between the record
/// of a change and the change leaves only the record.
pub const SET_TRIES_MAX: u8 = 3;

/// What a cell asks of the machine, by setting.
pub type Asked = BTreeMap<MachineSetting, String>;

/// What the machine's settings are, as read from it.
pub type Readings = BTreeMap<MachineSetting, Fact<String>>;

/// What `settings` ask of the machine, on a board with these power modes.
///
/// # Errors
/// If the board does not have the power mode.
pub fn asked(settings: &Settings, modes: &PowerModes) -> Result<Asked, UnknownMode> {
    let mut asked = Asked::new();
    if let Some(mode) = &settings.power_mode {
        asked.insert(MachineSetting::PowerMode, modes.find(mode)?.to_string());
    }
    match settings.swap {
        Swap::Kept => {}
        swap @ (Swap::Off | Swap::Zram | Swap::Disk) => {
            asked.insert(MachineSetting::Swap, swap.to_string());
        }
    }
    match settings.gpu_pm {
        GpuPm::Kept => {}
        pm @ (GpuPm::On | GpuPm::Auto) => {
            asked.insert(MachineSetting::GpuPm, pm.to_string());
        }
    }
    match settings.clocks {
        Clocks::Kept => {}
        Clocks::Max => {
            asked.insert(MachineSetting::Clocks, "max".to_owned());
        }
        Clocks::GpuMhz(mhz) => {
            asked.insert(MachineSetting::Clocks, format!("gpu:{mhz}MHz"));
        }
    }
    Ok(asked)
}

/// The cap in a level such as `gpu:612MHz`, in hertz.
pub fn clock_cap_hz(level: &str) -> Option<u64> {
    let mhz: u64 = level.strip_prefix("gpu:")?.strip_suffix("MHz")?.parse().ok()?;
    mhz.checked_mul(1_000_000)
}

/// Whether a swap device is compressed memory.
pub fn is_zram(device: &str) -> bool {
    device.starts_with("/dev/zram")
}

/// The devices in a reading of swap: `DEVICE:PRIORITY` separated by spaces, or `none`.
pub fn swap_devices(reading: &str) -> impl Iterator<Item = (&str, i32)> {
    reading.split(' ').filter_map(|entry| {
        let (device, priority) = entry.rsplit_once(':')?;
        Some((device, priority.parse().ok()?))
    })
}

/// Whether `reading` of `setting` is what `level` asks for.
pub fn fulfils(setting: MachineSetting, level: &str, reading: &str) -> bool {
    match setting {
        MachineSetting::PowerMode => same_mode(level, reading),
        MachineSetting::GpuPm => level == reading,
        MachineSetting::Swap => {
            let mut devices = swap_devices(reading).peekable();
            match level {
                "off" => reading == "none",
                "zram" => devices.peek().is_some() && devices.all(|(device, _)| is_zram(device)),
                _ => devices.peek().is_some() && devices.all(|(device, _)| !is_zram(device)),
            }
        }
        MachineSetting::Clocks => match (reading.parse::<ClockRange>(), clock_cap_hz(level)) {
            (Ok(range), Some(cap)) => range.max_hz <= cap,
            (Ok(range), None) => range.min_hz == range.max_hz,
            (Err(_), _) => false,
        },
    }
}

/// Whether `setting` is again as it was when it read `original`.
pub fn is_original(setting: MachineSetting, original: &str, reading: &str) -> bool {
    match setting {
        MachineSetting::PowerMode => same_mode(original, reading),
        MachineSetting::GpuPm | MachineSetting::Clocks => original == reading,
        MachineSetting::Swap => {
            // A priority that the kernel chose itself is chosen anew.
            let sorted = |text: &str| {
                let mut devices: Vec<(String, Option<i32>)> = swap_devices(text)
                    .map(|(device, priority)| (device.to_owned(), Some(priority).filter(|priority| *priority >= 0)))
                    .collect();
                devices.sort();
                devices
            };
            sorted(original) == sorted(reading)
        }
    }
}

fn same_mode(one: &str, other: &str) -> bool {
    match (one.parse::<PowerMode>(), other.parse::<PowerMode>()) {
        (Ok(one), Ok(other)) => one.name == other.name,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// A setting that is not as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    original: String,
    new: String,
    /// How often `new` was asked for without a trial having started under it.
    tries: u8,
}

/// The settings that are not as they were found: a fold of `Set` and `Restored`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed(BTreeMap<MachineSetting, Change>);

impl Changed {
    /// Takes note of a change. What is no setting of the machine, such as the binary, is passed over.
    pub fn set(&mut self, set: &SetChanged) {
        let Ok(setting) = set.what.parse() else { return };
        match self.0.get_mut(&setting) {
            Some(change) if change.new == set.new => change.tries = change.tries.saturating_add(1),
            Some(change) => *change = Change { new: set.new.clone(), tries: 1, original: change.original.clone() },
            None => {
                self.0.insert(setting, Change { original: set.old.clone(), new: set.new.clone(), tries: 1 });
            }
        }
    }

    /// Takes note that a setting was put back.
    pub fn restored(&mut self, restored: &Restored) {
        if let Ok(setting) = restored.what.parse() {
            self.0.remove(&setting);
        }
    }

    /// Takes note of a new boot, which made every setting that does not survive one anew.
    pub fn booted(&mut self) {
        self.0.retain(|setting, _| setting.survives_reboot());
    }

    /// Takes note that a trial started: what was asked for is in force.
    pub fn in_force(&mut self) {
        self.0.values_mut().for_each(|change| change.tries = 0);
    }

    /// What `setting` was when it was found, if it was changed since.
    pub fn original(&self, setting: MachineSetting) -> Option<&str> {
        self.0.get(&setting).map(|change| change.original.as_str())
    }

    /// The settings to be put back, the last to be changed first.
    pub fn to_restore(&self) -> impl Iterator<Item = (MachineSetting, &str)> {
        self.0.iter().rev().map(|(setting, change)| (*setting, change.original.as_str()))
    }

    /// Whether everything is as it was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The settings that were changed.
    pub fn settings(&self) -> impl Iterator<Item = MachineSetting> {
        self.0.keys().copied()
    }

    /// Whether a setting that powers the GPU up was changed in this boot.
    pub fn powers_gpu(&self) -> bool {
        [MachineSetting::GpuPm, MachineSetting::Clocks].iter().any(|setting| self.0.contains_key(setting))
    }

    fn tries(&self, setting: MachineSetting, new: &str) -> u8 {
        self.0.get(&setting).filter(|change| change.new == new).map_or(0, |change| change.tries)
    }
}

/// What is to be done before the machine is as a cell asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrangement {
    /// Nothing.
    Done,
    /// Change a setting.
    Set(SetChanged),
    /// Put a setting back.
    Restore {
        /// Which.
        setting: MachineSetting,
        /// What it was.
        value: String,
    },
    /// Switch the power mode by a reboot.
    Reboot(SetChanged),
    /// It cannot be done, in words.
    Impossible(String),
}

/// What is to be done next so that the machine is as `asked`, from what it is now.
///
/// Clocks that were changed are put back before the power mode changes: what they were belongs to the old mode.
pub fn arrange(asked: &Asked, readings: &Readings, changed: &Changed, modes: &PowerModes) -> Arrangement {
    for &setting in MachineSetting::ALL {
        let step = match (asked.get(&setting), changed.original(setting)) {
            (Some(level), _) => toward(setting, level, readings, changed, modes),
            (None, Some(original)) => back(setting, original, readings, changed, modes),
            (None, None) => Arrangement::Done,
        };
        let moves_mode = setting == MachineSetting::PowerMode && !matches!(step, Arrangement::Impossible(_));
        match (step, changed.original(MachineSetting::Clocks)) {
            (Arrangement::Done, _) => {}
            (_, Some(clocks)) if moves_mode => {
                return Arrangement::Restore { setting: MachineSetting::Clocks, value: clocks.to_owned() };
            }
            (step, _) => return step,
        }
    }
    Arrangement::Done
}

fn toward(
    setting: MachineSetting,
    level: &str,
    readings: &Readings,
    changed: &Changed,
    modes: &PowerModes,
) -> Arrangement {
    let reading = match readings.get(&setting) {
        Some(Fact::Known(reading)) => reading,
        Some(Fact::Denied(why) | Fact::Garbled(why)) => {
            return Arrangement::Impossible(format!("{setting} cannot be read: {why}"));
        }
        Some(Fact::Absent) | None => return Arrangement::Impossible(format!("this machine has no {setting}")),
    };
    if fulfils(setting, level, reading) {
        return Arrangement::Done;
    }
    if changed.tries(setting, level) >= SET_TRIES_MAX {
        let why = format!("{setting} is {reading} after {SET_TRIES_MAX} attempts to make it {level}");
        return Arrangement::Impossible(why);
    }
    let change = SetChanged { what: setting.to_string(), old: reading.clone(), new: level.to_owned() };
    if by_reboot(setting, reading, level, modes) { Arrangement::Reboot(change) } else { Arrangement::Set(change) }
}

/// Puts `setting` back. A power mode that only a reboot sets is asked for as a change; the record that it is back
/// follows in the next boot.
fn back(
    setting: MachineSetting,
    original: &str,
    readings: &Readings,
    changed: &Changed,
    modes: &PowerModes,
) -> Arrangement {
    match readings.get(&setting) {
        Some(Fact::Known(reading)) if by_reboot(setting, reading, original, modes) => {
            if changed.tries(setting, original) >= SET_TRIES_MAX {
                let why = format!("{setting} is {reading} after {SET_TRIES_MAX} reboots to make it {original} again");
                return Arrangement::Impossible(why);
            }
            Arrangement::Reboot(SetChanged {
                what: setting.to_string(),
                old: reading.clone(),
                new: original.to_owned(),
            })
        }
        Some(_) | None => Arrangement::Restore { setting, value: original.to_owned() },
    }
}

/// What is to be done next so that everything is as it was found.
pub fn restore(readings: &Readings, changed: &Changed, modes: &PowerModes) -> Arrangement {
    match changed.to_restore().next() {
        Some((setting, original)) => back(setting, original, readings, changed, modes),
        None => Arrangement::Done,
    }
}

fn by_reboot(setting: MachineSetting, reading: &str, target: &str, modes: &PowerModes) -> bool {
    setting == MachineSetting::PowerMode
        && match (reading.parse::<PowerMode>(), target.parse::<PowerMode>()) {
            (Ok(from), Ok(to)) => modes.needs_reboot(&from, &to),
            (Err(_), _) | (_, Err(_)) => false,
        }
}

#[cfg(test)]
mod tests;
