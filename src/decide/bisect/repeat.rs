//! What plain bisection with repeats would do: each position is run up to k times and is bad from m faults on.
//!
//! Cheaper than [`super::revisions`] if the rate is known exactly, k fits it and both ends can be trusted; with the wrong
//! k it is a coin toss, and k = 1, which is `git bisect`, mostly names a wrong position. It is not offered as a search,
//! but its exact chance of success stands beside a rehearsal.

use serde::Serialize;

use crate::decide::stats::Counts;

/// How often a position is run, and what makes it bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Repeats {
    /// The most runs of a position: k, at least 1.
    pub runs: u64,
    /// Faults that make it bad: m, from 1 to k.
    pub faults: u64,
}

impl Repeats {
    /// What `counts` of a position say; none if it needs more runs.
    fn is_bad(self, counts: Counts) -> Option<bool> {
        if counts.faults >= self.faults {
            Some(true)
        } else if counts.clean + self.faults > self.runs {
            Some(false)
        } else {
            None
        }
    }

    /// The chance that a position with fault rate `rate` is called bad, and the runs that takes on average.
    fn at(self, rate: f64) -> (f64, f64) {
        let (mut bad, mut runs) = (0.0, 0.0);
        let mut open = vec![(Counts::default(), 1.0)];
        while let Some((counts, chance)) = open.pop() {
            match self.is_bad(counts) {
                Some(is_bad) => {
                    bad += if is_bad { chance } else { 0.0 };
                    runs += chance * counts.counted() as f64;
                }
                None => {
                    open.push((Counts { faults: counts.faults + 1, ..counts }, chance * rate));
                    open.push((Counts { clean: counts.clean + 1, ..counts }, chance * (1.0 - rate)));
                }
            }
        }
        (bad, runs)
    }

    /// What a search over positions 0 to `last` would do, each of 1 to `last` being the first bad one equally often.
    pub fn characteristics(self, last: usize, bad_rate: f64, good_rate: f64) -> Characteristics {
        let course = Course { first_bad: 0, bad: self.at(bad_rate), good: self.at(good_rate) };
        let sum = (1..=last).map(|first_bad| Course { first_bad, ..course }.from(0, last));
        let sum = sum.fold(Characteristics::default(), |sum, one| sum.and(one, 1.0));
        Characteristics::default().and(sum, 1.0 / last as f64)
    }
}

/// What a search does on average.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Characteristics {
    /// The chance to name the right position.
    pub success: f64,
    /// Runs.
    pub runs: f64,
    /// Positions run, each of which is built once.
    pub builds: f64,
}

impl Characteristics {
    fn and(self, other: Self, share: f64) -> Self {
        Self {
            success: self.success + share * other.success,
            runs: self.runs + share * other.runs,
            builds: self.builds + share * other.builds,
        }
    }
}

/// The course of a search with a given truth.
#[derive(Clone, Copy)]
struct Course {
    first_bad: usize,
    bad: (f64, f64),
    good: (f64, f64),
}

impl Course {
    fn from(self, good: usize, bad: usize) -> Characteristics {
        if bad - good == 1 {
            let success = if bad == self.first_bad { 1.0 } else { 0.0 };
            return Characteristics { success, ..Characteristics::default() };
        }
        let middle = good + (bad - good) / 2;
        let (called_bad, runs) = if middle >= self.first_bad { self.bad } else { self.good };
        let here = Characteristics { success: 0.0, runs, builds: 1.0 };
        here.and(self.from(good, middle), called_bad).and(self.from(middle, bad), 1.0 - called_bad)
    }
}
