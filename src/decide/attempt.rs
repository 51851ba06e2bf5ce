//! From a command that a person typed to the matrix that tries it: `jetfault try`.
//!
//! Pure: text in, text out. The matrix is written for people, who are to edit it and run it again.

use std::fmt::Write;

use crate::model::ids::is_name;
use crate::model::matrix::{Knob, WorkloadKind, did_you_mean};
use crate::model::template::RunTimeHole;

/// What a person asked for.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The arguments of `--vary`, as typed.
    pub vary: Vec<String>,
    /// Where it runs: an absolute path.
    pub cwd: String,
    /// What the matrix is called; empty for the program's name.
    pub name: String,
    /// Trials of each cell.
    pub trials: u32,
    /// Whether each trial starts in a boot of its own.
    pub cold: bool,
    /// The deadline of a trial, as a matrix says it.
    pub timeout: String,
    /// How long the machine is watched after each trial; `None` leaves it to the tool.
    pub settle: Option<String>,
    /// Order and inputs.
    pub seed: u64,
}

/// A `--vary` that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--vary {argument}: {reason}")]
pub struct VaryError {
    /// The argument, as typed.
    pub argument: String,
    /// What is wrong with it.
    pub reason: String,
    /// What to do about it.
    pub hint: String,
}

/// The matrix of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// What one `--vary` changes.
#[derive(Debug)]
enum Vary {
    /// A variable of the environment.
    Env { name: String, levels: Vec<String> },
    /// An axis of the tool.
    Axis { knob: Knob, levels: Vec<String> },
    /// A placeholder of the command; the first value is the baseline's.
    Placeholder { name: String, levels: Vec<String> },
}

/// The placeholder that stands for the value of an option of the command.
const OPTION_PREFIX: &str = "arg-";

/// Writes the matrix of `attempt`.
///
/// # Errors
/// If a `--vary` means nothing.
pub fn matrix_of(attempt: &Attempt) -> Result<Written, VaryError> {
    let mut argv: Vec<String> = attempt.command.clone();
    let mut vary = Vec::new();
    for argument in &attempt.vary {
        vary.push(parse(argument, &mut argv)?);
    }
    let placeholders: Vec<&str> = vary
        .iter()
        .filter_map(|vary| match vary {
            Vary::Placeholder { name, .. } => Some(name.as_str()),
            Vary::Env { .. } | Vary::Axis { .. } => None,
        })
        .collect();
    let name = if attempt.name.is_empty() { name_of(&attempt.command) } else { attempt.name.clone() };
    let argv: Vec<String> = argv.iter().map(|word| quoted(&escaped(word, &placeholders))).collect();
    Ok(Written { text: text(attempt, &name, &argv, &vary), name })
}

fn text(attempt: &Attempt, name: &str, argv: &[String], vary: &[Vary]) -> String {
    let Attempt { trials, cold, timeout, settle, seed, cwd, .. } = attempt;
    let about = quoted(&attempt.command.join(" "));
    let argv = argv.join(", ");
    let cwd = quoted(&escaped(cwd, &[]));
    let settle = settle.as_ref().map(|settle| format!("settle = {}\n", quoted(settle))).unwrap_or_default();
    let (baseline, axes) = sections(*cold, vary);
    format!(
        r#"# Written by `jetfault try`. Change what you like and run it again: jetfault run FILE
# Every key is explained by `jetfault schema`; matrices/command.toml in the sources shows them.

[matrix]
name = {}
about = {about}
trials = {trials}                      # of each cell; more give narrower intervals
seed = {seed}

[workload]
kind = "command"
argv = [{argv}]
cwd = {cwd}
timeout = {}                # the whole trial; longer is a hang
{settle}# What tells you more; take the `#` off what you need:
# silence_timeout = "5m"                           # no output for so long is a hang
# output = "pty"                                   # a terminal: lines come at once, and survive a crash
# stages = [{{ name = "load", regex = '^Loading' }}]  # where a fault is placed, in their order
# metrics = {{ took_s = 'took ([\d.]+) s' }}         # numbers to compare
# artifacts = ["out.bin"]                          # exit 0 without it is a fault
# expect_output = {{ contains = "done" }}            # so is output without it
{baseline}{axes}"#,
        quoted(name),
        quoted(timeout),
    )
}

/// The sections of the baseline and of the axes.
fn sections(cold: bool, vary: &[Vary]) -> (String, String) {
    let mut baseline = String::from("\n[baseline]\n");
    let start = if cold { "cold" } else { "any" };
    let _ = writeln!(baseline, "start = \"{start}\"                     # cold: each trial in a boot of its own");
    let mut axes = String::new();
    for vary in vary {
        match vary {
            Vary::Env { name, levels } => {
                let level = |level: &String| match level.as_str() {
                    UNSET => "{ unset = true }".to_owned(),
                    value => format!("{{ set = {} }}", quoted(&escaped(value, &[]))),
                };
                let _ = writeln!(axes, "env.{name} = [{}]", list(levels, level));
            }
            Vary::Axis { knob, levels } => {
                let _ = writeln!(axes, "{knob} = [{}]", list(levels, |level| bare_or_quoted(*knob, level)));
            }
            Vary::Placeholder { name, levels } => {
                let level = |level: &String| quoted(&escaped(level, &[]));
                let (first, others) = levels.split_first().expect("it was parsed with two");
                let _ = writeln!(baseline, "{name} = {}", level(first));
                let _ = writeln!(axes, "{name} = [{}]", list(others, level));
            }
        }
    }
    let axes = if axes.is_empty() { axes } else { format!("\n[axes]\n{axes}") };
    (baseline, axes)
}

fn list(levels: &[String], write: impl Fn(&String) -> String) -> String {
    levels.iter().map(write).collect::<Vec<_>>().join(", ")
}

/// The level of a variable of the environment that removes it.
const UNSET: &str = "unset";

/// Reads `env:NAME=a,b`, `AXIS=a,b`, `NAME=a,b` for a placeholder `{NAME}` in the command, or `--option=a,b` for the value
/// of an option of the command, which becomes a placeholder.
fn parse(argument: &str, argv: &mut [String]) -> Result<Vary, VaryError> {
    let error =
        |reason: &str, hint: String| VaryError { argument: argument.to_owned(), reason: reason.to_owned(), hint };
    // The value of an option may hold `=`, and so may a level.
    let Some((key, values)) = argument.split_once('=').filter(|(key, _)| !key.is_empty()) else {
        return Err(error("no levels", "expected KEY=a,b, such as env:CUDA_LAUNCH_BLOCKING=1 or cpus=0".to_owned()));
    };
    let levels = split(values);
    if let Some(name) = key.strip_prefix("env:") {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(error("not a variable of the environment", "expected env:NAME=a,b".to_owned()));
        }
        return Ok(Vary::Env { name: name.to_owned(), levels });
    }
    if key.starts_with('-') {
        return option(key, levels, argv).map_err(|(reason, hint)| error(&reason, hint));
    }
    let is_placeholder = argv.iter().any(|word| word.contains(&format!("{{{key}}}")));
    if is_placeholder && is_name(key) {
        if levels.len() < 2 {
            return Err(error("a placeholder needs two values, the first for the baseline", format!("{key}=a,b")));
        }
        return Ok(Vary::Placeholder { name: key.to_owned(), levels });
    }
    match key.parse::<Knob>().ok().filter(|knob| knob.belongs_to(WorkloadKind::Command)) {
        Some(knob) => {
            let levels: Vec<String> = levels.into_iter().filter(|level| level.as_str() != default_of(knob)).collect();
            if levels.is_empty() {
                return Err(error("only the level that every cell has anyway", format!("add another: {key}=…")));
            }
            Ok(Vary::Axis { knob, levels })
        }
        None => Err(error(&format!("`{key}` is nothing that can vary"), unknown(key))),
    }
}

fn unknown(key: &str) -> String {
    let knobs = Knob::ALL.iter().filter(|knob| knob.belongs_to(WorkloadKind::Command)).map(|knob| knob.as_str());
    let near = did_you_mean(key, knobs).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    format!(
        "{near}expected env:NAME=a,b, an axis such as cpus=0 or memory_max=2GiB, --option=a,b for an option of the \
         command, or {key}=a,b with {{{key}}} in the command"
    )
}

/// The option `key` of the command: its value becomes a placeholder, and is the baseline's level.
fn option(key: &str, mut levels: Vec<String>, argv: &mut [String]) -> Result<Vary, (String, String)> {
    let name = format!("{OPTION_PREFIX}{}", key.trim_start_matches('-'));
    let absent = || {
        let hint = "write it out in the command: its value there is the baseline's".to_owned();
        (format!("the command has no `{key}`"), hint)
    };
    if !is_name(&name) {
        return Err(absent());
    }
    let joined = format!("{key}=");
    let at = argv.iter().position(|word| word == key || word.starts_with(&joined)).ok_or_else(absent)?;
    let (place, prefix) = if argv[at] == key { (at + 1, "") } else { (at, joined.as_str()) };
    let word = argv.get_mut(place).ok_or_else(absent)?;
    let first = word[prefix.len()..].to_owned();
    *word = format!("{prefix}{{{name}}}");
    levels.retain(|level| *level != first);
    if levels.is_empty() {
        return Err((format!("`{key}` has that value anyway"), "give it another".to_owned()));
    }
    levels.insert(0, first);
    Ok(Vary::Placeholder { name, levels })
}

/// The level that a cell has of an axis if nothing is said.
fn default_of(knob: Knob) -> &'static str {
    match knob {
        Knob::Cpus => "all",
        Knob::Iterations => "1",
        Knob::DropCaches => "false",
        Knob::Start | Knob::Code => "any",
        Knob::Breadcrumbs => "async",
        Knob::ColdFrom => "reboot",
        Knob::Telemetry => "on",
        Knob::Observer | Knob::Companion | Knob::Prelude | Knob::MemoryMax => "none",
        Knob::Ballast | Knob::PrefillCache | Knob::Gap => "0",
        _ => "kept",
    }
}

/// Axes of the tool whose levels are numbers or truth values are written bare.
fn bare_or_quoted(knob: Knob, level: &str) -> String {
    match knob {
        Knob::Iterations if level.parse::<u32>().is_ok() => level.to_owned(),
        Knob::DropCaches if level.parse::<bool>().is_ok() => level.to_owned(),
        _ => quoted(level),
    }
}

/// Levels are apart by commas; one inside a level is written `\,`.
fn split(values: &str) -> Vec<String> {
    let mut levels = vec![String::new()];
    let mut characters = values.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&',') => {
                levels.last_mut().expect("there is one").extend(characters.next());
            }
            ',' => levels.push(String::new()),
            other => levels.last_mut().expect("there is one").push(other),
        }
    }
    levels
}

/// A literal text as a template: braces doubled, except those of `placeholders` and of what only the machine knows.
fn escaped(text: &str, placeholders: &[&str]) -> String {
    let mut escaped = text.replace('{', "{{").replace('}', "}}");
    for name in placeholders.iter().copied().chain([RunTimeHole::TrialDir.as_str()]) {
        escaped = escaped.replace(&format!("{{{{{name}}}}}"), &format!("{{{name}}}"));
    }
    escaped
}

/// A basic string of TOML: that of JSON, but for DEL, which TOML wants escaped too.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string has a form in JSON").replace('\u{7f}', "\\u007f")
}

/// What the program is called: `repro` for `python3 -u repro.py`.
fn name_of(command: &[String]) -> String {
    let stem = |word: &str| {
        let file = word.rsplit('/').next().unwrap_or_default();
        file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned()
    };
    let program = command.first().map(|word| stem(word)).unwrap_or_default();
    let is_interpreter = ["python", "bash", "sh", "perl", "ruby", "node", "env"]
        .iter()
        .any(|name| program.strip_prefix(name).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit())));
    let script = command.iter().skip(1).find(|word| !word.starts_with('-') && !word.contains([' ', '\n', '=']));
    let name = match script.filter(|_| is_interpreter) {
        Some(script) => stem(script),
        None => program,
    };
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '-' }).take(40).collect();
    let name = name.trim_start_matches(['-', '_']).to_owned();
    if name.is_empty() { "command".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::plan::{PlanOptions, expand};
    use crate::model::matrix::parse as parse_matrix;

    fn attempt(command: &[&str], vary: &[&str]) -> Attempt {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Attempt {
            command: words(command),
            vary: words(vary),
            cwd: "/data/{x}".into(),
            trials: 3,
            timeout: "10m".into(),
            settle: Some("200ms".into()),
            ..Attempt::default()
        }
    }

    /// The cells of the matrix that is written, with their programs.
    fn cells(command: &[&str], vary: &[&str]) -> Vec<(String, Vec<String>)> {
        let written = matrix_of(&attempt(command, vary)).unwrap();
        let matrix =
            parse_matrix(&written.text, "try", &[]).unwrap_or_else(|error| panic!("{error}\n{}", written.text));
        let plan = expand(&matrix, &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}\n{}", written.text));
        let argv = |cell: &crate::decide::plan::Cell| match &cell.settings.workload {
            crate::model::settings::WorkloadSettings::Command(command) => {
                command.argv.iter().map(|word| word.resolve(|hole| format!("<{hole}>")).unwrap()).collect()
            }
            _ => panic!("a command"),
        };
        plan.cells.iter().map(|cell| (cell.label.clone(), argv(cell))).collect()
    }

    #[test]
    fn what_is_typed_is_what_runs() {
        let odd = ["sh", "-c", "echo \"{a}\" 'b' \\ \u{7f}\n\t{trial.dir}", ""];
        let cells = cells(&odd, &[]);
        assert_eq!(cells.len(), 1);
        assert_eq!(cells[0].1, ["sh", "-c", "echo \"{a}\" 'b' \\ \u{7f}\n\t<trial.dir>", ""]);
    }

    #[test]
    fn every_form_of_vary_becomes_an_axis() {
        let labels = |command: &[&str], vary: &[&str]| -> Vec<String> {
            cells(command, vary).into_iter().map(|(label, _)| label).collect()
        };
        assert_eq!(labels(&["x"], &["env:X=1,unset,a\\,b"]), ["baseline", "env.X=1", "env.X=unset", "env.X=a,b"]);
        assert_eq!(labels(&["x"], &["cpus=0,all", "drop_caches=true"]), ["baseline", "cpus=0", "drop_caches=true"]);
        assert_eq!(labels(&["x", "{n}"], &["n=1,2"]), ["baseline", "n=2"]);
        let dense = cells(&["b", "--dense", "nvfp4-qdq", "--len=5"], &["--dense=fp16,nvfp4-qdq", "--len=7"]);
        let words: Vec<String> =
            dense.into_iter().map(|(label, argv)| format!("{label}: {}", argv.join(" "))).collect();
        assert_eq!(
            words,
            [
                "baseline: b --dense nvfp4-qdq --len=5",
                "arg-dense=fp16: b --dense fp16 --len=5",
                "arg-len=7: b --dense nvfp4-qdq --len=7"
            ]
        );
    }

    #[test]
    fn what_cannot_vary_is_refused_with_what_can() {
        for (vary, words) in [
            ("cpus", "no levels"),
            ("=1", "no levels"),
            ("cpu=0", "did you mean `cpus`?"),
            ("env:=1", "not a variable"),
            ("--dense=fp16", "the command has no `--dense`"),
            ("cpus=all", "only the level that every cell has anyway"),
            ("quant=fp4", "is nothing that can vary"),
        ] {
            let error = matrix_of(&attempt(&["x"], &[vary])).unwrap_err();
            let shown = format!("{error} {}", error.hint);
            assert!(shown.contains(words), "{vary}: {shown}");
        }
    }

    #[test]
    fn a_matrix_is_called_after_what_is_tried() {
        for (command, name) in [
            (&["/usr/bin/edgellm-build", "--x"][..], "edgellm-build"),
            (&["python3", "-u", "src/repro.py"], "repro"),
            (&["sh", "-c", "exit 1"], "sh"),
            (&["./-_.sh"], "command"),
        ] {
            assert_eq!(matrix_of(&attempt(command, &[])).unwrap().name, name, "{command:?}");
        }
    }
}
