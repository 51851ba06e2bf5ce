//! Revisions of a repository: which there are, and each prepared in a worktree of its own in a cache.
//!
//! Everything runs as the invoking user. The user's checkout is never touched: worktrees lie in the cache, which is in
//! the results directory and outlives a run. A preparation that was cut short is begun anew in another directory, so
//! that nothing rests on a half-built one.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::decide::campaign::{Direction, History, Revision};
use crate::model::ids::ContentDigest;
use crate::model::journal::Invoker;
use crate::model::matrix::Revisions;
use crate::model::quantity::Limit;
use crate::model::template::{RunTimeHole, Template};
use crate::perform::files::write_durably;

/// The most revisions of one search, both ends included.
pub const REVISIONS_MAX: usize = 4096;

/// How much likelier a commit is that touches one of the paths that were named.
const PATH_WEIGHT: f64 = 10.0;

/// How long git may take to answer or to make a worktree.
const GIT_PATIENCE: Duration = Duration::from_secs(600);

/// How often a running preparation is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The file that says that a revision is prepared.
const READY: &str = "ready";

/// Between the parts of a line of git's answer; no commit message has it.
const SEPARATOR: char = '\u{1f}';

/// Why a history cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// git could not be run.
    #[error("cannot run git: {0}")]
    Git(#[from] io::Error),
    /// git says no.
    #[error("git {what} in {repo}: {words}")]
    Refused {
        /// What was asked.
        what: String,
        /// The repository.
        repo: String,
        /// Its words.
        words: String,
    },
    /// Both ends are one commit.
    #[error("good ({good}) and bad ({bad}) are the same commit, {commit}")]
    Equal {
        /// As the matrix says.
        good: String,
        /// As the matrix says.
        bad: String,
        /// The commit.
        commit: String,
    },
    /// Neither end is in the history of the other.
    #[error("neither {good} nor {bad} is in the history of the other")]
    Apart {
        /// As the matrix says.
        good: String,
        /// As the matrix says.
        bad: String,
    },
    /// Too many.
    #[error("{0} revisions between the ends are more than {REVISIONS_MAX}")]
    TooMany(usize),
}

/// A repository, asked as the user.
#[derive(Debug, Clone)]
pub struct Repository<'a> {
    /// Its path.
    pub path: PathBuf,
    /// The git program.
    pub git: PathBuf,
    /// As whom.
    pub invoker: &'a Invoker,
    /// The number of the signal that asks to stop; 0 for none.
    pub signal: &'a AtomicUsize,
}

impl Repository<'_> {
    /// The history that `revisions` asks for; commits that touch one of `paths` are likelier to have made the change.
    ///
    /// # Errors
    /// See [`HistoryError`].
    pub fn history(&self, revisions: &Revisions, paths: &[String]) -> Result<History, HistoryError> {
        let (good, bad) = (self.commit(&revisions.good)?, self.commit(&revisions.bad)?);
        let names = || (revisions.good.clone(), revisions.bad.clone());
        if good == bad {
            let (good_name, bad_name) = names();
            return Err(HistoryError::Equal { good: good_name, bad: bad_name, commit: good });
        }
        let direction = match (self.is_ancestor(&good, &bad)?, self.is_ancestor(&bad, &good)?) {
            (true, _) => Direction::Fault,
            (false, true) => Direction::Fix,
            (false, false) => {
                let (good, bad) = names();
                return Err(HistoryError::Apart { good, bad });
            }
        };
        let range = match direction {
            Direction::Fault => format!("{good}..{bad}"),
            Direction::Fix => format!("{bad}..{good}"),
        };
        let first_parent = revisions.first_parent;
        let commits = self.commits(&range, direction, first_parent)?;
        if commits.len() + 1 > REVISIONS_MAX {
            return Err(HistoryError::TooMany(commits.len() + 1));
        }
        let touched = self.touched(&range, first_parent, paths)?;
        let mut skip = HashSet::new();
        for name in &revisions.skip {
            skip.insert(self.commit(name)?);
        }
        // The end that the range leaves out: the older one.
        let older = match direction {
            Direction::Fault => (good, self.title(&revisions.good)?),
            Direction::Fix => (bad, self.title(&revisions.bad)?),
        };
        let older = Commit { id: older.0, parents: Vec::new(), title: older.1 };
        let ordered: Vec<Commit> = match direction {
            Direction::Fault => std::iter::once(older).chain(commits).collect(),
            Direction::Fix => commits.into_iter().chain([older]).collect(),
        };
        let position = |id: &String| ordered.iter().position(|commit| commit.id == *id);
        let revision = |commit: &Commit| Revision {
            id: commit.id.clone(),
            title: commit.title.clone(),
            weight: if touched.contains(&commit.id) { PATH_WEIGHT } else { 1.0 },
            parents: if first_parent { Vec::new() } else { commit.parents.iter().filter_map(position).collect() },
            skip: skip.contains(&commit.id),
        };
        Ok(History {
            repo: self.path.display().to_string(),
            direction,
            first_parent,
            revisions: ordered.iter().map(revision).collect(),
        })
    }

    fn ask(&self, args: &[&str]) -> Result<String, HistoryError> {
        let mut command = as_user(&self.git, self.invoker);
        command.arg("-C").arg(&self.path).args(args).stdin(Stdio::null());
        let output = command.output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let what = args.first().copied().unwrap_or_default().to_owned();
            return Err(HistoryError::Refused { what, repo: self.path.display().to_string(), words });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The commit that a name means.
    fn commit(&self, name: &str) -> Result<String, HistoryError> {
        let wanted = format!("{name}^{{commit}}");
        let answer = self.ask(&["rev-parse", "--verify", "--end-of-options", &wanted]);
        answer.map(|commit| commit.trim().to_owned()).map_err(|error| match error {
            // Its own words do not name what it looked for.
            HistoryError::Refused { what, repo, words } => {
                HistoryError::Refused { what: format!("{what} {name}"), repo, words }
            }
            other => other,
        })
    }

    fn title(&self, name: &str) -> Result<String, HistoryError> {
        Ok(self.ask(&["log", "-1", "--format=%s", "--end-of-options", name])?.trim().to_owned())
    }

    fn is_ancestor(&self, older: &str, newer: &str) -> Result<bool, HistoryError> {
        let mut command = as_user(&self.git, self.invoker);
        command.arg("-C").arg(&self.path).args(["merge-base", "--is-ancestor", older, newer]);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
    }

    /// The commits of a range, towards the bad end.
    fn commits(&self, range: &str, direction: Direction, first_parent: bool) -> Result<Vec<Commit>, HistoryError> {
        let mut args = vec!["log", "--topo-order", "--format=%H%x1f%P%x1f%s"];
        args.extend(first_parent.then_some("--first-parent"));
        args.extend((direction == Direction::Fault).then_some("--reverse"));
        args.push(range);
        let answer = self.ask(&args)?;
        let commit = |line: &str| {
            let mut parts = line.splitn(3, SEPARATOR).map(str::to_owned);
            let (id, parents) = (parts.next()?, parts.next()?);
            let parents = parents.split_whitespace().map(str::to_owned).collect();
            Some(Commit { id, parents, title: parts.next().unwrap_or_default() })
        };
        Ok(answer.lines().filter_map(commit).collect())
    }

    /// The commits of a range that touch one of `paths`.
    fn touched(&self, range: &str, first_parent: bool, paths: &[String]) -> Result<HashSet<String>, HistoryError> {
        if paths.is_empty() {
            return Ok(HashSet::new());
        }
        let mut args = vec!["log", "--format=%H", "--diff-merges=first-parent"];
        args.extend(first_parent.then_some("--first-parent"));
        args.extend([range, "--"]);
        args.extend(paths.iter().map(String::as_str));
        Ok(self.ask(&args)?.lines().map(str::to_owned).collect())
    }
}

struct Commit {
    id: String,
    parents: Vec<String>,
    title: String,
}

/// The directories of a prepared revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionDirs {
    /// Its worktree.
    pub src: PathBuf,
    /// What it was prepared into.
    pub dir: PathBuf,
}

/// Where prepared revisions are kept: by repository and by how they are prepared.
#[derive(Debug, Clone)]
pub struct RevisionCache {
    path: PathBuf,
}

impl RevisionCache {
    /// The cache in the results directory `results`, for a repository and its preparation.
    pub fn new(results: &Path, revisions: &Revisions, repo: &str) -> Self {
        let key = format!("{repo}\n{:?}", revisions.prepare);
        let digest = ContentDigest::of(key.as_bytes());
        Self { path: results.join("revisions").join(&digest.as_str()[..16]) }
    }

    /// The cache at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directories of `revision`, if it is prepared.
    pub fn find(&self, revision: &str) -> Option<RevisionDirs> {
        let attempts = self.attempts(revision);
        let ready =
            attempts.into_iter().map(|number| self.attempt(revision, number)).find(|at| at.join(READY).is_file())?;
        Some(RevisionDirs { src: ready.join("src"), dir: ready.join("dir") })
    }

    fn attempt(&self, revision: &str, number: u32) -> PathBuf {
        self.path.join(revision).join(number.to_string())
    }

    fn attempts(&self, revision: &str) -> Vec<u32> {
        let entries = fs::read_dir(self.path.join(revision)).into_iter().flatten().flatten();
        let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Makes a worktree of `revision` and prepares it; what it prints goes to a log beside it.
    ///
    /// # Errors
    /// An `Ok(Err)` in words if the revision cannot be prepared, which is a fact about it; an `Err` if the cache cannot
    /// be written or a signal came, which is not.
    pub fn prepare(
        &self,
        repository: &Repository<'_>,
        revisions: &Revisions,
        revision: &str,
    ) -> io::Result<Result<RevisionDirs, String>> {
        if let Some(dirs) = self.find(revision) {
            return Ok(Ok(dirs));
        }
        let number = self.attempts(revision).last().map_or(1, |last| last + 1);
        let at = self.attempt(revision, number);
        let dirs = RevisionDirs { src: at.join("src"), dir: at.join("dir") };
        make_dir(&dirs.dir, repository.invoker)?;
        let log = at.join("prepare.log");
        let source = dirs.src.display().to_string();
        let repo = repository.path.display().to_string();
        let git = repository.git.display().to_string();
        let worktree = [&git, "-C", &repo, "worktree", "add", "--detach", "--force", &source, revision];
        let worktree: Vec<String> = worktree.iter().map(|word| (*word).to_owned()).collect();
        let program = Program { argv: &worktree, cwd: &at, log: &log, patience: Some(GIT_PATIENCE) };
        if let Err(why) = program.run(repository)? {
            return Ok(Err(format!("no worktree: {why}")));
        }
        let fill = |hole: RunTimeHole| match hole {
            RunTimeHole::RevSrc => source.clone(),
            RunTimeHole::RevDir => dirs.dir.display().to_string(),
            RunTimeHole::RevId => revision.to_owned(),
            RunTimeHole::MatrixDir | RunTimeHole::NeedsDir | RunTimeHole::PreparedDir | RunTimeHole::TrialDir => {
                String::new()
            }
        };
        let words: Result<Vec<String>, String> =
            revisions.prepare.iter().map(|word: &Template| word.resolve(fill)).collect();
        let argv = words.map_err(io::Error::other)?;
        if !argv.is_empty() {
            let patience = match revisions.prepare_timeout {
                Limit::After(limit) => Some(limit.to_duration()),
                Limit::Off => None,
            };
            let program = Program { argv: &argv, cwd: &dirs.src, log: &log, patience };
            if let Err(why) = program.run(repository)? {
                return Ok(Err(format!("does not build: {why} (see {})", log.display())));
            }
        }
        write_durably(&at.join(READY), b"").map_err(io::Error::other)?;
        Ok(Ok(dirs))
    }
}

/// A program that is run to its end.
struct Program<'a> {
    argv: &'a [String],
    cwd: &'a Path,
    log: &'a Path,
    patience: Option<Duration>,
}

impl Program<'_> {
    /// Runs it as the user, its output appended to the log; `Err` in words if it fails or takes too long.
    fn run(&self, repository: &Repository<'_>) -> io::Result<Result<(), String>> {
        let log = OpenOptions::new().create(true).append(true).open(self.log)?;
        let [program, args @ ..] = self.argv else { return Ok(Ok(())) };
        let mut command = as_user(Path::new(program), repository.invoker);
        command.args(args).current_dir(self.cwd).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("{program}: {error}"))),
        };
        let until = self.patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(if status.success() { Ok(()) } else { Err(format!("{program}: {}", ended(status))) });
            }
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            let is_stopped = repository.signal.load(Ordering::Relaxed) != 0;
            if is_late || is_stopped {
                // It may have ended in between.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                child.wait()?;
                return match is_stopped {
                    true => Err(io::Error::new(io::ErrorKind::Interrupted, "a signal asked to stop")),
                    false => Ok(Err(format!("{program} takes too long"))),
                };
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn ended(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit {code}"),
        None => status.to_string(),
    }
}

/// A command with the user's environment, and as the user if this is root.
fn as_user(program: &Path, invoker: &Invoker) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(invoker.env.iter().map(|(name, value)| (name, value)));
    if rustix::process::geteuid().is_root() && invoker.uid != 0 {
        // The supplementary groups go with the identity.
        command.uid(invoker.uid).gid(invoker.gid);
    }
    command
}

/// Makes a directory and those above it, the last three the user's.
fn make_dir(path: &Path, invoker: &Invoker) -> io::Result<()> {
    fs::create_dir_all(path)?;
    if rustix::process::geteuid().is_root() {
        for dir in path.ancestors().take(3) {
            chown(dir, Some(invoker.uid), Some(invoker.gid))?;
        }
    }
    File::open(path)?.sync_all()
}
