//! The oracle accepts what the layer computes and sees every kind of corruption.

use super::*;
use crate::model::settings::{Blocksize, Shape, Storage};
use crate::workload::host_weight::HostWeight;
use crate::workload::host_weight::WeightSource;
use crate::workload::kept::{Columns, Sample, StoredRows};
use crate::workload::layer::ForwardPath;
use crate::workload::layer::{Layer, Statistics};
use crate::workload::reference::codebook::CodeBook;
use crate::workload::reference::quantize_8bit::Nested;
use crate::workload::rows::Rows;
use crate::workload::rows::Words;
use crate::workload::spec::LayerSpec;
use crate::workload::spec::StatisticsKind;

struct Case {
    layer: Layer,
    x: Rows,
    y: Rows,
}

fn spec(in_features: u32, out_features: u32) -> LayerSpec {
    LayerSpec {
        shape: Shape::new(in_features, out_features).unwrap(),
        format: nested(),
        storage: Storage::Bf16,
        compute: Some(FloatType::Bf16),
    }
}

fn nested() -> WeightFormat {
    blockwise(CodeBook::Nf4, StatisticsKind::Nested, 64)
}

fn blockwise(book: CodeBook, statistics: StatisticsKind, blocksize: u32) -> WeightFormat {
    WeightFormat::Blockwise(Blockwise { book, blocksize: Blocksize::new(blocksize).unwrap(), statistics })
}

fn case(spec: LayerSpec, batch: usize) -> Case {
    let source = WeightSource { shape: spec.shape, seed: 1936, number: 1 };
    let host = HostWeight::construct(source).unwrap();
    let mut layer = Layer::quantize(&host, spec).unwrap();
    drop(host);
    let x = Rows::random(batch, spec.shape.width(), FloatType::Bf16, 1936, 1);
    let y = layer.forward(&x).unwrap();
    Case { layer, x, y }
}

fn sampling(rows: usize) -> Sampling {
    Sampling { seed: 5, rows, reciprocal: Reciprocal::Exact }
}

fn verdict(case: &Case) -> Result<Checked, Mismatch> {
    check(Kept::of(&case.layer, &case.x, &case.y), sampling(12))
}

/// A layer whose row 0 is sampled, checked with other statistics than it has.
fn with_statistics(case: &Case, change: impl Fn(&mut Statistics)) -> Result<Checked, Mismatch> {
    let mut statistics = case.layer.statistics().clone();
    change(&mut statistics);
    check(Kept { statistics: (&statistics).into(), ..Kept::of(&case.layer, &case.x, &case.y) }, sampling(12))
}

#[test]
fn every_setting_computes_what_the_oracle_expects() {
    let mut paths = BTreeSet::new();
    for (in_features, out_features, batch) in [(256, 100, 1), (320, 37, 3), (1000, 21, 1), (33, 15, 2)] {
        for book in CodeBook::ALL {
            for statistics in [StatisticsKind::Plain, StatisticsKind::Nested] {
                for compute in [FloatType::Bf16, FloatType::Fp16, FloatType::Fp32] {
                    for blocksize in [32, 64, 4096] {
                        let format = blockwise(book, statistics, blocksize);
                        let base = spec(in_features, out_features);
                        let spec = LayerSpec { format, compute: Some(compute), ..base };
                        let case = case(spec, batch);
                        paths.insert(case.layer.path(batch) == ForwardPath::Gemv);
                        assert_eq!(case.y.format(), FloatType::Bf16, "the output goes back to the input's format");
                        let checked = verdict(&case).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
                        assert_eq!((checked.rows, checked.outputs), (12, 12 * batch));
                    }
                }
            }
        }
    }
    assert_eq!(paths.len(), 2, "both paths were taken");
}

#[test]
fn one_flipped_bit_of_one_nibble_is_named_exactly() {
    for bit in 0..8 {
        let mut case = case(spec(256, 100), 1);
        // Byte 77 belongs to row 0, which is always sampled. The output is not computed again.
        let before = case.layer.packed()[77];
        case.layer.corrupt_packed(77, 1 << bit);
        let expected = Mismatch::Packed { index: 77, row: 0, expected: before, got: before ^ 1 << bit, xor: 1 << bit };
        assert_eq!(verdict(&case), Err(expected));
        // Even a layer that computes consistently with its corrupt byte is found out.
        case.y = case.layer.forward(&case.x).unwrap();
        assert_eq!(verdict(&case), Err(expected));
    }
}

#[test]
fn a_flip_in_the_last_row_is_seen_and_one_outside_the_sample_is_not() {
    let mut case = case(spec(256, 100), 1);
    let sampled = sampling(12).rows_of(100);
    let spared = (0..100).find(|row| !sampled.contains(row)).unwrap();
    case.layer.corrupt_packed(spared * 128, 0x10);
    assert!(verdict(&case).is_ok());
    case.layer.corrupt_packed(99 * 128 + 127, 0x01);
    assert!(matches!(verdict(&case), Err(Mismatch::Packed { index: 12_799, row: 99, xor: 1, .. })));
}

#[test]
fn a_changed_statistic_is_named() {
    let nested = case(spec(256, 100), 1);
    let change = |what: fn(&mut Nested)| {
        with_statistics(&nested, |statistics| match statistics {
            Statistics::Plain(_) | Statistics::Scaled { .. } => panic!("the case is nested"),
            Statistics::Nested(nested) => what(nested),
        })
    };
    assert!(matches!(change(|n| n.quantized.codes[2] ^= 1), Err(Mismatch::NestedCode { index: 2, .. })));
    assert!(matches!(change(|n| n.quantized.absmax2[0] *= 1.001), Err(Mismatch::NestedAbsmax { index: 0, .. })));
    assert!(matches!(change(|n| n.offset *= 1.1), Err(Mismatch::Offset { .. })));
    // A mean that is off by little passes for one, but then the nested absmax does not follow from it.
    assert!(matches!(change(|n| n.offset *= 1.000_01), Err(Mismatch::NestedAbsmax { .. })));
    assert!(matches!(change(|n| n.quantized.codes.truncate(3)), Err(Mismatch::Size { what: "absmax", .. })));

    let plain = case(LayerSpec { format: blockwise(CodeBook::Nf4, StatisticsKind::Plain, 64), ..spec(256, 100) }, 1);
    let changed = with_statistics(&plain, |statistics| match statistics {
        Statistics::Plain(absmax) => absmax[3] = absmax[3].next_up(),
        Statistics::Nested(_) | Statistics::Scaled { .. } => panic!("the case is plain"),
    });
    assert!(matches!(changed, Err(Mismatch::Absmax { index: 3, .. })));
}

#[test]
fn a_wrong_or_missing_output_is_named() {
    let mut case = case(spec(256, 100), 2);
    let good = case.y.widened();
    for wrong in [f32::NAN, f32::INFINITY, good[100] + 0.5] {
        let mut values = good.clone();
        values[100] = wrong;
        case.y = Rows::new(100, values).cast(FloatType::Bf16);
        assert!(matches!(verdict(&case), Err(Mismatch::Output { row: 1, index: 0, .. })));
    }
    case.y = Rows::new(100, good[..100].to_vec());
    assert!(matches!(verdict(&case), Err(Mismatch::Size { expected: 2, got: 1, .. })));
}

#[test]
fn the_sample_has_both_edges_and_depends_on_the_seed_only() {
    let rows = |seed| Sampling { seed, ..sampling(16) }.rows_of(1000);
    assert_eq!((rows(1).len(), rows(1)[0], rows(1)[15]), (16, 0, 999));
    assert_eq!(rows(1), rows(1));
    assert_ne!(rows(1), rows(2));
    assert_eq!(sampling(16).rows_of(3), [0, 1, 2]);
}

#[test]
fn the_tolerance_is_2_to_the_minus_7_for_bf16_and_less_for_finer_formats() {
    assert_eq!(relative_tolerance(FloatType::Bf16, 4096), 2f64.powi(-7));
    assert!(relative_tolerance(FloatType::Fp16, 4096) < 2f64.powi(-9));
    assert!(relative_tolerance(FloatType::Fp32, 4096) < 2f64.powi(-11));
}

#[test]
fn an_input_computed_in_another_format_comes_back_in_its_own() {
    let spec = LayerSpec { compute: None, ..spec(256, 100) };
    let mut case = case(spec, 1);
    // The first bf16 input settled the compute format.
    let x = case.x.cast(FloatType::Fp32);
    assert_eq!(case.layer.compute_for(FloatType::Fp32), FloatType::Bf16);
    let y = case.layer.forward(&x).unwrap();
    assert!(matches!(y.words(), Words::Fp32(_)));
    assert_eq!(y.widened(), case.y.widened());
}

#[test]
fn a_sample_of_a_layer_that_is_gone_is_judged_as_the_layer_was() {
    // Blocks that cross row ends, a partial last nested block, both kinds of statistics, several rows of input.
    for (in_features, statistics, batch) in
        [(256, StatisticsKind::Nested, 1), (100, StatisticsKind::Nested, 3), (1000, StatisticsKind::Plain, 2)]
    {
        let format = blockwise(CodeBook::Nf4, statistics, 64);
        let case = case(LayerSpec { format, ..spec(in_features, 333) }, batch);
        let columns = Columns::of(&case.y, sampling(12));
        let mut sample = Sample::of(&case.layer, sampling(12));
        let whole = Kept::of(&case.layer, &case.x, &case.y);
        let y = StoredRows::Columns(&columns);
        let kept = Kept { packed: sample.packed(), statistics: sample.statistics(), y, ..whole };
        assert_eq!(check(kept, sampling(12)), Ok(verdict(&case).unwrap()));
        sample.corrupt_first_byte(0x10);
        let kept = Kept { packed: sample.packed(), statistics: sample.statistics(), y, ..whole };
        assert!(matches!(check(kept, sampling(12)), Err(Mismatch::Packed { index: 0, row: 0, xor: 0x10, .. })));
    }
}

#[test]
fn nvfp4_is_examined_to_the_last_bit_of_each_of_its_parts() {
    for (in_features, out_features, batch) in [(256, 100, 1), (48, 7, 3), (1040, 40, 2)] {
        for compute in [FloatType::Bf16, FloatType::Fp16, FloatType::Fp32] {
            let base = spec(in_features, out_features);
            let case = case(LayerSpec { format: WeightFormat::Nvfp4, compute: Some(compute), ..base }, batch);
            let checked = verdict(&case).unwrap_or_else(|e| panic!("{in_features}: {e}"));
            assert_eq!(checked.outputs, checked.rows * batch);
            let sample = Sample::of(&case.layer, sampling(3));
            let y = Columns::of(&case.y, sampling(3));
            let whole = Kept::of(&case.layer, &case.x, &case.y);
            let (packed, statistics) = (sample.packed(), sample.statistics());
            let kept = Kept { packed, statistics, y: StoredRows::Columns(&y), ..whole };
            assert_eq!(check(kept, sampling(3)).map(|checked| checked.rows), Ok(3));
        }
    }
    let mut case = case(LayerSpec { format: WeightFormat::Nvfp4, ..spec(256, 100) }, 1);
    let wrong = |change: &dyn Fn(&mut Vec<u8>, &mut f32)| {
        with_statistics(&case, |statistics| match statistics {
            Statistics::Scaled { scales, global } => change(scales, global),
            Statistics::Plain(_) | Statistics::Nested(_) => panic!("nvfp4 has scales"),
        })
    };
    assert!(matches!(wrong(&|scales, _| scales[3] ^= 1), Err(Mismatch::Scale { index: 3, .. })));
    // The two readings of a global scale that differ in silence, and one that is a little too small.
    assert!(matches!(wrong(&|_, global| *global = 1.0 / *global), Err(Mismatch::Global { .. })));
    assert!(matches!(wrong(&|_, global| *global *= 0.99), Err(Mismatch::Global { .. })));
    assert!(matches!(wrong(&|scales, _| scales.truncate(1599)), Err(Mismatch::Size { what: "absmax", .. })));
    let plain = Statistics::Plain(vec![0.0; 1600]);
    let kept = Kept { statistics: (&plain).into(), ..Kept::of(&case.layer, &case.x, &case.y) };
    assert_eq!(check(kept, sampling(12)), Err(Mismatch::OtherFormat));
    case.layer.corrupt_packed(5, 0x30);
    assert!(matches!(verdict(&case), Err(Mismatch::Packed { index: 5, row: 0, xor: 0x30, .. })));
}
