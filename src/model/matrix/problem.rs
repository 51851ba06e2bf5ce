//! What is wrong with a matrix, shown where it is: file, line, column, the line itself with carets, a hint.
//!
//! Owns positions and their rendering. It does not know what a matrix means.

use std::fmt;
use std::sync::Arc;

/// How many problems are shown; a file that is wrong everywhere is wrong in its first lines too.
pub(super) const PROBLEMS_SHOWN_MAX: usize = 20;

/// How many characters of a line are shown around a problem.
const LINE_SHOWN_MAX: usize = 160;

/// A range of bytes in the file or in an argument of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span {
    /// Which source: 0 is the file, the others are command-line arguments.
    pub source: usize,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    pub(super) fn new(source: usize, range: std::ops::Range<usize>) -> Self {
        Self { source, start: range.start, end: range.end }
    }

    /// Whether this is a place on the command line and not in the file.
    pub fn is_argument(self) -> bool {
        self.source > 0
    }
}

/// What a position points into.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    File { name: String, text: String },
    Argument { text: String },
}

/// The file and the arguments that a matrix was read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sources(Vec<Source>);

impl Sources {
    pub(super) fn file(name: &str, text: &str) -> Self {
        Self(vec![Source::File { name: name.to_owned(), text: text.to_owned() }])
    }

    pub(super) fn add_argument(&mut self, text: &str) -> usize {
        self.0.push(Source::Argument { text: text.to_owned() });
        self.0.len() - 1
    }
}

/// How grave a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The matrix cannot be run.
    Error,
    /// The matrix can be run, and may not mean what it seems to.
    Warning,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How grave it is.
    pub severity: Severity,
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// Where.
    pub span: Span,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    pub(super) fn hint(&mut self, hint: impl Into<String>) {
        self.hint = Some(hint.into());
    }
}

/// Problems as they are found; reading goes on after one, so that several are reported at once.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Problem {
        self.push(Severity::Error, span, message.into())
    }

    pub(super) fn warning(&mut self, span: Span, message: impl Into<String>) -> &mut Problem {
        self.push(Severity::Warning, span, message.into())
    }

    /// Whether so much is wrong that looking for the right word of each mistake is wasted.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= 10 * PROBLEMS_SHOWN_MAX
    }

    fn push(&mut self, severity: Severity, span: Span, message: String) -> &mut Problem {
        self.0.push(Problem { severity, message, span, hint: None });
        self.0.last_mut().expect("it was just pushed")
    }

    pub(super) fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The problems in the order of the sources, each once.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort_by_key(|problem| (problem.span, problem.severity));
        self.0.dedup();
        self.0
    }
}

/// A matrix that cannot be used: everything that is wrong with it, and the text to show it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixError {
    problems: Vec<Problem>,
    sources: Arc<Sources>,
}

impl MatrixError {
    pub(super) fn new(problems: Vec<Problem>, sources: Arc<Sources>) -> Self {
        Self { problems, sources }
    }

    /// What is wrong, in the order of the text.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl std::error::Error for MatrixError {}

impl fmt::Display for MatrixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(render(&self.problems, &self.sources).trim_end())
    }
}

/// The problems as text, in the manner of a compiler, each followed by an empty line.
pub(super) fn render(problems: &[Problem], sources: &Sources) -> String {
    let mut text = String::new();
    for problem in problems.iter().take(PROBLEMS_SHOWN_MAX) {
        text.push_str(&render_one(problem, sources));
        text.push('\n');
    }
    if problems.len() > PROBLEMS_SHOWN_MAX {
        text.push_str(&format!("error: {} more problems are not shown\n", problems.len() - PROBLEMS_SHOWN_MAX));
    }
    text
}

fn render_one(problem: &Problem, sources: &Sources) -> String {
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut text = format!("{severity}: {}\n", printable(&problem.message));
    let (place, number, line, start, end) = match sources.0.get(problem.span.source) {
        Some(Source::File { name, text }) => {
            let at = Position::of(text, problem.span);
            (format!("{name}:{}:{}", at.line, at.column), at.line.to_string(), at.text, at.start, at.end)
        }
        Some(Source::Argument { text }) => {
            let at = Position::of(text, problem.span);
            ("the command line".to_owned(), String::new(), at.text, at.start, at.end)
        }
        None => return text,
    };
    let margin = " ".repeat(number.len());
    let (line, start, width) = window(&line, start, end);
    text.push_str(&format!("{margin}--> {place}\n{margin} |\n{number} | {line}\n"));
    text.push_str(&format!("{margin} | {}{}\n", " ".repeat(start), "^".repeat(width)));
    if let Some(hint) = &problem.hint {
        text.push_str(&format!("{margin} = hint: {}\n", printable(hint)));
    }
    text
}

/// A position in a text: line and column from 1, and the line with the marked range in characters.
struct Position {
    line: usize,
    column: usize,
    text: String,
    start: usize,
    end: usize,
}

impl Position {
    fn of(text: &str, span: Span) -> Self {
        let floor = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (start, end) = (floor(span.start), floor(span.end));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = &text[line_start..line_end];
        let before = text[line_start..start].chars().count();
        let marked = text[start..end.clamp(start, line_end)].chars().count();
        Self {
            line: text[..line_start].matches('\n').count() + 1,
            column: before + 1,
            text: printable(line.trim_end_matches('\r')),
            start: before,
            end: before + marked.max(1),
        }
    }
}

/// The part of a long line around the marked range, and where the range is in it.
fn window(line: &str, start: usize, end: usize) -> (String, usize, usize) {
    let length = line.chars().count();
    if length <= LINE_SHOWN_MAX {
        return (line.to_owned(), start, end - start);
    }
    let from = start.saturating_sub(LINE_SHOWN_MAX / 4);
    let shown: String = line.chars().skip(from).take(LINE_SHOWN_MAX).collect();
    let width = (end - start).min(LINE_SHOWN_MAX - (start - from));
    if from == 0 { (format!("{shown}…"), start, width) } else { (format!("…{shown}…"), start - from + 1, width) }
}

/// One character for each character, with none that moves the cursor: a matrix may come from anywhere.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// The word of `words` that `text` was probably meant to be.
///
/// A mistyped word is within a third of its length (at least one edit; a swap of neighbours is one edit).
pub fn did_you_mean<'w>(text: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let limit = (text.chars().count() / 3).max(1);
    words
        .into_iter()
        .map(|word| (edit_distance(&text.to_lowercase(), &word.to_lowercase()), word))
        // Nothing in common is no slip: `4` was not meant to be `1`.
        .filter(|(distance, word)| *distance <= limit && *distance < text.chars().count().max(word.chars().count()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// The words as a list for a hint: "a, b or c".
pub(super) fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => format!("`{word}`"),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", most.join(", "))
        }
    }
}

/// The hint for a word that is none of `words`: the nearest one, else all of them.
pub(super) fn suggest(text: &str, words: &[&str]) -> String {
    match did_you_mean(text, words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None if words.is_empty() => "none is defined here".to_owned(),
        None => format!("expected {}", list(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_is_one_slip_and_another_word_is_none() {
        let words = ["storage", "start", "sequence"];
        assert_eq!(did_you_mean("stroage", words), Some("storage"));
        assert_eq!(did_you_mean("Strat", words), Some("start"));
        assert_eq!(did_you_mean("blocksize", words), None);
        assert_eq!(
            (edit_distance("", "abc"), edit_distance("ca", "ac"), edit_distance("kitten", "sitting")),
            (3, 1, 3)
        );
    }

    #[test]
    fn a_position_counts_characters_and_never_splits_one() {
        let text = "a = 1\nö\t= \"x\u{1b}y\"\n";
        let at = text.find('"').unwrap();
        let position = Position::of(text, Span::new(0, at..at + 4));
        assert_eq!((position.line, position.column, position.text.as_str()), (2, 5, "ö = \"x\u{fffd}y\""));
        // The middle of a two-byte character is taken back to its beginning.
        assert_eq!(Position::of(text, Span::new(0, 7..99)).column, 1);
        assert_eq!(Position::of("", Span::new(0, 5..9)).column, 1);
    }

    #[test]
    fn a_long_line_is_cut_around_the_problem() {
        let line = "x".repeat(1000);
        let (shown, start, width) = window(&line, 500, 503);
        assert_eq!((shown.chars().count(), start, width), (LINE_SHOWN_MAX + 2, 41, 3));
    }
}
