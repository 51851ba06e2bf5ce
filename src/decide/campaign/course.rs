//! Where a campaign stands: a fold of the journal, and what comes next.

use std::collections::{BTreeMap, BTreeSet};

use super::{Campaign, Place, Question};
use crate::decide::bisect::knobs::{self, Knobs};
use crate::decide::bisect::levels::{self, Levels};
use crate::decide::bisect::orders::{Orders, other_orders};
use crate::decide::bisect::posterior::add;
use crate::decide::bisect::revisions::{self as since, Revisions};
use crate::decide::bisect::trigger::{Kept, members};
use crate::decide::bisect::{Purpose, Search, Seen, Step};
use crate::decide::plan::{Cell, Plan, PlanError};
use crate::decide::run::CANNOT_RUN_HERE;
use crate::decide::stats::{Counts, Sprt};
use crate::model::journal::{Event, Extended, Hooked, Judged, Record};
use crate::model::matrix::Matrix;
use crate::model::verdict::{Counted, Signature, Verdict};

/// Faults of another signature at one position after which nothing more is asked of it.
const OTHER_FAULTS_MAX: u32 = 3;

/// How the journal names the preparation of a revision.
const PREPARE: &str = "prepare ";

/// Whether a hook prepared a revision: a boot in which one did is not cold any more.
pub fn is_preparation(hooked: &Hooked) -> bool {
    hooked.hook.starts_with(PREPARE)
}

/// How it says that it went well.
const PREPARED: &str = "prepared";

/// What one trial, or the lack of one, says about its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeing {
    /// A counted trial of the campaign's own.
    Counted(Seen),
    /// A fault, and not the campaign's.
    OtherFault,
    /// Nothing more can be run there, and why.
    Aside(String),
}

/// What a campaign found.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Of knobs, or of a sequence whose other orders nobody asked for.
    Knobs(knobs::Answer),
    /// Of a sequence: the smallest part, its other orders, and whether each of them faults (none was not run).
    Sequence {
        /// What the search for the part found.
        part: knobs::Answer,
        /// The other orders of the part.
        orders: Vec<OtherOrder>,
    },
    /// Of levels.
    Levels(levels::Answer),
    /// Of revisions.
    Revisions(since::Answer),
}

/// Another order of the part that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherOrder {
    /// Indices of its layers in the baseline's sequence.
    pub indices: Vec<usize>,
    /// Its trials.
    pub counts: Counts,
}

#[derive(Debug, Clone)]
pub(super) enum Engine {
    Knobs(Knobs),
    Levels(Levels),
    Revisions(Revisions),
}

/// Where a campaign stands.
#[derive(Debug, Clone)]
pub struct Course {
    pub(super) question: Question,
    pub(super) engine: Engine,
    pub(super) signature: Option<Signature>,
    /// Trials of other orders, by the indices of their layers.
    pub(super) orders: BTreeMap<Vec<usize>, Counts>,
    orders_aside: Vec<Vec<usize>>,
    /// Faults of other signatures, by signature.
    pub(super) other_faults: BTreeMap<String, u64>,
    other_at: BTreeMap<Place, u32>,
    /// Excluded trials.
    pub(super) excluded: u64,
    /// Places of which nothing more is asked, and why.
    pub(super) aside: BTreeMap<Place, String>,
    /// Revisions that are prepared.
    prepared: BTreeSet<String>,
    /// The place that was asked for last, and whether it has got its counted trial.
    asked: Option<(Place, bool)>,
}

impl Course {
    /// The beginning of `campaign`; `excluded` are combinations that the matrix does not allow.
    pub fn new(campaign: &Campaign, excluded: &[Kept]) -> Self {
        let question = campaign.question.clone();
        let controls = campaign.controls;
        let engine = match &question {
            Question::Axes { flips, rules } => {
                let mut knobs = Knobs::new(flips.len() as u32, knobs::Rules { controls, ..rules.clone() });
                excluded.iter().for_each(|&kept| knobs.forbid(kept));
                Engine::Knobs(knobs)
            }
            Question::Sequence { rules, .. } => Engine::Knobs(Knobs::of_items(
                question.items().unwrap_or_default(),
                knobs::Rules { controls, ..rules.clone() },
            )),
            Question::Levels { labels, rules, .. } => {
                Engine::Levels(Levels::new(labels.len() - 1, since::Rules { controls, ..rules.clone() }))
            }
            Question::Revisions { history, rules } => {
                let rules = since::Rules { controls, ..rules.clone() };
                let mut search = Revisions::new(history.order(), &history.weights(), rules);
                let skipped = history.revisions.iter().enumerate().filter(|(_, revision)| revision.skip);
                skipped.for_each(|(position, _)| search.set_untestable(position));
                Engine::Revisions(search)
            }
        };
        Self {
            question,
            engine,
            signature: campaign.signature.clone(),
            orders: BTreeMap::new(),
            orders_aside: Vec::new(),
            other_faults: BTreeMap::new(),
            other_at: BTreeMap::new(),
            excluded: 0,
            aside: BTreeMap::new(),
            prepared: BTreeSet::new(),
            asked: None,
        }
    }

    /// Takes note of trials that were there before.
    pub fn load(&mut self, place: Place, counts: Counts) {
        match (&mut self.engine, place) {
            (Engine::Knobs(knobs), Place::Set(kept)) => knobs.load(kept, counts),
            (Engine::Levels(levels), Place::At(position)) => levels.load(position, counts),
            (Engine::Revisions(search), Place::At(position)) => search.load(position, counts),
            (Engine::Knobs(_) | Engine::Levels(_) | Engine::Revisions(_), _) => {}
        }
    }

    /// Takes note of what a trial showed.
    pub fn see(&mut self, place: Place, seeing: Seeing) {
        match seeing {
            Seeing::Counted(seen) => {
                if let Some((asked, counted)) = &mut self.asked {
                    *counted |= *asked == place;
                }
                self.observe(place, seen);
            }
            Seeing::OtherFault => self.observe_other(place),
            Seeing::Aside(why) => self.set_aside(place, why),
        }
    }

    fn observe(&mut self, place: Place, seen: Seen) {
        match (&mut self.engine, place) {
            (Engine::Knobs(knobs), Place::Set(kept)) => knobs.observe(&kept, seen),
            (Engine::Levels(levels), Place::At(position)) => levels.observe(&position, seen),
            (Engine::Revisions(search), Place::At(position)) => search.observe(&position, seen),
            (Engine::Knobs(_), Place::Order(order)) => {
                if let Some(indices) = self.other_orders().into_iter().nth(order) {
                    seen.count(self.orders.entry(indices).or_default());
                }
            }
            (Engine::Knobs(_) | Engine::Levels(_) | Engine::Revisions(_), _) => {}
        }
    }

    fn observe_other(&mut self, place: Place) {
        if let Some((asked, counted)) = &mut self.asked {
            *counted |= *asked == place;
        }
        let count = self.other_at.entry(place).or_default();
        *count += 1;
        match (&mut self.engine, place) {
            (Engine::Knobs(knobs), Place::Set(kept)) => knobs.observe_other_fault(kept),
            (Engine::Knobs(_) | Engine::Levels(_) | Engine::Revisions(_), _) if *count >= OTHER_FAULTS_MAX => {
                self.set_aside(place, "it fails in another way".to_owned());
            }
            (Engine::Knobs(_) | Engine::Levels(_) | Engine::Revisions(_), _) => {}
        }
    }

    fn set_aside(&mut self, place: Place, why: String) {
        match (&mut self.engine, place) {
            (Engine::Knobs(knobs), Place::Set(kept)) => knobs.forbid(kept),
            (Engine::Knobs(_), Place::Order(order)) => {
                let aside = self.other_orders().into_iter().nth(order);
                self.orders_aside.extend(aside);
            }
            (Engine::Levels(levels), Place::At(position)) => levels.set_untestable(position),
            (Engine::Revisions(search), Place::At(position)) => search.set_untestable(position),
            (Engine::Knobs(_) | Engine::Levels(_) | Engine::Revisions(_), _) => {}
        }
        self.aside.entry(place).or_insert(why);
    }

    /// The other orders of the part that was found, if they were asked for and there is more than one item.
    fn other_orders(&self) -> Vec<Vec<usize>> {
        let (Engine::Knobs(knobs), Question::Sequence { orders: true, .. }) = (&self.engine, &self.question) else {
            return Vec::new();
        };
        let Step::Done(knobs::Answer::Found { set, .. }) = knobs.next() else { return Vec::new() };
        let Some(items) = self.question.items() else { return Vec::new() };
        let members: Vec<usize> = members(set).map(|element| element as usize).collect();
        let spelt: Vec<u8> = members.iter().map(|&index| items[index]).collect();
        let index_of = |order: Vec<u8>| {
            let mut left = members.clone();
            let take = |item: &u8| {
                let at = left.iter().position(|&index| items[index] == *item)?;
                Some(left.remove(at))
            };
            order.iter().filter_map(take).collect()
        };
        // What is a subsequence of the baseline is answered by the search already.
        other_orders(&spelt).into_iter().map(index_of).collect()
    }

    fn next_order(&self) -> Option<Place> {
        let Engine::Knobs(knobs) = &self.engine else { return None };
        let Step::Done(knobs::Answer::Found { set, .. }) = knobs.next() else { return None };
        let orders = self.other_orders();
        let test = Orders::new(orders.len(), Sprt::rate_against(knobs.armed(set)));
        let wants = |indices: &Vec<usize>| {
            let counts = self.orders.get(indices).copied().unwrap_or_default();
            !self.orders_aside.contains(indices) && test.decided(counts).is_none()
        };
        orders.iter().position(wants).map(Place::Order)
    }

    /// What is to be done now.
    pub fn next(&self) -> Step<Place, Answer> {
        match &self.engine {
            Engine::Knobs(knobs) => match (knobs.next(), &self.question, self.next_order()) {
                (Step::Test { at, purpose }, ..) => Step::Test { at: Place::Set(at), purpose },
                (Step::Done(_), _, Some(order)) => Step::Test { at: order, purpose: Purpose::Confirm },
                (Step::Done(part), Question::Sequence { orders: true, .. }, None) => {
                    let other = |indices: Vec<usize>| {
                        let counts = self.orders.get(&indices).copied().unwrap_or_default();
                        OtherOrder { indices, counts }
                    };
                    let orders = self.other_orders().into_iter().map(other).collect();
                    Step::Done(Answer::Sequence { part, orders })
                }
                (Step::Done(answer), _, None) => Step::Done(Answer::Knobs(answer)),
            },
            Engine::Levels(levels) => match levels.next() {
                Step::Test { at, purpose } => Step::Test { at: Place::At(at), purpose },
                Step::Done(answer) => Step::Done(Answer::Levels(answer)),
            },
            Engine::Revisions(search) => match search.next() {
                Step::Test { at, purpose } => Step::Test { at: Place::At(at), purpose },
                Step::Done(answer) => Step::Done(Answer::Revisions(answer)),
            },
        }
    }

    /// The cell of the next place that can be made one; places that cannot are set aside on the way.
    ///
    /// # Errors
    /// If the bad end itself is impossible.
    pub fn next_cell(&mut self, matrix: &Matrix) -> Result<Step<Box<Cell>, Answer>, PlanError> {
        loop {
            let (place, purpose) = match self.next() {
                Step::Done(answer) => return Ok(Step::Done(answer)),
                Step::Test { at, purpose } => (at, purpose),
            };
            match (self.cell(matrix, place), place == self.question.bad_end()) {
                (Ok(Some(cell)), _) => return Ok(Step::Test { at: Box::new(cell), purpose }),
                (Err(error), true) => return Err(error),
                (Ok(None), _) => self.set_aside(place, "the matrix excludes it".to_owned()),
                (Err(error), false) => self.set_aside(place, error.to_string()),
            }
        }
    }

    /// The cell that is run at `place`; none if the matrix excludes it.
    ///
    /// # Errors
    /// If its settings are impossible.
    pub fn cell(&self, matrix: &Matrix, place: Place) -> Result<Option<Cell>, PlanError> {
        match place {
            Place::Order(order) => match self.other_orders().get(order) {
                Some(indices) => self.question.order_cell(matrix, indices),
                None => Ok(None),
            },
            Place::Set(_) | Place::At(_) => self.question.cell(matrix, place),
        }
    }

    /// The place where `cell` is run.
    fn place(&self, cell: &Cell) -> Option<Place> {
        self.question.place(cell).or_else(|| {
            let Question::Sequence { layers, .. } = &self.question else { return None };
            let labels: Vec<&str> =
                cell.settings.linear4bit()?.sequence.iter().map(|layer| layer.label.as_str()).collect();
            let is_it =
                |indices: &Vec<usize>| indices.iter().map(|&index| layers[index].as_str()).eq(labels.iter().copied());
            self.other_orders().iter().position(is_it).map(Place::Order)
        })
    }

    /// Takes note of a record of the journal; `plan` holds its cells.
    pub fn apply(&mut self, record: &Record, plan: &Plan) {
        let place_of = |course: &Self, id| plan.cell(id).and_then(|cell| course.place(cell));
        match &record.event {
            Event::Extended(Extended { cells, .. }) => {
                self.give_up_unanswered();
                self.asked = cells.first().and_then(|cell| place_of(self, cell)).map(|place| (place, false));
            }
            Event::Judged(judged) => {
                if let Some(place) = place_of(self, &judged.trial.cell) {
                    self.judged(place, judged);
                }
            }
            Event::Quarantined(quarantined) => {
                if let Some(place) = place_of(self, &quarantined.cell) {
                    self.set_aside(place, quarantined.why.clone());
                }
            }
            Event::Hooked(hooked) => self.hooked(hooked),
            _ => {}
        }
    }

    /// The run waits for the next place: one that was asked for and gave nothing, repeats included, is given up.
    pub fn give_up_unanswered(&mut self) {
        if let Some((place, false)) = self.asked.take() {
            self.set_aside(place, "its trials were void or lost".to_owned());
        }
    }

    fn judged(&mut self, place: Place, judged: &Judged) {
        let judgement = &judged.judgement;
        match judgement.verdict.counted() {
            Counted::Clean => self.see(place, Seeing::Counted(Seen::Clean)),
            Counted::Fault => {
                let signature = judgement.fault_signature();
                // The search begins at the bad end: the first fault there is the one that is searched.
                let wanted = self.signature.get_or_insert_with(|| signature.clone());
                if is_same_fault(wanted, &signature) {
                    self.see(place, Seeing::Counted(Seen::Fault));
                } else {
                    *self.other_faults.entry(signature.to_string()).or_default() += 1;
                    self.see(place, Seeing::OtherFault);
                }
            }
            Counted::Excluded => {
                self.excluded += 1;
                if judged.rule == CANNOT_RUN_HERE {
                    self.set_aside(place, judgement.detail.clone().unwrap_or_default());
                }
            }
        }
    }

    fn hooked(&mut self, hooked: &Hooked) {
        let (Question::Revisions { history, .. }, Engine::Revisions(search)) = (&self.question, &mut self.engine)
        else {
            return;
        };
        let Some(id) = hooked.hook.strip_prefix(PREPARE) else { return };
        let Some(position) = history.revisions.iter().position(|revision| revision.id == id) else { return };
        match hooked.ended == PREPARED {
            true => {
                self.prepared.insert(id.to_owned());
                search.set_built(position);
            }
            false => self.set_aside(Place::At(position), hooked.ended.clone()),
        }
    }

    /// Whether revision `id` is known to be prepared, or known not to be preparable.
    pub fn is_prepared(&self, id: &str) -> bool {
        self.prepared.contains(id)
    }

    /// What the journal says of a preparation of revision `id`: `failure` in words, if it failed.
    pub fn prepared(id: &str, failure: Option<&str>) -> Hooked {
        let ended = failure.map_or(PREPARED, |failure| failure).to_owned();
        Hooked { hook: format!("{PREPARE}{id}"), ended, ends: None }
    }

    /// How many runs are left, roughly.
    pub fn runs_left(&self) -> Option<f64> {
        match &self.engine {
            Engine::Knobs(knobs) => knobs.runs_left(),
            Engine::Levels(levels) => levels.search().runs_left(),
            Engine::Revisions(search) => search.runs_left(),
        }
    }

    /// All runs of a place.
    pub(super) fn counts(&self) -> BTreeMap<Place, Counts> {
        let line = |counts: &[Counts]| counts.iter().enumerate().map(|(at, counts)| (Place::At(at), *counts)).collect();
        match &self.engine {
            Engine::Knobs(knobs) => knobs.counts().iter().map(|(kept, counts)| (Place::Set(*kept), *counts)).collect(),
            Engine::Levels(levels) => line(levels.search().counts()),
            Engine::Revisions(search) => line(search.counts()),
        }
    }

    /// All counted runs together.
    pub fn total(&self) -> Counts {
        self.counts().into_values().chain(self.orders.values().copied()).fold(Counts::default(), add)
    }
}

/// Whether two faults are the same. A place or words identify one by themselves; the stage of a reboot is the last that
/// was recorded, and may be an earlier one. Otherwise the stage tells faults apart.
pub fn is_same_fault(one: &Signature, other: &Signature) -> bool {
    let same = one.verdict == other.verdict && one.status == other.status && one.place == other.place;
    same && (one.place.is_some() || one.verdict == Verdict::Reboot || one.stage == other.stage)
}
