//! What a machine shows right before a trial: files alone, but where a cell needs a proof that takes a program.
//!
//! Owns what is read for which part of a [`Look`]; settings, which have tools of their own, are read by their owner.

use crate::decide::prepare::{Look, Survey};
use crate::perform::evidence::boot_slots;
use crate::perform::gpu_health::GpuHealth;
use crate::perform::host::Sysroot;
use crate::perform::start_state::{traces, uptime_ms};

/// What the machine under `sysroot` shows of what `look` asks for, settings apart. `marked_by` tells which trial of ours
/// left its mark in this boot.
pub fn survey(
    sysroot: &Sysroot,
    look: &Look,
    gpu: &mut GpuHealth,
    marked_by: impl FnOnce() -> Option<String>,
) -> Survey {
    Survey {
        traces: look.traces.map(|sources| traces(sysroot, marked_by(), sources)),
        gpu: if look.gpu { gpu.facts(sysroot) } else { Default::default() },
        slots: if look.slots { boot_slots(sysroot) } else { Default::default() },
        uptime_ms: uptime_ms(sysroot),
        ..Survey::default()
    }
}
