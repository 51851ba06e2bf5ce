//! What is fuzzed: every reader of bytes that somebody else wrote, with what must hold whatever they are.
//!
//! `fuzz/targets` gives each to cargo-fuzz, and `tests/fuzz_corpus.rs` replays the corpus.

use jetfault::decide::checkpoint::inspect;
use jetfault::decide::evidence::{journal_text, kernel_messages, read_boots};
use jetfault::decide::plan::{Plan, PlanOptions, expand};
use jetfault::decide::{crash, kernel_log, tegrastats, telemetry};
use jetfault::model::board::parse_board;
use jetfault::model::checkpoint::{Header, LENGTH_BYTES, header_bytes};
use jetfault::model::ids::BootId;
use jetfault::model::journal::{Event, Record, VERSION, decode, encode};
use jetfault::model::matrix::parse_bytes;
use jetfault::model::power_mode::parse_conf;
use jetfault::model::protocol::{Conversation, Reply};
use jetfault::model::units::UptimeMs;
use jetfault::perform::journal::{ReadError, read_records};

/// A matrix: what is wrong is told with its place, and what is right can be planned.
pub(crate) fn matrix(bytes: &[u8]) {
    match parse_bytes(bytes, "fuzz.toml", &[]) {
        Err(error) => assert!(!error.problems().is_empty(), "refused without a reason"),
        Ok(matrix) => {
            if let Ok(plan) = expand(&matrix, &PlanOptions::default()) {
                assert_eq!(Plan::from_json(&plan.to_json()).as_ref(), Ok(&plan), "a plan is read as it was written");
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = parse_board(text);
    }
}

/// A journal: what is read of it is what was written, and what is not read is kept.
pub(crate) fn journal(bytes: &[u8]) {
    let mut again = Vec::new();
    let read = read_records::<ReadError>(bytes, |record| {
        again.extend_from_slice(&encode(&record));
        Ok(())
    });
    if let Ok(tail) = read {
        let (good, torn) = bytes.split_at(tail.good as usize);
        assert_eq!(torn, tail.torn, "the end is kept as it is");
        // A line may have been written by another version, whose spelling differs; what it says is the same.
        let mut records = Vec::new();
        let whole = read_records::<ReadError>(again.as_slice(), |record| {
            records.push(record);
            Ok(())
        });
        assert!(whole.is_ok_and(|tail| tail.torn.is_empty()), "what was read can be written");
        let mut number = 0;
        for line in good.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            number += 1;
            assert_eq!(decode(line, number).as_ref(), Ok(&records[number as usize - 1]));
        }
    }
}

/// Events, line by line, as no checksum lets them through to the decoder: what is written is read as it was.
pub(crate) fn event(bytes: &[u8]) {
    let boot: BootId = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993".parse().expect("a boot id");
    let wall = serde_json::from_str("\"2026-01-01T00:00:00.000Z\"").expect("a time");
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Event>(line) else { continue };
        let record = Record { version: VERSION, seq: 1, boot: boot.clone(), uptime_ms: UptimeMs(1), wall, event };
        let written = encode(&record);
        assert_eq!(decode(&written[..written.len() - 1], 1), Ok(record));
    }
}

/// A kernel log: no line makes another one's finding go away.
pub(crate) fn kernel_log(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let once = kernel_log::classify(text.lines());
    let twice = kernel_log::classify(text.lines().chain(text.lines()));
    assert!(once.findings.len() <= twice.findings.len(), "saying it again hides nothing");
}

/// Files that a dying machine left, and those that a living one shows.
pub(crate) fn evidence(bytes: &[u8]) {
    let _ = (kernel_messages(bytes), read_boots(bytes), journal_text(bytes));
    let text = String::from_utf8_lossy(bytes);
    let _ = (parse_conf(&text), crash::mappings(&text), tegrastats::parse(&text));
    let _ = (telemetry::meminfo(&text, "MemAvailable"), telemetry::largest_free_block(&text, 4096));
    let _ = (telemetry::nvmap_total(&text), telemetry::stall(&text), telemetry::temperature(&text));
}

/// What a worker says, line by line: a conversation goes on, or is told to be illegal.
pub(crate) fn protocol(bytes: &[u8]) {
    let mut conversation = Conversation::Silent;
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(reply) = serde_json::from_slice::<Reply>(line) else { continue };
        match conversation.next(&reply) {
            Ok(next) => conversation = next,
            Err(_) => break,
        }
    }
}

/// The header of a safetensors file of any length.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<{ LENGTH_BYTES as usize }>() else { return };
    let Ok(json_bytes) = header_bytes(*length, bytes.len() as u64) else { return };
    let Some((json, data)) = rest.split_at_checked(json_bytes) else { return };
    if let Ok(header) = Header::parse(json, data.len() as u64) {
        drop(inspect(&header, None));
    }
}
