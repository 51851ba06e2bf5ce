//! From the options of a search to the question that is asked of a matrix.

use crate::cli::args::{SearchArgs, SearchKind};
use crate::cli::errors::Failure;
use crate::cli::exit::Exit;
use crate::decide::bisect::posterior::FalseFaults;
use crate::decide::bisect::revisions::Costs;
use crate::decide::bisect::{Gate, knobs, revisions};
use crate::decide::campaign::{self, Question, QuestionError};
use crate::model::matrix::Matrix;

/// The question of another kind than revisions.
///
/// # Errors
/// If the matrix cannot be asked that.
pub fn question(kind: SearchKind, matrix: &Matrix, args: &SearchArgs) -> Result<Question, Failure> {
    let question = match kind {
        SearchKind::Axes => campaign::axes(matrix, &args.axis, knob_rules(args)),
        SearchKind::Sequence => campaign::sequence(matrix, args.orders, knob_rules(args)),
        SearchKind::Levels => match args.axis.as_slice() {
            [axis] => campaign::levels(matrix, axis, (args.good.as_deref(), args.bad.as_deref()), history_rules(args)),
            _ => {
                return Err(
                    Failure::words(Exit::Usage, "`bisect levels` searches one axis").hint("name it: --axis batch")
                );
            }
        },
        SearchKind::Revisions => unreachable!("revisions are read from a repository"),
    };
    question.map_err(failure)
}

/// The failure of a question that cannot be asked.
pub fn failure(error: QuestionError) -> Failure {
    let hint = error.hint.clone();
    Failure::new(Exit::Usage, error).hint(hint)
}

fn gate(args: &SearchArgs) -> Gate {
    if args.thorough { Gate::THOROUGH } else { Gate::QUICK }
}

fn false_faults(args: &SearchArgs) -> FalseFaults {
    if args.no_false_faults { FalseFaults::Impossible } else { FalseFaults::Possible }
}

fn knob_rules(args: &SearchArgs) -> knobs::Rules {
    knobs::Rules {
        gate: gate(args),
        runs_max: args.budget,
        false_faults: false_faults(args),
        confirm: !args.no_confirm,
        ..knobs::Rules::default()
    }
}

/// The rules of a search for a position.
pub fn history_rules(args: &SearchArgs) -> revisions::Rules {
    let build = args.build_cost.unwrap_or(0.0);
    revisions::Rules {
        gate: gate(args),
        runs_max: args.budget,
        false_faults: false_faults(args),
        costs: args.build_cost.map(|_| Costs { run: 1.0, build, switch: 0.0 }),
        ..revisions::Rules::default()
    }
}
