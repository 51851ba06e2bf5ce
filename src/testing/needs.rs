//! What a test needs of the machine beside a toolchain.
//!
//! Tests of the command line include this file too, so it leans on nothing of the crate.

/// Says that `test` shows nothing here, because `what` is missing, for the reason `why`.
///
/// Whoever has only the repository is told, and the rest of the tests passes. Whoever names `what` in `JETFAULT_REQUIRE`
/// (words with commas between) wants no such gap: then it is a failure.
#[track_caller]
pub(crate) fn is_missing(what: &str, test: &str, why: &str) {
    let required = std::env::var("JETFAULT_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|word| word == what), "{test} needs {what}: {why}");
    eprintln!("NOT RUN: {test}: {why}");
}
