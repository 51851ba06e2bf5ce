//! What this machine and this build make of a plan.

use super::permissions::not_allowed;
use crate::cli::boots::Boots;
use crate::decide::agenda::{Agenda, CellHere, cannot_run, faults_the_machine};
use crate::decide::campaign::QuestionKind;
use crate::decide::plan::{Cell, Plan};
use crate::model::capability::BuildCapabilities;
use crate::model::journal::Opened;
use crate::model::settings::Breadcrumbs;
use crate::model::verdict::Provenance;
use crate::perform::injector;
use crate::perform::linux::{may_use_gpu, warms};
use crate::perform::runner::COMMIT_PERIOD_MS;
use crate::perform::settings::{Reach, power_modes};

/// What this machine and this build make of each cell.
pub(super) fn agenda(plan: &Plan, opened: &Opened, reach: Reach<'_>, boots: &Boots) -> Agenda {
    let build = match plan.campaign.as_deref().map(|asked| asked.question.kind()) {
        Some(QuestionKind::Revisions) => BuildCapabilities::WITH_REVISIONS,
        Some(QuestionKind::Axes | QuestionKind::Sequence | QuestionKind::Levels) | None => BuildCapabilities::THIS,
    };
    let gpu = reach.sysroot.has_gpu_nodes();
    let modes = power_modes(reach.sysroot);
    let no_machine_faults = match opened.allowed.injected_faults {
        true => injector::obstacle(),
        false => Some("deliberate faults were not allowed when the run began ([[inject]])".to_owned()),
    };
    let agenda = Agenda::of(plan, opened.allowed.reboot, |index| {
        let Some(cell) = plan.cell_at(index) else { return CellHere::default() };
        let asked = reach.asked(&cell.settings, &modes);
        let cannot = cannot_run(plan, cell, build)
            .or_else(|| no_machine_faults.clone().filter(|_| faults_the_machine(cell)))
            .or_else(|| asked.as_ref().err().cloned())
            .or_else(|| reach.tools.no_debugger(cell.settings.observer))
            .or_else(|| not_allowed(cell, opened.allowed))
            .or_else(|| boots.cannot(cell));
        CellHere {
            uses_gpu: may_use_gpu(&cell.settings, true),
            may_taint: gpu && may_use_gpu(&cell.settings, gpu),
            warms: warms(&cell.settings, gpu),
            cannot,
            asked: asked.unwrap_or_default(),
            unrecorded_ms: match cell.settings.breadcrumbs {
                Breadcrumbs::Sync => 0,
                Breadcrumbs::Async | Breadcrumbs::Off => COMMIT_PERIOD_MS,
            },
        }
    });
    Agenda { power_modes: modes.unwrap_or_default(), ..agenda }
}

/// Where the numbers of `cell` come from.
pub(super) fn provenance(cell: &Cell, opened: &Opened) -> Provenance {
    match (&opened.script, cell.inject.is_empty()) {
        (Some(_), _) => Provenance::Simulated,
        (None, false) => Provenance::Injected,
        (None, true) => Provenance::Measured,
    }
}
