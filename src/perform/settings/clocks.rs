//! Clocks: all pinned at their maximum by jetson_clocks, or the GPU's capped through its frequency-scaling attributes.
//!
//! jetson_clocks stores what was before in a file, and asks a question if that file is there: each store has a fresh
//! name. Its exit status does not say whether clocks are pinned: the range of the GPU's does. Its `--show` is never
//! used, because it may power the GPU up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Reach, Setting, SettingError};
use crate::decide::arrange::clock_cap_hz;
use crate::model::evidence::Fact;
use crate::model::matrix::Tool;
use crate::model::units::ClockRange;

/// How long jetson_clocks may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where devices whose clock is scaled are.
const DEVFREQ: &str = "sys/class/devfreq";

/// The level at which all clocks are pinned.
const MAX: &str = "max";

/// More stores than the trials of one boot can need.
const STORES_MAX: u32 = 100_000;

pub(super) struct Clocks<'a>(pub(super) Reach<'a>);

impl Clocks<'_> {
    /// The GPU among the devices whose clock is scaled: `17000000.gpu`, `17000000.ga10b`; on Thor `gpu-gpc-0`.
    fn gpu(&self) -> Option<String> {
        let is_gpu = |name: &String| {
            [".gpu", ".ga10b", ".gv11b", ".gp10b"].iter().any(|chip| name.ends_with(chip))
                || name.starts_with("gpu-gpc")
        };
        let names = self.0.sysroot.entries(DEVFREQ);
        names.known()?.iter().find(|name| is_gpu(name)).map(|name| format!("{DEVFREQ}/{name}"))
    }

    fn range(&self) -> Fact<ClockRange> {
        let Some(gpu) = self.gpu() else { return Fact::Absent };
        let hertz = |attribute: &str| {
            self.0.sysroot.text(&format!("{gpu}/{attribute}")).and_then(|text| match text.parse::<u64>() {
                Ok(hertz) => Fact::Known(hertz),
                Err(_) => Fact::Garbled(text),
            })
        };
        hertz("min_freq")
            .and_then(|min_hz| hertz("max_freq").and_then(|max_hz| Fact::Known(ClockRange { min_hz, max_hz })))
    }

    /// Writes the higher limit first where both rise, so that the lower never stands above it.
    fn write(&self, range: ClockRange) -> Result<(), SettingError> {
        let gpu = self.gpu().ok_or_else(|| SettingError::Impossible("no GPU whose clock is scaled is there".into()))?;
        let rises = self.range().known().is_some_and(|now| range.min_hz > now.max_hz);
        let min = (format!("{gpu}/min_freq"), range.min_hz);
        let max = (format!("{gpu}/max_freq"), range.max_hz);
        for (path, hertz) in if rises { [max, min] } else { [min, max] } {
            self.0.write(&path, &hertz.to_string())?;
        }
        Ok(())
    }

    /// The highest frequency of the GPU that is at most `cap_hz`.
    fn capped(&self, cap_hz: u64) -> Result<u64, SettingError> {
        let gpu = self.gpu().unwrap_or_default();
        let text = self.0.sysroot.text(&format!("{gpu}/available_frequencies"));
        let Some(text) = text.known() else { return Ok(cap_hz) };
        let all = text.split_whitespace().filter_map(|hertz| hertz.parse::<u64>().ok());
        all.filter(|hertz| *hertz <= cap_hz).max().ok_or_else(|| {
            SettingError::Impossible(format!("the GPU has no clock of {cap_hz} Hz or less: it has {text}"))
        })
    }

    fn store(&self, number: u32) -> PathBuf {
        let boot = self.0.boot.as_str().get(..8).unwrap_or_default();
        self.0.keep.join(format!("jetson_clocks-{boot}-{number}"))
    }

    fn stores(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (1..=STORES_MAX).map(|number| self.store(number))
    }

    fn pin(&self) -> Result<(), SettingError> {
        let fresh = self.stores().find(|path| !path.exists());
        let fresh =
            fresh.ok_or_else(|| SettingError::Impossible("no name is left for what jetson_clocks stores".into()))?;
        make_dir(self.0.keep)?;
        self.0.tools.must(Tool::JetsonClocks, &["--store", &fresh.to_string_lossy()], PATIENCE)?;
        self.0.tools.must(Tool::JetsonClocks, &[], PATIENCE)
    }
}

fn make_dir(path: &Path) -> Result<(), SettingError> {
    std::fs::create_dir_all(path).map_err(|source| SettingError::Write {
        path: path.display().to_string(),
        text: "a directory".into(),
        source,
    })
}

impl Setting for Clocks<'_> {
    fn read(&self) -> Fact<String> {
        self.range().and_then(|range| Fact::Known(range.to_string()))
    }

    fn set(&self, level: &str) -> Result<(), SettingError> {
        let Some(cap_hz) = clock_cap_hz(level) else { return self.pin() };
        let max_hz = self.capped(cap_hz)?;
        let now = self.range();
        let min_hz = now.known().map_or(max_hz, |now| now.min_hz.min(max_hz));
        self.write(ClockRange { min_hz, max_hz })
    }

    /// What jetson_clocks stored in this boot is put back by it, with the clocks that only it knows; then the GPU's.
    fn put_back(&self, value: &str) -> Result<(), SettingError> {
        if let Some(store) = self.stores().take_while(|path| path.exists()).last() {
            self.0.tools.must(Tool::JetsonClocks, &["--restore", &store.to_string_lossy()], PATIENCE)?;
        }
        if self.read().known().is_some_and(|reading| reading == value) {
            return Ok(());
        }
        self.write(value.parse().map_err(SettingError::Impossible)?)
    }

    fn cannot(&self, level: &str) -> Option<String> {
        if self.gpu().is_none() {
            return Some("this machine has no GPU whose clock is scaled".into());
        }
        match clock_cap_hz(level) {
            Some(cap_hz) => self.capped(cap_hz).err().map(|error| error.to_string()).or_else(|| self.0.lacks_root()),
            None => {
                debug_assert_eq!(level, MAX);
                let found = self.0.tools.find(Tool::JetsonClocks).err().map(|error| error.to_string());
                let replaced = self.0.tools.is_replaced(Tool::JetsonClocks);
                found.or_else(|| if replaced { None } else { self.0.lacks_root() })
            }
        }
    }
}
