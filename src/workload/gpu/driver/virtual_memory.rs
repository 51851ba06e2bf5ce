//! Device memory in two halves: physical allocations, mapped at reserved addresses.

#![expect(unsafe_code, reason = "the driver is a C library")]

use super::{Access, Address, Context, GpuError, Location, PhysicalProperties, none_if_exhausted};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const PINNED: i32 = 1;
const ON_DEVICE: i32 = 1;
const MINIMUM: i32 = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: i32 = 3;

/// Physical memory mapped at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Mapping {
    /// Where.
    pub(in super::super) address: Address,
    /// How much, a multiple of the granularity.
    bytes: usize,
    handle: u64,
}

impl Context {
    fn location(&self) -> Location {
        Location { kind: ON_DEVICE, id: self.device }
    }

    /// Reserves addresses, creates memory and maps it there; `None` when the memory is not there.
    pub(in super::super) fn map(&self, bytes: u64) -> Result<Option<Mapping>, GpuError> {
        let properties = PhysicalProperties {
            kind: PINNED,
            handle_types: 0,
            location: self.location(),
            windows_handle: 0,
            flags: [0; 8],
        };
        let mut granularity = 0;
        // SAFETY: the structure is that of cuda.h and outlives the call.
        unsafe { self.functions.granularity(&raw mut granularity, &raw const properties, MINIMUM)? };
        let bytes = (bytes as usize).next_multiple_of(granularity.max(1));
        let mut handle = 0;
        // SAFETY: as above; the handle is written.
        let created = unsafe { self.functions.physical_create(&raw mut handle, bytes, &raw const properties, 0) };
        if none_if_exhausted(created)?.is_none() {
            return Ok(None);
        }
        let mut address = 0;
        let access = Access { location: self.location(), flags: READ_WRITE };
        // SAFETY: the range is reserved before it is mapped and mapped before access is given; sizes are multiples of
        // the granularity.
        unsafe {
            self.functions.address_reserve(&raw mut address, bytes, 0, 0, 0)?;
            self.functions.map(address, bytes, 0, handle, 0)?;
            self.functions.set_access(address, bytes, &raw const access, 1)?;
        }
        Ok(Some(Mapping { address: Address(address), bytes, handle }))
    }

    /// Takes all of it apart again. Unlike `cuMemFree`, unmapping does not wait for kernels, so this does.
    pub(in super::super) fn unmap(&self, mapping: Mapping) -> Result<(), GpuError> {
        self.synchronize()?;
        let Mapping { address: Address(address), bytes, handle } = mapping;
        // SAFETY: the mapping came from `map` and is taken apart once.
        unsafe {
            self.functions.unmap(address, bytes)?;
            self.functions.physical_release(handle)?;
            self.functions.address_free(address, bytes)
        }
    }
}
