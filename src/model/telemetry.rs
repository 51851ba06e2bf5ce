//! What is sampled while a trial runs: one line of `telemetry.jsonl`, and the summary that stays with the outcome.
//!
//! Every key of a sample is always there; what a machine has not, or could not be read at that moment, is `null` or
//! missing from its map, never a made-up number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::units::UptimeMs;

/// The version of a line.
pub const SAMPLE_VERSION: u32 = 1;

/// The time between two samples, in milliseconds: the same in every cell of every run.
pub const PERIOD_MS: u64 = 250;

/// One sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When its reading began.
    pub uptime_ms: UptimeMs,
    /// [`SAMPLE_VERSION`].
    pub v: u32,
    /// Degrees Celsius by type of the thermal zone; `null` where a zone is gated or failed.
    pub temp_c: BTreeMap<String, Option<f64>>,
    /// Supply rails by label.
    pub rails: BTreeMap<String, Option<Rail>>,
    /// What the kernel asked of each CPU frequency policy, in kHz.
    pub cpu_khz: BTreeMap<String, Option<u64>>,
    /// Clocks of the GPU by devfreq device, in Hz.
    pub gpu_hz: BTreeMap<String, Option<u64>>,
    /// Load of the GPU in thousandths; `null` too where reading it would disturb the cell.
    pub gpu_load_permille: Option<u64>,
    /// Clock of the memory controller, in Hz.
    pub emc_hz: Option<u64>,
    /// Level of each cooling device that throttles; 0 is not throttled.
    pub throttle: BTreeMap<String, Option<u64>>,
    /// Over-current channels: on Tegra234 `oc1` is under-voltage, `oc2` average and `oc3` instantaneous over-current.
    pub over_current: BTreeMap<String, OverCurrent>,
    /// Memory.
    pub memory: Memory,
    /// Pressure stall information.
    pub pressure: Pressure,
    /// The fan.
    pub fan: Fan,
}

impl Sample {
    /// A sample in which nothing was read yet.
    pub fn empty(uptime_ms: UptimeMs) -> Self {
        Self {
            uptime_ms,
            v: SAMPLE_VERSION,
            temp_c: BTreeMap::new(),
            rails: BTreeMap::new(),
            cpu_khz: BTreeMap::new(),
            gpu_hz: BTreeMap::new(),
            gpu_load_permille: None,
            emc_hz: None,
            throttle: BTreeMap::new(),
            over_current: BTreeMap::new(),
            memory: Memory::default(),
            pressure: Pressure::default(),
            fan: Fan::default(),
        }
    }
}

/// One supply rail. An INA3221 on a Jetson averages over 0.43 s: shorter spikes are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rail {
    /// Millivolts; absent from a source that tells only the power.
    pub mv: Option<u64>,
    /// Milliamperes; absent from a source that tells only the power.
    pub ma: Option<i64>,
    /// Milliwatts.
    pub mw: i64,
}

/// One over-current channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OverCurrent {
    /// Events since boot.
    pub events: Option<u64>,
    /// Whether an event throttles.
    pub throttles: Option<u64>,
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// What could be had without swapping (`MemAvailable`).
    pub available: Option<u64>,
    /// What is free (`MemFree`).
    pub free: Option<u64>,
    /// Swap in use.
    pub swap_used: Option<u64>,
    /// All that clients of NvMap, the allocator of Tegra's GPU memory, hold.
    pub nvmap: Option<u64>,
    /// Size of the largest free block of physical memory.
    pub largest_free_block: Option<u64>,
    /// How many of that size are free. The pair is what tegrastats calls `lfb`.
    pub largest_free_blocks: Option<u64>,
}

/// Pressure stall information, `null` on kernels without it (those of JetPack 5).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Pressure {
    /// `/proc/pressure/memory`.
    pub memory: Option<Stall>,
    /// `/proc/pressure/cpu`.
    pub cpu: Option<Stall>,
    /// `/proc/pressure/io`.
    pub io: Option<Stall>,
}

/// How much work stood still for want of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Stall {
    /// Percent of the last 10 s in which some task waited.
    pub some_avg10: f64,
    /// Microseconds since boot in which some task waited.
    pub some_us: u64,
    /// Percent of the last 10 s in which all tasks waited; absent for the CPU on older kernels.
    pub full_avg10: Option<f64>,
    /// Microseconds since boot in which all tasks waited.
    pub full_us: Option<u64>,
}

/// The fan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fan {
    /// Duty, 0 to 255.
    pub pwm: Option<u64>,
    /// Turns per minute.
    pub rpm: Option<u64>,
}

/// What a trial's samples come to: the covariates of later comparisons.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TelemetrySummary {
    /// How many samples were written.
    pub samples: u64,
    /// Samples that were due and not taken, because one took too long or the sampler hung.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// The hottest zone at its hottest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hottest: Option<Hottest>,
    /// Highest power of each rail, in milliwatts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub power_mw_max: BTreeMap<String, i64>,
    /// The least memory available, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_min: Option<u64>,
    /// Cooling devices that throttled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub throttle: BTreeMap<String, ThrottleLevels>,
    /// Over-current events of each channel: evidence of throttling, not a fault.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub over_current: BTreeMap<String, OverCurrentEvents>,
    /// Processor time that all samples together cost, in microseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_us: u64,
}

/// A temperature and where it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hottest {
    /// Type of the thermal zone.
    pub zone: String,
    /// Degrees Celsius.
    pub temp_c: f64,
}

/// Levels of a cooling device over a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleLevels {
    /// At the first sample: it may have throttled before the trial.
    pub first: u64,
    /// At the worst.
    pub max: u64,
}

/// Events of an over-current channel over a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverCurrentEvents {
    /// Counted from boot to the first sample.
    pub before: u64,
    /// Counted from the first sample to the last.
    pub during: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
