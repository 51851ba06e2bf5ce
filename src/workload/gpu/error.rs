//! What can go wrong on a GPU, told apart as the verdicts need it.
//!
//! Owns the error type and its translation into the protocol's [`Failure`]. It calls no library: names of codes are
//! looked up by the driver when the error is made, so that an error can be printed by anyone.

use std::fmt;

use crate::model::allocator::AllocError;
use crate::model::protocol::{Failure, FailureKind, MemoryRefused};
use crate::workload::spec::LayerError;

/// A compute capability, such as 8.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Architecture {
    /// The generation.
    pub major: u32,
    /// The chip within it.
    pub minor: u32,
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// A version as CUDA counts them: 1000 * major + 10 * minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CudaVersion(pub i32);

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// What a GPU could not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// No libcuda is installed: this machine has no CUDA driver.
    #[error("no libcuda can be loaded")]
    NoLibrary,
    /// The driver sees no device, or `CUDA_VISIBLE_DEVICES` hides them all.
    #[error("the driver sees no CUDA device")]
    NoDevice,
    /// There is no device with this number.
    #[error("there is no CUDA device {ordinal}: the driver sees {count}")]
    NoSuchDevice {
        /// The number asked for, from 0.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The driver is older than what the kernels were compiled for.
    #[error("the driver supports CUDA {found}, and the kernels need {needed}")]
    DriverTooOld {
        /// What the driver says.
        found: CudaVersion,
        /// What is needed.
        needed: CudaVersion,
    },
    /// No kernel image fits the device.
    #[error("no kernel image for {found}: this build has {}", .built.join(", "))]
    NoKernelImage {
        /// The device.
        found: Architecture,
        /// The targets that were compiled.
        built: Vec<&'static str>,
    },
    /// A shipped kernel image cannot be unpacked.
    #[error("the kernel image {0} of this build is damaged")]
    DamagedImage(String),
    /// The library lacks a function, which an older or cut-down one may.
    #[error("{library} has no function {call}")]
    MissingFunction {
        /// Which library.
        library: &'static str,
        /// The name of the function.
        call: &'static str,
    },
    /// The driver reported an error.
    #[error("{call} answered {code} ({name})")]
    Driver {
        /// The function.
        call: &'static str,
        /// Its answer, as it came.
        code: i32,
        /// The driver's name for it.
        name: String,
    },
    /// cuBLAS reported an error.
    #[error("{call} answered status {status}")]
    Blas {
        /// The function.
        call: &'static str,
        /// Its answer, as it came.
        status: i32,
    },
    /// The device has no such amount of memory left.
    #[error("out of device memory: {requested} bytes requested, {allocated} allocated, {reserved} reserved")]
    OutOfMemory {
        /// The bytes that the workload asked for.
        requested: u64,
        /// The bytes in use then.
        allocated: u64,
        /// The bytes held from the driver then.
        reserved: u64,
        /// What the driver was asked for, and what it called free afterwards, if it was asked.
        memory: Option<MemoryRefused>,
    },
    /// Buffers that a kernel would overrun.
    #[error("cannot launch {kernel}: {what} has {got} bytes and needs {needed}")]
    TooSmall {
        /// The kernel.
        kernel: String,
        /// Which buffer.
        what: &'static str,
        /// Its size.
        got: u64,
        /// The size that the kernel works on.
        needed: u64,
    },
    /// A launch that the kernels are not made for.
    #[error("cannot launch {kernel}: {why}")]
    BadLaunch {
        /// The kernel.
        kernel: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The host could not do its part.
    #[error(transparent)]
    Host(#[from] LayerError),
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_STUB_LIBRARY`, `CUDA_ERROR_NO_DEVICE`.
pub(super) const NO_DEVICE: [i32; 2] = [34, 100];
/// `CUDA_ERROR_INVALID_IMAGE` is a damaged one; these say that it is for another device: `NO_BINARY_FOR_GPU`,
/// `UNSUPPORTED_PTX_VERSION`.
pub(super) const WRONG_IMAGE: [i32; 2] = [209, 222];

/// Whether a context is dead after this answer: illegal address and its kin, launch failure, and the unknown.
///
/// The list is that of the errors which the CUDA driver API documents as leaving the process in an inconsistent state.
pub(super) fn is_sticky(code: i32) -> bool {
    matches!(code, 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
}

impl GpuError {
    /// Whether this machine simply has no usable GPU, so that `backend = "auto"` computes on the CPU.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NoLibrary | Self::NoDevice | Self::NoSuchDevice { .. } | Self::DriverTooOld { .. } => true,
            Self::NoKernelImage { .. } => true,
            Self::DamagedImage(_) | Self::MissingFunction { .. } | Self::Driver { .. } | Self::Blas { .. } => false,
            Self::OutOfMemory { .. } | Self::TooSmall { .. } | Self::BadLaunch { .. } | Self::Host(_) => false,
        }
    }

    /// The kind of failure that a worker reports.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::NoLibrary | Self::NoDevice | Self::NoSuchDevice { .. } => FailureKind::Unsupported,
            // Its detail, `no-kernel-image`, tells it from the driver's errors.
            Self::NoKernelImage { .. } => FailureKind::Other,
            Self::DriverTooOld { .. } | Self::DamagedImage(_) => FailureKind::Cuda,
            Self::MissingFunction { .. } | Self::Blas { .. } => FailureKind::Cuda,
            Self::Driver { code, .. } if *code == OUT_OF_MEMORY => FailureKind::CudaOom,
            Self::Driver { .. } => FailureKind::Cuda,
            Self::OutOfMemory { .. } => FailureKind::CudaOom,
            Self::Host(LayerError::HostMemory { .. }) => FailureKind::HostOom,
            Self::TooSmall { .. } | Self::BadLaunch { .. } | Self::Host(_) => FailureKind::Other,
        }
    }

    /// The failure as the worker reports it, with the driver's call and code.
    pub fn to_failure(&self) -> Failure {
        let (call, code) = match self {
            Self::Driver { call, code, .. } => (Some((*call).to_owned()), Some(i64::from(*code))),
            Self::Blas { call, status } => (Some((*call).to_owned()), Some(i64::from(*status))),
            Self::MissingFunction { call, .. } => (Some((*call).to_owned()), None),
            Self::OutOfMemory { .. } => (Some("cuMemAlloc_v2".into()), Some(i64::from(OUT_OF_MEMORY))),
            Self::NoLibrary | Self::NoDevice | Self::NoSuchDevice { .. } | Self::DriverTooOld { .. } => (None, None),
            Self::NoKernelImage { .. } | Self::DamagedImage(_) => (None, None),
            Self::TooSmall { .. } | Self::BadLaunch { .. } | Self::Host(_) => (None, None),
        };
        let is_image = matches!(self, Self::NoKernelImage { .. });
        let text = if is_image { format!("no-kernel-image: {self}") } else { self.to_string() };
        let memory = if let Self::OutOfMemory { memory, .. } = self { *memory } else { None };
        Failure { kind: self.kind(), call, code, memory, text }
    }
}

impl From<AllocError<GpuError>> for GpuError {
    fn from(error: AllocError<GpuError>) -> Self {
        match error {
            AllocError::OutOfMemory { requested, usage, .. } => {
                Self::OutOfMemory { requested, allocated: usage.allocated, reserved: usage.reserved, memory: None }
            }
            AllocError::Fault(fault) => fault,
        }
    }
}
