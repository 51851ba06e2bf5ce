//! The device, as far as a program's requests depend on it.

/// The device, as far as it changes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceModel {
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads that one of them holds at most.
    pub threads_per_multiprocessor: u32,
    /// The workspace that PyTorch gives cuBLAS on this device, in bytes.
    pub blas_workspace_bytes: u64,
}

impl DeviceModel {
    /// Jetson Orin Nano, sm_87: 1024 cores are 8 multiprocessors; workspace `:4096:2:16:8`.
    pub const ORIN: Self =
        Self { multiprocessors: 8, threads_per_multiprocessor: 1536, blas_workspace_bytes: (2 * 4096 + 8 * 16) << 10 };
    /// H200, sm_90, whose default workspace is 32 MiB.
    pub const H200: Self =
        Self { multiprocessors: 132, threads_per_multiprocessor: 2048, blas_workspace_bytes: 32 << 20 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_of_an_orin_is_the_documented_8519680_bytes() {
        assert_eq!(DeviceModel::ORIN.blas_workspace_bytes, 8_519_680);
        assert_eq!(DeviceModel::H200.blas_workspace_bytes, 33_554_432);
    }
}
