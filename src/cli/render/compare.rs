//! A comparison for a terminal and in Markdown: the conclusion first, then what it rests on.

use std::fmt::Write;

use super::markdown::{code, prose};
use super::style::{Colour, Style, wrap};
use super::table::{Align, Row, elastic, fixed, table};
use super::{counted, one_line, source};
use crate::decide::compare::{
    ALPHA, Comparison, Comparisons, Covariate, Covariates, FactorCheck, Need, Standing, Stratum, p_words,
};

/// The most strata that are listed.
const STRATA_MAX: usize = 20;

/// The most factors that are listed.
const FACTORS_MAX: usize = 30;

/// The comparisons as text.
pub fn comparisons(comparisons: &Comparisons, style: &Style) -> String {
    let mut out = String::new();
    for (index, comparison) in comparisons.comparisons.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        text(&mut out, comparison, style);
    }
    if let Some(p) = comparisons.all_levels_p {
        let words =
            format!("all levels of {} at once, whatever else differs: exact p = {}", comparisons.factor, p_words(p));
        out.push('\n');
        wrap(&mut out, "", &words, style.columns());
    }
    out
}

fn text(out: &mut String, comparison: &Comparison, style: &Style) {
    let mark = source(comparison.provenance).map(|source| format!("{source}: ")).unwrap_or_default();
    let mut head = String::new();
    wrap(&mut head, "", &one_line(&format!("{mark}{}", comparison.headline)), style.columns());
    let colour = if comparison.conclusion.is_decided() { Colour::Red } else { Colour::Yellow };
    for line in head.lines() {
        let _ = writeln!(out, "{}", style.paint(colour, line));
    }
    for need in &comparison.needs {
        wrap(out, "  ", &format!("needs: {}", need_words(need)), style.columns());
    }
    out.push('\n');
    let rows: Vec<Row> = [&comparison.a, &comparison.b].map(|level| level_row(comparison, level)).into();
    let columns = [
        elastic("level", 14),
        fixed("faults", Align::Right),
        fixed("95 % interval", Align::Right),
        fixed("in no rate", Align::Right),
    ];
    out.push_str(&table(&columns, &rows, style));
    for level in [&comparison.a, &comparison.b] {
        wrap(out, "  ", &one_line(&format!("{}: {}", level.label, level.says)), style.columns());
    }
    tests(out, comparison, style);
    strata(out, comparison, style);
    factors(out, comparison, style);
    for note in &comparison.notes {
        wrap(out, "note: ", &one_line(note), style.columns());
    }
}

fn level_row(comparison: &Comparison, level: &crate::decide::compare::Level) -> Row {
    let excluded = if level.excluded == 0 { String::new() } else { level.excluded.to_string() };
    let label = format!("{} = {}", comparison.factor, one_line(&level.label));
    let colour = (level.rate.faults > 0).then_some(Colour::Red);
    Row { texts: vec![label, level.rate.fraction(), level.rate.bound(), excluded], colour }
}

pub(super) fn need_words(need: &Need) -> String {
    one_line(&need.in_words())
}

/// `smallest possible p 0.20 · exact p 1.0 (2 informative strata) · all in one table 0.65 · e-value 43.1 over 4 blocks`.
pub(super) fn test_words(comparison: &Comparison) -> String {
    let tests = &comparison.tests;
    let mut words = Vec::new();
    words.extend(tests.smallest_p.map(|p| format!("smallest possible p {}", p_words(p))));
    words.extend(tests.p.map(|p| {
        let holm = tests.holm_p.map(|p| format!(", {} adjusted for the other levels (Holm)", p_words(p)));
        format!("exact p {}{}", p_words(p), holm.unwrap_or_default())
    }));
    words.push(format!("all trials in one table {}", p_words(tests.crude_p)));
    words.extend(tests.e_value.map(|e| format!("e-value {e:.1} over {}", counted(tests.blocks, "block"))));
    let second = &comparison.second;
    words.extend(second.boschloo_p.map(|p| format!("Boschloo {}", p_words(p))));
    words.extend(second.mantel_haenszel_odds_ratio.map(|odds| format!("Mantel-Haenszel odds ratio {odds:.1}")));
    words.join(" · ")
}

fn tests(out: &mut String, comparison: &Comparison, style: &Style) {
    out.push('\n');
    wrap(out, "tests: ", &test_words(comparison), style.columns());
}

pub(super) fn stratum_words(stratum: &Stratum) -> String {
    let levels: Vec<String> = stratum.levels.iter().map(|(name, level)| format!("{name}={level}")).collect();
    let levels = if levels.is_empty() { "all".to_owned() } else { levels.join(" ") };
    format!("{levels}: {}/{} against {}/{}", stratum.a.0, stratum.a.1, stratum.b.0, stratum.b.1)
}

fn strata(out: &mut String, comparison: &Comparison, style: &Style) {
    for stratum in comparison.strata.iter().take(STRATA_MAX) {
        wrap(out, "like for like: ", &one_line(&stratum_words(stratum)), style.columns());
    }
    if let left @ 1.. = comparison.strata.len().saturating_sub(STRATA_MAX) {
        let _ = writeln!(out, "like for like: … and {left} more; --format json has all");
    }
}

/// What is said of a factor that is not simply alike.
pub(super) fn factor_words(factor: &FactorCheck) -> Option<String> {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        let words: Vec<String> = counts.iter().map(|(level, trials)| format!("{trials} {level}")).collect();
        if words.is_empty() { "not recorded".to_owned() } else { words.join(", ") }
    };
    match (factor.standing, factor.unknown) {
        (Standing::Alike, 0) => None,
        (standing, _) => Some(format!("{} {standing}: {} against {}", factor.name, list(&factor.a), list(&factor.b))),
    }
}

fn factors(out: &mut String, comparison: &Comparison, style: &Style) {
    let notable: Vec<String> = comparison.factors.iter().filter_map(factor_words).collect();
    for words in notable.iter().take(FACTORS_MAX) {
        wrap(out, "factor: ", &one_line(words), style.columns());
    }
    let alike: Vec<&str> = comparison
        .factors
        .iter()
        .filter(|factor| factor_words(factor).is_none())
        .map(|factor| factor.name.as_str())
        .collect();
    if !alike.is_empty() {
        wrap(out, "alike on both sides: ", &alike.join(", "), style.columns());
    }
}

/// The comparisons in Markdown, to paste into a bug report.
pub fn comparisons_markdown(comparisons: &Comparisons) -> String {
    let mut out = String::new();
    for comparison in &comparisons.comparisons {
        let mark = source(comparison.provenance).map(|source| format!("{source}: ")).unwrap_or_default();
        let _ = writeln!(out, "**{}{}**\n", mark, prose(&comparison.headline));
        for need in &comparison.needs {
            let _ = writeln!(out, "needs: {}\n", prose(&need.in_words()));
        }
        let _ =
            writeln!(out, "| {} | faults | 95 % interval | in no rate |\n|---|--:|--:|--:|", code(&comparison.factor));
        for level in [&comparison.a, &comparison.b] {
            let (rate, excluded) = (&level.rate, level.excluded);
            let _ = writeln!(out, "| {} | {} | {} | {excluded} |", code(&level.label), rate.fraction(), rate.bound());
        }
        let _ = writeln!(out, "\n{}\n", prose(&test_words(comparison)));
        for line in comparison.strata.iter().take(STRATA_MAX).map(stratum_words) {
            let _ = writeln!(out, "- like for like: {}", prose(&line));
        }
        for line in comparison.factors.iter().filter_map(factor_words).take(FACTORS_MAX) {
            let _ = writeln!(out, "- factor {}", prose(&line));
        }
        for note in &comparison.notes {
            let _ = writeln!(out, "- {}", prose(note));
        }
        out.push('\n');
    }
    if let Some(p) = comparisons.all_levels_p {
        let _ = writeln!(out, "All levels at once, whatever else differs: exact p = {}", p_words(p));
    }
    out
}

/// A figure with its unit's prefix: bytes in megabytes, everything else as it is.
fn figure(name: &str, value: f64) -> String {
    if name.contains("bytes") { format!("{:.1} MB", value / 1e6) } else { format!("{value:.1}") }
}

fn covariate_row(covariate: &Covariate) -> [String; 6] {
    [
        covariate.name.clone(),
        format!("{:.2}", covariate.auc),
        p_words(covariate.p),
        p_words(covariate.holm_p),
        figure(&covariate.name, covariate.in_faults),
        figure(&covariate.name, covariate.in_clean),
    ]
}

/// The ranking of covariates as text.
pub fn covariates(ranking: &Covariates, style: &Style) -> String {
    let mut out = String::new();
    let mark = source(ranking.provenance).map(|source| format!("{source}: ")).unwrap_or_default();
    let head = format!("{mark}how well a number separates faults from clean trials; a hint, and no cause");
    let _ = writeln!(out, "{}\n", style.paint(Colour::Bold, &head));
    let columns = [
        elastic("number", 14),
        fixed("AUC", Align::Right),
        fixed("p", Align::Right),
        fixed("p (Holm)", Align::Right),
        fixed("in faults", Align::Right),
        fixed("in clean", Align::Right),
    ];
    let row = |covariate: &Covariate| {
        let colour = (covariate.holm_p <= ALPHA).then_some(Colour::Red);
        Row { texts: covariate_row(covariate).into(), colour }
    };
    out.push_str(&table(&columns, &ranking.ranked.iter().map(row).collect::<Vec<_>>(), style));
    for note in &ranking.notes {
        wrap(&mut out, "note: ", &one_line(note), style.columns());
    }
    out
}

/// The ranking in Markdown.
pub fn covariates_markdown(ranking: &Covariates) -> String {
    let mut out = "| number | AUC | p | p (Holm) | in faults | in clean |\n|---|--:|--:|--:|--:|--:|\n".to_owned();
    for covariate in &ranking.ranked {
        let _ = writeln!(out, "| {} |", covariate_row(covariate).join(" | "));
    }
    out.push('\n');
    for note in &ranking.notes {
        let _ = writeln!(out, "- {}", prose(note));
    }
    out
}
