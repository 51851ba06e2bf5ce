//! A drill, for a terminal: one line a fault, what was missing and what mends it below.

use std::fmt::Write;

use super::one_line;
use super::style::{Colour, Style, wrap};
use crate::decide::drill::{Drill, DrillRow, Told};

/// Columns of a fault, of what became of it, and of its name.
const FAULT_COLUMNS: usize = 9;
const TOLD_COLUMNS: usize = 10;
const NAME_COLUMNS: usize = 23;

/// The table as text.
pub fn drill(drill: &Drill, style: &Style) -> String {
    let heading = line("fault", "told", "called", "decided by");
    let mut out = format!("{}\n", style.paint(Colour::Bold, heading.trim_end()));
    drill.rows.iter().for_each(|row| show(&mut out, row, style));
    let named = drill.rows.iter().filter(|row| row.told == Told::Named).count();
    let _ = write!(out, "\n{named} of {} named", drill.rows.len());
    out.push_str(match (drill.is_proven(), drill.is_unfinished()) {
        (true, _) => ": this machine's evidence tells them apart\n",
        (false, true) => "; sudo jetfault doctor --drill --allow-injected-faults goes on\n",
        (false, false) => {
            "; mend what is named above, and jetfault run drill --new --allow-injected-faults tries again\n"
        }
    });
    out
}

fn line(fault: &str, told: &str, called: &str, because: &str) -> String {
    format!("{fault:<FAULT_COLUMNS$}{told:<TOLD_COLUMNS$}{called:<NAME_COLUMNS$}{because}")
}

fn show(out: &mut String, row: &DrillRow, style: &Style) {
    let fault = row.fault.map_or("nothing", |fault| fault.as_str());
    let colour = match row.told {
        Told::Named => Colour::Green,
        Told::Mistaken => Colour::Red,
        Told::Unnamed | Told::Untried | Told::Pending => Colour::Yellow,
    };
    let called = row.named.as_deref().unwrap_or("-");
    let because = row.rule.as_ref().map_or("-", |rule| rule.because.as_str());
    // Colour takes no columns, so that the text is laid out first and painted afterwards.
    let first = line(fault, row.told.as_str(), called, "");
    let mut text = String::new();
    wrap(&mut text, &first, because, style.columns());
    let _ = write!(out, "{}{}", style.paint(colour, &first), &text[first.len()..]);
    let more = |out: &mut String, what: &str, how: &str| {
        wrap(out, &format!("{:<FAULT_COLUMNS$}{what:<TOLD_COLUMNS$}", ""), &one_line(how), style.columns());
    };
    if !matches!(row.told, Told::Named | Told::Pending) {
        more(out, "expected", &row.expected);
        row.detail.iter().for_each(|detail| more(out, "detail", detail));
    }
    row.missing.iter().for_each(|missing| more(out, "missing", missing));
    for check in &row.mending {
        more(out, check.state.as_str(), &format!("{}: {}", check.name, check.finding));
        if let Some(mending) = &check.mending {
            // A command is copied whole, so it is not broken between lines.
            let _ = writeln!(out, "{:<FAULT_COLUMNS$}{:<TOLD_COLUMNS$}{mending}", "", "mend");
        }
    }
    if let (Told::Unnamed | Told::Mistaken | Told::Untried, Some(trial)) = (row.told, &row.trial) {
        let _ = writeln!(out, "{:<FAULT_COLUMNS$}{:<TOLD_COLUMNS$}jetfault explain {trial}", "", "why");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::drill::DRILL_SCHEMA;
    use crate::model::fitness::{Check, CheckState};
    use crate::model::matrix::FaultName;

    #[test]
    fn a_fault_without_a_name_says_what_was_missing_and_what_mends_it() {
        let row = |fault, told, named: &str| DrillRow {
            fault,
            expected: "reboot panic".into(),
            told,
            trial: Some("c-27505b8655c07aaa-r001-a1".parse().unwrap()),
            named: Some(named.into()),
            detail: None,
            rule: None,
            missing: Vec::new(),
            mending: Vec::new(),
        };
        let panic = DrillRow {
            missing: vec!["crash records of the kernel (pstore)".into()],
            mending: vec![Check::bad("crash-records", CheckState::Warning, "none", "sudo modprobe ramoops")],
            ..row(Some(FaultName::Panic), Told::Unnamed, "reboot undetermined")
        };
        let rows = vec![row(None, Told::Named, "pass"), panic];
        let text =
            drill(&Drill { schema: DRILL_SCHEMA.into(), run: "drill-001".parse().unwrap(), rows }, &Style::plain(100));
        let expected = "\
fault    told      called                 decided by
nothing  named     pass                   -
panic    unnamed   reboot undetermined    -
         expected  reboot panic
         missing   crash records of the kernel (pstore)
         warning   crash-records: none
         mend      sudo modprobe ramoops
         why       jetfault explain c-27505b8655c07aaa-r001-a1

1 of 2 named; mend what is named above, and jetfault run drill --new --allow-injected-faults tries again
";
        assert_eq!(text, expected);
    }
}
