//! What the worker does and safe code cannot: a real invalid access, for injected faults and the fake worker, and advice
//! to the kernel about memory.

#![expect(
    unsafe_code,
    reason = "an injected SIGSEGV is raised by the processor, madvise takes an address, mlockall is foreign"
)]

use std::mem::MaybeUninit;

/// Backs `memory` with pages now, by one call instead of a fault for each page. They are the pages that the faults would
/// have brought, so the process takes the same memory of the same kind (`MADV_POPULATE_WRITE`, madvise(2)).
///
/// Where the kernel does not know the call (before Linux 5.14) or cannot do it, the answer is false, and every page comes
/// with the first write to it.
pub(super) fn populate<T>(memory: &mut [MaybeUninit<T>]) -> bool {
    let page = rustix::param::page_size();
    let range = memory.as_mut_ptr_range();
    let before = range.start.addr() % page;
    let bytes = (range.end.addr() - range.start.addr() + before) / page * page;
    let start = range.start.wrapping_byte_sub(before);
    // SAFETY: the call writes nothing, it only brings pages; the first one may begin before `memory`, and is mapped
    // because a part of `memory` lies in it.
    unsafe { libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) == 0 }
}

/// Keeps every page that this process has now from being swapped (mlockall(2)); false where it may not.
pub(super) fn lock_memory() -> bool {
    // SAFETY: the call takes a number and moves no memory of this process.
    unsafe { libc::mlockall(libc::MCL_CURRENT) == 0 }
}

/// Reads from the zero page, which no process has mapped: SIGSEGV from the processor, not from `kill`.
pub(super) fn read_page_zero() -> u8 {
    // Address 1 rather than 0: a debug build checks for null and would abort instead.
    let nowhere = std::hint::black_box(std::ptr::without_provenance::<u8>(1));
    // SAFETY: not sound by design. The read traps before it yields a value: Linux maps nothing below
    // `vm.mmap_min_addr`, and the process ends here. Volatile keeps the compiler from reasoning about it.
    unsafe { nowhere.read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page faults of this thread so far.
    fn faults() -> i64 {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a live `rusage`, which all-zero bytes are and which the call fills.
        unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init().ru_minflt
        }
    }

    #[test]
    fn populated_memory_takes_no_fault_and_its_neighbours_are_kept() {
        const PAGES: usize = 1000;
        let page = rustix::param::page_size();
        let mut memory: Vec<u8> = Vec::with_capacity(PAGES * page);
        memory.extend_from_slice(b"neighbour");
        let is_populated = populate(memory.spare_capacity_mut());
        assert_eq!(memory, b"neighbour");
        let before = faults();
        memory.resize(PAGES * page, 1);
        let taken = faults() - before;
        // The last page may be shared with what lies behind. Without the call there are as many faults as pages.
        assert_eq!(taken < 10, is_populated, "{taken} faults");
    }

    #[test]
    fn a_piece_of_a_page_and_nothing_at_all_are_populated_too() {
        populate(&mut [MaybeUninit::<u8>::uninit(); 3]);
        populate::<u8>(&mut []);
    }
}
