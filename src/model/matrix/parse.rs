//! From text to [`Matrix`]: the order in which the sections are read, and what they need of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::axis::{Context, WorkloadKind};
use super::document::{Node, Override, digest, read};
use super::faults::model;
use super::levels::Levels;
use super::problem::{Problem, Problems, Severity, Sources, Span};
use super::profile::{read_profiles, shipped};
use super::reader::{Reader, array, count, integer, named, scalar, text, word};
use super::sections::Sections;
use super::{
    DECIDE_MAX_DEFAULT, Decide, Design, MATRIX_BYTES_MAX, Matrix, MatrixError, PLAN_TRIALS_MAX, Places, TrialsRule,
    workload,
};
use crate::model::ids::is_name;
use crate::model::settings::Shape;

/// The largest side of a layer: 2^24, and no layer has more than 2^32 weights, which is what the kernels index.
const FEATURES_MAX: i64 = Shape::FEATURES_MAX as i64;
const WEIGHTS_MAX: u64 = 1 << 32;

/// Reads a matrix from the bytes of a file; see [`parse`].
///
/// # Errors
/// If there are more than [`MATRIX_BYTES_MAX`] bytes, if they are not UTF-8, and as [`parse`].
pub fn parse_bytes(bytes: &[u8], file_name: &str, overrides: &[Override]) -> Result<Matrix, MatrixError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text, file_name, overrides),
        Err(error) => {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MATRIX_BYTES_MAX)]);
            let at = error.valid_up_to();
            let message = format!("not UTF-8: byte {at} is 0x{:02x}", bytes[at]);
            Err(one(
                file_name,
                &text,
                Span { source: 0, start: at, end: at + 1 },
                &message,
                "matrices are TOML in UTF-8",
            ))
        }
    }
}

/// Reads a matrix from `source`, after the changes of the command line.
///
/// # Errors
/// Everything that is wrong with the text, with its place in `file_name` or in the argument.
pub fn parse(source: &str, file_name: &str, overrides: &[Override]) -> Result<Matrix, MatrixError> {
    if source.len() > MATRIX_BYTES_MAX {
        let message = format!("the file has {} bytes, more than {MATRIX_BYTES_MAX}", source.len());
        return Err(one(file_name, source, Span::default(), &message, "is this a matrix?"));
    }
    let mut problems = Problems::default();
    let mut sources = Sources::file(file_name, source);
    let mut root = read(source, 0, &mut problems);
    for change in overrides {
        change.apply(&mut root, &mut sources, &mut problems);
    }
    // A file that is not TOML has been read in part only: complaints about the rest would be guesses.
    let matrix = if problems.has_errors() { None } else { read_root(&root, overrides, &mut problems) };
    let sources = Arc::new(sources);
    match matrix {
        Some(matrix) if !problems.has_errors() => Ok(Matrix { sources, ..matrix }),
        Some(_) | None => Err(MatrixError::new(problems.into_sorted(), sources)),
    }
}

impl Matrix {
    /// The matrix with the deliberate faults and the board of a model, as `rehearse` reads it from a file of its own.
    ///
    /// # Errors
    /// As [`parse`]; the faults must fit the stages and axes of this matrix.
    pub fn with_model(self, source: &str, file_name: &str) -> Result<Matrix, MatrixError> {
        if source.len() > MATRIX_BYTES_MAX {
            let message = format!("the file has {} bytes, more than {MATRIX_BYTES_MAX}", source.len());
            return Err(one(file_name, source, Span::default(), &message, "is this a model of a board?"));
        }
        let mut problems = Problems::default();
        let root = read(source, 0, &mut problems);
        let model = if problems.has_errors() { None } else { model(&root, &Levels::of(&self), &mut problems) };
        match model {
            Some((inject, board)) if !problems.has_errors() => Ok(Matrix { inject, board, ..self }),
            Some(_) | None => Err(MatrixError::new(problems.into_sorted(), Arc::new(Sources::file(file_name, source)))),
        }
    }
}

fn one(file_name: &str, text: &str, span: Span, message: &str, hint: &str) -> MatrixError {
    let hint = Some(hint.to_owned());
    let problem = Problem { severity: Severity::Error, message: message.to_owned(), span, hint };
    MatrixError::new(vec![problem], Arc::new(Sources::file(file_name, text)))
}

/// The `[matrix]` section.
struct Head {
    name: String,
    about: String,
    design: Design,
    trials: TrialsRule,
    seed: u64,
    compare_span: Option<Span>,
    places: Places,
}

fn read_root(root: &Node, overrides: &[Override], problems: &mut Problems) -> Option<Matrix> {
    let mut reader = Reader::new(root, "the file", problems)?;
    let head = reader.require("matrix", problems).and_then(|node| read_head(node, problems));
    let workload_node = reader.require("workload", problems);
    let kind = workload_node.and_then(|node| workload::kind(node, problems));
    let mut places = Places::default();
    let shapes = reader.take("shapes").map(|node| read_shapes(node, &mut places, problems)).unwrap_or_default();
    let profiles = reader.take("profiles").map_or_else(shipped, |node| read_profiles(node, problems));
    let sections = Sections::take(&mut reader);
    let (baseline, axes) = (reader.take("baseline"), reader.take("axes"));
    let (exclude, cell) = (reader.take("exclude"), reader.take("cell"));
    reader.finish(problems);
    let (workload_node, kind) = (workload_node?, kind?);

    let used = sections.placeholders(workload_node, baseline, axes, problems);
    let names: BTreeSet<String> = used.iter().map(|(name, _)| name.clone()).collect();
    let mut levels = Levels::new(Context { shapes: &shapes, profiles: &profiles, kind }, names);
    sections.vars(&mut levels, problems);
    let workload = workload::read(workload_node, kind, problems);
    levels.begin(workload, problems);
    if let Some(node) = baseline {
        levels.baseline(node, &mut places, problems);
    }
    if let Some(node) = axes {
        levels.axes(node, problems);
    }
    levels.check_placeholders(&used, problems);
    let cells = levels.assignments(cell, problems);
    let excludes = levels.excludes(exclude, problems);
    let rest = sections.read(&levels, problems);
    let head = head?;
    check_head(&head, &levels, &cells, cell.unwrap_or(root).span, problems);
    let places = Places { baseline: places.baseline, shapes: places.shapes, ..head.places };
    let Levels { axes, draft, fixed, .. } = levels;
    Some(Matrix {
        name: head.name,
        about: head.about,
        design: head.design,
        trials: head.trials,
        seed: head.seed,
        kind,
        axes,
        excludes,
        cells,
        controls: rest.controls,
        expects: rest.expects,
        factors: rest.factors,
        revisions: rest.revisions,
        bisect_use: rest.bisect_use,
        nightly_subject: rest.nightly_subject,
        safety: rest.safety,
        inject: rest.inject,
        board: rest.board,
        tools: rest.tools,
        digest: digest(root),
        overrides: overrides.iter().map(ToString::to_string).collect(),
        baseline: draft,
        fixed,
        places,
        sources: Arc::default(),
        shapes,
        profiles,
    })
}

fn read_head(node: &Node, problems: &mut Problems) -> Option<Head> {
    let mut reader = Reader::new(node, "[matrix]", problems)?;
    let name_node = reader.require("name", problems);
    let name = name_node.and_then(|node| text(node, problems)).unwrap_or_default().to_owned();
    if let Some(node) = name_node.filter(|_| !is_name(&name)) {
        problems
            .error(node.span, format!("`{name}` cannot name a matrix"))
            .hint("a name has 1 to 64 of `a-z A-Z 0-9 _ . -` and begins with a letter or a digit");
    }
    let about = reader.take("about").and_then(|node| text(node, problems)).unwrap_or_default().to_owned();
    let design_node = reader.take("design");
    let design = design_node.and_then(|node| word(node, "design", Design::WORDS, problems)).unwrap_or_default();
    let seed = reader.take("seed").and_then(|node| integer(node, 0..=i64::MAX, problems)).unwrap_or(0);
    let trials_node = reader.require("trials", problems);
    let decide_node = reader.take("decide");
    reader.finish(problems);
    let decide = decide_node.and_then(|node| read_decide(node, problems));
    let trials = trials_node.and_then(|node| read_trials(node, decide.as_ref(), problems));
    if let (Some(node), Some(TrialsRule::Fixed(_))) = (decide_node, &trials) {
        problems
            .error(node.span, "`decide` has no meaning with a fixed number of trials")
            .hint("write trials = \"until-decided\"");
    }
    let places = Places {
        design: design_node.map_or(node.span, |node| node.span),
        trials: trials_node.map_or(node.span, |node| node.span),
        ..Places::default()
    };
    let compare_span = decide_node.map(|node| node.span);
    Some(Head { name, about, design, trials: trials?, seed: seed.unsigned_abs(), compare_span, places })
}

fn read_trials(node: &Node, decide: Option<&Decide>, problems: &mut Problems) -> Option<TrialsRule> {
    use super::document::Value;
    match &node.value {
        Value::Integer(0) => {
            problems
                .error(node.span, "zero trials measure nothing")
                .hint("trials is the number of counted trials per cell");
            None
        }
        Value::String(text) if text == "until-decided" => {
            let decide = decide.cloned().unwrap_or(Decide { compare: None, max: DECIDE_MAX_DEFAULT });
            Some(TrialsRule::UntilDecided(decide))
        }
        Value::Integer(_) => {
            let most = i64::try_from(PLAN_TRIALS_MAX).unwrap_or(i64::MAX);
            let trials = integer(node, 1..=most, problems)?;
            u32::try_from(trials).ok().map(TrialsRule::Fixed)
        }
        Value::String(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => {
            problems
                .error(node.span, format!("expected a number of trials, found {}", node.kind()))
                .hint("expected an integer from 1, or \"until-decided\"");
            None
        }
    }
}

fn read_decide(node: &Node, problems: &mut Problems) -> Option<Decide> {
    let mut reader = Reader::new(node, "decide", problems)?;
    let compare = reader.take("compare").and_then(|node| text(node, problems)).map(str::to_owned);
    let max = reader.take("max").map(|node| count(node, 1, problems));
    reader.finish(problems);
    Some(Decide { compare, max: max.unwrap_or(Some(DECIDE_MAX_DEFAULT))? })
}

fn read_shapes(node: &Node, places: &mut Places, problems: &mut Problems) -> BTreeMap<String, Shape> {
    let mut shapes = BTreeMap::new();
    for entry in named(node, "[shapes]", problems) {
        places.shapes.insert(entry.key.clone(), entry.node.span);
        // A shape that is wrong is defined all the same: its uses are no further mistakes.
        shapes.insert(entry.key.clone(), Shape::WARM_UP);
        let Some(sides) = array(&entry.node, "`[in_features, out_features]`", problems) else { continue };
        let [in_features, out_features] = sides else {
            problems
                .error(entry.node.span, format!("shape `{}` has not two sides but {}", entry.key, sides.len()))
                .hint("a shape is `[in_features, out_features]`");
            continue;
        };
        let mut side = |node: &Node| {
            if matches!(node.value, super::document::Value::Integer(0)) {
                problems
                    .error(node.span, format!("shape `{}` has a side of zero", entry.key))
                    .hint("a layer has weights");
                return None;
            }
            integer(node, 1..=FEATURES_MAX, problems).and_then(|side| u32::try_from(side).ok())
        };
        let (in_features, out_features) = (side(in_features), side(out_features));
        let (Some(in_features), Some(out_features)) = (in_features, out_features) else { continue };
        let Ok(shape) = Shape::new(in_features, out_features) else { continue };
        if shape.weights() > WEIGHTS_MAX {
            problems.error(entry.node.span, format!("shape `{}` has more than 2^32 weights", entry.key));
        }
        shapes.insert(entry.key.clone(), shape);
    }
    shapes
}

/// What `[matrix]` says of the rest.
fn check_head(
    head: &Head,
    levels: &Levels<'_>,
    cells: &[super::Assignment],
    cells_span: Span,
    problems: &mut Problems,
) {
    match head.design {
        Design::List if cells.is_empty() => {
            problems
                .error(head.places.design, "design `list` without cells")
                .hint("add `[[cell]]` entries; an empty one is the baseline");
        }
        Design::OneOff | Design::Full | Design::List => {}
    }
    let needs_sequence = matches!(levels.context.kind, WorkloadKind::Linear4bit | WorkloadKind::Stack);
    let in_all_cells = head.design == Design::List && cells.iter().all(|cell| cell.labels.contains_key("sequence"));
    let in_baseline = levels.draft.settings.linear4bit().is_some_and(|settings| !settings.sequence.is_empty());
    let has_sequence = in_baseline || in_all_cells;
    if needs_sequence && !has_sequence && !problems.has_errors() {
        problems.error(cells_span, "the baseline has no `sequence`").hint(match levels.context.kind {
            WorkloadKind::Stack => "add profile = \"tiny\", or a sequence, to `[baseline]`",
            WorkloadKind::Linear4bit | WorkloadKind::Command => "add sequence = \"A\" to `[baseline]`",
        });
    }
    let TrialsRule::UntilDecided(Decide { compare: Some(compare), .. }) = &head.trials else { return };
    let span = head.compare_span.unwrap_or(head.places.trials);
    match levels.axes.iter().find(|axis| axis.name == *compare) {
        None => {
            let names: Vec<&str> = levels.axes.iter().map(|axis| axis.name.as_str()).collect();
            problems
                .error(span, format!("`{compare}` is not an axis of this matrix"))
                .hint(super::problem::suggest(compare, &names));
        }
        Some(axis) if axis.levels.len() != 1 => {
            problems
                .error(
                    span,
                    format!("comparing takes two arms, and axis `{compare}` has {} levels", axis.levels.len() + 1),
                )
                .hint("leave one level beside the baseline, or decide each cell by itself");
        }
        Some(_) => {}
    }
}

/// A value that is passed on as text, under a name.
pub(super) fn texts(node: &Node, what: &str, problems: &mut Problems) -> BTreeMap<String, String> {
    let entries = named(node, what, problems);
    entries.iter().filter_map(|entry| Some((entry.key.clone(), scalar(&entry.node, problems)?))).collect()
}
