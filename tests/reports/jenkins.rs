//! What the JUnit schema of Jenkins' xUnit plugin (`junit-10.xsd`) demands, as a check of a document.

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

/// An element: what may stand in it, which attributes it must and may have, and whether it has text.
struct Element {
    name: &'static str,
    children: &'static [&'static str],
    required: &'static [&'static str],
    optional: &'static [&'static str],
    has_text: bool,
}

const ELEMENTS: [Element; 8] = [
    Element {
        name: "testsuites",
        children: &["testsuite"],
        required: &[],
        optional: &["name", "time", "tests", "failures", "errors"],
        has_text: false,
    },
    Element {
        name: "testsuite",
        children: &["testsuite", "properties", "testcase", "system-out", "system-err"],
        required: &["name", "tests", "failures", "errors"],
        optional: &["group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"],
        has_text: false,
    },
    Element {
        name: "testcase",
        children: &["skipped", "error", "failure", "system-out", "system-err"],
        required: &["name"],
        optional: &["time", "classname", "group"],
        has_text: false,
    },
    Element { name: "skipped", children: &[], required: &[], optional: &["type", "message"], has_text: true },
    Element { name: "failure", children: &[], required: &[], optional: &["type", "message"], has_text: true },
    Element { name: "error", children: &[], required: &[], optional: &["type", "message"], has_text: true },
    Element { name: "system-out", children: &[], required: &[], optional: &[], has_text: true },
    Element { name: "system-err", children: &[], required: &[], optional: &[], has_text: true },
];

/// How many elements of a kind there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) suites: usize,
    pub(crate) cases: usize,
    pub(crate) failures: usize,
    pub(crate) skipped: usize,
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = start.attributes().map(Result::unwrap).find(|found| found.key.as_ref() == name.as_bytes());
    attribute.map(|found| String::from_utf8(found.value.into_owned()).unwrap())
}

/// Whether a time is written as the schema's pattern wants it: digits, perhaps a point and more digits.
fn is_time(text: &str) -> bool {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    !text.is_empty() && [whole, rest].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Checks `xml`, and that what it says it counts is what is there.
pub(crate) fn check(xml: &str) -> Count {
    let mut reader = Reader::from_str(xml);
    let mut open: Vec<&'static Element> = Vec::new();
    let (mut count, mut claimed) = (Count::default(), Count::default());
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("not XML: {error}")) {
            Event::Start(start) => open.push(begin(&start, open.last().copied(), &mut count, &mut claimed)),
            Event::Empty(start) => {
                begin(&start, open.last().copied(), &mut count, &mut claimed);
            }
            Event::End(_) => {
                open.pop().unwrap();
            }
            Event::Text(text) => {
                let text = text.xml10_content().unwrap();
                let has_text = open.last().is_some_and(|element| element.has_text);
                assert!(has_text || text.trim().is_empty(), "text where none may be: {text}");
                let is_allowed = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
                assert!(text.chars().all(is_allowed), "a character that XML does not have: {text:?}");
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert!(open.is_empty(), "an element is not closed");
    assert_eq!((count.cases, count.failures), (claimed.cases, claimed.failures), "the counts are right");
    count
}

fn begin(
    start: &BytesStart<'_>,
    parent: Option<&'static Element>,
    count: &mut Count,
    claimed: &mut Count,
) -> &'static Element {
    let name = String::from_utf8(start.name().as_ref().to_vec()).unwrap();
    let element = ELEMENTS.iter().find(|element| element.name == name).unwrap_or_else(|| panic!("<{name}>"));
    match parent {
        Some(parent) => assert!(parent.children.contains(&element.name), "<{name}> in <{}>", parent.name),
        None => assert_eq!(name, "testsuites"),
    }
    for required in element.required {
        assert!(attribute(start, required).is_some(), "<{name}> without {required}");
    }
    for found in start.attributes().map(Result::unwrap) {
        let key = String::from_utf8(found.key.as_ref().to_vec()).unwrap();
        let is_known = element.required.contains(&key.as_str()) || element.optional.contains(&key.as_str());
        assert!(is_known, "<{name} {key}>");
    }
    if matches!(element.name, "testsuites" | "testsuite") {
        assert!(attribute(start, "time").is_none_or(|time| is_time(&time)), "{start:?}");
    }
    let number = |name: &str| attribute(start, name).unwrap().parse::<usize>().unwrap();
    match element.name {
        "testsuite" => {
            count.suites += 1;
            claimed.cases += number("tests");
            claimed.failures += number("failures");
        }
        "testcase" => count.cases += 1,
        "failure" => count.failures += 1,
        "skipped" => count.skipped += 1,
        _ => {}
    }
    element
}
