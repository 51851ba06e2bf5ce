//! Blockwise 4-bit dequantisation: the bits of the twin `dequantize_4bit`, 16 products a block.
//!
//! A block has at most 16 different values, so they are computed once and looked up.

use rayon::prelude::*;

use super::{TASK_ELEMENTS, zeroed};
use crate::model::settings::Blocksize;
use crate::workload::reference::codebook::CodeBook;
use crate::workload::reference::numbers::{Element, flush};
use crate::workload::reference::quantize_4bit::Quantized;
use crate::workload::spec::LayerError;

/// The first `n` elements of `quantized` in the format `T`.
///
/// # Errors
/// If the host does not give the memory for the result.
pub fn dequantize_4bit<T: Element + Default>(
    quantized: &Quantized,
    book: CodeBook,
    blocksize: Blocksize,
    n: usize,
) -> Result<Vec<T>, LayerError> {
    let mut out = zeroed::<T>(n, "dequantised weights")?;
    let blocks = Blocks { packed: &quantized.packed, absmax: &quantized.absmax, book, blocksize };
    out.par_chunks_mut(TASK_ELEMENTS).enumerate().for_each(|(task, out)| {
        blocks.decode(task * TASK_ELEMENTS, out, T::round);
    });
    Ok(out)
}

/// A packed byte stream with its statistics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks<'a> {
    pub(crate) packed: &'a [u8],
    pub(crate) absmax: &'a [f32],
    pub(crate) book: CodeBook,
    pub(crate) blocksize: Blocksize,
}

impl Blocks<'_> {
    /// Decodes `out.len()` elements from element `start` on, each passed through `round`.
    pub(crate) fn decode<T: Copy>(&self, start: usize, out: &mut [T], round: impl Fn(f32) -> T) {
        let codes = self.book.kernel_table();
        let blocksize = self.blocksize.elements();
        let (mut at, mut out) = (start, out);
        while !out.is_empty() {
            let block = at / blocksize;
            let absmax = flush(self.absmax[block]);
            let table = codes.map(|code| round(flush(flush(code) * absmax)));
            let run = ((block + 1) * blocksize - at).min(out.len());
            let (head, tail) = out.split_at_mut(run);
            decode_run(self.packed, at, head, &table);
            (at, out) = (at + run, tail);
        }
    }
}

/// Looks up the nibbles from element `start` on; a row of odd length may begin in the middle of a byte.
fn decode_run<T: Copy>(packed: &[u8], start: usize, out: &mut [T], table: &[T; 16]) {
    let packed = &packed[start / 2..];
    let odd = start % 2;
    let (first, out) = out.split_at_mut(odd.min(out.len()));
    if let [first] = first {
        *first = table[usize::from(packed[0] & 15)];
    }
    let packed = &packed[odd..];
    let (pairs, last) = out.as_chunks_mut::<2>();
    if let [last] = last {
        *last = table[usize::from(packed[pairs.len()] >> 4)];
    }
    for (pair, byte) in pairs.iter_mut().zip(packed) {
        *pair = [table[usize::from(byte >> 4)], table[usize::from(byte & 15)]];
    }
}
