//! A rehearsal for a terminal.

use std::fmt::Write;

use super::style::{Colour, Style};
use super::table::{Align, Row, elastic, fixed, table};
use super::{counted, one_line};
use crate::cli::rehearse::{Plain, Rehearsal, Scene};
use crate::decide::rehearse::Summary;
use crate::decide::report::Rate;
use crate::decide::stats::{Counts, Method};

/// The rehearsal as text.
pub fn rehearsal(rehearsal: &Rehearsal, style: &Style) -> String {
    let mut out = String::new();
    let campaigns = rehearsal.scenes.first().map_or(0, |scene| scene.summary.campaigns);
    let head = format!(
        "{}: {} on a simulated board, seed {}; nothing ran",
        one_line(&rehearsal.matrix),
        counted(u64::from(campaigns), "campaign"),
        rehearsal.seed
    );
    let _ = writeln!(out, "{}\n", style.paint(Colour::Bold, &head));
    let columns = [
        elastic("if", 16),
        fixed("right answer", Align::Left),
        fixed("undecided", Align::Right),
        fixed("trials", Align::Right),
        fixed("boots", Align::Right),
        fixed("≤ in 90 %", Align::Right),
        fixed("hours", Align::Right),
    ];
    let rows: Vec<Row> = rehearsal.scenes.iter().map(row).collect();
    out.push_str(&table(&columns, &rows, style));
    for Scene { truth, summary } in &rehearsal.scenes {
        for (answer, count) in &summary.wrong_answers {
            let share = 100.0 * f64::from(*count) / f64::from(summary.campaigns);
            let _ = writeln!(out, "wrong in {share:.1} % if {}: {}", one_line(truth), one_line(answer));
        }
    }
    for Plain { repeats, does } in &rehearsal.plain {
        let name = match repeats.runs {
            1 => "plain git bisect".to_owned(),
            runs => format!("plain bisection, {runs} runs each"),
        };
        let _ = writeln!(
            out,
            "{name}: right in {:.1} % after {:.1} runs (both ends trusted)",
            100.0 * does.success,
            does.runs
        );
    }
    out
}

fn row(scene: &Scene) -> Row {
    let Summary { campaigns, right, undecided, trials, boots, hours, .. } = &scene.summary;
    let counts = Counts::of(u64::from(*right), u64::from(*campaigns)).unwrap_or_default();
    let rate = Rate::of(counts, Method::ClopperPearson);
    let share = 100.0 * f64::from(*right) / f64::from(*campaigns);
    let texts = vec![
        one_line(&scene.truth),
        format!("{share:.1} % ({:.1}–{:.1} %)", 100.0 * rate.low, 100.0 * rate.high),
        format!("{:.1} %", 100.0 * f64::from(*undecided) / f64::from(*campaigns)),
        format!("{:.1}", trials.mean),
        format!("{:.1}", boots.mean),
        format!("{:.0}", boots.p90),
        format!("{:.1}", hours.mean),
    ];
    Row { texts, colour: None }
}
