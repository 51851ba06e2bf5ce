//! What becomes of packed bytes that are passed on as if they were floats.
//!
//! Packed indices have no numeric meaning, but a framework that keeps them under a float type may convert them: a swap of
//! parameters through fp32 and back leaves every number as it was and makes one pattern of all NaN. Owns the conversion as
//! a CPU does it, and the comparison of bytes before and after. It judges nothing.

use std::collections::BTreeMap;
use std::io;

use crate::model::protocol::Mismatch;
use crate::model::settings::Storage;
use crate::workload::worker::Reporter;

/// How many patterns are told, the most frequent first.
const PATTERNS_TOLD: usize = 8;

/// Sends every element of `bytes`, seen as `storage`, through fp32 and back, as PyTorch's scalar conversions on a CPU do:
/// a NaN of bf16 becomes 7fc0 (`c10/util/BFloat16.h`), one of fp16 keeps its sign and becomes 7e00 (`c10/util/Half.h`).
/// Bytes and fp32 are what they were. What does not fill an element is left alone.
pub fn through_floats(bytes: &mut [u8], storage: Storage) {
    let canonical: fn(u16) -> u16 = match storage {
        Storage::Uint8 | Storage::Fp32 => return,
        Storage::Bf16 => |word| if word & 0x7fff > 0x7f80 { 0x7fc0 } else { word },
        Storage::Fp16 => |word| if word & 0x7fff > 0x7c00 { word & 0x8000 | 0x7e00 } else { word },
    };
    for element in bytes.as_chunks_mut::<2>().0 {
        *element = canonical(u16::from_le_bytes(*element)).to_le_bytes();
    }
}

/// The bytes that differ between two states of a packed tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Bytes of the tensor.
    pub of_bytes: u64,
    /// Bytes that differ.
    pub bytes: u64,
    /// The first of them: where, and what it was and is.
    pub first: Option<(u64, u8, u8)>,
    /// Elements of the storage type that differ, by what they were and are, with how many there are.
    pub patterns: BTreeMap<(u32, u32), u64>,
}

impl Changes {
    /// Compares two states of one tensor.
    pub fn between(before: &[u8], after: &[u8], storage: Storage) -> Self {
        let mut changes = Self { of_bytes: before.len() as u64, ..Self::default() };
        let size = storage.bytes() as usize;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        for (index, (old, new)) in before.chunks(size).zip(after.chunks(size)).enumerate() {
            if old == new {
                continue;
            }
            *changes.patterns.entry((word(old), word(new))).or_default() += 1;
            for (at, (old, new)) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new) {
                changes.bytes += 1;
                changes.first.get_or_insert(((index * size + at) as u64, *old, *new));
            }
        }
        changes
    }

    /// Tells it of the layer called `name`, changed bytes as a wrong result.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn tell(&self, name: &str, reporter: &mut Reporter) -> io::Result<()> {
        reporter.metric(&format!("{name}.passage_bytes"), self.of_bytes as f64)?;
        reporter.metric(&format!("{name}.passage_changed_bytes"), self.bytes as f64)?;
        let Some((index, old, new)) = self.first else { return Ok(()) };
        reporter.metric(&format!("{name}.passage_first_changed_byte"), index as f64)?;
        reporter.note(&format!("{name}.passage_patterns"), &self.words())?;
        reporter.mismatch(Mismatch {
            what: format!("{name}.passage"),
            index,
            expected: format!("{old:#04x}"),
            got: format!("{new:#04x}"),
            count: self.bytes,
        })
    }

    /// The patterns in words: `ff88 to 7fc0 (12 times), …`.
    fn words(&self) -> String {
        let mut patterns: Vec<_> = self.patterns.iter().collect();
        patterns.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let told = patterns.iter().take(PATTERNS_TOLD);
        let mut words: Vec<String> =
            told.map(|((old, new), count)| format!("{old:04x} to {new:04x} ({count} times)")).collect();
        if patterns.len() > PATTERNS_TOLD {
            words.push(format!("{} more", patterns.len() - PATTERNS_TOLD));
        }
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// Every 16-bit pattern, little-endian.
    fn all_words() -> Vec<u8> {
        (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn every_number_survives_and_every_nan_becomes_one_pattern() {
        for (storage, is_nan, canonical) in [
            (Storage::Bf16, (|w| bf16::from_bits(w).is_nan()) as fn(u16) -> bool, [0x7fc0, 0x7fc0]),
            (Storage::Fp16, |w| f16::from_bits(w).is_nan(), [0x7e00, 0xfe00]),
        ] {
            let (before, mut after) = (all_words(), all_words());
            through_floats(&mut after, storage);
            for (word, bytes) in (0..=u16::MAX).zip(after.as_chunks::<2>().0) {
                let expected = if is_nan(word) { canonical[usize::from(word >> 15)] } else { word };
                assert_eq!(u16::from_le_bytes(*bytes), expected, "{word:04x}");
            }
            let changes = Changes::between(&before, &after, storage);
            // All NaN but the canonical ones themselves: 2 * 127 of bf16, 2 * 1023 of fp16.
            let nan: usize = (0..=u16::MAX).filter(|word| is_nan(*word)).count();
            let kept = if storage == Storage::Bf16 { 1 } else { 2 };
            assert_eq!(changes.patterns.len(), nan - kept);
            assert!(changes.patterns.keys().all(|(old, _)| is_nan(*old as u16)));
        }
    }

    #[test]
    fn bytes_and_whole_words_are_what_they_were() {
        for storage in [Storage::Uint8, Storage::Fp32] {
            let mut after = all_words();
            through_floats(&mut after, storage);
            assert_eq!(Changes::between(&all_words(), &after, storage).bytes, 0);
        }
    }

    #[test]
    fn changes_are_counted_by_bytes_and_named_by_elements() {
        let before = [0x00, 0x00, 0x88, 0xff, 0x88, 0xff, 0xaa];
        let mut after = before;
        through_floats(&mut after, Storage::Bf16);
        let changes = Changes::between(&before, &after, Storage::Bf16);
        assert_eq!((changes.of_bytes, changes.bytes, changes.first), (7, 4, Some((2, 0x88, 0xc0))));
        assert_eq!(changes.words(), "ff88 to 7fc0 (2 times)");
    }
}
