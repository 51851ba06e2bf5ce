//! Reports of constructed runs.

use super::*;
use crate::decide::stats::Counts;
use crate::testing::constructed::{
    BOARD, Journal, agenda_of, board_provenance, board_script, cuda_error, machine, passes, plan_of, reboots,
};

const SMALL: &str = "[matrix]\nname = \"small\"\ntrials = 3\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\n\
    [shapes]\nA = [512, 1024]\n[baseline]\nsequence = \"A\"\n[axes]\nbatch = [4]\n";

fn cell<'r>(report: &'r Report, label: &str) -> &'r CellReport {
    report.cells.iter().find(|cell| cell.label == label).unwrap_or_else(|| panic!("{label}"))
}

/// The report of a whole run of `matrix` by `script`.
fn reported(
    matrix: &str,
    provenance: fn(&str) -> Provenance,
    script: impl FnMut(&str, &TrialId) -> crate::testing::constructed::Fate,
) -> Report {
    let plan = plan_of(matrix);
    let agenda = agenda_of(&plan, &[("sequence=CBA", "a layer is larger than this machine's memory")]);
    let mut journal = Journal::open(&plan, &agenda, provenance);
    journal.carry_on(usize::MAX, script);
    let run = RunFacts::of("bnb-1936-001".parse().unwrap(), journal.state(), &agenda, machine());
    report(&plan, run, journal.results()).unwrap()
}

fn measured(_: &str) -> Provenance {
    Provenance::Measured
}

#[test]
fn numbers_of_different_provenance_never_meet_in_one_rate() {
    let plan = plan_of(SMALL);
    let agenda = agenda_of(&plan, &[]);
    let mut journal = Journal::open(&plan, &agenda, measured);
    journal.carry_on(usize::MAX, |_, _| passes(10));
    let mut fold = ReportFold::new(&plan);
    for (turn, mut result) in journal.results().into_iter().enumerate() {
        if turn.is_multiple_of(2) {
            result.started.as_mut().unwrap().started.provenance = Provenance::Injected;
        }
        fold.add(&result).unwrap();
    }
    let report = fold.finish(RunFacts::of("small-001".parse().unwrap(), journal.state(), &agenda, machine()));
    let rates: Vec<_> = report.cells.iter().flat_map(|cell| &cell.samples).collect();
    assert!(rates.iter().all(|sampled| sampled.rate.counted < 3), "{rates:?}");
    assert_eq!(rates.iter().map(|sampled| sampled.rate.counted).sum::<u64>(), 6);
    assert_eq!(report.headlines.len(), 2);
    assert!(report.headlines[1].text.starts_with("injected: "), "{:?}", report.headlines);
}

#[test]
fn the_board_of_issue_1936_is_reported_as_it_was() {
    let report = reported(BOARD, board_provenance, board_script);
    let baseline = &cell(&report, "baseline").samples[0];
    assert_eq!(baseline.rate, Rate::of(Counts { faults: 7, clean: 2 }, Method::ClopperPearson));
    assert_eq!(baseline.faults, [(Verdict::Reboot, 7)].into());
    let stages: Vec<_> = baseline.signatures.iter().map(|s| (s.count, s.signature.to_string())).collect();
    assert_eq!(stages, [(6, "reboot/C.forward".to_owned()), (1, "reboot/C.quantize".to_owned())]);
    assert_eq!(baseline.signatures[0].causes[&RebootCause::Panic], 1);
    assert_eq!(cell(&report, "baseline").expectation.unwrap().met, Met::Met);
    assert_eq!(cell(&report, "warmup=256x256").expectation.unwrap().met, Met::NotMet);
    assert_eq!(report.run.standing, Standing::Complete);
    // A control that ran as it must, and is in no headline.
    assert_eq!((cell(&report, "control:alone").counted(), report.controls_failed.len()), (9, 0));
}

#[test]
fn a_cell_that_is_short_says_why_and_a_cell_without_a_trial_is_not_tested() {
    let report = reported(BOARD, board_provenance, board_script);
    let given_up = cell(&report, "batch=8");
    let short = given_up.short.as_ref().expect("fewer than nine");
    assert!(short.counted == 1 && short.wanted == 9 && short.set_aside, "{short:?}");
    assert!(given_up.excluded[&Verdict::Killed] > 0);
    let untested: Vec<&str> = report.untested.iter().map(|cell| cell.label.as_str()).collect();
    assert!(untested.contains(&"sequence=CBA") && untested.contains(&"start=warm"), "{untested:?}");
    assert!(report.untested.iter().all(|cell| !cell.reasons.is_empty()), "{:?}", report.untested);
}

#[test]
fn an_excluded_trial_is_in_no_rate() {
    let report = reported(SMALL, measured, |label, trial| match (label, trial.attempt) {
        ("baseline", 1) => crate::testing::constructed::killed("A.copy"),
        _ => passes(10),
    });
    let baseline = cell(&report, "baseline");
    assert_eq!((baseline.samples[0].rate.fraction().as_str(), baseline.excluded[&Verdict::Killed]), ("0/3", 3));
    assert_eq!((baseline.excluded_why[0].count, &baseline.short), (3, &None));
}

#[test]
fn a_warming_trial_is_counted_nowhere() {
    let plan = plan_of(SMALL);
    let agenda = agenda_of(&plan, &[]);
    let mut journal = Journal::open(&plan, &agenda, measured);
    journal.carry_on(1, |_, _| reboots("A.forward"));
    let mut result = journal.results().pop().unwrap();
    result.started.as_mut().unwrap().started.role = crate::model::verdict::Role::Warming;
    let mut fold = ReportFold::new(&plan);
    fold.add(&result).unwrap();
    let report = fold.finish(RunFacts::of("small-001".parse().unwrap(), journal.state(), &agenda, machine()));
    let of_trial = report.cells.iter().find(|cell| cell.id == result.trial.cell).unwrap();
    assert_eq!((of_trial.uncounted.trials, of_trial.uncounted.faults, of_trial.counted()), (1, 1, 0));
    assert_eq!(report.faults, []);
}

#[test]
fn a_headline_carries_its_bound() {
    let text = |script: fn(&str, &TrialId) -> crate::testing::constructed::Fate| {
        reported(SMALL, measured, script).headlines[0].text.clone()
    };
    assert_eq!(
        text(|_, _| passes(10)),
        "no fault in 6 trials of 2 cells; a rate of up to 63.2 % stays possible after 3 trials (95 %)"
    );
    assert_eq!(
        text(|label, trial| if label == "batch=4" && trial.round < 3 { cuda_error("A.forward") } else { passes(10) }),
        "faults in 1 of 2 cells tested: batch=4, 2/3 (66.7 %, 95 % CI 9.4–99.2 %) cuda-error; \
         none in the other cell, where a rate of up to 63.2 % stays possible after 3 trials (95 %)"
    );
}

#[test]
fn one_fault_in_one_trial_shows_no_rate() {
    let once = SMALL.replace("trials = 3", "trials = 1");
    let report = reported(&once, measured, |_, _| cuda_error("A.forward"));
    assert_eq!(
        report.headlines[0].text,
        "faults in 2 of 2 cells tested: most in baseline, 1/1 (100 %, 95 % CI 2.5–100 %) cuda-error: \
         one fault shows that it is there, its rate is not known"
    );
}

#[test]
fn a_run_whose_length_depends_on_what_it_sees_has_intervals_that_may_be_looked_at_often() {
    let campaign = SMALL.replace("trials = 3", "trials = \"until-decided\"\ndecide = { max = 5 }");
    let report = reported(&campaign, measured, |_, _| passes(10));
    let baseline = cell(&report, "baseline");
    assert_eq!(baseline.samples[0].rate.method, Method::ConfidenceSequence);
    assert_eq!((baseline.wanted, &baseline.short), (5, &None));
}

#[test]
fn an_open_run_is_not_short_and_says_so_far() {
    let plan = plan_of(SMALL);
    let agenda = agenda_of(&plan, &[]);
    let mut journal = Journal::open(&plan, &agenda, measured);
    journal.carry_on(2, |_, _| passes(10));
    let run = RunFacts::of("small-001".parse().unwrap(), journal.state(), &agenda, machine());
    let report = report(&plan, run, journal.results()).unwrap();
    assert!(report.cells.iter().all(|cell| cell.short.is_none() && cell.counted() == 1));
    assert!(report.headlines[0].text.starts_with("so far, no fault in 2 trials"), "{:?}", report.headlines);
}

#[test]
fn no_report_claims_more_than_a_bound() {
    for report in [reported(BOARD, board_provenance, board_script), reported(SMALL, measured, |_, _| passes(10))] {
        let json = String::from_utf8(report.to_json()).unwrap();
        for claim in ["fixed", "immune", "confirmed"] {
            assert!(!json.contains(claim), "{claim}");
        }
    }
}

#[test]
fn a_report_reads_back_as_it_was_written() {
    let report = reported(BOARD, board_provenance, board_script);
    let back: Report = serde_json::from_slice(&report.to_json()).unwrap();
    assert_eq!(back, report);
    assert!(report.to_json().starts_with(b"{\n  \"schema\": \"jetfault.report/1\""));
}

#[test]
fn what_a_fold_keeps_does_not_grow_with_its_trials() {
    let plan = plan_of(SMALL);
    let agenda = agenda_of(&plan, &[]);
    let mut journal = Journal::open(&plan, &agenda, measured);
    journal.carry_on(1, |_, _| cuda_error("A.forward"));
    let result = journal.results().pop().unwrap();
    let mut fold = ReportFold::new(&plan);
    for round in 0..5000_u32 {
        let mut result = result.clone();
        result.trial.round = round + 1;
        result.judgement.signature.as_mut().unwrap().place = Some(format!("call={round}"));
        fold.add(&result).unwrap();
    }
    let report = fold.finish(RunFacts::of("small-001".parse().unwrap(), journal.state(), &agenda, machine()));
    let sampled = &report.cells.iter().find(|cell| cell.counted() > 0).unwrap().samples[0];
    assert_eq!((sampled.rate.faults, sampled.signatures.len()), (5000, TALLIED_SIGNATURES_MAX));
    assert_eq!(sampled.signatures_left_out, 5000 - TALLIED_SIGNATURES_MAX as u64);
    assert_eq!((report.faults.len(), report.faults_left_out), (FAULT_ROWS_MAX, 5000 - FAULT_ROWS_MAX as u64));
    assert_eq!(sampled.fault_ms.unwrap().trials, 5000);
}

#[test]
fn a_result_of_another_plan_is_refused() {
    let (plan, other) = (plan_of(SMALL), plan_of(BOARD));
    let agenda = agenda_of(&other, &[]);
    let mut journal = Journal::open(&other, &agenda, measured);
    journal.carry_on(1, |_, _| passes(10));
    let result = journal.results().pop().unwrap();
    assert_eq!(ReportFold::new(&plan).add(&result), Err(StrayTrial(result.trial)));
}
