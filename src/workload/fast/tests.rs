//! The fast code has the bits of the twins, on ordinary and on hostile values.

use half::{bf16, f16};
use proptest::prelude::*;

use super::rounding::FastElement;
use super::*;
use crate::model::settings::Blocksize;
use crate::workload::reference;
use crate::workload::reference::codebook::CodeBook;
use crate::workload::reference::gemv_4bit::PackedMatrix;
use crate::workload::reference::numbers::Element;
use crate::workload::reference::quantize_4bit::Quantized;

/// Ordinary weights, and now and then any bit pattern: subnormals, infinities, NaN, huge values.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        60 => -1f32..1f32,
        20 => (-1f32..1f32).prop_map(|v| v * 1e-3),
        4 => Just(0f32),
        1 => any::<u32>().prop_map(f32::from_bits),
        1 => (-1f32..1f32).prop_map(|v| v * f32::MIN_POSITIVE * 4.0),
    ]
}

/// Values of which some whole blocks are tiny, huge or all zero.
fn values(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f32>> {
    let scale = prop_oneof![8 => Just(1f32), 1 => Just(1e-38), 1 => Just(3e38), 1 => Just(0f32)];
    (proptest::collection::vec(value(), len), proptest::collection::vec(scale, 8)).prop_map(|(mut values, scales)| {
        for (i, value) in values.iter_mut().enumerate() {
            *value *= scales[i / 64 % 8];
        }
        values
    })
}

fn blocksize() -> impl Strategy<Value = Blocksize> {
    (5u32..=12).prop_map(|log2| Blocksize::new(1 << log2).unwrap())
}

fn book() -> impl Strategy<Value = CodeBook> {
    prop_oneof![Just(CodeBook::Nf4), Just(CodeBook::Fp4)]
}

/// Bits with every NaN made equal: a payload carries no meaning.
fn bits<T: Element>(values: &[T]) -> Vec<u32> {
    let canonical = |value: f32| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() };
    values.iter().map(|value| canonical(value.widen())).collect()
}

fn check_quantize<T: Element + Default>(values: &[f32], book: CodeBook, blocksize: Blocksize) {
    let x: Vec<T> = values.iter().map(|value| T::round(*value)).collect();
    let twin = reference::quantize_4bit::quantize_4bit(&x, book, blocksize.elements());
    let fast = quantize::quantize_4bit(&x, book, blocksize).unwrap();
    assert_eq!(fast.packed, twin.packed);
    assert_eq!(bits(&fast.absmax), bits(&twin.absmax));
    let n = x.len();
    let twin =
        reference::dequantize_4bit::dequantize_4bit::<T>(&fast.packed, &fast.absmax, book, blocksize.elements(), n);
    assert_eq!(bits(&dequantize::dequantize_4bit::<T>(&fast, book, blocksize, n).unwrap()), bits(&twin));
}

fn check_gemv<T: FastElement + Default>(matrix: PackedMatrix<'_>, x: &[f32]) {
    let x: Vec<T> = x.iter().map(|value| T::round(*value)).collect();
    let twin = reference::gemv_4bit::gemv_4bit(matrix, &x);
    assert_eq!(bits(&gemv::gemv_4bit(matrix, &x).unwrap()), bits(&twin));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn quantising_and_back_has_the_bits_of_the_twin(
        values in values(0..2500), book in book(), blocksize in blocksize(),
    ) {
        check_quantize::<f32>(&values, book, blocksize);
        check_quantize::<bf16>(&values, book, blocksize);
        check_quantize::<f16>(&values, book, blocksize);
    }

    #[test]
    fn nesting_and_back_has_the_bits_of_the_twin(values in values(1..1500)) {
        let (twin, fast) = (reference::quantize_8bit::nest(&values), nested::nest(&values).unwrap());
        prop_assert_eq!(bits(&[fast.offset]), bits(&[twin.offset]));
        prop_assert_eq!(&fast.quantized.codes, &twin.quantized.codes);
        prop_assert_eq!(bits(&fast.quantized.absmax2), bits(&twin.quantized.absmax2));
        let restored = nested::restore(&fast).unwrap();
        prop_assert_eq!(bits(&restored), bits(&reference::quantize_8bit::restore(&twin)));
    }

    #[test]
    fn a_fused_row_has_the_bits_of_the_twin(
        blocks in 1usize..40, rows in 1usize..5, book in book(), log2 in 5u32..=12,
        seed in any::<u64>(), x in values(1..2), tiny in any::<bool>(),
    ) {
        // Long rows of short blocks and short rows of long ones, across the 1024 elements of a chunk.
        let blocksize = 1usize << log2;
        let in_features = blocksize * (blocks * 64 / blocksize).max(1);
        let stream = reference::philox_init::Stream {
            seed, number: 0, purpose: reference::philox_init::Purpose::Weight,
        };
        let n = in_features * rows;
        let packed: Vec<u8> = (0..n as u64 / 2).map(|i| stream.words(i)[0] as u8).collect();
        let scale = if tiny { 1e-37 } else { 0.02 };
        let absmax: Vec<f32> =
            (0..n / blocksize).map(|b| scale * (1 + stream.words(b as u64)[1] % 1000) as f32 / 1000.0).collect();
        let mut input: Vec<f32> =
            (0..in_features as u64).map(|i| reference::philox_init::activation(stream, i)).collect();
        // One value of any kind somewhere in the row.
        input[seed as usize % in_features] = x[0];
        let matrix = PackedMatrix { packed: &packed, absmax: &absmax, book, blocksize, in_features, out_features: rows };
        check_gemv::<bf16>(matrix, &input);
        check_gemv::<f16>(matrix, &input);
        check_gemv::<f32>(matrix, &input);
    }
}

#[test]
fn a_tensor_of_many_tasks_has_the_bits_of_the_twin() {
    let source =
        reference::philox_init::Stream { seed: 3, number: 0, purpose: reference::philox_init::Purpose::Weight };
    let quads = (0..TASK_ELEMENTS as u64).flat_map(|i| reference::philox_init::weight_quad(source, i, 1e-9));
    let x: Vec<f32> = quads.take(3 * TASK_ELEMENTS + 77).collect();
    for book in CodeBook::ALL {
        for log2 in 5..=12 {
            check_quantize::<f32>(&x, book, Blocksize::new(1 << log2).unwrap());
        }
    }
    let absmax: Vec<f32> = x.iter().map(|x| x.abs()).collect();
    let (twin, fast) = (reference::quantize_8bit::nest(&absmax), nested::nest(&absmax).unwrap());
    assert_eq!(twin, fast);
    assert_eq!(reference::quantize_8bit::restore(&twin), nested::restore(&fast).unwrap());
}

#[test]
fn ties_and_their_neighbours_have_the_bits_of_the_twin() {
    use reference::codebook::{FP4_THRESHOLDS, NF4_THRESHOLDS, dynamic_map, dynamic_midpoints};
    let around = |ties: &[f32]| -> Vec<f32> {
        // The absmax is 1, so that scaling changes no bit and every tie stays one.
        let all = ties.iter().flat_map(|t| [*t, t.next_up(), t.next_down(), -t]);
        std::iter::once(1.0).chain(all).collect()
    };
    let blocksize = Blocksize::new(64).unwrap();
    check_quantize::<f32>(&around(&NF4_THRESHOLDS), CodeBook::Nf4, blocksize);
    check_quantize::<f32>(&around(&FP4_THRESHOLDS), CodeBook::Fp4, blocksize);
    for midpoints in dynamic_midpoints(&dynamic_map()).chunks(50) {
        let values = around(midpoints);
        assert_eq!(nested::quantize_8bit(&values).unwrap(), reference::quantize_8bit::quantize_8bit(&values));
    }
}

#[test]
fn the_product_of_many_rows_is_that_of_the_dequantised_weight() {
    // 21 inputs: rows begin in the middle of bytes and of blocks.
    let (in_features, out_features, rows) = (21usize, 19usize, 3usize);
    let n = in_features * out_features;
    let packed: Vec<u8> = (0..n.div_ceil(2)).map(|i| (i * 37 + 11) as u8).collect();
    let absmax: Vec<f32> = (0..n.div_ceil(32)).map(|b| 0.5 + b as f32 * 0.1).collect();
    let quantized = Quantized { packed: packed.clone(), absmax: absmax.clone() };
    let weight = reference::dequantize_4bit::dequantize_4bit::<f32>(&packed, &absmax, CodeBook::Fp4, 32, n);
    assert_eq!(
        bits(&dequantize::dequantize_4bit::<f32>(&quantized, CodeBook::Fp4, Blocksize::new(32).unwrap(), n).unwrap()),
        bits(&weight)
    );
    let x: Vec<bf16> = (0..rows * in_features).map(|i| bf16::from_f32((i as f32 * 0.7).sin())).collect();
    let matrix = PackedMatrix {
        packed: &packed,
        absmax: &absmax,
        book: CodeBook::Fp4,
        blocksize: 32,
        in_features,
        out_features,
    };
    let y = matmul::matmul(matrix, &x).unwrap();
    assert_eq!(y.len(), rows * out_features);
    for (i, y) in y.iter().enumerate() {
        let (row, output) = (i / out_features, i % out_features);
        let (mut expected, mut magnitude) = (0.0, 0.0);
        for k in 0..in_features {
            let w = bf16::from_f32(weight[output * in_features + k]).to_f64();
            expected += w * x[row * in_features + k].to_f64();
            magnitude += (w * x[row * in_features + k].to_f64()).abs();
        }
        // 16 sums of at most two terms and four pairwise steps, then one rounding to bf16.
        let tolerance = magnitude * 8.0 * 2f64.powi(-24) + expected.abs() * 2f64.powi(-8);
        assert!((y.to_f64() - expected).abs() <= tolerance, "({row}, {output}): {y} {expected}");
    }
}
