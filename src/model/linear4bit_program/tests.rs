//! What the recorded references do not reach: rare settings, refusals, and any settings at all.

use proptest::prelude::*;

use super::*;
use crate::model::allocator::{AccountingSegments, AllocError, CachingAllocator, Usage};

fn layer(label: &str, in_features: u32, out_features: u32) -> Layer {
    Layer { label: label.into(), shape: Shape::new(in_features, out_features).unwrap() }
}

/// The shapes of the seed report.
fn baseline(labels: &str) -> Linear4bitMemory {
    let shape = |label| match label {
        'A' => layer("A", 4096, 32_768),
        'B' => layer("B", 4096, 128_256),
        'C' => layer("C", 3584, 152_064),
        other => panic!("no shape {other}"),
    };
    Linear4bitMemory::baseline(labels.chars().map(shape).collect())
}

fn hygiene(text: &str) -> Hygiene {
    text.parse().unwrap()
}

fn gc(text: &str) -> Gc {
    text.parse().unwrap()
}

fn account_of(memory: &Linear4bitMemory) -> Account {
    account(memory, &mut CachingAllocator::new(AccountingSegments::unlimited())).unwrap()
}

/// The requests of one layer's stage, with their bytes, in their order.
fn requests(memory: &Linear4bitMemory, layer: u32, stage: LayerStage) -> Vec<(Role, u64)> {
    let request = |step: &Step| match step.operation {
        Operation::Alloc { buffer, bytes } => Some((buffer.role, bytes)),
        Operation::HostAlloc { .. }
        | Operation::HostFree { .. }
        | Operation::Free { .. }
        | Operation::HostToDevice { .. }
        | Operation::DeviceToDevice { .. }
        | Operation::Memset { .. }
        | Operation::Launch { .. }
        | Operation::EmptyCache
        | Operation::Synchronize => None,
    };
    let here = |step: &&Step| step.layer == LayerIndex(layer) && step.stage == stage;
    memory.steps().iter().filter(here).filter_map(request).collect()
}

#[test]
fn the_stages_of_a_layer_come_in_the_order_of_the_glossary_and_hygiene_only_where_asked() {
    let memory = Linear4bitMemory { hygiene: Hygiene::Each, ..baseline("CC") };
    let mut stages: Vec<_> = memory.steps().iter().map(|step| (step.layer.0, step.stage.to_string())).collect();
    stages.dedup();
    let all = ["construct", "alloc", "copy", "quantize", "free_host", "forward", "sync", "hygiene"];
    let expected = all.iter().map(|stage| (0, stage.to_string())).chain(all[..7].iter().map(|s| (1, s.to_string())));
    assert_eq!(stages, expected.collect::<Vec<_>>());
}

#[test]
fn a_collection_frees_every_layer_dropped_until_then_and_none_is_freed_before() {
    let kept = |gc| account_of(&Linear4bitMemory { gc, ..baseline("ABCA") }).rows.allocated();
    let never = kept(Gc::Never);
    let at_b = kept(gc("after:B"));
    assert_eq!(at_b[..2], never[..2], "A outlives its own drop while only B's drop collects");
    // A and B are 69,240,832 and 271,011,328 bytes of blocks and die together when C is bound.
    assert!(never[2] - at_b[2] > 69_000_000 + 271_000_000, "{never:?} {at_b:?}");
    let each = kept(Gc::Each);
    assert!(each[1] < never[1] && each[2].abs_diff(at_b[2]) < 2 << 20);
}

trait Allocated {
    fn allocated(&self) -> Vec<u64>;
}

impl Allocated for Vec<LayerRow> {
    fn allocated(&self) -> Vec<u64> {
        self.iter().map(|row| row.usage.allocated).collect()
    }
}

#[test]
fn hygiene_does_its_steps_in_the_order_given() {
    let reserved = |steps: &[HygieneStep]| {
        let steps = steps.to_vec();
        let memory =
            Linear4bitMemory { hygiene: hygiene("after:A"), hygiene_steps: steps, gc: Gc::Each, ..baseline("AB") };
        account_of(&memory).rows[0].reserved_after_hygiene
    };
    use HygieneStep::{Drop, EmptyCache, Sync};
    assert_eq!(reserved(&[Drop, EmptyCache, Sync]), Some(2 << 20), "only the small segment is in use");
    assert_eq!(reserved(&[EmptyCache, Drop]), Some(90_177_536), "the layer was alive when the cache was returned");
    assert_eq!(reserved(&[Sync]), Some(627_048_448));
}

#[test]
fn hygiene_after_a_label_is_done_at_each_layer_of_that_label_and_each_spares_the_last() {
    let done = |hygiene, labels| {
        let memory = Linear4bitMemory { hygiene, ..baseline(labels) };
        account_of(&memory).rows.iter().map(|row| row.reserved_after_hygiene.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(done(hygiene("after:C"), "CAC"), [true, false, true]);
    assert_eq!(done(Hygiene::Each, "CAC"), [true, true, false]);
}

#[test]
fn one_row_that_ends_inside_a_block_takes_the_dense_path() {
    // 3584 is no multiple of 1024, so that no fused kernel serves it.
    let memory = Linear4bitMemory { blocksize: Blocksize::new(1024).unwrap(), ..baseline("C") };
    let n = 3584 * 152_064;
    let expected = [
        (Role::Input, 7168),
        (Role::DecodedAbsmax, n / 1024 * 4),
        (Role::DequantizedWeight, n * 4),
        (Role::WeightCast, n * 2),
        (Role::Output, 304_128),
        (Role::BlasWorkspace, 8_519_680),
    ];
    assert_eq!(requests(&memory, 0, LayerStage::Forward), expected);
    let dims = Some(LaunchDims { grid: n / 1024, block: 256 });
    let quantize = Operation::Launch { kernel: Kernel::Quantize4bit, dims };
    assert!(memory.steps().iter().any(|step| step.operation == quantize));
}

#[test]
fn a_compute_type_other_than_the_inputs_casts_the_input_and_the_result() {
    let memory = Linear4bitMemory { compute: FloatType::Fp32, double_quant: false, ..baseline("A") };
    let one_row =
        [(Role::Input, 8192), (Role::InputCast, 16_384), (Role::OutputBeforeCast, 131_072), (Role::Output, 65_536)];
    assert_eq!(requests(&memory, 0, LayerStage::Forward), one_row);
    let batched = Linear4bitMemory { batch: Batch::new(2).unwrap(), ..memory };
    let roles: Vec<_> = requests(&batched, 0, LayerStage::Forward).iter().map(|&(role, _)| role).collect();
    assert!(!roles.contains(&Role::WeightCast), "fp32 weights are multiplied as they are");
}

#[test]
fn the_warm_up_comes_first_under_its_own_name_and_makes_what_the_process_shares() {
    let memory = Linear4bitMemory { warm_up: Some(Shape::WARM_UP), ..baseline("A") };
    let makers: Vec<_> = (0..2)
        .filter(|&layer| requests(&memory, layer, LayerStage::Quantize).iter().any(|&(r, _)| r == Role::DynamicMap))
        .collect();
    assert_eq!(makers, [0]);
    let site = |layer| Site { layer: LayerIndex(layer), stage: LayerStage::Copy, role: Role::Weight };
    assert_eq!((memory.stage_name(site(0)), memory.stage_name(site(1))), ("warmup.copy".into(), "A.copy".into()));
}

#[test]
fn a_refused_segment_makes_the_cache_go_and_the_program_come_to_its_end() {
    // One byte less than ABC would reserve: B's cached fp32 segment goes when C asks, which comes
    // to the same as hygiene between B and C.
    let mut tight = CachingAllocator::new(AccountingSegments::with_capacity(4_909_432_831));
    let peak = account(&baseline("ABC"), &mut tight).unwrap().peak;
    let tidy = predict(&Linear4bitMemory { hygiene: hygiene("after:B"), ..baseline("ABC") }).unwrap();
    assert_eq!((peak.peak_allocated, peak.peak_reserved), (tidy.peak_allocated, tidy.peak_reserved));
    assert_eq!(peak.peak_reserved, 3_080_716_288);
}

#[test]
fn a_program_that_runs_out_says_where_it_was() {
    let mut small = CachingAllocator::new(AccountingSegments::with_capacity(2_400_000_000));
    let error = account(&baseline("ABC"), &mut small).unwrap_err();
    let site = Site { layer: LayerIndex(1), stage: LayerStage::Quantize, role: Role::Packed };
    assert_eq!(error.site, site);
    let AllocError::OutOfMemory { requested, segment, usage } = error.source;
    assert_eq!((requested, segment), (262_668_288, 264_241_152));
    // Live then: what A keeps, with its input and result, and B's fp32 weight and block maxima.
    // The latter took a segment of 32 MiB whole, as A's had gone when B's weight was first refused.
    assert_eq!(usage.allocated, 69_315_584 + 2_101_346_304 + 33_554_432);
}

#[test]
fn the_direct_policy_holds_exactly_the_bytes_asked_for() {
    let memory = Linear4bitMemory { allocator: AllocatorKind::Direct, ..baseline("C") };
    let (n, nb, nb2) = (544_997_376, 8_515_584, 33_264);
    let codes = 64 + 1024 + 1024;
    let peak = predict(&memory).unwrap();
    assert_eq!(peak.peak_allocated, 4 * n + n / 2 + 2 * 4 * nb + nb + 4 * nb2 + 4 + codes);
    assert_eq!(peak.peak_reserved, peak.peak_allocated);
    assert_eq!(peak.peak_host_plus_reserved, peak.peak_allocated + 4 * n);
}

#[test]
fn a_label_that_comes_again_is_numbered_and_iterations_have_the_same_names() {
    let warm = Linear4bitMemory { warm_up: Some(Shape::WARM_UP), iterations: 2, ..baseline("CAC") };
    let names: Vec<String> = (0..7).map(|index| warm.layer_name(LayerIndex(index))).collect();
    assert_eq!(names, ["warmup", "C", "A", "C#2", "C", "A", "C#2"]);
    assert_eq!(warm.layer_count(), 7);
    let site = Site { layer: LayerIndex(6), stage: LayerStage::FreeHost, role: Role::Weight };
    assert_eq!((warm.stage_name(site).as_str(), warm.label(site.layer)), ("C#2.free_host", "C"));
    assert_eq!(warm.place(LayerIndex(6)), Place::Sequence { iteration: 1, position: 2 });
}

#[test]
fn iterations_leave_their_layers_behind_unless_they_are_collected() {
    let kept = |gc, iterations| {
        let memory = Linear4bitMemory { gc, iterations, ..baseline("AC") };
        account_of(&memory).rows.last().unwrap().usage.allocated
    };
    let grown = kept(Gc::Never, 3) - kept(Gc::Never, 1);
    // Twice what A and C keep: 69,240,832 and 281,276,928 bytes of blocks, with the inputs and results apart.
    assert!(grown.abs_diff(2 * (69_240_832 + 281_276_928)) < 4 << 20, "{grown}");
    assert!(kept(Gc::Each, 3).abs_diff(kept(Gc::Each, 1)) < 4 << 20);
}

#[test]
fn the_collection_step_frees_what_was_dropped_whatever_the_axis_gc_says() {
    let after_a = |steps: &[HygieneStep]| {
        let hygiene_steps = steps.to_vec();
        let memory = Linear4bitMemory { hygiene: hygiene("after:A"), hygiene_steps, ..baseline("AB") };
        account_of(&memory).rows[0].reserved_after_hygiene
    };
    use HygieneStep::{Drop, EmptyCache, Gc, Sync};
    assert_eq!(after_a(&[Drop, Gc, EmptyCache]), Some(2 << 20), "only the small segment is in use");
    assert_eq!(after_a(&[Gc, Drop, EmptyCache, Sync]), Some(90_177_536), "it was not yet dropped");
}

#[test]
fn a_policy_of_the_drivers_own_gets_no_prediction() {
    for allocator in [AllocatorKind::Async, AllocatorKind::Vmm] {
        let memory = Linear4bitMemory { allocator, ..baseline("C") };
        assert_eq!(predict(&memory), Err(NotModelled::Allocator(allocator)));
    }
}

fn float() -> impl Strategy<Value = FloatType> {
    prop_oneof![Just(FloatType::Bf16), Just(FloatType::Fp16), Just(FloatType::Fp32)]
}

/// Nowhere, everywhere or after some labels, as the matrix writes it.
fn points(nowhere: &'static str) -> impl Strategy<Value = String> {
    let labels = prop::collection::vec("[A-C]", 1..3).prop_map(|labels| format!("after:{}", labels.join(",")));
    prop_oneof![Just(nowhere.to_owned()), Just("each".to_owned()), labels]
}

prop_compose! {
    fn any_memory()(
        sequence in prop::collection::vec(("[A-C]", 1..6000_u32, 1..6000_u32), 1..6),
        (warm_up, double_quant) in any::<(bool, bool)>(),
        (rows, blocksize) in (1..4_u32, prop::sample::select(&Blocksize::ALLOWED[..])),
        (input, compute) in (float(), float()),
        (hygiene, gc) in (points("none").prop_map(|text| hygiene(&text)), points("never").prop_map(|text| gc(&text))),
        hygiene_steps in prop::sample::subsequence(HygieneStep::ALL, 0..=4),
        iterations in 1..3_u32,
    ) -> Linear4bitMemory {
        Linear4bitMemory {
            warm_up: warm_up.then_some(Shape::WARM_UP),
            batch: Batch::new(rows).unwrap(),
            blocksize: Blocksize::new(blocksize).unwrap(),
            hygiene_steps: hygiene_steps.clone(),
            input, compute, double_quant, hygiene, gc, iterations,
            ..Linear4bitMemory::baseline(sequence.iter().map(|(label, i, o)| layer(label, *i, *o)).collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// The accountant itself panics when a buffer is allocated twice or freed without being there.
    #[test]
    fn any_settings_give_a_balanced_program_and_ordered_peaks(memory in any_memory()) {
        let Account { rows, peak } = account_of(&memory);
        prop_assert_eq!(rows.len() as u64, memory.layer_count());
        prop_assert_eq!(predict(&memory), Ok(peak));
        prop_assert!(peak.peak_allocated <= peak.peak_reserved);
        prop_assert!(peak.peak_reserved <= peak.peak_host_plus_reserved);
        for row in &rows {
            let Usage { allocated, reserved } = row.usage;
            prop_assert!(allocated <= row.peak.peak_allocated && reserved <= row.peak.peak_reserved);
            prop_assert!(row.peak_after_construct <= row.peak.peak_allocated);
        }
        let direct = Linear4bitMemory { allocator: AllocatorKind::Direct, ..memory };
        prop_assert!(predict(&direct).unwrap().peak_allocated <= peak.peak_allocated, "rounding only adds");
    }
}
