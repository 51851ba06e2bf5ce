//! What a desk saw of a machine that could not speak for itself: lines that came before the silence, how long it lasted,
//! and who cut the power.
//!
//! Owns the record in the journal, which is also what `jetfault observe` reads. It comes from another machine: whatever
//! is in it is bounded before it is kept.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::ids::{BootId, ContentDigest};
use super::units::WallTime;

/// The most lines of one source that are kept.
pub const OBSERVED_LINES_MAX: usize = 20;

/// The most bytes of one of them, and of every other text.
pub const OBSERVED_LINE_BYTES_MAX: usize = 400;

/// The most bytes of an observation as JSON that are read: each of its lines may be escaped.
pub const OBSERVED_BYTES_MAX: u64 = 128 * 1024;

/// What a machine that nobody hears does about the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// It answers ping, and no login is possible: its kernel is alive.
    AnswersPing,
    /// It refuses connections to ssh: its kernel is alive, or another machine has its address.
    RefusesSsh,
    /// It does not answer ping.
    NoPing,
    /// Nothing comes back from it.
    Silent,
}

impl Reach {
    /// In words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::AnswersPing => "it answered ping",
            Self::RefusesSsh => "it refused ssh",
            Self::NoPing => "it did not answer ping",
            Self::Silent => "it was silent",
        }
    }
}

/// Why the power was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cutter {
    /// A watching desk did, because the machine had said nothing for longer than its open trial may take.
    Hang,
    /// A person did.
    Person,
}

/// How far a power cycle came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CutStage {
    /// It is about to happen.
    Announced,
    /// The hook says that it was done.
    Done,
    /// The hook failed: nothing happened, as far as is known.
    Failed,
}

/// A power cycle by a hook of a desk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCut {
    /// Why.
    pub by: Cutter,
    /// How far it came.
    pub stage: CutStage,
    /// When, by the desk's clock.
    pub wall: WallTime,
}

/// Something was seen from outside the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Who saw it.
    pub witness: String,
    /// What was seen.
    pub what: String,
    /// The boot that it is about; absent if it is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
    /// When it was last heard, by the desk's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<WallTime>,
    /// The trial that was open then, and its last stage, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
    /// The last lines of its kernel that came over the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
    /// The last lines of its serial console.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serial: Vec<String>,
    /// How long nothing was heard, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_ms: Option<u64>,
    /// What it last did about the network in that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// Who cut its power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerCut>,
}

impl Observed {
    /// That `witness` saw `what`.
    pub fn new(witness: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            witness: witness.into(),
            what: what.into(),
            boot: None,
            heard: None,
            open: None,
            kernel: Vec::new(),
            serial: Vec::new(),
            unreachable_ms: None,
            reach: None,
            power: None,
        }
    }

    /// The same with every text as long as it may be, and without control characters: the last lines of each source.
    #[must_use]
    pub fn bounded(self) -> Self {
        let lines = |lines: Vec<String>| {
            let skip = lines.len().saturating_sub(OBSERVED_LINES_MAX);
            lines.into_iter().skip(skip).map(|line| bounded_line(&line)).collect()
        };
        Self {
            witness: bounded_line(&self.witness),
            what: bounded_line(&self.what),
            open: self.open.map(|open| bounded_line(&open)),
            kernel: lines(self.kernel),
            serial: lines(self.serial),
            ..self
        }
    }

    /// What makes it the same as another: its content.
    pub fn id(&self) -> ContentDigest {
        ContentDigest::of(&serde_json::to_vec(self).expect("an observation has string keys"))
    }

    /// The last line that anybody saw, and where: the console's, which goes on when the network does not, before the
    /// kernel's own.
    pub fn last_line(&self) -> Option<(&'static str, &str)> {
        let serial = self.serial.last().map(|line| ("serial", line.as_str()));
        serial.or_else(|| self.kernel.last().map(|line| ("kernel", line.as_str())))
    }

    /// All of it in one line of words.
    pub fn in_words(&self) -> String {
        let mut words = self.what.clone();
        let mut add = |more: &str| {
            let comma = if words.is_empty() { "" } else { ", " };
            let _ = write!(words, "{comma}{more}");
        };
        if let Some(ms) = self.unreachable_ms {
            add(&format!("unreachable for {} s", ms / 1000));
        }
        if let Some(reach) = self.reach {
            add(reach.in_words());
        }
        if let Some((source, line)) = self.last_line() {
            add(&format!("last {source} line \"{line}\""));
        }
        if let Some(power) = &self.power {
            add(&power_words(power, &self.witness));
        }
        words
    }
}

fn power_words(power: &PowerCut, witness: &str) -> String {
    let (wall, why) = (power.wall, power.by);
    match (power.stage, why) {
        (CutStage::Announced, _) => format!("power about to be cycled by a person at desk {witness} at {wall}"),
        (CutStage::Done, Cutter::Hang) => format!("power cycled by desk {witness} at {wall}, because it hung"),
        (CutStage::Done, Cutter::Person) => format!("power cycled by a person at desk {witness} at {wall}"),
        (CutStage::Failed, _) => format!("the hook of desk {witness} that cycles its power failed at {wall}"),
    }
}

/// `line` without control characters and not longer than [`OBSERVED_LINE_BYTES_MAX`].
pub fn bounded_line(line: &str) -> String {
    let mut bounded = String::new();
    for c in line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if bounded.len() + c.len_utf8() > OBSERVED_LINE_BYTES_MAX {
            break;
        }
        bounded.push(c);
    }
    bounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_elsewhere_is_bounded_and_keeps_its_last_lines() {
        let mut observed = Observed::new("desk\n1", "x".repeat(5000));
        observed.serial = (0..500).map(|n| format!("{n} {}", "é".repeat(900))).collect();
        let bounded = observed.bounded();
        assert_eq!((bounded.witness.as_str(), bounded.what.len()), ("desk 1", OBSERVED_LINE_BYTES_MAX));
        assert_eq!(bounded.serial.len(), OBSERVED_LINES_MAX);
        assert!(bounded.serial.last().unwrap().starts_with("499 é"));
        assert!(bounded.serial.iter().all(|line| line.len() <= OBSERVED_LINE_BYTES_MAX));
        assert_eq!(bounded.clone().bounded(), bounded, "once is enough");
    }

    #[test]
    fn a_record_without_the_later_members_is_still_one() {
        let old = r#"{"witness":"desk","what":"the lamp went out"}"#;
        let observed: Observed = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&observed).unwrap(), old);
        assert_eq!(observed.in_words(), "the lamp went out");
    }
}
