//! The facts of a finding, from the named groups of the rule that matched.
//!
//! Owns what a group's name means. Where a line does not say it all, what a later line adds is put in by
//! [`super::Classifier`].

use regex::Captures;

use crate::model::kernel_log::{FaultDetail, FaultPlace, OomScope};

/// The longest fact in words, in bytes.
const ABOUT_BYTES_MAX: usize = 120;

/// Groups that name a signal by being there, and its number on every Linux.
const SIGNALS: [(&str, u8); 5] = [("sigill", 4), ("sigtrap", 5), ("sigbus", 7), ("sigfpe", 8), ("sigsegv", 11)];

/// What the groups state.
pub(super) fn detail(found: &Captures<'_>) -> FaultDetail {
    FaultDetail {
        pid: number(found, "pid"),
        task: text(found, "task"),
        cpu: number(found, "cpu"),
        seconds: number(found, "seconds"),
        code: number(found, "code"),
        signal: signal(found),
        scope: scope(found),
        cgroup: text(found, "cgroup"),
        place: place(found),
        about: text(found, "about"),
    }
}

/// The place of an instruction at `address` in a mapping that begins at `base`, by the address a later line gives.
pub(super) fn offset_in_mapping(address: u64, base: u64) -> Option<u64> {
    address.checked_sub(base)
}

/// Where the mapping of the module begins, for lines that state no address.
pub(super) fn base(found: &Captures<'_>) -> Option<u64> {
    hex(found, "base")
}

fn text(found: &Captures<'_>, group: &str) -> Option<String> {
    let text = found.name(group)?.as_str().trim();
    (!text.is_empty()).then(|| text[..text.floor_char_boundary(ABOUT_BYTES_MAX)].to_owned())
}

fn number(found: &Captures<'_>, group: &str) -> Option<u32> {
    found.name(group)?.as_str().parse().ok()
}

fn hex(found: &Captures<'_>, group: &str) -> Option<u64> {
    u64::from_str_radix(found.name(group)?.as_str(), 16).ok()
}

fn signal(found: &Captures<'_>) -> Option<u8> {
    let named = SIGNALS.iter().find(|(group, _)| found.name(group).is_some()).map(|(_, number)| *number);
    named.or_else(|| found.name("signal")?.as_str().parse().ok())
}

fn scope(found: &Captures<'_>) -> Option<OomScope> {
    if found.name("global").is_some() {
        Some(OomScope::Global)
    } else if found.name("memcg").is_some() || found.name("cgroup").is_some() {
        Some(OomScope::Cgroup)
    } else {
        None
    }
}

fn place(found: &Captures<'_>) -> Option<FaultPlace> {
    let mapping_offset = || offset_in_mapping(hex(found, "ip")?, base(found)?);
    Some(FaultPlace {
        module: text(found, "module")?,
        file_offset: hex(found, "offset"),
        mapping_offset: mapping_offset(),
    })
}
