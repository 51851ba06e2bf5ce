//! The words for facts across a boot, and what would have decided otherwise.

use super::{Seen, WouldDecide, seen};
use crate::decide::agenda::Agenda;
use crate::decide::infer::{
    Baseline, BootFacts, BootRule, Distance, DrivePower, Ending, Intent, News, OpenEnd, ResetClass, ThermalLine,
    WatchdogFlag, boot_rule, facts_of, no_evidence, seen as evidence_seen,
};
use crate::decide::run::RunState;
use crate::model::evidence::{EvidenceSummary, Fact};
use crate::model::ids::BootId;
use crate::model::observed::Observed;
use crate::model::verdict::{RebootCause, Verdict};

/// What was known when a trial was judged that the harness did not see end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEvidence {
    /// How the trial stood when it was last seen.
    pub end: OpenEnd,
    /// The boot whose evidence judged it.
    pub now: BootId,
    /// That evidence; absent where the harness came back in the trial's own boot.
    pub evidence: Option<EvidenceSummary>,
    /// What was there before.
    pub baseline: Baseline,
    /// What desks saw of the end of the trial's boot.
    pub outside: Vec<Observed>,
}

impl BootEvidence {
    /// What `state` knows of its open trial, before its verdict is applied; `None` if there is none or it was seen to
    /// end.
    pub fn of(state: &RunState, agenda: &Agenda) -> Option<Self> {
        let open = state.open.as_ref().filter(|open| open.outcome.is_none())?;
        let (now, evidence) = match &open.next_boot {
            Some((boot, evidence)) => (boot.clone(), Some(evidence.clone())),
            None => (open.boot.clone(), None),
        };
        let outside = state.outside.of(&open.boot).to_vec();
        Some(Self { end: state.open_end(agenda, open), now, evidence, baseline: state.baseline.clone(), outside })
    }

    /// The facts that decide the row.
    pub(super) fn facts(&self) -> BootFacts {
        let evidence = self.evidence.clone().unwrap_or_else(no_evidence);
        facts_of(&self.end, &evidence, &self.now, &self.baseline)
    }

    /// What would have led elsewhere.
    pub(super) fn would_decide(&self) -> Vec<WouldDecide> {
        let facts = self.facts();
        let rule = boot_rule(&facts);
        if rule.verdict != Verdict::Reboot { Vec::new() } else { alternatives(&facts, rule) }
    }
}

/// What the machine said.
pub(super) fn observed(evidence: &BootEvidence, observed: &mut Vec<Seen>) {
    let Some(summary) = &evidence.evidence else {
        observed.push(seen("evidence", "the harness came back in the same boot"));
        return;
    };
    let findings = &summary.findings;
    observed.push(seen("evidence of boot", evidence.now.as_str()));
    observed.push(seen("boots", unread(&findings.boots, |boots| format!("{} remembered", boots.len()))));
    observed
        .push(seen("crash records", unread(&findings.crash_records, |records| format!("{} present", records.len()))));
    observed.push(seen("crash records known before", evidence.baseline.digests.len().to_string()));
    if let Fact::Known(who) = &findings.ordered_by {
        observed.push(seen("shutdown ordered by", who.as_str()));
    }
    if let Fact::Known(drives) = &findings.drives {
        for drive in drives {
            let before = evidence.baseline.drives.iter().find(|old| old.drive == drive.drive);
            let before = before.map_or_else(
                || "before not known".to_owned(),
                |old| format!("before {} and {}", old.power_cycles, old.unsafe_shutdowns),
            );
            let counters = format!(
                "{}: {} power cycles, {} unsafe shutdowns ({before})",
                drive.drive, drive.power_cycles, drive.unsafe_shutdowns
            );
            observed.push(seen("drive", counters));
        }
    }
    let said = evidence_seen(&evidence.facts(), findings, &evidence.baseline);
    observed.extend(said.into_iter().map(|what| seen("seen", what)));
    evidence.outside.iter().for_each(|seen| from_outside(seen, observed));
}

/// What a desk saw of the machine.
pub(super) fn from_outside(outside: &Observed, observed: &mut Vec<Seen>) {
    observed.push(seen("seen from outside", format!("by {}: {}", outside.witness, outside.in_words())));
    if let Some(open) = &outside.open {
        observed.push(seen("open when last heard", open.as_str()));
    }
    // A panic is on the console some lines before the last one.
    for (source, lines) in [("its kernel, outside", &outside.kernel), ("its console, outside", &outside.serial)] {
        observed.extend(lines.iter().map(|line| seen(source, line.as_str())));
    }
}

/// An item in words, or why there is none.
fn unread<T>(fact: &Fact<T>, words: impl FnOnce(&T) -> String) -> String {
    match fact {
        Fact::Known(value) => words(value),
        Fact::Absent => "not there".to_owned(),
        Fact::Denied(why) => format!("not readable: {why}"),
        Fact::Garbled(raw) => format!("makes no sense: {raw}"),
    }
}

/// The facts in words, in the order of the table's columns.
pub(super) fn words(facts: &BootFacts) -> Vec<Seen> {
    let distance = match facts.distance {
        Distance::Same => "the same boot",
        Distance::Next => "the boot that followed",
        Distance::Gap => "other boots came between",
        Distance::Unknown => "the machine does not remember its boots",
    };
    let intent = match facts.intent {
        Intent::Nothing => "not declared",
        Intent::Reboot => "declared before it happened",
        Intent::PowerCycle => "the power was cut by a hook of ours",
        Intent::Person => "a person cut the power",
    };
    let thermal = match facts.thermal {
        ThermalLine::Said => "the kernel shut down because of it",
        ThermalLine::Unsaid => "no word of it",
    };
    let ending = match facts.ending {
        Ending::Clean => "in order",
        Ending::Unclean => "none: ordinary traffic up to the last line",
        Ending::Unknown => "not known: no line of that boot is left",
    };
    let news = match facts.news {
        News::Panic => "a panic",
        News::Watchdog => "a watchdog of the kernel's own acts",
        News::Reset => "a reset without a shutdown",
        News::Restart => "a call to restart or power off",
        News::Trouble => "trouble, and not how it ended",
        News::Nothing => "nothing new of an end",
        News::Unreadable => "crash records not readable, now or before",
    };
    let reset = match facts.reset {
        ResetClass::Software => "software",
        ResetClass::Watchdog => "the watchdog of the CPUs",
        ResetClass::FirmwareWatchdog => "the watchdog of another processor",
        ResetClass::Thermal => "a thermal trip",
        ResetClass::Supply => "a monitor of the supply",
        ResetClass::PowerOn => "power applied, or the reset line",
        ResetClass::Suspend => "woke from suspend",
        ResetClass::Unknown => "a word that this build does not know",
        ResetClass::Absent => "no word",
    };
    let drive = match facts.drive {
        DrivePower::Lost => "lost",
        DrivePower::Kept => "kept",
        DrivePower::Unknown => "not known",
    };
    let watchdog = match facts.watchdog {
        WatchdogFlag::Fired => "says that it reset the machine",
        WatchdogFlag::Silent => "does not say so",
    };
    vec![
        seen("distance", distance),
        seen("reboot", intent),
        seen("heat", thermal),
        seen("shutdown", ending),
        seen("the kernel left", news),
        seen("reset controller", reset),
        seen("power of the drives", drive),
        seen("watchdog", watchdog),
    ]
}

/// One other fact.
struct Change {
    known: &'static str,
    facts: BootFacts,
}

/// The most alternatives that are listed.
const ALTERNATIVES_MAX: usize = 8;

/// The fewest other facts that would have led to another row with another meaning. What is known to be otherwise is not
/// wished away, but for the one record that always speaks, a panic's.
fn alternatives(facts: &BootFacts, rule: &BootRule) -> Vec<WouldDecide> {
    let mut found: Vec<WouldDecide> = Vec::new();
    let mut add = |known: String, changed: &BootFacts| {
        let other = boot_rule(changed);
        if (other.verdict, other.cause) != (rule.verdict, rule.cause) {
            found.push(WouldDecide { known, then: verdict_words(other), rule: Some(other.label.to_owned()) });
        }
    };
    let is_named = rule.cause != Some(RebootCause::Undetermined);
    let singles = if is_named { news_changes(facts) } else { changes(facts) };
    singles.iter().for_each(|change| add(change.known.to_owned(), &change.facts));
    if facts.distance != Distance::Next {
        let near = BootFacts { distance: Distance::Next, ..*facts };
        for change in changes(&near) {
            add(format!("{FOLLOWED}, and {}", change.known), &change.facts);
        }
        add(FOLLOWED.to_owned(), &near);
    }
    found.truncate(ALTERNATIVES_MAX);
    found
}

const FOLLOWED: &str = "that this boot followed the trial's at once";

/// Other facts of what the kernel left.
fn news_changes(facts: &BootFacts) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut add = |known, facts| changes.push(Change { known, facts });
    let news = |news| BootFacts { news, ..*facts };
    if facts.news != News::Panic {
        add("a new crash record that tells of a panic", news(News::Panic));
    }
    if facts.news == News::Panic || facts.news == News::Unreadable {
        add("that no crash record is new", news(News::Nothing));
    }
    if facts.news == News::Nothing || facts.news == News::Unreadable {
        add("a new crash record that ends with a reset by software", news(News::Reset));
    }
    changes
}

/// Those, and other facts in the place of those that are not known.
fn changes(facts: &BootFacts) -> Vec<Change> {
    let mut changes = news_changes(facts);
    let mut add = |known, facts| changes.push(Change { known, facts });
    if facts.reset == ResetClass::Absent {
        let reset = |reset| BootFacts { reset, ..*facts };
        add("a reset reason that names the watchdog of the CPUs", reset(ResetClass::Watchdog));
        add("a reset reason that names heat", reset(ResetClass::Thermal));
    }
    if facts.drive == DrivePower::Unknown {
        add("drives that counted a loss of power", BootFacts { drive: DrivePower::Lost, ..*facts });
    }
    if facts.ending == Ending::Unknown {
        add("a shutdown in order at the end of that boot's journal", BootFacts { ending: Ending::Clean, ..*facts });
        add("a journal of that boot that ends without a shutdown", BootFacts { ending: Ending::Unclean, ..*facts });
    }
    changes
}

fn verdict_words(rule: &BootRule) -> String {
    match rule.cause {
        Some(cause) => format!("{}, cause {}", rule.verdict, cause.as_str()),
        None => rule.verdict.to_string(),
    }
}
