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
use crate::model::observed::{CutStage, Cutter, Observed, PowerCut};

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
        let is_real = |cut: &(&String, &PowerCut)| match cut.1.stage {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::agenda::Agenda;
    use crate::decide::result::ResultFold;
    use crate::decide::run::RunState;
    use crate::model::verdict::{Counted, Verdict};
    use crate::testing::constructed::{BOARD, Fate, Journal, agenda_of, board_provenance, passes, plan_of};

    fn cut(boot: &BootId, by: Cutter, stage: CutStage, witness: &str) -> Observed {
        let wall = serde_json::from_str("\"2026-05-02T10:00:00.000Z\"").unwrap();
        let power = Some(PowerCut { by, stage, wall });
        Observed { boot: Some(boot.clone()), power, ..Observed::new(witness, "it hung") }
    }

    /// The first trial reboots with or without a panic, the others pass; what is seen of its boot comes before or after
    /// the verdict.
    fn story(agenda: &Agenda, by: Cutter, panic: bool, late: bool) -> Vec<Record> {
        let plan = plan_of(BOARD);
        let mut journal = Journal::open(&plan, agenda, board_provenance);
        let mut first = true;
        let mut script = |_: &str, _: &TrialId| match std::mem::replace(&mut first, false) {
            true if late => Fate::Reboots { at: "C.copy", readable: true, panic },
            true => Fate::StaysOpen("C.copy"),
            false => passes(1000),
        };
        if late {
            journal.carry_on(2, &mut script);
            let boot = started_in(&journal.records[..]);
            journal.observe(cut(&boot, by, CutStage::Done, "desk"));
        } else {
            journal.carry_on(1, &mut script);
            let boot = journal.boot();
            journal.reboot();
            journal.observe(cut(&boot, by, CutStage::Done, "desk"));
        }
        journal.carry_on(usize::MAX, &mut script);
        journal.records
    }

    fn started_in(records: &[Record]) -> BootId {
        records.iter().find(|record| matches!(record.event, Event::Started(_))).unwrap().boot.clone()
    }

    fn verdicts<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<&'r Judged> {
        let judged = |record: &'r Record| match &record.event {
            Event::Judged(judged) => Some(judged),
            _ => None,
        };
        records.into_iter().filter_map(judged).collect()
    }

    fn in_hindsight(records: &[Record]) -> Vec<Record> {
        let mut hindsight = Hindsight::default();
        records.iter().for_each(|record| hindsight.note(record));
        let mut told = Vec::new();
        for record in records {
            hindsight
                .tell::<()>(record.clone(), |record| {
                    told.push(record);
                    Ok(())
                })
                .unwrap();
        }
        told
    }

    #[test]
    fn a_late_observation_leads_to_the_verdict_that_an_early_one_gives() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        for (by, verdict) in [(Cutter::Hang, Verdict::Hang), (Cutter::Person, Verdict::Operator)] {
            let early = story(&agenda, by, false, false);
            assert_eq!((verdicts(&early)[0].judgement.verdict, verdicts(&early)[0].corrects), (verdict, None));
            let late = story(&agenda, by, false, true);
            let all = verdicts(&late);
            assert_eq!(all[0].judgement.verdict, Verdict::Reboot);
            let corrected: Vec<_> = all.iter().filter(|judged| judged.corrects.is_some()).collect();
            let [corrected] = &corrected[..] else { panic!("{corrected:?}") };
            assert_eq!((corrected.judgement.verdict, corrected.corrects), (verdict, Some(Verdict::Reboot)));
            assert_eq!((&corrected.trial, &corrected.rule), (&all[0].trial, &verdicts(&early)[0].rule));
            assert_eq!(corrected.judgement.detail, verdicts(&early)[0].judgement.detail);
            // A result is made again whole.
            let mut fold = ResultFold::default();
            let results: Vec<_> = late.iter().filter_map(|record| fold.apply(record)).collect();
            let again = results.iter().find(|result| result.corrects.is_some()).unwrap();
            assert_eq!((&again.stages, &again.started), (&results[0].stages, &results[0].started));
            // What is not counted is repeated.
            let is_repeat = |judged: &&&Judged| judged.trial.cell == all[0].trial.cell && judged.trial.attempt == 2;
            let repeats = all.iter().filter(is_repeat).count();
            assert_eq!(repeats, usize::from(verdict.counted() == Counted::Excluded), "{verdict}");
        }
    }

    #[test]
    fn readers_are_told_every_trial_once_with_what_was_seen_before_its_verdict() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        for by in [Cutter::Hang, Cutter::Person] {
            let late = story(&agenda, by, false, true);
            let told = in_hindsight(&late);
            assert_eq!(told.len(), late.len() - 1, "the first verdict is not told");
            let all = verdicts(&told);
            let mut trials: Vec<_> = all.iter().map(|judged| &judged.trial).collect();
            trials.sort_unstable_by_key(|trial| trial.to_string());
            trials.dedup();
            assert_eq!(trials.len(), all.len());
            let at = |wanted: fn(&Event) -> bool| told.iter().position(|record| wanted(&record.event)).unwrap();
            let (seen, judged) =
                (at(|event| matches!(event, Event::Observed(_))), at(|event| matches!(event, Event::Judged(_))));
            assert_eq!(seen + 1, judged);
            // And what they are told is legal.
            let mut state = RunState::new(&agenda);
            told.iter().for_each(|record| state.apply(&agenda, record).unwrap());
        }
        let early = story(&agenda, Cutter::Hang, false, false);
        assert_eq!(in_hindsight(&early), early);
    }

    #[test]
    fn a_panic_that_the_machine_kept_stays_one() {
        let plan = plan_of(BOARD);
        let late = story(&agenda_of(&plan, &[]), Cutter::Person, true, true);
        let told = in_hindsight(&late);
        let first = &verdicts(&told)[0].judgement;
        assert_eq!((first.verdict, first.cause.map(|cause| cause.as_str())), (Verdict::Reboot, Some("panic")));
    }

    proptest! {
        /// In whatever order: a person comes before a desk that watched, and an announcement that its own witness takes
        /// back is none.
        #[test]
        fn who_cut_the_power_does_not_depend_on_the_order(
            signs in prop::collection::vec((any::<bool>(), 0u8..3, 0u8..2), 0..7),
            turn in 0usize..7,
        ) {
            let boot: BootId = "00000001-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
            let mut seen: Vec<Observed> = signs.iter().map(|&(person, stage, witness)| {
                let by = if person { Cutter::Person } else { Cutter::Hang };
                let stage = [CutStage::Announced, CutStage::Done, CutStage::Failed][usize::from(stage)];
                cut(&boot, by, stage, ["a", "b"][usize::from(witness)])
            }).collect();
            let cutter = |seen: &[Observed]| {
                let mut outside = Outside::default();
                seen.iter().for_each(|seen| outside.note(seen));
                outside.cutter(&boot)
            };
            let before = cutter(&seen);
            let is_real = |&(person, stage, witness): &(bool, u8, u8)| {
                let is_taken_back = signs.iter().any(|&(_, other, by)| other == 2 && by == witness);
                (stage == 1 || (stage == 0 && !is_taken_back)).then_some(person)
            };
            let real: Vec<bool> = signs.iter().filter_map(is_real).collect();
            let expected = if real.contains(&true) { Some(Cutter::Person) } else { real.first().map(|_| Cutter::Hang) };
            prop_assert_eq!(before, expected);
            if !seen.is_empty() {
                let by = turn % seen.len();
                seen.rotate_left(by);
            }
            prop_assert_eq!(cutter(&seen), before);
        }
    }
}
