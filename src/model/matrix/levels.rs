//! The baseline and the axes: which levels a matrix has and what they change.
//!
//! Owns labels and the check that levels differ. What one level of an axis of the tool looks like is known by
//! [`super::axis`], what `[[cell]]` and `[[exclude]]` refer to by [`super::choices`].

use std::collections::{BTreeMap, BTreeSet};

use super::Places;
use super::axis::{Context, Knob, WorkloadKind};
use super::document::{Entry, Node, Value};
use super::draft::{Change, Draft, Variable};
use super::env::{env_name, env_op, env_ops, operation};
use super::problem::{Problems, Span, list, suggest};
use super::reader::{Reader, array, boolean, scalar, table, template, text};
use super::workload::Workload;
use crate::model::settings::{EnvOp, WorkloadSettings};
use crate::model::template::Template;

/// The most axes a matrix may have.
pub const AXES_MAX: usize = 64;

/// The most levels an axis may have.
pub const LEVELS_MAX: usize = 10_000;

/// With how many other levels of its axis a level is compared.
const COMPARED_MAX: usize = 256;

/// A knob and its settings beside the baseline.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Its name: an axis of the tool, `env.NAME`, or a name of the matrix's own.
    pub name: String,
    /// The label of the baseline's level.
    pub baseline: String,
    /// The other levels, in the order of the file.
    pub levels: Vec<Level>,
    /// Where it stands.
    pub span: Span,
}

impl Axis {
    /// Every label, the baseline's first.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.baseline.as_str()).chain(self.levels.iter().map(|level| level.label.as_str()))
    }
}

/// One setting of an axis.
#[derive(Debug, Clone)]
pub struct Level {
    /// What it is called.
    pub label: String,
    /// What it changes in the baseline.
    pub changes: Vec<Change>,
    /// Where it stands.
    pub span: Span,
}

/// What a name in `[baseline]`, `[axes]` or a cell refers to.
enum Named {
    Knob(Knob),
    Variable,
}

/// The baseline and the axes while they are read.
pub(super) struct Levels<'m> {
    pub(super) context: Context<'m>,
    pub(super) axes: Vec<Axis>,
    pub(super) draft: Draft,
    /// The baseline's label of everything that has one.
    pub(super) fixed: BTreeMap<String, String>,
    /// Names that a placeholder of the matrix refers to.
    used: BTreeSet<String>,
    /// Variables that only levels give, so far.
    moved: BTreeSet<String>,
    /// What the command line gave another baseline or other levels: the rest of the file was written for the old ones.
    overridden: BTreeSet<String>,
}

impl<'m> Levels<'m> {
    pub(super) fn new(context: Context<'m>, used: BTreeSet<String>) -> Self {
        let knobs = Knob::ALL.iter().filter(|knob| knob.belongs_to(context.kind));
        let fixed = knobs.map(|knob| (knob.to_string(), knob.default_label().to_owned())).collect();
        let draft = Draft::new(WorkloadSettings::Command(Default::default()));
        Self { context, axes: Vec::new(), draft, fixed, used, moved: BTreeSet::new(), overridden: BTreeSet::new() }
    }

    /// The levels of a matrix that was read before, for conditions on them.
    pub(super) fn of(matrix: &'m super::Matrix) -> Self {
        Self {
            context: Context { shapes: &matrix.shapes, profiles: &matrix.profiles, kind: matrix.kind },
            axes: matrix.axes.clone(),
            draft: matrix.baseline.clone(),
            fixed: matrix.fixed.clone(),
            used: matrix.baseline.variables.keys().cloned().collect(),
            moved: BTreeSet::new(),
            overridden: BTreeSet::new(),
        }
    }

    /// Notes what of a table comes from the command line.
    fn note_overrides(&mut self, table: &super::document::Table) {
        for entry in &table.0 {
            if let ("env", Value::Table(inner)) = (entry.key.as_str(), &entry.node.value) {
                let changed = inner.0.iter().filter(|entry| entry.node.span.is_argument());
                self.overridden.extend(changed.map(|entry| format!("env.{}", entry.key)));
            } else if entry.node.span.is_argument() {
                self.overridden.insert(entry.key.clone());
            }
        }
    }

    /// Whether the command line changed the baseline or the levels of `name`.
    pub(super) fn is_overridden(&self, name: &str) -> bool {
        self.overridden.contains(name)
    }

    /// Sets a variable of `[vars]`.
    pub(super) fn set_variable(&mut self, entry: &Entry, problems: &mut Problems) {
        if let Some(value) = variable(&entry.node, problems) {
            self.fixed.insert(entry.key.clone(), entry.node.label());
            self.draft.variables.insert(entry.key.clone(), value);
        }
    }

    /// Begins with what `[workload]` says.
    pub(super) fn begin(&mut self, workload: Option<Workload>, _problems: &mut Problems) {
        let Some(workload) = workload else { return };
        let mut draft = Draft::new(workload.settings);
        draft.settings.watch = workload.watch;
        draft.variables = std::mem::take(&mut self.draft.variables);
        for (name, op, label) in workload.env {
            draft.apply(&[Change::env(&name, op)]);
            self.fixed.insert(format!("env.{name}"), label);
        }
        self.draft = draft;
    }

    /// Reads `[baseline]`.
    pub(super) fn baseline(&mut self, node: &Node, places: &mut Places, problems: &mut Problems) {
        let Some(table) = table(node, "[baseline]", problems) else { return };
        self.note_overrides(table);
        // A profile is what other keys change, wherever it stands.
        let mut entries: Vec<&Entry> = table.0.iter().collect();
        entries.sort_by_key(|entry| entry.key != Knob::Profile.as_str());
        for entry in entries {
            places.baseline.insert(entry.key.clone(), entry.node.span);
            if entry.key == "env" {
                for (name, op, label) in env_ops(&entry.node, "[baseline] env", problems) {
                    self.draft.apply(&[Change::env(&name, op)]);
                    self.fixed.insert(format!("env.{name}"), label);
                }
                continue;
            }
            if let Some(change) = self.change(&entry.key, entry.key_span, &entry.node, problems) {
                self.draft.apply(&[change]);
                self.fixed.insert(entry.key.clone(), entry.node.label());
            }
        }
    }

    /// Reads `[axes]`.
    pub(super) fn axes(&mut self, node: &Node, problems: &mut Problems) {
        let Some(table) = table(node, "[axes]", problems) else { return };
        self.note_overrides(table);
        let env = table.get("env").map_or(0, |node| match &node.value {
            Value::Table(inner) => inner.0.len(),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => 0,
        });
        if table.0.len() + env > AXES_MAX {
            problems.error(node.span, format!("{} axes are more than {AXES_MAX}", table.0.len() + env));
            return;
        }
        for entry in &table.0 {
            if entry.key == "env" {
                if let Some(table) = super::reader::table(&entry.node, "[axes] env", problems) {
                    table.0.iter().for_each(|inner| self.env_axis(inner, problems));
                }
            } else if let Value::Table(_) = entry.node.value {
                self.structured_axis(entry, problems);
            } else {
                self.plain_axis(entry, &entry.node, problems);
            }
        }
    }

    /// `name = [level, …]`.
    fn plain_axis(&mut self, entry: &Entry, levels: &Node, problems: &mut Problems) {
        let Value::Array(nodes) = &levels.value else {
            problems
                .error(
                    levels.span,
                    format!("expected an array of levels for axis `{}`, found {}", entry.key, levels.kind()),
                )
                .hint("an axis with one further level has an array of one");
            return;
        };
        let known = self.named(&entry.key, entry.key_span, problems);
        match known {
            Some(Named::Variable) => {
                self.moved.insert(entry.key.clone());
                if !self.draft.variables.contains_key(&entry.key) {
                    problems
                        .error(entry.key_span, format!("axis `{}` has no baseline", entry.key))
                        .hint(format!("add `{}` to `[baseline]`", entry.key));
                }
            }
            Some(Named::Knob(_)) => {}
            None => return,
        }
        let mut found = Vec::new();
        for node in nodes {
            if let Some(change) = self.change(&entry.key, entry.key_span, node, problems) {
                found.push(Level { label: node.label(), changes: vec![change], span: node.span });
            }
        }
        let baseline = self.fixed.get(&entry.key).cloned().unwrap_or_default();
        self.add_axis(&entry.key, baseline, found, nodes.len(), entry.key_span, problems);
    }

    /// `env.NAME = [op, …]`, or `env.NAME = { set = ["…"], unset = true }`.
    fn env_axis(&mut self, entry: &Entry, problems: &mut Problems) {
        if !env_name(&entry.key, entry.key_span, problems) {
            return;
        }
        let name = format!("env.{}", entry.key);
        if let Value::Table(_) = entry.node.value {
            let Some(reader) = Reader::new(&entry.node, format!("axis `{name}`"), problems) else { return };
            return self.operations(&name, entry, &entry.key, reader, problems);
        }
        let Some(nodes) = array(&entry.node, "an array of levels", problems) else { return };
        let mut found = Vec::new();
        for node in nodes {
            if let Some((op, label)) = env_op(&entry.key, node, problems) {
                found.push(Level { label, changes: vec![Change::env(&entry.key, op)], span: node.span });
            }
        }
        let baseline = self.env_baseline(&entry.key);
        self.add_axis(&name, baseline, found, nodes.len(), entry.key_span, problems);
    }

    /// The baseline's label of a variable of the environment, which has one from now on.
    fn env_baseline(&mut self, variable: &str) -> String {
        self.fixed.entry(format!("env.{variable}")).or_insert_with(|| "kept".to_owned()).clone()
    }

    /// `[axes.NAME]` with `levels` or with `env`.
    fn structured_axis(&mut self, entry: &Entry, problems: &mut Problems) {
        let Some(table) = table(&entry.node, "an axis", problems) else { return };
        if let Some(variable) = table.get("env").filter(|_| table.get("levels").is_none()) {
            return self.named_env_axis(entry, variable, problems);
        }
        let what = format!("[axes.{}]", entry.key);
        let Some(mut reader) = Reader::new(&entry.node, what, problems) else { return };
        let levels = reader.require("levels", problems);
        let labels = reader.take("labels");
        reader.finish(problems);
        let Some(levels) = levels else { return };
        // `[axes.batch] levels = [2, 8]` says the same as `batch = [2, 8]`.
        if entry.key.parse::<Knob>().is_ok() {
            return self.plain_axis(entry, levels, problems);
        }
        let Some(nodes) = array(levels, "an array of levels", problems) else { return };
        if nodes.iter().all(|node| !matches!(node.value, Value::Table(_))) {
            return self.plain_axis(entry, levels, problems);
        }
        let labels = labels.and_then(|node| self.labels(node, nodes.len(), problems));
        let mut found = Vec::new();
        let mut keys: Vec<String> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let Some(changes) = self.moves(node, &mut keys, problems) else { continue };
            let label = labels.as_ref().map_or_else(|| node.label(), |labels| labels[index].clone());
            found.push(Level { label, changes, span: node.span });
        }
        let parts: Vec<String> =
            keys.iter().map(|key| format!("{key}={}", self.fixed.get(key).map_or("kept", String::as_str))).collect();
        self.add_axis(&entry.key, parts.join(","), found, nodes.len(), entry.key_span, problems);
    }

    fn labels(&self, node: &Node, levels: usize, problems: &mut Problems) -> Option<Vec<String>> {
        let nodes = array(node, "an array of labels", problems)?;
        if nodes.len() != levels {
            problems.error(node.span, format!("{} labels for {levels} levels", nodes.len()));
            return None;
        }
        let labels: Vec<String> =
            nodes.iter().filter_map(|node| scalar(node, problems).map(|_| node.label())).collect();
        (labels.len() == levels).then_some(labels)
    }

    /// One level that moves several variables.
    fn moves(&mut self, node: &Node, keys: &mut Vec<String>, problems: &mut Problems) -> Option<Vec<Change>> {
        let entries = table(node, "a level that moves several variables", problems)?;
        let mut changes = Vec::new();
        for entry in &entries.0 {
            if entry.key == "env" {
                for (name, op, _) in env_ops(&entry.node, "env", problems) {
                    push_new(keys, format!("env.{name}"));
                    changes.push(Change::env(&name, op));
                }
                continue;
            }
            push_new(keys, entry.key.clone());
            let change = self.change(&entry.key, entry.key_span, &entry.node, problems)?;
            if !self.fixed.contains_key(&entry.key) {
                problems
                    .error(entry.key_span, format!("`{}` has no baseline", entry.key))
                    .hint(format!("add `{}` to `[baseline]`", entry.key));
                return None;
            }
            changes.push(change);
        }
        Some(changes)
    }

    /// `[axes.NAME] env = "VARIABLE"` and the operations on it.
    fn named_env_axis(&mut self, entry: &Entry, variable: &Node, problems: &mut Problems) {
        let what = format!("[axes.{}]", entry.key);
        let Some(mut reader) = Reader::new(&entry.node, what, problems) else { return };
        let _known = reader.take("env");
        match text(variable, problems) {
            Some(name) if env_name(name, variable.span, problems) => {
                self.operations(&entry.key, entry, name, reader, problems);
            }
            Some(_) | None => {}
        }
    }

    /// One level for each value of `set`, `append` and `remove`, and one for `unset`.
    fn operations(
        &mut self,
        axis: &str,
        entry: &Entry,
        variable: &str,
        mut reader: Reader<'_>,
        problems: &mut Problems,
    ) {
        let mut found = Vec::new();
        let mut written = 0;
        for op in ["set", "append", "remove"] {
            let Some(node) = reader.take(op) else { continue };
            let nodes = match &node.value {
                Value::Array(nodes) => nodes.as_slice(),
                Value::String(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_)
                | Value::Table(_) => std::slice::from_ref(node),
            };
            written += nodes.len();
            for node in nodes {
                let Some(value) = template(node, problems) else { continue };
                let (op, label) = operation(variable, op, value, &node.label());
                found.push(Level { label, changes: vec![Change::env(variable, op)], span: node.span });
            }
        }
        if let Some(node) = reader.take("unset") {
            written += 1;
            if boolean(node, problems) == Some(true) {
                let changes = vec![Change::env(variable, EnvOp::Unset)];
                found.push(Level { label: "unset".to_owned(), changes, span: node.span });
            }
        }
        reader.finish(problems);
        let baseline = self.env_baseline(variable);
        self.add_axis(axis, baseline, found, written, entry.key_span, problems);
    }

    /// Adds an axis whose levels differ from each other and from the baseline.
    fn add_axis(
        &mut self,
        name: &str,
        baseline: String,
        mut levels: Vec<Level>,
        written: usize,
        span: Span,
        problems: &mut Problems,
    ) {
        if written == 0 {
            problems.error(span, format!("axis `{name}` has no levels")).hint("leave the axis out, or give it a level");
        }
        if written > LEVELS_MAX {
            problems.error(span, format!("axis `{name}` has {written} levels, more than {LEVELS_MAX}"));
            return;
        }
        if self.axes.iter().any(|axis| axis.name == name) {
            problems.error(span, format!("axis `{name}` is there twice"));
        }
        levels.retain(|level| {
            let overridden = level.changes.iter().any(|change| self.is_overridden(&change.what));
            // `--set baseline.batch=2` makes a level of the file the baseline, which is no mistake of the file.
            !(overridden && self.changed(level) == self.draft)
        });
        if levels.is_empty() && written > 0 {
            return;
        }
        let mut drafts: Vec<(Draft, &str)> = vec![(self.draft.clone(), "")];
        let mut labels = BTreeSet::new();
        for level in &levels {
            let draft = self.changed(level);
            // Comparing what levels do finds `["A", "B"]` beside "AB", which no comparison of words would. For long
            // axes that is left to the plan, which finds cells with the same settings.
            match drafts.iter().take(COMPARED_MAX).find(|(other, _)| *other == draft) {
                Some((_, "")) => {
                    problems
                        .error(level.span, format!("level `{}` of axis `{name}` is the baseline", level.label))
                        .hint("the baseline is a level of every axis already; leave it out here");
                }
                Some((_, other)) => {
                    let other = if *other == level.label {
                        "is there twice".to_owned()
                    } else {
                        format!("does the same as `{other}`")
                    };
                    problems.error(level.span, format!("level `{}` of axis `{name}` {other}", level.label));
                }
                None if level.label == baseline || !labels.insert(level.label.as_str()) => {
                    problems
                        .error(level.span, format!("two levels of axis `{name}` are called `{}`", level.label))
                        .hint("give the levels `labels = [\"…\", …]`");
                }
                None => drafts.push((draft, &level.label)),
            }
        }
        self.axes.push(Axis { name: name.to_owned(), baseline, levels, span });
    }

    fn changed(&self, level: &Level) -> Draft {
        let mut draft = self.draft.clone();
        draft.apply(&level.changes);
        draft
    }

    /// What `key` refers to; an error if to nothing.
    fn named(&self, key: &str, span: Span, problems: &mut Problems) -> Option<Named> {
        let is_command = matches!(self.context.kind, WorkloadKind::Command);
        match key.parse::<Knob>() {
            Ok(knob) if knob.belongs_to(self.context.kind) => return Some(Named::Knob(knob)),
            Ok(_) | Err(_) if is_command && self.used.contains(key) => return Some(Named::Variable),
            Ok(knob) => {
                let kinds = [(WorkloadKind::Linear4bit, "linear4bit"), (WorkloadKind::Stack, "stack")];
                let owners: Vec<&str> =
                    kinds.iter().filter(|(kind, _)| knob.belongs_to(*kind)).map(|(_, name)| *name).collect();
                problems
                    .error(span, format!("`{key}` is not an axis of this workload"))
                    .hint(format!("it belongs to the workload {}", list(&owners)));
                return None;
            }
            Err(_) => {}
        }
        if problems.is_full() {
            problems.error(span, format!("unknown axis `{key}`"));
            return None;
        }
        let mut words: Vec<&str> =
            Knob::ALL.iter().filter(|knob| knob.belongs_to(self.context.kind)).map(|knob| knob.as_str()).collect();
        words.extend(self.used.iter().map(String::as_str));
        let hint = match super::problem::did_you_mean(key, words.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None if is_command => {
                format!("a name of your own must be used as a placeholder, `{{{key}}}`, in argv or env")
            }
            None => format!("the axes of this workload are {}", list(&words)),
        };
        problems.error(span, format!("unknown axis `{key}`")).hint(hint);
        None
    }

    pub(super) fn change(&self, key: &str, key_span: Span, node: &Node, problems: &mut Problems) -> Option<Change> {
        match self.named(key, key_span, problems)? {
            Named::Knob(knob) => self.context.level(knob, node, problems),
            Named::Variable => variable(node, problems).map(|value| Change::variable(key, value)),
        }
    }

    /// The names of all layers that a stack has in the baseline or under one other level.
    pub(super) fn stack_labels(&self) -> BTreeSet<String> {
        let levels = self.axes.iter().flat_map(|axis| &axis.levels);
        let drafts = levels.map(|level| self.changed(level)).chain(std::iter::once(self.draft.clone()));
        let labels = drafts.flat_map(|draft| match draft.finish().workload {
            WorkloadSettings::Stack(stack) => stack.all_layers().into_iter().map(|layer| layer.label).collect(),
            WorkloadSettings::Linear4bit(_) | WorkloadSettings::Command(_) => Vec::new(),
        });
        labels.collect()
    }

    /// Every placeholder must be a variable by now.
    pub(super) fn check_placeholders(&self, used: &[(String, Span)], problems: &mut Problems) {
        let mut words: Vec<&str> = self.draft.variables.keys().map(String::as_str).collect();
        words.extend(crate::model::template::RunTimeHole::WORDS);
        for (name, span) in used {
            let known = self.draft.variables.contains_key(name) || self.moved.contains(name) || name == "identity";
            if !known {
                problems.error(*span, format!("unknown placeholder `{{{name}}}`")).hint(suggest(name, &words));
            }
        }
    }
}

fn push_new(keys: &mut Vec<String>, key: String) {
    if !keys.contains(&key) {
        keys.push(key);
    }
}

/// The value of a variable: what only the machine knows may be in it, other variables may not.
fn variable(node: &Node, problems: &mut Problems) -> Option<Variable> {
    let single = |node: &Node, problems: &mut Problems| -> Option<Template> {
        let value = template(node, problems)?;
        if let Some(name) = value.names().next() {
            problems
                .error(node.span, format!("the value of a variable cannot contain the variable `{{{name}}}`"))
                .hint("a literal brace is written twice");
            return None;
        }
        Some(value)
    };
    match &node.value {
        Value::Array(nodes) => {
            let values: Vec<Template> = nodes.iter().filter_map(|node| single(node, problems)).collect();
            (values.len() == nodes.len()).then_some(Variable::Many(values))
        }
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Table(_) => single(node, problems).map(Variable::One),
    }
}
