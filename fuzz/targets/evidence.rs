#![no_main]

#[allow(dead_code, reason = "each target has one of them")]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::evidence(bytes));
