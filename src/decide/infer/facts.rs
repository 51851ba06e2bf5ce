//! The facts that decide the verdict of an open trial, out of what was found.
//!
//! What was there before the trial's boot is no fact about its end: crash records count by content, drive counters by
//! growth, boots by not having been listed before.

use crate::model::evidence::{
    CrashKind, CrashRecord, DriveCounters, EndSign, EndWord, EvidenceSummary, Fact, Findings, Shutdown,
};
use crate::model::ids::{BootId, ContentDigest};
use crate::model::observed::Cutter;
use crate::model::verdict::StageName;

/// How the boot of the evidence lies to the boot in which the trial started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// It is the same boot.
    Same,
    /// It is the boot that followed.
    Next,
    /// Other boots came between, and their ends overwrote what the trial's boot left.
    Gap,
    /// The machine does not remember its boots.
    Unknown,
}

/// What the harness meant to do with the trial's boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Nothing.
    Nothing,
    /// It declared a reboot before it happened.
    Reboot,
    /// It, or a watcher of its, had the power cut because the machine no longer answered.
    PowerCycle,
    /// It meant nothing; a person cut the power.
    Person,
}

/// How the boot before the evidence ended, by the journal and the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The init system stopped what ran.
    Clean,
    /// Ordinary traffic up to the last line.
    Unclean,
    /// No line of it is left.
    Unknown,
}

/// What kind of reset the power management controller names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetClass {
    /// Software, through the firmware: a reboot, clean or not, or a panic with a timeout.
    Software,
    /// The watchdog of the CPUs: they hung, or panicked and stayed.
    Watchdog,
    /// The watchdog of another processor on the chip.
    FirmwareWatchdog,
    /// A thermal trip of the hardware.
    Thermal,
    /// A monitor of the supply.
    Supply,
    /// Power was applied, or the reset line was pulled.
    PowerOn,
    /// It woke from suspend, which is no reset.
    Suspend,
    /// A word that this build does not know.
    Unknown,
    /// No word.
    Absent,
}

/// What the kernel left that it had not left before: crash records, and its own log of the boot before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// It tells of a panic.
    Panic,
    /// It tells of a watchdog of the kernel's own that resets the machine.
    Watchdog,
    /// It tells of a reset without a shutdown, as by sysrq-b.
    Reset,
    /// It tells of an orderly call to restart or power off.
    Restart,
    /// It tells of trouble (oops, stall, lockup), and not of how that ended.
    Trouble,
    /// Nothing that tells of an end.
    Nothing,
    /// The records could not be read, now or before: nothing is known to be new.
    Unreadable,
}

/// Whether the kernel ordered a shutdown because of heat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThermalLine {
    /// Its log says so.
    Said,
    /// No such line was found.
    Unsaid,
}

/// Whether the drives lost power without notice since the trial's boot began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrivePower {
    /// Every drive that can be compared was powered on anew after an unsafe shutdown.
    Lost,
    /// No drive counted anything.
    Kept,
    /// No drive can be compared, or they do not agree.
    Unknown,
}

/// What the watchdog's boot status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchdogFlag {
    /// It reset the machine.
    Fired,
    /// It does not say so; many drivers never do.
    Silent,
}

/// The facts that decide the verdict of an open trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootFacts {
    /// Where the evidence stands.
    pub distance: Distance,
    /// What the harness meant to do.
    pub intent: Intent,
    /// How the boot before the evidence ended.
    pub ending: Ending,
    /// The last reset.
    pub reset: ResetClass,
    /// What the kernel left.
    pub news: News,
    /// Whether it was too hot.
    pub thermal: ThermalLine,
    /// Whether power was lost.
    pub drive: DrivePower,
    /// Whether a watchdog owns up to it.
    pub watchdog: WatchdogFlag,
}

/// What is known of a trial that was open when the harness went away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEnd {
    /// The boot in which it started.
    pub boot: BootId,
    /// The last stage recorded.
    pub stage: Option<StageName>,
    /// How much may have happened after it without a record.
    pub unrecorded_ms: u64,
    /// Whether its child was known to run.
    pub running: bool,
    /// What the harness meant to do with that boot.
    pub intent: Intent,
    /// Who cut its power, as far as a desk saw.
    pub outside: Option<Cutter>,
}

/// What was there before the trial started: seen at the start of its boot or earlier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Baseline {
    /// Digests of all crash records ever seen.
    pub digests: Vec<ContentDigest>,
    /// Whether the last look at them failed, so that an old record could pass for a new one.
    pub incomplete: bool,
    /// The boots that the machine remembered.
    pub boots: Vec<BootId>,
    /// Power counters of its drives.
    pub drives: Vec<DriveCounters>,
}

impl Baseline {
    /// Takes note of what was found at the start of a boot.
    pub fn learn(&mut self, findings: &Findings) {
        match &findings.crash_records {
            Fact::Known(records) => {
                self.digests.extend(records.iter().map(|record| record.digest.clone()));
                self.digests.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
                self.digests.dedup();
                self.incomplete = false;
            }
            Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => self.incomplete = true,
        }
        // Lists and counters of an earlier boot say nothing of what this one began with.
        self.boots = findings.boots.known().cloned().unwrap_or_default();
        self.drives = findings.drives.known().cloned().unwrap_or_default();
    }
}

/// The facts of an open trial.
pub fn facts_of(end: &OpenEnd, evidence: &EvidenceSummary, now: &BootId, baseline: &Baseline) -> BootFacts {
    let findings = &evidence.findings;
    let left = Left::of(findings, baseline);
    let own = BootFacts {
        distance: distance(end, findings, now, baseline),
        intent: end.intent,
        ending: ending(findings, &left),
        reset: findings.reset.known().map_or(ResetClass::Absent, |reset| reset_class(&reset.reason)),
        news: left.news(),
        thermal: if left.says(EndWord::Thermal) { ThermalLine::Said } else { ThermalLine::Unsaid },
        drive: drive_power(&baseline.drives, findings.drives.known().map_or(&[], Vec::as_slice)),
        watchdog: match findings.watchdog_fired {
            Fact::Known(true) => WatchdogFlag::Fired,
            Fact::Known(false) | Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => WatchdogFlag::Silent,
        },
    };
    with_outside(own, end.outside)
}

/// The facts with what a desk saw. It stands back where the machine's own evidence names another end: a reboot that was
/// declared, a shutdown in order, heat, a reset or restart that the kernel, the reset controller or a watchdog tells of; and where
/// other boots came between, one of which may be the one whose power was cut.
pub fn with_outside(own: BootFacts, outside: Option<Cutter>) -> BootFacts {
    let names_another_end = own.intent != Intent::Nothing
        || own.ending == Ending::Clean
        || own.thermal == ThermalLine::Said
        || matches!(own.news, News::Watchdog | News::Reset | News::Restart)
        || matches!(own.reset, ResetClass::Watchdog | ResetClass::FirmwareWatchdog | ResetClass::Thermal)
        || own.watchdog == WatchdogFlag::Fired;
    let is_near = matches!(own.distance, Distance::Next | Distance::Unknown);
    let intent = match outside {
        Some(cutter) if is_near && !names_another_end => match cutter {
            Cutter::Hang => Intent::PowerCycle,
            Cutter::Person => Intent::Person,
        },
        Some(_) | None => own.intent,
    };
    BootFacts { intent, ..own }
}

/// What the kernel left that is surely of the boot before: records that were not there when the trial's boot began, and
/// its log, which is told by the boot's id.
pub(super) struct Left<'a> {
    records: Vec<&'a CrashRecord>,
    log: &'a [EndSign],
    is_readable: bool,
}

impl<'a> Left<'a> {
    pub(super) fn of(findings: &'a Findings, baseline: &Baseline) -> Self {
        let is_new = |record: &&CrashRecord| !baseline.digests.contains(&record.digest);
        #[cfg(test)]
        let is_new = |record: &&CrashRecord| {
            is_new(record) || crate::model::seeded::is_on(crate::model::seeded::Bug::StaleRecord)
        };
        let mut records: Vec<_> = findings.crash_records.known().into_iter().flatten().filter(is_new).collect();
        let log = findings.kernel_end.known().map_or(&[][..], Vec::as_slice);
        let is_garbled = records.iter().any(|record| record.garbled);
        let may_be_old = baseline.incomplete && !records.is_empty();
        if may_be_old {
            records.clear();
        }
        let is_readable = findings.crash_records.known().is_some() && !may_be_old && !is_garbled;
        Self { records, log, is_readable }
    }

    /// Every word of the end, in the order of their sources.
    pub(super) fn signs(&self) -> impl Iterator<Item = &'a EndSign> {
        self.log.iter().chain(self.records.iter().flat_map(|record| &record.signs))
    }

    fn says(&self, word: EndWord) -> bool {
        self.signs().any(|sign| sign.word == word)
    }

    fn has(&self, kind: CrashKind) -> bool {
        self.records.iter().any(|record| record.kind == kind)
    }

    /// The strongest word first: what the kernel itself said of its end, then what leaves that open.
    fn news(&self) -> News {
        if self.says(EndWord::Panic) || self.has(CrashKind::Panic) {
            News::Panic
        } else if self.says(EndWord::Watchdog) {
            News::Watchdog
        } else if self.says(EndWord::Reset) {
            News::Reset
        } else if !self.is_readable {
            News::Unreadable
        } else if self.says(EndWord::Restart) || self.has(CrashKind::Shutdown) {
            News::Restart
        } else if self.says(EndWord::Trouble) || self.has(CrashKind::Oops) || self.has(CrashKind::Emergency) {
            News::Trouble
        } else {
            News::Nothing
        }
    }
}

fn distance(end: &OpenEnd, findings: &Findings, now: &BootId, baseline: &Baseline) -> Distance {
    if end.boot == *now {
        return Distance::Same;
    }
    #[cfg(test)]
    if crate::model::seeded::is_on(crate::model::seeded::Bug::BootGap) {
        return Distance::Next;
    }
    let Fact::Known(boots) = &findings.boots else { return Distance::Unknown };
    let at = |boot: &BootId| boots.iter().rposition(|b| b == boot);
    let (Some(then), Some(at_now)) = (at(&end.boot), at(now)) else { return Distance::Unknown };
    // The list's order follows clocks, which jump; what it has gained since the trial's boot began came after it.
    let is_between = |boot: &BootId| boot != now && !baseline.boots.contains(boot);
    let has_gained = baseline.boots.contains(&end.boot) && boots.iter().any(is_between);
    match at_now.checked_sub(then) {
        Some(1) if !has_gained => Distance::Next,
        Some(_) => Distance::Gap,
        None => Distance::Unknown,
    }
}

/// By the journal's tail, else by the console of that boot: it ends with the teardown, or with something else.
fn ending(findings: &Findings, left: &Left<'_>) -> Ending {
    match findings.shutdown {
        Fact::Known(Shutdown::Clean) => Ending::Clean,
        Fact::Known(Shutdown::Unclean) => Ending::Unclean,
        Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) if left.says(EndWord::Teardown) => Ending::Clean,
        // A program may call for a restart with or without a shutdown before it; without the journal nobody knows.
        Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) if left.says(EndWord::Restart) => Ending::Unknown,
        Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) if left.has(CrashKind::Console) => Ending::Unclean,
        Fact::Absent | Fact::Denied(_) | Fact::Garbled(_) => Ending::Unknown,
    }
}

/// Both counters grow when power is lost, neither does on a reset (NVMe base specification, SMART log; a drive that is
/// told to stop counts a power cycle and no unsafe shutdown).
fn drive_power(before: &[DriveCounters], now: &[DriveCounters]) -> DrivePower {
    let of = |drive: &DriveCounters| {
        let old = before.iter().find(|old| old.drive == drive.drive)?;
        Some((
            drive.power_cycles.checked_sub(old.power_cycles),
            drive.unsafe_shutdowns.checked_sub(old.unsafe_shutdowns),
        ))
    };
    let mut growths = now.iter().filter_map(of).peekable();
    if growths.peek().is_none() {
        return DrivePower::Unknown;
    }
    let growths: Vec<_> = growths.collect();
    let all = |pattern: fn(&(Option<u64>, Option<u64>)) -> bool| growths.iter().all(pattern);
    if all(|growth| matches!(growth, (Some(1..), Some(1..)))) {
        DrivePower::Lost
    } else if all(|growth| *growth == (Some(0), Some(0))) {
        DrivePower::Kept
    } else {
        DrivePower::Unknown
    }
}

/// The class of a reset word, by its name: the tables of drivers/soc/tegra/pmc.c, upstream and in Jetson Linux, and those
/// proposed for Tegra264. Numbers and order differ between chips and versions; names do not.
pub fn reset_class(word: &str) -> ResetClass {
    match word {
        "MAINSWRST" | "SWREST" | "SW_MAIN" => ResetClass::Software,
        "BCCPLEXWDT" | "MCCPLEXWDT" | "LCCPLEXWDT" => ResetClass::Watchdog,
        "SENSOR" => ResetClass::Thermal,
        "VMON" | "VREFRO_POWERBAD" | "POD" | "FSI_VMON" => ResetClass::Supply,
        "SYS_RESET_N" | "SYS_RESET" | "POWER_ON_RESET" | "TEGRA_POWER_ON_RESET" => ResetClass::PowerOn,
        "SC7" => ResetClass::Suspend,
        word if is_cpu_watchdog(word) => ResetClass::Watchdog,
        word if word.ends_with("_THERM_FAULT") || word == "FSI_THERM" => ResetClass::Thermal,
        word if is_firmware_watchdog(word) => ResetClass::FirmwareWatchdog,
        _ => ResetClass::Unknown,
    }
}

/// `TOP_0_WDT_POR` and its like: the CPU watchdogs of Tegra264.
fn is_cpu_watchdog(word: &str) -> bool {
    let number = word.strip_prefix("TOP_").and_then(|rest| rest.strip_suffix("_WDT_POR"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_firmware_watchdog(word: &str) -> bool {
    const PROCESSORS: [&str; 11] = ["AO", "BPMP", "SCE", "SPE", "APE", "RCE", "DCE", "PSC", "PVA0", "PVA1", "GPU_TKE"];
    let processor = word.strip_suffix("_WDT_POR").or_else(|| word.strip_suffix("WDT"));
    processor.is_some_and(|processor| PROCESSORS.contains(&processor) || processor.starts_with("FSI_R5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_word_is_known_by_its_name() {
        use ResetClass::*;
        for (words, class) in [
            (&["MAINSWRST", "SW_MAIN"][..], Software),
            (&["BCCPLEXWDT", "LCCPLEXWDT", "TOP_0_WDT_POR", "TOP_2_WDT_POR"], Watchdog),
            (&["BPMPWDT", "SCEWDT", "APEWDT", "RCEWDT", "DCEWDT", "PSCWDT", "AOWDT", "AO_WDT_POR"], FirmwareWatchdog),
            (&["FSI_R5WDT", "FSI_R52C0WDT", "GPU_TKE_WDT_POR", "BPMP_WDT_POR"], FirmwareWatchdog),
            (&["SENSOR", "NV_THERM_FAULT", "SOC_THERM_FAULT", "FSI_THERM"], Thermal),
            (&["VMON", "VREFRO_POWERBAD", "POD", "FSI_VMON"], Supply),
            (&["SYS_RESET_N", "TEGRA_POWER_ON_RESET"], PowerOn),
            (&["SC7"], Suspend),
            (
                &["SOMETHING_NEW_RST", "(null)", "mainswrst", "TOP__WDT_POR", "FUSECRC", "HSM", "CSITE_SW", "FMON"],
                Unknown,
            ),
        ] {
            for word in words {
                assert_eq!(reset_class(word), class, "{word}");
            }
        }
    }

    fn drives(counters: &[(&str, u64, u64)]) -> Vec<DriveCounters> {
        let one = |&(drive, power_cycles, unsafe_shutdowns): &(&str, u64, u64)| DriveCounters {
            drive: drive.into(),
            power_cycles,
            unsafe_shutdowns,
        };
        counters.iter().map(one).collect()
    }

    #[test]
    fn power_was_lost_where_both_counters_grew_and_every_drive_agrees() {
        let before = drives(&[("nvme0", 37, 12), ("nvme1", 5, 5)]);
        for (now, want) in [
            (drives(&[("nvme0", 38, 13)]), DrivePower::Lost),
            (drives(&[("nvme0", 39, 14), ("nvme1", 6, 6)]), DrivePower::Lost),
            (drives(&[("nvme0", 37, 12)]), DrivePower::Kept),
            // An orderly power-off, one drive alone, a drive that was exchanged, none that is known.
            (drives(&[("nvme0", 38, 12)]), DrivePower::Unknown),
            (drives(&[("nvme0", 38, 13), ("nvme1", 5, 5)]), DrivePower::Unknown),
            (drives(&[("nvme0", 1, 0)]), DrivePower::Unknown),
            (drives(&[("nvme7", 38, 13)]), DrivePower::Unknown),
            (vec![], DrivePower::Unknown),
        ] {
            assert_eq!(drive_power(&before, &now), want, "{now:?}");
        }
    }
}
