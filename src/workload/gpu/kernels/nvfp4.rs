//! Launches of NVFP4: statistics, quantisation, decoding, products.

#![expect(unsafe_code, reason = "a launch is sound only if its arguments fit the kernel, which is checked here")]

use super::{Argument, DeviceBuffer, FloatType, Geometry, GpuError, Kernels, Source, Stream, WORD, linear};
use crate::model::settings::Shape;
use crate::workload::reference::nvfp4::GROUP;

/// Threads of a thread block of the element-wise kernels.
const THREADS: u32 = 256;
/// Thread blocks for each multiprocessor that look for the largest magnitude.
const LARGEST_BLOCKS: u64 = 8;
/// Output rows that a thread block takes with one row of the input, and with several.
const OUTPUTS: [u64; 2] = [16, 8];
/// Rows of the input that a thread block takes at a time.
const TILE_ROWS: u32 = 8;
/// Weights of an octet: what a thread packs or decodes.
const OCTET: u64 = 8;

/// A weight in NVFP4 on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nvfp4Weight {
    /// Its shape; rows consist of whole groups.
    pub shape: Shape,
    /// Two indices a byte, row-major.
    pub packed: DeviceBuffer,
    /// One E4M3 a group.
    pub scales: DeviceBuffer,
    /// The scale of the tensor: one fp32.
    pub global: DeviceBuffer,
}

impl Nvfp4Weight {
    fn octets(self) -> u64 {
        self.shape.weights() / OCTET
    }

    fn check(self, kernel: &str) -> Result<(), GpuError> {
        if !self.shape.in_features().is_multiple_of(GROUP as u64) {
            return Err(GpuError::BadLaunch {
                kernel: kernel.to_owned(),
                why: "a row of the weight ends inside a group",
            });
        }
        let n = self.shape.weights();
        self.packed.holds(kernel, "packed", n / 2)?;
        self.scales.holds(kernel, "scales", n / GROUP as u64)?;
        self.global.holds(kernel, "global", WORD)
    }
}

impl Kernels {
    /// The largest magnitude of the fp32 `weight` into `largest`, which was zeroed.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn nvfp4_largest(
        &self,
        (weight, shape): (DeviceBuffer, Shape),
        largest: DeviceBuffer,
        stream: Stream,
    ) -> Result<(), GpuError> {
        const NAME: &str = "nvfp4_largest";
        let vectors = shape.weights() / 4;
        if !shape.weights().is_multiple_of(4) {
            return Err(GpuError::BadLaunch { kernel: NAME.to_owned(), why: "the weight has a part of a group" });
        }
        weight.holds(NAME, "weight", shape.weights() * WORD)?;
        largest.holds(NAME, "largest", WORD)?;
        let arguments = [Argument::Pointer(weight.address), Argument::Pointer(largest.address), Argument::U64(vectors)];
        let resident = u64::from(self.context.facts().multiprocessors) * LARGEST_BLOCKS;
        let geometry = linear(NAME, vectors.div_ceil(u64::from(THREADS)).min(resident), THREADS)?;
        // SAFETY: the arguments are those of the kernel; the buffers were checked.
        unsafe { self.launch((Source::Nvfp4, NAME), geometry, stream, &arguments) }
    }

    /// The scale of a tensor in the place of its largest magnitude.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn nvfp4_global_scale(&self, global: DeviceBuffer, stream: Stream) -> Result<(), GpuError> {
        const NAME: &str = "nvfp4_global_scale";
        global.holds(NAME, "global", WORD)?;
        let arguments = [Argument::Pointer(global.address)];
        // SAFETY: the argument is that of the kernel; the buffer was checked.
        unsafe { self.launch((Source::Nvfp4, NAME), linear(NAME, 1, 1)?, stream, &arguments) }
    }

    /// Quantises the fp32 `weight` into `to`, under the scale of the tensor that is there.
    ///
    /// # Errors
    /// [`GpuError::BadLaunch`] when rows do not consist of whole groups, [`GpuError::TooSmall`], or the driver's.
    pub fn nvfp4_quantize(&self, weight: DeviceBuffer, to: Nvfp4Weight, stream: Stream) -> Result<(), GpuError> {
        const NAME: &str = "nvfp4_quantize";
        to.check(NAME)?;
        weight.holds(NAME, "weight", to.shape.weights() * WORD)?;
        let arguments = [
            Argument::Pointer(weight.address),
            Argument::Pointer(to.global.address),
            Argument::Pointer(to.scales.address),
            Argument::Pointer(to.packed.address),
            Argument::U64(to.octets()),
        ];
        let geometry = linear(NAME, to.octets().div_ceil(u64::from(THREADS)), THREADS)?;
        // SAFETY: the arguments are those of the kernel; the buffers were checked.
        unsafe { self.launch((Source::Nvfp4, NAME), geometry, stream, &arguments) }
    }

    /// Decodes `from` into `y` (elements of `format`).
    ///
    /// # Errors
    /// [`GpuError::BadLaunch`] when rows do not consist of whole groups, [`GpuError::TooSmall`], or the driver's.
    pub fn nvfp4_dequantize(
        &self,
        from: Nvfp4Weight,
        (y, format): (DeviceBuffer, FloatType),
        stream: Stream,
    ) -> Result<(), GpuError> {
        let name = format!("nvfp4_dequantize_{format}");
        from.check(&name)?;
        y.holds(&name, "y", from.shape.weights() * format.bytes())?;
        let arguments = [
            Argument::Pointer(from.packed.address),
            Argument::Pointer(from.scales.address),
            Argument::Pointer(from.global.address),
            Argument::Pointer(y.address),
            Argument::U64(from.octets()),
        ];
        let geometry = linear(&name, from.octets().div_ceil(u64::from(THREADS)), THREADS)?;
        // SAFETY: the arguments are those of the kernel; the buffers were checked.
        unsafe { self.launch((Source::Nvfp4, &name), geometry, stream, &arguments) }
    }

    /// `y = x W^T` for `rows` rows of `format` straight from the packed weight.
    ///
    /// # Errors
    /// [`GpuError::BadLaunch`] when rows of the weight do not consist of whole groups, [`GpuError::TooSmall`], or the
    /// driver's.
    pub fn nvfp4_product(
        &self,
        weight: Nvfp4Weight,
        (rows, format): (u32, FloatType),
        x: DeviceBuffer,
        y: DeviceBuffer,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let (tile, outputs) = if rows == 1 { (1, OUTPUTS[0]) } else { (TILE_ROWS, OUTPUTS[1]) };
        let name = format!("nvfp4_product_{format}_{tile}");
        let (in_features, out_features) = (weight.shape.in_features(), weight.shape.out_features());
        weight.check(&name)?;
        x.holds(&name, "x", u64::from(rows) * in_features * format.bytes())?;
        y.holds(&name, "y", u64::from(rows) * out_features * format.bytes())?;
        let arguments = [
            Argument::Pointer(x.address),
            Argument::Pointer(weight.packed.address),
            Argument::Pointer(weight.scales.address),
            Argument::Pointer(weight.global.address),
            Argument::Pointer(y.address),
            Argument::U32(in_features as u32),
            Argument::U32(out_features as u32),
            Argument::U32(rows),
        ];
        let line = linear(&name, out_features.div_ceil(outputs), 128)?;
        let geometry = Geometry { grid: (line.grid.0, rows.div_ceil(tile)), ..line };
        // SAFETY: the arguments are those of the kernel; the buffers were checked; rows are whole groups.
        unsafe { self.launch((Source::Nvfp4, &name), geometry, stream, &arguments) }
    }
}
