//! The simulated board: what a trial of a cell shows, and what it costs in boots and minutes.

use crate::decide::bisect::Seen;
use crate::decide::order::Draws;
use crate::decide::plan::Cell;
use crate::model::injection::MachineFault;
use crate::model::matrix::Board;
use crate::model::settings::Start;

/// After so many trials a drift has reached its full size.
pub const DRIFT_TRIALS: f64 = 40.0;

/// What a cell does to the board.
#[derive(Debug, Clone, PartialEq)]
pub struct CellModel {
    /// The state that it asks for.
    pub start: Start,
    /// Its faults.
    pub faults: Vec<FaultModel>,
}

/// A fault of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultModel {
    /// In which part of the trials, 0 to 1.
    pub rate: f64,
    /// In which states; empty for all.
    pub states: Vec<Start>,
    /// Whether it takes the machine down.
    pub reboots: bool,
}

impl CellModel {
    /// What the deliberate faults of `cell` make of it.
    pub fn of(cell: &Cell) -> Self {
        let fault = |inject: &crate::decide::plan::InjectedFault| FaultModel {
            rate: inject.rate,
            states: inject.start.clone(),
            reboots: MachineFault::of(inject.fault).is_some(),
        };
        Self { start: cell.settings.start, faults: cell.inject.iter().map(fault).collect() }
    }

    /// A cell that faults, and reboots, in part `rate` of its cold trials.
    pub fn cold(rate: f64) -> Self {
        Self { start: Start::Cold, faults: vec![FaultModel { rate, states: Vec::new(), reboots: true }] }
    }

    /// The rate of its faults in the state that it asks for, or cold if it takes any.
    pub fn rate(&self) -> f64 {
        let state = if self.start == Start::Warm { Start::Warm } else { Start::Cold };
        1.0 - self.faults_in(state).map(|fault| 1.0 - fault.rate).product::<f64>()
    }

    fn faults_in(&self, state: Start) -> impl Iterator<Item = &FaultModel> {
        self.faults.iter().filter(move |fault| fault.states.is_empty() || fault.states.contains(&state))
    }
}

/// A board in virtual time.
#[derive(Debug, Clone)]
pub struct SimulatedBoard {
    model: Board,
    draws: Draws,
    minutes: f64,
    boots: u32,
    trials: u32,
    /// Trials of this boot.
    position: u32,
    /// Whether this is a boot in which the fault cannot happen.
    lucky: bool,
    /// Whether a fault brought this boot about; then a planned one comes before the next cold trial.
    after_fault: bool,
}

impl SimulatedBoard {
    /// A board that was just booted.
    pub fn new(model: Board, mut draws: Draws) -> Self {
        let lucky = draws.happens(model.boot_lottery);
        Self {
            model,
            draws,
            minutes: model.minutes_per_boot,
            boots: 1,
            trials: 0,
            position: 0,
            lucky,
            after_fault: false,
        }
    }

    /// Counted trials so far.
    pub fn trials(&self) -> u32 {
        self.trials
    }

    /// Boots so far, the first included.
    pub fn boots(&self) -> u32 {
        self.boots
    }

    /// Minutes so far.
    pub fn minutes(&self) -> f64 {
        self.minutes
    }

    /// The draws of this campaign.
    pub fn draws(&mut self) -> &mut Draws {
        &mut self.draws
    }

    /// One counted trial of `cell`, with the boots that it needs before and makes after it.
    pub fn run(&mut self, cell: &CellModel) -> Seen {
        match cell.start {
            Start::Cold if self.position > 0 || self.after_fault => self.boot(false),
            Start::Warm if self.position == 0 => self.pass_trial(),
            Start::Cold | Start::Warm | Start::Any => {}
        }
        let state = if self.position == 0 { Start::Cold } else { Start::Warm };
        let drift = 1.0 + self.model.drift * (f64::from(self.trials) / DRIFT_TRIALS).min(1.0);
        let mut seen = Seen::Clean;
        let mut reboots = false;
        for fault in cell.faults_in(state) {
            // Drawn for each fault, so that the draws after it do not depend on it.
            let happens = self.draws.happens((fault.rate * drift).clamp(0.0, 1.0));
            if happens && !self.lucky {
                seen = Seen::Fault;
                reboots |= fault.reboots;
            }
        }
        if self.draws.happens(self.model.spurious_rate) {
            (seen, reboots) = (Seen::Fault, true);
        }
        self.pass_trial();
        self.trials += 1;
        if reboots {
            self.boot(true);
        }
        seen
    }

    fn pass_trial(&mut self) {
        self.position += 1;
        self.minutes += self.model.minutes_per_trial;
    }

    fn boot(&mut self, after_fault: bool) {
        self.boots += 1;
        self.minutes += self.model.minutes_per_boot;
        self.position = 0;
        self.after_fault = after_fault;
        self.lucky = self.draws.happens(self.model.boot_lottery);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(model: Board) -> SimulatedBoard {
        SimulatedBoard::new(model, Draws::new(1, 1))
    }

    fn model() -> Board {
        Board { minutes_per_boot: 2.0, minutes_per_trial: 1.0, spurious_rate: 0.0, boot_lottery: 0.0, drift: 0.0 }
    }

    #[test]
    fn a_cold_trial_has_a_boot_of_its_own_and_after_a_fault_one_more() {
        let mut clean = board(model());
        for _ in 0..10 {
            assert_eq!(clean.run(&CellModel::cold(0.0)), Seen::Clean);
        }
        assert_eq!((clean.boots(), clean.minutes()), (10, 30.0));
        let mut faulty = board(model());
        for _ in 0..10 {
            assert_eq!(faulty.run(&CellModel::cold(1.0)), Seen::Fault);
        }
        // The first boot, one after each fault, and a planned one before each further trial.
        assert_eq!(faulty.boots(), 1 + 10 + 9);
    }

    #[test]
    fn a_fault_of_cold_trials_leaks_away_where_any_state_will_do() {
        let fault = FaultModel { rate: 1.0, states: vec![Start::Cold], reboots: false };
        let cell = CellModel { start: Start::Any, faults: vec![fault] };
        let mut board = board(model());
        assert_eq!(board.run(&cell), Seen::Fault);
        assert_eq!([board.run(&cell), board.run(&cell)], [Seen::Clean, Seen::Clean]);
    }

    #[test]
    fn in_a_lucky_boot_nothing_happens_and_a_drift_has_its_size() {
        let mut lucky = board(Board { boot_lottery: 1.0, ..model() });
        assert!((0..20).all(|_| lucky.run(&CellModel::cold(1.0)) == Seen::Clean));
        let mut fading = board(Board { drift: -1.0, ..model() });
        let faults =
            |board: &mut SimulatedBoard| (0..40).filter(|_| board.run(&CellModel::cold(1.0)) == Seen::Fault).count();
        let first = faults(&mut fading);
        assert!((10..30).contains(&first), "{first}");
        assert_eq!(faults(&mut fading), 0);
    }
}
