//! `fleet submit`: a job array of an engine that a lab has already, an element for each block of a matrix.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::block::{digest_of, one_trial};
use super::run::permissions;
use crate::cli::args::{Engine, FleetArgs, FleetSubmitArgs, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::locate::{self, MatrixSource};
use crate::cli::output;
use crate::cli::plan::{make_plan, read_matrix};
use crate::decide::fleet::{Array, job_script, shell_line};
use crate::decide::plan::Plan;
use crate::model::ids::ContentDigest;
use crate::model::matrix::TrialsRule;
use crate::perform::files::write_durably;
use crate::perform::host::{Command, Keep, Limit, TEXT_BYTES_MAX, ask};
use crate::perform::store::ResultsDir;

/// How long the engine may take to accept a job.
const PATIENCE: Duration = Duration::from_secs(120);

/// The script of the elements, in the directory of the blocks.
const SCRIPT: &str = "job.sh";

/// What was submitted last, in the directory of the blocks.
pub(super) const SUBMISSION: &str = "submission.json";

/// Name and version of that file's format.
const SCHEMA: &str = "jetfault.submission/1";

/// What was submitted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Submission {
    schema: String,
    /// The matrix, as it was named.
    matrix: String,
    /// What its blocks are of.
    digest: ContentDigest,
    /// How many blocks there are.
    pub(super) blocks: u32,
    /// What the engine calls the job.
    pub(super) job: String,
}

/// `fleet submit MATRIX`.
pub(super) fn submit(fleet: &FleetArgs, args: &FleetSubmitArgs, global: &Global) -> Outcome {
    let Engine::Slurm = args.engine;
    if !fleet.board.is_empty() {
        return Err(Failure::words(Exit::Usage, "--board chooses a board of an inventory, and this reads none")
            .hint("--tag is a feature of nodes; or tell Slurm itself: -- --nodelist=NODE"));
    }
    let source = locate::matrix(&args.matrix.matrix)?;
    let plan = make_plan(&source, &args.matrix)?;
    let blocks = blocks_of(&plan)?;
    let digest = digest_of(&read_matrix(&source, &one_trial(&args.matrix))?, &args.matrix);
    let dir = blocks_dir(&plan, &digest, global)?;
    let matrix = absolute(&args.matrix.matrix)?;
    let script = job_script(&args.program, &options(args, &dir, &digest)?, &matrix).or_fail(Exit::Usage)?;
    let array = Array {
        name: plan.matrix_name.clone(),
        blocks,
        at_a_time: args.at_a_time,
        features: fleet.tag.clone(),
        options: args.options.clone(),
    };
    let file = Path::new(&dir).join(SCRIPT);
    let argv = array.sbatch(text(&file)?).or_fail(Exit::Usage)?;
    if args.dry_run {
        let line = shell_line(argv.iter().map(String::as_str)).or_fail(Exit::Usage)?;
        output::print(script.as_bytes())?;
        output::say(format_args!("would be in {} and be submitted by: {line}", file.display()));
        return Ok(Exit::Done);
    }
    warn_of(&source, global);
    ResultsDir::make(Path::new(&dir)).or_fail(Exit::Unfit)?;
    write_durably(&file, script.as_bytes()).or_fail(Exit::Unfit)?;
    let job = hand_over(&argv)?;
    let submission = Submission { schema: SCHEMA.to_owned(), matrix, digest, blocks, job: job.clone() };
    let mut json = serde_json::to_vec_pretty(&submission).expect("a submission has string keys");
    json.push(b'\n');
    write_durably(&Path::new(&dir).join(SUBMISSION), &json).or_fail(Exit::Unfit)?;
    output::print(format!("{job}\n").as_bytes())?;
    if !global.quiet {
        output::say(format_args!("{blocks} blocks; `jetfault fleet collect {dir}` says what became of them"));
    }
    // Nothing is known yet.
    Ok(Exit::Undecided)
}

/// How many blocks `plan` has, if it is one of blocks that can be run anywhere.
fn blocks_of(plan: &Plan) -> Result<u32, Failure> {
    if plan.needs.boots > 0 {
        return Err(Failure::words(
            Exit::Usage,
            "an element of an array cannot wait for the boots that this matrix needs",
        )
        .hint("`jetfault fleet run` carries it over boots; or allow any state with --set baseline.start=any"));
    }
    match plan.trials {
        TrialsRule::Fixed(trials) => Ok(trials),
        TrialsRule::UntilDecided(_) => {
            Err(Failure::words(Exit::Usage, "elements of an array cannot see when the matrix is decided")
                .hint("say how many blocks with --trials N"))
        }
    }
}

/// The directory of the blocks: another one for another matrix, or for other changes of it.
fn blocks_dir(plan: &Plan, digest: &ContentDigest, global: &Global) -> Result<String, Failure> {
    let results = std::path::absolute(locate::results_path(global.results.as_deref())).or_fail(Exit::Usage)?;
    let name = format!("{}-blocks-{}", plan.matrix_name, &digest.as_str()[..8]);
    text(&results.join(name)).map(str::to_owned)
}

/// A file by its whole path, which must be the same on the nodes; a shipped matrix by its name.
fn absolute(matrix: &str) -> Result<String, Failure> {
    if !Path::new(matrix).is_file() {
        return Ok(matrix.to_owned());
    }
    text(&Path::new(matrix).canonicalize().or_fail(Exit::Usage)?).map(str::to_owned)
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::words(Exit::Usage, format!("{} is not UTF-8", path.display())))
}

/// The options of the element, without number and device.
fn options(args: &FleetSubmitArgs, dir: &str, digest: &ContentDigest) -> Result<Vec<String>, Failure> {
    let mut options = vec![format!("--results={dir}"), format!("--submitted={digest}")];
    let mut option = |name: &str, value: &String| options.push(format!("{name}={value}"));
    args.matrix.cell.iter().for_each(|cell| option("--cell", cell));
    args.matrix.set.iter().for_each(|set| option("--set", set));
    args.how.script.iter().for_each(|script| option("--script", script));
    options.extend(args.how.accept_binary.then(|| "--accept-binary".to_owned()));
    options.extend(permissions(&args.how.allow));
    Ok(options)
}

/// Says what may go wrong on the nodes.
fn warn_of(source: &MatrixSource, global: &Global) {
    if !global.quiet && Path::new(&source.name).is_file() {
        output::say(format_args!("{} must be there, by the same path, on every node", source.name));
    }
}

/// Submits; returns what the engine calls the job.
fn hand_over(argv: &[String]) -> Result<String, Failure> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let limit = Limit { bytes: TEXT_BYTES_MAX, keep: Keep::Start };
    let answer = ask(&Command { file: "sbatch", argv: &words, patience: PATIENCE, limit }).map_err(|error| {
        Failure::words(Exit::Unfit, format!("cannot start sbatch: {error}"))
            .hint("submit where Slurm's commands are; --dry-run prints what would be submitted")
    })?;
    if !answer.status.success() {
        let said = answer.complaint.lines().next().unwrap_or("it said nothing").to_owned();
        return Err(Failure::words(Exit::Unfit, format!("sbatch refused the job: {said} ({})", answer.status)));
    }
    // With --parsable it says NUMBER or NUMBER;CLUSTER.
    let said = String::from_utf8_lossy(&answer.output);
    Ok(said.lines().next().unwrap_or_default().split(';').next().unwrap_or_default().to_owned())
}
