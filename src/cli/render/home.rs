//! The overview of a machine in ten lines.

use std::fmt::Write;

use super::style::{Colour, Style, wrap};
use super::table::cut;
use super::{counted, duration, one_line};
use crate::model::ids::RunId;
use crate::model::units::WallTime;

/// The most lines of what the last run found.
const HEADLINE_LINES_MAX: usize = 3;

/// What is known of the machine and its last run.
#[derive(Debug, Clone)]
pub struct Home {
    /// What machine it is, the most telling first.
    pub machine: Vec<String>,
    /// Whether a GPU may be used.
    pub gpu: bool,
    /// Whether it is a Jetson.
    pub jetson: bool,
    /// The results directory.
    pub results: String,
    /// How many runs are in it.
    pub runs: usize,
    /// The file that forbids to start anything, if it is there.
    pub stopped: Option<String>,
    /// The run that was written last.
    pub last: Option<LastRun>,
}

/// The run that was written last.
#[derive(Debug, Clone)]
pub struct LastRun {
    /// The run.
    pub id: RunId,
    /// When its last record was written.
    pub at: Option<WallTime>,
    /// How many seconds ago its journal was written.
    pub ago_s: Option<u64>,
    /// Where it stands.
    pub standing: &'static str,
    /// Whether somebody works on it.
    pub working: bool,
    /// Whether its journal was short enough to be read.
    pub is_short: bool,
    /// Runs that correct it.
    pub corrected_by: Vec<RunId>,
    /// What it found.
    pub headlines: Vec<String>,
    /// Its first fault.
    pub fault: Option<String>,
}

/// The overview.
pub fn home(home: &Home, style: &Style) -> String {
    let mut out = String::new();
    let width = style.columns();
    let (version, runs) = (env!("CARGO_PKG_VERSION"), counted(home.runs as u64, "run"));
    let title = cut(&format!("jetfault {version}: {runs} in {}", home.results), width);
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, &title));
    let fact = |out: &mut String, name: &str, text: &str, lines: usize| {
        let mut wrapped = String::new();
        wrap(&mut wrapped, &format!("{name:<9}"), &one_line(text), width);
        let all = wrapped.lines().count();
        for (number, line) in wrapped.lines().take(lines).enumerate() {
            let is_cut = number + 1 == lines && all > lines;
            let line = if is_cut { cut(&format!("{line} …"), width) } else { line.to_owned() };
            let _ = writeln!(out, "{line}");
        }
    };
    let gpu = match (home.gpu, home.jetson) {
        (true, _) => "",
        (false, true) => ", no GPU device nodes",
        (false, false) => ", no GPU (everything but GPU cells runs)",
    };
    let machine = if home.machine.is_empty() { "nothing is known of it".to_owned() } else { home.machine.join(", ") };
    fact(&mut out, "machine", &format!("{machine}{gpu}"), 2);
    if let Some(last) = &home.last {
        let ago = match (last.working, last.ago_s) {
            (true, _) => ", at work now".to_owned(),
            (false, Some(0)) => ", just now".to_owned(),
            (false, Some(seconds)) => format!(", {} ago", duration(seconds.saturating_mul(1000))),
            (false, None) => last.at.map(|at| format!(", {at}")).unwrap_or_default(),
        };
        fact(&mut out, "last run", &format!("{}: {}{ago}", last.id, last.standing), 1);
        let found = match (last.is_short, last.headlines.is_empty()) {
            _ if !last.corrected_by.is_empty() => {
                let runs: Vec<&str> = last.corrected_by.iter().map(RunId::as_str).collect();
                format!("corrected later by {}: `jetfault report --format md` has their figures", runs.join(", "))
            }
            (true, false) => last.headlines.join("; "),
            (true, true) => "its journal cannot be read: `jetfault report` says why".to_owned(),
            (false, _) => "a long run: `jetfault report` reads it".to_owned(),
        };
        fact(&mut out, "found", &found, HEADLINE_LINES_MAX);
    }
    let next = next(home);
    let widest = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    for (number, (command, why)) in next.iter().enumerate() {
        let name = if number == 0 { "next" } else { "" };
        let line = cut(&format!("{name:<9}{command:<widest$}  {why}"), width);
        let _ = writeln!(out, "{line}");
    }
    out
}

/// What may come next, the most sensible first.
fn next(home: &Home) -> Vec<(String, &'static str)> {
    let mut next: Vec<(String, &'static str)> = Vec::new();
    if let Some(stop) = &home.stopped {
        next.push((format!("rm {stop}"), "nothing starts while it is there"));
    }
    match &home.last {
        None if home.jetson => next.push(("jetfault doctor".into(), "whether this board is fit for runs")),
        None => next.push(("jetfault run quickstart".into(), "a tour in seconds, without a GPU")),
        Some(last) if last.working => next.push(("jetfault status --follow".into(), "watch it")),
        Some(last) => match (last.standing, &last.fault) {
            ("complete" | "stopped by a limit", Some(trial)) => {
                next.push((format!("jetfault explain {} {trial}", last.id), "why"));
                next.push(("jetfault report --format md".into(), "to paste into an issue"));
            }
            ("complete" | "stopped by a limit", None) => next.push(("jetfault report".into(), "all it found")),
            _ => next.push((format!("jetfault resume {}", last.id), "go on with it")),
        },
    }
    next.truncate(2);
    next.push(("jetfault --help".into(), "all commands"));
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(last: Option<LastRun>) -> Home {
        let words =
            ["Jetson Orin Nano 8GB Super", "Ubuntu 22.04.5 LTS", "L4T 36.4.3", "kernel 5.15.148-tegra", "6 CPUs"];
        Home {
            machine: words.map(str::to_owned).into(),
            gpu: true,
            jetson: true,
            results: "/var/lib/jetfault".into(),
            runs: 3,
            stopped: None,
            last,
        }
    }

    fn run(standing: &'static str, fault: Option<&str>) -> LastRun {
        LastRun {
            id: "bnb-1936-001".parse().unwrap(),
            at: None,
            ago_s: Some(7200),
            standing,
            working: false,
            is_short: true,
            corrected_by: Vec::new(),
            headlines: vec!["faults in 3 of 3 cells tested: most in baseline, 7/9 (77.8 %) reboot; ".repeat(6)],
            fault: fault.map(str::to_owned),
        }
    }

    #[test]
    fn the_overview_has_ten_lines_of_80_columns_whatever_ran() {
        let trial = "c-7d4cb5cb8dc58407-r001-a1";
        let mut stopped = machine(Some(run("complete", Some(trial))));
        stopped.stopped = Some("/var/lib/jetfault/STOP".into());
        for home in
            [machine(None), machine(Some(run("complete", Some(trial)))), machine(Some(run("paused", None))), stopped]
        {
            let text = super::home(&home, &Style::plain(80));
            assert!(text.lines().count() <= 10, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn what_comes_next_depends_on_where_the_last_run_stands() {
        let first = |home: &Home| next(home)[0].0.clone();
        assert_eq!(first(&machine(None)), "jetfault doctor");
        assert_eq!(first(&Home { jetson: false, ..machine(None) }), "jetfault run quickstart");
        assert_eq!(first(&machine(Some(run("complete", Some("c-1"))))), "jetfault explain bnb-1936-001 c-1");
        assert_eq!(first(&machine(Some(run("complete", None)))), "jetfault report");
        assert_eq!(first(&machine(Some(run("paused", None)))), "jetfault resume bnb-1936-001");
        let working = LastRun { working: true, ..run("open", None) };
        assert_eq!(first(&machine(Some(working))), "jetfault status --follow");
    }
}
