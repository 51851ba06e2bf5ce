//! What an ELF file says about itself: the build id that its linker gave it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The most bytes of program headers and of notes that are read; real ones have a few hundred.
const PART_BYTES_MAX: u64 = 64 * 1024;

/// The type of a segment of notes, and of the note with the build id (elf.h: `PT_NOTE`, `NT_GNU_BUILD_ID`).
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// The build id of the 64-bit little-endian file at `path`, in hexadecimal; none if it has none.
///
/// # Errors
/// If it cannot be read, or is no such file.
pub(super) fn build_id(path: &Path) -> io::Result<Option<String>> {
    let file = File::open(path)?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Err(io::Error::other("not a 64-bit little-endian ELF file"));
    }
    let (at, size, count) = (word(&header, 32), half(&header, 54), half(&header, 56));
    let headers = part(&file, at, u64::from(size) * u64::from(count), PART_BYTES_MAX)?;
    for header in headers.chunks_exact(usize::from(size).max(1)) {
        if header.len() >= 56 && int(header, 0) == PT_NOTE {
            let notes = part(&file, word(header, 8), word(header, 32), PART_BYTES_MAX)?;
            if let Some(id) = gnu_build_id(&notes) {
                return Ok(Some(id));
            }
        }
    }
    Ok(None)
}

/// `length` bytes of `file`, `most` of them at most.
///
/// # Errors
/// If the file is shorter.
pub(super) fn part(file: &File, at: u64, length: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length.min(most)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Notes follow each other: sizes of name and content, the type, then both, each filled up to 4 bytes (elf(5)).
fn gnu_build_id(mut notes: &[u8]) -> Option<String> {
    while notes.len() >= 12 {
        let (name, content, kind) = (int(notes, 0) as usize, int(notes, 4) as usize, int(notes, 8));
        let content_at = 12 + name.next_multiple_of(4);
        let found = notes.get(content_at..content_at.checked_add(content)?)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") {
            return Some(found.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(content_at + content.next_multiple_of(4)..)?;
    }
    None
}

/// A little-endian number of `bytes`, which must be long enough.
pub(super) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// A little-endian number of `bytes`, which must be long enough.
pub(super) fn int(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A little-endian number of `bytes`, which must be long enough.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_the_linkers_and_a_file_that_is_none_is_refused() {
        let id = *b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0\x01\x02\x03\x04\xab\xcd\xef\x00";
        let other = *b"\x05\0\0\0\x04\0\0\0\x01\0\0\0stap\0\0\0\0\xff\xff\xff\xff";
        assert_eq!(gnu_build_id(&[&other[..], &id].concat()).as_deref(), Some("01020304abcdef00"));
        assert_eq!(gnu_build_id(&other), None);
        assert_eq!(gnu_build_id(b"\xff\xff\xff\xff\xff\xff\xff\xff\x03\0\0\0GNU\0"), None);
        assert!(build_id(Path::new("/proc/self/status")).is_err());
        assert!(build_id(&std::env::current_exe().unwrap()).is_ok());
    }
}
