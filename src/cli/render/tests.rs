//! What people read, pinned: one constructed run, in every form.

use super::*;
use crate::cli::issue::Corrections;
use crate::decide::agenda::Agenda;
use crate::decide::brief::{Brief, BriefFold, Excerpt, Line, Subject};
use crate::decide::compare::RunUnderComparison;
use crate::decide::explain::{ExplainFold, Explanation, RuleTable};
use crate::decide::plan::Plan;
use crate::decide::report::{Report, RunFacts};
use crate::decide::result::ResultFold;
use crate::decide::status::{Harness, Status, StatusFold};
use crate::model::ids::{ContentDigest, TrialId};
use crate::model::verdict::Verdict;
use crate::testing::constructed::{
    BOARD, Fate, Journal, agenda_of, board_provenance, board_script, machine, passes, plan_of,
};

const CANNOT: &[(&str, &str)] = &[("sequence=CBA", "a layer is larger than this machine's memory")];

/// The board of issue 1936 and its journal after `starts` trials.
struct Board {
    plan: Plan,
    agenda: Agenda,
}

impl Board {
    fn new() -> Self {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, CANNOT);
        Self { plan, agenda }
    }

    fn journal(&self, starts: usize, script: impl FnMut(&str, &TrialId) -> Fate) -> Journal<'_> {
        let mut journal = Journal::open(&self.plan, &self.agenda, board_provenance);
        journal.carry_on(starts, script);
        journal
    }

    fn report(&self) -> Report {
        let journal = self.journal(usize::MAX, board_script);
        let run = RunFacts::of("bnb-1936-001".parse().unwrap(), journal.state(), &self.agenda, machine());
        crate::decide::report::report(&self.plan, run, journal.results()).unwrap()
    }

    /// What its run says together with no other.
    fn brief(&self) -> Brief {
        let journal = self.journal(usize::MAX, board_script);
        let id = "bnb-1936-001".parse().unwrap();
        let runs = [RunUnderComparison { id, plan: self.plan.clone(), machine: machine() }];
        let binary = Some(ContentDigest::of(b"binary"));
        let subjects = [Subject { corrected: false, has_gpu: true, binary, tool: "0.1.0".into() }];
        let mut fold = BriefFold::new(&runs, &subjects);
        let mut results = ResultFold::default();
        for record in &journal.records {
            fold.add(0, record, results.apply(record).as_ref()).unwrap();
        }
        fold.finish(Method::ClopperPearson)
    }

    fn fold(&self, journal: &Journal<'_>) -> StatusFold<'_> {
        let mut fold = StatusFold::new(&self.plan, &self.agenda);
        journal.records.iter().for_each(|record| fold.apply(record).unwrap());
        fold
    }

    fn status(&self, journal: &Journal<'_>, harness: Harness) -> Status {
        self.fold(journal).finish(Some(&journal.boot()), harness)
    }

    /// The explanations of every verdict, in order.
    fn explanations(&self, journal: &Journal<'_>) -> Vec<Explanation> {
        let explained = |trial: TrialId| {
            let mut fold = ExplainFold::new(&self.plan, &self.agenda, trial);
            journal.records.iter().find_map(|record| fold.apply(record).unwrap()).expect("it was judged")
        };
        journal.results().into_iter().map(|result| explained(result.trial)).collect()
    }
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn the_report_of_a_board_in_a_wide_terminal() {
    insta::assert_snapshot!(report(&Board::new().report(), &Style::plain(100)));
}

#[test]
fn the_report_of_a_board_in_80_columns() {
    let text = report(&Board::new().report(), &Style::plain(80));
    insta::assert_snapshot!(text);
    assert!(widest(&text) <= 80, "{}", widest(&text));
}

/// The bug report of these figures, redacted as far as one can be without a machine.
fn posted(report: Report, brief: &Brief) -> String {
    let again = Again {
        command: "jetfault run matrix.toml --cell baseline --trials 9 --allow-reboot".into(),
        matrix: BOARD.trim_start().to_owned(),
        program: None,
    };
    let reports = [report];
    let issue = Issue { reports: &reports, brief, corrected_by: &Corrections::default(), again: &again, stderr: &[] };
    let mut redact = |text: &str| text.replace("5.15.148-tegra", "(redacted)");
    super::issue(&issue, &mut Safe::new(&mut redact), &|_| "board-1234".into())
}

/// How many lines stand before the first fold.
fn unfolded(text: &str) -> usize {
    text.lines().position(|line| line == "<details>").expect("something folds away")
}

#[test]
fn the_report_of_a_board_in_markdown() {
    let text = posted(Board::new().report(), &Board::new().brief());
    insta::assert_snapshot!(text);
    assert!(unfolded(&text) <= LINES_MAX, "{}", unfolded(&text));
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("**7/9 cold starts rebooted (77.8 %, 95 % CI 40.0–97.2 %), died in C.forward"),
        "{first}"
    );
    assert!(!text.contains("orin-a") && !text.contains("5.15.148"), "what must not be seen is not");
    assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
}

#[test]
fn the_report_of_a_board_in_json() {
    insta::assert_snapshot!(String::from_utf8(Board::new().report().to_json()).unwrap());
}

#[test]
fn the_plan_of_a_board() {
    let text = plan(&Board::new().plan, &Style::plain(80));
    insta::assert_snapshot!(text);
    assert!(widest(&text) <= 80, "{}", widest(&text));
}

#[test]
fn the_status_of_a_run_at_work() {
    let board = Board::new();
    let mut starts = 0;
    let journal = board.journal(usize::MAX, |label, trial| {
        starts += 1;
        if starts == 15 { Fate::StaysOpen("C.quantize") } else { board_script(label, trial) }
    });
    let text = status(&board.status(&journal, Harness::Working), &Style::plain(80));
    insta::assert_snapshot!(text);
    assert!(widest(&text) <= 80 && text.lines().count() <= 24, "{text}");
}

#[test]
fn the_status_of_a_run_that_rests() {
    let board = Board::new();
    let mut journal = board.journal(12, board_script);
    journal.pause("jetfault stop");
    insta::assert_snapshot!(status(&board.status(&journal, Harness::Absent), &Style::plain(80)));
}

#[test]
fn the_status_in_json() {
    let board = Board::new();
    let journal = board.journal(4, board_script);
    insta::assert_snapshot!(String::from_utf8(board.status(&journal, Harness::Absent).to_json()).unwrap());
}

#[test]
fn a_run_whose_harness_died_says_so_and_how_to_go_on() {
    let board = Board::new();
    let journal = board.journal(usize::MAX, |_, _| Fate::StaysOpen("A.copy"));
    let status = board.status(&journal, Harness::Absent);
    assert_eq!(status.waits.as_deref(), Some("no jetfault is at work on it"));
    assert_eq!(status.go_on.as_deref(), Some("jetfault resume bnb-1936-001"));
    assert!(status.next.starts_with("judge ") && status.stop.is_none(), "{status:?}");
}

#[test]
fn a_reader_without_permissions_sees_the_boot_that_comes_next() {
    let board = Board::new();
    let journal = board.journal(1, |_, _| passes(13_000));
    let agenda = Agenda { may_reboot: false, ..board.agenda.clone() };
    let mut fold = StatusFold::new(&board.plan, &agenda);
    let last = journal.records.iter().rposition(|record| record.event.name() == "judged").unwrap();
    journal.records[..=last].iter().for_each(|record| fold.apply(record).unwrap());
    let status = fold.finish(Some(&journal.records[last].boot), Harness::Absent);
    assert!(status.next.starts_with("reboot: a cold trial needs a boot"), "{}", status.next);
}

#[test]
fn a_run_that_is_over_waits_for_nothing() {
    let board = Board::new();
    let journal = board.journal(usize::MAX, board_script);
    let status = board.status(&journal, Harness::Absent);
    assert_eq!((&status.waits, &status.go_on, &status.stop, status.trials.left), (&None, &None, &None, 0));
}

#[test]
fn the_journal_and_the_results_give_the_same_report() {
    let board = Board::new();
    let journal = board.journal(usize::MAX, board_script);
    let from_journal = board.fold(&journal).into_report("bnb-1936-001".parse().unwrap(), machine()).unwrap();
    assert_eq!(from_journal, board.report());
}

#[test]
fn a_reboot_is_explained_from_its_evidence() {
    let board = Board::new();
    let journal = board.journal(usize::MAX, board_script);
    let explanations = board.explanations(&journal);
    let of = |verdict: Verdict, rule: &str| {
        let found = explanations.iter().find(|e| e.judgement.verdict == verdict && e.rule.label == rule);
        explain(found.unwrap_or_else(|| panic!("{verdict} by {rule}")), &Style::plain(80))
    };
    insta::assert_snapshot!("explained_reboot_with_unreadable_evidence", of(Verdict::Reboot, "boots-unknown"));
    insta::assert_snapshot!("explained_reboot_with_a_panic", of(Verdict::Reboot, "new-panic-record"));
    insta::assert_snapshot!("explained_reboot_without_news", of(Verdict::Reboot, "no-news"));
    insta::assert_snapshot!("explained_kill", of(Verdict::Killed, "sigkill"));
    insta::assert_snapshot!("explained_cuda_error", of(Verdict::CudaError, "cuda-error"));
    insta::assert_snapshot!("explained_trial_that_never_started", of(Verdict::Void, "cannot-run-here"));
}

#[test]
fn an_explanation_in_json() {
    let board = Board::new();
    let journal = board.journal(usize::MAX, board_script);
    let reboot = board.explanations(&journal).into_iter().find(|e| e.rule.label == "boots-unknown").unwrap();
    insta::assert_snapshot!(String::from_utf8(reboot.to_json()).unwrap());
}

#[test]
fn every_verdict_is_explained_by_a_row_that_this_build_would_apply_again() {
    let board = Board::new();
    for explanation in board.explanations(&board.journal(usize::MAX, board_script)) {
        assert_eq!(explanation.disagreement, None, "{explanation:?}");
        assert_ne!(explanation.rule.table, RuleTable::Unknown, "{explanation:?}");
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    let report_of_board = Board::new().report();
    let coloured = report(&report_of_board, &Style::coloured(80));
    let mut bare = String::new();
    let mut in_sequence = false;
    for c in coloured.chars() {
        match (in_sequence, c) {
            (false, '\x1b') => in_sequence = true,
            (true, 'm') => in_sequence = false,
            (false, _) => bare.push(c),
            (true, _) => {}
        }
    }
    assert_ne!(coloured, bare);
    assert_eq!(bare, report(&report_of_board, &Style::plain(80)));
}

/// A report of so many cells as no comment can hold, with texts that try to be mark-up.
fn hostile() -> String {
    let mut brief = Board::new().brief();
    let text = |n: usize| {
        format!(
            "</details> ```` | @somebody #{n} https://example.org <img src=x>\n\n## heading {}",
            "long ".repeat(300)
        )
    };
    for pool in brief.fails.iter_mut().chain(&mut brief.works) {
        pool.label = text(1);
    }
    brief.binaries = (0..50).flat_map(|_| brief.binaries.clone()).collect();
    brief.binaries.iter_mut().for_each(|row| row.told = vec![text(2)]);
    brief.not_shown = (0..50).map(text).collect();
    brief.shown = (0..50).map(text).collect();
    let some = brief.excerpts[0].clone();
    let line = |n| Line { source: "kernel", text: text(n) };
    brief.excerpts =
        (0..50).map(|n| Excerpt { lines: vec![line(n), line(n)], label: text(n), ..some.clone() }).collect();
    posted(hostile_report(), &brief)
}

fn hostile_report() -> Report {
    let mut report = Board::new().report();
    let few = report.cells.clone();
    report.cells.clear();
    for n in 0..3000 {
        let mut cell = few[n % few.len()].clone();
        cell.label = format!("a|b`{n}`` @somebody #{n} <img src=x>\n\n## heading {}", "long ".repeat(80));
        report.cells.push(cell);
    }
    report.run.machine.insert("power|mode".into(), "a|b`c @somebody".into());
    report
}

#[test]
fn markdown_fits_a_comment_whatever_the_run() {
    let text = hostile();
    assert!(text.len() <= MARKDOWN_BYTES_MAX, "{}", text.len());
    assert!(unfolded(&text) <= LINES_MAX, "{}", unfolded(&text));
    assert!(text.contains("cells left out here"), "it says so");
    for part in ["Environment", "All cells", "Evidence", "How to reproduce", "Not tested, not shown"] {
        assert!(text.contains(&format!("<summary>{part}")), "{part} is crowded out");
    }
}

/// `line` without its code spans: what stands between two runs of equally many backticks.
fn without_code(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find('`') {
        let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        out.push_str(&rest[..at]);
        rest = &rest[at + ticks..];
        let mut inside = rest;
        loop {
            let Some(close) = inside.find('`') else { panic!("a code span is not closed: {line}") };
            let run = inside[close..].len() - inside[close..].trim_start_matches('`').len();
            inside = &inside[close + run..];
            if run == ticks {
                break;
            }
        }
        rest = inside;
    }
    out + rest
}

#[test]
fn nothing_from_outside_is_read_as_markdown() {
    let text = hostile();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        // Within a code block only its own fence means something.
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) => {
                fence = fence.filter(|_| line != open);
                continue;
            }
            None if ticks.len() >= 3 => {
                fence = Some(ticks);
                continue;
            }
            None => {}
        }
        let is_own = ["<details>", "</details>"].contains(&line) || line.starts_with("<summary>");
        // Outside of code spans there is no mark of anybody else's.
        let bare = without_code(line);
        assert!(is_own || !bare.contains("</details>") && !bare.contains("<img"), "{line}");
        assert!(!line.starts_with('#') || line.starts_with("### "), "{line}");
        assert!(!bare.contains("@s") && !bare.contains("://"), "{line}");
    }
    assert_eq!(fence, None, "every code block is closed");
    for (head, rows) in text.split("| cell | n |").skip(1).map(|part| part.split_once("\n\n").unwrap_or((part, ""))) {
        let bars = |row: &str| row.matches('|').count() - row.matches("\\|").count();
        head.lines().skip(1).for_each(|row| assert_eq!(bars(row), 9, "{row}"));
        assert!(!rows.is_empty());
    }
}

#[test]
fn a_table_of_many_cells_shows_the_faulty_ones_first() {
    let mut many = Board::new().report();
    let dull = many.cells.iter().find(|cell| cell.label == "power_mode=15W").unwrap().clone();
    let faulty = many.cells.iter().find(|cell| cell.label == "baseline").unwrap().clone();
    many.cells = vec![dull; 1000];
    many.cells.push(faulty);
    let text = report(&many, &Style::plain(80));
    assert!(text.contains("… and 801 cells more"), "{text}");
    assert!(text.contains("7/9"), "{text}");
}

#[test]
fn figures_have_the_unit_that_people_use() {
    for (bytes, want) in
        [(7_089_449_984, "7089.4"), (6_884_000_000, "6884.0"), (0, "0.0"), (49_999, "0.0"), (950_000, "1.0")]
    {
        assert_eq!(megabytes(bytes), want);
    }
    for (ms, want) in [(87, "87 ms"), (13_200, "13.2 s"), (270_000, "4.5 min"), (7_560_000, "2.1 h")] {
        assert_eq!(duration(ms), want);
    }
}

#[test]
fn a_trial_without_a_harness_is_void_and_says_what_would_have_told() {
    let board = Board::new();
    let mut journal = board.journal(usize::MAX, |_, _| Fate::StaysOpen("A.copy"));
    journal.carry_on(1, |_, _| passes(13_000));
    let first = board.explanations(&journal).into_iter().find(|e| e.rule.label == "same-boot").unwrap();
    assert_eq!((first.judgement.verdict, first.would_decide.len()), (Verdict::Void, 1));
    assert!(first.disagreement.is_none(), "{first:?}");
}

/// What a terminal of this size shows of `status`.
fn screen(status: &Status, columns: usize, rows: usize) -> String {
    let text = follow(status, None, Screen { columns, rows }, false);
    assert!(text.lines().count() < rows, "{} of {rows} lines:\n{text}", text.lines().count());
    assert!(widest(&text) <= columns, "{} of {columns} columns:\n{text}", widest(&text));
    text
}

fn at_work(board: &Board) -> Status {
    let mut starts = 0;
    let journal = board.journal(usize::MAX, |label, trial| {
        starts += 1;
        if starts == 15 { Fate::StaysOpen("C.quantize") } else { board_script(label, trial) }
    });
    board.status(&journal, Harness::Working)
}

#[test]
fn a_followed_run_fits_its_screen() {
    let board = Board::new();
    let status = at_work(&board);
    insta::assert_snapshot!(screen(&status, 80, 24));
    for (columns, rows) in [(200, 60), (60, 12), (40, 10), (20, 6), (1, 1)] {
        let text = follow(&status, Some("no such file"), Screen { columns, rows }, false);
        assert!(text.lines().count() < rows.max(6) && widest(&text) <= columns, "{columns}x{rows}:\n{text}");
    }
}

#[test]
fn cells_beyond_the_screen_are_summed_and_the_one_that_runs_is_shown() {
    let board = Board::new();
    let mut status = at_work(&board);
    let dull = status.cells.iter().find(|cell| cell.label == "power_mode=15W").unwrap().clone();
    status.cells.splice(0..0, vec![dull; 40]);
    let text = screen(&status, 80, 24);
    assert!(text.contains("\nbaseline ") && text.contains("\nbatch=8 "), "{text}");
    let sum = text.lines().last().unwrap();
    assert!(sum.starts_with("… ") && sum.contains("more cells: ") && sum.contains("/"), "{sum}");
    let shown = text.lines().filter(|line| line.starts_with("power_mode=15W")).count();
    let summed: usize = sum.split(' ').nth(1).unwrap().parse().unwrap();
    assert_eq!(
        shown + summed + text.lines().filter(|l| l.contains("/9 ") && !l.starts_with("power")).count(),
        47,
        "{text}"
    );
}

#[test]
fn a_run_on_another_boot_is_said_to_be_there() {
    let board = Board::new();
    let journal = board.journal(3, board_script);
    let here = "ffffffff-9e6f-4d8e-b4cd-0d9449a8b993".parse().unwrap();
    let status = board.fold(&journal).finish(Some(&here), Harness::Absent);
    let words = screen(&status, 80, 24).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("this is boot ffffffff: it has not gone on here yet"), "{words}");
}

#[test]
fn each_change_is_a_line() {
    let board = Board::new();
    let journal = board.journal(3, board_script);
    let mut tally = Tally::default();
    let lines: Vec<String> = journal
        .records
        .iter()
        .filter_map(|record| {
            tally.note(record);
            change(&board.plan, record, &tally)
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
