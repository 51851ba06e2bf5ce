//! Where a campaign stands, as data and in words: verdict, posterior, evidence, what was set aside, what is left.
//!
//! Nothing is called found, fixed or clean without the bound or the posterior beside it.

use serde::{Deserialize, Serialize};

use super::course::{Answer, Course, Engine};
use super::{Direction, Place, Question, QuestionKind};
use crate::decide::bisect::trigger::{Kept, all, members};
use crate::decide::bisect::{Step, knobs, levels, orders, revisions as since};
use crate::decide::compare::p_words;
use crate::decide::report::Rate;
use crate::decide::stats::{Arms, Confidence, Counts, Method, Sprt, fisher, holm, upper_bound};
use crate::model::words::words;

/// Name and version of the format of `--format json`.
pub const STANDING_SCHEMA: &str = "jetfault.bisect/1";

/// How many hypotheses are shown.
const HYPOTHESES_MAX: usize = 5;

words! {
    /// What a campaign found, in a word.
    FindingKind {
        /// It is not over.
        Open = "open",
        /// It found what was asked for.
        Found = "found",
        /// The range does not hold the change.
        AlreadyFaulty = "already-faulty",
        /// The bad end does not fault in this state.
        NotReproduced = "not-reproduced",
        /// The levels have more than one change.
        NotMonotone = "not-monotone",
        /// The rate at the bad end moved.
        Drift = "drift",
        /// An end cannot be tested.
        Untestable = "untestable",
        /// The runs are used up, or none that is left tells more.
        Inconclusive = "inconclusive",
    }
}

/// The runs of one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The place.
    pub place: String,
    /// Its rate, with an interval that is valid although the campaign chose where to look.
    pub rate: Rate,
    /// What was said about it beside that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Where a campaign stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// [`STANDING_SCHEMA`].
    pub schema: String,
    /// What is asked.
    pub question: QuestionKind,
    /// What was found, in a word.
    pub finding: FindingKind,
    /// The same in sentences.
    pub sentences: Vec<String>,
    /// The likeliest answers with their posteriors.
    pub posterior: Vec<(String, f64)>,
    /// The runs of each place that has any.
    pub evidence: Vec<Evidence>,
    /// Counted runs, those that were known before included.
    pub runs: u64,
    /// How many runs are left, roughly, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_left: Option<u64>,
    /// The fault that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Faults that do not, by signature.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_faults: Vec<(String, u64)>,
    /// Excluded trials.
    pub excluded: u64,
    /// Places of which nothing more is asked, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<(String, String)>,
}

impl Standing {
    /// Where `course` stands.
    pub fn of(course: &Course) -> Self {
        let (finding, sentences) = match course.next() {
            Step::Test { .. } => (FindingKind::Open, Vec::new()),
            Step::Done(answer) => words_of(course, &answer),
        };
        Self {
            schema: STANDING_SCHEMA.to_owned(),
            question: course.question.kind(),
            finding,
            sentences,
            posterior: posterior(course),
            evidence: evidence(course),
            runs: course.total().counted(),
            runs_left: course.runs_left().map(|runs| runs.ceil() as u64),
            signature: course.signature.as_ref().map(ToString::to_string),
            other_faults: course.other_faults.iter().map(|(signature, count)| (signature.clone(), *count)).collect(),
            excluded: course.excluded,
            set_aside: course.aside.iter().map(|(place, why)| (name(course, *place), why.clone())).collect(),
        }
    }

    /// As `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a standing has string keys and finite numbers");
        json.push(b'\n');
        json
    }
}

/// What a place is called.
pub(super) fn name(course: &Course, place: Place) -> String {
    match (&course.question, place) {
        (Question::Axes { flips, .. }, Place::Set(kept)) => {
            let flipped: Vec<String> = members(all(flips.len() as u32) & !kept)
                .map(|element| format!("{}={}", flips[element as usize].axis, flips[element as usize].to))
                .collect();
            if flipped.is_empty() { "baseline".to_owned() } else { flipped.join(", ") }
        }
        (Question::Sequence { .. }, Place::Set(kept)) => spell(&course.question, kept),
        (Question::Sequence { layers, .. }, Place::Order(order)) => course
            .orders
            .keys()
            .nth(order)
            .map_or_else(|| format!("order {order}"), |indices| spell_layers(layers, indices.iter().copied())),
        (Question::Levels { axis, labels, .. }, Place::At(position)) => format!("{axis}={}", labels[position]),
        (Question::Revisions { history, .. }, Place::At(position)) => {
            let revision = &history.revisions[position];
            format!("{} {}", short(&revision.id), revision.title).trim_end().to_owned()
        }
        (_, place) => format!("{place:?}"),
    }
}

fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

fn spell_layers(layers: &[String], indices: impl Iterator<Item = usize>) -> String {
    let separator = if layers.iter().all(|label| label.len() == 1) { "" } else { " " };
    let spelt: Vec<&str> = indices.map(|index| layers[index].as_str()).collect();
    spelt.join(separator)
}

/// The elements of a set in words.
fn spell(question: &Question, set: Kept) -> String {
    match question {
        Question::Axes { flips, .. } => {
            let kept: Vec<String> = members(set)
                .map(|element| format!("{}={}", flips[element as usize].axis, flips[element as usize].from))
                .collect();
            if kept.is_empty() { "none".to_owned() } else { kept.join(", ") }
        }
        Question::Sequence { layers, .. } => spell_layers(layers, members(set).map(|element| element as usize)),
        Question::Levels { .. } | Question::Revisions { .. } => set.to_string(),
    }
}

fn rate(counts: Counts) -> Rate {
    Rate::of(counts, Method::ConfidenceSequence)
}

fn posterior(course: &Course) -> Vec<(String, f64)> {
    let hypothesis = |t: usize| match (&course.question, t) {
        (_, 0) => "already faulty at the good end".to_owned(),
        (Question::Revisions { history, .. }, t) => {
            let revision = history.named(t);
            format!("{} {}", short(&revision.id), revision.title).trim_end().to_owned()
        }
        (_, t) => format!("from {} on", name(course, Place::At(t))),
    };
    let search = match &course.engine {
        Engine::Knobs(knobs) => {
            let sets = knobs.likeliest(HYPOTHESES_MAX).into_iter();
            return sets.map(|(set, weight)| (spell(&course.question, set), weight)).collect();
        }
        Engine::Levels(levels) => levels.search(),
        Engine::Revisions(search) => search,
    };
    let mut weights: Vec<(usize, f64)> = search.posterior().weights.into_iter().enumerate().collect();
    weights.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    weights.truncate(HYPOTHESES_MAX);
    weights.into_iter().map(|(t, weight)| (hypothesis(t), weight)).collect()
}

fn evidence(course: &Course) -> Vec<Evidence> {
    let with = |place: String, counts: Counts, note: String| Evidence { place, rate: rate(counts), note };
    let mut rows: Vec<Evidence> = course
        .counts()
        .into_iter()
        .filter(|(_, counts)| counts.counted() > 0)
        .map(|(place, counts)| with(name(course, place), counts, String::new()))
        .collect();
    if let Question::Sequence { layers, .. } = &course.question {
        let orders = course.orders.iter();
        rows.extend(orders.map(|(indices, counts)| {
            with(spell_layers(layers, indices.iter().copied()), *counts, "another order".to_owned())
        }));
    }
    if let (Engine::Knobs(knobs), Step::Done(Answer::Knobs(knobs::Answer::Found { set, .. })))
    | (Engine::Knobs(knobs), Step::Done(Answer::Sequence { part: knobs::Answer::Found { set, .. }, .. })) =
        (&course.engine, course.next())
    {
        rows.extend(confirmation(course, knobs, set));
    }
    rows
}

/// The runs that did without one element of the answer each, beside those that had all of it.
fn confirmation(course: &Course, knobs: &knobs::Knobs, set: Kept) -> Vec<Evidence> {
    let armed = knobs.armed(set);
    let smaller: Vec<(u32, Counts)> = members(set).map(|element| (element, knobs.one_smaller(set, element))).collect();
    let p_values: Vec<f64> = smaller.iter().map(|(_, counts)| fisher(Arms { a: armed, b: *counts }).greater).collect();
    let rows = smaller.iter().zip(holm(&p_values)).map(|((element, counts), p)| Evidence {
        place: format!("without {}", spell(&course.question, 1 << element)),
        rate: rate(*counts),
        note: format!("p = {} (Fisher, Holm over {}) against {}", p_words(p), smaller.len(), rate(armed).fraction()),
    });
    rows.collect()
}

fn words_of(course: &Course, answer: &Answer) -> (FindingKind, Vec<String>) {
    match answer {
        Answer::Knobs(answer) => knobs_words(course, answer),
        Answer::Sequence { part, orders } => {
            let (finding, mut sentences) = knobs_words(course, part);
            sentences.extend(order_words(course, part, orders));
            (finding, sentences)
        }
        Answer::Levels(levels::Answer::Monotone(answer)) | Answer::Revisions(answer) => since_words(course, answer),
        Answer::Levels(levels::Answer::NotMonotone { from, level, counts }) => {
            let sentence = format!(
                "NOT MONOTONE: the fault would begin at {}, but {} has {}. One change does not explain that.",
                name(course, Place::At(*from)),
                name(course, Place::At(*level)),
                rate(*counts)
            );
            (
                FindingKind::NotMonotone,
                vec![sentence, "Compare the levels one by one: `jetfault run` them all.".to_owned()],
            )
        }
    }
}

fn not_reproduced(counts: Counts, end: &str) -> (FindingKind, Vec<String>) {
    let sentence = format!(
        "NOT REPRODUCED IN THIS STATE: {}/{} at {end}: rate at most {:.1} % (95 %). Bisect refused.",
        counts.faults,
        counts.counted(),
        100.0 * upper_bound(counts, Confidence::P95)
    );
    let why = "Whatever it named would be arbitrary. Is the start state the one in which the fault was seen?";
    (FindingKind::NotReproduced, vec![sentence, why.to_owned()])
}

fn knobs_words(course: &Course, answer: &knobs::Answer) -> (FindingKind, Vec<String>) {
    let Engine::Knobs(knobs) = &course.engine else { return (FindingKind::Open, Vec::new()) };
    let is_sequence = matches!(course.question, Question::Sequence { .. });
    let masked: Vec<String> = members(knobs.masked()).map(|element| spell(&course.question, 1 << element)).collect();
    let (finding, mut sentences) = match *answer {
        knobs::Answer::NotReproduced { baseline } => return not_reproduced(baseline, "the baseline"),
        knobs::Answer::Untestable => {
            let sentence = "UNTESTABLE: the baseline cannot be run here; see what was set aside.";
            (FindingKind::Untestable, vec![sentence.to_owned()])
        }
        knobs::Answer::Found { set, probability } if is_sequence => {
            let sentence = format!(
                "SMALLEST FAILING PART: {} ({:.1} % posterior). By itself it has {}.",
                spell(&course.question, set),
                100.0 * probability,
                rate(knobs.counts().get(&set).copied().unwrap_or_default())
            );
            (FindingKind::Found, vec![sentence])
        }
        knobs::Answer::Found { set: 0, probability } => {
            let sentence = format!(
                "NONE IS LOAD-BEARING ({:.1} % posterior): the fault comes with all flipped.",
                100.0 * probability
            );
            (FindingKind::Found, vec![sentence])
        }
        knobs::Answer::Found { set, probability } => {
            let sentences = vec![
                format!("LOAD-BEARING: {} ({:.1} % posterior).", spell(&course.question, set), 100.0 * probability),
                "Each of them alone is a mitigation within the bound of its row; no other flip is one.".to_owned(),
            ];
            (FindingKind::Found, sentences)
        }
        knobs::Answer::Refuted { set, kept } => {
            let sentence = format!(
                "INCONCLUSIVE: {} explains most, but not that {} has {}.",
                spell(&course.question, set),
                spell(&course.question, kept),
                rate(knobs.counts().get(&kept).copied().unwrap_or_default())
            );
            let why = "More than one is enough by itself, or one changes the rate alone: compare them one by one.";
            (FindingKind::Inconclusive, vec![sentence, why.to_owned()])
        }
        knobs::Answer::Undecided { set, probability } => {
            let sentence = format!(
                "INCONCLUSIVE: likeliest is {} ({:.1} % posterior); no run that is left would tell.",
                spell(&course.question, set),
                100.0 * probability
            );
            (FindingKind::Inconclusive, vec![sentence])
        }
    };
    if !masked.is_empty() {
        sentences.push(format!(
            "MASKED: {}: flipped alone it fails in another way; nothing is said of it.",
            masked.join(", ")
        ));
    }
    (finding, sentences)
}

fn order_words(course: &Course, part: &knobs::Answer, others: &[super::course::OtherOrder]) -> Vec<String> {
    let (Engine::Knobs(knobs), Question::Sequence { layers, .. }) = (&course.engine, &course.question) else {
        return Vec::new();
    };
    let knobs::Answer::Found { set, .. } = part else { return Vec::new() };
    if others.is_empty() && set.count_ones() as usize > orders::ITEMS_MAX {
        return vec![format!("Other orders of {} layers are too many to try.", set.count_ones())];
    }
    let least = Sprt::rate_against(knobs.armed(*set));
    let test = orders::Orders::new(others.len(), least);
    let sentence = |other: &super::course::OtherOrder| {
        let order = spell_layers(layers, other.indices.iter().copied());
        match test.decided(other.counts) {
            Some(orders::Decided::Faults) => format!("ORDER {order} FAULTS TOO: {}.", rate(other.counts)),
            Some(orders::Decided::Below) => format!(
                "ORDER {order} BELOW {:.0} %: {} (wrong at most 5 % of the time over all orders).",
                100.0 * least,
                rate(other.counts)
            ),
            None => format!("ORDER {order}: not run."),
        }
    };
    others.iter().map(sentence).collect()
}

fn since_words(course: &Course, answer: &since::Answer) -> (FindingKind, Vec<String>) {
    use since::Answer as Since;
    let (search, last) = match (&course.engine, course.question.bad_end()) {
        (Engine::Revisions(search), Place::At(last)) => (search, last),
        (Engine::Levels(levels), Place::At(last)) => (levels.search(), last),
        _ => return (FindingKind::Open, Vec::new()),
    };
    let at = |position: usize| name(course, Place::At(position));
    let counts = |position: usize| rate(search.counts()[position]);
    match *answer {
        Since::NotReproduced { bad_end } => not_reproduced(bad_end, &format!("the bad end ({})", at(last))),
        Since::AlreadyBad { probability } => {
            let sentence = format!(
                "ALREADY FAULTY AT THE GOOD END ({:.1} % posterior): the range does not contain the change. {} has {}.",
                100.0 * probability,
                at(0),
                counts(0)
            );
            (FindingKind::AlreadyFaulty, vec![sentence])
        }
        Since::Found { from, to, probability } => {
            (FindingKind::Found, found_words(course, (from, to), probability, search.counts()))
        }
        Since::Undecided { from, to } => {
            let first = if from == 0 { "the good end or before it".to_owned() } else { hypothesis(course, from) };
            let sentence =
                format!("INCONCLUSIVE: 95 % of the posterior lie between {first} and {}.", hypothesis(course, to));
            (FindingKind::Inconclusive, vec![sentence])
        }
        Since::Drifted { before, after } => {
            let sentence = format!(
                "DRIFT: the bad end had {}, and lately {}. The rate itself changes, so no position is named.",
                rate(before),
                rate(after)
            );
            (FindingKind::Drift, vec![sentence])
        }
        Since::EndUntestable { end } => {
            let which = if end == 0 { "good" } else { "bad" };
            let why = course.aside.get(&Place::At(end)).map_or("it is skipped", String::as_str);
            let sentence = format!("UNTESTABLE: the {which} end ({}) cannot be run: {why}.", at(end));
            (FindingKind::Untestable, vec![sentence])
        }
    }
}

/// What hypothesis `t` (from 1) names.
fn hypothesis(course: &Course, t: usize) -> String {
    match &course.question {
        Question::Revisions { history, .. } => {
            let revision = history.named(t.max(1));
            format!("{} {}", short(&revision.id), revision.title).trim_end().to_owned()
        }
        Question::Levels { .. } | Question::Axes { .. } | Question::Sequence { .. } => name(course, Place::At(t)),
    }
}

fn found_words(course: &Course, (from, to): (usize, usize), probability: f64, counts: &[Counts]) -> Vec<String> {
    use crate::decide::bisect::posterior::add;
    let order = match &course.engine {
        Engine::Revisions(search) => search.order(),
        Engine::Levels(levels) => levels.search().order(),
        Engine::Knobs(_) => return Vec::new(),
    };
    let sum = |bad: bool, hypothesis: usize| {
        let on_side = (0..counts.len()).filter(|&position| order.is_bad(position, hypothesis) == bad);
        on_side.map(|position| counts[position]).fold(Counts::default(), add)
    };
    let what = match &course.question {
        Question::Revisions { history, .. } => match history.direction {
            Direction::Fault => "FIRST FAULTY REVISION",
            Direction::Fix => "FIRST REVISION WITHOUT THE FAULT",
        },
        Question::Levels { .. } | Question::Axes { .. } | Question::Sequence { .. } => "FIRST FAULTY LEVEL",
    };
    let which = match from == to {
        true => hypothesis(course, from),
        false => format!(
            "one of {} to {} (those between cannot be tested)",
            hypothesis(course, from),
            hypothesis(course, to)
        ),
    };
    let (bad, good) = (sum(true, to), sum(false, from));
    vec![
        format!("{what}: {which} ({:.1} % posterior).", 100.0 * probability),
        format!("With the fault: {}. Without it: {}.", rate(bad), rate(good)),
    ]
}
