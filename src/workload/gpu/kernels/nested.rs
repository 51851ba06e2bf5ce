//! Launches of the nested level and of the reductions that lead to it.

#![expect(unsafe_code, reason = "a launch is sound only if its arguments fit the kernel, which is checked here")]

use super::{Argument, DeviceBuffer, Geometry, GpuError, Kernels, NESTED_BLOCKSIZE, Source, Stream, WORD, linear};

/// Bytes of the 8-bit map.
const MAP_BYTES: u64 = 256 * WORD;
/// Threads that sum.
const SUM_THREADS: u32 = 512;

impl Kernels {
    /// Quantises `nb` centred block maxima to `codes` (bytes) and `absmax2` (one fp32 for 256 of them) under `map`
    /// (256 ascending fp32).
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn quantize_8bit(
        &self,
        (values, nb): (DeviceBuffer, u64),
        map: DeviceBuffer,
        (codes, absmax2): (DeviceBuffer, DeviceBuffer),
        stream: Stream,
    ) -> Result<(), GpuError> {
        const NAME: &str = "quantize_8bit";
        let nested = nb.div_ceil(NESTED_BLOCKSIZE as u64);
        values.holds(NAME, "values", nb * WORD)?;
        map.holds(NAME, "map", MAP_BYTES)?;
        codes.holds(NAME, "codes", nb)?;
        absmax2.holds(NAME, "absmax2", nested * WORD)?;
        let arguments = [
            Argument::Pointer(values.address),
            Argument::Pointer(map.address),
            Argument::Pointer(absmax2.address),
            Argument::Pointer(codes.address),
            Argument::U64(nb),
        ];
        // SAFETY: the arguments are those of the kernel; the buffers were checked.
        unsafe { self.launch((Source::Quantize8bit, NAME), linear(NAME, nested, 128)?, stream, &arguments) }
    }

    /// Decodes `nb` block maxima into `values` (fp32), without their mean.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn dequantize_8bit(
        &self,
        (codes, absmax2): (DeviceBuffer, DeviceBuffer),
        map: DeviceBuffer,
        (values, nb): (DeviceBuffer, u64),
        stream: Stream,
    ) -> Result<(), GpuError> {
        const NAME: &str = "dequantize_8bit";
        codes.holds(NAME, "codes", nb)?;
        absmax2.holds(NAME, "absmax2", nb.div_ceil(NESTED_BLOCKSIZE as u64) * WORD)?;
        map.holds(NAME, "map", MAP_BYTES)?;
        values.holds(NAME, "values", nb * WORD)?;
        let arguments = [
            Argument::Pointer(codes.address),
            Argument::Pointer(map.address),
            Argument::Pointer(absmax2.address),
            Argument::Pointer(values.address),
            Argument::U64(nb),
        ];
        // SAFETY: the arguments are those of the kernel; the buffers were checked.
        unsafe { self.launch((Source::Quantize8bit, NAME), linear(NAME, nb.div_ceil(512), 64)?, stream, &arguments) }
    }

    /// The mean of `n` fp32 in `x`, to `mean`. `spread` is a buffer for partial sums (8 bytes each, as many thread
    /// blocks add) and a counter that was zeroed; without it one thread block does it all.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn mean(
        &self,
        (x, n): (DeviceBuffer, u64),
        mean: DeviceBuffer,
        spread: Option<(DeviceBuffer, DeviceBuffer)>,
        stream: Stream,
    ) -> Result<(), GpuError> {
        const NAME: &str = "mean_elements";
        x.holds(NAME, "x", n * WORD)?;
        mean.holds(NAME, "mean", WORD)?;
        let (blocks, partial, counter) = match spread {
            Some((partial, counter)) => {
                counter.holds(NAME, "counter", WORD)?;
                ((partial.bytes / 8).max(1), partial, counter)
            }
            None => (1, mean, mean),
        };
        let arguments = [
            Argument::Pointer(x.address),
            Argument::Pointer(mean.address),
            Argument::Pointer(partial.address),
            Argument::Pointer(counter.address),
            Argument::U64(n),
        ];
        let geometry = Geometry { threads: SUM_THREADS, ..linear(NAME, blocks, SUM_THREADS)? };
        // SAFETY: the arguments are those of the kernel; one thread block touches neither partial sums nor counter.
        unsafe { self.launch((Source::Reductions, NAME), geometry, stream, &arguments) }
    }

    /// The largest of `n` fp32 that are not negative.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn max(&self, (x, n): (DeviceBuffer, u64), max: DeviceBuffer, stream: Stream) -> Result<(), GpuError> {
        const NAME: &str = "max_elements";
        x.holds(NAME, "x", n * WORD)?;
        max.holds(NAME, "max", WORD)?;
        let arguments = [Argument::Pointer(x.address), Argument::Pointer(max.address), Argument::U64(n)];
        // SAFETY: the arguments are those of the kernel; the buffers were checked.
        unsafe { self.launch((Source::Reductions, NAME), linear(NAME, 1, 256)?, stream, &arguments) }
    }
}
