//! What desks saw of the machine, joined with what it knows of itself.
//!
//! An observation is about a boot, and belongs to the verdict on the trial that was open when that boot ended. It may
//! come before that verdict is given or after it: the verdict is then given again, by the same table, and every reader
//! tells the run as if it had come in time.

use std::collections::{HashMap, HashSet};

use crate::decide::infer::{Baseline, OpenEnd, infer};
use crate::decide::run::OpenTrial;
use crate::model::ids::{BootId, ContentDigest, TrialId};
use crate::model::journal::{Event, Judged, Record};
use crate::model::observed::{CutStage, Cutter, Observed};

/// The most observations of a run that are taken into its journal.
const OBSERVATIONS_MAX: usize = 10_000;

/// The most of one boot that stand beside a verdict.
const OF_A_BOOT_MAX: usize = 8;

/// What was seen so far.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    ids: HashSet<ContentDigest>,
    /// Of the boots that were seen last.
    boots: Vec<(BootId, Vec<Observed>)>,
}

/// How many boots are remembered: what came is about the last one, and the one before it for a desk that was late.
const BOOTS_MAX: usize = 4;

impl Outside {
    /// Takes note of `observed`.
    pub fn note(&mut self, observed: &Observed) {
        self.ids.insert(observed.id());
        let Some(boot) = &observed.boot else { return };
        let index = match self.boots.iter().position(|(known, _)| known == boot) {
            Some(index) => index,
            None => {
                if self.boots.len() == BOOTS_MAX {
                    self.boots.remove(0);
                }
                self.boots.push((boot.clone(), Vec::new()));
                self.boots.len() - 1
            }
        };
        let of_boot = &mut self.boots[index].1;
        if of_boot.len() < OF_A_BOOT_MAX {
            of_boot.push(observed.clone());
        }
    }

    /// Whether `observed` is written down already.
    pub fn knows(&self, observed: &Observed) -> bool {
        self.ids.contains(&observed.id())
    }

    /// Whether no more is written down.
    pub fn is_full(&self) -> bool {
        self.ids.len() >= OBSERVATIONS_MAX
    }

    /// What was seen of `boot`.
    pub fn of(&self, boot: &BootId) -> &[Observed] {
        self.boots.iter().find(|(known, _)| known == boot).map_or(&[], |(_, seen)| seen)
    }

    /// Whether anything was seen of the end of `boot`.
    pub fn is_seen(&self, boot: &BootId) -> bool {
        self.of(boot).iter().any(|seen| seen.power.as_ref().is_none_or(|power| power.stage == CutStage::Done))
    }

    /// Who cut the power of `boot`. A person's hand comes before a desk that watched: what a person did is no fault. A hook
    /// that failed takes back what the same witness had announced.
    pub fn cutter(&self, boot: &BootId) -> Option<Cutter> {
        let seen = self.of(boot);
        let cuts = || seen.iter().filter_map(|seen| Some((&seen.witness, seen.power.as_ref()?)));
        let is_taken_back = |witness: &String, wall| {
            cuts().any(|(other, cut)| other == witness && cut.stage == CutStage::Failed && cut.wall == wall)
        };
        let is_real = |cut: &(&String, &crate::model::observed::PowerCut)| match cut.1.stage {
            CutStage::Done => true,
            CutStage::Announced => !is_taken_back(cut.0, cut.1.wall),
            CutStage::Failed => false,
        };
        let by = |cutter| cuts().filter(is_real).any(|(_, cut)| cut.by == cutter).then_some(cutter);
        by(Cutter::Person).or_else(|| by(Cutter::Hang))
    }
}

/// A verdict across a boot, with what it takes to give it again.
#[derive(Debug, Clone)]
pub struct Revisable {
    /// The trial as it stood.
    pub open: OpenTrial,
    /// The verdict in force.
    pub judged: Judged,
    end: OpenEnd,
    baseline: Baseline,
}

impl Revisable {
    /// The verdict `judged` on `open`, if it was given across a boot.
    pub fn of(open: &OpenTrial, end: OpenEnd, baseline: &Baseline, judged: &Judged) -> Option<Self> {
        let is_across = open.outcome.is_none() && open.next_boot.is_some();
        is_across.then(|| Self { open: open.clone(), judged: judged.clone(), end, baseline: baseline.clone() })
    }

    /// The verdict that `outside` makes of it, if that is another.
    pub fn correction(&self, outside: &Outside) -> Option<Judged> {
        let cutter = outside.cutter(&self.open.boot).filter(|cutter| self.end.outside != Some(*cutter))?;
        let (boot, evidence) = self.open.next_boot.as_ref()?;
        let end = OpenEnd { outside: Some(cutter), ..self.end.clone() };
        let (judgement, rule) = infer(&end, evidence, boot, &self.baseline);
        (rule.label != self.judged.rule).then(|| Judged {
            trial: self.judged.trial.clone(),
            judgement,
            rule: rule.label.to_owned(),
            corrects: Some(self.judged.judgement.verdict),
        })
    }
}

/// How a journal is read in which something from outside came after the verdict that it belongs to: first every record is
/// noted, then every record is told in its place.
#[derive(Debug, Default)]
pub struct Hindsight {
    open: Option<(TrialId, BootId)>,
    /// Verdicts across a boot, by the boot that ended.
    verdicts: HashMap<BootId, (u64, TrialId)>,
    /// What comes in the place of a verdict.
    instead: HashMap<u64, Vec<Event>>,
    /// Records that are told earlier than they stand.
    moved: HashSet<u64>,
}

impl Hindsight {
    /// What a journal must hold before there is anything to look back for: a part of the text of such a record.
    pub const MARK: &'static str = "\"observed\":{";

    /// Takes note of `record`.
    pub fn note(&mut self, record: &Record) {
        let verdict = match &record.event {
            Event::Started(started) => {
                self.open = Some((started.trial.clone(), record.boot.clone()));
                return;
            }
            Event::Judged(judged) if judged.corrects.is_none() => {
                if let Some((trial, boot)) = self.open.take_if(|(trial, _)| *trial == judged.trial)
                    && boot != record.boot
                {
                    self.verdicts.insert(boot, (record.seq, trial));
                }
                return;
            }
            Event::Judged(judged) => self.verdicts.values().find(|(_, trial)| *trial == judged.trial),
            Event::Observed(observed) => observed.boot.as_ref().and_then(|boot| self.verdicts.get(boot)),
            _ => return,
        };
        if let Some((seq, _)) = verdict {
            self.instead.entry(*seq).or_default().push(record.event.clone());
            self.moved.insert(record.seq);
        }
    }

    /// Gives `record`, or what is told in its place, to `each`.
    ///
    /// # Errors
    /// What `each` refuses.
    pub fn tell<E>(&self, record: Record, mut each: impl FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        if self.moved.contains(&record.seq) {
            return Ok(());
        }
        let Some(instead) = self.instead.get(&record.seq) else { return each(record) };
        let is_verdict = |event: &&Event| matches!(event, Event::Judged(_));
        for event in instead.iter().filter(|event| !is_verdict(event)) {
            each(Record { event: event.clone(), ..record.clone() })?;
        }
        match instead.iter().rev().find(is_verdict) {
            Some(verdict) => each(Record { event: verdict.clone(), ..record }),
            None => each(record),
        }
    }
}
