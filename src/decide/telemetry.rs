//! From the kernel's words to numbers, and from samples to their summary.
//!
//! Each parser takes one file as it was read. What does not parse is `None`: a sensor that talks nonsense is a gap in
//! the telemetry and never ends a trial.

use std::collections::btree_map::Entry;

use crate::model::telemetry::{Hottest, OverCurrentEvents, Rail, Sample, Stall, TelemetrySummary, ThrottleLevels};

/// What Tegra's BPMP reports for a zone that is powered down, in thousandths of a degree.
const GATED_MILLI_C: i64 = -256_000;

/// Degrees Celsius of a thermal zone's `temp`; `None` for a gated zone, which is no reading.
pub fn temperature(text: &str) -> Option<f64> {
    let milli: i64 = text.trim().parse().ok()?;
    (milli != GATED_MILLI_C).then_some(milli as f64 / 1000.0)
}

/// A rail of an INA3221 from its voltage in mV and its current in mA.
pub fn rail(mv: u64, ma: i64) -> Option<Rail> {
    let mw = i64::try_from(mv).ok()?.checked_mul(ma)? / 1000;
    Some(Rail { mv: Some(mv), ma: Some(ma), mw })
}

/// Bytes of `key` in `/proc/meminfo`, proc_meminfo(5); its `kB` are 1024 bytes.
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The size in bytes of the largest free block in `/proc/buddyinfo`, and how many there are in all zones.
///
/// Column n counts free blocks of 2^n pages, proc_buddyinfo(5).
pub fn largest_free_block(text: &str, page_bytes: u64) -> Option<(u64, u64)> {
    let mut by_order: Vec<u64> = Vec::new();
    for line in text.lines() {
        let counts = line.split_once("zone")?.1.split_ascii_whitespace().skip(1);
        for (order, count) in counts.enumerate() {
            if order == by_order.len() {
                by_order.push(0);
            }
            by_order[order] += count.parse::<u64>().ok()?;
        }
    }
    let order = by_order.iter().rposition(|count| *count > 0)?;
    Some((page_bytes.checked_shl(u32::try_from(order).ok()?)?, by_order[order]))
}

/// Bytes that all clients hold, from the line `total` of NvMap's `clients`.
pub fn nvmap_total(text: &str) -> Option<u64> {
    let mut words = text.lines().find(|line| line.starts_with("total"))?.split_ascii_whitespace();
    words.nth(1)?.strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
}

/// A file of `/proc/pressure`, in the form of Documentation/accounting/psi.rst.
pub fn stall(text: &str) -> Option<Stall> {
    let line = |kind: &str| text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    fn value<T: std::str::FromStr>(line: &str, key: &str) -> Option<T> {
        line.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
    }
    let (some, full) = (line("some")?, line("full"));
    Some(Stall {
        some_avg10: value(some, "avg10")?,
        some_us: value(some, "total")?,
        full_avg10: full.and_then(|full| value(full, "avg10")),
        full_us: full.and_then(|full| value(full, "total")),
    })
}

/// Adds one sample to a summary.
pub fn summarise(summary: &mut TelemetrySummary, sample: &Sample) {
    let first = summary.samples == 0;
    summary.samples += 1;
    for (zone, temp_c) in sample.temp_c.iter().filter_map(|(zone, temp_c)| Some((zone, (*temp_c)?))) {
        if summary.hottest.as_ref().is_none_or(|hottest| temp_c > hottest.temp_c) {
            summary.hottest = Some(Hottest { zone: zone.clone(), temp_c });
        }
    }
    for (label, rail) in sample.rails.iter().filter_map(|(label, rail)| Some((label, (*rail)?))) {
        let max = summary.power_mw_max.entry(label.clone()).or_insert(rail.mw);
        *max = rail.mw.max(*max);
    }
    summary.available_min = [summary.available_min, sample.memory.available].into_iter().flatten().min();
    for (name, level) in sample.throttle.iter().filter_map(|(name, level)| Some((name, (*level)?))) {
        match summary.throttle.entry(name.clone()) {
            Entry::Occupied(mut known) => known.get_mut().max = level.max(known.get().max),
            Entry::Vacant(new) if level > 0 => {
                new.insert(ThrottleLevels { first: if first { level } else { 0 }, max: level });
            }
            Entry::Vacant(_) => {}
        }
    }
    for (channel, events) in sample.over_current.iter().filter_map(|(name, oc)| Some((name, oc.events?))) {
        let known = summary.over_current.entry(channel.clone());
        let known = known.or_insert(OverCurrentEvents { before: events, during: 0 });
        known.during = events.saturating_sub(known.before);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::telemetry::{Memory, OverCurrent};
    use crate::model::units::UptimeMs;

    #[test]
    fn a_gated_zone_is_no_reading() {
        for (text, expected) in [
            ("48468\n", Some(48.468)),
            ("-5500\n", Some(-5.5)),
            ("0\n", Some(0.0)),
            ("-256000\n", None),
            ("", None),
            ("Invalid argument", None),
        ] {
            assert_eq!(temperature(text), expected, "{text:?}");
        }
    }

    #[test]
    fn power_is_voltage_times_current() {
        assert_eq!(rail(5032, 946), Some(Rail { mv: Some(5032), ma: Some(946), mw: 4760 }));
        // A current that flows back is negative.
        assert_eq!(rail(5000, -8).unwrap().mw, -40);
        assert_eq!(rail(u64::MAX, 1), None);
    }

    #[test]
    fn memory_is_found_by_its_whole_name() {
        let text = "MemTotal:        7802880 kB\nMemFree:         4681728 kB\nMemAvailable:    6242304 kB\nHugePages_Total:       0\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(6_242_304 * 1024));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(meminfo(text, "HugePages_Total"), None);
        assert_eq!(meminfo(text, "SwapFree"), None);
    }

    #[test]
    fn the_largest_free_block_is_counted_over_all_zones() {
        let text = "Node 0, zone      DMA      0      0      3      1      0 \n\
                    Node 0, zone   Normal   1767   1207    314      4      0 \n";
        assert_eq!(largest_free_block(text, 4096), Some((32 * 1024, 5)));
        assert_eq!(largest_free_block("Node 0, zone Normal 0 0 0\n", 4096), None);
        assert_eq!(largest_free_block("nonsense", 4096), None);
        assert_eq!(largest_free_block("", 4096), None);
    }

    #[test]
    fn what_nvmap_clients_hold_is_in_the_line_total() {
        let text = "CLIENT                        PROCESS                PID    SIZE\n\
                    user                          python3               2092 118452K\n\
                    total                                                    118452K\n";
        assert_eq!(nvmap_total(text), Some(118_452 * 1024));
        assert_eq!(nvmap_total("CLIENT PROCESS PID SIZE\n"), None);
    }

    #[test]
    fn pressure_is_read_with_and_without_its_second_line() {
        let both = "some avg10=1.53 avg60=0.36 avg300=0.26 total=5145691\nfull avg10=0.28 avg60=0.28 avg300=0.20 total=2644062\n";
        let stalled = Stall { some_avg10: 1.53, some_us: 5_145_691, full_avg10: Some(0.28), full_us: Some(2_644_062) };
        assert_eq!(stall(both), Some(stalled));
        let some = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(stall(some), Some(Stall::default()));
        assert_eq!(stall("full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"), None);
    }

    /// A sample of one zone, one rail, one cooling device and one over-current channel.
    fn sample(temp_c: Option<f64>, mw: i64, level: u64, events: u64, available: u64) -> Sample {
        Sample {
            temp_c: BTreeMap::from([("cv0-thermal".into(), None), ("tj-thermal".into(), temp_c)]),
            rails: BTreeMap::from([("VDD_IN".into(), Some(Rail { mv: None, ma: None, mw })), ("VDD_SOC".into(), None)]),
            throttle: BTreeMap::from([
                ("cpu-throttle-alert".into(), Some(level)),
                ("gpu-throttle-alert".into(), Some(0)),
            ]),
            over_current: BTreeMap::from([("oc3".into(), OverCurrent { events: Some(events), throttles: Some(1) })]),
            memory: Memory { available: Some(available), ..Memory::default() },
            ..Sample::empty(UptimeMs(0))
        }
    }

    #[test]
    fn a_summary_keeps_the_extremes_and_what_changed() {
        let mut summary = TelemetrySummary::default();
        for (temp_c, mw, level, events, available) in
            [(Some(50.0), 4000, 0, 27_390, 900), (None, 12_479, 2, 27_391, 100), (Some(53.5), 5000, 1, 27_395, 300)]
        {
            summarise(&mut summary, &sample(temp_c, mw, level, events, available));
        }
        assert_eq!(summary.samples, 3);
        assert_eq!(summary.hottest, Some(Hottest { zone: "tj-thermal".into(), temp_c: 53.5 }));
        assert_eq!(summary.power_mw_max, BTreeMap::from([("VDD_IN".into(), 12_479)]));
        assert_eq!(summary.available_min, Some(100));
        let levels = ThrottleLevels { first: 0, max: 2 };
        assert_eq!(summary.throttle, BTreeMap::from([("cpu-throttle-alert".into(), levels)]));
        let events = OverCurrentEvents { before: 27_390, during: 5 };
        assert_eq!(summary.over_current, BTreeMap::from([("oc3".into(), events)]));
    }

    #[test]
    fn throttling_that_was_on_before_the_trial_is_told_apart() {
        let mut summary = TelemetrySummary::default();
        for level in [1, 3] {
            summarise(&mut summary, &sample(None, 0, level, 0, 0));
        }
        assert_eq!(summary.throttle["cpu-throttle-alert"], ThrottleLevels { first: 1, max: 3 });
        assert_eq!(summary.hottest, None);
    }
}
