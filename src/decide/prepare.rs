//! Whether the machine is as a trial needs it, and if not, what is done about it: a pure function of where the run
//! stands and of what the machine shows right now.
//!
//! [`crate::decide::step::decide`] says which trial is due from the journal alone. Before it starts, the machine is
//! surveyed and asked here: is the boot as cold as the cell wants it, are the settings in force, is the GPU warm? One
//! thing is done at a time, and then all of it is asked again.

use std::collections::BTreeSet;

use crate::decide::agenda::{Agenda, AgendaCell, QUARANTINE_STARTS};
use crate::decide::arrange::{Arrangement, Readings, arrange};
use crate::decide::gate::{BootSlots, Need, Unfit, gate};
use crate::decide::gpu_health::GpuFacts;
use crate::decide::run::{NOT_COLD, RunState};
use crate::decide::start_state::{Known, start_state};
use crate::decide::step::void;
use crate::model::ids::TrialId;
use crate::model::journal::{Conditions, Judged, SetChanged};
use crate::model::machine_setting::MachineSetting;
use crate::model::settings::Start;
use crate::model::start_state::{ColdProof, GpuTraces, StartState, TraceSources};

/// Rule of the void by which a trial does not start because a setting of the machine is not as its cell asks.
pub const SETTING_FAILED: &str = "setting-failed";

/// Rule of the void by which a warm trial does not start because the machine could not be made warm.
pub const NOT_WARM: &str = "not-warm";

/// What is to be looked at. Each is left out where nothing can follow from it: a look is paid for before every trial.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// The settings that the run changes.
    pub settings: BTreeSet<MachineSetting>,
    /// The traces of the GPU's use: only where nothing of this run used it in this boot.
    pub traces: Option<TraceSources>,
    /// Whether the GPU works.
    pub gpu: bool,
    /// Tries of the boot slots: they change from boot to boot.
    pub slots: bool,
}

/// What the machine showed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// The settings that were asked for.
    pub readings: Readings,
    /// The traces of the GPU's use, if they were asked for.
    pub traces: Option<GpuTraces>,
    /// Whether the GPU works, if that was asked for.
    pub gpu: GpuFacts,
    /// Tries of the boot slots, if they were asked for.
    pub slots: BootSlots,
    /// Milliseconds since the machine started, if it says so.
    pub uptime_ms: Option<u64>,
}

/// What is done next about a trial that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preparation {
    /// Start it, in these conditions.
    Start(Conditions),
    /// Change a setting.
    Set(SetChanged),
    /// Put a setting back, which an earlier cell changed and this one does not name.
    Restore {
        /// Which.
        setting: MachineSetting,
        /// What it was.
        value: String,
    },
    /// Reboot.
    Reboot {
        /// Why.
        why: String,
        /// The power mode to be switched by it.
        power_mode: Option<SetChanged>,
    },
    /// Run a warming trial first.
    Warm {
        /// Index of its cell in the agenda.
        cell: usize,
        /// The trial.
        trial: TrialId,
        /// In which conditions.
        conditions: Conditions,
    },
    /// Judge it without having started it.
    Void(Judged),
}

/// What to look at before settings are changed by a run that stands at `state`.
pub fn look_at_settings(state: &RunState, agenda: &Agenda) -> Look {
    let asked = agenda.cells.iter().flat_map(|cell| cell.asked.keys().copied());
    Look { settings: asked.chain(state.changed.settings()).collect(), ..Look::default() }
}

/// What to look at before the next trial, of cell number `cell`, of a run that stands at `state`.
pub fn look(state: &RunState, agenda: &Agenda, cell: usize) -> Look {
    let is_first = state.position == 0;
    let sources = match agenda.cells.iter().all(|cell| cell.start == Start::Any) {
        true => TraceSources::Files,
        false => TraceSources::FilesAndPrograms,
    };
    Look {
        traces: is_first.then_some(sources),
        gpu: agenda.cells[cell].uses_gpu,
        slots: is_first,
        ..look_at_settings(state, agenda)
    }
}

/// What is done about `trial` of cell number `cell`, on a machine that shows `survey`.
pub fn prepare(state: &RunState, agenda: &Agenda, cell: usize, trial: TrialId, survey: &Survey) -> Preparation {
    let plan = &agenda.cells[cell];
    let start = start_of(state, survey.traces.as_ref());
    let need = Need { gpu: plan.uses_gpu, cold: plan.start == Start::Cold };
    match gate(need, &survey.slots, &survey.gpu, &start) {
        None => {}
        // A boot that was not made for a cold trial may be ended for one; in one that was, another would be as warm.
        Some(Unfit::NotCold(why)) if agenda.may_reboot && !state.made => {
            return Preparation::Reboot { why, power_mode: None };
        }
        Some(Unfit::NotCold(why)) => return Preparation::Void(void(trial, NOT_COLD, why)),
        Some(unfit) => return Preparation::Void(void(trial, unfit.rule(), unfit.to_string())),
    }
    match arrange(&plan.asked, &survey.readings, &state.changed, &agenda.power_modes) {
        Arrangement::Done => {}
        Arrangement::Set(change) => return Preparation::Set(change),
        Arrangement::Restore { setting, value } => return Preparation::Restore { setting, value },
        Arrangement::Reboot(change) => return by_reboot(agenda, trial, change),
        Arrangement::Impossible(why) => return Preparation::Void(void(trial, SETTING_FAILED, why)),
    }
    let is_warm = start.warmed_by.is_some();
    let readings = survey.readings.iter();
    let conditions = Conditions {
        start: Some(start),
        prior_end: Some(state.prior_end),
        uptime_ms: survey.uptime_ms,
        settings: readings.filter_map(|(setting, value)| Some((setting.to_string(), value.known()?.clone()))).collect(),
    };
    if plan.start == Start::Warm && !is_warm {
        return warm(state, agenda, trial, conditions);
    }
    Preparation::Start(conditions)
}

/// The start state of a trial that starts now. Once a trial of this run started in a boot, that alone decides, and the
/// machine is not looked at again.
fn start_of(state: &RunState, traces: Option<&GpuTraces>) -> StartState {
    let known = Known { idle_ms: state.idle_ms, powered_by_us: state.changed.powers_gpu() };
    let start = match traces.filter(|_| state.position == 0) {
        Some(traces) => start_state(traces, known),
        None => StartState {
            cold: ColdProof::Not,
            rule: "ours-before".to_owned(),
            because: Vec::new(),
            warmed_by: None,
            gpu_active_ms: None,
            services: Vec::new(),
        },
    };
    StartState { warmed_by: state.warmth.by.clone(), ..start }
}

fn by_reboot(agenda: &Agenda, trial: TrialId, change: SetChanged) -> Preparation {
    let why = format!("{} can only be changed from {} to {} by a reboot", change.what, change.old, change.new);
    if agenda.may_reboot {
        return Preparation::Reboot { why, power_mode: Some(change) };
    }
    Preparation::Void(void(trial, "needs-a-boot", format!("{why}, and this run may not reboot")))
}

/// One warming trial a boot, and none after several in a row that failed: what makes warm must not itself be a loop.
fn warm(state: &RunState, agenda: &Agenda, trial: TrialId, conditions: Conditions) -> Preparation {
    let why = match (&state.warmth.failed, agenda.warming()) {
        (Some(failed), _) => format!("the machine is not warm: {failed}, which was to warm it, did not pass"),
        (None, _) if state.warmth.faults >= QUARANTINE_STARTS => {
            format!("the machine cannot be made warm: {} warming trials in a row did not pass", state.warmth.faults)
        }
        (None, None) => "the plan has no warming trial; `jetfault run --new` makes one that has".to_owned(),
        (None, Some(cell)) => {
            let AgendaCell { id, cannot, .. } = &agenda.cells[cell];
            match cannot {
                Some(why) => format!("the machine cannot be made warm: {why}"),
                None => {
                    let trial = TrialId { cell: id.clone(), round: state.warmth.trials + 1, attempt: 1 };
                    return Preparation::Warm { cell, trial, conditions };
                }
            }
        }
    };
    Preparation::Void(void(trial, NOT_WARM, why))
}

#[cfg(test)]
mod tests;
