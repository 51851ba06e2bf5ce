//! The page cache: how much there is, dropping what is clean of it (`vm.drop_caches`, kernel documentation
//! `admin-guide/sysctl/vm.rst`), and filling it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Reach, SettingError};
use crate::perform::host::Sysroot;

const DROP_CACHES: &str = "proc/sys/vm/drop_caches";

/// Only the page cache; 2 and 3 would drop dentries and inodes as well.
const PAGE_CACHE: &str = "1";

/// How much page cache there is, in words.
pub fn page_cache(sysroot: &Sysroot) -> String {
    let meminfo = sysroot.text("proc/meminfo");
    let cached = meminfo.known().and_then(|text| text.lines().find_map(|line| line.strip_prefix("Cached:")));
    cached.map_or_else(|| "unknown".to_owned(), |cached| cached.trim().to_owned())
}

/// Drops the clean part of the page cache, after writing out what is dirty.
///
/// # Errors
/// If the kernel does not let us.
pub fn drop_page_cache(reach: Reach<'_>) -> Result<(), SettingError> {
    rustix::fs::sync();
    reach.write(DROP_CACHES, PAGE_CACHE)
}

/// A file whose pages fill the page cache. It is gone with this value, and so are its pages.
#[derive(Debug)]
pub struct FilledCache {
    path: PathBuf,
    /// How much page cache there was before and after, in words.
    pub words: String,
}

/// How much is read at once, in bytes.
const READ_BYTES: usize = 1 << 20;

/// Brings `bytes` of clean page cache in, by reading a file at `path` that is made for it.
///
/// The file is one hole: a file system brings pages of zeros for it as for any other part of a file, and the disk is
/// neither written nor worn. What else was in the cache goes where memory is short, as it would with any file.
///
/// # Errors
/// If the file cannot be made, or not be read to its end.
pub fn fill_page_cache(sysroot: &Sysroot, path: &Path, bytes: u64) -> io::Result<FilledCache> {
    let before = page_cache(sysroot);
    // What an earlier start left.
    let _ = fs::remove_file(path);
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let mut filled = FilledCache { path: path.to_owned(), words: String::new() };
    file.set_len(bytes)?;
    let mut buffer = vec![0; READ_BYTES];
    while (&file).read(&mut buffer)? > 0 {}
    filled.words = format!("{bytes} bytes were read: {before} of page cache before, {} after", page_cache(sysroot));
    Ok(filled)
}

impl Drop for FilledCache {
    fn drop(&mut self) {
        // One that stays is a hole without a byte on the disk, and the next start removes it.
        let _ = fs::remove_file(&self.path);
    }
}

pub(super) fn cannot(reach: Reach<'_>) -> Option<String> {
    if !reach.sysroot.exists(DROP_CACHES) {
        return Some(format!("there is no {}", reach.sysroot.place(DROP_CACHES).display()));
    }
    reach.lacks_root()
}
