//! Every golden vector through the kernels, against what an H200 with bitsandbytes 0.49.2 gave.

use std::collections::BTreeMap;
use std::io::Read;
use std::rc::Rc;

use half::{bf16, f16};
use jetfault::model::settings::{Blocksize, FloatType, QuantType, Shape};
use jetfault::workload::gpu::blas::Product;
use jetfault::workload::gpu::driver::{Context, Plain, Stream};
use jetfault::workload::gpu::error::GpuError;
use jetfault::workload::gpu::kernels::{Gemv, Kernels, Packing, Tuning};
use jetfault::workload::gpu::tensor::Tensor;
use jetfault::workload::reference::codebook::{CodeBook, dynamic_map};
use jetfault::workload::reference::numbers::Element;
use jetfault::workload::reference::reductions;
use serde_json::Value;

use crate::Verdict;

const VECTORS: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/vectors.json.gz"));
const CUDA: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/cuda.json.gz"));

fn unpacked(bytes: &[u8]) -> Value {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("the vectors are whole");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

/// Fixed-width hexadecimal words, most significant digit first.
fn words(text: &str, digits: usize) -> Vec<u32> {
    let word = |i: usize| u32::from_str_radix(&text[i..i + digits], 16).expect("a hexadecimal word");
    (0..text.len()).step_by(digits).map(word).collect()
}

/// A format that the vectors spell as words of its own width.
trait Golden: Element + Plain {
    fn of(word: u32) -> Self;
    fn bits(self) -> u32;
    fn read(text: &str) -> Vec<Self> {
        words(text, 2 * size_of::<Self>()).into_iter().map(Self::of).collect()
    }
    fn same(a: Self, b: Self) -> bool {
        a.bits() == b.bits() || (a.widen().is_nan() && b.widen().is_nan())
    }
}

impl Golden for f32 {
    fn of(word: u32) -> Self {
        f32::from_bits(word)
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Golden for bf16 {
    fn of(word: u32) -> Self {
        bf16::from_bits(word as u16)
    }
    fn bits(self) -> u32 {
        u32::from(self.to_bits())
    }
}

impl Golden for f16 {
    fn of(word: u32) -> Self {
        f16::from_bits(word as u16)
    }
    fn bits(self) -> u32 {
        u32::from(self.to_bits())
    }
}

/// One vector with what the H200 said of it, on one set of kernels.
struct Case<'a> {
    kernels: &'a Kernels,
    context: &'a Rc<Context>,
    tuning: Tuning,
    vector: &'a Value,
    cuda: &'a Value,
    wrong: Vec<String>,
}

/// Checks both sets of kernels against all vectors.
///
/// # Errors
/// The device's.
pub(crate) fn check(kernels: &Kernels, verdict: &mut Verdict) -> Result<(), GpuError> {
    let (vectors, cuda) = (unpacked(VECTORS), unpacked(CUDA));
    let by_id = |record: &'_ Value| (record["id"].as_str().unwrap_or_default().to_owned(), record["cuda"].clone());
    let cuda: BTreeMap<String, Value> = cuda["vectors"].as_array().into_iter().flatten().map(by_id).collect();
    for tuning in [Tuning::Bnb, Tuning::Tuned] {
        let (mut count, mut exact) = (0, 0);
        for vector in vectors["vectors"].as_array().into_iter().flatten() {
            let id = vector["id"].as_str().unwrap_or_default();
            let (context, wrong) = (kernels.context(), Vec::new());
            let mut case = Case { kernels, context, tuning, vector, cuda: &cuda[id], wrong };
            case.run()?;
            count += 1;
            exact += usize::from(case.wrong.is_empty());
            verdict.expect(case.wrong.is_empty(), || format!("{tuning:?} {id}: {}", case.wrong.join("; ")));
        }
        println!("| {} | {tuning:?} | {count} | {exact} |", kernels.target().name());
    }
    Ok(())
}

impl Case<'_> {
    fn run(&mut self) -> Result<(), GpuError> {
        match (self.text("kind"), self.vector["input_dtype"].as_str().or(self.vector["dtype"].as_str())) {
            ("q4", Some("fp32")) => self.quantize::<f32>(),
            ("q4", Some("bf16")) => self.quantize::<bf16>(),
            ("q4", Some("fp16")) => self.quantize::<f16>(),
            ("q8", _) => self.nested_alone(),
            ("nested", Some("fp32")) => self.nested::<f32>(),
            ("nested", Some("bf16")) => self.nested::<bf16>(),
            ("nested", Some("fp16")) => self.nested::<f16>(),
            ("mm", Some("fp32")) => self.product::<f32>(),
            ("mm", Some("bf16")) => self.product::<bf16>(),
            ("mm", Some("fp16")) => self.product::<f16>(),
            (kind, format) => panic!("no vectors of kind {kind}, {format:?}"),
        }
    }

    fn text(&self, key: &str) -> &str {
        self.vector[key].as_str().unwrap_or_else(|| panic!("the vector has no {key}"))
    }

    fn number(&self, key: &str) -> usize {
        self.vector[key].as_u64().unwrap_or_else(|| panic!("the vector has no {key}")) as usize
    }

    fn book(&self) -> CodeBook {
        let quant: QuantType = self.text("quant_type").parse().expect("a known format");
        CodeBook::try_from(quant).expect("a format with a code book")
    }

    fn packing(&self, elements: usize) -> Packing {
        let blocksize = Blocksize::of_elements(self.number("blocksize")).expect("a known block size");
        Packing { book: self.book(), blocksize, elements: elements as u64 }
    }

    /// What the GPU gave under `key`: its own words, or those of the model where they are equal.
    fn expected<T: Golden>(&self, key: &str) -> Vec<T> {
        let observed = self.cuda[key].as_str().filter(|text| *text != "equal");
        let model = match key.strip_prefix("dequant_") {
            Some(format) => &self.vector["expect"]["dequant"][format],
            None => &self.vector["expect"][key],
        };
        T::read(observed.or(model.as_str()).unwrap_or_else(|| panic!("nothing is recorded for {key}")))
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        let observed = self.cuda[key].as_str().filter(|text| *text != "equal");
        let text = observed.or(self.vector["expect"][key].as_str()).expect("recorded bytes");
        words(text, 2).into_iter().map(|word| word as u8).collect()
    }

    fn compare<T: Golden>(&mut self, what: &str, got: &[T], expected: &[T]) {
        let differing = got.iter().zip(expected).filter(|(got, expected)| !T::same(**got, **expected)).count();
        if differing > 0 || got.len() != expected.len() {
            self.wrong.push(format!("{what}: {differing} of {} differ", expected.len()));
        }
    }

    fn compare_bytes(&mut self, what: &str, got: &[u8], expected: &[u8]) {
        if got != expected {
            let differing = got.iter().zip(expected).filter(|(got, expected)| got != expected).count();
            self.wrong.push(format!("{what}: {differing} of {} bytes differ", expected.len()));
        }
    }

    fn quantize<T: Golden>(&mut self) -> Result<(), GpuError> {
        let input = T::read(self.text("input"));
        self.quantize_input(&input)?;
        let model: Vec<u8> = words(self.vector["expect"]["packed"].as_str().expect("bytes"), 2)
            .into_iter()
            .map(|word| word as u8)
            .collect();
        let absmax = self.expected::<f32>("absmax");
        self.dequantize_all(&model, &absmax, input.len())
    }

    fn quantize_input<T: Golden>(&mut self, input: &[T]) -> Result<Vec<f32>, GpuError> {
        let packing = self.packing(input.len());
        let blocks = input.len().div_ceil(self.number("blocksize"));
        let x = Tensor::of(self.context, input)?;
        let packed = Tensor::new(self.context, input.len().div_ceil(2) as u64)?;
        let absmax = Tensor::new(self.context, 4 * blocks as u64)?;
        let to = (packed.buffer(), absmax.buffer());
        self.kernels.quantize_4bit(self.tuning, packing, (x.buffer(), T::FLOAT_TYPE), to, Stream::LEGACY)?;
        let absmax = absmax.read::<f32>(blocks)?;
        self.compare_bytes("packed", &packed.read(input.len().div_ceil(2))?, &self.bytes("packed"));
        // The record of nested vectors has no absmax of its own: the model's was met.
        self.compare("absmax", &absmax, &self.expected("absmax"));
        Ok(absmax)
    }

    fn dequantize_all(&mut self, packed: &[u8], absmax: &[f32], n: usize) -> Result<(), GpuError> {
        let formats: Vec<String> =
            self.vector["expect"]["dequant"].as_object().into_iter().flatten().map(|(f, _)| f.clone()).collect();
        for format in formats {
            match format.as_str() {
                "fp32" => self.dequantize::<f32>(packed, absmax, n)?,
                "bf16" => self.dequantize::<bf16>(packed, absmax, n)?,
                "fp16" => self.dequantize::<f16>(packed, absmax, n)?,
                other => panic!("no format {other}"),
            }
        }
        Ok(())
    }

    fn dequantize<T: Golden>(&mut self, packed: &[u8], absmax: &[f32], n: usize) -> Result<(), GpuError> {
        let (packed, absmax) = (Tensor::of(self.context, packed)?, Tensor::of(self.context, absmax)?);
        let y = Tensor::new(self.context, (n * size_of::<T>()) as u64)?;
        let from = (packed.buffer(), absmax.buffer());
        let (packing, to) = (self.packing(n), (y.buffer(), T::FLOAT_TYPE));
        self.kernels.dequantize_4bit(self.tuning, packing, from, to, Stream::LEGACY)?;
        let key = format!("dequant_{}", T::FLOAT_TYPE);
        self.compare(&key, &y.read::<T>(n)?, &self.expected(&key));
        Ok(())
    }

    fn nested_alone(&mut self) -> Result<(), GpuError> {
        let input = f32::read(self.text("input"));
        let decoded = self.quantize_8bit(&input, "q")?;
        self.compare("dequant", &decoded, &f32::read(self.vector["expect"]["dequant"].as_str().expect("words")));
        Ok(())
    }

    /// Quantises centred values and gives them back decoded.
    fn quantize_8bit(&mut self, centred: &[f32], codes_key: &str) -> Result<Vec<f32>, GpuError> {
        let (context, nb) = (self.context, centred.len());
        let (values, map) = (Tensor::of(context, centred)?, Tensor::of(context, &dynamic_map())?);
        let codes = Tensor::new(context, nb as u64)?;
        let absmax2 = Tensor::new(context, 4 * nb.div_ceil(256) as u64)?;
        let pair = (codes.buffer(), absmax2.buffer());
        self.kernels.quantize_8bit((values.buffer(), nb as u64), map.buffer(), pair, Stream::LEGACY)?;
        self.compare_bytes(codes_key, &codes.read(nb)?, &self.bytes(codes_key));
        self.compare("absmax2", &absmax2.read::<f32>(nb.div_ceil(256))?, &self.expected("absmax2"));
        self.kernels.dequantize_8bit(pair, map.buffer(), (values.buffer(), nb as u64), Stream::LEGACY)?;
        values.read(nb)
    }

    fn nested<T: Golden>(&mut self) -> Result<(), GpuError> {
        let input = T::read(self.text("input"));
        let absmax = self.quantize_input(&input)?;
        let (context, nb) = (self.context, absmax.len());
        let (x, mean) = (Tensor::of(context, &absmax)?, Tensor::new(context, 4)?);
        self.kernels.mean((x.buffer(), nb as u64), mean.buffer(), None, Stream::LEGACY)?;
        let ours = mean.read::<f32>(1)?[0];
        self.compare("mean", &[ours], &[reductions::mean(&absmax)]);
        // A sum in f32 has as many results as orders, so the recorded mean is used from here on.
        let offset = Tensor::of(context, &f32::read(self.text("offset")))?;
        let y = Tensor::new(context, 4 * nb as u64)?;
        let stream = Stream::LEGACY;
        self.kernels.subtract((x.buffer(), offset.buffer()), (y.buffer(), nb as u64), stream)?;
        let decoded = Tensor::of(context, &self.quantize_8bit(&y.read::<f32>(nb)?, "qabsmax")?)?;
        self.kernels.add((decoded.buffer(), offset.buffer()), (y.buffer(), nb as u64), stream)?;
        let restored = y.read::<f32>(nb)?;
        self.compare("absmax_dq", &restored, &self.expected("absmax_dq"));
        self.dequantize_all(&self.bytes("packed"), &restored, input.len())
    }

    fn product<T: Golden>(&mut self) -> Result<(), GpuError> {
        let context = self.context;
        let (height, width, rows) = (self.number("N"), self.number("K"), self.number("batch"));
        let packed: Vec<u8> = words(self.text("packed"), 2).into_iter().map(|word| word as u8).collect();
        let (packed, x) = (Tensor::of(context, &packed)?, Tensor::of(context, &T::read(self.text("X")))?);
        let absmax = Tensor::of(context, &f32::read(self.text("absmax")))?;
        let code = Tensor::of(context, &self.book().device_table())?;
        let y = Tensor::new(context, (rows * height * size_of::<T>()) as u64)?;
        let Packing { book, blocksize, .. } = self.packing(height * width);
        let gemv = Gemv {
            shape: Shape::new(width as u32, height as u32).expect("a shape"),
            book,
            blocksize,
            format: T::FLOAT_TYPE,
            packed: packed.buffer(),
            absmax: absmax.buffer(),
            code: code.buffer(),
        };
        self.kernels.gemv_4bit(self.tuning, gemv, x.buffer(), y.buffer(), Stream::LEGACY)?;
        self.compare("gemv_y0", &y.read::<T>(height)?, &self.expected("gemv_y0"));
        if self.tuning == Tuning::Tuned && self.kernels.fuses(gemv) {
            self.kernels.matmul_4bit(gemv, rows as u32, x.buffer(), y.buffer(), Stream::LEGACY)?;
            self.within_tolerance("matmul_4bit", &y.read::<T>(rows * height)?);
        }
        let weight = Tensor::new(context, (height * width * size_of::<T>()) as u64)?;
        let (from, to) = ((packed.buffer(), absmax.buffer()), (weight.buffer(), T::FLOAT_TYPE));
        self.kernels.dequantize_4bit(self.tuning, self.packing(height * width), from, to, Stream::LEGACY)?;
        let (in_features, out_features) = (width as u32, height as u32);
        let product = Product { rows: rows as u32, in_features, out_features, format: FloatType::Fp32 };
        let product = Product { format: T::FLOAT_TYPE, ..product };
        self.kernels.matmul_dense(product, (x.buffer(), weight.buffer()), y.buffer(), Stream::LEGACY)?;
        self.within_tolerance("matmul_dense", &y.read::<T>(rows * height)?);
        Ok(())
    }

    fn within_tolerance<T: Golden>(&mut self, what: &str, got: &[T]) {
        let list = |key: &str| -> Vec<f64> {
            self.vector["expect"][key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        let (exact, tolerance) = (list("matmul_f64"), list("matmul_tol"));
        let is_near =
            |((got, exact), tolerance): ((&T, &f64), &f64)| (f64::from(got.widen()) - exact).abs() <= *tolerance;
        let near = got.iter().zip(&exact).zip(&tolerance).filter(|all| is_near(*all)).count();
        if near != exact.len() {
            self.wrong.push(format!("{what}: {} of {} are too far off", exact.len() - near, exact.len()));
        }
    }
}
