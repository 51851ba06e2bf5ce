//! Where a process was when it died, from the core that the kernel wrote of it (core(5), elf(5)).
//!
//! A core is a user's file and may be made to deceive: every size in it has a limit here, nothing is believed but numbers,
//! and the worst that it does is to name a wrong place.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::decide::crash::Mapping;
use crate::model::crash::{Address, Crash, CrashedThread};
use crate::perform::elf::{half, int, part, word};
use crate::perform::files::open_file;
use crate::perform::os::Registers;
use crate::perform::places::{Places, alike};

/// The most bytes of notes that are read: a thread takes about 3 KiB, a mapped file about 100 bytes.
const NOTES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most threads that are looked at.
const THREADS_MAX: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// `ET_CORE`.
const CORE: u16 = 4;
/// Types of notes (linux/elf.h).
const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_FILE: u32 = 0x4649_4c45;
const NT_SIGINFO: u32 = 0x5349_4749;

/// A piece of memory in the file.
struct Segment {
    mapping: Mapping,
    /// Where its bytes are in the core.
    at: u64,
    /// How many of them are there.
    length: u64,
}

/// What the notes say.
#[derive(Default)]
struct Notes {
    /// The registers of each thread, the one that met the signal first.
    threads: Vec<Registers>,
    signal: i32,
    code: i32,
    address: Option<u64>,
    name: String,
    /// Start, end, offset and path of what is mapped.
    files: Vec<(u64, u64, u64, String)>,
}

/// Where the process of the core at `path` was. `program` is what it ran.
///
/// # Errors
/// If the file cannot be read, or is no core of this kind of machine with a thread in it.
pub(super) fn crash_of(path: &Path, program: &str) -> io::Result<Crash> {
    let file = open_file(path)?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    if header[..6] != *b"\x7fELF\x02\x01" || half(&header, 16) != CORE {
        return Err(io::Error::other("not a 64-bit little-endian core"));
    }
    let (mut notes, mut segments) = (Notes::default(), Vec::new());
    // 65535 headers of 56 bytes at most.
    let (size, count) = (usize::from(half(&header, 54)), usize::from(half(&header, 56)));
    for header in part(&file, word(&header, 32), size as u64 * count as u64, u64::from(u16::MAX) * 56)?
        .chunks_exact(size.max(1))
        .filter(|header| header.len() >= 56)
    {
        match int(header, 0) {
            PT_NOTE => notes.read(&part(&file, word(header, 8), word(header, 32), NOTES_BYTES_MAX)?),
            PT_LOAD => segments.push(segment(header)),
            _ => {}
        }
    }
    name(&mut segments, &notes.files);
    let mappings: Vec<Mapping> = segments.iter().map(|segment| segment.mapping.clone()).collect();
    let read = |address: u64, length: usize| read(&file, &segments, address, length);
    let (own, siblings) = notes.threads.split_first().ok_or_else(|| io::Error::other("a core without a thread"))?;
    let mut places = Places::default();
    let frames = places.frames(own, &mappings, &read);
    Ok(Crash {
        signal: notes.signal,
        code: notes.code,
        address: notes.address.filter(|_| notes.code > 0).map(Address),
        program: program.to_owned(),
        thread: CrashedThread { name: notes.name.clone(), count: 1, frames },
        others: alike(siblings.iter().map(|thread| (notes.name.clone(), places.frames(thread, &mappings, &read)))),
        registers: own.named().map(|(name, value)| (name.to_owned(), Address(value))).collect(),
    })
}

fn segment(header: &[u8]) -> Segment {
    let (flags, start) = (int(header, 4), word(header, 16));
    let mapping = Mapping {
        start,
        end: start.saturating_add(word(header, 40)),
        executable: flags & 1 != 0,
        writable: flags & 2 != 0,
        readable: flags & 4 != 0,
        offset: 0,
        path: String::new(),
    };
    Segment { mapping, at: word(header, 8), length: word(header, 32) }
}

/// Gives segments the files that they are mapped from, and puts them into order.
fn name(segments: &mut Vec<Segment>, files: &[(u64, u64, u64, String)]) {
    for Segment { mapping, .. } in &mut *segments {
        if let Some((start, _, offset, path)) =
            files.iter().find(|(start, end, ..)| (*start..*end).contains(&mapping.start))
        {
            mapping.offset = offset.saturating_add(mapping.start - start);
            mapping.path.clone_from(path);
        }
    }
    segments.sort_by_key(|segment| segment.mapping.start);
    // Mappings of a process do not overlap; what claims to is left out.
    segments.dedup_by(|next, before| next.mapping.start < before.mapping.end);
}

/// Memory of the process: from the core, or, since code is not in it, from the file that was mapped.
fn read(core: &File, segments: &[Segment], address: u64, length: usize) -> Option<Vec<u8>> {
    let index = segments.partition_point(|segment| segment.mapping.end <= address);
    let Segment { mapping, at, length: have } = segments.get(index).filter(|s| s.mapping.contains(address))?;
    let within = address - mapping.start;
    let mut bytes = vec![0; length.min(usize::try_from(mapping.end - address).ok()?)];
    let count = if within < *have {
        let inside = usize::try_from(have - within).unwrap_or(usize::MAX).min(bytes.len());
        core.read_at(&mut bytes[..inside], at.checked_add(within)?).ok()?
    } else if mapping.executable && mapping.path.starts_with('/') {
        open_file(Path::new(&mapping.path)).ok()?.read_at(&mut bytes, mapping.offset.checked_add(within)?).ok()?
    } else {
        return None;
    };
    bytes.truncate(count);
    Some(bytes)
}

impl Notes {
    /// Notes follow each other: sizes of name and content, the type, then both, each filled up to 4 bytes (elf(5)).
    fn read(&mut self, mut notes: &[u8]) {
        while notes.len() >= 12 {
            let (name, length, kind) = (int(notes, 0) as usize, int(notes, 4) as usize, int(notes, 8));
            let at = 12 + name.next_multiple_of(4);
            let Some(content) = notes.get(at..at.saturating_add(length)) else { return };
            self.note(kind, content);
            notes = notes.get(at + length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    fn note(&mut self, kind: u32, content: &[u8]) {
        match kind {
            // `struct elf_prstatus`: the signal at 12, the registers at 112.
            NT_PRSTATUS if self.threads.len() < THREADS_MAX => {
                let Some(raw) = content.get(112..112 + Registers::BYTES) else { return };
                if self.threads.is_empty() && self.signal == 0 {
                    self.signal = i32::from(half(content, 12));
                }
                self.threads.push(Registers::of(raw.to_vec()));
            }
            // `siginfo_t`: number, errno, code, and for an exception the address.
            NT_SIGINFO if content.len() >= 24 => {
                (self.signal, self.code) = (int(content, 0).cast_signed(), int(content, 8).cast_signed());
                self.address = Some(word(content, 16));
            }
            // `struct elf_prpsinfo`: 16 bytes of name at 40.
            NT_PRPSINFO if content.len() >= 56 => {
                let name = content[40..56].split(|byte| *byte == 0).next().unwrap_or_default();
                self.name = String::from_utf8_lossy(name).into_owned();
            }
            NT_FILE if content.len() >= 16 => self.files(content),
            _ => {}
        }
    }

    /// How many, the size of a page, a triple each, and then the names.
    fn files(&mut self, content: &[u8]) {
        let (count, page) = (word(content, 0), word(content, 8));
        let Some(names_at) = count.checked_mul(24).and_then(|length| usize::try_from(length).ok()?.checked_add(16))
        else {
            return;
        };
        let (Some(triples), Some(names)) = (content.get(16..names_at), content.get(names_at..)) else { return };
        let names = names.split(|byte| *byte == 0).map(|name| String::from_utf8_lossy(name).into_owned());
        self.files = triples
            .chunks_exact(24)
            .zip(names)
            .map(|(triple, name)| (word(triple, 0), word(triple, 8), word(triple, 16).saturating_mul(page), name))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_core_is_refused_and_what_is_cut_short_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        assert!(crash_of(&std::env::current_exe().unwrap(), "x").is_err());
        let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0".to_vec();
        header.resize(64, 0);
        for (offset, size, count) in
            [(64_u64, 56_u16, 0_u16), (64, 56, 3), (u64::MAX, 56, 65535), (0, 0, 65535), (0, 1, 9)]
        {
            header[32..40].copy_from_slice(&offset.to_le_bytes());
            header[54..56].copy_from_slice(&size.to_le_bytes());
            header[56..58].copy_from_slice(&count.to_le_bytes());
            std::fs::write(&path, &header).unwrap();
            assert!(crash_of(&path, "x").is_err(), "{offset} {size} {count}");
        }
        let mut notes = Notes::default();
        for kind in [NT_PRSTATUS, NT_SIGINFO, NT_PRPSINFO, NT_FILE, 77] {
            for length in 0..80 {
                let mut content = vec![0xff; length];
                notes.note(kind, &content);
                content.splice(0..0, [5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, kind as u8, 0, 0, 0]);
                notes.read(&content);
            }
        }
        assert!(notes.threads.is_empty() && notes.files.is_empty());
    }
}
