//! `jetfault report --format md`: the bug report of one run or several, gathered and made fit to be posted.
//!
//! Owns what is read for it: journals, the file that says which runs correct another, the end of a trial's standard error,
//! the matrix. It must not know how it is laid out.

use std::fs::{self, File};
use std::io::{Read as _, Seek, SeekFrom};
use std::path::PathBuf;

use crate::cli::args::{Global, ReportArgs};
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::read::{Read, machine_words, opening};
use crate::cli::render::{self, Again, Issue, Safe};
use crate::decide::brief::{Brief, BriefFold, State, Subject};
use crate::decide::compare::RunUnderComparison;
use crate::decide::plan::{Permission, Plan};
use crate::decide::report::Report;
use crate::decide::result::ResultFold;
use crate::decide::status::StatusFold;
use crate::model::ids::{ContentDigest, DeviceId, RunId};
use crate::model::journal::Opened;
use crate::model::settings::{EnvOp, Settings, Start, WorkloadSettings};
use crate::perform::host::{MachineFacts, Sysroot};
use crate::perform::store::{RunDir, names};
use crate::perform::veil::Veil;

/// The most runs that one bug report is about.
const RUNS_MAX: usize = 16;

/// How much of the end of a trial's standard error is shown.
const STDERR_BYTES: u64 = 1_200;

/// Its last lines.
const STDERR_LINES: usize = 12;

/// A machine that a transcription does not name.
const UNRECORDED: &str = "unrecorded";

/// The runs that correct another one.
#[derive(Debug, Default)]
pub struct Corrections {
    /// All of them.
    pub ids: Vec<RunId>,
    /// Those that can be read: a bundle has one run alone.
    pub runs: Vec<RunDir>,
}

/// The runs that correct `run`, as a file in its directory names them: one a line, in the same results directory.
///
/// # Errors
/// If it names one that is not there.
pub fn corrected_by(run: &RunDir) -> Result<Corrections, Failure> {
    let path = run.file(names::CORRECTED_BY);
    let hint = || format!("{} names it; each line there is the id of a run beside this one", path.display());
    let mut corrections = Corrections::default();
    let Ok(text) = fs::read_to_string(&path) else { return Ok(corrections) };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for name in lines.take(RUNS_MAX) {
        corrections.ids.push(name.parse::<RunId>().map_err(|error| Failure::new(Exit::Usage, error).hint(hint()))?);
        if !run.is_unpacked() {
            let beside = RunDir::open(&run.path.with_file_name(name));
            corrections.runs.push(beside.map_err(|error| Failure::new(Exit::Usage, error).hint(hint()))?);
        }
    }
    Ok(corrections)
}

/// The bug report of `dirs`, and their reports, in order.
///
/// # Errors
/// If a run cannot be read.
pub fn make(dirs: &[RunDir], args: &ReportArgs, global: &Global) -> Result<(String, Vec<Report>), Failure> {
    if dirs.len() > RUNS_MAX {
        return Err(Failure::words(Exit::Usage, format!("{} runs are too many for one report", dirs.len()))
            .hint(format!("at most {RUNS_MAX}; name those that tried the same")));
    }
    let mut dirs = dirs.to_vec();
    let corrections = match &dirs[..] {
        [only] => corrected_by(only)?,
        _ => Corrections::default(),
    };
    let is_corrected = |place: usize| place == 0 && !corrections.runs.is_empty();
    dirs.extend(corrections.runs.iter().cloned());
    let opened = dirs.iter().map(opening).collect::<Result<Vec<_>, _>>()?;
    let reads = dirs.iter().map(Read::open).collect::<Result<Vec<_>, _>>()?;
    let runs: Vec<RunUnderComparison> = dirs.iter().zip(&reads).map(|(dir, read)| run_of(dir, &read.plan)).collect();
    let subjects: Vec<Subject> = dirs
        .iter()
        .zip(&opened)
        .enumerate()
        .map(|(place, (dir, opened))| subject(dir, opened.as_ref(), is_corrected(place)))
        .collect();
    let (reports, brief) = fold(&dirs, &reads, &runs, &subjects, args)?;
    let stderr: Vec<Option<String>> = brief
        .excerpts
        .iter()
        .map(|excerpt| output_end(&dirs[excerpt.run], &excerpt.trial.to_string(), "stderr"))
        .collect();
    let again = again(&dirs, &reads, &opened, &brief);
    let mut veil = match args.no_redact {
        true => Veil::transparent(),
        false => {
            let invokers = opened.iter().flatten().map(|opened| &opened.invoker);
            Veil::new(&Sysroot::new(global.sysroot.clone()), invokers)
        }
    };
    let mut redact = |text: &str| veil.text(text);
    let issue = Issue { reports: &reports, brief: &brief, corrected_by: &corrections, again: &again, stderr: &stderr };
    let device = |id: &DeviceId| match args.no_redact {
        true => id.to_string(),
        false => pseudonym(id),
    };
    let text = render::issue(&issue, &mut Safe::new(&mut redact), &device);
    Ok((text, reports))
}

/// What a board is called in public: always the same, and not the name that it has at home.
fn pseudonym(device: &DeviceId) -> String {
    if device.as_str() == UNRECORDED {
        return UNRECORDED.to_owned();
    }
    let digest = ContentDigest::of(format!("jetfault board {device}").as_bytes());
    format!("board-{}", &digest.as_str()[..4])
}

fn run_of(dir: &RunDir, plan: &Plan) -> RunUnderComparison {
    RunUnderComparison { id: dir.id.clone(), plan: plan.clone(), machine: machine_words(dir) }
}

fn subject(dir: &RunDir, opened: Option<&Opened>, corrected: bool) -> Subject {
    let machine = fs::read(dir.file(names::MACHINE)).ok();
    let machine = machine.and_then(|json| serde_json::from_slice::<MachineFacts>(&json).ok());
    Subject {
        corrected,
        has_gpu: machine.is_some_and(|machine| machine.gpu_nodes),
        binary: opened.map(|opened| opened.binary.clone()),
        tool: opened.map(|opened| opened.tool.clone()).unwrap_or_default(),
    }
}

/// Reads each journal once: for its own report and for what all say together.
fn fold(
    dirs: &[RunDir],
    reads: &[Read],
    runs: &[RunUnderComparison],
    subjects: &[Subject],
    args: &ReportArgs,
) -> Result<(Vec<Report>, Brief), Failure> {
    let mut brief = BriefFold::new(runs, subjects);
    let mut reports = Vec::new();
    for (place, (dir, read)) in dirs.iter().zip(reads).enumerate() {
        let mut status = StatusFold::new(&read.plan, &read.agenda).by(args.interval);
        let mut results = ResultFold::default();
        let mut stray = None;
        read.records(dir, |record| {
            status.apply(&record)?;
            stray = brief.add(place, &record, results.apply(&record).as_ref()).err().or(stray.take());
            Ok(())
        })?;
        stray.map_or(Ok(()), Err).or_fail(Exit::JournalDamaged)?;
        reports.push(status.into_report(dir.id.clone(), machine_words(dir)).or_fail(Exit::JournalDamaged)?);
    }
    // Where one run may still be looked at, all that is pooled with it may.
    let method = reports.iter().map(|report| report.interval).max_by_key(|method| *method as u8).unwrap_or_default();
    Ok((reports, brief.finish(args.interval.unwrap_or(method))))
}

/// The file of what a trial wrote to `stream`.
pub(super) fn output_file(run: &RunDir, trial: &str, stream: &str) -> PathBuf {
    run.file(names::TRIALS).join(trial).join(format!("{stream}.log"))
}

/// The last lines of it; nothing if there are none.
pub(super) fn output_end(run: &RunDir, trial: &str, stream: &str) -> Option<String> {
    let mut file = File::open(output_file(run, trial, stream)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(STDERR_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(STDERR_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = text.lines().collect();
    if length > STDERR_BYTES && lines.len() > 1 {
        // The first one may have lost its beginning.
        lines.remove(0);
    }
    let end = lines.split_off(lines.len().saturating_sub(STDERR_LINES)).join("\n");
    (!end.trim().is_empty()).then_some(end)
}

/// How to see the fault again: the cell that it is about, as often as it was tried, with what that needs.
fn again(dirs: &[RunDir], reads: &[Read], opened: &[Option<Opened>], brief: &Brief) -> Again {
    let Some((run, id)) = &brief.cell else { return Again::default() };
    let plan = &reads[*run].plan;
    let Some(cell) = plan.cell(id) else { return Again::default() };
    let matrix = fs::read(dirs[*run].file(names::MATRIX)).unwrap_or_default();
    let Some(pool) = brief.focus.iter().max_by(|a, b| a.rate.low.total_cmp(&b.rate.low)) else {
        return Again::default();
    };
    let mut command = vec!["jetfault".to_owned(), "run".into(), "matrix.toml".into()];
    command.extend(["--cell".to_owned(), shell_word(&cell.label.replace(", ", ","))]);
    command.extend(["--trials".to_owned(), pool.rate.counted.to_string()]);
    for change in plan.overrides.iter().filter(|change| !change.starts_with("--trials")) {
        command.extend(["--set".to_owned(), shell_word(change.trim_start_matches("--set "))]);
    }
    let mut permissions = plan.needs.permissions.clone();
    if pool.state == State::Cold && cell.settings.start == Start::Any {
        // It asked for any state, and the fault came in cold ones.
        command.extend(["--set", "baseline.start=cold"].map(str::to_owned));
        permissions
            .extend([Permission::Reboot].iter().filter(|_| !plan.needs.permissions.contains(&Permission::Reboot)));
    }
    command.extend(permissions.iter().map(|permission| permission.as_str().to_owned()));
    if opened[*run].as_ref().is_some_and(|opened| opened.allowed.root_workload) {
        command.push("--allow-root-workload".to_owned());
    }
    Again {
        command: command.join(" "),
        matrix: String::from_utf8_lossy(&matrix).into_owned(),
        program: program(&cell.settings),
    }
}

/// The command of a cell as a shell takes it, without what only the harness can do.
fn program(settings: &Settings) -> Option<String> {
    let WorkloadSettings::Command(command) = &settings.workload else { return None };
    let mut words = Vec::new();
    for (name, changes) in &settings.env {
        for change in changes {
            match change {
                EnvOp::Set(value) => words.push(format!("{name}={}", shell_word(&value.to_string()))),
                EnvOp::Unset => words.push(format!("{name}=")),
                EnvOp::Append(more) => words.push(format!("{name}=\"${name} {more}\"")),
                EnvOp::Remove(_) => {}
            }
        }
    }
    words.extend(command.argv.iter().map(|word| shell_word(&word.to_string())));
    Some(words.join(" "))
}

/// `text` as one word of a POSIX shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%{}".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_has_one_public_name_that_is_not_its_own() {
        let name = |device: &str| pseudonym(&device.parse().unwrap());
        assert_eq!(name("neils-orin"), name("neils-orin"));
        assert_ne!(name("neils-orin"), name("other"));
        assert!(name("neils-orin").starts_with("board-") && !name("neils-orin").contains("neil"));
        assert_eq!(name(UNRECORDED), UNRECORDED);
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        for (text, expected) in
            [("a=b,c", "a=b,c"), ("two words", "'two words'"), ("it's", r"'it'\''s'"), ("", "''"), ("$HOME", "'$HOME'")]
        {
            assert_eq!(shell_word(text), expected);
        }
    }
}
