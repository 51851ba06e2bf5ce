//! Lines of text of any origin and length, bounded.

/// Bytes at the end of an item that are looked at.
const TAIL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The last `max` lines of `bytes` that are not empty, oldest first.
pub(super) fn last_lines(bytes: &[u8], max: usize) -> Vec<&[u8]> {
    let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
    let mut lines: Vec<&[u8]> =
        bytes.rsplit(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(max).collect();
    lines.reverse();
    lines
}

/// The beginning of `text`, at most `bytes_max` bytes of it.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
