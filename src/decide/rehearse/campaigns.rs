//! The campaigns that can be rehearsed, each judged by the truth of its model.

use super::board::{CellModel, SimulatedBoard};
use super::{Course, Worth, carry};
use crate::decide::bisect::knobs::{self, Knobs};
use crate::decide::bisect::levels::{self, Levels};
use crate::decide::bisect::revisions::{self, Revisions};
use crate::decide::bisect::trigger::{Kept, all, members};
use crate::decide::order::Draws;
use crate::model::matrix::Board;
use crate::model::words::words;

words! {
    /// What is true of a history in a rehearsal.
    #[derive(Default)]
    Truth {
        /// Some position, each as likely as the other, is the first bad one.
        #[default]
        InRange = "in-range",
        /// The good end is bad already.
        AlreadyBad = "already-bad",
        /// The fault does not come at all.
        Absent = "absent",
    }
}

/// A search for the first bad of `last` positions, whose bad ones are `bad` and whose good ones are `good`.
pub fn revisions(
    last: usize,
    rules: &revisions::Rules,
    truth: Truth,
    (bad, good): (&CellModel, &CellModel),
    board: Board,
    mut draws: Draws,
) -> Course {
    let first_bad = match truth {
        Truth::InRange => 1 + draws.below(last as u64) as usize,
        Truth::AlreadyBad => 0,
        Truth::Absent => last + 1,
    };
    let mut board = SimulatedBoard::new(board, draws);
    let mut search = Revisions::line(last, rules.clone());
    let cell = |&at: &usize| if at >= first_bad { bad.clone() } else { good.clone() };
    let (worth, answer) = match carry(&mut search, &mut board, cell) {
        None => (Worth::Undecided, "it does not end".to_owned()),
        Some(answer) => judge_revisions(&answer, truth, first_bad),
    };
    course(worth, answer, &board)
}

/// The answer of a search whose bad end does not reproduce.
pub const REFUSED: &str = "not reproduced at the bad end: refused";

/// To refuse where there is something to be found names nothing, and so is not wrong.
fn refused(is_right: bool) -> Worth {
    if is_right { Worth::Right } else { Worth::Undecided }
}

fn judge_revisions(answer: &revisions::Answer, truth: Truth, first_bad: usize) -> (Worth, String) {
    use revisions::Answer;
    let right = |is_right: bool| if is_right { Worth::Right } else { Worth::Wrong };
    match answer {
        Answer::NotReproduced { .. } => (refused(truth == Truth::Absent), REFUSED.to_owned()),
        Answer::AlreadyBad { .. } => (right(truth == Truth::AlreadyBad), "already faulty at the good end".to_owned()),
        Answer::Found { from, to, .. } if (*from..=*to).contains(&first_bad) => (Worth::Right, "found".to_owned()),
        Answer::Found { from, .. } => {
            let off = from.abs_diff(first_bad);
            let answer = match truth {
                Truth::InRange if *from > first_bad => format!("a revision {off} too late"),
                Truth::InRange => format!("a revision {off} too early"),
                Truth::AlreadyBad | Truth::Absent => "a revision, though none brought it".to_owned(),
            };
            (Worth::Wrong, answer)
        }
        Answer::Undecided { .. } => (Worth::Undecided, "undecided: the runs are used up".to_owned()),
        Answer::Drifted { .. } => (Worth::Undecided, "undecided: the rate at the bad end drifts".to_owned()),
        Answer::EndUntestable { .. } => (Worth::Undecided, "an end cannot be tested".to_owned()),
    }
}

/// What a campaign over knobs or items is made of.
#[derive(Debug, Clone)]
pub struct KnobsModel {
    /// What each element is called.
    pub names: Vec<String>,
    /// The rules of the search.
    pub rules: knobs::Rules,
    /// Combinations that may not be run.
    pub forbidden: Vec<Kept>,
    /// Items of a sequence, if the elements are that.
    pub items: Option<Vec<u8>>,
}

impl KnobsModel {
    fn search(&self) -> Knobs {
        let mut search = match &self.items {
            Some(items) => Knobs::of_items(items.clone(), self.rules.clone()),
            None => Knobs::new(self.names.len() as u32, self.rules.clone()),
        };
        self.forbidden.iter().for_each(|&kept| search.forbid(kept));
        search
    }

    /// The elements of `set` by name.
    pub fn spell(&self, set: Kept) -> String {
        let names: Vec<&str> = members(set).map(|element| self.names[element as usize].as_str()).collect();
        match (names.as_slice(), &self.items) {
            ([], _) => "none".to_owned(),
            (_, Some(_)) => names.concat(),
            (_, None) => names.join(", "),
        }
    }

    /// The elements without which the rate is less than half of what it is with all of them.
    pub fn truth(&self, cell: impl Fn(Kept) -> CellModel) -> Option<Kept> {
        let everything = all(self.names.len() as u32);
        let rate = cell(everything).rate();
        let matters = |element: &u32| cell(everything & !(1 << element)).rate() < rate / 2.0;
        (rate > 0.0).then(|| members(everything).filter(matters).fold(0, |set, element| set | 1 << element))
    }

    /// One search on a board; `cell` gives what keeps a set.
    pub fn rehearse(&self, cell: impl Fn(Kept) -> CellModel, board: Board, draws: Draws) -> Course {
        let truth = self.truth(&cell);
        let mut board = SimulatedBoard::new(board, draws);
        let (worth, answer) = match carry(&mut self.search(), &mut board, |&kept| cell(kept)) {
            None => (Worth::Undecided, "it does not end".to_owned()),
            Some(knobs::Answer::NotReproduced { .. }) => (refused(truth.is_none()), REFUSED.to_owned()),
            Some(knobs::Answer::Untestable) => (Worth::Undecided, "the baseline cannot be run".to_owned()),
            Some(knobs::Answer::Found { set, .. }) if Some(set) == truth => (Worth::Right, self.spell(set)),
            Some(knobs::Answer::Found { set, .. }) => (Worth::Wrong, format!("load-bearing: {}", self.spell(set))),
            Some(knobs::Answer::Refuted { .. }) => {
                (Worth::Undecided, "undecided: faults come without the likeliest answer".to_owned())
            }
            Some(knobs::Answer::Undecided { .. }) => {
                (Worth::Undecided, "undecided: no run that is left tells more".to_owned())
            }
        };
        course(worth, answer, &board)
    }
}

/// A search for the first bad level, good end first; `cells` are their models.
pub fn levels(cells: &[CellModel], rules: &revisions::Rules, board: Board, draws: Draws) -> Course {
    let last = cells.len() - 1;
    let worst = cells[last].rate();
    let is_bad: Vec<bool> = cells.iter().map(|cell| worst > 0.0 && cell.rate() > worst / 2.0).collect();
    let first_bad = is_bad.iter().position(|bad| *bad).unwrap_or(last + 1);
    let is_monotone = is_bad[first_bad.min(last)..].iter().all(|bad| *bad) || first_bad > last;
    let mut board = SimulatedBoard::new(board, draws);
    let mut search = Levels::new(last, rules.clone());
    let (worth, answer) = match carry(&mut search, &mut board, |&at| cells[at].clone()) {
        None => (Worth::Undecided, "it does not end".to_owned()),
        Some(levels::Answer::NotMonotone { .. }) => {
            (if is_monotone { Worth::Wrong } else { Worth::Right }, "not monotone".to_owned())
        }
        Some(levels::Answer::Monotone(answer)) => {
            let truth = match first_bad {
                0 => Truth::AlreadyBad,
                bad if bad > last => Truth::Absent,
                _ => Truth::InRange,
            };
            match judge_revisions(&answer, truth, first_bad) {
                (Worth::Right, answer) if !is_monotone => (Worth::Wrong, answer),
                judged => judged,
            }
        }
    };
    course(worth, answer, &board)
}

fn course(worth: Worth, answer: String, board: &SimulatedBoard) -> Course {
    Course { worth, answer, trials: board.trials(), boots: board.boots(), minutes: board.minutes() }
}
