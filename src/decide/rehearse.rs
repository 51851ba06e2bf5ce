//! A campaign on a simulated board, in virtual time: the boots and hours it takes, the chance of a right answer, and what
//! a wrong one looks like.
//!
//! The searches are those of [`crate::decide::bisect`], the rates those of `[[inject]]`, the rest of the board is
//! `[board]`. Nothing runs and nothing is stored; the same seed gives the same campaigns on any number of threads.

pub mod board;

pub mod campaigns;

pub mod matrix;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decide::bisect::{Search, Step};
use crate::decide::order::Draws;
use crate::decide::rehearse::board::{CellModel, SimulatedBoard};
use crate::model::words::words;

/// The most campaigns of one rehearsal.
pub const CAMPAIGNS_MAX: u32 = 1_000_000;

/// The most trials of one simulated campaign: one that is not over then never stops.
pub const TRIALS_MAX: u32 = 5_000;

/// How many different wrong answers are kept.
const WRONG_KEPT: usize = 5;

words! {
    /// What an answer is worth, beside the truth of the model.
    Worth {
        /// It is the truth.
        Right = "right",
        /// It is something else, said with confidence.
        Wrong = "wrong",
        /// It says that it does not know.
        Undecided = "undecided",
    }
}

/// How one campaign went.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// What its answer is worth.
    pub worth: Worth,
    /// The answer in words.
    pub answer: String,
    /// Trials that were counted.
    pub trials: u32,
    /// Boots that were used.
    pub boots: u32,
    /// Minutes that passed.
    pub minutes: f64,
}

/// Carries `search` through on `board`; `cell` gives what is run at a place. `None` if it does not end.
pub fn carry<S: Search>(
    search: &mut S,
    board: &mut SimulatedBoard,
    cell: impl Fn(&S::Place) -> CellModel,
) -> Option<S::Answer> {
    for _ in 0..TRIALS_MAX {
        match search.next() {
            Step::Done(answer) => return Some(answer),
            Step::Test { at, .. } => {
                let seen = board.run(&cell(&at));
                search.observe(&at, seen);
            }
        }
    }
    None
}

/// A mean with the value that nine of ten campaigns do not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The 90th percentile.
    pub p90: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let mean = figures.iter().sum::<f64>() / figures.len() as f64;
        Self { mean, p90: figures[(figures.len() * 9).div_ceil(10) - 1] }
    }
}

/// Many campaigns together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub campaigns: u32,
    /// With the right answer.
    pub right: u32,
    /// With a wrong one.
    pub wrong: u32,
    /// With none.
    pub undecided: u32,
    /// Counted trials.
    pub trials: Spread,
    /// Boots.
    pub boots: Spread,
    /// Hours.
    pub hours: Spread,
    /// The commonest wrong answers, and how often each came.
    pub wrong_answers: Vec<(String, u32)>,
}

impl Summary {
    /// What `courses` (at least one) have in common.
    pub fn of(courses: &[Course]) -> Self {
        let count = |worth: Worth| courses.iter().filter(|course| course.worth == worth).count() as u32;
        let spread = |figure: fn(&Course) -> f64| Spread::of(courses.iter().map(figure).collect());
        let mut wrong: BTreeMap<&str, u32> = BTreeMap::new();
        for course in courses.iter().filter(|course| course.worth == Worth::Wrong) {
            *wrong.entry(&course.answer).or_default() += 1;
        }
        let mut wrong_answers: Vec<(String, u32)> =
            wrong.into_iter().map(|(answer, n)| (answer.to_owned(), n)).collect();
        wrong_answers.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        wrong_answers.truncate(WRONG_KEPT);
        Self {
            campaigns: courses.len() as u32,
            right: count(Worth::Right),
            wrong: count(Worth::Wrong),
            undecided: count(Worth::Undecided),
            trials: spread(|course| f64::from(course.trials)),
            boots: spread(|course| f64::from(course.boots)),
            hours: spread(|course| course.minutes / 60.0),
            wrong_answers,
        }
    }
}

/// `count` campaigns (from 1 to [`CAMPAIGNS_MAX`]) on `threads` threads, each with draws of its own; in their order,
/// whatever the number of threads.
pub fn campaigns<T: Send>(seed: u64, count: u32, threads: u32, campaign: impl Fn(Draws) -> T + Sync) -> Vec<T> {
    let threads = threads.clamp(1, count.max(1));
    let each = |thread: u32| -> Vec<T> {
        (thread..count).step_by(threads as usize).map(|number| campaign(Draws::new(seed, number))).collect()
    };
    let by_thread: Vec<Vec<T>> = std::thread::scope(|scope| {
        let each = &each;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || each(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("a campaign does not panic")).collect()
    });
    let mut by_thread: Vec<_> = by_thread.into_iter().map(Vec::into_iter).collect();
    (0..count).filter_map(|number| by_thread[(number % threads) as usize].next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let draw = |mut draws: Draws| draws.below(1_000_000);
        let one = campaigns(7, 101, 1, draw);
        assert_eq!(one.len(), 101);
        for threads in [2, 3, 64, 1000] {
            assert_eq!(campaigns(7, 101, threads, draw), one);
        }
        assert_ne!(campaigns(8, 101, 1, draw), one);
    }

    #[test]
    fn the_commonest_wrong_answers_come_first() {
        let course = |worth: Worth, answer: &str, trials: u32| Course {
            worth,
            answer: answer.to_owned(),
            trials,
            boots: 1,
            minutes: 60.0,
        };
        let courses = [
            course(Worth::Right, "r", 1),
            course(Worth::Wrong, "a", 2),
            course(Worth::Wrong, "b", 3),
            course(Worth::Wrong, "b", 4),
            course(Worth::Undecided, "u", 10),
        ];
        let summary = Summary::of(&courses);
        assert_eq!(summary.wrong_answers, [("b".to_owned(), 2), ("a".to_owned(), 1)]);
        assert_eq!((summary.right, summary.wrong, summary.undecided), (1, 3, 1));
        assert_eq!(summary.trials, Spread { mean: 4.0, p90: 10.0 });
    }
}
