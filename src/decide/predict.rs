//! The peak memory that a cell's own allocation program predicts.
//!
//! Translates settings into the program's words and back into the plan's; the counting is the model's.

use std::collections::HashMap;

use crate::decide::plan::PredictedPeak;
use crate::model::linear4bit_program::{self, DeviceModel, Linear4bitMemory};
use crate::model::settings::Settings;

/// Predicts many cells, of which most differ in nothing that memory depends on.
#[derive(Debug, Default)]
pub struct Predictor {
    known: HashMap<Linear4bitMemory, Option<PredictedPeak>>,
}

impl Predictor {
    /// The same as [`predict`].
    pub fn predict(&mut self, settings: &Settings) -> Option<PredictedPeak> {
        let memory = memory_of(settings, DeviceModel::ORIN)?;
        self.known.entry(memory).or_insert_with_key(peak_of).clone()
    }
}

/// The peaks of a trial with `settings` on a Jetson Orin, in bytes, if its requests are known before it runs.
///
/// Commands make requests of their own, and some settings have none that is described
/// (see [`linear4bit_program::NotModelled`]): nothing is predicted for them.
pub fn predict(settings: &Settings) -> Option<PredictedPeak> {
    predict_on(settings, DeviceModel::ORIN)
}

/// The same on another device.
pub fn predict_on(settings: &Settings, device: DeviceModel) -> Option<PredictedPeak> {
    peak_of(&memory_of(settings, device)?)
}

fn memory_of(settings: &Settings, device: DeviceModel) -> Option<Linear4bitMemory> {
    Linear4bitMemory::of_workload(&settings.workload, settings.iterations, device).ok()
}

fn peak_of(memory: &Linear4bitMemory) -> Option<PredictedPeak> {
    let peak = linear4bit_program::predict(memory).ok()?;
    Some(PredictedPeak {
        allocated_bytes: peak.peak_allocated,
        reserved_bytes: peak.peak_reserved,
        host_plus_reserved_bytes: peak.peak_host_plus_reserved,
        at: memory.stage_name(peak.at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::{
        AllocatorKind, CommandSettings, Init, KernelSet, Layer, Linear4bitSettings, QuantType, Shape, StackSettings,
        WorkloadSettings,
    };

    fn abc() -> Linear4bitSettings {
        let layer = |label: &str, i, o| Layer { label: label.into(), shape: Shape::new(i, o).unwrap() };
        Linear4bitSettings::of(vec![layer("A", 4096, 32_768), layer("B", 4096, 128_256), layer("C", 3584, 152_064)])
    }

    fn of(linear4bit: Linear4bitSettings) -> Option<PredictedPeak> {
        predict(&Settings::of(WorkloadSettings::Linear4bit(linear4bit)))
    }

    #[test]
    fn the_sequence_of_issue_1936_peaks_at_the_allocation_of_its_third_weight() {
        let peak = of(abc()).unwrap();
        assert_eq!((peak.allocated_bytes, peak.reserved_bytes), (2_870_879_232, 4_909_432_832));
        assert_eq!((peak.host_plus_reserved_bytes, peak.at.as_str()), (7_089_422_336, "C.alloc"));
        let warm = Linear4bitSettings { warmup: Some("256x256".parse().unwrap()), ..abc() };
        assert_eq!(of(warm).unwrap().allocated_bytes, 2_870_915_584);
        let allocations_only = Linear4bitSettings { kernels: KernelSet::None, ..abc() };
        assert_eq!(of(allocations_only).unwrap(), peak);
    }

    #[test]
    fn iterations_are_predicted_too() {
        let once = Settings::of(WorkloadSettings::Linear4bit(abc()));
        let twice = Settings { iterations: 2, ..once.clone() };
        assert!(predict(&twice).unwrap().allocated_bytes > predict(&once).unwrap().allocated_bytes + 600_000_000);
    }

    #[test]
    fn a_stack_keeps_every_packed_layer_and_peaks_where_its_last_weight_comes() {
        let stack = |layers, quant| {
            let block = Linear4bitSettings { quant, ..abc() };
            let head = vec![Layer { label: "head".into(), shape: Shape::new(4096, 1024).unwrap() }];
            let stack = StackSettings { block, head, layers };
            predict(&Settings::of(WorkloadSettings::Stack(stack))).unwrap()
        };
        let (one, two) = (stack(1, QuantType::Nf4), stack(2, QuantType::Nf4));
        // The packed weights of A, B and C, and an eighth of a byte for each of the statistics.
        let weights = abc().sequence.iter().map(|layer| layer.shape.weights()).sum::<u64>();
        let kept = two.allocated_bytes - one.allocated_bytes;
        assert!(kept > weights / 2 && kept < weights / 2 + weights / 50, "{kept} of {weights}");
        assert_eq!((one.at.as_str(), two.at.as_str()), ("L00.C.alloc", "L01.C.alloc"));
        // A scale of one byte for 16 weights instead of one and a bit for 64.
        let nvfp4 = stack(1, QuantType::Nvfp4);
        assert_eq!(nvfp4.at, "L00.C.alloc");
        assert!(nvfp4.reserved_bytes > 0);
    }

    #[test]
    fn nothing_is_predicted_for_what_is_not_described() {
        for settings in [
            Linear4bitSettings { allocator: AllocatorKind::Vmm, ..abc() },
            Linear4bitSettings { quant: QuantType::Int4, ..abc() },
            Linear4bitSettings { init: Init::Device, ..abc() },
            Linear4bitSettings { kernels: KernelSet::Tuned, ..abc() },
        ] {
            assert_eq!(of(settings), None);
        }
        assert_eq!(predict(&Settings::of(WorkloadSettings::Command(CommandSettings::default()))), None);
        let endless = Settings { iterations: 1_000_000, ..Settings::of(WorkloadSettings::Linear4bit(abc())) };
        assert_eq!(predict(&endless), None);
    }
}
