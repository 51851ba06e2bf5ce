//! Unpacking: into a directory of its own, which is gone when nobody looks at the run any more.
//!
//! A bundle may come from anybody. A name may be a file below the run's directory and nothing else; links, devices and
//! what is encrypted are refused; what is unpacked is counted as it is written, whatever the archive says of its size.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use zip::ZipArchive;

use super::BundleError;
use crate::model::ids::RunId;
use crate::perform::files::at;
use crate::perform::store::RunDir;

/// The most files of a bundle.
const FILES_MAX: usize = 50_000;

/// The most bytes that are unpacked.
const BYTES_MAX: u64 = 1 << 30;

/// A file may be so many times as large as it is packed, and always this large: logs repeat themselves.
const RATIO_MAX: u64 = 1000;
const ALWAYS_BYTES: u64 = 1 << 20;

/// The most parts of a name, and the most bytes of one.
const PARTS_MAX: usize = 12;
const PART_BYTES_MAX: usize = 255;

/// A directory that is removed when it is dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct Unpacked {
    dir: PathBuf,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::debug!("cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// The run in the bundle at `path`, unpacked below `scratch` as long as it is held.
///
/// # Errors
/// If it is no bundle of this program's, or cannot be unpacked; nothing is left then.
pub fn open(path: &Path, scratch: &Path) -> Result<RunDir, BundleError> {
    let file = at("open", path, File::open(path))?;
    let zip = |source| BundleError::Zip { path: path.to_path_buf(), source };
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(zip)?;
    if archive.len() > FILES_MAX {
        return Err(foreign(path, format!("it has more than {FILES_MAX} files")));
    }
    let unpacked = Arc::new(scratch_dir(scratch)?);
    let (mut run, mut left, mut known) = (None, BYTES_MAX, BTreeSet::new());
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).map_err(zip)?;
        let name = String::from_utf8_lossy(&file.name().map_err(zip)?.into_owned().into_bytes()).into_owned();
        if file.is_dir() {
            continue;
        }
        let is_plain = file.unix_mode().is_none_or(|mode| matches!(mode & 0o170_000, 0 | 0o100_000));
        if file.is_symlink() || !is_plain || file.encrypted() {
            return Err(foreign(path, format!("{name:?} is a link, a device or encrypted")));
        }
        let (id, parts) = checked(&name).ok_or_else(|| foreign(path, format!("it has a file {name:?}")))?;
        if *run.get_or_insert_with(|| id.clone()) != id {
            return Err(foreign(path, "it has files of more than one run".to_owned()));
        }
        if !known.insert(name.clone()) {
            return Err(foreign(path, format!("{name:?} is in it twice")));
        }
        let allowed = (file.compressed_size().saturating_mul(RATIO_MAX)).max(ALWAYS_BYTES).min(left);
        let to = parts.iter().fold(unpacked.dir.join(id.as_str()), |to, part| to.join(part));
        let written = write(&mut file, &to, allowed).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => foreign(path, format!("{name:?} is larger than it may be")),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                foreign(path, format!("{name:?} cannot be unpacked: {error}"))
            }
            _ => at("unpack", &to, Err::<(), _>(error)).unwrap_err().into(),
        })?;
        left -= written;
    }
    let id = run.ok_or_else(|| foreign(path, "nothing is in it".to_owned()))?;
    let dir = unpacked.dir.join(id.as_str());
    let run = RunDir::open(&dir).map_err(|_| foreign(path, "it has no plan".to_owned()))?;
    Ok(run.unpacked_in(unpacked))
}

fn foreign(path: &Path, why: String) -> BundleError {
    BundleError::Foreign { path: path.to_path_buf(), why }
}

/// The run and the parts of the name below it, if `name` is one that this program packs.
fn checked(name: &str) -> Option<(RunId, Vec<&str>)> {
    let path = Path::new(name);
    let mut parts = Vec::new();
    for component in path.components() {
        let Component::Normal(part) = component else { return None };
        parts.push(part.to_str()?);
    }
    let is_well_formed = |part: &&str| part.len() <= PART_BYTES_MAX && !part.contains(['\\', '\0']);
    let (id, below) = parts.split_first()?;
    let is_fine = !below.is_empty() && below.len() <= PARTS_MAX && below.iter().all(is_well_formed);
    // As it is spelled, and not as a path may be shortened: `a/./b` and `a//b` are nothing that was packed.
    let is_plain = name == parts.join("/");
    (is_fine && is_plain).then(|| Some((id.parse().ok()?, below.to_vec())))?
}

/// Writes a file that is not there yet; gives its size.
fn write(from: &mut impl Read, to: &Path, allowed: u64) -> io::Result<u64> {
    DirBuilder::new().recursive(true).mode(0o700).create(to.parent().unwrap_or(Path::new("/")))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let written = io::copy(&mut from.take(allowed + 1), &mut file)?;
    file.flush()?;
    if written > allowed { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(written) }
}

/// A new directory below `scratch` that nobody else can enter.
fn scratch_dir(scratch: &Path) -> Result<Unpacked, BundleError> {
    for turn in 0..1000_u32 {
        let dir = scratch.join(format!("jetfault-bundle-{}-{turn}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(Unpacked { dir }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at("make the directory", &dir, Err::<(), _>(error)).unwrap_err().into()),
        }
    }
    let full = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(at("make a directory in", scratch, Err::<(), _>(full)).unwrap_err().into())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// An archive of these files, as it would be on the disk.
    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    /// What `bytes` are refused for; nothing may be left in the scratch directory or outside of it.
    fn refused(bytes: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let (path, scratch) = (dir.path().join("x.zip"), dir.path().join("scratch"));
        fs::write(&path, bytes).unwrap();
        fs::create_dir(&scratch).unwrap();
        let error = open(&path, &scratch).unwrap_err();
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "{error}");
        error.to_string()
    }

    #[test]
    fn a_run_is_unpacked_and_gone_when_nobody_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.zip");
        fs::write(&path, archive(&[("a-001/plan.json", b"{}"), ("a-001/trials/t/stdout.log", b"x")])).unwrap();
        let run = open(&path, dir.path()).unwrap();
        assert_eq!(run.id.as_str(), "a-001");
        assert_eq!(fs::read(run.file("trials/t/stdout.log")).unwrap(), b"x");
        let (copy, at) = (run.clone(), run.path.clone());
        drop(run);
        assert!(at.is_dir());
        drop(copy);
        assert!(!at.exists() && fs::read_dir(dir.path()).unwrap().count() == 1);
    }

    #[test]
    fn what_leads_out_of_the_directory_is_refused() {
        for name in [
            "../plan.json",
            "a-001/../../plan.json",
            "/tmp/plan.json",
            "a-001/x/../plan.json",
            "a-001//plan.json",
            "a-001/./plan.json",
            "a-001\\plan.json",
            "plan.json",
            "a-001",
            "no run/plan.json",
        ] {
            let why = refused(&archive(&[("a-001/plan.json", b"{}"), (name, b"x")]));
            assert!(why.contains("not a bundle of a run"), "{name}: {why}");
        }
        let deep = format!("a-001/{}x", "d/".repeat(PARTS_MAX + 1));
        assert!(refused(&archive(&[(&deep, b"x")])).contains("it has a file"));
    }

    #[test]
    fn links_are_refused() {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file("a-001/plan.json", SimpleFileOptions::default()).unwrap();
        zip.write_all(b"{}").unwrap();
        zip.add_symlink("a-001/journal.jsonl", "/etc/passwd", SimpleFileOptions::default()).unwrap();
        assert!(refused(&zip.finish().unwrap().into_inner()).contains("is a link"));
    }

    #[test]
    fn what_swells_is_refused_while_it_swells() {
        let zeros = vec![0; 64 << 20];
        let why = refused(&archive(&[("a-001/plan.json", b"{}"), ("a-001/evidence/zeros", &zeros)]));
        assert!(why.contains("larger than it may be"), "{why}");
    }

    #[test]
    fn what_is_no_archive_or_no_run_is_refused() {
        assert!(refused(b"PK\x03\x04 and nothing more").contains("x.zip"));
        assert!(refused(b"").contains("x.zip"));
        assert!(refused(&archive(&[])).contains("nothing is in it"));
        assert!(refused(&archive(&[("a-001/journal.jsonl", b"")])).contains("no plan"));
        assert!(refused(&archive(&[("a-001/plan.json", b""), ("b-001/plan.json", b"")])).contains("more than one run"));
        let whole = archive(&[("a-001/plan.json", b"{}"), ("a-001/journal.jsonl", &[b'x'; 5000])]);
        refused(&whole[..whole.len() - 30]);
    }
}
