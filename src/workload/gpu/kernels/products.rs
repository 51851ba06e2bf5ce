//! Launches of the products: one row from packed weights, several rows from packed or dense ones.

#![expect(unsafe_code, reason = "a launch is sound only if its arguments fit the kernel, which is checked here")]

use super::{
    Argument, CodeBook, DeviceBuffer, FloatType, Geometry, GpuError, Kernels, Packing, Product, Source, Stream, Tuning,
    WORD, linear, word_of,
};
use crate::model::settings::{Blocksize, Shape};

/// A packed weight on the device and how to multiply by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemv {
    /// Shape of the weight.
    pub shape: Shape,
    /// What an index means.
    pub book: CodeBook,
    /// Elements per block.
    pub blocksize: Blocksize,
    /// The type of input, product and output.
    pub format: FloatType,
    /// Two indices a byte, row-major.
    pub packed: DeviceBuffer,
    /// One fp32 a block, the mean added if the statistics are nested.
    pub absmax: DeviceBuffer,
    /// 16 fp32: what an index means, as the one-row kernel reads it.
    pub code: DeviceBuffer,
}

impl Gemv {
    fn packing(self) -> Packing {
        Packing { book: self.book, blocksize: self.blocksize, elements: self.shape.weights() }
    }

    fn product(self, rows: u32) -> Product {
        let (in_features, out_features) = (self.shape.in_features() as u32, self.shape.out_features() as u32);
        Product { rows, in_features, out_features, format: self.format }
    }
}

/// Output rows of a thread block of the `bnb` kernel, one a warp.
const ROWS_PER_BLOCK: u32 = 4;
/// Output rows that a thread block of the tuned one-row kernel takes at a time.
const TUNED_ROWS_PER_BLOCK: u64 = 32;
/// Its shared memory in bytes: look-up tables, between them the activations, and what lies before the first table.
const TUNED_SHARED_BYTES: u32 = 65 * 1024;
/// The rows of activations that it takes: they fit between the tables, and end with a half or a whole chunk.
const TUNED_IN_FEATURES: std::ops::RangeInclusive<u64> = 1024..=16_384;
/// Half a chunk.
const TUNED_MULTIPLE: u64 = 512;
/// Bytes of the look-up tables of the tuned product of several rows.
const LOOKUP_BYTES: u32 = 32 * 1024;
/// Bytes of the partial sums of the tuned product of several rows.
const PARTIAL_BYTES: u32 = 8 * 32 * 8 * 4;
/// Rows of the input that a thread block takes at a time.
const TILE_ROWS: u32 = 8;
/// The tuned product takes the weight in pieces of so many elements.
const FUSED_K: u32 = 128;

impl Kernels {
    /// `y = W x` for one row of the input.
    ///
    /// # Errors
    /// [`GpuError::BadLaunch`] when rows of the weight do not consist of whole blocks, [`GpuError::TooSmall`], or the
    /// driver's.
    pub fn gemv_4bit(
        &self,
        tuning: Tuning,
        gemv: Gemv,
        x: DeviceBuffer,
        y: DeviceBuffer,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let mut name = format!("gemv_4bit_{}", gemv.format);
        let (in_features, out_features) = (gemv.shape.in_features(), gemv.shape.out_features());
        if !in_features.is_multiple_of(gemv.blocksize.weights()) {
            return Err(GpuError::BadLaunch { kernel: name, why: "a row of the weight ends inside a block" });
        }
        let size = gemv.format.bytes();
        gemv.packing().check(&name, gemv.packed, gemv.absmax)?;
        x.holds(&name, "x", in_features * size)?;
        gemv.code.holds(&name, "code", 16 * WORD)?;
        y.holds(&name, "y", out_features * size)?;
        let arguments = [
            Argument::Pointer(x.address),
            Argument::Pointer(gemv.packed.address),
            Argument::Pointer(gemv.absmax.address),
            Argument::Pointer(gemv.code.address),
            Argument::Pointer(y.address),
            Argument::U32(in_features as u32),
            Argument::U32(out_features as u32),
            Argument::U32(gemv.packing().blocksize_log2()),
        ];
        let geometry = match (tuning, gemv.format) {
            (Tuning::Tuned, FloatType::Bf16 | FloatType::Fp16) if self.has_tuned_gemv(gemv.shape) => {
                name.push_str("_tuned");
                self.tuned_gemv_geometry(&name, out_features)?
            }
            (Tuning::Tuned | Tuning::Bnb, FloatType::Bf16 | FloatType::Fp16 | FloatType::Fp32) => {
                linear(&name, out_features.div_ceil(u64::from(ROWS_PER_BLOCK)), 128)?
            }
        };
        // SAFETY: both kernels take these arguments; the buffers were checked; rows are whole blocks of at least 32.
        unsafe { self.launch((Source::Gemv4bit, &name), geometry, stream, &arguments) }
    }

    /// Whether the tuned product of one row takes a weight of this shape.
    pub(super) fn has_tuned_gemv(&self, shape: Shape) -> bool {
        TUNED_IN_FEATURES.contains(&shape.in_features())
            && shape.in_features().is_multiple_of(TUNED_MULTIPLE)
            && TUNED_SHARED_BYTES <= self.context.facts().shared_bytes_max
    }

    /// As many thread blocks as are resident at once walk over the rows.
    pub(super) fn tuned_gemv_geometry(&self, name: &str, out_features: u64) -> Result<Geometry, GpuError> {
        let resident = u64::from(self.context.facts().multiprocessors) * 2;
        let blocks = out_features.div_ceil(TUNED_ROWS_PER_BLOCK).min(resident);
        Ok(Geometry { shared_bytes: TUNED_SHARED_BYTES, ..linear(name, blocks, 512)? })
    }

    /// Whether [`Kernels::matmul_4bit`] can be launched for this weight.
    pub fn fuses(&self, gemv: Gemv) -> bool {
        let in_features = gemv.shape.in_features() as u32;
        let is_half = match gemv.format {
            FloatType::Bf16 | FloatType::Fp16 => true,
            FloatType::Fp32 => false,
        };
        is_half
            && in_features.is_multiple_of(FUSED_K)
            && gemv.shape.in_features().is_multiple_of(gemv.blocksize.weights())
            && fused_shared_bytes(in_features) <= self.context.facts().shared_bytes_max
    }

    /// `y = x W^T` for `rows` rows straight from the packed weight, on the tensor cores.
    ///
    /// # Errors
    /// [`GpuError::BadLaunch`] unless [`Kernels::fuses`], [`GpuError::TooSmall`], or the driver's.
    pub fn matmul_4bit(
        &self,
        gemv: Gemv,
        rows: u32,
        x: DeviceBuffer,
        y: DeviceBuffer,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let name = format!("matmul_4bit_{}_{}", word_of(gemv.book), gemv.format);
        if !self.fuses(gemv) {
            return Err(GpuError::BadLaunch { kernel: name, why: "the shape or the type does not suit it" });
        }
        let product = gemv.product(rows);
        let size = gemv.format.bytes();
        gemv.packing().check(&name, gemv.packed, gemv.absmax)?;
        x.holds(&name, "x", u64::from(rows) * gemv.shape.in_features() * size)?;
        y.holds(&name, "y", u64::from(rows) * gemv.shape.out_features() * size)?;
        let arguments = [
            Argument::Pointer(x.address),
            Argument::Pointer(gemv.packed.address),
            Argument::Pointer(gemv.absmax.address),
            Argument::Pointer(y.address),
            Argument::U32(rows),
            Argument::U32(product.in_features),
            Argument::U32(product.out_features),
            Argument::U32(gemv.packing().blocksize_log2()),
        ];
        let blocks = product.out_features.div_ceil(32).min(self.context.facts().multiprocessors * 2);
        let shared_bytes = fused_shared_bytes(product.in_features);
        let geometry = Geometry { grid: (blocks, rows.div_ceil(TILE_ROWS)), threads: 256, shared_bytes };
        // SAFETY: the arguments are those of FUSED; the buffers were checked; `fuses` holds.
        unsafe { self.launch((Source::Matmul4bit, &name), geometry, stream, &arguments) }
    }

    /// `y = x W^T` with a dense weight, where no cuBLAS is installed.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn matmul_dense(
        &self,
        product: Product,
        (x, weight): (DeviceBuffer, DeviceBuffer),
        y: DeviceBuffer,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let name = format!("matmul_dense_{}", product.format);
        product.check(&name, x, weight, y)?;
        let arguments = [
            Argument::Pointer(x.address),
            Argument::Pointer(weight.address),
            Argument::Pointer(y.address),
            Argument::U32(product.rows),
            Argument::U32(product.in_features),
            Argument::U32(product.out_features),
        ];
        let grid = (product.out_features.div_ceil(ROWS_PER_BLOCK), product.rows.div_ceil(TILE_ROWS));
        let geometry = Geometry { grid, threads: 128, shared_bytes: 0 };
        // SAFETY: the arguments are those of DENSE; the buffers were checked.
        unsafe { self.launch((Source::Matmul4bit, &name), geometry, stream, &arguments) }
    }
}

fn fused_shared_bytes(in_features: u32) -> u32 {
    // More than any device has stands for a row that is too long for the sum.
    in_features.saturating_mul(TILE_ROWS * 2).saturating_add(LOOKUP_BYTES + PARTIAL_BYTES)
}
