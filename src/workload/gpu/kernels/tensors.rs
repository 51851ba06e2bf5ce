//! Launches of the element-wise kernels, of the random numbers and of the read ceiling.

#![expect(unsafe_code, reason = "a launch is sound only if its arguments fit the kernel, which is checked here")]

use super::{
    Argument, DeviceBuffer, ELEMENT_THREADS, FloatType, GpuError, Kernels, RandomStream, Source, Stream, WORD, linear,
};

impl Kernels {
    fn elements(
        &self,
        source: Source,
        name: &str,
        threads: u64,
        stream: Stream,
        arguments: &[Argument],
    ) -> Result<(), GpuError> {
        let geometry = linear(name, threads.div_ceil(u64::from(ELEMENT_THREADS)), ELEMENT_THREADS)?;
        // SAFETY: the callers, all in this file, give the kernel's arguments and have checked the buffers.
        unsafe { self.launch((source, name), geometry, stream, arguments) }
    }

    /// `y = |x|` for `n` fp32.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn abs(&self, x: DeviceBuffer, y: DeviceBuffer, n: u64, stream: Stream) -> Result<(), GpuError> {
        const NAME: &str = "abs_elements";
        x.holds(NAME, "x", n * WORD)?;
        y.holds(NAME, "y", n * WORD)?;
        let arguments = [Argument::Pointer(x.address), Argument::Pointer(y.address), Argument::U64(n)];
        self.elements(Source::Reductions, NAME, n, stream, &arguments)
    }

    /// `x = x / divisor` for `n` fp32, in place.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn divide(&self, x: DeviceBuffer, divisor: DeviceBuffer, n: u64, stream: Stream) -> Result<(), GpuError> {
        const NAME: &str = "divide_elements";
        x.holds(NAME, "x", n * WORD)?;
        divisor.holds(NAME, "divisor", WORD)?;
        let arguments = [Argument::Pointer(x.address), Argument::Pointer(divisor.address), Argument::U64(n)];
        self.elements(Source::Reductions, NAME, n, stream, &arguments)
    }

    /// `y = x - offset` for `n` fp32.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn subtract(
        &self,
        (x, offset): (DeviceBuffer, DeviceBuffer),
        (y, n): (DeviceBuffer, u64),
        stream: Stream,
    ) -> Result<(), GpuError> {
        self.with_offset("subtract_elements", (x, offset), (y, n), stream)
    }

    /// `y = x + offset` for `n` fp32; `y` may be `x`.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn add(
        &self,
        (x, offset): (DeviceBuffer, DeviceBuffer),
        (y, n): (DeviceBuffer, u64),
        stream: Stream,
    ) -> Result<(), GpuError> {
        self.with_offset("add_elements", (x, offset), (y, n), stream)
    }

    fn with_offset(
        &self,
        name: &str,
        (x, offset): (DeviceBuffer, DeviceBuffer),
        (y, n): (DeviceBuffer, u64),
        stream: Stream,
    ) -> Result<(), GpuError> {
        x.holds(name, "x", n * WORD)?;
        offset.holds(name, "offset", WORD)?;
        y.holds(name, "y", n * WORD)?;
        let arguments = [
            Argument::Pointer(x.address),
            Argument::Pointer(offset.address),
            Argument::Pointer(y.address),
            Argument::U64(n),
        ];
        self.elements(Source::Reductions, name, n, stream, &arguments)
    }

    /// `n` elements of one format to another, rounded once.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`], [`GpuError::BadLaunch`] if the formats are the same, or the driver's.
    pub fn cast(
        &self,
        (x, from): (DeviceBuffer, FloatType),
        (y, to): (DeviceBuffer, FloatType),
        n: u64,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let name = format!("cast_{}_{}", from, to);
        if from == to {
            return Err(GpuError::BadLaunch { kernel: name, why: "the formats are the same" });
        }
        x.holds(&name, "x", n * from.bytes())?;
        y.holds(&name, "y", n * to.bytes())?;
        let arguments = [Argument::Pointer(x.address), Argument::Pointer(y.address), Argument::U64(n)];
        // Eight elements a thread.
        self.elements(Source::Reductions, &name, n.div_ceil(8), stream, &arguments)
    }

    /// The weights of `random`, `n` fp32, each an integer of the generator times `scale`.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn weights(
        &self,
        (y, n): (DeviceBuffer, u64),
        random: RandomStream,
        scale: f32,
        stream: Stream,
    ) -> Result<(), GpuError> {
        const NAME: &str = "weights";
        y.holds(NAME, "y", n * WORD)?;
        let arguments = [
            Argument::Pointer(y.address),
            Argument::U64(n),
            Argument::U64(random.seed),
            Argument::U32(random.number),
            Argument::F32(scale),
        ];
        self.elements(Source::PhiloxInit, NAME, n.div_ceil(4), stream, &arguments)
    }

    /// The activations of `random`, `n` elements of `format`.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn activations(
        &self,
        (y, format): (DeviceBuffer, FloatType),
        n: u64,
        random: RandomStream,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let name = format!("activations_{}", format);
        y.holds(&name, "y", n * format.bytes())?;
        let arguments = [
            Argument::Pointer(y.address),
            Argument::U64(n),
            Argument::U64(random.seed),
            Argument::U32(random.number),
            Argument::F32((1.5f64.sqrt() / 65_536.0) as f32),
        ];
        self.elements(Source::PhiloxInit, &name, n, stream, &arguments)
    }

    /// Reads all of `x` and keeps nothing: the ceiling of what a kernel can read. `sink` has 4 bytes.
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn read(&self, x: DeviceBuffer, sink: DeviceBuffer, stream: Stream) -> Result<(), GpuError> {
        const NAME: &str = "read_elements";
        sink.holds(NAME, "sink", WORD)?;
        let arguments = [Argument::Pointer(x.address), Argument::Pointer(sink.address), Argument::U64(x.bytes / 16)];
        let blocks = u64::from(self.context.facts().multiprocessors) * 8;
        // SAFETY: the arguments are those of the kernel, which walks over the vectors of `x` and writes one word.
        unsafe { self.launch((Source::Reductions, NAME), linear(NAME, blocks, ELEMENT_THREADS)?, stream, &arguments) }
    }
}
