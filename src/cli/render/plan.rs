//! The plan for a terminal: the cells, what carrying them through takes, and the order of the first block.

use std::fmt::Write;

use super::style::{Colour, Style, wrap};
use super::table::{Align, Row, elastic, fixed, table};
use super::{counted, duration, megabytes, one_line};
use crate::decide::agenda::cannot_run;
use crate::decide::plan::{BOOT_SECONDS, Cell, CellRole, Plan, trial_ms};
use crate::decide::report::percent;
use crate::decide::stopping::{Expected, Stopping};
use crate::model::capability::BuildCapabilities;
use crate::model::settings::Start;

/// The most cells that are listed.
const CELLS_MAX: usize = 200;

/// The most cells of the first block that are listed.
const ORDER_MAX: usize = 40;

/// The plan as text.
pub fn plan(plan: &Plan, style: &Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, &summary(plan)));
    for text in &plan.overrides {
        wrap(&mut out, "  with ", &one_line(text), style.columns());
    }
    let columns = [
        elastic("cell", 14),
        fixed("id", Align::Left),
        fixed(if plan.is_bound() { "trials ≤" } else { "trials" }, Align::Right),
        fixed("peak MB", Align::Right),
        fixed("time", Align::Right),
        fixed("start", Align::Left),
        elastic("expected", 8),
    ];
    let rows: Vec<Row> = plan.cells.iter().take(CELLS_MAX).map(|cell| row_of(plan, cell)).collect();
    out.push('\n');
    out.push_str(&table(&columns, &rows, style));
    let left_out = plan.cells.len().saturating_sub(CELLS_MAX);
    if left_out > 0 {
        let _ = writeln!(out, "… and {} more; --format json has all", counted(left_out as u64, "cell"));
    }
    out.push('\n');
    needs(&mut out, plan, style);
    not_here(&mut out, plan, style);
    order(&mut out, plan, style);
    for warning in &plan.warnings {
        let _ = writeln!(out, "\n{}", style.paint(Colour::Yellow, warning.trim_end()));
    }
    out
}

fn summary(plan: &Plan) -> String {
    let most = if plan.is_bound() { "at most " } else { "" };
    let trials = counted(plan.needs.trials, "trial");
    format!("{}: {most}{trials} of {}", plan.matrix_name, counted(plan.cells.len() as u64, "cell"))
}

fn row_of(plan: &Plan, cell: &Cell) -> Row {
    let rounds = u64::from(plan.rounds(cell));
    let boot_ms = if cell.settings.start == Start::Cold { BOOT_SECONDS * 1000 } else { 0 };
    let peak = cell.predicted.as_ref().map_or_else(String::new, |peak| megabytes(peak.host_plus_reserved_bytes));
    let mut expected = cell.expect.map_or_else(String::new, |verdict| verdict.to_string());
    if !cell.inject.is_empty() {
        expected = format!("{expected} (injected faults)").trim_start().to_owned();
    }
    let colour = match cell.role {
        CellRole::Sample => None,
        CellRole::Control | CellRole::Warming => Some(Colour::Dim),
    };
    let texts = vec![
        one_line(&cell.label),
        cell.id.to_string(),
        rounds.to_string(),
        peak,
        duration((trial_ms(&cell.settings) + boot_ms).saturating_mul(rounds)),
        cell.settings.start.to_string(),
        expected,
    ];
    Row { texts, colour }
}

/// What a run until decided takes on average, and by which rule it ends.
fn expected_words(expected: &Expected, stopping: &Stopping) -> Vec<String> {
    let percent = |rate: f64| percent(rate).trim_end_matches(".0").to_owned();
    let source = match stopping.baseline {
        Some(baseline) => format!("the lower bound of the baseline's {}/{}", baseline.faults, baseline.counted()),
        None => "no baseline is known".to_owned(),
    };
    let rate = percent(stopping.p1);
    let mut words = vec![format!(
        "a cell is FAULTS or BELOW {rate} % ({source}) after {:.1} trials if it never faults, {:.1} if it does at \
         {rate} %, {:.1} at worst; at most {}",
        expected.clean, expected.faulty, expected.at_worst, stopping.cap
    )];
    if !stopping.pairs.is_empty() {
        words.push(format!(
            "a pair after {:.1} blocks if one level faults as the baseline does and the other never; at most {}",
            expected.blocks, stopping.max
        ));
    }
    if expected.boots_at_worst > 0.0 {
        words.push(format!("about {:.0} boots at worst, on average", expected.boots_at_worst.ceil()));
    }
    words
}

fn needs(out: &mut String, plan: &Plan, style: &Style) {
    let needs = &plan.needs;
    let fact = |out: &mut String, name: &str, text: &str| {
        wrap(out, &format!("{name:<13}"), text, style.columns());
    };
    let boots = match needs.boots {
        0 => "none".to_owned(),
        n => format!("{n}, one for each cold trial; each fault may cost another, at most {} in all", plan.boots_max),
    };
    fact(out, "boots", &boots);
    if let (Some(expected), Some(stopping)) = (plan.expected(), &plan.stopping) {
        for text in expected_words(&expected, stopping) {
            fact(out, "expected", &text);
        }
    }
    let permissions: Vec<&str> = needs.permissions.iter().map(|permission| permission.as_str()).collect();
    fact(out, "permissions", if permissions.is_empty() { "none".to_owned() } else { permissions.join(" ") }.as_str());
    if needs.root {
        fact(out, "root", "needed: boots are carried on by a system service, and settings are the machine's (sudo)");
    }
    if needs.power_mode_switches > 0 {
        fact(out, "power modes", &counted(needs.power_mode_switches, "change"));
    }
    if plan.warming.is_some() {
        let text =
            "a layer of 256x256 in a process of its own, where a warm trial is the first of its boot; not counted";
        fact(out, "warming", text);
    }
    if needs.power_hook {
        fact(out, "power hook", "needed: cold_from = \"power\"");
    }
    let most = if plan.is_bound() { "at most " } else { "" };
    let assumed = if needs.seconds_assumed { ", with a minute assumed for each command" } else { "" };
    fact(out, "time", &format!("{most}about {}{assumed}", duration(needs.seconds * 1000)));
    if plan.cells.iter().any(|cell| cell.predicted.is_some()) {
        fact(out, "peak MB", "predicted host and reserved device memory together, in 1,000,000 bytes");
    }
    fact(out, "seed", &plan.seed.to_string());
}

/// What this build would not run, by reason: nobody should learn it from a night of void trials.
fn not_here(out: &mut String, plan: &Plan, style: &Style) {
    let mut cells_of: Vec<(String, u64)> = Vec::new();
    for cell in &plan.cells {
        let Some(why) = cannot_run(plan, cell, BuildCapabilities::THIS) else { continue };
        for reason in why.split("; ") {
            match cells_of.iter_mut().find(|(known, _)| known == reason) {
                Some((_, cells)) => *cells += 1,
                None => cells_of.push((reason.to_owned(), 1)),
            }
        }
    }
    let mut name = "void here";
    for (reason, cells) in &cells_of {
        let text = format!("{}: {}", counted(*cells, "cell"), one_line(reason));
        wrap(out, &format!("{name:<13}"), &text, style.columns());
        name = "";
    }
}

fn order(out: &mut String, plan: &Plan, style: &Style) {
    let order = plan.block_order(0);
    let mut labels: Vec<String> = order
        .iter()
        .take(ORDER_MAX)
        .filter_map(|index| plan.cells.get(*index as usize))
        .map(|cell| one_line(&cell.label))
        .collect();
    if order.len() > ORDER_MAX {
        labels.push(format!("and {} more", order.len() - ORDER_MAX));
    }
    wrap(out, &format!("{:<13}", "first block"), &labels.join(" · "), style.columns());
}
