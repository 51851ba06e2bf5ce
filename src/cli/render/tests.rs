//! What people read, pinned: one constructed run, in every form.

use super::*;
use crate::decide::agenda::Agenda;
use crate::decide::explain::{ExplainFold, Explanation, RuleTable};
use crate::decide::plan::Plan;
use crate::decide::report::{Report, RunFacts};
use crate::decide::status::{Harness, Status, StatusFold};
use crate::model::ids::TrialId;
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

#[test]
fn the_report_of_a_board_in_markdown() {
    insta::assert_snapshot!(markdown(&Board::new().report()));
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

/// A report of so many cells as no comment can hold, with labels that try to be mark-up.
fn hostile() -> Report {
    let mut report = Board::new().report();
    let few = report.cells.clone();
    report.cells.clear();
    for n in 0..3000 {
        let mut cell = few[n % few.len()].clone();
        cell.label = format!("a|b`{n}`` @somebody #{n} <img src=x>\n\n## heading {}", "long ".repeat(80));
        report.cells.push(cell);
    }
    report.headlines[0].text = "faults in *a_b* of @somebody, see #1 <script>".into();
    report
}

#[test]
fn markdown_fits_a_comment_whatever_the_run() {
    let text = markdown(&hostile());
    assert!(text.len() <= MARKDOWN_BYTES_MAX, "{}", text.len());
    assert!(text.contains("left out here"), "it says so");
    assert!(text.contains("### Not tested"), "what was not tested is never crowded out");
}

#[test]
fn nothing_from_outside_is_read_as_markdown() {
    let text = markdown(&hostile());
    assert!(text.contains("faults in \\*a\\_b\\* of &#64;somebody, see &#35;1 &lt;script&gt;"), "{}", &text[..500]);
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(headings, ["## jetfault: `bnb-1936-001`", "### Faults", "### Not tested"]);
    let is_row = |line: &&str| line.starts_with("| `");
    for row in text.lines().filter(is_row) {
        let bars = row.matches('|').count() - row.matches("\\|").count();
        assert_eq!(bars, 6, "{row}");
        assert!(row.starts_with("| ```a\\|b`"), "{row}");
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
