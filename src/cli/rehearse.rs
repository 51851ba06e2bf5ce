//! `rehearse`: a campaign on a simulated board; nothing runs.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::cli::args::{DataFormat, Global, RehearseArgs, SearchKind};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::{locate, output, plan, render, search};
use crate::decide::bisect::repeat::{Characteristics, Repeats};
use crate::decide::campaign::{Place, Question};
use crate::decide::order::Draws;
use crate::decide::plan::{PlanOptions, Variant, expand};
use crate::decide::rehearse::board::CellModel;
use crate::decide::rehearse::campaigns::{self, KnobsModel, Truth};
use crate::decide::rehearse::matrix::MatrixModel;
use crate::decide::rehearse::{Course, Summary, campaigns as rehearse_many};
use crate::model::matrix::{Board, Matrix};

/// Name and version of the format of `--format json`.
const SCHEMA: &str = "jetfault.rehearsal/1";

/// What a rehearsal found.
#[derive(Debug, Serialize)]
pub struct Rehearsal {
    /// Name and version of the format.
    schema: &'static str,
    /// The matrix.
    pub matrix: String,
    /// The seed.
    pub seed: u64,
    /// The campaigns, once for each thing that may be true.
    pub scenes: Vec<Scene>,
    /// For revisions: what plain bisection would do, which trusts both ends and has to know the rate to choose its k.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plain: Vec<Plain>,
}

/// Plain bisection with repeats.
#[derive(Debug, Serialize)]
pub struct Plain {
    /// How often a revision is run, and what makes it bad.
    pub repeats: Repeats,
    /// What it does on average, if some revision brought the fault.
    pub does: Characteristics,
}

/// Campaigns with one truth.
#[derive(Debug, Serialize)]
pub struct Scene {
    /// What is true.
    pub truth: String,
    /// How they went.
    pub summary: Summary,
}

/// `jetfault rehearse MATRIX`.
///
/// # Errors
/// See [`Failure`].
pub fn rehearse(args: &RehearseArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    let mut matrix = plan::read_matrix(&source, &args.matrix)?;
    if let Some(model) = &args.model {
        let text = read_model(model)?;
        matrix = matrix.with_model(&text, &model.display().to_string()).or_fail(Exit::Usage)?;
    }
    if matrix.inject.is_empty() {
        return Err(Failure::words(Exit::Usage, "the model has no fault: nothing could be found")
            .hint("give `[[inject]]` entries with their rates, in the matrix or in a file with --model"));
    }
    let rehearsal = Rehearsal {
        schema: SCHEMA,
        matrix: matrix.name.clone(),
        seed: args.seed.unwrap_or(matrix.seed),
        scenes: scenes(args, &matrix)?,
        plain: plain(args, &matrix),
    };
    match args.format {
        DataFormat::Json => {
            let mut json = serde_json::to_vec_pretty(&rehearsal).or_fail(Exit::Bug)?;
            json.push(b'\n');
            output::print(&json)?;
        }
        DataFormat::Text => output::print(render::rehearsal(&rehearsal, &output::style(global)).as_bytes())?,
    }
    Ok(Exit::Done)
}

fn read_model(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::words(Exit::Usage, format!("cannot read the model {}: {error}", path.display())))
}

fn scenes(args: &RehearseArgs, matrix: &Matrix) -> Result<Vec<Scene>, Failure> {
    let board = matrix.board.unwrap_or_default();
    let seed = args.seed.unwrap_or(matrix.seed);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let many = |campaign: &(dyn Fn(Draws) -> Course + Sync)| {
        Summary::of(&rehearse_many(seed, args.campaigns, threads, campaign))
    };
    let one = |truth: String, summary: Summary| Ok(vec![Scene { truth, summary }]);
    match args.bisect {
        None => {
            let plan = expand(matrix, &PlanOptions { only: args.matrix.cell.clone() }).map_err(plan::matrix_failure)?;
            let model = MatrixModel::of(&plan);
            one("the matrix as planned".to_owned(), many(&|draws| model.rehearse(board, draws)))
        }
        Some(SearchKind::Revisions) => Ok(revision_scenes(args, matrix, board, &many)),
        Some(kind) => {
            let question = search::question(kind, matrix, &args.search)?;
            let (truth, summary) = question_scene(&question, matrix, board, &many)?;
            one(truth, summary)
        }
    }
}

/// `git bisect`, and with three and five runs of each revision.
fn plain(args: &RehearseArgs, matrix: &Matrix) -> Vec<Plain> {
    if args.bisect != Some(SearchKind::Revisions) {
        return Vec::new();
    }
    let bad = baseline(matrix).rate();
    let spurious = matrix.board.unwrap_or_default().spurious_rate;
    let one = |runs: u64| {
        let repeats = Repeats { runs, faults: 1 };
        // A spurious fault comes at bad revisions too.
        let bad = 1.0 - (1.0 - bad) * (1.0 - spurious);
        Plain { repeats, does: repeats.characteristics(args.revisions as usize, bad, spurious) }
    };
    [1, 3, 5].map(one).into()
}

fn baseline(matrix: &Matrix) -> CellModel {
    let cell = Variant::baseline(matrix).cell().ok().flatten();
    cell.as_ref().map_or_else(|| CellModel::cold(0.0), CellModel::of)
}

/// Carries out one campaign many times.
type Many<'m> = dyn Fn(&(dyn Fn(Draws) -> Course + Sync)) -> Summary + 'm;

fn revision_scenes(args: &RehearseArgs, matrix: &Matrix, board: Board, many: &Many<'_>) -> Vec<Scene> {
    let bad = baseline(matrix);
    let good = CellModel { start: bad.start, faults: Vec::new() };
    let rules = search::history_rules(&args.search);
    let last = args.revisions as usize;
    let scene = |truth: Truth| {
        let words = match truth {
            Truth::InRange => format!("one of {last} revisions brought it"),
            Truth::AlreadyBad => "every revision has it".to_owned(),
            Truth::Absent => "it does not come in this state".to_owned(),
        };
        let one = |draws: Draws| campaigns::revisions(last, &rules, truth, (&bad, &good), board, draws);
        Scene { truth: words, summary: many(&one) }
    };
    Truth::ALL.iter().map(|truth| scene(*truth)).collect()
}

fn question_scene(
    question: &Question,
    matrix: &Matrix,
    board: Board,
    many: &Many<'_>,
) -> Result<(String, Summary), Failure> {
    let cell = |place: Place| match question.cell(matrix, place) {
        Ok(Some(cell)) => Ok(CellModel::of(&cell)),
        Ok(None) => Ok(CellModel::cold(0.0)),
        Err(error) => Err(plan::matrix_failure(error)),
    };
    match question {
        Question::Axes { rules, .. } | Question::Sequence { rules, .. } => {
            let (names, items) = question.elements();
            let model = KnobsModel { names, rules: rules.clone(), forbidden: question.excluded(matrix), items };
            // Impossible combinations cost nothing to know: they are asked for once, before anything is rehearsed.
            cell(question.bad_end())?;
            let of = |kept| cell(Place::Set(kept)).unwrap_or_else(|_| CellModel::cold(0.0));
            let truth = match model.truth(of) {
                Some(set) => format!("load-bearing: {}", model.spell(set)),
                None => "the baseline does not fault".to_owned(),
            };
            Ok((truth, many(&|draws| model.rehearse(of, board, draws))))
        }
        Question::Levels { axis, labels, rules } => {
            let cells: Vec<CellModel> = (0..labels.len()).map(|at| cell(Place::At(at))).collect::<Result<_, _>>()?;
            let truth = format!("{axis}: {}", labels.join(" to "));
            Ok((truth, many(&|draws| campaigns::levels(&cells, rules, board, draws))))
        }
        Question::Revisions { .. } => unreachable!("revisions have scenes of their own"),
    }
}
