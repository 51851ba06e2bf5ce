//! What to do next: a pure function of where the run stands. One short loop in `perform` does it.

use crate::decide::agenda::Agenda;
use crate::decide::classify::classify;
use crate::decide::infer::{infer, no_evidence};
use crate::decide::run::{CANNOT_RUN_HERE, NOT_COLD_BOOTS_MAX, OpenTrial, Phase, RunState};
use crate::model::ids::{BootId, TrialId};
use crate::model::journal::{Closed, Closing, Judged, Quarantined};
use crate::model::quantity::Millis;
use crate::model::settings::Start;
use crate::model::start_state::PriorEnd;
use crate::model::units::counted;
use crate::model::verdict::{Judgement, Role};

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Capture what the machine says about the boot before, and make it durable.
    Capture,
    /// Write a verdict.
    Judge(Judged),
    /// Write that a cell is not started again.
    Quarantine(Quarantined),
    /// Start a trial, once the machine is as it asks; see [`crate::decide::prepare`].
    Start {
        /// Index of its cell in the agenda.
        cell: usize,
        /// The trial.
        trial: TrialId,
        /// What it is for.
        role: Role,
    },
    /// Declare a reboot and ask for it.
    Reboot {
        /// Why.
        why: String,
        /// The cell whose trial is due after it: the next boot may as well come up in its power mode.
        cell: usize,
    },
    /// Ask what comes next: every block of an open-ended run is through.
    Ask,
    /// Put back a setting of the machine that was changed.
    PutBack,
    /// Write that the run is over.
    Close(Closed),
    /// Nothing: the run is over.
    Over,
}

/// The next step of a run that stands at `state`, in boot `here`.
pub fn decide(state: &RunState, agenda: &Agenda, here: &BootId) -> Step {
    if let Phase::Closed(_) = state.phase {
        return Step::Over;
    }
    if state.boot.as_ref() != Some(here) {
        return Step::Capture;
    }
    if let Some(correction) = state.correction() {
        return Step::Judge(correction);
    }
    if let Some(open) = &state.open {
        return Step::Judge(judge(state, agenda, open));
    }
    if let Some(cell) = state.progress.suspect() {
        let why = "its last starts gave no counted verdict, or rebooted before the child was known to run";
        return Step::Quarantine(Quarantined { cell: agenda.cells[cell].id.clone(), why: why.into() });
    }
    if let Some(why) = stop(state, agenda) {
        return close(state, Closed { how: Closing::Stopped, why });
    }
    match state.progress.due(agenda) {
        None if agenda.open_ended => Step::Ask,
        None => close(state, Closed { how: Closing::Complete, why: "every block is through".into() }),
        Some((cell, trial)) => next_trial(state, agenda, cell, trial),
    }
}

/// Why no further trial may run, if none may.
fn stop(state: &RunState, agenda: &Agenda) -> Option<String> {
    if state.boots > agenda.boots_max {
        return Some(format!(
            "the run used {}; [safety] max_boots is {}",
            counted(state.boots.into(), "boot"),
            agenda.boots_max
        ));
    }
    let (unexpected, most) = (state.unexpected_boots(), agenda.unexpected_per_hour_max);
    if unexpected > most {
        return Some(format!(
            "{} in an hour that no trial explains; [safety] max_unexpected_per_hour is {most}",
            counted(unexpected.into(), "boot")
        ));
    }
    if state.age_ms() > agenda.expires_ms {
        return Some(format!("it took longer than [safety] expires allows: {}", Millis::new(agenda.expires_ms)));
    }
    let spoiled = &state.spoiled;
    (spoiled.boots >= NOT_COLD_BOOTS_MAX)
        .then(|| format!("{} boots in a row were not cold; the last because {}", spoiled.boots, spoiled.why))
}

/// Ends the run, once the machine is as it was found.
fn close(state: &RunState, closed: Closed) -> Step {
    if state.changed.is_empty() { Step::Close(closed) } else { Step::PutBack }
}

fn next_trial(state: &RunState, agenda: &Agenda, cell: usize, trial: TrialId) -> Step {
    let plan = &agenda.cells[cell];
    if let Some(reason) = &plan.cannot {
        return Step::Judge(void(trial, CANNOT_RUN_HERE, reason.clone()));
    }
    let used = state.position > 0 || state.spoiled.here;
    let needs_boot = match (&state.tainted_by, plan.start == Start::Cold) {
        (Some(by), _) if plan.may_taint => Some(format!("{by} may have left the GPU unfit")),
        (Some(_) | None, true) if used => Some("a cold trial needs a boot in which nothing used the GPU".to_owned()),
        (Some(_) | None, true) if state.prepared => {
            Some("a cold trial needs a boot in which no revision was prepared".to_owned())
        }
        (Some(_) | None, true) if state.prior_end == PriorEnd::Fault => {
            Some("a cold trial needs a boot that did not begin with a fault".to_owned())
        }
        (Some(_) | None, true) if plan.from_power && !state.made => {
            Some("a trial that is cold from power needs a boot that began with its power being cut".to_owned())
        }
        (Some(_) | None, _) => None,
    };
    match needs_boot {
        Some(why) if agenda.may_reboot => Step::Reboot { why, cell },
        Some(why) => Step::Judge(void(trial, "needs-a-boot", format!("{why}, and this run may not reboot"))),
        None => Step::Start { cell, trial, role: plan.role },
    }
}

/// A trial that never started, with the rule and the reason.
pub fn void(trial: TrialId, rule: &str, reason: String) -> Judged {
    Judged { trial, judgement: Judgement::void(reason), rule: rule.to_owned(), corrects: None }
}

/// The verdict on a trial that ended, or that was open when the harness went away.
fn judge(state: &RunState, agenda: &Agenda, open: &OpenTrial) -> Judged {
    let trial = open.started.trial.clone();
    if let Some(outcome) = &open.outcome {
        let (judgement, rule) = classify(outcome);
        return Judged { trial, judgement, rule: rule.label.to_owned(), corrects: None };
    }
    let end = state.open_end(agenda, open);
    let (judgement, rule) = match &open.next_boot {
        Some((boot, evidence)) => infer(&end, evidence, boot, &state.baseline),
        None => infer(&end, &no_evidence(), &open.boot, &state.baseline),
    };
    Judged { trial, judgement, rule: rule.label.to_owned(), corrects: None }
}
