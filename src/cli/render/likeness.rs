//! The faults of one run beside those of another, for a terminal and in Markdown.

use std::fmt::Write;

use super::markdown::{code, prose};
use super::style::{Colour, Style, wrap};
use super::{counted, one_line};
use crate::decide::likeness::{FaultPair, FaultPairs};

/// The pairs as text.
pub fn fault_pairs(pairs: &FaultPairs, style: &Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, &pairs.headline()));
    for pair in &pairs.pairs {
        let _ = writeln!(out);
        wrap(&mut out, "", &format!("{} ({})", one_line(&pair.fault.to_string()), of(pair.trials)), style.columns());
        let beside = format!("{}: {} ({})", pair.likeness, one_line(&pair.other.to_string()), of(pair.other_trials));
        wrap(&mut out, "  ", &beside, style.columns());
        pair.because.iter().for_each(|because| wrap(&mut out, "    ", &one_line(because), style.columns()));
    }
    for (index, (name, [here, there])) in pairs.machines.iter().enumerate() {
        if index == 0 {
            let _ = writeln!(out, "\nwhat else differs");
        }
        wrap(&mut out, "  ", &one_line(&format!("{name}: {here}, {there}")), style.columns());
    }
    out
}

/// The pairs as a table.
pub fn fault_pairs_markdown(pairs: &FaultPairs) -> String {
    let mut out = format!("{}\n\n", prose(&pairs.headline()));
    let [run, other] = &pairs.runs;
    let _ = writeln!(out, "| {} | trials | {} | trials | | because |\n|---|--:|---|--:|---|---|", run, other);
    for FaultPair { fault, trials, other, other_trials, likeness, because } in &pairs.pairs {
        let (fault, other) = (code(&fault.to_string()), code(&other.to_string()));
        let because = prose(&because.join("; "));
        let _ = writeln!(out, "| {fault} | {trials} | {other} | {other_trials} | {likeness} | {because} |");
    }
    for (name, [here, there]) in &pairs.machines {
        let _ = writeln!(out, "| {} | | {} | | differs | |", prose(&format!("{name}: {here}")), prose(there));
    }
    out
}

fn of(trials: u64) -> String {
    counted(trials, "trial")
}
