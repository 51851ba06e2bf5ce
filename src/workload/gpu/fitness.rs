//! The child of `doctor --gpu`: opens the device, launches every kernel once, and reports.
//!
//! Owns the translation of a self check into what the parent prints. It runs in a process of its own, because a driver
//! may crash or hang.

use super::driver::Context;
use super::error::GpuError;
use super::kernels::Kernels;
use super::self_check::{Finding, KernelCheck, self_check};
use crate::model::fitness::{DeviceReport, GpuFailure, GpuReport, KernelRow};
use crate::model::settings::Code;

/// What the first device does.
pub fn report() -> GpuReport {
    match examine() {
        Ok(device) => GpuReport::Device(device),
        Err(error) => GpuReport::Failed(failure(&error)),
    }
}

fn examine() -> Result<DeviceReport, GpuError> {
    let context = Context::open(0)?;
    let kernels = Kernels::new(&context, Code::Any)?;
    kernels.load_all()?;
    let rows = self_check(&kernels).into_iter().map(row).collect();
    let facts = context.facts();
    let report = DeviceReport {
        device: facts.name.clone(),
        compute_capability: format!("{}.{}", facts.architecture.major, facts.architecture.minor),
        driver: facts.driver.to_string(),
        code: kernels.target().name().to_owned(),
        kernels: rows,
    };
    // A device that died is told by the kernels that failed on it, and closing it would only repeat that.
    if context.death().is_none() {
        context.close()?;
    }
    Ok(report)
}

fn row(KernelCheck { kernel, finding }: KernelCheck) -> KernelRow {
    let error = match &finding {
        Finding::Right => None,
        Finding::Wrong => Some("the result differs from the CPU's".to_owned()),
        Finding::Failed(error) => Some(error.to_string()),
    };
    KernelRow { kernel, is_right: error.is_none(), error }
}

fn failure(error: &GpuError) -> GpuFailure {
    let failure = error.to_failure();
    let detail = match error {
        GpuError::NoKernelImage { .. } => Some("no-kernel-image"),
        GpuError::NoLibrary | GpuError::NoDevice | GpuError::NoSuchDevice { .. } => Some("no-gpu"),
        GpuError::DriverTooOld { .. } => Some("driver-too-old"),
        GpuError::DamagedImage(_) | GpuError::MissingFunction { .. } | GpuError::Driver { .. } => None,
        GpuError::Blas { .. } | GpuError::OutOfMemory { .. } | GpuError::TooSmall { .. } => None,
        GpuError::BadLaunch { .. } | GpuError::Host(_) => None,
    };
    GpuFailure { detail: detail.map(str::to_owned), call: failure.call, code: failure.code, text: error.to_string() }
}
