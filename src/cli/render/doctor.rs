//! The fitness of a machine, for a terminal: one line a check, and what mends it below.

use std::fmt::Write;

use super::one_line;
use super::style::{Colour, Style, wrap};
use crate::model::fitness::{CheckState, Fitness, GpuReport};

/// Columns of a state and of a name.
const STATE_COLUMNS: usize = 9;
const NAME_COLUMNS: usize = 19;

/// The fitness as text.
pub fn doctor(fitness: &Fitness, style: &Style) -> String {
    let mut out = String::new();
    for check in &fitness.checks {
        let colour = match check.state {
            CheckState::Ok => Colour::Green,
            CheckState::Warning => Colour::Yellow,
            CheckState::Failure => Colour::Red,
        };
        // Colour takes no columns, so that the text is laid out first and its first word is painted afterwards.
        let state = format!("{:<STATE_COLUMNS$}", check.state.as_str());
        let mut text = String::new();
        wrap(&mut text, &format!("{state}{:<NAME_COLUMNS$}", check.name), &one_line(&check.finding), style.columns());
        let _ = write!(out, "{}{}", style.paint(colour, &state), &text[state.len()..]);
        if let Some(mending) = &check.mending {
            // A command is copied whole, so it is not broken between lines.
            let _ = writeln!(out, "{:<STATE_COLUMNS$}{:<NAME_COLUMNS$}{mending}", "", "mend");
        }
    }
    if let Some(GpuReport::Device(device)) = &fitness.gpu {
        out.push('\n');
        for row in &device.kernels {
            match &row.error {
                None => drop(writeln!(out, "{}{}", style.paint(Colour::Green, "right    "), row.kernel)),
                Some(error) => {
                    let wrong = style.paint(Colour::Red, "wrong    ");
                    let _ = writeln!(out, "{wrong}{}: {}", row.kernel, one_line(error));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fitness::{Check, DeviceReport, FITNESS_SCHEMA, KernelRow};

    #[test]
    fn each_check_has_its_state_and_each_trouble_what_mends_it() {
        let row = |kernel: &str, error: Option<&str>| KernelRow {
            kernel: kernel.into(),
            is_right: error.is_none(),
            error: error.map(str::to_owned),
        };
        let gpu = GpuReport::Device(DeviceReport {
            device: "Orin".into(),
            compute_capability: "8.7".into(),
            driver: "12.6".into(),
            code: "sm_87".into(),
            kernels: vec![row("abs", None), row("gemv_4bit", Some("the result differs from the CPU's"))],
        });
        let checks = vec![
            Check::ok("boot-id", "known"),
            Check::bad("list-of-boots", CheckState::Warning, "one boot", "journalctl --list-boots"),
            gpu.to_check(),
        ];
        let fitness = Fitness { schema: FITNESS_SCHEMA.into(), checks, gpu: Some(gpu) };
        let text = doctor(&fitness, &Style::plain(100));
        assert!(
            text.starts_with("ok       boot-id            known\nwarning  list-of-boots      one boot\n"),
            "{text}"
        );
        assert!(text.contains("         mend               journalctl --list-boots\n"), "{text}");
        assert!(text.contains("failure  gpu                Orin, compute capability 8.7"), "{text}");
        assert!(text.ends_with("right    abs\nwrong    gemv_4bit: the result differs from the CPU's\n"), "{text}");
    }
}
