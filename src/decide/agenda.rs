//! Which trial comes next: cells in randomised blocks, repeats at the end of a block, cells set aside.

use crate::decide::arrange::Asked;
use crate::decide::order::{behind_needs, gather, shuffle};
use crate::decide::plan::{Cell, CellRole, Plan, mode_to_hold};
use crate::decide::stopping::{Decisions, Stops};
use crate::model::capability::{BuildCapabilities, cannot};
use crate::model::ids::{CellId, TrialId};
use crate::model::injection::MachineFault;
use crate::model::matrix::TrialsRule;
use crate::model::power_mode::PowerModes;
use crate::model::protocol::WorkerFault;
use crate::model::settings::{ColdFrom, Start, WorkloadSettings};
use crate::model::verdict::{Counted, Judgement, Role};

/// How often an excluded trial is repeated at the end of its block before the cell is short.
pub const REPEATS_MAX: u8 = 2;

/// Consecutive starts of a cell without a counted verdict, or with a reboot before its child was known to run,
/// after which it is not started again.
pub const QUARANTINE_STARTS: u8 = 3;

/// What the course of a run needs to know of its plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Agenda {
    /// The cells, and after them the one that makes the machine warm, if the plan has it.
    pub cells: Vec<AgendaCell>,
    /// The power modes of this board; none where nvpmodel has no configuration.
    pub power_modes: PowerModes,
    /// Seed of the order within blocks.
    pub seed: u64,
    /// The most boots the run may use.
    pub boots_max: u32,
    /// The most boots in an hour that no trial explains.
    pub unexpected_per_hour_max: u32,
    /// How long the run may take, in milliseconds of the time that its journal knows of.
    pub expires_ms: u64,
    /// Whether the harness may reboot this machine.
    pub may_reboot: bool,
    /// When a cell has enough trials, if their number is not fixed.
    pub stops: Option<Stops>,
    /// Whether somebody adds blocks as the run goes: when every block is through it asks, and is not over.
    pub open_ended: bool,
}

/// What this machine and this build make of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CellHere {
    /// See [`AgendaCell::uses_gpu`].
    pub uses_gpu: bool,
    /// See [`AgendaCell::may_taint`].
    pub may_taint: bool,
    /// See [`AgendaCell::warms`].
    pub warms: bool,
    /// See [`AgendaCell::asked`].
    pub asked: Asked,
    /// See [`AgendaCell::cannot`].
    pub cannot: Option<String>,
    /// See [`AgendaCell::unrecorded_ms`].
    pub unrecorded_ms: u64,
}

/// One cell of an [`Agenda`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgendaCell {
    /// Its id.
    pub id: CellId,
    /// What its trials are for.
    pub role: Role,
    /// How many counted trials it is to have.
    pub rounds: u32,
    /// The state in which each trial must start.
    pub start: Start,
    /// Whether a cold trial needs a boot that began with its power being cut.
    pub from_power: bool,
    /// The power mode, as the matrix says it.
    pub power_mode: Option<String>,
    /// The index of the cell whose artifacts it works with, which comes before it in each block.
    pub needs: Option<u32>,
    /// What it asks of the machine's settings, as this machine says it.
    pub asked: Asked,
    /// Whether clean page cache is dropped before each trial.
    pub drop_caches: bool,
    /// Whether a trial may use the GPU, where there is one.
    pub uses_gpu: bool,
    /// Whether a trial may leave a GPU behind that is no longer fit.
    pub may_taint: bool,
    /// Whether a trial that passes computed on the GPU; on a machine without one, every trial stands in for that.
    pub warms: bool,
    /// Why it cannot run here, if it cannot.
    pub cannot: Option<String>,
    /// Milliseconds after a recorded stage of which nothing may be on the disk; 0 with `breadcrumbs = "sync"`.
    pub unrecorded_ms: u64,
}

impl Agenda {
    /// The agenda of `plan`; `here` says of a cell what this machine and build make of it.
    pub fn of(plan: &Plan, may_reboot: bool, here: impl Fn(usize) -> CellHere) -> Self {
        let cells = plan.all_cells().enumerate().map(|(index, cell)| {
            let CellHere { uses_gpu, may_taint, warms, asked, cannot, unrecorded_ms } = here(index);
            let (role, rounds) = match cell.role {
                CellRole::Sample => (Role::Sample, plan.rounds(cell)),
                CellRole::Control => (Role::Control, plan.rounds(cell)),
                // It is in no block: it runs where another cell needs it.
                CellRole::Warming => (Role::Warming, 0),
            };
            AgendaCell {
                id: cell.id.clone(),
                role,
                rounds,
                start: cell.settings.start,
                from_power: cell.settings.cold_from == ColdFrom::Power,
                power_mode: cell.settings.power_mode.clone(),
                needs: plan.needed_by(index),
                asked,
                drop_caches: cell.settings.drop_caches,
                uses_gpu,
                may_taint,
                warms,
                cannot,
                unrecorded_ms,
            }
        });
        Self {
            cells: cells.collect(),
            power_modes: PowerModes::default(),
            seed: plan.order_seed(),
            boots_max: u32::try_from(plan.boots_max).unwrap_or(u32::MAX),
            unexpected_per_hour_max: plan.unexpected_per_hour_max,
            expires_ms: plan.expires.ms(),
            may_reboot,
            stops: plan.stopping.as_ref().map(|rule| Stops::of(rule, plan.all_cells().map(|cell| &cell.id))),
            open_ended: plan.campaign.is_some() || plan.nightly.is_some(),
        }
    }

    /// How many blocks the plan has: the rounds of the cell with the most.
    pub fn blocks(&self) -> u32 {
        self.cells.iter().map(|cell| cell.rounds).max().unwrap_or(0)
    }

    /// The cells of block `block` (from 0) in the order of their trials, as [`Plan::block_order`] gives it.
    pub fn block_order(&self, block: u32) -> Vec<u32> {
        let mut order: Vec<u32> =
            (0u32..).zip(&self.cells).filter(|(_, cell)| cell.rounds > block).map(|(index, _)| index).collect();
        shuffle(&mut order, self.seed, block);
        gather(&mut order, |index| {
            let cell = &self.cells[index as usize];
            mode_to_hold(cell.start, cell.power_mode.as_deref())
        });
        behind_needs(&mut order, |index| self.cells[index as usize].needs);
        order
    }

    /// The cell that makes the machine warm.
    pub fn warming(&self) -> Option<usize> {
        self.cells.iter().position(|cell| cell.role == Role::Warming)
    }
}

/// Why `build` cannot run trials of `cell`, in words, if it cannot.
pub fn cannot_run(plan: &Plan, cell: &Cell, build: BuildCapabilities) -> Option<String> {
    if let (TrialsRule::UntilDecided(_), None) = (&plan.trials, &plan.stopping) {
        return Some("the stored plan does not say when a cell has enough trials; `jetfault run --new` does".into());
    }
    let is_command = matches!(cell.settings.workload, WorkloadSettings::Command(_));
    for fault in cell.inject.iter().map(|inject| inject.fault) {
        match (MachineFault::of(fault), WorkerFault::of(fault)) {
            (Some(_), _) => {}
            (None, Some(_)) if is_command => {
                let why = "only our own worker commits the fault in its process, and a command is none of ours";
                return Some(format!("{why}: \"{fault}\" ([[inject]])"));
            }
            (None, Some(_)) => {}
            (None, None) => return Some(format!("this build cannot commit the fault \"{fault}\" ([[inject]])")),
        }
    }
    cannot(&cell.settings, build)
}

/// Whether trials of `cell` may commit a fault of the whole machine, which only a parent that is root can do.
pub fn faults_the_machine(cell: &Cell) -> bool {
    cell.inject.iter().any(|inject| MachineFault::of(inject.fault).is_some())
}

/// Where one cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CellProgress {
    /// Counted trials: faults and clean ones.
    pub counted: u32,
    /// Trials judged, of whatever verdict.
    pub judged: u32,
    /// Rounds that it takes part in, so far.
    round: u32,
    /// Trials of the present round.
    attempts: u32,
    /// Excluded trials of the present round that use up repeats.
    excluded: u8,
    /// Whether the present round has its counted trial.
    done: bool,
    /// Starts in a row that gave nothing; see [`QUARANTINE_STARTS`].
    futile: u8,
    /// Whether it is not started again.
    aside: bool,
    /// Whether enough was seen of it.
    decided: bool,
}

impl CellProgress {
    /// Whether it is not started again.
    pub fn is_aside(&self) -> bool {
        self.aside
    }

    fn is_wanted(&self) -> bool {
        !self.aside && !self.decided && !self.done && self.excluded <= REPEATS_MAX
    }
}

/// How a judged trial enters the progress of its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judging {
    /// How its verdict is counted.
    pub counted: Counted,
    /// Whether it gave nothing at all: it counts towards quarantine.
    pub futile: bool,
    /// Whether a person interrupted it, which uses up no repeat.
    pub interrupted: bool,
}

/// The blocks of a run and the place in them.
#[derive(Debug, Clone)]
pub struct Progress {
    cells: Vec<CellProgress>,
    block: u32,
    order: Vec<u32>,
    index: usize,
    /// How many blocks the plan has.
    planned: u32,
    /// Blocks added by `Extended`, which follow the planned ones.
    extended: Vec<Vec<u32>>,
    /// The cell that is due for quarantine.
    suspect: Option<usize>,
    /// What was seen of cells whose number of trials is not fixed.
    decisions: Decisions,
}

impl Progress {
    /// The beginning of `agenda`.
    pub fn new(agenda: &Agenda) -> Self {
        let mut progress = Self {
            cells: vec![CellProgress::default(); agenda.cells.len()],
            block: 0,
            order: Vec::new(),
            index: 0,
            planned: agenda.blocks(),
            extended: Vec::new(),
            suspect: None,
            decisions: Decisions::new(agenda.cells.len(), agenda.stops.as_ref()),
        };
        progress.enter_block(agenda);
        progress
    }

    /// Where each cell stands, in the order of the agenda.
    pub fn cells(&self) -> &[CellProgress] {
        &self.cells
    }

    /// The cell whose last starts gave nothing; it is due for quarantine.
    pub fn suspect(&self) -> Option<usize> {
        self.suspect
    }

    /// Where the decisions stand.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Takes note of what a verdict on a trial of `cell` is evidence of, before [`Progress::judged`] moves on.
    pub fn see(&mut self, agenda: &Agenda, cell: usize, judgement: &Judgement) {
        self.decisions.see(cell, judgement);
        if let Some(stops) = &agenda.stops {
            self.cells[cell].decided = self.decisions.is_decided(stops, cell);
        }
    }

    fn decide(&mut self, agenda: &Agenda) {
        let Some(stops) = &agenda.stops else { return };
        for (cell, state) in self.cells.iter_mut().enumerate() {
            state.decided = self.decisions.is_decided(stops, cell);
        }
    }

    /// How many blocks were added.
    pub fn extensions(&self) -> usize {
        self.extended.len()
    }

    /// The trial that is due, or none if every block is through.
    pub fn due(&self, agenda: &Agenda) -> Option<(usize, TrialId)> {
        let cell = *self.order.get(self.index)? as usize;
        let state = &self.cells[cell];
        let trial = TrialId { cell: agenda.cells[cell].id.clone(), round: state.round, attempt: state.attempts + 1 };
        Some((cell, trial))
    }

    /// Takes note of a verdict on a trial of `cell`.
    pub fn judged(&mut self, agenda: &Agenda, cell: usize, judging: Judging) {
        let state = &mut self.cells[cell];
        state.attempts += 1;
        state.judged += 1;
        state.futile = if judging.interrupted {
            state.futile
        } else if judging.futile {
            state.futile + 1
        } else {
            0
        };
        if state.futile >= QUARANTINE_STARTS {
            self.suspect = Some(cell);
        }
        match judging.counted {
            Counted::Clean | Counted::Fault => {
                state.counted += 1;
                state.done = true;
            }
            Counted::Excluded if judging.interrupted => {}
            Counted::Excluded => state.excluded += 1,
        }
        self.index += 1;
        self.seek(agenda);
    }

    /// Takes note of a verdict on a trial of `cell` in the place of `before`. A trial that is no longer counted is repeated
    /// if its block is still going on.
    pub fn corrected(&mut self, agenda: &Agenda, cell: usize, before: &Judgement, after: &Judgement) {
        self.decisions.correct(cell, before, after);
        let counts = |judgement: &Judgement| judgement.verdict.counted() != Counted::Excluded;
        let state = &mut self.cells[cell];
        match (counts(before), counts(after)) {
            (true, false) => {
                state.counted = state.counted.saturating_sub(1);
                state.excluded += 1;
                state.done = false;
            }
            (false, true) => {
                state.counted += 1;
                state.excluded = state.excluded.saturating_sub(1);
                state.done = true;
            }
            (true, true) | (false, false) => {}
        }
        self.decide(agenda);
        self.seek(agenda);
    }

    /// Takes `cell` out of all further blocks.
    pub fn set_aside(&mut self, agenda: &Agenda, cell: usize) {
        self.cells[cell].aside = true;
        self.suspect = self.suspect.filter(|&suspect| suspect != cell);
        self.decisions.set_aside(cell);
        self.decide(agenda);
        self.seek(agenda);
    }

    /// Adds a block over `cells`, after all others.
    pub fn extend(&mut self, agenda: &Agenda, cells: Vec<u32>) {
        let through = self.order.is_empty();
        self.extended.push(cells);
        if through {
            self.enter_block(agenda);
        }
    }

    /// Moves to the next cell that wants a trial: in this pass, in a further pass of this block, or in a later block.
    fn seek(&mut self, agenda: &Agenda) {
        loop {
            while let Some(&cell) = self.order.get(self.index) {
                if self.cells[cell as usize].is_wanted() {
                    return;
                }
                self.index += 1;
            }
            if self.order.iter().any(|&cell| self.cells[cell as usize].is_wanted()) {
                self.index = 0;
                continue;
            }
            if self.order.is_empty() {
                return;
            }
            if let Some(stops) = &agenda.stops {
                self.decisions.end_block(stops);
                self.decide(agenda);
            }
            self.block += 1;
            self.enter_block(agenda);
            return;
        }
    }

    /// Lays out the present block, or none if there is no further one.
    fn enter_block(&mut self, agenda: &Agenda) {
        loop {
            self.index = 0;
            self.order = match self.block.checked_sub(self.planned) {
                None => agenda.block_order(self.block),
                Some(extra) => self.extended.get(extra as usize).cloned().unwrap_or_default(),
            };
            for &cell in &self.order {
                let state = &mut self.cells[cell as usize];
                *state = CellProgress { round: state.round + 1, attempts: 0, excluded: 0, done: false, ..*state };
            }
            let wanted = self.order.iter().position(|&cell| self.cells[cell as usize].is_wanted());
            match wanted {
                Some(index) => {
                    self.index = index;
                    return;
                }
                None if self.block < self.planned + self.extended.len() as u32 => self.block += 1,
                None => {
                    self.order.clear();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::plan::{PlanOptions, expand};
    use crate::model::matrix::{FaultName, parse};

    fn agenda(cells: usize, rounds: u32) -> Agenda {
        let cell = |i: usize| AgendaCell {
            id: CellId::of(&[i as u8]),
            role: Role::Sample,
            rounds,
            start: Start::Any,
            from_power: false,
            power_mode: None,
            needs: None,
            asked: Asked::new(),
            drop_caches: false,
            uses_gpu: true,
            may_taint: false,
            warms: false,
            cannot: None,
            unrecorded_ms: 100,
        };
        let cells = (0..cells).map(cell).collect();
        Agenda {
            cells,
            power_modes: PowerModes::default(),
            seed: 1936,
            boots_max: 10,
            unexpected_per_hour_max: 6,
            expires_ms: 1_000_000,
            may_reboot: false,
            stops: None,
            open_ended: false,
        }
    }

    fn judging(counted: Counted) -> Judging {
        Judging { counted, futile: counted == Counted::Excluded, interrupted: false }
    }

    #[test]
    fn a_fault_has_somebody_who_commits_it_or_the_cell_cannot_run() {
        let ours = "kind = \"linear4bit\"\nbackend = \"cpu\"\n[shapes]\nA = [64, 64]\n[baseline]\nsequence = \"A\"\n";
        let users = "kind = \"command\"\nargv = [\"true\"]\n";
        let why = |workload: &str, fault: FaultName| {
            let text =
                format!("[matrix]\nname = \"m\"\ntrials = 1\n[workload]\n{workload}[[inject]]\nfault = \"{fault}\"\n");
            let matrix = parse(&text, "m.toml", &[]).unwrap_or_else(|error| panic!("{error}"));
            let plan = expand(&matrix, &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(faults_the_machine(&plan.cells[0]), MachineFault::of(fault).is_some());
            cannot_run(&plan, &plan.cells[0], BuildCapabilities::THIS)
        };
        for &fault in FaultName::ALL {
            let by = (MachineFault::of(fault), WorkerFault::of(fault));
            assert!(by.0.is_none() || by.1.is_none(), "{fault} is committed once");
            assert_eq!(why(ours, fault).is_none(), by != (None, None), "{fault}");
            assert_eq!(why(users, fault).is_none(), by.0.is_some(), "{fault}");
        }
    }

    #[test]
    fn every_block_holds_every_cell_once_in_its_own_order() {
        let agenda = agenda(20, 51);
        for block in 0..50 {
            let mut order = agenda.block_order(block);
            assert_ne!(order, agenda.block_order(block + 1));
            order.sort_unstable();
            assert!(order.into_iter().eq(0..20));
        }
    }

    #[test]
    fn an_excluded_trial_is_repeated_at_the_end_of_its_block_and_twice_at_most() {
        let agenda = agenda(3, 2);
        let mut progress = Progress::new(&agenda);
        let mut ids = Vec::new();
        let poison = progress.due(&agenda).unwrap().0;
        while let Some((cell, trial)) = progress.due(&agenda) {
            assert!(ids.len() < 20, "it ends");
            let verdict = if cell == poison { Counted::Excluded } else { Counted::Clean };
            progress.judged(&agenda, cell, judging(verdict));
            ids.push((cell == poison, trial.round, trial.attempt));
        }
        let poisoned: Vec<_> = ids.iter().filter(|(p, ..)| *p).map(|&(_, r, a)| (r, a)).collect();
        assert_eq!(poisoned, [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]);
        let first_block: Vec<_> = ids.iter().take(5).map(|(p, ..)| *p).collect();
        assert_eq!(first_block, [true, false, false, true, true]);
    }

    #[test]
    fn an_interruption_uses_up_no_repeat_and_no_start() {
        let agenda = agenda(1, 1);
        let mut progress = Progress::new(&agenda);
        for _ in 0..10 {
            let (cell, _) = progress.due(&agenda).expect("still wanted");
            progress.judged(&agenda, cell, Judging { counted: Counted::Excluded, futile: true, interrupted: true });
            assert_eq!(progress.suspect(), None);
        }
        progress.judged(&agenda, 0, judging(Counted::Fault));
        assert_eq!(progress.due(&agenda), None);
    }

    #[test]
    fn an_extended_block_follows_the_planned_ones_even_when_they_are_through() {
        let agenda = agenda(2, 1);
        let mut progress = Progress::new(&agenda);
        for _ in 0..2 {
            let (cell, _) = progress.due(&agenda).unwrap();
            progress.judged(&agenda, cell, judging(Counted::Clean));
        }
        assert_eq!(progress.due(&agenda), None);
        progress.extend(&agenda, vec![1]);
        let (cell, trial) = progress.due(&agenda).unwrap();
        assert_eq!((cell, trial.round, trial.attempt), (1, 2, 1));
        progress.judged(&agenda, cell, judging(Counted::Clean));
        assert_eq!(progress.due(&agenda), None);
    }
}
