//! One typed launch for each kernel: names, geometry and the checks that make a launch sound.
//!
//! Owns the loaded images. Every method computes the sizes that its kernel reaches from the shapes it is given and
//! compares them with the buffers, so that no argument of a caller can make a kernel overrun. It allocates nothing,
//! waits for nothing and knows no layer.

#![expect(unsafe_code, reason = "a launch is sound only if its arguments fit the kernel, which is checked here")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use super::blas::Product;
use super::driver::{Argument, Context, Function, Geometry, Module, Stream};
use super::error::GpuError;
use super::images::{Source, Target, unpack};
use crate::model::allocator::Address;
use crate::model::settings::{Blocksize, Code, FloatType};
use crate::workload::reference::codebook::CodeBook;
use crate::workload::reference::philox_init::{Stream as RandomStream, weight_scale};
use crate::workload::reference::quantize_8bit::NESTED_BLOCKSIZE;

mod nested;
mod nvfp4;
mod products;
mod tensors;

pub use nvfp4::Nvfp4Weight;
pub use products::Gemv;

/// Device memory by its address and size. It is a view: it owns nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBuffer {
    /// Where it begins.
    pub address: Address,
    /// How large it is.
    pub bytes: u64,
}

impl DeviceBuffer {
    /// What lies from `bytes` on.
    ///
    /// # Panics
    /// If that is beyond the end.
    #[must_use]
    pub fn from(self, bytes: u64) -> Self {
        assert!(bytes <= self.bytes, "{bytes} is beyond the {} bytes of the buffer", self.bytes);
        Self { address: self.address.offset_by(bytes), bytes: self.bytes - bytes }
    }

    /// Whether `needed` bytes fit.
    pub(super) fn holds(self, kernel: &str, what: &'static str, needed: u64) -> Result<(), GpuError> {
        if self.bytes >= needed {
            Ok(())
        } else {
            Err(GpuError::TooSmall { kernel: kernel.to_owned(), what, got: self.bytes, needed })
        }
    }
}

/// Which kernels do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tuning {
    /// Geometry, order and rounding of bitsandbytes 0.49.
    Bnb,
    /// The same bits as fast as the memory allows.
    Tuned,
}

/// A tensor in blocks: how many elements and how they are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// What an index means.
    pub book: CodeBook,
    /// Elements per block.
    pub blocksize: Blocksize,
    /// All elements.
    pub elements: u64,
}

impl Packing {
    fn blocks(self) -> u64 {
        self.elements.div_ceil(self.blocksize.weights())
    }

    fn packed_bytes(self) -> u64 {
        self.elements.div_ceil(2)
    }

    fn blocksize_log2(self) -> u32 {
        self.blocksize.weights().trailing_zeros()
    }

    fn check(self, kernel: &str, packed: DeviceBuffer, absmax: DeviceBuffer) -> Result<(), GpuError> {
        packed.holds(kernel, "packed", self.packed_bytes())?;
        absmax.holds(kernel, "absmax", 4 * self.blocks())
    }
}

/// The kernels on one context, loaded as they are needed.
#[derive(Debug)]
pub struct Kernels {
    context: Rc<Context>,
    target: Target,
    modules: RefCell<BTreeMap<Source, Module>>,
    functions: RefCell<BTreeMap<String, Function>>,
    first_launch: Cell<Option<Instant>>,
}

/// Bytes of an fp32.
const WORD: u64 = 4;
/// Threads of the element-wise kernels.
const ELEMENT_THREADS: u32 = 256;

impl Kernels {
    /// The kernels that `context`'s device runs under `code`.
    ///
    /// # Errors
    /// [`GpuError::NoKernelImage`].
    pub fn new(context: &Rc<Context>, code: Code) -> Result<Self, GpuError> {
        let target = Target::choose(context.facts().architecture, code)?;
        Ok(Self {
            context: context.clone(),
            target,
            modules: RefCell::default(),
            functions: RefCell::default(),
            first_launch: Cell::default(),
        })
    }

    /// Which compiled form runs.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The context they run in.
    pub fn context(&self) -> &Rc<Context> {
        &self.context
    }

    /// When the first kernel was launched; its image was loaded by then.
    pub fn first_launch(&self) -> Option<Instant> {
        self.first_launch.get()
    }

    /// Loads every image now, instead of at the first launch of each.
    ///
    /// # Errors
    /// The driver's: an image that the device does not run is refused here.
    pub fn load_all(&self) -> Result<(), GpuError> {
        Source::ALL.into_iter().try_for_each(|source| self.module(source).map(drop))
    }

    fn module(&self, source: Source) -> Result<Module, GpuError> {
        if let Some(module) = self.modules.borrow().get(&source) {
            return Ok(*module);
        }
        let refused = |error| match error {
            GpuError::Driver { code, .. } if super::error::WRONG_IMAGE.contains(&code) => GpuError::NoKernelImage {
                found: self.context.facts().architecture,
                built: Target::ALL.map(Target::name).to_vec(),
            },
            other => other,
        };
        let module = self.context.load(&unpack(source, self.target)?).map_err(refused)?;
        self.modules.borrow_mut().insert(source, module);
        Ok(module)
    }

    fn function(&self, source: Source, name: &str) -> Result<Function, GpuError> {
        if let Some(function) = self.functions.borrow().get(name) {
            return Ok(*function);
        }
        let function = self.context.function(self.module(source)?, name)?;
        self.functions.borrow_mut().insert(name.to_owned(), function);
        Ok(function)
    }

    /// Launches `name` of `source`.
    ///
    /// # Safety
    /// The arguments are those of the kernel in number, order and type, and every buffer is as large as it reaches.
    unsafe fn launch(
        &self,
        (source, name): (Source, &str),
        geometry: Geometry,
        stream: Stream,
        arguments: &[Argument],
    ) -> Result<(), GpuError> {
        let function = self.function(source, name)?;
        if geometry.shared_bytes > SHARED_BYTES_OF_ALL {
            self.context.allow_shared(function, geometry.shared_bytes)?;
        }
        // SAFETY: the caller's.
        unsafe { self.context.launch(function, geometry, stream, arguments)? };
        if self.first_launch.get().is_none() {
            self.first_launch.set(Some(Instant::now()));
        }
        Ok(())
    }

    /// Quantises `x` (elements of `format`) into `packed` (two a byte) and `absmax` (one fp32 a block).
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn quantize_4bit(
        &self,
        tuning: Tuning,
        packing: Packing,
        (x, format): (DeviceBuffer, FloatType),
        (packed, absmax): (DeviceBuffer, DeviceBuffer),
        stream: Stream,
    ) -> Result<(), GpuError> {
        let base = format!("quantize_4bit_{}_{}", word_of(packing.book), format);
        let size = format.bytes();
        x.holds(&base, "x", packing.elements * size)?;
        packing.check(&base, packed, absmax)?;
        let blocksize = packing.blocksize.weights();
        let mut done = 0;
        // A tuned thread block lets whole quantisation blocks lie within a warp.
        if tuning == Tuning::Tuned && blocksize <= 256 {
            done = packing.elements / blocksize * blocksize;
            let groups = done / 8;
            let arguments = [
                Argument::Pointer(x.address),
                Argument::Pointer(absmax.address),
                Argument::Pointer(packed.address),
                Argument::U64(groups),
                Argument::U32((blocksize / 8) as u32),
            ];
            let name = format!("{base}_tuned");
            let geometry = linear(&name, groups.div_ceil(256), 256)?;
            if groups > 0 {
                // SAFETY: the arguments are those of QUANTIZE …_tuned; the buffers were checked for all elements.
                unsafe { self.launch((Source::Quantize4bit, &name), geometry, stream, &arguments)? };
            }
        }
        let left = packing.elements - done;
        if left == 0 {
            return Ok(());
        }
        let per_thread = if blocksize <= 512 { 2 } else { 4 };
        let name = format!("{base}_{per_thread}");
        let arguments = [
            Argument::Pointer(x.from(done * size).address),
            Argument::Pointer(absmax.from(done / blocksize * WORD).address),
            Argument::Pointer(packed.from(done / 2).address),
            Argument::U64(left),
        ];
        let geometry = linear(&name, left.div_ceil(blocksize), (blocksize / per_thread) as u32)?;
        // SAFETY: the arguments are those of QUANTIZE …_2 and …_4, which check every element against the count.
        unsafe { self.launch((Source::Quantize4bit, &name), geometry, stream, &arguments) }
    }

    /// Decodes `packed` under `absmax` into `y` (elements of `format`).
    ///
    /// # Errors
    /// [`GpuError::TooSmall`] or the driver's.
    pub fn dequantize_4bit(
        &self,
        tuning: Tuning,
        packing: Packing,
        (packed, absmax): (DeviceBuffer, DeviceBuffer),
        (y, format): (DeviceBuffer, FloatType),
        stream: Stream,
    ) -> Result<(), GpuError> {
        let base = format!("dequantize_4bit_{}_{}", word_of(packing.book), format);
        let size = format.bytes();
        packing.check(&base, packed, absmax)?;
        y.holds(&base, "y", packing.elements * size)?;
        let mut done = 0;
        if tuning == Tuning::Tuned {
            const TURNS: u64 = 4;
            let vectors = packing.elements / (16 / size);
            done = vectors * (16 / size);
            let arguments = [
                Argument::Pointer(packed.address),
                Argument::Pointer(absmax.address),
                Argument::Pointer(y.address),
                Argument::U32(packing.blocksize_log2()),
                Argument::U64(vectors),
            ];
            let name = format!("{base}_tuned");
            let geometry = linear(&name, vectors.div_ceil(256 * TURNS), 256)?;
            if vectors > 0 {
                // SAFETY: the arguments are those of DEQUANTIZE …_tuned; the buffers were checked for all elements.
                unsafe { self.launch((Source::Dequantize4bit, &name), geometry, stream, &arguments)? };
            }
        }
        let left = packing.elements - done;
        if left == 0 {
            return Ok(());
        }
        // What a tuned launch leaves is less than a vector and lies within one block.
        let block = done >> packing.blocksize_log2();
        let arguments = [
            Argument::Pointer(packed.from(done / 2).address),
            Argument::Pointer(absmax.from(block * WORD).address),
            Argument::Pointer(y.from(done * size).address),
            Argument::U32(packing.blocksize_log2()),
            Argument::U64(left),
        ];
        let geometry = linear(&base, left.div_ceil(1024), 64)?;
        // SAFETY: the arguments are those of DEQUANTIZE, which checks every element against the count.
        unsafe { self.launch((Source::Dequantize4bit, &base), geometry, stream, &arguments) }
    }
}

/// How names of kernels call a code book.
fn word_of(book: CodeBook) -> &'static str {
    match book {
        CodeBook::Nf4 => "nf4",
        CodeBook::Fp4 => "fp4",
    }
}

/// The dynamic shared memory that every device gives without asking.
const SHARED_BYTES_OF_ALL: u32 = 48 * 1024;

/// A geometry of one dimension.
fn linear(kernel: &str, blocks: u64, threads: u32) -> Result<Geometry, GpuError> {
    let too_large = GpuError::BadLaunch { kernel: kernel.to_owned(), why: "more thread blocks than a grid may have" };
    match i32::try_from(blocks) {
        Ok(blocks) => Ok(Geometry { grid: (blocks as u32, 1), threads, shared_bytes: 0 }),
        Err(_) => Err(too_large),
    }
}
