//! Pictures as SVG text: a few shapes, numbers with one decimal, and every word escaped.

use std::fmt::{self, Write};

/// A picture in the making.
#[derive(Debug)]
pub(super) struct Svg {
    out: String,
}

/// The end of a line at which a text stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A picture `width` by `height`, called `class` by the style sheet. `label` says what it shows to whoever cannot see
    /// it; without one it is left out of what is read aloud, because the text beside it says the same.
    pub(super) fn new(class: &str, width: f64, height: f64, label: Option<&str>) -> Self {
        let mut out = String::new();
        let _ = write!(out, "<svg class=\"{class}\" viewBox=\"0 0 {} {}\"", Number(width), Number(height));
        match label {
            Some(label) => {
                let _ = write!(out, " role=\"img\" aria-label=\"{}\">", Escaped(label));
            }
            None => out.push_str(" aria-hidden=\"true\">"),
        }
        Self { out }
    }

    /// A line.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (Number(from.0), Number(from.1), Number(to.0), Number(to.1));
        let _ = write!(self.out, "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>");
    }

    /// A rectangle with its upper left corner at `at`; `title` is shown to whoever points at it.
    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), title: Option<&str>) {
        let (x, y, width, height) = (Number(at.0), Number(at.1), Number(size.0.max(0.0)), Number(size.1.max(0.0)));
        let _ = write!(self.out, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
        match title {
            Some(title) => {
                let _ = write!(self.out, "><title>{}</title></rect>", Escaped(title));
            }
            None => self.out.push_str("/>"),
        }
    }

    /// A path through `points`; it is broken where there is none.
    pub(super) fn path(&mut self, class: &str, points: impl IntoIterator<Item = Option<(f64, f64)>>) {
        let _ = write!(self.out, "<path class=\"{class}\" d=\"");
        let mut is_down = false;
        for point in points {
            if let Some((x, y)) = point {
                let _ = write!(self.out, "{}{} {}", if is_down { 'L' } else { 'M' }, Number(x), Number(y));
            }
            is_down = point.is_some();
        }
        self.out.push_str("\"/>");
    }

    /// A text whose line begins, has its middle or ends at `at`.
    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y) = (Number(at.0), Number(at.1));
        let _ = write!(self.out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{}</text>", Escaped(text));
    }

    /// The picture.
    pub(super) fn finish(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}

/// A number with at most one decimal. What is not finite is drawn at 0: no reader of SVG takes it.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = if self.0.is_finite() { (self.0 * 10.0).round() as i64 } else { 0 };
        let sign = if tenths < 0 { "-" } else { "" };
        match (tenths.unsigned_abs() / 10, tenths.unsigned_abs() % 10) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (whole, tenth) => write!(f, "{sign}{whole}.{tenth}"),
        }
    }
}

/// Text with everything replaced that mark-up would be read into, in text and in attributes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // XML has no other control characters, not even as entities.
                c if c.is_control() => f.write_char(' ')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_finite() {
        for (number, text) in [(0.0, "0"), (12.34, "12.3"), (-0.26, "-0.3"), (-0.04, "0"), (f64::NAN, "0"), (5.0, "5")]
        {
            assert_eq!(Number(number).to_string(), text);
        }
    }

    #[test]
    fn no_text_is_read_as_mark_up() {
        let mut svg = Svg::new("x", 1.0, 1.0, Some("\"><script>"));
        svg.text("t", (0.0, 0.0), Anchor::End, "</text><script>'&\u{1b}");
        svg.rect("r", (0.0, 0.0), (1.0, 1.0), Some("<b>"));
        let svg = svg.finish();
        assert!(!svg.contains("<script>") && !svg.contains("<b>") && !svg.contains('\u{1b}'), "{svg}");
        assert!(svg.contains("aria-label=\"&quot;&gt;&lt;script&gt;\""), "{svg}");
    }

    #[test]
    fn a_path_is_broken_where_nothing_is_known() {
        let mut svg = Svg::new("x", 1.0, 1.0, None);
        svg.path("p", [Some((0.0, 1.0)), Some((1.0, 2.0)), None, Some((3.0, 4.0))]);
        assert!(svg.finish().contains("d=\"M0 1L1 2M3 4\""));
    }
}
