//! The CUDA driver library: found at run time, called through checked function pointers.
//!
//! Owns libcuda and the primary context of one device. Every answer is kept as the integer that came, because a newer
//! driver may answer what no header here knows; a function that the library lacks is an error and no panic. After an
//! answer that leaves the context dead, nothing is called any more and the first such error is repeated: no later
//! success can hide it. It knows no kernel and no layer.

#![expect(unsafe_code, reason = "the driver is a C library")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::rc::Rc;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use libloading::Library;

use super::error::{Architecture, CudaVersion, GpuError, NO_DEVICE, OUT_OF_MEMORY, is_sticky};
use crate::model::allocator::Address;

/// An opaque handle of the driver.
type Handle = *mut c_void;

/// What the library is called in errors.
const LIBRARY: &str = "libcuda";

/// `cuGetErrorName`, the one function that is called whatever happened.
type NameOf = unsafe extern "C" fn(i32, *mut *const c_char) -> i32;

/// The oldest driver whose ELF format the cubins have.
const DRIVER_MIN: CudaVersion = CudaVersion(12_000);

/// The functions of the driver and what became of the context.
struct Functions {
    table: Table,
    name_of: Option<NameOf>,
    /// The first answer after which the context is dead.
    dead: RefCell<Option<GpuError>>,
}

macro_rules! functions {
    ($($name:ident = $symbol:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        struct Table {
            $($name: Option<unsafe extern "C" fn($($type),*) -> i32>,)*
        }
        impl Table {
            fn of(library: &Library) -> Self {
                Self {
                    $(
                        // SAFETY: the type is that of the function in cuda.h, with its result as the integer it is.
                        $name: unsafe { library.get(concat!(stringify!($symbol), "\0").as_bytes()) }
                            .ok()
                            .map(|symbol| *symbol),
                    )*
                }
            }
        }
        #[expect(clippy::too_many_arguments, reason = "cuLaunchKernel has eleven")]
        impl Functions {
            $(
                /// # Safety
                /// The obligations of the function in the CUDA driver API.
                unsafe fn $name(&self, $($argument: $type),*) -> Result<(), GpuError> {
                    const CALL: &str = stringify!($symbol);
                    if let Some(error) = &*self.dead.borrow() {
                        return Err(error.clone());
                    }
                    let missing = GpuError::MissingFunction { library: LIBRARY, call: CALL };
                    let function = self.table.$name.ok_or(missing)?;
                    // SAFETY: the caller's.
                    self.settle(CALL, unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

functions! {
    init = cuInit(flags: u32);
    driver_version = cuDriverGetVersion(version: *mut i32);
    device_count = cuDeviceGetCount(count: *mut i32);
    device_get = cuDeviceGet(device: *mut i32, ordinal: i32);
    device_name = cuDeviceGetName(name: *mut c_char, bytes: i32, device: i32);
    device_attribute = cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32);
    device_memory = cuDeviceTotalMem_v2(bytes: *mut usize, device: i32);
    device_pool = cuDeviceGetDefaultMemPool(pool: *mut Handle, device: i32);
    context_retain = cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32);
    context_release = cuDevicePrimaryCtxRelease_v2(device: i32);
    context_set = cuCtxSetCurrent(context: Handle);
    context_synchronize = cuCtxSynchronize();
    memory_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    memory_alloc = cuMemAlloc_v2(address: *mut u64, bytes: usize);
    memory_free = cuMemFree_v2(address: u64);
    pool_alloc = cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle);
    pool_free = cuMemFreeAsync(address: u64, stream: Handle);
    pool_attribute = cuMemPoolGetAttribute(pool: Handle, attribute: i32, value: *mut c_void);
    pool_set_attribute = cuMemPoolSetAttribute(pool: Handle, attribute: i32, value: *mut c_void);
    pool_trim = cuMemPoolTrimTo(pool: Handle, bytes: usize);
    granularity = cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const PhysicalProperties, option: i32);
    address_reserve = cuMemAddressReserve(address: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64);
    address_free = cuMemAddressFree(address: u64, bytes: usize);
    physical_create = cuMemCreate(handle: *mut u64, bytes: usize, properties: *const PhysicalProperties, flags: u64);
    physical_release = cuMemRelease(handle: u64);
    map = cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    unmap = cuMemUnmap(address: u64, bytes: usize);
    set_access = cuMemSetAccess(address: u64, bytes: usize, access: *const Access, count: usize);
    copy_to_device = cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    copy_to_host = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    copy_on_device = cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    fill = cuMemsetD8Async(address: u64, byte: u8, bytes: usize, stream: Handle);
    stream_create = cuStreamCreate(stream: *mut Handle, flags: u32);
    stream_destroy = cuStreamDestroy_v2(stream: Handle);
    stream_synchronize = cuStreamSynchronize(stream: Handle);
    event_create = cuEventCreate(event: *mut Handle, flags: u32);
    event_destroy = cuEventDestroy_v2(event: Handle);
    event_record = cuEventRecord(event: Handle, stream: Handle);
    event_synchronize = cuEventSynchronize(event: Handle);
    event_elapsed = cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle);
    module_load = cuModuleLoadData(module: *mut Handle, image: *const c_void);
    module_function = cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    function_set = cuFuncSetAttribute(function: Handle, attribute: i32, value: i32);
    launch = cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    );
}

/// `CUmemAllocationProp`, of which only pinned device memory is used.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct PhysicalProperties {
    kind: i32,
    handle_types: i32,
    location: Location,
    windows_handle: u64,
    flags: [u8; 8],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Location {
    kind: i32,
    id: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Access {
    location: Location,
    flags: i32,
}

impl Functions {
    fn settle(&self, call: &'static str, code: i32) -> Result<(), GpuError> {
        if code == 0 {
            return Ok(());
        }
        let error = GpuError::Driver { call, code, name: self.name_of(code) };
        if is_sticky(code) {
            *self.dead.borrow_mut() = Some(error.clone());
        }
        Err(error)
    }

    fn name_of(&self, code: i32) -> String {
        let mut name: *const c_char = ptr::null();
        if let Some(name_of) = self.name_of {
            // SAFETY: the pointer is written or left null.
            let _ = unsafe { name_of(code, &raw mut name) };
        }
        if name.is_null() {
            return "which the driver has no name for".into();
        }
        // SAFETY: the driver gives a static string that ends with zero.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub architecture: Architecture,
    /// What CUDA the driver supports.
    pub driver: CudaVersion,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads that one of them holds at most.
    pub threads_per_multiprocessor: u32,
    /// Dynamic shared memory that a thread block may ask for, in bytes.
    pub shared_bytes_max: u32,
    /// Whether it shares the memory of the host, as every Jetson does.
    pub is_integrated: bool,
    /// Whether it has stream-ordered memory pools.
    pub has_pools: bool,
    /// Its memory in bytes; on an integrated one that of the host.
    pub memory_bytes: u64,
}

/// One device with its primary context, current on this thread.
///
/// There is one for a process, and the process for one trial. [`Context::close`] is the end of a good trial; a context
/// that is merely dropped is released too, and what the driver answers then is lost.
pub struct Context {
    functions: Functions,
    device: i32,
    facts: DeviceFacts,
    is_open: std::cell::Cell<bool>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A stream: the legacy default one, or one of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(Handle);

impl Stream {
    /// The legacy default stream, which every other ordinary stream waits for.
    pub const LEGACY: Self = Self(ptr::null_mut());

    /// The handle as other CUDA libraries take it.
    pub(super) fn handle(self) -> Handle {
        self.0
    }
}

/// A loaded kernel image; it stays loaded until the context goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Module(Handle);

/// A kernel in a loaded image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function(Handle);

/// One argument of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument {
    /// A device address.
    Pointer(Address),
    /// A 64-bit count.
    U64(u64),
    /// A 32-bit count.
    U32(u32),
    /// A factor.
    F32(f32),
}

/// How a kernel is launched: two dimensions of thread blocks, one of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) grid: (u32, u32),
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
}

impl Context {
    /// Opens device `ordinal`: loads libcuda, asks it, and makes the primary context current on this thread.
    ///
    /// # Errors
    /// [`GpuError::NoLibrary`], [`GpuError::NoDevice`], [`GpuError::NoSuchDevice`] and [`GpuError::DriverTooOld`] where
    /// there is nothing to open; otherwise the driver's.
    pub fn open(ordinal: u32) -> Result<Rc<Self>, GpuError> {
        // SAFETY: loading libcuda runs its initialisers, which any CUDA program relies on.
        let library = unsafe { if sys::is_culib_present() { sys::culib() } else { return Err(GpuError::NoLibrary) } };
        // SAFETY: the type is that of the function in cuda.h.
        let name_of = unsafe { library.get::<NameOf>(b"cuGetErrorName\0") }.ok().map(|symbol| *symbol);
        let functions = Functions { table: Table::of(library), name_of, dead: RefCell::new(None) };
        // SAFETY: the flags must be 0.
        unsafe { functions.init(0) }.map_err(|error| match error {
            GpuError::Driver { code, .. } if NO_DEVICE.contains(&code) => GpuError::NoDevice,
            other => other,
        })?;
        let device = select_device(&functions, ordinal)?;
        let facts = facts_of(&functions, device)?;
        if facts.driver < DRIVER_MIN {
            return Err(GpuError::DriverTooOld { found: facts.driver, needed: DRIVER_MIN });
        }
        let mut context = ptr::null_mut();
        // SAFETY: the device exists; the pointer is written.
        unsafe { functions.context_retain(&raw mut context, device)? };
        // SAFETY: the context was just retained.
        unsafe { functions.context_set(context)? };
        Ok(Rc::new(Self { functions, device, facts, is_open: true.into() }))
    }

    /// What the device says of itself.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Free and total device memory in bytes, as `cudaMemGetInfo` gives them. On an integrated device the first is the
    /// host's free memory without its page cache.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory_info(&self) -> Result<(u64, u64), GpuError> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both are written.
        unsafe { self.functions.memory_info(&raw mut free, &raw mut total)? };
        Ok((free as u64, total as u64))
    }

    /// Waits for everything that was launched.
    ///
    /// # Errors
    /// Whatever went wrong in it.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        // SAFETY: the context is current.
        unsafe { self.functions.context_synchronize() }
    }

    /// The error after which nothing is called any more, if there was one.
    pub fn death(&self) -> Option<GpuError> {
        self.functions.dead.borrow().clone()
    }

    /// The end of a trial: waits for the device and releases the context, so that an error which comes late is still
    /// an error.
    ///
    /// # Errors
    /// Whatever the device or the release reports.
    pub fn close(&self) -> Result<(), GpuError> {
        self.synchronize()?;
        self.is_open.set(false);
        // SAFETY: the context was retained once and is released once.
        unsafe { self.functions.context_release(self.device) }
    }

    /// Makes a stream that does wait for the legacy default stream, as PyTorch's side streams do not.
    ///
    /// # Errors
    /// The driver's.
    pub fn new_stream(&self) -> Result<Stream, GpuError> {
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is written; 0 is CU_STREAM_DEFAULT.
        unsafe { self.functions.stream_create(&raw mut stream, 0)? };
        Ok(Stream(stream))
    }

    /// Waits for a stream.
    ///
    /// # Errors
    /// Whatever went wrong on it.
    pub fn synchronize_stream(&self, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: the stream is ours and alive.
        unsafe { self.functions.stream_synchronize(stream.0) }
    }

    /// Destroys a stream of our own.
    ///
    /// # Errors
    /// The driver's.
    pub fn destroy_stream(&self, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: the stream is ours, and streams are not used after they are destroyed by the code of this module.
        unsafe { self.functions.stream_destroy(stream.0) }
    }

    /// `cuMemAlloc`; `None` when the memory is not there.
    pub(super) fn alloc(&self, bytes: u64) -> Result<Option<Address>, GpuError> {
        let mut address = 0;
        // SAFETY: the pointer is written.
        let answer = unsafe { self.functions.memory_alloc(&raw mut address, bytes as usize) };
        none_if_exhausted(answer.map(|()| Address(address)))
    }

    /// `cuMemFree`. It waits for the device, so that what was launched with the memory is over.
    pub(super) fn free(&self, address: Address) -> Result<(), GpuError> {
        // SAFETY: the address came from `alloc`; the driver refuses others.
        unsafe { self.functions.memory_free(address.0) }
    }

    /// Copies to the device and waits, as a copy from pageable memory does.
    pub(super) fn upload(&self, to: Address, from: &[u8], stream: Stream) -> Result<(), GpuError> {
        // SAFETY: the callers check that the buffer at `to` holds that much; `from` outlives the wait.
        unsafe { self.functions.copy_to_device(to.0, from.as_ptr().cast(), from.len(), stream.0)? };
        self.synchronize_stream(stream)
    }

    /// Copies from the device and waits.
    pub(super) fn download(&self, to: &mut [u8], from: Address, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: as for `upload`, the other way round.
        unsafe { self.functions.copy_to_host(to.as_mut_ptr().cast(), from.0, to.len(), stream.0)? };
        self.synchronize_stream(stream)
    }

    /// Copies within the device.
    pub(super) fn copy(&self, to: Address, from: Address, bytes: u64, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: the callers check that both buffers hold that much.
        unsafe { self.functions.copy_on_device(to.0, from.0, bytes as usize, stream.0) }
    }

    /// Fills with a byte.
    pub(super) fn fill(&self, address: Address, byte: u8, bytes: u64, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: the callers check that the buffer holds that much.
        unsafe { self.functions.fill(address.0, byte, bytes as usize, stream.0) }
    }

    /// Loads a cubin, or PTX that ends with a zero byte.
    pub(super) fn load(&self, image: &[u8]) -> Result<Module, GpuError> {
        debug_assert!(image.starts_with(b"\x7fELF") || image.ends_with(b"\0"), "PTX must end with zero");
        let mut module = ptr::null_mut();
        // SAFETY: the image is a whole ELF file or text that ends with zero, and the driver copies it.
        unsafe { self.functions.module_load(&raw mut module, image.as_ptr().cast())? };
        Ok(Module(module))
    }

    /// A kernel by its name.
    pub(super) fn function(&self, module: Module, name: &str) -> Result<Function, GpuError> {
        let name = CString::new(name).expect("names of kernels hold no zero");
        let mut function = ptr::null_mut();
        // SAFETY: modules stay loaded as long as the context; the name ends with zero.
        unsafe { self.functions.module_function(&raw mut function, module.0, name.as_ptr())? };
        Ok(Function(function))
    }

    /// Lets a kernel have more dynamic shared memory than the 48 KiB that all devices give.
    pub(super) fn allow_shared(&self, function: Function, bytes: u32) -> Result<(), GpuError> {
        /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
        const MAX_DYNAMIC_SHARED: i32 = 8;
        // SAFETY: functions live as long as their module.
        unsafe { self.functions.function_set(function.0, MAX_DYNAMIC_SHARED, bytes as i32) }
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// The arguments are those of the kernel in number, order and type, and every buffer is as large as the kernel
    /// reaches.
    pub(super) unsafe fn launch(
        &self,
        function: Function,
        geometry: Geometry,
        stream: Stream,
        arguments: &[Argument],
    ) -> Result<(), GpuError> {
        let pointer = |argument: &Argument| -> *mut c_void {
            match argument {
                Argument::Pointer(address) => ptr::from_ref(&address.0).cast_mut().cast(),
                Argument::U64(value) => ptr::from_ref(value).cast_mut().cast(),
                Argument::U32(value) => ptr::from_ref(value).cast_mut().cast(),
                Argument::F32(value) => ptr::from_ref(value).cast_mut().cast(),
            }
        };
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(pointer).collect();
        let Geometry { grid: (x, y), threads, shared_bytes } = geometry;
        let (arguments, extra) = (pointers.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the driver reads the arguments before it returns; the rest is the caller's.
        unsafe { self.functions.launch(function.0, x, y, 1, threads, 1, 1, shared_bytes, stream.0, arguments, extra) }
    }

    fn new_event(&self) -> Result<Handle, GpuError> {
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is written; 0 is CU_EVENT_DEFAULT, which keeps times.
        unsafe { self.functions.event_create(&raw mut event, 0)? };
        Ok(event)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_open.get() {
            // A trial that ends well calls `close`, and one that does not has its error already.
            // SAFETY: the context was retained once and is released once.
            let _ = unsafe { self.functions.context_release(self.device) };
        }
    }
}

/// `None` for the answer that the memory is not there.
fn none_if_exhausted<T>(answer: Result<T, GpuError>) -> Result<Option<T>, GpuError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(GpuError::Driver { code: OUT_OF_MEMORY, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn select_device(functions: &Functions, ordinal: u32) -> Result<i32, GpuError> {
    let mut count = 0;
    // SAFETY: the pointer is written.
    unsafe { functions.device_count(&raw mut count)? };
    let count = u32::try_from(count).unwrap_or(0);
    if count == 0 {
        return Err(GpuError::NoDevice);
    }
    if ordinal >= count {
        return Err(GpuError::NoSuchDevice { ordinal, count });
    }
    let mut device = 0;
    // SAFETY: the pointer is written.
    unsafe { functions.device_get(&raw mut device, ordinal as i32)? };
    Ok(device)
}

fn facts_of(functions: &Functions, device: i32) -> Result<DeviceFacts, GpuError> {
    let attribute = |attribute: Attribute| -> Result<u32, GpuError> {
        let mut value = 0;
        // SAFETY: the pointer is written.
        unsafe { functions.device_attribute(&raw mut value, attribute as i32, device)? };
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut name = [0 as c_char; 128];
    let (mut version, mut memory) = (0, 0usize);
    // SAFETY: the name is cut to the length given and ends with zero; the other two are written.
    unsafe {
        functions.device_name(name.as_mut_ptr(), name.len() as i32, device)?;
        functions.driver_version(&raw mut version)?;
        functions.device_memory(&raw mut memory, device)?;
    }
    // SAFETY: the array is zero at its end, whatever the driver wrote before.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(DeviceFacts {
        name,
        architecture: Architecture {
            major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        },
        driver: CudaVersion(version),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        threads_per_multiprocessor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        shared_bytes_max: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        is_integrated: attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        has_pools: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
        memory_bytes: memory as u64,
    })
}

mod plain;
mod pools;
mod timer;
mod virtual_memory;

pub use plain::Plain;
pub(super) use plain::{bytes_of, bytes_of_mut};
pub use timer::Timer;
pub(super) use virtual_memory::Mapping;
