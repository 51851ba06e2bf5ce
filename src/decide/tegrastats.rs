//! A line of NVIDIA's `tegrastats`, in every form it took from JetPack 5 to 7.
//!
//! Words come in any order and any of them may be missing, so each is recognised by itself; what is not recognised is
//! passed over.

use std::collections::BTreeMap;

use crate::model::telemetry::{Rail, Sample};

/// What tegrastats prints for a zone that is powered down.
const GATED_C: f64 = -256.0;

const MIB: u64 = 1024 * 1024;

/// The values of one line that a sample has room for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tegrastats {
    /// Memory in use, in bytes.
    pub ram_used: Option<u64>,
    /// All memory, in bytes.
    pub ram_total: Option<u64>,
    /// Count and size in bytes of the largest free blocks.
    pub largest_free: Option<(u64, u64)>,
    /// Swap in use, in bytes.
    pub swap_used: Option<u64>,
    /// Clock of each CPU in MHz; `None` for one that is off.
    pub cpu_mhz: Vec<Option<u64>>,
    /// Clock of the memory controller, in MHz.
    pub emc_mhz: Option<u64>,
    /// Load of the GPU, in percent.
    pub gpu_percent: Option<u64>,
    /// Clocks of the GPU's clusters, in MHz.
    pub gpu_mhz: Vec<u64>,
    /// Degrees Celsius by zone; `None` for one that is powered down.
    pub temp_c: BTreeMap<String, Option<f64>>,
    /// Present power of each connected rail, in milliwatts.
    pub power_mw: BTreeMap<String, i64>,
}

/// Reads one line; `None` if there is no word of tegrastats in it.
pub fn parse(line: &str) -> Option<Tegrastats> {
    let mut stats = Tegrastats::default();
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word {
            "RAM" => (stats.ram_used, stats.ram_total) = fraction_of_mib(value()),
            "(lfb" => stats.largest_free = largest_free(value()),
            "SWAP" => stats.swap_used = fraction_of_mib(value()).0,
            "CPU" => stats.cpu_mhz = cpus(value()).unwrap_or_default(),
            "EMC_FREQ" => stats.emc_mhz = value().split_once('@').and_then(|(_, mhz)| mhz.parse().ok()),
            "GR3D_FREQ" => (stats.gpu_percent, stats.gpu_mhz) = gpu(value()),
            word => {
                if let Some((zone, temp_c)) = temperature(word) {
                    stats.temp_c.insert(zone.to_owned(), temp_c);
                } else if let Some(mw) = words.peek().and_then(|next| power(next)) {
                    words.next();
                    // A channel that is wired to nothing is called NC, and an AGX has two.
                    if word != "NC" {
                        stats.power_mw.insert(word.to_owned(), mw);
                    }
                }
            }
        }
    }
    (stats != Tegrastats::default()).then_some(stats)
}

/// Puts into `sample` what is not in it yet.
pub fn fill(sample: &mut Sample, stats: &Tegrastats) {
    if sample.temp_c.is_empty() {
        sample.temp_c = stats.temp_c.clone();
    }
    if sample.rails.is_empty() {
        let rail = |(label, mw): (&String, &i64)| (label.clone(), Some(Rail { mv: None, ma: None, mw: *mw }));
        sample.rails = stats.power_mw.iter().map(rail).collect();
    }
    if sample.gpu_hz.is_empty() {
        let clock = |(cluster, mhz): (usize, &u64)| (format!("GR3D{cluster}"), Some(mhz * 1_000_000));
        sample.gpu_hz = stats.gpu_mhz.iter().enumerate().map(clock).collect();
    }
    if sample.cpu_khz.is_empty() {
        let clock = |(cpu, mhz): (usize, &Option<u64>)| (format!("cpu{cpu}"), mhz.map(|mhz| mhz * 1000));
        sample.cpu_khz = stats.cpu_mhz.iter().enumerate().map(clock).collect();
    }
    sample.gpu_load_permille = sample.gpu_load_permille.or(stats.gpu_percent.map(|percent| percent * 10));
    sample.emc_hz = sample.emc_hz.or(stats.emc_mhz.map(|mhz| mhz * 1_000_000));
}

/// `2257/30536MB`, in bytes.
fn fraction_of_mib(text: &str) -> (Option<u64>, Option<u64>) {
    let mib = |number: &str| number.parse::<u64>().ok()?.checked_mul(MIB);
    match text.strip_suffix("MB").and_then(|text| text.split_once('/')) {
        Some((used, total)) => (mib(used), mib(total)),
        None => (None, None),
    }
}

/// `5392x4MB)`: so many blocks of the largest free size.
fn largest_free(text: &str) -> Option<(u64, u64)> {
    let (count, size) = text.trim_end_matches(')').strip_suffix("MB")?.split_once('x')?;
    Some((count.parse().ok()?, size.parse::<u64>().ok()?.checked_mul(MIB)?))
}

/// `[90%@2601,off,7%@2601]`.
fn cpus(text: &str) -> Option<Vec<Option<u64>>> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(inside.split(',').map(|cpu| cpu.split_once('@')?.1.parse().ok()).collect())
}

/// `12%`, `45%@318`, `63%@[621]`, `12%@[1300,1300]`, `@[314,314,314]`.
fn gpu(text: &str) -> (Option<u64>, Vec<u64>) {
    let (load, clocks) = text.split_once('@').unwrap_or((text, ""));
    let clocks = clocks.trim_matches(['[', ']']).split(',').filter_map(|mhz| mhz.parse().ok());
    (load.strip_suffix('%').and_then(|percent| percent.parse().ok()), clocks.collect())
}

/// `tj@49.156C`, or with the highest since the start `tj@49.1C/50.0C`.
fn temperature(word: &str) -> Option<(&str, Option<f64>)> {
    let (zone, values) = word.split_once('@')?;
    let now: f64 = values.split('/').next()?.strip_suffix('C')?.parse().ok()?;
    Some((zone, (now != GATED_C).then_some(now)))
}

/// `4761mW/4778mW` (now, average) or with the highest as a third.
fn power(word: &str) -> Option<i64> {
    word.split_once('/')?.0.strip_suffix("mW")?.parse().ok()
}

#[cfg(test)]
mod tests;
