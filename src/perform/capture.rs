//! `capture`: everything that is read of a machine, written as a tree that `--sysroot` reads.
//!
//! It is not a list of paths: the machine is read by the same code as ever under a root that remembers, so that what
//! another command would look for is there, and gives the same answer.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::syncfs;

use crate::model::ids::ContentDigest;
use crate::perform::doctor::checks;
use crate::perform::evidence;
use crate::perform::files::at;
use crate::perform::host::{CAPTURE_FILE, COMMANDS, Captured, Recording, Sysroot};
use crate::perform::machine::MachineError;
use crate::perform::redact::{Redactor, Secrets};

/// Name and version of the format of a captured tree.
pub const CAPTURE_SCHEMA: &str = "jetfault.capture/1";

/// Files whose only content is a secret, and which nothing but the machine's id is derived from.
const LEFT_OUT: [&str; 1] = ["etc/machine-id"];

/// Whether names of this machine and of people stay in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redaction {
    /// They become pseudonyms.
    Redacted,
    /// They stay.
    Verbatim,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Files, those under `cmd/` included.
    pub files: usize,
    /// Bytes in them.
    pub bytes: u64,
    /// Things that were there and could not be read.
    pub denied: usize,
}

/// Why nothing was captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Something is in the directory already.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// An effect failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// Reads the machine under `root` and writes it to `dir`, which is made if it is not there.
///
/// # Errors
/// If something is in `dir`, the machine has no boot id, or a write fails.
pub fn capture(root: &Path, dir: &Path, redaction: Redaction) -> Result<Written, CaptureError> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(CaptureError::NotEmpty(dir.to_path_buf())),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(at("read", dir, Err::<(), _>(error)).unwrap_err().into());
        }
        Ok(false) | Err(_) => {}
    }
    let sysroot = Sysroot::new(root.to_path_buf()).recording();
    evidence::read(&sysroot)?;
    let device = sysroot.device(None);
    sysroot.facts(device.clone(), ContentDigest::of(b""));
    checks(&sysroot, dir);
    let recording = sysroot.into_recording();
    // Not recorded: these are read to be left out.
    let mut redactor =
        (redaction == Redaction::Redacted).then(|| Redactor::new(&Secrets::of(&Sysroot::new(root.to_path_buf()))));
    let mut redact = |name: &str, bytes: Vec<u8>| match &mut redactor {
        Some(redactor) => redactor.redact(name, bytes),
        None => bytes,
    };
    let Recording { files, dirs, denied } = recording;
    let mut written = Written { files: 0, bytes: 0, denied: denied.len() };
    at("make the directory", dir, fs::create_dir_all(dir.join(COMMANDS)))?;
    for path in dirs {
        at("make the directory", &dir.join(&path), fs::create_dir_all(dir.join(&path)))?;
    }
    for (path, bytes) in files.into_iter().filter(|(path, _)| !LEFT_OUT.contains(&path.as_str())) {
        let bytes = redact(&path, bytes);
        written.files += 1;
        written.bytes += bytes.len() as u64;
        write(&dir.join(&path), &bytes)?;
    }
    let captured = Captured {
        schema: CAPTURE_SCHEMA.to_owned(),
        device: Some(device.as_str().to_owned()),
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        denied: denied
            .into_iter()
            .map(|(path, why)| (path, String::from_utf8_lossy(&redact("", why.into_bytes())).into_owned()))
            .collect(),
    };
    let mut json = serde_json::to_vec_pretty(&captured).expect("names of fields are text");
    json.push(b'\n');
    write(&dir.join(CAPTURE_FILE), &json)?;
    at("sync", dir, fs::File::open(dir).and_then(|dir| syncfs(&dir).map_err(io::Error::from)))?;
    Ok(written)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), MachineError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    at("make the directory", parent, fs::create_dir_all(parent))?;
    at("write", path, fs::write(path, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::evidence::RawEvidence;

    /// Items that differ from one reading to the next on a live machine.
    fn is_steady(name: &str) -> bool {
        let moving = ["journal/", "thermal/", "kernel/uptime", "clock/rtc", "last.txt"];
        !moving.iter().any(|prefix| name.starts_with(prefix))
    }

    fn steady(raw: RawEvidence) -> RawEvidence {
        RawEvidence { items: raw.items.into_iter().filter(|(name, _)| is_steady(name)).collect(), ..raw }
    }

    #[test]
    fn a_captured_machine_gives_the_same_evidence_and_identity() {
        let dir = tempfile::tempdir().unwrap();
        let root = Path::new("/");
        capture(root, dir.path(), Redaction::Verbatim).unwrap();
        let (live, captured) = (Sysroot::new(root.to_path_buf()), Sysroot::new(dir.path().to_path_buf()));
        let (there, here) = (evidence::read(&live).unwrap(), evidence::read(&captured).unwrap());
        assert_eq!(there.items.keys().collect::<Vec<_>>(), here.items.keys().collect::<Vec<_>>());
        assert_eq!(steady(there), steady(here));
        let facts = |sysroot: &Sysroot| sysroot.facts(sysroot.device(None), ContentDigest::of(b"harness"));
        assert_eq!(facts(&live), facts(&captured));
        let (findings, _) = evidence::capture(&live).unwrap();
        assert_eq!(findings.findings, evidence::capture(&captured).unwrap().0.findings);
    }

    #[test]
    fn what_may_not_be_read_is_denied_in_the_capture_too() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/random/boot_id", "3b8e0a41-d5f9-5e20-9b66-d1c2f304b503");
        // Reading a directory as a file fails as a forbidden one does, for root as well.
        fs::create_dir_all(tree.path().join("sys/class/thermal/thermal_zone0/temp")).unwrap();
        write("sys/class/thermal/thermal_zone0/type", "cv0-thermal\n");
        let dir = tempfile::tempdir().unwrap();
        let written = capture(tree.path(), dir.path(), Redaction::Redacted).unwrap();
        assert_eq!(written.denied, 1);
        let of = |root: &Path| {
            evidence::read(&Sysroot::new(root.to_path_buf())).unwrap().items["thermal/cv0-thermal/temp"].clone()
        };
        assert!(matches!(of(tree.path()), crate::model::evidence::Fact::Denied(_)));
        assert_eq!(of(tree.path()), of(dir.path()));
    }
}
