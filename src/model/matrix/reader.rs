//! Reading tables whose keys are known: every key is taken by name, and a key that nobody took is a mistake.
//!
//! Owns the typed access to [`Node`]s and the wording of type errors; it knows no key itself.

use std::str::FromStr;

use super::document::{Entry, Node, Table, Value};
use super::problem::{Problems, Span, suggest};
use crate::model::template::{Template, TemplateError};

/// A table that is being read.
pub(super) struct Reader<'n> {
    table: &'n Table,
    /// What is read, for messages: `[workload]`.
    what: String,
    /// Where it stands, for what is missing.
    pub(super) span: Span,
    known: Vec<&'static str>,
}

impl<'n> Reader<'n> {
    pub(super) fn new(node: &'n Node, what: impl Into<String>, problems: &mut Problems) -> Option<Self> {
        let what = what.into();
        let table = table(node, &what, problems)?;
        Some(Self { table, what, span: node.span, known: Vec::new() })
    }

    /// The value of `key`, which is known from now on.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'n Node> {
        self.known.push(key);
        self.table.get(key)
    }

    /// The value of `key`, whose absence is an error.
    pub(super) fn require(&mut self, key: &'static str, problems: &mut Problems) -> Option<&'n Node> {
        let node = self.take(key);
        if node.is_none() {
            let problem = problems.error(self.span, format!("{} has no `{key}`", self.what));
            match key {
                "name" if self.what == "[matrix]" => {
                    problem.hint("add what runs are called by, such as `name = \"bench\"`")
                }
                "trials" => problem.hint("add the counted trials of each cell, such as `trials = 3`"),
                "kind" => problem.hint("add `kind = \"linear4bit\"`, or `kind = \"command\"` for a program of yours"),
                "matrix" | "workload" => {
                    problem.hint(format!("add a `[{key}]` section as in matrices/quickstart.toml"))
                }
                _ => {}
            }
        }
        node
    }

    /// Reports every key that was not taken.
    pub(super) fn finish(self, problems: &mut Problems) {
        for entry in self.table.0.iter().filter(|entry| !self.known.contains(&entry.key.as_str())) {
            let is_full = problems.is_full();
            let problem = problems.error(entry.key_span, format!("unknown key `{}` in {}", entry.key, self.what));
            if !is_full {
                problem.hint(suggest(&entry.key, &self.known));
            }
        }
    }
}

fn mismatch(node: &Node, expected: &str, problems: &mut Problems) {
    problems.error(node.span, format!("expected {expected}, found {}", node.kind()));
}

pub(super) fn table<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> Option<&'n Table> {
    match &node.value {
        Value::Table(table) => Some(table),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_) => {
            mismatch(node, &format!("a table for {what}"), problems);
            None
        }
    }
}

/// The entries of a table of free names, each checked to be a name.
pub(super) fn named<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> Vec<&'n Entry> {
    let Some(table) = table(node, what, problems) else { return Vec::new() };
    for entry in table.0.iter().filter(|entry| !crate::model::ids::is_name(&entry.key)) {
        problems
            .error(entry.key_span, format!("`{}` cannot be a name in {what}", entry.key))
            .hint("a name has 1 to 64 of `a-z A-Z 0-9 _ . -` and begins with a letter or a digit");
    }
    table.0.iter().collect()
}

pub(super) fn array<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> Option<&'n [Node]> {
    match &node.value {
        Value::Array(nodes) => Some(nodes),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Table(_) => {
            mismatch(node, what, problems);
            None
        }
    }
}

pub(super) fn text<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
    match &node.value {
        Value::String(text) => Some(text),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => {
            mismatch(node, "a string", problems);
            None
        }
    }
}

/// The place of a part of a string, if the string is written as it is read (no escapes); else of the whole.
pub(super) fn inside(node: &Node, text: &str, range: std::ops::Range<usize>) -> Span {
    let quotes = node.span.end.saturating_sub(node.span.start).saturating_sub(text.len());
    match quotes {
        // A bare string comes from the command line only.
        0 | 2 => Span {
            start: node.span.start + quotes / 2 + range.start,
            end: node.span.start + quotes / 2 + range.end,
            ..node.span
        },
        _ => node.span,
    }
}

/// A string, number or boolean as the text it is passed on as.
pub(super) fn scalar(node: &Node, problems: &mut Problems) -> Option<String> {
    match &node.value {
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(node.label()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            mismatch(node, "a string, a number or a boolean", problems);
            None
        }
    }
}

pub(super) fn boolean(node: &Node, problems: &mut Problems) -> Option<bool> {
    match node.value {
        Value::Boolean(truth) => Some(truth),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => {
            mismatch(node, "`true` or `false`", problems);
            None
        }
    }
}

/// An integer in `range`, which says so if it ends where a `u32` does.
pub(super) fn integer(node: &Node, range: std::ops::RangeInclusive<i64>, problems: &mut Problems) -> Option<i64> {
    match node.value {
        Value::Integer(number) if range.contains(&number) => Some(number),
        Value::Integer(number) => {
            let hint = if *range.end() == i64::from(u32::MAX) {
                format!("expected {} or more", range.start())
            } else {
                format!("expected {} to {}", range.start(), range.end())
            };
            problems.error(node.span, format!("{number} is out of range")).hint(hint);
            None
        }
        Value::String(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => {
            mismatch(node, "an integer", problems);
            None
        }
    }
}

/// An integer from `least` to the largest `u32`.
pub(super) fn count(node: &Node, least: u32, problems: &mut Problems) -> Option<u32> {
    within(node, least..=u32::MAX, problems)
}

/// An integer in `range`.
pub(super) fn within(node: &Node, range: std::ops::RangeInclusive<u32>, problems: &mut Problems) -> Option<u32> {
    let number = integer(node, i64::from(*range.start())..=i64::from(*range.end()), problems)?;
    u32::try_from(number).ok()
}

/// A finite number in `range`.
pub(super) fn number(node: &Node, range: std::ops::RangeInclusive<f64>, problems: &mut Problems) -> Option<f64> {
    let number = match node.value {
        #[expect(clippy::cast_precision_loss, reason = "the ranges asked for are far below 2^53")]
        Value::Integer(number) => number as f64,
        Value::Float(number) => number,
        Value::String(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            mismatch(node, "a number", problems);
            return None;
        }
    };
    if !range.contains(&number) {
        problems.error(node.span, format!("{number} is out of range")).hint(format!(
            "expected {} to {}",
            range.start(),
            range.end()
        ));
        return None;
    }
    Some(number)
}

/// A string that `T` reads; its error is the message.
pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(node: &Node, problems: &mut Problems) -> Option<T> {
    let text = text(node, problems)?;
    text.parse().map_err(|error| problems.error(node.span, format!("{error}"))).ok()
}

/// One word of a closed set.
pub(super) fn word<T: FromStr>(node: &Node, what: &str, words: &[&str], problems: &mut Problems) -> Option<T> {
    let text = text(node, problems)?;
    let found = text.parse().ok();
    if found.is_none() {
        problems.error(node.span, format!("unknown {what} `{text}`")).hint(suggest(text, words));
    }
    found
}

/// A text with placeholders.
pub(super) fn template(node: &Node, problems: &mut Problems) -> Option<Template> {
    let text = scalar(node, problems)?;
    text.parse().map_err(|error: TemplateError| problems.error(node.span, error.to_string())).ok()
}

/// An array of texts with placeholders; a wrong one is reported and left out.
pub(super) fn templates(node: &Node, problems: &mut Problems) -> Option<Vec<Template>> {
    let nodes = array(node, "an array of strings", problems)?;
    Some(nodes.iter().filter_map(|node| template(node, problems)).collect())
}

/// A program and its arguments.
pub(super) fn argv(node: &Node, problems: &mut Problems) -> Option<Vec<Template>> {
    let argv = templates(node, problems)?;
    if argv.is_empty() {
        problems.error(node.span, "a command needs at least the program");
        return None;
    }
    Some(argv)
}

/// A pattern that compiles and has at least `groups` groups.
pub(super) fn pattern(node: &Node, groups: usize, problems: &mut Problems) -> Option<String> {
    let text = text(node, problems)?;
    match regex::Regex::new(text) {
        Ok(regex) if regex.captures_len() > groups => Some(text.to_owned()),
        Ok(_) => {
            problems
                .error(node.span, "the pattern has no group to take the figure from")
                .hint("put the number in parentheses, as in 'took ([\\d.]+) s'");
            None
        }
        Err(error) => {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            problems
                .error(node.span, format!("the pattern does not compile: {reason}"))
                .hint("in TOML a pattern is best written in single quotes, which leave backslashes alone");
            None
        }
    }
}
