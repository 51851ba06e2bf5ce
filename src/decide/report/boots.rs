//! The boots of a run in their order: which trials each had, how it came about, how it ended.

use std::collections::HashMap;

use crate::model::evidence::{Fact, Findings};
use crate::model::ids::BootId;
use crate::model::journal::{Event, Record};
use crate::model::units::{UptimeMs, WallTime};
use crate::model::verdict::{RebootCause, Verdict};

/// One boot in which the harness was at work.
#[derive(Debug, Clone, PartialEq)]
pub struct BootRow {
    /// The boot.
    pub boot: BootId,
    /// When its first record was written, for people.
    pub wall: WallTime,
    /// Milliseconds from the boot to the first and to the last record of it.
    pub uptime_ms: (UptimeMs, UptimeMs),
    /// Indices of the rows of the trials that started in it, in the order of their verdicts.
    pub trials: Vec<usize>,
    /// How it ended, as far as is known.
    pub end: BootEnd,
    /// What the machine said at its beginning about the boot before, in words.
    pub said: Vec<String>,
    /// What desks saw of its end, in words.
    pub seen: Vec<String>,
}

/// How a boot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootEnd {
    /// Nothing came after it.
    Last,
    /// A trial took it down.
    Fault(RebootCause),
    /// The harness asked for it: why.
    Asked(String),
    /// A hook cut the power.
    Cut,
    /// A person or the system shut it down while a trial was open.
    Ordered,
    /// Another boot came, and nothing says why.
    Unexplained,
}

impl BootEnd {
    /// The end in words.
    pub fn in_words(&self) -> String {
        match self {
            Self::Last => "the last one".to_owned(),
            Self::Fault(RebootCause::Undetermined) => "reboot, cause undetermined".to_owned(),
            Self::Fault(cause) => format!("reboot: {}", cause.as_str()),
            Self::Asked(why) => format!("planned: {why}"),
            Self::Cut => "a hook cut the power".to_owned(),
            Self::Ordered => "shut down in order".to_owned(),
            Self::Unexplained => "ended without jetfault".to_owned(),
        }
    }
}

/// Boots in the making.
#[derive(Debug, Default)]
pub struct BootRows {
    rows: Vec<BootRow>,
    index_of: HashMap<BootId, usize>,
    /// The boot of the trial that is open.
    open: Option<usize>,
    judged: usize,
}

impl BootRows {
    /// Takes note of `record`; the verdicts of a journal are the rows of its trials, in the same order.
    pub fn apply(&mut self, record: &Record) {
        let index = self.row_of(record);
        match &record.event {
            Event::Booted(booted) => self.rows[index].said = said(&booted.evidence.findings),
            Event::Observed(observed) => {
                if let Some(index) = observed.boot.as_ref().and_then(|boot| self.index_of.get(boot)) {
                    self.rows[*index].seen.push(format!("{} (by {})", observed.in_words(), observed.witness));
                }
            }
            Event::Started(_) => self.open = Some(index),
            Event::RebootAsked(asked) => {
                self.end(&asked.boot.clone(), BootEnd::Asked(asked.why.clone()));
            }
            Event::Hooked(hooked) => {
                if let Some(boot) = &hooked.ends {
                    self.end(boot, BootEnd::Cut);
                }
            }
            Event::Judged(judged) => {
                if let Some(open) = self.open.take() {
                    self.rows[open].trials.push(self.judged);
                    match judged.judgement.verdict {
                        Verdict::Reboot => {
                            let cause = judged.judgement.cause.unwrap_or(RebootCause::Undetermined);
                            self.rows[open].end = BootEnd::Fault(cause);
                        }
                        Verdict::Hang if self.rows[open].end == BootEnd::Unexplained => {
                            self.rows[open].end = BootEnd::Cut;
                        }
                        Verdict::Operator | Verdict::Planned if self.rows[open].end == BootEnd::Unexplained => {
                            self.rows[open].end = BootEnd::Ordered;
                        }
                        _ => {}
                    }
                }
                self.judged += 1;
            }
            _ => {}
        }
    }

    fn row_of(&mut self, record: &Record) -> usize {
        if let Some(index) = self.index_of.get(&record.boot) {
            let row = &mut self.rows[*index];
            row.uptime_ms.1 = row.uptime_ms.1.max(record.uptime_ms);
            return *index;
        }
        if let Some(last) = self.rows.last_mut().filter(|row| row.end == BootEnd::Last) {
            last.end = BootEnd::Unexplained;
        }
        self.index_of.insert(record.boot.clone(), self.rows.len());
        self.rows.push(BootRow {
            boot: record.boot.clone(),
            wall: record.wall,
            uptime_ms: (record.uptime_ms, record.uptime_ms),
            trials: Vec::new(),
            end: BootEnd::Last,
            said: Vec::new(),
            seen: Vec::new(),
        });
        self.rows.len() - 1
    }

    fn end(&mut self, boot: &BootId, end: BootEnd) {
        if let Some(index) = self.index_of.get(boot) {
            self.rows[*index].end = end;
        }
    }

    /// The boots, in their order.
    pub fn finish(self) -> Vec<BootRow> {
        self.rows
    }
}

/// What evidence says of the end of the boot before, in words: only what is known.
fn said(findings: &Findings) -> Vec<String> {
    let mut said = Vec::new();
    if let Fact::Known(reset) = &findings.reset {
        let level = reset.level.as_deref().map(|level| format!(" {level}")).unwrap_or_default();
        said.push(format!("last reset {}{level}", reset.reason));
    }
    if let Fact::Known(records) = &findings.crash_records
        && !records.is_empty()
    {
        said.push(format!("{} crash records present", records.len()));
    }
    if let Fact::Known(true) = &findings.watchdog_fired {
        said.push("a watchdog says that it reset the machine".to_owned());
    }
    if let Fact::Known(who) = &findings.ordered_by {
        said.push(format!("shutdown ordered by {who}"));
    }
    if let Fact::Known(signs) = &findings.kernel_end {
        said.extend(signs.iter().map(|sign| format!("kernel: {}", sign.line)));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::constructed::{BOARD, Journal, agenda_of, board_provenance, board_script, plan_of};

    #[test]
    fn boots_have_their_trials_and_say_how_they_ended() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        let mut journal = Journal::open(&plan, &agenda, board_provenance);
        journal.carry_on(usize::MAX, board_script);
        let mut boots = BootRows::default();
        journal.records.iter().for_each(|record| boots.apply(record));
        let boots = boots.finish();
        let results = journal.results();
        assert_eq!(
            boots.iter().map(|boot| boot.trials.len()).sum::<usize>(),
            results.iter().filter(|r| r.started.is_some()).count()
        );
        for boot in &boots {
            for trial in &boot.trials {
                assert_eq!(results[*trial].started.as_ref().unwrap().boot, boot.boot);
            }
        }
        let reboots = results.iter().filter(|result| result.judgement.verdict == Verdict::Reboot).count();
        let faults = boots.iter().filter(|boot| matches!(boot.end, BootEnd::Fault(_))).count();
        assert!(faults == reboots && faults > 0, "{faults} of {reboots}");
        assert!(boots.iter().any(|boot| boot.end == BootEnd::Fault(RebootCause::Panic)));
        assert_eq!(boots.iter().filter(|boot| boot.end == BootEnd::Last).count(), 1);
    }
}
