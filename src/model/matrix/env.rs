//! Operations on variables of the environment: `"1"`, `{ set = "1" }`, `{ append = "-x" }`, `{ remove = "-x" }`, `{ unset = true }`.

use super::document::{Entry, Node, Value};
use super::problem::{Problems, Span, suggest};
use super::reader::{boolean, table, template};
use crate::model::ids::ContentDigest;
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
        if let Some((op, label)) = env_op(&entry.key, &entry.node, problems) {
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

/// One operation on `variable`: a value to set, or a table with one of `set`, `append`, `remove`, `unset`.
pub(super) fn env_op(variable: &str, node: &Node, problems: &mut Problems) -> Option<(EnvOp, String)> {
    let Value::Table(table) = &node.value else {
        let value = template(node, problems)?;
        return Some(operation(variable, "set", value, &node.label()));
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
        op @ ("set" | "append" | "remove") => Some(operation(variable, op, template(value, problems)?, &value.label())),
        other => {
            problems
                .error(*key_span, format!("unknown operation `{other}`"))
                .hint(suggest(other, &["set", "append", "remove", "unset"]));
            None
        }
    }
}

/// The operation called `op` and its label: `+` before what is appended, `-` before what is removed. Of a secret it is a
/// digest, which tells levels apart; labels go into journals, file names and reports.
pub(super) fn operation(variable: &str, op: &str, value: Template, label: &str) -> (EnvOp, String) {
    let label = match is_secret(variable) {
        true => format!("secret-{}", &ContentDigest::of(label.as_bytes()).as_str()[..8]),
        false => label.to_owned(),
    };
    match op {
        "append" => (EnvOp::Append(value), format!("+{label}")),
        "remove" => (EnvOp::Remove(value), format!("-{label}")),
        _ => (EnvOp::Set(value), label),
    }
}

/// Words of names of variables that hold what nobody else should read.
const SECRET_WORDS: [&str; 9] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "KEY"];

/// Whether the name of a variable says that its value is a secret, as in `HF_TOKEN` or `AWS_SECRET_ACCESS_KEY`.
fn is_secret(variable: &str) -> bool {
    variable.to_ascii_uppercase().split('_').any(|word| SECRET_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_told_apart_and_not_told() {
        let label = |variable, text: &str| operation(variable, "set", Template::literal(text), text).1;
        assert_eq!(label("CACHE", "on"), "on");
        assert_eq!(label("TOKENIZERS_PARALLELISM", "false"), "false");
        for variable in ["HF_TOKEN", "api_key", "AWS_SECRET_ACCESS_KEY", "PASSWORD"] {
            let (one, other) = (label(variable, "hunter2"), label(variable, "hunter3"));
            assert!(
                one.starts_with("secret-") && !one.contains("hunter2") && one != other,
                "{variable}: {one} {other}"
            );
        }
    }
}
