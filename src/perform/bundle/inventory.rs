//! What a run has that may go into a bundle, the most wanted first.

use std::fs;
use std::path::{Path, PathBuf};

use super::LeftOut;
use crate::decide::plan::Plan;
use crate::model::ids::{BootId, TrialId};
use crate::model::journal::Opened;
use crate::model::settings::WorkloadSettings;
use crate::model::template::RunTimeHole;
use crate::perform::exhibits::files_below;
use crate::perform::store::{RunDir, names};

/// The largest script that is packed.
const SCRIPT_BYTES_MAX: u64 = 256 * 1024;

/// Endings of the files of a trial that are its record; whatever else is there is the workload's own.
const RECORD_ENDINGS: [&str; 5] = [".log", ".jsonl", "result.json", "maps.txt", "threads.txt"];

/// A file that may go into a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its name in the bundle, below the run's directory.
    pub(super) name: String,
    /// Where it is.
    pub(super) path: PathBuf,
}

/// The candidates and what is no candidate. `trials` are the trials of the run, those with a fault first; `boots` its boots.
pub(super) fn inventory(
    run: &RunDir,
    plan: &Plan,
    opened: Option<&Opened>,
    trials: &[TrialId],
    boots: &[BootId],
) -> (Vec<Candidate>, Vec<LeftOut>) {
    let mut candidates = Vec::new();
    let mut left_out = Vec::new();
    for (name, path) in scripts(plan, opened) {
        candidates.push(Candidate { name: format!("scripts/{name}"), path });
    }
    for name in [names::INJECTED, names::CORRECTED_BY] {
        if run.file(name).is_file() {
            candidates.push(Candidate { name: name.to_owned(), path: run.file(name) });
        }
    }
    let results = trials.iter().map(|trial| format!("{}/{trial}/{}", names::TRIALS, names::RESULT));
    candidates.extend(results.map(|name| Candidate { path: run.file(&name), name }));
    let evidence: Vec<String> = boots
        .iter()
        .rev()
        .flat_map(|boot| {
            let dir = format!("{}/{boot}", names::EVIDENCE);
            files_below(&run.file(&dir)).into_iter().map(move |name| format!("{dir}/{name}"))
        })
        .collect();
    candidates.extend(evidence.into_iter().map(|name| Candidate { path: run.file(&name), name }));
    for trial in trials {
        let dir = format!("{}/{trial}", names::TRIALS);
        for name in files_below(&run.file(&dir)).into_iter().filter(|name| name != names::RESULT) {
            let name = format!("{dir}/{name}");
            let path = run.file(&name);
            if RECORD_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                candidates.push(Candidate { name, path });
            } else {
                let bytes = fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
                left_out.push(LeftOut { name, bytes, why: "a file of the workload's own".to_owned() });
            }
        }
    }
    (candidates, left_out)
}

/// Scripts that the cells run, as far as they are still there: small text files among the arguments.
fn scripts(plan: &Plan, opened: Option<&Opened>) -> Vec<(String, PathBuf)> {
    let matrix_dir = opened.map_or("", |opened| opened.matrix_dir.as_str());
    let cwd = opened.map_or("", |opened| opened.invoker.cwd.as_str());
    let mut scripts: Vec<(String, PathBuf)> = Vec::new();
    for cell in plan.all_cells() {
        let WorkloadSettings::Command(command) = &cell.settings.workload else { continue };
        for template in &command.argv {
            let filled = template.resolve(|hole| match hole {
                RunTimeHole::MatrixDir => matrix_dir.to_owned(),
                RunTimeHole::NeedsDir
                | RunTimeHole::PreparedDir
                | RunTimeHole::TrialDir
                | RunTimeHole::RevSrc
                | RunTimeHole::RevDir
                | RunTimeHole::RevId => "\0".to_owned(),
            });
            let Ok(argument) = filled else { continue };
            let path = Path::new(cwd).join(&argument);
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let is_small = fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= SCRIPT_BYTES_MAX);
            if is_small && is_text(&path) && scripts.iter().all(|(known, _)| known != name) {
                scripts.push((name.to_owned(), path));
            }
        }
    }
    scripts
}

fn is_text(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| !bytes.contains(&0) && std::str::from_utf8(&bytes).is_ok())
}

/// The packages of the Pythons that the cells run, as `NAME==VERSION` lines by interpreter, from the names of what is
/// installed beside it: no program is started.
pub(super) fn python_packages(plan: &Plan) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for cell in plan.all_cells() {
        let WorkloadSettings::Command(command) = &cell.settings.workload else { continue };
        let Some(Ok(program)) = command.argv.first().map(|template| template.resolve(|_| "\0".to_owned())) else {
            continue;
        };
        let path = Path::new(&program);
        let is_python = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python"));
        if !is_python || !path.is_absolute() || found.iter().any(|(known, _)| *known == program) {
            continue;
        }
        let lines = path.parent().and_then(Path::parent).map(installed).unwrap_or_default();
        if !lines.is_empty() {
            found.push((program, lines.join("\n") + "\n"));
        }
    }
    found
}

/// The distributions under `prefix`, by their directories `NAME-VERSION.dist-info` (PEP 376).
fn installed(prefix: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for versions in fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten() {
        if !versions.file_name().to_string_lossy().starts_with("python3") {
            continue;
        }
        for packages in ["site-packages", "dist-packages"] {
            for entry in fs::read_dir(versions.path().join(packages)).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some((name, version)) = name.strip_suffix(".dist-info").and_then(|name| name.split_once('-')) {
                    lines.push(format!("{name}=={version}"));
                }
            }
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_told_without_starting_python() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["torch-2.9.0.dist-info", "bitsandbytes-0.49.2.dist-info", "torch", "__pycache__"] {
            fs::create_dir_all(dir.path().join("lib/python3.12/site-packages").join(name)).unwrap();
        }
        assert_eq!(installed(dir.path()), ["bitsandbytes==0.49.2", "torch==2.9.0"]);
        assert_eq!(installed(Path::new("/nowhere")), Vec::<String>::new());
    }
}
