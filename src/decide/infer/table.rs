//! The table: which facts mean what.
//!
//! Rows stand in groups, each narrower than the one before: where the evidence stands, what was meant, heat, a clean end,
//! then what the kernel left, what the reset controller says, and last the counters. Within a group the rows that name a
//! cause come first and those in which the facts contradict each other follow.

use super::facts::{BootFacts, Distance, DrivePower, Ending, Intent, News, ResetClass, ThermalLine, WatchdogFlag};
use crate::model::verdict::{RebootCause, Verdict};

/// One row.
#[derive(Debug)]
pub struct BootRule {
    /// Its name in the journal and in `explain`.
    pub label: &'static str,
    /// Matching values of [`BootFacts::distance`].
    pub distance: &'static [Distance],
    /// Matching values of [`BootFacts::intent`].
    pub intent: &'static [Intent],
    /// Matching values of [`BootFacts::thermal`].
    pub thermal: &'static [ThermalLine],
    /// Matching values of [`BootFacts::ending`].
    pub ending: &'static [Ending],
    /// Matching values of [`BootFacts::news`].
    pub news: &'static [News],
    /// Matching values of [`BootFacts::reset`].
    pub reset: &'static [ResetClass],
    /// Matching values of [`BootFacts::drive`].
    pub drive: &'static [DrivePower],
    /// Matching values of [`BootFacts::watchdog`].
    pub watchdog: &'static [WatchdogFlag],
    /// The verdict.
    pub verdict: Verdict,
    /// The cause, where the verdict is `reboot`.
    pub cause: Option<RebootCause>,
    /// What stands beside the verdict.
    pub detail: Detail,
    /// Why, in one line.
    pub because: &'static str,
}

/// What stands beside a verdict across a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    Nothing,
    /// These words.
    Words(&'static str),
    /// These words and the reset controller's own.
    WithReset(&'static str),
    /// Who ordered the shutdown, if the journal says so.
    WhoOrdered,
    /// All that was seen, since it does not agree.
    Contradiction,
}

const ANY_INTENT: &[Intent] = &[Intent::Nothing, Intent::Reboot, Intent::PowerCycle, Intent::Person];
const ANY_THERMAL: &[ThermalLine] = &[ThermalLine::Said, ThermalLine::Unsaid];
const ANY_ENDING: &[Ending] = &[Ending::Clean, Ending::Unclean, Ending::Unknown];
const ANY_NEWS: &[News] =
    &[News::Panic, News::Watchdog, News::Reset, News::Restart, News::Trouble, News::Nothing, News::Unreadable];
const ANY_RESET: &[ResetClass] = &[
    ResetClass::Software,
    ResetClass::Watchdog,
    ResetClass::FirmwareWatchdog,
    ResetClass::Thermal,
    ResetClass::Supply,
    ResetClass::PowerOn,
    ResetClass::Suspend,
    ResetClass::Unknown,
    ResetClass::Absent,
];
const ANY_DRIVE: &[DrivePower] = &[DrivePower::Lost, DrivePower::Kept, DrivePower::Unknown];
const ANY_FLAG: &[WatchdogFlag] = &[WatchdogFlag::Fired, WatchdogFlag::Silent];

const AWAY: &[Distance] = &[Distance::Next, Distance::Gap, Distance::Unknown];
const FAR: &[Distance] = &[Distance::Gap, Distance::Unknown];
/// No teardown was seen.
const ABRUPT: &[Ending] = &[Ending::Unclean, Ending::Unknown];
const NOT_LOST: &[DrivePower] = &[DrivePower::Kept, DrivePower::Unknown];
const LOST: &[DrivePower] = &[DrivePower::Lost];
const FIRED: &[WatchdogFlag] = &[WatchdogFlag::Fired];
const SILENT: &[WatchdogFlag] = &[WatchdogFlag::Silent];

/// The kernel said what ended it.
const SAID: &[News] = &[News::Panic, News::Watchdog, News::Reset];
/// It did not.
const UNSAID: &[News] = &[News::Restart, News::Trouble, News::Nothing, News::Unreadable];
/// Nobody called for a restart either.
const UNCALLED: &[News] = &[News::Trouble, News::Nothing, News::Unreadable];
/// No panic is known, and one would be.
const NO_PANIC: &[News] = &[News::Trouble, News::Nothing];
/// The machine was in no trouble that is known.
const NO_TROUBLE: &[News] = &[News::Nothing, News::Unreadable];

/// Words that a restart by software may leave, and those that say nothing.
const SOFT: &[ResetClass] = &[ResetClass::Software, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent];
/// Words that say nothing.
const MUTE: &[ResetClass] = &[ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent];
const WATCHDOGS: &[ResetClass] = &[ResetClass::Watchdog, ResetClass::FirmwareWatchdog];

impl BootRule {
    /// The row in which all of `facts` stand, if it does.
    pub fn matches(&self, facts: &BootFacts) -> bool {
        self.distance.contains(&facts.distance)
            && self.intent.contains(&facts.intent)
            && self.thermal.contains(&facts.thermal)
            && self.ending.contains(&facts.ending)
            && self.news.contains(&facts.news)
            && self.reset.contains(&facts.reset)
            && self.drive.contains(&facts.drive)
            && self.watchdog.contains(&facts.watchdog)
    }
}

/// The row of the table that matches `facts`.
pub fn boot_rule(facts: &BootFacts) -> &'static BootRule {
    BOOT_RULES.iter().find(|rule| rule.matches(facts)).expect("a test shows that one row matches")
}

/// A row for any facts in the boot that followed the trial's, where nothing was meant.
const fn next(label: &'static str, cause: RebootCause, because: &'static str) -> BootRule {
    BootRule {
        label,
        distance: &[Distance::Next],
        intent: &[Intent::Nothing],
        thermal: &[ThermalLine::Unsaid],
        ending: ABRUPT,
        news: ANY_NEWS,
        reset: ANY_RESET,
        drive: ANY_DRIVE,
        watchdog: ANY_FLAG,
        verdict: Verdict::Reboot,
        cause: Some(cause),
        detail: Detail::Nothing,
        because,
    }
}

/// Such a row in which the facts do not agree.
const fn torn(label: &'static str, because: &'static str) -> BootRule {
    BootRule { detail: Detail::Contradiction, ..next(label, RebootCause::Undetermined, because) }
}

/// A row for a verdict that has no cause.
const fn other(label: &'static str, verdict: Verdict, because: &'static str) -> BootRule {
    BootRule {
        distance: AWAY,
        intent: ANY_INTENT,
        thermal: ANY_THERMAL,
        ending: ANY_ENDING,
        verdict,
        cause: None,
        ..next(label, RebootCause::Undetermined, because)
    }
}

use RebootCause::{Panic, Power, SoftwareReset, Thermal, Undetermined, Watchdog};

/// The table.
#[rustfmt::skip]
pub const BOOT_RULES: &[BootRule] = &[
    // The same boot.
    BootRule {
        distance: &[Distance::Same],
        reset: &[ResetClass::Software, ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Thermal, ResetClass::Supply, ResetClass::PowerOn, ResetClass::Unknown, ResetClass::Absent],
        detail: Detail::Words("the harness died; the boot is the same"),
        ..other("same-boot", Verdict::Void, "the machine stayed up: the harness died, not the board")
    },
    BootRule {
        distance: &[Distance::Same], reset: &[ResetClass::Suspend],
        detail: Detail::Words("suspended"),
        ..other("suspended", Verdict::Void, "the machine slept and woke: that is no reboot, and the trial's times are worth nothing")
    },

    // What the harness meant.
    BootRule { intent: &[Intent::Reboot], ..other("declared", Verdict::Planned, "the harness declared this reboot before it happened") },
    BootRule {
        distance: FAR, intent: &[Intent::PowerCycle],
        detail: Detail::Words(NEEDS_POWER_CYCLE),
        ..other("power-cycled-before", Verdict::Hang, "the power was cut because the machine no longer answered; other boots came since")
    },
    BootRule {
        distance: &[Distance::Next], intent: &[Intent::PowerCycle], ending: ABRUPT,
        news: &[News::Watchdog, News::Reset, News::Restart, News::Trouble, News::Nothing, News::Unreadable],
        detail: Detail::Words(NEEDS_POWER_CYCLE),
        ..other("power-cycled", Verdict::Hang, "the power was cut because the machine no longer answered")
    },
    BootRule {
        intent: &[Intent::PowerCycle], thermal: ANY_THERMAL, news: &[News::Panic],
        ..next("power-cycled-panic", Panic, "the machine no longer answered because its kernel had panicked")
    },
    BootRule {
        distance: &[Distance::Next], intent: &[Intent::PowerCycle], ending: &[Ending::Clean],
        ..other("power-cycled-clean", Verdict::Planned, "the harness had the power cut, and the machine shut down in order: it was alive")
    },

    BootRule {
        distance: FAR, intent: &[Intent::Person],
        detail: Detail::Words(POWER_CUT_BY_PERSON),
        ..other("power-cut-before", Verdict::Operator, "a person cut the power; the machine does not tell which boot that ended")
    },
    BootRule {
        distance: &[Distance::Next], intent: &[Intent::Person],
        news: &[News::Watchdog, News::Reset, News::Restart, News::Trouble, News::Nothing, News::Unreadable],
        detail: Detail::Words(POWER_CUT_BY_PERSON),
        ..other("power-cut", Verdict::Operator, "a person cut the power")
    },
    BootRule {
        intent: &[Intent::Person], thermal: ANY_THERMAL, ending: ANY_ENDING, news: &[News::Panic],
        ..next("power-cut-panic", Panic, "its kernel had panicked when a person cut the power")
    },

    // Other boots may have overwritten what the trial's boot left.
    BootRule {
        distance: &[Distance::Gap], thermal: ANY_THERMAL, ending: ANY_ENDING,
        detail: Detail::Words("boots between"),
        ..next("boots-between", Undetermined, "other boots came between: what is found now may be theirs")
    },
    BootRule {
        distance: &[Distance::Unknown], thermal: ANY_THERMAL, ending: ANY_ENDING,
        ..next("boots-unknown", Undetermined, "the machine does not remember its boots: others may have come between")
    },

    // Heat.
    BootRule {
        thermal: &[ThermalLine::Said], ending: ANY_ENDING, news: UNSAID,
        reset: &[ResetClass::Software, ResetClass::Thermal, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        watchdog: SILENT,
        ..next("thermal-line", Thermal, "the kernel shut the machine down because a zone passed its critical trip")
    },
    BootRule {
        thermal: &[ThermalLine::Said], ending: ANY_ENDING, news: SAID,
        ..torn("thermal-line-and-record", "the kernel speaks of heat and of another end")
    },
    BootRule {
        thermal: &[ThermalLine::Said], ending: ANY_ENDING, news: UNSAID, reset: &[ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Supply],
        ..torn("thermal-line-and-reset", "the kernel speaks of heat, and the reset controller of something else")
    },
    BootRule {
        thermal: &[ThermalLine::Said], ending: ANY_ENDING, news: UNSAID,
        reset: &[ResetClass::Software, ResetClass::Thermal, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        watchdog: FIRED,
        ..torn("thermal-line-and-watchdog", "the kernel speaks of heat, and a watchdog says that it acted")
    },
    BootRule {
        ending: ANY_ENDING, news: UNCALLED, reset: &[ResetClass::Thermal], watchdog: SILENT,
        ..next("thermal-word", Thermal, "the reset controller names a thermal trip; the hardware's own leaves no line")
    },
    BootRule {
        ending: ANY_ENDING, news: UNCALLED, reset: &[ResetClass::Thermal], watchdog: FIRED,
        ..torn("thermal-word-and-watchdog", "the reset controller names heat, and a watchdog says that it acted")
    },
    BootRule {
        ending: ANY_ENDING, news: &[News::Panic, News::Watchdog, News::Reset, News::Restart], reset: &[ResetClass::Thermal],
        ..torn("thermal-word-and-record", "the reset controller names heat, and the kernel another end")
    },

    // A clean end.
    BootRule {
        ending: &[Ending::Clean], news: UNSAID, intent: &[Intent::Nothing], distance: &[Distance::Next], thermal: &[ThermalLine::Unsaid],
        reset: &[ResetClass::Software, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        drive: NOT_LOST, watchdog: SILENT,
        detail: Detail::WhoOrdered,
        ..other("clean-shutdown", Verdict::Operator, "the machine was shut down in order, and not by the harness")
    },
    BootRule {
        ending: &[Ending::Clean], news: SAID,
        reset: &[ResetClass::Software, ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Supply, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        ..torn("clean-and-record", "the machine was shut down in order, and its kernel tells of another end")
    },
    BootRule {
        ending: &[Ending::Clean], news: UNSAID, reset: &[ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Supply],
        ..torn("clean-and-reset", "the machine was shut down in order, and the reset controller says otherwise")
    },
    BootRule {
        ending: &[Ending::Clean], news: UNSAID,
        reset: &[ResetClass::Software, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        drive: LOST,
        ..torn("clean-and-power", "the machine was shut down in order, and its drives lost power without notice")
    },
    BootRule {
        ending: &[Ending::Clean], news: UNSAID,
        reset: &[ResetClass::Software, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        drive: NOT_LOST, watchdog: FIRED,
        ..torn("clean-and-watchdog", "the machine was shut down in order, and a watchdog says that it acted")
    },

    // What the kernel said of its end.
    BootRule {
        news: &[News::Panic],
        reset: &[ResetClass::Software, ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        drive: NOT_LOST,
        ..next("new-panic-record", Panic, "the kernel tells of a panic that was not there before; whatever reset the machine came after it")
    },
    BootRule {
        news: &[News::Panic],
        reset: &[ResetClass::Software, ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::PowerOn, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        drive: LOST,
        ..torn("panic-and-power", "a record tells of a panic, and the drives lost power: memory that decays over a cut gives an old record a new face")
    },
    BootRule {
        news: &[News::Panic], reset: &[ResetClass::Supply],
        ..torn("panic-and-supply", "the kernel panicked, and the supply failed: either may have led to the other")
    },
    BootRule {
        news: &[News::Watchdog], reset: &[ResetClass::Software, ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        drive: NOT_LOST,
        ..next("watchdog-record", Watchdog, "a watchdog of the kernel's own said that it resets the machine")
    },
    BootRule {
        news: &[News::Watchdog], reset: &[ResetClass::Supply, ResetClass::PowerOn],
        ..torn("watchdog-record-and-reset", "a watchdog said that it resets the machine, and the reset controller says otherwise")
    },
    BootRule {
        news: &[News::Watchdog], reset: &[ResetClass::Software, ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Suspend, ResetClass::Unknown, ResetClass::Absent],
        drive: LOST,
        ..torn("watchdog-record-and-power", "a watchdog said that it resets the machine, and its drives lost power")
    },
    BootRule {
        news: &[News::Reset], reset: SOFT, drive: NOT_LOST, watchdog: SILENT,
        ..next("reset-record", SoftwareReset, "the kernel was told to reset the machine at once, without a shutdown")
    },
    BootRule {
        news: &[News::Reset], reset: &[ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Supply, ResetClass::PowerOn],
        ..torn("reset-record-and-reset", "the kernel was told to reset the machine, and the reset controller says otherwise")
    },
    BootRule {
        news: &[News::Reset], reset: SOFT, drive: LOST,
        ..torn("reset-record-and-power", "the kernel was told to reset the machine, and its drives lost power")
    },
    BootRule {
        news: &[News::Reset], reset: SOFT, drive: NOT_LOST, watchdog: FIRED,
        ..torn("reset-record-and-watchdog", "the kernel was told to reset the machine, and a watchdog says that it acted")
    },
    BootRule {
        ending: &[Ending::Unclean], news: &[News::Restart], reset: SOFT, drive: NOT_LOST, watchdog: SILENT,
        ..next("restart-without-shutdown", SoftwareReset, "a program had the kernel restart, and the init system stopped nothing")
    },
    BootRule {
        ending: &[Ending::Unknown], news: &[News::Restart], reset: SOFT, drive: NOT_LOST, watchdog: SILENT,
        detail: Detail::Words("restarted by software, in order or not"),
        ..next("restart-of-some-kind", Undetermined, "a program had the kernel restart; whether what ran was stopped first is not known")
    },
    BootRule {
        news: &[News::Restart], reset: &[ResetClass::Watchdog, ResetClass::FirmwareWatchdog, ResetClass::Supply, ResetClass::PowerOn],
        ..torn("restart-and-reset", "a program had the kernel restart, and the reset controller says otherwise")
    },
    BootRule {
        news: &[News::Restart], reset: SOFT, drive: LOST,
        ..torn("restart-and-power", "a program had the kernel restart, and its drives lost power")
    },
    BootRule {
        news: &[News::Restart], reset: SOFT, drive: NOT_LOST, watchdog: FIRED,
        ..torn("restart-and-watchdog", "a program had the kernel restart, and a watchdog says that it acted")
    },

    // What the reset controller says.
    BootRule {
        news: NO_PANIC, reset: &[ResetClass::Watchdog], drive: NOT_LOST,
        ..next("watchdog-word", Watchdog, "the watchdog of the CPUs reset a machine that no longer ran, and its kernel left no panic")
    },
    BootRule {
        news: &[News::Unreadable], reset: &[ResetClass::Watchdog], drive: NOT_LOST,
        detail: Detail::WithReset("a watchdog reset; whether after a panic or a hang is not known"),
        ..next("watchdog-word-or-panic", Undetermined, "a kernel that panics and stays is reset by the watchdog too, and no record of it could be read")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::FirmwareWatchdog], drive: NOT_LOST,
        detail: Detail::WithReset("the watchdog of another processor"),
        ..next("firmware-watchdog", Watchdog, "the watchdog of another processor on the chip reset the machine")
    },
    BootRule {
        news: UNCALLED, reset: WATCHDOGS, drive: LOST,
        ..torn("watchdog-word-and-power", "the reset controller names a watchdog, and the drives lost power")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::Supply], watchdog: SILENT,
        ..next("supply-word", Power, "the reset controller names a monitor of the supply")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::Supply], watchdog: FIRED,
        ..torn("supply-word-and-watchdog", "the reset controller names the supply, and a watchdog says that it acted")
    },

    // What a watchdog or the drives say.
    BootRule {
        news: NO_PANIC, reset: MUTE, drive: NOT_LOST, watchdog: FIRED,
        ..next("watchdog-flag", Watchdog, "a watchdog says that it reset the machine, and its kernel left no panic")
    },
    BootRule {
        news: &[News::Unreadable], reset: MUTE, drive: NOT_LOST, watchdog: FIRED,
        detail: Detail::Words("a watchdog reset; whether after a panic or a hang is not known"),
        ..next("watchdog-flag-or-panic", Undetermined, "a kernel that panics and stays is reset by the watchdog too, and no record of it could be read")
    },
    BootRule {
        news: UNCALLED, reset: MUTE, drive: LOST, watchdog: FIRED,
        ..torn("watchdog-flag-and-power", "a watchdog says that it acted, and the drives lost power")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::Software, ResetClass::PowerOn], watchdog: FIRED,
        ..torn("watchdog-flag-and-reset", "a watchdog says that it acted, and the reset controller says otherwise")
    },
    BootRule {
        news: NO_TROUBLE, reset: &[ResetClass::PowerOn, ResetClass::Absent], drive: LOST, watchdog: SILENT,
        ..next("power-lost", Power, "every drive counts an unsafe shutdown and a power cycle more than when the trial's boot began")
    },
    BootRule {
        news: &[News::Trouble], reset: &[ResetClass::PowerOn, ResetClass::Absent], drive: LOST, watchdog: SILENT,
        detail: Detail::Words("power was cut from a machine in trouble"),
        ..next("power-lost-in-trouble", Undetermined, "the drives lost power, and the kernel was in trouble before: somebody may have pulled the plug on a hang")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::Software, ResetClass::Suspend, ResetClass::Unknown], drive: LOST, watchdog: SILENT,
        ..torn("power-lost-and-reset", "the drives lost power, and the reset controller does not say so")
    },

    // Nothing says why.
    BootRule {
        news: UNCALLED, reset: &[ResetClass::PowerOn], drive: NOT_LOST, watchdog: SILENT,
        detail: Detail::WithReset("power or reset line"),
        ..next("power-or-reset-line", Undetermined, "power was applied or the reset line was pulled; no drive proves which")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::Software], drive: NOT_LOST, watchdog: SILENT,
        detail: Detail::WithReset("silent software reset"),
        ..next("silent-software-reset", Undetermined, "software reset the machine through the firmware; nothing was shut down and nothing says who")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::Unknown], drive: NOT_LOST, watchdog: SILENT,
        detail: Detail::WithReset("a reset word that this build does not know"),
        ..next("unknown-word", Undetermined, "the reset controller's word is not known to this build, and is not guessed at")
    },
    BootRule {
        news: UNCALLED, reset: &[ResetClass::Suspend, ResetClass::Absent], drive: NOT_LOST, watchdog: SILENT,
        detail: Detail::Words("silent: nothing says why"),
        ..next("no-news", Undetermined, "the boot id changed, and nothing says why")
    },
];

/// What stands beside a hang that only a loss of power ended.
pub const NEEDS_POWER_CYCLE: &str = "needs-power-cycle";

/// What stands beside the end of a trial whose machine lost its power by a person's hand.
pub const POWER_CUT_BY_PERSON: &str = "power cut by a person";

#[cfg(test)]
mod tests {
    use super::super::facts::with_outside;
    use super::*;
    use crate::model::observed::Cutter;

    const DISTANCES: [Distance; 4] = [Distance::Same, Distance::Next, Distance::Gap, Distance::Unknown];

    fn all() -> impl Iterator<Item = BootFacts> {
        DISTANCES.into_iter().flat_map(|distance| {
            ANY_INTENT.iter().flat_map(move |&intent| {
                ANY_ENDING.iter().flat_map(move |&ending| {
                    ANY_RESET.iter().flat_map(move |&reset| {
                        ANY_NEWS.iter().flat_map(move |&news| {
                            ANY_THERMAL.iter().flat_map(move |&thermal| {
                                ANY_DRIVE.iter().flat_map(move |&drive| {
                                    ANY_FLAG.iter().map(move |&watchdog| BootFacts {
                                        distance,
                                        intent,
                                        ending,
                                        reset,
                                        news,
                                        thermal,
                                        drive,
                                        watchdog,
                                    })
                                })
                            })
                        })
                    })
                })
            })
        })
    }

    #[test]
    fn exactly_one_row_matches_every_combination_of_facts() {
        let mut used = vec![0; BOOT_RULES.len()];
        for facts in all() {
            let rows: Vec<usize> = (0..BOOT_RULES.len()).filter(|&row| BOOT_RULES[row].matches(&facts)).collect();
            let labels: Vec<_> = rows.iter().map(|&row| BOOT_RULES[row].label).collect();
            assert_eq!(rows.len(), 1, "{facts:?}: {labels:?}");
            used[rows[0]] += 1;
        }
        assert_eq!(used.iter().sum::<usize>(), 4 * 4 * 3 * 9 * 7 * 2 * 3 * 2);
        assert!(used.iter().all(|&times| times > 0), "every row is of use");
    }

    #[test]
    fn labels_are_unique() {
        let mut labels: Vec<_> = BOOT_RULES.iter().map(|rule| rule.label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), BOOT_RULES.len());
    }

    #[test]
    fn a_cause_is_named_only_by_the_boot_that_followed() {
        for rule in BOOT_RULES {
            let named = !matches!(rule.cause, None | Some(Undetermined));
            assert!(!named || rule.distance == [Distance::Next], "{}", rule.label);
            assert_eq!(rule.cause.is_some(), rule.verdict == Verdict::Reboot, "{}", rule.label);
        }
    }

    #[test]
    fn a_cause_rests_on_what_speaks_for_it_and_not_on_what_is_missing() {
        for facts in all() {
            let speaks = |cause| match cause {
                Panic => facts.news == News::Panic,
                Watchdog => {
                    WATCHDOGS.contains(&facts.reset)
                        || facts.watchdog == WatchdogFlag::Fired
                        || facts.news == News::Watchdog
                }
                Thermal => facts.thermal == ThermalLine::Said || facts.reset == ResetClass::Thermal,
                Power => facts.drive == DrivePower::Lost || facts.reset == ResetClass::Supply,
                SoftwareReset => matches!(facts.news, News::Reset | News::Restart),
                Undetermined => true,
            };
            let rule = boot_rule(&facts);
            assert!(rule.cause.is_none_or(speaks), "{}: {facts:?}", rule.label);
            if rule.verdict == Verdict::Operator {
                assert!(facts.ending == Ending::Clean || facts.intent == Intent::Person, "{facts:?}");
            }
            if rule.verdict == Verdict::Hang {
                assert_eq!(facts.intent, Intent::PowerCycle, "{facts:?}");
            }
        }
    }

    /// What a desk saw decides only where the machine itself leaves the cause open, or saw no more than the loss of power:
    /// it turns a reboot into a hang or a person's doing, and never makes a fault of what was none.
    #[test]
    fn what_was_seen_from_outside_fills_gaps_and_contradicts_nothing() {
        let (mut hangs, mut persons) = (0, 0);
        for own in all().filter(|own| matches!(own.intent, Intent::Nothing | Intent::Reboot | Intent::PowerCycle)) {
            let before = boot_rule(&own);
            assert_eq!(boot_rule(&with_outside(own, None)).label, before.label);
            for cutter in [Cutter::Hang, Cutter::Person] {
                let after = boot_rule(&with_outside(own, Some(cutter)));
                if after.label == before.label {
                    continue;
                }
                assert_eq!(before.verdict, Verdict::Reboot, "{} → {}: {own:?}", before.label, after.label);
                let may_change = matches!(before.cause, Some(Undetermined | Power | Panic));
                assert!(may_change, "{} → {}: {own:?}", before.label, after.label);
                match after.verdict {
                    Verdict::Hang => hangs += usize::from(cutter == Cutter::Hang),
                    Verdict::Operator => persons += usize::from(cutter == Cutter::Person),
                    // A panic that the machine kept is what ended it, whoever cut the power afterwards.
                    Verdict::Reboot => assert_eq!((after.cause, own.news), (Some(Panic), News::Panic), "{own:?}"),
                    other => panic!("{other}: {own:?}"),
                }
            }
        }
        assert!(hangs > 0 && persons == hangs, "{hangs} and {persons}");
    }
}
