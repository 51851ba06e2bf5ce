//! The page cache: how much there is, and dropping what is clean of it (`vm.drop_caches`, kernel documentation
//! `admin-guide/sysctl/vm.rst`).

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

pub(super) fn cannot(reach: Reach<'_>) -> Option<String> {
    if !reach.sysroot.exists(DROP_CACHES) {
        return Some(format!("there is no {}", reach.sysroot.place(DROP_CACHES).display()));
    }
    reach.lacks_root()
}
