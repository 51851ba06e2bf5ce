//! Revisions and how they follow each other.

use serde::{Deserialize, Serialize};

use crate::decide::bisect::posterior::{Order, Positions};
use crate::model::words::words;

/// One revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// Its commit, 40 hex digits.
    pub id: String,
    /// The first line of its message.
    pub title: String,
    /// How likely it is to have made the change, relative to others.
    pub weight: f64,
    /// Positions of its parents within the history; unused where the history is a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<usize>,
    /// Whether it is known not to build.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
}

words! {
    /// What is searched in a history.
    Direction {
        /// The revision that brought the fault: the bad end is the newest.
        Fault = "fault",
        /// The revision that mended it: the bad end is the oldest.
        Fix = "fix",
    }
}

/// The revisions from the good end to the bad end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The repository.
    pub repo: String,
    /// What is searched.
    pub direction: Direction,
    /// Whether only first parents are in it, so that it is a line.
    pub first_parent: bool,
    /// The revisions, by position: the good end first, the bad end last. Towards the bad end a search for a fault goes
    /// from parents to children, one for a fix from children to parents.
    pub revisions: Vec<Revision>,
}

impl History {
    /// The last position, that of the bad end.
    pub fn last(&self) -> usize {
        self.revisions.len() - 1
    }

    /// The order to search.
    pub fn order(&self) -> Order {
        let last = self.last();
        if self.first_parent {
            return Order::Line { last };
        }
        let count = self.revisions.len();
        let descendants = self.descendants();
        let mut hypotheses = vec![Positions::all(count)];
        hypotheses.extend((1..=last).map(|hypothesis| match self.direction {
            Direction::Fault => descendants[hypothesis].clone(),
            Direction::Fix => {
                // The fix is one position nearer to the good end than the first bad one.
                let mended = &descendants[hypothesis - 1];
                let mut bad = Positions::none(count);
                (0..count).filter(|position| !mended.contains(*position)).for_each(|position| bad.insert(position));
                bad
            }
        }));
        Order::Graph(hypotheses)
    }

    /// For each position all that have it in their history, itself included.
    fn descendants(&self) -> Vec<Positions> {
        let count = self.revisions.len();
        let mut descendants: Vec<Positions> = (0..count)
            .map(|position| {
                let mut own = Positions::none(count);
                own.insert(position);
                own
            })
            .collect();
        // Children before parents, so that a parent takes over what its children have gathered.
        let mut children_first: Vec<usize> = (0..count).collect();
        if self.direction == Direction::Fault {
            children_first.reverse();
        }
        for child in children_first {
            let gathered = descendants[child].clone();
            self.revisions[child].parents.iter().for_each(|&parent| descendants[parent].extend(&gathered));
        }
        descendants
    }

    /// The weight of each hypothesis 1 to last: that of the revision that it names.
    pub fn weights(&self) -> Vec<f64> {
        (1..=self.last()).map(|hypothesis| self.named(hypothesis).weight).collect()
    }

    /// The revision that hypothesis `hypothesis` (from 1) names: the first with the fault, or the first without it.
    pub fn named(&self, hypothesis: usize) -> &Revision {
        match self.direction {
            Direction::Fault => &self.revisions[hypothesis],
            Direction::Fix => &self.revisions[hypothesis - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(parents: &[usize]) -> Revision {
        Revision { id: String::new(), title: String::new(), weight: 1.0, parents: parents.to_vec(), skip: false }
    }

    fn bad_under(order: &Order, hypothesis: usize) -> Vec<usize> {
        (0..=order.last()).filter(|position| order.is_bad(*position, hypothesis)).collect()
    }

    #[test]
    fn a_fault_of_a_side_branch_is_not_in_its_sibling() {
        // 0 is good; 1 and 2 are siblings, 3 merges them.
        let revisions = vec![revision(&[]), revision(&[0]), revision(&[0]), revision(&[1, 2])];
        let history = History { repo: String::new(), direction: Direction::Fault, first_parent: false, revisions };
        let order = history.order();
        assert_eq!(bad_under(&order, 0), [0, 1, 2, 3]);
        assert_eq!(bad_under(&order, 1), [1, 3]);
        assert_eq!(bad_under(&order, 2), [2, 3]);
        assert_eq!(bad_under(&order, 3), [3]);
    }

    #[test]
    fn a_fix_mends_its_descendants_alone() {
        // 0 is the newest and good; it merges 1 and 2, which both come from 3, the bad end.
        let revisions = vec![revision(&[1, 2]), revision(&[3]), revision(&[3]), revision(&[])];
        let history = History { repo: String::new(), direction: Direction::Fix, first_parent: false, revisions };
        let order = history.order();
        // Hypothesis 1: the merge itself mended it.
        assert_eq!(bad_under(&order, 1), [1, 2, 3]);
        assert_eq!(bad_under(&order, 2), [2, 3]);
        assert_eq!(bad_under(&order, 3), [1, 3]);
    }

    #[test]
    fn a_line_as_a_graph_is_the_line() {
        for direction in [Direction::Fault, Direction::Fix] {
            let parents = |position: usize| match direction {
                Direction::Fault => position.checked_sub(1).into_iter().collect(),
                Direction::Fix => Some(position + 1).filter(|parent| *parent < 6).into_iter().collect::<Vec<_>>(),
            };
            let revisions = (0..6).map(|position| revision(&parents(position))).collect();
            let history = History { repo: String::new(), direction, first_parent: false, revisions };
            let order = history.order();
            for hypothesis in 0..6 {
                assert_eq!(bad_under(&order, hypothesis), (hypothesis..6).collect::<Vec<_>>());
            }
        }
    }
}
