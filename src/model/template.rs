//! Text with holes: `{venv}/bin/python`, `{matrix.dir}/repro.py`.
//!
//! Owns the two stages of filling: what a matrix knows (variables and levels) is filled when cells are made,
//! what only the machine knows (directories of the matrix, the trial, the revision) stays a hole until a trial starts.
//! It never looks at the machine itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::words::words;

words! {
    /// What only the machine knows when a trial starts.
    RunTimeHole {
        /// The directory of the matrix file.
        MatrixDir = "matrix.dir",
        /// The directory of the trial whose artifacts this one works with.
        NeedsDir = "needs.dir",
        /// The directory that `prepare` made.
        PreparedDir = "prepared.dir",
        /// The directory of the trial, fresh and empty.
        TrialDir = "trial.dir",
        /// The checkout of the revision under test, a worktree.
        RevSrc = "rev.src",
        /// The directory that the revision was prepared into.
        RevDir = "rev.dir",
        /// The revision itself: a commit, a tag or a version.
        RevId = "rev.id",
    }
}

/// A piece of a text with holes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// Filled when a trial starts.
    RunTime(RunTimeHole),
    /// Filled when a cell is made: a variable, an axis or a variable that an axis moves.
    Name(String),
}

/// Why a text with holes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A `{` without its `}`, or a `}` without its `{`.
    #[error("unbalanced brace in {0:?}; a literal brace is written twice")]
    Unbalanced(String),
    /// Something between braces that is not a name.
    #[error("{0:?} is not a placeholder name")]
    NotAName(String),
}

/// Text with holes, in the order in which it is joined. Adjacent texts are merged, so equal texts are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template(Vec<Piece>);

impl Template {
    /// A text without holes.
    pub fn literal(text: &str) -> Self {
        let mut template = Self::default();
        template.push_text(text);
        template
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// The names to be filled when cells are made.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Name(name) => Some(name.as_str()),
            Piece::Text(_) | Piece::RunTime(_) => None,
        })
    }

    /// The holes to be filled when a trial starts.
    pub fn run_time_holes(&self) -> impl Iterator<Item = RunTimeHole> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::RunTime(hole) => Some(*hole),
            Piece::Text(_) | Piece::Name(_) => None,
        })
    }

    /// The one name that this template consists of, so that a list-valued level can spread over it.
    pub fn only_name(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Name(name)] => Some(name),
            _ => None,
        }
    }

    /// Fills the names; `None` from `value` leaves the name in place.
    pub fn fill<'t>(&self, value: impl Fn(&str) -> Option<&'t Template>) -> Self {
        let mut filled = Self::default();
        for piece in &self.0 {
            match piece {
                Piece::Text(_) | Piece::RunTime(_) => filled.push(piece),
                Piece::Name(name) => match value(name) {
                    Some(template) => template.0.iter().for_each(|piece| filled.push(piece)),
                    None => filled.push(piece),
                },
            }
        }
        filled
    }

    /// The final text, with `value` for each hole that is left until a trial starts.
    ///
    /// # Errors
    /// The first name that was never filled: a settings value that did not come from a valid matrix.
    pub fn resolve(&self, value: impl Fn(RunTimeHole) -> String) -> Result<String, String> {
        self.0.iter().try_fold(String::new(), |mut text, piece| {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::RunTime(hole) => text.push_str(&value(*hole)),
                Piece::Name(name) => return Err(name.clone()),
            }
            Ok(text)
        })
    }

    fn push(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(text) => self.push_text(text),
            Piece::RunTime(_) | Piece::Name(_) => self.0.push(piece.clone()),
        }
    }

    fn push_text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            Some(Piece::RunTime(_) | Piece::Name(_)) | None if text.is_empty() => {}
            Some(Piece::RunTime(_) | Piece::Name(_)) | None => self.0.push(Piece::Text(text.to_owned())),
        }
    }
}

impl FromStr for Template {
    type Err = TemplateError;
    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let unbalanced = || TemplateError::Unbalanced(text.to_owned());
        let mut template = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            template.push_text(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if after.starts_with(brace) {
                template.push_text(brace);
                rest = &after[1..];
                continue;
            }
            if brace == "}" {
                return Err(unbalanced());
            }
            let (name, tail) = after.split_once('}').ok_or_else(unbalanced)?;
            template.0.push(hole(name)?);
            rest = tail;
        }
        template.push_text(rest);
        Ok(template)
    }
}

fn hole(name: &str) -> Result<Piece, TemplateError> {
    if let Ok(hole) = name.parse() {
        return Ok(Piece::RunTime(hole));
    }
    if !super::ids::is_name(name) {
        return Err(TemplateError::NotAName(name.to_owned()));
    }
    Ok(Piece::Name(name.to_owned()))
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Piece::RunTime(hole) => write!(f, "{{{hole}}}")?,
                Piece::Name(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

impl From<Template> for String {
    fn from(value: Template) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;
    fn try_from(text: String) -> Result<Self, TemplateError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_matrix_knows_is_filled_and_what_the_machine_knows_stays() {
        let template: Template = "{venv}/bin/{{x}} {trial.dir}/{name}".parse().unwrap();
        let (venv, e) = (Template::literal("/data/{v}"), Template::literal("e"));
        let filled = template.fill(|name| (name == "venv").then_some(&venv));
        assert_eq!(filled.to_string(), "/data/{{v}}/bin/{{x}} {trial.dir}/{name}");
        assert_eq!(filled.to_string().parse::<Template>().unwrap(), filled);
        assert_eq!(filled.resolve(|_| String::new()), Err("name".to_owned()));
        let done = filled.fill(|_| Some(&e));
        assert_eq!(done.resolve(|hole| format!("<{hole}>")).unwrap(), "/data/{v}/bin/{x} <trial.dir>/e");
    }

    #[test]
    fn an_unbalanced_brace_is_refused() {
        for bad in ["{", "}", "a{b", "a}b", "{}", "{ a }", "{a b}"] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }
}
