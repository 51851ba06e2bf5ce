//! `bisect`: a search whose runs are trials of a matrix, each step a run of the ordinary machinery.

use std::sync::atomic::AtomicUsize;

use crate::cli::args::{BisectArgs, Global, SearchKind};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::run::{Begin, begin};
use crate::cli::{campaign, locate, plan, search};
use crate::decide::campaign::{Campaign, Question, revisions};
use crate::decide::plan::campaign_plan;
use crate::decide::stats::Counts;
use crate::model::matrix::Matrix;
use crate::perform::invoker;
use crate::perform::revisions::HistoryError;

/// `jetfault bisect KIND MATRIX`.
///
/// # Errors
/// See [`Failure`].
pub fn bisect(args: &BisectArgs, global: &Global) -> Outcome {
    let source = locate::matrix(&args.matrix.matrix)?;
    if let Some(cell) = args.matrix.cell.first() {
        return Err(Failure::words(Exit::Usage, format!("--cell {cell}: a search chooses its cells itself"))
            .hint("leave it out; --axis says which axes are searched"));
    }
    let matrix = plan::read_matrix(&source, &args.matrix)?;
    let question = match args.kind {
        SearchKind::Revisions => history(args, &matrix, &source.dir.to_string_lossy())?,
        kind => search::question(kind, &matrix, &args.search)?,
    };
    let asked = Campaign { question, known: Vec::new(), controls: Counts::default(), signature: None };
    let plan = campaign_plan(&matrix, asked).map_err(plan::matrix_failure)?;
    let how = Begin {
        new: args.new,
        device: args.session.device.as_ref(),
        accept_binary: args.session.accept_binary,
        script: None,
        allow: args.session.allow,
        boot: &args.session.boot,
        format: args.format,
        detach: args.detach,
    };
    begin(&source, plan, &how, global)
}

fn history(args: &BisectArgs, matrix: &Matrix, matrix_dir: &str) -> Result<Question, Failure> {
    let invoker = invoker::collect().or_fail(Exit::Unfit)?;
    // Nothing is prepared yet: git answers, or is ended with this process.
    let signal = AtomicUsize::new(0);
    let repository = campaign::repository(matrix, matrix_dir, &invoker, &signal);
    let (Some(repository), Some(wanted)) = (repository, &matrix.revisions) else {
        return Err(Failure::words(Exit::Usage, "the matrix has no [revisions] to search")
            .hint("give it `repo`, `good` and `bad`; versions that are built already are levels: `bisect levels`"));
    };
    let history = repository.history(wanted, &args.path).map_err(|error| {
        let hint = match &error {
            HistoryError::Equal { .. } => "name two different revisions as `good` and `bad` in [revisions]",
            HistoryError::Apart { .. } => "take as `good` a revision that `bad` comes from: `git merge-base` names one",
            HistoryError::TooMany(_) => "narrow the range, or set `first_parent = true` in [revisions]",
            HistoryError::Refused { .. } => "check `repo`, `good`, `bad` and `skip` in [revisions]",
            HistoryError::Git(_) => "install git, or name it in [tools]",
        };
        let exit = if matches!(error, HistoryError::Git(_)) { Exit::Unfit } else { Exit::Usage };
        Failure::new(exit, error).hint(hint)
    })?;
    revisions(history, search::history_rules(&args.search)).map_err(search::failure)
}
