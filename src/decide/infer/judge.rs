//! The verdict on an open trial: the row, and what stands beside it.

use super::facts::{
    Baseline, BootFacts, Distance, DrivePower, Ending, Left, News, OpenEnd, ResetClass, ThermalLine, WatchdogFlag,
    facts_of,
};
use super::table::{BootRule, Detail, boot_rule};
use crate::model::evidence::{EvidenceSummary, Fact, Findings};
use crate::model::ids::{BootId, ContentDigest};
use crate::model::verdict::{Counted, Judgement, RebootCause, Signature, Verdict};

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
    judgement.detail = detail_of(end, rule, &seen(&facts, &evidence.findings, baseline), &evidence.findings);
    if rule.verdict.counted() == Counted::Fault {
        judgement.unrecorded_ms = end.stage.as_ref().map(|_| end.unrecorded_ms);
        judgement.signature =
            Some(Signature { verdict: rule.verdict, status: None, place: None, stage: end.stage.clone() });
    }
    if rule.verdict == Verdict::Reboot {
        judgement.missing = missing(rule, &facts, &evidence.findings);
    }
    (judgement, rule)
}

/// The evidence of the trial's own boot says nothing about the trial: it was captured before it started.
pub fn no_evidence() -> EvidenceSummary {
    EvidenceSummary { file: ContentDigest::of(b""), findings: Findings::default() }
}

fn detail_of(end: &OpenEnd, rule: &BootRule, seen: &[String], findings: &Findings) -> Option<String> {
    let reset = || findings.reset.known().map(|reset| reset.reason.as_str());
    let words = match rule.detail {
        Detail::Nothing => None,
        Detail::Words(words) => Some(words.to_owned()),
        Detail::WithReset(words) => Some(match reset() {
            Some(word) => format!("{words} ({word})"),
            None => words.to_owned(),
        }),
        Detail::WhoOrdered => findings.ordered_by.known().map(|who| format!("a clean shutdown, ordered by {who}")),
        Detail::Contradiction => Some(format!("seen together: {}", seen.join("; "))),
    };
    match (words, end.running || rule.verdict != Verdict::Reboot) {
        (words, true) => words,
        (None, false) => Some(BEFORE_RUNNING.to_owned()),
        (Some(words), false) => Some(format!("{words}; {BEFORE_RUNNING}")),
    }
}

/// What stands beside a reboot that came before the child's first word.
const BEFORE_RUNNING: &str = "before the child was known to run";

/// What the facts were, in words, with the words of the machine itself; what says nothing is left out.
pub fn seen(facts: &BootFacts, findings: &Findings, baseline: &Baseline) -> Vec<String> {
    let mut seen = Vec::new();
    if let Some(reset) = findings.reset.known() {
        let level = reset.level.as_deref().map(|level| format!(" {level}")).unwrap_or_default();
        seen.push(format!("reset reason {}{level}", reset.reason));
    }
    match facts.ending {
        Ending::Clean => seen.push("a clean shutdown".to_owned()),
        Ending::Unclean => seen.push("no shutdown".to_owned()),
        Ending::Unknown => {}
    }
    if facts.news != News::Nothing || facts.thermal == ThermalLine::Said {
        let mut said: Vec<&str> = Vec::new();
        for sign in Left::of(findings, baseline).signs() {
            if !said.contains(&sign.line.as_str()) {
                said.push(&sign.line);
            }
        }
        seen.extend(said.into_iter().map(|line| format!("the kernel said \"{line}\"")));
    }
    match facts.drive {
        DrivePower::Lost => seen.push("drives that lost power".to_owned()),
        DrivePower::Kept => seen.push("drives that kept their power".to_owned()),
        DrivePower::Unknown => {}
    }
    if facts.watchdog == WatchdogFlag::Fired {
        seen.push("a watchdog that says it acted".to_owned());
    }
    seen
}

/// Evidence that was missing for `rule`, each with what it would have shown.
pub fn missing(rule: &BootRule, facts: &BootFacts, findings: &Findings) -> Vec<String> {
    let mut missing = Vec::new();
    if findings.boots.known().is_none() {
        missing.push("the list of boots, which a persistent system journal has: whether others came between");
    } else if facts.distance == Distance::Unknown {
        missing.push("the trial's boot in the list of boots, which a persistent system journal keeps: whether others came between");
    }
    if facts.distance == Distance::Gap {
        missing.push("what the trial's own boot left behind: later boots came first");
    }
    if facts.news == News::Unreadable {
        missing.push("crash records of the kernel (pstore), now and before: a panic, or a reset by software");
    }
    let is_open = rule.cause == Some(RebootCause::Undetermined) && facts.distance == Distance::Next;
    if facts.ending == Ending::Unknown {
        missing.push("the end of the system journal of the boot before: whether it was shut down in order");
    }
    if is_open && facts.reset == ResetClass::Absent {
        missing.push("a reset reason, which the power management controller of a Jetson keeps: watchdog, heat, supply or software");
    }
    if is_open && facts.drive == DrivePower::Unknown {
        missing.push("power counters of an NVMe drive, now and before: whether power was lost");
    }
    if is_open && !matches!(findings.watchdog_fired, Fact::Known(_)) && facts.reset == ResetClass::Absent {
        missing.push("a watchdog's boot status: whether it acted");
    }
    missing.into_iter().map(str::to_owned).collect()
}
