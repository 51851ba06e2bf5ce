//! A small core file: the registers and stacks of every thread and what the loader knows of libraries, no more.
//!
//! A debugger finds in it what a stack trace needs, and it has the size of stacks whatever the process had: a builder of
//! 20 GB leaves a few megabytes. It is written while the process is stopped, wherever the kernel would put its own.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::Pid;

use crate::decide::crash::Mapping;
use crate::perform::files::create_anew;
use crate::perform::os::{Registers, Signalled};

/// The most bytes of memory in one file.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The most bytes of one stack, from its pointer on.
const STACK_BYTES_MAX: u64 = 256 * 1024;

/// What lies below the stack pointer and belongs to the function all the same (System V ABI for x86-64, 3.2.2).
const RED_ZONE: u64 = 128;

/// The most bytes of one piece of other memory: the loader's and the libraries' variables are smaller.
const PIECE_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// What to write down.
pub(super) struct Dump<'a> {
    /// The process.
    pub(super) leader: Pid,
    /// The thread that met the signal.
    pub(super) thread: Pid,
    /// The signal.
    pub(super) signalled: &'a Signalled,
    /// That thread's registers.
    pub(super) own: &'a Registers,
    /// The registers of the others.
    pub(super) siblings: &'a [(Pid, Registers)],
    /// The process's memory map.
    pub(super) mappings: &'a [Mapping],
    /// The process's memory.
    pub(super) memory: &'a File,
}

/// A piece of memory in the file.
struct Piece {
    start: u64,
    length: u64,
}

/// Writes the file, in the place of one that is there.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write(path: &Path, dump: &Dump<'_>) -> io::Result<()> {
    let notes = notes(dump);
    let pieces = pieces(dump);
    let headers = 64 + 56 * (1 + pieces.len() as u64);
    // What an earlier signal left, which the process survived.
    let _ = std::fs::remove_file(path);
    let mut out = BufWriter::new(create_anew(path)?);
    out.write_all(&elf_header(pieces.len() + 1))?;
    out.write_all(&program_header(PT_NOTE, 0, headers, 0, notes.len() as u64))?;
    let mut at = headers + notes.len() as u64;
    for piece in &pieces {
        out.write_all(&program_header(PT_LOAD, READ_WRITE, at, piece.start, piece.length))?;
        at += piece.length;
    }
    out.write_all(&notes)?;
    let mut buffer = vec![0; 64 * 1024];
    for piece in &pieces {
        let mut done = 0;
        while done < piece.length {
            let length = usize::try_from(piece.length - done).unwrap_or(buffer.len()).min(buffer.len());
            let part = &mut buffer[..length];
            // What cannot be read is zero, as in a kernel's core.
            let count = dump.memory.read_at(part, piece.start + done).unwrap_or(0);
            part[count..].fill(0);
            out.write_all(part)?;
            done += length as u64;
        }
    }
    out.flush()
}

/// Stacks first, then data, the smallest first, as far as there is room. What the loader knows of libraries stands in
/// data that it makes read-only once it is written.
fn pieces(dump: &Dump<'_>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut room = BYTES_MAX;
    let pointers = std::iter::once(dump.own).chain(dump.siblings.iter().map(|(_, registers)| registers));
    let stacks = pointers.filter_map(|registers| {
        let start = registers.stack_pointer.saturating_sub(RED_ZONE) & !7;
        let mapping = dump.mappings.iter().find(|mapping| mapping.contains(start))?;
        Some(Piece { start, length: (mapping.end - start).min(STACK_BYTES_MAX) })
    });
    let mut others: Vec<&Mapping> =
        dump.mappings.iter().filter(|mapping| mapping.readable && !mapping.executable).collect();
    others.sort_by_key(|mapping| mapping.end - mapping.start);
    let others = others
        .into_iter()
        .map(|mapping| Piece { start: mapping.start, length: (mapping.end - mapping.start).min(PIECE_BYTES_MAX) });
    for piece in stacks.chain(others) {
        let overlaps =
            |other: &Piece| piece.start < other.start + other.length && other.start < piece.start + piece.length;
        if piece.length <= room && !pieces.iter().any(overlaps) {
            room -= piece.length;
            pieces.push(piece);
        }
    }
    pieces.sort_by_key(|piece| piece.start);
    pieces
}

/// Notes of a core (elfcore.h): one `NT_PRSTATUS` a thread, the one with the signal first; what the loader was told; and
/// which file lies where.
fn notes(dump: &Dump<'_>) -> Vec<u8> {
    let mut notes = Vec::new();
    note(&mut notes, NT_PRSTATUS, &prstatus(dump, dump.thread, dump.own));
    for (thread, registers) in dump.siblings {
        note(&mut notes, NT_PRSTATUS, &prstatus(dump, *thread, registers));
    }
    let auxv = std::fs::read(format!("/proc/{}/auxv", dump.leader.as_raw_nonzero())).unwrap_or_default();
    note(&mut notes, NT_AUXV, &auxv);
    note(&mut notes, NT_FILE, &files(dump.mappings));
    notes
}

/// `struct elf_prstatus` of 64-bit Linux: signal at 0 and 12, ids at 32, registers at 112, whether there are more behind.
fn prstatus(dump: &Dump<'_>, thread: Pid, registers: &Registers) -> Vec<u8> {
    let mut status = vec![0; 112];
    if thread == dump.thread {
        status[0..4].copy_from_slice(&dump.signalled.signal.to_le_bytes());
        status[4..8].copy_from_slice(&dump.signalled.code.to_le_bytes());
        status[12..14].copy_from_slice(&dump.signalled.signal.to_le_bytes()[..2]);
    }
    status[32..36].copy_from_slice(&thread.as_raw_nonzero().get().to_le_bytes());
    status.extend(&registers.raw);
    status.resize(status.len() + 8, 0);
    status
}

/// `NT_FILE`: how many, the page size 1, a triple each, and then the names (fs/binfmt_elf.c, `fill_files_note`).
fn files(mappings: &[Mapping]) -> Vec<u8> {
    let files: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.path.starts_with('/')).collect();
    let mut content = Vec::new();
    content.extend((files.len() as u64).to_le_bytes());
    content.extend(1_u64.to_le_bytes());
    for file in &files {
        [file.start, file.end, file.offset].iter().for_each(|word| content.extend(word.to_le_bytes()));
    }
    for file in &files {
        content.extend(file.path.as_bytes());
        content.push(0);
    }
    content
}

fn note(notes: &mut Vec<u8>, kind: u32, content: &[u8]) {
    notes.extend(5_u32.to_le_bytes());
    notes.extend((content.len() as u32).to_le_bytes());
    notes.extend(kind.to_le_bytes());
    notes.extend(b"CORE\0\0\0\0");
    notes.extend(content);
    notes.resize(notes.len().next_multiple_of(4), 0);
}

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const READ_WRITE: u32 = 6;
const NT_PRSTATUS: u32 = 1;
const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;
/// `EM_X86_64` and `EM_AARCH64`.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// `Elf64_Ehdr` of a core with `headers` program headers right behind it.
fn elf_header(headers: usize) -> Vec<u8> {
    /// `ET_CORE`.
    const CORE: u16 = 4;
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend(CORE.to_le_bytes());
    header.extend(MACHINE.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    for word in [0_u64, 64, 0] {
        header.extend(word.to_le_bytes());
    }
    header.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, u16::try_from(headers).unwrap_or(u16::MAX), 0, 0, 0] {
        header.extend(half.to_le_bytes());
    }
    header
}

/// `Elf64_Phdr`.
fn program_header(kind: u32, flags: u32, at: u64, address: u64, length: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(56);
    header.extend(kind.to_le_bytes());
    header.extend(flags.to_le_bytes());
    for word in [at, address, 0, length, if kind == PT_LOAD { length } else { 0 }, 1] {
        header.extend(word.to_le_bytes());
    }
    header
}
