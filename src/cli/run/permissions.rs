//! What only the command line may allow, and what a plan needs of it.

use crate::cli::args::AllowArgs;
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::decide::plan::{Cell, Permission, Plan};
use crate::model::journal::Allowed;
use crate::model::settings::{CompanionProgram, WorkloadSettings};
use crate::perform::host::Sysroot;
use crate::perform::invoker;
use crate::perform::settings::power_modes;

/// Nothing runs, and nothing is made, before all that the plan needs is allowed. What this machine cannot do needs no
/// permission: its cells are void, with the reason.
///
/// # Errors
/// If something is not allowed, with the flag that allows it.
pub(in crate::cli) fn check_permissions(plan: &Plan, allowed: Allowed, sysroot: &Sysroot) -> Result<(), Failure> {
    let is_possible = |permission| permission != Permission::PowerMode || power_modes(sysroot).is_ok();
    let needed = plan.needs.permissions.iter().copied();
    let missing: Vec<Permission> =
        needed.filter(|permission| !is_allowed(*permission, allowed) && is_possible(*permission)).collect();
    if !missing.is_empty() {
        let deeds: Vec<&str> = missing.iter().map(|permission| deed(*permission)).collect();
        let flags: Vec<&str> = missing.iter().map(|permission| permission.as_str()).collect();
        return Err(Failure::words(Exit::Usage, format!("this matrix {}", deeds.join(", ")))
            .hint(format!("allow it with {}", flags.join(" "))));
    }
    let commands = plan.cells.iter().any(|Cell { settings, .. }| {
        let beside = settings.companion.as_ref().map(|companion| &companion.program);
        matches!(settings.workload, WorkloadSettings::Command(_))
            || matches!(beside, Some(CompanionProgram::Command(_)))
    });
    let invoker = invoker::collect().or_fail(Exit::Unfit)?;
    if commands && invoker.uid == 0 && !allowed.root_workload {
        return Err(Failure::words(Exit::Usage, "this matrix runs commands, and they would run as root")
            .hint("run it as a user (sudo keeps the user), or allow it with --allow-root-workload"));
    }
    Ok(())
}

fn is_allowed(permission: Permission, allowed: Allowed) -> bool {
    match permission {
        Permission::Reboot => allowed.reboot,
        Permission::PowerMode => allowed.power_mode,
        Permission::DropCaches => allowed.drop_caches,
        Permission::InjectedFaults => allowed.injected_faults,
    }
}

/// What a plan does that needs the permission.
fn deed(permission: Permission) -> &'static str {
    match permission {
        Permission::Reboot => "reboots this machine",
        Permission::PowerMode => "switches its power mode",
        Permission::DropCaches => "drops its page cache",
        Permission::InjectedFaults => "commits deliberate faults (the results are marked as injected for ever)",
    }
}

/// What the arguments allow.
pub(in crate::cli) fn allowed(allow: &AllowArgs) -> Allowed {
    Allowed {
        reboot: allow.allow_reboot,
        power_mode: allow.allow_power_mode,
        drop_caches: allow.allow_drop_caches,
        injected_faults: allow.allow_injected_faults,
        root_workload: allow.allow_root_workload,
    }
}

/// A run does what it was opened with the permission for, whatever a later build could do.
pub(super) fn not_allowed(cell: &Cell, allowed: Allowed) -> Option<String> {
    let settings = &cell.settings;
    let needs =
        [(settings.power_mode.is_some(), Permission::PowerMode), (settings.drop_caches, Permission::DropCaches)];
    let missing = needs.into_iter().find(|(needed, permission)| *needed && !is_allowed(*permission, allowed));
    missing.map(|(_, permission)| format!("the run was opened without {permission}"))
}
