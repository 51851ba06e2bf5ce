//! The matrix file as written: a tree of values that know where they stand.
//!
//! Owns reading TOML into that tree, changing it by `--set`, and its canonical content. It knows no key of a matrix.

use std::fmt;
use std::ops::Range;

use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problems, Sources, Span};
use crate::model::ids::ContentDigest;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Span,
}

/// A value as written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
}

/// A table in the order of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Table(pub(super) Vec<Entry>);

/// A key, where it stands, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

impl Node {
    /// What the value is, with its article, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Boolean(_) => "a boolean",
            Value::Datetime(_) => "a date",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }

    /// The value as a label: a string bare, a list joined by spaces, a table as `a=1,b=2`, and nothing as `""` or `[]`.
    pub(super) fn label(&self) -> String {
        match &self.value {
            Value::String(text) if text.is_empty() => "\"\"".to_owned(),
            Value::Array(nodes) if nodes.is_empty() => "[]".to_owned(),
            Value::String(text) | Value::Datetime(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(truth) => truth.to_string(),
            Value::Array(nodes) => nodes.iter().map(Node::label).collect::<Vec<_>>().join(" "),
            Value::Table(table) => {
                let parts: Vec<String> =
                    table.0.iter().map(|entry| format!("{}={}", entry.key, entry.node.label())).collect();
                parts.join(",")
            }
        }
    }

    fn canonical(&self) -> serde_json::Value {
        match &self.value {
            Value::String(text) => json!(text),
            Value::Integer(number) => json!(number),
            // JSON has no infinity; the wrapping also keeps 1.0 apart from 1.
            Value::Float(number) => json!({ "float": number.to_string() }),
            Value::Boolean(truth) => json!(truth),
            Value::Datetime(text) => json!({ "date": text }),
            Value::Array(nodes) => nodes.iter().map(Node::canonical).collect(),
            Value::Table(table) => table
                .0
                .iter()
                .map(|entry| (entry.key.clone(), entry.node.canonical()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

/// The digest of the content: comments, the order of keys and the way tables are written do not matter.
pub(super) fn digest(root: &Node) -> ContentDigest {
    ContentDigest::of(root.canonical().to_string().as_bytes())
}

/// Reads TOML; syntax errors become problems, and what could be read is returned with them.
pub(super) fn read(text: &str, source: usize, problems: &mut Problems) -> Node {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let range = error.span().unwrap_or(0..text.len().min(1));
        problems.error(Span::new(source, range), format!("not valid TOML: {}", error.message().trim_end()));
    }
    let span = Span::new(source, root.span());
    Node { value: Value::Table(table(root.into_inner(), source, problems)), span }
}

fn table(entries: DeTable<'_>, source: usize, problems: &mut Problems) -> Table {
    let entries = entries.into_iter().map(|(key, value)| Entry {
        key_span: Span::new(source, key.span()),
        key: key.into_inner().into_owned(),
        node: node(value, source, problems),
    });
    Table(entries.collect())
}

fn node(spanned: Spanned<DeValue<'_>>, source: usize, problems: &mut Problems) -> Node {
    let span = Span::new(source, spanned.span());
    let value = match spanned.into_inner() {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(integer) => {
            Value::Integer(i64::from_str_radix(integer.as_str(), integer.radix()).unwrap_or_else(|_| {
                problems.error(span, "integer does not fit in 64 bits");
                0
            }))
        }
        DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or_else(|_| {
            problems.error(span, "not a number");
            0.0
        })),
        DeValue::Boolean(truth) => Value::Boolean(truth),
        DeValue::Datetime(datetime) => Value::Datetime(datetime.to_string()),
        DeValue::Array(nodes) => {
            Value::Array(nodes.into_iter().map(|spanned| node(spanned, source, problems)).collect())
        }
        DeValue::Table(entries) => Value::Table(table(entries, source, problems)),
    };
    Node { value, span }
}

/// A change to the document from the command line: `--set baseline.start=any` or `--trials 3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The argument as shown.
    text: String,
    /// Where in `text` the dotted path stands.
    path: Range<usize>,
    /// The path, if it is not in the text.
    implied: Option<&'static str>,
    /// Where in `text` the value stands.
    value: Range<usize>,
}

/// A `--set` that is not `path=value`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--set {0:?} is not `path=value`, such as `baseline.start=any`")]
pub struct OverrideError(pub String);

impl Override {
    /// Reads the argument of `--set`.
    ///
    /// # Errors
    /// If there is no `=` or an empty part of the path.
    pub fn set(argument: &str) -> Result<Self, OverrideError> {
        let error = || OverrideError(argument.to_owned());
        let (path, _) = argument.split_once('=').ok_or_else(error)?;
        if path.split('.').any(|part| part.trim().is_empty()) {
            return Err(error());
        }
        let start = "--set ".len();
        let (path, value) = (start..start + path.len(), start + path.len() + 1..start + argument.len());
        Ok(Self { text: format!("--set {argument}"), path, implied: None, value })
    }

    /// The same as `--trials N`.
    pub fn trials(trials: u32) -> Self {
        let text = format!("--trials {trials}");
        Self { path: 0..8, implied: Some("matrix.trials"), value: 9..text.len(), text }
    }

    /// The change that was shown as `text`: what a stored plan holds of the command line.
    ///
    /// # Errors
    /// If nothing is shown like that.
    pub fn shown(text: &str) -> Result<Self, OverrideError> {
        match (text.strip_prefix("--set "), text.strip_prefix("--trials ").map(str::parse)) {
            (Some(argument), _) => Self::set(argument),
            (None, Some(Ok(trials))) => Ok(Self::trials(trials)),
            (None, Some(Err(_)) | None) => Err(OverrideError(text.to_owned())),
        }
    }

    /// Writes the value into the document; a value that is not TOML is taken as a string.
    pub(super) fn apply(&self, root: &mut Node, sources: &mut Sources, problems: &mut Problems) {
        let source = sources.add_argument(&self.text);
        let path = self.implied.unwrap_or(&self.text[self.path.clone()]);
        let path_span = Span::new(source, self.path.clone());
        let span = Span::new(source, self.value.clone());
        let text = &self.text[self.value.clone()];
        let node = match DeValue::parse(text) {
            Ok(spanned) => shifted(node(spanned, source, problems), self.value.start),
            Err(_) => Node { value: Value::String(text.to_owned()), span },
        };
        let parts: Vec<&str> = path.split('.').map(str::trim).collect();
        if let Err(part) = replace(root, &parts, path_span, node) {
            problems
                .error(path_span, format!("`{part}` is not a table, so nothing can be set below it"))
                .hint("an element of an array of tables is named by its number from 0, as in `inject.0.rate=1`");
        }
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

fn shifted(mut node: Node, by: usize) -> Node {
    node.span.start += by;
    node.span.end += by;
    match &mut node.value {
        Value::Array(nodes) => {
            let moved = std::mem::take(nodes).into_iter().map(|node| shifted(node, by));
            *nodes = moved.collect();
        }
        Value::Table(table) => {
            for entry in &mut table.0 {
                entry.key_span.start += by;
                entry.key_span.end += by;
                let empty = Node { value: Value::Boolean(false), span: entry.node.span };
                entry.node = shifted(std::mem::replace(&mut entry.node, empty), by);
            }
        }
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
    node
}

/// Puts `node` at `path`, making tables on the way; fails with the part that is neither table nor element.
fn replace<'p>(at: &mut Node, path: &[&'p str], path_span: Span, node: Node) -> Result<(), &'p str> {
    let [part, rest @ ..] = path else {
        *at = node;
        return Ok(());
    };
    match &mut at.value {
        Value::Table(table) => {
            let index = table.0.iter().position(|entry| entry.key == *part).unwrap_or_else(|| {
                let empty = Node { value: Value::Table(Table::default()), span: path_span };
                table.0.push(Entry { key: (*part).to_owned(), key_span: path_span, node: empty });
                table.0.len() - 1
            });
            replace(&mut table.0[index].node, rest, path_span, node)
        }
        Value::Array(nodes) => match part.parse::<usize>().ok().and_then(|index| nodes.get_mut(index)) {
            Some(element) => replace(element, rest, path_span, node),
            None => Err(part),
        },
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => Err(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Node {
        let mut problems = Problems::default();
        let node = read(text, 0, &mut problems);
        assert!(!problems.has_errors(), "{problems:?}");
        node
    }

    #[test]
    fn comments_and_the_order_of_keys_do_not_matter() {
        let one = parsed("# hello\n[a]\nx = 1_000\ny = [1, 2]\n[b]\nz = { p = 1.5, q = 'r' }\n");
        let two = parsed("b.z.q = \"r\"\nb.z.p = 1.50\n[a]\ny = [\n  1, # one\n  2 ]\nx = 0x3e8\n");
        assert_eq!(digest(&one), digest(&two));
        for other in [
            "[a]\nx = 1000\ny = [2, 1]\n[b.z]\np = 1.5\nq = 'r'\n",
            "[a]\nx = 1000.0\ny = [1, 2]\n[b.z]\np = 1.5\nq = 'r'\n",
        ] {
            assert_ne!(digest(&one), digest(&parsed(other)), "{other}");
        }
    }

    #[test]
    fn a_set_value_is_toml_if_it_can_be_and_a_string_if_not() {
        let mut root = parsed("[[inject]]\nrate = 0\n[baseline]\nx = 1\n");
        let (mut sources, mut problems) = (Sources::file("f", ""), Problems::default());
        for (argument, path, label) in [
            ("baseline.x=any", &["baseline", "x"][..], "any"),
            ("baseline.y=[1, \"a\"]", &["baseline", "y"], "1 a"),
            ("workload.settle=1s", &["workload", "settle"], "1s"),
            ("inject.0.rate=0.5", &["inject"], "rate=0.5"),
        ] {
            Override::set(argument).unwrap().apply(&mut root, &mut sources, &mut problems);
            let mut at = &root;
            for part in path {
                let Value::Table(table) = &at.value else { panic!("{part}") };
                at = table.get(part).unwrap();
            }
            assert_eq!(at.label(), label);
        }
        assert!(!problems.has_errors());
        Override::set("baseline.x.y=1").unwrap().apply(&mut root, &mut sources, &mut problems);
        assert!(problems.has_errors());
        assert!(Override::set("baseline").is_err() && Override::set("a..b=1").is_err());
    }
}
