//! cuBLAS, loaded at run time: the dense product of more than one row.
//!
//! Owns the library and one handle. A machine without cuBLAS is no error here: the caller then has a kernel of its own.

#![expect(unsafe_code, reason = "cuBLAS is a C library")]

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use libloading::Library;

use super::driver::{Context, Stream};
use super::error::{CudaVersion, GpuError};
use super::kernels::DeviceBuffer;
use crate::model::settings::FloatType;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle) -> i32;
type Destroy = unsafe extern "C" fn(Handle) -> i32;
type SetStream = unsafe extern "C" fn(Handle, *mut c_void) -> i32;
type SetWorkspace = unsafe extern "C" fn(Handle, *mut c_void, usize) -> i32;
#[rustfmt::skip]
type GemmEx = unsafe extern "C" fn(
    Handle, i32, i32, i32, i32, i32,
    *const c_void, *const c_void, i32, i32, *const c_void, i32, i32,
    *const c_void, *mut c_void, i32, i32, i32, i32,
) -> i32;

/// `CUBLAS_OP_N`, `CUBLAS_OP_T`, `CUBLAS_COMPUTE_32F`, `CUBLAS_GEMM_DEFAULT`.
const PLAIN: i32 = 0;
const TRANSPOSED: i32 = 1;
const COMPUTE_32F: i32 = 68;
const ALGORITHM_DEFAULT: i32 = -1;

/// A cuBLAS handle on one context.
///
/// Fields are dropped in their order, so that the library outlives the functions.
pub struct Blas {
    handle: Handle,
    destroy: Destroy,
    set_stream: SetStream,
    set_workspace: SetWorkspace,
    gemm: GemmEx,
    name: &'static str,
    _library: Library,
    _context: Rc<Context>,
}

impl std::fmt::Debug for Blas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blas").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The shape of a product: `y` (rows x out_features) = `x` (rows x in_features) times the transposed weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Rows of the input.
    pub rows: u32,
    /// Columns of the input.
    pub in_features: u32,
    /// Columns of the output.
    pub out_features: u32,
    /// The type of all three.
    pub format: FloatType,
}

/// The names to try: a driver runs the cuBLAS of its own major version and of older ones, not of newer ones.
fn names(driver: CudaVersion) -> &'static [&'static str] {
    if driver.0 >= 13_000 {
        &["libcublas.so.13", "libcublas.so.12", "libcublas.so"]
    } else {
        &["libcublas.so.12", "libcublas.so"]
    }
}

impl Blas {
    /// Loads the library and makes a handle, or gives `None` where no cuBLAS is installed.
    ///
    /// # Errors
    /// If the library is there and does not work.
    pub fn load(context: &Rc<Context>) -> Result<Option<Self>, GpuError> {
        let load = |name: &&'static str| {
            // SAFETY: loading cuBLAS runs its initialisers, which any program that links it relies on.
            unsafe { Library::new(*name) }.ok().map(|library| (*name, library))
        };
        let Some((name, library)) = names(context.facts().driver).iter().find_map(load) else { return Ok(None) };
        // SAFETY: the types are those of cublas_api.h, with results and enumerations as the integers they are.
        let (create, destroy, set_stream, set_workspace, gemm) = unsafe {
            (
                symbol::<Create>(&library, "cublasCreate_v2")?,
                symbol::<Destroy>(&library, "cublasDestroy_v2")?,
                symbol::<SetStream>(&library, "cublasSetStream_v2")?,
                symbol::<SetWorkspace>(&library, "cublasSetWorkspace_v2")?,
                symbol::<GemmEx>(&library, "cublasGemmEx")?,
            )
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is written; the primary context is current.
        settle("cublasCreate_v2", unsafe { create(&raw mut handle) })?;
        let context = context.clone();
        Ok(Some(Self { handle, destroy, set_stream, set_workspace, gemm, name, _library: library, _context: context }))
    }

    /// The name under which the library was found.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Computes on `stream` with this workspace from now on.
    ///
    /// # Errors
    /// cuBLAS's.
    pub fn configure(&self, stream: Stream, workspace: DeviceBuffer) -> Result<(), GpuError> {
        // SAFETY: handle and stream are alive. Setting the stream resets the workspace, hence the order.
        settle("cublasSetStream_v2", unsafe { (self.set_stream)(self.handle, stream.handle()) })?;
        let address = workspace.address.0 as *mut c_void;
        // SAFETY: the workspace stays allocated until the process ends, as PyTorch's does.
        settle("cublasSetWorkspace_v2", unsafe { (self.set_workspace)(self.handle, address, workspace.bytes as usize) })
    }

    /// The product with f32 sums and without TF32.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] for a buffer that does not hold its matrix, or cuBLAS's error.
    pub fn multiply(
        &self,
        product: Product,
        x: DeviceBuffer,
        weight: DeviceBuffer,
        y: DeviceBuffer,
    ) -> Result<(), GpuError> {
        product.check("cublasGemmEx", x, weight, y)?;
        // CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F.
        let kind = match product.format {
            FloatType::Fp32 => 0,
            FloatType::Bf16 => 14,
            FloatType::Fp16 => 2,
        };
        let (m, n, k) = (product.out_features as i32, product.rows as i32, product.in_features as i32);
        let (one, zero) = (1f32, 0f32);
        let device = |buffer: DeviceBuffer| buffer.address.0 as *mut c_void;
        // cuBLAS counts by columns: our row-major y is its (out x rows) matrix, and our weight is transposed there.
        // SAFETY: sizes were checked against the leading dimensions; the factors are read before the call returns.
        let status = unsafe {
            (self.gemm)(
                self.handle,
                TRANSPOSED,
                PLAIN,
                m,
                n,
                k,
                (&raw const one).cast(),
                device(weight),
                kind,
                k,
                device(x),
                kind,
                k,
                (&raw const zero).cast(),
                device(y),
                kind,
                m,
                COMPUTE_32F,
                ALGORITHM_DEFAULT,
            )
        };
        settle("cublasGemmEx", status)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and destroyed once. A failure means a dead context, which others report.
        unsafe { (self.destroy)(self.handle) };
    }
}

impl Product {
    /// Whether the buffers hold their matrices.
    pub(super) fn check(
        self,
        kernel: &str,
        x: DeviceBuffer,
        weight: DeviceBuffer,
        y: DeviceBuffer,
    ) -> Result<(), GpuError> {
        let (rows, width, height) = (u64::from(self.rows), u64::from(self.in_features), u64::from(self.out_features));
        let size = self.format.bytes();
        x.holds(kernel, "x", rows * width * size)?;
        weight.holds(kernel, "weight", height * width * size)?;
        y.holds(kernel, "y", rows * height * size)
    }
}

/// # Safety
/// `F` is the type of the function.
unsafe fn symbol<F: Copy>(library: &Library, call: &'static str) -> Result<F, GpuError> {
    // SAFETY: the caller's.
    let found = unsafe { library.get::<F>(call.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| GpuError::MissingFunction { library: "cuBLAS", call })
}

fn settle(call: &'static str, status: i32) -> Result<(), GpuError> {
    if status == 0 { Ok(()) } else { Err(GpuError::Blas { call, status }) }
}
