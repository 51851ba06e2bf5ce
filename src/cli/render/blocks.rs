//! The blocks of a submitted array, a line each, and what they found by cell and device.

use super::one_line;
use super::style::{Colour, Style};
use super::table::{Align, Row, elastic, fixed, table};
use crate::decide::fleet::{BlockRow, BlockStanding, Collected};

/// All blocks, and below them the joined trials.
pub fn blocks(collected: &Collected, style: &Style) -> String {
    let columns = [
        fixed("block", Align::Right),
        elastic("device", 8),
        fixed("standing", Align::Left),
        fixed("trials", Align::Right),
        fixed("faults", Align::Right),
        elastic("run", 12),
    ];
    let rows: Vec<Row> = collected.blocks.iter().map(row).collect();
    let mut out = table(&columns, &rows, style);
    let known = if collected.submitted.is_some() { "" } else { "; how many were submitted is not known" };
    out.push_str(&format!("\nblocks done: {} of {}{known}\n", collected.done(), collected.wanted()));
    if collected.cut_off() > 0 {
        let many = collected.cut_off();
        out.push_str(&format!(
            "{many} cut off with a node and done elsewhere: what ended that node is in no figure here;\n\
             `jetfault resume --results DIR` on it judges that from its evidence, and then counts\n"
        ));
    }
    if !collected.cells.is_empty() {
        out.push('\n');
        out.push_str(&cells(collected, style));
    }
    out
}

fn row(row: &BlockRow) -> Row {
    let (words, colour) = match row.standing {
        BlockStanding::Done => ("done", (row.faults > 0).then_some(Colour::Red)),
        BlockStanding::Open => ("open", Some(Colour::Yellow)),
        BlockStanding::Elsewhere => ("cut off, done elsewhere", None),
        BlockStanding::Again => ("done again, not counted", None),
        BlockStanding::Missing => ("missing", Some(Colour::Yellow)),
        BlockStanding::Unreadable => ("unreadable", Some(Colour::Red)),
    };
    // Nothing is known of a block that is not there.
    let known = |text: String| if row.run.is_some() { text } else { String::new() };
    Row {
        texts: vec![
            row.block.to_string(),
            one_line(row.device.as_deref().unwrap_or("–")),
            words.to_owned(),
            known(format!("{}/{}", row.counted, row.wanted)),
            known(row.faults.to_string()),
            one_line(row.why.as_deref().or(row.run.as_deref()).unwrap_or_default()),
        ],
        colour,
    }
}

fn cells(collected: &Collected, style: &Style) -> String {
    let columns = [
        elastic("cell", 12),
        elastic("device", 8),
        fixed("trials are", Align::Left),
        fixed("faults", Align::Right),
        fixed("of", Align::Right),
    ];
    let rows: Vec<Row> = (collected.cells.iter())
        .map(|cell| Row {
            texts: vec![
                one_line(&cell.cell),
                one_line(&cell.device),
                cell.provenance.as_str().to_owned(),
                cell.faults.to_string(),
                cell.counted.to_string(),
            ],
            colour: (cell.faults > 0).then_some(Colour::Red),
        })
        .collect();
    table(&columns, &rows, style)
}
