//! Axis by level: which levels fault, each seen in the cell that differs from the baseline in that level alone.

use super::cell::CellReport;
use crate::decide::plan::CellRole;

/// One axis with its levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatRow {
    /// The axis.
    pub axis: String,
    /// Its levels, the baseline's first, then in the order of the plan.
    pub levels: Vec<HeatLevel>,
}

/// One level of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatLevel {
    /// The level.
    pub level: String,
    /// Whether the baseline has it.
    pub is_baseline: bool,
    /// Index of the cell that is the baseline with this level; absent if no cell is.
    pub alone: Option<usize>,
    /// Indices of the cells that have it, where none has it alone.
    pub among: Vec<usize>,
}

/// The axes and levels of the sample cells of `cells`; an axis with one level is left out.
pub fn heat(cells: &[CellReport]) -> Vec<HeatRow> {
    let samples = || cells.iter().enumerate().filter(|(_, cell)| cell.role == CellRole::Sample);
    let Some((_, baseline)) = samples().next() else { return Vec::new() };
    let mut rows: Vec<HeatRow> =
        baseline.levels.keys().map(|axis| HeatRow { axis: axis.clone(), levels: Vec::new() }).collect();
    for (index, cell) in samples() {
        let differing = cell.levels.iter().filter(|(axis, level)| baseline.levels.get(*axis) != Some(level)).count();
        for row in &mut rows {
            let Some(level) = cell.levels.get(&row.axis) else { continue };
            let is_baseline = baseline.levels.get(&row.axis) == Some(level);
            let at = row.levels.iter().position(|known| known.level == *level).unwrap_or_else(|| {
                row.levels.push(HeatLevel { level: level.clone(), is_baseline, alone: None, among: Vec::new() });
                row.levels.len() - 1
            });
            let known = &mut row.levels[at];
            if differing == usize::from(!is_baseline) {
                known.alone.get_or_insert(index);
            }
            known.among.push(index);
        }
    }
    for level in rows.iter_mut().flat_map(|row| &mut row.levels).filter(|level| level.alone.is_some()) {
        level.among.clear();
    }
    rows.retain(|row| row.levels.len() > 1);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::report::{RunFacts, report};
    use crate::testing::constructed::{BOARD, Journal, agenda_of, board_provenance, board_script, machine, plan_of};

    #[test]
    fn a_level_is_seen_in_the_cell_that_differs_in_it_alone() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[]);
        let mut journal = Journal::open(&plan, &agenda, board_provenance);
        journal.carry_on(usize::MAX, board_script);
        let run = RunFacts::of("bnb-1936-001".parse().unwrap(), journal.state(), &agenda, machine());
        let cells = report(&plan, run, journal.results()).unwrap().cells;
        let rows = heat(&cells);
        let batch = rows.iter().find(|row| row.axis == "batch").unwrap();
        let seen: Vec<_> = batch
            .levels
            .iter()
            .map(|level| (level.level.as_str(), cells[level.alone.unwrap()].label.as_str()))
            .collect();
        assert_eq!(seen, [("1", "baseline"), ("8", "batch=8")]);
        assert!(rows.iter().all(|row| row.levels[0].is_baseline && row.levels.len() > 1));
    }

    #[test]
    fn a_level_that_no_cell_has_alone_is_seen_among_others() {
        let plan = plan_of(
            "[matrix]\nname = \"small\"\ntrials = 1\ndesign = \"list\"\n[workload]\nkind = \"linear4bit\"\n[shapes]\nA = [512, 1024]\n\
             [baseline]\nsequence = \"A\"\n[[cell]]\n[[cell]]\nbatch = 4\nquant = \"fp4\"\n[[cell]]\nbatch = 8\nquant = \"fp4\"\n",
        );
        let agenda = agenda_of(&plan, &[]);
        let journal = Journal::open(&plan, &agenda, |_| crate::model::verdict::Provenance::Measured);
        let run = RunFacts::of("small-001".parse().unwrap(), journal.state(), &agenda, machine());
        let cells = report(&plan, run, Vec::new()).unwrap().cells;
        let rows = heat(&cells);
        let quant = rows.iter().find(|row| row.axis == "quant").unwrap();
        let fp4 = quant.levels.iter().find(|level| level.level == "fp4").unwrap();
        assert_eq!((fp4.alone, fp4.among.len()), (None, 2));
    }
}
