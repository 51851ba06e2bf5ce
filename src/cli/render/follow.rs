//! A run that is followed: one screen that holds what matters, or a line for each change.

use std::fmt::Write;

use super::style::{Colour, Style, wrap};
use super::table::{cut, table};
use super::{counted, one_line, report, status};
use crate::decide::plan::Plan;
use crate::decide::report::Standing;
use crate::decide::status::{CellStatus, Status, evidence_words};
use crate::model::journal::{Event, Record};
use crate::model::verdict::Counted;

/// The fewest lines that are left for cells.
const CELL_LINES_MIN: usize = 4;

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// One screen of `status`, at most one line less than there are: the cursor stands in the last. `trouble` is why it could
/// not be read again.
pub fn follow(status: &Status, trouble: Option<&str>, screen: Screen, colour: bool) -> String {
    let style = if colour { Style::coloured(screen.columns) } else { Style::plain(screen.columns) };
    let rows = screen.rows.saturating_sub(1).max(CELL_LINES_MIN);
    let mut lines = head(status, trouble, &style);
    let room = rows.saturating_sub(lines.len() + 1).max(CELL_LINES_MIN.min(rows));
    lines.truncate(rows.saturating_sub(room + 1));
    let cells = cells(status, room, &style);
    lines.push(String::new());
    lines.extend(cells.lines().map(str::to_owned));
    let fitted: Vec<String> = lines.iter().take(rows).map(|line| fit(line, screen.columns)).collect();
    fitted.join("\n") + "\n"
}

/// What is known of the run as a whole, the most important first, one line each where that is possible.
fn head(status: &Status, trouble: Option<&str>, style: &Style) -> Vec<String> {
    let name = status.run.as_ref().map_or("a run that was not opened", |run| run.as_str());
    let colour = match status.standing {
        Standing::Open | Standing::Complete => Colour::Bold,
        Standing::Paused | Standing::Stopped { .. } => Colour::Yellow,
    };
    let mut lines = vec![style.paint(colour, &format!("{name}: {}", report::standing(&status.standing)))];
    let mut fact = |name: &str, text: &str, most: usize| {
        let mut wrapped = String::new();
        wrap(&mut wrapped, &format!("{name:<8} "), &one_line(text), style.columns());
        let all = wrapped.lines().count();
        for (number, line) in wrapped.lines().take(most).enumerate() {
            let is_cut = number + 1 == most && all > most;
            lines.push(if is_cut { cut(&format!("{line} …"), style.columns()) } else { line.to_owned() });
        }
    };
    let faults: u64 = status.cells.iter().flat_map(|cell| &cell.rates).map(|(_, rate)| rate.faults).sum();
    fact("trials", &format!("{}; {}", status::trials(status), counted(faults, "fault")), 1);
    fact("boots", &status::boots(status), 1);
    if let Some(trouble) = trouble {
        fact("waits", &format!("it cannot be read just now: {trouble}"), 2);
    }
    for (name, text) in [("waits", &status.waits), ("boot", &status.elsewhere), ("trouble", &status.trouble)] {
        if let Some(text) = text {
            fact(name, text, 2);
        }
    }
    if let Some(open) = &status.open {
        fact("open", &status::open(open), 1);
    }
    if let Some(last) = &status.last {
        fact("last", &format!("{} of {}: {}", last.trial, last.label, last.verdict), 1);
        if !last.evidence.is_empty() {
            fact("", &last.evidence, 2);
        }
    }
    if status.open.is_none() || status.waits.is_some() {
        fact("next", &status.next, 1);
    }
    if let Some(command) = status.go_on.as_ref().or(status.stop.as_ref()) {
        fact(if status.go_on.is_some() { "go on" } else { "stop" }, command, 1);
    }
    lines
}

/// The table of cells in at most `room` lines: what faults, is open or came last before others, in the order of the plan;
/// those that have no room are summed in one line.
fn cells(status: &Status, room: usize, style: &Style) -> String {
    let rows: usize = status.cells.iter().map(status::lines_of).sum();
    if rows < room {
        let all: Vec<_> = status.cells.iter().flat_map(status::rows_of).collect();
        return table(&status::columns(status.interval), &all, style);
    }
    let open = status.open.as_ref().map(|open| &open.trial.cell);
    let last = status.last.as_ref().map(|last| &last.trial.cell);
    let dullness = |cell: &CellStatus| match () {
        () if Some(&cell.id) == open => 0,
        () if Some(&cell.id) == last => 1,
        () if cell.rates.iter().any(|(_, rate)| rate.faults > 0) => 2,
        () if cell.set_aside => 3,
        () if cell.counted > 0 && cell.counted < u64::from(cell.wanted) => 4,
        () => 5,
    };
    let mut order: Vec<usize> = (0..status.cells.len()).collect();
    order.sort_by_key(|index| dullness(&status.cells[*index]));
    // The heading, and the line that sums the rest.
    let mut left = room.saturating_sub(2);
    let mut shown: Vec<usize> = Vec::new();
    for index in order {
        let lines = status::lines_of(&status.cells[index]);
        if lines > left {
            break;
        }
        left -= lines;
        shown.push(index);
    }
    shown.sort_unstable();
    let some: Vec<_> = shown.iter().flat_map(|index| status::rows_of(&status.cells[*index])).collect();
    let mut out = table(&status::columns(status.interval), &some, style);
    let rest = status.cells.iter().enumerate().filter(|(index, _)| shown.binary_search(index).is_err());
    let rest: Vec<&CellStatus> = rest.map(|(_, cell)| cell).collect();
    let counted_trials: u64 = rest.iter().map(|cell| cell.counted).sum();
    let wanted: u64 = rest.iter().map(|cell| u64::from(cell.wanted)).sum();
    let faults: u64 = rest.iter().flat_map(|cell| &cell.rates).map(|(_, rate)| rate.faults).sum();
    let excluded: u64 = rest.iter().map(|cell| cell.excluded).sum();
    let excluded = if excluded > 0 { format!(", {excluded} excluded") } else { String::new() };
    let _ = writeln!(
        out,
        "… {}: {counted_trials}/{wanted} counted, {}{excluded}",
        counted(rest.len() as u64, "more cell"),
        counted(faults, "fault")
    );
    out
}

/// `line` in at most `columns` characters, colours not counted and never left on.
fn fit(line: &str, columns: usize) -> String {
    let (mut out, mut used, mut in_sequence, mut coloured) = (String::new(), 0, false, false);
    for c in line.chars() {
        match (in_sequence, c) {
            (false, '\x1b') => (in_sequence, coloured) = (true, true),
            (true, 'm') => in_sequence = false,
            (true, _) => {}
            (false, _) if used == columns => continue,
            (false, _) => used += 1,
        }
        out.push(c);
    }
    if coloured && !out.ends_with("\x1b[0m") {
        out.push_str("\x1b[0m");
    }
    out
}

/// What was judged so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    faults: u64,
    clean: u64,
    excluded: u64,
}

impl Tally {
    /// Takes note of `record`.
    pub fn note(&mut self, record: &Record) {
        if let Event::Judged(judged) = &record.event {
            let before = judged.corrects.map(|verdict| match verdict.counted() {
                Counted::Fault => &mut self.faults,
                Counted::Clean => &mut self.clean,
                Counted::Excluded => &mut self.excluded,
            });
            if let Some(before) = before {
                *before = before.saturating_sub(1);
            }
            match judged.judgement.verdict.counted() {
                Counted::Fault => self.faults += 1,
                Counted::Clean => self.clean += 1,
                Counted::Excluded => self.excluded += 1,
            }
        }
    }
}

/// `record` as a line, if it is a change that somebody who waits wants to know of.
pub fn change(plan: &Plan, record: &Record, tally: &Tally) -> Option<String> {
    let label = |id| plan.cell(id).map_or_else(|| format!("{id}"), |cell| one_line(&cell.label));
    let words = match &record.event {
        Event::Judged(judged) => {
            let Tally { faults, clean, excluded } = tally;
            let (trial, judgement) = (&judged.trial, &judged.judgement);
            let evidence = match evidence_words(judgement, &judged.rule) {
                none if none.is_empty() => none,
                words => format!(" ({})", one_line(&words)),
            };
            let instead = judged.corrects.map(|old| format!(" in the place of {old}")).unwrap_or_default();
            let of = match plan.cells.iter().map(|cell| u64::from(plan.rounds(cell))).sum::<u64>() {
                // A search does not know how many it will want.
                0 => String::new(),
                wanted => format!(" of {wanted}"),
            };
            format!(
                "{} r{:03}: {}{evidence}{instead}; so far {}{of} counted, {}, {excluded} excluded",
                label(&trial.cell),
                trial.round,
                judgement.verdict,
                faults + clean,
                counted(*faults, "fault")
            )
        }
        Event::Observed(observed) => {
            format!("seen from outside by {}: {}", one_line(&observed.witness), one_line(&observed.in_words()))
        }
        Event::Booted(_) => "a new boot".to_owned(),
        Event::RebootAsked(asked) => format!("rebooting: {}", one_line(&asked.why)),
        Event::Quarantined(given_up) => format!("{} is given up: {}", label(&given_up.cell), one_line(&given_up.why)),
        Event::Extended(extended) => format!("further trials: {}", one_line(&extended.why)),
        Event::Paused(paused) => format!("paused: {}", one_line(&paused.why)),
        Event::Closed(closed) => format!("over: {}", one_line(&closed.why)),
        Event::Opened(_)
        | Event::Started(_)
        | Event::Running(_)
        | Event::Stage(_)
        | Event::Alive(_)
        | Event::Finished(_)
        | Event::Set(_)
        | Event::Restored(_)
        | Event::Hooked(_) => return None,
    };
    Some(format!("{} {words}", record.wall))
}

/// Where it stands, for somebody who begins to follow, or to wait.
pub fn standing_line(status: &Status) -> String {
    let name = status.run.as_ref().map_or("a run that was not opened", |run| run.as_str());
    let mut line = format!("{name}: {}", status.standing.as_str());
    // Before the end every trial tells how many there are.
    if status.standing.is_final() {
        let _ = write!(line, ", {} of {} counted", status.trials.counted, status.trials.wanted);
    }
    for text in [&status.waits, &status.elsewhere, &status.trouble].into_iter().flatten() {
        let _ = write!(line, "; {}", one_line(text));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_what_is_seen_of_it() {
        assert_eq!(fit("abcdef", 4), "abcd");
        assert_eq!(fit("\x1b[31mabcdef\x1b[0m", 4), "\x1b[31mabcd\x1b[0m");
        assert_eq!(fit("\x1b[31mab", 4), "\x1b[31mab\x1b[0m");
        assert_eq!(fit("…äö", 2), "…ä");
    }
}
