//! Nights of a constructed cell.

use super::*;

fn night(number: u32, trials: &str, confirming: &str) -> Night {
    let read = |text: &str| -> Vec<Trial> {
        let trial = |letter| match letter {
            'F' => Trial::Fault("reboot".into()),
            'G' => Trial::Fault("cuda-error".into()),
            'x' => Trial::Excluded,
            _ => Trial::Clean,
        };
        text.chars().map(trial).collect()
    };
    Night { run: RunId::new("nightly", number).unwrap(), trials: read(trials), confirming: read(confirming) }
}

/// The history after these nights, each the trials and those that confirm.
fn after(nights: &[(&str, &str)]) -> History {
    (1..).zip(nights).fold(History::default(), |history, (number, (trials, confirming))| {
        history.after(&night(number, trials, confirming))
    })
}

const STABLE: [(&str, &str); 3] = [("...", ""), ("...", ""), ("...", "")];

fn states(nights: &[(&str, &str)]) -> Vec<CellState> {
    (1..=nights.len()).map(|until| after(&nights[..until]).state).collect()
}

#[test]
fn nine_clean_trials_make_a_cell_stable() {
    use CellState::*;
    assert_eq!(states(&STABLE), [Unknown, Unknown, StableClean]);
    assert_eq!(states(&[("F..", "")]), [Unknown], "one fault with two clean trials decides nothing");
    assert_eq!(states(&[("FF.", "")]), [Faulting]);
}

#[test]
fn a_fault_in_a_stable_cell_is_confirmed_on_new_trials_and_is_not_counted_in_the_answer() {
    let with = |trials, confirming| after(&[&STABLE[..], &[(trials, confirming)]].concat()).state;
    assert!(after(&STABLE).asks_to_confirm(&night(4, "F..", "").trials));
    assert!(!after(&STABLE).asks_to_confirm(&night(4, "...", "").trials));
    assert_eq!(with("F..", "F"), CellState::NewFault);
    assert_eq!(with("F..", "........."), CellState::StableClean, "spurious");
    assert_eq!(with("F..", "...."), CellState::Confirming, "the night was too short");
    assert_eq!(with("FFF", ""), CellState::Confirming, "however many faults raised the question");
}

#[test]
fn fixed_is_what_its_own_rate_before_asks_for() {
    let nights = [("FFFFFFF..", ""), ("...", ""), ("..", ""), (".", ""), ("...", ""), ("F", "")];
    use CellState::*;
    assert_eq!(states(&nights), [Faulting, SuspectedFixed, SuspectedFixed, Fixed, Fixed, Faulting]);
    let half = after(&nights[..2]);
    assert_eq!(half.clean_needed(), 6);
    assert_eq!(
        toward_fixed(&half),
        "3/6 clean trials toward FIXED (rate now at most 63.2 %, needs less than 45.0 %; it was 7/9)"
    );
    assert!(toward_fixed(&after(&nights[..4])).contains("rate at most 39.3 %"), "FIXED never stands without its bound");
}

#[test]
fn a_cell_whose_trials_say_nothing_is_put_into_quarantine_and_comes_back() {
    assert_eq!(after(&[&STABLE[..], &[("F..", "G")]].concat()).state, CellState::Quarantined, "two kinds of fault");
    let excluded = [&STABLE[..], &[("xxx", "")]].concat();
    assert_eq!(after(&excluded).state, CellState::Quarantined);
    let back = [&excluded[..], &[("...", ""), ("...", ""), ("...", "")]].concat();
    assert_eq!(after(&back).state, CellState::StableClean, "the state under it was kept");
}

#[test]
fn how_likely_tonight_is_comes_from_the_window() {
    let chance = |history: (u64, u64), faults, trials| {
        let counts = Counts::of(history.0, history.1).unwrap();
        faults_probability(counts, faults, trials)
    };
    for (history, faults, trials, want) in [
        ((0, 10), 1, 1, 0.045_455),
        ((0, 30), 1, 1, 0.016_129),
        ((0, 100), 1, 1, 0.004_950),
        ((0, 30), 1, 3, 0.046_176),
        ((0, 30), 2, 3, 0.002_154),
        ((0, 100), 2, 5, 0.000_694),
    ] {
        let got = chance(history, faults, trials);
        assert!((got - want).abs() < 1e-6, "{history:?} {faults}/{trials}: {got}");
    }
}

fn told(nights: &[(&str, &str)], tonight: (&str, &str), expects_fault: bool) -> CellNight {
    let cell = CellId::of(b"cell");
    let nightly = NightlyCell { cell, key: "key".into(), before: after(nights) };
    cell_night(&nightly, "baseline", &night(9, tonight.0, tonight.1), expects_fault)
}

#[test]
fn only_what_is_new_wakes_somebody() {
    let alarm = |nights: &[(&str, &str)], tonight, expects| told(nights, tonight, expects).alarm;
    assert_eq!(alarm(&STABLE, ("...", ""), false), Alarm::None);
    assert_eq!(alarm(&STABLE, ("F..", "F"), false), Alarm::Fault);
    assert_eq!(alarm(&STABLE, ("F..", "........."), false), Alarm::None);
    assert_eq!(alarm(&STABLE, ("F..", ".."), false), Alarm::Undecided);
    assert_eq!(alarm(&[], ("FFF", ""), false), Alarm::Fault);
    assert_eq!(alarm(&[], ("FFF", ""), true), Alarm::None, "the matrix expects it");
    assert_eq!(alarm(&[("FFF", "")], ("FFF", ""), false), Alarm::None, "it is known");
    assert_eq!(alarm(&[("FFF", ""), ("...", "")], ("F..", ""), false), Alarm::Fault, "it was thought to be over");
    assert_eq!(alarm(&[], ("xxx", ""), false), Alarm::Undecided);
}

#[test]
fn every_state_but_quarantine_says_its_bound_or_its_counts() {
    let says = |nights: &[(&str, &str)], tonight| told(nights, tonight, false).says;
    assert_eq!(says(&[], ("...", "")), "0/3 so far, rate at most 63.2 %: too few to be called stable");
    assert_eq!(says(&STABLE, ("...", "")), "0/12 of late, rate at most 22.1 %");
    assert_eq!(says(&STABLE, ("F..", "F")), "1/3 tonight after 0/9, and 1/1 on new trials");
    assert_eq!(says(&STABLE, ("F..", ".........")), "1/3 tonight after 0/9; 0/9 on new trials: taken for spurious");
}
