//! Programs of the machine that change it, and what a matrix puts in their place.
//!
//! The tree of another machine has no programs that could be run: there only what `[tools]` names is, and nothing of
//! this machine.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SettingError;
use crate::model::matrix::Tool;
use crate::model::settings::Observer;
use crate::perform::host::{Answer, Command, Keep, Limit, Sysroot, TEXT_BYTES_MAX, ask_and_answer};

/// Where administrators' programs are, which a user's PATH may leave out.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The programs of a machine.
#[derive(Debug, Clone)]
pub struct Tools {
    replaced: BTreeMap<Tool, PathBuf>,
    is_live: bool,
}

impl Tools {
    /// The programs of the machine under `sysroot`, with those of `[tools]` in their place. A relative path is taken
    /// from the directory of the matrix; a bare name is looked for like any command.
    pub fn new(replaced: &BTreeMap<Tool, String>, matrix_dir: &str, sysroot: &Sysroot) -> Self {
        let place = |path: &String| match path.contains('/') {
            true => Path::new(matrix_dir).join(path),
            false => PathBuf::from(path),
        };
        let replaced = replaced.iter().map(|(tool, path)| (*tool, place(path))).collect();
        Self { replaced, is_live: sysroot.is_live() }
    }

    /// Whether a matrix put something in the place of `tool`: then it takes no right of the machine's to run it.
    pub(super) fn is_replaced(&self, tool: Tool) -> bool {
        self.replaced.contains_key(&tool)
    }

    /// Where `tool` is.
    pub(in crate::perform) fn find(&self, tool: Tool) -> Result<PathBuf, SettingError> {
        let name = match self.replaced.get(&tool) {
            Some(path) if path.is_absolute() && path.exists() => return Ok(path.clone()),
            Some(path) if path.is_absolute() => {
                let words = format!("[tools] {tool} is {}, and there is no such file", path.display());
                return Err(SettingError::NoTool(words));
            }
            Some(name) => name.clone(),
            None if self.is_live => PathBuf::from(tool.as_str()),
            None => {
                let words = format!(
                    "{tool} is not run for the tree of another machine; [tools] {tool} = \"PATH\" puts a program in its place"
                );
                return Err(SettingError::NoTool(words));
            }
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&path).chain(PLACES.map(PathBuf::from));
        let found = places.map(|place| place.join(&name)).find(|path| path.is_file());
        found.ok_or_else(|| SettingError::NoTool(format!("this machine has no {}", name.display())))
    }

    /// Why a command cannot run under a debugger, if it is to.
    pub fn no_debugger(&self, observer: Observer) -> Option<String> {
        let missing = || self.find(Tool::Gdb).err().map(|error| error.to_string());
        let is_asked = observer == Observer::Gdb;
        is_asked.then(missing).flatten().map(|why| format!("no debugger (observer = \"gdb\"): {why}"))
    }

    /// Runs `tool` with nobody to answer its questions.
    pub(super) fn run(&self, tool: Tool, args: &[&str], patience: Duration) -> Result<Answer, SettingError> {
        self.run_with(tool, args, patience, "")
    }

    /// Runs `tool`, which reads `input`.
    pub(super) fn run_with(
        &self,
        tool: Tool,
        args: &[&str],
        patience: Duration,
        input: &str,
    ) -> Result<Answer, SettingError> {
        let program = self.find(tool)?;
        let program = program.to_string_lossy();
        let argv: Vec<&str> = [&*program].into_iter().chain(args.iter().copied()).collect();
        let limit = Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start };
        let command = Command { file: tool.as_str(), argv: &argv, patience, limit };
        ask_and_answer(&command, input).map_err(|error| SettingError::Refused { tool, words: error.to_string() })
    }

    /// Runs `tool`, which must succeed.
    pub(super) fn must(&self, tool: Tool, args: &[&str], patience: Duration) -> Result<(), SettingError> {
        let answer = self.run(tool, args, patience)?;
        if answer.status.success() {
            return Ok(());
        }
        let words = said(&answer);
        let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Err(SettingError::Refused { tool, words: format!("{} ({})", last.trim(), answer.status) })
    }
}

/// Both streams of an answer.
pub(super) fn said(answer: &Answer) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&answer.output), answer.complaint)
}
