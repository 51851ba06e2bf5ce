//! What the searches cost and how often they are right, beside reference figures; and how long they think.
//!
//! Each row is measured over seeded campaigns on a simulated board without drift or lottery. The reference figures come
//! from independent implementations of the same rules, without the sentinel runs that are made here, and carry Monte
//! Carlo errors of ±0.004 (success) to ±0.02 of their own.

use std::hint::black_box;
use std::time::{Duration, Instant};

use jetfault::decide::bisect::knobs::{self, Knobs};
use jetfault::decide::bisect::posterior::{FalseFaults, Order, Positions, Rates};
use jetfault::decide::bisect::revisions::{self, Revisions};
use jetfault::decide::bisect::trigger::{Kept, Triggers, all};
use jetfault::decide::bisect::{Search, Seen, Step};
use jetfault::decide::order::Draws;
use jetfault::decide::rehearse::board::CellModel;
use jetfault::decide::rehearse::campaigns::{self, Truth};
use jetfault::decide::rehearse::{Summary, campaigns as rehearse};
use jetfault::decide::stats::Counts;
use jetfault::model::matrix::Board;

const SEED: u64 = 1936;
const BOARD: Board =
    Board { minutes_per_boot: 2.0, minutes_per_trial: 1.0, spurious_rate: 0.0, boot_lottery: 0.0, drift: 0.0 };

fn main() {
    // `cargo test --benches` wants to see it start, not to wait.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    revisions_table();
    null_table();
    knobs_table();
    sequences_table();
    thinking_table();
}

fn threads() -> u32 {
    std::thread::available_parallelism().map_or(1, usize::from) as u32
}

/// Many searches; those that were refused at the gate, which the reference leaves out of its success, are told apart.
fn search(last: usize, truth: Truth, (bad, spurious): (f64, f64), count: u32) -> (Summary, u32) {
    let board = Board { spurious_rate: spurious, ..BOARD };
    // A spurious fault comes at bad positions too; there the rate is the whole.
    let (bad, good) = (CellModel::cold((bad - spurious) / (1.0 - spurious)), CellModel::cold(0.0));
    let rules = revisions::Rules::default();
    let one = |draws| campaigns::revisions(last, &rules, truth, (&bad, &good), board, draws);
    let courses = rehearse(SEED, count, threads(), one);
    let refused = courses.iter().filter(|course| course.answer == campaigns::REFUSED).count() as u32;
    (Summary::of(&courses), refused)
}

fn share(part: u32, all: u32) -> f64 {
    f64::from(part) / f64::from(all)
}

fn revisions_table() {
    println!("First bad revision: success and mean runs, endpoints included (reference in brackets)");
    println!("{:>5} {:>5} {:>5} {:>16} {:>16} {:>6} {:>8}", "N", "bad", "good", "success", "runs", "p90", "refused");
    let rows = [
        (8, 0.3, 0.0, 0.953, 39.7),
        (8, 0.3, 0.02, 0.950, 53.0),
        (8, 0.78, 0.0, 0.998, 13.3),
        (8, 0.78, 0.02, 0.995, 14.7),
        (32, 0.3, 0.0, 0.951, 56.7),
        (32, 0.3, 0.02, 0.944, 75.8),
        (32, 0.5, 0.0, 0.977, 29.9),
        (32, 0.5, 0.02, 0.975, 36.2),
        (32, 0.78, 0.0, 0.999, 17.3),
        (32, 0.78, 0.02, 0.994, 19.5),
        (32, 1.0, 0.0, 1.0, 13.1),
        (32, 1.0, 0.02, 0.997, 14.3),
        (128, 0.3, 0.0, 0.950, 73.7),
        (128, 0.78, 0.0, 0.999, 21.0),
        (128, 0.78, 0.02, 0.996, 24.1),
        (1024, 0.78, 0.0, 1.0, 27.3),
        (1024, 0.78, 0.02, 0.996, 30.4),
    ];
    for (last, bad, good, success, runs) in rows {
        let count = if last > 500 { 500 } else { 2000 };
        let (got, refused) = search(last, Truth::InRange, (bad, good), count);
        let right = share(got.right, count - refused);
        println!(
            "{last:>5} {bad:>5} {good:>5} {right:>8.3} ({success:.3}) {:>8.1} ({runs:>5.1}) {:>6} {:>7.1}%",
            got.trials.mean,
            got.trials.p90,
            100.0 * share(refused, count)
        );
    }
}

fn null_table() {
    println!("\nNothing to find (N = 32, 78 %): right answers and mean runs (reference in brackets)");
    let rows = [("every revision bad", Truth::AlreadyBad, 0.993, 5.7), ("none bad", Truth::Absent, 1.0, 9.0)];
    for (what, truth, success, runs) in rows {
        let (got, _) = search(32, truth, (0.78, 0.0), 2000);
        println!("{what:<20} {:.3} ({success:.3}) {:>6.1} ({runs})", share(got.right, 2000), got.trials.mean);
    }
}

/// Success and mean runs after `baseline` known runs of the baseline.
fn find_knobs(elements: u32, size: u32, rate: f64, baseline: u64, count: u32) -> (f64, f64) {
    let campaign = |mut draws: Draws| {
        let mut set: Kept = 0;
        while set.count_ones() < size {
            set |= 1 << draws.below(u64::from(elements));
        }
        let faults = (0..baseline).filter(|_| draws.happens(rate)).count() as u64;
        let mut search = Knobs::new(elements, knobs::Rules { confirm: false, ..knobs::Rules::default() });
        search.load(all(elements), Counts { faults, clean: baseline - faults });
        let mut runs = 0.0;
        loop {
            match search.next() {
                Step::Done(knobs::Answer::Found { set: found, .. }) => return (found == set, runs),
                Step::Done(_) => return (false, runs),
                Step::Test { at, .. } => {
                    runs += 1.0;
                    search.observe(&at, Seen::fault_if(set & at == set && draws.happens(rate)));
                }
            }
        }
    };
    let results = rehearse(SEED, count, threads(), campaign);
    let mean = |figure: fn(&(bool, f64)) -> f64| results.iter().map(figure).sum::<f64>() / f64::from(count);
    (mean(|result| f64::from(u8::from(result.0))), mean(|result| result.1))
}

fn knobs_table() {
    println!("\nLoad-bearing knobs: success and mean runs after 9 of the baseline (reference in brackets)");
    println!("{:>5} {:>5} {:>5} {:>16} {:>16}", "K", "|S|", "rate", "success", "runs");
    let rows = [
        (10, 0.78, 0, 0.98, 7.5),
        (10, 0.78, 1, 0.97, 13.9),
        (10, 0.78, 2, 0.97, 20.4),
        (10, 0.78, 4, 0.95, 28.3),
        (10, 0.78, 8, 0.97, 35.4),
        (10, 0.78, 10, 1.0, 30.3),
        (10, 0.5, 1, 0.97, 28.6),
        (10, 0.5, 8, 0.93, 70.8),
        (10, 0.3, 1, 0.95, 62.0),
        (10, 1.0, 8, 1.0, 19.2),
    ];
    for (elements, rate, size, success, runs) in rows {
        let (right, mean) = find_knobs(elements, size, rate, 9, 500);
        println!("{elements:>5} {size:>5} {rate:>5} {right:>9.2} ({success:.2}) {mean:>9.1} ({runs:>4.1})");
    }
    for (elements, rate, size) in [(20, 0.78, 1), (20, 0.78, 2), (20, 0.78, 8)] {
        let (right, mean) = find_knobs(elements, size, rate, 9, 500);
        println!("{elements:>5} {size:>5} {rate:>5} {right:>9.2}    (-) {mean:>9.1}    (-)   by delta debugging");
    }
}

fn sequences_table() {
    println!("\nSmallest failing subsequence, after 9 runs of the whole (reference in brackets)");
    println!("{:>5} {:>5} {:>5} {:>16} {:>16}", "M", "|S|", "rate", "success", "runs");
    let rows = [(3, 1, 0.97, 8.3), (3, 2, 0.97, 10.7), (3, 3, 1.0, 9.6), (6, 2, 0.99, 16.0), (8, 8, 1.0, 24.1)];
    for (items, size, success, runs) in rows {
        let (right, mean) = find_knobs(items, size, 0.78, 9, 1000);
        println!("{items:>5} {size:>5} {:>5} {right:>9.2} ({success:.2}) {mean:>9.1} ({runs:>4.1})", 0.78);
    }
}

/// The time of one call, the best of several.
fn time<T>(mut call: impl FnMut() -> T) -> Duration {
    let once = |_| {
        let begun = Instant::now();
        black_box(call());
        begun.elapsed()
    };
    (0..10).map(once).min().unwrap_or_default()
}

fn thinking_table() {
    println!("\nThinking (limit in brackets)");
    let rates = || Rates::new(FalseFaults::Possible, Counts::default());
    for (elements, limit) in [(12, "50 ms"), (16, "-")] {
        let mut triggers = Triggers::new(elements, rates());
        triggers.load(all(elements), Counts { faults: 7, clean: 2 });
        (0..8).for_each(|element| triggers.observe(all(elements) & !(1 << element), Seen::Clean));
        let took = time(|| triggers.expected_entropy(&triggers.weights()));
        println!("next of 2^{elements} sets            {took:>10.2?} ({limit})");
    }
    for (what, order) in [("on a line", line(1024)), ("with their branches", branches(1024))] {
        let mut search = Revisions::new(order, &[1.0; 1024], revisions::Rules::default());
        search.load(1024, Counts { faults: 3, clean: 1 });
        search.load(0, Counts { faults: 0, clean: 2 });
        println!("next of 1,024 revisions      {:>10.2?} (10 ms) {what}", time(|| search.next()));
    }
    let begun = Instant::now();
    let ten_thousand = search_many();
    println!("10,000 searches among 32     {:>10.2?} (60 s on 2 cores); right {ten_thousand:.4}", begun.elapsed());
}

fn line(last: usize) -> Order {
    Order::Line { last }
}

/// Branches of eight revisions each, merged one after the other.
fn branches(last: usize) -> Order {
    let bad = |hypothesis: usize| {
        let mut bad = Positions::none(last + 1);
        let is_in = |position: &usize| *position >= hypothesis && (position / 8 == hypothesis / 8 || position % 8 == 7);
        (0..=last).filter(|position| hypothesis == 0 || is_in(position)).for_each(|position| bad.insert(position));
        bad
    };
    Order::Graph((0..=last).map(bad).collect())
}

fn search_many() -> f64 {
    let (summary, refused) = search(32, Truth::InRange, (0.78, 0.0), 10_000);
    share(summary.right, 10_000 - refused)
}
