//! Runtime power management of an integrated GPU: `auto` lets it be switched off when idle, `on` does not.
//! (`power/control`, kernel documentation `ABI/testing/sysfs-devices-power`.)

use super::{Reach, Setting, SettingError, gpu_device};
use crate::model::evidence::Fact;

const CONTROL: &str = "power/control";

pub(super) struct GpuPm<'a>(pub(super) Reach<'a>);

impl GpuPm<'_> {
    fn path(&self) -> Option<String> {
        gpu_device(self.0.sysroot, CONTROL).map(|device| format!("{device}/{CONTROL}"))
    }
}

impl Setting for GpuPm<'_> {
    fn read(&self) -> Fact<String> {
        self.path().map_or(Fact::Absent, |path| self.0.sysroot.text(&path))
    }

    fn set(&self, level: &str) -> Result<(), SettingError> {
        match self.path() {
            Some(path) => self.0.write(&path, level),
            None => Err(SettingError::Impossible("no GPU with runtime power management is there".into())),
        }
    }

    fn put_back(&self, value: &str) -> Result<(), SettingError> {
        self.set(value)
    }

    fn cannot(&self, _level: &str) -> Option<String> {
        match self.path() {
            Some(_) => self.0.lacks_root(),
            None => Some("this machine has no integrated GPU with runtime power management".into()),
        }
    }
}
