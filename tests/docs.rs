//! What the docs say of the code is generated from it; `UPDATE=1 cargo test --test docs` writes it anew.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use jetfault::cli::args::Cli;
use jetfault::cli::exit::Exit;
use jetfault::decide::classify::OUTCOME_RULES;
use jetfault::decide::infer::BOOT_RULES;
use jetfault::decide::kernel_log::rules::KERNEL_RULES;
use jetfault::decide::start_state::START_RULES;
use jetfault::model::matrix::json_schema;
use jetfault::model::verdict::{Counted, Verdict};
use serde_json::Value;

/// Compares the part of `docs/FILE` between its marks with `want`, or writes it.
fn check(file: &str, mark: &str, want: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {mark}: generated -->\n"), format!("<!-- {mark}: end -->\n"));
    let from = text.find(&begin).unwrap_or_else(|| panic!("{file} has no mark {mark}")) + begin.len();
    let to = text.find(&end).unwrap_or_else(|| panic!("{file} has no end of {mark}"));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, format!("{}{want}{}", &text[..from], &text[to..])).unwrap();
    } else {
        assert_eq!(&text[from..to], want, "docs/{file} drifted: UPDATE=1 cargo test --test docs");
    }
}

fn list<T: std::fmt::Debug>(items: &[T], all: usize) -> String {
    if items.len() == all {
        return "any".into();
    }
    items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_table_of_verdicts_is_the_codes() {
    let mut table = String::from("| verdict | meaning | counted |\n|---|---|---|\n");
    for verdict in Verdict::ALL {
        let counted = match verdict.counted() {
            Counted::Clean => "clean",
            Counted::Fault => "fault",
            Counted::Excluded => "excluded",
        };
        table.push_str(&format!("| `{verdict}` | {} | {counted} |\n", verdict.meaning()));
    }
    check("verdicts.md", "verdicts", &table);
}

#[test]
fn the_tables_of_rules_are_the_codes() {
    let mut table = String::from(
        "| rule | ended by | ending | last word | promise | OOM killer took | GPU | machine | verdict | because |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for rule in OUTCOME_RULES {
        table.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | `{}` | {} |\n",
            rule.label,
            list(rule.ended, 5),
            list(rule.ending, 8),
            list(rule.word, 8),
            list(rule.promise, 3),
            list(rule.oom, 3),
            list(rule.gpu, 6),
            list(rule.fitness, 3),
            rule.verdict,
            rule.because
        ));
    }
    check("verdicts.md", "outcome-rules", &table);
    let mut table = String::from(
        "| rule | distance | meant | heat | shutdown | kernel left | reset | drives | watchdog | verdict | cause | because |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for rule in BOOT_RULES {
        table.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | `{}` | {} | {} |\n",
            rule.label,
            list(rule.distance, 4),
            list(rule.intent, 3),
            list(rule.thermal, 2),
            list(rule.ending, 3),
            list(rule.news, 7),
            list(rule.reset, 9),
            list(rule.drive, 3),
            list(rule.watchdog, 2),
            rule.verdict,
            rule.cause.map_or("", |cause| cause.as_str()),
            rule.because
        ));
    }
    check("verdicts.md", "boot-rules", &table);
}

#[test]
fn the_table_of_kernel_rules_is_the_codes() {
    let mut table = String::from("| rule | tells of | weight | class | because |\n|---|---|---|---|---|\n");
    for rule in KERNEL_RULES {
        let (name, fault, weight, class, because) = (rule.name, rule.fault, rule.weight, rule.class, rule.because);
        table.push_str(&format!("| `{name}` | {fault} | {weight} | {class} | {because} |\n"));
    }
    check("kernel-log.md", "kernel-rules", &table);
}

#[test]
fn the_table_of_start_states_is_the_codes() {
    let mut table = String::from(
        "| rule | ours before | who uses it | initialised | activity | users running | proof | because |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for rule in START_RULES {
        table.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} | `{}` | {} |\n",
            rule.label,
            list(rule.ours, 2),
            list(rule.alive, 3),
            list(rule.touched, 3),
            list(rule.activity, 4),
            list(rule.users, 2),
            rule.cold,
            rule.because
        ));
    }
    check("start-states.md", "start-rules", &table);
}

#[test]
fn the_table_of_exit_codes_is_the_codes() {
    let mut table = String::from("| code | meaning |\n|---|---|\n");
    for exit in Exit::FIXED {
        table.push_str(&format!("| {} | {} |\n", exit.code(), exit.meaning()));
    }
    table.push_str(&format!("| 128+n | {} |\n", Exit::Signal(0).meaning()));
    check("exit-codes.md", "exit-codes", &table);
}

/// The sections of a matrix in the order in which one is written.
const SECTIONS: [&str; 19] = [
    "matrix",
    "workload",
    "shapes",
    "profiles",
    "vars",
    "baseline",
    "axes",
    "cell",
    "exclude",
    "expect",
    "controls",
    "factors",
    "safety",
    "inject",
    "revisions",
    "bisect",
    "nightly",
    "board",
    "tools",
];

#[test]
fn the_tables_of_matrix_keys_are_the_schemas() {
    let schema = json_schema();
    let sections = schema["properties"].as_object().unwrap();
    let mut missing: Vec<&String> = sections.keys().filter(|name| !SECTIONS.contains(&name.as_str())).collect();
    missing.retain(|name| *name != "axes");
    assert!(missing.is_empty(), "no place for {missing:?}");
    let mut text = String::new();
    for section in SECTIONS {
        let of_section = &schema["properties"][section];
        // `[[name]]`, a table by names of the user's own, or one table.
        let (title, keys) = match (&of_section["items"], &of_section["additionalProperties"]) {
            (items @ Value::Object(_), _) => (format!("[[{section}]]"), items),
            (_, own) if own["type"] == "object" => (format!("[{section}.NAME]"), own),
            _ => (format!("[{section}]"), of_section),
        };
        let what = of_section["description"].as_str().unwrap_or_else(|| panic!("{section} is not explained"));
        text.push_str(&format!("\n### `{title}`\n\n{}\n", what.trim_end_matches('.').to_owned() + "."));
        let mut rows = String::new();
        if section != "axes" {
            key_rows("", keys, &mut rows);
        }
        if !rows.is_empty() {
            text.push_str(&format!("\n| key | value | what |\n|---|---|---|\n{rows}"));
        }
    }
    check("matrix.md", "matrix-keys", &text);
}

/// A row for each key of a table, those of tables within it below theirs.
fn key_rows(prefix: &str, table: &Value, rows: &mut String) {
    let required = table["required"].as_array().cloned().unwrap_or_default();
    for (key, value) in table["properties"].as_object().into_iter().flatten() {
        let what = value["description"].as_str().unwrap_or_else(|| panic!("{prefix}{key} is not explained"));
        let must = if required.iter().any(|name| name == key) { " Required." } else { "" };
        rows.push_str(&format!("| `{prefix}{key}` | {} | {}{must} |\n", kind(value), what.replace('|', "\\|")));
        key_rows(&format!("{prefix}{key}."), value, rows);
        key_rows(&format!("{prefix}{key}[]."), &value["items"], rows);
    }
}

/// What a value may be, in words.
fn kind(value: &Value) -> String {
    if let Some(choices) = value["enum"].as_array() {
        return choices.iter().map(|choice| format!("`{}`", choice.as_str().unwrap())).collect::<Vec<_>>().join(", ");
    }
    if let Some(either) = value["anyOf"].as_array() {
        return either.iter().map(kind).filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" or ");
    }
    if let Some(only) = value["const"].as_str() {
        return format!("`{only}`");
    }
    let bounds = match (&value["minimum"], &value["maximum"]) {
        (Value::Null, _) => String::new(),
        (least, Value::Null) => format!(", at least {least}"),
        (least, most) => format!(", {least} to {most}"),
    };
    match (value["type"].as_str(), value["pattern"].as_str()) {
        (Some("string"), Some(_)) => "duration".into(),
        (Some("array"), _) => "list".into(),
        (Some("object"), _) => "table".into(),
        (Some(kind), _) => format!("{kind}{bounds}"),
        (None, _) => "–".into(),
    }
}

#[test]
fn the_reference_of_commands_is_the_programs() {
    let mut command = Cli::command().term_width(100).disable_help_subcommand(true);
    command.build();
    let mut text = String::new();
    for sub in command.get_subcommands_mut() {
        let name = sub.get_name().to_owned();
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        // Options of every command are told once.
        let globals: Vec<_> = sub.get_arguments().filter(|a| a.is_global_set()).map(|a| a.get_id().clone()).collect();
        let own = globals.into_iter().fold(sub.clone(), |sub, id| sub.mut_arg(id, |argument| argument.hide(true)));
        let help = own.term_width(100).about("").render_help().to_string();
        text.push_str(&format!("\n## {name}\n\n{about}.\n\n```text\n{}\n```\n", help.trim()));
    }
    check("reference.md", "commands", &text);
}
