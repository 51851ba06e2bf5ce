//! What `doctor` finds: checks of a machine, and what its GPU did when every kernel was launched once.
//!
//! Owns the words and their stored form; the JSON is stable. It looks at nothing itself: the parent's checks are made in
//! `perform`, those of a GPU in a child.

use serde::{Deserialize, Serialize};

use super::words::words;

/// Name and version of the JSON of `doctor`.
pub const FITNESS_SCHEMA: &str = "jetfault.doctor/1";

words! {
    /// How a check came out.
    CheckState {
        /// As it should be.
        Ok = "ok",
        /// Runs are possible, and some answers will be weaker.
        Warning = "warning",
        /// The machine is unfit until it is mended.
        Failure = "failure",
    }
}

/// One check of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at; stable.
    pub name: String,
    /// How it came out.
    pub state: CheckState,
    /// What was found, in words.
    pub finding: String,
    /// What mends it: a command if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mending: Option<String>,
}

impl Check {
    /// A check that is as it should be.
    pub fn ok(name: &str, finding: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state: CheckState::Ok, finding: finding.into(), mending: None }
    }

    /// A check that is not, and what mends it.
    pub fn bad(name: &str, state: CheckState, finding: impl Into<String>, mending: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state, finding: finding.into(), mending: Some(mending.into()) }
    }
}

/// All that `doctor` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fitness {
    /// [`FITNESS_SCHEMA`].
    pub schema: String,
    /// The checks, in their order.
    pub checks: Vec<Check>,
    /// The GPU, if it was asked for and answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuReport>,
}

impl Fitness {
    /// Whether nothing has to be mended before a run.
    pub fn is_fit(&self) -> bool {
        self.checks.iter().all(|check| check.state != CheckState::Failure)
    }
}

/// What a child found out about the GPU; the only thing that it prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuReport {
    /// A device was opened.
    Device(DeviceReport),
    /// None could be, or its kernels could not be loaded.
    Failed(GpuFailure),
}

/// A device and its kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name.
    pub device: String,
    /// Its compute capability, such as `8.7`.
    pub compute_capability: String,
    /// The CUDA that the driver supports, such as `12.6`.
    pub driver: String,
    /// The form of the kernels that ran: `sm_87`, … or `compute_80`, which the driver compiles.
    pub code: String,
    /// Every kernel, launched once.
    pub kernels: Vec<KernelRow>,
}

/// One kernel, launched once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRow {
    /// The kernel, with what it was launched on.
    pub kernel: String,
    /// Whether its result is that of its CPU twin.
    pub is_right: bool,
    /// What is not right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why no kernel ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFailure {
    /// A known reason by its name: `no-gpu`, `no-kernel-image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The driver's function that answered an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// In words; with `no-kernel-image` the architecture found and those that this build has.
    pub text: String,
}

impl GpuReport {
    /// The report as the check `gpu`.
    pub fn to_check(&self) -> Check {
        const NAME: &str = "gpu";
        match self {
            Self::Device(device) => device.to_check(NAME),
            Self::Failed(GpuFailure { detail, text, .. }) => {
                let mending = match detail.as_deref() {
                    Some("no-kernel-image") => "use a build of jetfault that has this architecture",
                    Some("no-gpu") => "install the NVIDIA driver, and unset CUDA_VISIBLE_DEVICES",
                    Some(_) | None => "look at `dmesg`; a device that failed needs a reboot",
                };
                let detail = detail.as_ref().map(|detail| format!("{detail}: ")).unwrap_or_default();
                Check::bad(NAME, CheckState::Failure, format!("{detail}{text}"), mending)
            }
        }
    }
}

impl DeviceReport {
    fn to_check(&self, name: &str) -> Check {
        let Self { device, compute_capability, driver, code, kernels } = self;
        let wrong = kernels.iter().filter(|row| !row.is_right).count();
        let what = format!("{device}, compute capability {compute_capability}, driver CUDA {driver}, code {code}");
        if wrong == 0 {
            Check::ok(name, format!("{what}: {} kernels are right", kernels.len()))
        } else {
            let finding = format!("{what}: {wrong} of {} kernels are not right", kernels.len());
            Check::bad(name, CheckState::Failure, finding, "do not trust results of this device; try another driver")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(rights: &[bool]) -> GpuReport {
        let row = |is_right: &bool| KernelRow { kernel: "gemv_4bit".into(), is_right: *is_right, error: None };
        GpuReport::Device(DeviceReport {
            device: "Orin".into(),
            compute_capability: "8.7".into(),
            driver: "12.6".into(),
            code: "sm_87".into(),
            kernels: rights.iter().map(row).collect(),
        })
    }

    #[test]
    fn one_wrong_kernel_makes_a_machine_unfit() {
        let fitness = |report: &GpuReport| Fitness {
            schema: FITNESS_SCHEMA.into(),
            checks: vec![report.to_check()],
            gpu: Some(report.clone()),
        };
        assert!(fitness(&device(&[true, true])).is_fit());
        let wrong = fitness(&device(&[true, false]));
        assert!(!wrong.is_fit());
        assert!(wrong.checks[0].finding.ends_with("1 of 2 kernels are not right"), "{}", wrong.checks[0].finding);
    }

    #[test]
    fn a_report_is_read_back_as_it_was_written() {
        let failure = GpuFailure {
            detail: Some("no-kernel-image".into()),
            call: None,
            code: None,
            text: "no kernel image for sm_72".into(),
        };
        for report in [device(&[true]), GpuReport::Failed(failure)] {
            let text = serde_json::to_string(&report).unwrap();
            assert_eq!(serde_json::from_str::<GpuReport>(&text).unwrap(), report);
        }
    }
}
