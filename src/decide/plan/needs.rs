//! What carrying a plan through would take: trials, boots, permissions, time.
//!
//! Figures are what the plan itself asks for. Faults cost more boots, and what the machine cannot do is found later.

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::model::matrix::TrialsRule;
use crate::model::quantity::Millis;
use crate::model::settings::{Backend, Clocks, ColdFrom, GpuPm, Settings, Start, Swap, WorkloadSettings};
use crate::model::words::words;

/// Seconds of a boot: about 60 from reset to login on an Orin Nano, and the delay of 30 before the first trial.
pub const BOOT_SECONDS: u64 = 90;

/// Nanoseconds to make, copy and quantise one weight: the seed reports 13 s for 3584 x 152064 weights on an Orin Nano.
pub const NANOS_PER_WEIGHT: u64 = 24;

/// Seconds that a command is assumed to take, since only running it tells.
pub const COMMAND_SECONDS_ASSUMED: u64 = 60;

/// Milliseconds to start and end a worker.
const START_MS: u64 = 1000;

words! {
    /// What the command line must allow.
    Permission {
        /// Reboots.
        Reboot = "--allow-reboot",
        /// Switches of the power mode.
        PowerMode = "--allow-power-mode",
        /// Dropping the page cache.
        DropCaches = "--allow-drop-caches",
        /// Deliberate faults.
        InjectedFaults = "--allow-injected-faults",
    }
}

/// What carrying a plan through would take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Needs {
    /// Trials, without repeats of excluded ones; for `until-decided` the most.
    pub trials: u64,
    /// Boots: one for each cold trial.
    pub boots: u64,
    /// Switches of the power mode between trials of one boot, some of which may need a boot of their own; restoring
    /// the original mode at the end is not counted.
    pub power_mode_switches: u64,
    /// Whether the board must have a power hook (`cold_from = "power"`).
    pub power_hook: bool,
    /// Whether it must be run as root: boots take the boot service, and settings are the machine's.
    #[serde(default)]
    pub root: bool,
    /// What the command line must allow.
    pub permissions: Vec<Permission>,
    /// A rough duration in seconds: for each trial the work (24 ns a weight and iteration, or a minute for a command),
    /// the gaps, the settling time and a second; for each boot 90 s.
    pub seconds: u64,
    /// Whether trials of a command are in that figure, whose duration is not known.
    pub seconds_assumed: bool,
}

/// Adds up what `plan` takes.
pub(super) fn needs(plan: &Plan) -> Needs {
    let mut needs = Needs::default();
    let mut allow = |permission: Permission, needed: bool| {
        if needed {
            needs.permissions.push(permission);
        }
    };
    let any = |test: fn(&Settings) -> bool| plan.cells.iter().any(|cell| test(&cell.settings));
    allow(Permission::Reboot, any(|settings| settings.start == Start::Cold));
    allow(Permission::PowerMode, any(|settings| settings.power_mode.is_some()));
    allow(Permission::DropCaches, any(|settings| settings.drop_caches));
    allow(Permission::InjectedFaults, plan.cells.iter().any(|cell| !cell.inject.is_empty()));
    needs.root = needs.permissions.iter().any(|permission| *permission != Permission::InjectedFaults)
        || any(|settings| {
            settings.swap != Swap::Kept || settings.gpu_pm != GpuPm::Kept || settings.clocks != Clocks::Kept
        });
    needs.power_hook = any(|settings| settings.start == Start::Cold && settings.cold_from == ColdFrom::Power);
    needs.seconds_assumed = any(|settings| matches!(settings.workload, WorkloadSettings::Command(_)));

    let durations: Vec<u64> = plan.cells.iter().map(|cell| trial_ms(&cell.settings)).collect();
    let mut total_ms = 0u64;
    for (cell, duration) in plan.cells.iter().zip(&durations) {
        let rounds = u64::from(plan.rounds(cell));
        needs.trials += rounds;
        total_ms = total_ms.saturating_add(rounds.saturating_mul(*duration));
        if cell.settings.start == Start::Cold {
            needs.boots += rounds;
        }
    }
    // Only a plan that touches power modes is walked trial by trial: the switches depend on the order.
    if needs.permissions.contains(&Permission::PowerMode) {
        needs.power_mode_switches = power_mode_switches(plan);
    }
    needs.seconds = total_ms.div_ceil(1000).saturating_add(needs.boots * BOOT_SECONDS);
    needs
}

fn power_mode_switches(plan: &Plan) -> u64 {
    let mut switches = 0;
    let mut mode: &Option<String> = &None;
    for block in 0..plan.blocks() {
        for index in plan.block_order(block) {
            let settings = &plan.cells[index as usize].settings;
            // The mode of a cold trial is set before the boot that it needs anyway.
            if settings.power_mode != *mode && settings.start != Start::Cold {
                switches += 1;
            }
            mode = &settings.power_mode;
        }
    }
    switches
}

/// How long a trial takes, roughly, in milliseconds: what [`Needs::seconds`] adds up, without boots.
pub fn trial_ms(settings: &Settings) -> u64 {
    let iterations = u64::from(settings.iterations);
    let (work_ms, backend) = match &settings.workload {
        WorkloadSettings::Command(_) => (COMMAND_SECONDS_ASSUMED * 1000, Backend::Auto),
        WorkloadSettings::Linear4bit(layers) => {
            (weights_ms(layers.sequence.iter().map(|layer| layer.shape.weights()).sum()), layers.backend)
        }
        WorkloadSettings::Stack(stack) => {
            let block: u64 = stack.block.sequence.iter().map(|layer| layer.shape.weights()).sum();
            let head: u64 = stack.head.iter().map(|layer| layer.shape.weights()).sum();
            (weights_ms(block * u64::from(stack.layers) + head), stack.block.backend)
        }
    };
    let gaps = settings.gap.ms().saturating_mul(iterations - 1);
    let settle: Millis = settings.watch.settle_on(backend);
    work_ms.saturating_mul(iterations).saturating_add(gaps).saturating_add(settle.ms() + START_MS)
}

fn weights_ms(weights: u64) -> u64 {
    weights.saturating_mul(NANOS_PER_WEIGHT) / 1_000_000
}

impl Plan {
    /// Whether the plan's figures are upper bounds, because statistics decide when a cell is done.
    pub fn is_bound(&self) -> bool {
        matches!(self.trials, TrialsRule::UntilDecided(_))
    }
}
