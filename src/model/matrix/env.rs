//! Operations on variables of the environment: `"1"`, `{ set = "1" }`, `{ append = "-x" }`, `{ remove = "-x" }`, `{ unset = true }`.

use super::document::{Entry, Node, Value};
use super::problem::{Problems, Span, suggest};
use super::reader::{boolean, table, template};
use crate::model::settings::EnvOp;
use crate::model::template::Template;

/// The operations of a table of variables of the environment, each with its label.
pub(super) fn env_ops(node: &Node, what: &str, problems: &mut Problems) -> Vec<(String, EnvOp, String)> {
    let Some(table) = table(node, what, problems) else { return Vec::new() };
    let mut ops = Vec::new();
    for entry in &table.0 {
        if !env_name(&entry.key, entry.key_span, problems) {
            continue;
        }
        if let Some((op, label)) = env_op(&entry.node, problems) {
            ops.push((entry.key.clone(), op, label));
        }
    }
    ops
}

/// Reports a name that no variable of the environment can have.
pub(super) fn env_name(name: &str, span: Span, problems: &mut Problems) -> bool {
    let well_formed = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !well_formed {
        problems.error(span, format!("`{name}` cannot name a variable of the environment"));
    }
    well_formed
}

/// One operation: a value to set, or a table with one of `set`, `append`, `remove`, `unset`.
pub(super) fn env_op(node: &Node, problems: &mut Problems) -> Option<(EnvOp, String)> {
    let Value::Table(table) = &node.value else {
        let value = template(node, problems)?;
        return Some(operation("set", value, &node.label()));
    };
    let [Entry { key, key_span, node: value }] = table.0.as_slice() else {
        problems
            .error(node.span, "a change of the environment is one operation")
            .hint("expected one of `set`, `append`, `remove` with a string, or `unset = true`");
        return None;
    };
    match key.as_str() {
        "unset" => match boolean(value, problems)? {
            true => Some((EnvOp::Unset, "unset".to_owned())),
            false => {
                problems.error(value.span, "`unset = false` changes nothing").hint("leave the level out");
                None
            }
        },
        op @ ("set" | "append" | "remove") => Some(operation(op, template(value, problems)?, &value.label())),
        other => {
            problems
                .error(*key_span, format!("unknown operation `{other}`"))
                .hint(suggest(other, &["set", "append", "remove", "unset"]));
            None
        }
    }
}

/// The operation called `op` and its label: `+` before what is appended, `-` before what is removed.
pub(super) fn operation(op: &str, value: Template, label: &str) -> (EnvOp, String) {
    match op {
        "append" => (EnvOp::Append(value), format!("+{label}")),
        "remove" => (EnvOp::Remove(value), format!("-{label}")),
        _ => (EnvOp::Set(value), label.to_owned()),
    }
}
