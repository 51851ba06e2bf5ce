//! The CPU twins of the kernels and the number formats they share.
//!
//! A twin is the definition: plain loops, one thread, no tricks. The fast code of the workload must
//! reproduce its bits, and so must (within what a GPU may round differently) the kernel beside it in
//! `kernels/`. Nothing here is fast, and nothing here may become fast.

pub mod numbers;

#[path = "../../../kernels/codebook.rs"]
pub mod codebook;

#[path = "../../../kernels/philox_init.rs"]
pub mod philox_init;

#[path = "../../../kernels/reductions.rs"]
pub mod reductions;

#[path = "../../../kernels/quantize_4bit.rs"]
pub mod quantize_4bit;

#[path = "../../../kernels/quantize_8bit.rs"]
pub mod quantize_8bit;

#[path = "../../../kernels/dequantize_4bit.rs"]
pub mod dequantize_4bit;

#[path = "../../../kernels/gemv_4bit.rs"]
pub mod gemv_4bit;

#[path = "../../../kernels/matmul_4bit.rs"]
pub mod matmul_4bit;

#[path = "../../../kernels/nvfp4.rs"]
pub mod nvfp4;
