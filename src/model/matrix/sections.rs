//! The smaller sections: variables, controls, expectations, revisions, safety, tools.

use std::collections::BTreeMap;

use super::choices::Matcher;
use super::document::{Node, Value};
use super::draft::{Draft, Variable};
use super::faults::{Board, Inject, board, inject};
use super::levels::Levels;
use super::parse::texts;
use super::problem::{Problems, Span, suggest};
use super::reader::{Reader, argv, array, boolean, count, inside, named, parsed, text, word};
use super::workload::command;
use crate::model::quantity::{Limit, Millis};
use crate::model::settings::{CommandSettings, Watch, WorkloadSettings};
use crate::model::template::Template;
use crate::model::words::words;

words! {
    /// A verdict, as an expectation names it.
    VerdictName {
        /// Every stage done, results right.
        Pass = "pass",
        /// Numbers or output differ.
        WrongResult = "wrong-result",
        /// The driver reported an error.
        CudaError = "cuda-error",
        /// A clean allocation failure.
        CudaOom = "cuda-oom",
        /// Killed for memory.
        OomKill = "oom-kill",
        /// Killed without evidence.
        Killed = "killed",
        /// A fatal signal.
        Crash = "crash",
        /// No progress.
        Hang = "hang",
        /// A hang that survives SIGKILL.
        Unkillable = "unkillable",
        /// Another non-zero exit.
        Error = "error",
        /// Exit 0 without what it promised.
        ArtifactMissing = "artifact-missing",
        /// The boot id changed.
        Reboot = "reboot",
    }
}

words! {
    /// A program of the machine whose path a matrix may give.
    Tool {
        /// Reads and sets power modes.
        Nvpmodel = "nvpmodel",
        /// Locks clocks.
        JetsonClocks = "jetson_clocks",
        /// Takes a device into use for swap.
        Swapon = "swapon",
        /// Takes one out of use.
        Swapoff = "swapoff",
        /// Samples the board.
        Tegrastats = "tegrastats",
        /// Samples discrete GPUs.
        NvidiaSmi = "nvidia-smi",
        /// Debugger.
        Gdb = "gdb",
        /// Revisions.
        Git = "git",
        /// Service manager.
        Systemctl = "systemctl",
        /// Journal reader.
        Journalctl = "journalctl",
        /// Package database.
        DpkgQuery = "dpkg-query",
    }
}

/// A cell with an expectation whose failure makes the rows that lean on it undecided.
#[derive(Debug, Clone)]
pub struct Control {
    /// Its name.
    pub name: String,
    /// Its settings, before variables are filled in.
    pub draft: Draft,
    /// Name and label of what it changes in the baseline.
    pub labels: BTreeMap<String, String>,
    /// The verdict that it must get.
    pub verdict: VerdictName,
    /// What it shows, in a sentence.
    pub shows: String,
    /// How many trials; `None` is as many as a sample.
    pub trials: Option<u32>,
    /// The label of the cell whose artifacts it works with, and where that is written.
    pub needs: Option<(String, Span)>,
    /// Where it stands.
    pub span: Span,
}

/// What is expected of some cells.
#[derive(Debug, Clone)]
pub struct Expect {
    /// Which cells.
    pub cell: Matcher,
    /// The verdict.
    pub verdict: VerdictName,
}

/// The revisions that `bisect revisions` searches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revisions {
    /// The checkout; it is never touched.
    pub repo: String,
    /// A revision without the fault.
    pub good: String,
    /// A revision with the fault.
    pub bad: String,
    /// Whether only the first parents of merges are searched.
    pub first_parent: bool,
    /// Builds a revision; without it the worktree is used as it is.
    pub prepare: Vec<Template>,
    /// Deadline of `prepare`.
    pub prepare_timeout: Limit,
    /// Revisions that are known not to build.
    pub skip: Vec<String>,
}

/// Limits of what a run may do to a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Safety {
    /// The most boots of a run; `None` is twice the plan and ten.
    pub max_boots: Option<u32>,
    /// The most boots in an hour with no trial open.
    pub max_unexpected_per_hour: u32,
    /// After this a board is disarmed.
    pub expires: Millis,
}

impl Default for Safety {
    fn default() -> Self {
        Self { max_boots: None, max_unexpected_per_hour: 6, expires: Millis::from_secs(7 * 86_400) }
    }
}

/// The sections as found.
pub(super) struct Sections<'n> {
    vars: Option<&'n Node>,
    controls: Option<&'n Node>,
    expect: Option<&'n Node>,
    factors: Option<&'n Node>,
    revisions: Option<&'n Node>,
    bisect: Option<&'n Node>,
    nightly: Option<&'n Node>,
    safety: Option<&'n Node>,
    inject: Option<&'n Node>,
    board: Option<&'n Node>,
    tools: Option<&'n Node>,
}

/// The sections as read.
pub(super) struct Rest {
    pub(super) controls: Vec<Control>,
    pub(super) expects: Vec<Expect>,
    pub(super) factors: BTreeMap<String, String>,
    pub(super) revisions: Option<Revisions>,
    pub(super) bisect_use: BTreeMap<String, String>,
    pub(super) nightly_subject: Vec<String>,
    pub(super) safety: Safety,
    pub(super) inject: Vec<Inject>,
    pub(super) board: Option<Board>,
    pub(super) tools: BTreeMap<Tool, String>,
}

/// Keys of a command that may have placeholders.
const TEMPLATE_KEYS: [&str; 7] = ["argv", "env", "cwd", "artifacts", "loads", "prepare", "server"];

impl<'n> Sections<'n> {
    pub(super) fn take(reader: &mut Reader<'n>) -> Self {
        Self {
            vars: reader.take("vars"),
            controls: reader.take("controls"),
            expect: reader.take("expect"),
            factors: reader.take("factors"),
            revisions: reader.take("revisions"),
            bisect: reader.take("bisect"),
            nightly: reader.take("nightly"),
            safety: reader.take("safety"),
            inject: reader.take("inject"),
            board: reader.take("board"),
            tools: reader.take("tools"),
        }
    }

    /// Every placeholder of the matrix that is filled when cells are made, with its place.
    pub(super) fn placeholders(
        &self,
        workload: &Node,
        baseline: Option<&Node>,
        axes: Option<&Node>,
        problems: &mut Problems,
    ) -> Vec<(String, Span)> {
        let mut used = Vec::new();
        let controls = self.controls.and_then(as_table).map(|table| table.0.iter().map(|entry| &entry.node));
        for node in std::iter::once(workload).chain(controls.into_iter().flatten()) {
            for node in TEMPLATE_KEYS.iter().filter_map(|key| as_table(node)?.get(key)) {
                collect(node, &mut used);
            }
        }
        let prepare = self.revisions.and_then(as_table).and_then(|table| table.get("prepare"));
        let has_revisions = self.revisions.is_some();
        for table in [baseline, axes].into_iter().flatten().filter_map(as_table) {
            for entry in &table.0 {
                let fields = as_table(&entry.node);
                let is_env_axis = fields.is_some_and(|fields| fields.get("env").is_some());
                if is_env_axis || ["env", "prelude", "companion"].contains(&entry.key.as_str()) {
                    collect(&entry.node, &mut used);
                }
            }
        }
        if let Some(node) = prepare {
            collect(node, &mut used);
        }
        if !has_revisions {
            for (name, span) in used.iter().filter(|(name, _)| name.starts_with("rev.")) {
                problems
                    .error(*span, format!("`{{{name}}}` needs a `[revisions]` section"))
                    .hint("only a revision has a directory");
            }
        }
        used.retain(|(name, _)| name.parse::<crate::model::template::RunTimeHole>().is_err());
        used
    }

    pub(super) fn vars(&self, levels: &mut Levels<'_>, problems: &mut Problems) {
        let Some(node) = self.vars else { return };
        for entry in named(node, "[vars]", problems) {
            levels.set_variable(entry, problems);
        }
    }

    pub(super) fn read(&self, levels: &Levels<'_>, problems: &mut Problems) -> Rest {
        Rest {
            controls: self.controls.map(|node| controls(node, levels, problems)).unwrap_or_default(),
            expects: each(self.expect, |node| expect(node, levels, problems)),
            factors: self.factors.map(|node| texts(node, "[factors]", problems)).unwrap_or_default(),
            revisions: self.revisions.and_then(|node| revisions(node, levels, problems)),
            bisect_use: self.bisect.map(|node| bisect_use(node, levels, problems)).unwrap_or_default(),
            nightly_subject: self.nightly.map(|node| self.subject(node, levels, problems)).unwrap_or_default(),
            safety: self.safety.and_then(|node| safety(node, problems)).unwrap_or_default(),
            inject: each(self.inject, |node| inject(node, levels, problems)),
            board: self.board.and_then(|node| board(node, problems)),
            tools: self.tools.map(|node| tools(node, problems)).unwrap_or_default(),
        }
    }

    /// `[nightly]`: the factors that are the subject of the comparison.
    fn subject(&self, node: &Node, levels: &Levels<'_>, problems: &mut Problems) -> Vec<String> {
        let Some(mut reader) = Reader::new(node, "[nightly]", problems) else { return Vec::new() };
        let subject = reader.take("subject");
        reader.finish(problems);
        let nodes = subject.and_then(|node| array(node, "an array of factors", problems)).unwrap_or_default();
        let own = self.factors.and_then(as_table).map(|table| table.0.iter().map(|entry| entry.key.as_str()));
        let mut factors: Vec<&str> = levels.fixed.keys().map(String::as_str).collect();
        factors.extend(levels.axes.iter().map(|axis| axis.name.as_str()));
        factors.extend(["device", "prior_end", "launcher"]);
        factors.extend(own.into_iter().flatten());
        let mut subject = Vec::new();
        for node in nodes {
            let Some(name) = text(node, problems) else { continue };
            if !factors.contains(&name) {
                problems.error(node.span, format!("`{name}` is not a factor")).hint(suggest(name, &factors));
            }
            subject.push(name.to_owned());
        }
        subject
    }
}

/// What `read` makes of each entry of an array of tables, or of the one table that stands in its place.
pub(super) fn each<T>(node: Option<&Node>, read: impl FnMut(&Node) -> Option<T>) -> Vec<T> {
    match node.map(|node| &node.value) {
        Some(Value::Array(nodes)) => nodes.iter().filter_map(read).collect(),
        Some(
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Table(_),
        )
        | None => node.into_iter().filter_map(read).collect(),
    }
}

fn as_table(node: &Node) -> Option<&super::document::Table> {
    match &node.value {
        Value::Table(table) => Some(table),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_) => None,
    }
}

/// The placeholders in every string below `node`. Strings that are no templates are reported where they are read.
fn collect(node: &Node, used: &mut Vec<(String, Span)>) {
    match &node.value {
        Value::String(text) => {
            let Ok(template) = text.parse::<Template>() else { return };
            let names = template.names().map(str::to_owned);
            let holes = template.run_time_holes().map(|hole| hole.to_string());
            used.extend(names.chain(holes).map(|name| {
                let written = format!("{{{name}}}");
                let place = text.find(&written).map(|at| inside(node, text, at..at + written.len()));
                (name, place.unwrap_or(node.span))
            }));
        }
        Value::Array(nodes) => nodes.iter().for_each(|node| collect(node, used)),
        Value::Table(table) => table.0.iter().for_each(|entry| collect(&entry.node, used)),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

fn controls(node: &Node, levels: &Levels<'_>, problems: &mut Problems) -> Vec<Control> {
    let entries = named(node, "[controls]", problems);
    let controls = entries.iter().filter_map(|entry| {
        let mut reader = Reader::new(&entry.node, format!("[controls.{}]", entry.key), problems)?;
        let cell = reader.take("cell").map(|node| levels.assignment(node, problems));
        let verdict = reader.take("verdict").map(|node| verdict(node, problems));
        let shows = reader.take("shows").and_then(|node| text(node, problems)).unwrap_or_default().to_owned();
        let trials = reader.take("trials").and_then(|node| count(node, 1, problems));
        let timeout: Option<Limit> = reader.take("timeout").and_then(|node| parsed(node, problems));
        let needs = reader.take("needs").and_then(|node| Some((text(node, problems)?.to_owned(), node.span)));
        let has_command = reader.take("argv").is_some();
        let mut draft = levels.draft.clone();
        draft.settings.workload = match (draft.settings.workload, has_command) {
            (WorkloadSettings::Command(base), _) => WorkloadSettings::Command(command(&mut reader, base, problems)),
            (WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_), true) => {
                // A program beside a 4-bit workload has no stages of the worker; the whole trial has one deadline.
                draft.settings.watch = Watch { stage_timeout: Limit::Off, ..draft.settings.watch };
                WorkloadSettings::Command(command(&mut reader, CommandSettings::default(), problems))
            }
            (workload @ (WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_)), false) => workload,
        };
        if let Some(node) = reader.take("env") {
            for (name, op, _) in super::env::env_ops(node, "env", problems) {
                draft.apply(&[super::draft::Change::env(&name, op)]);
            }
        }
        reader.finish(problems);
        let mut labels = BTreeMap::new();
        if let Some(assignment) = cell {
            let assignment = assignment?;
            draft.apply(&assignment.level.changes);
            labels = assignment.labels;
        }
        if let Some(timeout) = timeout {
            draft.settings.watch.timeout = timeout;
        }
        let verdict = verdict.unwrap_or(Some(VerdictName::Pass))?;
        Some(Control { name: entry.key.clone(), draft, labels, verdict, shows, trials, needs, span: entry.key_span })
    });
    controls.collect()
}

fn verdict(node: &Node, problems: &mut Problems) -> Option<VerdictName> {
    word(node, "verdict", VerdictName::WORDS, problems)
}

fn expect(node: &Node, levels: &Levels<'_>, problems: &mut Problems) -> Option<Expect> {
    let mut reader = Reader::new(node, "[[expect]]", problems)?;
    let cell = reader.take("cell").map(|node| levels.matcher(node, "an expectation", problems));
    let verdict = reader.require("verdict", problems).and_then(|node| verdict(node, problems));
    reader.finish(problems);
    Some(Expect { cell: cell.unwrap_or_else(|| Some(Matcher::default()))?, verdict: verdict? })
}

fn revisions(node: &Node, levels: &Levels<'_>, problems: &mut Problems) -> Option<Revisions> {
    let mut reader = Reader::new(node, "[revisions]", problems)?;
    let mut revision = |key| {
        reader
            .require(key, problems)
            .and_then(|node| text(node, problems))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let (repo, good, bad) = (revision("repo"), revision("good"), revision("bad"));
    let first_parent = reader.take("first_parent").and_then(|node| boolean(node, problems)).unwrap_or(false);
    let prepare = reader.take("prepare").and_then(|node| argv(node, problems)).unwrap_or_default();
    let timeout = reader.take("prepare_timeout").and_then(|node| parsed(node, problems));
    let skip = reader.take("skip").and_then(|node| array(node, "an array of revisions", problems)).unwrap_or_default();
    let skip = skip.iter().filter_map(|node| text(node, problems).map(str::to_owned)).collect();
    reader.finish(problems);
    let (repo, good, bad) = (repo?, good?, bad?);
    if good == bad {
        problems.error(node.span, format!("good and bad are the same revision, `{good}`"));
    }
    let fill = |template: &Template| {
        template.fill(|name| match levels.draft.variables.get(name) {
            Some(Variable::One(value)) => Some(value),
            Some(Variable::Many(_)) | None => None,
        })
    };
    let prepare = prepare.iter().map(fill).collect();
    let prepare_timeout = timeout.unwrap_or(Limit::After(Millis::from_secs(3600)));
    Some(Revisions { repo, good, bad, first_parent, prepare, prepare_timeout, skip })
}

fn bisect_use(node: &Node, levels: &Levels<'_>, problems: &mut Problems) -> BTreeMap<String, String> {
    let mut chosen = BTreeMap::new();
    let Some(mut reader) = Reader::new(node, "[bisect]", problems) else { return chosen };
    let node = reader.take("use");
    reader.finish(problems);
    let Some(matcher) = node.and_then(|node| levels.matcher(node, "[bisect.use]", problems)) else { return chosen };
    for (name, labels) in matcher.0 {
        let axis = levels.axes.iter().find(|axis| axis.name == name);
        let [label] = labels.as_slice() else { continue };
        if levels.is_overridden(&name) {
            continue;
        }
        if axis.is_none_or(|axis| axis.baseline == *label) {
            let span = node.map(|node| node.span).unwrap_or_default();
            problems
                .error(span, format!("a flip of `{name}` to `{label}` is none"))
                .hint("name an axis of this matrix and a level other than the baseline's");
        }
        chosen.insert(name, label.clone());
    }
    chosen
}

fn safety(node: &Node, problems: &mut Problems) -> Option<Safety> {
    let mut reader = Reader::new(node, "[safety]", problems)?;
    let default = Safety::default();
    let max_boots = reader.take("max_boots").and_then(|node| count(node, 1, problems));
    let per_hour = reader.take("max_unexpected_per_hour").and_then(|node| count(node, 1, problems));
    let expires: Option<Millis> = reader.take("expires").and_then(|node| parsed(node, problems));
    reader.finish(problems);
    Some(Safety {
        max_boots,
        max_unexpected_per_hour: per_hour.unwrap_or(default.max_unexpected_per_hour),
        expires: expires.unwrap_or(default.expires),
    })
}

fn tools(node: &Node, problems: &mut Problems) -> BTreeMap<Tool, String> {
    let mut tools = BTreeMap::new();
    for entry in named(node, "[tools]", problems) {
        let path = text(&entry.node, problems);
        match (entry.key.parse::<Tool>(), path) {
            (Ok(tool), Some(path)) => {
                tools.insert(tool, path.to_owned());
            }
            (Ok(_), None) => {}
            (Err(_), _) => {
                problems
                    .error(entry.key_span, format!("`{}` is not a tool that is used", entry.key))
                    .hint(suggest(&entry.key, Tool::WORDS));
            }
        }
    }
    tools
}
