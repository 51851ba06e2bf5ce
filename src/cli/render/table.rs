//! Aligned columns that fit a terminal: one column gives way, none is lost.

use super::style::{Colour, Style};

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// A column's heading, how it is set, and how far it may be cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// Its heading.
    pub(super) name: &'static str,
    /// How it is set.
    pub(super) align: Align,
    /// The narrowest it may become, in characters; `None` never gives way.
    pub(super) least: Option<usize>,
}

/// A column that never gives way.
pub(super) const fn fixed(name: &'static str, align: Align) -> Column {
    Column { name, align, least: None }
}

/// A column of words that is cut where there is no room, to `least` characters at the narrowest.
pub(super) const fn elastic(name: &'static str, least: usize) -> Column {
    Column { name, align: Align::Left, least: Some(least) }
}

/// A row: its texts, and a colour for all of it.
#[derive(Debug)]
pub(super) struct Row {
    /// One text for each column.
    pub(super) texts: Vec<String>,
    /// The colour.
    pub(super) colour: Option<Colour>,
}

/// Spaces between two columns.
const GAP: usize = 2;

/// Lays `rows` out under their headings.
pub(super) fn table(columns: &[Column], rows: &[Row], style: &Style) -> String {
    let widths = widths(columns, rows, style.columns());
    let headings: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let mut out = style.paint(Colour::Bold, &line(columns, &widths, &headings));
    out.push('\n');
    for row in rows {
        let text = line(columns, &widths, &row.texts);
        out.push_str(&row.colour.map_or_else(|| text.clone(), |colour| style.paint(colour, &text)));
        out.push('\n');
    }
    out
}

/// What each column needs, less what the elastic ones give up so that a line fits: the widest of them first.
fn widths(columns: &[Column], rows: &[Row], limit: usize) -> Vec<usize> {
    let needs = |(index, column): (usize, &Column)| {
        rows.iter().map(|row| row.texts[index].chars().count()).chain([column.name.chars().count()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = columns.iter().enumerate().map(needs).collect();
    loop {
        let total: usize = widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum();
        if total <= limit + GAP {
            return widths;
        }
        let may_shrink = |index: &usize| columns[*index].least.is_some_and(|least| widths[*index] > least);
        let Some(widest) = (0..columns.len()).filter(may_shrink).max_by_key(|index| widths[*index]) else {
            return widths;
        };
        widths[widest] -= 1;
    }
}

fn line(columns: &[Column], widths: &[usize], texts: &[String]) -> String {
    let mut out = String::new();
    for ((column, width), text) in columns.iter().zip(widths).zip(texts) {
        if *width == 0 {
            continue;
        }
        if !out.is_empty() {
            out.push_str("  ");
        }
        let text = cut(text, *width);
        match column.align {
            Align::Left => out.push_str(&format!("{text:<width$}")),
            Align::Right => out.push_str(&format!("{text:>width$}")),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// `text` in at most `width` characters, the last one an ellipsis if something was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}
