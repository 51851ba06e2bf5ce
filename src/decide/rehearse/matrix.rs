//! A matrix carried through as it stands: every cell its trials, in randomised blocks.

use super::board::{CellModel, SimulatedBoard};
use super::{Course, Worth};
use crate::decide::bisect::Seen;
use crate::decide::order::Draws;
use crate::decide::plan::{CellRole, Plan};
use crate::decide::stats::{Counts, RATE_UNKNOWN, Sprt, SprtEnd};
use crate::model::matrix::{Board, TrialsRule};

/// A plan with what its cells do to a board.
#[derive(Debug, Clone)]
pub struct MatrixModel<'p> {
    plan: &'p Plan,
    cells: Vec<CellModel>,
}

impl<'p> MatrixModel<'p> {
    /// The model of `plan`.
    pub fn of(plan: &'p Plan) -> Self {
        Self { plan, cells: plan.cells.iter().map(CellModel::of).collect() }
    }

    /// The plan once on a board. It is right if every sample is told for what it is: a cell whose model faults shows a
    /// fault, a cell whose model does not shows none; until decided, by the sequential test.
    pub fn rehearse(&self, board: Board, draws: Draws) -> Course {
        let mut board = SimulatedBoard::new(board, draws);
        let mut counts = vec![Counts::default(); self.cells.len()];
        for block in 0..self.plan.blocks() {
            for cell in self.plan.block_order(block) {
                let cell = cell as usize;
                if self.end(counts[cell]).is_none() {
                    board.run(&self.cells[cell]).count(&mut counts[cell]);
                }
            }
        }
        let samples = self.plan.cells.iter().enumerate().filter(|(_, cell)| cell.role == CellRole::Sample);
        let mut judged = samples.map(|(index, cell)| self.judge(&cell.label, &self.cells[index], counts[index]));
        let all: Vec<(Worth, String)> = judged.by_ref().collect();
        let worst =
            [Worth::Wrong, Worth::Undecided].into_iter().find_map(|worth| all.iter().find(|(w, _)| *w == worth));
        let (worth, answer) = worst.cloned().unwrap_or((Worth::Right, "every cell told right".to_owned()));
        Course { worth, answer, trials: board.trials(), boots: board.boots(), minutes: board.minutes() }
    }

    /// How the sequential test of a cell ended; nothing where the number of trials is fixed.
    fn end(&self, counts: Counts) -> Option<SprtEnd> {
        match self.plan.trials {
            TrialsRule::Fixed(_) => None,
            TrialsRule::UntilDecided(_) => {
                let test = Sprt::for_rate(RATE_UNKNOWN);
                test.end(counts, test.cap())
            }
        }
    }

    fn judge(&self, label: &str, cell: &CellModel, counts: Counts) -> (Worth, String) {
        let faults = cell.rate() > 0.0;
        let told = match (&self.plan.trials, self.end(counts)) {
            (TrialsRule::Fixed(_), _) if counts.faults > 0 => Some(Seen::Fault),
            (TrialsRule::Fixed(_), _) => Some(Seen::Clean),
            (TrialsRule::UntilDecided(_), Some(SprtEnd::Faults)) => Some(Seen::Fault),
            (TrialsRule::UntilDecided(_), Some(SprtEnd::Below)) => Some(Seen::Clean),
            (TrialsRule::UntilDecided(_), Some(SprtEnd::Inconclusive) | None) => None,
        };
        let fraction = format!("{}/{}", counts.faults, counts.counted());
        let percent = 100.0 * cell.rate();
        match told {
            None => (Worth::Undecided, format!("{label} stays undecided")),
            Some(Seen::Fault) if faults => (Worth::Right, String::new()),
            Some(Seen::Clean) if !faults => (Worth::Right, String::new()),
            Some(Seen::Fault) => (Worth::Wrong, format!("{label} seen to fault ({fraction}), though only by accident")),
            Some(Seen::Clean) => {
                (Worth::Wrong, format!("{label} looks clean ({fraction}), and faults at {percent:.0} %"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::plan::{PlanOptions, expand};
    use crate::decide::rehearse::{Summary, campaigns};
    use crate::model::matrix::parse;

    const BOARD: Board =
        Board { minutes_per_boot: 2.0, minutes_per_trial: 1.0, spurious_rate: 0.0, boot_lottery: 0.0, drift: 0.0 };

    fn plan(trials: &str) -> Plan {
        let text = format!(
            "[matrix]\nname = \"m\"\ntrials = {trials}\n[workload]\nkind = \"linear4bit\"\n[shapes]\nA = [64, 64]\n\
             [baseline]\nsequence = \"A\"\nstart = \"cold\"\n[[inject]]\nfault = \"reset\"\nrate = 0.78\n\
             if = {{ start = \"cold\" }}\n"
        );
        let matrix = parse(&text, "m.toml", &[]).unwrap_or_else(|error| panic!("{error}"));
        expand(&matrix, &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_cold_campaign_until_decided_does_what_its_test_does_exactly() {
        let plan = plan("\"until-decided\"");
        let model = MatrixModel::of(&plan);
        let summary = Summary::of(&campaigns(1, 20_000, 2, |draws| model.rehearse(BOARD, draws)));
        let test = Sprt::for_rate(RATE_UNKNOWN);
        let exact = test.operating(0.78, test.cap());
        let right = f64::from(summary.right) / f64::from(summary.campaigns);
        // Monte Carlo: four standard errors.
        assert!((right - exact.faults).abs() < 0.005, "{right} {}", exact.faults);
        assert!((summary.trials.mean - exact.trials).abs() < 0.05, "{} {}", summary.trials.mean, exact.trials);
    }

    #[test]
    fn three_fixed_trials_miss_a_fault_of_78_percent_once_in_a_hundred() {
        let plan = plan("3");
        let model = MatrixModel::of(&plan);
        let summary = Summary::of(&campaigns(1, 20_000, 2, |draws| model.rehearse(BOARD, draws)));
        let missed = f64::from(summary.wrong) / f64::from(summary.campaigns);
        assert!((missed - 0.22_f64.powi(3)).abs() < 0.003, "{missed}");
        assert_eq!(summary.wrong_answers.len(), 1);
        assert!(summary.wrong_answers[0].0.contains("looks clean (0/3)"), "{:?}", summary.wrong_answers);
    }
}
