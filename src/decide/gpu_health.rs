//! Whether a Jetson's GPU can work in this boot: asked before a trial, so that a dead one is not taken for a fault.
//!
//! After an unclean restart the GPU of an Orin may fail to start until its power is cut.

use crate::decide::kernel_log::classify;
use crate::model::evidence::Fact;
use crate::model::start_state::GpuDriver;

/// The rule of the kernel's lines that say that nvgpu could not start its GPU.
const NVGPU_START: &str = "nvgpu-start";

/// The rule of those that say so of nvidia.ko.
const NVRM_START: &str = "nvrm-start";

/// The only device node of a GPU that is not powered on.
const POWER_NODE: &str = "power";

/// What nvgpu and the kernel say of the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuFacts {
    /// Names under `/dev/nvgpu/igpu0`.
    pub nodes: Fact<Vec<String>>,
    /// Whether the GPU has a devfreq device.
    pub has_clock: bool,
    /// State of its runtime power management (`power/runtime_status`).
    pub runtime_status: Fact<String>,
    /// Whether it was initialised once since its driver was loaded (`golden_img_status`).
    pub initialised: Fact<bool>,
    /// The kernel's words on a start that failed in this boot, by the driver of this GPU.
    pub start_failure: Option<String>,
}

/// Why the GPU cannot work; `None` if nothing speaks against it.
///
/// A GPU that was never powered on in this boot has no more than its `power` node and no clock either, and is not dead:
/// that is how a cold one looks.
pub fn dead(facts: &GpuFacts) -> Option<String> {
    let only_power = facts.nodes.known().is_some_and(|nodes| nodes.iter().all(|node| node == POWER_NODE));
    let was_initialised = facts.initialised.known() == Some(&true);
    let why = if let Some(line) = &facts.start_failure {
        format!("the kernel says: {line}")
    } else if facts.nodes.known().is_none() {
        return None;
    } else if facts.runtime_status.known().is_some_and(|status| status == "error") {
        "its power management reports an error (power/runtime_status)".to_owned()
    } else if was_initialised && only_power {
        "/dev/nvgpu/igpu0 holds nothing but `power`, though it was initialised before".to_owned()
    } else if was_initialised && !facts.has_clock {
        "it has no devfreq device, though it was initialised before".to_owned()
    } else {
        return None;
    };
    Some(format!("the GPU is dead: {why}; a restart may not mend it, cut the power"))
}

/// The first of the kernel's messages that says that the GPU of `driver` could not be started.
pub fn start_failure<'a>(driver: GpuDriver, lines: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let log = classify(lines);
    log.findings.into_iter().find(|finding| is_start_failure(driver, &finding.rule)).map(|finding| finding.text)
}

/// Whether `rule` of the kernel's lines says that the GPU of `driver` could not be started. In a PC one GPU of several
/// may fail to, so there it says nothing about the machine.
pub fn is_start_failure(driver: GpuDriver, rule: &str) -> bool {
    match driver {
        GpuDriver::Nvgpu => rule == NVGPU_START,
        GpuDriver::NvidiaTegra => rule == NVRM_START,
        GpuDriver::Nvidia | GpuDriver::None => false,
    }
}

/// Whether what `rule` found is about the GPU that computes under `driver`. An Orin has NVIDIA's display driver as well:
/// it has an adapter of its own, which may fail to start while the GPU works.
pub fn is_about(driver: GpuDriver, rule: &str) -> bool {
    !(driver == GpuDriver::Nvgpu && rule == NVRM_START)
}

/// Whether a devfreq device is a GPU: `17000000.gpu` of an Orin, `17000000.ga10b` under JetPack 5, `57000000.gpu` of a
/// Nano; Thor has `gpu-gpc-0` and `gpu-nvd-0`.
pub fn is_gpu_clock(devfreq: &str) -> bool {
    let chips = [".gpu", ".ga10b", ".gv11b", ".gp10b"];
    devfreq.starts_with("gpu-") || chips.iter().any(|chip| devfreq.ends_with(chip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::kernel_log::kernel_rule;

    fn facts(nodes: &[&str], has_clock: bool, status: &str, initialised: bool) -> GpuFacts {
        GpuFacts {
            nodes: Fact::Known(nodes.iter().map(|node| (*node).to_owned()).collect()),
            has_clock,
            runtime_status: Fact::Known(status.to_owned()),
            initialised: Fact::Known(initialised),
            start_failure: None,
        }
    }

    const ALL: &[&str] = &["as", "channel", "ctrl", "power", "tsg"];

    #[test]
    fn a_gpu_that_works_or_was_never_touched_is_not_dead() {
        for alive in [
            facts(ALL, true, "suspended", true),
            facts(ALL, true, "active", true),
            // Cold.
            facts(&["power"], false, "suspended", false),
            // Attributes that this kernel does not have.
            GpuFacts { initialised: Fact::Absent, runtime_status: Fact::Absent, ..facts(&["power"], false, "", false) },
            // No nvgpu.
            GpuFacts { nodes: Fact::Absent, ..facts(&[], false, "error", true) },
        ] {
            assert_eq!(dead(&alive), None, "{alive:?}");
        }
    }

    #[test]
    fn a_dead_gpu_is_told_with_its_reason() {
        let failed = Some("nvgpu: 17000000.gpu gk20a_acr_bootstrap:104 [ERR] ACR bootstrap failed".to_owned());
        for (facts, word) in [
            (GpuFacts { start_failure: failed, ..facts(&["power"], false, "error", false) }, "ACR bootstrap failed"),
            (facts(&["power"], false, "error", false), "runtime_status"),
            (facts(&["power"], true, "suspended", true), "nothing but `power`"),
            (facts(ALL, false, "suspended", true), "devfreq"),
        ] {
            let why = dead(&facts).unwrap();
            assert!(why.contains(word) && why.ends_with("cut the power"), "{why}");
        }
    }

    #[test]
    fn a_failed_start_is_found_among_the_kernels_messages() {
        assert!([NVGPU_START, NVRM_START].iter().all(|rule| kernel_rule(rule).is_some()));
        let lines = [
            "Machine model: NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
            "nvgpu: 17000000.gpu                    gk20a_acr_bootstrap:104  [ERR]  ACR bootstrap failed",
            "nvgpu: 17000000.gpu              nvgpu_finalize_poweron:1287 [ERR]  Failed initialization for: g->ops.acr.acr_construct_execute",
        ];
        let of = |driver, lines: &[&str]| start_failure(driver, lines.iter().copied());
        assert!(of(GpuDriver::Nvgpu, &lines).unwrap().contains("ACR bootstrap failed"));
        let notifier = "nvgpu: 17000000.gpu x:1 [ERR] error notifier set to 31 for ch 479 owned by x";
        assert_eq!(of(GpuDriver::Nvgpu, &[notifier]), None);
    }

    #[test]
    fn the_display_driver_of_an_orin_does_not_speak_for_its_gpu() {
        let line = "NVRM: GPU 0000:00:00.0: RmInitAdapter failed! (0x62:0xffff:2477)";
        for (driver, is_dead) in [
            (GpuDriver::Nvgpu, false),
            (GpuDriver::NvidiaTegra, true),
            // One of several.
            (GpuDriver::Nvidia, false),
            (GpuDriver::None, false),
        ] {
            assert_eq!(start_failure(driver, [line]).is_some(), is_dead, "{driver:?}");
            assert_eq!(is_about(driver, NVRM_START), driver != GpuDriver::Nvgpu, "{driver:?}");
        }
        let thor = GpuFacts { start_failure: Some(line.into()), ..GpuFacts::default() };
        assert!(dead(&thor).unwrap().contains("RmInitAdapter"));
    }

    #[test]
    fn a_gpus_clock_is_known_by_its_name() {
        for gpu in ["17000000.gpu", "17000000.ga10b", "57000000.gpu", "gpu-gpc-0", "gpu-nvd-0"] {
            assert!(is_gpu_clock(gpu), "{gpu}");
        }
        assert!(!is_gpu_clock("1d84000.ufshc"));
    }
}
