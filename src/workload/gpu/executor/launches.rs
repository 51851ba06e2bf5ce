//! Which buffers each kernel of the program works on.
//!
//! The program says that a kernel runs, not on what: that follows from the stage, from the roles that are allocated
//! and, for a cast, from the role that was allocated last.

use super::super::blas::Product;
use super::super::kernels::{Gemv, Nvfp4Weight};
use super::{
    Blas, Blockwise, Buffer, Dense, DeviceBuffer, Executor, FloatType, GpuError, LayerIndex, Packing, Role, Tuning,
};
use crate::model::linear4bit_program::Kernel;
use crate::model::settings::QuantType;
use crate::workload::reference::philox_init::{Purpose, Stream as RandomStream};

use super::Stream;

/// Words of a code book.
const CODE_WORDS: u64 = 16;

impl Executor {
    pub(super) fn launch(&mut self, kernel: Kernel, tuning: Tuning) -> Result<(), GpuError> {
        let (layer, _) = self.at;
        let stream = self.performance.stream;
        match kernel {
            Kernel::Quantize4bit => {
                let x = (self.buffer(layer, Role::Weight)?, FloatType::Fp32);
                let to = (self.buffer(layer, Role::Packed)?, self.buffer(layer, Role::Absmax)?);
                self.kernels.quantize_4bit(tuning, self.packing(layer), x, to, Stream::LEGACY)
            }
            Kernel::Quantize8bit | Kernel::Dequantize8bit | Kernel::Mean | Kernel::Subtract | Kernel::Add => {
                self.launch_nested(kernel)
            }
            Kernel::Dequantize4bit if self.fuses(layer) => Ok(()),
            Kernel::Dequantize4bit => {
                let from = (self.buffer(layer, Role::Packed)?, self.absmax(layer)?);
                let y = (self.buffer(layer, Role::DequantizedWeight)?, FloatType::Fp32);
                self.kernels.dequantize_4bit(tuning, self.packing(layer), from, y, stream)
            }
            Kernel::Gemv4bit => {
                let (x, y) = (self.operand(layer)?, self.result(layer)?);
                self.kernels.gemv_4bit(tuning, self.gemv(layer)?, x, y, stream)
            }
            Kernel::Gemm => self.multiply(layer),
            Kernel::LargestMagnitude => {
                let weight = (self.buffer(layer, Role::Weight)?, self.memory.shape(layer));
                self.kernels.nvfp4_largest(weight, self.buffer(layer, Role::GlobalScale)?, stream)
            }
            Kernel::GlobalScale => self.kernels.nvfp4_global_scale(self.buffer(layer, Role::GlobalScale)?, stream),
            Kernel::QuantizeNvfp4 => {
                let weight = self.buffer(layer, Role::Weight)?;
                self.kernels.nvfp4_quantize(weight, self.nvfp4_weight(layer)?, stream)
            }
            Kernel::ProductNvfp4 => {
                let (x, y) = (self.operand(layer)?, self.result(layer)?);
                let rows = (self.rows(), self.memory.compute);
                self.kernels.nvfp4_product(self.nvfp4_weight(layer)?, rows, x, y, stream)
            }
            Kernel::Cast => self.cast(layer),
            Kernel::Randn => {
                let x = (self.buffer(layer, Role::Input)?, self.memory.input);
                let n = u64::from(self.rows()) * self.memory.shape(layer).in_features();
                let random = RandomStream { purpose: Purpose::Activation, ..self.source(layer).stream() };
                self.kernels.activations(x, n, random, stream)
            }
            Kernel::Abs => {
                let (x, y) = (self.buffer(layer, Role::Code)?, self.buffer(layer, Role::CodeMagnitudes)?);
                self.kernels.abs(x, y, CODE_WORDS, stream)
            }
            Kernel::Max => {
                let x = (self.buffer(layer, Role::CodeMagnitudes)?, CODE_WORDS);
                self.kernels.max(x, self.buffer(layer, Role::CodeMaximum)?, stream)
            }
            Kernel::Divide => {
                let (x, divisor) = (self.buffer(layer, Role::Code)?, self.buffer(layer, Role::CodeMaximum)?);
                self.kernels.divide(x, divisor, CODE_WORDS, stream)
            }
        }
    }

    /// The kernels on block maxima. `nb` is their number.
    fn launch_nested(&self, kernel: Kernel) -> Result<(), GpuError> {
        let (layer, _) = self.at;
        let stream = self.performance.stream;
        let nb = self.packing(layer).blocks_in_memory() as u64;
        let of = |role| self.buffer(layer, role);
        match kernel {
            Kernel::Quantize8bit => {
                // The map belongs to the layer that made it, which is the first one.
                let map = self.buffer(LayerIndex(0), Role::DynamicMap)?;
                let to = (of(Role::QuantizedAbsmax)?, of(Role::NestedAbsmax)?);
                self.kernels.quantize_8bit((of(Role::CentredAbsmax)?, nb), map, to, Stream::LEGACY)
            }
            Kernel::Dequantize8bit => {
                let from = (of(Role::QuantizedAbsmax)?, of(Role::NestedAbsmax)?);
                let map = of(Role::DynamicMapCopy)?;
                self.kernels.dequantize_8bit(from, map, (of(Role::DecodedAbsmax)?, nb), stream)
            }
            Kernel::Mean => {
                let spread = of(Role::ReduceBuffer).ok().zip(of(Role::ReduceSemaphore).ok());
                self.kernels.mean((of(Role::Absmax)?, nb), of(Role::Offset)?, spread, stream)
            }
            Kernel::Subtract => {
                let from = (of(Role::Absmax)?, of(Role::Offset)?);
                self.kernels.subtract(from, (of(Role::CentredAbsmax)?, nb), stream)
            }
            Kernel::Add => {
                let from = (of(Role::DecodedAbsmax)?, of(Role::Offset)?);
                // One row: into a buffer of its own; more rows: in place.
                let to = of(Role::RestoredAbsmax).unwrap_or(from.0);
                self.kernels.add(from, (to, nb), stream)
            }
            Kernel::Quantize4bit
            | Kernel::Dequantize4bit
            | Kernel::Gemv4bit
            | Kernel::Gemm
            | Kernel::LargestMagnitude
            | Kernel::GlobalScale
            | Kernel::QuantizeNvfp4
            | Kernel::ProductNvfp4
            | Kernel::Cast
            | Kernel::Randn
            | Kernel::Abs
            | Kernel::Max
            | Kernel::Divide => unreachable!("{kernel:?} is not on block maxima"),
        }
    }

    /// Block maxima as dequantisation and product use them.
    fn absmax(&self, layer: LayerIndex) -> Result<DeviceBuffer, GpuError> {
        let roles = [Role::RestoredAbsmax, Role::DecodedAbsmax, Role::Absmax];
        let found = roles.into_iter().find_map(|role| self.buffer(layer, role).ok());
        found.ok_or_else(|| GpuError::BadLaunch { kernel: "absmax".into(), why: "the layer has no block maxima" })
    }

    /// The input in the compute type.
    fn operand(&self, layer: LayerIndex) -> Result<DeviceBuffer, GpuError> {
        self.buffer(layer, Role::InputCast).or_else(|_| self.buffer(layer, Role::Input))
    }

    /// The result in the compute type.
    fn result(&self, layer: LayerIndex) -> Result<DeviceBuffer, GpuError> {
        self.buffer(layer, Role::OutputBeforeCast).or_else(|_| self.buffer(layer, Role::Output))
    }

    fn nvfp4_weight(&self, layer: LayerIndex) -> Result<Nvfp4Weight, GpuError> {
        Ok(Nvfp4Weight {
            shape: self.memory.shape(layer),
            packed: self.buffer(layer, Role::Packed)?,
            scales: self.buffer(layer, Role::GroupScales)?,
            global: self.buffer(layer, Role::GlobalScale)?,
        })
    }

    fn gemv(&self, layer: LayerIndex) -> Result<Gemv, GpuError> {
        Ok(Gemv {
            packed: self.buffer(layer, Role::Packed)?,
            absmax: self.absmax(layer)?,
            code: self.buffer(layer, Role::Code)?,
            ..self.gemv_without_buffers(layer)
        })
    }

    fn gemv_without_buffers(&self, layer: LayerIndex) -> Gemv {
        let nowhere = DeviceBuffer { address: crate::model::allocator::Address(0), bytes: 0 };
        let Blockwise { book, blocksize, .. } = self.blockwise();
        Gemv {
            shape: self.memory.shape(layer),
            book,
            blocksize,
            format: self.memory.compute,
            packed: nowhere,
            absmax: nowhere,
            code: nowhere,
        }
    }

    /// Whether several rows are multiplied straight from the packed weight of this layer.
    pub(super) fn fuses(&self, layer: LayerIndex) -> bool {
        let is_tuned = self.tuning() == Some(Tuning::Tuned) && self.memory.quant != QuantType::Nvfp4;
        is_tuned && self.rows() > 1 && self.kernels.fuses(self.gemv_without_buffers(layer))
    }

    /// Whether this role of the layer at work is not needed, because nothing is decoded to memory.
    pub(super) fn is_spared(&self, role: Role) -> bool {
        let is_detour = role == Role::DequantizedWeight || role == Role::WeightCast || role == Role::BlasWorkspace;
        is_detour && self.fuses(self.at.0)
    }

    fn multiply(&mut self, layer: LayerIndex) -> Result<(), GpuError> {
        let stream = self.performance.stream;
        let (x, y) = (self.operand(layer)?, self.result(layer)?);
        if self.fuses(layer) {
            self.kernels.matmul_4bit(self.gemv(layer)?, self.rows(), x, y, stream)?;
            return std::mem::take(&mut self.deferred).into_iter().try_for_each(|buffer| self.release(buffer));
        }
        let weight = self.buffer(layer, Role::WeightCast).or_else(|_| self.buffer(layer, Role::DequantizedWeight))?;
        let shape = self.memory.shape(layer);
        let product = Product {
            rows: self.rows(),
            in_features: shape.in_features() as u32,
            out_features: shape.out_features() as u32,
            format: self.memory.compute,
        };
        if let Dense::Unknown = self.dense {
            self.dense = self.load_blas()?;
        }
        match &self.dense {
            Dense::Blas(blas) => blas.multiply(product, x, weight, y),
            Dense::Own | Dense::Unknown => self.kernels.matmul_dense(product, (x, weight), y, stream),
        }
    }

    fn load_blas(&self) -> Result<Dense, GpuError> {
        let Some(blas) = Blas::load(&self.context)? else { return Ok(Dense::Own) };
        // The workspace belongs to the layer that needed it first.
        let is_workspace = |buffer: &&Buffer| buffer.role == Role::BlasWorkspace;
        if let Some(buffer) = self.held.keys().find(is_workspace) {
            blas.configure(self.performance.stream, self.held[buffer].buffer)?;
        }
        Ok(Dense::Blas(blas))
    }

    /// A cast is into what was allocated last.
    fn cast(&self, layer: LayerIndex) -> Result<(), GpuError> {
        let shape = self.memory.shape(layer);
        let rows = u64::from(self.rows());
        let (input, compute) = (self.memory.input, self.memory.compute);
        let ((from, from_format), (to, to_format), n) = match self.last {
            Role::InputCast => ((Role::Input, input), (Role::InputCast, compute), rows * shape.in_features()),
            Role::WeightCast if self.fuses(layer) => return Ok(()),
            Role::WeightCast => {
                ((Role::DequantizedWeight, FloatType::Fp32), (Role::WeightCast, compute), shape.weights())
            }
            Role::Output => ((Role::OutputBeforeCast, compute), (Role::Output, input), rows * shape.out_features()),
            other => {
                let why = "nothing is known to cast there";
                return Err(GpuError::BadLaunch { kernel: format!("cast to {other:?}"), why });
            }
        };
        let (from, to) = (self.buffer(layer, from)?, self.buffer(layer, to)?);
        self.kernels.cast((from, from_format), (to, to_format), n, self.performance.stream)
    }
}

impl Packing {
    /// Blocks as the host counts them.
    pub(super) fn blocks_in_memory(self) -> usize {
        self.elements.div_ceil(self.blocksize.weights()) as usize
    }
}
