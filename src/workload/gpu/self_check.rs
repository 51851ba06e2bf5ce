//! Every kernel launched once on small tensors, its result compared with its CPU twin: what `doctor --gpu` shows.
//!
//! Owns the list of kernels and the inputs; it judges a machine and no trial. A kernel that cannot be launched is a row
//! of the list like one that computes wrongly, and the kernels after it are still tried unless the context is dead.

mod nvfp4;

use std::fmt;

use half::{bf16, f16};

use super::blas::Product;
use super::driver::{Plain, Stream};
use super::error::GpuError;
use super::kernels::{DeviceBuffer, Gemv, Kernels, Packing, Tuning};
use super::tensor::Tensor;
use crate::model::settings::{Blocksize, FloatType, Shape};
use crate::workload::reference::codebook::{CodeBook, dynamic_map};
use crate::workload::reference::dequantize_4bit::{dequantize_4bit, nibble};
use crate::workload::reference::gemv_4bit::{PackedMatrix, gemv_4bit};
use crate::workload::reference::matmul_4bit::matmul_4bit;
use crate::workload::reference::numbers::{Element, Reciprocal};
use crate::workload::reference::philox_init::{Purpose, Stream as RandomStream, activation, weight_quad, weight_scale};
use crate::workload::reference::quantize_4bit::{Quantized, accepts, quantize_4bit};
use crate::workload::reference::quantize_8bit::{self, NESTED_BLOCKSIZE};
use crate::workload::reference::reductions;

/// What became of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelCheck {
    /// The kernel, with what it was launched on.
    pub kernel: String,
    /// What it did.
    pub finding: Finding,
}

/// How a kernel did.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// Its result is the twin's.
    Right,
    /// Its result is not.
    Wrong,
    /// It could not be launched, or the device failed under it.
    Failed(GpuError),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.pad("right"),
            Self::Wrong => f.pad("wrong"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Elements of a row: a chunk and a half of the one-row kernel, and whole pieces of the tuned products.
const WIDTH: usize = 1536;
/// Rows of the weight: not a multiple of what any kernel takes at a time.
const HEIGHT: usize = 37;
/// Rows of the input.
const ROWS: usize = 3;
const BLOCKSIZE: usize = 64;
const STREAM: Stream = Stream::LEGACY;
const RANDOM: RandomStream = RandomStream { seed: 7, number: 1, purpose: Purpose::Weight };

/// Launches every kernel once.
pub fn self_check(kernels: &Kernels) -> Vec<KernelCheck> {
    let mut check = SelfCheck { kernels, rows: Vec::new() };
    check.of_format::<f32>();
    check.of_format::<bf16>();
    check.of_format::<f16>();
    check.casts();
    check.nested();
    check.nvfp4();
    check.small_tensors();
    check.rows
}

struct SelfCheck<'a> {
    kernels: &'a Kernels,
    rows: Vec<KernelCheck>,
}

/// The weights that all checks share.
fn weights() -> Vec<f32> {
    let quads = (WIDTH * HEIGHT / 4) as u64;
    (0..quads).flat_map(|quad| weight_quad(RANDOM, quad, weight_scale(WIDTH))).collect()
}

/// Random activations in one format.
fn inputs<T: Element>(count: usize) -> Vec<T> {
    let random = RandomStream { purpose: Purpose::Activation, ..RANDOM };
    (0..count as u64).map(|i| T::round(activation(random, i))).collect()
}

/// Equal bits, or both NaN.
fn same<T: Element>(a: &[T], b: &[T]) -> bool {
    let is_same =
        |(a, b): (&T, &T)| a.widen().to_bits() == b.widen().to_bits() || a.widen().is_nan() && b.widen().is_nan();
    a.len() == b.len() && a.iter().zip(b).all(is_same)
}

fn packing(book: CodeBook, blocksize: usize) -> Packing {
    let blocksize = Blocksize::of_elements(blocksize).expect("a block size that kernels are built for");
    Packing { book, blocksize, elements: (WIDTH * HEIGHT) as u64 }
}

impl SelfCheck<'_> {
    fn note(&mut self, kernel: String, outcome: Result<bool, GpuError>) {
        let finding = match outcome {
            Ok(true) => Finding::Right,
            Ok(false) => Finding::Wrong,
            Err(error) => Finding::Failed(error),
        };
        self.rows.push(KernelCheck { kernel, finding });
    }

    fn tensor<T: Plain>(&self, values: &[T]) -> Result<Tensor, GpuError> {
        Tensor::of(self.kernels.context(), values)
    }

    fn space(&self, bytes: usize) -> Result<Tensor, GpuError> {
        Tensor::new(self.kernels.context(), bytes as u64)
    }

    fn of_format<T: Element + Plain>(&mut self) {
        let format = T::FLOAT_TYPE;
        for book in CodeBook::ALL {
            for (tuning, blocksize) in [(Tuning::Bnb, 64), (Tuning::Bnb, 1024), (Tuning::Tuned, 64)] {
                let outcome = self.quantize::<T>(tuning, packing(book, blocksize));
                self.note(format!("quantize_4bit {book:?} {format}, blocks of {blocksize}, {tuning:?}"), outcome);
            }
            for tuning in [Tuning::Bnb, Tuning::Tuned] {
                let outcome = self.dequantize::<T>(tuning, book);
                self.note(format!("dequantize_4bit {book:?} {format}, {tuning:?}"), outcome);
                let outcome = self.gemv::<T>(tuning, book);
                self.note(format!("gemv_4bit {book:?} {format}, {tuning:?}"), outcome);
            }
            if format != FloatType::Fp32 {
                let outcome = self.fused::<T>(book);
                self.note(format!("matmul_4bit {book:?} {format}"), outcome);
            }
        }
        let outcome = self.dense::<T>();
        self.note(format!("matmul_dense {format}"), outcome);
        let outcome = self.activations::<T>();
        self.note(format!("activations {format}"), outcome);
    }

    fn quantize<T: Element + Plain>(&self, tuning: Tuning, packing: Packing) -> Result<bool, GpuError> {
        let input: Vec<T> = weights().into_iter().map(T::round).collect();
        let blocksize = packing.blocksize.elements();
        let expected = quantize_4bit(&input, packing.book, blocksize);
        let (x, packed) = (self.tensor(&input)?, self.space(input.len() / 2)?);
        let absmax = self.space(4 * expected.absmax.len())?;
        let to = (packed.buffer(), absmax.buffer());
        self.kernels.quantize_4bit(tuning, packing, (x.buffer(), T::FLOAT_TYPE), to, STREAM)?;
        let (packed, absmax) = (packed.read::<u8>(input.len() / 2)?, absmax.read::<f32>(expected.absmax.len())?);
        let admits = |(k, x): (usize, &T)| {
            accepts(*x, absmax[k / blocksize], packing.book, nibble(&packed, k), Reciprocal::WithinOneUlp)
        };
        Ok(same(&absmax, &expected.absmax) && input.iter().enumerate().all(admits))
    }

    fn dequantize<T: Element + Plain>(&self, tuning: Tuning, book: CodeBook) -> Result<bool, GpuError> {
        let n = WIDTH * HEIGHT;
        let Quantized { packed, absmax } = quantize_4bit(&weights(), book, BLOCKSIZE);
        let expected = dequantize_4bit::<T>(&packed, &absmax, book, BLOCKSIZE, n);
        let (packed, absmax) = (self.tensor(&packed)?, self.tensor(&absmax)?);
        let y = self.space(n * size_of::<T>())?;
        let (from, to) = ((packed.buffer(), absmax.buffer()), (y.buffer(), T::FLOAT_TYPE));
        self.kernels.dequantize_4bit(tuning, packing(book, BLOCKSIZE), from, to, STREAM)?;
        Ok(same(&y.read::<T>(n)?, &expected))
    }

    /// Multiplies by `launch` and gives the result beside the twin's for `rows` rows.
    fn multiply<T: Element + Plain>(
        &self,
        book: CodeBook,
        rows: usize,
        twin: fn(PackedMatrix<'_>, &[T]) -> Vec<T>,
        launch: impl FnOnce(Gemv, DeviceBuffer, DeviceBuffer) -> Result<(), GpuError>,
    ) -> Result<(Vec<T>, Vec<T>), GpuError> {
        let Quantized { packed, absmax } = quantize_4bit(&weights(), book, BLOCKSIZE);
        let x = inputs::<T>(rows * WIDTH);
        let (in_features, out_features, blocksize) = (WIDTH, HEIGHT, BLOCKSIZE);
        let matrix = PackedMatrix { packed: &packed, absmax: &absmax, book, blocksize, in_features, out_features };
        let expected = twin(matrix, &x);
        let (packed, absmax, x) = (self.tensor(&packed)?, self.tensor(&absmax)?, self.tensor(&x)?);
        let (code, y) = (self.tensor(&book.device_table())?, self.space(rows * HEIGHT * size_of::<T>())?);
        let gemv = Gemv {
            shape: Shape::new(WIDTH as u32, HEIGHT as u32).expect("a small shape"),
            book,
            blocksize: packing(book, BLOCKSIZE).blocksize,
            format: T::FLOAT_TYPE,
            packed: packed.buffer(),
            absmax: absmax.buffer(),
            code: code.buffer(),
        };
        launch(gemv, x.buffer(), y.buffer())?;
        Ok((y.read(rows * HEIGHT)?, expected))
    }

    fn gemv<T: Element + Plain>(&self, tuning: Tuning, book: CodeBook) -> Result<bool, GpuError> {
        let launch = |gemv, x, y| self.kernels.gemv_4bit(tuning, gemv, x, y, STREAM);
        let (got, expected) = self.multiply::<T>(book, 1, gemv_4bit::<T>, launch)?;
        Ok(same(&got, &expected))
    }

    fn fused<T: Element + Plain>(&self, book: CodeBook) -> Result<bool, GpuError> {
        let launch = |gemv, x, y| self.kernels.matmul_4bit(gemv, ROWS as u32, x, y, STREAM);
        let (got, expected) = self.multiply::<T>(book, ROWS, matmul_4bit::<T>, launch)?;
        Ok(near(&got, &expected))
    }

    fn dense<T: Element + Plain>(&self) -> Result<bool, GpuError> {
        let product = Product {
            rows: ROWS as u32,
            in_features: WIDTH as u32,
            out_features: HEIGHT as u32,
            format: T::FLOAT_TYPE,
        };
        let weight = self.space(WIDTH * HEIGHT * size_of::<T>())?;
        let launch = |gemv: Gemv, x, y| {
            let (from, to) = ((gemv.packed, gemv.absmax), (weight.buffer(), T::FLOAT_TYPE));
            self.kernels.dequantize_4bit(Tuning::Bnb, packing(gemv.book, BLOCKSIZE), from, to, STREAM)?;
            self.kernels.matmul_dense(product, (x, weight.buffer()), y, STREAM)
        };
        let (got, expected) = self.multiply::<T>(CodeBook::Nf4, ROWS, matmul_4bit::<T>, launch)?;
        Ok(near(&got, &expected))
    }

    fn activations<T: Element + Plain>(&self) -> Result<bool, GpuError> {
        let y = self.space(1001 * size_of::<T>())?;
        let random = RandomStream { purpose: Purpose::Activation, ..RANDOM };
        self.kernels.activations((y.buffer(), T::FLOAT_TYPE), 1001, random, STREAM)?;
        Ok(same(&y.read::<T>(1001)?, &inputs::<T>(1001)))
    }

    fn casts(&mut self) {
        let outcomes = [
            ("fp32 to bf16", self.cast::<f32, bf16>()),
            ("fp32 to fp16", self.cast::<f32, f16>()),
            ("bf16 to fp32", self.cast::<bf16, f32>()),
            ("bf16 to fp16", self.cast::<bf16, f16>()),
            ("fp16 to fp32", self.cast::<f16, f32>()),
            ("fp16 to bf16", self.cast::<f16, bf16>()),
        ];
        for (what, outcome) in outcomes {
            self.note(format!("cast {what}"), outcome);
        }
    }

    fn cast<From: Element + Plain, To: Element + Plain>(&self) -> Result<bool, GpuError> {
        let input = inputs::<From>(1003);
        let (x, y) = (self.tensor(&input)?, self.space(input.len() * size_of::<To>())?);
        let (from, to) = ((x.buffer(), From::FLOAT_TYPE), (y.buffer(), To::FLOAT_TYPE));
        self.kernels.cast(from, to, input.len() as u64, STREAM)?;
        let expected: Vec<To> = input.iter().map(|value| To::round(value.widen())).collect();
        Ok(same(&y.read::<To>(input.len())?, &expected))
    }

    fn nested(&mut self) {
        let outcome = self.quantize_8bit();
        self.note("quantize_8bit".into(), outcome);
        let outcome = self.dequantize_8bit();
        self.note("dequantize_8bit".into(), outcome);
    }

    fn quantize_8bit(&self) -> Result<bool, GpuError> {
        let input = weights();
        let expected = quantize_8bit::quantize_8bit(&input);
        let (x, map) = (self.tensor(&input)?, self.tensor(&dynamic_map())?);
        let (codes, absmax2) = (self.space(input.len())?, self.space(4 * expected.absmax2.len())?);
        let to = (codes.buffer(), absmax2.buffer());
        self.kernels.quantize_8bit((x.buffer(), input.len() as u64), map.buffer(), to, STREAM)?;
        let midpoints = crate::workload::reference::codebook::dynamic_midpoints(&dynamic_map());
        let absmax2 = absmax2.read::<f32>(expected.absmax2.len())?;
        let codes = codes.read::<u8>(input.len())?;
        let admits = |(k, code): (usize, &u8)| {
            let of_block = absmax2[k / NESTED_BLOCKSIZE];
            quantize_8bit::accepts(input[k], of_block, &midpoints, *code, Reciprocal::WithinOneUlp)
        };
        Ok(same(&absmax2, &expected.absmax2) && codes.iter().enumerate().all(admits))
    }

    fn dequantize_8bit(&self) -> Result<bool, GpuError> {
        let quantized = quantize_8bit::quantize_8bit(&weights());
        let nb = quantized.codes.len();
        let (codes, absmax2) = (self.tensor(&quantized.codes)?, self.tensor(&quantized.absmax2)?);
        let (map, y) = (self.tensor(&dynamic_map())?, self.space(4 * nb)?);
        let from = (codes.buffer(), absmax2.buffer());
        self.kernels.dequantize_8bit(from, map.buffer(), (y.buffer(), nb as u64), STREAM)?;
        Ok(same(&y.read::<f32>(nb)?, &quantize_8bit::dequantize_8bit(&quantized)))
    }

    fn small_tensors(&mut self) {
        let outcomes = [
            ("abs_elements", self.unary(|kernels, x, y, n| kernels.abs(x, y, n, STREAM), |x| x.abs())),
            ("max_elements", self.max()),
            ("divide_elements", self.with_offset(|k, x, offset, _, n| k.divide(x, offset, n, STREAM), |x, o| x / o)),
            (
                "subtract_elements",
                self.with_offset(|k, x, offset, y, n| k.subtract((x, offset), (y, n), STREAM), |x, o| x - o),
            ),
            ("add_elements", self.with_offset(|k, x, offset, y, n| k.add((x, offset), (y, n), STREAM), |x, o| x + o)),
            ("mean_elements, one thread block", self.mean(1)),
            ("mean_elements, many thread blocks", self.mean(24)),
            ("weights", self.weights()),
            ("read_elements", self.read()),
        ];
        for (what, outcome) in outcomes {
            self.note(what.into(), outcome);
        }
    }

    fn unary(
        &self,
        launch: fn(&Kernels, DeviceBuffer, DeviceBuffer, u64) -> Result<(), GpuError>,
        twin: fn(f32) -> f32,
    ) -> Result<bool, GpuError> {
        let input = weights();
        let (x, y) = (self.tensor(&input)?, self.space(4 * input.len())?);
        launch(self.kernels, x.buffer(), y.buffer(), input.len() as u64)?;
        let expected: Vec<f32> = input.into_iter().map(twin).collect();
        Ok(same(&y.read::<f32>(expected.len())?, &expected))
    }

    fn with_offset(
        &self,
        launch: fn(&Kernels, DeviceBuffer, DeviceBuffer, DeviceBuffer, u64) -> Result<(), GpuError>,
        twin: fn(f32, f32) -> f32,
    ) -> Result<bool, GpuError> {
        const OFFSET: f32 = 0.017;
        let input = weights();
        let (x, offset) = (self.tensor(&input)?, self.tensor(&[OFFSET])?);
        // In place, as the program of a layer divides its code book and adds the mean for several rows.
        launch(self.kernels, x.buffer(), offset.buffer(), x.buffer(), input.len() as u64)?;
        let expected: Vec<f32> = input.into_iter().map(|value| twin(value, OFFSET)).collect();
        Ok(same(&x.read::<f32>(expected.len())?, &expected))
    }

    fn max(&self) -> Result<bool, GpuError> {
        let input: Vec<f32> = weights().into_iter().map(f32::abs).collect();
        let (x, y) = (self.tensor(&input)?, self.space(4)?);
        self.kernels.max((x.buffer(), input.len() as u64), y.buffer(), STREAM)?;
        Ok(y.read::<f32>(1)? == [reductions::abs_max(&input)])
    }

    fn mean(&self, blocks: usize) -> Result<bool, GpuError> {
        let input: Vec<f32> = weights().into_iter().map(f32::abs).collect();
        let (x, y) = (self.tensor(&input)?, self.space(4)?);
        let (partial, counter) = (self.space(8 * blocks)?, self.tensor(&[0u8; 4])?);
        let spread = (blocks > 1).then_some((partial.buffer(), counter.buffer()));
        self.kernels.mean((x.buffer(), input.len() as u64), y.buffer(), spread, STREAM)?;
        // Both sum in f64, in other orders: what is left of that after rounding is the last bit at most.
        let (got, expected) = (y.read::<f32>(1)?[0], reductions::mean(&input));
        Ok(got.to_bits().abs_diff(expected.to_bits()) <= 1)
    }

    fn weights(&self) -> Result<bool, GpuError> {
        let expected = weights();
        let y = self.space(4 * expected.len())?;
        self.kernels.weights((y.buffer(), expected.len() as u64), RANDOM, WIDTH as u32, STREAM)?;
        Ok(same(&y.read::<f32>(expected.len())?, &expected))
    }

    fn read(&self) -> Result<bool, GpuError> {
        let (x, sink) = (self.tensor(&weights())?, self.tensor(&[9u8; 4])?);
        self.kernels.read(x.buffer(), sink.buffer(), STREAM)?;
        Ok(sink.read::<u8>(4)? == [9; 4])
    }
}

/// Whether products differ by no more than the rounding of their format: the sums are exact to far less than that.
fn near<T: Element>(got: &[T], expected: &[T]) -> bool {
    let is_near = |(got, expected): (&T, &T)| {
        let (got, expected) = (f64::from(got.widen()), f64::from(expected.widen()));
        // Sums of 1536 products of about 0.02 in f32 are wrong by at most 1e-5, whatever the format makes of them.
        (got - expected).abs() <= T::FLOAT_TYPE.ulp_at(expected) + 1e-5
    };
    got.len() == expected.len() && got.iter().zip(expected).all(is_near)
}
