//! Files that are either whole or not there: write beside, sync, rename, sync the directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::perform::machine::MachineError;

/// What a file is called while it is written; one that is left behind by a death is overwritten by the next attempt.
const UNFINISHED_SUFFIX: &str = ".unfinished";

/// Adds the place to an error of the system.
pub fn at<T>(verb: &str, path: &Path, result: io::Result<T>) -> Result<T, MachineError> {
    result.map_err(|source| MachineError::new(format!("{verb} {}", path.display()), source))
}

/// Makes the entries of directory `path` durable.
///
/// # Errors
/// If the directory cannot be opened or synced.
pub fn sync_dir(path: &Path) -> Result<(), MachineError> {
    at("sync the directory", path, File::open(path).and_then(|dir| dir.sync_all()))
}

/// Writes `bytes` to `path`, whole and durable, or leaves what was there.
///
/// # Errors
/// If a write, a rename or a sync fails.
pub fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), MachineError> {
    write_whole(path, bytes, Sync::Yes)?;
    sync_dir(directory_of(path))
}

/// The directory in which `path` is: of a bare name the one that the process stands in.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

/// Writes `bytes` to `path`, whole or not at all as long as the machine stays up; a reset may leave it empty.
///
/// # Errors
/// If a write or the rename fails.
pub fn write_replaceably(path: &Path, bytes: &[u8]) -> Result<(), MachineError> {
    write_whole(path, bytes, Sync::No)
}

#[derive(PartialEq, Eq)]
enum Sync {
    Yes,
    No,
}

fn write_whole(path: &Path, bytes: &[u8], sync: Sync) -> Result<(), MachineError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED_SUFFIX);
    let unfinished = Path::new(&unfinished);
    for place in [unfinished, path] {
        make_way(place)?;
    }
    let written = create_anew(unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        if sync == Sync::Yes { file.sync_all() } else { Ok(()) }
    });
    at("write", unfinished, written)?;
    at("rename a file to", path, fs::rename(unfinished, path))
}

/// Moves a directory that stands where a file belongs aside: a workload may make one in its trial's directory, and that
/// must not keep the run from being finished.
fn make_way(path: &Path) -> Result<(), MachineError> {
    /// More than a workload needs to show that it does so on purpose.
    const ASIDE_MAX: u32 = 100;
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        return Ok(());
    }
    let aside = |number: u32| format!("{}.aside-{number}", path.display());
    let free = (1..=ASIDE_MAX).map(aside).find(|aside| fs::symlink_metadata(aside).is_err());
    let free = free.ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory));
    at("move aside the directory", path, free.and_then(|free| fs::rename(path, free)))
}

/// Makes the file `path`, in the place of one that was left behind.
///
/// It never writes through what stands there: the directory of a trial belongs to the workload's user, and a symbolic
/// link in it must not lead the harness, which may be root, to another file.
pub(super) fn create_anew(path: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).open(path);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// Opens the file `path` for reading; neither a symbolic link nor anything else than a file. Whoever owns the directory
/// could otherwise have the harness read what they may not.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("{} is not a file any more", path.display()))),
    }
}

/// Makes directory `path` with its parents; those that were made are durable.
///
/// # Errors
/// If one cannot be made or synced, or something else stands there.
pub fn make_dir_durably(path: &Path) -> Result<(), MachineError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = directory_of(path);
    make_dir_durably(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        result => at("make the directory", path, result)?,
    }
    sync_dir(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_way_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (elsewhere, result) = (dir.path().join("elsewhere"), dir.path().join("result.json"));
        fs::write(&elsewhere, "precious").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join("result.json.unfinished")).unwrap();
        write_replaceably(&result, b"{}").unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&result).unwrap().is_file());
        assert_eq!(fs::read(&result).unwrap(), b"{}");
    }

    #[test]
    fn a_directory_in_the_way_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let result = dir.path().join("result.json");
        for _ in 0..2 {
            let _ = fs::remove_file(&result);
            fs::create_dir(&result).unwrap();
            fs::create_dir(dir.path().join("result.json.unfinished")).unwrap();
            fs::write(result.join("inside"), "of the workload").unwrap();
            write_replaceably(&result, b"{}").unwrap();
            assert_eq!(fs::read(&result).unwrap(), b"{}");
        }
        assert_eq!(fs::read(dir.path().join("result.json.aside-2/inside")).unwrap(), b"of the workload");
    }
}
