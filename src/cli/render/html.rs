//! A run as one HTML file that needs nothing else: no network, no framework, no other file.
//!
//! Owns the template engine. Whatever comes from outside is escaped, by the engine in text and by [`svg`] in pictures;
//! and should that ever fail, the page's own policy lets no script run but the one of this module, and nothing be loaded.

mod comparison;
mod glyph;
mod history;
mod overview;
mod plots;
mod showcase;
mod svg;

use askama::Template;

pub(in crate::cli) use comparison::comparisons_html;

use super::report::{persistence, standing};
use crate::cli::dossier::Dossier;
use crate::decide::report::Standing;
use crate::model::ids::ContentDigest;
use crate::model::telemetry::Sample;
use crate::perform::exhibits::Exhibit;
use crate::perform::veil::Veil;

/// The style sheet.
const STYLE: &str = include_str!("html/style.css");

/// The script: sorting, filters, the theme, and opening what a link leads to.
const SCRIPT: &str = include_str!("html/page.js");

/// What a page is made of beside the dossier; all of it was read from files.
pub(in crate::cli) struct Material {
    /// The samples of each trial that is looked at closely, in the same order.
    pub(in crate::cli) series: Vec<Vec<Sample>>,
    /// The ends of its output, in the same order.
    pub(in crate::cli) outputs: Vec<Vec<Exhibit>>,
    /// What the machine said at the beginning of boots, with the id of the boot, the newest first.
    pub(in crate::cli) said: Vec<(String, Vec<Exhibit>)>,
    /// How many boots more said something.
    pub(in crate::cli) said_left_out: usize,
}

/// The page.
#[derive(Template)]
#[template(path = "report.html", config = "src/cli/render/html/askama.toml")]
struct Page<'a> {
    frame: Frame<'a>,
    run: String,
    standing: String,
    is_open: bool,
    headlines: Vec<overview::HeadlineView>,
    warnings: Vec<String>,
    tiles: Vec<(String, &'static str)>,
    facts: Vec<(String, String)>,
    heat: Vec<overview::HeatView>,
    cells: overview::CellsView,
    boots: history::BootsView,
    signatures: Vec<history::SignatureView>,
    stages: showcase::StagesView,
    memory: showcase::MemoryView,
    close: Vec<showcase::CloseView>,
    /// How many of them have no fault.
    passes: usize,
    said: Vec<showcase::SaidView>,
    said_left_out: usize,
    rows: history::RowsView,
    decisions: Vec<String>,
    hypotheses: Vec<overview::HypothesisView>,
    untested: Vec<(String, String)>,
}

/// What every page has.
struct Frame<'a> {
    title: String,
    style: &'a str,
    script: &'a str,
    /// The policy of the page: nothing is loaded, and no script runs but ours.
    policy: String,
    tool: &'static str,
}

impl Frame<'_> {
    fn new(title: String) -> Self {
        let digest = ContentDigest::of(SCRIPT.as_bytes());
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
            base64(&unhex(digest.as_str()))
        );
        Self { title, style: STYLE, script: SCRIPT, policy, tool: env!("CARGO_PKG_VERSION") }
    }
}

/// The report of `dossier` as HTML.
///
/// # Errors
/// Never while memory is written to.
pub(in crate::cli) fn html(dossier: &Dossier, material: &Material, veil: &mut Veil) -> Result<String, askama::Error> {
    let report = &dossier.report;
    let run = &report.run;
    let mut warnings: Vec<String> = report
        .controls_failed
        .iter()
        .map(|control| format!("{control} did not give what it must: the cells that lean on it are undecided"))
        .collect();
    if !dossier.corrected_by.is_empty() {
        let runs: Vec<&str> = dossier.corrected_by.iter().map(|run| run.as_str()).collect();
        warnings.push(format!("what this run tells was corrected later, by {}", runs.join(", ")));
    }
    warnings.extend(persistence(run.persistence).map(str::to_owned));
    let close = showcase::close(dossier, material, veil);
    let page = Page {
        frame: Frame::new(format!("{} · jetfault", veil.text(run.id.as_str()))),
        run: veil.text(run.id.as_str()),
        standing: veil.text(&standing(&run.standing)),
        is_open: matches!(run.standing, Standing::Open | Standing::Paused),
        headlines: overview::headlines(report, veil),
        warnings: warnings.iter().map(|warning| veil.text(warning)).collect(),
        tiles: overview::tiles(dossier),
        facts: overview::facts(dossier, veil),
        heat: overview::heat_views(report, veil),
        cells: overview::cells(report, veil),
        boots: history::boots(dossier, veil),
        signatures: history::signatures(dossier, veil),
        stages: showcase::stages(dossier, veil),
        memory: showcase::memory(dossier, veil),
        passes: close.iter().filter(|trial| !trial.is_fault).count(),
        close,
        said: showcase::said(dossier, material, veil),
        said_left_out: material.said_left_out,
        rows: history::rows(dossier, veil),
        decisions: overview::decisions(report, veil),
        hypotheses: overview::hypotheses(report, veil),
        untested: overview::untested(report, veil),
    };
    Ok(without_controls(page.render()?))
}

/// `html` without the control characters that programs print: a browser shows boxes for them, and HTML forbids most.
fn without_controls(html: String) -> String {
    let is_shown = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if html.chars().all(is_shown) { html } else { html.chars().filter(|c| is_shown(*c)).collect() }
}

/// Bytes of lower-case hex digits.
fn unhex(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => byte - b'0',
        _ => byte - b'a' + 10,
    };
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Bytes in base 64 (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sextet = (word >> (18 - 6 * place) & 63) as usize;
            out.push(if place <= chunk.len() { char::from(ALPHABET[sextet]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(unhex("00ff1a"), [0, 255, 26]);
    }

    #[test]
    fn the_policy_names_the_script_and_nothing_is_loaded() {
        let frame = Frame::new("x".into());
        assert!(frame.policy.contains("default-src 'none'") && frame.policy.contains("script-src 'sha256-"));
        for text in [STYLE, SCRIPT, include_str!("html/report.html")] {
            for loads in ["http:", "https:", "@import", "url(", "eval(", "innerHTML", "onclick="] {
                assert!(!text.contains(loads), "{loads}");
            }
        }
        // The end of a script would end it, wherever it stands.
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
    }
}
