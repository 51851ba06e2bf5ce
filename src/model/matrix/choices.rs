//! What refers to levels: the cells of `[[cell]]`, and the conditions of `[[exclude]]`, `[[expect]]`, `[[inject]]`.
//!
//! Owns the rule for names and labels in them. It adds no level to an axis.

use std::collections::BTreeMap;

use super::axis::Knob;
use super::document::{Entry, Node, Value};
use super::draft::Change;
use super::env::env_op;
use super::levels::{Axis, Level, Levels};
use super::problem::{Problems, Span, suggest};
use super::reader::{array, table};

/// A `[[cell]]`: levels over the baseline.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// Name and label of everything that it says.
    pub labels: BTreeMap<String, String>,
    /// What that changes.
    pub level: Level,
}

/// A condition on the levels of a cell: each name has one of its labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matcher(pub BTreeMap<String, Vec<String>>);

impl Matcher {
    /// Whether the cell with these levels is meant; a name that is no axis has the baseline's label in `fixed`.
    pub fn matches(&self, levels: &BTreeMap<String, String>, fixed: impl Fn(&str) -> Option<String>) -> bool {
        self.0.iter().all(|(name, labels)| match levels.get(name) {
            Some(label) => labels.contains(label),
            None => fixed(name).is_some_and(|label| labels.contains(&label)),
        })
    }
}

impl Levels<'_> {
    /// Reads `[[cell]]`.
    pub(super) fn assignments(&self, node: Option<&Node>, problems: &mut Problems) -> Vec<Assignment> {
        let Some(nodes) = node.and_then(|node| array(node, "`[[cell]]` entries", problems)) else { return Vec::new() };
        nodes.iter().filter_map(|node| self.assignment(node, problems)).collect()
    }

    /// Reads one set of levels over the baseline.
    pub(super) fn assignment(&self, node: &Node, problems: &mut Problems) -> Option<Assignment> {
        let mut labels = BTreeMap::new();
        let mut changes = Vec::new();
        for (name, entry) in flat(node, "a cell", problems)? {
            let label = entry.node.label();
            let axis = self.axes.iter().find(|axis| axis.name == name);
            let level = axis.and_then(|axis| axis.levels.iter().find(|level| level.label == label));
            if let Some(level) = level {
                changes.extend(level.changes.iter().cloned());
            } else if axis.is_some_and(|axis| axis.baseline == label) {
                // The baseline needs no change.
            } else if let Some(variable) = name.strip_prefix("env.") {
                let (op, op_label) = env_op(variable, &entry.node, problems)?;
                changes.push(Change::env(variable, op));
                labels.insert(name, op_label);
                continue;
            } else if let Some(axis) = axis.filter(|_| name.parse::<Knob>().is_err() && !self.fixed.contains_key(&name))
            {
                self.unknown_level(axis, &label, entry.node.span, problems);
                return None;
            } else {
                changes.push(self.change(&name, entry.key_span, &entry.node, problems)?);
            }
            labels.insert(name, label);
        }
        Some(Assignment { level: Level { label: String::new(), changes, span: node.span }, labels })
    }

    /// Reads `[[exclude]]`.
    pub(super) fn excludes(&self, node: Option<&Node>, problems: &mut Problems) -> Vec<Matcher> {
        let Some(nodes) = node.and_then(|node| array(node, "`[[exclude]]` entries", problems)) else {
            return Vec::new();
        };
        let mut excludes = Vec::new();
        for node in nodes {
            let Some(matcher) = self.matcher(node, "an exclusion", problems) else { continue };
            if matcher.0.is_empty() {
                problems.error(node.span, "an empty exclusion would exclude everything");
                continue;
            }
            excludes.push(matcher);
        }
        excludes
    }

    /// Reads a condition on levels.
    pub(super) fn matcher(&self, node: &Node, what: &str, problems: &mut Problems) -> Option<Matcher> {
        let mut matcher = BTreeMap::new();
        for (name, entry) in flat(node, what, problems)? {
            let axis = self.axes.iter().find(|axis| axis.name == name);
            let whole = entry.node.label();
            let is_one = axis.is_some_and(|axis| axis.labels().any(|label| label == whole))
                || self.fixed.get(&name) == Some(&whole);
            let nodes = match &entry.node.value {
                // A list is a choice of levels, unless it is a level itself.
                Value::Array(nodes) if !is_one => nodes.as_slice(),
                Value::Array(_)
                | Value::String(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_)
                | Value::Table(_) => std::slice::from_ref(&entry.node),
            };
            if let Some(axis) = axis.filter(|_| !self.is_overridden(&name)) {
                for node in nodes.iter().filter(|node| !axis.labels().any(|label| label == node.label())) {
                    self.unknown_level(axis, &node.label(), node.span, problems);
                }
            } else if !self.fixed.contains_key(&name) {
                let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
                problems
                    .error(entry.key_span, format!("`{name}` is not an axis of this matrix"))
                    .hint(suggest(&name, &names));
            } else if name.parse::<Knob>().is_ok() {
                // Not an axis here, but a level that could not exist is still a slip.
                for node in nodes {
                    self.change(&name, entry.key_span, node, problems);
                }
            }
            matcher.insert(name, nodes.iter().map(Node::label).collect());
        }
        Some(Matcher(matcher))
    }

    /// Reports a level that an axis does not have.
    pub(super) fn unknown_level(&self, axis: &Axis, label: &str, span: Span, problems: &mut Problems) {
        let labels: Vec<&str> = axis.labels().collect();
        problems.error(span, format!("axis `{}` has no level `{label}`", axis.name)).hint(suggest(label, &labels));
    }
}

/// The entries of a table with `env` taken apart into `env.NAME`.
fn flat<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> Option<Vec<(String, &'n Entry)>> {
    let mut entries = Vec::new();
    for entry in &table(node, what, problems)?.0 {
        if let ("env", Value::Table(inner)) = (entry.key.as_str(), &entry.node.value) {
            entries.extend(inner.0.iter().map(|entry| (format!("env.{}", entry.key), entry)));
        } else {
            entries.push((entry.key.clone(), entry));
        }
    }
    Some(entries)
}
