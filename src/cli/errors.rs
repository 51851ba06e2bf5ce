//! Errors as people read them: what failed, what caused it, what to do about it; and the exit code they have.

use std::fmt;

use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::render::{Colour, Style};
use crate::decide::plan::PlanError;

/// An error that ends a command.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The error with its causes.
    pub error: anyhow::Error,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What a command gives back.
pub type Outcome = Result<Exit, Failure>;

impl Failure {
    /// `error` with exit code `exit`.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), hint: None }
    }

    /// An error in words.
    pub fn words(exit: Exit, words: impl fmt::Display + fmt::Debug + Send + Sync + 'static) -> Self {
        Self::new(exit, anyhow::Error::msg(words))
    }

    /// The same, with advice.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The error, its causes and the advice in one line.
    pub fn in_words(&self) -> String {
        let hint = self.hint.iter().map(|hint| format!("hint: {hint}"));
        self.sentences().into_iter().chain(hint).collect::<Vec<_>>().join("; ")
    }

    /// The error and its causes. Errors of the lower layers carry the system's words in their own; nobody wants to read
    /// them twice.
    fn sentences(&self) -> Vec<String> {
        let mut said: Vec<String> = Vec::new();
        for cause in self.error.chain().map(ToString::to_string) {
            if said.last().is_none_or(|last| !last.ends_with(&cause)) {
                said.push(cause);
            }
        }
        said
    }

    /// Prints it to standard error, with colours if `style` has some.
    pub fn print(&self, style: &Style) {
        // The problems of a matrix bring their own word for how grave each is.
        let is_list = matches!(self.error.downcast_ref(), Some(PlanError::Matrix(_)));
        let mark = if is_list { "" } else { "error: " };
        for (number, words) in self.sentences().into_iter().enumerate() {
            let before = if number == 0 { style.paint(Colour::Red, mark) } else { "  caused by: ".to_owned() };
            let words = if is_list { painted(&words, style) } else { words };
            output::say(format_args!("{before}{words}"));
        }
        if let Some(hint) = &self.hint {
            output::say(format_args!("{}{hint}", style.paint(Colour::Bold, "hint: ")));
        }
    }
}

/// Problems of a matrix with the words that begin them in colour.
fn painted(problems: &str, style: &Style) -> String {
    let line = |line: &str| {
        for (word, colour) in [("error:", Colour::Red), ("warning:", Colour::Yellow), ("= hint:", Colour::Bold)] {
            let bare = line.trim_start();
            if let Some(rest) = bare.strip_prefix(word) {
                let indent = &line[..line.len() - bare.len()];
                return format!("{indent}{}{rest}", style.paint(colour, word));
            }
        }
        line.to_owned()
    };
    problems.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Gives the errors of the lower layers their exit code, in one place.
pub trait OrFail<T> {
    /// Ends the command with `exit` if this is an error.
    ///
    /// # Errors
    /// If this is one.
    fn or_fail(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(exit, error))
    }
}
