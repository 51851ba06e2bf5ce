//! Which files and offsets the addresses of a process are: from its memory map, the words of its stack, and the build ids
//! of its files.

use std::collections::BTreeMap;
use std::path::Path;

use crate::decide::crash::{Mapping, mapping_of, return_addresses, strip};
use crate::model::crash::{Address, CrashedThread, FRAMES_MAX, Frame, THREADS_MAX};
use crate::perform::elf;
use crate::perform::os::Registers;

/// How many bytes of a stack are searched for return addresses.
const STACK_BYTES: usize = 64 * 1024;

/// How many bytes before an address may belong to the call that returns there.
const CALL_BYTES: usize = 8;

/// The most frames of a thread that met no signal.
const OTHER_FRAMES_MAX: usize = 2;

/// Finds places. A file is read once for its build id.
#[derive(Debug, Default)]
pub(super) struct Places {
    build_ids: BTreeMap<String, Option<String>>,
}

impl Places {
    /// Where a thread with these `registers` is, innermost first: the first is certain, the others are what its stack
    /// holds of return addresses. `read` gives memory of the process, as much of a length as there is.
    pub(super) fn frames(
        &mut self,
        registers: &Registers,
        mappings: &[Mapping],
        read: &dyn Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Frame> {
        let stack =
            mapping_of(registers.stack_pointer, mappings).map_or(0, |mapping| mapping.end - registers.stack_pointer);
        let stack =
            read(registers.stack_pointer, usize::try_from(stack).unwrap_or(0).min(STACK_BYTES)).unwrap_or_default();
        let words = stack.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let linked = registers.link.into_iter();
        let code_before = |address: u64| {
            read(address.checked_sub(CALL_BYTES as u64)?, CALL_BYTES).filter(|code| code.len() == CALL_BYTES)
        };
        let behind = return_addresses(linked.chain(words), mappings, code_before).map(strip).take(FRAMES_MAX - 1);
        self.at(std::iter::once(registers.instruction).chain(behind), mappings)
    }

    /// The places of `addresses`, equal ones that follow each other once.
    pub(super) fn at(&mut self, addresses: impl Iterator<Item = u64>, mappings: &[Mapping]) -> Vec<Frame> {
        let mut frames: Vec<Frame> = addresses.map(|address| self.frame(address, mappings)).collect();
        frames.dedup();
        frames
    }

    fn frame(&mut self, address: u64, mappings: &[Mapping]) -> Frame {
        let Some(mapping) = mapping_of(address, mappings).filter(|mapping| !mapping.module().is_empty()) else {
            return Frame { module: String::new(), build_id: None, offset: Address(address) };
        };
        let build_id = match self.build_ids.get(&mapping.path) {
            Some(known) => known.clone(),
            None => {
                let id = elf::build_id(Path::new(&mapping.path)).ok().flatten();
                self.build_ids.insert(mapping.path.clone(), id.clone());
                id
            }
        };
        Frame {
            module: mapping.module().to_owned(),
            build_id,
            offset: Address(address - mapping.start + mapping.offset),
        }
    }
}

/// Threads beside the one that met the signal, alike ones counted together, the most frequent first.
pub(super) fn alike(threads: impl Iterator<Item = (String, Vec<Frame>)>) -> Vec<CrashedThread> {
    let mut kinds: Vec<CrashedThread> = Vec::new();
    for (name, mut frames) in threads {
        frames.truncate(OTHER_FRAMES_MAX);
        match kinds.iter_mut().find(|known| known.name == name && known.frames == frames) {
            Some(known) => known.count += 1,
            None => kinds.push(CrashedThread { name, count: 1, frames }),
        }
    }
    kinds.sort_by_key(|known| std::cmp::Reverse(known.count));
    kinds.truncate(THREADS_MAX);
    kinds
}
