//! What reports show of files that trials and boots left: bounded pieces of them, read without following a link.
//!
//! The directory of a trial belongs to whoever ran it, and a report may be made by root and given to everybody.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::model::evidence::{Evidence, Fact};
use crate::perform::files::open_file;

/// The deepest directory of raw evidence.
const DEPTH_MAX: usize = 6;

/// The most files of raw evidence of one boot.
const FILES_MAX: usize = 1000;

/// A file, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhibit {
    /// Its name, with the directories below that of the boot or the trial.
    pub name: String,
    /// What is shown of it.
    pub bytes: Vec<u8>,
    /// How many bytes stand before that.
    pub left_out: u64,
}

/// The last `limit` bytes of the file `name` in `dir`; none if it is not there, is empty, or is no plain file.
pub fn tail(dir: &Path, name: &str, limit: u64) -> Option<Exhibit> {
    let read = || -> io::Result<Exhibit> {
        let mut file = open_file(&dir.join(name))?;
        let left_out = file.metadata()?.len().saturating_sub(limit);
        file.seek(SeekFrom::Start(left_out))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(Exhibit { name: name.to_owned(), bytes, left_out })
    };
    read().ok().filter(|exhibit| !exhibit.bytes.is_empty())
}

/// What is in `evidence.json` of the boot whose evidence is in `dir`, item by item; empty if it cannot be read.
pub fn items(dir: &Path) -> BTreeMap<String, Fact<String>> {
    const BYTES_MAX: u64 = 4 << 20;
    let read = || -> io::Result<Evidence> {
        let mut json = Vec::new();
        open_file(&dir.join("evidence.json"))?.take(BYTES_MAX).read_to_end(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    };
    read().map(|evidence| evidence.items).unwrap_or_default()
}

/// The names of the files below `dir`, sorted, a bounded number of them; links are passed over.
pub fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    walk(dir, "", 0, &mut found);
    found.sort();
    found
}

fn walk(dir: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (Ok(kind), Some(name)) = (entry.file_type(), entry.file_name().to_str().map(str::to_owned)) else {
            continue;
        };
        let name = format!("{prefix}{name}");
        if kind.is_file() && found.len() < FILES_MAX {
            found.push(name);
        } else if kind.is_dir() && depth < DEPTH_MAX {
            walk(&entry.path(), &format!("{name}/"), depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_file_is_shown_and_what_is_no_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("stderr.log"), b"0123456789").unwrap();
        fs::write(dir.path().join("empty"), b"").unwrap();
        std::os::unix::fs::symlink("stderr.log", dir.path().join("link")).unwrap();
        let exhibit = tail(dir.path(), "stderr.log", 4).unwrap();
        assert_eq!((exhibit.bytes.as_slice(), exhibit.left_out), (&b"6789"[..], 6));
        for nothing in ["empty", "link", "missing", "."] {
            assert_eq!(tail(dir.path(), nothing, 4), None, "{nothing}");
        }
    }

    #[test]
    fn files_are_found_in_directories_and_not_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("raw/pstore")).unwrap();
        fs::write(dir.path().join("raw/pstore/dmesg-0"), b"x").unwrap();
        fs::write(dir.path().join("raw/last.txt"), b"x").unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("raw/etc")).unwrap();
        assert_eq!(files_below(&dir.path().join("raw")), ["last.txt", "pstore/dmesg-0"]);
    }
}
