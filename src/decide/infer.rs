//! From evidence to a verdict: what an open trial was, when the harness comes back.
//!
//! The boot id alone proves a reboot. The rest is a labelled table over facts; exactly one row matches every
//! combination, and a test tries them all. Missing evidence lowers the claim and is named.

use crate::model::evidence::{CrashKind, EvidenceSummary, Fact};
use crate::model::ids::{BootId, ContentDigest};
use crate::model::verdict::{Judgement, RebootCause, Signature, StageName, Verdict};

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

/// What the crash records say that they did not say before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// A new record tells of a panic.
    Panic,
    /// A new record tells of something else.
    Other,
    /// No new record.
    Nothing,
    /// The records could not be read, now or before: nothing is known to be new.
    Unreadable,
}

/// The facts that decide the verdict of an open trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootFacts {
    /// Where the evidence stands.
    pub distance: Distance,
    /// Whether a reboot of the trial's boot was declared before it happened.
    pub declared: bool,
    /// What the crash records add.
    pub news: News,
}

/// One row.
#[derive(Debug)]
pub struct BootRule {
    /// Its name in the journal and in `explain`.
    pub label: &'static str,
    /// Matching values of [`BootFacts::distance`].
    pub distance: &'static [Distance],
    /// Matching values of [`BootFacts::declared`].
    pub declared: &'static [bool],
    /// Matching values of [`BootFacts::news`].
    pub news: &'static [News],
    /// The verdict.
    pub verdict: Verdict,
    /// The cause, where the verdict is `reboot`.
    pub cause: Option<RebootCause>,
    /// Why, in one line.
    pub because: &'static str,
}

const AWAY: &[Distance] = &[Distance::Next, Distance::Gap, Distance::Unknown];
const ANY_DECLARED: &[bool] = &[false, true];
const ANY_NEWS: &[News] = &[News::Panic, News::Other, News::Nothing, News::Unreadable];

/// The table.
pub const BOOT_RULES: &[BootRule] = &[
    BootRule {
        label: "same-boot",
        distance: &[Distance::Same],
        declared: ANY_DECLARED,
        news: ANY_NEWS,
        verdict: Verdict::Void,
        cause: None,
        because: "the machine stayed up: the harness died, not the board",
    },
    BootRule {
        label: "declared",
        distance: AWAY,
        declared: &[true],
        news: ANY_NEWS,
        verdict: Verdict::Planned,
        cause: None,
        because: "the harness declared this reboot before it happened",
    },
    BootRule {
        label: "boots-between",
        distance: &[Distance::Gap],
        declared: &[false],
        news: ANY_NEWS,
        verdict: Verdict::Reboot,
        cause: Some(RebootCause::Undetermined),
        because: "other boots came between: what is found now may be theirs",
    },
    BootRule {
        label: "boots-unknown",
        distance: &[Distance::Unknown],
        declared: &[false],
        news: ANY_NEWS,
        verdict: Verdict::Reboot,
        cause: Some(RebootCause::Undetermined),
        because: "the machine does not remember its boots: others may have come between",
    },
    BootRule {
        label: "new-panic-record",
        distance: &[Distance::Next],
        declared: &[false],
        news: &[News::Panic],
        verdict: Verdict::Reboot,
        cause: Some(RebootCause::Panic),
        because: "a crash record that was not there before tells of a panic",
    },
    BootRule {
        label: "no-news",
        distance: &[Distance::Next],
        declared: &[false],
        news: &[News::Other, News::Nothing, News::Unreadable],
        verdict: Verdict::Reboot,
        cause: Some(RebootCause::Undetermined),
        because: "the boot id changed, and nothing says why",
    },
];

impl BootRule {
    fn matches(&self, facts: &BootFacts) -> bool {
        self.distance.contains(&facts.distance)
            && self.declared.contains(&facts.declared)
            && self.news.contains(&facts.news)
    }
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
    /// Whether a reboot of that boot was declared.
    pub declared: bool,
}

/// Crash records that were there before the trial started: present at the start of its boot or earlier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Baseline {
    /// Digests of all records ever seen.
    pub digests: Vec<ContentDigest>,
    /// Whether some earlier look failed, so that an old record could pass for a new one.
    pub incomplete: bool,
}

/// The verdict on an open trial from the evidence of the first boot after it (or of the same boot).
pub fn infer(
    end: &OpenEnd,
    evidence: &EvidenceSummary,
    now: &BootId,
    baseline: &Baseline,
) -> (Judgement, &'static BootRule) {
    let facts = facts_of(end, evidence, now, baseline);
    let rule = boot_rule(&facts);
    let mut judgement = Judgement::of(rule.verdict);
    judgement.cause = rule.cause;
    judgement.stage = end.stage.clone();
    judgement.detail = detail_of(end, rule);
    if rule.verdict == Verdict::Reboot {
        judgement.unrecorded_ms = end.stage.as_ref().map(|_| end.unrecorded_ms);
        judgement.missing = missing(evidence, baseline, &facts);
        judgement.signature =
            Some(Signature { verdict: rule.verdict, status: None, place: None, stage: end.stage.clone() });
    }
    (judgement, rule)
}

/// The row of the table that matches `facts`.
pub fn boot_rule(facts: &BootFacts) -> &'static BootRule {
    BOOT_RULES.iter().find(|rule| rule.matches(facts)).expect("a test shows that one row matches")
}

/// The facts of an open trial.
pub fn facts_of(end: &OpenEnd, evidence: &EvidenceSummary, now: &BootId, baseline: &Baseline) -> BootFacts {
    BootFacts { distance: distance(end, evidence, now), declared: end.declared, news: news(evidence, baseline) }
}

fn distance(end: &OpenEnd, evidence: &EvidenceSummary, now: &BootId) -> Distance {
    if end.boot == *now {
        return Distance::Same;
    }
    #[cfg(test)]
    if crate::model::seeded::is_on(crate::model::seeded::Bug::BootGap) {
        return Distance::Next;
    }
    let Fact::Known(boots) = &evidence.findings.boots else { return Distance::Unknown };
    let at = |boot: &BootId| boots.iter().rposition(|b| b == boot);
    match (at(&end.boot), at(now)) {
        (Some(then), Some(now)) if now == then + 1 => Distance::Next,
        (Some(then), Some(now)) if now > then => Distance::Gap,
        _ => Distance::Unknown,
    }
}

fn news(evidence: &EvidenceSummary, baseline: &Baseline) -> News {
    let Fact::Known(records) = &evidence.findings.crash_records else { return News::Unreadable };
    let is_new = |digest| !baseline.digests.contains(digest);
    #[cfg(test)]
    let is_new = |digest| is_new(digest) || crate::model::seeded::is_on(crate::model::seeded::Bug::StaleRecord);
    let mut new = records.iter().filter(|r| is_new(&r.digest)).peekable();
    match (new.peek().is_some(), new.any(|r| r.kind == CrashKind::Panic)) {
        (false, _) => News::Nothing,
        (true, _) if baseline.incomplete => News::Unreadable,
        (true, true) => News::Panic,
        (true, false) => News::Other,
    }
}

fn detail_of(end: &OpenEnd, rule: &BootRule) -> Option<String> {
    match (rule.verdict, end.running) {
        (Verdict::Void, _) => Some("the harness died; the boot is the same".into()),
        (Verdict::Reboot, false) => Some("before the child was known to run".into()),
        (Verdict::Reboot, true) if rule.label == "boots-between" => Some("boots between".into()),
        _ => None,
    }
}

fn missing(evidence: &EvidenceSummary, baseline: &Baseline, facts: &BootFacts) -> Vec<String> {
    let mut missing = Vec::new();
    if evidence.findings.boots.known().is_none() {
        missing.push("the list of boots (a persistent system journal has it)".to_owned());
    }
    if facts.distance == Distance::Gap {
        missing.push("what the trial's own boot left behind: later boots came first".to_owned());
    }
    if evidence.findings.crash_records.known().is_none() || baseline.incomplete {
        missing.push("crash records of the kernel (pstore)".to_owned());
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_row_matches_every_combination_of_facts() {
        for distance in [Distance::Same, Distance::Next, Distance::Gap, Distance::Unknown] {
            for &declared in ANY_DECLARED {
                for &news in ANY_NEWS {
                    let facts = BootFacts { distance, declared, news };
                    let rows = BOOT_RULES.iter().filter(|r| r.matches(&facts)).count();
                    assert_eq!(rows, 1, "{facts:?}");
                }
            }
        }
    }

    #[test]
    fn a_cause_is_named_only_by_the_boot_that_followed() {
        for rule in BOOT_RULES {
            let named = !matches!(rule.cause, None | Some(RebootCause::Undetermined));
            assert!(!named || rule.distance == [Distance::Next], "{}", rule.label);
            assert_eq!(rule.cause.is_some(), rule.verdict == Verdict::Reboot, "{}", rule.label);
        }
    }
}
