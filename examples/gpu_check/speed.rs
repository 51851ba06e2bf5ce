//! Time of each operation of the workload, beside what this machine can copy and read.
//!
//! Every operation is timed by itself with device events, on one of three sets of buffers in turn, so that no cache
//! holds what it reads; the figure is the median.

use std::rc::Rc;

use jetfault::model::settings::{Blocksize, Code, FloatType, Shape};
use jetfault::workload::gpu::blas::{Blas, Product};
use jetfault::workload::gpu::driver::{Context, Stream, Timer};
use jetfault::workload::gpu::error::GpuError;
use jetfault::workload::gpu::kernels::{Gemv, Kernels, Nvfp4Weight, Packing, Tuning};
use jetfault::workload::gpu::tensor::Tensor;
use jetfault::workload::reference::codebook::{CodeBook, dynamic_map};
use jetfault::workload::reference::philox_init::{Purpose, Stream as RandomStream};

use crate::memory::layer;

/// Sets of buffers.
const SETS: usize = 3;
/// Timed runs of an operation, after one for each set.
const RUNS: usize = 30;
const STREAM: Stream = Stream::LEGACY;

/// Everything that the operations on one shape need.
struct Set {
    weight: Tensor,
    packed: Tensor,
    absmax: Tensor,
    centred: Tensor,
    codes: Tensor,
    absmax2: Tensor,
    offset: Tensor,
    partial: Tensor,
    counter: Tensor,
    map: Tensor,
    code: Tensor,
    scales: Tensor,
    global: Tensor,
    x: Tensor,
    y: Tensor,
    dense: Tensor,
}

impl Set {
    fn new(context: &Rc<Context>, shape: Shape) -> Result<Self, GpuError> {
        let n = shape.weights();
        let nb = n.div_ceil(64);
        let new = |bytes| Tensor::new(context, bytes);
        Ok(Self {
            weight: new(4 * n)?,
            packed: new(n / 2)?,
            absmax: new(4 * nb)?,
            centred: new(4 * nb)?,
            codes: new(nb)?,
            absmax2: new(4 * nb.div_ceil(256))?,
            offset: new(4)?,
            partial: new(4 * 528)?,
            counter: new(4)?,
            map: Tensor::of(context, &dynamic_map())?,
            code: Tensor::of(context, &CodeBook::Nf4.device_table())?,
            scales: new(n / 16)?,
            global: new(4)?,
            x: new(8 * 2 * shape.in_features())?,
            y: new(8 * 2 * shape.out_features())?,
            dense: new(2 * n)?,
        })
    }
}

/// The bench: one shape and its sets.
struct Bench<'a> {
    context: &'a Rc<Context>,
    kernels: &'a Kernels,
    blas: Option<&'a Blas>,
    shape: Shape,
    sets: Vec<Set>,
}

/// An operation with its name and the bytes it moves.
type Operation = (&'static str, u64, fn(&Bench<'_>, &Set) -> Result<(), GpuError>);

/// The median microseconds of an operation.
fn median(context: &Rc<Context>, mut run: impl FnMut(usize) -> Result<(), GpuError>) -> Result<f64, GpuError> {
    for set in 0..SETS {
        run(set)?;
    }
    let mut times = Vec::new();
    for turn in 0..RUNS {
        let timer = Timer::start(context, STREAM)?;
        run(turn % SETS)?;
        times.push(f64::from(timer.stop()?) * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

/// Measures and prints the table.
///
/// # Errors
/// The device's.
pub(crate) fn measure(context: &Rc<Context>) -> Result<(), GpuError> {
    let kernels = Kernels::new(context, Code::Any)?;
    let blas = Blas::load(context)?;
    println!("\n## Speed\n");
    println!("cuBLAS: {}\n", blas.as_ref().map_or("none installed", Blas::name));
    let [copy, read, fill] = ceilings(context, &kernels)?;
    println!("Ceilings in GB/s: copy {copy:.0}, read {read:.0}, fill {fill:.0}\n");
    println!("| operation | A us | B us | C us | C GB/s | of copy | of read |\n|---|---|---|---|---|---|---|");
    let mut columns = Vec::new();
    for label in ['A', 'B', 'C'] {
        let shape = layer(label).shape;
        let sets = (0..SETS).map(|_| Set::new(context, shape)).collect::<Result<_, _>>()?;
        let bench = Bench { context, kernels: &kernels, blas: blas.as_ref(), shape, sets };
        columns.push(bench.column()?);
    }
    for (i, (name, bytes, c)) in columns[2].iter().enumerate() {
        let rate = *bytes as f64 / c / 1e3;
        let (a, b) = (columns[0][i].2, columns[1][i].2);
        println!(
            "| {name} | {a:.1} | {b:.1} | {c:.1} | {rate:.0} | {:.1} % | {:.1} % |",
            100.0 * rate / copy,
            100.0 * rate / read
        );
    }
    Ok(())
}

/// Copy (bytes read and written), read and fill in GB/s, over 4 GiB.
fn ceilings(context: &Rc<Context>, kernels: &Kernels) -> Result<[f64; 3], GpuError> {
    const BYTES: u64 = 4 << 30;
    let (a, b) = (Tensor::new(context, BYTES)?, Tensor::new(context, BYTES)?);
    let sink = Tensor::new(context, 4)?;
    a.fill(1, STREAM)?;
    let copy = median(context, |_| b.copy_from(&a, STREAM))?;
    let read = median(context, |_| kernels.read(a.buffer(), sink.buffer(), STREAM))?;
    let fill = median(context, |_| b.fill(2, STREAM))?;
    let rate = |bytes: u64, us: f64| bytes as f64 / us / 1e3;
    Ok([rate(2 * BYTES, copy), rate(BYTES, read), rate(BYTES, fill)])
}

impl Bench<'_> {
    fn column(&self) -> Result<Vec<(&'static str, u64, f64)>, GpuError> {
        self.prepare()?;
        let mut rows = Vec::new();
        for (name, bytes, run) in self.operations() {
            rows.push((name, bytes, median(self.context, |set| run(self, &self.sets[set]))?));
        }
        Ok(rows)
    }

    fn prepare(&self) -> Result<(), GpuError> {
        let n = self.shape.weights();
        for (number, set) in self.sets.iter().enumerate() {
            let random = |purpose| RandomStream { seed: 7, number: number as u32, purpose };
            let in_features = self.shape.in_features();
            let weight = (set.weight.buffer(), n);
            self.kernels.weights(weight, random(Purpose::Weight), in_features as u32, STREAM)?;
            let x = (set.x.buffer(), FloatType::Bf16);
            self.kernels.activations(x, 8 * in_features, random(Purpose::Activation), STREAM)?;
            self.kernels.cast(
                (set.weight.buffer(), FloatType::Fp32),
                (set.dense.buffer(), FloatType::Bf16),
                n,
                STREAM,
            )?;
        }
        self.context.synchronize()
    }

    fn operations(&self) -> Vec<Operation> {
        let n = self.shape.weights();
        let nb = n.div_ceil(64);
        let packed = n / 2 + 4 * nb;
        let scaled = n / 2 + n / 16;
        let rows = |rows: u64| rows * 2 * (self.shape.in_features() + self.shape.out_features());
        let nested = 4 * nb + 4 * nb + 4 * nb + 4 * nb + 4 * nb + nb;
        let decoded = nb + 4 * nb + 4 * nb + 4 * nb;
        vec![
            ("quantize fp32, bnb", 4 * n + packed, |b, s| b.quantize(Tuning::Bnb, s)),
            ("quantize fp32, tuned", 4 * n + packed, |b, s| b.quantize(Tuning::Tuned, s)),
            ("mean of absmax", 4 * nb, |b, s| b.mean(s)),
            ("quantize 8 bit", 5 * nb, |b, s| b.quantize_8bit(s)),
            ("quantize fp32 nested, bnb", 4 * n + packed + nested, |b, s| b.quantize_nested(Tuning::Bnb, s)),
            ("quantize fp32 nested, tuned", 4 * n + packed + nested, |b, s| b.quantize_nested(Tuning::Tuned, s)),
            ("dequantize fp32, bnb", packed + 4 * n, |b, s| b.dequantize(Tuning::Bnb, FloatType::Fp32, s)),
            ("dequantize fp32, tuned", packed + 4 * n, |b, s| b.dequantize(Tuning::Tuned, FloatType::Fp32, s)),
            ("dequantize bf16, bnb", packed + 2 * n, |b, s| b.dequantize(Tuning::Bnb, FloatType::Bf16, s)),
            ("dequantize bf16, tuned", packed + 2 * n, |b, s| b.dequantize(Tuning::Tuned, FloatType::Bf16, s)),
            ("dequantize nested fp32, bnb", packed + 4 * n + decoded, |b, s| {
                b.restore(s)?;
                b.dequantize(Tuning::Bnb, FloatType::Fp32, s)
            }),
            ("gemv bf16, bnb", packed + rows(1), |b, s| b.gemv(Tuning::Bnb, s)),
            ("gemv bf16, tuned", packed + rows(1), |b, s| b.gemv(Tuning::Tuned, s)),
            ("batch 1 nested bf16, bnb", packed + rows(1) + decoded, |b, s| {
                b.restore(s)?;
                b.gemv(Tuning::Bnb, s)
            }),
            ("batch 8 nested bf16 by fp32, bnb", packed + 4 * n + 4 * n + 2 * n + 2 * n + rows(8) + decoded, |b, s| {
                b.detour(s)
            }),
            ("batch 8 bf16 from packed, tuned", packed + rows(8), |b, s| b.fused(s)),
            ("dense bf16 batch 8", 2 * n + rows(8), |b, s| b.dense(s)),
            ("nvfp4 largest", 4 * n, |b, s| b.nvfp4_largest(s)),
            ("nvfp4 quantize", 4 * n + scaled, |b, s| b.kernels.nvfp4_quantize(s.weight.buffer(), b.nvfp4(s), STREAM)),
            ("nvfp4 quantize, whole path", 8 * n + scaled, |b, s| b.nvfp4_whole(s)),
            ("nvfp4 gemv bf16", scaled + rows(1), |b, s| b.nvfp4_product(1, s)),
            ("nvfp4 batch 2 bf16", scaled + rows(2), |b, s| b.nvfp4_product(2, s)),
            ("nvfp4 batch 8 bf16", scaled + rows(8), |b, s| b.nvfp4_product(8, s)),
            ("nvfp4 dequantize bf16", scaled + 2 * n, |b, s| {
                b.kernels.nvfp4_dequantize(b.nvfp4(s), (s.dense.buffer(), FloatType::Bf16), STREAM)
            }),
            ("nvfp4 dequantize fp32", scaled + 4 * n, |b, s| {
                b.kernels.nvfp4_dequantize(b.nvfp4(s), (s.weight.buffer(), FloatType::Fp32), STREAM)
            }),
            ("cast fp32 to bf16", 6 * n, |b, s| b.cast(s)),
            ("init fp32 on the device", 4 * n, |b, s| {
                let random = RandomStream { seed: 7, number: 0, purpose: Purpose::Weight };
                let y = (s.weight.buffer(), b.shape.weights());
                b.kernels.weights(y, random, b.shape.in_features() as u32, STREAM)
            }),
        ]
    }

    fn packing(&self) -> Packing {
        Packing { book: CodeBook::Nf4, blocksize: Blocksize::DEFAULT, elements: self.shape.weights() }
    }

    fn blocks(&self) -> u64 {
        self.shape.weights().div_ceil(64)
    }

    fn quantize(&self, tuning: Tuning, set: &Set) -> Result<(), GpuError> {
        let (x, to) = ((set.weight.buffer(), FloatType::Fp32), (set.packed.buffer(), set.absmax.buffer()));
        self.kernels.quantize_4bit(tuning, self.packing(), x, to, STREAM)
    }

    fn mean(&self, set: &Set) -> Result<(), GpuError> {
        set.counter.fill(0, STREAM)?;
        let spread = Some((set.partial.buffer(), set.counter.buffer()));
        self.kernels.mean((set.absmax.buffer(), self.blocks()), set.offset.buffer(), spread, STREAM)
    }

    fn quantize_8bit(&self, set: &Set) -> Result<(), GpuError> {
        let to = (set.codes.buffer(), set.absmax2.buffer());
        self.kernels.quantize_8bit((set.centred.buffer(), self.blocks()), set.map.buffer(), to, STREAM)
    }

    fn quantize_nested(&self, tuning: Tuning, set: &Set) -> Result<(), GpuError> {
        self.quantize(tuning, set)?;
        self.mean(set)?;
        let from = (set.absmax.buffer(), set.offset.buffer());
        self.kernels.subtract(from, (set.centred.buffer(), self.blocks()), STREAM)?;
        self.quantize_8bit(set)
    }

    fn restore(&self, set: &Set) -> Result<(), GpuError> {
        let from = (set.codes.buffer(), set.absmax2.buffer());
        let nb = self.blocks();
        self.kernels.dequantize_8bit(from, set.map.buffer(), (set.centred.buffer(), nb), STREAM)?;
        self.kernels.add((set.centred.buffer(), set.offset.buffer()), (set.absmax.buffer(), nb), STREAM)
    }

    fn dequantize(&self, tuning: Tuning, format: FloatType, set: &Set) -> Result<(), GpuError> {
        let from = (set.packed.buffer(), set.absmax.buffer());
        self.kernels.dequantize_4bit(tuning, self.packing(), from, (set.weight.buffer(), format), STREAM)
    }

    fn weight(&self, set: &Set) -> Gemv {
        Gemv {
            shape: self.shape,
            book: CodeBook::Nf4,
            blocksize: Blocksize::DEFAULT,
            format: FloatType::Bf16,
            packed: set.packed.buffer(),
            absmax: set.absmax.buffer(),
            code: set.code.buffer(),
        }
    }

    fn gemv(&self, tuning: Tuning, set: &Set) -> Result<(), GpuError> {
        self.kernels.gemv_4bit(tuning, self.weight(set), set.x.buffer(), set.y.buffer(), STREAM)
    }

    fn fused(&self, set: &Set) -> Result<(), GpuError> {
        self.kernels.matmul_4bit(self.weight(set), 8, set.x.buffer(), set.y.buffer(), STREAM)
    }

    fn nvfp4(&self, set: &Set) -> Nvfp4Weight {
        let (packed, scales, global) = (set.packed.buffer(), set.scales.buffer(), set.global.buffer());
        Nvfp4Weight { shape: self.shape, packed, scales, global }
    }

    fn nvfp4_largest(&self, set: &Set) -> Result<(), GpuError> {
        set.global.fill(0, STREAM)?;
        self.kernels.nvfp4_largest((set.weight.buffer(), self.shape), set.global.buffer(), STREAM)
    }

    fn nvfp4_whole(&self, set: &Set) -> Result<(), GpuError> {
        self.nvfp4_largest(set)?;
        self.kernels.nvfp4_global_scale(set.global.buffer(), STREAM)?;
        self.kernels.nvfp4_quantize(set.weight.buffer(), self.nvfp4(set), STREAM)
    }

    fn nvfp4_product(&self, rows: u32, set: &Set) -> Result<(), GpuError> {
        let (x, y) = (set.x.buffer(), set.y.buffer());
        self.kernels.nvfp4_product(self.nvfp4(set), (rows, FloatType::Bf16), x, y, STREAM)
    }

    fn cast(&self, set: &Set) -> Result<(), GpuError> {
        let (from, to) = ((set.weight.buffer(), FloatType::Fp32), (set.dense.buffer(), FloatType::Bf16));
        self.kernels.cast(from, to, self.shape.weights(), STREAM)
    }

    fn dense(&self, set: &Set) -> Result<(), GpuError> {
        let product = Product {
            rows: 8,
            in_features: self.shape.in_features() as u32,
            out_features: self.shape.out_features() as u32,
            format: FloatType::Bf16,
        };
        let (x, weight, y) = (set.x.buffer(), set.dense.buffer(), set.y.buffer());
        match self.blas {
            Some(blas) => blas.multiply(product, x, weight, y),
            None => self.kernels.matmul_dense(product, (x, weight), y, STREAM),
        }
    }

    fn detour(&self, set: &Set) -> Result<(), GpuError> {
        self.restore(set)?;
        self.dequantize(Tuning::Bnb, FloatType::Fp32, set)?;
        self.cast(set)?;
        self.dense(set)
    }
}
