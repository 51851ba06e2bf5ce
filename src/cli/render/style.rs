//! How text is dressed: colour or none, and how wide a line may be. The caller has decided both.

use std::fmt::Write;

/// The narrowest width that tables are laid out for.
pub const COLUMNS_MIN: usize = 60;

/// The widest: beyond it the eye loses the line.
pub const COLUMNS_MAX: usize = 100;

/// The width where none is known, as in a pipe.
pub const COLUMNS_DEFAULT: usize = 100;

/// The few colours in use. Each also has words, so nothing is lost without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// A heading.
    Bold,
    /// What stands back.
    Dim,
    /// A fault.
    Red,
    /// A cell without one.
    Green,
    /// What asks for attention: short, void, paused.
    Yellow,
}

impl Colour {
    /// The parameter of the ANSI sequence.
    fn code(self) -> u8 {
        match self {
            Colour::Bold => 1,
            Colour::Dim => 2,
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        }
    }
}

/// How text is dressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    colour: bool,
    columns: usize,
}

impl Style {
    /// Without colour, for lines of `columns` characters ([`COLUMNS_MIN`] to [`COLUMNS_MAX`]; others are clamped).
    pub fn plain(columns: usize) -> Self {
        Self { colour: false, columns: columns.clamp(COLUMNS_MIN, COLUMNS_MAX) }
    }

    /// The same with ANSI colours.
    pub fn coloured(columns: usize) -> Self {
        Self { colour: true, ..Self::plain(columns) }
    }

    /// How wide a line may be, in characters.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// `text` in `colour`, or as it is.
    pub fn paint(&self, colour: Colour, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{}m{text}\x1b[0m", colour.code()) } else { text.to_owned() }
    }
}

impl Default for Style {
    fn default() -> Self {
        Self::plain(COLUMNS_DEFAULT)
    }
}

/// Appends `text`, broken between words so that no line is longer than `columns` where a word allows it; the first line
/// follows `first`, the others are indented as far.
pub(super) fn wrap(out: &mut String, first: &str, text: &str, columns: usize) {
    let indent = first.chars().count();
    let mut used = indent;
    out.push_str(first);
    let mut is_start = true;
    for word in unbroken(text) {
        let length = word.chars().count();
        if !is_start && used + 1 + length > columns {
            let _ = write!(out, "\n{:indent$}", "");
            used = indent;
            is_start = true;
        }
        if !is_start {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
        is_start = false;
    }
    out.push('\n');
}

/// The words of `text`, a per cent sign kept with its figure.
fn unbroken(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start_matches(' ');
    std::iter::from_fn(move || {
        let mut end = 0;
        loop {
            end += rest[end..].find(' ').unwrap_or(rest.len() - end);
            if !rest[end..].starts_with(" %") {
                break;
            }
            end += 1;
        }
        let (word, after) = rest.split_at(end);
        rest = after.trim_start_matches(' ');
        (!word.is_empty()).then_some(word)
    })
}
