//! Time that the host takes to make the fp32 weight of C, beside what its memory alone costs.

use std::time::Instant;

use jetfault::workload::host_weight::{HostWeight, Spread, WeightSource};
use rayon::prelude::*;

use crate::memory::layer;

/// Measurements of each figure; the median is shown, with the extremes.
const RUNS: usize = 5;

/// Prints the table: one thread, and all of the machine.
pub(crate) fn measure() {
    println!("\n## Host construction of C\n");
    println!("| threads | fresh memory filled, s | constructed, s | GB/s |\n|---|---|---|---|");
    let all = rayon::current_num_threads();
    for threads in [1, all] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
        let shape = layer('C').shape;
        let filled = timed(|| {
            let mut memory: Vec<[f32; 256]> = Vec::with_capacity(shape.elements() / 256);
            pool.install(|| {
                let pieces = (0..shape.elements() / 256).into_par_iter().with_min_len(64);
                pieces.map(|_| [1.0; 256]).collect_into_vec(&mut memory);
            });
            memory
        });
        let source = WeightSource { shape, seed: 1, number: 0, spread: Spread::Linear };
        let constructed = timed(|| pool.install(|| HostWeight::construct(source)).expect("the memory is there"));
        let rate = 4.0 * shape.elements() as f64 / constructed[RUNS / 2] / 1e9;
        println!("| {threads} | {} | {} | {rate:.2} |", shown(filled), shown(constructed));
    }
}

/// Seconds of each of [`RUNS`] calls, ascending; what one makes is dropped untimed, before the next.
fn timed<T>(mut make: impl FnMut() -> T) -> [f64; RUNS] {
    let mut seconds = [0.0; RUNS];
    for seconds in &mut seconds {
        let start = Instant::now();
        let made = std::hint::black_box(make());
        *seconds = start.elapsed().as_secs_f64();
        drop(made);
    }
    seconds.sort_by(f64::total_cmp);
    seconds
}

fn shown(seconds: [f64; RUNS]) -> String {
    format!("{:.3} ({:.3} to {:.3})", seconds[RUNS / 2], seconds[0], seconds[RUNS - 1])
}
