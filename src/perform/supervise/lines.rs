//! What the lines of a child's output mean: stages, numbers, promises, and the words of an error.
//!
//! Bytes come in pieces of any size and may be anything. Memory is bounded by [`LINE_BYTES_MATCHED`], and time is
//! linear in the output: the patterns never backtrack.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use regex::bytes::Regex as BytesRegex;

use crate::decide::signs::{HINTS, known_text};
use crate::model::outcome::KnownText;
use crate::model::verdict::StageName;
use crate::perform::supervise::READY_STAGE;
use crate::perform::supervise::launch::{CommandLine, Expectation};

/// How much of a line is compared with patterns, in bytes; the rest of a longer line is skipped.
pub(super) const LINE_BYTES_MATCHED: usize = 64 * 1024;

/// The longest error text kept, in characters.
pub(super) const ERROR_TEXT_CHARS_MAX: usize = 200;

/// The most meanings that are kept.
const KNOWN_TEXTS_MAX: usize = 16;

/// Cuts a stream into lines. A carriage return ends a line too: progress bars redraw one for hours.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    is_skipping: bool,
}

impl Lines {
    /// Takes the next bytes and gives each complete, non-empty line to `sink`.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.extend(&bytes[..end], &mut sink);
            self.end_line(&mut sink);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes, &mut sink);
    }

    /// The stream ended: gives its last, unfinished line.
    pub(super) fn finish(&mut self, mut sink: impl FnMut(&[u8])) {
        self.end_line(&mut sink);
    }

    fn extend(&mut self, bytes: &[u8], sink: &mut impl FnMut(&[u8])) {
        if self.is_skipping {
            return;
        }
        let room = LINE_BYTES_MATCHED - self.partial.len();
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() >= room {
            sink(&self.partial);
            self.partial.clear();
            self.is_skipping = true;
        }
    }

    fn end_line(&mut self, sink: &mut impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            sink(&self.partial);
        }
        self.partial.clear();
        self.is_skipping = false;
    }
}

/// Finds lines whose meaning is known, each meaning once, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct KnownTexts(Vec<KnownText>);

/// Most lines are passed over by one search.
static HINT: LazyLock<BytesRegex> =
    LazyLock::new(|| BytesRegex::new(&format!("(?i-u){}", HINTS.join("|"))).expect("the hints are plain words"));

impl KnownTexts {
    pub(super) fn line(&mut self, line: &[u8]) {
        if self.0.len() < KNOWN_TEXTS_MAX
            && HINT.is_match(line)
            && let Some(known) = known_text(line).filter(|known| !self.0.contains(known))
        {
            self.0.push(known);
        }
    }

    pub(super) fn finish(&mut self) -> Vec<KnownText> {
        std::mem::take(&mut self.0)
    }
}

/// Compares lines with what a command's matrix says about them.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    stages: Vec<(StageName, BytesRegex)>,
    /// Stages before this one were reached or passed.
    next_stage: usize,
    patterns: Vec<(String, BytesRegex)>,
    /// The last number of each metric; NaN and infinities are none for the journal, and are wrong in a range.
    metrics: BTreeMap<String, f64>,
    expectations: Vec<Expected>,
    /// The first line that matches shows a server to be ready.
    ready: Option<BytesRegex>,
}

/// An expectation and how it stands.
#[derive(Debug)]
struct Expected {
    what: Expectation,
    search: Option<BytesRegex>,
    is_found: bool,
}

impl Expected {
    fn of(what: &Expectation) -> Self {
        let search = match what {
            Expectation::Contains(text) | Expectation::Lacks(text) => Some(literal(text)),
            Expectation::Matches(pattern) => Some(pattern.clone()),
            Expectation::Number(..) => None,
        };
        Self { what: what.clone(), search, is_found: false }
    }

    fn line(&mut self, line: &[u8]) {
        self.is_found = self.is_found || self.search.as_ref().is_some_and(|search| search.is_match(line));
    }

    /// Why it is not met, in words.
    fn unmet(&self, metrics: &BTreeMap<String, f64>) -> Option<String> {
        match (&self.what, self.is_found) {
            (Expectation::Contains(text), false) => Some(format!("no line of output contains {text:?}")),
            (Expectation::Lacks(text), true) => Some(format!("a line of output contains {text:?}")),
            (Expectation::Matches(pattern), false) => Some(format!("no line of output matches {:?}", pattern.as_str())),
            (Expectation::Number(name, range), _) => match metrics.get(name) {
                None => Some(format!("no line of output gives the number {name}")),
                Some(number) if range.contains(*number) => None,
                Some(number) => Some(format!("{name} is {number}, not {range}")),
            },
            (Expectation::Contains(_) | Expectation::Matches(_), true) | (Expectation::Lacks(_), false) => None,
        }
    }
}

impl Scanner {
    /// A scanner for the output of `command`.
    pub(super) fn new(command: &CommandLine) -> Self {
        Self {
            stages: command.stages.clone(),
            next_stage: 0,
            patterns: command.metrics.clone(),
            metrics: BTreeMap::new(),
            expectations: command.expect_output.iter().map(Expected::of).collect(),
            ready: command.ready.clone(),
        }
    }

    /// Looks at a line; the stages that it shows to be reached.
    pub(super) fn line(&mut self, line: &[u8]) -> impl Iterator<Item = StageName> {
        for (name, pattern) in &self.patterns {
            let group = pattern.captures(line).and_then(|captures| captures.get(1));
            let number = group.and_then(|group| std::str::from_utf8(group.as_bytes()).ok()?.parse::<f64>().ok());
            if let Some(number) = number {
                self.metrics.insert(name.clone(), number);
            }
        }
        self.expectations.iter_mut().for_each(|expected| expected.line(line));
        let ready = self.ready.take_if(|pattern| pattern.is_match(line)).map(|_| ready_stage());
        self.stage(line).into_iter().chain(ready)
    }

    fn stage(&mut self, line: &[u8]) -> Option<StageName> {
        let ahead = self.stages[self.next_stage..].iter().position(|(_, pattern)| pattern.is_match(line))?;
        self.next_stage += ahead + 1;
        Some(self.stages[self.next_stage - 1].0.clone())
    }

    /// The numbers found, and the promises not kept, in words.
    pub(super) fn finish(&mut self) -> (BTreeMap<String, f64>, Vec<String>) {
        let words = self.expectations.drain(..).filter_map(|expected| expected.unmet(&self.metrics)).collect();
        // Infinities and NaN have no form in the journal.
        self.metrics.retain(|_, number| number.is_finite());
        (std::mem::take(&mut self.metrics), words)
    }
}

fn ready_stage() -> StageName {
    READY_STAGE.parse().expect("a constant stage name")
}

/// The engine finds a literal text many times faster than a comparison at each position does.
fn literal(text: &str) -> BytesRegex {
    BytesRegex::new(&regex::escape(text)).expect("an escaped text is a pattern")
}

/// The first line of error output that looks like an error, else the last line.
#[derive(Debug, Default)]
pub(super) struct ErrorText {
    first_error: Option<String>,
    last_line: Option<String>,
}

impl ErrorText {
    /// Looks at a line of standard error.
    pub(super) fn line(&mut self, line: &[u8]) {
        if self.first_error.is_some() {
            return;
        }
        // Only the first characters matter, and decoding all of a flood would cost more than the flood.
        let text = String::from_utf8_lossy(&line[..line.len().min(4 * ERROR_TEXT_CHARS_MAX)]);
        if text.trim().is_empty() {
            return;
        }
        // Indented lines are source lines of a traceback, which often name an error that they do not report.
        if !text.starts_with([' ', '\t']) && ERROR_WORD.is_match(&text) {
            self.first_error = Some(text.trim_end().to_owned());
        } else {
            text.trim().clone_into(self.last_line.get_or_insert_default());
        }
    }

    /// The text for the signature, normalised; `trial_dir` differs from trial to trial and gives way to `<trial>`.
    /// After exit 0 only a line that looks like an error counts.
    pub(super) fn finish(&self, succeeded: Succeeded, trial_dir: &str) -> Option<String> {
        let last_line = match succeeded {
            Succeeded::Yes => None,
            Succeeded::No => self.last_line.as_ref(),
        };
        let text = self.first_error.as_ref().or(last_line)?;
        Some(normalise(&text.replace(trial_dir, "<trial>")))
    }
}

/// Whether the child exited with code 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Succeeded {
    /// It did.
    Yes,
    /// It did not.
    No,
}

/// Words by which programs announce an error. `\b` keeps `error_count` and `errors: 0` out; `RuntimeError` is in.
static ERROR_WORD: LazyLock<Regex> = LazyLock::new(|| {
    let words = r"(?i:\b(error|exception|fatal|aborted|failed|failure|panicked|assertion|segmentation fault)\b)";
    let names = r"\b\w+(Error|Exception)\b";
    Regex::new(&format!("{words}|{names}")).expect("a constant pattern")
});

/// What differs between two runs of the same fault, and what stands for it in a signature.
static VOLATILE: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let volatile = [
        (r"\x1b\[[0-9;]*m", ""),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
        (r"\b0x[0-9a-fA-F]+\b", "<addr>"),
        (r"\b(?:[0-9a-f]*[0-9][0-9a-f]*[a-f][0-9a-f]*|[0-9a-f]*[a-f][0-9a-f]*[0-9][0-9a-f]*)\b", "<hex>"),
        (r"(?i)\b(pid|tid|process|thread)([ =:#]+)\d+", "$1$2<n>"),
        (r"(/var)?/tmp/[^\s'\x22:,;)]+", "<tmp>"),
    ];
    volatile.into_iter().map(|(pattern, stands)| (Regex::new(pattern).expect("a constant pattern"), stands)).collect()
});

/// Hexadecimal words shorter than this are more likely words or small codes than addresses.
const HEX_WORD_DIGITS_MIN: usize = 8;

/// `text` without what changes from run to run, cut to [`ERROR_TEXT_CHARS_MAX`].
fn normalise(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, stands) in VOLATILE.iter() {
        text = match *stands {
            "<hex>" => {
                let replace = |found: &regex::Captures<'_>| match found[0].len() {
                    HEX_WORD_DIGITS_MIN.. => (*stands).to_owned(),
                    _ => found[0].to_owned(),
                };
                pattern.replace_all(&text, replace).into_owned()
            }
            _ => pattern.replace_all(&text, *stands).into_owned(),
        };
    }
    text.trim().chars().filter(|c| !c.is_control()).take(ERROR_TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::quantity::Finite;
    use crate::model::settings::NumberRange;

    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| all.push(line.to_vec()));
        }
        lines.finish(|line| all.push(line.to_vec()));
        all
    }

    #[test]
    fn lines_do_not_depend_on_how_the_bytes_arrive() {
        let whole: &[u8] = b"one\ntwo\r\n\nthree\rfour";
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(cut(&[whole]), cut(&bytes));
        assert_eq!(cut(&[whole]), [&b"one"[..], b"two", b"three", b"four"]);
    }

    #[test]
    fn an_endless_line_is_seen_once_by_its_beginning() {
        let long = vec![b'x'; LINE_BYTES_MATCHED];
        let lines = cut(&[&long, &long, b"tail\nnext\n"]);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [LINE_BYTES_MATCHED, 4]);
    }

    fn scanner(stages: &[(&str, &str)]) -> Scanner {
        let stage = |(name, pattern): &(&str, &str)| (name.parse().unwrap(), BytesRegex::new(pattern).unwrap());
        Scanner::new(&CommandLine {
            stages: stages.iter().map(stage).collect(),
            metrics: vec![("build_s".into(), BytesRegex::new(r"completed in ([\d.]+) s").unwrap())],
            expect_output: vec![
                Expectation::Contains("Sequence complete".into()),
                Expectation::Lacks("nan".into()),
                Expectation::Matches(BytesRegex::new("^completed").unwrap()),
                Expectation::Number("build_s".into(), NumberRange { max: Finite::new(200.0), min: None }),
            ],
            ..CommandLine::default()
        })
    }

    #[test]
    fn stages_advance_in_order_and_never_go_back() {
        let mut scanner = scanner(&[("first", "Constructing"), ("second", "Constructing"), ("third", "copy")]);
        let mut reached = |line: &str| scanner.line(line.as_bytes()).next().map(|stage| stage.to_string());
        assert_eq!(reached("noise"), None);
        assert_eq!(reached("Constructing 1").as_deref(), Some("first"));
        assert_eq!(reached("Constructing 2").as_deref(), Some("second"));
        assert_eq!(reached("Constructing 3"), None);
        assert_eq!(reached("copy").as_deref(), Some("third"));
        assert_eq!(reached("copy"), None);
    }

    #[test]
    fn the_last_number_counts_and_an_unkept_promise_is_named() {
        let mut scanner = scanner(&[]);
        drop(scanner.line(b"completed in 1.5 s"));
        drop(scanner.line(b"completed in 212.4 s \xff\xfe"));
        drop(scanner.line(b"completed in 1.2.3 s"));
        let (metrics, unmet) = scanner.finish();
        assert_eq!(metrics["build_s"], 212.4);
        assert_eq!(unmet, [r#"no line of output contains "Sequence complete""#, "build_s is 212.4, not at most 200"]);
    }

    #[test]
    fn a_number_that_is_none_is_in_no_range_and_a_forbidden_text_is_named() {
        let unmet = |lines: &[&str]| {
            let mut scanner = scanner(&[]);
            lines.iter().for_each(|line| drop(scanner.line(line.as_bytes())));
            scanner.finish()
        };
        let kept = ["Sequence complete", "completed in 200 s"];
        assert_eq!(unmet(&kept), (BTreeMap::from([("build_s".to_owned(), 200.0)]), Vec::new()));
        let words = unmet(&[kept[0], kept[1], "logits: nan", "completed in . s"]).1;
        assert_eq!(words, [r#"a line of output contains "nan""#]);
        let mut scanner = Scanner::new(&CommandLine {
            metrics: vec![("err".into(), BytesRegex::new("err=(.*)").unwrap())],
            expect_output: vec![Expectation::Number("err".into(), NumberRange { max: Finite::new(1.0), min: None })],
            ..CommandLine::default()
        });
        drop(scanner.line(b"err=0.5"));
        drop(scanner.line(b"err=nan"));
        assert_eq!(scanner.finish(), (BTreeMap::new(), vec!["err is NaN, not at most 1".to_owned()]));
    }

    fn error_text(output: &str) -> Option<String> {
        let mut error_text = ErrorText::default();
        output.lines().for_each(|line| error_text.line(line.as_bytes()));
        error_text.finish(Succeeded::No, "/r/trials/x")
    }

    #[test]
    fn the_error_text_is_the_line_that_reports_the_error() {
        let traceback = "loading\nTraceback (most recent call last):\n  File \"x.py\", line 3\n    raise RuntimeError(\"x\")\nRuntimeError: CUDA error: out of memory\nlater Error";
        assert_eq!(error_text(traceback).unwrap(), "RuntimeError: CUDA error: out of memory");
        assert_eq!(error_text("errors: 0\nmalloc(): corrupted top size\n\n").unwrap(), "malloc(): corrupted top size");
        assert_eq!(error_text("failed: /r/trials/x/e.engine").unwrap(), "failed: <trial>/e.engine");
        assert_eq!(error_text("\n \n"), None);
    }

    #[test]
    fn two_runs_of_one_fault_have_one_error_text() {
        let of = |time: &str, address: &str, pid: u32, dir: &str| {
            error_text(&format!("{time} ERROR core: pid {pid} fault at {address} in {dir}/x.py: code 719")).unwrap()
        };
        let one = of("2026-05-01 12:00:00,123", "0xffff8800", 12, "/tmp/abc");
        let two = of("2026-05-02 13:10:59,9", "0x7f001234abcd", 34567, "/tmp/tmp.Q1x");
        assert_eq!(one, two);
        assert_eq!(one, "<time> ERROR core: pid <n> fault at <addr> in <tmp>: code 719");
        let hex = |word: &str| error_text(&format!("error at {word}")).unwrap();
        assert_eq!(hex("7f001234abcd"), "error at <hex>");
        assert_eq!(hex("sm_87 fp16 1075072515 feedface"), "error at sm_87 fp16 1075072515 feedface");
    }

    #[test]
    fn a_long_error_text_is_cut_by_characters() {
        let text = error_text(&format!("error: {}", "é".repeat(1000))).unwrap();
        assert_eq!(text.chars().count(), ERROR_TEXT_CHARS_MAX);
    }

    #[test]
    fn after_success_the_last_words_are_no_error() {
        let mut error_text = ErrorText::default();
        error_text.line(b"all done");
        assert_eq!(error_text.finish(Succeeded::Yes, "/r/trials/x"), None);
        error_text.line(b"CUDA error: an illegal memory access was encountered");
        assert!(error_text.finish(Succeeded::Yes, "/r/trials/x").is_some());
    }
}
