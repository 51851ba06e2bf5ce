//! A libcuda whose device memory is host memory and whose kernels do nothing: the test double of the driver.
//!
//! It is compiled by the test into a `libcuda.so`, which the loader gives to an unmodified process. What goes wrong is
//! in the environment, so that the process under test needs to know nothing:
//!
//! ```text
//! FAKE_CUDA="cuLaunchKernel=719,cuStreamSynchronize=hang"   answers of functions: a code, hang, segv or abort
//! FAKE_CUDA_AFTER=3                                         they begin with this call of the function, from 0
//! FAKE_CUDA_COPY_BACK_MAX=4096                              a copy to the host of more bytes is refused
//! FAKE_CUDA_CAPABILITY=110  FAKE_CUDA_DRIVER=13000  FAKE_CUDA_DEVICES=0  FAKE_CUDA_BYTES=1000000
//! ```
//! Under `--cfg old_driver` the memory pools and the mapping of memory are not there, as in a cut-down driver. It frees
//! what is freed, refuses what it never gave, and copies only within what it gave: misuse is an answer, not luck.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks, unsafe_code, missing_docs)]

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

const OUT_OF_MEMORY: i32 = 2;
const INVALID_VALUE: i32 = 1;
const NOT_FOUND: i32 = 500;

/// Allocations by address, and how often each function was called.
static MEMORY: Mutex<BTreeMap<u64, Vec<u64>>> = Mutex::new(BTreeMap::new());
static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// The injected answer of a function, or 0.
fn injected(function: &'static str) -> i32 {
    let mut calls = CALLS.lock().unwrap();
    let count = calls.entry(function).or_default();
    let is_due = *count >= number("FAKE_CUDA_AFTER", 0);
    *count += 1;
    drop(calls);
    let faults = env::var("FAKE_CUDA").unwrap_or_default();
    let of_this = |entry: &str| entry.split_once('=').filter(|(name, _)| *name == function).map(|(_, what)| what.to_owned());
    match faults.split(',').find_map(of_this).filter(|_| is_due).as_deref() {
        None => 0,
        Some("hang") => loop {
            std::thread::park();
        },
        Some("segv") => unsafe {
            std::hint::black_box(std::ptr::without_provenance::<u8>(1)).read_volatile();
            0
        },
        Some("abort") => std::process::abort(),
        Some(code) => code.parse().unwrap(),
    }
}

fn free_bytes() -> usize {
    let used: usize = MEMORY.lock().unwrap().values().map(|words| words.len() * 8).sum();
    (number("FAKE_CUDA_BYTES", 8 << 30) as usize).saturating_sub(used)
}

fn allocate(address: *mut u64, bytes: usize) -> i32 {
    if bytes > free_bytes() {
        return OUT_OF_MEMORY;
    }
    let mut memory = MEMORY.lock().unwrap();
    let words = vec![0u64; bytes.div_ceil(8).max(1)];
    unsafe { *address = words.as_ptr() as u64 };
    memory.insert(words.as_ptr() as u64, words);
    0
}

fn release(address: u64) -> i32 {
    if MEMORY.lock().unwrap().remove(&address).is_some() { 0 } else { INVALID_VALUE }
}

/// Whether a range lies within one allocation.
fn is_ours(address: u64, bytes: usize) -> bool {
    let memory = MEMORY.lock().unwrap();
    let before = memory.range(..=address).next_back();
    before.is_some_and(|(start, words)| address as usize + bytes <= *start as usize + words.len() * 8)
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
            let _ = ($(&$argument,)*);
            match injected(stringify!($name)) {
                0 => unsafe { $body },
                code => code,
            }
        }
    )*};
}

/// Writes a value through a pointer and answers success.
unsafe fn give<T>(to: *mut T, value: T) -> i32 {
    unsafe { to.write(value) };
    0
}

type Handle = *mut c_void;

fn handle(value: usize) -> Handle {
    std::ptr::without_provenance_mut(value)
}

functions! {
    cuInit(flags: u32) { 0 }
    cuDriverGetVersion(version: *mut i32) { give(version, number("FAKE_CUDA_DRIVER", 12_060) as i32) }
    cuDeviceGetCount(count: *mut i32) { give(count, number("FAKE_CUDA_DEVICES", 1) as i32) }
    cuDeviceGet(device: *mut i32, ordinal: i32) { give(device, ordinal) }
    cuDeviceGetName(name: *mut c_char, bytes: i32, device: i32) {
        let text = c"Fake Orin".to_bytes_with_nul();
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len().min(bytes as usize));
        0
    }
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        let capability = number("FAKE_CUDA_CAPABILITY", 87) as i32;
        give(value, match attribute {
            75 => capability / 10,
            76 => capability % 10,
            16 => 8,
            39 => 1536,
            97 => 163 * 1024,
            18 | 115 => 1,
            _ => 0,
        })
    }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) { give(bytes, 8 << 30) }
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) { give(context, handle(16)) }
    cuDevicePrimaryCtxRelease_v2(device: i32) { 0 }
    cuCtxSetCurrent(context: Handle) { 0 }
    cuCtxSynchronize() { 0 }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        give(free, free_bytes());
        give(total, 8 << 30)
    }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) { allocate(address, bytes) }
    cuMemFree_v2(address: u64) { release(address) }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) {
        if !is_ours(to, bytes) {
            return INVALID_VALUE;
        }
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to as *mut u8, bytes);
        0
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) {
        if !is_ours(from, bytes) || bytes as u64 > number("FAKE_CUDA_COPY_BACK_MAX", u64::MAX) {
            return INVALID_VALUE;
        }
        std::ptr::copy_nonoverlapping(from as *const u8, to.cast::<u8>(), bytes);
        0
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        if !is_ours(from, bytes) || !is_ours(to, bytes) {
            return INVALID_VALUE;
        }
        std::ptr::copy(from as *const u8, to as *mut u8, bytes);
        0
    }
    cuMemsetD8Async(address: u64, byte: u8, bytes: usize, stream: Handle) {
        if !is_ours(address, bytes) {
            return INVALID_VALUE;
        }
        std::ptr::write_bytes(address as *mut u8, byte, bytes);
        0
    }
    cuStreamCreate(stream: *mut Handle, flags: u32) { give(stream, handle(32)) }
    cuStreamDestroy_v2(stream: Handle) { 0 }
    cuStreamSynchronize(stream: Handle) { 0 }
    cuEventCreate(event: *mut Handle, flags: u32) { give(event, handle(48)) }
    cuEventDestroy_v2(event: Handle) { 0 }
    cuEventRecord(event: Handle, stream: Handle) { 0 }
    cuEventSynchronize(event: Handle) { 0 }
    cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) { give(milliseconds, 1.5) }
    cuModuleLoadData(module: *mut Handle, image: *const c_void) { give(module, handle(64)) }
    cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        if CStr::from_ptr(name).is_empty() { NOT_FOUND } else { give(function, handle(80)) }
    }
    cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) { 0 }
    cuLaunchKernel(
        function: Handle, x: u32, y: u32, z: u32, threads: u32, threads_y: u32, threads_z: u32, shared: u32,
        stream: Handle, arguments: *mut Handle, extra: *mut Handle
    ) {
        // Every kernel of ours takes a device address first.
        let first = (*arguments).cast::<u64>().read();
        let is_geometry = x > 0 && y > 0 && z == 1 && (1..=1024).contains(&threads);
        if is_geometry && is_ours(first, 1) { 0 } else { INVALID_VALUE }
    }
}

#[cfg(not(old_driver))]
functions! {
    cuDeviceGetDefaultMemPool(pool: *mut Handle, device: i32) { give(pool, handle(96)) }
    cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) { allocate(address, bytes) }
    cuMemFreeAsync(address: u64, stream: Handle) { release(address) }
    cuMemPoolGetAttribute(pool: Handle, attribute: i32, value: *mut c_void) { give(value.cast::<u64>(), 0) }
    cuMemPoolSetAttribute(pool: Handle, attribute: i32, value: *mut c_void) { 0 }
    cuMemPoolTrimTo(pool: Handle, bytes: usize) { 0 }
    cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const c_void, option: i32) { give(bytes, 2 << 20) }
    cuMemAddressReserve(address: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64) {
        allocate(address, bytes)
    }
    cuMemAddressFree(address: u64, bytes: usize) { release(address) }
    cuMemCreate(handle: *mut u64, bytes: usize, properties: *const c_void, flags: u64) { give(handle, 7) }
    cuMemRelease(handle: u64) { 0 }
    cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) { 0 }
    cuMemUnmap(address: u64, bytes: usize) { 0 }
    cuMemSetAccess(address: u64, bytes: usize, access: *const c_void, count: usize) { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: i32, name: *mut *const c_char) -> i32 {
    let known = match code {
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        _ => return INVALID_VALUE,
    };
    unsafe { give(name, known.as_ptr()) }
}
