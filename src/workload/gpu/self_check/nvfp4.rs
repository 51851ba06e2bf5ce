//! The kernels of NVFP4: every result is the twin's, bit for bit.

use half::{bf16, f16};

use super::{HEIGHT, ROWS, STREAM, SelfCheck, inputs, same, weights};
use crate::model::settings::Shape;
use crate::workload::gpu::driver::Plain;
use crate::workload::gpu::error::GpuError;
use crate::workload::gpu::kernels::Nvfp4Weight;
use crate::workload::gpu::tensor::Tensor;
use crate::workload::reference::numbers::Element;
use crate::workload::reference::nvfp4::{GROUP, Nvfp4, Nvfp4Matrix, dequantize, product, quantize};

/// Elements of a row: what the kernel with look-ups takes, whole runs of a lane, and an odd number of groups.
const WIDTHS: [usize; 3] = [1536, 1056, 1040];

/// What the weights are multiplied by: the kernel divides by a reciprocal only where a divisor is from 2^-100 to 1. The
/// last two make all of them smaller, the last one subnormal.
const FACTORS: [f32; 4] = [1.0, 64.0, f32::MIN_POSITIVE * 65_536.0, f32::MIN_POSITIVE / 16.0];

/// A quantised weight on the device with the tensors that hold it.
struct OnDevice {
    packed: Tensor,
    scales: Tensor,
    global: Tensor,
    width: usize,
}

impl OnDevice {
    fn weight(&self) -> Nvfp4Weight {
        Nvfp4Weight {
            shape: Shape::new(self.width as u32, HEIGHT as u32).expect("a small shape"),
            packed: self.packed.buffer(),
            scales: self.scales.buffer(),
            global: self.global.buffer(),
        }
    }
}

/// Weights with what is special among them: ties, zeros of both signs, a group of zeros, what is not finite.
fn special(width: usize) -> Vec<f32> {
    let mut weights = weights();
    weights.truncate(width * HEIGHT);
    weights[..GROUP].fill(0.0);
    weights[GROUP] = -0.0;
    weights[3 * GROUP] = f32::NAN;
    // The largest weight makes the scale of its group exact, and what lies beside it ties, or nearly.
    let ties = [6f32, 0.25, -0.75, 1.25, -1.75, 2.5, 3.5, 5.0];
    let near = [0.25f32, 0.75, 1.75, 3.5].map(|tie| [tie.next_down(), -tie.next_up()]);
    for (weight, value) in weights[2 * GROUP..].iter_mut().zip(ties.into_iter().chain(near.into_iter().flatten())) {
        *weight = value * 0.5;
    }
    weights
}

impl SelfCheck<'_> {
    pub(super) fn nvfp4(&mut self) {
        for width in WIDTHS {
            let outcome = self.nvfp4_quantize(width);
            self.note(format!("nvfp4_quantize, rows of {width}"), outcome);
            self.nvfp4_of_format::<f32>(width);
            self.nvfp4_of_format::<bf16>(width);
            self.nvfp4_of_format::<f16>(width);
        }
    }

    fn nvfp4_of_format<T: Element + Plain>(&mut self, width: usize) {
        let format = T::FLOAT_TYPE;
        let outcome = self.nvfp4_dequantize::<T>(width);
        self.note(format!("nvfp4_dequantize {format}, rows of {width}"), outcome);
        for rows in [1, ROWS, 9] {
            let outcome = self.nvfp4_product::<T>(width, rows);
            self.note(format!("nvfp4_product {format}, {rows} rows of {width}"), outcome);
        }
    }

    fn nvfp4_space(&self, width: usize) -> Result<OnDevice, GpuError> {
        let n = width * HEIGHT;
        let global = self.tensor(&[0u8; 4])?;
        Ok(OnDevice { packed: self.space(n / 2)?, scales: self.space(n / GROUP)?, global, width })
    }

    fn nvfp4_upload(&self, quantized: &Nvfp4, width: usize) -> Result<OnDevice, GpuError> {
        let Nvfp4 { packed, scales, global } = quantized;
        let (packed, scales, global) = (self.tensor(packed)?, self.tensor(scales)?, self.tensor(&[*global])?);
        Ok(OnDevice { packed, scales, global, width })
    }

    fn nvfp4_quantize(&self, width: usize) -> Result<bool, GpuError> {
        let mut is_same = true;
        for factor in FACTORS {
            let input: Vec<f32> = special(width).iter().map(|weight| weight * factor).collect();
            let expected = quantize(&input);
            let (x, to) = (self.tensor(&input)?, self.nvfp4_space(width)?);
            self.kernels.nvfp4_largest((x.buffer(), to.weight().shape), to.global.buffer(), STREAM)?;
            self.kernels.nvfp4_global_scale(to.global.buffer(), STREAM)?;
            self.kernels.nvfp4_quantize(x.buffer(), to.weight(), STREAM)?;
            is_same &= to.packed.read::<u8>(expected.packed.len())? == expected.packed
                && to.scales.read::<u8>(expected.scales.len())? == expected.scales
                && to.global.read::<f32>(1)?[0].to_bits() == expected.global.to_bits();
        }
        Ok(is_same)
    }

    fn nvfp4_dequantize<T: Element + Plain>(&self, width: usize) -> Result<bool, GpuError> {
        let quantized = quantize(&special(width));
        let from = self.nvfp4_upload(&quantized, width)?;
        let n = width * HEIGHT;
        let y = self.space(n * size_of::<T>())?;
        self.kernels.nvfp4_dequantize(from.weight(), (y.buffer(), T::FLOAT_TYPE), STREAM)?;
        Ok(same(&y.read::<T>(n)?, &dequantize::<T>(&quantized)))
    }

    fn nvfp4_product<T: Element + Plain>(&self, width: usize, rows: usize) -> Result<bool, GpuError> {
        let quantized = quantize(&special(width));
        let from = self.nvfp4_upload(&quantized, width)?;
        let x = inputs::<T>(rows * width);
        let Nvfp4 { packed, scales, global } = &quantized;
        let expected = product(Nvfp4Matrix { packed, scales, global: *global, in_features: width }, &x);
        let (x, y) = (self.tensor(&x)?, self.space(rows * HEIGHT * size_of::<T>())?);
        let shape = (rows as u32, T::FLOAT_TYPE);
        self.kernels.nvfp4_product(from.weight(), shape, x.buffer(), y.buffer(), STREAM)?;
        Ok(same(&y.read::<T>(rows * HEIGHT)?, &expected))
    }
}
