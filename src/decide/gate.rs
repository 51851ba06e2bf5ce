//! Whether the machine is fit for a trial: one rule, asked before each.
//!
//! A trial on a dead GPU is neither a pass nor a fault, a cold trial in a boot in which somebody used the GPU is no cold
//! one, and a boot slot that has lost tries may not survive the next fault.

use std::fmt;

use crate::decide::gpu_health::{GpuFacts, dead};
use crate::decide::run::NOT_COLD;
use crate::model::evidence::Fact;
use crate::model::start_state::StartState;

/// What a trial needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Whether it may use the GPU.
    pub gpu: bool,
    /// Whether nobody may have used the GPU in this boot.
    pub cold: bool,
}

/// Tries that the firmware's A/B boot slots have left. The UEFI of a Jetson counts down at each boot, and up again once
/// the boot is verified; a slot without tries does not boot any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootSlots {
    /// The tries of a slot that was verified.
    pub most: Fact<u32>,
    /// Those that slot A has left.
    pub a: Fact<u32>,
    /// Those that slot B has left.
    pub b: Fact<u32>,
}

impl BootSlots {
    /// The first slot that has lost tries: its name, those left, those that it had.
    pub fn low(&self) -> Option<(&'static str, u32, u32)> {
        let most = *self.most.known()?;
        let low = |(slot, left): (_, &Fact<u32>)| Some((slot, *left.known().filter(|left| **left < most)?, most));
        [("A", &self.a), ("B", &self.b)].into_iter().find_map(low)
    }
}

/// Why a machine is not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// A boot slot has lost tries.
    RetryCounter {
        /// The slot, `A` or `B`.
        slot: &'static str,
        /// Tries left.
        left: u32,
        /// Tries that it had.
        most: u32,
    },
    /// The GPU cannot work in this boot: why.
    GpuDead(String),
    /// The boot does not pass for cold: the proof, and what it rests on.
    NotCold(String),
}

impl Unfit {
    /// Rule of the void by which a trial does not start for this reason.
    pub fn rule(&self) -> &'static str {
        match self {
            Unfit::RetryCounter { .. } => "retry-counter",
            Unfit::GpuDead(_) => "gpu-dead",
            Unfit::NotCold(_) => NOT_COLD,
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::RetryCounter { slot, left, most } => {
                write!(f, "retry-counter: slot {slot} has {left} of {most} tries left, and a fault may use one up")
            }
            Unfit::GpuDead(why) if why.to_ascii_lowercase().contains("acr") => write!(f, "acr: {why}"),
            Unfit::GpuDead(why) => write!(f, "gpu-dead: {why}"),
            Unfit::NotCold(why) => write!(f, "not-cold: {why}"),
        }
    }
}

/// What makes the machine unfit for a trial with that need; the most dangerous first.
pub fn gate(need: Need, slots: &BootSlots, gpu: &GpuFacts, start: &StartState) -> Option<Unfit> {
    // Only what reaches the GPU, or boots on purpose, is known to take a machine down.
    let low = || slots.low().filter(|_| need.gpu || need.cold);
    let retry_counter = || low().map(|(slot, left, most)| Unfit::RetryCounter { slot, left, most });
    let gpu_dead = || dead(gpu).filter(|_| need.gpu).map(Unfit::GpuDead);
    let not_cold = || {
        let StartState { cold, rule, because, .. } = start;
        let why = || format!("the boot is not cold ({cold}, rule {rule}): {}", because.join("; "));
        (need.cold && !start.is_cold()).then(|| Unfit::NotCold(why()))
    };
    retry_counter().or_else(gpu_dead).or_else(not_cold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::start_state::ColdProof;

    const COLD_GPU: Need = Need { gpu: true, cold: true };

    fn start(cold: ColdProof) -> StartState {
        StartState {
            cold,
            rule: "client-alive".into(),
            because: vec!["has a device node open: ollama (1602)".into()],
            warmed_by: None,
            gpu_active_ms: None,
            services: vec![],
        }
    }

    #[test]
    fn a_need_is_met_or_the_reason_is_named_the_most_dangerous_first() {
        let low = BootSlots { most: Fact::Known(3), a: Fact::Known(3), b: Fact::Known(1) };
        let full = BootSlots { most: Fact::Known(3), a: Fact::Known(3), b: Fact::Known(3) };
        let broken =
            GpuFacts { start_failure: Some("nvgpu: [ERR] ACR bootstrap failed".into()), ..GpuFacts::default() };
        let fine = GpuFacts::default();
        let gated = |need, slots: &BootSlots, gpu: &GpuFacts, cold| {
            gate(need, slots, gpu, &start(cold)).map(|unfit| (unfit.rule(), unfit.to_string()))
        };
        for (slots, gpu, cold, rule, words) in [
            (&low, &broken, ColdProof::Not, "retry-counter", "retry-counter: slot B has 1 of 3 tries left"),
            (&full, &broken, ColdProof::Not, "gpu-dead", "acr: "),
            (&full, &fine, ColdProof::Not, "not-cold", "not-cold: the boot is not cold (not, rule client-alive): has"),
            (&full, &fine, ColdProof::Unknown, "not-cold", "(unknown, "),
        ] {
            let (named, text) = gated(COLD_GPU, slots, gpu, cold).unwrap();
            assert!(named == rule && text.contains(words), "{text}");
        }
        assert_eq!(gated(COLD_GPU, &full, &fine, ColdProof::Consistent), None);
        assert_eq!(gated(Need { gpu: true, cold: false }, &full, &fine, ColdProof::Not), None);
        assert_eq!(gated(Need { gpu: false, cold: false }, &low, &broken, ColdProof::Not), None);
    }

    #[test]
    fn counters_that_cannot_be_read_accuse_nobody() {
        let unread = BootSlots { most: Fact::Known(3), a: Fact::Garbled("00".into()), b: Fact::Absent };
        assert_eq!(unread.low(), None);
        assert_eq!(BootSlots { a: Fact::Known(0), ..BootSlots::default() }.low(), None);
    }
}
