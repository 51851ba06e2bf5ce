//! Golden vectors: the twins and the fast code against recorded results of bitsandbytes' CUDA arithmetic.
//!
//! See `tests/golden/README.md` for the format and for what the flags excuse.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use half::{bf16, f16};
use jetfault::model::settings::{Blocksize, FloatType, QuantType};
use jetfault::workload::fast;
use jetfault::workload::fast::rounding::FastElement;
use jetfault::workload::reference::codebook::{
    CodeBook, FP4_INDEX_BY_COUNT, FP4_THRESHOLDS, NF4_THRESHOLDS, dynamic_map, dynamic_midpoints,
};
use jetfault::workload::reference::dequantize_4bit::{dequantize_4bit, nibble};
use jetfault::workload::reference::gemv_4bit::{PackedMatrix, gemv_4bit};
use jetfault::workload::reference::numbers::{Element, Reciprocal};
use jetfault::workload::reference::quantize_4bit::{Quantized, accepts, quantize_4bit};
use jetfault::workload::reference::quantize_8bit::{Nested, Quantized8, dequantize_8bit, quantize_8bit, restore};
use jetfault::workload::reference::reductions::{centred, mean};

use serde_json::Value;

fn read(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn unpacked(name: &str) -> Value {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&read(name)[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Fixed-width hexadecimal words, most significant digit first.
fn words(text: &Value, digits: usize) -> Vec<u32> {
    let text = text.as_str().expect("a string of hex words");
    assert_eq!(text.len() % digits, 0);
    (0..text.len()).step_by(digits).map(|i| u32::from_str_radix(&text[i..i + digits], 16).unwrap()).collect()
}

fn bytes(text: &Value) -> Vec<u8> {
    words(text, 2).into_iter().map(|word| word as u8).collect()
}

fn floats(text: &Value) -> Vec<f32> {
    words(text, 8).into_iter().map(f32::from_bits).collect()
}

/// A format that the vectors spell as words of its own width.
trait Golden: FastElement + Default {
    fn from_word(word: u32) -> Self;
    fn read(text: &Value) -> Vec<Self> {
        words(text, 2 * Self::FLOAT_TYPE.bytes() as usize).into_iter().map(Self::from_word).collect()
    }
}
impl Golden for f32 {
    fn from_word(word: u32) -> Self {
        f32::from_bits(word)
    }
}
impl Golden for bf16 {
    fn from_word(word: u32) -> Self {
        bf16::from_bits(word as u16)
    }
}
impl Golden for f16 {
    fn from_word(word: u32) -> Self {
        f16::from_bits(word as u16)
    }
}

/// Equal bits, or both NaN: a payload carries no meaning.
fn assert_same<T: Element>(got: &[T], expected: &[T], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let (g, e) = (got.widen(), expected.widen());
        assert!(g.to_bits() == e.to_bits() || (g.is_nan() && e.is_nan()), "{what}: element {i} is {g:e}, not {e:e}");
    }
}

struct Vector<'a>(&'a Value);

impl Vector<'_> {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_else(|| panic!("{} has no {key}", self.0))
    }
    fn number(&self, key: &str) -> usize {
        self.0[key].as_u64().unwrap() as usize
    }
    fn id(&self) -> &str {
        self.text("id")
    }
    fn expect(&self, key: &str) -> &Value {
        &self.0["expect"][key]
    }
    fn book(&self) -> CodeBook {
        self.text("quant_type").parse::<QuantType>().unwrap().try_into().unwrap()
    }
    fn format(&self, key: &str) -> FloatType {
        self.text(key).parse().unwrap()
    }
    fn blocksize(&self) -> Blocksize {
        Blocksize::of_elements(self.number("blocksize")).unwrap()
    }
    fn marked(&self, key: &str) -> Vec<usize> {
        self.0[key].as_array().unwrap().iter().map(|i| i.as_u64().unwrap() as usize).collect()
    }
}

fn check_q4<T: Golden>(vector: &Vector) {
    let (id, book, blocksize) = (vector.id(), vector.book(), vector.blocksize());
    let input = T::read(&vector.0["input"]);
    assert_eq!(input.len(), vector.number("n"), "{id}");
    let expected = Quantized { packed: bytes(vector.expect("packed")), absmax: floats(vector.expect("absmax")) };
    for (name, got) in [
        ("twin", quantize_4bit(&input, book, blocksize.elements())),
        ("fast", fast::quantize::quantize_4bit(&input, book, blocksize).unwrap()),
    ] {
        assert_same(&got.absmax, &expected.absmax, &format!("{id}: {name} absmax"));
        assert_eq!(got.packed, expected.packed, "{id}: {name} packed");
    }
    check_dequants(vector, &expected, input.len());
}

fn check_dequants(vector: &Vector, quantized: &Quantized, n: usize) {
    for (format, text) in vector.expect("dequant").as_object().unwrap() {
        match format.as_str() {
            "fp32" => check_dequantize::<f32>(vector, quantized, text, n),
            "bf16" => check_dequantize::<bf16>(vector, quantized, text, n),
            "fp16" => check_dequantize::<f16>(vector, quantized, text, n),
            other => panic!("{}: unknown format {other}", vector.id()),
        }
    }
}

fn check_dequantize<T: Golden>(vector: &Vector, quantized: &Quantized, text: &Value, n: usize) {
    let (book, blocksize) = (vector.book(), vector.blocksize());
    let expected = T::read(text);
    let twin = dequantize_4bit::<T>(&quantized.packed, &quantized.absmax, book, blocksize.elements(), n);
    assert_same(&twin, &expected, &format!("{}: twin dequantised", vector.id()));
    let fast = fast::dequantize::dequantize_4bit::<T>(quantized, book, blocksize, n).unwrap();
    assert_same(&fast, &expected, &format!("{}: fast dequantised", vector.id()));
}

fn check_q8(vector: &Vector) {
    let input = floats(&vector.0["input"]);
    let expected = Quantized8 { codes: bytes(vector.expect("q")), absmax2: floats(vector.expect("absmax2")) };
    assert_eq!(quantize_8bit(&input), expected, "{}", vector.id());
    assert_eq!(fast::nested::quantize_8bit(&input).unwrap(), expected, "{}", vector.id());
    assert_same(&dequantize_8bit(&expected), &floats(vector.expect("dequant")), vector.id());
}

fn check_nested<T: Golden>(vector: &Vector) {
    let (id, book, blocksize) = (vector.id(), vector.book(), vector.blocksize());
    let input = T::read(&vector.0["input"]);
    let quantized = fast::quantize::quantize_4bit(&input, book, blocksize).unwrap();
    assert_eq!(quantized, quantize_4bit(&input, book, blocksize.elements()), "{id}");
    assert_eq!(quantized.packed, bytes(vector.expect("packed")), "{id}");
    assert_same(&quantized.absmax, &floats(vector.expect("absmax")), id);

    // PyTorch's mean may differ in its last bits, so ours is compared and theirs is used.
    let exact = vector.0["offset_f64"].as_f64().unwrap();
    for ours in [mean(&quantized.absmax), fast::nested::nest(&quantized.absmax).unwrap().offset] {
        assert!((f64::from(ours) - exact).abs() <= 1e-6 * exact.abs(), "{id}: mean {ours}, exactly {exact}");
    }
    let offset = f32::from_bits(words(&vector.0["offset"], 8)[0]);
    let codes = quantize_8bit(&centred(&quantized.absmax, offset));
    let expected = Quantized8 { codes: bytes(vector.expect("qabsmax")), absmax2: floats(vector.expect("absmax2")) };
    assert_eq!(codes, expected, "{id}");
    let nested = Nested { quantized: codes, offset };
    let restored = restore(&nested);
    assert_same(&restored, &floats(vector.expect("absmax_dq")), id);
    assert_same(&fast::nested::restore(&nested).unwrap(), &restored, id);
    let restored = Quantized { packed: quantized.packed, absmax: restored };
    check_dequants(vector, &restored, input.len());
}

fn check_mm<T: Golden>(vector: &Vector) {
    let id = vector.id();
    let (packed, absmax) = (bytes(&vector.0["packed"]), floats(&vector.0["absmax"]));
    let (out_features, in_features) = (vector.number("N"), vector.number("K"));
    let blocksize = vector.blocksize().elements();
    let book = vector.book();
    let matrix = PackedMatrix { packed: &packed, absmax: &absmax, book, blocksize, in_features, out_features };
    let x = T::read(&vector.0["X"]);
    let row = &x[..in_features];

    let twin = gemv_4bit(matrix, row);
    let fast = fast::gemv::gemv_4bit(matrix, row).unwrap();
    assert_same(&fast, &twin, id);
    let expected = T::read(vector.expect("gemv_y0"));
    match T::FLOAT_TYPE {
        FloatType::Bf16 | FloatType::Fp16 => assert_same(&twin, &expected, id),
        FloatType::Fp32 => {
            for (got, expected) in twin.iter().zip(&expected) {
                let distance = got.widen().to_bits().abs_diff(expected.widen().to_bits());
                assert!(distance <= 2, "{id}: {distance} ulp");
            }
        }
    }

    let y = fast::matmul::matmul(matrix, &x).unwrap();
    let list = |key| vector.expect(key).as_array().unwrap().iter().map(|v| v.as_f64().unwrap());
    assert_eq!(y.len(), vector.number("batch") * out_features, "{id}");
    for (i, ((y, exact), tolerance)) in y.iter().zip(list("matmul_f64")).zip(list("matmul_tol")).enumerate() {
        let y = f64::from(y.widen());
        assert!((y - exact).abs() <= tolerance, "{id}: product {i} is {y}, exactly {exact} ± {tolerance}");
    }
}

fn check(vector: &Vector) {
    let by_format = |key: &str, [bf16, fp16, fp32]: [fn(&Vector); 3]| match vector.format(key) {
        FloatType::Bf16 => bf16(vector),
        FloatType::Fp16 => fp16(vector),
        FloatType::Fp32 => fp32(vector),
    };
    match vector.text("kind") {
        "q4" => by_format("input_dtype", [check_q4::<bf16>, check_q4::<f16>, check_q4::<f32>]),
        "q8" => check_q8(vector),
        "nested" => by_format("input_dtype", [check_nested::<bf16>, check_nested::<f16>, check_nested::<f32>]),
        "mm" => by_format("dtype", [check_mm::<bf16>, check_mm::<f16>, check_mm::<f32>]),
        other => panic!("{}: unknown kind {other}", vector.id()),
    }
}

#[test]
fn every_golden_vector_is_reproduced_to_the_bit() {
    let file = unpacked("vectors.json.gz");
    assert_eq!(file["format"], "bnb-golden-1");
    let mut passed = BTreeMap::<&str, usize>::new();
    for vector in file["vectors"].as_array().unwrap() {
        let vector = Vector(vector);
        check(&vector);
        *passed.entry(vector.0["kind"].as_str().unwrap()).or_default() += 1;
    }
    println!("golden vectors passed: {passed:?}");
    assert_eq!(passed, BTreeMap::from([("mm", 12), ("nested", 3), ("q4", 86), ("q8", 11)]));
}

#[test]
fn the_tables_have_the_recorded_bits() {
    let tables: Value = serde_json::from_slice(&read("tables.json")).unwrap();
    let recorded = |key: &str| -> Vec<u32> {
        let list = tables[key].as_array().unwrap();
        list.iter().map(|word| u32::from_str_radix(word.as_str().unwrap(), 16).unwrap()).collect()
    };
    let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|value| value.to_bits()).collect() };
    let map = dynamic_map();
    for (key, values) in [
        ("nf4", &CodeBook::Nf4.kernel_table()[..]),
        ("nf4", &CodeBook::Nf4.device_table()),
        ("fp4_kernel_lut", &CodeBook::Fp4.kernel_table()),
        ("fp4_device_code", &CodeBook::Fp4.device_table()),
        ("nf4_thresholds_ascending", &NF4_THRESHOLDS),
        ("fp4_mag_thresholds_ascending", &FP4_THRESHOLDS),
        ("dynamic8", &map),
        ("dynamic8_midpoints", &dynamic_midpoints(&map)),
    ] {
        assert_eq!(bits(values), recorded(key), "{key}");
    }
    let by_count: Vec<u64> = FP4_INDEX_BY_COUNT.into_iter().map(u64::from).collect();
    let recorded = tables["fp4_mag_index_by_count"].as_array().unwrap().iter().map(|i| i.as_u64().unwrap());
    assert!(recorded.eq(by_count));
}

/// Where a recorded GPU packed other nibbles than the exact reciprocal gives, the rule for GPUs admits them.
#[test]
fn what_a_gpu_packed_differently_is_admitted_and_nothing_else_is() {
    let vectors = unpacked("vectors.json.gz");
    let mut inputs = BTreeMap::new();
    for vector in vectors["vectors"].as_array().unwrap() {
        inputs.insert(vector["id"].as_str().unwrap(), vector);
    }
    let observed = unpacked("cuda.json.gz");
    let mut different = 0;
    for record in observed["vectors"].as_array().unwrap() {
        let Some(packed) = record["cuda"].get("packed").filter(|packed| *packed != "equal") else { continue };
        let vector = Vector(inputs[record["id"].as_str().unwrap()]);
        let (input, blocksize) = (floats(&vector.0["input"]), vector.blocksize().elements());
        let (packed, absmax) = (bytes(packed), floats(vector.expect("absmax")));
        for (k, x) in input.iter().enumerate() {
            let (index, absmax) = (nibble(&packed, k), absmax[k / blocksize]);
            assert!(accepts(*x, absmax, vector.book(), index, Reciprocal::WithinOneUlp), "{} {k}", vector.id());
            if !accepts(*x, absmax, vector.book(), index, Reciprocal::Exact) {
                assert!(vector.marked("rcp_sensitive").contains(&k), "{} {k}", vector.id());
                different += 1;
            }
        }
    }
    assert_eq!(different, 6);
}
