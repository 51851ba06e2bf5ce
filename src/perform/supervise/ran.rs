//! Which program a command's process really became, and for Python what it loaded.
//!
//! A script is run by an interpreter that its first line, `env` and `PATH` choose, and a wrapper becomes what it wraps:
//! only the running process tells. Nothing of it is left afterwards, so it is looked at soon after its start and, where
//! it may still change, less and less often.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::decide::crash::mappings;
use crate::model::outcome::{Outcome, PROGRAM_NOTE};
use crate::perform::programs::{find, shebang};
use crate::perform::supervise::libraries::Identities;

/// The time to the second look, and the longest between two.
const PERIODS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(5));

/// The most packages that are named.
const PACKAGES_MAX: usize = 64;

/// The most entries of a directory of packages among which versions are looked for.
const ENTRIES_MAX: usize = 4096;

/// What is known of a command's program.
#[derive(Debug)]
pub(in crate::perform) struct Ran {
    /// The file that the command names; none if nothing is there.
    named: Option<PathBuf>,
    /// Its first line, if it is a script.
    shebang: Option<String>,
    /// What the process was when it was last looked at.
    seen: Option<PathBuf>,
    /// Python's packages of which it mapped a library: directories in `site-packages`.
    packages: BTreeSet<PathBuf>,
    next: Instant,
    period: Duration,
}

impl Ran {
    /// The program that `program` is for a process that starts in `cwd` with `path` as its `PATH`.
    pub(super) fn new(program: &str, path: &str, cwd: &Path, now: Instant) -> Self {
        let named = find(program, path, cwd);
        let shebang = named.as_deref().and_then(shebang);
        Self { named, shebang, seen: None, packages: BTreeSet::new(), next: now, period: PERIODS.0 }
    }

    /// When to look next, if there is anything left to see.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.shebang.is_some() || self.is_python()).then_some(self.next)
    }

    fn is_python(&self) -> bool {
        self.seen
            .as_deref()
            .and_then(Path::file_name)
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"python"))
    }

    /// Looks at `process`, which is the command's by now.
    pub(super) fn look(&mut self, now: Instant, process: Pid) {
        (self.next, self.period) = (now + self.period, (self.period * 2).min(PERIODS.1));
        let process = format!("/proc/{}", process.as_raw_nonzero());
        let Ok(program) = fs::read_link(format!("{process}/exe")) else { return };
        self.seen = Some(program);
        if !self.is_python() {
            return;
        }
        let maps = fs::read_to_string(format!("{process}/maps")).unwrap_or_default();
        for mapping in mappings(&maps) {
            if self.packages.len() < PACKAGES_MAX
                && let Some(package) = package_of(Path::new(&mapping.path))
            {
                self.packages.insert(package);
            }
        }
    }

    /// The path of the program, as far as is known.
    pub(in crate::perform) fn program(&self) -> Option<String> {
        self.seen.as_ref().or(self.named.as_ref()).map(|path| path.to_string_lossy().into_owned())
    }

    /// Writes into `outcome` which program ran.
    pub(in crate::perform) fn tell(&self, outcome: &mut Outcome, identities: &mut Identities) {
        let mut words = match (&self.seen, &self.named) {
            (Some(seen), _) => identities.of(seen),
            (None, Some(named)) => format!("{}; it ended before it could be looked at", identities.of(named)),
            (None, None) => return,
        };
        if let (Some(shebang), Some(named)) = (&self.shebang, &self.named) {
            words.push_str(&format!("; it runs {} by its first line `#!{shebang}`", identities.of(named)));
        }
        if !self.packages.is_empty() {
            let packages: Vec<String> = self.packages.iter().map(|package| package_words(package)).collect();
            words.push_str(&format!("; packages whose libraries it loaded: {}", packages.join(", ")));
        }
        outcome.notes.insert(PROGRAM_NOTE.to_owned(), words);
    }
}

/// The package that a library belongs to: the directory or the module right below `site-packages`.
fn package_of(library: &Path) -> Option<PathBuf> {
    let is_site = |path: &Path| path.file_name().is_some_and(|name| name == "site-packages" || name == "dist-packages");
    library.ancestors().find(|path| path.parent().is_some_and(is_site)).map(Path::to_owned)
}

/// Name, version and place. The version is that of the metadata beside it whose name is the package's (PEP 376).
fn package_words(package: &Path) -> String {
    let (Some(name), Some(site)) = (package.file_name(), package.parent()) else { return String::new() };
    let name = name.to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '.'], "_");
    let version = fs::read_dir(site).into_iter().flatten().take(ENTRIES_MAX).find_map(|entry| {
        let entry = entry.ok()?.file_name().into_string().ok()?;
        let (distribution, version) = entry.strip_suffix(".dist-info")?.rsplit_once('-')?;
        (plain(distribution) == plain(name)).then(|| version.to_owned())
    });
    let version = version.map(|version| format!(" {version}")).unwrap_or_default();
    format!("{name}{version} in {}", site.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::Exit;

    #[test]
    fn a_package_is_known_by_where_its_library_lies_and_by_the_metadata_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let site = dir.path().join("lib/python3.12/site-packages");
        let package = site.join("bitsandbytes");
        fs::create_dir_all(&package).unwrap();
        fs::create_dir(site.join("BitsAndBytes-0.49.2.dist-info")).unwrap();
        let library = package.join("libbitsandbytes_cuda126.so");
        assert_eq!(package_of(&library).as_deref(), Some(package.as_path()));
        assert_eq!(package_of(Path::new("/usr/lib/libc.so.6")), None);
        assert_eq!(package_words(&package), format!("bitsandbytes 0.49.2 in {}", site.display()));
        assert_eq!(package_words(&site.join("_cffi.so")), format!("_cffi in {}", site.display()));
    }

    #[test]
    fn a_process_is_known_by_what_it_is_and_not_by_what_it_was_called() {
        let mut ran = Ran::new("sh", "/bin:/usr/bin", Path::new("/"), Instant::now());
        let told = |ran: &Ran| {
            let mut outcome = Outcome::of(Exit::Code(0));
            ran.tell(&mut outcome, &mut Identities::default());
            outcome.notes.remove(PROGRAM_NOTE)
        };
        assert!(told(&ran).unwrap().contains("ended before it could be looked at"));
        ran.look(Instant::now(), rustix::process::getpid());
        let words = told(&ran).unwrap();
        assert!(
            words.contains(std::env::current_exe().unwrap().to_str().unwrap()) && words.contains("sha256 "),
            "{words}"
        );
        assert_eq!(told(&Ran::new("no-such-program", "/bin", Path::new("/"), Instant::now())), None);
    }
}
