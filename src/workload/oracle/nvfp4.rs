//! The oracle of NVFP4: sampled groups against the twin, and the scale of the tensor against what all weights allow.

use super::{Kept, Mismatch, check_outputs, first_error, weights_of};
use crate::workload::kept::StoredScales;
use crate::workload::reference::nvfp4::{
    GROUP, e2m1_of, e2m1_value, e4m3_value, global_scale, group_scale, largest_magnitude, nibble,
};
use crate::workload::reference::philox_init::weight_scale;

/// The numerators of the bound on how far the largest of n uniform magnitudes lies below their limit: it is more than
/// 30/n below with a probability of e^-30.
const SHORTFALL: f64 = 30.0;

/// Checks sampled rows of a layer.
pub(super) fn check(kept: Kept<'_>, scales: StoredScales<'_>, rows: &[usize]) -> Result<(), Mismatch> {
    check_global(kept, scales.global, rows)?;
    first_error(rows, |row| check_row(kept, scales, row))?;
    first_error(rows, |row| check_outputs(kept, row, &row_in_f64(kept, scales, row)))
}

/// The scale of the tensor is that of its largest weight, which is not known without all of them: at least the largest
/// of the sampled rows, and as near to the limit of the uniform weights as the largest of so many must be.
fn check_global(kept: Kept<'_>, got: f32, rows: &[usize]) -> Result<(), Mismatch> {
    let (source, width) = (kept.source, kept.spec.shape.width());
    let sampled = rows
        .iter()
        .map(|&row| largest_magnitude(&weights_of(source, row * width..(row + 1) * width)))
        .fold(0.0, f32::max);
    let is_all = rows.len() == kept.spec.shape.height();
    let limit = 16_777_215.0 * weight_scale(width);
    let likely = f64::from(limit) * (1.0 - SHORTFALL / kept.spec.shape.elements() as f64);
    let lowest = global_scale(if is_all { sampled } else { sampled.max(likely as f32) });
    let highest = global_scale(if is_all { sampled } else { limit });
    let right = (lowest..=highest).contains(&got);
    if right { Ok(()) } else { Err(Mismatch::Global { lowest, highest, got }) }
}

/// Scales and packed bytes of one row.
fn check_row(kept: Kept<'_>, scales: StoredScales<'_>, row: usize) -> Result<(), Mismatch> {
    let width = kept.spec.shape.width();
    let weights = weights_of(kept.source, row * width..(row + 1) * width);
    for (i, group) in weights.as_chunks::<GROUP>().0.iter().enumerate() {
        let index = row * width / GROUP + i;
        let (expected, got) = (group_scale(largest_magnitude(group), scales.global), scales.scales.at(index));
        if expected != got {
            return Err(Mismatch::Scale { index, expected, got });
        }
        let divisor = e4m3_value(got) * scales.global;
        for (j, pair) in group.as_chunks::<2>().0.iter().enumerate() {
            let index = (row * width + i * GROUP) / 2 + j;
            let expected = e2m1_of(pair[0] / divisor) | e2m1_of(pair[1] / divisor) << 4;
            let got = kept.packed.at(index);
            if expected != got {
                return Err(Mismatch::Packed { index, row, expected, got, xor: expected ^ got });
            }
        }
    }
    Ok(())
}

/// One row of the weight by definition: `e2m1 * scale * global` in f64.
fn row_in_f64(kept: Kept<'_>, scales: StoredScales<'_>, row: usize) -> Vec<f64> {
    let width = kept.spec.shape.width();
    let weight = |k: usize| {
        let index = nibble(&[kept.packed.at(k / 2)], k % 2);
        let scale = e4m3_value(scales.scales.at(k / GROUP));
        f64::from(e2m1_value(index)) * f64::from(scale) * f64::from(scales.global)
    };
    (row * width..(row + 1) * width).map(weight).collect()
}
