//! Directories that a command prepares once for all trials that ask for the same: a build, a download, a conversion.
//!
//! They lie under the results directory, known by a digest of the command with everything filled in. What was made stays,
//! and so does a failure, so that a boot that runs a cold trial never builds anything: whoever wants it made anew removes
//! the directory. It is made as the user, before the first trial and before any reboot.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::decide::plan::Plan;
use crate::model::ids::ContentDigest;
use crate::model::journal::{Invoker, SetChanged};
use crate::model::quantity::{Limit, Millis};
use crate::model::settings::{CommandSettings, Settings, WorkloadSettings};
use crate::model::template::{RunTimeHole, Template};
use crate::perform::aside::Aside;
use crate::perform::files::{make_dir_durably, write_durably};
use crate::perform::linux::make_trial_dir;
use crate::perform::processes::RunMark;
use crate::perform::supervise::{CommandLine, Program, SideMark, Supervisor};

/// Where prepared directories lie in the results directory.
const PREPARED: &str = "prepared";
/// The file that says that everything is there.
const DONE: &str = "done";
/// The file that says why nothing is.
const FAILED: &str = "failed";
/// The directory itself, beside what was said when it was made.
const DIR: &str = "dir";

/// How long a preparation may take, if the matrix does not say: as long as a command of a trial.
const TIMEOUT: Limit = Limit::After(Millis::from_secs(3600));

/// How many hexadecimal digits of the digest name a directory.
const KEY_DIGITS: usize = 16;

/// What to prepare with, and where.
pub struct Workshop<'a> {
    /// The results directory.
    pub results: &'a Path,
    /// The directory of the matrix file.
    pub matrix_dir: &'a str,
    /// As whom.
    pub invoker: &'a Invoker,
    /// The run, for the mark of the processes.
    pub run: &'a RunMark,
    /// The number of the signal that asks to stop; 0 for none.
    pub signal: &'a AtomicUsize,
}

/// What became of each preparation, by the key of its command.
#[derive(Debug, Clone, Default)]
pub struct Prepared(BTreeMap<String, Result<PathBuf, String>>);

impl Prepared {
    /// The directory that the command of `settings` works with; empty if it asks for none.
    ///
    /// # Errors
    /// In words, if it could not be made.
    pub fn dir_for(&self, settings: &Settings, matrix_dir: &str) -> Result<String, String> {
        let Some(command) = preparing(settings) else { return Ok(String::new()) };
        let key = key(command, matrix_dir)?;
        match self.0.get(&key) {
            Some(Ok(dir)) => Ok(dir.display().to_string()),
            Some(Err(why)) => Err(why.clone()),
            None => Err("it was never prepared".to_owned()),
        }
    }
}

/// Something that was made just now.
pub struct Made {
    /// The key of its command.
    pub key: String,
    /// What happened, in words.
    pub words: String,
}

/// Whether `settings` ask for a directory.
pub fn asks(settings: &Settings) -> bool {
    preparing(settings).is_some()
}

impl From<Made> for SetChanged {
    fn from(Made { key, words }: Made) -> Self {
        Self { what: format!("prepared {key}"), old: String::new(), new: words }
    }
}

fn preparing(settings: &Settings) -> Option<&CommandSettings> {
    match &settings.workload {
        WorkloadSettings::Command(command) if !command.prepare.is_empty() => Some(command),
        WorkloadSettings::Command(_) | WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => None,
    }
}

/// The command of a preparation, with `dir` for the directory that it makes.
fn argv(command: &CommandSettings, matrix_dir: &str, dir: &str) -> Result<Vec<String>, String> {
    let fill = |template: &Template| {
        template.resolve(|hole| match hole {
            RunTimeHole::MatrixDir => matrix_dir.to_owned(),
            RunTimeHole::PreparedDir => dir.to_owned(),
            // The matrix is refused with these.
            RunTimeHole::NeedsDir | RunTimeHole::TrialDir => String::new(),
            RunTimeHole::RevSrc | RunTimeHole::RevDir | RunTimeHole::RevId => String::new(),
        })
    };
    let unfilled = |name| format!("the placeholder {{{name}}} was never filled");
    command.prepare.iter().map(fill).collect::<Result<_, _>>().map_err(unfilled)
}

fn key(command: &CommandSettings, matrix_dir: &str) -> Result<String, String> {
    let argv = argv(command, matrix_dir, "{prepared.dir}")?;
    let text = serde_json::to_vec(&argv).expect("strings have a form in JSON");
    Ok(ContentDigest::of(&text).as_str()[..KEY_DIGITS].to_owned())
}

impl Workshop<'_> {
    /// Makes what the cells of `plan` ask for and is not there, and tells what is; `say` is called before each that is
    /// made now.
    pub fn prepare(
        &self,
        plan: &Plan,
        supervisor: &mut Supervisor,
        mut say: impl FnMut(&[String]),
    ) -> (Prepared, Vec<Made>) {
        let (mut prepared, mut made) = (Prepared::default(), Vec::new());
        for cell in plan.all_cells() {
            let Some(command) = preparing(&cell.settings) else { continue };
            let Ok(key) = key(command, self.matrix_dir) else { continue };
            if prepared.0.contains_key(&key) {
                continue;
            }
            let place = self.results.join(PREPARED).join(&key);
            let limit = cell.settings.watch.prepare_timeout.unwrap_or(TIMEOUT);
            let timeout = limit.millis().map(|timeout| timeout.to_duration());
            let result = match Self::found(&place) {
                Some(result) => result,
                None if self.signal.load(Ordering::Relaxed) != 0 => Err("it was interrupted".to_owned()),
                None => {
                    let begun = Instant::now();
                    let result = self.make(command, &place, timeout, supervisor, &mut say);
                    let took = format!("{} ms", begun.elapsed().as_millis());
                    let words = match &result {
                        Ok(dir) => format!("{} in {took}", dir.display()),
                        Err(why) => format!("failed after {took}: {why}"),
                    };
                    made.push(Made { key: key.clone(), words });
                    result
                }
            };
            prepared.0.insert(key, result);
        }
        (prepared, made)
    }

    /// What an earlier start made of it.
    fn found(place: &Path) -> Option<Result<PathBuf, String>> {
        if place.join(DONE).exists() {
            return Some(Ok(place.join(DIR)));
        }
        let why = fs::read_to_string(place.join(FAILED)).ok()?;
        Some(Err(format!("{why} (an earlier start tried; `rm -r {}` lets the next one try again)", place.display())))
    }

    fn make(
        &self,
        command: &CommandSettings,
        place: &Path,
        timeout: Option<Duration>,
        supervisor: &mut Supervisor,
        say: &mut impl FnMut(&[String]),
    ) -> Result<PathBuf, String> {
        /// A matrix with `prepare_timeout = "off"` means it.
        const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        let dir = place.join(DIR);
        let argv = argv(command, self.matrix_dir, &dir.display().to_string())?;
        let on_disk = |error: &dyn std::fmt::Display| format!("{}: {error}", place.display());
        for path in [self.results.join(PREPARED), place.to_owned()] {
            make_dir_durably(&path).map_err(|error| on_disk(&error))?;
        }
        // What an interrupted start left is no beginning for another.
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|error| on_disk(&error))?;
        }
        make_trial_dir(&dir, self.invoker).map_err(|error| on_disk(&error))?;
        say(&argv);
        let cwd = Some(dir.display().to_string());
        let mark = SideMark::of_preparation(self.run, place);
        let aside = Aside {
            program: Program::Command(CommandLine { argv, cwd, ..CommandLine::default() }),
            mark: &mark,
            run: self.run,
            dir: place,
            environment: &[],
            invoker: self.invoker,
            timeout: timeout.unwrap_or(FOR_EVER),
        };
        match aside.run(supervisor, self.signal) {
            Ok(_) => {
                write_durably(&place.join(DONE), b"").map_err(|error| on_disk(&error))?;
                Ok(dir)
            }
            Err(why) if self.signal.load(Ordering::Relaxed) != 0 => Err(why),
            Err(why) => {
                let why = format!("what prepares {{prepared.dir}} failed: {why}; see {}/stderr.log", place.display());
                write_durably(&place.join(FAILED), why.as_bytes()).map_err(|error| on_disk(&error))?;
                Err(why)
            }
        }
    }
}
