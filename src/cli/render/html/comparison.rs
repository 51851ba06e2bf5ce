//! Two levels of a factor as a page: the conclusion with its reason, both rates, and like beside like.

use askama::Template;

use super::super::compare::{factor_words, need_words, stratum_words, test_words};
use super::super::{one_line, source};
use super::glyph::tone;
use super::plots::{strip, strip_scale};
use super::{Frame, without_controls};
use crate::decide::compare::{Comparison, Comparisons, Level, Stratum, p_words};
use crate::decide::report::Rate;
use crate::decide::stats::{Counts, Method};
use crate::model::verdict::Counted;
use crate::perform::veil::Veil;

/// The most strata and factors that are shown.
const ROWS_MAX: usize = 200;

/// The page.
#[derive(Template)]
#[template(path = "compare.html", config = "src/cli/render/html/askama.toml")]
struct Page<'a> {
    frame: Frame<'a>,
    factor: String,
    runs: String,
    scale: String,
    comparisons: Vec<ComparisonView>,
    all_levels: Option<String>,
}

/// One pair of levels.
struct ComparisonView {
    tone: &'static str,
    conclusion: &'static str,
    headline: String,
    levels: Vec<LevelView>,
    strata: Vec<StratumView>,
    strata_left_out: usize,
    tests: String,
    factors: Vec<String>,
    notes: Vec<String>,
    needs: Vec<String>,
}

/// One level.
struct LevelView {
    label: String,
    figure: String,
    strip: String,
    bound: String,
    excluded: u64,
    says: String,
}

/// Trials of both levels that are alike in everything else.
struct StratumView {
    words: String,
    a: (String, String),
    b: (String, String),
}

/// The comparisons as HTML.
///
/// # Errors
/// Never while memory is written to.
pub(in crate::cli) fn comparisons_html(comparisons: &Comparisons, veil: &mut Veil) -> Result<String, askama::Error> {
    let runs: Vec<String> = comparisons.runs.iter().map(|run| veil.text(run.as_str())).collect();
    let factor = veil.text(&comparisons.factor);
    let page = Page {
        frame: Frame::new(format!("{factor} · jetfault")),
        factor,
        runs: runs.join(", "),
        scale: strip_scale(),
        comparisons: comparisons.comparisons.iter().map(|comparison| view(comparison, veil)).collect(),
        all_levels: comparisons.all_levels_p.map(p_words),
    };
    Ok(without_controls(page.render()?))
}

fn view(comparison: &Comparison, veil: &mut Veil) -> ComparisonView {
    let mark = source(comparison.provenance).map(|source| format!("{source}: ")).unwrap_or_default();
    let mut words = |text: String| veil.text(&one_line(&text));
    ComparisonView {
        tone: tone(if comparison.conclusion.is_decided() { Counted::Fault } else { Counted::Excluded }),
        conclusion: comparison.conclusion.as_str(),
        headline: words(format!("{mark}{}", comparison.headline)),
        tests: words(test_words(comparison)),
        factors: comparison.factors.iter().filter_map(factor_words).take(ROWS_MAX).map(&mut words).collect(),
        notes: comparison.notes.iter().take(ROWS_MAX).cloned().map(&mut words).collect(),
        needs: comparison.needs.iter().map(need_words).map(&mut words).collect(),
        levels: [&comparison.a, &comparison.b].map(|level| level_view(level, veil)).into(),
        strata: comparison
            .strata
            .iter()
            .take(ROWS_MAX)
            .map(|stratum| stratum_view(stratum, comparison.a.rate.method, veil))
            .collect(),
        strata_left_out: comparison.strata.len().saturating_sub(ROWS_MAX),
    }
}

fn level_view(level: &Level, veil: &mut Veil) -> LevelView {
    LevelView {
        label: veil.text(&level.label),
        figure: level.rate.fraction(),
        strip: strip(&level.rate),
        bound: level.rate.bound(),
        excluded: level.excluded,
        says: veil.text(&one_line(&level.says)),
    }
}

fn stratum_view(stratum: &Stratum, method: Method, veil: &mut Veil) -> StratumView {
    let side = |(faults, counted): (u64, u64)| {
        let rate = Rate::of(Counts { faults, clean: counted - faults }, method);
        (rate.fraction(), strip(&rate))
    };
    let words = stratum_words(stratum);
    // The figures stand beside it.
    let levels = words.rsplit_once(": ").map_or(words.as_str(), |(levels, _)| levels);
    StratumView { words: veil.text(&one_line(levels)), a: side(stratum.a), b: side(stratum.b) }
}
