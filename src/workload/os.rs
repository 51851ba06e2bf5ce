//! The one deed of the worker that safe code cannot do: a real invalid access, for injected faults and the fake worker.

#![expect(unsafe_code, reason = "an injected SIGSEGV must be a real one, raised by the processor")]

/// Reads from the zero page, which no process has mapped: SIGSEGV from the processor, not from `kill`.
pub(super) fn read_page_zero() -> u8 {
    // Address 1 rather than 0: a debug build checks for null and would abort instead.
    let nowhere = std::hint::black_box(std::ptr::without_provenance::<u8>(1));
    // SAFETY: not sound by design. The read traps before it yields a value: Linux maps nothing below
    // `vm.mmap_min_addr`, and the process ends here. Volatile keeps the compiler from reasoning about it.
    unsafe { nowhere.read_volatile() }
}
