//! Which files a trial's processes really mapped, for those that the matrix wants from one place (`loads`).
//!
//! A process's map is looked at while it lives, because nothing of it is left afterwards: soon after its start, then less
//! and less often, until every file was seen. Reading a map stops no process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::decide::crash::mappings;
use crate::model::ids::ContentDigest;
use crate::model::outcome::{EndedBy, LIBRARIES_NOTE, Outcome};
use crate::perform::elf;

/// The time to the second look, and the longest between two.
const PERIODS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// What is wanted, and what was seen.
#[derive(Debug)]
pub(in crate::perform) struct Libraries {
    wanted: Vec<Wanted>,
    next: Instant,
    period: Duration,
}

/// One file.
#[derive(Debug)]
struct Wanted {
    /// Where it must come from, with every symbolic link followed, as maps show it.
    path: PathBuf,
    is_seen: bool,
    /// A file of the same name that was mapped from elsewhere.
    elsewhere: Option<PathBuf>,
}

impl Libraries {
    /// Will look for the files at `paths` from now on.
    pub(super) fn new(paths: &[String], now: Instant) -> Self {
        let wanted = |path: &String| Wanted {
            path: fs::canonicalize(path).unwrap_or_else(|_| path.into()),
            is_seen: false,
            elsewhere: None,
        };
        Self { wanted: paths.iter().map(wanted).collect(), next: now, period: PERIODS.0 }
    }

    /// When to look next, if there is anything left to see.
    pub(super) fn due(&self) -> Option<Instant> {
        self.wanted.iter().any(|wanted| !wanted.is_seen).then_some(self.next)
    }

    /// Looks at what `processes` map.
    pub(super) fn look(&mut self, now: Instant, processes: &[Pid]) {
        (self.next, self.period) = (now + self.period, (self.period * 2).min(PERIODS.1));
        for process in processes {
            let Ok(maps) = fs::read_to_string(format!("/proc/{}/maps", process.as_raw_nonzero())) else { continue };
            for mapping in mappings(&maps).iter().filter(|mapping| mapping.path.starts_with('/')) {
                self.see(Path::new(&mapping.path));
            }
        }
    }

    fn see(&mut self, mapped: &Path) {
        for wanted in self.wanted.iter_mut().filter(|wanted| wanted.path.file_name() == mapped.file_name()) {
            if wanted.path == mapped {
                wanted.is_seen = true;
            } else {
                wanted.elsewhere.get_or_insert_with(|| mapped.to_owned());
            }
        }
    }

    /// Writes into `outcome` what was mapped, with its build id and sha256. A trial that ended well without a file that it
    /// must load, or that loaded another of that name, is not what its cell asks for.
    pub(in crate::perform) fn tell(&self, outcome: &mut Outcome, identities: &mut Identities) {
        if self.wanted.is_empty() {
            return;
        }
        let has_ended_well = outcome.has_succeeded();
        let (mut words, mut is_other) = (Vec::new(), false);
        for Wanted { path, is_seen, elsewhere } in &self.wanted {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            words.push(match (is_seen, elsewhere) {
                (_, Some(other)) => {
                    is_other = true;
                    format!("{name} was loaded from {} and not from {}", other.display(), path.display())
                }
                (true, None) => identities.of(path),
                (false, None) => {
                    is_other |= has_ended_well;
                    format!("{} was never seen to be loaded", path.display())
                }
            });
        }
        if is_other && outcome.ended_by.is_none() {
            outcome.ended_by = Some(EndedBy::Library);
        }
        outcome.notes.insert(LIBRARIES_NOTE.to_owned(), words.join("; "));
    }
}

/// What files are, each read once.
#[derive(Debug, Default)]
pub(in crate::perform) struct Identities(BTreeMap<PathBuf, String>);

impl Identities {
    /// Path, build id and sha256 of the file at `path`, in words.
    pub(in crate::perform) fn of(&mut self, path: &Path) -> String {
        self.0.entry(path.to_owned()).or_insert_with(|| identity(path)).clone()
    }
}

/// Path, build id and sha256, in words.
fn identity(path: &Path) -> String {
    let build_id = elf::build_id(path).ok().flatten().map(|id| format!(", build id {id}")).unwrap_or_default();
    let digest = File::open(path).and_then(|mut file| ContentDigest::of_reader(&mut file));
    match digest {
        Ok(digest) => format!("{}{build_id}, sha256 {}", path.display(), digest.as_str()),
        Err(error) => format!("{}{build_id}, not read: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::Exit;

    /// What is said of a process, this one, that must have loaded `path`, and whether that makes the trial another one.
    fn said(path: &str, exit: Exit) -> (String, bool) {
        let mut libraries = Libraries::new(&[path.to_owned()], Instant::now());
        libraries.look(Instant::now(), &[rustix::process::getpid()]);
        let mut outcome = Outcome::of(exit);
        libraries.tell(&mut outcome, &mut Identities::default());
        let is_other = outcome.ended_by == Some(EndedBy::Library);
        (outcome.notes.remove(LIBRARIES_NOTE).unwrap(), is_other)
    }

    #[test]
    fn what_was_mapped_is_proved_and_what_was_not_makes_a_good_end_worthless() {
        let own = std::env::current_exe().unwrap();
        let (words, is_other) = said(own.to_str().unwrap(), Exit::Code(0));
        assert!(words.contains("sha256 ") && !is_other, "{words}");
        let shadow = format!("/nowhere/{}", own.file_name().unwrap().to_str().unwrap());
        let (words, is_other) = said(&shadow, Exit::Code(1));
        assert!(words.contains("and not from /nowhere/") && is_other, "{words}");
        let (words, is_other) = said("/nowhere/libnothing.so", Exit::Code(0));
        assert!(words.contains("was never seen") && is_other, "{words}");
        // A program that dies before it loads a library died all the same.
        assert!(!said("/nowhere/libnothing.so", Exit::Signal { number: 11, core: false }).1);
    }
}
