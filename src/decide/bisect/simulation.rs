//! The simulation gates: what the searches promise, measured over seeded campaigns.

use super::knobs::{self, Knobs};
use super::revisions::{Answer, Revisions, Rules};
use super::trigger::{Kept, all};
use super::{Search, Seen, Step};
use crate::decide::order::Draws;
use crate::decide::rehearse;
use crate::decide::stats::Counts;

/// Campaigns of each gate.
const TRIALS: u32 = 500;

/// [`rehearse::campaigns`] on all processors.
fn campaigns<T: Send>(seed: u64, campaign: impl Fn(Draws) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    rehearse::campaigns(seed, TRIALS, threads, campaign)
}

/// The answer of one search, and the runs of the gate and after it.
fn search(last: usize, first_bad: usize, rates: (f64, f64), mut draws: Draws) -> (Answer, u32, u32) {
    let mut search = Revisions::line(last, Rules::default());
    let mut gate = 0;
    loop {
        match search.next() {
            Step::Done(answer) => return (answer, gate, search.runs()),
            Step::Test { at, .. } => {
                gate += u32::from(!search.is_past_gate());
                let rate = if at >= first_bad { rates.0 } else { rates.1 };
                search.observe(&at, Seen::fault_if(draws.happens(rate)));
            }
        }
    }
}

struct Measured {
    success: f64,
    gate_mean: f64,
    search_mean: f64,
}

fn measure(
    rates: (f64, f64),
    first_bad: impl Fn(&mut Draws) -> usize + Sync,
    is_right: fn(&Answer, usize) -> bool,
) -> Measured {
    let results = campaigns(1936, |mut draws| {
        let first_bad = first_bad(&mut draws);
        let (answer, gate, runs) = search(32, first_bad, rates, draws);
        (is_right(&answer, first_bad), f64::from(gate), f64::from(runs))
    });
    let mean = |figure: fn(&(bool, f64, f64)) -> f64| results.iter().map(figure).sum::<f64>() / f64::from(TRIALS);
    let success = mean(|result| f64::from(u8::from(result.0)));
    Measured { success, gate_mean: mean(|result| result.1), search_mean: mean(|result| result.2) }
}

fn somewhere(draws: &mut Draws) -> usize {
    1 + draws.below(32) as usize
}

fn is_found(answer: &Answer, first_bad: usize) -> bool {
    matches!(answer, Answer::Found { from, to, .. } if *from == first_bad && *to == first_bad)
}

#[test]
fn a_revision_of_32_is_found_in_18_runs_and_rarely_wrong() {
    let found = measure((0.78, 0.0), somewhere, is_found);
    let Measured { success, gate_mean, search_mean } = found;
    assert!(success >= 0.98, "{success}");
    assert!((13.2..=14.8).contains(&search_mean), "{search_mean}");
    assert!(gate_mean + search_mean <= 18.0, "{gate_mean} + {search_mean}");
}

#[test]
fn spurious_faults_cost_two_runs_more() {
    let Measured { success, gate_mean, search_mean } = measure((0.78, 0.02), somewhere, is_found);
    assert!(success >= 0.97, "{success}");
    assert!((15.0..=17.5).contains(&search_mean), "{search_mean}");
    assert!(gate_mean + search_mean <= 20.0, "{gate_mean} + {search_mean}");
}

#[test]
fn a_range_that_does_not_hold_the_change_is_called_that() {
    let is_right = |answer: &Answer, _| matches!(answer, Answer::AlreadyBad { .. });
    let Measured { success, gate_mean, search_mean } = measure((0.78, 0.78), |_| 0, is_right);
    assert!(success >= 0.97, "{success}");
    assert!((4.5..=7.0).contains(&(gate_mean + search_mean)), "{gate_mean} + {search_mean}");
}

#[test]
fn what_does_not_reproduce_is_refused_after_nine_runs() {
    let is_right = |answer: &Answer, _| matches!(answer, Answer::NotReproduced { .. });
    let Measured { success, gate_mean, search_mean } = measure((0.0, 0.0), somewhere, is_right);
    assert_eq!((success, gate_mean, search_mean), (1.0, 9.0, 0.0));
}

/// Whether eight of ten knobs were found, and the runs after nine of the baseline.
fn eight_of_ten(mut draws: Draws) -> (bool, f64) {
    const RATE: f64 = 0.78;
    let mut set: Kept = all(10);
    while set.count_ones() > 8 {
        set &= !(1 << draws.below(10));
    }
    let faults = (0..9).filter(|_| draws.happens(RATE)).count() as u64;
    let mut search = Knobs::new(10, knobs::Rules { confirm: false, ..knobs::Rules::default() });
    search.load(all(10), Counts { faults, clean: 9 - faults });
    let mut runs = 0.0;
    loop {
        match search.next() {
            Step::Done(knobs::Answer::Found { set: found, .. }) => return (found == set, runs),
            Step::Done(_) => return (false, runs),
            Step::Test { at, .. } => {
                runs += 1.0;
                search.observe(&at, Seen::fault_if(set & at == set && draws.happens(RATE)));
            }
        }
    }
}

#[test]
fn eight_load_bearing_knobs_of_ten_are_found_in_40_runs() {
    let results = campaigns(8, eight_of_ten);
    let success = results.iter().filter(|(right, _)| *right).count() as f64 / f64::from(TRIALS);
    let mean = results.iter().map(|(_, runs)| runs).sum::<f64>() / f64::from(TRIALS);
    assert!(success >= 0.93, "{success}");
    assert!((31.0..=40.0).contains(&mean), "{mean}");
}

#[test]
fn an_answer_that_is_confirmed_leans_on_runs_of_its_own() {
    let mut draws = Draws::new(4, 0);
    let set: Kept = 0b0101;
    let mut search = Knobs::new(4, knobs::Rules::default());
    let answer = loop {
        match search.next() {
            Step::Done(answer) => break answer,
            Step::Test { at, .. } => search.observe(&at, Seen::fault_if(set & at == set && draws.happens(0.78))),
        }
    };
    assert!(matches!(answer, knobs::Answer::Found { set: 0b0101, .. }), "{answer:?}");
    assert!(search.confirm_runs() > 0 && search.counts()[&set].faults > 0);
    let test = knobs::clean_test(search.armed(set));
    for element in [0, 2] {
        assert!(knobs::is_below(&test, search.one_smaller(set, element)));
    }
}

#[test]
fn of_two_triggers_that_are_each_enough_none_is_named() {
    for rate in [1.0, 0.78] {
        let mut named = 0;
        for seed in 0..200 {
            let mut draws = Draws::new(seed, 7);
            let mut search = Knobs::new(3, knobs::Rules::default());
            let answer = loop {
                match search.next() {
                    Step::Done(answer) => break answer,
                    Step::Test { at, .. } => {
                        search.observe(&at, Seen::fault_if(at & 0b011 != 0 && draws.happens(rate)))
                    }
                }
            };
            named += u32::from(matches!(answer, knobs::Answer::Found { .. }));
        }
        assert!(named <= 4, "{named} of 200 at {rate}");
    }
}

#[test]
fn a_knob_whose_flip_fails_otherwise_is_masked_and_the_others_are_told() {
    let mut draws = Draws::new(5, 0);
    let set: Kept = 0b0011;
    let mut search = Knobs::new(4, knobs::Rules::default());
    let mut runs = 0;
    let answer = loop {
        runs += 1;
        assert!(runs < 200, "it ends");
        match search.next() {
            Step::Done(answer) => break answer,
            // Without element 3 the trial runs out of memory.
            Step::Test { at, .. } if at & 0b1000 == 0 => search.observe_other_fault(at),
            Step::Test { at, .. } => search.observe(&at, Seen::fault_if(set & at == set && draws.happens(0.9))),
        }
    };
    assert!(matches!(answer, knobs::Answer::Found { set: 0b0011, .. }), "{answer:?}");
    assert_eq!(search.masked(), 0b1000);
}
