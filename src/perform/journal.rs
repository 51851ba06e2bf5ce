//! The journal as it is written: sequence numbers, append, sync, and the token that a synced record is.

/// A value whose record is on the disk. Only the journal can make one, after the sync returned.
#[derive(Debug)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// Pretends that `value` is durable, for tests that start children without a journal. It is not compiled into
    /// optimised builds: there the journal is the only way to a token.
    #[cfg(any(test, debug_assertions))]
    #[doc(hidden)]
    pub fn pretended_for_tests(value: T) -> Self {
        Self(value)
    }

    /// What is durable.
    pub fn get(&self) -> &T {
        &self.0
    }
}
