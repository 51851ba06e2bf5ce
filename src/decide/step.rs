//! What to do next: a pure function of where the run stands. One short loop in `perform` does it.

use crate::decide::agenda::Agenda;
use crate::decide::classify::classify;
use crate::decide::infer::{infer, no_evidence};
use crate::decide::run::{CANNOT_RUN_HERE, OpenTrial, Phase, RunState};
use crate::model::ids::{BootId, TrialId};
use crate::model::journal::{Closed, Closing, Judged, Quarantined};
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
    /// Start a trial.
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
    },
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
    if let Some(open) = &state.open {
        return Step::Judge(judge(state, agenda, open));
    }
    if let Some(cell) = state.progress.suspect() {
        let why = "its last starts gave no counted verdict, or rebooted before the child was known to run";
        return Step::Quarantine(Quarantined { cell: agenda.cells[cell].id.clone(), why: why.into() });
    }
    if state.boots > agenda.boots_max {
        let why = format!("the run used {} boots; [safety] max_boots is {}", state.boots, agenda.boots_max);
        return Step::Close(Closed { how: Closing::Stopped, why });
    }
    match state.progress.due(agenda) {
        None => Step::Close(Closed { how: Closing::Complete, why: "every block is through".into() }),
        Some((cell, trial)) => next_trial(state, agenda, cell, trial),
    }
}

fn next_trial(state: &RunState, agenda: &Agenda, cell: usize, trial: TrialId) -> Step {
    let plan = &agenda.cells[cell];
    if let Some(reason) = &plan.cannot {
        return Step::Judge(void(trial, CANNOT_RUN_HERE, reason.clone()));
    }
    let needs_boot = match (&state.tainted_by, plan.cold && state.position > 0) {
        (Some(by), _) if plan.may_taint => Some(format!("{by} may have left the GPU unfit")),
        (Some(_) | None, true) => Some("a cold trial needs a boot in which nothing used the GPU".to_owned()),
        (Some(_) | None, false) => None,
    };
    match needs_boot {
        Some(why) if agenda.may_reboot => Step::Reboot { why },
        Some(why) => Step::Judge(void(trial, "needs-a-boot", format!("{why}, and reboots are not allowed"))),
        None => Step::Start { cell, trial, role: plan.role },
    }
}

fn void(trial: TrialId, rule: &str, reason: String) -> Judged {
    Judged { trial, judgement: Judgement::void(reason), rule: rule.to_owned() }
}

/// The verdict on a trial that ended, or that was open when the harness went away.
fn judge(state: &RunState, agenda: &Agenda, open: &OpenTrial) -> Judged {
    let trial = open.started.trial.clone();
    if let Some(outcome) = &open.outcome {
        let (judgement, rule) = classify(outcome);
        return Judged { trial, judgement, rule: rule.label.to_owned() };
    }
    let end = state.open_end(agenda, open);
    let (judgement, rule) = match &open.next_boot {
        Some((boot, evidence)) => infer(&end, evidence, boot, &state.baseline),
        None => infer(&end, &no_evidence(), &open.boot, &state.baseline),
    };
    Judged { trial, judgement, rule: rule.label.to_owned() }
}
