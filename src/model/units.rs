//! Quantities: times on the three clocks that matter, frequencies, and byte counts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// Milliseconds since this boot (`CLOCK_BOOTTIME`): orders and measures within one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UptimeMs(pub u64);

impl UptimeMs {
    /// How long after `earlier` this is; zero if the clock seems to have gone back.
    pub fn since(self, earlier: UptimeMs) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The wall clock, for people only: these boards start in the past and jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(#[serde(with = "rfc3339_ms")] pub DateTime<Utc>);

impl WallTime {
    /// Seconds since 1970, for a comparison of two clocks.
    pub fn unix_seconds(self) -> i64 {
        self.0.timestamp()
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

mod rfc3339_ms {
    use chrono::{DateTime, SecondsFormat, Utc};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(time: &DateTime<Utc>, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<DateTime<Utc>, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        DateTime::parse_from_rfc3339(&text).map(|t| t.with_timezone(&Utc)).map_err(D::Error::custom)
    }
}

/// The lowest and the highest frequency that a governor may choose; as text `MIN-MAX Hz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRange {
    /// In Hz.
    pub min_hz: u64,
    /// In Hz.
    pub max_hz: u64,
}

impl fmt::Display for ClockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} Hz", self.min_hz, self.max_hz)
    }
}

impl FromStr for ClockRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = text.strip_suffix(" Hz").and_then(|range| range.split_once('-'));
        let range = range.and_then(|(min, max)| Some(Self { min_hz: min.parse().ok()?, max_hz: max.parse().ok()? }));
        range.ok_or_else(|| format!("{text:?} is not of the form MIN-MAX Hz"))
    }
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since this boot.
    pub uptime_ms: UptimeMs,
    /// The wall clock, for people.
    pub wall: WallTime,
}

/// `1 trial`, `2 trials`.
pub fn counted(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
