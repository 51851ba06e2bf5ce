//! A night for a terminal: the summary first, then the cells.

use std::fmt::Write;

use super::one_line;
use super::style::{Colour, Style, wrap};
use super::table::{Align, Row, elastic, fixed, table};
use crate::decide::compare::p_words;
use crate::decide::nightly::{Alarm, CellNight};

/// The night as text.
pub fn night(cells: &[CellNight], summary: &str, style: &Style) -> String {
    let mut out = String::new();
    let colour = if cells.iter().any(|cell| cell.alarm == Alarm::Fault) { Colour::Red } else { Colour::Bold };
    let mut head = String::new();
    wrap(&mut head, "", &one_line(summary), style.columns());
    for line in head.lines() {
        let _ = writeln!(out, "{}", style.paint(colour, line));
    }
    let columns = [
        elastic("cell", 14),
        fixed("state", Align::Left),
        fixed("tonight", Align::Right),
        fixed("before", Align::Right),
        fixed("chance", Align::Right),
        fixed("adjusted", Align::Right),
    ];
    let row = |cell: &CellNight| Row {
        texts: vec![
            one_line(&cell.label),
            cell.state.to_string(),
            format!("{}/{}", cell.tonight.faults, cell.tonight.counted()),
            format!("{}/{}", cell.history.faults, cell.history.counted()),
            p_words(cell.chance),
            p_words(cell.adjusted),
        ],
        colour: match cell.alarm {
            Alarm::Fault => Some(Colour::Red),
            Alarm::Undecided => Some(Colour::Yellow),
            Alarm::None => None,
        },
    };
    out.push('\n');
    out.push_str(&table(&columns, &cells.iter().map(row).collect::<Vec<_>>(), style));
    for cell in cells {
        wrap(&mut out, "  ", &one_line(&format!("{}: {}", cell.label, cell.says)), style.columns());
    }
    out
}
