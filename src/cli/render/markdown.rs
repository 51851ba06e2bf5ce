//! Markdown that a bug tracker renders: what comes from outside is made harmless, and what must not be seen is replaced.
//!
//! Whatever comes from outside stands in code spans and code blocks, where no mark-up, mention, link or issue number is
//! read into it; where it stands in a sentence of ours, every mark is escaped and every automatic link is broken.

use super::one_line;
use super::table::cut;

/// The longest text from outside in one place, in characters.
const SPAN_CHARS_MAX: usize = 200;

/// What stands between a mark and what would make it a link: GitHub looks for mentions, issues and addresses in the text
/// that is shown, so an escaped character alone does not keep it from that.
const LINK_BREAK: &str = "&#8203;";

/// Writes text from outside.
pub struct Safe<'r> {
    redact: &'r mut dyn FnMut(&str) -> String,
}

impl<'r> Safe<'r> {
    /// A writer that shows texts as `redact` leaves them.
    pub fn new(redact: &'r mut dyn FnMut(&str) -> String) -> Self {
        Self { redact }
    }

    /// `text` without what must not be seen.
    pub(super) fn bare(&mut self, text: &str) -> String {
        (self.redact)(text)
    }

    /// `text` as a code span; see [`code`].
    pub(super) fn code(&mut self, text: &str) -> String {
        code(&self.bare(text))
    }

    /// `text` in a sentence; see [`prose`].
    pub(super) fn prose(&mut self, text: &str) -> String {
        prose(&self.bare(text))
    }

    /// `text` as a code block of at most `bytes`, cut at the end of a line.
    pub(super) fn block(&mut self, language: &str, text: &str, bytes: usize) -> String {
        let text = self.bare(text);
        let (kept, is_cut) = head(&text, bytes);
        let kept: String =
            kept.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c }).collect();
        let longest = kept.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat((longest + 1).max(3));
        let more = if is_cut { "\n… cut here" } else { "" };
        format!("{fence}{language}\n{}{more}\n{fence}\n", kept.trim_end_matches('\n'))
    }
}

/// The first lines of `text` that take at most `bytes`, and whether there are more.
fn head(text: &str, bytes: usize) -> (&str, bool) {
    if text.len() <= bytes {
        return (text, false);
    }
    let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    (&text[..text[..end].rfind('\n').unwrap_or(end)], true)
}

/// Text from outside as a code span that is safe in a table cell: one line, cut, and fenced with more backticks than it
/// has in a row.
pub(super) fn code(text: &str) -> String {
    let text = cut(&one_line(text), SPAN_CHARS_MAX).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') || text.is_empty() { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Text of ours that holds text from outside, with everything escaped that Markdown or GitHub would read into it.
pub(super) fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut before = ' ';
    for c in one_line(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '@' | '#' => {
                out.push(c);
                out.push_str(LINK_BREAK);
            }
            // `https://…`, and `www.…`, which becomes a link by itself.
            '/' if before == ':' => {
                out.push_str(LINK_BREAK);
                out.push(c);
            }
            '.' if before.eq_ignore_ascii_case(&'w') => {
                out.push_str(LINK_BREAK);
                out.push(c);
            }
            _ => out.push(c),
        }
        before = c;
    }
    // A list or a heading where a line begins with it.
    if out.starts_with(['-', '+', '=']) {
        out.insert(0, '\\');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_read_as_markdown_or_becomes_a_link() {
        for (text, expected) in [
            ("*a_b* of @somebody, see #1", "\\*a\\_b\\* of @&#8203;somebody, see #&#8203;1"),
            ("<script>&amp;", "&lt;script&gt;&amp;amp;"),
            ("see https://example.org", "see https:&#8203;//example.org"),
            ("www.example.org", "www&#8203;.example.org"),
            ("- [x] done", "\\- \\[x\\] done"),
            ("a\n# b\r\n\x1b[31mc", "a #&#8203; b \\[31mc"),
        ] {
            assert_eq!(prose(text), expected);
        }
    }

    #[test]
    fn a_code_span_holds_whatever_backticks_there_are() {
        for (text, expected) in
            [("plain", "`plain`"), ("a`b``c", "```a`b``c```"), ("`", "`` ` ``"), ("", "`  `"), ("a|b\nc", "`a\\|b c`")]
        {
            assert_eq!(code(text), expected);
        }
    }

    #[test]
    fn a_code_block_cannot_be_closed_from_inside_and_is_cut_between_lines() {
        let mut redact = |text: &str| text.replace("secret", "serial-1");
        let mut safe = Safe::new(&mut redact);
        assert_eq!(
            safe.block("", "```\n</details> secret\n````\n", 1000),
            "`````\n```\n</details> serial-1\n````\n`````\n"
        );
        assert_eq!(safe.block("toml", "one\ntwo\nthree", 9), "```toml\none\ntwo\n… cut here\n```\n");
        assert_eq!(safe.block("", "ééé", 3), "```\né\n… cut here\n```\n");
    }
}
