//! A matrix carried through as it stands: every cell its trials, in randomised blocks.

use super::board::{CellModel, SimulatedBoard};
use super::{Course, Worth};
use crate::decide::bisect::Seen;
use crate::decide::order::Draws;
use crate::decide::plan::{CellRole, Plan};
use crate::decide::stats::Counts;
use crate::decide::stopping::{Decision, Decisions, End, Stops};
use crate::model::matrix::Board;

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
        let stops =
            self.plan.stopping.as_ref().map(|rule| Stops::of(rule, self.plan.cells.iter().map(|cell| &cell.id)));
        let mut decisions = Decisions::new(self.cells.len(), stops.as_ref());
        let mut counts = vec![Counts::default(); self.cells.len()];
        for block in 0..self.plan.blocks() {
            for cell in self.plan.block_order(block) {
                let cell = cell as usize;
                if stops.as_ref().is_some_and(|stops| decisions.is_decided(stops, cell)) {
                    continue;
                }
                let mut seen = Counts::default();
                board.run(&self.cells[cell]).count(&mut seen);
                counts[cell] = counts[cell].plus(seen);
                decisions.count(cell, seen);
            }
            stops.iter().for_each(|stops| decisions.end_block(stops));
        }
        let is_sample = |cell: usize| self.plan.cells[cell].role == CellRole::Sample;
        let all: Vec<(Worth, String)> = match &stops {
            None => {
                (0..counts.len()).filter(|cell| is_sample(*cell)).map(|cell| self.judge(cell, counts[cell])).collect()
            }
            Some(stops) => {
                let decided = decisions.all(stops).filter(|decision| is_sample(decision.cell));
                decided.map(|decision| self.judge_decision(&decision)).collect()
            }
        };
        let worst =
            [Worth::Wrong, Worth::Undecided].into_iter().find_map(|worth| all.iter().find(|(w, _)| *w == worth));
        let (worth, answer) = worst.cloned().unwrap_or((Worth::Right, "every cell told right".to_owned()));
        Course { worth, answer, trials: board.trials(), boots: board.boots(), minutes: board.minutes() }
    }

    /// A cell with a fixed number of trials.
    fn judge(&self, cell: usize, counts: Counts) -> (Worth, String) {
        self.told(cell, counts, if counts.faults > 0 { Seen::Fault } else { Seen::Clean })
    }

    /// A cell, or a pair of them, whose number of trials was not fixed.
    fn judge_decision(&self, decision: &Decision) -> (Worth, String) {
        let label = |cell: usize| self.plan.cells[cell].label.as_str();
        let (a, counts) = (decision.cell, decision.counts.a);
        let higher = |more: usize, less: usize| match self.cells[more].rate() > self.cells[less].rate() {
            true => (Worth::Right, String::new()),
            false => {
                (Worth::Wrong, format!("{} seen to fault more often than {}, and does not", label(more), label(less)))
            }
        };
        match (decision.end, decision.other) {
            (Some(End::Faults), _) => self.told(a, counts, Seen::Fault),
            (Some(End::Below), _) => self.told(a, counts, Seen::Clean),
            (Some(End::FirstMore), Some(b)) => higher(a, b),
            (Some(End::SecondMore), Some(b)) => higher(b, a),
            (Some(End::Inconclusive | End::FirstMore | End::SecondMore) | None, _) => {
                (Worth::Undecided, format!("{} stays undecided", label(a)))
            }
        }
    }

    /// What is told of a cell, against what its model does.
    fn told(&self, cell: usize, counts: Counts, told: Seen) -> (Worth, String) {
        let (label, rate) = (&self.plan.cells[cell].label, self.cells[cell].rate());
        let fraction = format!("{}/{}", counts.faults, counts.counted());
        match (told, rate > 0.0) {
            (Seen::Fault, true) | (Seen::Clean, false) => (Worth::Right, String::new()),
            (Seen::Fault, false) => {
                (Worth::Wrong, format!("{label} seen to fault ({fraction}), though only by accident"))
            }
            (Seen::Clean, true) => {
                (Worth::Wrong, format!("{label} looks clean ({fraction}), and faults at {:.0} %", 100.0 * rate))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::plan::{PlanOptions, expand};
    use crate::decide::rehearse::{Summary, campaigns};
    use crate::decide::stats::{RATE_UNKNOWN, Sprt};
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
    fn two_arms_until_decided_take_the_pairs_of_the_e_value() {
        let text = "[matrix]\nname = \"m\"\ntrials = \"until-decided\"\ndecide = { compare = \"batch\", max = 40 }\n\
             [workload]\nkind = \"linear4bit\"\n[shapes]\nA = [64, 64]\n[baseline]\nsequence = \"A\"\nstart = \"cold\"\n\
             [axes]\nbatch = [2]\n[[inject]]\nfault = \"reset\"\nrate = 0.78\nif = { batch = 1 }\n";
        let matrix = parse(text, "m.toml", &[]).unwrap_or_else(|error| panic!("{error}"));
        let plan = expand(&matrix, &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let model = MatrixModel::of(&plan);
        let summary = Summary::of(&campaigns(1, 4_000, 2, |draws| model.rehearse(BOARD, draws)));
        // 6.2 pairs on average at 78 % against nothing, and hardly ever wrong; what the plan says is the same figure.
        assert!((summary.trials.mean / 2.0 - 6.2).abs() < 0.3, "{}", summary.trials.mean);
        assert_eq!((summary.right, summary.wrong), (summary.campaigns, 0));
        let expected = plan.expected().unwrap();
        assert!((expected.blocks - 6.2).abs() < 0.3, "{expected:?}");
        assert!((expected.boots_at_worst - 2.0 * expected.blocks).abs() < 1e-9, "{expected:?}");
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
