//! Where things are: the results directory, runs, matrices.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::cli::args::Global;
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::model::matrix::{MATRIX_BYTES_MAX, did_you_mean};
use crate::perform::bundle;
use crate::perform::store::{ResultsDir, RunDir, read_limited};

/// The matrices that come with the binary.
pub const SHIPPED: [(&str, &str); 18] = [
    ("quickstart", include_str!("../../matrices/quickstart.toml")),
    ("storage-forensic", include_str!("../../matrices/storage-forensic.toml")),
    ("llama-stack", include_str!("../../matrices/llama-stack.toml")),
    ("command", include_str!("../../matrices/command.toml")),
    ("bnb-1936", include_str!("../../matrices/bnb-1936.toml")),
    ("bnb-1936-small", include_str!("../../matrices/bnb-1936-small.toml")),
    ("cold-start", include_str!("../../matrices/cold-start.toml")),
    ("power-modes", include_str!("../../matrices/power-modes.toml")),
    ("edge-llm-nvfp4", include_str!("../../matrices/edge-llm-nvfp4.toml")),
    ("bnb-python", include_str!("../../matrices/bnb-python.toml")),
    ("llama-moe-hang", include_str!("../../matrices/llama-moe-hang.toml")),
    ("trt-v-tensor", include_str!("../../matrices/trt-v-tensor.toml")),
    ("vllm-fifth-request", include_str!("../../matrices/vllm-fifth-request.toml")),
    ("ollama-page-cache", include_str!("../../matrices/ollama-page-cache.toml")),
    ("wheel-without-kernel", include_str!("../../matrices/wheel-without-kernel.toml")),
    ("two-instances", include_str!("../../matrices/two-instances.toml")),
    ("engine-without-file", include_str!("../../matrices/engine-without-file.toml")),
    ("drill", include_str!("../../matrices/drill.toml")),
];

/// The most results directories that the index remembers.
const INDEX_LINES_MAX: usize = 100;

/// A matrix file as it was read.
#[derive(Debug)]
pub struct MatrixSource {
    /// What it is called in messages.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The directory that `{matrix.dir}` means.
    pub dir: PathBuf,
}

/// Reads the matrix called `which`: a path, or the name of a shipped matrix.
///
/// # Errors
/// If there is none, it cannot be read, or it is too large.
pub fn matrix(which: &str) -> Result<MatrixSource, Failure> {
    let path = Path::new(which);
    let cwd = env::current_dir().or_fail(Exit::Usage)?;
    if !path.is_file()
        && let Some((name, text)) = SHIPPED.iter().find(|(name, _)| *name == which)
    {
        return Ok(MatrixSource { name: format!("{name} (shipped)"), bytes: text.as_bytes().to_vec(), dir: cwd });
    }
    let bytes = read_limited(path, MATRIX_BYTES_MAX as u64).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let names = SHIPPED.map(|(name, _)| name);
            let near = did_you_mean(which, names.iter().copied()).map(|near| format!("did you mean {near}? "));
            Failure::words(Exit::Usage, format!("no matrix {which}: not a file, and not a shipped matrix"))
                .hint(format!("{}shipped are {}", near.unwrap_or_default(), names.join(", ")))
        }
        std::io::ErrorKind::FileTooLarge => {
            Failure::words(Exit::Usage, format!("matrix {which} is larger than {MATRIX_BYTES_MAX} bytes"))
                .hint("is this a matrix? they are TOML of a few kilobytes")
        }
        _ => Failure::words(Exit::Usage, format!("cannot read matrix {which}: {error}")),
    })?;
    let dir = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf)).unwrap_or(cwd);
    Ok(MatrixSource { name: which.to_owned(), bytes, dir })
}

/// The results directory: the one asked for, else `results/` beside a `Cargo.toml` or `matrices/` here, else where the
/// system keeps data.
pub fn results_path(asked: Option<&Path>) -> PathBuf {
    if let Some(asked) = asked {
        return asked.to_path_buf();
    }
    if Path::new("Cargo.toml").is_file() || Path::new("matrices").is_dir() {
        return PathBuf::from("results");
    }
    // Without HOME, as under cron, the user's entry says where it is.
    let home = || env::home_dir().unwrap_or_else(|| PathBuf::from("."));
    if geteuid().is_root() { PathBuf::from("/var/lib/jetfault") } else { home().join(".local/share/jetfault") }
}

/// The file that remembers results directories, so that runs are found from anywhere.
fn index_path() -> Option<PathBuf> {
    if let Some(state) = env::var_os("XDG_STATE_HOME") {
        return Some(PathBuf::from(state).join("jetfault/index"));
    }
    if geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/jetfault/index"));
    }
    env::home_dir().map(|home| home.join(".local/state/jetfault/index"))
}

/// Remembers `results` in the index. It is a convenience: where it cannot be written, nothing is lost.
pub fn remember(results: &ResultsDir) {
    let Some(index) = index_path() else { return };
    let known = fs::read_to_string(&index).unwrap_or_default();
    let path = results.path().to_string_lossy();
    if known.lines().any(|line| line == path) {
        return;
    }
    let written = fs::create_dir_all(index.parent().unwrap_or(Path::new("/"))).and_then(|()| {
        if known.lines().count() < INDEX_LINES_MAX {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(&index)?;
            return writeln!(file, "{path}");
        }
        replace(&index, &with_room(&known, |line| Path::new(line).is_dir(), &path))
    });
    if let Err(error) = written {
        tracing::debug!("cannot remember {path} in {}: {error}", index.display());
    }
}

/// The full index `known` with `path` at its end: without what `is_there` no longer, else without its oldest half.
fn with_room(known: &str, is_there: impl Fn(&str) -> bool, path: &str) -> String {
    let mut lines: Vec<&str> = known.lines().filter(|line| is_there(line)).collect();
    if lines.len() >= INDEX_LINES_MAX {
        lines.drain(..lines.len() - INDEX_LINES_MAX / 2);
    }
    lines.push(path);
    lines.join("\n") + "\n"
}

/// Puts `text` in the place of `file` at once, for readers that look at it meanwhile.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = file.with_extension("unfinished");
    fs::write(&unfinished, text)?;
    fs::rename(unfinished, file)
}

fn remembered() -> Vec<ResultsDir> {
    let known = index_path().and_then(|index| fs::read_to_string(index).ok()).unwrap_or_default();
    known.lines().take(INDEX_LINES_MAX).map(|line| ResultsDir::at(PathBuf::from(line))).collect()
}

/// The run called `which`, for commands that only read: as [`run`], or a bundle, which is unpacked as long as the run is
/// held.
///
/// # Errors
/// If there is none, or more than one, or the file is no bundle.
pub fn run_or_bundle(global: &Global, which: Option<&str>) -> Result<(ResultsDir, RunDir), Failure> {
    let Some(path) = which.map(Path::new).filter(|path| path.is_file()) else { return run(global, which) };
    let run = bundle::open(path, &env::temp_dir()).map_err(|error| {
        Failure::new(Exit::Usage, error).hint("a bundle is what `jetfault report bundle RUN -o FILE.zip` writes")
    })?;
    let parent = run.path.parent().unwrap_or(Path::new("/")).to_path_buf();
    Ok((ResultsDir::at(parent), run))
}

/// The run called `which`: an id, a unique beginning of one, a path; the latest if none is named.
///
/// Runs of other results directories are found through the index, but never behind the back of a person who named the
/// directory.
///
/// # Errors
/// If there is none, or more than one.
pub fn run(global: &Global, which: Option<&str>) -> Result<(ResultsDir, RunDir), Failure> {
    if let Some(path) = which.map(Path::new).filter(|path| path.is_dir() && path.join("plan.json").is_file()) {
        let run = RunDir::open(path).or_fail(Exit::Usage)?;
        let parent = run.path.parent().unwrap_or(Path::new("/")).to_path_buf();
        return Ok((ResultsDir::at(parent), run));
    }
    let results = results_path(global.results.as_deref());
    let here = ResultsDir::at(results.canonicalize().unwrap_or(results));
    let mut found = candidates(&here, which)?;
    let is_elsewhere = found.is_empty() && global.results.is_none();
    if is_elsewhere {
        for results in remembered().iter().filter(|results| **results != here) {
            found.extend(candidates(results, which)?);
        }
    }
    let exact = which.and_then(|which| found.iter().position(|(_, run)| run.id.as_str() == which));
    let chosen = match (exact, found.len(), which) {
        (Some(exact), ..) => Ok(found.swap_remove(exact)),
        (None, 0, None) => Err(Failure::words(Exit::Usage, format!("no runs in {}", here.path().display()))
            .hint("`jetfault run quickstart` makes one there; --results names another directory")),
        (None, 0, Some(which)) => {
            Err(Failure::words(Exit::Usage, format!("no run {which} in {}", here.path().display()))
                .hint("give its id, a unique beginning of it, or the path of its directory; to read it, a bundle"))
        }
        (None, 1, _) => Ok(found.swap_remove(0)),
        (None, _, None) => Ok(latest(found)),
        (None, _, Some(which)) => {
            let ids: Vec<&str> = found.iter().map(|(_, run)| run.id.as_str()).collect();
            Err(Failure::words(Exit::Usage, format!("{which} may be any of {}", ids.join(", ")))
                .hint("write out the one you mean"))
        }
    }?;
    if is_elsewhere && !global.quiet {
        eprintln!("{} is in {}", chosen.1.id, chosen.0.path().display());
    }
    Ok(chosen)
}

fn candidates(results: &ResultsDir, which: Option<&str>) -> Result<Vec<(ResultsDir, RunDir)>, Failure> {
    let runs = results.runs().or_fail(Exit::Usage)?;
    let wanted = runs.into_iter().filter(|run| which.is_none_or(|which| run.id.as_str().starts_with(which)));
    Ok(wanted.map(|run| (results.clone(), run)).collect())
}

/// The run whose journal was written last. Wall clocks of boards jump, so this is for convenience alone.
fn latest(runs: Vec<(ResultsDir, RunDir)>) -> (ResultsDir, RunDir) {
    let written = |run: &RunDir| fs::metadata(run.file("journal.jsonl")).and_then(|meta| meta.modified()).ok();
    runs.into_iter().max_by_key(|(_, run)| (written(run), run.id.parts().1)).expect("the caller found some")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_index_forgets_what_is_gone_and_then_what_is_oldest() {
        let full: String = (0..INDEX_LINES_MAX).map(|n| format!("/results/{n}\n")).collect();
        let one_left = with_room(&full, |line| line == "/results/7", "/results/new");
        assert_eq!(one_left, "/results/7\n/results/new\n");
        let all_there = with_room(&full, |_| true, "/results/new");
        assert_eq!(all_there.lines().count(), INDEX_LINES_MAX / 2 + 1);
        assert_eq!(all_there.lines().next(), Some("/results/50"));
        assert_eq!(all_there.lines().last(), Some("/results/new"));
    }
}
