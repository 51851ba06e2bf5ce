//! Where the boards of a fleet stand, a line each.

use super::style::{Colour, Style};
use super::table::{Align, Row, elastic, fixed, table};
use super::{one_line, report};
use crate::decide::report::Standing;
use crate::decide::status::Status;

/// The boards with their runs.
pub fn fleet(boards: &[(&str, &Status)], style: &Style) -> String {
    let columns = [
        elastic("board", 8),
        elastic("run", 8),
        elastic("standing", 8),
        fixed("trials", Align::Right),
        fixed("faults", Align::Right),
        fixed("boots", Align::Right),
        elastic("next", 12),
    ];
    let rows: Vec<Row> = boards.iter().map(|(board, status)| row(board, status)).collect();
    table(&columns, &rows, style)
}

fn row(board: &str, status: &Status) -> Row {
    let faults: u64 = status.cells.iter().flat_map(|cell| &cell.rates).map(|(_, rate)| rate.faults).sum();
    let colour = match status.standing {
        Standing::Open if status.waits.is_some() => Some(Colour::Yellow),
        Standing::Paused | Standing::Stopped { .. } => Some(Colour::Yellow),
        Standing::Open | Standing::Complete if faults > 0 => Some(Colour::Red),
        Standing::Open | Standing::Complete => None,
    };
    let next = status.waits.as_ref().or(status.trouble.as_ref()).unwrap_or(&status.next);
    Row {
        texts: vec![
            board.to_owned(),
            status.run.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string),
            one_line(&report::standing(&status.standing)),
            format!("{}/{}", status.trials.counted, status.trials.wanted),
            faults.to_string(),
            status.boots.to_string(),
            one_line(next),
        ],
        colour,
    }
}
